"""Ordered answers: the levels of a scale or the bins of an interval, and distributions over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix

# Added to the count of every answer, so that one that nobody gave still has a chance.
_PRIOR_COUNT = 0.5


class OrdinalSupport(NamedTuple):
    """What can be answered, in increasing order.

    boundaries: between neighbours, in units of [-1, 1]; a value above one belongs to the answers above it.
    exceeded: for each boundary the share of entries above it.
    """

    answers: list[float]
    boundaries: list[float]
    exceeded: list[float]


def ordinal_support(matrix: ObservedMatrix, *, n_bins: int) -> OrdinalSupport:
    """Return the levels of a matrix; where it has none, the means of (at most) so many bins of equal frequency.

    >>> ordinal_support(ObservedMatrix.from_entries([0, 0, 1], [0, 1, 1], [1, 3, 3]), n_bins=8).answers
    [1.0, 3.0]
    """
    scale = matrix.scale
    values = matrix.values.astype(np.float64)
    if scale.levels is not None:
        boundaries = (scale.levels[:-1] + scale.levels[1:]) / 2.0
        answers = scale.levels
        counts = np.bincount(np.searchsorted(boundaries, values), minlength=answers.size)
    else:
        boundaries = np.unique(np.quantile(values, np.arange(1, n_bins) / n_bins))
        bin_of = np.searchsorted(boundaries, values)
        counts = np.bincount(bin_of, minlength=boundaries.size + 1)
        ends = np.clip(np.concatenate([[scale.low], boundaries, [scale.high]]), scale.low, scale.high)
        middles = (ends[:-1] + ends[1:]) / 2.0
        sums = np.bincount(bin_of, weights=values, minlength=counts.size)
        answers = np.where(counts > 0, sums / np.maximum(counts, 1), middles)
    smooth = counts + _PRIOR_COUNT
    exceeded = 1.0 - np.cumsum(smooth)[:-1] / smooth.sum()
    return OrdinalSupport(answers.tolist(), scale.to_unit(boundaries).tolist(), exceeded.tolist())


@dataclass(frozen=True)
class PredictiveDistribution:
    """Distributions over ordered answers.

    exceeded: (pairs, answers - 1) the chance of more than each answer but the last.
    boundaries: between neighbouring answers, in the units of the answers.
    """

    answers: FloatArray
    boundaries: FloatArray
    exceeded: FloatArray

    @property
    def distribution(self) -> FloatArray:
        """The probability of each answer (pairs, answers)."""
        return -np.diff(self.exceeded, axis=1, prepend=1.0, append=0.0)

    def best(self, metric: str) -> FloatArray:
        """Return the most probable answer ("accuracy"), or the median ("mae")."""
        if metric == "accuracy":
            chosen: FloatArray = self.answers[self.distribution.argmax(axis=1)]
            return chosen
        median: FloatArray = self.answers[(self.exceeded > 0.5).sum(axis=1)]
        return median

    def interval(self, coverage: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the interval of answers whose probability is nearest to a coverage.

        It grows from the likeliest answer, each time to the likelier neighbour. A few answers cannot add up to the
        coverage exactly; at least so much would be far more on average, the nearest is right on average.
        """
        chances = np.pad(self.distribution, ((0, 0), (1, 1)), constant_values=-1.0)  # nothing lies beyond the ends
        pairs = np.arange(len(chances))
        first = last = chances.argmax(axis=1)
        inside = chances[pairs, first]
        best_first, best_last, smallest_gap = first, last, np.abs(inside - coverage)
        for _ in range(self.answers.size - 1):
            down = chances[pairs, first - 1] >= chances[pairs, last + 1]
            first, last = first - down, last + ~down
            inside = inside + chances[pairs, np.where(down, first, last)]
            nearer = np.abs(inside - coverage) < smallest_gap
            smallest_gap = np.where(nearer, np.abs(inside - coverage), smallest_gap)
            best_first, best_last = np.where(nearer, first, best_first), np.where(nearer, last, best_last)
        return self.answers[best_first - 1], self.answers[best_last - 1]

    def quantiles(self, share: float) -> FloatArray:
        """Return the value that each distribution exceeds with probability 1 - share; within a bin all are as likely.

        The outermost bins are taken to lie around their means.
        """
        inner, answers = self.boundaries, self.answers
        edges = np.concatenate([[2 * answers[0] - inner[0]], inner, [2 * answers[-1] - inner[-1]]])
        below = np.pad(1.0 - self.exceeded, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0)))
        bin_of = (below[:, 1:-1] < share).sum(axis=1)
        pairs = np.arange(bin_of.size)
        start, width = below[pairs, bin_of], below[pairs, bin_of + 1] - below[pairs, bin_of]
        part = np.divide(share - start, width, out=np.full(start.shape, 0.5), where=width > 0)
        quantiles: FloatArray = edges[bin_of] + np.clip(part, 0.0, 1.0) * (edges[bin_of + 1] - edges[bin_of])
        return quantiles
