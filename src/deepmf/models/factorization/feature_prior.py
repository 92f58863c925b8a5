"""What features say of the factors of ALS: a ridge regression of all factors of a side, learned sweep by sweep."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.feature_vectors import FeatureVectors
from deepmf.models.factorization.factorization_settings import ALSSettings
from deepmf.models.feature_ridge import FeatureRidge


class FeaturePrior:
    """What the features of one side say of its factors: their product with weights that are learned sweep by sweep."""

    def __init__(self, features: FeatureVectors, latents: FeatureRidge, effects: FeatureRidge, width: int) -> None:
        self._features, self._latents, self._effects = features, latents, effects
        self.weights: LatentArray = np.zeros((features.n_inputs, width), dtype=np.float32)

    @classmethod
    def of(
        cls, features: AxisFeatures | None, counts: IndexArray, latent_ridges: Any, settings: ALSSettings, width: int
    ) -> FeaturePrior | None:
        """Return the prior of a side, with weights of 0; None where there are no features.

        latent_ridges: the penalty of the latents of each row (or column), by which it counts for what features say of
        these. For the effects every entry counts the same: a new row or column is predicted at its entries, and there
        are more of those of popular ones, whose effects are larger.
        """
        if features is None:
            return None
        vectors = features.take(np.arange(counts.size))
        latents, effects = (
            FeatureRidge(vectors, each, settings.feature_penalty) for each in (latent_ridges, counts.astype(np.float64))
        )
        return cls(vectors, latents, effects, width)

    def factors(self) -> LatentArray:
        """Return what the features say of the factors."""
        return self._features.product(self.weights)

    def learn(self, factors: LatentArray) -> None:
        """Regress factors on the features."""
        weights = np.column_stack([self._latents.weights(factors[:, :-1]), self._effects.weights(factors[:, -1:])])
        self.weights = weights.astype(np.float32)
