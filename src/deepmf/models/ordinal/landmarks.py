"""Landmarks: a few directions, and the features of any direction by its similarity to each of them (Nyström)."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

# The similarity of two directions at a cosine c is a sum of weight x exp(sharpness (c - 1)): a broad part, .37 at right
# angles, by which errors carry over to all columns, and a sharp one, by which they do to the most similar alone.
_PARTS = ((0.6, 1.0), (0.4, 10.0))  # weights, which sum to 1, and sharpnesses
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
        factor = torch.linalg.cholesky(self._similarities(self._directions))
        one = torch.eye(len(self), dtype=torch.float64, device=factor.device)
        turn: Tensor = torch.linalg.solve_triangular(factor, one, upper=False)
        return turn

    def are_apart(self) -> bool:
        """Return whether these can be landmarks: at most of length 1, none of them explained by the others."""
        if not len(self) or bool((self._directions.norm(dim=1) > 1.001).any()):
            return not len(self)
        factor, failed = torch.linalg.cholesky_ex(self._similarities(self._directions))
        return not bool(failed) and bool((factor.diagonal() > _LEAST_OWN).all())

    def features(self, directions: Tensor) -> Tensor:
        """Return the features (directions, landmarks) of any directions."""
        return (self._similarities(directions) @ self._turn.T).float()

    def _similarities(self, directions: Tensor) -> Tensor:
        """Return the similarity of each direction to each landmark, in double precision."""
        return _similarity(directions.double() @ self._directions.double().T)


def landmarks_among(directions: Tensor, most: int) -> Tensor:
    """Return the positions of landmarks: one by one, that which those before explain least."""
    every = max(1, -(-len(directions) // _CANDIDATES))
    candidates = torch.arange(0, len(directions), every, device=directions.device)
    directions = directions[candidates]
    unexplained = _similarity(directions.square().sum(1))  # of each to itself
    features = directions.new_zeros(len(directions), min(most, len(directions)))
    chosen: list[int] = []
    while len(chosen) < features.shape[1]:
        position = int(unexplained.argmax())
        if unexplained[position] < _EXPLAINED:
            break
        similarities = _similarity(directions @ directions[position])
        feature = (similarities - features @ features[position]) / unexplained[position].sqrt()
        features[:, len(chosen)] = feature
        unexplained = (unexplained - feature.square()).clamp(min=0.0)
        chosen.append(position)
    return candidates[chosen]


def _similarity(cosines: Tensor) -> Tensor:
    """Return the similarities of directions (the kernel) by their cosines."""
    parts = [weight * (sharpness * (cosines - 1.0)).exp() for weight, sharpness in _PARTS]
    return torch.stack(parts).sum(0)
