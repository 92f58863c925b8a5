"""Refinement: a penalised Newton step of each latent on the ordinal loss of its own entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from deepmf.errors import TrainingDiverged
from deepmf.layers.input_channels import apply_mask
from deepmf.layers.vectors import Batch, SparseVectors
from deepmf.models.ordinal.landmarks import Landmarks
from deepmf.models.ordinal.latent_layout import LatentLayout
from deepmf.models.ordinal.ordinal_head import OrdinalHead
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork, visible_to

# How much of a score's offset a unit of the last feature is, and how much of a row's own moves: both move a latent less
# readily than directions do.
_OFFSET_SIZE = 0.3
_MOVE_SIZE = 0.3
# What is computed at a time: vectors times views, and entries; some 100 MB at 1024 numbers for a latent.
_VIEWED_AT_A_TIME = 1024
_ENTRIES_AT_A_TIME = 8192


class RefinedSide(NamedTuple):
    """One side of a network: how it makes latents, what its views see, and which fields of its latents move.

    placed: from the network's latents by view (vectors, views, numbers) to those with landmarks.
    features: from the other side's latents (vectors, latent) to what a move is along (vectors, features).
    moved: from latents and moves (vectors, features) to the refined latents.
    """

    latents_of: Callable[[Batch], Tensor]
    views: Tensor  # (views, inputs)
    placed: Callable[[Tensor], Tensor]
    features: Callable[[Tensor], Tensor]
    moved: Callable[[Tensor, Tensor], Tensor]


def row_side(network: OrdinalNetwork, layout: LatentLayout) -> RefinedSide:
    """Return the side of rows: moves along the landmark features of columns, and one of the effect.

    The errors of a row on some columns carry over to similar columns.
    """

    def placed(by_view: Tensor) -> Tensor:
        return _with_landmarks(by_view, by_view.new_zeros(*by_view.shape[:2], layout.n_landmarks), layout)

    def features(columns: Tensor) -> Tensor:
        return _with_offset(columns[:, layout.landmarks])

    def moved(rows: Tensor, moves: Tensor) -> Tensor:
        latents = rows.clone()
        latents[:, layout.landmarks] = moves[:, :-1]
        latents[:, layout.row_effect] += _OFFSET_SIZE * moves[:, -1]
        return latents

    return RefinedSide(network.row_latents, network.row_views, placed, features, moved)


def column_side(network: OrdinalNetwork, landmarks: Landmarks, layout: LatentLayout) -> RefinedSide:
    """Return the side of columns: moves along the directions and landmark moves of rows, and one of the effect.

    The directions come with the head's scale, which features are freed from.
    """

    def placed(by_view: Tensor) -> Tensor:
        features = landmarks.features(by_view[..., layout.direction].mean(1))
        return _with_landmarks(by_view, features[:, None].expand(-1, by_view.shape[1], -1), layout)

    def sizes(latents: Tensor) -> Tensor:
        """Return what a unit of each feature is, in numbers of a row's latent."""
        units = latents.new_full((layout.factors.stop,), _MOVE_SIZE)
        units[layout.direction] = 1.0 / network.head.scale
        return units

    def features(rows: Tensor) -> Tensor:
        return _with_offset(rows[:, layout.factors] * sizes(rows))

    def moved(columns: Tensor, moves: Tensor) -> Tensor:
        latents = columns.clone()
        latents[:, layout.factors] += moves[:, :-1] * sizes(columns)
        latents[:, layout.column_effect] += _OFFSET_SIZE * moves[:, -1]
        return latents

    return RefinedSide(network.column_latents, network.column_views, placed, features, moved)


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
    response_of: the response parameters (vectors, entries, n) of the rows of some entries, from own latents and those
        of others.
    """

    head: OrdinalHead
    side: RefinedSide
    others: Tensor
    response_of: Callable[[Tensor, Tensor], Tensor]

    def latents(self, vectors: SparseVectors, penalty: float) -> Tensor:
        """Return the refined latents of all vectors: the mean over views, and the step from there."""
        return self.by_penalty(vectors, [penalty])[0]

    def by_penalty(self, vectors: SparseVectors, penalties: Sequence[float]) -> Tensor:
        """Return the refined latents (penalties, vectors, latent) by each of some penalties; infinity: no step."""
        counts = vectors.starts.diff()
        order = torch.argsort(counts, stable=True)  # vectors of about one length are computed together
        shape = len(penalties), len(vectors), self.others.shape[1]
        refined = torch.empty(shape, dtype=torch.float32, device=self.others.device)
        for ids in _parts(order, counts, len(self.side.views)):
            refined[:, ids] = self._of(vectors, ids, penalties)
        return refined

    def _of(self, vectors: SparseVectors, ids: Tensor, penalties: Sequence[float]) -> Tensor:
        views = self.side.views
        batch = vectors.take(ids.repeat_interleave(len(views)))
        by_view = self.side.latents_of(apply_mask(batch, visible_to(views, batch))).reshape(ids.numel(), len(views), -1)
        by_view = self.side.placed(by_view)
        latents = by_view.mean(1)
        if not batch.indices.numel() or not any(map(math.isfinite, penalties)):
            return latents.expand(len(penalties), -1, -1)
        indices, units, real = _padded(vectors, ids)
        others = self.others[indices]
        scores = self._blind_scores(by_view, others, views.T[indices])
        response = self.response_of(latents, others)
        features = self.side.features(others.flatten(0, 1)).reshape(*indices.shape, -1)
        lines, wanted = _regression(self.head, scores, response, units, real, features)
        return torch.stack([self.side.moved(latents, moves) for moves in _moves(lines, wanted, penalties)])

    def _blind_scores(self, by_view: Tensor, others: Tensor, seen: Tensor) -> Tensor:
        """Return the mean score (vectors, entries) by the views that do not see the entry; by all, where all do."""
        scores = by_view @ others.mT  # (vectors, views, entries)
        blind = (~seen).mT.float()
        blind = torch.where(blind.any(1, keepdim=True), blind, 1.0)
        return (scores * blind).sum(1) / blind.sum(1)


def _regression(
    head: OrdinalHead, scores: Tensor, response: Tensor, units: Tensor, real: Tensor, features: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weighted regression of each vector's Newton step: its lines (vectors, entries, features), and what
    they should give (vectors, entries, 1)."""
    chances = head.logits(scores, response).sigmoid()
    slopes = response[..., -1:].exp()
    slope = ((head.above(units) - chances) * slopes).sum(-1)
    curvature = (chances * (1.0 - chances) * slopes.square()).sum(-1).clamp(min=1e-6)
    root = curvature.sqrt() * real
    wanted = torch.where(real, slope / curvature.sqrt(), 0.0)[..., None]  # root * (slope / curvature)
    return features * root[..., None], wanted


def _moves(lines: Tensor, wanted: Tensor, penalties: Sequence[float]) -> Iterator[Tensor]:
    """Yield the moves (vectors, features) that solve ridge regressions, by each penalty."""
    fewer_entries = lines.shape[1] <= lines.shape[2]
    grams = lines @ lines.mT if fewer_entries else lines.mT @ lines
    unit = torch.eye(grams.shape[-1], dtype=lines.dtype, device=lines.device)
    for penalty in penalties:
        if not math.isfinite(penalty):
            yield lines.new_zeros(lines.shape[0], lines.shape[2])
        elif fewer_entries:
            yield (lines.mT @ _solved(grams + penalty * unit, wanted)).squeeze(-1)
        else:
            yield _solved(grams + penalty * unit, lines.mT @ wanted).squeeze(-1)


def _solved(grams: Tensor, wanted: Tensor) -> Tensor:
    """Return the solutions of systems that a penalty makes positive definite, unless latents are absurdly large."""
    factors, failed = torch.linalg.cholesky_ex(grams)
    if bool(failed.any()):
        raise TrainingDiverged("what was learned is too large to be refined; try a smaller learning_rate")
    return torch.cholesky_solve(wanted, factors)


def _parts(order: Tensor, counts: Tensor, n_views: int) -> list[Tensor]:
    """Return the vectors, from few entries to many, in parts that fit into memory together."""
    most = max(1, _VIEWED_AT_A_TIME // n_views)
    parts, start = [], 0
    lengths = counts[order].tolist()
    while start < len(lengths):
        end = start + 1
        while end < len(lengths) and end - start < most and (end + 1 - start) * lengths[end] <= _ENTRIES_AT_A_TIME:
            end += 1
        parts.append(order[start:end])
        start = end
    return parts


def _padded(vectors: SparseVectors, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices and values of some vectors' entries (vectors, most entries), and which of them are real."""
    batch = vectors.take(ids)
    counts = batch.starts.diff()
    real = torch.arange(int(counts.max()), device=counts.device) < counts[:, None]
    indices = torch.zeros(real.shape, dtype=torch.int64, device=counts.device)
    units = torch.zeros(real.shape, dtype=torch.float32, device=counts.device)
    indices[real], units[real] = batch.indices.long(), batch.weights
    return indices, units, real


def _with_offset(features: Tensor) -> Tensor:
    return torch.cat([features, features.new_full((features.shape[0], 1), _OFFSET_SIZE)], dim=1)


def _with_landmarks(latents: Tensor, between: Tensor, layout: LatentLayout) -> Tensor:
    """Return the network's latents with the landmark fields behind the direction, and zeros for the linear part."""
    linear = latents.new_zeros(*latents.shape[:-1], layout.n_linear)
    return torch.cat([latents[..., layout.direction], between, linear, latents[..., layout.n_direction :]], dim=-1)
