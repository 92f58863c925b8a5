"""After training on a CPU: one new row let in, folded in, explained and forgotten; predicting a
million pairs.

DMF at 2048 -> 1024: at most 20 ms (median) to extend and rank, and at most 1 s (best of five) for a
million pairs. OrdinalDMF as it is by normal effort: at most 8 ms; quick and best beside it. Fold-in
and top 10: within 1.2x of an extension by one row. Explaining a row of 100 entries: at most 10x one
fold-in; one of 3,700 entries is bounded. `extension.py` times forgetting, as rows grow. One epoch
of training is enough, as time does not depend on weights. On a busy machine, `--cpu` with
OMP_NUM_THREADS=1 measures processor time instead.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from workload import QUICK, machine, ml_1m

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.dmf import DMF
from deepmf.models.ordinal.model import OrdinalDMF

REPEATS, PAIRS = (5, 10_000) if QUICK else (50, 1_000_000)
EXPLAINED, LONGEST = 100, 150 if QUICK else 3700  # entries of a row that is explained


def entries_of(
    matrix: ObservedMatrix, n_entries: int, generator: np.random.Generator
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return some columns and random values for them."""
    n_entries = min(n_entries, len(matrix.columns))
    return generator.choice(matrix.column_labels, n_entries, replace=False), generator.integers(
        1, 6, n_entries
    )


def time_step(step: Callable[[], Any]) -> float:
    """Time one step."""
    clock = time.thread_time if "--cpu" in sys.argv else time.perf_counter
    start = clock()
    step()
    return clock() - start


def measure_changes(
    model: Model, matrix: ObservedMatrix, generator: np.random.Generator
) -> dict[str, list[float]]:
    """Return the times of each step, one after another for one new row after another: load falls on
    all alike."""
    n_entries = int(np.median(matrix.row_counts))
    times: dict[str, list[float]] = {
        name: [] for name in ("extend", "extend_rank", "fold_in", "fold_in_rank")
    }
    for _ in range(REPEATS + 5):
        columns, values = entries_of(matrix, n_entries, generator)
        new = ObservedMatrix.from_entries([-1] * columns.size, columns, values, matrix.scale)
        extend = partial(model.extend, new)
        times["extend"].append(time_step(extend))
        times["extend_rank"].append(time_step(lambda: extend().recommend(-1, n=10)))  # noqa: B023
        times["fold_in"].append(time_step(lambda row=(columns, values): model.fold_in(*row)))  # type: ignore[misc]
        rank = lambda row=(columns, values): model.fold_in(*row).recommend(10)  # noqa: E731
        times["fold_in_rank"].append(time_step(rank))
    return {name: found[5:] for name, found in times.items()}


def measure_explanations(
    model: Model, matrix: ObservedMatrix, n_entries: int, repeats: int
) -> tuple[float, float]:
    """Return the median seconds of a fold-in of so many entries, and those of explaining one of its
    predictions."""
    generator = np.random.default_rng(1)
    columns, values = entries_of(matrix, n_entries, generator)
    folded, target = model.fold_in(columns, values), matrix.column_labels[0]
    pairs = [
        (
            time_step(lambda: model.fold_in(columns, values)),
            time_step(lambda: folded.explain(target)),
        )
        for _ in range(repeats)
    ]
    fold_in, explain = (statistics.median(each) for each in zip(*pairs, strict=True))
    return fold_in, explain


def measure(model: Model, matrix: ObservedMatrix) -> dict[str, Any]:
    """Return all times of a fitted model: medians in milliseconds, and the million pairs in
    seconds."""
    generator = np.random.default_rng(0)
    times = measure_changes(model, matrix, generator)
    medians = {
        f"{name}_median_ms": 1000 * statistics.median(found) for name, found in times.items()
    }
    fold_in, explain = measure_explanations(model, matrix, EXPLAINED, 11)
    _, longest = measure_explanations(model, matrix, LONGEST, 1)
    rows, columns = (
        generator.choice(labels, PAIRS) for labels in (matrix.row_labels, matrix.column_labels)
    )
    return {
        **{name: round(value, 2) for name, value in medians.items()},
        "extend_rank_95_ms": round(1000 * sorted(times["extend_rank"])[int(0.95 * REPEATS)], 2),
        "fold_in_rank_to_extend": round(
            medians["fold_in_rank_median_ms"] / medians["extend_median_ms"], 2
        ),
        f"explain_{EXPLAINED}_ms": round(1000 * explain, 1),
        f"explain_{EXPLAINED}_to_fold_in": round(explain / fold_in, 1),
        f"explain_{LONGEST}_ms": round(1000 * longest, 1),
        "million_pairs_seconds": round(
            min(time_step(lambda: model.predict(rows, columns)) for _ in range(5)), 3
        ),
    }


def main() -> None:
    """Time each model, and print a table."""
    name, matrix = ml_1m()
    models = {
        "dmf": DMF(epochs=1, device="cpu"),
        "dmf-o": OrdinalDMF(epochs=1, device="cpu"),
        "dmf-o, quick": OrdinalDMF(effort="quick", epochs=1, device="cpu"),
        "dmf-o, best": OrdinalDMF(effort="best", epochs=1, device="cpu"),
    }
    times = {title: measure(model.fit(matrix), matrix) for title, model in models.items()}
    print(name)
    for figure in times["dmf"]:
        print(f"{figure:>28}" + "".join(f"{result[figure]:>14}" for result in times.values()))
    print(f"{'':>28}" + "".join(f"{title:>14}" for title in times))
    clock = ", processor time" if "--cpu" in sys.argv else ""
    for title, result in times.items():
        print(
            json.dumps(
                {"benchmark": "latency", "model": title + clock}
                | result
                | {"data": name}
                | machine()
            )
        )


if __name__ == "__main__":
    main()
