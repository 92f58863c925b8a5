"""Indices of labels: the distinct ones among many, and where each stands."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import IndexArray

# Integer labels spread over at most this many times their number are looked up in a table, not by sorting.
_TABLE_SPREAD = 8


class IntegerIndex:
    """Where integers stand among distinct ones: looked up in a table or, where those lie far apart, searched for.

    >>> IntegerIndex(np.array([4, 2, 9])).find(np.array([9, 3, 4]))
    array([ 2, -1,  0])
    """

    def __init__(self, labels: IndexArray) -> None:
        self._labels = labels
        self._low, self._high = int(labels.min()), int(labels.max())

    def find(self, items: IndexArray) -> IndexArray:
        """Return where each item stands, -1 for an unknown one."""
        if _is_spread(self._low, self._high, self._labels.size):
            near = np.minimum(np.searchsorted(self._sorted, items), self._labels.size - 1)
            positions = self._order[near]
            return np.where(self._labels[positions] == items, positions, -1)
        inside = (items >= self._low) & (items <= self._high)
        return np.where(inside, self._table[np.where(inside, items - self._low, 0)], -1)

    @cached_property
    def _table(self) -> IndexArray:
        """Where each integer from the lowest label to the highest stands, -1 for those between that are none."""
        table = np.full(self._high - self._low + 1, -1, dtype=np.int64)
        table[self._labels - self._low] = np.arange(self._labels.size)
        return table

    @cached_property
    def _order(self) -> IndexArray:
        return np.argsort(self._labels, kind="stable")

    @cached_property
    def _sorted(self) -> IndexArray:
        ordered: IndexArray = self._labels[self._order]
        return ordered


def gathered_integers(array: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return the distinct ones of some integers, rising, and the position of each integer among them."""
    if array.size == 0:
        return array.copy(), array.copy()
    low, high = int(array.min()), int(array.max())
    if _is_spread(low, high, array.size):
        distinct, positions = np.unique(array, return_inverse=True)
        return distinct, positions
    offsets = array - low if low else array
    seen = np.zeros(high - low + 1, dtype=bool)
    seen[offsets] = True
    # 32-bit positions halve the memory that every later pass over the entries moves.
    position_of = np.cumsum(seen, dtype=np.int64) - 1
    if seen.size < 2**31:
        position_of = position_of.astype(np.int32)
    return np.flatnonzero(seen) + low, position_of[offsets]


def gathered_objects(array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IndexArray]:
    """Return the distinct ones of some objects, sorted where they have an order, and the position of each."""
    items = array.tolist()
    distinct = list(dict.fromkeys(items))
    with suppress(TypeError):  # labels without an order
        distinct.sort()
    index = dict(zip(distinct, range(len(distinct)), strict=True))
    labels = np.fromiter(distinct, dtype=object, count=len(distinct))
    return labels, np.fromiter(map(index.__getitem__, items), dtype=np.int64, count=len(items))


def _is_spread(low: int, high: int, count: int) -> bool:
    """Say whether a table from the lowest integer to the highest would be much larger than their number."""
    return high - low > _TABLE_SPREAD * count + 1024
