"""The guard around all routes: bounds bodies, checks hosts and text, sets headers, counts, logs, and hides faults."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deepmf.serve.errors import Refusal
from deepmf.serve.metrics import ServiceMetrics
from deepmf.serve.service import ServiceLimits

logger = logging.getLogger("deepmf.serve")


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


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

_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Guard:
    """An ASGI middleware around the whole app.

    hosts: the names that requests may come by; None: any. A page elsewhere that has a name of its own point to this
    machine cannot ask a service that needs no keys.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: ServiceMetrics, limits: ServiceLimits, hosts: tuple[str, ...] | None = None
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._limits = limits
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, answer = time.perf_counter(), _Answer(send, cacheable=scope["path"].startswith("/page/"))
        try:
            self._check(scope)
            scope["path"] = _path(scope)
            body = await _read_in_time(receive, self._limits)
            await self._app(scope, _Received(body, receive), answer)
        except Refusal as refusal:
            await refuse(answer, refusal)
        except Exception as error:  # noqa: BLE001 (whatever it is, nobody sees more of it than one sentence)
            _log_fault(error)
            if not answer.status:
                await refuse(answer, Refusal(500, "fault", "the service failed to answer; its log says more"))
        finally:
            self._tell(scope, answer.status or 499, time.perf_counter() - start)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self._hosts is not None:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            name = host if host.endswith("]") else host.rsplit(":", 1)[0]
            if name not in self._hosts:
                raise Refusal(403, "host", "without API keys, this service answers to localhost alone")
        if scope["method"] not in _SAFE_METHODS and not _is_same_origin(headers):
            raise Refusal(403, "origin", "a page of another origin may not send this")
        _utf8(scope.get("query_string") or b"")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._limits.body_bytes:
            raise _too_large(self._limits.body_bytes)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        # The path of the route, never that of the request: that has ids in it.
        route = getattr(scope.get("route"), "path_format", None) or "(none)"
        name = f"{scope['method'] if route != '(none)' else ''} {route}".strip()
        self._metrics.answered(name, status, seconds)
        fields = {"route": name, "status": status, "ms": round(1000 * seconds, 2), "key": scope.get("deepmf.key")}
        logger.info("request", extra={"fields": fields})


class _Answer:
    """Sends an answer, and the headers that all have."""

    def __init__(self, send: Send, *, cacheable: bool) -> None:
        self._send = send
        self._cacheable = cacheable
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            caching = b"no-cache" if self._cacheable else b"no-store"
            message = {**message, "headers": [*message["headers"], *_RAW_HEADERS, (b"cache-control", caching)]}
        await self._send(message)


class _Received:
    """A body that was read whole, as the application receives it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._receive = receive

    async def __call__(self) -> Message:
        return self._messages.pop() if self._messages else await self._receive()


async def _read_in_time(receive: Receive, limits: ServiceLimits) -> bytes:
    """Return a body, as long as it is neither too long nor too slow."""
    try:
        return await asyncio.wait_for(_read(receive, limits.body_bytes), limits.seconds)
    except TimeoutError as error:
        raise Refusal(400, "too_slow", "the body of the request came too slowly") from error


async def _read(receive: Receive, most: int) -> bytes:
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "cut_off", "the request ended before its body did")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return b"".join(pieces)


async def refuse(send: Any, refusal: Refusal) -> None:
    """Send a refusal."""
    body = json.dumps({"error": {"code": refusal.code, "message": str(refusal)}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += refusal_headers(refusal)
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def refusal_headers(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    """Return the headers that go with a refusal."""
    headers = []
    if refusal.retry_after is not None:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def _is_same_origin(headers: dict[bytes, bytes]) -> bool:
    """Say whether a request comes from our own page, or from no page at all: then it has neither header."""
    site = headers.get(b"sec-fetch-site")  # what a browser says of itself; it knows names that proxies change
    if site is not None:
        return site in (b"same-origin", b"none")
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower()


def _path(scope: Scope) -> str:
    """Return the path, decoded once and exactly: ids in it may hold any character."""
    raw = scope.get("raw_path")
    return _utf8(raw.partition(b"?")[0]) if raw else str(scope["path"])


def _utf8(quoted: bytes) -> str:
    try:
        return unquote_to_bytes(quoted).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(400, "not_utf8", "the path or the query is not UTF-8") from error


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too_large", f"the body is longer than {most:,} bytes")


def _log_fault(error: Exception) -> None:
    """Log what failed and where; not what the error says, which may hold ids and values."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-12:]]
    logger.error("fault", extra={"fields": {"error": type(error).__name__, "where": where}})
