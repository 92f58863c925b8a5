"""Buckets: records distributed over files by ranges of a key, each small enough to be sorted in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import IndexArray

BUCKET = 1 << 23  # records of a bucket
MOST_BUCKETS = 200  # all of which are open files at the same time


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
        # Numpy sorts bytes by counting.
        self._bucket_of_key = np.repeat(np.arange(n_buckets, dtype=np.uint8), np.diff(self._bounds))
        self._files = [self._path(at).open("wb", buffering=0) for at in range(n_buckets)]
        self._counts: list[list[int]] = [[] for _ in range(n_buckets)]  # of each addition

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
        for at, counts in enumerate(self._counts):
            self._files[at].close()
            fields = [np.empty(sum(counts), dtype=kind) for kind in self._kinds]
            with self._path(at).open("rb") as file:
                start = 0
                for count in counts:
                    for field, kind in zip(fields, self._kinds, strict=True):
                        field[start : start + count] = np.fromfile(file, dtype=kind, count=count)
                    start += count
            self._path(at).unlink()
            yield Bucket(int(self._bounds[at]), int(self._bounds[at + 1]), fields)

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()

    def _write(self, at: int, fields: Sequence[npt.NDArray[Any]]) -> None:
        file = self._files[at]
        self._counts[at].append(fields[0].size)
        for kind, field in zip(self._kinds, fields, strict=True):
            content = memoryview(np.ascontiguousarray(field, dtype=kind).view(np.uint8).data)
            while content:  # a write may take only a part
                content = content[file.write(content) :]

    def _path(self, at: int) -> Path:
        return self._folder / str(at)


def even_bounds(weights: npt.NDArray[Any]) -> IndexArray:
    """Return ranges of keys of about equal weight, as (buckets + 1,) bounds; a key is never cut."""
    behind = np.cumsum(weights, dtype=np.float64)
    total = behind[-1] if behind.size else 0.0
    n_buckets = int(np.clip(np.ceil(total / BUCKET), 1, MOST_BUCKETS))
    inner = np.searchsorted(behind, total * np.arange(1, n_buckets) / n_buckets) + 1
    return np.unique(np.concatenate([[0], np.minimum(inner, weights.size), [weights.size]]))
