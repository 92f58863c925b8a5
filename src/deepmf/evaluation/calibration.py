"""Calibration of predicted distributions and intervals: reliability, calibration error,
coverage."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepmf.errors import BadEntries
from deepmf.evaluation.areas import group_by_known
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import interval_coverage_score

# Nominal coverages of intervals.
COVERAGES = (0.5, 0.8, 0.9, 0.95)

# Probabilities handled at a time: about 100 MB with intermediate results.
BATCH_SIZE = 1 << 22

# Intervals computed at a time; each takes a probability for every bin of the model.
_INTERVALS_AT_A_TIME = 1 << 17


@dataclass(frozen=True)
class ReliabilityBin:
    """Forecasts of similar probability: their mean, and the share of them that came true."""

    n_forecasts: int
    forecast: float
    observed: float

    @property
    def margin(self) -> float:
        """The standard error of `observed`."""
        return share_margin(self.observed, self.n_forecasts)


@dataclass(frozen=True)
class IntervalCoverage:
    """The share of test values inside intervals of nominal coverage `wanted`, and the mean width of
    the intervals."""

    n_entries: int
    wanted: float
    coverage: float
    width: float

    @property
    def margin(self) -> float:
        """The standard error of `coverage`."""
        return share_margin(self.coverage, self.n_entries)


@dataclass(frozen=True)
class CertaintyByCount:
    """How true probabilities are for rows with `first` to `last` known entries.

    interval: the coverage and width of their intervals. error: the expected calibration error of
        levels; None on a scale without levels.
    """

    first: int
    last: int | None
    interval: IntervalCoverage
    error: float | None


def share_margin(share: float, n: int) -> float:
    """Return the standard error of a share of n, with one success and one failure added so that it
    is never 0.

    >>> round(share_margin(0.5, 100), 3), round(share_margin(1.0, 4), 3)
    (0.05, 0.186)
    """
    smooth = (share * n + 1) / (n + 2)
    return math.sqrt(smooth * (1 - smooth) / n)


@dataclass(frozen=True)
class Calibration:
    """The agreement of predicted probabilities with test entries.

    Attributes
    ----------
    n_entries : number of test entries; each gives one forecast for every level.
    bins : reliability bins from low to high probabilities, without empty bins.
    error : expected calibration error over the bins, as in `metrics.calibration_error`.
    wanted_coverage, coverage, width : nominal coverage of the intervals, the share of values inside
        them, and their mean width.
    """

    n_entries: int
    bins: tuple[ReliabilityBin, ...]
    error: float
    wanted_coverage: float
    coverage: float
    width: float


def evaluate_calibration(
    model: Any,
    test: ObservedMatrix,
    *,
    coverage: float = 0.9,
    bins: int = 15,
    batch_size: int = BATCH_SIZE,
) -> Calibration:
    """Measure the calibration of the distributions that a model predicts for test entries, in bins
    of equal width.

    batch_size: the number of probabilities that are handled at a time.
    """
    inside = evaluate_intervals(model, test, wanted=(coverage,))[0]
    rows, columns, values = test.entries()
    positions = model.scale_.level_positions(values)
    n_levels = 0 if model.scale_.levels is None else model.scale_.levels.size
    counts, forecasts, outcomes = np.zeros(bins), np.zeros(bins), np.zeros(bins)
    step = max(batch_size // n_levels, 1)
    for span in (slice(start, start + step) for start in range(0, values.size, step)):
        probabilities = model.predict_distribution(rows[span], columns[span])
        came_true = positions[span, None] == np.arange(n_levels)
        bin_of_each = np.minimum((probabilities * bins).astype(np.intp), bins - 1).ravel()
        counts += np.bincount(bin_of_each, minlength=bins)
        forecasts += np.bincount(bin_of_each, weights=probabilities.ravel(), minlength=bins)
        outcomes += np.bincount(bin_of_each, weights=came_true.ravel(), minlength=bins)
    return Calibration(
        n_entries=values.size,
        bins=tuple(
            ReliabilityBin(int(count), forecast / count, outcome / count)
            for count, forecast, outcome in zip(
                counts.tolist(), forecasts.tolist(), outcomes.tolist(), strict=True
            )
            if count
        ),
        error=float(np.sum(np.abs(forecasts - outcomes)) / np.sum(counts)),
        wanted_coverage=coverage,
        coverage=inside.coverage,
        width=inside.width,
    )


def evaluate_intervals(
    model: Any, test: ObservedMatrix, *, wanted: Iterable[float] = COVERAGES
) -> list[IntervalCoverage]:
    """Measure the coverage and width of the predicted intervals on test entries, for each nominal
    coverage."""
    if test.n_entries == 0:
        raise BadEntries("the test matrix has no entries to measure calibration on")
    rows, columns, values = test.entries()
    coverages = []
    for share in wanted:
        n_inside = width = 0.0
        for start in range(0, values.size, _INTERVALS_AT_A_TIME):
            span = slice(start, start + _INTERVALS_AT_A_TIME)
            lower, upper = model.predict_interval(rows[span], columns[span], coverage=share)
            n_inside += interval_coverage_score(lower, upper, values[span]) * lower.size
            width += float(np.sum(upper - lower))
        coverages.append(
            IntervalCoverage(values.size, share, n_inside / values.size, width / values.size)
        )
    return coverages


def evaluate_certainty_by_count(
    model: Any, test: ObservedMatrix, *, coverage: float = 0.9
) -> list[CertaintyByCount]:
    """Measure intervals, and the probabilities of levels, on test entries by the number of known
    entries of their rows."""
    certainties = []
    for first, last, places in group_by_known(model, test):
        entries = test.take_entries(places)
        (interval,) = evaluate_intervals(model, entries, wanted=(coverage,))
        error = None
        if model.scale_.levels is not None:
            error = evaluate_calibration(model, entries, coverage=coverage).error
        certainties.append(CertaintyByCount(first, last, interval, error))
    return certainties
