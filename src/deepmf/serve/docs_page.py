"""The page `/docs`: every route with its parameters and bodies, from the OpenAPI description, without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

Schema = dict[str, Any]  # as JSON Schema has it

_NAMES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "null": "null",
    "object": "an object",
}
# Bounds beyond this are those of whole numbers that JSON keeps exactly, and tell nothing.
_LARGEST_BOUND = 10**12


class Words(NamedTuple):
    """A part of a text, and the schema that it links to."""

    text: str
    schema: str | None = None


class Field(NamedTuple):
    """A parameter, or a field of a body."""

    name: str
    kind: list[Words]
    meaning: str
    required: bool


async def docs_page(request: Request) -> HTMLResponse:
    """Return the page."""
    description = request.app.openapi()
    schemas = description["components"]["schemas"].items()
    return HTMLResponse(
        _template().render(
            routes=list(_routes(description["paths"])),
            schemas=[
                {"name": name, "meaning": schema.get("description", ""), "fields": _fields(schema)}
                for name, schema in sorted(schemas)
            ],
            **description["info"],
        )
    )


@cache
def _template() -> Template:
    made = Environment(
        loader=PackageLoader("deepmf.serve"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template("docs.html")


def _routes(paths: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the page says of each route."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            yield {
                "anchor": f"{method}{path}",
                "method": method.upper(),
                "path": path,
                "meaning": operation.get("description", ""),
                "parameters": [
                    Field(each["name"], kind_of(each["schema"]), _meaning(each), each.get("required", False))
                    for each in operation.get("parameters", [])
                ],
                "body": _body(operation.get("requestBody")),
                "answer": _body(operation["responses"].get("200")),
            }


def _body(part: Any) -> list[Words]:
    """Return what a body is; nothing where there is none, or it is no JSON."""
    schema = (part or {}).get("content", {}).get("application/json", {}).get("schema", {})
    return kind_of(schema) if schema else []


def _fields(schema: Schema) -> list[Field]:
    required = schema.get("required", ())
    return [
        Field(name, kind_of(each), _meaning(each), name in required)
        for name, each in schema.get("properties", {}).items()
    ]


def _meaning(part: Any) -> str:
    default = part.get("default", part.get("schema", {}).get("default"))
    told = [part.get("description", ""), "" if default in (None, "") else f"Unless given: {json.dumps(default)}."]
    return " ".join(filter(None, told))


def kind_of(schema: Schema) -> list[Words]:
    """Say what a value is; other schemas are linked to.

    >>> "".join(part.text for part in kind_of({"type": "array", "items": {"$ref": "#/x/Pair"}, "maxItems": 9}))
    'a list (at most 9) of Pair'
    """
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return [Words(name, name)]
    if "anyOf" in schema:
        return list(_joined(map(kind_of, schema["anyOf"]), " or "))
    if "enum" in schema or "const" in schema:
        return [Words(" or ".join(json.dumps(each) for each in schema.get("enum", [schema.get("const")])))]
    if schema.get("type") == "array":
        bounds = _bounds(schema, "minItems", "maxItems")
        items: Schema = schema.get("items") or next(iter(schema.get("prefixItems", [])), {})
        return [Words(f"a list{bounds} of "), *kind_of(items)]
    if isinstance(schema.get("additionalProperties"), dict):
        return [Words("an object, under each name "), *kind_of(schema["additionalProperties"])]
    limits = _bounds(schema, "minimum", "maximum") or _bounds(schema, "minLength", "maxLength", of=" characters")
    return [Words(f"{_NAMES.get(schema.get('type', ''), 'anything')}{limits}")]


def _bounds(schema: Schema, low: str, high: str, *, of: str = "") -> str:
    """Say between which bounds a number or a length lies."""
    least, most = (schema.get(name) for name in (low, high))
    least, most = (None if bound is None or abs(bound) > _LARGEST_BOUND else f"{bound:,}" for bound in (least, most))
    if least is not None and most is not None:
        return f" ({least} to {most}{of})"
    told = f"at least {least}" if least is not None else f"at most {most}" if most is not None else ""
    return f" ({told}{of})" if told else ""


def _joined(parts: Iterable[list[Words]], separator: str) -> Iterator[Words]:
    for number, words in enumerate(parts):
        if number:
            yield Words(separator)
        yield from words
