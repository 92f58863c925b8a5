"""The ordinal head: from a score and a row's own cutpoints to a distribution over ordered values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.layers.cosine import directions

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
        outputs = outputs.unflatten(1, (self.groups, -1))
        return directions(outputs[..., :-n_effects]), _EFFECT_SIZE * outputs[..., -n_effects:].float()

    def _joined(self, latents: Tensor) -> Tensor:
        """Return latents (batch, groups, latent) as one each: directions side by side, together of length 1."""
        if self.groups == 1:
            return latents.squeeze(1)
        n_beside = self.n_response + 2
        together = latents[..., :-n_beside].flatten(1) / math.sqrt(self.groups)
        return torch.cat([together, latents[..., -n_beside:].mean(1)], dim=1)
