"""Calibration: distributions whose reliability is known, and the metrics' own error on drawn
ones."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from deepmf.errors import BadEntries, BadSetting, OffScale
from deepmf.evaluation.calibration import ReliabilityBin, evaluate_calibration, evaluate_intervals
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import calibration_error
from deepmf.models.means import Means


class Oracle:
    """Says of the pair (row, 0) what the row-th line of a table says; its intervals are two
    wide."""

    def __init__(self, levels: list[float], table: Any) -> None:
        self.scale_ = Scale(levels)
        self.table = np.asarray(table, dtype=float)

    def predict_distribution(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        said: FloatArray = self.table[np.asarray(rows)]
        return said

    def predict_interval(
        self, rows: Iterable[Any], columns: Iterable[Any], *, coverage: float = 0.9
    ) -> tuple[FloatArray, FloatArray]:
        lower = np.full(np.asarray(rows).size, 10 * coverage - 8.0)  # 1 for 90 %
        return lower, lower + 2


def entries_of(values: list[float], scale: Scale) -> ObservedMatrix:
    return ObservedMatrix.from_entries(range(len(values)), [0] * len(values), values, scale)


def test_forecasts_that_come_true_as_often_as_they_say() -> None:
    oracle = Oracle([1, 2], [[0.75, 0.25]] * 4)
    held = evaluate_calibration(oracle, entries_of([1, 1, 1, 2], oracle.scale_))
    assert held.bins == (ReliabilityBin(4, 0.25, 0.25), ReliabilityBin(4, 0.75, 0.75))
    assert (held.error, held.n_entries) == (0, 4)


def test_forecasts_that_are_too_sure() -> None:
    oracle = Oracle([1, 2], [[1, 0], [1, 0], [1, 0], [1, 0]])
    held = evaluate_calibration(oracle, entries_of([1, 2, 2, 1], oracle.scale_))
    # 1 is in the last bin
    assert held.bins == (ReliabilityBin(4, 0.0, 0.5), ReliabilityBin(4, 1.0, 0.5))
    assert held.error == 0.5


def test_coverage_and_width_of_intervals() -> None:
    oracle = Oracle([1, 2, 3, 4], [[0.25] * 4] * 5)
    test = entries_of([1, 2, 3, 4, 4], oracle.scale_)
    held = evaluate_calibration(oracle, test)  # from 1 to 3
    assert (held.wanted_coverage, held.coverage, held.width) == (
        0.9,
        pytest.approx(0.6),
        pytest.approx(2),
    )
    # from 2 to 4
    assert evaluate_calibration(oracle, test, coverage=1.0).coverage == pytest.approx(0.8)


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_the_error_is_that_of_the_metric_however_large_the_batches(bins: int) -> None:
    dice = np.random.default_rng(0)
    table = dice.dirichlet([0.5, 1, 2], size=500)
    oracle = Oracle([1, 2, 5], table)
    values = dice.choice([1, 2, 5], size=500)
    test = entries_of(values.tolist(), oracle.scale_)
    whole = evaluate_calibration(oracle, test, bins=bins)
    assert whole.error == pytest.approx(
        calibration_error(table, values, scale_levels=[1, 2, 5], bins=bins)
    )
    assert sum(each.n_forecasts for each in whole.bins) == 1500
    parts = evaluate_calibration(oracle, test, bins=bins, batch_size=100)
    assert (parts.error, parts.coverage, parts.width) == pytest.approx(
        (whole.error, whole.coverage, whole.width)
    )
    assert [each.observed for each in parts.bins] == pytest.approx(
        [each.observed for each in whole.bins]
    )


def test_who_says_how_likely_levels_are() -> None:
    means = Means().fit(entries_of([1, 2], Scale([1, 2])))
    assert not means.gives_distribution
    with pytest.raises(BadSetting, match="distribution"):
        evaluate_calibration(means, entries_of([1, 2], Scale([1, 2])))


def test_what_cannot_be_calibrated_on() -> None:
    oracle = Oracle([1, 2], [[0.5, 0.5]])
    with pytest.raises(BadEntries, match="entries"):
        evaluate_calibration(
            oracle, entries_of([1], oracle.scale_).take_entries(np.empty(0, dtype=np.intp))
        )
    with pytest.raises(OffScale, match="7"):
        evaluate_calibration(oracle, entries_of([7], Scale([1, 7])))


def test_intervals_of_several_coverages_on_real_values() -> None:
    class Normal:
        """Says that all values are drawn from the standard normal distribution, as they are."""

        def predict_interval(
            self, rows: Iterable[Any], columns: Iterable[Any], *, coverage: float = 0.9
        ) -> tuple[FloatArray, FloatArray]:
            half = np.full(np.asarray(rows).size, norm.ppf((1 + coverage) / 2))
            return -half, half

    values = np.random.default_rng(0).normal(size=140_000)  # two batches
    held = evaluate_intervals(Normal(), entries_of(values.tolist(), Scale(low=-10, high=10)))
    assert [each.wanted for each in held] == [0.5, 0.8, 0.9, 0.95]
    for each in held:
        assert each.n_entries == 140_000
        assert each.coverage == pytest.approx(each.wanted, abs=4 * each.margin)
        assert each.width == pytest.approx(2 * norm.ppf((1 + each.wanted) / 2))
        assert each.margin == pytest.approx(
            np.sqrt(each.wanted * (1 - each.wanted) / 140_000), rel=0.05
        )
    with pytest.raises(BadEntries, match="entries"):
        evaluate_intervals(
            Normal(), entries_of([1], Scale([1])).take_entries(np.empty(0, dtype=np.intp))
        )
