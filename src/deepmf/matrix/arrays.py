"""Types of arrays, and values stored as one-byte codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

FloatArray = npt.NDArray[np.float64]  # values, in the units of the scale
ValueArray = npt.NDArray[np.floating[Any]]  # values, in single precision where that is exact
IndexArray = npt.NDArray[np.integer[Any]]  # positions on an axis or in an array
LatentArray = npt.NDArray[np.float32]  # latents, (rows or columns, latent)

PIECE = 1 << 20  # values decoded or counted at a time
MOST_CODES = 255


class CodedValues(NDArrayOperatorsMixin):
    """A read-only array of values (entries,), held as one-byte codes and a table of their values.

    Indexing decodes only the selected values; any other operation decodes all of them.

    >>> stars = CodedValues(np.array([0, 2, 2], dtype=np.uint8), np.array([1.0, 2.0, 5.0]))
    >>> stars[1:], stars - 1
    (array([5., 5.]), array([0., 4., 4.]))
    """

    ndim = 1

    def __init__(self, codes: npt.NDArray[np.uint8], table: npt.NDArray[np.floating[Any]]) -> None:
        self.codes = codes
        self.table = table

    @property
    def size(self) -> int:
        """Number of values."""
        return int(self.codes.size)

    @property
    def shape(self) -> tuple[int]:
        """The shape, (entries,)."""
        return (self.size,)

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """Type of the decoded values."""
        return self.table.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return int(self.codes.nbytes)

    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> npt.NDArray[Any]:
        """Return all values as an array of a type."""
        table = self.table.astype(dtype)
        decoded = np.empty(self.size, dtype=table.dtype)
        for start in range(0, self.size, PIECE):  # numpy turns codes into indices of eight bytes
            np.take(table, self.codes[start : start + PIECE], out=decoded[start : start + PIECE], mode="clip")
        return decoded

    def min(self) -> Any:
        """Return the lowest value."""
        return self.table[count_codes(self.codes, self.table.size) > 0].min()

    def max(self) -> Any:
        """Return the highest value."""
        return self.table[count_codes(self.codes, self.table.size) > 0].max()

    def tolist(self) -> list[float]:
        """Return all values as a list."""
        values: list[float] = np.asarray(self).tolist()
        return values

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, which: Any) -> Any:
        return self.table[self.codes[which]]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self.astype(self.dtype if dtype is None else dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = (np.asarray(each) if isinstance(each, CodedValues) else each for each in inputs)
        return getattr(ufunc, method)(*plain, **options)


def find_codes(values: npt.NDArray[np.floating[Any]], table: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint8]:
    """Return the place of each value in an increasing table that contains all of them."""
    if table.size > 16:
        return np.searchsorted(table, values).astype(np.uint8)
    codes = np.zeros(values.size, dtype=np.uint8)
    for value in table[1:]:  # for a short table, comparisons are much faster than a search
        codes += values >= value
    return codes


def count_codes(codes: npt.NDArray[np.uint8], n_codes: int) -> npt.NDArray[np.int64]:
    """Return the number of occurrences of each code, (codes,)."""
    counts = np.zeros(n_codes, dtype=np.int64)
    for start in range(0, codes.size, PIECE):
        counts += np.bincount(codes[start : start + PIECE], minlength=n_codes)
    return counts


def iterate_pieces(values: Any) -> Iterator[npt.NDArray[Any]]:
    """Yield slices of an array or of coded values, so that decoding takes little memory."""
    for start in range(0, values.size, PIECE):
        yield values[start : start + PIECE]
