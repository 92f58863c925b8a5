"""The ordinal head of OrdinalDMF: the layout of latents, cumulative logits, and the readout of
predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit, log_expit
from torch import Tensor, nn
from torch.nn import functional

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import Array, FloatArray, LatentArray, SingleArray
from deepmf.matrix.scale import Scale
from deepmf.nn.branch import normalise_latents
from deepmf.scoring.distribution import PredictiveDistribution
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Check, Form, Part, between, not_falling


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

# The scale of directions, and the least gap between two cutpoints, before training.
_START_SCALE = 3.0
_SMALLEST_GAP = 0.05


class OrdinalHead(nn.Module):
    """Cumulative logits: P(value k is exceeded) = sigmoid(slope_i * score_ij - cutpoint_ik), k = 1
    .. values - 1.

    The score is a scaled cosine plus a row effect and a column effect. Each row has its own slope
    and cutpoints, as people use a scale in different ways. Cutpoints increase by construction: a
    first cutpoint and positive gaps.

    Parameters
    ----------
    support : values of the distribution in increasing order: levels, or means of bins.
    boundaries : boundaries between neighbouring values, in the units of the targets.
    exceedance : share of entries above each boundary, from which the cutpoints start.
    groups : number of networks. Each has its own latents; joined to one latent, they average the
        scores, effects and response parameters of the networks.
    """

    boundaries: Tensor
    support: Tensor

    def __init__(
        self,
        support: Sequence[float],
        boundaries: Sequence[float],
        exceedance: Sequence[float],
        *,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.groups = groups
        self.register_buffer("support", torch.tensor(support, dtype=torch.float64))
        self.register_buffer("boundaries", torch.tensor(boundaries, dtype=torch.float32))
        start = -torch.logit(torch.tensor(exceedance, dtype=torch.float32))
        self.scale = nn.Parameter(torch.tensor(_START_SCALE, dtype=torch.float32))
        self.offset = nn.Parameter(torch.tensor(0.0, dtype=torch.float32))
        self.first_cutpoint = nn.Parameter(start[:1].clone())
        gaps = start.diff().clamp(min=_SMALLEST_GAP)
        self.gaps = nn.Parameter(gaps + (-(-gaps).expm1()).log())  # the inverse of softplus

    @property
    def n_response(self) -> int:
        """How many response parameters a row has: its cutpoints, and the logarithm of its slope."""
        return int(self.boundaries.numel()) + 1

    @property
    def cutpoints(self) -> Tensor:
        """The average cutpoints, without the offsets of a row."""
        gaps = functional.softplus(self.gaps)
        return torch.cat([self.first_cutpoint, self.first_cutpoint + gaps.cumsum(0)])

    @property
    def n_row_outputs(self) -> int:
        """How many outputs the row branch has beside each direction: the effect and the response
        parameters."""
        return 1 + self.n_response

    @property
    def n_column_outputs(self) -> int:
        """How many outputs the column branch has beside each direction: the effect."""
        return 1

    def make_row_latents(self, outputs: Tensor) -> Tensor:
        """Return the latents of rows (rows, groups, latent) by each network.

        A latent is the scaled direction, the effect, 1, the cutpoints, and the logarithm of the
        slope.
        """
        direction, effects = self._split_outputs(outputs, self.n_row_outputs)
        effect, offsets, log_slope = effects[..., :1], effects[..., 1:-1], effects[..., -1:]
        first = self.first_cutpoint + offsets[..., :1]
        gaps = functional.softplus(self.gaps + offsets[..., 1:])
        cutpoints = torch.cat([first, first + gaps.cumsum(-1)], dim=-1)
        ones = torch.ones_like(effect)
        return torch.cat(
            [self.scale * direction, effect + self.offset, ones, cutpoints, log_slope], dim=-1
        )

    def make_column_latents(self, outputs: Tensor) -> Tensor:
        """Return the latents of columns (columns, groups, latent), whose inner products with rows
        are the scores."""
        direction, effect = self._split_outputs(outputs, self.n_column_outputs)
        # len() would fix the number in an export
        zeros = effect.new_zeros(*effect.shape[:2], self.n_response)
        return torch.cat([direction, torch.ones_like(effect), effect, zeros], dim=-1)

    def take_response(self, latents: Tensor) -> Tensor:
        """Return the response parameters (..., n) of latents (..., latent) of rows."""
        return latents[..., -self.n_response :]

    def logits(self, scores: Tensor, response: Tensor) -> Tensor:
        """Return the cumulative logits (..., values - 1) of scores (...) by the rows' response
        parameters (..., n)."""
        return response[..., -1:].exp() * scores[..., None] - response[..., :-1]

    def mark_exceeded(self, targets: Tensor) -> Tensor:
        """Return 1 for each boundary that a target exceeds and 0 for the others, (..., values -
        1)."""
        return (targets[..., None] > self.boundaries).float()

    def loss(self, logits: Tensor, exceeded: Tensor) -> Tensor:
        """Return the binary cross-entropy (...) of the exceeded boundaries, summed over
        boundaries."""
        exceeded = exceeded.expand_as(logits)
        return functional.binary_cross_entropy_with_logits(logits, exceeded, reduction="none").sum(
            -1
        )

    def expectation(self, logits: Tensor) -> Tensor:
        """Return the expected values (...): the first value, and each step up times its
        probability."""
        return self.support[0] + (logits.sigmoid() * self.support.diff().to(logits.dtype)).sum(-1)

    def _split_outputs(self, outputs: Tensor, n_effects: int) -> tuple[Tensor, Tensor]:
        """Return directions and effects (batch, groups, ...) from the outputs (batch, groups x
        outputs) of a branch."""
        outputs = outputs.reshape(outputs.shape[0], self.groups, -1)
        return normalise_latents(outputs[..., :-n_effects]), _EFFECT_SIZE * outputs[
            ..., -n_effects:
        ].float()

    def join_groups(self, latents: Tensor) -> Tensor:
        """Join latents (batch, groups, latent): directions side by side, together of length 1, and
        means of others."""
        if self.groups == 1:
            return latents.squeeze(1)
        n_beside = self.n_response + 2
        together = latents[..., :-n_beside].flatten(1) / math.sqrt(self.groups)
        return torch.cat([together, latents[..., -n_beside:].mean(1)], dim=1)


class OrdinalReadout(Readout):
    """Expected values and distributions from the locations of logits, and cutpoints.

    Parameters
    ----------
    support, unit_boundaries : the values of the distribution, and the boundaries between them.
    coverages : calibration of intervals: the nominal coverages whose intervals contain evenly
        spaced shares of the held-out values (on levels, those of `choose_targets`); default:
        intervals are not calibrated.
    """

    ranks_by_products = True

    def __init__(
        self,
        scale: Scale,
        support: FloatArray,
        unit_boundaries: SingleArray,
        coverages: FloatArray | None = None,
    ) -> None:
        super().__init__(scale, support, unit_boundaries)
        self.coverages = coverages

    def scores(self, products: Array, row_fields: LatentArray) -> FloatArray:
        """Return the expected value of each location, boundary by boundary, in memory of the size of
        the locations."""
        expected = np.full(products.shape, self.support[0])
        for number, step in enumerate(np.diff(self.support)):
            expected += step * expit(products - row_fields[..., number])
        return expected

    def distribution(self, products: Array, row_fields: LatentArray) -> PredictiveDistribution:
        exceedance = expit(products[:, None] - row_fields).astype(np.float64)
        found = PredictiveDistribution(
            self.support, self.scale.from_unit(self.unit_boundaries), exceedance
        )
        return found.with_coverages(self.coverages, of_levels=self.scale.levels is not None)

    def log_exceedance(
        self, products: Array, row_fields: LatentArray, thresholds: FloatArray
    ) -> Array:
        """Return the logarithms of P(value >= threshold) for locations (rows, columns), by one
        boundary a row."""
        logits = self.find_logits(row_fields, thresholds)
        if logits is None:
            return super().log_exceedance(products, row_fields, thresholds)
        _, cutpoints = logits
        found: Array = log_expit(products - cutpoints[:, None])
        return found

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
        """Return the support, its boundaries and the calibration."""
        return _READOUT.pack(self).tensors


_READOUT = Form(
    Part("support", "float64", ("support",), not_falling),
    Part("unit_boundaries", "float32", ("support - 1",), not_falling),
    Part(
        "coverages",
        "float64",
        ("coverages",),
        not_falling,
        between(0.0, 1.0),
        Check("have numbers", lambda found, _: found.size > 1),
        optional=True,
    ),
    prefix="readout",
)


def load_readout(scale: Scale, tensors: Tensors) -> OrdinalReadout:
    """Return the readout that `pack` described; raise `BadModelFile` for anything else."""
    found = _READOUT.read({}, tensors)
    check_support(found["support"], found["unit_boundaries"], scale)
    return OrdinalReadout(scale, **found)


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
