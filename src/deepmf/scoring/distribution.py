"""Distributions over ordered values: the levels of a scale, or the bins of an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from deepmf.errors import BadSetting, show_value
from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, SingleArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.scoring.effects import SHRINKAGE

# Added to the count of every value, so that one that never occurs still has a probability above 0.
_PRIOR_COUNT = 0.5

# The outermost bins of an interval are halved this often, and as long as they have some entries.
_HALVED, _MOST_HALVED, _FEWEST_IN_BIN = 5, 8, 8

# Calibration: the steps of coverage from 0 to 1, the number of perfectly calibrated values that are
# added to those held out, and the smallest rise of stated coverages as a share of a step.
_COVERAGE_STEPS, _STATED_COUNT, _LEAST_RISE = 20, 100, 1e-6

# Targets of intervals: the coverages with a target each, and how many entries count as held by
# intervals of just their coverage.
COVERAGES = np.linspace(0.0, 1.0, _COVERAGE_STEPS + 1)
_HELD_COUNT = 100

# Log-odds are those of probabilities at least this far from 0 and 1.
_LEAST_CHANCE = 1e-12

# Bisections that place a cutpoint to a millionth of the range of values.
_CUTPOINT_STEPS = 24

# Shifted distributions: the largest change of log-odds, the steps in which it is found, and how
# near their means come to the ends of the support, as a share of its width.
_MOST_LOG_ODDS, _SHIFT_STEPS, _END_MARGIN = 40.0, 40, 0.01


class OrdinalSupport(NamedTuple):
    """The values of a distribution, in increasing order: levels, or the means of bins.

    boundaries: between neighbours, in units of [-1, 1]; numbers above a boundary belong to the next
        value.
    exceedance: the share of entries above each boundary.
    """

    values: list[float]
    boundaries: list[float]
    exceedance: list[float]


def find_support(matrix: ObservedMatrix, *, n_bins: int) -> OrdinalSupport:
    """Return the levels of a matrix; where it has none, the means of about `n_bins` bins.

    >>> find_support(ObservedMatrix.from_entries([0, 0, 1], [0, 1, 1], [1, 3, 3]), n_bins=8).values
    [1.0, 3.0]
    """
    scale = matrix.scale
    values = matrix.values.astype(np.float64)
    if scale.levels is not None:
        boundaries = (scale.levels[:-1] + scale.levels[1:]) / 2.0
        support = scale.levels
        counts = np.bincount(
            np.searchsorted(boundaries, values), matrix.weights, minlength=support.size
        )
    else:
        # an outlier does not move the mean of its bin
        values = np.clip(values, scale.low, scale.high)
        boundaries = np.unique(np.quantile(values, _sum_shares_below(n_bins, values.size)))
        bin_of = np.searchsorted(boundaries, values)
        counts = np.bincount(bin_of, minlength=boundaries.size + 1)
        ends = np.clip(
            np.concatenate([[scale.low], boundaries, [scale.high]]), scale.low, scale.high
        )
        middles = (ends[:-1] + ends[1:]) / 2.0
        sums = np.bincount(bin_of, weights=values, minlength=counts.size)
        support = np.where(counts > 0, sums / np.maximum(counts, 1), middles)
    smooth = counts + _PRIOR_COUNT
    exceedance = 1.0 - np.cumsum(smooth)[:-1] / smooth.sum()
    return OrdinalSupport(support.tolist(), scale.to_unit(boundaries).tolist(), exceedance.tolist())


def _sum_shares_below(n_bins: int, n_entries: int) -> FloatArray:
    """Return the share of entries below each boundary of bins: of equal frequency, and halved
    towards both ends.

    If all bins were equally frequent, the mean of the outermost bin would stand for a whole tail,
    and no larger value could be expected.

    >>> _sum_shares_below(4, 100).tolist()
    [0.25, 0.5, 0.75]
    >>> (1 / _sum_shares_below(16, 100)[:4]).tolist()
    [48.0, 24.0, 12.0, 6.0]
    """
    n_halved = min(2 * (n_bins // 16), _HALVED)
    n_alike = n_bins - 2 * n_halved
    if n_halved:
        n_filled = int(np.log2(max(1.0, n_entries / n_alike / _FEWEST_IN_BIN)))
        n_halved = max(n_halved, min(n_filled, _MOST_HALVED))
    tail = 0.5 ** np.arange(n_halved, 0, -1) / n_alike
    return np.concatenate([tail, np.arange(1, n_alike) / n_alike, 1.0 - tail[::-1]])


class Frequencies(NamedTuple):
    """The shares of values between boundaries, by which those of few entries are smoothed."""

    scale: Scale
    unit_boundaries: SingleArray
    shares: FloatArray  # (values,)

    @classmethod
    def of(cls, train: ObservedMatrix, unit_boundaries: SingleArray) -> Frequencies:
        """Return the shares among all entries, with half an entry added to each value."""
        values: Array = train.values  # in single precision
        every_entry = AxisEntries(
            np.array([0, values.size]), train.by_row.columns, values, extras=train.extras
        )
        plain = cls(train.scale, unit_boundaries, np.empty(0))
        counts = plain.count_values(every_entry)[0] + _PRIOR_COUNT
        return plain._replace(shares=counts / np.sum(counts))

    @property
    def are_of_levels(self) -> bool:
        """Whether the values are levels."""
        return self.scale.levels is not None

    def count_values(self, entries: AxisEntries) -> Array:
        """Count the values of each group by their weights, (groups, values)."""
        n_groups, n_bins = entries.starts.size - 1, self.unit_boundaries.size + 1
        # In the precision of the boundaries: a value that is one itself lies below it.
        bins = np.searchsorted(
            self.unit_boundaries, self.scale.to_unit(entries.values).astype(np.float32)
        )
        cells = entries.group_of * n_bins + bins
        counts = np.bincount(cells, entries.extras.weights, minlength=n_groups * n_bins)
        return counts.reshape(n_groups, n_bins)

    def smooth(self, entries: AxisEntries) -> FloatArray:
        """Return the shares in each group, with five entries at those of all added, (groups,
        values)."""
        counts = self.count_values(entries)
        smoothed: FloatArray = (counts + SHRINKAGE * self.shares) / (
            counts.sum(axis=1, keepdims=True) + SHRINKAGE
        )
        return smoothed

    def find_boundaries(self, thresholds: FloatArray) -> IndexArray:
        """Return the boundary below each of some levels; the first one where there is none."""
        assert self.scale.levels is not None
        places = np.searchsorted(self.scale.levels, thresholds)
        return np.clip(places, 1, max(self.unit_boundaries.size, 1)) - 1


def find_odds(exceedance: FloatArray) -> FloatArray:
    """Return the log-odds of probabilities."""
    odds: FloatArray = special.logit(np.clip(exceedance, _LEAST_CHANCE, 1.0 - _LEAST_CHANCE))
    return odds


class Interval(NamedTuple):
    """The lower and upper ends of prediction intervals, both included."""

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class PredictiveDistribution:
    """Distributions over ordered values, one for each pair.

    support: the values, in increasing order.
    boundaries: between neighbouring values, in their units.
    exceedance: (pairs, values - 1) the probability of exceeding each value but the last.
    """

    support: FloatArray
    boundaries: FloatArray
    exceedance: FloatArray

    @classmethod
    def of_probabilities(
        cls, support: FloatArray, boundaries: FloatArray, probabilities: FloatArray
    ) -> PredictiveDistribution:
        """Return the distributions with these probabilities (pairs, values)."""
        exceedance: FloatArray = 1.0 - np.cumsum(probabilities, axis=1)[:, :-1]
        return cls(support, boundaries, exceedance)

    @property
    def probabilities(self) -> FloatArray:
        """The probability of each value (pairs, values)."""
        return 0.0 - np.diff(self.exceedance, axis=1, prepend=1.0, append=0.0)  # never -0.0

    def widen(self, variances: FloatArray) -> PredictiveDistribution:
        """Return distributions to which variances (pairs,) are added: all log-odds are nearer to
        0."""
        probabilities, within = self.probabilities, np.square(np.diff(self.edges)) / 12.0
        squares = probabilities @ (np.square(self.support) + within)
        variances_before = np.maximum(
            squares - np.square(probabilities @ self.support), 1e-12 * squares
        )
        factors = np.sqrt(1.0 + variances / variances_before)[:, None]
        return replace(self, exceedance=special.expit(find_odds(self.exceedance) / factors))

    def best(self, metric: str) -> FloatArray:
        """Return the most probable value ("accuracy"), or the median ("mae")."""
        if metric == "accuracy":
            chosen: FloatArray = self.support[self.probabilities.argmax(axis=1)]
            return chosen
        median: FloatArray = self.support[(self.exceedance > 0.5).sum(axis=1)]
        return median

    def shift(self, amounts: FloatArray) -> PredictiveDistribution:
        """Return distributions whose means are larger by some amounts (pairs,), up to just before
        the ends.

        The log-odds of exceeding each value move by one number for each pair, as if its score had
        changed.
        """
        moved_pairs = np.flatnonzero(amounts)
        if moved_pairs.size == 0 or self.support.size == 1:
            return self
        gaps = np.diff(self.support)
        odds = find_odds(self.exceedance[moved_pairs])
        means, width = self.exceedance[moved_pairs] @ gaps, gaps.sum()  # above the first value
        target_means = np.clip(
            means + amounts[moved_pairs],
            np.minimum(means, _END_MARGIN * width),
            np.maximum(means, (1.0 - _END_MARGIN) * width),
        )
        steps, low, high = (
            np.full(moved_pairs.size, end) for end in (0.0, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        )
        # of Newton, or of bisection where that would leave the interval
        for _ in range(_SHIFT_STEPS):
            chances = special.expit(odds + steps[:, None])
            missing = target_means - chances @ gaps
            low, high = np.where(missing > 0, steps, low), np.where(missing < 0, steps, high)
            newton = steps + missing / np.maximum((chances * (1.0 - chances)) @ gaps, 1e-300)
            steps = np.where((newton >= low) & (newton <= high), newton, (low + high) / 2.0)
        exceedance = self.exceedance.copy()
        exceedance[moved_pairs] = special.expit(odds + steps[:, None])
        return replace(self, exceedance=exceedance)

    def exceed(self, thresholds: FloatArray) -> FloatArray:
        """Return the probability that the value of each pair is at least a threshold (pairs,).

        Within a bin, all values are equally likely.
        """
        if self.support.size == 1:
            return np.asarray(self.support[0] >= thresholds, dtype=np.float64)
        chances = np.pad(self.exceedance, ((0, 0), (1, 1)), constant_values=((0, 0), (1.0, 0.0)))
        pairs, edges = np.arange(thresholds.size), self.edges
        above = np.clip(np.searchsorted(edges, thresholds, side="right") - 1, 0, edges.size - 2)
        widths = edges[above + 1] - edges[above]
        part = np.divide(
            thresholds - edges[above], widths, out=np.zeros(above.size), where=widths > 0
        ).clip(0.0, 1.0)
        return chances[pairs, above] + part * (chances[pairs, above + 1] - chances[pairs, above])

    @property
    def least_targets(self) -> FloatArray:
        """The probability that an interval must exceed to hold each value, (pairs, values).

        Intervals grow from the likeliest value, each time to the likelier neighbour.
        """
        # nothing lies beyond the ends
        chances = np.pad(self.probabilities, ((0, 0), (1, 1)), constant_values=-1.0)
        pairs, targets = np.arange(len(chances)), np.zeros_like(chances)
        first = last = chances.argmax(axis=1)
        inside = chances[pairs, first]
        for _ in range(self.support.size - 1):
            down = chances[pairs, first - 1] >= chances[pairs, last + 1]
            first, last = first - down, last + ~down
            neighbour = np.where(down, first, last)
            targets[pairs, neighbour] = inside
            inside = inside + chances[pairs, neighbour]
        return targets[:, 1:-1]

    def interval(self, coverage: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the smallest interval of values with at least some probability."""
        # the likeliest value, whose target is 0, is always inside
        are_inside = self.least_targets < np.reshape(np.maximum(coverage, _LEAST_CHANCE), (-1, 1))
        last = self.support.size - 1 - are_inside[:, ::-1].argmax(axis=1)
        return self.support[are_inside.argmax(axis=1)], self.support[last]

    def measure_coverages(self, values: FloatArray, *, seed: int) -> FloatArray:
        """Return the stated coverages, (21,), of central intervals that hold the shares 0, .05, ...
        1 of the values.

        A value with a probability of its own, such as a level, gets a random place within it, drawn
        with the seed.
        """
        edges, pairs = self.edges, np.arange(values.size)
        bin_of = np.searchsorted(self.boundaries, values)
        widths = (edges[1:] - edges[:-1])[bin_of]
        uniform = np.random.default_rng(seed).random(values.size)
        part = np.divide(values - edges[bin_of], widths, out=uniform, where=widths > 0)
        shares = np.pad(
            1.0 - self.exceedance, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0))
        )
        below, above = shares[pairs, bin_of], shares[pairs, bin_of + 1]
        from_median = np.abs(2.0 * (below + np.clip(part, 0.0, 1.0) * (above - below)) - 1.0)
        as_stated = (np.arange(_STATED_COUNT) + 0.5) / _STATED_COUNT
        stated: FloatArray = np.quantile(np.concatenate([from_median, as_stated]), COVERAGES)
        stated[0], stated[-1] = 0.0, 1.0
        return COVERAGES + (1.0 - _LEAST_RISE) * (stated - COVERAGES)

    def choose_coverages(self, values: FloatArray, *, of_levels: bool, seed: int = 0) -> FloatArray:
        """Return the calibration of intervals by held-out values: targets on levels, otherwise
        stated coverages."""
        if not of_levels:
            return self.measure_coverages(values, seed=seed)
        as_stated = (np.arange(_HELD_COUNT) + 0.5) / _HELD_COUNT
        places = np.searchsorted(self.support, values)
        of_values = self.least_targets[np.arange(values.size), places]
        targets: FloatArray = np.quantile(np.concatenate([of_values, as_stated]), COVERAGES)
        return targets

    def calibrate(self, stated: FloatArray, reach: FloatArray | float = 1.0) -> Self:
        """Return distributions with the same medians, whose central intervals state the shares of
        values they hold.

        stated: the result of `measure_coverages` for held-out values. reach: how far the calibration
            reaches, of all pairs or of each, (pairs, 1): 0 not at all, 1 wholly.
        """
        from_median = 2.0 * self.exceedance - 1.0
        shares = np.abs(from_median)
        shares_held = np.interp(shares, stated, np.linspace(0.0, 1.0, stated.size))
        shares += reach * (shares_held - shares)
        return replace(self, exceedance=(1.0 + np.sign(from_median) * shares) / 2.0)

    def ends(self, coverage: float, scale: Scale) -> FloatArray:
        """Return both ends of prediction intervals on a scale, (pairs, 2)."""
        if scale.levels is not None:
            return np.stack(self.interval(coverage), axis=1)
        tails = [self.quantiles((1.0 + side * coverage) / 2.0) for side in (-1, 1)]
        return scale.clip(np.stack(tails, axis=1))

    def sample(self, shares: FloatArray, scale: Scale) -> FloatArray:
        """Return a value of each distribution: its quantile at a share (pairs,), drawn uniformly
        from 0 to 1."""
        if scale.levels is None:
            return scale.clip(self.quantiles(shares))
        levels: FloatArray = self.support[(1.0 - self.exceedance < shares[:, None]).sum(axis=1)]
        return levels

    def quantiles(self, share: float | FloatArray) -> FloatArray:
        """Return the value that each distribution exceeds with probability 1 - share; a bin is
        uniform.

        The outermost bins are taken to lie around their means.
        """
        edges = self.edges
        below = np.pad(
            1.0 - self.exceedance, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0))
        )
        bin_of = (below[:, 1:-1] < np.reshape(share, (-1, 1))).sum(axis=1)
        pairs = np.arange(bin_of.size)
        start, width = below[pairs, bin_of], below[pairs, bin_of + 1] - below[pairs, bin_of]
        part = np.divide(share - start, width, out=np.full(start.shape, 0.5), where=width > 0)
        quantiles: FloatArray = edges[bin_of] + np.clip(part, 0.0, 1.0) * (
            edges[bin_of + 1] - edges[bin_of]
        )
        return quantiles

    @property
    def edges(self) -> FloatArray:
        """The edges of bins, (values + 1,): the boundaries, and the outermost ones mirrored at the
        outermost means."""
        inner, support = self.boundaries, self.support
        return np.concatenate([[2 * support[0] - inner[0]], inner, [2 * support[-1] - inner[-1]]])


@dataclass(frozen=True)
class CalibratedDistribution(PredictiveDistribution):
    """Distributions whose intervals aim at targets, one for each of `COVERAGES`, so that they hold
    these shares.

    reach: how far targets replace coverages for each pair, (pairs,): 0 not at all, 1 wholly.
    """

    targets: FloatArray
    reach: FloatArray | float = 1.0

    def interval(self, coverage: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        targets = np.interp(coverage, COVERAGES, self.targets)
        return super().interval(coverage + self.reach * (targets - coverage))


def place_cutpoints(
    cumulate: Callable[[FloatArray], FloatArray],
    means: FloatArray,
    deviations: FloatArray,
    n_above: IndexArray,
) -> FloatArray:
    """Return the cutpoints above which distributions expect some numbers of values, (cutpoints,).

    cumulate: the symmetric cumulative distribution function of (value - mean) / deviation.
    means, deviations: of the distributions, (entries,).
    """
    targets = np.clip(n_above, 0.5, means.size - 0.5)
    reach = (np.log(2.0 * means.size) + 1.0) * float(deviations.max())
    low = np.full(targets.size, float(means.min()) - reach)
    high = np.full(targets.size, float(means.max()) + reach)
    for _ in range(_CUTPOINT_STEPS):
        middle = (low + high) / 2.0
        expected = cumulate((means[:, None] - middle) / deviations[:, None]).sum(axis=0)
        low, high = (
            np.where(expected > targets, middle, low),
            np.where(expected > targets, high, middle),
        )
    cutpoints: FloatArray = (low + high) / 2.0
    return cutpoints


def check_coverage(coverage: float) -> None:
    """Refuse a coverage that is not between 0 and 1."""
    if not isinstance(coverage, int | float) or not 0.0 < coverage < 1.0:
        raise BadSetting(f"coverage must be between 0 and 1; got {show_value(coverage)}")
