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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from deepmf.errors import TrainingDiverged
from deepmf.linalg.positive import solve_positive
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray, fetch
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.library import find_library, place_beside, sigmoid, to_double, to_single
from deepmf.matrix.scale import Scale
from deepmf.models.ordinal.head import CumulativeLogits, LatentLayout, TrainedHead
from deepmf.models.trained_network import TrainedBranch, TrainedNetwork
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


class TrainedOrdinal(TrainedNetwork):
    """The weights of a trained network of OrdinalDMF, with its head and its views.

    Parameters
    ----------
    weights : by name, as `OrdinalNetwork` has them.
    groups : number of networks side by side.
    """

    def __init__(self, weights: Mapping[str, Any], groups: int) -> None:
        super().__init__(weights)
        self.head = TrainedHead(weights, groups)

    @property
    def layout(self) -> LatentLayout:
        """The fields of the network's own latents, without landmarks."""
        n_direction = self.columns.n_outputs - self.head.groups * self.head.n_column_outputs
        return LatentLayout(n_direction, 0, self.head.n_response)

    def get_branch(self, axis: Axis) -> TrainedBranch:
        """Return the branch that reads rows, or columns."""
        return self.rows if axis == "row" else self.columns

    def get_views(self, axis: Axis) -> Any:
        """Return the inputs that each view of a row, or of a column, sees, (views, inputs)."""
        return self.weights[f"{axis}_views"]

    def make_latents(self, axis: Axis, outputs: Any) -> Any:
        """Return the latents of rows, cutpoints and slope included, or of columns, from the outputs
        of the branch."""
        make = self.head.make_row_latents if axis == "row" else self.head.make_column_latents
        return self.head.join_groups(make(outputs))


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

    def __init__(self, directions: Any) -> None:
        self._directions = directions

    def __len__(self) -> int:
        return len(self._directions)

    def features(self, directions: Any) -> Any:
        """Return the features (directions, landmarks) of any directions."""
        return to_single(self._compute_kernel(directions) @ self._inverse_factor.T)

    def are_independent(self) -> bool:
        """Whether these can be landmarks: no longer than 1, and none explained by the others."""
        if not len(self):
            return True
        directions = fetch(self._directions)
        if np.linalg.norm(directions, axis=1).max() > 1.001:
            return False
        try:
            factor = np.linalg.cholesky(Landmarks(directions)._compute_kernel(directions))
        except np.linalg.LinAlgError:
            return False
        return bool(np.all(factor.diagonal() > _LEAST_PIVOT))

    @cached_property
    def _inverse_factor(self) -> Any:
        """The inverse of the Cholesky factor of the landmarks' kernel matrix."""
        library = find_library(self._directions)
        return library.linalg.inv(library.linalg.cholesky(self._compute_kernel(self._directions)))

    def _compute_kernel(self, directions: Any) -> Any:
        """Return the kernel (directions, landmarks) in double precision."""
        return _sum_kernels(to_double(directions) @ to_double(self._directions).T)


def choose_landmarks(
    directions: LatentArray, most: int, *, most_candidates: int = MOST_LANDMARK_CANDIDATES
) -> IndexArray:
    """Return the positions of landmarks, chosen one by one: the direction that the earlier
    landmarks explain least."""
    step = max(1, -(-len(directions) // most_candidates))
    candidates = np.arange(0, len(directions), step)
    directions = directions[candidates]
    residuals = _sum_kernels(np.square(directions).sum(1))
    features = np.zeros((min(most, len(directions)), len(directions)), dtype=np.float32)
    landmarks: list[int] = []
    while len(landmarks) < len(features):
        position = int(residuals.argmax())
        if residuals[position] < _EXPLAINED:
            break
        earlier = features[: len(landmarks)]
        kernel = _sum_kernels(directions @ directions[position]) - earlier[:, position] @ earlier
        feature = kernel / np.sqrt(residuals[position])
        features[len(landmarks)] = feature
        residuals = np.maximum(residuals - np.square(feature), 0.0)
        landmarks.append(position)
    return candidates[landmarks]


def _sum_kernels(cosines: Any) -> Any:
    exp = find_library(cosines).exp
    parts = [weight * exp(sharpness * (cosines - 1.0)) for weight, sharpness in _KERNEL]
    return sum(parts[1:], start=parts[0])


class PaddedEntries(NamedTuple):
    """The entries of some vectors side by side, padded to the longest vector."""

    indices: Any  # (vectors, entries)
    units: Any  # (vectors, entries)
    real: Any  # (vectors, entries), 0 where padded, otherwise 1
    # (vectors, entries) square roots of weights; None where all weights are 1
    roots: Any = None

    @classmethod
    def of(cls, vectors: AxisEntries, units: LatentArray, ids: IndexArray) -> PaddedEntries:
        """Return the entries of the vectors at some positions, with units for values."""
        first, counts = vectors.starts[ids], np.diff(vectors.starts)[ids]
        steps = np.arange(counts.max(initial=0))
        is_real = steps < counts[:, None]
        places = np.where(is_real, first[:, None] + steps, 0)
        roots, real = None, is_real.astype(np.float32)
        if vectors.extras.weights is not None:
            roots = np.sqrt(vectors.extras.weights)[places].astype(np.float32) * real
        if vectors.others.size == 0:
            return cls(places, real, real, roots)
        return cls(np.where(is_real, vectors.others[places], 0), units[places] * real, real, roots)

    def place_beside(self, like: Any) -> PaddedEntries:
        """Return the entries where some numbers are: on the CPU or a GPU."""
        return PaddedEntries(*(None if part is None else place_beside(part, like) for part in self))

    def below(self, index: int) -> PaddedEntries:
        """Return the entries as if those from an index on were padding."""
        real = self.real * (self.indices < index)
        indices = self.indices * (self.indices < index)
        return self._replace(indices=indices, units=self.units * real, real=real)


def encode_views(
    branch: TrainedBranch,
    views: Any,
    entries: PaddedEntries,
    features: FeatureVectors | None = None,
    *,
    at_a_time: int = _GATHERED_AT_A_TIME,
) -> Any:
    """Return a branch's outputs (vectors, views, outputs) for the part of each vector that each
    view sees.

    The first layer is one product of visibility and entry weights; the weights are gathered once
    for all views.
    """
    # (vectors, views, entries)
    visible = (views.T[entries.indices] * entries.real[..., None]).swapaxes(1, 2)
    n_vectors, n_entries = entries.indices.shape
    step = max(1, at_a_time // max(n_vectors, 1))
    lines = visible[..., :0] @ branch.embed_entries(entries.indices[:, :0], entries.units[:, :0])
    for span in (slice(start, start + step) for start in range(0, n_entries, step)):
        embedded = branch.embed_entries(entries.indices[:, span], entries.units[:, span])
        lines = lines + visible[..., span] @ embedded
    counts = visible.sum(-1)
    units = (visible @ entries.units[..., None])[..., 0]
    lines = lines * counts.clip(1.0)[..., None] ** -0.5 + branch.summarise(units, counts)
    of_features = branch.read_features(features)
    if not isinstance(of_features, float):  # the same in each view
        lines = lines + of_features[:, None]
    return branch.finish(lines.reshape(n_vectors * len(views), -1)).reshape(
        n_vectors, len(views), -1
    )


def solve_refinement(matrices: Any, right: Any) -> Any:
    """Solve positive definite systems; latents so large that rounding makes them indefinite are an
    error."""
    solutions, failures = solve_positive(matrices, right)
    if bool(failures.any()):
        raise TrainingDiverged(
            "the latents are too large to be refined; try a smaller learning_rate"
        )
    return solutions


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
    """

    axis: ClassVar[Axis]  # of the vectors
    network: TrainedOrdinal
    scale: Scale
    layout: LatentLayout
    others: Any
    penalty: float
    new: Any = None

    @abstractmethod
    def add_landmarks(self, latents: Any, counts: Any) -> Any:
        """Return latents with landmark fields from the network's latents (vectors, numbers) and
        their entry counts."""

    @abstractmethod
    def make_features(self, others: Any) -> Any:
        """Return the features (..., features) that a step is along from latents (..., latent) of
        the other side."""

    @abstractmethod
    def find_response(self, latents: Any, viewed: Any) -> Any:
        """Return the response parameters (vectors, entries, n) of the rows of entries.

        latents: of the vectors. viewed: the part of other latents that views multiply, (vectors,
            entries, numbers).
        """

    @abstractmethod
    def score_landmarks(self, latents: Any, features: Any) -> Any:
        """Return the landmarks' part of the scores, which is the same in all views.

        features: of the other side, (vectors, entries, features).
        """

    @abstractmethod
    def apply_step(self, latents: Any, steps: Any) -> Any:
        """Return latents refined by steps (vectors, features)."""

    @property
    def branch(self) -> TrainedBranch:
        """The branch that reads the vectors."""
        return self.network.get_branch(self.axis)

    @cached_property
    def views(self) -> Any:
        """1 for the inputs that each view of a vector sees, otherwise 0: (views, inputs)."""
        return to_single(self.network.get_views(self.axis))

    def refine(self, vectors: AxisEntries) -> LatentArray:
        """Return the refined latents of all vectors: the mean over views, and the step from
        there."""
        refined: LatentArray = self.refine_by_penalty(vectors, [self.penalty])[0]
        return refined

    def refine_by_penalty(self, vectors: AxisEntries, penalties: Sequence[float]) -> LatentArray:
        """Return the refined latents (penalties, vectors, latent) for each of some penalties."""
        counts = np.diff(vectors.starts)
        units = self.scale.to_unit(vectors.values).astype(np.float32)
        # vectors of about one length are computed together
        order = np.argsort(counts, kind="stable")
        refined = np.empty((len(penalties), counts.size, self.layout.width), dtype=np.float32)
        more = 1 if isinstance(self.others, np.ndarray) else _MORE_ON_GPU
        most_entries = more * _ENTRIES_AT_A_TIME
        most_vectors = max(1, more * _VIEWS_AT_A_TIME // len(self.views))
        for ids in split_by_length(
            order, counts, most_vectors=most_vectors, most_entries=most_entries
        ):
            entries = PaddedEntries.of(vectors, units, ids).place_beside(self.others)
            trained_entries = entries if self.new is None else entries.below(len(self.others))
            features = None if vectors.features is None else vectors.features.take(ids)
            outputs = encode_views(self.branch, self.views, trained_entries, features)
            refined[:, ids] = fetch(self.refine_outputs(outputs, entries, penalties))
        return refined

    def refine_outputs(
        self, outputs: Any, entries: PaddedEntries, penalties: Sequence[float]
    ) -> Any:
        """Return the refined latents of vectors for each of some penalties, (penalties, vectors,
        latent).

        `outputs` of the branch are those for each view, (vectors, views, outputs). Where
        `entries.indices` is of a single vector, all vectors have these entries, less those that are
        not real.
        """
        flat = outputs.reshape(-1, outputs.shape[2])
        by_view = self.network.make_latents(self.axis, flat).reshape(*outputs.shape[:2], -1)
        latents = self.add_landmarks(by_view.mean(1), entries.real.sum(1))
        library = find_library(latents)
        if not math.prod(entries.indices.shape) or not any(map(math.isfinite, penalties)):
            return library.stack([latents] * len(penalties))
        viewed, features = self._gather_others(entries.indices)
        scores = _score_blind(by_view, viewed, self._find_seen(entries.indices))
        scores = scores + self.score_landmarks(latents, features)
        response = self.find_response(latents, viewed)
        step = NewtonStep.from_scores(self.network.head, scores, response, entries, features)
        refined = [
            self.apply_step(latents, step.take(penalty)) if math.isfinite(penalty) else latents
            for penalty in penalties
        ]
        return library.stack(refined)

    def _find_seen(self, indices: Any) -> Any:
        """Return 1 where a view sees an entry, otherwise 0: (vectors, entries, views)."""
        views = self.views.T
        if self.new is None:
            return views[indices]
        return views[indices.clip(0, len(views) - 1)] * (indices < len(views))[..., None]

    def _gather_others(self, indices: Any) -> tuple[Any, Any]:
        """Return the viewed part and the features of the other side's latents at (vectors,
        entries)."""
        if self.new is not None:
            n_trained = len(self.others)
            other_vectors = self.others[indices.clip(0, n_trained - 1)]
            is_new = indices >= n_trained
            other_vectors[is_new] = self.new[indices[is_new] - n_trained]
            return self._split_others(other_vectors)
        if math.prod(indices.shape) < len(self.others):  # for all would take longer
            return self._split_others(self.others[indices])
        viewed, features = (table[indices] for table in self._all_others)
        return viewed, features

    @cached_property
    def _all_others(self) -> tuple[Any, Any]:
        return self._split_others(self.others)

    def _split_others(self, others: Any) -> tuple[Any, Any]:
        """Return the part of latents that views multiply, without landmarks, and the features."""
        parts = others[..., self.layout.direction], others[..., self.layout.row_effect :]
        return find_library(others).concatenate(parts, -1), self.make_features(others)

    def _insert_landmarks(self, latents: Any, landmarks: Any) -> Any:
        """Return the network's latents with landmark fields behind the direction."""
        layout = self.layout
        direction, response = latents[..., layout.direction], latents[..., layout.n_direction :]
        return find_library(latents).concatenate((direction, landmarks, response), -1)


class RowRefinement(Refinement):
    """The refinement of rows, whose steps are along the landmark features of columns and along the
    row effect.

    The errors of a row on some columns carry over to similar columns.
    """

    axis = "row"

    def add_landmarks(self, latents: Any, counts: Any) -> Any:
        """Return latents whose landmark fields are 0 before the step."""
        zeros = np.zeros((len(latents), self.layout.n_landmarks), dtype=np.float32)
        return self._insert_landmarks(latents, place_beside(zeros, latents))

    def make_features(self, others: Any) -> Any:
        """Return the landmark features of columns, and the constant feature."""
        return _append_constant(others[..., self.layout.landmarks])

    def find_response(self, latents: Any, viewed: Any) -> Any:
        """Return each row's own response parameters for all of its entries."""
        return latents[:, None, self.layout.response]

    def score_landmarks(self, latents: Any, features: Any) -> float:
        return 0.0

    def apply_step(self, latents: Any, steps: Any) -> Any:
        """Return rows whose landmark fields are the step."""
        refined = latents * 1.0
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

    def add_landmarks(self, latents: Any, counts: Any) -> Any:
        """Return latents with the landmark features of their directions."""
        trust = counts / (counts + _HALF_TRUSTED_COUNT)
        features = self.landmarks.features(latents[:, self.layout.direction])
        return self._insert_landmarks(latents, features * trust[:, None])

    def make_features(self, others: Any) -> Any:
        """Return the directions and landmark steps of rows, and the constant feature."""
        return _append_constant(others[..., self.layout.factors] * self._size_features(others))

    def find_response(self, latents: Any, viewed: Any) -> Any:
        return viewed[..., -self.layout.n_response :]

    def score_landmarks(self, latents: Any, features: Any) -> Any:
        """Return the products (vectors, entries) of landmark features and the landmark steps of
        rows."""
        landmark_weights = latents[:, None, self.layout.landmarks] / LANDMARK_STEP_SIZE
        return _multiply(landmark_weights, features[..., self.layout.landmarks])[:, 0]

    def apply_step(self, latents: Any, steps: Any) -> Any:
        refined = latents * 1.0
        refined[:, self.layout.factors] += steps[:, :-1] * self._size_features(latents)
        refined[:, self.layout.column_effect] += CONSTANT_SIZE * steps[:, -1]
        return refined

    def _size_features(self, like: Any) -> Any:
        sizes = np.full(self.layout.factors.stop, LANDMARK_STEP_SIZE, dtype=np.float32)
        sizes[self.layout.direction] = 1.0 / fetch(self.network.head.scale)
        return place_beside(sizes, like)


def _append_constant(features: Any) -> Any:
    constant = np.full((*features.shape[:-1], 1), CONSTANT_SIZE, dtype=np.float32)
    parts = features, place_beside(constant, features)
    return find_library(features).concatenate(parts, -1)


def _score_blind(by_view: Any, viewed: Any, seen: Any) -> Any:
    """Return the mean score (vectors, entries) over the views that do not see the entry; over all,
    where all do."""
    scores = _multiply(by_view, viewed)  # (vectors, views, entries)
    blind = 1.0 - seen.swapaxes(1, 2)
    blind = blind + (blind.sum(1) == 0)[:, None]
    return (scores * blind).sum(1) / blind.sum(1)


class NewtonStep(NamedTuple):
    """The weighted least-squares problem of a Newton step, for any ridge penalty.

    With weights w = curvature, times the weight of the entry if it has one, and targets gradient /
    curvature, the step x minimises sum of w (target - features x)^2 + penalty |x|^2. It is solved
    in the space of entries where these are fewer than features, in the space of features otherwise.
    """

    features: Any  # (vectors or 1, entries, features)
    root_weights: Any  # (vectors, entries)
    right: Any  # (vectors, entries or features)
    gram: Any  # (vectors, entries, entries) or (vectors, features, features)

    @classmethod
    def from_scores(
        cls,
        head: CumulativeLogits,
        scores: Any,
        response: Any,
        entries: PaddedEntries,
        features: Any,
    ) -> NewtonStep:
        """Return the step on the ordinal loss of entries with these scores (vectors, entries)."""
        real, roots = entries.real, entries.roots
        exceedance = sigmoid(head.logits(scores, response))
        slopes = find_library(response).exp(response[..., -1:])
        gradient = ((head.mark_exceeded(entries.units) - exceedance) * slopes).sum(-1)
        curvature = (exceedance * (1.0 - exceedance) * slopes**2).sum(-1).clip(1e-6)
        root_weights = curvature**0.5 * real
        # root of weight * target
        right = gradient / curvature**0.5 * real
        if roots is not None:
            root_weights, right = root_weights * roots, right * roots
        if features.shape[1] <= features.shape[2]:  # fewer entries than features
            products = features @ features.swapaxes(1, 2)
            gram = products * root_weights[..., None] * root_weights[:, None]
            return cls(features, root_weights, right, gram)
        weighted = (features * root_weights[..., None]).swapaxes(1, 2)
        right = (weighted @ right[..., None])[..., 0]
        return cls(features, root_weights, right, weighted @ weighted.swapaxes(1, 2))

    def take(self, penalty: float) -> Any:
        """Return the steps (vectors, features) with a ridge penalty."""
        matrices = self.gram * 1.0
        diagonal = np.arange(self.gram.shape[-1])
        matrices[:, diagonal, diagonal] += penalty
        solution = solve_refinement(matrices, self.right)
        if self.features.shape[1] > self.features.shape[2]:
            return solution
        weighted = (solution * self.root_weights)[:, None]
        return _multiply(weighted, self.features.swapaxes(1, 2))[:, 0]


def _multiply(vectors: Any, others: Any) -> Any:
    """Return the products (n, lines, others) of batches of vectors with others, of each batch or
    the same for all."""
    if others.shape[0] == vectors.shape[0]:
        return vectors @ others.swapaxes(1, 2)
    flat = vectors.reshape(-1, vectors.shape[2]) @ others[0].T
    return flat.reshape(*vectors.shape[:2], -1)


def split_by_length(
    order: IndexArray, counts: IndexArray, *, most_vectors: int, most_entries: int
) -> list[IndexArray]:
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


ReadVectors = Callable[[IndexArray], AxisEntries]  # from the positions of some vectors to these


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
    head, are_rows = refinement.network.head, refinement.axis == "row"
    own_at, other_at = held_out.rows, held_out.columns
    if not are_rows:
        own_at, other_at = other_at, own_at
    vectors = draw_some(np.unique(own_at), most_vectors, seed=seed)
    used = np.isin(own_at, vectors)
    places = np.searchsorted(vectors, own_at[used])
    other_vectors, values = fetch(refinement.others)[other_at[used]], held_out.values[used]
    refined = refinement.refine_by_penalty(read_vectors(vectors), PENALTY_CANDIDATES)

    def compute_error(latents: LatentArray) -> float:
        rows, columns = latents[places], other_vectors
        if not are_rows:
            rows, columns = columns, rows
        scores, response = (rows * columns).sum(1), rows[:, refinement.layout.response]
        logits = place_beside(head.logits(scores, response), head.support)
        errors = fetch(head.expectation(logits)) - values
        return float(np.sqrt(np.mean(np.square(errors))))

    return np.array([compute_error(latents) for latents in refined])
