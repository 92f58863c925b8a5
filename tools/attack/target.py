"""A service in a process of its own, clients that write to it, and a record of what it acknowledged."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import numpy as np
from tests.forks import start_deepmf
from tests.waiting import PATIENCE, wait_until

from deepmf.datasets import generate
from deepmf.models.als import ALS


class Outcome(NamedTuple):
    """What an attack tried, how much of it was lost or answered wrongly, and what else was seen."""

    what: str
    tried: str
    n_lost: int
    remark: str = ""


def save_small_model(folder: Path) -> Path:
    """Save a model of 60 rows and 40 columns."""
    path = folder / "model.safetensors"
    ALS(latent_size=4, seed=0).fit(generate(60, 40, density=0.3, seed=0).matrix).save(path)
    return path


class Target:
    """A running `deepmf serve`."""

    def __init__(self, folder: Path, model: Path, *options: str) -> None:
        output, self.log = folder / f"output {time.monotonic_ns()}", folder / "log.jsonl"
        arguments = ["serve", model, "--port", "0", "--json", "--log-level", "error", *options]
        self.process = start_deepmf(*arguments, output=output, log=self.log)
        wait_until(lambda: not self.process.is_alive() or _has_line(output))
        if not self.process.is_alive():
            raise RuntimeError(f"the service does not start: {self.log.read_text()[-500:]}")
        address = json.loads(output.read_text())["address"]
        self.client = httpx.Client(base_url=address, timeout=PATIENCE)
        self.place = self.client.base_url.host, self.client.base_url.port

    def kill(self) -> None:
        """End the process at once."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.client.close()

    def stop(self) -> None:
        """End the process after its requests; kill it if that takes too long."""
        self.process.terminate()
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()
        self.client.close()

    def measure_memory(self) -> int:
        """Return the bytes that the process has in memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")


def _has_line(output: Path) -> bool:
    return output.exists() and output.read_text().endswith("\n")


@contextmanager
def serve(folder: Path, model: Path, *options: str) -> Iterator[Target]:
    """Serve a model within a block."""
    target = Target(folder, model, *options)
    try:
        yield target
    finally:
        target.stop()


@dataclass
class Record:
    """What clients were told: the value of each acknowledged row, and how often they were refused."""

    values: dict[str, float] = field(default_factory=dict)
    n_refused: int = 0
    n_unanswered: int = 0
    n_failed: int = 0  # with a status that is neither 200 nor 503

    def count_lost(self, client: httpx.Client) -> int:
        """Return how many acknowledged rows are not there, or have another value."""
        n_lost = 0
        for row, value in list(self.values.items()):
            answer = client.get(f"/v1/rows/{row}/entries")
            n_lost += answer.status_code != 200 or answer.json()["entries"][0]["value"] != value
        return n_lost

    def describe(self) -> str:
        """Return what was not acknowledged, as text."""
        return (
            f"{self.n_refused:,} writes refused with 503, {self.n_unanswered:,} without an answer"
        )


@contextmanager
def write_meanwhile(address: Any, record: Record, *, n_writers: int = 4) -> Iterator[None]:
    """Write rows from several connections within a block."""
    is_over = threading.Event()
    with ThreadPoolExecutor(n_writers) as threads:
        for writer in range(n_writers):
            threads.submit(_write_rows, address, record, writer, is_over)
        try:
            yield
        finally:
            is_over.set()


def _write_rows(address: Any, record: Record, writer: int, is_over: threading.Event) -> None:
    dice = random.Random()
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        column = client.get("/v1/columns?limit=1").json()["columns"][0]["column"]
        while not is_over.is_set():
            row, value = f"{writer}-{dice.getrandbits(60)}", float(dice.randint(1, 5))
            body = {"entries": [{"column": column, "value": value}]}
            try:
                status = client.put(f"/v1/rows/{row}/entries", json=body).status_code
            except httpx.TransportError:
                record.n_unanswered += 1
                is_over.wait(0.05)
                continue
            if status == 200:
                record.values[row] = value
            elif status == 503:
                record.n_refused += 1
                is_over.wait(0.05)
            else:
                record.n_failed += 1


def recommend(client: Any, row: str) -> dict[str, float]:
    """Return the predictions of the best columns of a row, best first."""
    best = client.post("/v1/recommend", json={"row": row, "n": 5}).json()["best"]
    return {prediction["column"]: prediction["expected"] for prediction in best}


def are_alike(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether lists have the same columns in the same order, and the same predictions up to
    rounding."""
    return list(one) == list(other) and np.allclose(list(one.values()), list(other.values()))


def wait_for_writes(record: Record, count: int) -> None:
    """Wait until so many more writes are acknowledged."""
    wanted = len(record.values) + count
    wait_until(lambda: len(record.values) >= wanted, between=0.001)


def measure_latencies(client: httpx.Client, count: int, **request: Any) -> list[float]:
    """Return the sorted seconds of so many requests; one that fails takes for ever."""
    seconds = []
    for _ in range(count):
        start, is_right = time.perf_counter(), False
        with suppress(httpx.TransportError):
            is_right = client.request(**request).status_code == 200
        seconds.append(time.perf_counter() - start if is_right else float("inf"))
    return sorted(seconds)
