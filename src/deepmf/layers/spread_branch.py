"""A branch on several ranks: each holds some lines of the first layer's table, and computes a share of the latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from deepmf.layers.branch import Branch
from deepmf.layers.dropout import Dropout
from deepmf.layers.ranked_norm import RankedBatchNorm, hand_on
from deepmf.layers.ranks import Ranks
from deepmf.layers.sparse_linear import SparseLinear
from deepmf.layers.vectors import Batch, SparseBatch


class SpreadBranch:
    """Divides the work of a branch over ranks, until `join` makes it whole again.

    Every rank hands the branch the same batch, and gets the latents of all of it. In between, each rank sums up what
    its lines of the table add to the first layer's outputs; the sums are added up over ranks, each of which goes on
    with its share of the batch; the latents of all shares are gathered in the end. The names of weights stay the same.
    """

    def __init__(self, branch: Branch, ranks: Ranks) -> None:
        self._branch, self._ranks = branch, ranks
        self._whole = branch.first, branch.dropout, branch.norms
        size = _BatchSize()
        self.n_lines = len(branch.first.weight)
        table = TableShard(branch.first.weight, ranks, size)
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
        branch.first.weight = nn.Parameter(self._ranks.gather(shard.weight.detach(), self.n_lines))
        for norm, learned in zip(branch.norms, ranked, strict=True):
            hand_on(learned, norm)
        for hook in self._hooks:
            hook.remove()
        branch.train(shard.training)


@dataclass
class _BatchSize:
    """How many lines the batch has that a branch is computing; its first layer sees all of them."""

    lines: int = 0


class TableShard(SparseLinear):
    """The lines of a table that one rank holds: it reads a whole batch, and returns a share of the outputs."""

    def __init__(self, table: Tensor, ranks: Ranks, size: _BatchSize) -> None:
        nn.Module.__init__(self)  # without a table of its own
        self._lines = ranks.lines(len(table))
        self.weight = nn.Parameter(table.detach()[self._lines].clone())
        self._ranks, self._size = ranks, size

    def forward(self, batch: Batch) -> Tensor:
        """Map a batch of vectors to this rank's share of (batch, outputs)."""
        sums = super().forward(self._within(batch))
        self._size.lines = len(sums)
        return self._ranks.sum_to_shares(sums.float())

    def _within(self, batch: Batch) -> Batch:
        """Return a batch without the inputs whose lines other ranks hold."""
        first, last = self._lines.start, self._lines.stop
        if not isinstance(batch, SparseBatch):
            return batch[:, first:last]
        ours = (batch.indices >= first) & (batch.indices < last)
        before = torch.nn.functional.pad(ours.cumsum(0), (1, 0))
        places = ours.nonzero().squeeze(1)  # once: indexing by a mask would look for them twice
        indices = batch.indices.index_select(0, places) - first
        return SparseBatch(indices, before[batch.starts], batch.weights.index_select(0, places))


class _RankedDropout(Dropout):
    """Drops out what one process would: it draws for the whole batch, and uses the draws of its share."""

    def __init__(self, fraction: float, ranks: Ranks, size: _BatchSize) -> None:
        super().__init__(fraction)
        self._ranks, self._size = ranks, size

    def _draws(self, inputs: Tensor) -> Tensor:
        return self._ranks.share(super()._draws(inputs.new_empty(1).expand(self._size.lines, *inputs.shape[1:])))


def spread(network: nn.Module, ranks: Ranks) -> dict[str, SpreadBranch]:
    """Divide the branches of a network over ranks; return them by the names of their tables."""
    branches = [(name, module) for name, module in network.named_modules() if isinstance(module, Branch)]
    return {f"{name}.first.weight": SpreadBranch(branch, ranks) for name, branch in branches}


def table_size(network: nn.Module) -> int:
    """Return how many weights of a network ranks divide: those of its branches' tables."""
    return sum(module.first.weight.numel() for module in network.modules() if isinstance(module, Branch))
