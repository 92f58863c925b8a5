"""The cold start: the error against the number of entries that describe a row, as observed or cut to the first n."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepmf.evaluation.area_evaluation import rmse_margin
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.model import Model

# The numbers of known entries of a new row.
KNOWN_COUNTS = (1, 2, 5, 10, 20)

# The first number of entries of each group; the last has no end.
STARTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class ColdStart:
    """The error of all test entries whose row is described by `first` to `last` entries, or by more."""

    first: int
    last: int | None
    n_entries: int
    rmse: float

    @property
    def margin(self) -> float:
        """The standard error of `rmse`."""
        return rmse_margin(self.rmse, self.n_entries)


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


@dataclass(frozen=True)
class ColdStartPoint:
    """The error for new rows of which at most `n_known` entries are known."""

    n_known: int
    rmse: float


def cold_start_curve(
    model: Model, new_rows: ObservedMatrix, test: ObservedMatrix, *, seed: int = 0
) -> list[ColdStartPoint]:
    """Return the error on the same test entries of new rows as more and more of their other entries become known.

    The model must not cover the rows of `new_rows` yet; a row that has fewer entries gives all it has.
    """
    rows, columns, values = test.entries()
    curve = []
    for n_known in KNOWN_COUNTS:
        predicted = model.extend(at_most(new_rows, n_known, seed=seed)).predict(rows, columns)
        curve.append(ColdStartPoint(n_known, rmse_error(predicted, values)))
    return curve


def at_most(matrix: ObservedMatrix, n_entries: int, *, seed: int) -> ObservedMatrix:
    """Return a matrix with at most n entries of each row, chosen at random: of one seed, the first of one order.

    >>> matrix = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> at_most(matrix, 1, seed=0).row_counts.tolist()
    [1, 1]
    """
    draws = np.random.default_rng(seed).random(matrix.n_entries)
    order = np.lexsort([draws, matrix.entry_rows])  # rows stay together, each in an order of its own
    place_in_row = np.arange(matrix.n_entries) - matrix.by_row.starts[matrix.entry_rows[order]]
    return matrix.take_entries(np.sort(order[place_in_row < n_entries]))
