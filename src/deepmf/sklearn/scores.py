"""Scores of an imputer on masked entries: 1 is perfect, 0 no better than the columns' means."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import check_array

from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.candidates import Residuals
from deepmf.sklearn.splitters import EntrySplitter, Splitter
from deepmf.sklearn.table import CHECKS, MaskArray, dense_copy, hide_entries, measure_columns


def hidden_entries_score(
    imputer: Any,
    X: Any,  # noqa: N803
    y: Any = None,
    *,
    hidden: float = 0.2,
    seed: int = 0,
) -> float:
    """Mask a share of the entries of a table, let a fitted imputer fill them in, and return its score.

    A scorer for `GridSearchCV` and `cross_val_score`, with any `cv` over rows: the rows that they hold out are new to
    the imputer (area II). It works with every imputer, and with a pipeline whose steps keep the columns' units. The
    score is 1 - sum of squared errors / sum of squared deviations from the columns' means, each in units of the
    column's standard deviation in `X`; the error is about sqrt(1 - score) standard deviations.

    >>> from sklearn.impute import SimpleImputer
    >>> table = np.random.RandomState(0).normal(size=(200, 3))
    >>> abs(round(hidden_entries_score(SimpleImputer().fit(table), table), 2))
    0.0
    """
    fold = next(EntrySplitter(n_splits=1, hidden=hidden, seed=seed).split(X))
    checked = check_array(X, **CHECKS)
    return _score(imputer.transform(hide_entries(X, checked, fold.shown)), dense_copy(checked), fold.hidden)


def imputation_scores(imputer: Any, X: Any, *, cv: Splitter | None = None) -> FloatArray:  # noqa: N803
    """Return the score of an imputer in every fold of a splitter, (folds,), fitted anew in each.

    `EntrySplitter()`, the default, asks for entries of rows that it was fitted on (area I), `AreaSplitter()` for
    entries of new rows (area II). The score is that of `hidden_entries_score`.

    >>> from sklearn.impute import SimpleImputer
    >>> table = np.random.RandomState(0).normal(size=(200, 3))
    >>> imputation_scores(SimpleImputer(), table, cv=EntrySplitter(n_splits=3)).round(1) + 0.0
    array([0., 0., 0.])
    """
    splitter = EntrySplitter() if cv is None else cv
    if not isinstance(splitter, Splitter):
        raise BadSetting(
            f"cv must be an EntrySplitter or an AreaSplitter; got {cv!r} (splits of rows go to scikit-learn's "
            "cross_val_score with scoring=hidden_entries_score)"
        )
    checked = check_array(X, **CHECKS)
    truth = dense_copy(checked)
    scores = []
    for fold in splitter.split(X):
        known_rows = np.flatnonzero(fold.fitted.any(axis=1))
        fitted = clone(imputer).fit(hide_entries(X, checked, fold.fitted, rows=known_rows))
        asked_rows = np.flatnonzero(fold.hidden.any(axis=1))
        completed = fitted.transform(hide_entries(X, checked, fold.shown, rows=asked_rows))
        scores.append(_score(completed, truth, fold.hidden, rows=asked_rows))
    return np.array(scores)


def _score(
    completed: Any, truth: npt.NDArray[Any], hidden: MaskArray, *, rows: npt.NDArray[np.intp] | None = None
) -> float:
    """Compare the masked entries of a completed table (its rows, or some of them) with the truth."""
    means, spreads = measure_columns(truth)
    if rows is not None:
        truth, hidden = truth[rows], hidden[rows]
    filled = np.asarray(completed)
    if filled.shape != truth.shape:
        raise BadEntries(
            f"the completed table is {filled.shape[0]} x {filled.shape[1]}, the table {truth.shape[0]} x "
            f"{truth.shape[1]}: an imputer can only be scored if it keeps all columns (keep_empty_features=True)"
        )
    row_of, column_of = np.nonzero(hidden & (spreads > 0))
    if row_of.size == 0:
        raise BadEntries("no entry is masked in a column whose values differ, so there is nothing to score")
    values, spread = truth[row_of, column_of], spreads[column_of]
    errors = np.sum(np.square((filled[row_of, column_of] - values) / spread))
    deviations = np.sum(np.square((values - means[column_of]) / spread))
    return float(1.0 - errors / deviations)


class HiddenScore(NamedTuple):
    """The score on hidden cells: 1 is perfect, 0 no better than the mean; `margin` is its standard error.

    columns: the names of the columns of the table. column_scores, column_margins, column_errors, column_counts:
    (columns,). Scores are NaN in a column with fewer than two hidden cells, or with equal ones. Errors are root mean
    squares in the units of the column, NaN for text and categories. Counts are those of hidden cells.
    """

    score: float
    margin: float
    columns: npt.NDArray[Any]
    column_scores: FloatArray
    column_margins: FloatArray
    column_errors: FloatArray
    column_counts: npt.NDArray[np.int64]


def score_residuals(
    residuals: Residuals, sources: IndexArray, names: npt.NDArray[Any], spreads: FloatArray
) -> HiddenScore:
    """Return the score of the predictions of hidden cells, overall and for each column of the table.

    sources: the column of the table that each column of the model comes from. names: of the columns of the table.
    spreads: units of each column of the model, NaN where it is the share of a category.
    """
    counts = np.bincount(residuals.columns, minlength=sources.size)
    means = np.bincount(residuals.columns, residuals.truths, minlength=sources.size) / np.maximum(counts, 1)
    errors = np.square(residuals.values)
    deviations = np.square(residuals.truths - means[residuals.columns])
    own = [np.flatnonzero(sources[residuals.columns] == place) for place in range(names.size)]
    scores, margins = np.array([_score_cells(errors[places], deviations[places]) for places in own]).T
    in_units = np.square(spreads[residuals.columns]) * errors
    typical = np.array([np.sqrt(in_units[places].mean()) if places.size else np.nan for places in own])
    widths = np.bincount(sources, minlength=names.size)  # the columns of one category hide one cell together
    hidden = np.array([places.size for places in own]) // np.maximum(widths, 1)
    return HiddenScore(*_score_cells(errors, deviations), names, scores, margins, typical, hidden)


def _score_cells(errors: FloatArray, deviations: FloatArray) -> tuple[float, float]:
    """Return 1 - mean error / mean deviation, and its standard error as that of a ratio of means."""
    mean = deviations.mean() if deviations.size > 1 else 0.0
    if mean <= 0:
        return np.nan, np.nan
    ratio = errors.mean() / mean
    return float(1.0 - ratio), float((errors - ratio * deviations).std(ddof=1) / (np.sqrt(errors.size) * mean))
