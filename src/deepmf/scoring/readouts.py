"""Readouts: what scores say, such as predictions on the scale and probabilities of levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deepmf.errors import BadSetting, check_choice
from deepmf.matrix.arrays import Array, FloatArray, LatentArray, SingleArray
from deepmf.matrix.scale import Scale

if TYPE_CHECKING:
    from deepmf.scoring.distribution import PredictiveDistribution

# The smallest probability of which a logarithm is taken.
LEAST_PROBABILITY = 1e-9

LEVEL_METRICS = ("rmse", "mae", "accuracy")

NO_DISTRIBUTION = (
    "predicts a value, not a distribution; models such as OrdinalDMF and BayesianMF predict both"
)


class Readout:
    """Turns the locations of members, such as products of latents, into scores and predictions.

    This plain readout takes products as scores in the scale's units, and clips them to predictions.
    With a `support`, it belongs to a model that predicts distributions.

    predicts_levels: whether predictions are levels.
    ranks_by_products: whether rankings use products, which order columns as scores do and are
        faster to compute.
    """

    predicts_levels: bool = False
    ranks_by_products: bool = False

    def __init__(
        self,
        scale: Scale,
        support: FloatArray | None = None,
        unit_boundaries: SingleArray | None = None,
    ) -> None:
        self.scale = scale
        self._support, self._unit_boundaries = support, unit_boundaries

    def scores(self, products: Array, row_fields: LatentArray) -> Array:
        """Return the scores (...) of products (...) in rows with these fields (..., fields); larger
        is better."""
        return products

    def units(self, scores: Array) -> FloatArray:
        """Return scores in the scale's units, between its ends."""
        return self.scale.clip(scores)

    def values(self, scores: Array) -> FloatArray:
        """Return predictions."""
        return self.units(scores)

    def pack(self) -> dict[str, Array]:
        """Return the learned parameters as tensors by name."""
        return {}

    @property
    def as_chosen(self) -> Readout:
        """The readout of cells that a row chooses, by which relevance is judged; others may be for
        any cell."""
        return self

    def calibrate(self, found: PredictiveDistribution) -> PredictiveDistribution:
        """Return distributions that a predictor computed itself as those that the readout stands
        for."""
        return found

    @property
    def gives_distribution(self) -> bool:
        """Whether the model predicts distributions."""
        return self._support is not None

    @property
    def support(self) -> FloatArray:
        """The values of a distribution: the levels, or the means of bins."""
        if self._support is None:
            raise BadSetting(f"this model {NO_DISTRIBUTION}")
        return self._support

    @property
    def unit_boundaries(self) -> SingleArray:
        """The boundaries between neighbouring values of the support, in units of [-1, 1]."""
        if self._unit_boundaries is None:
            raise BadSetting(f"this model {NO_DISTRIBUTION}")
        return self._unit_boundaries

    def distribution(self, products: Array, row_fields: LatentArray) -> PredictiveDistribution:
        """Return the distributions over the support for products (pairs,)."""
        raise BadSetting(f"this model {NO_DISTRIBUTION}")

    def widen(
        self, products: Array, row_fields: LatentArray, variances: FloatArray
    ) -> PredictiveDistribution:
        """Return the distributions for products (pairs,), with variances (pairs,) added."""
        return self.distribution(products, row_fields).widen(variances)

    def lower_ends(self, levels: FloatArray) -> FloatArray:
        """Return the lowest values that round to some levels; on a scale without levels, the levels
        as given."""
        if self.scale.levels is None:
            return levels
        return self._level_ends[np.searchsorted(self.scale.levels, levels)]

    def find_logits(
        self, row_fields: LatentArray, thresholds: FloatArray
    ) -> tuple[LatentArray, LatentArray] | None:
        """Return slopes and cutpoints (rows,): slope * product - cutpoint is the logit of P(value
        >= threshold).

        None if the probabilities are not logistic in the products.
        """
        return None

    def log_exceedance(
        self, products: Array, row_fields: LatentArray, thresholds: FloatArray
    ) -> Array:
        """Return the logarithms of P(value >= threshold) for products (rows, columns), on a scale
        with levels; fields and thresholds by row."""
        raise BadSetting(f"this model {NO_DISTRIBUTION}")

    @property
    def _level_ends(self) -> FloatArray:
        """The lower ends of the levels, in the scale's units; nothing lies below the first."""
        levels = self.scale.levels
        assert levels is not None
        return np.concatenate([[-np.inf], (levels[:-1] + levels[1:]) / 2.0, [np.inf]])


class LevelReadout(Readout):
    """Predictions are the levels nearest to scores."""

    predicts_levels = True

    def values(self, scores: Array) -> FloatArray:
        return self.scale.nearest_level(scores)


class BoundaryReadout(Readout):
    """Predictions are levels, separated by learned boundaries between neighbouring ones."""

    predicts_levels = True

    def __init__(self, scale: Scale, boundaries: FloatArray) -> None:
        super().__init__(scale)
        self.boundaries = boundaries

    def values(self, scores: Array) -> FloatArray:
        return self.scale.level_of(scores, self.boundaries)

    def pack(self) -> dict[str, Array]:
        return {"boundaries": self.boundaries}

    @property
    def _level_ends(self) -> FloatArray:
        return np.concatenate([[-np.inf], self.boundaries, [np.inf]])


def check_levels(scale: Scale, metric: str) -> None:
    """Refuse to predict levels on a scale without levels, or by an unknown metric."""
    if scale.levels is None:
        raise BadSetting(f"the scale {scale} has no levels; predict gives real values")
    check_choice("metric", metric, LEVEL_METRICS)
