"""Errors of a model on test entries, area by area."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, OffScale, UnknownLabel
from deepmf.matrix.areas import AREAS
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import Entries, ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import mae_error, rmse_error
from deepmf.models.label_pairs import Unknown, check_known, check_unknown
from deepmf.models.model import Model

EXTEND_HINT = "extend (on the command line --extend) adds new rows and columns"
UNKNOWN_HINT = f'{EXTEND_HINT}, and unknown="fallback" (--unknown fallback) predicts by the means of what is known'

# Where the errors of pairs are noted whose row or column the model does not know: they lie in no area.
UNKNOWN = "unknown"

# Entries predicted at a time: their positions and scores take some 50 MB.
_ENTRIES_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class AreaErrors:
    """The errors in one area ("I" to "IV"), on what only the fallback predicts ("unknown"), or on all entries ("all").

    `level_rmse` and `level_mae` are both those of `predict_levels`, by default; None on a scale without levels.
    `median_rmse` and `median_mae` are both those of the median levels, which are the best by the absolute error; None
    of a model without a distribution over levels, too.
    """

    area: str
    n_entries: int
    rmse: float
    mae: float
    level_rmse: float | None
    level_mae: float | None
    median_rmse: float | None = None
    median_mae: float | None = None

    @property
    def margin(self) -> float:
        """The standard error of `rmse`."""
        return rmse_margin(self.rmse, self.n_entries)


def evaluate(model: Model, test: ObservedMatrix, *, unknown: Unknown = "error") -> list[AreaErrors]:
    """Return the errors on test entries in each area that has any, and last in all of them.

    Entries whose row or column the model does not know are refused, left out (`unknown="nan"`), or predicted by the
    means of what is known (`unknown="fallback"`): these have a line of their own, and count in the last one.

    >>> from deepmf.models.means import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> [(errors.area, errors.n_entries, errors.rmse) for errors in evaluate(Means(shrinkage=0).fit(train), test)]
    [('I', 1, 1.0), ('all', 1, 1.0)]
    """
    if test.n_entries == 0:
        raise BadEntries("there is nothing to evaluate on: the test matrix has no entries")
    check_unknown(unknown)
    entries = test.entries()
    _check_on_scale(model.scale_, entries)
    if unknown == "error":
        check_test_known(model, test)
    predictions = _predicted(model, entries, unknown)
    errors = []
    for area in (*AREAS, UNKNOWN) if unknown == "fallback" else AREAS:
        inside = predictions.areas == area
        if np.any(inside):
            errors.append(_errors(area, predictions, entries.values, inside))
    if not errors:
        raise BadEntries("there is nothing to evaluate on: no test entry has a row and a column that the model knows")
    included = (predictions.areas != UNKNOWN) | (unknown == "fallback")
    return [*errors, _errors("all", predictions, entries.values, included)]


def rmse_margin(rmse: float, n_entries: int) -> float:
    """Return the standard error of an RMSE, as it is for errors that are spread normally: sqrt(rmse^2 / 2n)."""
    return rmse / math.sqrt(2 * n_entries)


def known_entries(model: Model, test: ObservedMatrix) -> ObservedMatrix:
    """Return the test entries whose row and column the model knows."""
    seen = model.entries_
    return test.take_known(seen.rows, seen.columns)


def count_seen(model: Model, test: ObservedMatrix) -> int:
    """Return how many test entries the model was trained on or extended by: on those it is not being tested."""
    if not model.is_fitted or test.n_entries == 0:
        return 0
    seen = model.entries_
    rows, columns = seen.rows.find(test.row_labels), seen.columns.find(test.column_labels)
    row_of, column_of = rows[test.entry_rows].astype(np.int64), columns[test.by_row.columns]
    wanted = row_of * len(seen.columns) + column_of
    known_rows = rows[rows >= 0]
    known = seen.seen_columns(known_rows)
    keys = np.repeat(known_rows.astype(np.int64), np.diff(known.starts)) * len(seen.columns) + known.others
    return int(np.count_nonzero(np.isin(wanted, keys) & (row_of >= 0) & (column_of >= 0)))


@dataclass(frozen=True)
class _Predictions:
    """What a model says about each test entry."""

    areas: npt.NDArray[np.str_]
    values: FloatArray
    levels: dict[str, FloatArray]  # by the metric they are to be best by; only those that the model has


def _predicted(model: Model, entries: Entries, unknown: Unknown) -> _Predictions:
    size = entries.values.size
    areas = np.empty(size, dtype=f"<U{len(UNKNOWN)}")
    values = np.empty(size)
    levels = {metric: np.empty(size) for metric in _level_metrics(model)}
    for start in range(0, size, _ENTRIES_AT_A_TIME):
        some = slice(start, start + _ENTRIES_AT_A_TIME)
        pairs: tuple[npt.NDArray[Any], npt.NDArray[Any]] = entries.rows[some], entries.columns[some]
        areas[some] = model.areas(*pairs, unknown=unknown)
        values[some] = model.predict(*pairs, unknown=unknown)
        for metric, chosen in levels.items():
            chosen[some] = model.predict_levels(*pairs, metric=metric, unknown=unknown)
    areas[areas == ""] = UNKNOWN
    return _Predictions(areas, values, levels)


def _level_metrics(model: Model) -> tuple[str, ...]:
    """Return by which metrics a model has levels of their own."""
    if model.scale_.levels is None:
        return ()
    return ("rmse", "mae") if model.gives_distribution else ("rmse",)


def _errors(area: str, predictions: _Predictions, values: FloatArray, inside: npt.NDArray[np.bool_]) -> AreaErrors:
    actual = values[inside]
    rounded, median = (
        predictions.levels[metric][inside] if metric in predictions.levels else None for metric in ("rmse", "mae")
    )
    return AreaErrors(
        area=area,
        n_entries=actual.size,
        rmse=rmse_error(predictions.values[inside], actual),
        mae=mae_error(predictions.values[inside], actual),
        level_rmse=None if rounded is None else rmse_error(rounded, actual),
        level_mae=None if rounded is None else mae_error(rounded, actual),
        median_rmse=None if median is None else rmse_error(median, actual),
        median_mae=None if median is None else mae_error(median, actual),
    )


def check_test_known(model: Model, test: ObservedMatrix) -> None:
    """Refuse rows and columns that the model does not know, and say what could be done."""
    seen = model.entries_
    rows, columns = test.row_labels[test.row_counts > 0], test.column_labels[test.column_counts > 0]
    try:
        check_known((seen.rows, rows), (seen.columns, columns))
    except UnknownLabel as error:
        raise UnknownLabel(f"{error}; {UNKNOWN_HINT}") from error


def _check_on_scale(scale: Scale, entries: Entries) -> None:
    """Refuse what is no level of the model's; an interval is only what training showed, so beyond it is no mistake."""
    if scale.levels is None:
        return
    off = np.flatnonzero(~scale.holds(entries.values))
    if off.size:
        first = off[0]
        row, column = entries.rows.tolist()[first], entries.columns.tolist()[first]
        raise OffScale(
            f"row {row!r}, column {column!r} of the test has the value {entries.values[first]:g}; "
            f"the model's scale is {scale}"
        )
