"""Where ALS starts: column effects, and the leading singular vectors of what effects leave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.factorization.factorization_settings import ALSSettings
from deepmf.models.factorization.low_rank import Sparse, sparse_of, truncated_svd

# Passes of the subspace iteration that the start comes from; more start lower, and end no better.
_START_PASSES = 4


def first_column_factors(train: ObservedMatrix, settings: ALSSettings) -> LatentArray:
    """Return column factors to start from (columns, latent + 1): shrunk means, and what the rest shows at once.

    Without latents, the objective falls fastest along the leading singular vectors of what the effects leave, each row
    and column divided by the root of its share of the penalty: in those units the penalty is the same for all.
    """
    size = min(settings.latent_size, *train.shape)
    residuals, effects = subtract_effects(train, settings.effect_penalty)
    row_units, column_units = (
        np.maximum(counts, 1.0) ** (-settings.count_power / 2) for counts in (train.row_counts, train.column_counts)
    )
    scaled = (residuals * row_units[train.entry_rows] * column_units[train.by_row.columns]).astype(np.float32)
    # In single precision, which takes half the time and is more than the start needs.
    directions = np.random.default_rng(settings.seed).standard_normal((train.shape[1], size), dtype=np.float32)
    leading = truncated_svd(Sparse.of(sparse_of(train, scaled)), start=directions, steps=_START_PASSES)
    vectors = leading.column_vectors * np.sqrt(leading.values) * column_units[:, None]
    return np.column_stack([vectors, effects]).astype(np.float32)


class WithoutEffects(NamedTuple):
    """What effects leave of the values, and the effects of columns."""

    residuals: FloatArray
    column_effects: FloatArray


def subtract_effects(train: ObservedMatrix, shrinkage: float) -> WithoutEffects:
    """Return what shrunk means of columns, then of rows, leave of the values, and the column effects."""
    left = train.values.astype(np.float64) - train.mean
    effects: list[FloatArray] = []
    for which, counts in ((train.by_row.columns, train.column_counts), (train.entry_rows, train.row_counts)):
        sums = np.bincount(which, weights=left, minlength=counts.size)
        effects.append(sums / (np.maximum(counts, 1) + shrinkage))
        left = left - effects[-1][which]
    return WithoutEffects(left, effects[0])
