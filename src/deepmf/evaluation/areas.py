"""The confusion matrix of levels: how often each level was predicted for each true level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, Hint, OffScale, UnknownLabel
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import AREAS, Entries, ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import mae_error, rmse_error
from deepmf.models.base import Model
from deepmf.models.pairs import Unknown, check_known, check_unknown

UNKNOWN_HINT = Hint(
    "extend the model by them, or predict them by the means with unknown='fallback'",
    "--extend adds new rows and columns, and --unknown fallback predicts them by the means",
)


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
        raise UnknownLabel(error.message, hint=UNKNOWN_HINT) from error


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


@dataclass(frozen=True)
class ColumnErrors:
    """The error of each column that has test entries; four arrays (columns,).

    `uncertainty` is the standard error of `rmse`: how far it would scatter from test to test; NaN of a single entry.
    """

    labels: npt.NDArray[Any]
    n_entries: npt.NDArray[np.int64]
    rmse: FloatArray
    uncertainty: FloatArray


def column_errors(model: Model, test: ObservedMatrix) -> ColumnErrors:
    """Return the errors on the test entries of each column.

    >>> from deepmf.models.means import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> errors = column_errors(Means(shrinkage=0).fit(train), test)
    >>> errors.labels.tolist(), errors.rmse.tolist()
    (['Alien'], [1.0])
    """
    rows, columns, values = test.entries()
    squares = np.square(model.predict(rows, columns) - values)
    which = test.by_row.columns
    counts = test.column_counts.astype(np.int64)
    present = counts > 0
    counts = counts[present]
    means = np.bincount(which, weights=squares, minlength=present.size)[present] / counts
    # Deviations from the mean, and not a difference of squares, which rounding could make negative.
    place = np.cumsum(present) - 1
    spread = np.bincount(place[which], weights=np.square(squares - means[place[which]]), minlength=counts.size)
    rmse = np.sqrt(means)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A root scatters by the scatter of what is under it over twice the root; no error at all has no scatter.
        of_mean = np.sqrt(spread / (counts - 1) / counts)
        uncertainty = np.where((means == 0) & (counts > 1), 0.0, of_mean / (2 * rmse))
    return ColumnErrors(test.column_labels[present], counts, rmse, uncertainty)


# The numbers of known entries of a new row.
KNOWN_COUNTS = (1, 2, 5, 10, 20)


# The first number of entries of each group; the last has no end.
STARTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class ColdStart:
    """The error of all test entries whose row is described by `first` to `last` entries, or by more."""

    first: int
    last: int | None
    n_entries: int
    rmse: float

    @property
    def margin(self) -> float:
        """The standard error of `rmse`."""
        return rmse_margin(self.rmse, self.n_entries)


def cold_start(model: Model, test: ObservedMatrix) -> list[ColdStart]:
    """Return the error for each group of rows that has test entries, from few entries to many.

    >>> from deepmf.models.means import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> cold_start(Means(shrinkage=0).fit(train), test)
    [ColdStart(first=1, last=1, n_entries=1, rmse=1.0)]
    """
    rows, columns, values = test.entries()
    predicted = model.predict(rows, columns)
    group = np.searchsorted(STARTS, model.row_counts(rows), side="right") - 1
    ends = [*(start - 1 for start in STARTS[1:]), None]
    curve = []
    for number, (first, last) in enumerate(zip(STARTS, ends, strict=True)):
        inside = group == number
        if np.any(inside):
            error = rmse_error(predicted[inside], values[inside])
            curve.append(ColdStart(first, last, int(np.count_nonzero(inside)), error))
    return curve


@dataclass(frozen=True)
class ColdStartPoint:
    """The error for new rows of which at most `n_known` entries are known."""

    n_known: int
    rmse: float


def cold_start_curve(
    model: Model, new_rows: ObservedMatrix, test: ObservedMatrix, *, seed: int = 0
) -> list[ColdStartPoint]:
    """Return the error on the same test entries of new rows as more and more of their other entries become known.

    The model must not cover the rows of `new_rows` yet; a row that has fewer entries gives all it has.
    """
    rows, columns, values = test.entries()
    curve = []
    for n_known in KNOWN_COUNTS:
        predicted = model.extend(at_most(new_rows, n_known, seed=seed)).predict(rows, columns)
        curve.append(ColdStartPoint(n_known, rmse_error(predicted, values)))
    return curve


def at_most(matrix: ObservedMatrix, n_entries: int, *, seed: int) -> ObservedMatrix:
    """Return a matrix with at most n entries of each row, chosen at random: of one seed, the first of one order.

    >>> matrix = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> at_most(matrix, 1, seed=0).row_counts.tolist()
    [1, 1]
    """
    draws = np.random.default_rng(seed).random(matrix.n_entries)
    order = np.lexsort([draws, matrix.entry_rows])  # rows stay together, each in an order of its own
    place_in_row = np.arange(matrix.n_entries) - matrix.by_row.starts[matrix.entry_rows[order]]
    return matrix.take_entries(np.sort(order[place_in_row < n_entries]))


def confusion(model: Model, test: ObservedMatrix) -> npt.NDArray[np.int64]:
    """Return counts (true level, predicted level) over test entries.

    >>> from deepmf.models.means import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> confusion(Means(shrinkage=0).fit(train), test)
    array([[0, 0, 0],
           [0, 0, 1],
           [0, 0, 0]])
    """
    scale = model.scale_
    if scale.levels is None:
        raise BadSetting(f"the scale {scale} has no levels to confuse")
    rows, columns, values = test.entries()
    true, predicted = scale.level_positions(values), scale.level_positions(model.predict_levels(rows, columns))
    size = scale.levels.size
    return np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)
