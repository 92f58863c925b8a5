"""A model of 10^6 rows x 10^6 columns on a CPU: opened, folded in, extended, ranked, and ranked for
many rows.

    python benchmarks/large.py
    python benchmarks/large.py --rows 100000 --columns 100000 --batch-rows 1000

Targets on two cores: fold-in and the exact ten best columns at most 60 ms; all rows ranked to a
Parquet file in bounded memory. The model is put together from random factors (ALS, 42 latents) and
entries (ten a row, text labels), not fitted: time does not depend on weights. Every part runs in a
process of its own, whose peak memory is measured by the system: what is its own, and what is mapped
from the model file and can be dropped at any time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from workload import machine

from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS, RidgeEncoder
from deepmf.models.fitted import Fitted
from deepmf.models.loading import load, verify
from deepmf.scoring.factors import Factors
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout

LATENTS, ENTRIES_A_ROW, HISTORY = 42, 10, 20
REPEATS = 41


def main() -> None:
    """Run all parts, each in a process of its own, and print a table and a JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=1_000_000)
    parser.add_argument("--batch-rows", type=int, default=20_000, help="rows ranked to a file")
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.part is not None:
        found = PARTS[asked.part](asked.folder, asked)
        print(json.dumps(found | {"memory": peak_memory()}))
        return
    with tempfile.TemporaryDirectory(prefix="deepmf-large-") as folder:
        results = {part: _in_process(part, Path(folder), asked) for part in PARTS}
    for part, found in results.items():
        print(part)
        for name, value in found.items():
            print(f"    {name:<28}{value}")
    size = {"rows": asked.rows, "columns": asked.columns, "entries": asked.rows * ENTRIES_A_ROW}
    print(json.dumps({"benchmark": "large"} | size | results | machine()))


def build(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Put a model together and save it as a memory-mapped file."""
    model = random_model(asked.rows, asked.columns)
    seconds = seconds_of(lambda: model.save(folder / "large.model"))
    return {
        "save_s": round(seconds, 2),
        "file_mb": round((folder / "large.model").stat().st_size / 1e6),
    }


def open_model(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Open the file, and answer once."""
    start = time.perf_counter()
    model = load(folder / "large.model")
    at_load, after = time.perf_counter() - start, peak_memory()
    columns = [name_of("column", 7 * at) for at in range(HISTORY)]
    first = seconds_of(lambda: model.predict([name_of("row", 3)] * HISTORY, columns))
    fold_in = seconds_of(lambda: model.fold_in(columns, [3.0] * HISTORY).predict(columns))
    return {
        "load_ms": round(1000 * at_load, 1),
        "memory_after_load": after,
        "first_prediction_ms": round(1000 * first, 1),
        "first_fold_in_ms": round(1000 * fold_in, 1),
    }


def verify_model(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Check all of the file."""
    return {"verify_s": round(seconds_of(lambda: verify(folder / "large.model")), 2)}


def answers(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Time what a service does for one request, once everything is in memory."""
    model = load(folder / "large.model")
    generator = np.random.default_rng(1)

    def history() -> tuple[list[str], list[float]]:
        some = np.unique(generator.integers(0, asked.columns, HISTORY))
        return [name_of("column", at) for at in some], generator.integers(1, 6, some.size).astype(
            float
        ).tolist()

    def row_of(number: int) -> ObservedMatrix:
        columns, values = history()
        return ObservedMatrix.from_entries(
            [f"new {number}"] * len(columns), columns, values, model.scale_
        )

    def column_of(number: int) -> ObservedMatrix:
        rows = [name_of("row", at) for at in np.unique(generator.integers(0, asked.rows, HISTORY))]
        values = generator.integers(1, 6, len(rows)).astype(float)
        return ObservedMatrix.from_entries(
            rows, [f"new {number}"] * len(rows), values, model.scale_
        )

    return {
        "fold_in": quantiles(lambda _: model.fold_in(*history())),
        "fold_in_exact_top_10": quantiles(lambda _: model.fold_in(*history()).recommend(10)),
        "row_exact_top_10": quantiles(lambda at: model.recommend(name_of("row", at), 10)),
        "row_exact_top_10_excluding_100": quantiles(
            lambda at: model.recommend(
                name_of("row", at), 10, exclude=[name_of("column", k) for k in range(100)]
            )
        ),
        "row_exact_top_10_min_entries_8": quantiles(
            lambda at: model.recommend(name_of("row", at), 10, min_entries=8)
        ),
        "extend_by_a_row": quantiles(lambda at: model.extend(row_of(at))),
        "extend_by_a_row_and_rank": quantiles(
            lambda at: model.extend(row_of(at)).recommend(f"new {at}", 10)
        ),
        "extend_by_a_column_and_rank": quantiles(
            lambda at: model.extend(column_of(at)).recommend(name_of("row", at))
        ),
    }


def batch(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Rank columns for many rows to a file."""
    model = load(folder / "large.model")
    before = peak_memory()
    rows = [name_of("row", at) for at in range(asked.batch_rows)]
    work = time.process_time()
    seconds = seconds_of(lambda: model.recommend_to(folder / "top.parquet", rows, 10))
    work = time.process_time() - work
    return {
        "rows": asked.batch_rows,
        "rows_a_second": round(asked.batch_rows / seconds),
        "cpu_ms_a_row": round(1000 * work / asked.batch_rows, 2),
        "hours_for_all": round(asked.rows * seconds / asked.batch_rows / 3600, 2),
        "memory_before": before,
    }


PARTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "build": build,
    "open": open_model,
    "answers": answers,
    "batch": batch,
    "verify": verify_model,
}


def name_of(axis: str, number: int) -> str:
    """Return the label of a row or column."""
    return f"{axis} {number:08}"


def random_model(n_rows: int, n_columns: int) -> ALS:
    """Return a model of random factors and entries."""
    generator = np.random.default_rng(0)
    scale = Scale([1, 2, 3, 4, 5])
    steps = generator.integers(1, n_columns, n_rows)[:, None] * np.arange(ENTRIES_A_ROW)
    columns = (generator.integers(0, n_columns, n_rows)[:, None] + steps) % n_columns
    rows = np.repeat(np.arange(n_rows), ENTRIES_A_ROW)
    row_labels, column_labels = (
        Labels([name_of(axis, at) for at in range(count)], axis=axis)
        for axis, count in (("row", n_rows), ("column", n_columns))
    )
    labelled = Labelled(row_labels, rows), Labelled(column_labels, columns.ravel())
    values = generator.integers(1, 6, rows.size).astype(np.float64)
    matrix = ObservedMatrix.from_positions(
        labelled[0], labelled[1], values, scale=scale, duplicates="first"
    )
    model = ALS(latent_size=LATENTS)
    factors = [
        generator.standard_normal((count, LATENTS + 3), dtype=np.float32) for count in matrix.shape
    ]
    for table in factors:
        table /= LATENTS**0.5
    factors[0][:, -2:] = 1.0, matrix.mean  # (u, b, 1, m) of rows, (v, 1, c, 1) of columns
    factors[1][:, [-3, -1]] = 1.0
    latents = [Latents(table) for table in factors]
    of_rows, of_columns = latents
    fitted = Factors(of_rows, of_columns, RidgeEncoder(matrix, model.settings), model.n_beside)
    predictor = Predictor.of(fitted, Readout(scale))
    model._fitted = Fitted(EntryStore.of(matrix), predictor)
    return model


def quantiles(step: Callable[[int], Any]) -> dict[str, float]:
    """Return the median and the 95 % quantile of a step in milliseconds, and its work, after three
    that warm up."""
    times, work = [], []
    for number in range(REPEATS + 3):
        start = time.process_time()
        times.append(1000 * seconds_of(partial(step, number)))
        work.append(1000 * (time.process_time() - start))
    found = {f"p{share}_ms": round(float(np.percentile(times[3:], share)), 2) for share in (50, 95)}
    return found | {"cpu_ms": round(float(np.median(work[3:])), 2)}


def seconds_of(step: Callable[[], Any]) -> float:
    """Return how long a step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def peak_memory() -> dict[str, int]:
    """Return the megabytes of this process: the most it has held, and what of it now is its own and
    what is mapped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {
        line.split(":")[0]: int(line.split()[1])
        for line in lines
        if line.startswith(("VmHWM", "Rss"))
    }
    return {
        "peak_mb": sizes["VmHWM"] // 1024,
        "own_mb": sizes["RssAnon"] // 1024,
        "mapped_mb": sizes["RssFile"] // 1024,
    }


def _in_process(part: str, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    options = ["--rows", asked.rows, "--columns", asked.columns, "--batch-rows", asked.batch_rows]
    words = [sys.executable, __file__, "--part", part, "--folder", folder, *options]
    shown = subprocess.run(
        list(map(str, words)), stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    found: dict[str, Any] = json.loads(shown.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
