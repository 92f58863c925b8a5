"""Errors of a model on test entries, column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.model import Model


@dataclass(frozen=True)
class ColumnErrors:
    """The error of each column that has test entries; four arrays (columns,).

    `uncertainty` is the standard error of `rmse`: how far it would scatter from test to test; NaN of a single entry.
    """

    labels: npt.NDArray[Any]
    n_entries: npt.NDArray[np.int64]
    rmse: FloatArray
    uncertainty: FloatArray


def column_errors(model: Model, test: ObservedMatrix) -> ColumnErrors:
    """Return the errors on the test entries of each column.

    >>> from deepmf.models.means import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> errors = column_errors(Means(shrinkage=0).fit(train), test)
    >>> errors.labels.tolist(), errors.rmse.tolist()
    (['Alien'], [1.0])
    """
    rows, columns, values = test.entries()
    squares = np.square(model.predict(rows, columns) - values)
    which = test.by_row.columns
    counts = test.column_counts.astype(np.int64)
    present = counts > 0
    counts = counts[present]
    means = np.bincount(which, weights=squares, minlength=present.size)[present] / counts
    # Deviations from the mean, and not a difference of squares, which rounding could make negative.
    place = np.cumsum(present) - 1
    spread = np.bincount(place[which], weights=np.square(squares - means[place[which]]), minlength=counts.size)
    rmse = np.sqrt(means)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A root scatters by the scatter of what is under it over twice the root; no error at all has no scatter.
        of_mean = np.sqrt(spread / (counts - 1) / counts)
        uncertainty = np.where((means == 0) & (counts > 1), 0.0, of_mean / (2 * rmse))
    return ColumnErrors(test.column_labels[present], counts, rmse, uncertainty)
