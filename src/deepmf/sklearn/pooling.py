"""Pooling: combine the estimates of several completed tables by Rubin's rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.stats

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray
from deepmf.scoring.distribution import Interval, check_coverage


@dataclass(frozen=True, eq=False)
class PooledEstimates:
    """Estimates over several completed tables; every array has the shape of one estimate.

    Attributes
    ----------
    estimate
        Mean of the estimates.
    within, between
        Mean of the variances, and variance of the estimates.
    variance
        Total variance: within + (1 + 1/m) between.
    degrees_of_freedom
        Of the t distribution of (estimate - truth) / standard error (Barnard and Rubin, 1999).
    missing_information
        Fraction of the information about the estimate that is lost because values are missing.
    names
        Of the estimates, where fitted results have them.
    """

    estimate: FloatArray
    within: FloatArray
    between: FloatArray
    variance: FloatArray
    degrees_of_freedom: FloatArray
    missing_information: FloatArray
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The table: a line for each estimate."""
        measures = (
            self.estimate,
            self.standard_error,
            *self.interval(0.95),
            self.p_value(),
            self.missing_information,
        )
        columns = [np.ravel(measure) for measure in measures]
        names = self.names or tuple(map(str, range(columns[0].size)))
        width = max(map(len, names))
        heads = ("estimate", "s.e.", "2.5 %", "97.5 %", "p", "missing information")
        lines = [" " * width + "".join(f"{head:>{max(10, len(head) + 2)}}" for head in heads)]
        for name, *numbers in zip(names, *columns, strict=True):
            cells = (
                f"{number:>{max(10, len(head) + 2)}.3f}"
                for head, number in zip(heads, numbers, strict=True)
            )
            lines.append(f"{name:<{width}}" + "".join(cells))
        return "\n".join(lines)

    @property
    def standard_error(self) -> FloatArray:
        """Square root of the total variance."""
        return np.sqrt(self.variance)

    def interval(self, coverage: float = 0.95) -> Interval:
        """Return confidence intervals."""
        check_coverage(coverage)
        reach = (
            scipy.stats.t.ppf((1.0 + coverage) / 2.0, self.degrees_of_freedom) * self.standard_error
        )
        return Interval(self.estimate - reach, self.estimate + reach)

    def p_value(self, null: float = 0.0) -> FloatArray:
        """Return two-sided p values of the hypothesis that the truth is `null`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.abs(self.estimate - null) / self.standard_error
        return np.asarray(
            2.0 * scipy.stats.t.sf(np.nan_to_num(statistic, nan=0.0), self.degrees_of_freedom)
        )


def pool(
    estimates: Any, variances: Any = None, *, complete_df: float | None = None
) -> PooledEstimates:
    """Combine the estimates of several completed tables by Rubin's rules.

    Parameters
    ----------
    estimates
        One estimate, or an array of estimates, for each completed table: (tables, ...). Without
        variances, a fitted result for each: of statsmodels (`params`, `bse`, `df_resid`), or of an
        estimator like scikit-learn's that knows how uncertain its coefficients are (`coef_` and
        `sigma_`, such as BayesianRidge).
    variances
        Squared standard errors of the estimates, of the same shape.
    complete_df
        Degrees of freedom that the estimate would have without missing values, such as rows minus
        coefficients of a regression. None takes those of fitted results, else assumes a large
        sample.

    Returns
    -------
    The pooled estimates, with intervals and p values.

    References
    ----------
    Rubin, Multiple imputation for nonresponse in surveys, 1987. Barnard and Rubin, Small-sample
    degrees of freedom with multiple imputation, Biometrika 86, 1999.

    >>> pooled = pool([1.0, 1.2, 0.8, 1.1, 0.9], [0.04] * 5)
    >>> float(pooled.estimate), float(pooled.standard_error.round(3))
    (1.0, 0.265)
    """
    names: tuple[str, ...] = ()
    if variances is None:
        fits = [_read_fit(fit) for fit in estimates]
        if len({fit.names for fit in fits}) > 1:
            raise BadSetting(
                "fitted results must have the same coefficients in every completed table"
            )
        estimates, variances = [fit.estimates for fit in fits], [fit.variances for fit in fits]
        names = fits[0].names if fits else ()
        complete_df = fits[0].freedom if fits and complete_df is None else complete_df
    values, within_each = (
        _read_estimates(estimates, "estimates"),
        _read_estimates(variances, "variances"),
    )
    if values.shape != within_each.shape:
        raise BadSetting(
            f"estimates and variances must have one shape; got {values.shape} and {within_each.shape}"
        )
    if np.any(within_each < 0):
        raise BadSetting(f"variances cannot be negative; got {float(within_each.min()):g}")
    if complete_df is not None and not complete_df > 0:
        raise BadSetting(f"complete_df must be above 0; got {complete_df!r}")
    n_tables = len(values)
    within, between = within_each.mean(axis=0), values.var(axis=0, ddof=1)
    between_tables = (1.0 + 1.0 / n_tables) * between
    total = within + between_tables
    with np.errstate(divide="ignore", invalid="ignore"):
        # of the total variance that missing values cause
        share = np.where(total > 0, between_tables / total, 0.0)
        freedom = (n_tables - 1) / np.square(share)
        if complete_df is not None:
            observed = (complete_df + 1.0) / (complete_df + 3.0) * complete_df * (1.0 - share)
            # Without variance inside tables, the size of the sample says nothing.
            freedom = np.where(within > 0, 1.0 / (1.0 / freedom + 1.0 / observed), freedom)
        increase = between_tables / within
        lost = np.where(within > 0, (increase + 2.0 / (freedom + 3.0)) / (1.0 + increase), share)
    parts = values.mean(axis=0), within, between, total, freedom, lost
    mean, within, between, total, freedom, lost = map(np.asarray, parts)
    return PooledEstimates(mean, within, between, total, freedom, lost, names)


def with_imputed(
    table: Any, function: Callable[[Any], Any], *, m: int = 20, imputer: Any = None, seed: int = 0
) -> PooledEstimates:
    """Draw completed tables, analyse each by a function, and pool the results.

    Parameters
    ----------
    table
        A table with missing values that holds every variable of the analysis.
    function
        Takes a completed table; returns a fitted result that `pool` reads, or estimates and
        variances.
    m
        Number of completed tables.
    imputer
        A `DMFImputer`, which is fitted here unless it is; None is `DMFImputer(random_state=seed)`.
    seed
        The same seed gives the same tables.

    >>> random = np.random.default_rng(0)
    >>> table = np.array([[1.0], [1.0]]) @ random.normal(size=(1, 200))
    >>> table = table.T + 0.5 * random.normal(size=(200, 2))
    >>> table[random.random(200) < 0.3, 1] = np.nan
    >>> pooled = with_imputed(table, lambda each: (each[:, 1].mean(), each[:, 1].var() / 200), m=5)
    >>> bool(pooled.interval(0.95).lower < 0.0 < pooled.interval(0.95).upper)
    True
    """
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    from deepmf.sklearn.imputer import DMFImputer

    imputer = DMFImputer(random_state=seed) if imputer is None else imputer
    try:
        check_is_fitted(imputer)
    except NotFittedError:
        imputer = imputer.fit(table)
    results = [function(completed) for completed in imputer.impute_many(table, m, seed=seed)]
    if all(isinstance(result, tuple) and len(result) == 2 for result in results):
        estimates, variances = zip(*results, strict=True)
        return pool(estimates, variances)
    return pool(results)


class _Fit(NamedTuple):
    """The estimates of a fitted result with their variances, names, and degrees of freedom."""

    estimates: FloatArray
    variances: FloatArray
    names: tuple[str, ...]
    freedom: float | None


def _read_fit(result: Any) -> _Fit:
    """Read a fitted result of statsmodels, or of an estimator with `coef_` and `sigma_`."""
    if hasattr(result, "params") and hasattr(result, "bse"):
        estimates, variances = result.params, np.square(np.asarray(result.bse, dtype=np.float64))
        of_model = getattr(getattr(result, "model", None), "exog_names", ())
        names = getattr(estimates, "index", of_model)
    elif hasattr(result, "coef_") and hasattr(result, "sigma_"):
        estimates, variances = np.ravel(result.coef_), np.diag(np.atleast_2d(result.sigma_))
        names = getattr(result, "feature_names_in_", ())
    else:
        raise BadSetting(
            f"pool reads fitted results with params and bse, or with coef_ and sigma_; {type(result).__name__} has no "
            "standard errors: pass estimates and variances"
        )
    if len(names) == 0:
        names = range(len(estimates))
    freedom = getattr(result, "df_resid", None)
    values = np.asarray(estimates, dtype=np.float64)
    return _Fit(values, variances, tuple(map(str, names)), float(freedom) if freedom else None)


def _read_estimates(given: Any, name: str) -> npt.NDArray[np.float64]:
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadSetting(f"{name} must be numbers, as many from every table ({error})") from error
    if array.ndim == 0 or len(array) < 2:
        raise BadSetting(
            f"pooling needs the {name} of at least two completed tables; got {array.shape}"
        )
    if not np.all(np.isfinite(array)):
        raise BadSetting(f"{name} must be finite numbers")
    return array
