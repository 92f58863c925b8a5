"""The ASGI application: routes, guard, refusals and static files around a service that it is given."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from deepmf.serve.auth import Access, KeyRing, RateLimit
from deepmf.serve.errors import KINDS, Refusal, shorten
from deepmf.serve.guard import LOOPBACK_NAMES, Guard, refusal_headers
from deepmf.serve.routes import entry_router as entry_router
from deepmf.serve.routes import feature_router as feature_router
from deepmf.serve.routes import operator_router as operator_router
from deepmf.serve.routes import read_router as read_router
from deepmf.serve.service import Service

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


PAGE = Path(__file__).parent / "page"


_ROUTERS = (read_router, entry_router, feature_router, operator_router)


def create_app(service: Service, *, keys: KeyRing | None = None, rate: float | None = None) -> FastAPI:
    """Return the application of a service; it closes the service when it stops.

    keys: who may do what; None: everybody may do everything, but only by the names of this machine.
    rate: requests a second for each key.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="deepmf",
        version=version("deepmf"),
        description="Predictions for the rows and columns of a matrix, and entries learned without training.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.state.access = Access(keys, None if rate is None else RateLimit(rate))
    for router in _ROUTERS:
        app.include_router(router)
    app.add_api_route("/docs", docs_page, include_in_schema=False)
    app.add_api_route("/", _index, include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE))
    app.add_exception_handler(Refusal, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(SQLAlchemyError, _on_database)
    if keys is None:
        _describe_without_keys(app)
    app.add_middleware(
        Guard,
        metrics=service.metrics,
        limits=service.limits,
        hosts=LOOPBACK_NAMES if keys is None else None,
    )
    return app


def _describe_without_keys(app: FastAPI) -> None:
    """Leave API keys out of the description where none are needed; it is made when it is first asked for."""
    describe = app.openapi

    def described() -> dict[str, Any]:
        description = describe()
        description["components"].pop("securitySchemes", None)
        for operations in description["paths"].values():
            for operation in operations.values():
                operation.pop("security", None)
        return description

    app.openapi = described  # type: ignore[method-assign]


async def _index() -> FileResponse:
    if not (PAGE / "index.html").is_file():
        raise Refusal(404, "no_page", "this service has no page; /docs describes its routes")
    return FileResponse(PAGE / "index.html", media_type="text/html")


async def _on_refusal(_: Request, error: Any) -> JSONResponse:
    headers = {name.decode(): value.decode() for name, value in refusal_headers(error)}
    return _said(error.status, error.code, str(error), headers)


async def _on_invalid(_: Request, error: Any) -> JSONResponse:
    """Say in one sentence what is wrong first, and where; the input itself is not repeated."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _said(422, "invalid", f"the body is not JSON, from its character {first['loc'][-1]} on")
    place = ".".join(str(part) for part in first["loc"])
    return _said(422, "invalid", f"{place}: {first['msg'].removeprefix('Value error, ')}")


async def _on_database(_: Request, error: Any) -> JSONResponse:
    return await _on_refusal(_, Refusal(503, "no_database", "the database does not answer", retry_after=1))


async def _on_http(request: Request, error: Any) -> JSONResponse:
    code = {404: "no_such_path", 405: "no_such_method"}.get(error.status_code, "refused")
    message = KINDS.get(error.status_code, "The request is refused.")
    if error.status_code == 404:
        message = "there is no such path; /docs describes those there are"
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return _said(error.status_code, code, message, headers)


def _methods(request: Request) -> set[str]:
    """Return the methods that the path of a request has; each of them is a route of its own."""
    routes = [*request.app.routes, *(route for router in _ROUTERS for route in router.routes)]
    matching = [route for route in routes if route.matches(request.scope)[0] != Match.NONE]
    found = {method for route in matching for method in getattr(route, "methods", None) or ()}
    return found or {"GET", "HEAD"}  # of files, below their own root


def _said(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": shorten(message)}}, status, headers)
