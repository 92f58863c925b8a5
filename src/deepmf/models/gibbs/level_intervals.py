"""Intervals of levels that hold as many values as they state.

The probabilities of a few levels cannot add up to a coverage exactly, and tails of real entries are not quite normal.
So an interval aims at another probability than its coverage: the one with which intervals of held-out entries hold the
stated share of them. Distributions stay the same.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.scale import Scale
from deepmf.models.gibbs.prediction import HeldOutPredictions, SampleReadout, load_readout
from deepmf.scoring.distribution import COVERAGES, CalibratedDistribution, PredictiveDistribution, choose_targets
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Form, Part, between, not_falling

# The most held-out entries that are used.
_MOST_HELD_OUT = 8192


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
        self.targets = COVERAGES if targets is None else targets

    def distribution(self, products: npt.NDArray[Any], row_fields: npt.NDArray[Any]) -> PredictiveDistribution:
        """Return the distribution of each product, with spreads of its row, or of its row and column, (pairs, 2)."""
        found = super().distribution(products, row_fields)
        return CalibratedDistribution(found.support, found.boundaries, found.exceedance, self.targets)

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the readout and the targets."""
        return super().pack() | _TARGETS.pack(self).tensors


_TARGETS = Form(
    Part("targets", "float64", COVERAGES.shape, between(0.0, 1.0), not_falling),
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
