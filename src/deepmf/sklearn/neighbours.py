"""Neighbours of the rows of a table: missing cells are means over rows that are alike where both are observed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepmf.matrix.arrays import FloatArray
from deepmf.sklearn.completer import WholeRows

# How far neighbours count, in standard deviations of the distance over all columns.
WIDTH = 1.25
_MOST_ROWS = 5_000  # that are kept to compare with
_WEIGHT_OF_MEAN = 1e-9  # where no row that is near has the cell, it is the column's mean
_ROWS_AT_A_TIME = 1_000


@dataclass(frozen=True, eq=False)
class Neighbours(WholeRows):
    """The rows (rows, columns) that others are compared with; a row with a distance of d has a weight exp(-d² / 2 w²).

    The square of a distance is the mean over common cells times the number of columns.

    >>> table = np.array([[1.0, 1.0], [1.1, 1.2], [-2.0, -3.0]])
    >>> Neighbours.fitted(table).completed(np.array([[1.05, np.nan]])).round(1)
    array([[1. , 1.1]])
    """

    table: FloatArray

    @classmethod
    def fitted(cls, table: FloatArray, *, seed: int = 0) -> Neighbours:
        """Keep rows to compare with."""
        table = table[~np.isnan(table).all(axis=1)]
        if len(table) > _MOST_ROWS:
            table = table[np.sort(np.random.default_rng(seed).choice(len(table), _MOST_ROWS, replace=False))]
        return cls(table)

    def completed(self, table: FloatArray) -> FloatArray:
        """Return rows with means over their neighbours where they have NaN."""
        starts = range(0, len(table), _ROWS_AT_A_TIME)
        means = [self._means(table[start : start + _ROWS_AT_A_TIME]) for start in starts]
        return np.where(np.isnan(table), np.concatenate(means), table)

    def _means(self, table: FloatArray) -> FloatArray:
        known, values = _parts(self.table)
        own_known, own = _parts(table)
        squares = (own * own) @ known.T + own_known @ (values * values).T - 2.0 * own @ values.T
        common = own_known @ known.T
        squares = np.where(common > 0, np.maximum(squares, 0.0) / np.maximum(common, 1.0), np.inf)
        nearest = squares.min(axis=1, keepdims=True)
        away = squares - np.where(np.isfinite(nearest), nearest, 0.0)
        weights = np.exp(-away * table.shape[1] / (2.0 * WIDTH * WIDTH))
        means: FloatArray = (weights @ values) / (weights @ known + _WEIGHT_OF_MEAN)
        return means


def _parts(table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return where a table is observed, as numbers, and its values with 0 elsewhere."""
    known = ~np.isnan(table)
    return known.astype(np.float64), np.where(known, table, 0.0)
