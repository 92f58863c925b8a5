"""Splits and masks of a table: entries to learn from, entries that are inputs, and hidden ones to predict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.optimize
from scipy.special import expit
from sklearn.utils import check_array

from deepmf.data.splits import split_areas, split_entries
from deepmf.errors import BadEntries, BadSetting, BadSplit
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.sklearn.table import CHECKS, MaskArray, TableEntries, dense_copy, hide_entries, measure_columns


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


MECHANISMS = ("mcar", "mar", "mnar")

# How much more often a cell is hidden for one standard deviation of the driving value, on the logistic scale.
_SLOPE = 1.0


class MaskedTable(NamedTuple):
    """A table of the kind that was given, without the cells that the mask (rows, columns) marks."""

    table: Any
    hidden: MaskArray


def mask_entries(
    X: Any,  # noqa: N803
    mechanism: str = "mcar",
    share: float = 0.2,
    *,
    slope: float = _SLOPE,
    seed: int = 0,
) -> MaskedTable:
    """Hide a share of the observed cells of a table, to see how well any imputer fills them in.

    Parameters
    ----------
    X
        An array or a frame of numbers; what is missing already stays so.
    mechanism
        "mcar" hides cells completely at random. "mar" hides more cells of a column in rows where the column before it
        is large and visible (the first column stays as it is). "mnar" hides more cells that are large themselves.
    share
        Share of the observed cells of each column that is hidden, on average.
    slope
        Increase of the log odds of being hidden for one standard deviation of the driving value; negative slopes hide
        small values.
    seed
        The same seed hides the same cells.

    >>> table = np.random.default_rng(0).normal(size=(1000, 2))
    >>> hidden = mask_entries(table, "mnar", 0.3).hidden
    >>> bool(table[hidden].mean() > table[~hidden].mean())
    True
    """
    if mechanism not in MECHANISMS:
        raise BadSetting(f"mechanism must be {', '.join(map(repr, MECHANISMS))}; got {mechanism!r}")
    if not 0 < share < 1:
        raise BadSetting(f"share must be between 0 and 1; got {share!r}")
    checked = dense_copy(check_array(X, **CHECKS))
    observed = ~np.isnan(checked)
    random = np.random.default_rng(seed)
    chosen = random.random(checked.shape)
    drivers = slope * _standardise(checked)
    hidden = np.zeros(checked.shape, dtype=bool)
    for column in range(1 if mechanism == "mar" else 0, checked.shape[1]):
        if mechanism == "mcar":
            log_odds = np.zeros(len(checked))
        elif mechanism == "mnar":
            log_odds = drivers[:, column]
        else:  # a driver that is hidden itself has no influence, so the reason is always visible to an imputer
            log_odds = np.where(hidden[:, column - 1], 0.0, drivers[:, column - 1])
        hidden[:, column] = observed[:, column] & (
            chosen[:, column] < _match_share(log_odds, observed[:, column], share)
        )
    return MaskedTable(hide_entries(X, checked, ~hidden), hidden)


def _standardise(table: npt.NDArray[Any]) -> FloatArray:
    """Return columns with mean 0 and standard deviation 1; missing cells are 0."""
    means, spreads = measure_columns(table)
    return np.nan_to_num((table - means) / np.where(spreads > 0, spreads, 1.0))


def _match_share(log_odds: FloatArray, observed: MaskArray, share: float) -> FloatArray:
    """Return probabilities with these log odds, shifted so that their mean over observed cells is the share."""
    own = log_odds[observed]
    if own.size == 0:
        return np.zeros(log_odds.size)
    shift = scipy.optimize.brentq(lambda by: float(expit(own + by).mean()) - share, -60.0, 60.0)
    chances: FloatArray = expit(log_odds + shift)
    return chances
