"""Ranking quality of recommendations on MovieLens: by relevance, by value and by popularity, with
times of the fits.

    python benchmarks/recommending.py --model als --seeds 0 1 2 3 4
    python benchmarks/recommending.py --model ordinal-dmf --areas
    python benchmarks/recommending.py --data ml-100k --densities --seeds 0 1 2
    python benchmarks/recommending.py --latency

Entries are split 75 / 5 / 20. Validation entries are known when columns are ranked: the fitted
model is extended by them. Candidates are all columns without a known entry. Test entries of at
least 4 are relevant, and rows without any are left out. With `--areas`, a fifth of the rows and
columns is new, and each area is ranked among its own columns. With `--densities`, the
model is fitted without validation entries, and rankings are measured on both parts: validation
entries choose the default of `rank_by`, test entries are looked at once. Prints a JSON line for each seed.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from workload import machine, ml_1m

from deepmf.data import split_areas, split_entries
from deepmf.datasets import generate, load
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import score_lists
from deepmf.models.base import Model
from deepmf.models.registry import model_class
from deepmf.recommend.request import Request

RELEVANT, LENGTH, ROWS_AT_A_TIME = 4, 10, 512


def measure(
    model: Model, test: ObservedMatrix, rank_by: str, among: IndexArray | None = None
) -> dict[str, float]:
    """Return NDCG@10, recall@10 and the number of distinct columns in the first ten."""
    seen = model.entries_
    columns = np.arange(len(seen.columns)) if among is None else among
    rows, at = (
        seen.rows.find(test.row_labels)[test.entry_rows],
        seen.columns.find(test.column_labels),
    )
    liked = test.values >= RELEVANT
    relevant = np.zeros((len(seen.rows), len(seen.columns)), dtype=bool)
    relevant[rows[liked], at[test.by_row.columns[liked]]] = True
    order: Any = {"rank_by": rank_by, "relevant": RELEVANT}
    ranker = None if rank_by == "popularity" else model.make_ranker(Request(**order))
    parts, distinct = [], np.zeros(len(seen.columns), dtype=bool)
    counted = np.flatnonzero(relevant.any(axis=1))
    for start in range(0, counted.size, ROWS_AT_A_TIME):
        some = counted[start : start + ROWS_AT_A_TIME]
        keys = (
            np.tile(seen.column_counts[columns] * 1.0, (some.size, 1)) if ranker is None else None
        )
        keys = ranker.rank_block(some, columns).astype(np.float64) if ranker is not None else keys
        known = seen.seen_columns(some)
        mask = np.zeros((some.size, len(seen.columns)), dtype=bool)
        mask[np.repeat(np.arange(some.size), np.diff(known.starts)), known.others] = True
        keys[mask[:, columns]] = -np.inf  # type: ignore[index]
        best = columns[np.argsort(-keys, axis=1, kind="stable")[:, :LENGTH]]  # type: ignore[operator]
        distinct[best.ravel()] = True
        n_relevant = relevant[some].sum(axis=1)
        parts.append(
            score_lists(np.take_along_axis(relevant[some], best, axis=1), n_relevant, n=LENGTH)
        )
    means = {
        name: float(np.mean(np.concatenate([getattr(part, name) for part in parts])))
        for name in ("ndcg", "recall")
    }
    return {name: round(value, 4) for name, value in means.items()} | {
        "distinct": int(distinct.sum())
    }


def run(
    name: str, seed: int, data: str, matrix: ObservedMatrix, settings: dict[str, Any]
) -> dict[str, Any]:
    """Fit to a random split and measure its rankings."""
    split = split_entries(matrix, train=0.75, validation=0.05, test=0.20, seed=seed)
    start = time.perf_counter()
    model: Model = model_class(name)(seed=seed, **settings).fit(split.train, split.validation)
    seconds = time.perf_counter() - start
    more = model.extend(split.validation)
    found = {by: measure(more, split.test, by) for by in ("relevance", "value", "popularity")}
    return _describe(name, model, seed, seconds, data) | found


def run_areas(
    name: str, seed: int, data: str, matrix: ObservedMatrix, settings: dict[str, Any]
) -> dict[str, Any]:
    """Fit to known rows and columns, and measure rankings of known and of new columns in each
    area."""
    split = split_areas(matrix, seed=seed)
    start = time.perf_counter()
    model: Model = model_class(name)(seed=seed, **settings).fit(split.train, split.validation)
    seconds = time.perf_counter() - start
    more = model.extend(split.extension)
    n_known = len(model.column_labels_)
    found: dict[str, Any] = {}
    for area, test in split.test.items():
        every = np.arange(len(more.column_labels_))
        among = every[:n_known] if area in ("I", "II") else every[n_known:]
        found[area] = {
            by: measure(more, test, by, among) for by in ("relevance", "value", "popularity")
        }
    return _describe(name, model, seed, seconds, data) | found


def run_densities(
    name: str, seed: int, data: str, matrix: ObservedMatrix, settings: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Compare both orders on the most popular columns of a matrix, and on surveys whose gaps have
    no reason."""
    rows, popular = np.arange(matrix.shape[0]), np.argsort(-matrix.column_counts, kind="stable")
    matrices = {
        f"{data}, {count} most popular columns": matrix.take(rows, np.sort(popular[:count]))
        for count in (matrix.shape[1], 400, 200, 100, 50)
    }
    for density in (0.1, 0.2, 0.4, 0.6, 0.8):
        survey = generate(
            1000, 60, density=density, popularity=0, selection=0, named=False, seed=seed
        )
        matrices[f"survey, {density:.0%} answered"] = survey.matrix
    for title, part_of in matrices.items():
        model, seconds, parts = _fit_and_hold_out(name, seed, part_of, settings)
        found: dict[str, Any] = {
            part: {
                by: measure(known, hidden, by)["ndcg"]
                for by in ("relevance", "value", "popularity")
            }
            for part, (known, hidden) in parts.items()
        }
        found["density"] = round(part_of.n_entries / (part_of.shape[0] * part_of.shape[1]), 4)
        yield _describe(name, model, seed, seconds, title) | {"benchmark": "density"} | found


def _fit_and_hold_out(
    name: str, seed: int, matrix: ObservedMatrix, settings: dict[str, Any]
) -> tuple[Model, float, dict[str, tuple[Model, ObservedMatrix]]]:
    """Fit to the training entries alone; return the models that rank validation and test entries,
    with these."""
    split = split_entries(matrix, train=0.75, validation=0.05, test=0.20, seed=seed)
    start = time.perf_counter()
    model: Model = model_class(name)(seed=seed, **settings).fit(split.train)
    seconds = time.perf_counter() - start
    parts = {
        "validation": (model, split.validation),
        "test": (model.extend(split.validation), split.test),
    }
    return model, seconds, parts


def _describe(name: str, model: Model, seed: int, seconds: float, data: str) -> dict[str, Any]:
    return {
        "benchmark": "recommending",
        "model": name,
        "data": data,
        "seed": seed,
        "fit_seconds": round(seconds, 1),
        "chosen": model.chosen_on_entries_,
    }


def measure_latency() -> dict[str, Any]:
    """Return the median times of the ten best columns of a row in milliseconds: by value without a
    presence part, by value and by relevance. Times of many rows are those of one of them.
    """
    name, matrix = ml_1m()
    wide = generate(2000, 1_000_000, n_entries=2_000_000, named=False, seed=0).matrix
    models = [
        model_class("als")(epochs=2, presence=presence).fit(matrix) for presence in ("full", None)
    ]
    wides = [
        model_class("als")(epochs=1, presence=presence).fit(wide) for presence in ("nearest", None)
    ]
    history = matrix.column_labels[:100], matrix.values[:100]
    rows = models[0].row_labels_[:1000].tolist()
    calls: dict[str, tuple[list[Model], int, int, Callable[[Model, Any], Any]]] = {
        "fold_in_ml_1m": (
            models,
            1,
            100,
            lambda model, by: model.fold_in(*history).recommend(10, rank_by=by),
        ),
        "bulk_ml_1m": (
            models,
            len(rows),
            7,
            lambda model, by: model.recommend(rows, 10, rank_by=by),
        ),
        "row_million_columns": (
            wides,
            1,
            30,
            lambda model, by: model.recommend(model.row_labels_[0], 10, rank_by=by),
        ),
    }
    found: dict[str, Any] = {"benchmark": "recommending_latency", "data": name}
    for what, ((model, plain), count, repetitions, call) in calls.items():
        asked: dict[str, tuple[Model, Any]] = {
            "without": (plain, "value"),
            "value": (model, "value"),
            "relevance": (model, "relevance"),
        }
        times: dict[str, list[float]] = {title: [] for title in asked}
        for number in range(-2, repetitions):
            for title, given in asked.items():
                start = time.perf_counter()
                call(*given)
                times[title] += (
                    [1000 * (time.perf_counter() - start) / count] if number >= 0 else []
                )
        found[what] = {title: round(statistics.median(spent), 4) for title, spent in times.items()}
    return found


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="als")
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--areas", action="store_true")
    parser.add_argument(
        "--densities", action="store_true", help="compare both orders by the density of the matrix"
    )
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--settings", default="{}", help="settings of the model as JSON")
    options = parser.parse_args()
    if options.latency:
        print(json.dumps(measure_latency() | machine()), flush=True)
        return
    matrix = load(options.data)
    for seed in options.seeds:
        given = options.model, seed, options.data, matrix, json.loads(options.settings)
        if options.densities:
            for found in run_densities(*given):
                print(json.dumps(found | machine()), flush=True)
            continue
        task = run_areas if options.areas else run
        print(json.dumps(task(*given) | machine()), flush=True)


if __name__ == "__main__":
    main()
