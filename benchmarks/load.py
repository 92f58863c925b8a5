"""A load generator: requests at a steady rate over kept connections, timed from when each was
due."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Asked(NamedTuple):
    """One request: its method, its path, and its body."""

    method: str
    path: str
    body: Any = None


class Outcome(NamedTuple):
    """What a load came to: seconds of each step, and how many failed."""

    seconds: list[float]
    n_failed: int

    def summary(self) -> dict[str, float]:
        """Return quantiles in milliseconds."""
        times = 1000 * np.array(self.seconds or [np.nan])
        found = {
            f"p{share}_ms": round(float(np.percentile(times, share)), 1) for share in (50, 95, 99)
        }
        return found | {
            "max_ms": round(float(times.max()), 1),
            "n": len(self.seconds),
            "failed": self.n_failed,
        }


class Connection:
    """A connection that is kept; one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, asked: Asked) -> int:
        """Send a request, read the whole answer, and return its status."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        body = b"" if asked.body is None else json.dumps(asked.body).encode()
        head = f"{asked.method} {asked.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(
            line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        await reader.readexactly(int(length.split(b":")[1]))
        return int(answer.split(b" ", 2)[1])

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()


async def load(
    port: int,
    step: Callable[[int], Sequence[Asked]],
    *,
    rate: float,
    seconds: float,
    n_connections: int = 32,
) -> Outcome:
    """Do a step (some requests after each other) at a steady rate, whether or not earlier ones are
    done."""
    connections: asyncio.Queue[Connection] = asyncio.Queue()
    every = [Connection("127.0.0.1", port) for _ in range(n_connections)]
    for connection in every:
        connections.put_nowait(connection)
    times: list[float] = []
    failed = 0

    async def one(number: int, due: float) -> None:
        nonlocal failed
        connection = await connections.get()
        try:
            statuses = [await connection.ask(asked) for asked in step(number)]
            failed += any(status != 200 for status in statuses)
        except (OSError, asyncio.IncompleteReadError):
            failed += 1
        finally:
            connections.put_nowait(connection)
        times.append(time.perf_counter() - due)

    start, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    for connection in every:
        connection.close()
    return Outcome(times, failed)
