"""Completers: models fold rows in, and a stack is the weighted mean of its parts."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.means import Means
from deepmf.sklearn.completers import ByMeans, ByModel, Gaps, Gaussian, Stacked, sample_rows
from deepmf.sklearn.table import ColumnUnits, TableEntries

TABLE = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 7.0]])


def by_model() -> ByModel:
    return ByModel(Means().fit(ObservedMatrix.from_array(TABLE)))


def test_a_model_predicts_for_rows_that_are_folded_in() -> None:
    completer = by_model()
    found = completer.predict(
        TableEntries.of(np.array([[5.0, np.nan]])), np.array([0]), np.array([1])
    )
    np.testing.assert_array_equal(found, completer.model.fold_in([0], [5.0]).predict([1]))


@pytest.mark.parametrize("highest", [9.0, 1.5])
def test_a_stack_is_the_weighted_mean_of_its_parts_each_in_the_range_of_the_column(
    highest: float,
) -> None:
    completer, entries = by_model(), TableEntries.of(TABLE[:2])
    asked = entries, np.array([0, 1]), np.array([1, 1])
    units = ColumnUnits.from_shared_scale(entries, Scale(low=-9.0, high=highest))
    stacked = Stacked(
        (completer, ByMeans(np.zeros(2))), np.array([[1.0, 0.25], [0.0, 0.75]]), units
    )
    expected = 0.25 * completer.predict(*asked).clip(None, highest) + 0.75 * np.array(
        [2.0, 0.0]
    ).clip(None, highest)
    np.testing.assert_allclose(stacked.predict(*asked), expected)


Array = npt.NDArray[np.float64]


def known_gaussian(n_columns: int) -> Gaussian:
    random = np.random.default_rng(0)
    factors = random.normal(size=(n_columns, n_columns))
    return Gaussian(random.normal(size=n_columns), factors @ factors.T + np.eye(n_columns))


def holes(table: Array, share: float) -> Array:
    return np.where(np.random.default_rng(1).random(table.shape) < share, np.nan, table)


@pytest.mark.parametrize("n_columns", [6, 12])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_expected_cells_are_conditional_means(share: float, n_columns: int) -> None:
    gaussian = known_gaussian(n_columns)
    table, weights = (
        holes(np.random.default_rng(2).normal(size=(12, n_columns)), share),
        np.linspace(0.5, 1.5, 12),
    )
    found = gaussian.expect(table, weights)
    covariance = np.zeros((n_columns, n_columns))
    for row, cells, weight in zip(table, found.cells, weights, strict=True):
        seen = ~np.isnan(row)
        across = gaussian.covariance[np.ix_(~seen, seen)]
        within = gaussian.covariance[np.ix_(seen, seen)]
        deviations = (row - gaussian.means)[seen]
        expected = row.copy()
        expected[~seen] = gaussian.means[~seen] + across @ np.linalg.solve(within, deviations)
        np.testing.assert_allclose(cells, expected, atol=1e-9)
        left = gaussian.covariance[np.ix_(~seen, ~seen)] - across @ np.linalg.solve(
            within, across.T
        )
        covariance[np.ix_(~seen, ~seen)] += weight * left
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-8)


def test_rows_some_at_a_time_are_as_all_at_once() -> None:
    gaussian, table = known_gaussian(12), holes(np.random.default_rng(2).normal(size=(40, 12)), 0.4)
    whole = gaussian.expect(table, np.ones(40))
    for found, expected in zip(
        gaussian.expect(table, np.ones(40), gaps=Gaps(table, cells_at_a_time=8)), whole, strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_covariance_is_found_in_spite_of_missing_cells() -> None:
    random = np.random.default_rng(0)
    factor = random.normal(size=(2000, 1))
    table = factor * [1.0, -1.0, 0.5] + 0.1 * random.normal(size=(2000, 3))
    table /= table.std(axis=0)
    found = Gaussian.fit(holes(table, 0.4), shrinkage=0.0)
    np.testing.assert_allclose(found.covariance, np.cov(table.T), atol=0.05)
    apart = Gaussian.fit(holes(table, 0.4), shrinkage=1e9)
    np.testing.assert_allclose(apart.covariance, np.diag(apart.covariance.diagonal()), atol=1e-5)


@pytest.mark.parametrize("bound", ["most_rows", "most_work"])
def test_many_rows_are_drawn_from(bound: str) -> None:
    table = holes(np.random.default_rng(0).normal(size=(50, 3)), 0.2)
    draw = partial(sample_rows, table, **{bound: 20})
    some = draw(seed=3)
    assert (
        some.size < 50
        and np.array_equal(some, np.unique(some))
        and np.array_equal(some, draw(seed=3))
    )
    assert not np.array_equal(some, draw(seed=4))


def test_copies_and_constants_do_no_harm() -> None:
    column = np.random.default_rng(0).normal(size=30)
    table = holes(np.column_stack([column, column, np.zeros(30), 1.0 - column]), 0.3)
    completed = Gaussian.fit(table, shrinkage=0.4).complete(table)
    known = ~np.isnan(table[:, 0]) & np.isnan(table[:, 1])
    np.testing.assert_allclose(completed[known, 1], table[known, 0], atol=0.1)
    np.testing.assert_allclose(completed[:, 2], 0.0, atol=0.02)


@pytest.mark.parametrize(("n_observed", "n_columns"), [(2, 12), (10, 12), (2, 5)])
def test_draws_have_the_joint_conditional_distribution(n_observed: int, n_columns: int) -> None:
    """Whichever of the observed and the missing cells are fewer."""
    gaussian = known_gaussian(n_columns)
    rows = np.full((40_000, n_columns), np.nan)
    rows[:, :n_observed] = np.linspace(-1.0, 1.0, n_observed)
    drawn = gaussian.draw(rows, np.random.default_rng(0))[:, n_observed:]
    one_row = gaussian.expect(rows[:1], np.ones(1))
    spreads = np.sqrt(one_row.covariance.diagonal()[n_observed:])
    np.testing.assert_allclose(
        drawn.mean(axis=0) / spreads, one_row.cells[0, n_observed:] / spreads, atol=0.03
    )
    scaled = one_row.covariance[n_observed:, n_observed:] / np.outer(spreads, spreads)
    np.testing.assert_allclose(np.cov((drawn / spreads).T), scaled, atol=0.04)
