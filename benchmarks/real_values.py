"""Default ALS and OrdinalDMF on real values of low rank without bounds, beside ALS with a searched penalty.

python benchmarks/real_values.py                  all three shapes
python benchmarks/real_values.py 300 --seed 1     some of them, by their number of rows

Prints a JSON line for each shape: the test RMSE of areas I to IV, in standard deviations of the values, by each model;
the penalties, and the share of OrdinalDMF's linear part; seconds of each fit, and of the whole search.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from workload import machine

from deepmf.data import AreaSplit, split_areas
from deepmf.errors import DeepMFWarning
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.ordinal.model import OrdinalDMF

PENALTIES = np.geomspace(0.005, 0.5, 12)


class Shape(NamedTuple):
    """A matrix of normal factors and noise, of which a fifth is observed."""

    n_rows: int
    n_columns: int
    rank: int
    noise: float


SHAPES = {"800": Shape(800, 200, 5, 0.5), "500": Shape(500, 150, 4, 1.0), "300": Shape(300, 100, 3, 1.0)}


def generated(shape: Shape, seed: int) -> ObservedMatrix:
    """Return a matrix of a shape."""
    dice = np.random.default_rng(seed)
    signal = dice.normal(size=(shape.n_rows, shape.rank)) @ dice.normal(size=(shape.rank, shape.n_columns))
    whole = signal + shape.noise * dice.normal(size=signal.shape)
    return ObservedMatrix.from_array(np.where(dice.random(whole.shape) < 0.2, whole, np.nan))


def errors(model: Model, parts: AreaSplit, unit: float) -> list[float]:
    """Return the errors of a fitted model in all four areas, in units."""
    more = model.extend(parts.extension)
    tests = (test.entries() for test in parts.test.values())
    return [round(rmse_error(more.predict(rows, columns), values) / unit, 4) for rows, columns, values in tests]


def searched(parts: AreaSplit) -> ALS:
    """Return ALS with the penalty whose validation error is lowest."""
    models = [ALS(penalty=float(penalty)).fit(parts.train, parts.validation, progress=False) for penalty in PENALTIES]
    return min(models, key=lambda model: model.history_.best_error or np.inf)


def measured(shape: Shape, seed: int, device: str) -> dict[str, Any]:
    """Return the errors and costs of all three models on one shape."""
    matrix = generated(shape, seed)
    parts, unit = split_areas(matrix, seed=seed), float(np.std(matrix.values))
    found: dict[str, Any] = {"rmse": {}, "seconds": {}}
    makers: dict[str, Callable[[], Model]] = {
        "als, searched": lambda: searched(parts),
        "als": lambda: ALS().fit(parts.train, parts.validation, progress=False),
        "dmf-o": lambda: OrdinalDMF(device=device).fit(parts.train, parts.validation, progress=False),
    }
    models: dict[str, Model] = {}
    for name, make in makers.items():
        start = time.perf_counter()
        models[name] = make()
        found["seconds"][name] = round(time.perf_counter() - start, 2)
        found["rmse"][name] = errors(models[name], parts, unit)
    found["penalty"] = {name: models[name].settings.to_dict()["penalty"] for name in ("als, searched", "als")}
    found["linear_share"] = models["dmf-o"].chosen_on_entries_["linear_share"]
    return {"benchmark": "real values", **shape._asdict(), "seed": seed} | found | machine()


def main() -> None:
    """Print a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="ROWS", help=", ".join(SHAPES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if unknown := [shape for shape in options.shapes if shape not in SHAPES]:
        parser.error(f"there is no shape of {unknown[0]} rows; there are: {', '.join(SHAPES)}")
    for shape in options.shapes or SHAPES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeepMFWarning)
            print(json.dumps(measured(SHAPES[shape], options.seed, options.device)), flush=True)


if __name__ == "__main__":
    main()
