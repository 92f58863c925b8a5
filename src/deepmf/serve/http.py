"""HTTP as the service speaks it: what comes before the body of a request is bounded in size, number and time."""

from __future__ import annotations

import asyncio
import json
from typing import ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol


class LimitedHttp(HttpToolsProtocol):
    """The protocol of one connection; whoever sends too much, or too slowly, is refused and cut off.

    The application sees a request once all of its headers are there, so that its guard cannot bound them.

    head_bytes: how long the path and all headers of a request may be, together.
    headers: how many headers a request may have, those after a chunked body included.
    head_seconds: how long they may take to arrive, from the opening of the connection or from their first byte.
    waiting: how many requests may be sent ahead, while another one is answered.
    """

    head_bytes: ClassVar[int] = 32 << 10
    headers_at_most: ClassVar[int] = 100
    head_seconds: ClassVar[float] = 10.0
    waiting: ClassVar[int] = 32

    _timer: asyncio.TimerHandle | None = None
    _refusal: tuple[int, str, str] | None = None
    _n_unparsed = 0  # bytes since the last piece of a body, or the end of the headers: a header that never ends
    _n_head = 0  # bytes of the path and the headers so far

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        if not self._is_answering():
            self._wait_for_head()
        self._n_unparsed += len(data)
        super().data_received(data)
        if self._n_unparsed > self.head_bytes and not self.transport.is_closing():
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._n_head = 0

    def on_url(self, url: bytes) -> None:
        """Read a piece of the path."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Have a request answered, now or after those before it."""
        self._n_unparsed = 0
        if len(self.pipeline) >= self.waiting:
            self._refuse(429, "too_many_ahead", f"at most {self.waiting} requests may wait on one connection")
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Read a piece of a body."""
        self._n_unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._n_unparsed = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request; one that was refused before all of it came has as long to end."""
        super().on_response_complete()
        if not self.pipeline and self.cycle.more_body:
            self._wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """Say in the form of all refusals what is wrong, and close the connection."""
        too_large = self._n_unparsed > self.head_bytes
        default = _too_large(self.head_bytes) if too_large else (400, "not_http", "this is no request of HTTP/1.1")
        if not self._is_answering():
            self.transport.write(_response(*(self._refusal or default)))
        self.transport.close()

    def _count(self, n_bytes: int) -> None:
        self._n_head += n_bytes
        if self._n_head > self.head_bytes:
            self._refuse(*_too_large(self.head_bytes))
        if len(self.headers) >= self.headers_at_most:
            self._refuse(431, "too_many_headers", f"a request has at most {self.headers_at_most} headers")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._refusal = status, code, message
        raise httptools.HttpParserError(message)  # the parser stops here, and `send_400_response` follows

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing() and not self._is_answering():
            if self._n_unparsed:
                late = f"the headers of a request have {self.head_seconds:g} seconds to arrive"
                self.transport.write(_response(408, "too_slow", late))
            self.transport.close()


def _too_large(most: int) -> tuple[int, str, str]:
    return 431, "head_too_large", f"the path and the headers of a request have at most {most:,} bytes"


def _response(status: int, code: str, message: str) -> bytes:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    lines = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return STATUS_LINE[status] + lines + body
