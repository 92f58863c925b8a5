"""Repeats: entries of the same row and column, refused or merged, in entries that come sorted and some at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import DuplicateEntries
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.coded_values import codes_of
from deepmf.matrix.labels import Labels
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import DUPLICATES_HINT, Duplicates, merged, on_levels, repeats


class SortedEntries(NamedTuple):
    """Entries in row order; values are codes where there is a table of them."""

    rows: IndexArray
    columns: IndexArray
    values: npt.NDArray[Any]


class RepeatMerger:
    """What becomes of repeats; `n_moved` counts the means that were no levels."""

    def __init__(
        self,
        duplicates: Duplicates,
        *,
        rows: Labels,
        columns: Labels,
        scale: Scale,
        table: npt.NDArray[np.float64] | None,
    ) -> None:
        self._duplicates = duplicates
        self._rows, self._columns = rows, columns
        self._scale, self._table = scale, table
        self.n_moved = 0

    def merged(self, entries: SortedEntries) -> SortedEntries:
        """Return entries without repeats; all repeats of a pair are among them."""
        again = repeats(entries.rows, entries.columns)
        if not np.any(again):
            return entries
        if self._duplicates == "error":
            raise self._error(entries, np.flatnonzero(again)[:1])
        values = self._merged_values(entries.values, again)
        return SortedEntries(entries.rows[~again], entries.columns[~again], values)

    def _merged_values(self, values: npt.NDArray[Any], again: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        if self._duplicates != "mean":
            return merged(values, again, self._duplicates)
        means = merged((values if self._table is None else self._table[values]).astype(np.float64), again, "mean")
        if self._scale.levels is None:
            return means
        levels, n_moved = on_levels(means, self._scale)
        self.n_moved += n_moved
        return levels if self._table is None else codes_of(levels, self._table)

    def _error(self, entries: SortedEntries, at: IndexArray) -> DuplicateEntries:
        row, column = self._rows[entries.rows[at]].tolist()[0], self._columns[entries.columns[at]].tolist()[0]
        return DuplicateEntries(f"row {row!r}, column {column!r} was given before; {DUPLICATES_HINT}")
