"""A model of two branches: one reads a row's entries, the other a column's, and new ones are described the same way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from deepmf.errors import BadEntries
from deepmf.layers.vectors import Vectors
from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.matrix.entry_store import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.latents import Latents
from deepmf.models.network_model import NetworkModel
from deepmf.models.two_branch_settings import TwoBranchSettings
from deepmf.training.block_sampler import SampledAxis
from deepmf.training.block_source import Blocks


class BlockObjective(Protocol):
    """An objective whose steps are on blocks of a matrix."""

    blocks: Blocks


class TwoBranchModel(NetworkModel):
    """What models of two branches share: the walk over rows and columns, and extension as a forward pass."""

    settings: TwoBranchSettings

    @abstractmethod
    def _row_latents(self, vectors: Any) -> LatentArray:
        """Return what the trained network makes of some rows (rows, latent)."""

    @abstractmethod
    def _column_latents(self, vectors: Any) -> LatentArray:
        """Return what the trained network makes of some columns (columns, latent)."""

    @abstractmethod
    def _vectors(self, entries: AxisEntries, n_inputs: int) -> Vectors:
        """Return some rows or columns as a branch reads them."""

    def _axes(self, train: ObservedMatrix) -> Sequence[SampledAxis]:
        rows, columns = np.flatnonzero(train.row_counts), np.flatnonzero(train.column_counts)
        if rows.size < 2 or columns.size < 2:
            raise BadEntries(
                f"{type(self).__name__} learns from at least two rows and two columns with entries; "
                f"got {rows.size} and {columns.size}"
            )
        sizes = self.settings.block_rows, self.settings.block_columns
        return [SampledAxis(torch.from_numpy(those), size) for those, size in zip((rows, columns), sizes, strict=True)]

    def _set_latents(self, objective: Any) -> None:
        self.row_latents_ = Latents(self._row_latents(objective.blocks.rows))
        self.column_latents_ = Latents(self._column_latents(objective.blocks.columns))

    def _extend(self, rows: IndexArray, columns: IndexArray) -> None:
        seen = self._seen
        n_rows, n_columns = seen.train.shape
        with torch.no_grad():
            if rows.size:
                latents = self._row_latents(self._vectors(seen.row_entries(rows), n_columns))
                self.row_latents_ = self.row_latents_.changed(rows, latents, count=len(seen.rows))
            if columns.size:
                latents = self._column_latents(self._vectors(seen.column_entries(columns), n_rows))
                self.column_latents_ = self.column_latents_.changed(columns, latents, count=len(seen.columns))
