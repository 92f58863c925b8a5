"""The race on two cores: OrdinalDMF against myFM (rank 10, 60 iterations), on the authors' split.

myFM (`pip install myfm 'setuptools<80'`, no dependency of this project) is a Bayesian factorisation machine on the ids
of rows and columns. Both are given the training and the validation entries: myFM learns from all of them, ours learns
from the first and takes the second to choose the best epoch, and as inputs in the end. The time is that of the fit and
of the 250,053 predictions; the fits take turns. Target: at most 2x the time of myFM to a test RMSE of .850.
"""

import json
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
import scipy.sparse
from workload import QUICK, machine, ml_1m

from deepmf.data import Split, split_entries
from deepmf.datasets import find, load_split
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.ordinal.model import OrdinalDMF

RANK, ITERATIONS, TURNS = 10, 60, 2

Predictions = npt.NDArray[np.float64]


def ours(split: Split) -> Predictions:
    """Fit with the settings chosen for the matrix, and predict the test entries."""
    model = OrdinalDMF(device="cpu").fit(split.train, split.validation)
    rows, columns, _ = split.test.entries()
    return model.extend(split.validation).predict(rows, columns)


def theirs(split: Split) -> Predictions:
    """Fit myFM on everything but the test entries, and predict those."""
    myfm = import_module("myfm")
    values = np.concatenate([split.train.values, split.validation.values]).astype(np.float64)
    known = scipy.sparse.vstack([_one_hot(split.train), _one_hot(split.validation)]).tocsr()
    regressor = myfm.MyFMRegressor(rank=RANK, random_seed=0)
    regressor.fit(known, values, n_iter=ITERATIONS, group_shapes=list(split.train.shape))
    predictions: Predictions = regressor.predict(_one_hot(split.test))
    return predictions


def _one_hot(matrix: ObservedMatrix) -> scipy.sparse.csr_matrix:
    """Return a line for each entry, with a 1 for its row and a 1 for its column."""
    lines = np.arange(matrix.n_entries)
    places = matrix.entry_rows, matrix.shape[0] + matrix.by_row.columns
    ones = np.ones(2 * lines.size)
    return scipy.sparse.csr_matrix((ones, (np.tile(lines, 2), np.concatenate(places))), (lines.size, sum(matrix.shape)))


def main() -> None:
    """Run both in turns, and print the best times beside the errors."""
    if find("ml-1m") is None and not QUICK:
        print("no MovieLens-1M here (deepmf datasets fetch ml-1m): nothing was measured")
        return
    split = split_entries(ml_1m()[1], seed=0) if QUICK else load_split("ml-1m")
    runners: dict[str, Callable[[Split], Predictions]] = {"deepmf, OrdinalDMF": ours}
    if find_spec("myfm") is None:
        print("myfm cannot be imported (pip install myfm 'setuptools<80'): deepmf runs alone")
    else:
        runners[f"myFM, rank {RANK}, {ITERATIONS} iterations"] = theirs
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    errors = {}
    values = split.test.entries().values
    for _ in range(TURNS):
        for name, run in runners.items():
            start = time.perf_counter()
            predictions = run(split)
            seconds[name].append(time.perf_counter() - start)
            errors[name] = rmse_error(np.clip(predictions, 1.0, 5.0), values)
    for name in runners:
        print(f"{name:<32}{min(seconds[name]):>8.1f} s   test RMSE {errors[name]:.4f}")
    result = {
        "benchmark": "race",
        "seconds": {name: round(min(each), 1) for name, each in seconds.items()},
        "rmse": {name: round(error, 4) for name, error in errors.items()},
        "data": "ml-1m, the authors' split",
    }
    print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
