"""The ASGI application: routes, guard, refusals and static files around a service that it is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from deepmf.serve.access import Access
from deepmf.serve.docs_page import docs_page
from deepmf.serve.entry_routes import router as entry_router
from deepmf.serve.feature_routes import router as feature_router
from deepmf.serve.guard import LOOPBACK_NAMES, Guard, refusal_headers
from deepmf.serve.keys import KeyRing
from deepmf.serve.operator_routes import router as operator_router
from deepmf.serve.rate_limit import RateLimit
from deepmf.serve.read_routes import router as read_router
from deepmf.serve.refusals import KINDS, Refusal, shorten
from deepmf.serve.service import Service

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
