"""The encoder of ALS: a row, or a column, is the ridge solution of its entries given what was trained of the others."""

from __future__ import annotations

import numpy as np

from deepmf.matrix.arrays import LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.factorization_settings import ALSSettings
from deepmf.models.factorization.least_squares import LeastSquares
from deepmf.models.feature_ridge import NO_WEIGHTS, FeatureWeights, prior
from deepmf.models.latents import Latents
from deepmf.models.predictor import Encoder
from deepmf.storage.packed import Packed


class RidgeEncoder(Encoder):
    """A row is the ridge solution of its entries given the trained columns, a column that given the trained rows.

    The base of either table of latents is what was trained, whatever has been encoded anew since.
    """

    def __init__(
        self, train: ObservedMatrix, settings: ALSSettings, feature_weights: FeatureWeights = NO_WEIGHTS
    ) -> None:
        self._train, self._settings, self.feature_weights = train, settings, feature_weights

    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return (u, b, 1, m) of each row."""
        needed, factors = _needed(entries, columns.base)
        others = np.delete(factors, (-3, -1), axis=1)
        return row_latents(self._solved(needed, others, self.feature_weights.rows), self._train.mean)

    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return (v, 1, c, 1) of each column."""
        needed, factors = _needed(entries, rows.base)
        return column_latents(self._solved(needed, factors[:, :-2], self.feature_weights.columns))

    def pack(self) -> Packed:
        """Return the weights of features."""
        return Packed({}, self.feature_weights.tensors())

    def _solved(self, entries: AxisEntries, others: LatentArray, feature_weights: LatentArray | None) -> LatentArray:
        equations = LeastSquares(entries, n_others=len(others), train=self._train, settings=self._settings)
        return equations.solve(others, prior(entries, feature_weights)).factors


def row_latents(factors: LatentArray, mean: float) -> LatentArray:
    """Return (u, b, 1, m) of rows with the factors (u, b)."""
    ones = np.ones((len(factors), 1), dtype=np.float32)
    return np.hstack([factors, ones, mean * ones])


def column_latents(factors: LatentArray) -> LatentArray:
    """Return (v, 1, c, 1) of columns with the factors (v, c)."""
    ones = np.ones((len(factors), 1), dtype=np.float32)
    return np.hstack([factors[:, :-1], ones, factors[:, -1:], ones])


def _needed(entries: AxisEntries, others: LatentArray) -> tuple[AxisEntries, LatentArray]:
    """Return entries that point into the few latents they need, so that no table of all is copied for one row."""
    if entries.others.size >= len(others):
        return entries, others
    used, places = np.unique(entries.others, return_inverse=True)
    return entries._replace(others=places), others[used]
