"""The middleware around all routes: checks hosts, origins, keys and bodies, sets headers, counts,
hides faults."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deepmf.serve.auth import KeyRing, check_role, identify
from deepmf.serve.metrics import ServiceMetrics
from deepmf.serve.schemas import ApiError
from deepmf.serve.service import ServiceLimits

logger = logging.getLogger("deepmf.serve")

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_STATIC_FILES = ("/page/", "/swagger/")
# Paths whose routes read the body themselves, after they have checked the role of the API key,
# since it may be long.
STREAMED_PATHS = ("/v1/entries/bulk",)
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(eq=False)
class Guard:
    """An ASGI middleware around the whole application.

    FastAPI reads a body before it checks anything else. So the guard looks up the API key of a
    request with a body first, and limits the bytes of all bodies that are read or answered at the
    same time.

    Parameters
    ----------
    keys : the API keys; None if everybody may do everything.
    hosts : host names that requests may use; None for any. This protects a service without API keys
        from web pages whose own host name resolves to this machine. Starlette's
        TrustedHostMiddleware responds with plain text and 400, not with the JSON error of all other
        routes, and before Starlette 1.0 it did not know `[::1]`.
    """

    app: ASGIApp
    _: KW_ONLY
    keys: KeyRing | None
    metrics: ServiceMetrics
    limits: ServiceLimits
    hosts: tuple[str, ...] | None = None
    n_bytes: int = field(default=0, init=False)  # of all bodies in flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0
        is_http_1 = scope.get("http_version", "1.1").startswith("1")

        async def respond_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                is_static = scope["path"].startswith(_STATIC_FILES)
                headers["cache-control"] = "no-cache" if is_static else "no-store"
            await send(message)

        try:
            # decoded exactly once: ids in it may contain any character
            if raw := scope.get("raw_path"):
                scope["path"] = _decode_utf8(raw.partition(b"?")[0])
            size = self._check(scope, is_http_1)
            if self.n_bytes + size > max(size, self.limits.all_bodies_bytes):
                reason = "other requests with long bodies are in progress; try again"
                raise ApiError(503, "busy", reason)
            self.n_bytes += size
            try:
                if size:
                    body = await read_body(Request(scope, receive), size, self.limits.seconds)
                    receive = _replay_body(body, receive)
                await self.app(scope, receive, respond_guarded)
            finally:
                self.n_bytes -= size
        except ApiError as error:
            # The rest of the body is not waited for.
            closing = {"connection": "close"} if is_http_1 else {}
            await respond(error, closing)(scope, receive, respond_guarded)
        except Exception as error:  # noqa: BLE001 (clients see no more than one sentence of any fault)
            # The type and the place of the error, not its message, which may contain ids and
            # values.
            frames = traceback.extract_tb(error.__traceback__)[-12:]
            where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
            logger.error("fault", extra={"fields": {"error": type(error).__name__, "where": where}})
            if not status:
                fault = ApiError(500, "fault", "the service failed to answer; its log says more")
                await respond(fault)(scope, receive, respond_guarded)
        finally:
            self._record(scope, status or 499, time.perf_counter() - start)

    def _check(self, scope: Scope, is_http_1: bool) -> int:
        """Return the largest size of the body to read, 0 if the routes need none of it.

        Raises `ApiError` for a wrong host or origin, a query that is not UTF-8, a body without a
        known API key, or one that is too large.
        """
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        if self.hosts is not None and name not in self.hosts:
            raise ApiError(403, "host", "without API keys, this service answers to localhost only")
        is_safe = scope["method"] in _SAFE_METHODS
        if not is_safe and not _is_same_origin(headers):
            raise ApiError(403, "origin", "pages of other origins may not send this request")
        _decode_utf8(scope.get("query_string") or b"")
        key = scope["deepmf.key"] = identify(self.keys, headers.get("authorization", ""))
        if is_safe:
            return 0
        check_role(key, "read")
        is_streamed = scope["path"] in STREAMED_PATHS
        max_bytes = self.limits.bulk_bytes if is_streamed else self.limits.body_bytes
        # Without these headers, HTTP/1.1 has no body; HTTP/2 may have one.
        has_body = "transfer-encoding" in headers or not is_http_1
        length = headers.get("content-length", "" if has_body else "0")
        size = int(length) if length.isdigit() else max_bytes
        if size > max_bytes:
            raise _build_size_error(max_bytes)
        return 0 if is_streamed else size

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request by the path of its route, since its own path contains ids.

        Files of the page, two dozen at a visit, are logged at level debug only.
        """
        route = getattr(scope.get("route"), "path_format", None)
        name = f"{scope['method']} {route}" if route else "(none)"
        self.metrics.requests.labels(name, str(status)).inc()
        self.metrics.seconds.labels(name).observe(seconds)
        fields = {
            "route": name,
            "status": status,
            "ms": round(1000 * seconds, 2),
            "key": getattr(scope.get("deepmf.key"), "name", None),
        }
        is_page = scope["path"].startswith(_STATIC_FILES) and status < 400
        level = logging.DEBUG if is_page else logging.INFO
        logger.log(level, "request", extra={"fields": fields})


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return what gives the application a body that was read completely, and then what else is
    received."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def read_body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """Read a body; raise `ApiError` if it is too long or arrives too slowly."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > max_bytes:
                    raise _build_size_error(max_bytes)
    except ClientDisconnect as error:
        raise ApiError(400, "cut_off", "the request ended before its body did") from error
    except TimeoutError as error:
        raise ApiError(400, "too_slow", "the body of the request arrived too slowly") from error
    return bytes(body)


def respond(error: ApiError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the response to a request that fails, with headers beside those of the error."""
    usual_headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(
        error.status, {}
    )
    content = {"error": {"code": error.code, "message": str(error)}}
    return JSONResponse(content, error.status, {**usual_headers, **(headers or {})})


def _is_same_origin(headers: Headers) -> bool:
    """Whether a request comes from our own page, or from no page at all, in which case it has
    neither header."""
    # set by browsers, and not confused by proxies that change the host
    if "sec-fetch-site" in headers:
        return headers["sec-fetch-site"] in ("same-origin", "none")
    host = headers.get("host", "")
    return headers.get("origin", f"//{host}").partition("//")[2].lower() == host.lower()


def _decode_utf8(quoted: bytes) -> str:
    try:
        return unquote_to_bytes(quoted).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(400, "not_utf8", "the path or the query is not UTF-8") from error


def _build_size_error(limit: int) -> ApiError:
    return ApiError(413, "too_large", f"the body is longer than {limit:,} bytes")
