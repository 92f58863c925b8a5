"""Where the blocks of an epoch come from: the training entries on a device, cut by a sampler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.ranks import Ranks
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.training.block_sampler import BlockSampler, SampledAxis
from deepmf.training.free_memory import free_bytes

# On a CPU torch's sparse products run at a seventh of the speed of its dense ones (docs/log.md), so a dense first layer
# wins when more than a seventh of the matrix is observed; on a GPU it always does, as long as the tables fit into this
# many bytes and into this share of its free memory.
DENSE_SHARE_ON_CPU = 1 / 7
DENSE_BYTES_ON_GPU = 16 << 30
DENSE_SHARE_OF_FREE = 1 / 3


class BlockSource(ABC):
    """The blocks of an epoch, one for each step.

    A source is made from a matrix; `prepare` puts what steps read on a device. Dense tables are used where a measured
    rule says that they are faster and fit: every step then runs the same kernels on the same shapes.
    """

    whole_epochs: bool = False  # whether an epoch passes all of every axis
    dense: bool  # known once it is prepared
    _ranks: Ranks | None = None
    _sampler: BlockSampler

    def prepare(
        self, device: torch.device, *, half: bool, generator: torch.Generator, ranks: Ranks | None = None
    ) -> None:
        """Put the entries on a device, in half precision where tables allow it; `generator` shuffles epochs.

        Where several ranks train together, it may be a part of the entries, of which the others have the rest.
        """
        self._ranks = ranks
        self._place(device, half=half)
        placed = [SampledAxis(axis.positions.to(device), axis.block) for axis in self._axes()]
        self._sampler = BlockSampler(placed, generator=generator, whole=self.whole_epochs)

    @abstractmethod
    def _place(self, device: torch.device, *, half: bool) -> None:
        """Put the entries on a device."""

    @abstractmethod
    def _axes(self) -> Sequence[SampledAxis]:
        """Return the axes that blocks are cut from."""

    @property
    def n_steps(self) -> int:
        """How many blocks an epoch has."""
        return self._sampler.n_steps

    def begin_epoch(self) -> None:
        """Shuffle."""
        self._sampler.begin_epoch()

    def join(self) -> None:
        """Have vectors be whole on every rank; training is over."""
        self._ranks = None

    @abstractmethod
    def next_block(self) -> Any:
        """Return what the next step reads and predicts."""


def prefer_dense(matrix: ObservedMatrix, device: torch.device, *, half: bool) -> bool:
    """Return whether dense tables of a matrix are faster on a device, and fit."""
    if device.type == "cuda":
        return dense_bytes(matrix, half=half) <= dense_budget(device)
    return matrix.n_entries >= DENSE_SHARE_ON_CPU * matrix.shape[0] * matrix.shape[1]


def dense_budget(device: torch.device) -> float:
    """Return how many bytes dense tables may take on a GPU."""
    free = free_bytes(device)
    return DENSE_BYTES_ON_GPU if free is None else min(DENSE_BYTES_ON_GPU, DENSE_SHARE_OF_FREE * free)


def dense_bytes(matrix: ObservedMatrix, *, half: bool) -> int:
    """Return the bytes of dense tables: targets in single precision, and inputs by row and by column."""
    return matrix.shape[0] * matrix.shape[1] * (4 + 2 * (2 if half else 4))


def tensor_on(device: torch.device, array: npt.NDArray[Any]) -> Tensor:
    """Return a copy of an array on a device: a matrix's own arrays are read-only."""
    return torch.from_numpy(np.array(array)).to(device)


def dense_table(matrix: ObservedMatrix, values: npt.NDArray[Any], device: torch.device, *, missing: float) -> Tensor:
    """Return values of entries as a table (rows, columns) in single precision, `missing` where nothing is observed."""
    table = torch.full(matrix.shape, missing, dtype=torch.float32, device=device)
    places = tensor_on(device, matrix.entry_rows).long(), tensor_on(device, matrix.by_row.columns).long()
    table[places] = tensor_on(device, values.astype(np.float32))
    return table
