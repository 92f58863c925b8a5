"""Attack a fitted model by what rows write, and print what other rows see:
python tools/attack_rows.py [SEQUENCES].

Rows write values of any size (to 1e300) with weights from 1e-6 to 1e6 into known and new columns, are
forgotten, and the model is saved and loaded. A line for each model and kind of values has the number
of writes, of predictions that are not finite, of those outside the range, and the largest move of the
prediction of another row by one write, as a share of the width of the range.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from deepmf import ALS, DMF, DMFD, BayesianMF, Means, ObservedMatrix, OrdinalDMF, Scale, load
from deepmf.matrix.arrays import FloatArray
from deepmf.models.base import Model

N_ROWS, N_COLUMNS, N_STEPS = 60, 30, 6
NETWORK: dict[str, Any] = {"epochs": 5, "hidden_sizes": (16,), "latent_size": 8, "device": "cpu"}
MODELS: dict[str, Model] = {
    "Means": Means(),
    "ALS": ALS(),
    "BayesianMF": BayesianMF(epochs=30),
    "OrdinalDMF": OrdinalDMF(effort="quick", epochs=5),
    "DMF": DMF(**NETWORK),
    "DMFD": DMFD(**NETWORK),
}


def make_matrix(kind: str) -> ObservedMatrix:
    """Return a matrix of rank 3, 40 % of it observed: values of ±6, levels of 1 to 5, or skewed
    counts with weights."""
    numbers = np.random.default_rng(0)
    table = numbers.normal(size=(N_ROWS, 3)) @ numbers.normal(size=(3, N_COLUMNS))
    rows, columns = np.nonzero(numbers.random(table.shape) < 0.4)
    values = table[rows, columns] + 0.3 * numbers.normal(size=rows.size)
    scale = weights = None
    if kind == "interval":
        values = np.clip(2 * values, -6, 6)
    elif kind == "levels":
        values, scale = np.clip(np.round(values + 3), 1, 5), Scale([1, 2, 3, 4, 5])
    else:
        values = np.round(np.exp(values)).astype(np.float64)
        scale = Scale(low=0, high=values.max(), bounded=False)
        weights = numbers.choice([0.5, 1.0, 2.0], rows.size)
    return ObservedMatrix.from_entries(rows, columns, values, scale, weights=weights)


def change(model: Model, row: int, numbers: np.random.Generator, path: Path) -> Model:
    """Return the model after a row has written or was forgotten, or after a restart."""
    step = numbers.random()
    if step < 0.1:
        return model.forget(rows=[row], missing="ignore")
    if step < 0.2:
        model.save(path)
        return load(path)
    columns = numbers.choice([0, 1, 2, 1000, 1001], 3, replace=False)
    values: FloatArray = numbers.normal(size=3) * 10.0 ** numbers.integers(-3, 300, 3)
    if model.scale_.levels is not None:
        values = numbers.integers(1, 6, 3).astype(np.float64)
    weights = 10.0 ** numbers.uniform(-6, 6, 3)
    new = ObservedMatrix.from_entries([row] * 3, columns, values, model.scale_, weights=weights)
    return model.extend(new, conflicts="replace")


def attack(name: str, kind: str, n_sequences: int, path: Path) -> str:
    """Return the line of a model and a kind of values."""
    matrix = make_matrix(kind)
    start = MODELS[name].fit(matrix)
    low, high = float(matrix.values.min()), float(matrix.values.max())
    n_infinite = n_outside = 0
    largest = 0.0
    for sequence in range(n_sequences):
        numbers, model = np.random.default_rng(sequence), start
        for row in numbers.choice([0, 1, 2, 3, 900, 901], N_STEPS).tolist():
            before, model = model, change(model, row, numbers, path)
            answers = model.complete()
            n_infinite += int(np.sum(~np.isfinite(answers)))
            rows = [other for other in range(N_ROWS) if other != row]
            columns = np.intersect1d(before.column_labels_, model.column_labels_)
            pairs = np.repeat(rows, columns.size), np.tile(columns, len(rows))
            predicted = model.predict(*pairs)
            n_outside += int(np.sum((predicted < low) | (predicted > high)))
            largest = max(largest, float(np.abs(predicted - before.predict(*pairs)).max()))
    move = largest / (high - low)
    return (
        f"{name:<12}{kind:<10}{n_sequences * N_STEPS:>6}{n_infinite:>4}{n_outside:>4}{move:>7.2f}"
    )


def main() -> None:
    """Attack every model."""
    warnings.simplefilter("ignore")
    n_sequences = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in product(MODELS, ("interval", "levels", "counts")):
            if name != "DMFD" or kind == "levels":
                line = attack(name, kind, n_sequences, Path(folder) / "model")
                sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
