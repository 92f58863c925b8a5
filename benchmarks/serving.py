"""The service under load, at the size of MovieLens-1M, with the load generator on the same machine.

Targets on two cores: recommend for a history of 20 entries, p99 at most 50 ms at 200 requests/s
with ALS and 100 ms at 100/s with OrdinalDMF; predict of 100 pairs, p99 at most 30 ms; write and
read back, p99 at most 50 ms on SQLite; start to ready at most 5 s; no failure; memory flat. With
10^6 columns, p99 at most 100 ms. Models are fitted for one epoch, as time does not depend on
weights.

    python benchmarks/serving.py --seconds 60
    python benchmarks/serving.py --only als --memory-minutes 10
    python benchmarks/serving.py --columns 1000000 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from load import Asked, load
from workload import QUICK, machine, ml_1m

from deepmf.datasets import generate
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.ordinal.model import OrdinalDMF

N_HISTORY, N_PAIRS = 20, 100

MODELS: dict[str, Callable[[], Model]] = {
    "als": lambda: ALS(epochs=3, seed=0),
    "dmf-o": lambda: OrdinalDMF(epochs=1, device="cpu", seed=0),
    "dmf-o, quick": lambda: OrdinalDMF(effort="quick", epochs=1, device="cpu", seed=0),
}


class Scenario(NamedTuple):
    """A step, how often it is done a second, and the 99 % quantile of its milliseconds that is
    wanted."""

    name: str
    step: Callable[[int], Sequence[Asked]]
    rate: float
    target_ms: float


class Running(NamedTuple):
    """A service, its port, and how long it took to be ready."""

    process: subprocess.Popen[str]
    port: int
    seconds_to_ready: float

    def megabytes(self) -> float:
        """Return the memory that it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return round(int(status.split("VmRSS:")[1].split()[0]) / 1024, 1)


@contextmanager
def serve(model: Path) -> Iterator[Running]:
    """Serve a model in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "deepmf",
        "serve",
        str(model),
        "--port",
        "0",
        "--json",
        "--log-level",
        "warning",
    ]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["address"]
    try:
        yield Running(
            process, int(address.rsplit(":", 1)[1]), round(time.perf_counter() - start, 2)
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def scenarios(model: str, matrix: ObservedMatrix) -> list[Scenario]:
    """Return what is asked of a model."""
    generator = np.random.default_rng(0)
    rows, columns = matrix.row_labels.tolist(), matrix.column_labels.tolist()

    def history() -> list[dict[str, Any]]:
        chosen = generator.choice(len(columns), N_HISTORY, replace=False)
        return [{"column": columns[at], "value": int(generator.integers(1, 6))} for at in chosen]

    def recommend(_: int) -> list[Asked]:
        return [Asked("POST", "/v1/recommend", {"history": history(), "n": 10})]

    def predict(_: int) -> list[Asked]:
        pairs = zip(
            generator.choice(rows, N_PAIRS).tolist(),
            generator.choice(columns, N_PAIRS).tolist(),
            strict=True,
        )
        return [
            Asked(
                "POST",
                "/v1/predict",
                {"pairs": [{"row": row, "column": column} for row, column in pairs]},
            )
        ]

    def write(number: int) -> list[Asked]:
        path = f"/v1/rows/{10**7 + number % 500}/entries"
        column = columns[int(generator.integers(len(columns)))]
        entry = {"column": column, "value": int(generator.integers(1, 6))}
        return [Asked("PATCH", path, {"entries": [entry]}), Asked("GET", path)]

    is_als = model == "als"
    return [
        Scenario(
            f"recommend, {N_HISTORY} entries",
            recommend,
            200 if is_als else 100,
            50 if is_als else 100,
        ),
        Scenario(f"predict, {N_PAIRS} pairs", predict, 50, 30),
        Scenario("write and read back", write, 20, 50),
    ]


def measure(
    name: str, matrix: ObservedMatrix, file: Path, *, seconds: float
) -> Iterator[dict[str, Any]]:
    """Serve a model, and do one scenario after the other."""
    with serve(file) as running:
        for scenario in scenarios(name, matrix):
            # warms up
            asyncio.run(
                load(running.port, scenario.step, rate=scenario.rate, seconds=min(2.0, seconds))
            )
            outcome = asyncio.run(
                load(running.port, scenario.step, rate=scenario.rate, seconds=seconds)
            )
            yield {
                "model": name,
                "scenario": scenario.name,
                "rate": scenario.rate,
                **outcome.summary(),
                "target_p99_ms": scenario.target_ms,
                "ready_seconds": running.seconds_to_ready,
                "megabytes": running.megabytes(),
            }


def many_columns(n_columns: int, file: Path, *, seconds: float) -> dict[str, Any]:
    """Serve a model of very many columns and ask for recommendations."""
    matrix = generate(20_000, n_columns, n_entries=5 * n_columns, named=False, seed=0).matrix
    ALS(latent_size=32, epochs=2, seed=0).fit(matrix, progress=False).save(file)
    recommend = scenarios("dmf-o", matrix)[0]
    with serve(file) as running:
        outcome = asyncio.run(load(running.port, recommend.step, rate=20, seconds=seconds))
        found = outcome.summary() | {"megabytes": running.megabytes()}
    print(f"{n_columns:,} columns, 20 per s: p99 {found['p99_ms']} ms (target 100)", flush=True)
    return {
        "model": "als",
        "scenario": f"recommend, {n_columns} columns",
        "rate": 20,
        **found,
        "target_p99_ms": 100,
    }


def memory(name: str, matrix: ObservedMatrix, file: Path, *, minutes: float) -> dict[str, Any]:
    """Ask and write for some minutes, and return the memory after the first tenth and at the
    end."""
    recommend, _, write = scenarios(name, matrix)
    found = []
    with serve(file) as running:
        for part in range(10):
            for scenario, rate in ((recommend, 50), (write, 10)):
                asyncio.run(load(running.port, scenario.step, rate=rate, seconds=30 * minutes / 10))
            found.append(running.megabytes())
            print(f"{name}: {found[-1]} MB after {(part + 1) * minutes / 10:g} minutes", flush=True)
    return {"model": name, "scenario": "memory", "minutes": minutes, "megabytes": found}


def main() -> None:
    """Measure, print a table, and a JSON line for each result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=1.0 if QUICK else 10.0, help="how long each load lasts"
    )
    parser.add_argument("--only", choices=list(MODELS), action="append", help="these models alone")
    parser.add_argument(
        "--columns", type=int, default=0, help="a model of this many columns, too, such as 1000000"
    )
    parser.add_argument(
        "--memory-minutes", type=float, default=0.0, help="watch the memory for this long, too"
    )
    given = parser.parse_args()
    data, matrix = ml_1m()
    results = []
    heads = ("p50", "p95", "p99", "target", "failed", "ready s", "MB")
    print(f"{data}\n{'':38}{'per s':>6}{''.join(f'{head:>9}' for head in heads)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only or ([] if given.columns else MODELS):
            file = Path(folder) / f"{name.replace(', ', '-')}.safetensors"
            MODELS[name]().fit(matrix, progress=False).save(file)
            for result in measure(name, matrix, file, seconds=given.seconds):
                results.append(result)
                times = "".join(f"{result[f'p{share}_ms']:9.1f}" for share in (50, 95, 99))
                print(
                    f"{name:14}{result['scenario']:24}{result['rate']:6g}{times}{result['target_p99_ms']:9g}"
                    f"{result['failed']:9}{result['ready_seconds']:9}{result['megabytes']:9}",
                    flush=True,
                )
            if given.memory_minutes:
                results.append(memory(name, matrix, file, minutes=given.memory_minutes))
        if given.columns:
            results.append(
                many_columns(
                    given.columns, Path(folder) / "many.safetensors", seconds=given.seconds
                )
            )
    for result in results:
        print(json.dumps({"benchmark": "serving"} | result | {"data": data} | machine()))


if __name__ == "__main__":
    main()
