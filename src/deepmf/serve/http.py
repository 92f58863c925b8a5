"""The HTTP protocol of one connection, with limits on the heads of requests."""

from __future__ import annotations

import asyncio
import json
from typing import ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from deepmf.serve.errors import ApiError


class LimitedHttp(HttpToolsProtocol):
    """The protocol of one connection; a client that sends too much or too slowly gets an error and is disconnected.

    The limits are here because the application sees a request only after all of its headers.
    """

    max_head_bytes: ClassVar[int] = 32 << 10  # of the path and all headers together
    max_headers: ClassVar[int] = 100  # including those after a chunked body
    head_seconds: ClassVar[float] = 10.0  # to arrive, from the start of the connection or from the first byte
    max_pipelined: ClassVar[int] = 32  # requests sent ahead while another is answered

    _timer: asyncio.TimerHandle | None = None
    _error: ApiError | None = None
    _n_unparsed = 0  # bytes since the last piece of a body or the end of the headers, to notice an endless header
    _n_head = 0  # bytes of the path and the headers so far

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, and close the connection if a header does not end."""
        if not self._is_answering():
            self._start_timer()
        self._n_unparsed += len(data)
        super().data_received(data)
        if self._n_unparsed > self.max_head_bytes and not self.transport.is_closing():
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Start counting the bytes of a request."""
        super().on_message_begin()
        self._n_head = 0

    def on_url(self, url: bytes) -> None:
        """Count a piece of the path."""
        self._count_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count_bytes(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass a request to the application, unless too many wait on this connection."""
        self._n_unparsed = 0
        if len(self.pipeline) >= self.max_pipelined:
            message = f"at most {self.max_pipelined} requests may wait on one connection"
            self._fail(ApiError(429, "too_many_ahead", message))
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of a body."""
        self._n_unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Pass on the end of a request."""
        self._n_unparsed = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the timer again if the rest of a request that was answered early is still to come."""
        super().on_response_complete()
        if not self.pipeline and self.cycle.more_body:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        """Send the error in the format of all errors, and close the connection."""
        if self._error is None and self._n_unparsed > self.max_head_bytes:
            self._error = self._build_head_error()
        if not self._is_answering():
            self.transport.write(_format(self._error or ApiError(400, "not_http", "this is not an HTTP/1.1 request")))
        self.transport.close()

    def _count_bytes(self, n_bytes: int) -> None:
        self._n_head += n_bytes
        if self._n_head > self.max_head_bytes:
            self._fail(self._build_head_error())
        if len(self.headers) >= self.max_headers:
            self._fail(ApiError(431, "too_many_headers", f"a request may have at most {self.max_headers} headers"))

    def _build_head_error(self) -> ApiError:
        message = f"the path and headers of a request may have at most {self.max_head_bytes:,} bytes"
        return ApiError(431, "head_too_large", message)

    def _fail(self, error: ApiError) -> None:
        self._error = error
        raise httptools.HttpParserError(str(error))  # stops the parser; uvicorn then calls `send_400_response`

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing() and not self._is_answering():
            if self._n_unparsed:
                message = f"the headers of a request must arrive within {self.head_seconds:g} seconds"
                self.transport.write(_format(ApiError(408, "too_slow", message)))
            self.transport.close()


def _format(error: ApiError) -> bytes:
    body = json.dumps({"error": {"code": error.code, "message": str(error)}}).encode()
    lines = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return STATUS_LINE[error.status] + lines + body
