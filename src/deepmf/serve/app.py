"""The ASGI application: routes, error handlers, pages and the guard around a service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from deepmf.serve.auth import KeyRing
from deepmf.serve.guard import LOOPBACK_HOSTS, Guard, respond
from deepmf.serve.ids import invent_label, is_visitor
from deepmf.serve.routes import router
from deepmf.serve.schemas import (
    EXAMPLE_COLUMNS,
    EXAMPLE_ROW,
    EXAMPLE_VALUE,
    STATUS_MEANINGS,
    ApiError,
)
from deepmf.serve.service import Service

PAGE = Path(__file__).parent / "page"


def create_app(service: Service, *, keys: KeyRing | None = None) -> FastAPI:
    """Return the application of a service; it closes the service when it stops.

    Parameters
    ----------
    keys : the API keys; None lets everybody do everything, but only under the host names of this
        machine.
    """

    @asynccontextmanager
    async def close_at_end(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="deepmf",
        version=version("deepmf"),
        description="Predictions for the rows and columns of a matrix, and entries learned without training.",
        docs_url=None,
        redoc_url=None,
        lifespan=close_at_end,
    )
    app.state.service = service
    app.state.keys = keys
    app.router.routes.extend(router.routes)  # include_router would build all of them anew
    app.add_api_route("/", _get_index, include_in_schema=False)
    app.add_api_route("/docs", _get_docs, include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE))
    app.mount("/swagger", StaticFiles(directory=str(files("fastapi_offline") / "static")))
    app.add_exception_handler(ApiError, _handle_api_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(SQLAlchemyError, _handle_database_error)
    describe = app.openapi

    if keys is None:  # with keys, the description, which needs none, must not name columns
        app.openapi = lambda: _show_without_keys(describe(), service)  # type: ignore[method-assign]
    app.add_middleware(
        Guard,
        keys=keys,
        metrics=service.metrics,
        limits=service.limits,
        hosts=LOOPBACK_HOSTS if keys is None else None,
    )
    return app


async def _get_index() -> FileResponse:
    return FileResponse(PAGE / "index.html", media_type="text/html")


async def _get_docs() -> FileResponse:
    return FileResponse(PAGE / "docs.html", media_type="text/html")


def _show_without_keys(description: dict[str, Any], service: Service) -> dict[str, Any]:
    """Return an OpenAPI description without API keys, with ids and values of the model in its
    examples."""
    entries = service.current.model.entries_
    columns = entries.columns[np.argsort(-entries.column_counts, kind="stable")[:2]].tolist()
    listed = (label for label in entries.rows.array.tolist() if not is_visitor(label))
    row = next(listed, invent_label(entries.rows))
    value = 1.0 if entries.scale.is_interactions else entries.scale.high
    text = json.dumps(description).replace(f'"value": {EXAMPLE_VALUE}', f'"value": {value}')
    for example, label in zip(
        (*EXAMPLE_COLUMNS, EXAMPLE_ROW), (columns[0], columns[-1], row), strict=True
    ):
        text = text.replace(json.dumps(example), json.dumps(label))
    shown: dict[str, Any] = json.loads(text)
    del shown["components"]["securitySchemes"]
    for operations in shown["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return shown


async def _handle_api_error(_: Request, error: Any) -> Response:
    return respond(error)


async def _handle_invalid_request(request: Request, error: Any) -> Response:
    """Report the first problem and its place in one sentence, without repeating the input."""
    first = error.errors()[0]
    kind = request.headers.get("content-type", "no Content-Type")
    code, message = "invalid", f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if first["loc"] == ("body",) and "json" not in kind.lower():
        code = "content_type"
        message = f"got {kind:.100}; send Content-Type: application/json with a JSON body"
    elif first["type"] == "json_invalid":
        message = f"the body is not JSON, from its character {first['loc'][-1]} on"
    return respond(ApiError(422, code, message.replace(": Value error, ", ": ", 1)))


async def _handle_database_error(_: Request, error: Any) -> Response:
    return respond(ApiError(503, "no_database", "the database does not answer"))


async def _handle_http_exception(request: Request, error: Any) -> Response:
    status, headers = error.status_code, dict(error.headers or {})
    code, message = "refused", STATUS_MEANINGS.get(status, "The request is refused.")
    if status == 404:
        code, message = "no_such_path", "there is no such path; /docs lists all paths"
    elif status == 405:
        # each method of a path is a route of its own; static files are mounted and list none
        matching = [
            route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE
        ]
        methods = {method for route in matching for method in getattr(route, "methods", None) or ()}
        code, headers["Allow"] = "no_such_method", ", ".join(sorted(methods or {"GET", "HEAD"}))
    return respond(ApiError(status, code, message), headers)
