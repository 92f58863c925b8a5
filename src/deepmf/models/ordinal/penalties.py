"""The penalties of a refinement: chosen by the error on entries that it does not see."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.models.ordinal.latent_layout import LatentLayout
from deepmf.models.ordinal.refinement import Refinement

# From a step that trusts the entries of a vector almost alone to none at all.
_CANDIDATES = (0.75, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0, 400.0, math.inf)
# The most vectors that candidates are compared on.
_COMPARED_ON = 1024

VectorsOf = Callable[[IndexArray], SparseVectors]  # from the positions of some vectors to these


class Penalties(NamedTuple):
    """The ridge penalties of the refinement of rows and of columns; infinity: no refinement."""

    rows: float
    columns: float


class HeldOutSide(NamedTuple):
    """Entries that a refinement does not see, from the side of the vectors that it refines."""

    own: IndexArray  # the positions of these vectors
    others: IndexArray  # the positions on the other side
    values: FloatArray
    own_are_rows: bool


def best_penalty(
    refinement: Refinement, vectors_of: VectorsOf, held_out: HeldOutSide, layout: LatentLayout, *, seed: int
) -> float:
    """Return the penalty whose refined vectors predict held-out entries best."""
    return _CANDIDATES[int(penalty_errors(refinement, vectors_of, held_out, layout, seed=seed).argmin())]


def penalty_errors(
    refinement: Refinement, vectors_of: VectorsOf, held_out: HeldOutSide, layout: LatentLayout, *, seed: int
) -> FloatArray:
    """Return the root mean squared error on held-out entries by each candidate."""
    device = refinement.others.device
    known = np.unique(held_out.own)
    if known.size > _COMPARED_ON:
        known = np.sort(np.random.default_rng(seed).choice(known, _COMPARED_ON, replace=False))
    used = np.isin(held_out.own, known)
    own = torch.from_numpy(np.searchsorted(known, held_out.own[used])).to(device)
    others = refinement.others[torch.from_numpy(held_out.others[used]).to(device)]
    values = torch.from_numpy(held_out.values[used]).to(device)
    refined = refinement.by_penalty(vectors_of(known).to(device), _CANDIDATES)

    def error(latents: Tensor) -> float:
        rows, columns = (latents[own], others) if held_out.own_are_rows else (others, latents[own])
        logits = refinement.head.logits((rows * columns).sum(1), rows[:, layout.response])
        return float((refinement.head.expected(logits) - values).square().mean().sqrt())

    return np.array([error(latents) for latents in refined])
