"""Random numbers that are the same on every platform and with every version of numpy."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from deepmf.errors import check_count
from deepmf.matrix.arrays import FloatArray, IndexArray

# Normal numbers are multiples of 2^-20: coarse enough to hide the last bits, in which mathematical
# libraries differ.
_NORMAL_GRID = 2.0**20


class RandomStream:
    """Random numbers of a seed and a key, which names the purpose of the numbers.

    They are made from PCG64's raw 64-bit words, which numpy promises to keep; the methods of
    `numpy.random.Generator` may change between versions.

    >>> RandomStream(7).draw_uniforms(2)
    array([0.62509547, 0.8972138 ])
    >>> RandomStream(7, 1).order(4)
    array([1, 3, 2, 0])
    """

    def __init__(self, seed: int, *key: int) -> None:
        check_count("seed", seed, least=0)
        self._words = np.random.PCG64(np.random.SeedSequence(int(seed), spawn_key=key))

    def draw_uniforms(self, count: int) -> FloatArray:
        """Return uniform numbers between 0 and 1, both excluded, (count,)."""
        words = self._words.random_raw(count) >> np.uint64(12)
        return (words.astype(np.float64) + 0.5) * 2.0**-52

    def draw_normals(self, count: int) -> FloatArray:
        """Return normal numbers of mean 0 and standard deviation 1, (count,)."""
        normals: FloatArray = (
            np.round(ndtri(self.draw_uniforms(count)) * _NORMAL_GRID) / _NORMAL_GRID
        )
        return normals

    def integers(self, count: int, low: int, high: int) -> IndexArray:
        """Return whole numbers from `low` to `high` - 1, (count,)."""
        return low + (self.draw_uniforms(count) * (high - low)).astype(np.int64)

    def order(self, count: int) -> IndexArray:
        """Return 0 to count - 1 in a random order, (count,)."""
        return draw_order(count, self._words)


def draw_order(count: int, words: np.random.PCG64) -> IndexArray:
    """Return 0 to count - 1 in the order of raw 64-bit draws, (count,)."""
    # numpy promises the raw words for ever, its `permutation` only within a version.
    return np.argsort(words.random_raw(count), kind="stable")
