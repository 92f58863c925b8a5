"""A table with missing values, as scikit-learn passes it (array, frame or sparse), and its observed entries."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale

MaskArray = npt.NDArray[np.bool_]  # (rows, columns), or (entries,)

# How scikit-learn checks a table: what is missing may be NaN; whole numbers become float64.
CHECKS: dict[str, Any] = {
    "accept_sparse": ["csr", "csc", "coo"],
    "dtype": [np.float64, np.float32],
    "ensure_all_finite": "allow-nan",
}


class TableEntries(NamedTuple):
    """The observed entries of a checked table, by position."""

    shape: tuple[int, int]
    rows: IndexArray
    columns: IndexArray
    values: FloatArray

    @classmethod
    def of(cls, table: Any) -> TableEntries:
        """Take the entries out of an array or a sparse matrix; a stored zero is an entry, NaN never is.

        >>> TableEntries.of(scipy.sparse.coo_array(([0.0, 7.0], ([0, 1], [1, 0])), shape=(2, 2))).values
        array([0., 7.])
        """
        if scipy.sparse.issparse(table):
            stored = table.tocoo()
            known = ~np.isnan(stored.data)
            rows, columns, values = (part[known] for part in (stored.row, stored.col, stored.data))
        else:
            rows, columns = np.nonzero(~np.isnan(table))
            values = table[rows, columns]
        return cls(table.shape, rows, columns, values.astype(np.float64))

    def where(self, kept: MaskArray) -> TableEntries:
        """Return some of the entries, by a mask over them."""
        return TableEntries(self.shape, self.rows[kept], self.columns[kept], self.values[kept])

    def take_columns(self, positions: IndexArray) -> TableEntries:
        """Return the entries of some columns, which are then counted from 0."""
        place = np.full(self.shape[1], -1)
        place[positions] = np.arange(positions.size)
        kept = place[self.columns] >= 0
        rows, columns, values = self.rows[kept], place[self.columns[kept]], self.values[kept]
        return TableEntries((self.shape[0], positions.size), rows, columns, values)

    def to_array(self) -> FloatArray:
        """Return the entries as an array (rows, columns) with NaN where there is none."""
        array = np.full(self.shape, np.nan)
        array[self.rows, self.columns] = self.values
        return array

    def matrix(self, scale: Scale, *, column_labels: Any = None) -> ObservedMatrix:
        """Return the entries as a matrix whose rows are numbered from 0."""
        rows = Labels.numbered(self.shape[0], axis="row")
        columns = Labels(np.arange(self.shape[1]) if column_labels is None else column_labels, axis="column")
        return ObservedMatrix.from_positions(
            Labelled(rows, self.rows), Labelled(columns, self.columns), self.values, scale=scale
        )


def marked(table: Any, missing: Any) -> Any:
    """Return a checked table in which a number that stands for what is missing is NaN.

    >>> marked(np.array([[1.0, -1.0]]), -1)
    array([[ 1., nan]])
    """
    if not isinstance(missing, int | float) or np.isnan(missing):
        return table
    if scipy.sparse.issparse(table):
        table = table.copy()
        table.data[table.data == missing] = np.nan
        return table
    return np.where(table == missing, np.nan, table).astype(table.dtype)


def dense_copy(table: Any) -> npt.NDArray[Any]:
    """Return a checked table as a new array with NaN where nothing is observed."""
    if not scipy.sparse.issparse(table):
        return np.array(table)
    array = np.full(table.shape, np.nan, dtype=table.dtype)
    entries = TableEntries.of(table)
    array[entries.rows, entries.columns] = entries.values
    return array


def showing(table: Any, checked: Any, mask: MaskArray, *, rows: IndexArray | None = None) -> Any:
    """Return a table of the same kind that has only some of its entries, and of its rows.

    `table` is as the user gave it, `checked` the array or sparse matrix that scikit-learn made of it.
    """
    if scipy.sparse.issparse(checked):
        _, row_of, column_of, values = TableEntries.of(checked)
        shown = mask[row_of, column_of]
        sparse = scipy.sparse.csr_array((values[shown], (row_of[shown], column_of[shown])), shape=checked.shape)
        return sparse if rows is None else sparse[rows]
    array = np.where(mask, checked, np.nan)
    return _like(table, array if rows is None else array[rows])


def _like(table: Any, array: npt.NDArray[Any]) -> Any:
    """Return an array as a frame with the columns of `table`, where that is a frame."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return array
    if frame.implementation.is_pandas_like():
        return type(table)(array, columns=table.columns)  # names that are no strings stay what they are
    return nw.from_numpy(array, frame.columns, backend=frame.implementation).to_native()
