"""Rubin's rules against published figures, a plain restatement, and their limits."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.linear_model import BayesianRidge, LinearRegression

from deepmf.errors import BadSetting
from deepmf.sklearn import DMFImputer, pool, with_imputed

# SAS/STAT 13.1 User's Guide, Example 62.10, "Variance Information": five imputations, 28 degrees of
# freedom. Estimates with exactly these variances between and within imputations.
PUBLISHED = {
    "between": (45.529229, 0.014715),
    "within": (76.543614, 0.114324),
    "total": (131.178689, 0.131983),
    "degrees of freedom": (9.1917, 20.598),
}
PUBLISHED_MISSING = (0.461277, 0.141444)  # by the degrees of freedom of a large sample

# What R's mice prints for `pool(with(mice(airquality, m = 50), lm(Temp ~ Ozone + Solar.R +
# Wind)))`, 148 degrees of freedom: intercept, Ozone, Solar.R, Wind.
OF_MICE = {
    "estimate": (72.6409950, 0.1636463, 0.0115144, -0.3357630),
    "within": (6.805400, 5.224431e-04, 4.461246e-05, 4.024084e-02),
    "between": (1.082784, 1.390522e-04, 7.239493e-06, 6.924729e-03),
    "total": (7.909840, 6.642763e-04, 5.199674e-05, 4.730407e-02),
    "degrees of freedom": (119.6660, 103.7690, 119.1549, 117.5870),
    "missing information": (0.1536564, 0.2282479, 0.1560619, 0.1634244),
    "p value": (9.143086e-51, 5.800127e-09, 1.129568e-01, 1.253302e-01),
}


def spread(between: float, *, around: float = 3.0, n_tables: int = 5) -> np.ndarray:
    """Return estimates of tables whose variance is `between`."""
    pattern = np.arange(n_tables) - (n_tables - 1) / 2
    return around + pattern * np.sqrt(between / pattern.var(ddof=1))


def test_published_example() -> None:
    estimates = np.stack([spread(each) for each in PUBLISHED["between"]], axis=1)
    variances = np.tile(PUBLISHED["within"], (5, 1))
    pooled = pool(estimates, variances, complete_df=28)
    np.testing.assert_allclose(pooled.estimate, 3.0)
    np.testing.assert_allclose(pooled.variance, PUBLISHED["total"], rtol=1e-5)
    np.testing.assert_allclose(
        pooled.degrees_of_freedom, PUBLISHED["degrees of freedom"], rtol=1e-4
    )
    np.testing.assert_allclose(
        pool(estimates, variances).missing_information, PUBLISHED_MISSING, rtol=1e-4
    )


def test_the_figures_of_mice() -> None:
    places = zip(OF_MICE["between"], OF_MICE["estimate"], strict=True)
    estimates = np.stack(
        [spread(between, around=each, n_tables=50) for between, each in places], axis=1
    )
    pooled = pool(estimates, np.tile(OF_MICE["within"], (50, 1)), complete_df=148)
    np.testing.assert_allclose(pooled.variance, OF_MICE["total"], rtol=1e-6)
    np.testing.assert_allclose(pooled.degrees_of_freedom, OF_MICE["degrees of freedom"], rtol=1e-5)
    np.testing.assert_allclose(
        pooled.missing_information, OF_MICE["missing information"], rtol=1e-5
    )
    np.testing.assert_allclose(pooled.p_value(), OF_MICE["p value"], rtol=1e-4)


def test_intervals_and_p_values_are_those_of_a_t_distribution() -> None:
    pooled = pool(spread(0.5), np.full(5, 2.0), complete_df=40)
    expected = scipy.stats.t.interval(0.9, pooled.degrees_of_freedom, 3.0, np.sqrt(2.0 + 1.2 * 0.5))
    np.testing.assert_allclose(pooled.interval(0.9), expected)
    edge = float(pooled.interval(0.9).lower)
    assert float(pooled.p_value(edge)) == pytest.approx(0.1)
    assert float(pooled.p_value(3.0)) == 1.0


def test_equal_estimates_lose_no_information() -> None:
    pooled = pool([[1.0, 0.0]] * 4, [[0.25, 0.0]] * 4)
    np.testing.assert_array_equal(pooled.missing_information, [0.0, 0.0])
    np.testing.assert_allclose(
        pooled.interval(0.95).upper, [1.0 + 0.5 * scipy.stats.norm.ppf(0.975), 0.0]
    )


def test_zero_variances_leave_the_degrees_of_freedom_of_the_tables() -> None:
    pooled = pool([[1.0, 0.0, 1.0], [1.0, 0.0, 2.0]], np.zeros((2, 3)), complete_df=10)
    np.testing.assert_array_equal(pooled.degrees_of_freedom, [np.inf, np.inf, 1.0])
    np.testing.assert_allclose(
        pooled.interval(0.9).upper, [1.0, 0.0, 1.5 + scipy.stats.t.ppf(0.95, 1) * np.sqrt(0.75)]
    )
    # a certain estimate is the null or not
    np.testing.assert_array_equal(pooled.p_value()[:2], [0.0, 1.0])


def test_a_complete_sample_bounds_the_degrees_of_freedom() -> None:
    assert float(pool(spread(1e-9), np.ones(5), complete_df=10).degrees_of_freedom) < 10
    assert float(pool(spread(1e-9), np.ones(5)).degrees_of_freedom) > 1e9


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (([1.0], [1.0]), "two"),
        (([1.0, 2.0], [1.0]), "two"),
        (([1.0, 2.0], [[1.0], [2.0]]), "shape"),
        (([1.0, 2.0], [1.0, -0.5]), "-0.5"),
        (([1.0, np.nan], [1.0, 1.0]), "finite"),
        ((["a", "b"], [1.0, 1.0]), "numbers"),
    ],
)
def test_bad_estimates_are_refused(arguments: tuple, word: str) -> None:
    with pytest.raises(BadSetting, match=word):
        pool(*arguments)
    with pytest.raises(BadSetting, match="complete_df"):
        pool([1.0, 2.0], [1.0, 1.0], complete_df=0)


class Fit:
    """A fitted result like those of statsmodels."""

    def __init__(self, table: pd.DataFrame) -> None:
        design = np.column_stack([np.ones(len(table)), table["x"]])
        inverse = np.linalg.inv(design.T @ design)
        coefficients = inverse @ design.T @ table["y"].to_numpy()
        self.df_resid = len(table) - 2
        noise = np.sum(np.square(table["y"] - design @ coefficients)) / self.df_resid
        self.params = pd.Series(coefficients, index=["const", "x"])
        self.bse = pd.Series(np.sqrt(noise * np.diag(inverse)), index=["const", "x"])


def test_fitted_results_are_pooled_in_one_call() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=200)
    table = pd.DataFrame({"x": x, "y": 2 * x + random.normal(size=200)}).mask(
        random.random((200, 2)) < 0.2
    )
    imputer = DMFImputer("gaussian", random_state=0).fit(table)
    fits = [Fit(each) for each in imputer.impute_many(table, 5, seed=3)]
    expected = pool([fit.params for fit in fits], [fit.bse**2 for fit in fits], complete_df=198)
    for pooled in (pool(fits), with_imputed(table, Fit, m=5, imputer=imputer, seed=3)):
        assert pooled.names == ("const", "x")
        np.testing.assert_allclose(pooled.degrees_of_freedom, expected.degrees_of_freedom)
        np.testing.assert_allclose(pooled.interval(0.95), expected.interval(0.95))
    assert "const" in str(pooled) and f"{pooled.estimate[1]:.3f}" in str(pooled)
    ridges = [BayesianRidge().fit(each[["x"]], each["y"]) for each in imputer.impute_many(table, 3)]
    by_ridge = pool(ridges)
    assert by_ridge.names == ("x",)
    assert by_ridge.within == pytest.approx(np.mean([each.sigma_[0, 0] for each in ridges]))
    with pytest.raises(BadSetting, match="LinearRegression"):
        pool(
            [
                LinearRegression().fit(each[["x"]], each["y"])
                for each in imputer.impute_many(table, 2)
            ]
        )
