"""What dates gain: models with `times="auto"` and without dates, on MovieLens-100K; a JSON line for
each fit.

    python benchmarks/times.py --models means,als --tasks u1,later
    python benchmarks/times.py --models dmf-o --tasks u1,u2,u3,u4,u5 --features both --device cuda
    --no-ranking python benchmarks/times.py --models dmf-o --effort quick --part validation

`u1` to `u5` are the published folds: random entries, whose dates the models are asked for. `later`
trains on the first 80 % of the entries by time and tests on the last 20 %. A twentieth of the
training entries, of `later` the latest, is for validation. `last` tests on the last entry of each
row; the one before is for validation. `tail` does so with generated entries, most rows and columns
of which have few (`--models als --tasks tail`).

`rmse` is the test error; `rmse_extended` that of the model extended by the validation entries.
NDCG@10 ranks all columns for the rows of the test; recent popularity ranks them by their entries,
which count by their age with the half-life that `fit` chooses. `--part validation` tests on a tenth
of the training entries (of `later` the latest fifth, of `last` the last entry of each row), by
which settings were chosen; the test entries are for the end.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import fields
from typing import Any

import numpy as np
from features import features_of, of_known
from workload import machine

from deepmf import ObservedMatrix, split_entries, split_last, split_time
from deepmf.data import Split
from deepmf.datasets import fetch, info
from deepmf.evaluation import evaluate, evaluate_ranking
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.metrics import score_lists
from deepmf.models.base import Model
from deepmf.models.registry import model_class
from deepmf.recommend.order_fit import choose_half_life

FOLD = 20_000  # lines of u.data
DAY = 86400


def generate_tail(
    n_entries: int = 100_000, n_rows: int = 15_000, n_columns: int = 9482, seed: int = 0
) -> ObservedMatrix:
    """Return dated ratings, most of them in few columns, whose rows come and stay for a while
    within ten years.

    Each column belongs to a genre, appears at some time and fades with a half-life of two years. A
    row takes nine of ten columns from one of two genres of its own. Good columns get worse with
    time; rows differ by their level.
    """
    rng, n_genres, years = np.random.default_rng(seed), 60, 10.0
    popularity = rng.permutation(1.0 / np.arange(3, n_columns + 3) ** 0.8)
    genres, born = rng.integers(0, n_genres, n_columns), rng.uniform(-5, years, n_columns)
    quality, levels, tastes = (rng.normal(0, 0.5, n) for n in (n_columns, n_rows, n_genres))
    counts = 1 + rng.multinomial(n_entries - n_rows, rng.dirichlet(np.full(n_rows, 0.6)))
    own, arrival = rng.integers(0, n_genres, (n_rows, 2)), rng.uniform(0, years - 1, n_rows)
    rows = np.repeat(np.arange(n_rows), counts)
    moments = np.minimum(arrival[rows] + rng.exponential(0.5, rows.size), years)
    columns, taken = np.empty(rows.size, dtype=np.int64), [set[int]() for _ in range(n_rows)]
    by_genre = [np.flatnonzero(genres == genre) for genre in range(n_genres)]
    for at in np.argsort(moments).tolist():
        row = rows[at]
        some = by_genre[own[row, rng.integers(2)]] if rng.random() < 0.9 else np.arange(n_columns)
        age = moments[at] - born[some]
        chances = np.where(age >= 0, popularity[some] * 0.5 ** (np.maximum(age, 0) / 2), 1e-9)
        chances[np.isin(some, list(taken[row]))] = 1e-12
        columns[at] = some[np.searchsorted(np.cumsum(chances), rng.random() * chances.sum())]
        taken[row].add(int(columns[at]))
    aging = 0.1 * (moments - born[columns]) * (quality[columns] > 0)
    values = (
        3.8
        + levels[rows]
        + quality[columns]
        + tastes[genres[columns]]
        - aging
        + rng.normal(0, 0.8, rows.size)
    )
    times = 10**9 + (moments * 365.25 * DAY).astype(np.int64)
    scale = info("ml-100k").scale
    return ObservedMatrix.from_entries(
        rows, columns, np.clip(np.round(values), 1, 5), scale, times=times, duplicates="last"
    )


def split_task(task: str, part: str) -> Split:
    """Return training, validation and test entries."""
    if task == "tail":
        split = split_last(generate_tail(), n=1, validation=1)
        return split if part == "test" else split_last(split.train, n=1, validation=1)
    rows, columns, values, times = np.loadtxt(fetch("ml-100k"), dtype=np.int64).T  # needs no polars
    matrix = ObservedMatrix.from_entries(
        rows, columns, values.astype(float), info("ml-100k").scale, times=times
    )
    if task == "later":
        split = split_time(matrix, validation=0.04, test=0.2)
        assert matrix.times is not None and split.test.times is not None
        known = matrix.take_entries(matrix.times < split.test.times.min())
        return split if part == "test" else split_time(known, validation=0.04, test=0.2)
    if task == "last":
        split = split_last(matrix, n=1, validation=1)
        return split if part == "test" else split_last(split.train, n=1, validation=1)
    # As the publisher's script does: 20,000 lines in their order. The entries of a matrix are
    # sorted.
    is_test = np.lexsort((columns, rows)) // FOLD == int(task.removeprefix("u")) - 1
    train, test = matrix.take_entries(~is_test), matrix.take_entries(is_test)
    if part == "validation":
        return split_entries(train, train=0.855, validation=0.045, test=0.1, seed=0)
    parts = split_entries(train, train=0.95, validation=0.05, test=0.0, seed=0)
    return Split(parts.train, parts.validation, test)


def rank_recent(train: ObservedMatrix, test: ObservedMatrix, relevant: float) -> float:
    """Return the NDCG@10 of the columns with the most recent entries, without those that a row
    knows."""
    recency, store = choose_half_life(train), EntryStore.of(train)
    counts = store.column_counts.astype(float) if recency is None else recency.count_entries(store)
    known = train.to_sparse().astype(bool).toarray()
    wanted = np.zeros(test.shape, dtype=bool)
    wanted[test.entry_rows, test.by_row.columns] = test.values >= relevant
    rows = np.flatnonzero(wanted.any(axis=1))
    keys = np.where(known[rows], -np.inf, counts)
    best = np.argsort(-keys, axis=1, kind="stable")[:, :10]
    hits = np.take_along_axis(wanted[rows], best, axis=1)
    return float(np.mean(score_lists(hits, wanted[rows].sum(axis=1), n=10).ndcg))


def parts_of(split: Split) -> tuple[ObservedMatrix, ObservedMatrix, ObservedMatrix]:
    """Return training, validation and test entries."""
    return split.train, split.validation, split.test


def measure(model: Model, split: Split, features: dict[str, Any], *, ranks: bool) -> dict[str, Any]:
    """Fit a model, and return its errors, ranking and cost."""
    began, processor = time.perf_counter(), time.process_time()
    model.fit(split.train, split.validation, progress=False, **of_known(features, split.train))
    found: dict[str, Any] = {
        "seconds": round(time.perf_counter() - began, 2),
        "processor_seconds": round(time.process_time() - processor, 2),
        "best_error": model.history_.best_error,
        "rmse": round(measure_error(model, split.test), 5),
        "rmse_extended": round(measure_error(model.extend(split.validation), split.test), 5),
    }
    if ranks:
        began = time.process_time()
        found["ndcg"] = round(evaluate_ranking(model, split.test).model.ndcg, 5)
        found["ranking_seconds"] = round(time.process_time() - began, 2)
    return found


def measure_error(model: Model, test: ObservedMatrix) -> float:
    """Return the error on all test entries, each at its own time."""
    return evaluate(model, test)[-1].rmse


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="means,als,bayesian,dmf-o")
    parser.add_argument("--tasks", default="u1,later")
    parser.add_argument("--features", default="none", choices=("none", "with", "both"))
    parser.add_argument("--times", default="both", choices=("none", "with", "both"))
    parser.add_argument("--part", default="test", choices=("test", "validation"))
    parser.add_argument("--effort", default=None, help="of dmf-o")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-ranking", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    extra = {each.split("=", 1)[0]: json.loads(each.split("=", 1)[1]) for each in asked.set}
    both: dict[str, tuple[bool, ...]] = {"none": (False,), "with": (True,), "both": (False, True)}
    dated: list[dict[str, Any]] = [{"times": "auto"} if each else {} for each in both[asked.times]]
    for task in asked.tasks.split(","):
        split = split_task(task, asked.part)
        about = {"benchmark": "times", "task": task, "part": asked.part, "seed": asked.seed}
        if not asked.no_ranking:
            ndcg = round(rank_recent(split.train, split.test, 4.0), 5)
            print(
                json.dumps(about | {"model": "recent popularity", "ndcg": ndcg} | machine()),
                flush=True,
            )
        for name in asked.models.split(","):
            settings: dict[str, Any] = {"seed": asked.seed} | extra
            known_names = {each.name for each in fields(model_class(name).settings_class)}
            given = {"device": asked.device, "effort": asked.effort}
            settings |= {
                key: value
                for key, value in given.items()
                if value is not None and key in known_names
            }
            for with_features in both[asked.features]:
                features = features_of("ml-100k") if with_features else {}
                for of_times in dated:
                    model = model_class(name)(**settings | of_times)
                    own = (
                        split
                        if of_times
                        else Split(*(part.with_extras(Extras()) for part in parts_of(split)))
                    )
                    found = measure(model, own, features, ranks=not asked.no_ranking)
                    named = {
                        "model": name,
                        "features": with_features,
                        "settings": settings | of_times,
                    }
                    print(json.dumps(about | named | found | machine()), flush=True)


if __name__ == "__main__":
    main()
