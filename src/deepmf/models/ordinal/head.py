"""The ordinal head of OrdinalDMF: the layout of latents, cumulative logits, and the readout of
predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, LatentArray, SingleArray
from deepmf.matrix.library import find_library, normalise, sigmoid, softplus, to_single
from deepmf.matrix.scale import Scale
from deepmf.scoring.distribution import PredictiveDistribution
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Form, Part, not_falling


@dataclass(frozen=True)
class LatentLayout:
    """The fields of a latent, in order. The score of a pair is the inner product of all fields but
    the last.

    | field         | of a row                                 | of a column                                 |
    | ------------- | ---------------------------------------- | ------------------------------------------- |
    | direction     | direction times the head's scale         | direction, of length 1 in each view         |
    | landmarks     | refinement steps along the landmarks     | Nyström features                            |
    | row_effect    | effect                                   | 1                                           |
    | column_effect | 1                                        | effect                                      |
    | response      | cutpoints and the logarithm of the slope | 0                                           |
    """

    n_direction: int
    n_landmarks: int
    n_response: int

    @property
    def direction(self) -> slice:
        """The direction."""
        return slice(0, self.n_direction)

    @property
    def landmarks(self) -> slice:
        """The fields of the landmarks."""
        return slice(self.n_direction, self.n_direction + self.n_landmarks)

    @property
    def factors(self) -> slice:
        """Direction and landmarks, which a refinement moves together with the effect."""
        return slice(0, self.landmarks.stop)

    @property
    def row_effect(self) -> int:
        """The effect of a row."""
        return self.n_direction + self.n_landmarks

    @property
    def column_effect(self) -> int:
        """The effect of a column."""
        return self.row_effect + 1

    @property
    def response(self) -> slice:
        """The response parameters of a row."""
        return slice(self.column_effect + 1, self.width)

    @property
    def width(self) -> int:
        """How many numbers a latent has."""
        return self.column_effect + 1 + self.n_response

    @property
    def n_beside(self) -> int:
        """How many numbers follow the direction."""
        return self.width - self.n_direction


# Batch norm leaves the outputs of a branch with variance 1; effects are smaller.
_EFFECT_SIZE = 0.3


class CumulativeLogits:
    """Cumulative logits: P(value k is exceeded) = sigmoid(slope_i * score_ij - cutpoint_ik), k = 1
    .. values - 1.

    The score is a scaled cosine plus a row effect and a column effect. Each row has its own slope
    and cutpoints, as people use a scale in different ways. Cutpoints increase by construction: a
    first cutpoint and positive gaps. The parameters are tensors in training, arrays afterwards.

    Attributes
    ----------
    support : values of the distribution in increasing order: levels, or means of bins.
    boundaries : boundaries between neighbouring values, in the units of the targets.
    groups : number of networks. Each has its own latents; joined to one latent, they average the
        scores, effects and response parameters of the networks.
    """

    groups: int
    support: Any
    boundaries: Any
    scale: Any
    offset: Any
    first_cutpoint: Any
    gaps: Any

    @property
    def n_response(self) -> int:
        """How many response parameters a row has: its cutpoints, and the logarithm of its slope."""
        return len(self.boundaries) + 1

    @property
    def cutpoints(self) -> Any:
        """The average cutpoints, without the offsets of a row."""
        above = self.first_cutpoint + softplus(self.gaps).cumsum(0)
        return find_library(above).concatenate((self.first_cutpoint, above))

    @property
    def n_row_outputs(self) -> int:
        """How many outputs the row branch has beside each direction: the effect and the response
        parameters."""
        return 1 + self.n_response

    @property
    def n_column_outputs(self) -> int:
        """How many outputs the column branch has beside each direction: the effect."""
        return 1

    def make_row_latents(self, outputs: Any) -> Any:
        """Return the latents of rows (rows, groups, latent) by each network.

        A latent is the scaled direction, the effect, 1, the cutpoints, and the logarithm of the
        slope.
        """
        direction, effects = self._split_outputs(outputs, self.n_row_outputs)
        effect, offsets, log_slope = effects[..., :1], effects[..., 1:-1], effects[..., -1:]
        first = self.first_cutpoint + offsets[..., :1]
        above = first + softplus(self.gaps + offsets[..., 1:]).cumsum(-1)
        library = find_library(effect)
        ones = library.ones_like(effect)
        scaled = self.scale * direction
        return library.concatenate(
            (scaled, effect + self.offset, ones, first, above, log_slope), -1
        )

    def make_column_latents(self, outputs: Any) -> Any:
        """Return the latents of columns (columns, groups, latent), whose inner products with rows
        are the scores."""
        direction, effect = self._split_outputs(outputs, self.n_column_outputs)
        library = find_library(effect)
        zeros = [library.zeros_like(effect)] * self.n_response
        return library.concatenate((direction, library.ones_like(effect), effect, *zeros), -1)

    def take_response(self, latents: Any) -> Any:
        """Return the response parameters (..., n) of latents (..., latent) of rows."""
        return latents[..., -self.n_response :]

    def logits(self, scores: Any, response: Any) -> Any:
        """Return the cumulative logits (..., values - 1) of scores (...) by the rows' response
        parameters (..., n)."""
        slopes = find_library(response).exp(response[..., -1:])
        return slopes * scores[..., None] - response[..., :-1]

    def mark_exceeded(self, targets: Any) -> Any:
        """Return 1 for each boundary that a target exceeds and 0 for the others, (..., values -
        1)."""
        return to_single(targets[..., None] > self.boundaries)

    def expectation(self, logits: Any) -> Any:
        """Return the expected values (...): the first value, and each step up times its
        probability."""
        steps = to_single(find_library(logits).diff(self.support))
        return self.support[0] + (sigmoid(logits) * steps).sum(-1)

    def _split_outputs(self, outputs: Any, n_effects: int) -> tuple[Any, Any]:
        """Return directions and effects (batch, groups, ...) from the outputs (batch, groups x
        outputs) of a branch."""
        outputs = outputs.reshape(outputs.shape[0], self.groups, -1)
        effects = _EFFECT_SIZE * to_single(outputs[..., -n_effects:])
        return normalise(outputs[..., :-n_effects]), effects

    def join_groups(self, latents: Any) -> Any:
        """Join latents (batch, groups, latent): directions side by side, together of length 1, and
        means of others."""
        if self.groups == 1:
            return latents[:, 0]
        n_beside = self.n_response + 2
        directions = latents[..., :-n_beside].reshape(latents.shape[0], -1)
        beside = latents[..., -n_beside:].mean(1)
        library = find_library(latents)
        return library.concatenate((directions / math.sqrt(self.groups), beside), 1)


class TrainedHead(CumulativeLogits):
    """The head of a trained network, from its weights by name."""

    def __init__(self, weights: Mapping[str, Any], groups: int) -> None:
        self.groups = groups
        for name in ("support", "boundaries", "scale", "offset", "first_cutpoint", "gaps"):
            setattr(self, name, weights[f"head.{name}"])


def describe_head(n_boundaries: int) -> dict[str, tuple[str, Sequence[int]]]:
    """Return the types and the shapes of the weights of a head."""
    shapes = {
        "support": ("float64", (n_boundaries + 1,)),
        "boundaries": ("float32", (n_boundaries,)),
        "scale": ("float32", ()),
        "offset": ("float32", ()),
        "first_cutpoint": ("float32", (min(n_boundaries, 1),)),
        "gaps": ("float32", (max(n_boundaries - 1, 0),)),
    }
    return {f"head.{name}": shape for name, shape in shapes.items()}


class OrdinalReadout(Readout):
    """Expected values and distributions from the locations of logits, and cutpoints.

    Parameters
    ----------
    support, unit_boundaries : the values of the distribution, and the boundaries between them.
    """

    ranks_by_products = True

    def scores(self, products: Array, row_fields: LatentArray) -> FloatArray:
        """Return the expected value of each location, boundary by boundary, in memory of the size of
        the locations."""
        expected = np.full(products.shape, self.support[0])
        for number, step in enumerate(np.diff(self.support)):
            expected += step * special.expit(products - row_fields[..., number])
        return expected

    def distribution(self, products: Array, row_fields: LatentArray) -> PredictiveDistribution:
        exceedance = special.expit(products[:, None] - row_fields).astype(np.float64)
        boundaries = self.scale.from_unit(self.unit_boundaries)
        return PredictiveDistribution(self.support, boundaries, exceedance)

    def log_exceedance(
        self, products: Array, row_fields: LatentArray, thresholds: FloatArray
    ) -> Array:
        """Return the logarithms of P(value >= threshold) for locations (rows, columns), by one
        boundary a row."""
        logits = self.find_logits(row_fields, thresholds)
        assert logits is not None
        _, cutpoints = logits
        log_exceedance: Array = special.log_expit(products - cutpoints[:, None])
        return log_exceedance

    def find_logits(
        self, row_fields: LatentArray, thresholds: FloatArray
    ) -> tuple[LatentArray, LatentArray] | None:
        """Return the slope of each row, which is 1, and its cutpoint below the threshold; None on a
        scale without levels."""
        levels = self.scale.levels
        if levels is None:
            return None
        ends = np.pad(row_fields, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))
        slopes = np.ones(len(ends), dtype=row_fields.dtype)
        return slopes, ends[np.arange(len(ends)), np.searchsorted(levels, thresholds)]

    def pack(self) -> dict[str, Array]:
        """Return the support and its boundaries."""
        return _READOUT.pack(self).tensors


_READOUT = Form(
    Part("support", "float64", ("support",), not_falling),
    Part("unit_boundaries", "float32", ("support - 1",), not_falling),
    prefix="readout",
)


def load_readout(scale: Scale, tensors: Tensors) -> OrdinalReadout:
    """Return the readout that `pack` described; raise `BadModelFile` for anything else."""
    stored = _READOUT.read({}, tensors)
    check_support(stored["support"], stored["unit_boundaries"], scale)
    return OrdinalReadout(scale, **stored)


def check_support(support: FloatArray, boundaries: SingleArray, scale: Scale) -> None:
    """Raise `BadModelFile` unless a stored support and its boundaries belong to a scale."""
    if scale.levels is not None and not np.array_equal(support, scale.levels):
        raise BadModelFile(
            f"the stored support must be the levels of {scale}; it is {support.tolist()}"
        )
    falls = np.any(np.diff(support) < 0) or np.any(np.diff(boundaries) < 0)
    # A support of one value has no boundaries.
    if falls or not (
        scale.low <= support.min()
        and support.max() <= scale.high
        and np.all(np.abs(boundaries) <= 1.0)
    ):
        raise BadModelFile(
            f"the stored support must increase within {scale}; it is {support.tolist()}"
        )
