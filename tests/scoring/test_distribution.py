"""Ordered answers: levels and bins of a matrix, and what is read off distributions over them."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit, ndtr

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.scoring.distribution import (
    OrdinalSupport,
    PredictiveDistribution,
    find_support,
    place_cutpoints,
)

Array = npt.NDArray[np.float64]


def of(values: npt.ArrayLike, scale: Scale | None, *, n_bins: int = 4) -> OrdinalSupport:
    """The answers of a matrix of one row with these values."""
    return find_support(
        ObservedMatrix.from_array(np.asarray(values, dtype=float)[None], scale), n_bins=n_bins
    )


def distribution_of(
    table: npt.ArrayLike, answers: list[float] | None = None
) -> PredictiveDistribution:
    """Distributions, given as the probability of each answer."""
    probabilities = np.atleast_2d(np.asarray(table, dtype=float))
    named = np.arange(1.0, probabilities.shape[1] + 1) if answers is None else np.array(answers)
    exceedance = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return PredictiveDistribution(named, (named[:-1] + named[1:]) / 2, exceedance)


def draw_probabilities(n_pairs: int, n_answers: int, *, seed: int = 0) -> Array:
    dice = np.random.default_rng(seed)
    return dice.dirichlet(dice.uniform(0.3, 3, n_answers), size=n_pairs)


def test_levels_are_answers_with_boundaries_between_them() -> None:
    found = of([1, 2, 2, 5, 5, 5], Scale([1, 2, 3, 5]))
    assert found.values == [1, 2, 3, 5]
    assert found.boundaries == pytest.approx([-0.75, -0.25, 0.5])  # 1.5, 2.5 and 4 in units
    counts = np.array([1, 2, 0, 3]) + 0.5
    assert found.exceedance == pytest.approx(
        [counts[k + 1 :].sum() / counts.sum() for k in range(3)]
    )


def test_a_level_nobody_used_has_a_chance_of_its_own() -> None:
    exceedance = of([1, 1, 1, 5, 5], Scale([1, 2, 3, 4, 5])).exceedance
    assert exceedance[0] < 1 and exceedance[-1] > 0
    assert np.all(np.diff(exceedance) < 0)
    assert -np.diff(exceedance) == pytest.approx(np.full(3, 0.5 / 7.5))
    only_high = of([5, 5, 5], Scale([1, 2, 3, 4, 5])).exceedance
    assert only_high == pytest.approx([1 - k * 0.5 / 5.5 for k in range(1, 5)])


def test_two_levels_and_one() -> None:
    assert of([0, 1, 1], Scale([0, 1])) == ([0, 1], [0], [pytest.approx(2.5 / 4)])
    assert of([3, 3], Scale([3])) == ([3], [], [])


def test_bins_of_an_interval_are_equally_frequent_and_stand_for_their_means() -> None:
    values = np.random.default_rng(0).permutation(
        np.concatenate([np.arange(50), np.arange(50) ** 2 + 100.0])
    )
    found = of(values, Scale(low=0, high=2501), n_bins=5)
    ordered = np.sort(values).reshape(5, 20)
    assert found.values == pytest.approx(ordered.mean(1).tolist())
    assert found.exceedance == pytest.approx([0.8, 0.6, 0.4, 0.2])
    inner = Scale(low=0, high=2501).from_unit(found.boundaries)
    assert np.all(ordered[:-1, -1] <= inner) and np.all(inner < ordered[1:, 0])


def test_many_bins_are_halved_towards_both_ends() -> None:
    values = np.random.default_rng(0).standard_t(3, size=4800)
    found = of(values, Scale(low=values.min(), high=values.max()), n_bins=32)
    counts = np.diff(-4800 * np.array([1.0, *found.exceedance, 0.0]))
    tail = [12.5, 12.5, 25, 50, 100]
    np.testing.assert_allclose(counts, [*tail, *[200] * 22, *tail[::-1]], atol=2)
    # one value does not stand for a tail
    assert found.values[-1] > 2 * np.quantile(values, 1 - 1 / 32)


def test_a_frequent_value_is_a_bin_of_its_own() -> None:
    values = np.concatenate([np.zeros(50), np.linspace(1, 2, 50)])
    found = of(values, Scale(low=0, high=3), n_bins=8)
    assert found.values[0] == 0 and found.exceedance[0] == pytest.approx(0.5, abs=0.01)
    # nothing lies between 0 and the median, .5: the middle stands for it
    assert found.values[1] == 0.25
    assert len(found.values) == 6
    assert np.all(np.diff(found.values) > 0) and np.all(np.diff(found.boundaries) > 0)


@pytest.mark.parametrize(
    "constant, answers", [(0.5, [0.5, 0.75]), (0.0, [0.0, 0.5]), (1.0, [1.0, 1.0])]
)
def test_a_constant_inside_an_interval(constant: float, answers: list[float]) -> None:
    found = of([constant] * 9, Scale(low=0, high=1), n_bins=8)
    assert found.values == pytest.approx(answers)
    assert found.exceedance == pytest.approx([0.5 / 10])


def test_a_boundary_belongs_to_the_answers_below_it() -> None:
    # Half of all entries are 4, which is a quantile: as a value it is not above the boundary 4.
    found = of([1, 2, 4, 4, 4, 4, 8, 9], Scale(low=0, high=10), n_bins=2)
    assert found.boundaries == pytest.approx([-0.2]) and found.values == pytest.approx(
        [19 / 6, 8.5]
    )
    assert found.exceedance == pytest.approx([2.5 / 9])


def test_probabilities_are_differences() -> None:
    table = draw_probabilities(50, 4)
    np.testing.assert_allclose(distribution_of(table).probabilities, table, atol=1e-12)
    assert distribution_of([[1.0], [1.0]]).probabilities.tolist() == [[1], [1]]
    assert distribution_of(np.empty((0, 3))).probabilities.shape == (0, 3)


def test_the_best_answers_by_metric() -> None:
    table, answers = draw_probabilities(300, 5), [0.5, 1, 2, 3, 10.0]
    found = distribution_of(table, answers)
    losses = np.abs(np.subtract.outer(answers, answers)) @ table.T  # (answer given, pairs)
    np.testing.assert_array_equal(found.best("mae"), np.array(answers)[losses.argmin(0)])
    np.testing.assert_array_equal(found.best("accuracy"), np.array(answers)[table.argmax(1)])
    assert not np.array_equal(found.best("mae"), found.best("accuracy"))
    assert distribution_of([[0.25, 0.25, 0.5]]).best("accuracy").tolist() == [3]


def restated_interval(probabilities: Array, coverage: float) -> tuple[int, int]:
    """Grow from the likeliest answer, each time to the likelier neighbour, up to the coverage."""
    low = high = int(probabilities.argmax())
    while high - low + 1 < probabilities.size and probabilities[low : high + 1].sum() < coverage:
        down = probabilities[low - 1] if low else -1
        up = probabilities[high + 1] if high + 1 < probabilities.size else -1
        low, high = (low - 1, high) if down >= up else (low, high + 1)
    return low, high


@pytest.mark.parametrize("n_answers", [1, 2, 3, 7])
@pytest.mark.parametrize("coverage", [0.05, 0.5, 0.8, 0.9, 0.999])
def test_intervals_restated(n_answers: int, coverage: float) -> None:
    table = draw_probabilities(200, n_answers) if n_answers > 1 else np.ones((20, 1))
    lower, upper = distribution_of(table).interval(coverage)
    # answers count from 1
    expected = np.array([restated_interval(line, coverage) for line in table]) + 1
    np.testing.assert_array_equal(np.stack([lower, upper], axis=1), expected)
    assert np.all(lower <= upper)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_intervals_hold_at_least_their_share_and_at_targets_just_that(coverage: float) -> None:
    table = draw_probabilities(20_000, 6, seed=3)
    lower, upper = distribution_of(table).interval(coverage)
    dice = np.random.default_rng(4)
    values = (dice.random(len(table))[:, None] > np.cumsum(table, axis=1)).sum(1) + 1
    assert np.mean((lower <= values) & (values <= upper)) > coverage + 0.03
    least_targets = distribution_of(table).least_targets[np.arange(len(table)), values - 1]
    target = np.quantile(least_targets, coverage)
    lower, upper = distribution_of(table).interval(float(target))
    assert np.mean((lower <= values) & (values <= upper)) == pytest.approx(coverage, abs=0.005)


def test_a_tiny_coverage_is_the_likeliest_answer_and_a_huge_one_all_of_them() -> None:
    table = draw_probabilities(100, 5)
    lower, upper = distribution_of(table).interval(1e-6)
    np.testing.assert_array_equal(lower, table.argmax(1) + 1)
    np.testing.assert_array_equal(upper, lower)
    lower, upper = distribution_of(table + 1e-3).interval(1 - 1e-9)
    assert set(lower) == {1} and set(upper) == {5}


def test_quantiles_of_bins_that_are_all_as_likely() -> None:
    bins = PredictiveDistribution(
        np.array([0.5, 1.5, 2.5, 3.5]), np.array([1.0, 2.0, 3.0]), np.array([[0.75, 0.5, 0.25]])
    )
    for share in (0.01, 0.25, 0.3, 0.5, 0.77, 0.99):
        assert bins.quantiles(share) == pytest.approx([4 * share])  # uniform from 0 to 4


@pytest.mark.parametrize("share", [0.02, 0.25, 0.5, 0.95])
def test_quantiles_restated(share: float) -> None:
    answers, inner = np.array([-1.0, 0.0, 0.2, 5.0]), np.array([-0.4, 0.1, 1.0])
    table = draw_probabilities(100, 4, seed=1)
    found = PredictiveDistribution(answers, inner, distribution_of(table).exceedance).quantiles(
        share
    )
    edges = np.array([-1.6, -0.4, 0.1, 1.0, 9.0])  # the outer bins lie around -1 and 5
    expected = [np.interp(share, np.concatenate([[0.0], np.cumsum(line)]), edges) for line in table]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_larger_share_is_a_larger_quantile_and_empty_bins_do_no_harm() -> None:
    answers = PredictiveDistribution(
        np.array([1.0, 2, 3, 4]),
        np.array([1.5, 2.5, 3.5]),
        np.array([[1.0, 1, 0], [1, 0, 0], [0, 0, 0]]),
    )
    quantiles = np.array([answers.quantiles(share) for share in (0.05, 0.3, 0.5, 0.95)])
    assert np.all(np.isfinite(quantiles)) and np.all(np.diff(quantiles, axis=0) >= 0)
    # All of the weight is in one bin each: the third, the second, the first.
    assert np.all((quantiles >= [2.5, 1.5, 0.5]) & (quantiles <= [3.5, 2.5, 1.5]))


def test_a_value_that_bins_are_cut_at_is_its_own_quantile() -> None:
    # Of values that are 0 half of the time, the lower quantiles are 0 itself.
    zeros = PredictiveDistribution(
        np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0]), np.array([[0.5, 0.2]])
    )
    assert zeros.quantiles(0.05) == pytest.approx([0]) and zeros.quantiles(0.49) == pytest.approx(
        [0]
    )
    assert 0 < zeros.quantiles(0.6)[0] < 2


def test_draws_are_as_frequent_as_they_are_likely() -> None:
    shares = np.random.default_rng(0).random(20_000)
    chances = [0.1, 0.6, 0.0, 0.3]
    levels = distribution_of(np.tile(chances, (shares.size, 1))).sample(shares, Scale([1, 2, 3, 4]))
    frequencies = np.bincount(levels.astype(int), minlength=5)[1:] / shares.size
    np.testing.assert_allclose(frequencies, chances, atol=0.01)
    assert frequencies[2] == 0


def test_a_draw_of_an_interval_is_the_quantile_of_its_share() -> None:
    found = distribution_of(draw_probabilities(5, 6))
    shares = np.array([0.05, 0.3, 0.5, 0.8, 0.99])
    alone = [found.quantiles(float(share))[pair] for pair, share in enumerate(shares)]
    np.testing.assert_array_equal(found.quantiles(shares), alone)
    np.testing.assert_array_equal(found.sample(shares, Scale(low=2, high=5)), np.clip(alone, 2, 5))


def normal_distributions(spread: float) -> tuple[PredictiveDistribution, Array]:
    """Normal distributions of a spread in fine bins, and values that deviate from their means by
    1."""
    dice = np.random.default_rng(0)
    means, support = dice.normal(size=4000), np.linspace(-12, 12, 200)
    boundaries = (support[:-1] + support[1:]) / 2
    exceedance = ndtr((means[:, None] - boundaries) / spread)
    return PredictiveDistribution(support, boundaries, exceedance), means + dice.normal(
        size=means.size
    )


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_calibrated_intervals_hold_the_share_they_state(spread: float) -> None:
    stated, values = normal_distributions(spread)
    table = stated.measure_coverages(values, seed=0)
    assert table[0] == 0 and table[-1] == 1 and np.all(np.diff(table) > 0)
    found, scale = stated.calibrate(table), Scale(low=-12, high=12)
    for coverage in (0.5, 0.8, 0.9):
        lower, upper = found.ends(coverage, scale).T
        assert np.mean((lower <= values) & (values <= upper)) == pytest.approx(coverage, abs=0.02)
    np.testing.assert_allclose(found.quantiles(0.5), stated.quantiles(0.5), atol=0.02)
    if spread == 1.0:
        np.testing.assert_allclose(found.exceedance, stated.exceedance, atol=0.02)


def test_few_held_out_values_change_little() -> None:
    stated, values = normal_distributions(2.0)
    few = PredictiveDistribution(stated.support, stated.boundaries, stated.exceedance[:5])
    table = few.measure_coverages(values[:5], seed=0)
    np.testing.assert_allclose(table, np.linspace(0, 1, table.size), atol=0.1)


def test_few_held_out_levels_change_little() -> None:
    stated, values = normal_distributions(2.0)
    few = PredictiveDistribution(stated.support, stated.boundaries, stated.exceedance[:5])
    levels = stated.support[np.searchsorted(stated.boundaries, values[:5])]
    targets = few.choose_coverages(levels, of_levels=True)
    np.testing.assert_allclose(targets, np.linspace(0, 1, targets.size), atol=0.1)


def test_cutpoints_beyond_all_values_expect_half_a_value() -> None:
    zeros, ones = np.zeros(10), np.ones(10)
    cutpoints = place_cutpoints(expit, zeros, ones, np.array([10, 5, 0]))
    np.testing.assert_allclose(cutpoints, [-np.log(19), 0.0, np.log(19)], atol=1e-4)


def test_a_value_with_a_probability_of_its_own_is_spread_over_it() -> None:
    # Half of all values are exactly 0, the lowest: their intervals are right as they are.
    n_pairs = 4000
    values = np.where(np.arange(n_pairs) % 2, np.random.default_rng(0).random(n_pairs), 0.0)
    found = PredictiveDistribution(
        np.array([0.0, 0.5]), np.array([0.0]), np.full((n_pairs, 1), 0.5)
    )
    table = found.measure_coverages(values, seed=0)
    np.testing.assert_allclose(table, np.linspace(0, 1, table.size), atol=0.04)


def test_an_outlier_does_not_move_the_mean_of_its_bin() -> None:
    values = np.append(np.random.default_rng(0).normal(size=400), [100.0])
    found = of(values, None, n_bins=8)
    assert found.values[-1] < np.quantile(values, 0.99)


def test_values_far_outside_leave_coverages_that_rise() -> None:
    stated, values = normal_distributions(0.5)
    table = stated.measure_coverages(values + 1e6, seed=0)
    assert table[0] == 0 and table[-1] == 1 and np.all(np.diff(table) > 0)
    assert np.all(np.isfinite(stated.calibrate(table).exceedance))


def test_a_shift_moves_the_mean_and_keeps_the_order() -> None:
    support = np.array([1.0, 2.0, 3.0, 5.0])
    boundaries = (support[:-1] + support[1:]) / 2
    chances = np.random.default_rng(0).dirichlet(np.ones(4), size=6)
    found = PredictiveDistribution.of_probabilities(support, boundaries, chances)
    amounts = np.array([0.0, 0.4, -0.3, 0.01, 9.0, -9.0])
    shifted = found.shift(amounts)
    means = chances @ support
    assert np.array_equal(shifted.exceedance[0], found.exceedance[0])
    assert np.allclose(shifted.probabilities[:4] @ support, means[:4] + amounts[:4], atol=1e-9)
    # a hundredth before the ends
    assert np.allclose(shifted.probabilities[4:] @ support, [4.96, 1.04])
    assert np.all(shifted.probabilities > 0)
