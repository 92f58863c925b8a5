"""Entries that came after training."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import NOTHING, PlacedEntries, looked_up
from deepmf.matrix.matrix import ObservedMatrix


class AddedEntries:
    """Entries that came after training, in row order; rows and columns that have none cost nothing.

    rows, columns: positions, (entries,).
    """

    def __init__(self, rows: IndexArray, columns: IndexArray, values: FloatArray) -> None:
        order = np.lexsort((columns, rows))
        self.rows, self.columns, self.values = rows[order], columns[order], values[order]

    @classmethod
    def of(cls, extension: ObservedMatrix) -> AddedEntries:
        """Return the entries of a matrix."""
        rows, columns = extension.entry_rows.astype(np.int64), extension.by_row.columns.astype(np.int64)
        return cls._in_order(rows, columns, extension.values.astype(np.float64))

    @classmethod
    def _in_order(cls, rows: IndexArray, columns: IndexArray, values: FloatArray) -> AddedEntries:
        """Return entries that are in row order already."""
        added = cls.__new__(cls)
        added.rows, added.columns, added.values = rows, columns, values
        return added

    def followed_by(self, rows: IndexArray, columns: IndexArray, values: FloatArray) -> AddedEntries:
        """Return these entries and others, which are sorted alone and put between these."""
        new = AddedEntries(rows, columns, values)
        width = 1 + max(int(part.max(initial=0)) for part in (self.columns, new.columns))
        at = np.searchsorted(self.rows * width + self.columns, new.rows * width + new.columns)
        return AddedEntries._in_order(
            np.insert(self.rows, at, new.rows),
            np.insert(self.columns, at, new.columns),
            np.insert(self.values, at, new.values),
        )

    def kept(self, which: npt.NDArray[np.bool_]) -> AddedEntries:
        """Return some of these entries, by a mask."""
        if which.all():
            return self
        return AddedEntries._in_order(self.rows[which], self.columns[which], self.values[which])

    def moved(self, rows: IndexArray, columns: IndexArray) -> AddedEntries:
        """Return these entries at other positions, which are in the same order."""
        return AddedEntries._in_order(rows, columns, self.values)

    def of_rows(self, positions: IndexArray, *, below: int | None = None) -> PlacedEntries:
        """Return the entries of some rows, those alone whose column is below a number."""
        return looked_up(positions, PlacedEntries(self.rows, self.columns, self.values), below=below)

    def of_columns(self, positions: IndexArray, *, below: int | None = None) -> PlacedEntries:
        """Return the entries of some columns, those alone whose row is below a number."""
        some = np.flatnonzero(np.isin(self.columns, positions)) if positions.size else NOTHING
        some = some[np.argsort(self.columns[some], kind="stable")]
        return looked_up(positions, PlacedEntries(self.columns[some], self.rows[some], self.values[some]), below=below)
