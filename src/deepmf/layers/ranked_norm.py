"""Batch norm on several ranks: each normalises its share of a batch by the statistics of all of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from deepmf.layers.ranks import Ranks


class RankedBatchNorm(nn.BatchNorm1d):
    """A batch norm with the weights and statistics of another, whose batches are divided over ranks."""

    def __init__(self, norm: nn.Module, ranks: Ranks) -> None:
        assert isinstance(norm, nn.BatchNorm1d)
        super().__init__(norm.num_features, eps=norm.eps, momentum=norm.momentum, device="meta")
        hand_on(norm, self)
        self._ranks = ranks

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise this rank's share of a batch (share, features)."""
        if not self.training:
            return super().forward(inputs)
        count, mean, variance = _statistics(inputs.detach().float(), self._ranks)
        self._follow(count, mean, variance)
        outputs: Tensor = _Normalised.apply(  # type: ignore[no-untyped-call]
            inputs, self.weight, self.bias, mean, (variance + self.eps).rsqrt(), count, self._ranks
        )
        return outputs

    @torch.no_grad()
    def _follow(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch."""
        running_mean, running_variance, counter = self.running_mean, self.running_var, self.num_batches_tracked
        assert running_mean is not None and running_variance is not None and counter is not None
        assert self.momentum is not None
        counter += 1
        running_mean.lerp_(mean, self.momentum)
        running_variance.lerp_(variance * (count / (count - 1.0)), self.momentum)


def hand_on(norm: nn.Module, other: nn.Module) -> None:
    """Let another batch norm have the weights and statistics of one: the tensors themselves, not copies."""
    assert isinstance(norm, nn.BatchNorm1d) and isinstance(other, nn.BatchNorm1d)
    other.weight, other.bias = norm.weight, norm.bias
    other.running_mean, other.running_var = norm.running_mean, norm.running_var
    other.num_batches_tracked = norm.num_batches_tracked


def _statistics(inputs: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of lines on all ranks, and the mean and variance of each feature over them.

    Means and squared deviations are computed on each rank, then put together (Chan, Golub and LeVeque): sums of squares
    would lose digits where a mean is large.
    """
    n_lines = len(inputs)
    mean = inputs.mean(0) if n_lines else inputs.new_zeros(inputs.shape[1])
    deviations = (inputs - mean).square().sum(0)
    every = ranks.stack(torch.cat([mean, deviations, mean.new_tensor([n_lines])]))
    means, squares, counts = every[:, : mean.numel()], every[:, mean.numel() : -1], every[:, -1:]
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    return count, mean, (squares.sum(0) + (counts * (means - mean).square()).sum(0)) / count


class _Normalised(torch.autograd.Function):
    """(inputs - mean) / deviation * weight + bias, where mean and deviation depend on the inputs of every rank."""

    @staticmethod
    def forward(
        context: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        scale: Tensor,
        count: Tensor,
        ranks: Ranks,
    ) -> Tensor:
        normalised = (inputs.float() - mean) * scale
        context.save_for_backward(normalised, weight, scale, count)
        context.ranks, context.dtype = ranks, inputs.dtype
        return (normalised * weight + bias).to(inputs.dtype)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        normalised, weight, scale, count = context.saved_tensors
        gradient = gradients[0].float()
        of_bias, of_weight = gradient.sum(0), (gradient * normalised).sum(0)  # of this rank's lines alone
        mean_bias, mean_weight = context.ranks.sum_(torch.stack([of_bias, of_weight])) / count
        of_inputs = (gradient - mean_bias - normalised * mean_weight) * (weight * scale)
        return of_inputs.to(context.dtype), of_weight, of_bias, None, None, None, None
