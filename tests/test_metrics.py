"""The metrics against scikit-learn, torchmetrics and plain re-statements, and on answers known by
construction."""

import math

import numpy as np
import pytest
import sklearn.metrics as reference
import torch
from hypothesis import given, settings, strategies as st

from deepmf.errors import BadEntries, BadSetting, OffScale
from deepmf.metrics import (
    calibration_error,
    interval_coverage_score,
    mae_error,
    rmse_error,
    score_lists,
)

# Unequally spaced, so that a metric that counts values where it should count positions shows.
SCALE = np.array([0.5, 1.0, 3.0, 4.0, 10.0])

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 40)


def for_all(*strategies, **named_strategies):
    """Run a test on drawn examples, however slow the machine is."""
    return lambda test: settings(deadline=None)(given(*strategies, **named_strategies)(test))


def drawn_forecasts(seed, n_pairs):
    """Return distributions (pairs, levels), some of them certain, and actual levels (pairs,)."""
    generator = np.random.default_rng(seed)
    distributions = generator.dirichlet(np.full(SCALE.size, 0.5), n_pairs)
    certain = generator.random(n_pairs) < 0.1
    distributions[certain] = np.eye(SCALE.size)[generator.integers(SCALE.size, size=certain.sum())]
    return distributions, generator.choice(SCALE, n_pairs)


class TestAgainstScikitLearn:
    @pytest.mark.slow
    @for_all(seeds, sizes)
    def test_rmse_and_mae(self, seed, n_pairs):
        predictions, values = np.random.default_rng(seed).normal(3, 2, (2, n_pairs))
        assert rmse_error(predictions, values) == pytest.approx(
            reference.root_mean_squared_error(values, predictions)
        )
        assert rmse_error(predictions, values) ** 2 == pytest.approx(
            reference.mean_squared_error(values, predictions)
        )
        assert mae_error(predictions, values) == pytest.approx(
            reference.mean_absolute_error(values, predictions)
        )


class TestAgainstPlainRestatements:
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
        inside = [
            low <= value <= high for low, high, value in zip(lower, upper, values, strict=True)
        ]
        assert interval_coverage_score(lower, upper, values) == pytest.approx(sum(inside) / n_pairs)


class TestKnownAnswers:
    def test_a_scale_of_one_level(self):
        sure = [[1.0], [1.0]]
        assert calibration_error(sure, [4, 4], scale_levels=[4]) == 0

    def test_calibration_bins_hold_their_lower_end(self):
        # 0.5 lies in the upper of two bins; in the lower one its gap would cancel those of 0.25.
        error = calibration_error([[0.5, 0.25, 0.25]], [1], scale_levels=[1, 2, 3], bins=2)
        assert error == pytest.approx((0.5 + 0.5) / 3)

    def test_the_last_calibration_bin_holds_one(self):
        # 1.0 shares the upper of two bins with 0.75, so that their gaps 1 and -0.25 add up.
        error = calibration_error([[1.0, 0.0], [0.75, 0.25]], [2, 1], scale_levels=[1, 2], bins=2)
        assert error == pytest.approx((0.75 + 0.75) / 4)

    def test_lists_shorter_than_n_are_held_against_n_relevant_items(self):
        found = score_lists(np.array([[True]]), np.array([3]), n=3)
        assert found.ndcg[0] == pytest.approx(1 / (1 + 1 / np.log2(3) + 1 / 2))
        assert (found.precision[0], found.recall[0]) == (1 / 3, 1 / 3)


class TestProperties:
    def test_true_probabilities_are_calibrated(self):
        generator = np.random.default_rng(0)
        distributions = generator.dirichlet(np.ones(SCALE.size), 20_000)
        draws = (generator.random((20_000, 1)) > np.cumsum(distributions, axis=1)[:, :-1]).sum(
            axis=1
        )
        assert calibration_error(distributions, SCALE[draws], scale_levels=SCALE) < 0.01
        sharpened = distributions**3 / np.sum(distributions**3, axis=1, keepdims=True)
        assert calibration_error(sharpened, SCALE[draws], scale_levels=SCALE) > 0.05


TWO_VECTORS = {
    "rmse_error": rmse_error,
    "mae_error": mae_error,
    "interval_coverage_score": lambda first, second: interval_coverage_score(first, second, second),
}
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
        with pytest.raises(BadEntries, match=r"\(pairs,\)"):
            metric(1, 1)
        with pytest.raises(BadEntries, match=r"\(1, 1, 1\)"):
            metric([[[1]]], [[[1]]])

    @pytest.mark.parametrize("metric", [rmse_error, mae_error])
    def test_infinite_numbers(self, metric):
        with pytest.raises(BadEntries, match=r"^predict\w+\[1\]"):
            metric([1, np.inf], [1, np.inf])
        with pytest.raises(BadEntries, match="-inf"):
            metric([1, 2], [-np.inf, 2])

    @pytest.mark.parametrize("metric", [rmse_error, interval_coverage_score])
    def test_a_column_is_not_broadcast_against_a_row(self, metric):
        arguments = [np.ones((2, 1)), np.ones(2), np.ones(2)]
        with pytest.raises(BadEntries, match=r"\(2, 1\)"):
            metric(*(arguments if metric is interval_coverage_score else arguments[:2]))

    @pytest.mark.parametrize(
        "scale_levels", [[], [2, 1], [1, 1], [1, np.nan], [1, np.inf], [[1, 2]], 1, ["low"]]
    )
    def test_scale_levels(self, scale_levels):
        with pytest.raises((BadSetting, BadEntries), match="scale_levels"):
            calibration_error(HALVES, [1, 2], scale_levels=scale_levels)

    @pytest.mark.parametrize(
        ("distributions", "levels", "error", "match"),
        [
            (HALVES, [1], BadEntries, r"\(2, 2\)"),
            ([[0.5, 0.25, 0.25]], [1], BadEntries, r"\(1, 3\)"),
            ([0.5, 0.5], [1, 2], BadEntries, r"\(2, 2\)"),
            ([[0.5, 0.5], [0.5, 0.4]], [1, 2], BadEntries, r"0\.9"),
            ([[1, 1]], [1], BadEntries, "sum"),
            ([[np.inf, 0]], [1], BadEntries, "inf"),
            ([[1.25, -0.25]], [1], BadEntries, r"-0\.25"),
            ([[np.nan, 1]], [1], BadEntries, "nan"),
            ([["a", "b"]], [1], BadEntries, "'b'"),
            (np.empty((0, 2)), [], BadEntries, "empty"),
            (HALVES, [], BadEntries, "empty"),
            (HALVES, [[1], [2]], BadEntries, r"\(2, 1\)"),
            (HALVES, [1, np.nan], BadEntries, r"levels\[1\]"),
            (HALVES, [1, 3], OffScale, r"levels\[1\]"),
        ],
    )
    def test_distributions(self, distributions, levels, error, match):
        with pytest.raises(error, match=match):
            calibration_error(distributions, levels, scale_levels=[1, 2])

    @pytest.mark.parametrize("count", [0, -1, 2.0, True, None, "2", np.nan])
    def test_counts(self, count):
        with pytest.raises(BadSetting, match="^bins") as caught:
            calibration_error(HALVES, [1, 2], scale_levels=[1, 2], bins=count)
        assert str(caught.value).endswith(repr(count))

    def test_an_interval_upside_down(self):
        with pytest.raises(BadEntries, match=r"lower\[1\]"):
            interval_coverage_score([1, 3], [1, 2], [1, 2])


@pytest.mark.parametrize("n", [1, 3, 10, 25])
def test_ranking_scores_agree_with_torchmetrics(n: int) -> None:
    retrieval = pytest.importorskip(
        "torchmetrics.functional.retrieval", reason="a dependency of development"
    )
    generator = np.random.default_rng(n)
    predictions = generator.permuted(np.tile(np.linspace(0.01, 1, 20), (40, 1)), axis=1)  # no ties
    relevant = generator.random((40, 20)) < generator.uniform(0.02, 0.6, (40, 1))
    relevant[~relevant.any(axis=1), 7] = True

    def average(name: str, **options: int) -> list[float]:
        score = getattr(retrieval, f"retrieval_{name}")
        lists = zip(torch.from_numpy(predictions), torch.from_numpy(relevant), strict=True)
        return [float(score(*each, top_k=n, **options)) for each in lists]

    expected = {
        "ndcg": average("normalized_dcg"),
        "recall": average("recall"),
        "precision": average("precision"),
        "hit_rate": average("hit_rate"),
        "mrr": average("reciprocal_rank"),
        # It divides by the relevant items among the n best, and we, as trec_eval, by all relevant
        # items.
        "map": np.array(average("average_precision")) * average("recall"),
    }
    best = np.argsort(-predictions, axis=1)[:, :n]
    found = score_lists(np.take_along_axis(relevant, best, axis=1), relevant.sum(axis=1), n=n)
    for name, values in expected.items():
        assert getattr(found, name) == pytest.approx(np.array(values), abs=1e-6), name
