"""Errors on test entries: by area, by column, by the number of known entries, and by level."""

from __future__ import annotations

import math
import warnings
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, Hint, NothingObserved, UnknownLabel, check_count
from deepmf.files import polars
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.extras import TimeArray
from deepmf.matrix.labels import Labelled
from deepmf.matrix.matrix import AREAS, Entries, ObservedMatrix, check_matrix
from deepmf.matrix.sorting import check_on_scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.scoring.pairs import Unknown, check_known, check_unknown

UNKNOWN_HINT = Hint(
    "extend the model by them, or predict them by the means with unknown='fallback'",
    "--extend adds new rows and columns, and --unknown fallback predicts them by the means",
)

# The area name of pairs whose row or column the model does not know.
UNKNOWN = "unknown"

# The smallest number of known entries in each group of `evaluate_cold_start`; the last group has no
# end.
STARTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)

# Entries predicted at a time: their positions and scores take about 50 MB.
BATCH_SIZE = 1 << 20


@dataclass(frozen=True)
class AreaErrors:
    """The errors in one area.

    Attributes
    ----------
    area : "I" to "IV", "unknown" (entries that only the fallback predicts) or "all".
    n_entries : number of test entries.
    rmse, mae : errors of `predict`.
    level_rmse, level_mae : errors of `predict_levels`; None on a scale without levels.
    median_rmse, median_mae : errors of the median levels, which minimise the absolute error; None
        without a distribution over levels.
    """

    area: str
    n_entries: int
    rmse: float
    mae: float
    level_rmse: float | None = None
    level_mae: float | None = None
    median_rmse: float | None = None
    median_mae: float | None = None

    @property
    def margin(self) -> float:
        """The standard error of `rmse`."""
        return rmse_margin(self.rmse, self.n_entries)


class Evaluation(list[AreaErrors]):
    """The errors of a model: a list with one `AreaErrors` for each area, and one for all.

    residuals: prediction minus value of each test entry, (entries,); NaN where nothing was
    predicted.
    """

    residuals: FloatArray

    def to_frame(self) -> Any:
        """Return a polars frame with a line for each area; errors that the model does not have are
        left out."""
        frame = polars.DataFrame([asdict(errors) for errors in self], infer_schema_length=None)
        return frame[[series.name for series in frame if series.null_count() < len(self)]]


def evaluate(
    model: Model, test: ObservedMatrix, *, unknown: Unknown = "error", batch_size: int = BATCH_SIZE
) -> Evaluation:
    """Measure a model on test entries: one `AreaErrors` for each area that has entries, and one for
    all.

    `to_frame` of the result returns a polars frame.

    Parameters
    ----------
    model : a fitted model.
    test : the entries to predict; a model with drift predicts them for their own times.
    unknown : how to treat entries whose row or column the model does not know: raise `UnknownLabel`
        ("error"), leave them out ("nan"), or predict them by means ("fallback"), which adds an
        `AreaErrors` named "unknown".
    batch_size : number of entries that are predicted at a time.

    >>> from deepmf import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> [(errors.area, errors.n_entries, errors.rmse) for errors in evaluate(Means(shrinkage=0).fit(train), test)]
    [('I', 1, 1.0), ('all', 1, 1.0)]
    """
    check_model(model, "evaluate")
    check_matrix(test, "evaluate")
    check_unknown(unknown)
    check_count("batch_size", batch_size)
    entries = test.entries()
    # an interval is inferred from training, so values may exceed it
    if model.scale_.levels is not None:
        check_on_scale(
            Labelled(test.rows, test.entry_rows),
            Labelled(test.columns, test.by_row.columns),
            test.values,
            model.scale_,
        )
    if unknown == "error":
        check_test_known(model, test)
    areas, predictions = _predict_entries(
        model, entries, unknown, test.times if model.has_drift else None, batch_size
    )
    errors = []
    for area in (*AREAS, UNKNOWN) if unknown == "fallback" else AREAS:
        inside = areas == area
        if np.any(inside):
            errors.append(_measure(area, predictions, entries.values, inside))
    if not errors:
        raise BadEntries(
            "no test entry has a row and a column that the model knows, so there is nothing to evaluate"
        )
    included = (areas != UNKNOWN) | (unknown == "fallback")
    result = Evaluation([*errors, _measure("all", predictions, entries.values, included)])
    result.residuals = predictions[""] - entries.values
    return result


def check_model(model: object, taker: str) -> None:
    """Refuse anything but a model."""
    if not isinstance(model, Model):
        name = type(model).__name__
        raise BadSetting(f"{taker} takes a fitted model, then the test entries; got {name}")


def rmse_margin(rmse: float, n_entries: int) -> float:
    """Return the standard error of an RMSE of normally distributed errors: sqrt(rmse^2 / 2n)."""
    return rmse / math.sqrt(2 * n_entries)


def select_known_entries(model: Model, test: ObservedMatrix) -> ObservedMatrix:
    """Return the test entries whose row and column the model knows."""
    return test.take_known(model.entries_.rows, model.entries_.columns)


def count_seen(model: Model, test: ObservedMatrix) -> int:
    """Count the test entries that the model was trained on or extended by, which test nothing."""
    if not model.is_fitted or test.n_entries == 0:
        return 0
    entries, shared_test = model.entries_, select_known_entries(model, test)
    rows, columns = shared_test.find_in(entries.rows, entries.columns)
    return int(np.count_nonzero(~np.isnan(entries.values_at(rows, columns))))


def ignore_empty_lines() -> AbstractContextManager[None]:
    """Silence the warning about rows and columns without entries, which random splits nearly always
    have."""
    return warnings.catch_warnings(action="ignore", category=NothingObserved)


def _predict_entries(
    model: Model, entries: Entries, unknown: Unknown, times: TimeArray | None, batch_size: int
) -> tuple[npt.NDArray[np.str_], dict[str, FloatArray]]:
    """Return the area of each test entry, and the predictions by the prefix of their errors."""
    size = entries.values.size
    areas = np.empty(size, dtype=f"<U{len(UNKNOWN)}")
    predictions = {"": np.empty(size)}
    if model.scale_.levels is not None:
        predictions["level_"] = np.empty(size)
        if model.gives_distribution:
            predictions["median_"] = np.empty(size)
    for start in range(0, size, batch_size):
        span = slice(start, start + batch_size)
        at = None if times is None else times[span]
        pairs: tuple[npt.NDArray[Any], npt.NDArray[Any]] = entries.rows[span], entries.columns[span]
        areas[span] = model.areas(*pairs, unknown=unknown)
        predictions[""][span] = model.predict(*pairs, at=at, unknown=unknown)
        for kind, metric in (("level_", "rmse"), ("median_", "mae")):
            if kind in predictions:
                predictions[kind][span] = model.predict_levels(
                    *pairs, at=at, metric=metric, unknown=unknown
                )
    areas[areas == ""] = UNKNOWN
    return areas, predictions


def _measure(
    area: str, predictions: dict[str, FloatArray], values: FloatArray, inside: npt.NDArray[np.bool_]
) -> AreaErrors:
    errors: dict[str, float] = {}
    for kind, predicted in predictions.items():
        gaps = (predicted - values)[inside]
        errors[f"{kind}rmse"] = math.sqrt(np.mean(np.square(gaps)))
        errors[f"{kind}mae"] = float(np.mean(np.abs(gaps)))
    return AreaErrors(area, int(np.count_nonzero(inside)), **errors)


def check_test_known(model: Model, test: ObservedMatrix) -> None:
    """Raise `UnknownLabel` with a hint if the model does not know a row or a column of the test."""
    entries = model.entries_
    rows, columns = test.row_labels[test.row_counts > 0], test.column_labels[test.column_counts > 0]
    try:
        check_known((entries.rows, rows), (entries.columns, columns))
    except UnknownLabel as error:
        raise UnknownLabel(error.message, hint=UNKNOWN_HINT) from error


@dataclass(frozen=True)
class ColumnErrors:
    """The error of each column that has test entries; four arrays (columns,).

    `uncertainty` is the standard error of `rmse`; NaN for a column with a single entry.
    """

    labels: npt.NDArray[Any]
    n_entries: npt.NDArray[np.int64]
    rmse: FloatArray
    uncertainty: FloatArray


def evaluate_columns(model: Model, test: ObservedMatrix) -> ColumnErrors:
    """Measure the error of each column that has test entries.

    >>> from deepmf import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> errors = evaluate_columns(Means(shrinkage=0).fit(train), test)
    >>> errors.labels.tolist(), errors.rmse.tolist()
    (['Alien'], [1.0])
    """
    rows, columns, values = test.entries()
    squares = np.square(
        model.predict(rows, columns, at=test.times if model.has_drift else None) - values
    )
    present, which, counts = np.unique(test.by_row.columns, return_inverse=True, return_counts=True)
    means = np.bincount(which, weights=squares) / counts
    # Deviations from the mean: rounding could make a difference of squares negative.
    spread = np.bincount(which, weights=np.square(squares - means[which]))
    rmse = np.sqrt(means)
    with np.errstate(divide="ignore", invalid="ignore"):
        # By the delta method the standard error of sqrt(m) is that of m over 2 sqrt(m); for an
        # error of 0 it is 0.
        of_mean = np.sqrt(spread / (counts - 1) / counts)
        uncertainty = np.where((means == 0) & (counts > 1), 0.0, of_mean / (2 * rmse))
    return ColumnErrors(test.column_labels[present], counts, rmse, uncertainty)


@dataclass(frozen=True)
class ColdStart:
    """The error on test entries of rows with `first` to `last` known entries; `last` is None
    without an upper limit."""

    first: int
    last: int | None
    n_entries: int
    rmse: float

    @property
    def margin(self) -> float:
        """The standard error of `rmse`."""
        return rmse_margin(self.rmse, self.n_entries)


def evaluate_cold_start(model: Model, test: ObservedMatrix) -> list[ColdStart]:
    """Measure the error of rows grouped by their number of known entries, from few to many.

    >>> from deepmf import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> evaluate_cold_start(Means(shrinkage=0).fit(train), test)
    [ColdStart(first=1, last=1, n_entries=1, rmse=1.0)]
    """
    rows, columns, values = test.entries()
    predicted = model.predict(rows, columns, at=test.times if model.has_drift else None)
    return [
        ColdStart(
            group.first,
            group.last,
            group.places.size,
            rmse_error(predicted[group.places], values[group.places]),
        )
        for group in group_by_known(model, test)
    ]


class KnownGroup(NamedTuple):
    """Test entries whose rows have similar numbers of known entries.

    first, last: the smallest and the largest number; None without a largest.
    places: of the test entries.
    """

    first: int
    last: int | None
    places: IndexArray


def group_by_known(model: Model, test: ObservedMatrix) -> list[KnownGroup]:
    """Return the test entries by the number of known entries of their rows, from few to many."""
    which = np.searchsorted(STARTS, model.row_counts(test.entries()[0]), side="right") - 1
    ends = [*(start - 1 for start in STARTS[1:]), None]
    groups = [
        KnownGroup(first, last, np.flatnonzero(which == number))
        for number, (first, last) in enumerate(zip(STARTS, ends, strict=True))
    ]
    return [group for group in groups if group.places.size]


def confusion_matrix(model: Model, test: ObservedMatrix) -> npt.NDArray[np.int64]:
    """Count the test entries of each true and predicted level, (levels, levels).

    >>> from deepmf import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> confusion_matrix(Means(shrinkage=0).fit(train), test)
    array([[0, 0, 0],
           [0, 0, 1],
           [0, 0, 0]])
    """
    scale = model.scale_
    if scale.levels is None:
        raise BadSetting(f"a confusion matrix needs a scale with levels; the scale is {scale}")
    rows, columns, values = test.entries()
    true, predicted = (
        scale.level_positions(values),
        scale.level_positions(model.predict_levels(rows, columns)),
    )
    size = scale.levels.size
    return np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)
