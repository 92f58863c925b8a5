"""A network on several ranks: which of its weights are divided, and how gradients and weights come together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from deepmf.nn.branch import Branch, Dropout
from deepmf.nn.inputs import Batch, SparseBatch
from deepmf.nn.ranks import RankedBatchNorm, Ranks, hand_on
from deepmf.nn.sparse_linear import SparseLinear


class SpreadBranch:
    """Divides the work of a branch over ranks, until `join` makes it whole again.

    Every rank hands the branch the same vectors, and gets the latents of all of them: dense vectors whole, of sparse
    ones the entries at its inputs alone. In between, each rank sums up what its lines of the table add to the first
    layer's outputs; the sums are added up over ranks, each of which goes on with its share of the vectors; the latents
    of all shares are gathered in the end. The names of weights stay the same.
    """

    def __init__(self, branch: Branch, ranks: Ranks) -> None:
        self._branch, self._ranks = branch, ranks
        self._whole = branch.first, branch.dropout, branch.norms
        size = _BatchSize()
        self._division = Division.of(branch)
        table = TableShard(branch.first.weight, self._division, ranks, size)
        branch.first.weight = nn.Parameter(branch.first.weight.new_empty(0))  # its memory is what is to be saved
        branch.first = table
        branch.dropout = _RankedDropout(branch.dropout.fraction, ranks, size)
        branch.norms = nn.ModuleList(RankedBatchNorm(norm, ranks) for norm in branch.norms)

        def gather(_: nn.Module, __: Any, share: Tensor) -> Tensor:
            return ranks.gather(share, size.lines)

        def take_share(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (ranks.share(inputs[0]),)

        self._hooks = [branch.register_forward_hook(gather)]
        for beside in (branch.summary_features, branch.features):
            if beside is not None:
                self._hooks.append(beside.register_forward_pre_hook(take_share))

    def join(self) -> None:
        """Make the branch whole on every rank, with what all have learned."""
        branch, shard, ranked = self._branch, self._branch.first, self._branch.norms
        branch.first, branch.dropout, branch.norms = self._whole
        branch.first.weight = nn.Parameter(self._division.whole(shard.weight.detach(), self._ranks))
        for norm, learned in zip(branch.norms, ranked, strict=True):
            hand_on(learned, norm)
        for hook in self._hooks:
            hook.remove()
        branch.train(shard.training)


class Division(NamedTuple):
    """How a table is divided over ranks: each has the lines of some inputs in a row, those of every channel."""

    n_inputs: int
    n_channels: int

    @classmethod
    def of(cls, branch: Branch) -> Division:
        """Return how the table of a branch is divided, which is whole."""
        return cls(len(branch.first.weight) // branch.n_channels, branch.n_channels)

    def by_channel(self, table: Tensor) -> Tensor:
        """Return a table, or a rank's share of it, as (channels, inputs, ...)."""
        return table.view(self.n_channels, len(table) // self.n_channels, *table.shape[1:])

    def share(self, table: Tensor, ranks: Ranks) -> Tensor:
        """Return the lines of this rank."""
        return self.by_channel(table)[:, ranks.lines(self.n_inputs)].flatten(0, 1)

    def whole(self, share: Tensor, ranks: Ranks) -> Tensor:
        """Return the lines of all ranks."""
        by_input = self.by_channel(share).transpose(0, 1)
        return ranks.gather(by_input, self.n_inputs).transpose(0, 1).flatten(0, 1)


@dataclass
class _BatchSize:
    """How many lines the batch has that a branch is computing; its first layer sees all of them."""

    lines: int = 0


class TableShard(SparseLinear):
    """The lines of a table that one rank holds: it reads vectors, and returns a share of the outputs."""

    def __init__(self, table: Tensor, division: Division, ranks: Ranks, size: _BatchSize) -> None:
        nn.Module.__init__(self)  # without a table of its own
        self.weight = nn.Parameter(division.share(table.detach(), ranks).clone())
        self._division, self._ranks, self._size = division, ranks, size

    def forward(self, batch: Batch) -> Tensor:
        """Map a batch of vectors to this rank's share of (batch, outputs)."""
        sums = super().forward(self._by_own_lines(batch))
        self._size.lines = len(sums)
        return self._ranks.sum_to_shares(sums.float())

    def total(self, sums: Tensor) -> Tensor:
        """Return sums over all entries of some vectors, from those over the entries that are here."""
        return self._ranks.sum_(sums)

    def _by_own_lines(self, batch: Batch) -> Batch:
        """Return a batch with the inputs of this rank, numbered by the lines that it holds."""
        n_inputs, n_channels = self._division
        own = self._ranks.lines(n_inputs)
        if not isinstance(batch, SparseBatch):
            return batch.reshape(len(batch), n_channels, n_inputs)[..., own].flatten(1)
        in_second = batch.indices >= n_inputs  # in the second channel, before which the first one's others are missing
        missing = n_inputs - (own.stop - own.start)
        return batch._replace(indices=batch.indices - own.start - missing * in_second)


class _RankedDropout(Dropout):
    """Drops out what one process would: it draws for the whole batch, and uses the draws of its share."""

    def __init__(self, fraction: float, ranks: Ranks, size: _BatchSize) -> None:
        super().__init__(fraction)
        self._ranks, self._size = ranks, size

    def _draws(self, inputs: Tensor) -> Tensor:
        return self._ranks.share(super()._draws(inputs.new_empty(1).expand(self._size.lines, *inputs.shape[1:])))


def divisions(network: nn.Module) -> dict[str, Division]:
    """Return how the tables of a network's branches are divided, by name."""
    return {f"{name}.first.weight": Division.of(branch) for name, branch in _branches(network).items()}


def spread(network: nn.Module, ranks: Ranks) -> list[SpreadBranch]:
    """Divide the branches of a network over ranks."""
    return [SpreadBranch(branch, ranks) for branch in _branches(network).values()]


def table_size(network: nn.Module) -> int:
    """Return how many weights of a network ranks divide: those of its branches' tables."""
    return sum(branch.first.weight.numel() for branch in _branches(network).values())


def _branches(network: nn.Module) -> dict[str, Branch]:
    return {name: module for name, module in network.named_modules() if isinstance(module, Branch)}


class SpreadNetwork:
    """Divides the branches of a network over ranks; the rest of it every rank computes alike.

    divided: the names of the tables of which each rank holds some lines, and how they are divided.
    """

    def __init__(self, network: nn.Module, ranks: Ranks) -> None:
        self._ranks = ranks
        self.divided = divisions(network)
        self._branches = spread(network, ranks)
        self._named = list(network.named_parameters())

    def sum_gradients(self) -> None:
        """Have every rank hold the gradients of the whole batch.

        Of its lines of a table a rank has them already. In the rest of a branch each has those of its share, which are
        summed; elsewhere all have the same, and their mean keeps them so.
        """
        prefixes = tuple(name.removesuffix("first.weight") for name in self.divided)
        shared = [(name, each) for name, each in self._named if name not in self.divided and each.grad is not None]
        weights = [1.0 if name.startswith(prefixes) else 1.0 / self._ranks.size for name, _ in shared]
        gradients = [each.grad for _, each in shared if each.grad is not None]
        flat = torch.cat([weight * gradient.flatten() for weight, gradient in zip(weights, gradients, strict=True)])
        totals = self._ranks.sum_(flat).split([each.numel() for each in gradients])  # type: ignore[no-untyped-call]
        for gradient, total in zip(gradients, totals, strict=True):
            gradient.copy_(total.view_as(gradient))

    def whole(self, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return learned tensors with the lines of all ranks."""
        return {
            name: self.divided[name].whole(tensor, self._ranks) if name in self.divided else tensor
            for name, tensor in learned.items()
        }

    def share(self, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return whole tensors with the lines of this rank."""
        return {
            name: self.divided[name].share(tensor, self._ranks) if name in self.divided else tensor
            for name, tensor in learned.items()
        }

    def join(self) -> None:
        """Make the network whole on every rank."""
        for branch in self._branches:
            branch.join()
