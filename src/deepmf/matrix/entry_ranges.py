"""The entries of all rows in a range of columns, and of all columns in a range of rows, without a copy of others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse

from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.entry_orders import ValueArray
from deepmf.matrix.matrix import ObservedMatrix


class GroupedEntries(NamedTuple):
    """Entries grouped by row (or by column): those of the k-th are `starts[k]:starts[k + 1]`, others increasing."""

    starts: IndexArray  # (rows + 1,)
    others: IndexArray  # (entries,) positions on the other axis
    values: ValueArray  # (entries,)


def row_entries_within(matrix: ObservedMatrix, columns: slice) -> GroupedEntries:
    """Return of every row the entries in a range of columns: by column, they lie together, all but their values."""
    starts, rows, places = matrix.by_column
    starts, some = _range(starts, columns)
    return _regrouped(starts, rows[some], matrix.values[places[some]], columns.start, matrix.shape[0])


def column_entries_within(matrix: ObservedMatrix, rows: slice) -> GroupedEntries:
    """Return of every column the entries in a range of rows: by row, they lie together."""
    starts, some = _range(matrix.by_row.starts, rows)
    return _regrouped(starts, matrix.by_row.columns[some], matrix.values[some], rows.start, matrix.shape[1])


def _range(starts: IndexArray, groups: slice) -> tuple[IndexArray, slice]:
    """Return the starts of a range of groups, from 0, and where their entries lie."""
    own = starts[groups.start : groups.stop + 1]
    return own - own[0], slice(int(own[0]), int(own[-1]))


def _regrouped(starts: IndexArray, others: IndexArray, values: ValueArray, first: int, n_others: int) -> GroupedEntries:
    """Return entries of groups, of which the first has the number `first`, grouped by what they have been over."""
    by_group = scipy.sparse.csr_array((values, others, starts), shape=(starts.size - 1, n_others))
    by_other = by_group.tocsc()  # a counting sort in compiled code
    return GroupedEntries(by_other.indptr, by_other.indices + np.array(first, others.dtype), by_other.data)
