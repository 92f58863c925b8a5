"""Rows and columns that arrive after a fit: extended, extended by areas II and III alone, and
fitted again.

Of MovieLens-1M (DEEPMF_DATA), a fifth of the users, at random, and the newest fifth of the films,
by year, arrive. Half of their entries are given; the others and a tenth of the rest are predicted.
Without MovieLens, the matrix is generated and the films random. Prints RMSE by area and by the
number of given entries of a row, NDCG@10 of new rows, seconds (of a CPU; of a clock with a GPU),
area IV where new rows give entries in new columns alone, and a JSON line for each model.

    python benchmarks/arrivals.py [MODEL ...] [--curve] [--ml-100k]    # als, means, bayes, dmf,
    ordinal, myfm

`--curve` lets 5 to 40 % of rows and columns arrive instead: how long one can wait until the next
fit. `myfm` is sampled anew, where myFM is installed.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from workload import QUICK, machine, ml_1m

from deepmf import split_arrivals
from deepmf.data import ArrivalSplit
from deepmf.datasets import load
from deepmf.errors import NothingObserved
from deepmf.evaluation import evaluate_ranking
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.dmf import DMF
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF

MODELS: dict[str, Callable[[], Model]] = {
    "means": lambda: Means(seed=0, presence=None),
    "als": lambda: ALS(seed=0, presence=None),
    "bayes": lambda: BayesianMF(seed=0, presence=None),
    "dmf": lambda: DMF(seed=0),
    "ordinal": lambda: OrdinalDMF(seed=0, effort="quick", presence=None),
}
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4)
CLOCK = time.perf_counter if torch.cuda.is_available() else time.process_time
COUNTS = (0, 1, 5, 20, 100)  # given entries of a row, from each number to below the next


def find_years(name: str, matrix: ObservedMatrix) -> list[int] | None:
    """Return the years of the films of MovieLens-1M."""
    if not name.startswith("ml-"):
        return None
    from movielens_features import feature_arrays

    known = feature_arrays(name)
    year_of = dict(
        zip(known["film"].tolist(), np.nan_to_num(known["year"]).astype(int).tolist(), strict=True)
    )
    return [year_of[int(film)] for film in matrix.column_labels]


def join(*parts: ObservedMatrix) -> ObservedMatrix:
    """Return all entries of some matrices."""
    rows, columns, values = (
        np.concatenate(each) for each in zip(*(part.entries() for part in parts), strict=True)
    )
    known = parts[-1]
    return ObservedMatrix.from_entries(
        rows,
        columns,
        values,
        known.scale,
        row_labels=known.row_labels,
        column_labels=known.column_labels,
    )


def measure(split: ArrivalSplit, model: Model) -> dict[str, Any]:
    """Return the errors of a model for the entries to predict."""
    found: dict[str, Any] = {}
    squares: list[Any] = []
    counts: list[Any] = []
    given_counts = dict(
        zip(split.given.row_labels.tolist(), split.given.row_counts.tolist(), strict=True)
    )
    for area in AREAS:
        rows, columns, values = split.test[area].entries()
        squares.append(np.square(model.predict(rows, columns, unknown="fallback") - values))
        counts.append(
            np.array([given_counts[row] for row in rows.tolist()]) if area in ("II", "IV") else []
        )
        found[area] = round(float(np.sqrt(squares[-1].mean())), 4)
    found["all"] = round(float(np.sqrt(np.concatenate(squares).mean())), 4)
    of_new, n_given = (
        np.concatenate([squares[1], squares[3]]),
        np.concatenate([counts[1], counts[3]]),
    )
    for low, high in zip(COUNTS, (*COUNTS[1:], np.inf), strict=True):
        inside = (n_given >= low) & (n_given < high)
        if inside.any():
            found[f"{low}+ given"] = round(float(np.sqrt(of_new[inside].mean())), 4)
    return found


def compare(split: ArrivalSplit, new_model: Callable[[], Model]) -> dict[str, dict[str, Any]]:
    """Return what a model finds when it is extended, extended without area IV, and fitted again."""

    def time_step(step: Callable[[], Model]) -> tuple[Model, dict[str, Any]]:
        start = CLOCK()
        model = step()
        # some are computed when they are read
        model.predictor_.rows.whole(), model.predictor_.columns.whole()
        return model, {"seconds": round(CLOCK() - start, 2)} | measure(split, model)

    start = CLOCK()
    base = new_model().fit(split.train)
    fit_seconds = round(CLOCK() - start, 2)
    rows, columns, _ = split.given.entries()
    crossed = ~np.isin(rows, split.train.row_labels) & ~np.isin(columns, split.train.column_labels)
    without = split.given.take_entries(~crossed)
    everything = join(split.train, split.given)
    models = {
        "extended": lambda: base.extend(split.given),
        "without area IV": lambda: base.extend(without),
        "fitted again": lambda: new_model().fit(everything),
    }
    found = {name: time_step(step) for name, step in models.items()}
    new = np.flatnonzero(~np.isin(split.given.row_labels, split.train.row_labels))
    test = join(split.test["II"], split.test["IV"]).take(new, np.arange(split.given.shape[1]))
    for model, each in found.values():
        ranked = evaluate_ranking(model, test, most_rows=500)
        each["ndcg"] = round(float(ranked.model.ndcg), 4)
    results = {name: each | {"fit_seconds": fit_seconds} for name, (_, each) in found.items()}
    return results | {"new columns alone": measure_alone(split, base)}


def measure_alone(split: ArrivalSplit, base: Model) -> dict[str, Any]:
    """Return the error in area IV where new rows give entries in new columns alone, beside a
    constant and means."""
    columns = split.given.entries()[1]
    given = split.given.take_entries(~np.isin(columns, split.train.column_labels))
    row_of, column_of, values = split.test["IV"].entries()
    asked = np.isin(row_of, given.entries()[0])
    pairs, known = (row_of[asked], column_of[asked]), values[asked]
    means = Means(presence=None).fit(split.train).extend(given)
    found = {
        "extended": base.extend(given).predict(*pairs, unknown="fallback"),
        "means": means.predict(*pairs, unknown="fallback"),
        "constant": np.full(known.size, split.train.mean),
    }
    return {
        name: round(float(np.sqrt(np.square(each - known).mean())), 4)
        for name, each in found.items()
    }


def sample_myfm(split: ArrivalSplit) -> dict[str, Any]:
    """Return the errors of a myFM (ids, 16 latents, 100 iterations) sampled from everything that is
    known."""
    import myfm
    import scipy.sparse

    known = join(split.train, split.given)

    def describe(rows: Any, columns: Any) -> list[Any]:
        return [
            myfm.RelationBlock(
                labels.positions(asked).tolist(), scipy.sparse.identity(len(labels), format="csr")
            )
            for labels, asked in ((known.rows, rows), (known.columns, columns))
        ]

    class Sampled:
        def predict(self, rows: Any, columns: Any, unknown: str) -> Any:
            return np.clip(
                fitted.predict(None, X_rel=describe(rows, columns)),
                known.scale.low,
                known.scale.high,
            )

    start = CLOCK()
    rows, columns, values = known.entries()
    fitted = myfm.MyFMRegressor(rank=16, random_seed=0)
    fitted.fit(
        None, values, X_rel=describe(rows, columns), n_iter=100, group_shapes=list(known.shape)
    )
    seconds = round(CLOCK() - start, 2)
    return {"fitted again": {"seconds": seconds} | measure(split, cast(Model, Sampled()))}


def closed(found: dict[str, dict[str, Any]], which: str) -> float:
    """Return the share of the distance from an extension without area IV to a fit that the
    extension closes."""
    before, after, again = (
        found[name][which] for name in ("without area IV", "extended", "fitted again")
    )
    return float((before - after) / (before - again)) if before != again else float("nan")


if __name__ == "__main__":
    warnings.simplefilter("ignore", NothingObserved)
    name, matrix = ("ml-100k", load("ml-100k")) if "--ml-100k" in sys.argv else ml_1m()
    years = find_years(name, matrix)
    wanted = [each for each in sys.argv[1:] if not each.startswith("-")] or ["means", "als"]
    shares = SHARES if "--curve" in sys.argv else (0.2,)
    for model_name in wanted:
        for share in shares[:2] if QUICK else shares:
            split = split_arrivals(
                matrix,
                new_rows=share,
                new_columns=share,
                validation=0.0,
                column_dates=years,
                seed=0,
            )
            found = (
                sample_myfm(split) if model_name == "myfm" else compare(split, MODELS[model_name])
            )
            print(
                f"{model_name}, {share:.0%} of {name} arrive, {split.given.n_entries:,} entries given"
            )
            for label, each in found.items():
                print(f"  {label:16}" + "".join(f"  {key} {value}" for key, value in each.items()))
            if model_name != "myfm":
                print(
                    "  closed: "
                    + ", ".join(
                        f"{which} {closed(found, which):.0%}" for which in ("all", *AREAS[1:])
                    )
                )
            line = (
                {"benchmark": "arrivals", "data": name, "model": model_name, "share": share}
                | found
                | machine()
            )
            print(json.dumps(line), flush=True)
