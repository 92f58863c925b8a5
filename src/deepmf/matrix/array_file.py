"""An array in a file: written piece by piece, with its length and checksum, and mapped into memory."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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


def mapped(path: Path, kind: str, length: int) -> npt.NDArray[Any]:
    """Return the array of a file, read-only: what is not touched takes no memory."""
    if length == 0:  # nothing can be mapped
        empty = np.empty(0, dtype=kind)
        empty.flags.writeable = False
        return empty
    return np.asarray(np.memmap(path, dtype=TYPES[kind], mode="r", shape=(length,)))


def checksum(path: Path) -> int:
    """Return the checksum of a file's content."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            found = zlib.crc32(piece, found)
    return found
