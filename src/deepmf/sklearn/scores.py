"""Hide entries of a table, and score an imputer by how well it fills them in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.optimize
from scipy.special import expit
from sklearn.base import clone

from deepmf.errors import BadEntries, BadSetting, check_choice, check_count
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.sklearn.blend import Residuals
from deepmf.sklearn.table import MaskArray, check_numbers, hide_entries, measure_columns

MECHANISMS = ("mcar", "mar", "mnar")


class MaskedTable(NamedTuple):
    """A table of the kind that was given, without the cells that the mask (rows, columns) marks."""

    table: Any
    hidden: MaskArray


def mask_entries(
    X: Any,  # noqa: N803
    mechanism: str = "mcar",
    share: float = 0.2,
    *,
    slope: float = 1.0,
    seed: int = 0,
) -> MaskedTable:
    """Hide a share of the observed cells of a table, to see how well any imputer fills them in.

    Parameters
    ----------
    X
        An array, a frame or a sparse matrix of numbers; what is missing already stays so.
    mechanism
        "mcar" hides cells completely at random. "mar" hides more cells of a column in rows where
        the column before it is large and visible (the first column stays as it is). "mnar" hides
        more cells that are large themselves.
    share
        Share of the observed cells of each column that is hidden, on average.
    slope
        Increase of the log odds of being hidden for one standard deviation of the driving value;
        negative slopes hide small values.
    seed
        The same seed hides the same cells.

    >>> table = np.random.default_rng(0).normal(size=(1000, 2))
    >>> hidden = mask_entries(table, "mnar", 0.3).hidden
    >>> bool(table[hidden].mean() > table[~hidden].mean())
    True
    """
    check_choice("mechanism", mechanism, MECHANISMS)
    if not 0 < share < 1:
        raise BadSetting(f"share must be between 0 and 1; got {share!r}")
    check_count("seed", seed, least=0)
    checked = check_numbers(X)
    observed = ~np.isnan(checked)
    random = np.random.default_rng(seed)
    uniform = random.random(checked.shape)
    means, spreads = measure_columns(checked)
    # In standard deviations; cells that are missing are at the mean.
    drivers = slope * np.nan_to_num((checked - means) / np.where(spreads > 0, spreads, 1.0))
    hidden = np.zeros(checked.shape, dtype=bool)
    for column in range(1 if mechanism == "mar" else 0, checked.shape[1]):
        if mechanism == "mcar":
            log_odds = np.zeros(len(checked))
        elif mechanism == "mnar":
            log_odds = drivers[:, column]
        else:
            # a driver that is hidden itself has no influence, so the reason is always visible to an
            # imputer
            log_odds = np.where(hidden[:, column - 1], 0.0, drivers[:, column - 1])
        is_observed = observed[:, column]
        hidden[:, column] = is_observed & (
            uniform[:, column] < _match_share(log_odds, is_observed, share)
        )
    return MaskedTable(hide_entries(X, ~hidden), hidden)


def _match_share(log_odds: FloatArray, observed: MaskArray, share: float) -> FloatArray:
    """Return probabilities with these log odds, shifted so that their mean over observed cells is
    the share."""
    observed_odds = log_odds[observed]
    if observed_odds.size == 0:
        return np.zeros(log_odds.size)
    shift = scipy.optimize.brentq(
        lambda by: float(expit(observed_odds + by).mean()) - share, -60.0, 60.0
    )
    return np.asarray(expit(log_odds + shift))


def hidden_entries_score(
    imputer: Any,
    X: Any,  # noqa: N803
    y: Any = None,
    *,
    hidden: float = 0.2,
    seed: int = 0,
) -> float:
    """Hide a share of the entries of a table, let a fitted imputer fill them in, and return its
    score.

    A scorer for `GridSearchCV` and `cross_val_score`, with any `cv` over rows: the rows that they
    hold out are new to the imputer (area II). It works with every imputer, and with a pipeline
    whose steps keep the columns' units. The score is 1 - sum of squared errors / sum of squared
    deviations from the columns' means, each in units of the column's standard deviation in `X`; the
    error is about sqrt(1 - score) standard deviations.

    >>> from sklearn.impute import SimpleImputer
    >>> table = np.random.RandomState(0).normal(size=(200, 3))
    >>> abs(round(hidden_entries_score(SimpleImputer().fit(table), table), 2))
    0.0
    """
    masked = _hide(X, hidden, seed)
    return _score(imputer.transform(masked.table), check_numbers(X), masked.hidden)


def imputation_scores(
    imputer: Any,
    X: Any,  # noqa: N803
    *,
    hidden: float = 0.2,
    n_splits: int = 5,
    seed: int = 0,
) -> FloatArray:
    """Return the scores of an imputer on hidden entries of the rows of the fit (area I), (splits,),
    fitted for each.

    For new rows (area II), give `hidden_entries_score` to scikit-learn's `cross_val_score`.

    Parameters
    ----------
    imputer
        Any imputer.
    X
        An array, a frame or a sparse matrix of numbers.
    hidden
        Share of the entries that is hidden.
    n_splits
        Number of splits, from the seeds `seed`, `seed` + 1, ...

    Returns
    -------
    Scores as in `hidden_entries_score`.

    >>> from sklearn.impute import SimpleImputer
    >>> table = np.random.RandomState(0).normal(size=(200, 3))
    >>> imputation_scores(SimpleImputer(), table, n_splits=3).round(1) + 0.0
    array([0., 0., 0.])
    """
    truth, scores = check_numbers(X), []
    for own_seed in range(seed, seed + n_splits):
        masked = _hide(X, hidden, own_seed)
        fitted = clone(imputer).fit(masked.table)
        scores.append(_score(fitted.transform(masked.table), truth, masked.hidden))
    return np.array(scores)


def _hide(X: Any, share: float, seed: int) -> MaskedTable:  # noqa: N803
    # By a stream of its own: numbers of the seed itself may have made the gaps that the table has
    # already.
    return mask_entries(
        X, "mcar", share, seed=int(np.random.SeedSequence(seed).generate_state(1)[0])
    )


def _score(completed: Any, truth: npt.NDArray[Any], hidden: MaskArray) -> float:
    """Compare the hidden entries of a completed table with the truth."""
    means, spreads = measure_columns(truth)
    filled = np.asarray(completed)
    if filled.shape != truth.shape:
        raise BadEntries(
            f"the completed table is {filled.shape[0]} x {filled.shape[1]}, the table {truth.shape[0]} x "
            f"{truth.shape[1]}: an imputer can only be scored if it keeps all columns (keep_empty_features=True)"
        )
    row_of, column_of = np.nonzero(hidden & (spreads > 0))
    if row_of.size == 0:
        raise BadEntries(
            "no entry is masked in a column whose values differ, so there is nothing to score"
        )
    values, spread = truth[row_of, column_of], spreads[column_of]
    errors = np.sum(np.square((filled[row_of, column_of] - values) / spread))
    deviations = np.sum(np.square((values - means[column_of]) / spread))
    return float(1.0 - errors / deviations)


class HiddenScore(NamedTuple):
    """The score on hidden cells: 1 is perfect, 0 no better than the mean; `margin` is its standard
    error.

    columns: the names of the columns of the table. column_scores, column_margins, column_errors:
        (columns,). Scores are NaN in a column with fewer than two hidden cells, or with equal ones.
        Errors are root mean squares in the units of the column, NaN for text and categories.
    """

    score: float
    margin: float
    columns: npt.NDArray[Any]
    column_scores: FloatArray
    column_margins: FloatArray
    column_errors: FloatArray


def score_residuals(
    residuals: Residuals, sources: IndexArray, names: npt.NDArray[Any], spreads: FloatArray
) -> HiddenScore:
    """Return the score of the predictions of hidden cells, overall and for each column of the
    table.

    sources: the column of the table that each column of the model comes from. names: of the columns
        of the table.
    spreads: units of each column of the model, NaN where it is the share of a category.
    """
    counts = np.bincount(residuals.columns, minlength=sources.size)
    means = np.bincount(residuals.columns, residuals.truths, minlength=sources.size) / np.maximum(
        counts, 1
    )
    errors = np.square(residuals.values)
    deviations = np.square(residuals.truths - means[residuals.columns])
    places_of_columns = [
        np.flatnonzero(sources[residuals.columns] == place) for place in range(names.size)
    ]
    scores, margins = np.array(
        [_score_cells(errors[places], deviations[places]) for places in places_of_columns]
    ).T
    in_units = np.square(spreads[residuals.columns]) * errors
    typical = np.array(
        [
            np.sqrt(in_units[places].mean()) if places.size else np.nan
            for places in places_of_columns
        ]
    )
    return HiddenScore(*_score_cells(errors, deviations), names, scores, margins, typical)


def _score_cells(errors: FloatArray, deviations: FloatArray) -> tuple[float, float]:
    """Return 1 - mean error / mean deviation, and its standard error as that of a ratio of
    means."""
    mean = deviations.mean() if deviations.size > 1 else 0.0
    if mean <= 0:
        return np.nan, np.nan
    ratio = errors.mean() / mean
    return float(1.0 - ratio), float(
        (errors - ratio * deviations).std(ddof=1) / (np.sqrt(errors.size) * mean)
    )
