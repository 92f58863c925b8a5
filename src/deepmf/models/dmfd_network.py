"""The torch modules of DMF-D: its quantizer, the network with it, and their objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf_network import DMFNetwork, DMFObjective
from deepmf.nn.branch import Branch
from deepmf.training.blocks import Block

# A larger sharpness could overflow float32: Adam squares gradients, and these grow with the
# sharpness.
SHARPEST = 1e18


class Quantizer(nn.Module):
    """Maps scores in the scale's units to its levels: `soft` is the paper's G (equation 4), `hard`
    its Q (equation 3).

    Interval v lies between the levels I_v and I_{v+1} and has one learned boundary b_v; with the
    step Delta_v = I_{v+1} - I_v, which need not be the same in every interval,

        G(x) = I_v + Delta_v sigmoid(sharpness (x - b_v))    and    Q(x) = I_v + Delta_v [x >= b_v].

    A score beyond an end of the scale belongs to the first or the last interval. The boundaries
    start midway between levels. They are a plain parameter, so gradients and optimiser steps are
    those of the paper. Before every use each boundary is clamped to its own open interval, outside
    the graph, because a clamp inside it would stop gradients.

    >>> quantizer = Quantizer([1, 2, 3, 4, 5])
    >>> quantizer.boundaries.tolist()
    [1.5, 2.5, 3.5, 4.5]
    >>> scores = torch.tensor([1.0, 2.4, 2.5, 5.0])
    >>> quantizer.quantize(scores)
    tensor([1., 2., 3., 5.])
    >>> quantizer.soften(scores, sharpness=4.0)
    tensor([1.1192, 2.4013, 2.5000, 4.8808], grad_fn=<AddBackward0>)
    """

    levels: Tensor  # (levels,)
    steps: Tensor  # (levels - 1,), like all that follow
    uniform: Tensor
    least: Tensor
    most: Tensor

    def __init__(self, levels: Sequence[float]) -> None:  # at least two, increasing
        super().__init__()
        exact = torch.tensor(levels, dtype=torch.float64)
        dtype = torch.float32  # of every weight, whatever the caller of `fit` has as default
        uniform = ((exact[:-1] + exact[1:]) / 2).to(dtype)
        infinity = torch.tensor(math.inf, dtype=dtype)
        # These follow from the levels; only the learned boundaries are state.
        self.register_buffer("levels", exact.to(dtype), persistent=False)
        self.register_buffer("steps", exact.diff().to(dtype), persistent=False)
        self.register_buffer("uniform", uniform, persistent=False)
        self.register_buffer("least", torch.nextafter(self.levels[:-1], infinity), persistent=False)
        self.register_buffer("most", torch.nextafter(self.levels[1:], -infinity), persistent=False)
        if not bool(self.steps.isfinite().all()):
            raise BadSetting(f"the levels of a quantizer must fit {dtype}; got {levels!r}")
        if not bool(((self.least <= uniform) & (uniform <= self.most)).all()):
            raise BadSetting(
                f"the levels of a quantizer must leave room for a {dtype} between them; got {levels!r}"
            )
        self.free_boundaries = nn.Parameter(uniform.clone())

    @property
    def boundaries(self) -> Tensor:
        """The boundaries, (levels - 1,): increasing, each strictly between its two levels."""
        # `.data`, because clamping again must not invalidate a graph that waits for its backward
        # pass.
        self.free_boundaries.data.clamp_(self.least, self.most)
        return self.free_boundaries

    def soften(self, scores: Tensor, sharpness: float | Tensor) -> Tensor:
        """Return G of the scores, differentiable in the scores and the boundaries; same shape.

        `sharpness` is lambda in the paper: a number, or a 0-dim tensor that a captured CUDA graph
        reads.
        """
        interval, beyond = self._place(scores)
        return self.levels[interval] + self.steps[interval] * torch.sigmoid(sharpness * beyond)

    def quantize(self, scores: Tensor) -> Tensor:
        """Return Q of the scores, without gradient: each is one of `levels`; same shape."""
        return self.levels[self.find_positions(scores)]

    def find_positions(self, scores: Tensor) -> Tensor:
        """Return the positions of the `hard` levels among all levels, int64, from 0; same shape."""
        with torch.no_grad():
            interval, beyond = self._place(scores)
            return interval + (beyond >= 0)

    def compute_penalty(self) -> Tensor:
        """Return the mean squared distance from the uniform quantizer: the last term of equation 5,
        unweighted."""
        return (self.boundaries - self.uniform).square().mean()

    def _place(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the interval of each score, from 0, and the score minus the boundary of that
        interval."""
        scores = scores.to(self.levels.dtype)
        interval = torch.bucketize(scores.detach().contiguous(), self.levels[1:-1], right=True)
        own: Tensor = _Pick.apply(self.boundaries, interval)  # type: ignore[no-untyped-call]
        return interval, scores - own


class _Pick(torch.autograd.Function):
    """values[positions] with a deterministic gradient: one sum for each value.

    The gradient of plain indexing depends on the order of threads on a CPU, and sorts on a GPU (23
    ms instead of 0.3 ms for a million scores).
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        ctx.n_values = len(values)
        return values[positions]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (positions,) = ctx.saved_tensors
        value_positions = torch.arange(ctx.n_values, device=positions.device)[:, None]
        return torch.where(positions.flatten() == value_positions, gradient.flatten(), 0).sum(
            1
        ), None


def find_sharpness(epoch: int, *, start: float = 0.1, growth: float = 1.015) -> float:
    """Return start * growth**epoch, the sharpness of an epoch counted from 0, at most 1e18.

    The cap keeps it, and the square of a gradient that it multiplies, within float32.
    """
    if math.log(start) + epoch * math.log(growth) >= math.log(SHARPEST):
        return SHARPEST
    return float(start * growth**epoch)


class DMFDNetwork(DMFNetwork):
    """Two branches, and the quantizer that is trained with them."""

    def __init__(self, rows: Branch, columns: Branch, quantizer: Quantizer) -> None:
        super().__init__(rows, columns)
        self.quantizer = quantizer


class DMFDObjective(DMFObjective):
    """Equation 5: the error of softly quantized scores, plus the penalty on boundaries far from
    uniform."""

    sharpness: Tensor  # a buffer, because a captured CUDA graph reads it

    def __init__(self, train: ObservedMatrix, settings: Any) -> None:
        super().__init__(train, settings)
        self.register_buffer("sharpness", torch.zeros((), dtype=torch.float32), persistent=False)

    def compute_error(self, network: DMFDNetwork, cosines: Tensor, block: Block) -> Tensor:  # type: ignore[override]
        """Return the error in the scale's units: (G(F) - M)^2; the bracket in equation 5 is
        misplaced."""
        in_scale = self.scale.unit_map.from_unit
        quantized = network.quantizer.soften(in_scale(cosines), self.sharpness)
        error = self.compute_squared_error(quantized, in_scale(block.targets), block)
        weight: float = self.settings.gamma_boundaries
        return error + weight * network.quantizer.compute_penalty()

    def begin_epoch(self, epoch: int) -> None:
        start, growth = self.settings.sharpness, self.settings.sharpness_growth
        self.sharpness.fill_(find_sharpness(epoch, start=start, growth=growth))

    def take_notes(self, network: DMFDNetwork) -> dict[str, Any]:
        boundaries = network.quantizer.boundaries.detach().cpu().tolist()
        return {"sharpness": self.sharpness.item(), "boundaries": boundaries}

    def read(self, network: DMFDNetwork, cosines: Tensor) -> Tensor:  # type: ignore[override]
        return network.quantizer.quantize(super().read(network, cosines))
