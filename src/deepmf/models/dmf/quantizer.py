"""The quantizer of DMF-D: soft in training, hard in prediction, with one set of boundaries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deepmf.errors import BadSetting

# A larger sharpness could overflow float32: Adam squares gradients, and these grow with the sharpness.
SHARPEST = 1e18


class Quantizer(nn.Module):
    """Maps scores in the scale's units to its levels: `soft` is the paper's G (equation 4), `hard` its Q (equation 3).

    Interval v lies between the levels I_v and I_{v+1} and has one learned boundary b_v; with the step
    Delta_v = I_{v+1} - I_v, which need not be the same in every interval,

        G(x) = I_v + Delta_v sigmoid(sharpness (x - b_v))    and    Q(x) = I_v + Delta_v [x >= b_v].

    Only the inner levels separate intervals, so a score at or beyond an end of the scale is in the first or last one.
    The boundaries start at the uniform quantizer's midpoints. They are a plain parameter, so that gradients and
    optimiser steps are the paper's, and each is moved back into its own open interval before every use: they always
    increase, and none is lost where a clamp inside the graph would give it no gradient.

    >>> quantizer = Quantizer([1, 2, 3, 4, 5])
    >>> quantizer.boundaries.tolist()
    [1.5, 2.5, 3.5, 4.5]
    >>> scores = torch.tensor([1.0, 2.4, 2.5, 5.0])
    >>> quantizer.hard(scores)
    tensor([1., 2., 3., 5.])
    >>> quantizer.soft(scores, sharpness=4.0)
    tensor([1.1192, 2.4013, 2.5000, 4.8808], grad_fn=<AddBackward0>)
    """

    levels: Tensor  # (levels,)
    steps: Tensor  # (levels - 1,), like all that follow
    uniform: Tensor
    least: Tensor
    most: Tensor

    def __init__(self, levels: Sequence[float]) -> None:
        super().__init__()
        exact = _checked_levels(levels)
        dtype = torch.get_default_dtype()
        uniform = ((exact[:-1] + exact[1:]) / 2).to(dtype)
        infinity = torch.tensor(math.inf, dtype=dtype)
        # All of this follows from the levels: the learned boundaries alone are state.
        self.register_buffer("levels", exact.to(dtype), persistent=False)
        self.register_buffer("steps", exact.diff().to(dtype), persistent=False)
        self.register_buffer("uniform", uniform, persistent=False)
        self.register_buffer("least", torch.nextafter(self.levels[:-1], infinity), persistent=False)
        self.register_buffer("most", torch.nextafter(self.levels[1:], -infinity), persistent=False)
        if not bool(self.steps.isfinite().all()):
            raise BadSetting(f"the levels of a quantizer must fit {dtype}; got {levels!r}")
        if not bool(((self.least <= uniform) & (uniform <= self.most)).all()):
            raise BadSetting(f"the levels of a quantizer must leave room for a {dtype} between them; got {levels!r}")
        self.free_boundaries = nn.Parameter(uniform.clone())

    @property
    def boundaries(self) -> Tensor:
        """The boundaries, (levels - 1,): increasing, each strictly between its two levels."""
        # `.data`: a second look changes nothing, so it must not spoil a graph that waits for its backward pass.
        self.free_boundaries.data.clamp_(self.least, self.most)
        return self.free_boundaries

    def soft(self, scores: Tensor, sharpness: float | Tensor) -> Tensor:
        """Return G of the scores, differentiable in the scores and the boundaries; same shape.

        `sharpness` is the paper's lambda: a number, or a 0-dim tensor where a captured CUDA graph is to see it change.
        """
        interval, beyond = self._place(scores)
        return self.levels[interval] + self.steps[interval] * torch.sigmoid(sharpness * beyond)

    def hard(self, scores: Tensor) -> Tensor:
        """Return Q of the scores, without gradient: each is exactly one of `levels`; same shape."""
        return self.levels[self.positions(scores)]

    def positions(self, scores: Tensor) -> Tensor:
        """Return the positions of the `hard` levels among all levels, int64, from 0; same shape."""
        with torch.no_grad():
            interval, beyond = self._place(scores)
            return interval + (beyond >= 0)

    def penalty(self) -> Tensor:
        """Return the mean squared distance from the uniform quantizer, the last term of equation 5 over its weight."""
        return (self.boundaries - self.uniform).square().mean()

    def _place(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return each score's interval, from 0, and how far it lies above that interval's boundary."""
        scores = scores.to(self.levels.dtype)
        interval = torch.bucketize(scores.detach().contiguous(), self.levels[1:-1], right=True)
        own: Tensor = _Pick.apply(self.boundaries, interval)  # type: ignore[no-untyped-call]
        return interval, scores - own


class _Pick(torch.autograd.Function):
    """values[positions] with a gradient that is the same in every run: one sum for each value.

    Plain indexing adds its gradient up in the order threads arrive on a CPU; on a GPU it sorts (1 million scores:
    23 ms against 0.3 ms).
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        ctx.n_values = len(values)
        return values[positions]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (positions,) = ctx.saved_tensors
        each = torch.arange(ctx.n_values, device=positions.device)[:, None]
        return torch.where(positions.flatten() == each, gradient.flatten(), 0).sum(1), None


def sharpness_at(epoch: int, *, start: float = 0.1, growth: float = 1.015) -> float:
    """Return start * growth**epoch, the sharpness of an epoch counted from 0, at most 1e18.

    The cap keeps it, and the square of a gradient that it multiplies, within float32.
    """
    if not (0 < start < math.inf and 0 < growth < math.inf):
        raise BadSetting(f"sharpness needs start and growth above 0; got start={start!r} and growth={growth!r}")
    if math.log(start) + epoch * math.log(growth) >= math.log(SHARPEST):
        return SHARPEST
    return float(start * growth**epoch)


def _checked_levels(levels: Sequence[float]) -> Tensor:
    try:
        exact = torch.tensor(list(levels), dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise BadSetting(f"the levels of a quantizer must be numbers; got {levels!r}") from error
    if exact.ndim != 1 or len(exact) < 2:
        raise BadSetting(f"a quantizer needs at least two levels; got {levels!r}")
    if not bool(exact.isfinite().all()):
        raise BadSetting(f"the levels of a quantizer must be finite; got {levels!r}")
    if not bool((exact.diff() > 0).all()):
        raise BadSetting(f"the levels of a quantizer must increase; got {levels!r}")
    return exact
