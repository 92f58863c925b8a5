"""A fit to a matrix that has grown, from scratch and from the model of the day before; generated ratings.

Of 2,000 rows and 1,000 columns with 100,000 training entries, the day before knew 95 % of the rows and columns and 95 %
of the entries among these. Target: a warm fit ends sooner, with a validation error that is no higher. Prints a table
and a JSON line.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from workload import QUICK, machine

from deepmf.data import Split, split_entries
from deepmf.datasets import generate
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.dmf import DMF
from deepmf.models.ordinal.model import OrdinalDMF

SHAPE, N_ENTRIES, KEPT = ((200, 100), 6_000, 0.95) if QUICK else ((2000, 1000), 125_000, 0.95)
SIZES: dict[str, Any] = {"hidden_sizes": (256,), "latent_size": 64, "dropout": 0.5, "device": "cpu"}


def new_models() -> dict[str, Model]:
    """Return the models to fit."""
    return {
        "als": ALS(),
        "dmf": DMF(**SIZES, epochs=100, decay_every=5),  # as many decays as in the 1000 epochs of the default
        "dmf-o": OrdinalDMF(**SIZES, epochs=60, validate_every=5, views=8, landmarks=64),
    }


def day_before(split: Split) -> tuple[ObservedMatrix, ObservedMatrix]:
    """Return what was known of training and of validation entries the day before."""
    generator = np.random.default_rng(0)
    rows, columns = (np.flatnonzero(generator.random(size) < KEPT) for size in split.train.shape)
    train, validation = (
        part.take_entries(generator.random(part.n_entries) < KEPT)
        for part in (matrix.take(rows, columns) for matrix in (split.train, split.validation))
    )
    return train, validation


def fitted(model: Model, train: ObservedMatrix, validation: ObservedMatrix, start: Model | None) -> dict[str, Any]:
    """Fit, and return the time, the epochs and the validation error."""
    begin, cpu = time.perf_counter(), time.process_time()
    model.fit(train, validation, start_from=start)
    history = model.history_
    assert history.best_error is not None
    return {
        "seconds": round(time.perf_counter() - begin, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "epochs": len(history),
        "rmse": round(history.best_error, 4),
    }


def main() -> None:
    """Fit each model from scratch and warm, and print both."""
    split = split_entries(
        generate(*SHAPE, n_entries=N_ENTRIES, noise=0.7, seed=0).matrix, train=0.8, validation=0.2, test=0, seed=0
    )
    before = day_before(split)
    cold, warm = new_models(), new_models()
    found: dict[str, dict[str, Any]] = {}
    for name, old in new_models().items():
        old.fit(*before)
        for kind, model, start in (("cold", cold[name], None), ("warm", warm[name], old)):
            found[f"{name} {kind}"] = result = fitted(model, split.train, split.validation, start)
            print(f"{name:>8} {kind}: " + ", ".join(f"{figure} {value}" for figure, value in result.items()))
    figures = {figure: {case: result[figure] for case, result in found.items()} for figure in found["als cold"]}
    print(json.dumps({"benchmark": "warm_start"} | figures | {"data": "generated"} | machine()))


if __name__ == "__main__":
    main()
