"""Extending by one row, folding one in and forgetting one, as the number of known rows grows: text
labels, ALS.

Target: the same at 10^4 and at 4 x 10^5 known rows (within 1.5x), at most 5 ms.
`extend_crossing_ms` extends by a row with half of its entries in new columns and predicts for it:
at most three times as long, though 500 other new rows and 500 trained ones have entries in these
columns. `stream_99_ms` is the 99th percentile of 300 such writes, each on top of the last, as in a
service, and `stream_beside_99_ms` that of rows in trained columns alone. Prints a table and a JSON
line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from workload import QUICK, machine

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS

N_COLUMNS, ENTRIES_A_ROW, N_ROWS = 1000, 5, (1_000, 4_000) if QUICK else (10_000, 400_000)
REPEATS, N_STREAM = 31, 20 if QUICK else 300


def matrix(n_rows: int) -> ObservedMatrix:
    """Return random ratings: some entries in every row, rows and columns named by text."""
    generator = np.random.default_rng(0)
    rows = np.repeat(np.arange(n_rows), ENTRIES_A_ROW)
    columns = (
        generator.integers(0, N_COLUMNS, n_rows)[:, None] + 7 * np.arange(ENTRIES_A_ROW)
    ).ravel() % N_COLUMNS
    values = generator.integers(1, 6, rows.size).astype(float)
    names = np.array([f"row {number:07}" for number in range(n_rows)], dtype=object)
    titles = np.array([f"column {number:05}" for number in range(N_COLUMNS)], dtype=object)
    return ObservedMatrix.from_entries(names[rows], titles[columns], values, Scale([1, 2, 3, 4, 5]))


def median_ms(step: Callable[[int], Any]) -> float:
    """Return the median time of a step in milliseconds, after two that warm up."""
    times = []
    for number in range(REPEATS + 2):
        start = time.perf_counter()
        step(number)
        times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times[2:]))


def measure(n_rows: int) -> dict[str, float]:
    """Return the milliseconds of an extension by one row, a fold-in with its ten best columns, and
    of forgetting."""
    model = ALS(latent_size=16, epochs=1).fit(matrix(n_rows))
    columns = [f"column {number:05}" for number in range(0, 100, 5)]
    values = [1.0 + number % 5 for number in range(20)]
    model.predict([model.row_labels_[0]], [columns[0]])  # labels are indexed by the first look-up

    def extend(number: int) -> None:
        new = ObservedMatrix.from_entries([f"new {number}"] * 20, columns, values, model.scale_)
        model.extend(new)

    late = [f"late {number:02}" for number in range(50)]
    labels = np.array([*late, *columns], dtype=object)
    # trained rows have new columns alone
    n_shown = np.where(np.arange(1000) % 2, labels.size, len(late))
    shown = (np.arange(1000)[:, None] * 7 + np.arange(20)) % n_shown[:, None]
    names = np.array(
        [f"{'came' if number % 2 else 'row'} {number:07}" for number in range(1000)], dtype=object
    )
    known = np.random.default_rng(1).integers(1, 6, shown.size).astype(float)
    crossing = model.extend(
        ObservedMatrix.from_entries(
            np.repeat(names, 20), labels[shown.ravel()], known, model.scale_
        )
    )
    mixed = columns[:10] + late[:10]

    def extend_crossing(number: int) -> None:
        new = ObservedMatrix.from_entries([f"new {number}"] * 20, mixed, values, model.scale_)
        crossing.extend(new).predict([f"new {number}"], [columns[0]])

    def extend_beside(number: int) -> None:
        new = ObservedMatrix.from_entries([f"new {number}"] * 20, columns, values, model.scale_)
        crossing.extend(new).predict([f"new {number}"], [columns[0]])

    def stream(asked: list[str]) -> float:
        """Return the 99th percentile of writes of one new row after another, each with its
        prediction."""
        grown, times = crossing, []
        for number in range(N_STREAM):
            name = f"streamed {number}"
            new = ObservedMatrix.from_entries([name] * 20, asked, values, model.scale_)
            start = time.perf_counter()
            grown = grown.extend(new)
            grown.predict([name], [columns[0]])
            times.append(1000 * (time.perf_counter() - start))
        return float(np.quantile(times, 0.99))

    more = model.extend(ObservedMatrix.from_entries(["new"] * 20, columns, values, model.scale_))
    trained = [str(label) for label in model.row_labels_[: REPEATS + 2]]

    return {
        "extend_ms": median_ms(extend),
        "extend_beside_ms": median_ms(extend_beside),
        "extend_crossing_ms": median_ms(extend_crossing),
        "stream_beside_99_ms": stream(columns),
        "stream_99_ms": stream(mixed),
        "forget_added_ms": median_ms(lambda _: more.forget(rows=["new"])),
        "forget_trained_ms": median_ms(lambda number: model.forget(rows=[trained[number]])),
        "fold_in_and_rank_ms": median_ms(lambda _: model.fold_in(columns, values).recommend(10)),
    }


if __name__ == "__main__":
    found = {n_rows: measure(n_rows) for n_rows in N_ROWS}
    for n_rows, times in found.items():
        print(
            f"{n_rows:>9,} known rows: "
            + ", ".join(f"{name} {value:.2f}" for name, value in times.items())
        )
    ratio = found[N_ROWS[1]]["extend_ms"] / found[N_ROWS[0]]["extend_ms"]
    print(f"extending at {N_ROWS[1]:,} rows takes {ratio:.2f}x the time at {N_ROWS[0]:,}")
    names = found[N_ROWS[0]]
    by_name = {
        name: {f"{n_rows} rows": round(found[n_rows][name], 2) for n_rows in N_ROWS}
        for name in names
    }
    print(json.dumps({"benchmark": "extension"} | by_name | {"ratio": round(ratio, 2)} | machine()))
