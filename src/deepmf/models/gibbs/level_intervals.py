"""Intervals of levels that hold as many values as they state.

The probabilities of a few levels cannot add up to a coverage exactly, and tails of real entries are not quite normal.
So an interval aims at another probability than its coverage: the one with which intervals of held-out entries hold the
stated share of them. Distributions stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.scale import Scale
from deepmf.models.gibbs.prediction import HeldOutPredictions, SampleReadout, load_readout
from deepmf.scoring.distribution import PredictiveDistribution
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Form, Part, between, not_falling

# Coverages with a target each, and the steps in which the least target of an entry is found.
_COVERAGES = np.linspace(0.0, 1.0, 21)
_BISECTIONS = 12

# The most held-out entries that are used, and how many entries count as held by intervals of just their coverage.
_MOST_HELD_OUT, _PRIOR_COUNT = 8192, 100


def choose_targets(found: PredictiveDistribution, values: FloatArray) -> FloatArray:
    """Return the target of each of `_COVERAGES`, at which intervals hold that share of values (pairs,).

    It is the quantile of the least targets at which intervals hold each value.
    """
    low, high = np.zeros(values.size), np.ones(values.size)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        lower, upper = found.interval(middle)  # type: ignore[arg-type]  # a coverage for each pair
        holds = (lower <= values) & (values <= upper)
        low, high = np.where(holds, low, middle), np.where(holds, middle, high)
    as_stated = (np.arange(_PRIOR_COUNT) + 0.5) / _PRIOR_COUNT
    targets: FloatArray = np.quantile(np.concatenate([high, as_stated]), _COVERAGES)
    return targets


@dataclass(frozen=True)
class CalibratedDistribution(PredictiveDistribution):
    """A distribution over levels whose intervals aim at targets, those of `choose_targets`."""

    targets: FloatArray

    def ends(self, coverage: float, scale: Scale) -> FloatArray:
        """Return both ends of prediction intervals on a scale, (pairs, 2)."""
        return super().ends(float(np.interp(coverage, _COVERAGES, self.targets)), scale)


class CalibratedReadout(SampleReadout):
    """The readout of levels with targets of intervals; default: targets are the coverages."""

    def __init__(self, plain: SampleReadout, targets: FloatArray | None = None) -> None:
        super().__init__(
            plain.scale,
            plain.support,
            plain.unit_boundaries,
            cutpoints=plain.cutpoints,
            noise=plain.noise,
            spread=plain.spread,
        )
        self.targets = _COVERAGES if targets is None else targets

    def distribution(self, products: npt.NDArray[Any], row_fields: npt.NDArray[Any]) -> PredictiveDistribution:
        """Return the distribution of each product, with spreads of its row, or of its row and column, (pairs, 2)."""
        found = super().distribution(products, row_fields)
        return CalibratedDistribution(found.support, found.boundaries, found.exceedance, self.targets)

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the readout and the targets."""
        return super().pack() | _TARGETS.pack(self).tensors


_TARGETS = Form(
    Part("targets", "float64", _COVERAGES.shape, between(0.0, 1.0), not_falling),
    prefix="readout",
)


def calibrate_intervals(readout: SampleReadout, held_out: HeldOutPredictions | None) -> SampleReadout:
    """Return a readout whose intervals of levels hold the stated shares of held-out entries."""
    if readout.scale.levels is None:
        return readout
    if held_out is None:
        return CalibratedReadout(readout)
    held_out = held_out.sample(_MOST_HELD_OUT)
    found = readout.distribution(held_out.means, held_out.spreads)
    return CalibratedReadout(readout, choose_targets(found, held_out.values))


def load_calibrated(scale: Scale, tensors: Tensors) -> SampleReadout:
    """Return the readout that `pack` described; raise `BadModelFile` for anything else."""
    readout = load_readout(scale, tensors)
    if scale.levels is None:
        return readout
    return CalibratedReadout(readout, **_TARGETS.read({}, tensors))
