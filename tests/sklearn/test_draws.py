"""Draws of missing cells: together in a row, from parameters that differ between tables, and by
legal categories."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from deepmf.errors import BadSetting
from deepmf.sklearn import DMFImputer, mask_entries, pool
from deepmf.sklearn.blend import MOST_COLUMNS
from deepmf.sklearn.draws import draw_gaussian

COVARIANCE = np.array([[2.0, 0.8, -0.5], [0.8, 1.0, 0.6], [-0.5, 0.6, 1.5]])
MEANS = np.array([1.0, -2.0, 0.5])


def draw_table(n_rows: int = 150, seed: int = 0) -> npt.NDArray[np.float64]:
    cells = np.random.default_rng(seed).multivariate_normal(MEANS, COVARIANCE, size=n_rows)
    return np.asarray(mask_entries(cells, "mcar", 0.4, seed=seed).table)


def test_observed_cells_stay_and_seeds_repeat() -> None:
    table = draw_table()
    imputer = DMFImputer("gaussian", random_state=0).fit(table)
    first, second = imputer.impute_many(table, 2, seed=3)
    observed = ~np.isnan(table)
    for completed in (first, second):
        np.testing.assert_array_equal(completed[observed], table[observed])
        assert not np.isnan(completed).any()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(next(imputer.impute_many(table, 1, seed=3)), first)
    assert not np.array_equal(next(imputer.impute_many(table, 1, seed=4)), first)


@pytest.mark.slow
def test_draws_by_what_the_default_chose_follow_a_curve() -> None:
    random = np.random.default_rng(0)
    cause = random.uniform(-1.7, 1.7, size=300)
    table = np.column_stack([cause, cause**2 + 0.2 * random.normal(size=300)])
    table[:100, 1] = np.nan
    slopes = {}
    for name in ("gaussian", "auto"):
        drawn = list(DMFImputer(name, random_state=0).fit(table).impute_many(table, 5))
        slopes[name] = np.mean(
            [np.polyfit(cause[:100] ** 2, each[:100, 1], 1)[0] for each in drawn]
        )
    assert slopes["gaussian"] < 0.3
    assert slopes["auto"] == pytest.approx(1.0, abs=0.07)


@pytest.mark.slow
def test_tables_differ_by_what_the_parameters_are_uncertain_by() -> None:
    """The mean of a column that is missing in nearly all rows is as uncertain as its regression on
    the others."""
    table = np.random.default_rng(0).multivariate_normal(MEANS, COVARIANCE, size=400)
    table[12:, 1] = np.nan
    imputer = DMFImputer("gaussian", random_state=0).fit(table)
    means = [completed[:, 1].mean() for completed in imputer.impute_many(table, 20)]
    design = np.column_stack([np.ones(400), table[:, [0, 2]]])
    inverse = np.linalg.inv(design[:12].T @ design[:12])
    noise = (
        np.sum(np.square(table[:12, 1] - design[:12] @ inverse @ design[:12].T @ table[:12, 1])) / 7
    )  # mean over draws
    by_regression = np.sqrt(noise * design.mean(axis=0) @ inverse @ design.mean(axis=0))
    by_cells_alone = np.sqrt(noise / 400)
    assert np.std(means, ddof=1) == pytest.approx(by_regression, rel=0.4)
    assert by_regression > 2 * by_cells_alone


def test_categories_go_with_the_cells_drawn_beside_them() -> None:
    random = np.random.default_rng(0)
    number = random.normal(size=400)
    frame = pd.DataFrame(
        {"number": number, "sign": np.where(number > 0, "plus", "minus"), "copy": number}
    )
    frame.loc[:149, ["number", "sign", "copy"]] = np.nan
    frame.loc[150:250, "sign"] = np.nan
    for completed in DMFImputer("gaussian", random_state=0).fit(frame).impute_many(frame, 2):
        assert set(completed["sign"]) == {"plus", "minus"}
        agree = (completed["number"] > 0) == (completed["sign"] == "plus")
        assert agree[:150].mean() > 0.7  # drawn apart, a half would agree
        assert np.corrcoef(completed["number"][:150], completed["copy"][:150])[0, 1] > 0.95


@pytest.mark.slow
def test_what_cannot_be_drawn_together_is_refused() -> None:
    table = np.random.default_rng(0).normal(size=(30, MOST_COLUMNS + 1))
    table[:5, 0] = np.nan
    imputer = DMFImputer("means", random_state=0).fit(table)
    with pytest.raises(BadSetting, match="BayesianMF"):
        next(imputer.impute_many(table, 1))


@pytest.mark.parametrize("table", [[[1.0, 2.0, 4.0]], [[3.0, 3.0], [3.0, 3.0]]])
def test_rows_that_do_not_differ_are_drawn_near_them(table: Any) -> None:
    imputer = DMFImputer(random_state=0).fit(table)
    (drawn,) = next(imputer.impute_many([[np.nan, *table[0][1:]]], 1))
    np.testing.assert_allclose(drawn, table[0], atol=0.1)


@pytest.mark.parametrize("m", [0, 1.5, True])
def test_a_wrong_number_of_tables_is_refused_at_once(m: Any) -> None:
    imputer = DMFImputer("gaussian", random_state=0).fit(draw_table(30))
    with pytest.raises(BadSetting, match="^m "):
        imputer.impute_many(draw_table(30), m)


@pytest.mark.slow
def test_drawn_parameters_have_the_posterior_of_complete_rows() -> None:
    """Of complete rows the posterior of a mean is known: normal around the sample mean, with
    variance s² / n."""
    rows = np.random.default_rng(0).multivariate_normal(MEANS, COVARIANCE, size=80)
    random = np.random.default_rng(1)
    drawn = [draw_gaussian(rows, 0.0, random, weights=np.ones(80)) for _ in range(2000)]
    means = np.array([each.means for each in drawn])
    np.testing.assert_allclose(means.mean(axis=0), rows.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(means.std(axis=0), rows.std(axis=0) / np.sqrt(80), rtol=0.1)
    covariances = np.array([each.covariance for each in drawn])
    np.testing.assert_allclose(
        covariances.mean(axis=0), np.cov(rows.T) * 79 / 75, rtol=0.05, atol=0.03
    )


@pytest.mark.slow
def test_skewed_columns_are_drawn_without_bias() -> None:
    """Of a lognormal column that is missing by another, a Gaussian would draw negative values and
    too small a mean."""
    bias, negative = [], []
    for seed in range(6):
        random = np.random.default_rng(seed)
        a = random.normal(size=300)
        x = np.exp(0.5 * a + 0.8 * random.normal(size=300))
        table = np.column_stack([a, x, a + x + random.normal(size=300)])
        table[random.random(300) < 1.0 / (1.0 + np.exp(-2.0 * a)), 1] = np.nan
        drawn = np.stack(
            list(DMFImputer("gaussian", random_state=seed).fit(table).impute_many(table, 4))
        )[:, :, 1]
        bias.append((drawn.mean() - x.mean()) / (x.std() / np.sqrt(300)))
        negative.append(np.mean(drawn < 0))
    assert np.mean(negative) < 0.01
    assert abs(np.mean(bias)) < 1.0


def test_categories_are_drawn_by_their_probability_given_the_rest() -> None:
    """Of two normal groups the probability of a group is a logistic function, which a straight line
    would miss.

    The rarer group is less likely than its distance alone says.
    """
    random = np.random.default_rng(0)
    group = random.random(1500) < 0.2
    frame = pd.DataFrame(
        {"x": random.normal(size=1500) + 3.0 * group, "group": np.where(group, "b", "a")}
    )
    asked = pd.DataFrame({"x": np.repeat([0.5, 1.5, 2.5], 2000), "group": [None] * 6000})
    imputer = DMFImputer("gaussian", random_state=0).fit(frame)
    drawn = next(imputer.impute_many(asked, 1))
    found = [(drawn["group"][drawn["x"] == x] == "b").mean() for x in (0.5, 1.5, 2.5)]
    np.testing.assert_allclose(found, 1.0 / (1.0 + 4.0 * np.exp([3.0, 0.0, -3.0])), atol=0.04)


@pytest.mark.slow
def test_pooled_intervals_of_a_correlation_hold_the_truth() -> None:
    """Two columns with half their cells missing: drawn by itself, a cell takes no part in the
    correlation."""
    held = []
    truth = np.arctanh(COVARIANCE[0, 1] / np.sqrt(COVARIANCE[0, 0] * COVARIANCE[1, 1]))
    for seed in range(20):
        random = np.random.default_rng([5, seed])
        table = random.multivariate_normal(MEANS[:2], COVARIANCE[:2, :2], size=150)
        table[random.random(table.shape) < 0.5] = np.nan
        imputer = DMFImputer("gaussian", random_state=seed).fit(table)
        tables = imputer.impute_many(table, 5, seed=seed)
        z = [np.arctanh(np.corrcoef(each.T)[0, 1]) for each in tables]
        lower, upper = pool(z, [1 / 147] * 5, complete_df=148).interval(0.95)
        held.append(lower <= truth <= upper)
    assert np.mean(held) >= 0.9


@pytest.mark.slow
def test_draws_reach_tails_that_are_missing() -> None:
    """The largest values of a column are missing, as the column beside it shows."""
    random = np.random.default_rng(1)
    x = np.exp(random.normal(size=200))
    table = np.column_stack([x, x + 0.3 * np.sqrt(x) * random.normal(size=200)])
    missing = x > np.quantile(x, 0.93)
    table[missing, 1] = np.nan
    drawn = next(DMFImputer("gaussian", random_state=0).fit(table).impute_many(table, 1))
    assert drawn[missing, 1].mean() == pytest.approx(x[missing].mean(), rel=0.15)
