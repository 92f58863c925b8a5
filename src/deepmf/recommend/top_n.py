"""The n largest of many numbers in each row, largest first; ties go to the earlier place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import check_count
from deepmf.matrix.arrays import IndexArray

# If more than this share of a block is above the n-th best so far, the block is partitioned, which costs less than
# merging that many keys.
_MANY = 1 / 16


class BestSoFar:
    """The n largest keys of each row so far, largest first, and their places; ties go to the earlier place.

    keys: (rows, n), -inf where there is no key yet. Blocks are added in the order of their places; once there are n
    keys, a block costs little more than a comparison with the smallest of them.
    """

    def __init__(self, n_rows: int, n: int) -> None:
        self.keys: npt.NDArray[Any] = np.full((n_rows, n), -np.inf, dtype=np.float32)
        self.places: IndexArray = np.zeros((n_rows, n), dtype=np.int64)

    def add(self, keys: npt.NDArray[Any], start: int) -> None:
        """Add a block of keys (rows, places), whose first place is `start`; keys of -inf are skipped."""
        if self.keys.dtype != keys.dtype:
            self.keys = self.keys.astype(keys.dtype)
        lines = np.flatnonzero(keys.max(axis=1) > self.keys[:, -1])
        if lines.size:
            some = keys if lines.size == len(keys) else keys[lines]
            which, places = np.divmod(np.flatnonzero(self._are_candidates(some, lines)), keys.shape[1])
            self.merge(lines[which], places + start, some[which, places])

    def _are_candidates(self, keys: npt.NDArray[Any], lines: IndexArray) -> npt.NDArray[np.bool_]:
        """Return which keys (lines, places) of some rows may be among their n best."""
        n, width = self.keys.shape[1], keys.shape[1]
        above: npt.NDArray[np.bool_] = keys > self.keys[lines, -1:]
        if width > n and np.count_nonzero(above) > _MANY * keys.size:
            smallest = np.partition(keys, width - n, axis=1)[:, width - n, None]
            above &= keys >= smallest
            if np.count_nonzero(above) > 2 * n * len(keys):  # many ties, of which the earliest are enough
                ties = keys == smallest
                above &= ~ties | (np.cumsum(ties, axis=1, dtype=np.int32) <= n)
        return above

    def merge(self, lines: IndexArray, places: IndexArray, keys: npt.NDArray[Any]) -> None:
        """Keep the n best of each row among the old and the new keys."""
        n_rows, n = self.keys.shape
        every_line = np.concatenate([np.repeat(np.arange(n_rows), n), lines])
        every_place = np.concatenate([self.places.ravel(), places])
        every_key = np.concatenate([self.keys.ravel(), keys])
        order = np.lexsort((every_place, -every_key, every_line))
        counts = n + np.bincount(lines, minlength=n_rows)
        firsts = np.cumsum(counts) - counts
        kept = order[firsts[:, None] + np.arange(n)]
        self.keys, self.places = every_key[kept], every_place[kept]


def best_positions(scores: npt.NDArray[Any], n: int) -> BestSoFar:
    """Return the places and the keys of the n largest scores of each line; keys of -inf have no place."""
    check_count("n", n)
    best = BestSoFar(len(scores), min(int(n), scores.shape[1]))
    best.add(scores, 0)
    return best
