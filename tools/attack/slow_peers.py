"""A hundred connections that send a byte a second, or that never read; everybody else is answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from attack.target import Outcome, Target, measure_latencies, save_small_model, serve
from deepmf.datasets import generate
from deepmf.models.als import ALS

_CONNECTIONS, _SECONDS, _REQUESTS = 100, 15, 300
_BODY = (
    b"PUT /v1/rows/slow/entries HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
)
_EXPORT = b"GET /v1/export HTTP/1.1\r\nhost: localhost\r\n\r\n"


def attack(folder: Path) -> Iterator[Outcome]:
    """Hold connections open, and measure what others wait."""
    with serve(folder, save_small_model(folder)) as target:
        yield _hold(target, "send a byte of a body a second", _BODY, is_sending=True)
    large = folder / "large.safetensors"
    matrix = generate(2000, 400, density=0.3, seed=0).matrix
    ALS(latent_size=4, epochs=2, presence=None, seed=0).fit(matrix).save(large)
    with serve(folder, large) as target:
        yield _hold(target, "ask for all entries and read nothing", _EXPORT, is_sending=False)


def _hold(target: Target, what: str, start: bytes, *, is_sending: bool) -> Outcome:
    before, is_over = target.measure_memory(), threading.Event()
    row = target.client.get("/v1/columns?limit=1").json()["columns"][0]["column"]
    question = {
        "method": "POST",
        "url": "/v1/recommend",
        "json": {"history": [{"column": row, "value": 4}]},
    }
    quiet = measure_latencies(target.client, _REQUESTS, **question)
    with ExitStack() as stack:
        connections = []
        for _ in range(_CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(target.place))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(start)
            connections.append(connection)
        if is_sending:
            threading.Thread(target=_drip, args=(connections, is_over), daemon=True).start()
        held = measure_latencies(target.client, _REQUESTS, **question)
        is_over.wait(_SECONDS)
        memory = target.measure_memory() - before
        is_over.set()
    n_failed = sum(seconds == float("inf") for seconds in held)
    n_failed += target.client.get("/readyz").status_code != 200
    at = int(0.99 * _REQUESTS)
    return Outcome(
        f"{_CONNECTIONS} connections {what}",
        f"{_REQUESTS} requests of others meanwhile",
        n_failed,
        f"p99 {1000 * quiet[at]:.0f} ms before, {1000 * held[at]:.0f} ms meanwhile; "
        f"{memory / 2**20:.0f} MiB more memory",
    )


def _drip(connections: list[socket.socket], is_over: threading.Event) -> None:
    while not is_over.wait(1.0):
        for connection in connections:
            with suppress(OSError):
                connection.send(b" ")
