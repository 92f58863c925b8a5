"""A network on several ranks: each holds some lines of the first layers and computes a share of every batch.

Why by hand: a step of 600 vectors of 160 entries on a table of 8,000 lines of width 512 takes 0.035 processor seconds
and 24 MB on two ranks, 0.065 and 117 with FSDP2, 0.075 and 37 with TorchRec 1.8, 0.52 and 699 with DTensor
(`benchmarks/rank_tables.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from deepmf.nn.branch import Branch, Dropout
from deepmf.nn.inputs import Batch, SparseBatch
from deepmf.nn.ranks import Ranks
from deepmf.nn.sparse_linear import SparseLinear


class Division(NamedTuple):
    """How a table is divided over ranks: each holds the lines of consecutive inputs, in every channel."""

    n_inputs: int
    n_channels: int

    @classmethod
    def of(cls, branch: Branch) -> Division:
        """Return the division of the table of a branch."""
        return cls(len(branch.first.weight) // branch.n_channels, branch.n_channels)

    def by_channel(self, table: Tensor) -> Tensor:
        """Return a table, or the share of a rank, as (channels, inputs, ...)."""
        return table.view(self.n_channels, len(table) // self.n_channels, *table.shape[1:])

    def take_share(self, table: Tensor, ranks: Ranks) -> Tensor:
        """Return the lines of this rank."""
        return self.by_channel(table)[:, ranks.find_lines(self.n_inputs)].flatten(0, 1)

    def gather_whole(self, share: Tensor, ranks: Ranks) -> Tensor:
        """Return the lines of all ranks."""
        by_input = self.by_channel(share).transpose(0, 1)
        return ranks.gather(by_input, self.n_inputs).transpose(0, 1).flatten(0, 1)


class SpreadNetwork:
    """Divides the branches of a network over ranks; every rank computes the rest of it.

    `divided` has the division of each table of which a rank holds some lines, by name.
    """

    def __init__(self, network: nn.Module, ranks: Ranks) -> None:
        self._ranks = ranks
        self.divided = find_divisions(network)
        self._branches = [SpreadBranch(branch, ranks) for branch in _find_branches(network).values()]
        self._named = list(network.named_parameters())

    def sum_gradients(self) -> None:
        """Give every rank the gradients of the whole batch.

        A rank already has the gradients of its lines of a table. In the rest of a branch it has those of its share of
        the batch, which are summed. Elsewhere all ranks have the same gradients, and their mean stays the same.
        """
        prefixes = tuple(name.removesuffix("first.weight") for name in self.divided)
        shared = [(name, each) for name, each in self._named if name not in self.divided and each.grad is not None]
        weights = [1.0 if name.startswith(prefixes) else 1.0 / self._ranks.size for name, _ in shared]
        gradients = [each.grad for _, each in shared if each.grad is not None]
        flat = torch.cat([weight * gradient.flatten() for weight, gradient in zip(weights, gradients, strict=True)])
        totals = self._ranks.sum_(flat).split([each.numel() for each in gradients])  # type: ignore[no-untyped-call]
        for gradient, total in zip(gradients, totals, strict=True):
            gradient.copy_(total.view_as(gradient))

    def gather_whole(self, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return learned tensors with the lines of all ranks."""
        return {
            name: self.divided[name].gather_whole(tensor, self._ranks) if name in self.divided else tensor
            for name, tensor in learned.items()
        }

    def take_share(self, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return learned tensors with the lines of this rank only."""
        return {
            name: self.divided[name].take_share(tensor, self._ranks) if name in self.divided else tensor
            for name, tensor in learned.items()
        }

    def join(self) -> None:
        """Make the network whole on every rank."""
        for branch in self._branches:
            branch.join()


def find_divisions(network: nn.Module) -> dict[str, Division]:
    """Return the division of the first layer of each branch of a network, by name."""
    return {f"{name}.first.weight": Division.of(branch) for name, branch in _find_branches(network).items()}


def count_divided_weights(network: nn.Module) -> int:
    """Count the weights of a network that ranks divide: the first layers of its branches."""
    return sum(branch.first.weight.numel() for branch in _find_branches(network).values())


def _find_branches(network: nn.Module) -> dict[str, Branch]:
    return {name: module for name, module in network.named_modules() if isinstance(module, Branch)}


class SpreadBranch:
    """Divides the work of a branch over ranks, until `join` makes it whole again.

    Every rank passes the same batch and gets the latents of all vectors. Dense vectors are passed whole, sparse ones
    with the entries of this rank only. Each rank multiplies its lines of the table, the products are summed over ranks,
    each rank continues with its share of the vectors, and the latents of all shares are gathered. The names of weights
    stay the same.
    """

    def __init__(self, branch: Branch, ranks: Ranks) -> None:
        self._branch, self._ranks = branch, ranks
        self._whole = branch.first, branch.dropout, branch.norms
        size = _BatchSize()
        self._division = Division.of(branch)
        table = TableShard(branch.first.weight, self._division, ranks, size)
        branch.first.weight = nn.Parameter(branch.first.weight.new_empty(0))  # frees its memory
        branch.first = table
        branch.dropout = _RankedDropout(branch.dropout.fraction, ranks, size)
        branch.norms = nn.ModuleList(RankedBatchNorm(norm, ranks) for norm in branch.norms)

        def gather(_: nn.Module, __: Any, share: Tensor) -> Tensor:
            return ranks.gather(share, size.lines)

        def take_share(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (ranks.take_share(inputs[0]),)

        self._hooks = [branch.register_forward_hook(gather)]
        for beside in (branch.summary_features, branch.features):
            if beside is not None:
                self._hooks.append(beside.register_forward_pre_hook(take_share))

    def join(self) -> None:
        """Make the branch whole on every rank, with the weights of all ranks."""
        branch, shard, ranked = self._branch, self._branch.first, self._branch.norms
        branch.first, branch.dropout, branch.norms = self._whole
        branch.first.weight = nn.Parameter(self._division.gather_whole(shard.weight.detach(), self._ranks))
        for norm, learned in zip(branch.norms, ranked, strict=True):
            share_state(learned, norm)
        for hook in self._hooks:
            hook.remove()
        branch.train(shard.training)


@dataclass
class _BatchSize:
    """The number of vectors in the current batch, which the first layer sees and later layers need."""

    lines: int = 0


class TableShard(SparseLinear):
    """The lines of a table that one rank holds; returns the outputs of this rank's share of the vectors."""

    def __init__(self, table: Tensor, division: Division, ranks: Ranks, size: _BatchSize) -> None:
        nn.Module.__init__(self)  # without a table of its own
        self.weight = nn.Parameter(division.take_share(table.detach(), ranks).clone())
        self._division, self._ranks, self._size = division, ranks, size
        self.sum_over_ranks = ranks.sum_

    def forward(self, batch: Batch) -> Tensor:
        """Map a batch of vectors to this rank's share of (batch, outputs)."""
        sums = super().forward(self._select_own_lines(batch))
        self._size.lines = len(sums)
        return self._ranks.sum_to_shares(sums.float())

    def _select_own_lines(self, batch: Batch) -> Batch:
        n_inputs, n_channels = self._division
        own = self._ranks.find_lines(n_inputs)
        if not isinstance(batch, SparseBatch):
            return batch.reshape(len(batch), n_channels, n_inputs)[..., own].flatten(1)
        in_second = batch.indices >= n_inputs  # the second channel follows the lines that are missing in the first
        missing = n_inputs - (own.stop - own.start)
        return batch._replace(indices=batch.indices - own.start - missing * in_second)


class _RankedDropout(Dropout):
    """Dropout equal to that of a single process: draws for the whole batch and uses the draws of its share."""

    def __init__(self, fraction: float, ranks: Ranks, size: _BatchSize) -> None:
        super().__init__(fraction)
        self._ranks, self._size = ranks, size

    def _draw(self, inputs: Tensor) -> Tensor:
        return self._ranks.take_share(super()._draw(inputs.new_empty(1).expand(self._size.lines, *inputs.shape[1:])))


class RankedBatchNorm(nn.BatchNorm1d):
    """A batch norm over batches that are divided over ranks, with the weights and statistics of another."""

    def __init__(self, norm: nn.Module, ranks: Ranks) -> None:
        assert isinstance(norm, nn.BatchNorm1d)
        super().__init__(norm.num_features, eps=norm.eps, momentum=norm.momentum, device="meta")
        share_state(norm, self)
        self._ranks = ranks

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise this rank's share of a batch (share, features)."""
        if not self.training:
            return super().forward(inputs)
        count, mean, variance = _compute_statistics(inputs.detach().float(), self._ranks)
        self._update_running(count, mean, variance)
        outputs: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
            inputs, self.weight, self.bias, mean, (variance + self.eps).rsqrt(), count, self._ranks
        )
        return outputs

    @torch.no_grad()
    def _update_running(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        running_mean, running_variance, counter = self.running_mean, self.running_var, self.num_batches_tracked
        assert running_mean is not None and running_variance is not None and counter is not None
        assert self.momentum is not None
        counter += 1
        running_mean.lerp_(mean, self.momentum)
        running_variance.lerp_(variance * (count / (count - 1.0)), self.momentum)


def share_state(norm: nn.Module, other: nn.Module) -> None:
    """Give a batch norm the weights and statistics of another: the tensors themselves, not copies."""
    assert isinstance(norm, nn.BatchNorm1d) and isinstance(other, nn.BatchNorm1d)
    other.weight, other.bias = norm.weight, norm.bias
    other.running_mean, other.running_var = norm.running_mean, norm.running_var
    other.num_batches_tracked = norm.num_batches_tracked


def _compute_statistics(inputs: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of lines on all ranks, and the mean and variance of each feature over them.

    Each rank computes a mean and squared deviations, which are then combined (Chan, Golub and LeVeque 1983); plain sums
    of squares would lose digits where a mean is large.
    """
    n_lines = len(inputs)
    mean = inputs.mean(0) if n_lines else inputs.new_zeros(inputs.shape[1])
    deviations = (inputs - mean).square().sum(0)
    every = ranks.stack(torch.cat([mean, deviations, mean.new_tensor([n_lines])]))
    means, squares, counts = every[:, : mean.numel()], every[:, mean.numel() : -1], every[:, -1:]
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    return count, mean, (squares.sum(0) + (counts * (means - mean).square()).sum(0)) / count


class _Normalise(torch.autograd.Function):
    """(inputs - mean) / deviation * weight + bias, with the mean and deviation of the inputs of all ranks."""

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
