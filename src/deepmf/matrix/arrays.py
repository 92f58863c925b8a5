"""An array in a file: written piece by piece, with its length and checksum, and mapped into memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

FloatArray = npt.NDArray[np.float64]  # values, in the scale's units

IndexArray = npt.NDArray[np.integer[Any]]  # positions on an axis, or in an array

LatentArray = npt.NDArray[np.float32]  # latents (rows or columns, latent)


PIECE = 1 << 20  # entries that are decoded, compared or counted at a time

MOST_CODES = 255


class CodedValues(NDArrayOperatorsMixin):
    """A read-only array of values (entries,), of which each is a code (one byte) and stands in a table.

    Entries that are picked out are decoded alone; whatever needs all values as numbers makes a whole array of them.

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
        """The type of the values."""
        return self.table.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return int(self.codes.nbytes)

    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> npt.NDArray[Any]:
        """Return all values in a type."""
        table = self.table.astype(dtype)
        decoded = np.empty(self.size, dtype=table.dtype)
        for start in range(0, self.size, PIECE):  # as indices, codes take eight bytes
            np.take(table, self.codes[start : start + PIECE], out=decoded[start : start + PIECE], mode="clip")
        return decoded

    def min(self) -> Any:
        """Return the lowest value."""
        return self.table[self._counts() > 0].min()

    def max(self) -> Any:
        """Return the highest value."""
        return self.table[self._counts() > 0].max()

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

    def _counts(self) -> npt.NDArray[np.int64]:
        return count_codes(self.codes, self.table.size)


def count_codes(codes: npt.NDArray[np.uint8], n_codes: int) -> npt.NDArray[np.int64]:
    """Return how often each code occurs."""
    counts = np.zeros(n_codes, dtype=np.int64)
    for start in range(0, codes.size, PIECE):
        counts += np.bincount(codes[start : start + PIECE], minlength=n_codes)
    return counts


def find_codes(values: npt.NDArray[np.floating[Any]], table: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint8]:
    """Return the place of each value in a rising table that holds all of them."""
    if table.size > 16:
        return np.searchsorted(table, values).astype(np.uint8)
    codes = np.zeros(values.size, dtype=np.uint8)
    for value in table[1:]:  # a few comparisons beat a search by far
        codes += values >= value
    return codes


def iterate_pieces(values: Any) -> Iterator[npt.NDArray[Any]]:
    """Yield an array, or coded values, some elements at a time: decoding takes no more memory than that."""
    for start in range(0, values.size, PIECE):
        yield values[start : start + PIECE]


# As they are stored: little-endian, whatever the machine.
TYPES = {name: np.dtype(name).newbyteorder("<") for name in ("uint8", "int32", "int64", "float32", "float64")}


_PIECE = 1 << 22  # elements that are converted at a time


class ArrayFile:
    """A file that an array is written to, one piece after another; a full disk raises `OSError`."""

    def __init__(self, path: Path, kind: npt.DTypeLike) -> None:
        self.path = path
        self.kind = np.dtype(kind).name
        self.length = 0
        self._checksum = 0
        self._file = path.open("wb", buffering=0)

    def append(self, array: npt.NDArray[Any]) -> None:
        """Write a piece behind what was written before."""
        for start in range(0, array.size, _PIECE):
            piece = np.ascontiguousarray(array[start : start + _PIECE], dtype=TYPES[self.kind])
            content = memoryview(piece.view(np.uint8).data)
            self._checksum = zlib.crc32(content, self._checksum)
            while content:  # a write may take only a part
                content = content[self._file.write(content) :]
        self.length += array.size

    def close(self) -> dict[str, Any]:
        """Close the file; return how it is described in a manifest."""
        self._file.close()
        return {"type": self.kind, "length": self.length, "checksum": self._checksum}


def map_array(path: Path, kind: str, length: int) -> npt.NDArray[Any]:
    """Return the array of a file, read-only: what is not touched takes no memory."""
    if length == 0:  # nothing can be mapped
        empty = np.empty(0, dtype=kind)
        empty.flags.writeable = False
        return empty
    return np.asarray(np.memmap(path, dtype=TYPES[kind], mode="r", shape=(length,)))


def compute_checksum(path: Path) -> int:
    """Return the checksum of a file's content."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            found = zlib.crc32(piece, found)
    return found
