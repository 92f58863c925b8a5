"""Positions in parts of a bounded number of entries, so that what is computed of each part fits into memory."""

from __future__ import annotations

import numpy as np

from deepmf.matrix.arrays import IndexArray

# What a part takes on the way, some 200 bytes an entry, stays below a gigabyte.
_ENTRIES_AT_A_TIME = 1 << 22


def entry_parts(counts: IndexArray) -> list[IndexArray]:
    """Return the positions of rows (or columns) with these numbers of entries, in order, part by part.

    >>> [part.size for part in entry_parts(np.full(10, 1 << 20))]
    [3, 4, 3]
    """
    part_of = np.cumsum(counts, dtype=np.int64) // _ENTRIES_AT_A_TIME
    return np.split(np.arange(counts.size), np.flatnonzero(np.diff(part_of)) + 1)
