"""Buckets: records distributed over files by ranges of a key, each small enough to be sorted in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import IndexArray

BUCKET = 1 << 23  # records of a bucket
MOST_BUCKETS = 256  # each has files that are open at the same time


class Bucket(NamedTuple):
    """The records whose key is from `first` to below `last`, in the order in which they were added."""

    first: int
    last: int
    fields: list[npt.NDArray[Any]]  # the keys come first


class Buckets:
    """Records of several fields, the first of which is their key; read back once, key range by key range.

    weights: about how many records each key will have, (keys,).
    """

    def __init__(self, folder: Path, weights: npt.NDArray[Any], kinds: list[npt.DTypeLike]) -> None:
        self._folder = folder
        folder.mkdir()
        self._bounds = even_bounds(weights)
        self._kinds = [np.dtype(kind) for kind in kinds]
        n_buckets = self._bounds.size - 1
        kind = np.uint8 if n_buckets <= 256 else np.uint16  # which numpy sorts by counting
        self._bucket_of_key = np.repeat(np.arange(n_buckets, dtype=kind), np.diff(self._bounds))
        self._files = [
            [self._path(at, field).open("wb", buffering=0) for field in range(len(kinds))] for at in range(n_buckets)
        ]

    def add(self, *fields: npt.NDArray[Any]) -> None:
        """Add records."""
        if len(self._files) == 1:
            self._write(0, fields)
            return
        bucket_of = self._bucket_of_key[fields[0]]
        order = np.argsort(bucket_of, kind="stable")
        ends = np.cumsum(np.bincount(bucket_of, minlength=len(self._files)))
        ordered = [field[order] for field in fields]
        for at in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            start = int(ends[at - 1]) if at else 0
            self._write(at, [field[start : ends[at]] for field in ordered])

    def __iter__(self) -> Iterator[Bucket]:
        """Yield the buckets by rising keys; the files of each are removed as soon as it is read."""
        for at, files in enumerate(self._files):
            fields = []
            for number, (file, kind) in enumerate(zip(files, self._kinds, strict=True)):
                file.close()
                path = self._path(at, number)
                fields.append(np.fromfile(path, dtype=kind))
                path.unlink()
            yield Bucket(int(self._bounds[at]), int(self._bounds[at + 1]), fields)

    def close(self) -> None:
        """Close all files."""
        for file in (file for files in self._files for file in files):
            file.close()

    def _write(self, at: int, fields: Any) -> None:
        for file, kind, field in zip(self._files[at], self._kinds, fields, strict=True):
            content = memoryview(np.ascontiguousarray(field, dtype=kind).view(np.uint8).data)
            while content:  # a write may take only a part
                content = content[file.write(content) :]

    def _path(self, at: int, field: int) -> Path:
        return self._folder / f"{at}.{field}"


def even_bounds(weights: npt.NDArray[Any]) -> IndexArray:
    """Return ranges of keys of about equal weight, as (buckets + 1,) bounds; a key is never cut."""
    behind = np.cumsum(weights, dtype=np.float64)
    total = behind[-1] if behind.size else 0.0
    n_buckets = int(np.clip(np.ceil(total / BUCKET), 1, MOST_BUCKETS))
    inner = np.searchsorted(behind, total * np.arange(1, n_buckets) / n_buckets) + 1
    return np.unique(np.concatenate([[0], np.minimum(inner, weights.size), [weights.size]]))
