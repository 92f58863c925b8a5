"""The readout of OrdinalDMF: expected values and distributions from scores and the rows' response parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit
from torch import Tensor, nn
from torch.nn import functional

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.scale import Scale
from deepmf.models.distribution import PredictiveDistribution
from deepmf.models.predictor import Readout
from deepmf.nn.branch import directions


@dataclass(frozen=True)
class LatentLayout:
    """The fields of a latent, one after another; the inner product over all but the last is the score.

    direction: of rows times the head's scale; of columns of length 1 before views are averaged.
    landmarks: of columns the features by landmarks; of rows the moves along these.
    linear: the latents of the linear part; of rows times its weight.
    row_effect: of rows their effect; of columns 1.
    column_effect: of rows 1; of columns their effect.
    response: of rows the cutpoints and the logarithm of the slope; of columns zeros.
    """

    n_direction: int
    n_landmarks: int
    n_linear: int
    n_response: int

    @property
    def direction(self) -> slice:
        """The direction."""
        return slice(0, self.n_direction)

    @property
    def landmarks(self) -> slice:
        """What belongs to landmarks."""
        return slice(self.n_direction, self.n_direction + self.n_landmarks)

    @property
    def factors(self) -> slice:
        """Direction and landmarks: what a refinement moves beside the effect."""
        return slice(0, self.landmarks.stop)

    @property
    def linear(self) -> slice:
        """What belongs to the linear part."""
        return slice(self.landmarks.stop, self.row_effect)

    @property
    def row_effect(self) -> int:
        """The effect of a row."""
        return self.n_direction + self.n_landmarks + self.n_linear

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
        """All numbers of a latent."""
        return self.column_effect + 1 + self.n_response

    @property
    def n_beside(self) -> int:
        """How many numbers follow the direction."""
        return self.width - self.n_direction


# Batch norm leaves the outputs of a branch with variance 1; effects are smaller than that.
_EFFECT_SIZE = 0.3

_START_SLOPE = 3.0

_SMALLEST_GAP = 0.05


class OrdinalHead(nn.Module):
    """Cumulative logits: P(value k is exceeded) = sigmoid(slope_i * score_ij - cutpoint_ik), k = 1 .. values - 1.

    The score is a scaled cosine plus an effect of the row and one of the column. A row has a slope and cutpoints of
    its own (each uses the scale its own way), which increase by construction: a first one, and positive gaps.

    support: the values of the distribution, in increasing order: levels, or the means of bins.
    boundaries: between neighbouring values, in the units of the targets.
    exceedance: for each boundary the share of entries above it, from which the cutpoints start.
    groups: how many networks the outputs of branches come from. Each has latents of its own; joined, these are one
        latent, by which scores, effects and response parameters are means over the networks.
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
        self.scale = nn.Parameter(torch.tensor(_START_SLOPE, dtype=torch.float32))
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
        """The cutpoints of no row in particular."""
        gaps = functional.softplus(self.gaps)
        return torch.cat([self.first_cutpoint, self.first_cutpoint + gaps.cumsum(0)])

    @property
    def n_row_outputs(self) -> int:
        """How many outputs the branch for rows has beside each direction: its effect, and those that become its
        response parameters."""
        return 1 + self.n_response

    @property
    def n_column_outputs(self) -> int:
        """How many outputs the branch for columns has beside each direction: its effect."""
        return 1

    def row_latents(self, outputs: Tensor) -> Tensor:
        """Return the latents of rows: scaled direction, effect, 1; then cutpoints and the logarithm of the slope."""
        return self._joined(self.row_latents_by_group(outputs))

    def column_latents(self, outputs: Tensor) -> Tensor:
        """Return the latents of columns, whose inner products with those of rows are the scores."""
        return self._joined(self.column_latents_by_group(outputs))

    def row_latents_by_group(self, outputs: Tensor) -> Tensor:
        """Return the latents of rows (rows, groups, latent) by each network."""
        direction, effects = self._split(outputs, self.n_row_outputs)
        effect, offsets, log_slope = effects[..., :1], effects[..., 1:-1], effects[..., -1:]
        first = self.first_cutpoint + offsets[..., :1]
        gaps = functional.softplus(self.gaps + offsets[..., 1:])
        cutpoints = torch.cat([first, first + gaps.cumsum(-1)], dim=-1)
        ones = torch.ones_like(effect)
        return torch.cat([self.scale * direction, effect + self.offset, ones, cutpoints, log_slope], dim=-1)

    def column_latents_by_group(self, outputs: Tensor) -> Tensor:
        """Return the latents of columns (columns, groups, latent) by each network."""
        direction, effect = self._split(outputs, self.n_column_outputs)
        zeros = effect.new_zeros(*effect.shape[:2], self.n_response)  # len() would fix the number in an export
        return torch.cat([direction, torch.ones_like(effect), effect, zeros], dim=-1)

    def response(self, latents: Tensor) -> Tensor:
        """Return the response parameters (..., n) of latents (..., latent) of rows."""
        return latents[..., -self.n_response :]

    def logits(self, scores: Tensor, response: Tensor) -> Tensor:
        """Return the cumulative logits (..., values - 1) of scores (...) by the rows' response parameters (..., n)."""
        return response[..., -1:].exp() * scores[..., None] - response[..., :-1]

    def above(self, targets: Tensor) -> Tensor:
        """Return which boundaries each target exceeds, as 0 or 1 (..., values - 1)."""
        return (targets[..., None] > self.boundaries).float()

    def loss(self, logits: Tensor, exceeded: Tensor) -> Tensor:
        """Return the binary cross-entropy (...), summed over boundaries, of which are exceeded."""
        exceeded = exceeded.expand_as(logits)
        return functional.binary_cross_entropy_with_logits(logits, exceeded, reduction="none").sum(-1)

    def expected(self, logits: Tensor) -> Tensor:
        """Return the expected value: the first, and every step up times the probability to take it."""
        return self.support[0] + (logits.sigmoid() * self.support.diff().to(logits.dtype)).sum(-1)

    def _split(self, outputs: Tensor, n_effects: int) -> tuple[Tensor, Tensor]:
        """Return directions and effects (batch, groups, ...) from the outputs (batch, groups x outputs) of a branch."""
        outputs = outputs.reshape(outputs.shape[0], self.groups, -1)
        return directions(outputs[..., :-n_effects]), _EFFECT_SIZE * outputs[..., -n_effects:].float()

    def _joined(self, latents: Tensor) -> Tensor:
        """Return latents (batch, groups, latent) as one each: directions side by side, together of length 1."""
        if self.groups == 1:
            return latents.squeeze(1)
        n_beside = self.n_response + 2
        together = latents[..., :-n_beside].flatten(1) / math.sqrt(self.groups)
        return torch.cat([together, latents[..., -n_beside:].mean(1)], dim=1)


class OrdinalReadout(Readout):
    """Scores are expected values; a row's response parameters are its cutpoints and the logarithm of its slope.

    linear_share: how much of the logits belongs to the linear part. linear_cutpoints: its cutpoints (none:
    those of no row in particular).
    coverages: those stated by intervals that hold evenly spaced shares of held-out values; None: the shares.
    """

    gives_distribution = True
    ranks_by_products = True

    def __init__(
        self,
        scale: Scale,
        head: OrdinalHead,
        layout: LatentLayout,
        linear_share: float = 0.0,
        linear_cutpoints: LatentArray | None = None,
        coverages: FloatArray | None = None,
    ) -> None:
        super().__init__(scale)
        self.linear_share, self.coverages = linear_share, coverages
        self._cutpoints: LatentArray = (
            head.cutpoints.detach().cpu().numpy() if linear_cutpoints is None else linear_cutpoints
        )
        self.row_fields = layout.response
        self._support: FloatArray = head.support.cpu().numpy()
        self._unit_boundaries: npt.NDArray[np.float32] = head.boundaries.cpu().numpy()

    @property
    def support(self) -> FloatArray:
        """The levels, or the mean values of the bins."""
        return self._support

    @property
    def unit_boundaries(self) -> npt.NDArray[np.float32]:
        """The boundaries between neighbouring values, in units of [-1, 1]."""
        return self._unit_boundaries

    def scores(self, products: npt.NDArray[Any], row_fields: LatentArray) -> FloatArray:
        """Return the expected value of each product, boundary by boundary, in memory of the size of the products."""
        slanted, cutpoints = self._mixed(products, row_fields)
        expected = np.full(slanted.shape, self._support[0])
        for number, step in enumerate(np.diff(self._support)):
            expected += step * expit(slanted - cutpoints[..., number])
        return expected

    def distribution(self, products: npt.NDArray[Any], row_fields: LatentArray) -> PredictiveDistribution:
        """Return the distribution over the support of each product."""
        slanted, cutpoints = self._mixed(products, row_fields)
        exceedance = expit(slanted[:, None] - cutpoints).astype(np.float64)
        found = PredictiveDistribution(self._support, self.scale.from_unit(self._unit_boundaries), exceedance)
        return found if self.coverages is None else found.calibrate(self.coverages)

    def _mixed(self, products: npt.NDArray[Any], row_fields: LatentArray) -> tuple[npt.NDArray[Any], LatentArray]:
        """Return products times slopes, and cutpoints, as the network and the linear part share them."""
        share = np.float32(self.linear_share)  # of the network there is the rest
        slanted = products * ((1 - share) * np.exp(row_fields[..., -1]))
        cutpoints: LatentArray = (1 - share) * row_fields[..., :-1] + share * self._cutpoints
        return slanted, cutpoints


def check_support(head: OrdinalHead, scale: Scale) -> None:
    """Refuse a stored support that is not that of a scale, or boundaries that do not lie between its values."""
    support, boundaries = head.support.numpy(), head.boundaries.numpy()
    if scale.levels is not None and not np.array_equal(support, scale.levels):
        raise BadModelFile(f"the stored support is not the levels of {scale}")
    falls = np.any(np.diff(support) < 0) or np.any(np.diff(boundaries) < 0)
    # A support of one value has no boundaries.
    if falls or not (scale.low <= support.min() and support.max() <= scale.high and np.all(np.abs(boundaries) <= 1.0)):
        raise BadModelFile(f"the stored support does not rise from one end of {scale} to the other")
