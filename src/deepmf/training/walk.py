"""The walk of training: which rows and columns make the block of each step."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Walk:
    """Shuffled passes over the rows and the columns, a block of each at a time.

    An epoch ends when all rows, or all columns, have been passed once. Blocks are of one size: the last one of a
    pass takes up from its start again. Everything a step reads lies on the device.
    """

    def __init__(
        self, rows: Tensor, columns: Tensor, *, block_rows: int, block_columns: int, generator: torch.Generator
    ) -> None:
        self._rows, self._columns = rows, columns  # positions that have entries
        self._row_order, self._column_order = rows.clone(), columns.clone()
        self._row_offsets = torch.arange(min(block_rows, rows.numel()), device=rows.device)
        self._column_offsets = torch.arange(min(block_columns, columns.numel()), device=rows.device)
        self._step = torch.zeros((), dtype=torch.int64, device=rows.device)
        self._generator = generator
        self.n_steps = min(
            math.ceil(rows.numel() / self._row_offsets.numel()),
            math.ceil(columns.numel() / self._column_offsets.numel()),
        )

    def begin_epoch(self) -> None:
        """Shuffle both passes and go back to their start."""
        self._row_order.copy_(_shuffled(self._rows, self._generator))
        self._column_order.copy_(_shuffled(self._columns, self._generator))
        self._step.zero_()

    def next_block(self) -> tuple[Tensor, Tensor]:
        """Return the row positions and column positions of the next block."""
        rows = _slice(self._row_order, self._row_offsets, self._step)
        columns = _slice(self._column_order, self._column_offsets, self._step)
        self._step += 1
        return rows, columns


def _shuffled(positions: Tensor, generator: torch.Generator) -> Tensor:
    return positions[torch.randperm(positions.numel(), generator=generator).to(positions.device)]


def _slice(order: Tensor, offsets: Tensor, step: Tensor) -> Tensor:
    return order[(step * offsets.numel() + offsets) % order.numel()]
