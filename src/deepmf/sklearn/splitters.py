"""Splits of a table by its entries: those to learn from, those that are inputs, and masked ones to predict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array

from deepmf.data.splits import split_areas, split_entries
from deepmf.errors import BadEntries, BadSplit
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.sklearn.table import CHECKS, MaskArray, TableEntries


class Fold(NamedTuple):
    """Three masks (rows, columns) over the observed entries of a table.

    An imputer is fitted on the `fitted` entries (rows without one are not there yet), and completes the table that
    has only the `shown` ones; the `hidden` ones tell how well.
    """

    fitted: MaskArray
    shown: MaskArray
    hidden: MaskArray


class Splitter(ABC):
    """Yields folds of a table's entries, each drawn anew, from the seeds `seed`, `seed` + 1, ..."""

    n_splits: int
    hidden: float
    seed: int

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Fold]:  # noqa: N803
        """Yield a fold for every split of a table of any kind."""
        if not 0 < self.hidden < 1:
            raise BadSplit(f"hidden must be a share between 0 and 1; got {self.hidden!r}")
        entries = TableEntries.of(check_array(X, **CHECKS))
        if entries.values.size == 0:
            raise BadEntries(f"a table of {entries.shape[0]} x {entries.shape[1]} without entries cannot be split")
        matrix = entries.matrix(Scale(low=entries.values.min() - 1.0, high=entries.values.max() + 1.0))
        for split in range(self.n_splits):
            yield self._fold(matrix, self.seed + split)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: N803
        """Return the number of folds."""
        return self.n_splits

    @abstractmethod
    def _fold(self, matrix: ObservedMatrix, seed: int) -> Fold:
        """Return one fold of a matrix whose labels are positions."""


@dataclass(frozen=True)
class EntrySplitter(Splitter):
    """Masks a share of the entries anywhere in the table (area I): how well are its missing values filled in?

    >>> table = np.arange(20.0).reshape(5, 4)
    >>> [fold.hidden.sum() for fold in EntrySplitter(n_splits=2, hidden=0.25).split(table)]
    [np.int64(5), np.int64(5)]
    """

    n_splits: int = 5
    hidden: float = 0.2
    seed: int = 0

    def _fold(self, matrix: ObservedMatrix, seed: int) -> Fold:
        parts = split_entries(matrix, train=1.0 - self.hidden, validation=0.0, test=self.hidden, seed=seed)
        shown = _mask(matrix, parts.train)
        return Fold(shown, shown, _mask(matrix, parts.test))


@dataclass(frozen=True)
class AreaSplitter(Splitter):
    """Keeps a share of the rows from the fit, and masks a share of their entries (area II): how well do new rows do?

    >>> table = np.arange(20.0).reshape(5, 4)
    >>> fold = next(AreaSplitter(new_rows=0.2, hidden=0.25).split(table))
    >>> fold.fitted.sum(), fold.shown.sum(), fold.hidden.sum()
    (np.int64(16), np.int64(3), np.int64(1))
    """

    n_splits: int = 5
    new_rows: float = 0.2
    hidden: float = 0.2
    seed: int = 0

    def _fold(self, matrix: ObservedMatrix, seed: int) -> Fold:
        parts = split_areas(
            matrix,
            new_rows=self.new_rows,
            new_columns=0,
            train=1.0 - self.hidden,
            validation=0.0,
            test=self.hidden,
            seed=seed,
        )
        known_rows = parts.train, parts.test["I"]  # nothing is predicted there, so all of it is for training
        return Fold(_mask(matrix, *known_rows), _mask(matrix, parts.extension), _mask(matrix, parts.test["II"]))


def _mask(whole: ObservedMatrix, *parts: ObservedMatrix) -> MaskArray:
    mask = np.zeros(whole.shape, dtype=bool)
    for part in parts:
        rows, columns, _ = part.entries()
        mask[rows, columns] = True
    return mask
