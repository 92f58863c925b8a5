"""Errors of imputers on cells hidden from the tables that come with scikit-learn and from generated ones.

Errors are root mean squares in standard deviations of the column, over two draws of the hidden cells; the table of
docs/sklearn.md is made of them. scikit-learn's imputers have their own defaults, as ours have, and see standardised
columns. Generated tables are of low rank, their columns in units that differ by powers of ten, or a survey.
"""

import json
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler
from workload import machine

from deepmf.datasets import generate
from deepmf.metrics import rmse_error
from deepmf.sklearn.imputer import DMFImputer
from sklearn import datasets

SEEDS = (0, 1)
OURS = ("als", "dmf-o", "gaussian", "neighbours", "auto")
SETS = ("iris", "wine", "breast_cancer", "diabetes", "digits")
HIDDEN = 0.2  # of the cells of these


class Table(NamedTuple):
    """A full table, and the share of its cells that is hidden."""

    name: str
    cells: npt.NDArray[np.float64]
    hidden: float


class Standardised:
    """An imputer that sees standardised columns, and gives back the table's units."""

    def __init__(self, imputer: Any) -> None:
        self.imputer, self.scaler = imputer, StandardScaler()

    def fit_transform(self, table: npt.NDArray[Any]) -> Any:
        return self.scaler.inverse_transform(self.imputer.fit_transform(self.scaler.fit_transform(table)))


def imputers() -> dict[str, Any]:
    """Return every imputer by its name, not fitted; our own by the name of the model."""
    return {
        "SimpleImputer": SimpleImputer(keep_empty_features=True),
        "KNNImputer": Standardised(KNNImputer(keep_empty_features=True)),
        "IterativeImputer": Standardised(IterativeImputer(keep_empty_features=True, random_state=0)),
    } | {name: DMFImputer(name, keep_empty_features=True, random_state=0) for name in OURS}


def tables() -> Iterator[Table]:
    """Yield scikit-learn's tables, then generated ones."""
    for name in SETS:
        yield Table(name, getattr(datasets, f"load_{name}")().data, HIDDEN)
    for n_rows, n_columns, noise, hidden in ((1000, 20, 0.3, 0.5), (150, 30, 0.7, 0.4)):
        cells = generated(n_rows, n_columns, noise=noise, levels=None)
        units = 10.0 ** np.random.default_rng(0).uniform(-2, 4, n_columns)
        yield Table(f"generated, {n_rows} x {n_columns}", cells * units, hidden)
    yield Table("generated survey, 400 x 60", generated(400, 60, noise=1.0, levels=(1, 2, 3, 4, 5)), 0.8)


def generated(n_rows: int, n_columns: int, *, noise: float, levels: Any) -> npt.NDArray[np.float64]:
    """Return a full table of low rank."""
    settings: dict[str, Any] = {"rank": 3, "row_effect": 0.3, "popularity": 0.0, "selection": 0.0, "named": False}
    made = generate(n_rows, n_columns, density=1.0, noise=noise, levels=levels, seed=0, **settings)
    return made.matrix.to_array()


class Measured(NamedTuple):
    """The error of an imputer, the seconds it took, and the model that it chose."""

    error: float
    seconds: float
    chosen: str


def measured(imputer: Any, table: Table, seed: int) -> Measured:
    """Hide cells, complete the table, and compare."""
    hidden = np.random.default_rng(seed).random(table.cells.shape) < table.hidden
    start = time.perf_counter()
    completed = imputer.fit_transform(np.where(hidden, np.nan, table.cells))
    seconds = time.perf_counter() - start
    spreads = table.cells.std(axis=0)
    asked = hidden & (spreads > 0)
    units = np.where(spreads > 0, spreads, 1.0)
    error = rmse_error((completed / units)[asked], (table.cells / units)[asked])
    return Measured(error, seconds, getattr(imputer, "chosen_model_", ""))


def main() -> None:
    """Print a line of errors, and one for the record, for each table."""
    warnings.simplefilter("ignore")  # the iterative imputer says where it has not converged
    torch.set_num_threads(1)
    for table in tables():
        found = {name: [measured(imputers()[name], table, seed) for seed in SEEDS] for name in imputers()}
        errors = {name: round(float(np.mean([each.error for each in runs])), 3) for name, runs in found.items()}
        seconds = {name: round(float(np.mean([each.seconds for each in runs])), 1) for name, runs in found.items()}
        chosen = [each.chosen for each in found["auto"]]
        print(f"{table.name}: " + "  ".join(f"{name} {errors[name]:.3f} ({seconds[name]} s)" for name in found))
        result = {"benchmark": "imputers", "table": table.name, "shape": table.cells.shape, "hidden": table.hidden}
        print(json.dumps(result | {"errors": errors, "seconds": seconds, "chosen": chosen} | machine()))


if __name__ == "__main__":
    main()
