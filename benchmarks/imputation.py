"""Errors of imputers on the new rows of generated low-rank tables, in standard deviations: docs/sklearn.md's table.

Every table has columns whose units differ by powers of ten; scikit-learn's imputers get them standardised, and have
their own defaults, as ours have. Each figure is the mean over two generated tables.
"""

import json
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler
from workload import machine

from deepmf.data.synthetic.generator import generate
from deepmf.metrics import rmse_error
from deepmf.sklearn.imputer import DMFImputer

N_NEW, SEEDS = 300, (0, 1)


class Case(NamedTuple):
    """A kind of table: its size, its noise, and the share that is missing."""

    n_rows: int
    n_columns: int
    noise: float
    missing: float


CASES = [
    Case(1000, 20, 0.3, 0.2),
    Case(1000, 20, 0.3, 0.5),
    Case(1000, 20, 1.0, 0.2),
    Case(300, 40, 0.3, 0.4),
    Case(150, 30, 0.7, 0.4),
]


class Standardised:
    """An imputer that sees standardised columns, and answers in the table's units."""

    def __init__(self, imputer: Any) -> None:
        self.imputer, self.scaler = imputer, StandardScaler()

    def fit(self, table: npt.NDArray[Any]) -> "Standardised":
        self.imputer.fit(self.scaler.fit_transform(table))
        return self

    def transform(self, table: npt.NDArray[Any]) -> Any:
        return self.scaler.inverse_transform(self.imputer.transform(self.scaler.transform(table)))


def imputers() -> dict[str, Any]:
    """Return every imputer by its name, not fitted."""
    return {
        "means": SimpleImputer(),
        "10 neighbours": Standardised(KNNImputer(n_neighbors=10)),
        "iterative": Standardised(IterativeImputer()),
        "dmf": DMFImputer(random_state=0),
        "als": DMFImputer("als", random_state=0),
    }


def full_table(case: Case, seed: int) -> npt.NDArray[np.float64]:
    """Generate a table without holes, rows to fit on first, new ones last."""
    shape = case.n_rows + N_NEW, case.n_columns
    cells = generate(
        *shape,
        density=1.0,
        rank=3,
        levels=None,
        noise=case.noise,
        row_effect=0.3,
        popularity=0.0,
        selection=0.0,
        named=False,
        seed=seed,
    )
    random = np.random.default_rng(seed)
    return cells.matrix.to_array() * 10.0 ** random.uniform(-2, 4, shape[1]) + random.normal(0, 100, shape[1])


def measured(imputer: Any, case: Case, seed: int) -> tuple[float, float]:
    """Return the error of an imputer on new rows, and the seconds of its fit."""
    truth = full_table(case, seed)
    table = np.where(np.random.default_rng(seed + 1).random(truth.shape) < case.missing, np.nan, truth)
    start = time.perf_counter()
    imputer.fit(table[: case.n_rows])
    seconds = time.perf_counter() - start
    new, spreads = table[case.n_rows :], truth.std(axis=0)
    missing = np.isnan(new)
    answers, right = ((part / spreads)[missing] for part in (imputer.transform(new), truth[case.n_rows :]))
    return rmse_error(answers, right), seconds


def main() -> None:
    """Print a line of errors for each kind of table, and the seconds of the fits."""
    warnings.simplefilter("ignore")  # the iterative imputer says where it has not converged
    torch.set_num_threads(1)
    for case in CASES:
        figures = {name: [measured(imputers()[name], case, seed) for seed in SEEDS] for name in imputers()}
        means = {name: np.mean(pairs, axis=0) for name, pairs in figures.items()}
        shown = "  ".join(f"{name} {error:.3f} ({seconds:.1f} s)" for name, (error, seconds) in means.items())
        print(f"{case.n_rows} x {case.n_columns}, noise {case.noise}, {case.missing:.0%} missing: {shown}")
        result = {"benchmark": "imputation", **case._asdict()}
        result["errors"] = {name: round(float(error), 3) for name, (error, _) in means.items()}
        print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
