"""The best places of some rows, found block by block: what is kept is what may still be among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import IndexArray

# Where more keys of a block than this many times those wanted are above the n-th best, that of the block is looked for.
_MANY = 4


class BestSoFar:
    """The n largest keys of each of some rows, largest first, and their places; ties go to the earlier place.

    keys: (rows, n), -inf where nothing has come yet. Blocks come in the order of their places; once there are n keys,
    a block costs hardly more than one comparison with the smallest of them.
    """

    def __init__(self, n_rows: int, n: int) -> None:
        self.keys: npt.NDArray[Any] = np.full((n_rows, n), -np.inf, dtype=np.float32)
        self.places: IndexArray = np.zeros((n_rows, n), dtype=np.int64)

    def add(self, keys: npt.NDArray[Any], start: int) -> None:
        """Take in a block of keys (rows, places), whose first place is `start`; keys of -inf are left out."""
        if self.keys.dtype != keys.dtype:
            self.keys = self.keys.astype(keys.dtype)
        lines = np.flatnonzero(keys.max(axis=1) > self.keys[:, -1])
        if lines.size:
            some = keys if lines.size == len(keys) else keys[lines]
            which, places = np.divmod(np.flatnonzero(self._may_come_in(some, lines)), keys.shape[1])
            self._merge(lines[which], places + start, some[which, places])

    def _may_come_in(self, keys: npt.NDArray[Any], lines: IndexArray) -> npt.NDArray[np.bool_]:
        """Say which keys (lines, places) of some rows may be among their n best."""
        n, width = self.keys.shape[1], keys.shape[1]
        above: npt.NDArray[np.bool_] = keys > self.keys[lines, -1:]
        if width > n and np.count_nonzero(above) > _MANY * n * lines.size:
            above &= keys >= np.partition(keys, width - n, axis=1)[:, width - n, None]
        return above

    def _merge(self, lines: IndexArray, places: IndexArray, keys: npt.NDArray[Any]) -> None:
        """Keep the n best of each row among those known and those found."""
        n_rows, n = self.keys.shape
        every_line = np.concatenate([np.repeat(np.arange(n_rows), n), lines])
        every_place = np.concatenate([self.places.ravel(), places])
        every_key = np.concatenate([self.keys.ravel(), keys])
        order = np.lexsort((every_place, -every_key, every_line))
        counts = n + np.bincount(lines, minlength=n_rows)
        firsts = np.cumsum(counts) - counts
        kept = order[firsts[:, None] + np.arange(n)]
        self.keys, self.places = every_key[kept], every_place[kept]
