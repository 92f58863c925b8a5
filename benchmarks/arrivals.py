"""Rows and columns that arrive after a fit: extended, extended by areas II and III alone, and fitted again.

Of MovieLens-1M (DEEPMF_DATA), a fifth of the users, at random, and the newest fifth of the films, by year, arrive. Half
of their entries are given; the others and a tenth of the rest are predicted. Without MovieLens, the matrix is generated
and the films random. Prints RMSE by area and by the number of given entries of a row, NDCG@10 of new rows, seconds
of a CPU, and a JSON line for each model.

    python benchmarks/arrivals.py [MODEL ...] [--curve]    # als, means, bayes, ordinal

`--curve` lets 5 to 40 % of rows and columns arrive instead: how long one can wait until the next fit.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from workload import QUICK, machine, ml_1m

from deepmf import split_arrivals
from deepmf.data import ArrivalSplit
from deepmf.errors import NothingObserved
from deepmf.evaluation import evaluate_ranking
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF

MODELS: dict[str, Callable[[], Model]] = {
    "means": lambda: Means(seed=0, presence=None),
    "als": lambda: ALS(seed=0, presence=None),
    "bayes": lambda: BayesianMF(seed=0, presence=None),
    "ordinal": lambda: OrdinalDMF(seed=0, effort="quick", presence=None),
}
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4)
COUNTS = (0, 1, 5, 20, 100)  # given entries of a row, from each number to below the next


def find_years(name: str, matrix: ObservedMatrix) -> list[int] | None:
    """Return the years of the films of MovieLens-1M."""
    if name != "ml-1m":
        return None
    from movielens_features import film_features

    year_of = dict(film_features(name).select("film", "year").iter_rows())
    return [year_of[int(film)] for film in matrix.column_labels]


def join(*parts: ObservedMatrix) -> ObservedMatrix:
    """Return all entries of some matrices."""
    rows, columns, values = (np.concatenate(each) for each in zip(*(part.entries() for part in parts), strict=True))
    known = parts[-1]
    return ObservedMatrix.from_entries(
        rows, columns, values, known.scale, row_labels=known.row_labels, column_labels=known.column_labels
    )


def measure(split: ArrivalSplit, model: Model) -> dict[str, Any]:
    """Return the errors of a model for the entries to predict."""
    found: dict[str, Any] = {}
    squares: list[Any] = []
    counts: list[Any] = []
    given_counts = dict(zip(split.given.row_labels.tolist(), split.given.row_counts.tolist(), strict=True))
    for area in AREAS:
        rows, columns, values = split.test[area].entries()
        squares.append(np.square(model.predict(rows, columns, unknown="fallback") - values))
        counts.append(np.array([given_counts[row] for row in rows.tolist()]) if area in ("II", "IV") else [])
        found[area] = round(float(np.sqrt(squares[-1].mean())), 4)
    found["all"] = round(float(np.sqrt(np.concatenate(squares).mean())), 4)
    of_new, n_given = np.concatenate([squares[1], squares[3]]), np.concatenate([counts[1], counts[3]])
    for low, high in zip(COUNTS, (*COUNTS[1:], np.inf), strict=True):
        inside = (n_given >= low) & (n_given < high)
        if inside.any():
            found[f"{low}+ given"] = round(float(np.sqrt(of_new[inside].mean())), 4)
    return found


def compare(split: ArrivalSplit, new_model: Callable[[], Model]) -> dict[str, dict[str, Any]]:
    """Return what a model finds when it is extended, extended without area IV, and fitted again."""

    def timed(step: Callable[[], Model]) -> tuple[Model, dict[str, Any]]:
        start = time.process_time()
        model = step()
        found = measure(split, model)
        return model, {"cpu_seconds": round(time.process_time() - start, 1)} | found

    start = time.process_time()
    base = new_model().fit(split.train, split.validation)
    fit_seconds = round(time.process_time() - start, 1)
    rows, columns, _ = split.given.entries()
    crossed = ~np.isin(rows, split.train.row_labels) & ~np.isin(columns, split.train.column_labels)
    without = split.given.take_entries(~crossed)
    everything = join(split.train, split.validation, split.given)
    models = {
        "extended": lambda: base.extend(split.given),
        "without area IV": lambda: base.extend(without),
        "fitted again": lambda: new_model().fit(everything),
    }
    found = {name: timed(step) for name, step in models.items()}
    new = np.flatnonzero(~np.isin(split.given.row_labels, split.train.row_labels))
    test = join(split.test["II"], split.test["IV"]).take(new, np.arange(split.given.shape[1]))
    for model, each in found.values():
        ranked = evaluate_ranking(model, test, most_rows=500)
        each["ndcg"] = round(float(ranked.model.ndcg), 4)
    return {name: each | {"fit_seconds": fit_seconds} for name, (_, each) in found.items()}


def closed(found: dict[str, dict[str, Any]], which: str) -> float:
    """Return the share of the distance from an extension without area IV to a fit that the extension closes."""
    before, after, again = (found[name][which] for name in ("without area IV", "extended", "fitted again"))
    return float((before - after) / (before - again)) if before != again else float("nan")


if __name__ == "__main__":
    warnings.simplefilter("ignore", NothingObserved)
    name, matrix = ml_1m()
    years = find_years(name, matrix)
    wanted = [each for each in sys.argv[1:] if not each.startswith("-")] or ["means", "als"]
    shares = SHARES if "--curve" in sys.argv else (0.2,)
    for model_name in wanted:
        for share in shares[:2] if QUICK else shares:
            split = split_arrivals(
                matrix, new_rows=share, new_columns=share, validation=0.0, column_dates=years, seed=0
            )
            found = compare(split, MODELS[model_name])
            print(f"{model_name}, {share:.0%} of {name} arrive, {split.given.n_entries:,} entries given")
            for label, each in found.items():
                print(f"  {label:16}" + "".join(f"  {key} {value}" for key, value in each.items()))
            print("  closed: " + ", ".join(f"{which} {closed(found, which):.0%}" for which in ("all", *AREAS[1:])))
            line = {"benchmark": "arrivals", "data": name, "model": model_name, "share": share} | found | machine()
            print(json.dumps(line), flush=True)
