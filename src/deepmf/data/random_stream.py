"""Private random numbers that are the same for the same seed on every platform."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray

# Normal numbers are multiples of 2^-20, coarse enough to hide in which bit two mathematical libraries differ.
_NORMAL_GRID = 2.0**20


class RandomStream:
    """Random numbers of one seed and one key (the part of the work that they are for).

    They are made from PCG64's raw 64-bit words, which numpy promises to keep; what `numpy.random.Generator` makes of
    the words may change between versions.

    >>> RandomStream(7).uniforms(2)
    array([0.62509547, 0.8972138 ])
    >>> RandomStream(7, 1).order(4)
    array([1, 3, 2, 0])
    """

    def __init__(self, seed: int, *key: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise BadSetting(f"seed must be a whole number that is not negative; got {seed!r}")
        self._words = np.random.PCG64(np.random.SeedSequence(int(seed), spawn_key=key))

    def uniforms(self, count: int) -> FloatArray:
        """Return uniform numbers between 0 and 1, both excluded, (count,)."""
        words = self._words.random_raw(count) >> np.uint64(12)
        return (words.astype(np.float64) + 0.5) * 2.0**-52

    def normals(self, count: int) -> FloatArray:
        """Return normal numbers of mean 0 and standard deviation 1, (count,)."""
        normals: FloatArray = np.round(ndtri(self.uniforms(count)) * _NORMAL_GRID) / _NORMAL_GRID
        return normals

    def exponentials(self, count: int) -> FloatArray:
        """Return exponential numbers of mean 1, (count,)."""
        return -np.log(self.uniforms(count))

    def order(self, count: int) -> IndexArray:
        """Return 0 to count - 1 in a random order."""
        return np.argsort(self._words.random_raw(count), kind="stable")
