"""A spool: entries kept in files in the order in which they came, until all labels and values are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.data.label_codes import Coded
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.scale import MOST_LEVELS, Scale, few_levels


class SpooledEntries(NamedTuple):
    """Some entries: codes of their labels, and their values."""

    rows: Coded
    columns: Coded
    values: npt.NDArray[np.floating[Any]]


class Spool:
    """Entries that are added some at a time, and read back once in the same order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._kinds: list[tuple[Any, Any]] = []
        self._levels: FloatArray | None = np.empty(0)
        self._low, self._high = np.inf, -np.inf
        self.n_entries = 0
        self.are_single = True  # whether all values are numbers of single precision

    def add(self, rows: Coded, columns: Coded, values: FloatArray) -> None:
        """Add entries; their values are finite."""
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        self.are_single = self.are_single and np.array_equal(single, values)
        with self._path(len(self._kinds)).open("wb", buffering=0) as file:
            for array in (_narrow(rows.codes), _narrow(columns.codes), single if self.are_single else values):
                np.save(file, array, allow_pickle=False)
        self._kinds.append((rows.kind, columns.kind))
        self.n_entries += values.size
        self._note(values)

    def __iter__(self) -> Iterator[SpooledEntries]:
        """Yield the entries as they came; each file is removed as soon as it is read."""
        for at, (row_kind, column_kind) in enumerate(self._kinds):
            path = self._path(at)
            with path.open("rb") as file:
                rows, columns, values = (np.load(file, allow_pickle=False) for _ in range(3))
            path.unlink()
            yield SpooledEntries(Coded(row_kind, rows), Coded(column_kind, columns), values)

    def scale(self) -> Scale:
        """Return the scale that the values show, as `Scale.infer` does; of an interval, with all outliers."""
        if self._levels is None:
            return Scale(low=self._low, high=self._high, bounded=False)
        return Scale.infer(self._levels)

    def _note(self, values: FloatArray) -> None:
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        if self._levels is not None:
            levels = few_levels(values)
            together = None if levels is None else np.union1d(self._levels, levels)
            self._levels = None if together is None or together.size > MOST_LEVELS else together

    def _path(self, at: int) -> Path:
        return self._folder / f"{at}.npy"


def _narrow(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return codes in 32 bits where they fit."""
    bounds = np.iinfo(np.int32)
    fits = codes.size == 0 or (codes.min() >= bounds.min and codes.max() <= bounds.max)
    return codes.astype(np.int32, copy=False) if fits else codes
