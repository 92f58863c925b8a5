"""The penalties of a refinement: chosen by the error on entries that it does not see."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import TrainingDiverged
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.models.ordinal.head import LatentLayout, OrdinalHead
from deepmf.models.ordinal.network import OrdinalNetwork
from deepmf.models.ordinal.views import PaddedEntries, outputs_by_view, outputs_without_each
from deepmf.nn.branch import Branch
from deepmf.nn.inputs import SparseVectors, features_of

# The similarity of two directions at a cosine c is a sum of weight x exp(sharpness (c - 1)): a broad part, .37 at right
# angles, by which errors carry over to all columns, and a sharp one, by which they do to the most similar alone.
_PARTS = ((0.6, 1.0), (0.4, 10.0))  # weights, which sum to 1, and sharpnesses

# What is left of a direction that needs no landmark of its own.
_EXPLAINED = 1e-3

# The least that a landmark has of its own; those that are chosen have 30 times as much.
_LEAST_OWN = 1e-3

# The largest number of directions that landmarks are chosen among.
_LANDMARK_CANDIDATES = 16384


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
    every = max(1, -(-len(directions) // _LANDMARK_CANDIDATES))
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


# How much of a score's offset a unit of the last feature is, and how much of a row's own moves: both move a latent less
# readily than directions do.
_OFFSET_SIZE = 0.3

_MOVE_SIZE = 0.3

# A column with this many entries takes half of what the moves of rows say about its direction.
_TRUSTED_HALF = 5.0

# What is computed at a time: vectors times views, and entries; some 100 MB at 1024 numbers for a latent. A GPU, which
# would mostly wait for its next task, takes more.
_VIEWED_AT_A_TIME = 1024

_ENTRIES_AT_A_TIME = 8192

_MORE_ON_GPU = 16


Solve = Callable[[Tensor, Tensor], Tensor]  # from matrices and right sides to solutions


def cholesky_solved(grams: Tensor, wanted: Tensor) -> Tensor:
    """Return the solutions of systems that a penalty makes positive definite, unless latents are absurdly large."""
    factors, failed = torch.linalg.cholesky_ex(grams)
    if bool(failed.any()):
        raise TrainingDiverged("what was learned is too large to be refined; try a smaller learning_rate")
    return torch.cholesky_solve(wanted, factors)


class RefinedSide(NamedTuple):
    """One side of a network: how it makes latents, what its views see, and which fields of its latents move.

    latents_of: from what the branch gives (batch, outputs) to the network's latents.
    layout: the fields of latents with landmarks.
    placed: from the network's latents (vectors, numbers), and how many entries they come from, to those with landmarks.
    features: from the other side's latents (..., latent) to what a move is along (..., features).
    shared_scores: from latents, and features (vectors, entries, features) of the other side, to what landmarks add to
        the scores of all views alike; None where that is nothing before a move.
    moved: from latents and moves (vectors, features) to the refined latents.
    """

    branch: Branch
    latents_of: Callable[[Tensor], Tensor]
    views: Tensor  # (views, inputs)
    layout: LatentLayout
    placed: Callable[[Tensor, Tensor], Tensor]
    features: Callable[[Tensor], Tensor]
    shared_scores: Callable[[Tensor, Tensor], Tensor] | None
    moved: Callable[[Tensor, Tensor], Tensor]


def row_side(network: OrdinalNetwork, layout: LatentLayout) -> RefinedSide:
    """Return the side of rows: moves along the landmark features of columns, and one of the effect.

    The errors of a row on some columns carry over to similar columns.
    """

    def placed(latents: Tensor, _: Tensor) -> Tensor:
        return _with_landmarks(latents, latents.new_zeros(latents.shape[0], layout.n_landmarks), layout)

    def features(columns: Tensor) -> Tensor:
        return _with_offset(columns[..., layout.landmarks])

    def moved(rows: Tensor, moves: Tensor) -> Tensor:
        latents = rows.clone()
        latents[:, layout.landmarks] = moves[:, :-1]
        latents[:, layout.row_effect] += _OFFSET_SIZE * moves[:, -1]
        return latents

    return RefinedSide(network.rows, network.head.row_latents, network.row_views, layout, placed, features, None, moved)


def column_side(network: OrdinalNetwork, landmarks: Landmarks, layout: LatentLayout) -> RefinedSide:
    """Return the side of columns: moves along the directions and landmark moves of rows, and one of the effect.

    The directions come with the head's scale, which features are freed from. The direction of a column of few entries
    is a guess, about which the moves of rows would say too much: its landmark features are smaller.
    """

    def placed(latents: Tensor, counts: Tensor) -> Tensor:
        counts = counts.to(latents.dtype)
        trust = counts / (counts + _TRUSTED_HALF)
        return _with_landmarks(latents, landmarks.features(latents[:, layout.direction]) * trust[:, None], layout)

    def sizes(latents: Tensor) -> Tensor:
        """Return what a unit of each feature is, in numbers of a row's latent."""
        units = latents.new_full((layout.factors.stop,), _MOVE_SIZE)
        units[layout.direction] = 1.0 / network.head.scale
        return units

    def features(rows: Tensor) -> Tensor:
        return _with_offset(rows[..., layout.factors] * sizes(rows))

    def shared_scores(columns: Tensor, features: Tensor) -> Tensor:
        """Return the products of the landmark fields of columns and of rows."""
        of_columns = columns[:, None, layout.landmarks] / _MOVE_SIZE
        return _products(of_columns, features[..., layout.landmarks]).squeeze(1)

    def moved(columns: Tensor, moves: Tensor) -> Tensor:
        latents = columns.clone()
        latents[:, layout.factors] += moves[:, :-1] * sizes(columns)
        latents[:, layout.column_effect] += _OFFSET_SIZE * moves[:, -1]
        return latents

    return RefinedSide(
        network.columns,
        network.head.column_latents,
        network.column_views,
        layout,
        placed,
        features,
        shared_scores,
        moved,
    )


@dataclass(frozen=True)
class Refinement:
    """A Newton step on the ordinal loss of a vector's own entries, with a ridge penalty.

    A branch is shared by all vectors: its errors on entries that a view does not see still carry information about
    that one vector. The step regresses them, from views that do not see the entry, on
    features of the other side's latents, as a fold-in does. It is linear algebra on one vector's entries: a new vector
    is refined like any other, without training.

    Views are blind to the entry by their directions alone. The features of a column are those of all its views, and
    the latents of trained vectors were refined by the entry too; leaving these out was no better (docs/log.md).

    others: the latents of the other side (inputs, latent).
    response_of: the response parameters (vectors, entries, n) of the rows of some entries, from own latents and what
        views multiply of others.
    penalty: infinity for no refinement.
    solve: the solutions (vectors, unknowns, 1) of positive definite systems.
    """

    head: OrdinalHead
    side: RefinedSide
    others: Tensor
    response_of: Callable[[Tensor, Tensor], Tensor]
    penalty: float
    solve: Solve = cholesky_solved

    def latents(self, vectors: SparseVectors) -> Tensor:
        """Return the refined latents of all vectors: the mean over views, and the step from there."""
        return self.by_penalty(vectors, [self.penalty])[0]

    def by_penalty(self, vectors: SparseVectors, penalties: Sequence[float]) -> Tensor:
        """Return the refined latents (penalties, vectors, latent) by each of some penalties."""
        counts = vectors.starts.diff()
        order = torch.argsort(counts, stable=True)  # vectors of about one length are computed together
        shape = len(penalties), len(vectors), self.others.shape[1]
        refined = torch.empty(shape, dtype=torch.float32, device=self.others.device)
        more = _MORE_ON_GPU if self.others.is_cuda else 1
        most = max(more * _ENTRIES_AT_A_TIME, 2 * (self.others.shape[1] + 1))  # the half of it is more than features
        for ids in _parts(order, counts, len(self.side.views), more):
            entries = PaddedEntries.of(vectors, ids)
            outputs = outputs_by_view(self.side.branch, self.side.views, entries, features_of(vectors, ids))
            refined[:, ids] = self._by_penalty(outputs, entries, penalties, most=most)
        return refined

    def without_each(self, vectors: SparseVectors, left_out: Tensor) -> Tensor:
        """Return the refined latents (left out, latent) of a single vector without each of some of its entries."""
        side, entries = self.side, PaddedEntries.of(vectors, left_out.new_zeros(1))
        real = entries.real.repeat(left_out.numel(), 1)
        real[torch.arange(left_out.numel(), device=left_out.device), left_out] = False
        outputs = outputs_without_each(side.branch, side.views, entries, left_out, vectors.features)
        # What the vectors share is gathered once for some of them: four times as many fit.
        step = max(1, 4 * _ENTRIES_AT_A_TIME // max(1, real.shape[1]))
        parts = [
            self.refined(outputs[start : start + step], entries._replace(real=real[start : start + step]))
            for start in range(0, left_out.numel(), step)
        ]
        return torch.cat(parts)

    def refined(self, outputs: Tensor, entries: PaddedEntries) -> Tensor:
        """Return the refined latents of vectors from what the branch gives for each view (vectors, views, outputs).

        Where `indices` of entries are those of a single vector, all vectors have these, less those that are not real.
        """
        return self._by_penalty(outputs, entries, [self.penalty])[0]

    def _by_penalty(
        self, outputs: Tensor, entries: PaddedEntries, penalties: Sequence[float], *, most: int | None = None
    ) -> Tensor:
        """Return the refined latents by each of some penalties; `most` entries of a vector are computed at a time."""
        by_view = self.side.latents_of(outputs.flatten(0, 1)).reshape(*outputs.shape[:2], -1)
        latents = self.side.placed(by_view.mean(1), entries.real.sum(1))
        if not entries.indices.numel() or not any(map(math.isfinite, penalties)):
            return latents.expand(len(penalties), -1, -1)
        if most is None or entries.indices.shape[1] <= most:
            step = self._step(by_view, latents, entries)
        else:
            step = NewtonStep.total(self._step(by_view, latents, some) for some in entries.split(most))
        moved = [
            self.side.moved(latents, step.moves(penalty, self.solve)) if math.isfinite(penalty) else latents
            for penalty in penalties
        ]
        return torch.stack(moved)

    def _step(self, by_view: Tensor, latents: Tensor, entries: PaddedEntries) -> NewtonStep:
        """Return the step of vectors from their views (vectors, views, numbers) and mean latents, on some entries."""
        indices, units, real = entries
        viewed, features = self._others_at(indices)
        shared = None if self.side.shared_scores is None else self.side.shared_scores(latents, features)
        scores = _blind_scores(by_view, viewed, shared, self.side.views.T[indices])
        return NewtonStep.of(self.head, scores, self.response_of(latents, viewed), units, real, features)

    def _others_at(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return what views multiply, and features, of the other side's latents at (vectors, entries)."""
        if indices.numel() < len(self.others):  # computing them for all would take longer
            return self._terms(self.others[indices])
        flat = indices.flatten()
        viewed, features = (table.index_select(0, flat).view(*indices.shape, -1) for table in self._all_terms)
        return viewed, features

    @cached_property
    def _all_terms(self) -> tuple[Tensor, Tensor]:
        return self._terms(self.others)

    def _terms(self, others: Tensor) -> tuple[Tensor, Tensor]:
        """Return what views multiply of latents, all but landmarks and linear part, and their features."""
        layout = self.side.layout
        viewed = torch.cat([others[..., layout.direction], others[..., layout.row_effect :]], dim=-1)
        return viewed, self.side.features(others)


def _blind_scores(by_view: Tensor, viewed: Tensor, shared: Tensor | None, seen: Tensor) -> Tensor:
    """Return the mean score (vectors, entries) by the views that do not see the entry; by all, where all do.

    What a latent has of landmarks is the same in all of its views.
    """
    scores = _products(by_view, viewed)  # (vectors, views, entries)
    blind = (~seen).mT.float()
    blind = torch.where(blind.any(1, keepdim=True), blind, 1.0)
    mean = (scores * blind).sum(1) / blind.sum(1)
    return mean if shared is None else mean + shared


class NewtonStep(NamedTuple):
    """The weighted regression of each vector's entries that a step solves, for any penalty."""

    features: Tensor  # (vectors or 1, entries, features)
    root: Tensor  # (vectors, entries) the roots of the weights
    wanted: Tensor  # (vectors, entries, 1) what the weighted features should give
    grams: Tensor  # of entries where these are fewer, else of features

    @classmethod
    def of(
        cls, head: OrdinalHead, scores: Tensor, response: Tensor, units: Tensor, real: Tensor, features: Tensor
    ) -> NewtonStep:
        """Return the step on the ordinal loss of entries (vectors, entries) with these scores."""
        chances = head.logits(scores, response).sigmoid()
        slopes = response[..., -1:].exp()
        slope = ((head.above(units) - chances) * slopes).sum(-1)
        curvature = (chances * (1.0 - chances) * slopes.square()).sum(-1).clamp(min=1e-6)
        root = curvature.sqrt() * real
        wanted = torch.where(real, slope / curvature.sqrt(), 0.0)[..., None]  # root * (slope / curvature)
        if features.shape[1] <= features.shape[2]:  # fewer entries than features
            return cls(features, root, wanted, (features @ features.mT) * root[..., None] * root[:, None])
        lines = features * root[..., None]
        return cls(features, root, lines.mT @ wanted, lines.mT @ lines)

    @classmethod
    def total(cls, steps: Iterable[NewtonStep]) -> NewtonStep:
        """Return the step on all entries of vectors, of which each has more than features, from those on some."""
        one_by_one = iter(steps)
        total = next(one_by_one)
        for step in one_by_one:
            total.wanted.add_(step.wanted)
            total.grams.add_(step.grams)
        return total

    def moves(self, penalty: float, solve: Solve) -> Tensor:
        """Return the moves (vectors, features) of each vector, by a ridge penalty."""
        unit = torch.eye(self.grams.shape[-1], dtype=self.grams.dtype, device=self.grams.device)
        solution = solve(self.grams + penalty * unit, self.wanted)
        if self.features.shape[1] <= self.features.shape[2]:
            return _products((solution * self.root[..., None]).mT, self.features.mT).squeeze(1)
        return solution.squeeze(-1)


def _products(vectors: Tensor, others: Tensor) -> Tensor:
    """Return the products (n, lines, others) of batches of vectors with others, of each batch or the same for all."""
    if others.shape[0] == vectors.shape[0]:  # len() would fix the number of vectors in an export
        return vectors @ others.mT
    return (vectors.flatten(0, 1) @ others[0].T).reshape(vectors.shape[0], vectors.shape[1], -1)


def _parts(order: Tensor, counts: Tensor, n_views: int, more: int) -> list[Tensor]:
    """Return the vectors, from few entries to many, in parts that fit into memory together."""
    most, most_entries = max(1, more * _VIEWED_AT_A_TIME // n_views), more * _ENTRIES_AT_A_TIME
    parts, start = [], 0
    lengths = counts[order].tolist()
    while start < len(lengths):
        end = start + 1
        while end < len(lengths) and end - start < most and (end + 1 - start) * lengths[end] <= most_entries:
            end += 1
        parts.append(order[start:end])
        start = end
    return parts


def _with_offset(features: Tensor) -> Tensor:
    return torch.nn.functional.pad(features, (0, 1), value=_OFFSET_SIZE)


def _with_landmarks(latents: Tensor, between: Tensor, layout: LatentLayout) -> Tensor:
    """Return the network's latents with the landmark fields behind the direction, and zeros for the linear part."""
    linear = latents.new_zeros(*latents.shape[:-1], layout.n_linear)
    return torch.cat([latents[..., layout.direction], between, linear, latents[..., layout.n_direction :]], dim=-1)


# From a step that trusts the entries of a vector almost alone to none at all.
_PENALTY_CANDIDATES = (0.75, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0, 400.0, math.inf)

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
    return _PENALTY_CANDIDATES[int(penalty_errors(refinement, vectors_of, held_out, layout, seed=seed).argmin())]


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
    refined = refinement.by_penalty(vectors_of(known).to(device), _PENALTY_CANDIDATES)

    def error(latents: Tensor) -> float:
        rows, columns = (latents[own], others) if held_out.own_are_rows else (others, latents[own])
        logits = refinement.head.logits((rows * columns).sum(1), rows[:, layout.response])
        return float((refinement.head.expected(logits) - values).square().mean().sqrt())

    return np.array([error(latents) for latents in refined])
