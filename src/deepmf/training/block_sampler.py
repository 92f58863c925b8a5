"""The sampling of blocks: which rows and columns make the block of each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class SampledAxis(NamedTuple):
    """The positions of an axis that have entries, and how many of them make a block."""

    positions: Tensor
    block: int


class BlockSampler:
    """Shuffled passes over one axis or both, a block of each at a time.

    An epoch ends when all of one axis has been passed once, or of every axis (`whole`). Blocks are of one size: the
    last one of a pass is filled up from its start. Everything a step reads lies on the device.
    """

    def __init__(self, axes: Sequence[SampledAxis], *, generator: torch.Generator, whole: bool = False) -> None:
        self._passes = [_Pass(axis, generator) for axis in axes]
        self._step = torch.zeros((), dtype=torch.int64, device=axes[0].positions.device)
        self.n_steps = (max if whole else min)(one.n_blocks for one in self._passes)

    def begin_epoch(self) -> None:
        """Shuffle every pass and go back to its start."""
        for one in self._passes:
            one.shuffle()
        self._step.zero_()

    def next_block(self) -> tuple[Tensor, ...]:
        """Return the positions of the next block, those of each axis."""
        block = tuple(one.block(self._step) for one in self._passes)
        self._step += 1
        return block


class _Pass:
    """One shuffled pass over an axis."""

    def __init__(self, axis: SampledAxis, generator: torch.Generator) -> None:
        self._positions, self._generator = axis.positions, generator
        self._order = axis.positions.clone()
        self._offsets = torch.arange(min(axis.block, self._order.numel()), device=self._order.device)
        self.n_blocks = math.ceil(self._order.numel() / self._offsets.numel())

    def shuffle(self) -> None:
        order = torch.randperm(self._positions.numel(), generator=self._generator)
        self._order.copy_(self._positions[order.to(self._positions.device)])

    def block(self, step: Tensor) -> Tensor:
        return self._order[(step * self._offsets.numel() + self._offsets) % self._order.numel()]
