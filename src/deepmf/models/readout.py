"""Readouts: from the score of a pair to a value, a level or a distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.scale import Scale
from deepmf.models.predictive_distribution import PredictiveDistribution

LEVEL_METRICS = ("rmse", "mae", "accuracy")

_NO_DISTRIBUTION = "this model predicts a value, not a distribution; OrdinalDMF, ICFNADE and UCFNADE do both"


class Readout:
    """The plain readout: products of latents are scores in the scale's units, and predictions once they are clipped.

    row_fields: which numbers of a row's latent are no factors of the product, but read here (none, mostly).
    predicts_levels: whether predictions are levels.
    gives_distribution: whether it gives a distribution over the levels.
    ranks_by_products: whether rankings go by products, because these order columns as scores do, which take longer.
    """

    row_fields: slice = slice(0, 0)
    predicts_levels: bool = False
    gives_distribution: bool = False
    ranks_by_products: bool = False

    def __init__(self, scale: Scale) -> None:
        self.scale = scale

    def scores(self, products: npt.NDArray[Any], row_fields: LatentArray) -> npt.NDArray[Any]:
        """Return the scores (...) of products (...) in rows with these fields (..., fields); larger is better."""
        return products

    def units(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return scores in the scale's units, inside its ends."""
        return self.scale.clip(scores)

    def values(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return predictions."""
        return self.units(scores)

    def levels(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return legal levels."""
        return self.scale.nearest_level(self.values(scores))

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return what it has learned as tensors by name."""
        return {}

    @property
    def support(self) -> FloatArray:
        """The values that a distribution is over."""
        raise BadSetting(_NO_DISTRIBUTION)

    @property
    def unit_boundaries(self) -> npt.NDArray[np.float32]:
        """The boundaries between the values of the support, in units of [-1, 1]."""
        raise BadSetting(_NO_DISTRIBUTION)

    def distribution(self, products: npt.NDArray[Any], row_fields: LatentArray) -> PredictiveDistribution:
        """Return the distributions over levels of products (pairs,)."""
        raise BadSetting(_NO_DISTRIBUTION)


class LevelReadout(Readout):
    """Predictions are the levels nearest to scores."""

    predicts_levels = True

    def values(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return levels."""
        return self.scale.nearest_level(scores)


class BoundaryReadout(Readout):
    """Predictions are levels, separated by learned boundaries between neighbouring ones."""

    predicts_levels = True

    def __init__(self, scale: Scale, boundaries: FloatArray) -> None:
        super().__init__(scale)
        self.boundaries = boundaries

    def values(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return levels."""
        return self.levels(scores)

    def levels(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return levels."""
        return self.scale.level_of(scores, self.boundaries)

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the boundaries."""
        return {"boundaries": self.boundaries}


def check_levels(scale: Scale, metric: str) -> None:
    """Refuse to predict levels on a scale that has none, or by a metric that does not exist."""
    if scale.levels is None:
        raise BadSetting(f"the scale {scale} has no levels; predict gives real values")
    if metric not in LEVEL_METRICS:
        raise BadSetting(f"metric must be {' or '.join(map(repr, LEVEL_METRICS))}; got {metric!r}")
