"""Effects of rows and columns on asked cells, as far as held-out ones carry them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import PlacedEntries
from deepmf.training.holdout import choose

Shape = tuple[int, int]  # the numbers of trained rows and columns

# The largest number of folds. Numbers of cells without a residual that shrink the effects of rows, and of columns; how
# many standard errors the squared error must fall for them.
_N_FOLDS = 5
_SHRINKAGES = (math.inf, 320.0, 80.0, 20.0, 5.0)
_LEAST_FALL = 2.0


def assign_folds(n_cells: int) -> IndexArray:
    """Return the fold of each of some cells, at random."""
    return np.random.default_rng(0).permutation(n_cells) % min(_N_FOLDS, n_cells)


class Effects(NamedTuple):
    """How far the cells of each trained row, and of each trained column, lie above other predictions."""

    rows: FloatArray
    columns: FloatArray

    def evaluate(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the sum of both effects for pairs of positions; those of new rows and columns are 0."""
        of_rows, of_columns = (
            np.append(effects, 0.0)[np.where(positions < effects.size, positions, -1)]
            for effects, positions in zip(self, (rows, columns), strict=True)
        )
        total: FloatArray = of_rows + of_columns
        return total

    @classmethod
    def of(cls, residuals: FloatArray, pairs: IndexArray, shrinkages: tuple[float, float], shape: Shape) -> Effects:
        """Return the shrunk mean residual of each column of pairs (2, pairs), and of each row what is then left."""
        rows, columns = pairs
        of_columns = _average(columns, residuals, shape[1], shrinkages[1])
        return cls(_average(rows, residuals - of_columns[columns], shape[0], shrinkages[0]), of_columns)

    @classmethod
    def fit(
        cls, residuals: FloatArray, cells: PlacedEntries, fold_of: IndexArray, shape: Shape
    ) -> tuple[Effects | None, FloatArray]:
        """Return the effects, None where held-out cells are against them, and those that held-out cells would get."""
        pairs = np.stack([cells.rows, cells.columns])

        def hold_out(shrinkages: tuple[float, float]) -> FloatArray:
            found = np.zeros(residuals.size)
            for number in range(int(fold_of.max()) + 1):
                held = fold_of == number
                own = cls.of(residuals[~held], pairs[:, ~held], shrinkages, shape)
                found[held] = own.evaluate(*pairs[:, held])
            return found

        def measure_loss(shrinkages: tuple[float, float]) -> FloatArray:
            return np.square(residuals - hold_out(shrinkages))

        candidates = [(one, other) for one in _SHRINKAGES for other in _SHRINKAGES]
        best = choose(candidates, measure_loss, at_least=_LEAST_FALL).candidate
        return cls.of(residuals, pairs, best, shape) if min(best) < math.inf else None, hold_out(best)


def _average(groups: IndexArray, residuals: FloatArray, n_groups: int, shrinkage: float) -> FloatArray:
    sums, counts = (np.bincount(groups, each, minlength=n_groups) for each in (residuals, np.ones(groups.size)))
    means: FloatArray = sums / (counts + shrinkage)
    return means
