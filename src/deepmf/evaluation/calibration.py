"""Calibration of predicted distributions and intervals: reliability, calibration error, coverage."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deepmf.errors import BadEntries
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import interval_coverage_score

# The shares that intervals should hold.
COVERAGES = (0.5, 0.8, 0.9, 0.95)


# Probabilities looked at together: some 100 MB with what is computed from them.
_FORECASTS_AT_A_TIME = 1 << 22

_INTERVALS_AT_A_TIME = 1 << 17  # of as many bins as a model has


class IntervalGiving(Protocol):
    """A fitted model that gives intervals."""

    def predict_interval(
        self, rows: Iterable[Any], columns: Iterable[Any], *, coverage: float = 0.9
    ) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper ends (pairs,) of intervals that should hold so large a share of the values."""


class Distributional(IntervalGiving, Protocol):
    """A fitted model that says how likely each level is."""

    @property
    def scale_(self) -> Scale:
        """The scale, which has levels."""

    def predict_distribution(self, rows: Iterable[Any], columns: Iterable[Any]) -> FloatArray:
        """Return the probability (pairs, levels) of each level for each pair of a row and a column."""


@dataclass(frozen=True)
class ReliabilityBin:
    """All forecasts of about one probability: their mean, and the share of them that came true."""

    n_forecasts: int
    forecast: float
    observed: float

    @property
    def margin(self) -> float:
        """The standard error of `observed`."""
        return share_margin(self.observed, self.n_forecasts)


@dataclass(frozen=True)
class IntervalCoverage:
    """The share of test values that lie inside intervals that should hold `wanted` of them, and their mean width."""

    n_entries: int
    wanted: float
    coverage: float
    width: float

    @property
    def margin(self) -> float:
        """The standard error of `coverage`."""
        return share_margin(self.coverage, self.n_entries)


def share_margin(share: float, n: int) -> float:
    """Return the standard error of a share of n, one success and one failure added: above 0 also where all came true.

    >>> round(share_margin(0.5, 100), 3), round(share_margin(1.0, 4), 3)
    (0.05, 0.186)
    """
    smooth = (share * n + 1) / (n + 2)
    return math.sqrt(smooth * (1 - smooth) / n)


@dataclass(frozen=True)
class Calibration:
    """How far forecasts and outcomes agree on test entries.

    Each pair gives a forecast for every level: "the value is this level". `bins` go from low to high probabilities and
    leave out those without forecasts. `error` is the expected calibration error over them (that of
    `metrics.calibration_error`), `coverage` the share of values that lie inside an interval that should hold
    `wanted_coverage` of them, and `width` the mean width of these intervals.
    """

    n_entries: int
    bins: tuple[ReliabilityBin, ...]
    error: float
    wanted_coverage: float
    coverage: float
    width: float


def calibration(model: Distributional, test: ObservedMatrix, *, coverage: float = 0.9, bins: int = 15) -> Calibration:
    """Compare the distributions of a model with the levels of test entries, in bins of equal width."""
    if test.n_entries == 0:
        raise BadEntries("there is nothing to calibrate on: the test matrix has no entries")
    rows, columns, values = test.entries()
    positions = model.scale_.level_positions(values)
    n_levels = 0 if model.scale_.levels is None else model.scale_.levels.size
    counts, forecasts, outcomes = np.zeros(bins), np.zeros(bins), np.zeros(bins)
    n_inside = width = 0.0
    step = max(_FORECASTS_AT_A_TIME // n_levels, 1)
    for some in (slice(start, start + step) for start in range(0, values.size, step)):
        probabilities = model.predict_distribution(rows[some], columns[some])
        came_true = positions[some, None] == np.arange(n_levels)
        bin_of_each = np.minimum((probabilities * bins).astype(np.intp), bins - 1).ravel()
        counts += np.bincount(bin_of_each, minlength=bins)
        forecasts += np.bincount(bin_of_each, weights=probabilities.ravel(), minlength=bins)
        outcomes += np.bincount(bin_of_each, weights=came_true.ravel(), minlength=bins)
        lower, upper = model.predict_interval(rows[some], columns[some], coverage=coverage)
        n_inside += interval_coverage_score(lower, upper, values[some]) * lower.size
        width += float(np.sum(upper - lower))
    return Calibration(
        n_entries=values.size,
        bins=tuple(
            ReliabilityBin(int(count), forecast / count, outcome / count)
            for count, forecast, outcome in zip(counts.tolist(), forecasts.tolist(), outcomes.tolist(), strict=True)
            if count
        ),
        error=float(np.sum(np.abs(forecasts - outcomes)) / np.sum(counts)),
        wanted_coverage=coverage,
        coverage=n_inside / values.size,
        width=width / values.size,
    )


def interval_coverages(
    model: IntervalGiving, test: ObservedMatrix, *, wanted: Iterable[float] = COVERAGES
) -> list[IntervalCoverage]:
    """Compare the intervals of a model with test entries, of levels or of real values, for each of some coverages."""
    if test.n_entries == 0:
        raise BadEntries("there is nothing to compare intervals with: the test matrix has no entries")
    rows, columns, values = test.entries()
    found = []
    for share in wanted:
        n_inside = width = 0.0
        for start in range(0, values.size, _INTERVALS_AT_A_TIME):
            some = slice(start, start + _INTERVALS_AT_A_TIME)
            lower, upper = model.predict_interval(rows[some], columns[some], coverage=share)
            n_inside += interval_coverage_score(lower, upper, values[some]) * lower.size
            width += float(np.sum(upper - lower))
        found.append(IntervalCoverage(values.size, share, n_inside / values.size, width / values.size))
    return found
