"""Recommendations with conditions on features, and with hidden columns, for very many columns.

Times are milliseconds of processor time of one thread, the median of some rows; `exact` says
whether all `n` columns are the best that meet the conditions. The model is not trained well, as
time does not depend on weights.

    OMP_NUM_THREADS=1 python benchmarks/filters.py --columns 1000000
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from workload import machine

from deepmf.datasets import generate
from deepmf.matrix.features import Features
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.serve.omissions import ColumnState, Omissions

N, REPEATS = 10, 15


def find_best(model: Model, row: Any, passes: npt.NDArray[np.bool_]) -> list[int]:
    """Return the best columns of a row by sorting the scores of all columns."""
    entries = model.entries_
    at = entries.rows.find([row])
    scores = model.predictor_.rank_block(at, slice(0, passes.size))[0]
    scores[~passes] = -np.inf
    scores[entries.seen_columns(at).others] = -np.inf
    found: list[int] = np.argsort(-scores, kind="stable")[:N].tolist()
    return found


def main() -> None:
    """Measure, and print a JSON line for each condition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=1_000_000)
    n_columns = parser.parse_args().columns
    dice = np.random.default_rng(0)
    matrix = generate(2_000, n_columns, n_entries=2 * n_columns, named=False, seed=0).matrix
    n_columns = matrix.shape[1]
    genres, years = dice.integers(0, 20, n_columns), dice.integers(1950, 2025, n_columns)
    films = Features.from_columns(
        matrix.column_labels,
        {"genre": np.char.add("g", genres.astype(str)), "year": years.astype(float)},
    )
    model = ALS(latent_size=32, epochs=1, presence=None, seed=0).fit(
        matrix, column_features=films, progress=False
    )
    hidden = dice.choice(n_columns, n_columns // 100, replace=False)
    omissions = Omissions(
        {("state", label): ColumnState(False) for label in matrix.column_labels[hidden].tolist()}
    )
    is_hidden = np.zeros(n_columns, dtype=bool)
    is_hidden[hidden] = True
    everywhere = np.ones(n_columns, dtype=bool)
    cases: dict[str, tuple[dict[str, Any], Any]] = {
        "no condition": ({}, everywhere),
        "a genre (5 %)": ({"where": {"genre": {"any": ["g3"]}}}, genres == 3),
        "all but a genre": ({"where": {"genre": {"none": ["g3"]}}}, genres != 3),
        "a genre and a year (0.07 %)": (
            {"where": {"genre": {"any": ["g3"]}, "year": {"min": 1990, "max": 1990}}},
            (genres == 3) & (years == 1990),
        ),
        "1 % hidden": ({}, ~is_hidden),
    }
    rows = dice.choice(matrix.row_labels, REPEATS + 1, replace=False).tolist()
    for name, (choice, passes) in cases.items():
        times, exact = [], True
        for row in rows:
            start = time.thread_time()
            if name.endswith("hidden"):
                mask = np.zeros(n_columns, dtype=bool)
                mask[omissions.find_hidden(model.entries_.columns)] = True
                choice = {"exclude": mask}
            best = model.recommend(row, N, rank_by="value", **choice)
            times.append(1000 * (time.thread_time() - start))
            exact &= model.entries_.columns.find(best.labels).tolist() == find_best(
                model, row, passes
            )
        result = {"condition": name, "columns": n_columns, "first_ms": round(times[0], 1)}
        result |= {"median_ms": round(float(np.median(times[1:])), 1), "exact": exact}
        print(json.dumps({"benchmark": "filters"} | result | machine()), flush=True)


if __name__ == "__main__":
    main()
