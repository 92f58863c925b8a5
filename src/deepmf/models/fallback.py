"""The fallback for pairs with an unknown row or column: means and frequencies of the known entries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entry_store import EntryStore
from deepmf.models.means_settings import SHRINKAGE

# Added to the count of every level, so that one that never occurs still has a probability above 0.
_PRIOR_COUNT = 0.5


@dataclass(frozen=True)
class Fallback:
    """Predictions from the stored entries alone; a position of -1 is an unknown row or column."""

    seen: EntryStore

    def means(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return overall mean + column effect + row effect, as `Means` has them; an unknown one has no effect."""
        column_effects, row_effects = self._effects
        return mean_at(self.seen.train.mean, row_effects, column_effects, rows, columns)

    def distribution(self, rows: IndexArray, columns: IndexArray, boundaries: npt.NDArray[np.float32]) -> FloatArray:
        """Return how frequent the values between boundaries (in units of [-1, 1]) are (pairs, boundaries + 1).

        Where neither is known: among all training entries, half an entry added to each. Where the row or the column
        is: among its own entries, mixed with five entries of those frequencies.
        """
        counts = self._counts(np.array([0, self.seen.train.n_entries]), self.seen.train.values, boundaries)[0]
        overall = (counts + _PRIOR_COUNT) / np.sum(counts + _PRIOR_COUNT)
        frequencies = np.tile(overall, (rows.size, 1))
        for positions, entries_of in ((rows, self.seen.row_entries), (columns, self.seen.column_entries)):
            known = positions >= 0
            distinct, which = np.unique(positions[known], return_inverse=True)
            entries = entries_of(distinct)
            own = self._counts(entries.starts, entries.values, boundaries)
            mixed = (own + SHRINKAGE * overall) / (own.sum(axis=1, keepdims=True) + SHRINKAGE)
            frequencies[known] = mixed[which]
        return frequencies

    def _counts(
        self, starts: IndexArray, values: npt.NDArray[Any], boundaries: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.int64]:
        """Return how many values of each group lie between the boundaries (groups, boundaries + 1)."""
        n_groups, n_bins = starts.size - 1, boundaries.size + 1
        # In the precision of the boundaries: a value that is one itself lies below it.
        bins = np.searchsorted(boundaries, self.seen.scale.to_unit(values).astype(np.float32))
        group = np.repeat(np.arange(n_groups), np.diff(starts))
        return np.bincount(group * n_bins + bins, minlength=n_groups * n_bins).reshape(n_groups, n_bins)

    @cached_property
    def _effects(self) -> tuple[FloatArray, FloatArray]:
        """The effects of all columns, and of all rows."""
        mean = self.seen.train.mean
        entries = self.seen.column_entries(np.arange(len(self.seen.columns)))
        of_columns = shrunk_effects(entries, entries.values - mean, SHRINKAGE)
        entries = self.seen.row_entries(np.arange(len(self.seen.rows)))
        return of_columns, shrunk_effects(entries, entries.values - mean - of_columns[entries.others], SHRINKAGE)


def shrunk_effects(entries: AxisEntries, deviations: FloatArray, shrinkage: float) -> FloatArray:
    """Return the mean deviation of each group of entries, shrunk as by `shrinkage` further entries of deviation 0."""
    counts = np.diff(entries.starts)
    which = np.repeat(np.arange(counts.size), counts)
    sums = np.bincount(which, weights=deviations, minlength=counts.size)
    effects: FloatArray = sums / np.maximum(counts + shrinkage, 1e-9)
    return effects


def mean_at(
    mean: float, row_effects: FloatArray, column_effects: FloatArray, rows: IndexArray, columns: IndexArray
) -> FloatArray:
    """Return mean + row effect + column effect of each pair of positions; -1 has no effect."""
    # The last one is what a position of -1 takes.
    by_row, by_column = np.append(row_effects, 0.0)[rows], np.append(column_effects, 0.0)[columns]
    means: FloatArray = mean + by_row + by_column
    return means
