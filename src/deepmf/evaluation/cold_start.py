"""The cold-start curve: the error against how many entries describe the row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.model import Model

# The first number of entries of each group; the last has no end.
STARTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class ColdStart:
    """The error of all test entries whose row is described by so many entries: from `first` to `last`, or more."""

    first: int
    last: int | None
    n_entries: int
    rmse: float


def cold_start(model: Model, test: ObservedMatrix) -> list[ColdStart]:
    """Return the error for each group of rows that has test entries, from few entries to many.

    >>> from deepmf.models.means import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> cold_start(Means(shrinkage=0).fit(train), test)
    [ColdStart(first=1, last=1, n_entries=1, rmse=1.0)]
    """
    rows, columns, values = test.entries()
    predicted = model.predict(rows, columns)
    group = np.searchsorted(STARTS, model.row_counts(rows), side="right") - 1
    ends = [*(start - 1 for start in STARTS[1:]), None]
    curve = []
    for number, (first, last) in enumerate(zip(STARTS, ends, strict=True)):
        inside = group == number
        if np.any(inside):
            error = rmse_error(predicted[inside], values[inside])
            curve.append(ColdStart(first, last, int(np.count_nonzero(inside)), error))
    return curve
