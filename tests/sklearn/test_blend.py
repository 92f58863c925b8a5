"""The default of tables: cells are left out in turn, and what predicts them best counts most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepmf.errors import BadSetting
from deepmf.sklearn import DMFImputer
from deepmf.sklearn.blend import WHOLE_ROWS, Residuals, _LeftOut, _solve, fit_blend, fit_whole_rows
from deepmf.sklearn.completers import Stacked
from deepmf.sklearn.table import ColumnUnits, TableEntries
from deepmf.sklearn.trees import Forest, draw_by_tree

Array = npt.NDArray[np.float64]


def holes(table: Array, share: float = 0.3, seed: int = 0) -> Array:
    return np.where(np.random.default_rng(seed).random(table.shape) < share, np.nan, table)


def bent(n_rows: int = 400) -> Array:
    """A column that is a curve of the first, one that is a line, and one that follows from
    nothing."""
    random = np.random.default_rng(0)
    along = random.normal(size=n_rows)
    noise = random.normal(size=(n_rows, 3))
    return np.column_stack(
        [along, np.cos(2 * along) + 0.1 * noise[:, 0], along + 0.5 * noise[:, 1], noise[:, 2]]
    )


def blend(table: Array, **options: Any) -> Any:
    entries = TableEntries.of(table)
    units = ColumnUnits.from_columns(entries, reach=10.0)
    return fit_blend(
        units.standardise(entries), np.arange(table.shape[1]), units, seed=0, **options
    )


@pytest.mark.slow
def test_each_column_has_the_weights_that_predict_it_best() -> None:
    found = blend(holes(bent(), 0.2))
    assert isinstance(found.completer, Stacked)
    gaussian, trees, means = found.completer.weights
    np.testing.assert_allclose(found.completer.weights.sum(axis=0), 1.0)
    assert trees[1] > 0.8 and gaussian[1] < 0.1
    assert gaussian[2] > 0.6
    assert trees[3] < 0.2 and gaussian[3] + means[3] > 0.8
    assert set(found.weights) == set(WHOLE_ROWS)


@pytest.mark.slow
def test_a_wide_table_of_few_rows_is_completed_from_its_factors() -> None:
    random = np.random.default_rng(0)
    factors, noise = random.normal(size=(60, 3)), random.normal(size=(60, 510))
    truth = factors @ random.normal(size=(3, 510)) + 0.5 * noise
    table = holes(truth, 0.2)
    errors = (DMFImputer(random_state=0).fit_transform(table) - truth)[np.isnan(table)]
    assert np.sqrt(np.mean(np.square(errors))) < 0.56  # of the noise alone: .5


def make_pairs(n_rows: int) -> npt.NDArray[Any]:
    """Return a wide table whose columns 2k and 2k + 1 are equal up to little noise, and to no
    others."""
    random = np.random.default_rng(0)
    signal = np.repeat(random.normal(size=(n_rows, 260)), 2, axis=1)
    return signal + 0.1 * random.normal(size=signal.shape)


@pytest.mark.slow
def test_a_wide_table_without_factors_is_completed_by_neighbours() -> None:
    truth = make_pairs(150)
    table = holes(truth, 0.1)
    imputer = DMFImputer(random_state=0).fit(table)
    assert imputer.weights_ == {"neighbours": 1.0}
    missing = np.isnan(table)
    errors = (imputer.transform(table) - truth)[missing]
    assert np.sqrt(np.mean(np.square(errors))) < 0.6
    assert imputer.score_ is not None


@pytest.mark.slow
def test_left_out_cells_are_as_hard_as_missing_ones() -> None:
    """Predictions of cells that a candidate has seen would be too good, and weights would
    follow."""
    truth = bent()
    table = holes(truth)
    found = blend(table)
    spreads = np.nanstd(table, axis=0)
    completed = DMFImputer(random_state=0).fit_transform(table)
    missing = np.sqrt(np.mean(np.square((completed - truth) / spreads)[np.isnan(table)]))
    assert np.sqrt(np.mean(found.residuals.values**2)) == pytest.approx(missing, rel=0.1)


@pytest.mark.slow
def test_absolute_errors_take_medians() -> None:
    random = np.random.default_rng(0)
    cause = random.integers(0, 4, 600).astype(float)
    truth = np.column_stack([cause, 5.0 * cause + np.exp(1.5 * random.normal(size=600))])
    table = np.where([[False, True]] & (random.random((600, 1)) < 0.25), np.nan, truth)
    missing, errors = np.isnan(table[:, 1]), {}
    for metric in ("rmse", "mae"):
        completed = DMFImputer(metric=metric, random_state=0).fit_transform(table)
        errors[metric] = np.abs(completed - truth)[missing, 1].mean()
    assert errors["mae"] < 0.9 * errors["rmse"]
    with pytest.raises(BadSetting, match="r2"):
        DMFImputer(metric="r2").fit(table)


@pytest.mark.parametrize("absolute", [False, True])
def test_weights_are_those_of_least_error(absolute: bool) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=4000)
    noises = np.stack(
        [0.5 * random.normal(size=4000), random.normal(size=4000), 3.0 * random.normal(size=4000)]
    )
    # The mean of two independent errors is least with weights by the inverse of their variances: 4
    # to 1.
    weights = _solve((values + noises).T, values, np.ones(4000), absolute=absolute)
    np.testing.assert_allclose(weights, [0.78, 0.2, 0.02], atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE_ROWS)
def test_each_completes_rows(name: str) -> None:
    column = np.linspace(-1.5, 1.5, 40)
    table = np.column_stack([column, 2 * column, -column])
    table[::4, 1] = np.nan
    completed = fit_whole_rows(name, TableEntries.of(table), np.arange(3), seed=0).complete(table)
    np.testing.assert_allclose(completed[~np.isnan(table)], table[~np.isnan(table)])
    error = np.sqrt(np.mean(np.square(completed[::4, 1] - 2 * column[::4])))
    assert (
        error == pytest.approx(np.std(2 * column), rel=0.1)
        if name == "column-means"
        else error < 0.6
    )


def predict_with_noise(
    noises: dict[str, list[float]], n_rows: list[int], seed: int = 0
) -> _LeftOut:
    """Return predictions of columns, the values plus noise of these deviations for each column.

    Columns have values in as many of the first rows; candidates without noises predict nothing.
    """
    random = np.random.default_rng(seed)
    table = random.normal(size=(max(n_rows), len(n_rows)))
    table[np.arange(max(n_rows))[:, None] >= n_rows] = np.nan
    predictions = np.full((len(WHOLE_ROWS), *table.shape), np.nan)
    for place, name in enumerate(WHOLE_ROWS):
        if name in noises:
            predictions[place] = table + noises[name] * random.normal(size=table.shape)
    cells = [np.array([at]) for at in range(len(n_rows))]
    return _LeftOut(table, np.ones(len(table)), cells, {False: predictions})


@pytest.mark.parametrize(
    ("noise_of_trees", "expected"), [(0.1, True), (0.5, True), (30.0, False), (1e9, False)]
)
def test_trees_are_grown_where_they_lower_the_error_by_half_a_percent(
    noise_of_trees: float, expected: bool
) -> None:
    noises = {"gaussian": [0.5], "trees": [noise_of_trees], "column-means": [3.0]}
    left_out = predict_with_noise(noises, [2_000])
    assert left_out.gain_by_trees(np.array([0])) is expected


@pytest.mark.parametrize("n_columns", [1, 4])
def test_a_cell_of_few_rows_has_nearly_the_weights_of_all(n_columns: int) -> None:
    """The Gaussian predicts the column of many rows, the means predict the columns of few, which
    are one number or one category."""
    noises = {"gaussian": [0.0] + n_columns * [9.0], "column-means": [9.0] + n_columns * [0.0]}
    left_out = predict_with_noise(noises, [5_000] + n_columns * [10])
    cells = [np.array([0]), np.arange(1, 1 + n_columns)]
    weights = replace(left_out, cells=cells).weigh(False)
    np.testing.assert_allclose(weights[:, 0], [1, 0, 0], atol=0.01)
    # as if 50 rows of all columns were beside its 10
    expected = np.tile([[50 / 60], [0], [10 / 60]], n_columns)
    np.testing.assert_allclose(weights[:, 1:], expected, atol=0.05)


def test_a_hardly_used_candidate_is_left_out_and_the_others_sum_to_one() -> None:
    """The weights of least error are those of the inverse variances: .965, .035."""
    noises = {"gaussian": [0.19], "column-means": [1.0]}
    weights = predict_with_noise(noises, [20_000]).weigh(False)
    np.testing.assert_array_equal(weights[:, 0], [1.0, 0.0, 0.0])
    noises["column-means"] = [0.5]  # .87, .13
    weights = predict_with_noise(noises, [20_000]).weigh(False)
    np.testing.assert_allclose(weights[:, 0], [0.87, 0.0, 0.13], atol=0.02)


def test_a_column_with_many_residuals_has_its_own() -> None:
    residuals = Residuals(
        np.arange(203),
        np.repeat([0, 1, 2], [100, 100, 3]),
        np.repeat([0.1, 5.0, 9.0], [100, 100, 3]),
        np.zeros(203),
    )
    np.testing.assert_array_equal(residuals.quantiles(np.array([1, 0, 0]), 0.5), [5.0, 0.1, 0.1])
    assert residuals.quantiles(np.array([2]), 1.0) == 9.0
    assert residuals.quantiles(np.array([2]), 0.0) == 0.1  # of all columns


@pytest.mark.slow
def test_trees_predict_leaves_and_draw_from_them() -> None:
    random = np.random.default_rng(0)
    inputs, asked = random.integers(0, 5, (500, 1)).astype(float), np.arange(5.0)[:, None]
    noise = random.exponential(size=(500, 1))
    forest = Forest(inputs, 10.0 * inputs + noise, np.ones(500), seed=0).grow(10)
    for medians, centre in ((0.0, 1.0), (1.0, np.log(2.0)), (0.5, 0.5 + 0.5 * np.log(2.0))):
        np.testing.assert_allclose(
            forest.predict(asked, medians=medians) - 10.0 * asked, centre, atol=0.25
        )
    drawn = draw_by_tree(
        inputs, 10.0 * inputs + noise, np.ones(500), np.repeat(asked, 200, axis=0), random
    )
    np.testing.assert_allclose(drawn.reshape(5, 200).std(axis=1), 1, atol=0.4)
    unrelated = (
        Forest(inputs, noise, np.ones(500), seed=0).grow(10).predict_own(medians=0.0)
    )  # by trees that did not see the row
    kept = ~np.isnan(unrelated)
    assert abs(np.corrcoef(unrelated[kept], noise[kept])[0, 1]) < 0.1
