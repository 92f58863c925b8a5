"""Scores of an imputer on masked entries, and of imputed genotypes by minor-allele frequency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import check_array

from deepmf.errors import BadEntries, BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.blend import Residuals
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


_EDGES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_N_GENOTYPES = 3


class GenotypeScores(NamedTuple):
    """Scores of the variants in each bin of minor-allele frequency; every array has the shape (bins,).

    lower, upper: ends of the bins; a frequency at the upper end belongs to the bin. n_variants, n_cells: variants with
    scored cells, and the scored cells. concordance, r2, iqs: means over variants, NaN where none has the score.
    """

    lower: FloatArray
    upper: FloatArray
    n_variants: npt.NDArray[np.int64]
    n_cells: npt.NDArray[np.int64]
    concordance: FloatArray
    r2: FloatArray
    iqs: FloatArray


def genotype_scores(truth: Any, dosages: Any, hidden: Any = None, *, edges: Sequence[float] = _EDGES) -> GenotypeScores:
    """Compare imputed genotypes with the truth, by the minor-allele frequency of the variants.

    Rare variants are easy to guess: a wrong imputation that always says 0 agrees with most cells. So concordance is
    reported beside r2 and beside the imputation quality score, which subtracts the agreement by chance.

    Parameters
    ----------
    truth
        Genotypes (samples, variants) 0, 1 or 2, NaN where unknown. The allele frequencies are those of all known cells.
    dosages
        Imputed dosages from 0 to 2; rounded, they are genotypes.
    hidden
        Mask of the cells to score; None: all cells of known truth.
    edges
        Ends of the bins of minor-allele frequency, rising from 0 to 0.5.

    Returns
    -------
    Concordance: share of equal genotypes. r2: squared correlation of dosage and genotype, undefined if either is
    constant. IQS: (agreement - chance) / (1 - chance), where chance is the agreement of independent genotypes with the
    same shares (Lin et al., A new statistic to evaluate imputation reliability, PLoS ONE 5, 2010).

    >>> truth = np.array([[0, 0], [0, 1], [0, 2], [1, 1]])
    >>> scores = genotype_scores(truth, np.array([[0, 0], [0, 1], [0, 1], [0, 1]]), edges=(0, 0.2, 0.5))
    >>> scores.concordance, scores.iqs
    (array([0.75, 0.75]), array([0.        , 0.55555556]))
    """
    known, called, mask = _read(truth, dosages, hidden)
    ends = np.asarray(edges, dtype=np.float64)
    if ends.ndim != 1 or ends.size < 2 or ends[0] != 0 or ends[-1] != 0.5 or np.any(np.diff(ends) <= 0):
        raise BadSetting(f"edges must rise from 0 to 0.5; got {list(edges)!r}")
    n_columns = known.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        frequency = np.nansum(known, axis=0) / (2.0 * np.count_nonzero(~np.isnan(known), axis=0))
    bins = np.searchsorted(ends[1:], np.minimum(frequency, 1.0 - frequency) - 1e-12)
    rows, columns = np.nonzero(mask)
    x, y = known[rows, columns], called[rows, columns]
    scores = _score_variants(x, y, columns, n_columns)
    counts = np.bincount(columns, minlength=n_columns)
    inside = [np.flatnonzero((bins == place) & (counts > 0)) for place in range(ends.size - 1)]
    means = [[_mean(score[own]) for own in inside] for score in scores]
    n_variants = np.array([own.size for own in inside])
    n_cells = np.array([int(counts[own].sum()) for own in inside])
    return GenotypeScores(ends[:-1], ends[1:], n_variants, n_cells, *map(np.array, means))


def _read(truth: Any, dosages: Any, hidden: Any) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    known, called = (np.asarray(table, dtype=np.float64) for table in (truth, dosages))
    if known.ndim != 2 or known.shape != called.shape:
        raise BadEntries(f"truth and dosages must be tables of one shape; got {known.shape} and {called.shape}")
    mask = ~np.isnan(known) if hidden is None else np.asarray(hidden, dtype=bool) & ~np.isnan(known)
    if not np.all(np.isin(known[~np.isnan(known)], (0.0, 1.0, 2.0))):
        raise BadEntries("genotypes must be 0, 1 or 2, the number of copies of an allele")
    if not mask.any():
        raise BadEntries("no cell of known truth is hidden, so there is nothing to score")
    if not np.all((called[mask] >= 0) & (called[mask] <= 2)):
        raise BadEntries("dosages of hidden cells must lie between 0 and 2")
    return known, called, mask


def _score_variants(
    truth: FloatArray, dosages: FloatArray, columns: npt.NDArray[np.intp], n_columns: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return concordance, r2 and IQS of each variant, (variants,), from its cells."""
    cells = _N_GENOTYPES * truth.astype(np.int64) + np.rint(dosages).astype(np.int64)
    width = _N_GENOTYPES * _N_GENOTYPES
    table = np.bincount(columns * width + cells, minlength=n_columns * width).astype(np.float64)
    table = table.reshape(n_columns, _N_GENOTYPES, _N_GENOTYPES)
    n = table.sum(axis=(1, 2))

    def add_up(values: FloatArray) -> FloatArray:
        return np.bincount(columns, values, minlength=n_columns).astype(np.float64)

    with np.errstate(invalid="ignore", divide="ignore"):
        agreement = np.trace(table, axis1=1, axis2=2) / n
        chance = (table.sum(axis=1) * table.sum(axis=2)).sum(axis=1) / np.square(n)
        means = add_up(truth) / n, add_up(dosages) / n
        own, other = truth - means[0][columns], dosages - means[1][columns]
        spreads = add_up(own * own) * add_up(other * other)
        r2 = np.where(spreads > 1e-12, np.square(add_up(own * other)) / spreads, np.nan)
        iqs = np.where(chance < 1.0 - 1e-12, (agreement - chance) / (1.0 - chance), np.nan)
    return agreement, r2, iqs


def _mean(scores: FloatArray) -> float:
    defined = scores[~np.isnan(scores)]
    return float(defined.mean()) if defined.size else float("nan")
