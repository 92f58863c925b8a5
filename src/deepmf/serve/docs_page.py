"""The page `/docs`: every route with its parameters and bodies, from the OpenAPI description, without scripts."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ title }}: routes</title></head><body><main>
<h1>{{ title }} {{ version }}: routes</h1>
<p>{{ description }} For programs: <a href="/openapi.json">/openapi.json</a>.</p>
{% for route in routes %}<section><h2><code>{{ route.method }} {{ route.path }}</code></h2><p>{{ route.summary }}</p>
{% if route.parameters %}<ul>{% for one in route.parameters %}<li><code>{{ one.name }}</code> ({{ one.in }}):
{{ one.description or "" }}</li>{% endfor %}</ul>{% endif %}
{% if route.body %}<details><summary>Body</summary><pre>{{ route.body }}</pre></details>{% endif %}
{% if route.answer %}<details><summary>Answer</summary><pre>{{ route.answer }}</pre></details>{% endif %}
</section>{% endfor %}
</main></body></html>
"""


async def docs_page(request: Request) -> HTMLResponse:
    """Return the page."""
    description = request.app.openapi()
    schemas = description["components"]["schemas"]
    routes = [
        {
            "method": method.upper(),
            "path": path,
            "summary": operation.get("description", ""),
            "parameters": operation.get("parameters", []),
            "body": _schema(operation.get("requestBody"), schemas),
            "answer": _schema(operation["responses"].get("200"), schemas),
        }
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    ]
    page = Environment(autoescape=True).from_string(_TEMPLATE).render(routes=routes, **description["info"])
    return HTMLResponse(page)


def _schema(part: Any, schemas: dict[str, Any]) -> str | None:
    """Return the schema of a body as text."""
    schema = (part or {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rsplit("/", 1)[-1]
    return json.dumps(schemas[name].get("properties", {}), indent=2) if name in schemas else None
