"""The metrics against scikit-learn, torchmetrics and plain re-statements, and on answers known by construction."""

import math

import numpy as np
import pytest
import sklearn.metrics as reference
import torch
from hypothesis import given, settings, strategies as st

from deepmf.errors import BadEntries, BadSetting, OffScale
from deepmf.metrics import (
    calibration_error,
    coverage_score,
    hit_rate_score,
    interval_coverage_score,
    level_accuracy_score,
    log_loss_error,
    mae_error,
    map_score,
    mrr_score,
    ndcg_score,
    novelty_score,
    precision_score,
    quadratic_kappa_score,
    ranked_probability_error,
    recall_score,
    rmse_error,
    score_lists,
    within_one_score,
)

# Unequally spaced, so that a metric that counts values where it should count positions shows.
SCALE = np.array([0.5, 1.0, 3.0, 4.0, 10.0])

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 40)


def for_all(*strategies, **named_strategies):
    """Run a test on drawn examples, however slow the machine is."""
    return lambda test: settings(deadline=None)(given(*strategies, **named_strategies)(test))


def drawn_levels(seed, n_pairs):
    """Return predicted and actual levels, both (pairs,)."""
    generator = np.random.default_rng(seed)
    return generator.choice(SCALE, n_pairs), generator.choice(SCALE, n_pairs)


def drawn_forecasts(seed, n_pairs):
    """Return distributions (pairs, levels), some of them certain, and actual levels (pairs,)."""
    generator = np.random.default_rng(seed)
    distributions = generator.dirichlet(np.full(SCALE.size, 0.5), n_pairs)
    certain = generator.random(n_pairs) < 0.1
    distributions[certain] = np.eye(SCALE.size)[generator.integers(SCALE.size, size=certain.sum())]
    return distributions, generator.choice(SCALE, n_pairs)


def drawn_lists(seed, n_lists=6, n_items=12):
    """Return relevances and predictions without ties, both (lists, items)."""
    generator = np.random.default_rng(seed)
    predictions = generator.permuted(np.tile(np.arange(float(n_items)), (n_lists, 1)), axis=1)
    return generator.integers(0, 6, (n_lists, n_items)).astype(float), predictions


def positions_of(levels):
    return np.searchsorted(SCALE, levels)


class TestAgainstScikitLearn:
    @pytest.mark.slow
    @for_all(seeds, sizes)
    def test_rmse_and_mae(self, seed, n_pairs):
        predictions, values = np.random.default_rng(seed).normal(3, 2, (2, n_pairs))
        assert rmse_error(predictions, values) == pytest.approx(reference.root_mean_squared_error(values, predictions))
        assert rmse_error(predictions, values) ** 2 == pytest.approx(reference.mean_squared_error(values, predictions))
        assert mae_error(predictions, values) == pytest.approx(reference.mean_absolute_error(values, predictions))

    @for_all(seeds, sizes)
    def test_level_accuracy(self, seed, n_pairs):
        predicted, actual = drawn_levels(seed, n_pairs)
        expected = reference.accuracy_score(positions_of(actual), positions_of(predicted))
        assert level_accuracy_score(predicted, actual) == pytest.approx(expected)

    @for_all(seeds, st.integers(2, 40))
    def test_quadratic_kappa(self, seed, n_pairs):
        predicted, actual = drawn_levels(seed, n_pairs)
        predicted[0], actual[0] = SCALE[0], SCALE[-1]  # never the degenerate case
        expected = reference.cohen_kappa_score(
            positions_of(predicted), positions_of(actual), labels=range(SCALE.size), weights="quadratic"
        )
        assert quadratic_kappa_score(predicted, actual, scale_levels=SCALE) == pytest.approx(expected)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @for_all(seed=seeds, n_pairs=sizes)
    def test_log_loss(self, dtype, seed, n_pairs):
        distributions, levels = drawn_forecasts(seed, n_pairs)
        distributions = distributions.astype(dtype)
        expected = reference.log_loss(positions_of(levels), distributions, labels=range(SCALE.size))
        assert log_loss_error(distributions, levels, scale_levels=SCALE) == pytest.approx(
            expected, rel=1e-5 if dtype is np.float32 else 1e-12
        )

    @for_all(seeds, st.integers(1, 15))
    def test_ndcg(self, seed, n):
        relevances, predictions = drawn_lists(seed)
        relevances[0] = 0.0  # nothing to find in this list
        expected = reference.ndcg_score(relevances, predictions, k=n, ignore_ties=True)
        assert ndcg_score(relevances, predictions, n=n) == pytest.approx(expected)


class TestAgainstPlainRestatements:
    @for_all(seeds, sizes)
    def test_within_one(self, seed, n_pairs):
        predicted, actual = drawn_levels(seed, n_pairs)
        order = SCALE.tolist()
        near = [abs(order.index(p) - order.index(a)) <= 1 for p, a in zip(predicted, actual, strict=True)]
        assert within_one_score(predicted, actual, scale_levels=SCALE) == pytest.approx(sum(near) / n_pairs)

    @for_all(seeds, sizes)
    def test_ranked_probability(self, seed, n_pairs):
        distributions, levels = drawn_forecasts(seed, n_pairs)
        total = 0.0
        for distribution, level in zip(distributions, levels, strict=True):
            for k in range(SCALE.size - 1):
                total += (math.fsum(distribution[: k + 1]) - (level <= SCALE[k])) ** 2 / (SCALE.size - 1)
        error = ranked_probability_error(distributions, levels, scale_levels=SCALE)
        assert error == pytest.approx(total / n_pairs, abs=1e-12)

    @for_all(seeds, sizes, st.integers(1, 20))
    def test_calibration(self, seed, n_pairs, bins):
        distributions, levels = drawn_forecasts(seed, n_pairs)
        members = {}
        for distribution, level in zip(distributions, levels, strict=True):
            for probability, of_level in zip(distribution, SCALE, strict=True):
                number = min(math.floor(probability * bins), bins - 1)
                members.setdefault(number, []).append((probability, float(level == of_level)))
        expected = 0.0
        for pairs in members.values():
            mean_probability, mean_outcome = np.mean(pairs, axis=0)
            expected += len(pairs) / distributions.size * abs(mean_probability - mean_outcome)
        error = calibration_error(distributions, levels, scale_levels=SCALE, bins=bins)
        assert error == pytest.approx(expected, abs=1e-12)

    @for_all(seeds, sizes)
    def test_interval_coverage(self, seed, n_pairs):
        generator = np.random.default_rng(seed)
        lower, upper = np.sort(generator.integers(0, 5, (2, n_pairs)), axis=0)
        values = generator.integers(0, 5, n_pairs)
        inside = [low <= value <= high for low, high, value in zip(lower, upper, values, strict=True)]
        assert interval_coverage_score(lower, upper, values) == pytest.approx(sum(inside) / n_pairs)


class TestKnownAnswers:
    @pytest.mark.parametrize(("predicted", "kappa"), [(2, 1.0), (3, 0.0)])
    def test_kappa_of_constant_levels(self, predicted, kappa):
        assert quadratic_kappa_score([predicted] * 7, [2] * 7, scale_levels=[1, 2, 3]) == kappa

    def test_a_scale_of_one_level(self):
        sure = [[1.0], [1.0]]
        assert ranked_probability_error(sure, [4, 4], scale_levels=[4]) == 0
        assert log_loss_error(sure, [4, 4], scale_levels=[4]) == pytest.approx(0, abs=1e-15)
        assert calibration_error(sure, [4, 4], scale_levels=[4]) == 0
        assert within_one_score([4], [4], scale_levels=[4]) == 1

    def test_ranked_probability_prefers_near_misses_and_log_loss_does_not(self):
        near, far = [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]
        assert ranked_probability_error(near, [1], scale_levels=[1, 2, 3]) == 0.5
        assert ranked_probability_error(far, [1], scale_levels=[1, 2, 3]) == 1.0
        assert log_loss_error(near, [1], scale_levels=[1, 2, 3]) == log_loss_error(far, [1], scale_levels=[1, 2, 3])

    def test_calibration_bins_hold_their_lower_end(self):
        # 0.5 lies in the upper of two bins; in the lower one its gap would cancel those of 0.25.
        error = calibration_error([[0.5, 0.25, 0.25]], [1], scale_levels=[1, 2, 3], bins=2)
        assert error == pytest.approx((0.5 + 0.5) / 3)

    def test_the_last_calibration_bin_holds_one(self):
        # 1.0 shares the upper of two bins with 0.75, so that their gaps 1 and -0.25 add up.
        error = calibration_error([[1.0, 0.0], [0.75, 0.25]], [2, 1], scale_levels=[1, 2], bins=2)
        assert error == pytest.approx((0.75 + 0.75) / 4)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_log_loss_of_certainty_is_clipped_at_both_ends(self, dtype):
        eps = float(np.finfo(dtype).eps)
        sure = np.array([[1, 0]], dtype=dtype)
        assert log_loss_error(sure, [1], scale_levels=[1, 2]) == pytest.approx(-math.log(1 - eps), rel=1e-9)
        assert log_loss_error(sure, [2], scale_levels=[1, 2]) == pytest.approx(-math.log(eps), rel=1e-9)

    def test_equal_predictions_rank_the_earlier_item_first(self):
        # Long enough, with another value between, that an unstable sort would mix the equal ones.
        tied = np.tile([1.0, 0.0], 500)
        assert recall_score(np.arange(1000) < 200, tied, n=100) == 0.5
        assert recall_score([True, False, False], [0.0, 0.0, 0.0], n=1) == 1
        assert recall_score([False, False, True], [0.0, 0.0, 0.0], n=2) == 0
        assert ndcg_score([3, 1, 2], [1, 1, 1], n=3) == pytest.approx(
            (3 + 1 / math.log2(3) + 2 / 2) / (3 + 2 / math.log2(3) + 1 / 2)
        )

    def test_minus_infinity_ranks_last(self):
        assert recall_score([True, True, False], [-np.inf, -5.0, -9.0], n=2) == 0.5
        assert ndcg_score([9, 1, 0], [-np.inf, 1, 0], n=1) == pytest.approx(1 / 9)

    def test_lists_shorter_than_n_are_held_against_n_relevant_items(self):
        found = score_lists(np.array([[True]]), np.array([3]), n=3)
        assert found.ndcg[0] == pytest.approx(1 / (1 + 1 / np.log2(3) + 1 / 2))
        assert (found.precision[0], found.recall[0]) == (1 / 3, 1 / 3)


class TestProperties:
    def test_true_probabilities_are_calibrated(self):
        generator = np.random.default_rng(0)
        distributions = generator.dirichlet(np.ones(SCALE.size), 20_000)
        draws = (generator.random((20_000, 1)) > np.cumsum(distributions, axis=1)[:, :-1]).sum(axis=1)
        assert calibration_error(distributions, SCALE[draws], scale_levels=SCALE) < 0.01
        sharpened = distributions**3 / np.sum(distributions**3, axis=1, keepdims=True)
        assert calibration_error(sharpened, SCALE[draws], scale_levels=SCALE) > 0.05


TWO_VECTORS = {
    "rmse_error": rmse_error,
    "mae_error": mae_error,
    "level_accuracy_score": level_accuracy_score,
    "within_one_score": lambda first, second: within_one_score(first, second, scale_levels=[1, 2, 3]),
    "quadratic_kappa_score": lambda first, second: quadratic_kappa_score(first, second, scale_levels=[1, 2, 3]),
    "interval_coverage_score": lambda first, second: interval_coverage_score(first, second, second),
    "ndcg_score": lambda first, second: ndcg_score(first, second, n=1),
    "recall_score": lambda first, second: recall_score(first, second, n=1),
    "precision_score": lambda first, second: precision_score(first, second, n=1),
    "hit_rate_score": lambda first, second: hit_rate_score(first, second, n=1),
}
OF_POSITIONS = [within_one_score, quadratic_kappa_score]
OF_DISTRIBUTIONS = [log_loss_error, ranked_probability_error, calibration_error]
HALVES = [[0.5, 0.5], [0.5, 0.5]]


class TestBadInput:
    @pytest.mark.parametrize("name", TWO_VECTORS)
    def test_two_vectors(self, name):
        metric = TWO_VECTORS[name]
        with pytest.raises(BadEntries, match=r"\(3,\)"):
            metric([1, 1], [1, 1, 1])
        with pytest.raises(BadEntries, match=r"\(0,\)"):
            metric([], [])
        with pytest.raises(BadEntries, match=r"\[1\]"):
            metric([1, np.nan], [1, 1])
        with pytest.raises(BadEntries, match=r"\[0\]"):
            metric([1, 1], [np.nan, 1])
        with pytest.raises(BadEntries, match="good"):
            metric([1, 1], ["good", "bad"])
        with pytest.raises(BadEntries, match=r"\((pairs|items),\)"):
            metric(1, 1)
        with pytest.raises(BadEntries, match=r"\(1, 1, 1\)"):
            metric([[[1]]], [[[1]]])

    @pytest.mark.parametrize("metric", [rmse_error, mae_error, level_accuracy_score])
    def test_infinite_numbers(self, metric):
        with pytest.raises(BadEntries, match=r"^predict\w+\[1\]"):
            metric([1, np.inf], [1, np.inf])
        with pytest.raises(BadEntries, match="-inf"):
            metric([1, 2], [-np.inf, 2])

    @pytest.mark.parametrize("metric", [rmse_error, level_accuracy_score, interval_coverage_score])
    def test_a_column_is_not_broadcast_against_a_row(self, metric):
        arguments = [np.ones((2, 1)), np.ones(2), np.ones(2)]
        with pytest.raises(BadEntries, match=r"\(2, 1\)"):
            metric(*(arguments if metric is interval_coverage_score else arguments[:2]))

    @pytest.mark.parametrize("metric", OF_POSITIONS)
    def test_levels_off_the_scale(self, metric):
        with pytest.raises(OffScale, match=r"2\.5"):
            metric([1, 2.5], [1, 2], scale_levels=[1, 2, 3])
        with pytest.raises(OffScale, match="7"):
            metric([1, 2], [7, 2], scale_levels=[1, 2, 3])
        with pytest.raises(OffScale, match=r"^levels\[0\]"):
            metric([1, 2], [-np.inf, 2], scale_levels=[1, 2, 3])

    @pytest.mark.parametrize("metric", OF_POSITIONS + OF_DISTRIBUTIONS)
    @pytest.mark.parametrize("scale_levels", [[], [2, 1], [1, 1], [1, np.nan], [1, np.inf], [[1, 2]], 1, ["low"]])
    def test_scale_levels(self, metric, scale_levels):
        first = [1, 2] if metric in OF_POSITIONS else HALVES
        with pytest.raises(BadSetting, match="increasing") as caught:
            metric(first, [1, 2], scale_levels=scale_levels)
        assert str(caught.value).endswith(repr(scale_levels))

    @pytest.mark.parametrize("metric", OF_DISTRIBUTIONS)
    @pytest.mark.parametrize(
        ("distributions", "levels", "error", "match"),
        [
            (HALVES, [1], BadEntries, r"\(2, 2\)"),
            ([[0.5, 0.25, 0.25]], [1], BadEntries, r"\(1, 3\)"),
            ([0.5, 0.5], [1, 2], BadEntries, r"\(2, 2\)"),
            (
                [[0.5, 0.5], [0.5, 0.4]],
                [1, 2],
                BadEntries,
                r"0\.9",
            ),
            ([[1, 1]], [1], BadEntries, "sum"),
            ([[np.inf, 0]], [1], BadEntries, "inf"),
            (
                [[1.25, -0.25]],
                [1],
                BadEntries,
                r"-0\.25",
            ),
            ([[np.nan, 1]], [1], BadEntries, "nan"),
            (
                [["a", "b"]],
                [1],
                BadEntries,
                "'b'",
            ),
            (np.empty((0, 2)), [], BadEntries, "empty"),
            (HALVES, [], BadEntries, "empty"),
            (HALVES, [[1], [2]], BadEntries, r"\(2, 1\)"),
            (HALVES, [1, np.nan], BadEntries, r"levels\[1\]"),
            (HALVES, [1, 3], OffScale, r"levels\[1\]"),
        ],
    )
    def test_distributions(self, metric, distributions, levels, error, match):
        with pytest.raises(error, match=match):
            metric(distributions, levels, scale_levels=[1, 2])

    @pytest.mark.parametrize("count", [0, -1, 2.0, True, None, "2", np.nan])
    def test_counts(self, count):
        with pytest.raises(BadSetting, match="^n "):
            ndcg_score([1, 0], [1, 0], n=count)
        with pytest.raises(BadSetting, match="^n "):
            recall_score([True, False], [1, 0], n=count)
        with pytest.raises(BadSetting, match="^bins") as caught:
            calibration_error(HALVES, [1, 2], scale_levels=[1, 2], bins=count)
        assert str(caught.value).endswith(repr(count))

    def test_an_interval_upside_down(self):
        with pytest.raises(BadEntries, match=r"lower\[1\]"):
            interval_coverage_score([1, 3], [1, 2], [1, 2])

    @pytest.mark.parametrize("bad", [-1.0, np.inf])
    def test_relevances(self, bad):
        with pytest.raises(BadEntries, match=f"{bad:g}"):
            ndcg_score([1, bad], [1, 2], n=1)
        with pytest.raises(BadEntries, match=r"\[1, 0\]"):
            ndcg_score([[1, 1], [bad, 1]], [[1, 2], [1, 2]], n=1)

    def test_relevance_that_is_not_boolean(self):
        with pytest.raises(BadEntries, match="booleans"):
            recall_score([1, 0, 5], [1, 2, 3], n=1)

    def test_nothing_relevant(self):
        with pytest.raises(BadEntries, match="True"):
            recall_score([[False, False], [False, False]], [[1, 2], [1, 2]], n=1)


@pytest.mark.parametrize("n", [1, 3, 10, 25])
def test_ranking_scores_agree_with_torchmetrics(n: int) -> None:
    retrieval = pytest.importorskip("torchmetrics.functional.retrieval", reason="a dependency of development")
    generator = np.random.default_rng(n)
    predictions = generator.permuted(np.tile(np.linspace(0.01, 1, 20), (40, 1)), axis=1)  # no ties
    relevant = generator.random((40, 20)) < generator.uniform(0.02, 0.6, (40, 1))
    relevant[~relevant.any(axis=1), 7] = True

    def average(name: str, **options: int) -> list[float]:
        score = getattr(retrieval, f"retrieval_{name}")
        lists = zip(torch.from_numpy(predictions), torch.from_numpy(relevant), strict=True)
        return [float(score(*each, top_k=n, **options)) for each in lists]

    expected = {
        ndcg_score: average("normalized_dcg"),
        recall_score: average("recall"),
        precision_score: average("precision"),
        hit_rate_score: average("hit_rate"),
        mrr_score: average("reciprocal_rank"),
        # It divides by the relevant items among the n best, and we, as trec_eval, by all relevant items.
        map_score: np.array(average("average_precision")) * average("recall"),
    }
    for score, values in expected.items():
        assert score(relevant, predictions, n=n) == pytest.approx(np.mean(values), abs=1e-6), score.__name__


def test_coverage_and_novelty_by_hand() -> None:
    lists = [[0, 1, 2], [0, 1, -1]]
    assert coverage_score(lists, n_columns=6) == 0.5
    counts = [8, 4, 0, 1, 1, 1]  # of 8 rows: 0, 1 and 3 bits, as if the third column had one entry
    assert novelty_score(lists, counts, n_rows=8) == pytest.approx((0 + 1 + 3 + 0 + 1) / 5)
    for wrong in ([[6]], [[0.5]], [[-1]]):
        with pytest.raises(BadEntries, match="recommended"):
            coverage_score(wrong, n_columns=6)
    with pytest.raises(BadEntries, match="column_counts"):
        novelty_score(lists, [9, 1, 1], n_rows=8)
