"""What features of rows and columns are worth on MovieLens: errors by area, and of rows and columns
with few entries.

    python benchmarks/features.py --data ml-1m --model als --seed 0
    python benchmarks/features.py --data ml-1m --model dmf-o --seed 0 --device cuda --part
    validation python benchmarks/features.py --data ml-100k --model dmf-o --seed 0 --split published

Prints a JSON line without features and one with: the RMSE in areas I to IV, and that of new rows,
new columns and both with at most 0, 1, 2, 5, 10 and 20 entries each (those of `extension`, drawn by
the seed). As in the tasks of `benchmarks/peers`, `fit` is given the features of training rows and
columns, `extend` those of new ones. `--part validation` evaluates on the validation entries of the
areas, by which settings were chosen; the test entries are for the end. `--split published` is the
error on the split that others publish on (u1, or that of the authors of DMF-D), whose training
entries lose 5 % for validation where it has none; `--split random` is 90 / 10, drawn by the seed, 2
of the 90 % for validation.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from defaults import load_published
from workload import limit_row_entries, machine

from deepmf.data import AreaSplit, Split, split_areas, split_entries
from deepmf.datasets import load
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.registry import model_class

COUNTS = (0, 1, 2, 5, 10, 20)
SIDES = {"II": "rows", "III": "columns", "IV": "both"}


def features_of(name: str) -> dict[str, Any]:
    """Return the features of users and films."""
    stored = Path(os.environ.get("DEEPMF_DATA", ".")) / f"{name}-features.npz"
    if stored.exists():
        arrays: dict[str, npt.NDArray[Any]] = dict(np.load(stored))
    else:
        from movielens_features import feature_arrays

        arrays = feature_arrays(name)
    of_users = {each: arrays[each] for each in ("sex", "age", "occupation", "post_code")}
    of_films = {each: arrays[each] for each in ("genres", "year")}
    return {
        "row_features": Features.from_columns(arrays["user"], of_users),
        "column_features": Features.from_columns(
            arrays["film"], of_films, kinds={"genres": "list"}
        ),
    }


def of_known(features: dict[str, Any], train: ObservedMatrix) -> dict[str, Any]:
    """Return the features of the rows and columns of a training matrix."""
    found = {}
    for name, each in features.items():
        labels = train.rows if name == "row_features" else train.columns
        found[name] = each.take(np.flatnonzero(labels.find(each.labels) >= 0))
    return found


def of_new(features: dict[str, Any], train: ObservedMatrix) -> dict[str, Any]:
    """Return the features of all other rows and columns, where there are some."""
    found = {}
    for name, each in features.items():
        new = each.take_unknown(train.rows if name == "row_features" else train.columns)
        if new is not None:
            found[name] = new
    return found


def cut(split: AreaSplit, n_known: int, seed: int) -> ObservedMatrix:
    """Return the extension with at most this many entries of each new row and of each new
    column."""
    extension = split.extension
    known_rows = extension.rows.positions(split.train.row_labels)
    is_known = np.zeros(extension.shape[0], dtype=bool)
    is_known[known_rows] = True
    in_area_iii = is_known[extension.entry_rows]
    rows, columns, values = extension.entries()
    parts = []
    for by, other, some in ((rows, columns, ~in_area_iii), (columns, rows, in_area_iii)):
        part = ObservedMatrix.from_entries(by[some], other[some], values[some], extension.scale)
        ids, others, kept = limit_row_entries(part, n_known, seed=seed).entries()
        parts.append((ids, others, kept) if by is rows else (others, ids, kept))
    of_rows, of_columns, kept = (np.concatenate([part[at] for part in parts]) for at in range(3))
    return ObservedMatrix.from_entries(
        of_rows,
        of_columns,
        kept,
        extension.scale,
        row_labels=extension.row_labels,
        column_labels=extension.column_labels,
    )


def errors_of(model: Model, parts: dict[str, ObservedMatrix]) -> dict[str, float]:
    """Return the error in each area."""
    found = {}
    for area, part in parts.items():
        rows, columns, values = part.entries()
        found[area] = round(rmse_error(model.predict(rows, columns), values), 5)
    return found


def measure(
    name: str, model: str, seed: int, part: str, features: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """Return all errors of a model, with some features."""
    split = split_areas(load(name), new_rows=0.2, new_columns=0.2, seed=seed)
    new = (
        split.new_validation if part == "validation" else {area: split.test[area] for area in SIDES}
    )
    at_fit, later = of_known(features, split.train), of_new(features, split.train)
    begin = time.perf_counter()
    fitted = model_class(model)(**settings).fit(
        split.train, split.validation, progress=False, **at_fit
    )
    seconds = time.perf_counter() - begin
    known = {"I": split.validation if part == "validation" else split.test["I"]}
    result = {
        "areas": errors_of(fitted, known) | errors_of(fitted.extend(split.extension, **later), new)
    }
    for n_known in COUNTS:
        found = errors_of(fitted.extend(cut(split, n_known, seed), **later), new)
        for area, side in SIDES.items():
            result.setdefault(side, {})[str(n_known)] = found[area]
    return result | {"seconds": round(seconds, 1), "best_error": fitted.history_.best_error}


def measure_split(
    split: Split, model: str, features: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the error of a model on the test entries of a split, with some features."""
    at_fit, later = of_known(features, split.train), of_new(features, split.train)
    begin = time.perf_counter()
    fitted = model_class(model)(**settings).fit(
        split.train, split.validation, progress=False, **at_fit
    )
    seconds = time.perf_counter() - begin
    # As in the tables, validation entries describe rows and columns at the end.
    test = errors_of(fitted.extend(split.validation, **later), {"test": split.test})
    return test | {"seconds": round(seconds, 1), "best_error": fitted.history_.best_error}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m", choices=("ml-1m", "ml-100k"))
    parser.add_argument("--model", default="als")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", default="areas", choices=("areas", "published", "random"))
    parser.add_argument("--part", default="test", choices=("test", "validation"))
    parser.add_argument("--features", default="both", choices=("none", "with", "both"))
    parser.add_argument("--device", default=None)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    settings = {each.split("=", 1)[0]: json.loads(each.split("=", 1)[1]) for each in asked.set}
    settings |= {} if asked.device is None else {"device": asked.device}
    settings |= {} if asked.model == "means" else {"seed": asked.seed}
    warnings.simplefilter("ignore")
    for with_features in {"none": (False,), "with": (True,), "both": (False, True)}[asked.features]:
        features = features_of(asked.data) if with_features else {}
        if asked.split == "published":
            found = measure_split(load_published(asked.data), asked.model, features, settings)
        elif asked.split == "random":
            split = split_entries(
                load(asked.data), train=0.88, validation=0.02, test=0.1, seed=asked.seed
            )
            found = measure_split(split, asked.model, features, settings)
        else:
            found = measure(asked.data, asked.model, asked.seed, asked.part, features, settings)
        about = {
            "benchmark": "features",
            "model": asked.model,
            "features": with_features,
            "seed": asked.seed,
        }
        about |= {"data": asked.data, "split": asked.split, "part": asked.part}
        print(json.dumps(about | found | machine()), flush=True)


if __name__ == "__main__":
    main()
