"""Landmarks: a few directions, and the features of any direction by its similarity to each of them (Nyström)."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

# The similarity of two directions is exp(4 (<x, y> - 1)): 1 where they agree, .02 at right angles.
_SHARPNESS = 4.0
# What is left of a direction that needs no landmark of its own.
_EXPLAINED = 1e-3
# The least that a landmark has of its own; those that are chosen have 30 times as much.
_LEAST_OWN = 1e-3
# The largest number of directions that landmarks are chosen among.
_CANDIDATES = 16384


class Landmarks:
    """Features of directions whose inner products are the similarities (a kernel) of two of them.

    A linear model on directions themselves changes its predictions for all of them at once; on these features it can
    change those for a few similar ones alone. Exact features would need a number for every direction there is;
    landmarks need one each (a partial Cholesky decomposition of the kernel).

    directions: those of the landmarks (landmarks, latent).
    """

    def __init__(self, directions: Tensor) -> None:
        self._directions = directions

    def __len__(self) -> int:
        return len(self._directions)

    @cached_property
    def _turn(self) -> Tensor:
        """The inverse of the kernel's Cholesky factor: from similarities with the landmarks to features."""
        factor = torch.linalg.cholesky(_likeness(self._directions.double(), self._directions.double()))
        one = torch.eye(len(self), dtype=torch.float64, device=factor.device)
        turn: Tensor = torch.linalg.solve_triangular(factor, one, upper=False)
        return turn

    def are_apart(self) -> bool:
        """Return whether these can be landmarks: at most of length 1, none of them explained by the others."""
        if not len(self) or bool((self._directions.norm(dim=1) > 1.001).any()):
            return not len(self)
        factor, failed = torch.linalg.cholesky_ex(_likeness(self._directions.double(), self._directions.double()))
        return not bool(failed) and bool((factor.diagonal() > _LEAST_OWN).all())

    def features(self, directions: Tensor) -> Tensor:
        """Return the features (directions, landmarks) of any directions."""
        likeness = _likeness(directions.double(), self._directions.double())
        return (likeness @ self._turn.T).float()


def landmarks_among(directions: Tensor, most: int) -> Tensor:
    """Return the positions of landmarks: one by one, that which those before explain least."""
    every = max(1, -(-len(directions) // _CANDIDATES))
    candidates = torch.arange(0, len(directions), every, device=directions.device)
    directions = directions[candidates]
    unexplained = (_SHARPNESS * (directions.square().sum(1) - 1.0)).exp()  # the similarity of each to itself
    features = directions.new_zeros(len(directions), min(most, len(directions)))
    chosen: list[int] = []
    while len(chosen) < features.shape[1]:
        position = int(unexplained.argmax())
        if unexplained[position] < _EXPLAINED:
            break
        likeness = _likeness(directions, directions[position : position + 1])[:, 0]
        feature = (likeness - features @ features[position]) / unexplained[position].sqrt()
        features[:, len(chosen)] = feature
        unexplained = (unexplained - feature.square()).clamp(min=0.0)
        chosen.append(position)
    return candidates[chosen]


def _likeness(directions: Tensor, others: Tensor) -> Tensor:
    return (_SHARPNESS * (directions @ others.T - 1.0)).exp()
