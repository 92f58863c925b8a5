"""The refinement of OrdinalDMF: one Newton step from a branch's latent towards the entries of that
row or column.

A branch is shared by all rows (or columns), and a latent that it computes leaves errors on the
row's own entries. The refinement regresses these errors on features of the columns, with a ridge
penalty:

1. `Landmarks` gives columns Nyström features of a kernel on their directions.
2. `encode_views` runs a branch on Monte Carlo masks (views) of a vector, so that every entry is predicted by the views
   that do not see it.
3. `Refinement` takes the Newton step on the ordinal loss of these predictions, for rows or for columns.
4. `choose_penalty` compares ridge penalties on held-out entries.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import TrainingDiverged
from deepmf.linalg.ridge import pad_entries
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import Axis
from deepmf.models.ordinal.head import LatentLayout, OrdinalHead
from deepmf.models.ordinal.network import OrdinalNetwork
from deepmf.nn.branch import Branch
from deepmf.nn.inputs import EntrySums, FeatureBatch, SparseVectors, take_features
from deepmf.training.holdout import HeldOut, choose, draw_some

# The kernel of two directions at a cosine c is a sum of weight * exp(sharpness * (c - 1)): a broad
# part (.37 at right angles) carries errors over to all columns, a sharp part to the most similar
# columns alone. The weights sum to 1.
_KERNEL = ((0.6, 1.0), (0.4, 10.0))

# A direction needs no landmark of its own when the landmarks explain its kernel but for this
# residual.
_EXPLAINED = 1e-3

# The smallest diagonal of a stored landmarks' Cholesky factor; chosen landmarks have 30 times as
# much.
_LEAST_PIVOT = 1e-3

# Landmarks are chosen among at most this many directions.
MOST_LANDMARK_CANDIDATES = 16384

# The size of the constant feature, and of a row's landmark step as a feature: both move a latent
# less than directions.
CONSTANT_SIZE = 0.3
LANDMARK_STEP_SIZE = 0.3

# A column with this many entries has half of its landmark features.
_HALF_TRUSTED_COUNT = 5.0

# Memory of one batch: vectors times views, and padded entries; some 100 MB at a latent of 1024
# numbers. A GPU takes larger batches, as it would mostly wait for its next task.
_VIEWS_AT_A_TIME = 1024
_ENTRIES_AT_A_TIME = 8192
_MORE_ON_GPU = 16

# Entries whose first-layer weights are gathered at a time: 64 MB at 2048 hidden units.
_GATHERED_AT_A_TIME = 8192

# From a step that trusts the entries of a vector almost alone to no step at all.
PENALTY_CANDIDATES = (0.75, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0, 400.0, math.inf)

# Penalties are compared on at most this many vectors.
_COMPARED_VECTORS = 1024


class Landmarks:
    """Nyström features of directions: their inner products approximate a kernel of two directions.

    A linear model of the directions changes its predictions for all columns at once; a linear model
    of these features can change them for a few similar columns alone. Exact features would need one
    number for each direction there is; Nyström features need one for each landmark (a partial
    Cholesky decomposition of the kernel matrix).

    Parameters
    ----------
    directions : directions of the landmarks, (landmarks, direction).
    """

    def __init__(self, directions: Tensor) -> None:
        self._directions = directions

    def __len__(self) -> int:
        return len(self._directions)

    def features(self, directions: Tensor) -> Tensor:
        """Return the features (directions, landmarks) of any directions."""
        return (self._kernel_with(directions) @ self._inverse_factor.T).float()

    def are_independent(self) -> bool:
        """Whether these can be landmarks: no longer than 1, and none explained by the others."""
        if not len(self) or bool((self._directions.norm(dim=1) > 1.001).any()):
            return not len(self)
        factor, failed = torch.linalg.cholesky_ex(self._kernel_with(self._directions))
        return not bool(failed) and bool((factor.diagonal() > _LEAST_PIVOT).all())

    @cached_property
    def _inverse_factor(self) -> Tensor:
        """The inverse of the Cholesky factor of the landmarks' kernel matrix."""
        factor = torch.linalg.cholesky(self._kernel_with(self._directions))
        one = torch.eye(len(self), dtype=torch.float64, device=factor.device)
        inverse: Tensor = torch.linalg.solve_triangular(factor, one, upper=False)
        return inverse

    def _kernel_with(self, directions: Tensor) -> Tensor:
        """Return the kernel (directions, landmarks) in double precision."""
        return _kernel(directions.double() @ self._directions.double().T)


def choose_landmarks(
    directions: Tensor, most: int, *, most_candidates: int = MOST_LANDMARK_CANDIDATES
) -> Tensor:
    """Return the positions of landmarks, chosen one by one: the direction that the earlier
    landmarks explain least."""
    every = max(1, -(-len(directions) // most_candidates))
    candidates = torch.arange(0, len(directions), every, device=directions.device)
    directions = directions[candidates]
    residuals = _kernel(directions.square().sum(1))
    features = directions.new_zeros(len(directions), min(most, len(directions)))
    chosen: list[int] = []
    while len(chosen) < features.shape[1]:
        position = int(residuals.argmax())
        if residuals[position] < _EXPLAINED:
            break
        kernel = _kernel(directions @ directions[position])
        feature = (kernel - features @ features[position]) / residuals[position].sqrt()
        features[:, len(chosen)] = feature
        residuals = (residuals - feature.square()).clamp(min=0.0)
        chosen.append(position)
    return candidates[chosen]


def _kernel(cosines: Tensor) -> Tensor:
    return torch.stack(
        [weight * (sharpness * (cosines - 1.0)).exp() for weight, sharpness in _KERNEL]
    ).sum(0)


class PaddedEntries(NamedTuple):
    """The entries of some vectors side by side, padded to the longest vector."""

    indices: Tensor  # (vectors, entries)
    units: Tensor  # (vectors, entries)
    real: Tensor  # (vectors, entries), False where padded
    # (vectors, entries) square roots of weights; None where all weights are 1
    roots: Tensor | None = None

    @classmethod
    def from_vectors(cls, vectors: SparseVectors, ids: Tensor) -> PaddedEntries:
        """Return the entries of the vectors at some positions."""
        width = int((vectors.starts[ids + 1] - vectors.starts[ids]).max())
        places, real = pad_entries(vectors.starts, ids, width)
        indices = torch.where(real, vectors.indices[places].long(), 0)
        units = torch.where(real, vectors.weights[places], 0.0)
        roots = None if vectors.roots is None else torch.where(real, vectors.roots[places], 0.0)
        return cls(indices, units, real, roots)

    def below(self, index: int) -> PaddedEntries:
        """Return the entries as if those from an index on were padding."""
        real = self.real & (self.indices < index)
        return self._replace(indices=self.indices * real, units=self.units * real, real=real)


def encode_views(
    branch: Branch,
    views: Tensor,
    entries: PaddedEntries,
    features: FeatureBatch | None = None,
    *,
    at_a_time: int = _GATHERED_AT_A_TIME,
) -> Tensor:
    """Return a branch's outputs (vectors, views, outputs) for the part of each vector that each
    view sees.

    The first layer is one product of visibility and entry weights; the weights are gathered once
    for all views.
    """
    # (vectors, views, entries)
    visible = (views.T[entries.indices] & entries.real[..., None]).mT.float()
    n_vectors, n_entries = entries.indices.shape
    lines = visible.new_zeros(n_vectors, len(views), branch.first.weight.shape[1])
    step = max(1, at_a_time // n_vectors)
    for some in (slice(start, start + step) for start in range(0, n_entries, step)):
        lines.baddbmm_(
            visible[..., some],
            branch.embed_entries(entries.indices[:, some], entries.units[:, some]),
        )
    units = (visible @ entries.units[..., None]).squeeze(-1)
    if features is not None:  # once for each view
        features = FeatureBatch(*(part.repeat_interleave(len(views), dim=0) for part in features))
    sums = EntrySums(lines.flatten(0, 1), units.flatten(), visible.sum(-1).flatten())
    return branch.forward_sums(sums, features).reshape(n_vectors, len(views), -1)


Solve = Callable[[Tensor, Tensor], Tensor]  # from matrices and right-hand sides to solutions


def solve_cholesky(matrices: Tensor, right: Tensor) -> Tensor:
    """Solve positive definite systems; latents so large that rounding makes them indefinite are an
    error."""
    factors, failed = torch.linalg.cholesky_ex(matrices)
    if bool(failed.any()):
        raise TrainingDiverged(
            "the latents are too large to be refined; try a smaller learning_rate"
        )
    return torch.cholesky_solve(right, factors)


@dataclass(frozen=True, kw_only=True)
class Refinement(ABC):
    """A Newton step on the ordinal loss of a vector's own entries, with a ridge penalty.

    The errors come from views that do not see the entry, and are regressed on features of the other
    side's latents, as in a fold-in. The step is linear algebra on the entries of one vector: a new
    vector is refined like any other, without training.

    Views are blind to the entry by their directions alone. The features of a column come from all
    of its views, and the latents of trained vectors were refined by the entry too; excluding these
    was no better (docs/log.md).

    Attributes
    ----------
    layout : fields of a latent with landmarks.
    others : latents of the other side, (inputs, latent).
    penalty : ridge penalty; infinity for no refinement.
    new : latents of the new vectors of the other side, which no view sees; indices count on to
        them.
    solve : solver of positive definite systems: (vectors, unknowns, unknowns), (vectors, unknowns,
        1).
    """

    axis: ClassVar[Axis]  # of the vectors
    network: OrdinalNetwork
    layout: LatentLayout
    others: Tensor
    penalty: float
    new: Tensor | None = None
    solve: Solve = solve_cholesky

    @abstractmethod
    def add_landmarks(self, latents: Tensor, counts: Tensor) -> Tensor:
        """Return latents with landmark fields from the network's latents (vectors, numbers) and
        their entry counts."""

    @abstractmethod
    def make_features(self, others: Tensor) -> Tensor:
        """Return the features (..., features) that a step is along from latents (..., latent) of
        the other side."""

    @abstractmethod
    def find_response(self, latents: Tensor, viewed: Tensor) -> Tensor:
        """Return the response parameters (vectors, entries, n) of the rows of entries.

        latents: of the vectors. viewed: the part of other latents that views multiply, (vectors,
            entries, numbers).
        """

    @abstractmethod
    def score_landmarks(self, latents: Tensor, features: Tensor) -> Tensor | float:
        """Return the landmarks' part of the scores, which is the same in all views.

        features: of the other side, (vectors, entries, features).
        """

    @abstractmethod
    def apply_step(self, latents: Tensor, steps: Tensor) -> Tensor:
        """Return latents refined by steps (vectors, features)."""

    @property
    def branch(self) -> Branch:
        """The branch that reads the vectors."""
        return self.network.get_branch(self.axis)

    @property
    def views(self) -> Tensor:
        """The inputs that each view of a vector sees, (views, inputs)."""
        return self.network.get_views(self.axis)

    def refine(self, vectors: SparseVectors) -> Tensor:
        """Return the refined latents of all vectors: the mean over views, and the step from
        there."""
        return self.refine_by_penalty(vectors, [self.penalty])[0]

    def refine_by_penalty(self, vectors: SparseVectors, penalties: Sequence[float]) -> Tensor:
        """Return the refined latents (penalties, vectors, latent) for each of some penalties."""
        counts = vectors.starts.diff()
        # vectors of about one length are computed together
        order = torch.argsort(counts, stable=True)
        shape = len(penalties), len(vectors), self.others.shape[1]
        refined = torch.empty(shape, dtype=torch.float32, device=self.others.device)
        more = _MORE_ON_GPU if self.others.is_cuda else 1
        most_entries, most_vectors = (
            more * _ENTRIES_AT_A_TIME,
            max(1, more * _VIEWS_AT_A_TIME // len(self.views)),
        )
        for ids in split_by_length(
            order, counts, most_vectors=most_vectors, most_entries=most_entries
        ):
            entries = PaddedEntries.from_vectors(vectors, ids)
            seen = entries if self.new is None else entries.below(len(self.others))
            outputs = encode_views(self.branch, self.views, seen, take_features(vectors, ids))
            refined[:, ids] = self.refine_outputs(outputs, entries, penalties)
        return refined

    def refine_outputs(
        self, outputs: Tensor, entries: PaddedEntries, penalties: Sequence[float]
    ) -> Tensor:
        """Return the refined latents of vectors for each of some penalties, (penalties, vectors,
        latent).

        `outputs` of the branch are those for each view, (vectors, views, outputs). Where
        `entries.indices` is of a single vector, all vectors have these entries, less those that are
        not real.
        """
        by_view = self.network.make_latents(self.axis, outputs.flatten(0, 1)).reshape(
            *outputs.shape[:2], -1
        )
        latents = self.add_landmarks(by_view.mean(1), entries.real.sum(1))
        if not entries.indices.numel() or not any(map(math.isfinite, penalties)):
            return latents.expand(len(penalties), -1, -1)
        viewed, features = self._gather_others(entries.indices)
        scores = _score_blind(by_view, viewed, self._find_seen(entries.indices))
        scores = scores + self.score_landmarks(latents, features)
        response = self.find_response(latents, viewed)
        step = NewtonStep.from_scores(self.network.head, scores, response, entries, features)
        refined = [
            self.apply_step(latents, step.take(penalty, self.solve))
            if math.isfinite(penalty)
            else latents
            for penalty in penalties
        ]
        return torch.stack(refined)

    def _find_seen(self, indices: Tensor) -> Tensor:
        """Return whether each view sees each entry, (vectors, entries, views)."""
        views = self.views.T
        if self.new is None:
            return views[indices]
        return views[indices.clamp(max=len(views) - 1)] & (indices < len(views))[..., None]

    def _gather_others(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the viewed part and the features of the other side's latents at (vectors,
        entries)."""
        if self.new is not None:
            n_trained, others = (
                len(self.others),
                self.others[indices.clamp(max=len(self.others) - 1)],
            )
            is_new = indices >= n_trained
            others[is_new] = self.new[indices[is_new] - n_trained]
            return self._split_others(others)
        if indices.numel() < len(self.others):  # computing them for all would take longer
            return self._split_others(self.others[indices])
        flat = indices.flatten()
        viewed, features = (
            table.index_select(0, flat).view(*indices.shape, -1) for table in self._all_others
        )
        return viewed, features

    @cached_property
    def _all_others(self) -> tuple[Tensor, Tensor]:
        return self._split_others(self.others)

    def _split_others(self, others: Tensor) -> tuple[Tensor, Tensor]:
        """Return the part of latents that views multiply, without landmarks, and the features."""
        viewed = torch.cat(
            [others[..., self.layout.direction], others[..., self.layout.row_effect :]], dim=-1
        )
        return viewed, self.make_features(others)

    def _insert_landmarks(self, latents: Tensor, landmarks: Tensor) -> Tensor:
        """Return the network's latents with landmark fields behind the direction."""
        layout = self.layout
        direction, rest = latents[..., layout.direction], latents[..., layout.n_direction :]
        return torch.cat([direction, landmarks, rest], dim=-1)


class RowRefinement(Refinement):
    """The refinement of rows, whose steps are along the landmark features of columns and along the
    row effect.

    The errors of a row on some columns carry over to similar columns.
    """

    axis = "row"

    def add_landmarks(self, latents: Tensor, counts: Tensor) -> Tensor:
        """Return latents whose landmark fields are 0 before the step."""
        return self._insert_landmarks(
            latents, latents.new_zeros(latents.shape[0], self.layout.n_landmarks)
        )

    def make_features(self, others: Tensor) -> Tensor:
        """Return the landmark features of columns, and the constant feature."""
        return _append_constant(others[..., self.layout.landmarks])

    def find_response(self, latents: Tensor, viewed: Tensor) -> Tensor:
        """Return each row's own response parameters for all of its entries."""
        return latents[:, None, self.layout.response].expand(-1, viewed.shape[1], -1)

    def score_landmarks(self, latents: Tensor, features: Tensor) -> float:
        return 0.0

    def apply_step(self, latents: Tensor, steps: Tensor) -> Tensor:
        """Return rows whose landmark fields are the step."""
        refined = latents.clone()
        refined[:, self.layout.landmarks] = steps[:, :-1]
        refined[:, self.layout.row_effect] += CONSTANT_SIZE * steps[:, -1]
        return refined


@dataclass(frozen=True, kw_only=True)
class ColumnRefinement(Refinement):
    """The refinement of columns: steps are along directions and landmark steps of rows, and the
    column effect.

    Row directions are stored times the head's scale, which features are divided by. The direction
    of a column with few entries is a guess, so its landmark features are smaller.
    """

    axis = "column"
    landmarks: Landmarks

    def add_landmarks(self, latents: Tensor, counts: Tensor) -> Tensor:
        """Return latents with the landmark features of their directions."""
        counts = counts.to(latents.dtype)
        trust = counts / (counts + _HALF_TRUSTED_COUNT)
        features = self.landmarks.features(latents[:, self.layout.direction])
        return self._insert_landmarks(latents, features * trust[:, None])

    def make_features(self, others: Tensor) -> Tensor:
        """Return the directions and landmark steps of rows, and the constant feature."""
        return _append_constant(others[..., self.layout.factors] * self._size_features(others))

    def find_response(self, latents: Tensor, viewed: Tensor) -> Tensor:
        return viewed[..., -self.layout.n_response :]

    def score_landmarks(self, latents: Tensor, features: Tensor) -> Tensor:
        """Return the products (vectors, entries) of landmark features and the landmark steps of
        rows."""
        own = latents[:, None, self.layout.landmarks] / LANDMARK_STEP_SIZE
        return _multiply(own, features[..., self.layout.landmarks]).squeeze(1)

    def apply_step(self, latents: Tensor, steps: Tensor) -> Tensor:
        refined = latents.clone()
        refined[:, self.layout.factors] += steps[:, :-1] * self._size_features(latents)
        refined[:, self.layout.column_effect] += CONSTANT_SIZE * steps[:, -1]
        return refined

    def _size_features(self, like: Tensor) -> Tensor:
        sizes = like.new_full((self.layout.factors.stop,), LANDMARK_STEP_SIZE)
        sizes[self.layout.direction] = 1.0 / self.network.head.scale
        return sizes


def _append_constant(features: Tensor) -> Tensor:
    return torch.nn.functional.pad(features, (0, 1), value=CONSTANT_SIZE)


def _score_blind(by_view: Tensor, viewed: Tensor, seen: Tensor) -> Tensor:
    """Return the mean score (vectors, entries) over the views that do not see the entry; over all,
    where all do."""
    scores = _multiply(by_view, viewed)  # (vectors, views, entries)
    blind = (~seen).mT.float()
    blind = torch.where(blind.any(1, keepdim=True), blind, 1.0)
    return (scores * blind).sum(1) / blind.sum(1)


class NewtonStep(NamedTuple):
    """The weighted least-squares problem of a Newton step, for any ridge penalty.

    With weights w = curvature, times the weight of the entry if it has one, and targets gradient /
    curvature, the step x minimises sum of w (target - features x)^2 + penalty |x|^2. It is solved
    in the space of entries where these are fewer than features, in the space of features otherwise.
    """

    features: Tensor  # (vectors or 1, entries, features)
    root_weights: Tensor  # (vectors, entries)
    right: Tensor  # (vectors, entries or features, 1)
    gram: Tensor  # (vectors, entries, entries) or (vectors, features, features)

    @classmethod
    def from_scores(
        cls,
        head: OrdinalHead,
        scores: Tensor,
        response: Tensor,
        entries: PaddedEntries,
        features: Tensor,
    ) -> NewtonStep:
        """Return the step on the ordinal loss of entries with these scores (vectors, entries)."""
        real, roots = entries.real, entries.roots
        exceedance = head.logits(scores, response).sigmoid()
        slopes = response[..., -1:].exp()
        gradient = ((head.mark_exceeded(entries.units) - exceedance) * slopes).sum(-1)
        curvature = (exceedance * (1.0 - exceedance) * slopes.square()).sum(-1).clamp(min=1e-6)
        root_weights = curvature.sqrt() * real
        # root of weight * target
        right = torch.where(real, gradient / curvature.sqrt(), 0.0)[..., None]
        if roots is not None:
            root_weights, right = root_weights * roots, right * roots[..., None]
        if features.shape[1] <= features.shape[2]:  # fewer entries than features
            gram = (features @ features.mT) * root_weights[..., None] * root_weights[:, None]
            return cls(features, root_weights, right, gram)
        weighted = features * root_weights[..., None]
        return cls(features, root_weights, weighted.mT @ right, weighted.mT @ weighted)

    def take(self, penalty: float, solve: Solve) -> Tensor:
        """Return the steps (vectors, features) with a ridge penalty."""
        unit = torch.eye(self.gram.shape[-1], dtype=self.gram.dtype, device=self.gram.device)
        solution = solve(self.gram + penalty * unit, self.right)
        if self.features.shape[1] <= self.features.shape[2]:
            return _multiply(
                (solution * self.root_weights[..., None]).mT, self.features.mT
            ).squeeze(1)
        return solution.squeeze(-1)


def _multiply(vectors: Tensor, others: Tensor) -> Tensor:
    """Return the products (n, lines, others) of batches of vectors with others, of each batch or
    the same for all."""
    if others.shape[0] == vectors.shape[0]:  # len() would fix the number of vectors in an export
        return vectors @ others.mT
    return (vectors.flatten(0, 1) @ others[0].T).reshape(vectors.shape[0], vectors.shape[1], -1)


def split_by_length(
    order: Tensor, counts: Tensor, *, most_vectors: int, most_entries: int
) -> list[Tensor]:
    """Return vectors, in the order of their lengths, in parts with bounded numbers of vectors and
    of padded entries."""
    parts, start = [], 0
    lengths = counts[order].tolist()
    while start < len(lengths):
        end = start + 1
        while (
            end < len(lengths)
            and end - start < most_vectors
            and (end + 1 - start) * lengths[end] <= most_entries
        ):
            end += 1
        parts.append(order[start:end])
        start = end
    return parts


ReadVectors = Callable[[IndexArray], SparseVectors]  # from the positions of some vectors to these


class Penalties(NamedTuple):
    """The ridge penalties of the refinement of rows and of columns; infinity for no refinement."""

    rows: float
    columns: float


def choose_penalty(
    refinement: Refinement, read_vectors: ReadVectors, held_out: HeldOut, *, seed: int
) -> float:
    """Return the penalty whose refined vectors predict held-out entries best."""
    errors = compute_penalty_errors(refinement, read_vectors, held_out, seed=seed)
    return choose(
        PENALTY_CANDIDATES, dict(zip(PENALTY_CANDIDATES, errors, strict=True)).__getitem__
    ).candidate


def compute_penalty_errors(
    refinement: Refinement,
    read_vectors: ReadVectors,
    held_out: HeldOut,
    *,
    seed: int,
    most_vectors: int = _COMPARED_VECTORS,
) -> FloatArray:
    """Return the root mean squared error (candidates,) on held-out entries with each of
    `PENALTY_CANDIDATES`."""
    head, device, are_rows = (
        refinement.network.head,
        refinement.others.device,
        refinement.axis == "row",
    )
    own_at, other_at = (
        (held_out.rows, held_out.columns) if are_rows else (held_out.columns, held_out.rows)
    )
    known = draw_some(np.unique(own_at), most_vectors, seed=seed)
    used = np.isin(own_at, known)
    own = torch.from_numpy(np.searchsorted(known, own_at[used])).to(device)
    others = refinement.others[torch.from_numpy(other_at[used]).to(device)]
    values = torch.from_numpy(held_out.values[used]).to(device)
    refined = refinement.refine_by_penalty(read_vectors(known).to(device), PENALTY_CANDIDATES)

    def compute_error(latents: Tensor) -> float:
        rows, columns = (latents[own], others) if are_rows else (others, latents[own])
        logits = head.logits((rows * columns).sum(1), rows[:, refinement.layout.response])
        return float((head.expectation(logits) - values).square().mean().sqrt())

    return np.array([compute_error(latents) for latents in refined])
