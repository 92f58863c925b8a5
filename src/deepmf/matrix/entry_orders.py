"""The two orders of a matrix's entries, by row and by column, in as few bytes as hold them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.sorting import starts_of

ValueArray = npt.NDArray[np.floating[Any]]

_PIECE = 1 << 22  # numbers that are looked at at a time


class ByRow(NamedTuple):
    """Entries in row order (CSR): those of row i are `starts[i]:starts[i + 1]`, columns increasing."""

    starts: IndexArray  # (rows + 1,)
    columns: IndexArray  # (entries,)


class ByColumn(NamedTuple):
    """Entries in column order (CSC): those of column j are `starts[j]:starts[j + 1]`, rows increasing."""

    starts: IndexArray  # (columns + 1,)
    rows: IndexArray  # (entries,)
    entries: IndexArray  # (entries,) where each stands in row order


def both_orders(row_of: IndexArray, column_of: IndexArray, *, shape: tuple[int, int]) -> tuple[ByRow, ByColumn]:
    """Return both orders of entries that are in row order, without repeats."""
    index = np.int32 if max(row_of.size, *shape) < 2**31 - 1 else np.int64
    by_row = ByRow(starts_of(row_of, shape[0], index), column_of.astype(index, copy=False))
    # Turning CSR into CSC is a counting sort in compiled code; with places as data, entries tell where they went.
    places = np.arange(row_of.size, dtype=index)
    turned = scipy.sparse.csr_array((places, by_row.columns, by_row.starts), shape=shape).tocsc()
    return by_row, ByColumn(*(part.astype(index, copy=False) for part in (turned.indptr, turned.indices, turned.data)))


def compact(values: FloatArray) -> ValueArray:
    """Return a copy of values, in single precision where that loses nothing."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values) else values.copy()


def are_positions(array: IndexArray, count: int) -> bool:
    """Say whether all numbers of an array are positions on an axis of this length, some at a time."""
    unsigned = array.view(f"u{array.itemsize}")  # a negative number is larger than any position
    return all(unsigned[start : start + _PIECE].max() < count for start in range(0, array.size, _PIECE))
