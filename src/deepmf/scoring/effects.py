"""Effects of rows and columns: shrunk means, and those on asked cells, as far as held-out ones
carry them."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries, PlacedEntries

# The number of entries at the overall mean (or frequencies) that are added to those of a row or a
# column.
SHRINKAGE = 5.0

Shape = tuple[int, int]  # the numbers of trained rows and columns

# The largest number of folds. Numbers of cells without a residual that shrink the effects of rows,
# and of columns; how many standard errors the squared error must fall for them.
_N_FOLDS = 5
_SHRINKAGES = (math.inf, 320.0, 80.0, 20.0, 5.0)
_LEAST_FALL = 2.0


def assign_folds(n_cells: int) -> IndexArray:
    """Return the fold of each of some cells, at random."""
    return np.random.default_rng(0).permutation(n_cells) % min(_N_FOLDS, n_cells)


class Effects(NamedTuple):
    """How far the cells of each row, and of each column, lie above other predictions."""

    rows: FloatArray
    columns: FloatArray

    def evaluate(self, rows: IndexArray, columns: IndexArray, mean: float = 0.0) -> FloatArray:
        """Return mean + row effect + column effect for pairs of positions; -1 and later ones have
        no effect."""
        of_rows, of_columns = (
            np.append(effects, 0.0)[np.where(positions < effects.size, positions, -1)]
            for effects, positions in zip(self, (rows, columns), strict=True)
        )
        total: FloatArray = mean + of_rows + of_columns
        return total

    def without(self, axis: Literal["row", "column"]) -> Effects:
        """Return the effects of the other axis alone."""
        return (
            self._replace(rows=np.empty(0)) if axis == "row" else self._replace(columns=np.empty(0))
        )

    def forget(self, rows: IndexArray, columns: IndexArray) -> Effects:
        """Return the effects without those of some rows and columns."""
        remaining = Effects(self.rows.copy(), self.columns.copy())
        for effects, positions in zip(remaining, (rows, columns), strict=True):
            effects[positions[positions < effects.size]] = 0.0
        return remaining

    @classmethod
    def of(
        cls, residuals: FloatArray, pairs: IndexArray, shrinkages: tuple[float, float], shape: Shape
    ) -> Effects:
        """Return the shrunk mean residual of each column of pairs (2, pairs), and of each row what
        is then left."""
        rows, columns = pairs
        of_columns = _average(columns, residuals, shape[1], shrinkages[1])
        return cls(
            _average(rows, residuals - of_columns[columns], shape[0], shrinkages[0]), of_columns
        )

    @classmethod
    def fit(
        cls, residuals: FloatArray, cells: PlacedEntries, fold_of: IndexArray, shape: Shape
    ) -> tuple[Effects | None, FloatArray]:
        """Return the effects, None where held-out cells are against them, and those that held-out
        cells would get."""
        from deepmf.training.holdout import choose  # only where cells were asked

        pairs = np.stack([cells.rows, cells.columns])

        def hold_out(shrinkages: tuple[float, float]) -> FloatArray:
            held_out_effects = np.zeros(residuals.size)
            for number in range(int(fold_of.max()) + 1):
                is_held_out = fold_of == number
                effects = cls.of(residuals[~is_held_out], pairs[:, ~is_held_out], shrinkages, shape)
                held_out_effects[is_held_out] = effects.evaluate(*pairs[:, is_held_out])
            return held_out_effects

        def measure_loss(shrinkages: tuple[float, float]) -> FloatArray:
            return np.square(residuals - hold_out(shrinkages))

        candidates = [
            (of_rows, of_columns) for of_rows in _SHRINKAGES for of_columns in _SHRINKAGES
        ]
        best = choose(candidates, measure_loss, at_least=_LEAST_FALL).candidate
        return cls.of(residuals, pairs, best, shape) if min(best) < math.inf else None, hold_out(
            best
        )


def _average(
    groups: IndexArray, residuals: FloatArray, n_groups: int, shrinkage: float
) -> FloatArray:
    """Return the sum of the residuals of each group by their number and the shrinkage."""
    sums = np.bincount(groups, residuals, minlength=n_groups)
    counts = np.bincount(groups, minlength=n_groups)
    return sums / (counts + shrinkage)


def compute_effects(entries: AxisEntries, deviations: FloatArray, shrinkage: float) -> FloatArray:
    """Return the mean deviation of each group of entries by their weights, shrunk to 0.

    The shrinkage is the total weight of entries with the deviation 0 that are added to each group.
    """
    weights, n_groups = entries.extras.weights, entries.starts.size - 1
    weighted = deviations if weights is None else deviations * weights
    sums = np.bincount(entries.group_of, weights=weighted, minlength=n_groups)
    return sums / np.maximum(entries.totals + shrinkage, 1e-9)
