"""After training on a CPU: letting one new row in and ranking all columns; predicting a million pairs.

DMF at 2048 -> 1024: at most 20 ms (median), and at most 1 s (best of five). OrdinalDMF beside it,
by quick, normal and best effort. One epoch of training is enough, as time does not
depend on weights.
"""

import json
import statistics
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from workload import machine, ml_1m

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf.dmf import DMF
from deepmf.models.model import Model
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF

REPEATS, PAIRS = 50, 1_000_000


def extend_and_rank(model: Model, matrix: ObservedMatrix, generator: np.random.Generator) -> float:
    """Let one new row with as many entries as the median row has in, rank all columns for it; return the seconds."""
    n_entries = int(np.median(matrix.row_counts))
    columns = generator.choice(matrix.column_labels, n_entries, replace=False)
    new = ObservedMatrix.from_entries([-1] * n_entries, columns, generator.integers(1, 6, n_entries), matrix.scale)
    start = time.perf_counter()
    model.extend(new).recommend(-1, n=10)
    return time.perf_counter() - start


def timed_predict(model: Model, rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> float:
    """Time one prediction of all pairs."""
    start = time.perf_counter()
    model.predict(rows, columns)
    return time.perf_counter() - start


def measured(model: Model, matrix: ObservedMatrix) -> dict[str, float]:
    """Fit, and return both times."""
    model.fit(matrix)
    generator = np.random.default_rng(0)
    for _ in range(5):
        extend_and_rank(model, matrix, generator)
    latencies = [extend_and_rank(model, matrix, generator) for _ in range(REPEATS)]
    rows, columns = (generator.choice(labels, PAIRS) for labels in (matrix.row_labels, matrix.column_labels))
    return {
        "extend_rank_median_ms": round(1000 * statistics.median(latencies), 2),
        "extend_rank_95_ms": round(1000 * sorted(latencies)[int(0.95 * REPEATS)], 2),
        "million_pairs_seconds": round(min(timed_predict(model, rows, columns) for _ in range(5)), 3),
    }


def main() -> None:
    """Time both for each model, and print a table."""
    name, matrix = ml_1m()
    models = {
        "dmf": DMF(epochs=1, device="cpu"),
        "dmf-o": OrdinalDMF(epochs=1, device="cpu"),
        "dmf-o, quick": OrdinalDMF(effort="quick", epochs=1, device="cpu"),
        "dmf-o, best": OrdinalDMF(effort="best", epochs=1, device="cpu"),
    }
    times = {title: measured(model, matrix) for title, model in models.items()}
    print(f"{name}\n{'':>14}{'extend + rank, median ms':>26}{'95 % ms':>10}{'10^6 pairs s':>15}")
    for title, result in times.items():
        median, slow, seconds = result.values()
        print(f"{title:>14}{median:>26.1f}{slow:>10.1f}{seconds:>15.2f}")
    for title, result in times.items():
        print(json.dumps({"benchmark": "latency", "model": title} | result | {"data": name} | machine()))


if __name__ == "__main__":
    main()
