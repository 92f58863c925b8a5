"""A network on several ranks: each holds some lines of the first layers, and computes the rest of
the network whole.

The first layers are nearly all of a network's memory and work. FSDP2 would gather whole tables for
every step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from deepmf.nn.branch import Branch
from deepmf.nn.inputs import Batch, SparseBatch
from deepmf.nn.ranks import Ranks
from deepmf.nn.sparse_linear import SparseLinear


class Division(NamedTuple):
    """How a table is divided over ranks: each holds the lines of consecutive inputs, in every
    channel."""

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
    """Divides the first layers of a network over ranks, until `join` makes them whole again.

    Every rank passes the same batch and gets the latents of all vectors. Dense vectors are passed
    whole, sparse ones with the entries of this rank only. Each rank multiplies its lines of a
    table, and the products are summed over ranks; from there on all ranks compute the same. The
    names of weights stay the same.

    `divided` has the division of each table of which a rank holds some lines, by name.
    """

    def __init__(self, network: nn.Module, ranks: Ranks) -> None:
        self._network, self._ranks, self.divided = network, ranks, find_divisions(network)
        self._whole = [(branch, branch.first) for branch in _find_branches(network).values()]
        for branch, table in self._whole:
            branch.first = TableShard(table.weight, Division.of(branch), ranks)
            table.weight = nn.Parameter(table.weight.new_empty(0))  # frees its memory

    def average_gradients(self) -> None:
        """Give every rank the mean gradients of the weights that all of them have."""
        gradients = [
            weight.grad
            for name, weight in self._network.named_parameters()
            if name not in self.divided and weight.grad is not None
        ]
        flat = (
            self._ranks.sum_(torch.cat([gradient.flatten() for gradient in gradients]))
            / self._ranks.size
        )
        means = flat.split([gradient.numel() for gradient in gradients])  # type: ignore[no-untyped-call]
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))

    def join(self) -> None:
        """Make the network whole on every rank, with the weights of all ranks."""
        for (branch, table), division in zip(self._whole, self.divided.values(), strict=True):
            table.weight = nn.Parameter(
                division.gather_whole(branch.first.weight.detach(), self._ranks)
            )
            branch.first = table.train(branch.training)


def find_divisions(network: nn.Module) -> dict[str, Division]:
    """Return the division of the first layer of each branch of a network, by name."""
    return {
        f"{name}.first.weight": Division.of(branch)
        for name, branch in _find_branches(network).items()
    }


def count_divided_weights(network: nn.Module) -> int:
    """Count the weights of a network that ranks divide: the first layers of its branches."""
    return sum(branch.first.weight.numel() for branch in _find_branches(network).values())


def _find_branches(network: nn.Module) -> dict[str, Branch]:
    return {name: module for name, module in network.named_modules() if isinstance(module, Branch)}


class TableShard(SparseLinear):
    """The lines of a table that one rank holds; returns the outputs by the lines of all ranks."""

    def __init__(self, table: Tensor, division: Division, ranks: Ranks) -> None:
        nn.Module.__init__(self)  # without a table of its own
        self.weight = nn.Parameter(division.take_share(table.detach(), ranks).clone())
        self._division, self._ranks, self.sum_over_ranks = division, ranks, ranks.sum_

    def forward(self, batch: Batch) -> Tensor:
        return self._ranks.sum_products(super().forward(self._select_own_lines(batch)).float())

    def _select_own_lines(self, batch: Batch) -> Batch:
        n_inputs, n_channels = self._division
        lines = self._ranks.find_lines(n_inputs)
        if not isinstance(batch, SparseBatch):
            return batch.reshape(len(batch), n_channels, n_inputs)[..., lines].flatten(1)
        # the second channel follows the lines that are missing in the first
        in_second = batch.indices >= n_inputs
        n_missing = n_inputs - (lines.stop - lines.start)
        return batch._replace(indices=batch.indices - lines.start - n_missing * in_second)
