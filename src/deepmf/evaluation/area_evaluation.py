"""Errors of a model on test entries, area by area."""

from __future__ import annotations

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
from deepmf.models.model import Model

EXTEND_HINT = "extend (on the command line --extend) covers new rows and columns"

# Entries predicted at a time: positions and scores of so many take some 50 MB.
_ENTRIES_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class AreaErrors:
    """The errors in one area ("I" to "IV") or in all of them ("all").

    `level_rmse` and `level_mae` are those of the levels that the model predicts for that metric; None on a scale
    without levels.
    """

    area: str
    n_entries: int
    rmse: float
    mae: float
    level_rmse: float | None
    level_mae: float | None


def evaluate(model: Model, test: ObservedMatrix) -> list[AreaErrors]:
    """Return the errors on test entries in each area that has any, and last in all of them.

    >>> from deepmf.models.means import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [3], train.scale)
    >>> [(errors.area, errors.n_entries, errors.rmse) for errors in evaluate(Means(shrinkage=0).fit(train), test)]
    [('I', 1, 1.0), ('all', 1, 1.0)]
    """
    if test.n_entries == 0:
        raise BadEntries("there is nothing to evaluate on: the test matrix has no entries")
    entries = test.entries()
    _check_on_scale(model.scale_, entries)
    answers = _predicted(model, entries)
    errors = []
    for area in AREAS:
        inside = answers.areas == area
        if np.any(inside):
            errors.append(_errors(area, answers, entries.values, inside))
    return [*errors, _errors("all", answers, entries.values, np.ones(entries.values.size, dtype=bool))]


def count_seen(model: Model, test: ObservedMatrix) -> int:
    """Return how many test entries the model was trained on or extended by: on those it is not being tested."""
    seen = model.observations_
    if seen is None or test.n_entries == 0:
        return 0
    rows, columns = seen.rows.find(test.row_labels), seen.columns.find(test.column_labels)
    row_of, column_of = rows[test.entry_rows].astype(np.int64), columns[test.by_row.columns]
    wanted = row_of * len(seen.columns) + column_of
    known_rows = rows[rows >= 0]
    known = seen.seen_columns(known_rows)
    keys = np.repeat(known_rows.astype(np.int64), np.diff(known.starts)) * len(seen.columns) + known.others
    return int(np.count_nonzero(np.isin(wanted, keys) & (row_of >= 0) & (column_of >= 0)))


@dataclass(frozen=True)
class _Answers:
    """What a model says about each test entry."""

    areas: npt.NDArray[np.str_]
    values: FloatArray
    levels: dict[str, FloatArray]  # by the metric they are to be best by; none on a scale without levels


def _predicted(model: Model, entries: Entries) -> _Answers:
    size = entries.values.size
    areas = np.empty(size, dtype="<U3")
    values = np.empty(size)
    levels = {} if model.scale_.levels is None else {metric: np.empty(size) for metric in ("rmse", "mae")}
    for start in range(0, size, _ENTRIES_AT_A_TIME):
        some = slice(start, start + _ENTRIES_AT_A_TIME)
        pairs: tuple[npt.NDArray[Any], npt.NDArray[Any]] = entries.rows[some], entries.columns[some]
        try:
            areas[some] = model.areas(*pairs)
        except UnknownLabel as error:
            raise UnknownLabel(f"{error}; {EXTEND_HINT}") from error
        values[some] = model.predict(*pairs)
        for metric, chosen in levels.items():
            chosen[some] = model.predict_levels(*pairs, metric=metric)
    return _Answers(areas, values, levels)


def _errors(area: str, answers: _Answers, values: FloatArray, inside: npt.NDArray[np.bool_]) -> AreaErrors:
    actual = values[inside]
    levels = {metric: chosen[inside] for metric, chosen in answers.levels.items()}
    return AreaErrors(
        area=area,
        n_entries=actual.size,
        rmse=rmse_error(answers.values[inside], actual),
        mae=mae_error(answers.values[inside], actual),
        level_rmse=rmse_error(levels["rmse"], actual) if levels else None,
        level_mae=mae_error(levels["mae"], actual) if levels else None,
    )


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
