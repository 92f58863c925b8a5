"""What comes before the body of a request: bounded in size, number and time, without a key and without the app."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import uvicorn
from tests.waiting import PATIENCE, wait_until

from deepmf.serve.http import LimitedHttp

REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
HEADERS = b"".join(b"h%d: v\r\n" % number for number in range(99))
CHUNKED = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


class Hasty(LimitedHttp):
    head_seconds: ClassVar[float] = 0.3


class Patient(LimitedHttp):
    head_seconds: ClassVar[float] = PATIENCE


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the number of headers: once all of the body is there, but for what is refused."""
    while scope["path"] != "/refused" and (await receive()).get("more_body"):
        pass
    text = str(len(scope["headers"])).encode()
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


Connect = Callable[[], socket.socket]


@contextmanager
def serving(http: type[LimitedHttp]) -> Iterator[Connect]:
    """Return what connects to a server."""
    server = uvicorn.Server(uvicorn.Config(answer, port=0, http=http, ws="none", lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started, between=0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    opened: list[socket.socket] = []

    def connected() -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
        return opened[-1]

    yield connected
    for one in opened:
        one.close()
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def connect() -> Iterator[Connect]:
    """Return what connects to a server that waits for headers, however busy this machine is."""
    with serving(Patient) as connect:
        yield connect


@pytest.fixture(scope="module")
def connect_in_haste() -> Iterator[Connect]:
    """Return what connects to a server that waits a third of a second for headers."""
    with serving(Hasty) as connect:
        yield connect


def read_all(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes."""
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def refusal(said: bytes) -> tuple[int, str]:
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_ordinary_requests_are_answered_one_after_the_other(connect: Connect) -> None:
    connection = connect()
    for n_headers in (1, 100):
        connection.sendall(REQUEST + (HEADERS if n_headers == 100 else b"") + b"\r\n")
        assert connection.recv(4096).endswith(b"\r\n\r\n%d" % n_headers)
    connection.sendall(3 * (REQUEST + b"\r\n"))
    said = b""
    while said.count(b"200 OK") < 3:
        said += connection.recv(4096)
    connection.sendall(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
    assert connection.recv(4096).endswith(b"2")
    long = b"GET /?%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"q" * 30_000)
    connection.sendall(long)
    assert b"200 OK" in connection.recv(4096)


def test_a_connection_at_rest_is_left_alone(connect_in_haste: Connect) -> None:
    for _ in range(10):  # on a busy machine, even the first request may come too late
        connection = connect_in_haste()
        connection.sendall(REQUEST + b"\r\n")
        if b"200 OK" in connection.recv(4096):
            break
    time.sleep(0.5)
    connection.sendall(REQUEST + b"\r\n")
    assert b"200 OK" in connection.recv(4096)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (REQUEST + HEADERS + b"h: v\r\n\r\n", "too_many_headers"),
        (REQUEST + b"a: %b\r\n\r\n" % (b"v" * 33_000), "head_too_large"),
        (REQUEST + b"a: %b\r\n\r\n" % (b"v" * 300_000), "head_too_large"),
        (b"GET /%b HTTP/1.1\r\n\r\n" % (b"p" * 33_000), "head_too_large"),
        (CHUNKED + b"0\r\n" + HEADERS + HEADERS + b"\r\n", None),
        (CHUNKED + b"0\r\nh: " + b"v" * 300_000, None),
        (CHUNKED + b"5;" + b"e" * 300_000, None),
        (100 * (REQUEST + b"\r\n"), None),
    ],
)
def test_what_is_too_much_is_cut_off(connect: Connect, sent: bytes, code: str | None) -> None:
    connection = connect()
    try:
        connection.sendall(sent)
    except ConnectionError:
        return
    said = read_all(connection)
    assert code is None or refusal(said) == (431, code)
    assert b" 500 " not in said


def test_one_header_that_never_ends_is_cut_off(connect: Connect) -> None:
    connection, n_sent = connect(), 0
    connection.sendall(REQUEST + b"a: ")
    with pytest.raises(ConnectionError):
        while n_sent < 50_000_000:
            n_sent += connection.send(b"v" * 1_000)
    assert n_sent < 20_000_000  # what the buffers on the way took


@pytest.mark.parametrize("said_first", [b"", b"GET", REQUEST, b"\r\n", REQUEST + b"\r\n" + b"GET"])
def test_headers_that_do_not_come_are_not_waited_for(connect_in_haste: Connect, said_first: bytes) -> None:
    connection, start = connect_in_haste(), time.monotonic()
    connection.sendall(said_first)
    answered = read_all(connection) if b"\r\n\r\n" not in said_first else connection.recv(4096)
    if b"200 OK" in answered:  # the rest of the second request comes drop by drop
        with pytest.raises(ConnectionError):
            while time.monotonic() - start < PATIENCE:
                connection.sendall(b"T")
                time.sleep(0.1)
    elif said_first:
        assert refusal(answered) == (408, "too_slow")
    assert time.monotonic() - start > 0.2


def test_a_body_that_goes_on_after_the_answer_is_not_waited_for_either(connect_in_haste: Connect) -> None:
    connection, start = connect_in_haste(), time.monotonic()
    connection.sendall(CHUNKED.replace(b"/ ", b"/refused ", 1))
    with pytest.raises(ConnectionError):
        while time.monotonic() - start < PATIENCE:
            connection.sendall(b"1\r\nx\r\n")
            time.sleep(0.05)
