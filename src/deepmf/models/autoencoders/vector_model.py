"""A model that reads a whole row and answers for all its columns, or a whole column and answers for all its rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.vectors import Vectors
from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.matrix.entry_store import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.autoencoders.autoencoder_settings import VectorSettings
from deepmf.models.latents import Latents
from deepmf.models.network_model import NetworkModel, sparse_vectors
from deepmf.training.batches import AxisName
from deepmf.training.block_sampler import SampledAxis

_VECTORS_AT_A_TIME = 1024


class VectorModel(NetworkModel):
    """What all models share that read the vectors of one axis and have an output for each position on the other.

    The latent of a vector is what the network's last layer reads of it, and a constant 1, so that an output's weights
    and its bias are a latent too. A vector that changes costs one pass through the network.
    """

    axis: ClassVar[AxisName]  # what it reads
    settings: VectorSettings
    extra_columns: ClassVar[int] = 1  # the constant, and the bias
    network_: Any  # a module with `hidden`, which maps a batch of vectors to what its last layer reads

    @abstractmethod
    def _inputs(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values of entries as the network reads them."""

    def _axes(self, train: ObservedMatrix) -> Sequence[SampledAxis]:
        positions = np.flatnonzero(train.row_counts if self.axis == "row" else train.column_counts)
        return [SampledAxis(torch.from_numpy(positions), self.settings.batch_size or positions.size)]

    def _n_outputs(self, train: ObservedMatrix) -> int:
        return train.shape[1] if self.axis == "row" else train.shape[0]

    def _width(self) -> int:
        return int(self.network_.last.weight.shape[1]) + 1  # what the last layer reads, and the constant

    def _place_latents(self, read: Tensor, outputs: Tensor) -> None:
        """Set the latents of the axis that is read (vectors, hidden), and of the outputs (outputs, hidden + 1)."""
        both = Latents(_with_constant(read)), Latents(outputs.cpu().numpy())
        self.row_latents_, self.column_latents_ = both if self.axis == "row" else both[::-1]

    def _extend(self, rows: IndexArray, columns: IndexArray) -> None:
        seen = self._seen
        if self.axis == "row" and rows.size:
            latents = self._latents_of(seen.row_entries(rows))
            self.row_latents_ = self.row_latents_.changed(rows, latents, count=len(seen.rows))
        if self.axis == "column" and columns.size:
            latents = self._latents_of(seen.column_entries(columns))
            self.column_latents_ = self.column_latents_.changed(columns, latents, count=len(seen.columns))

    @torch.no_grad()
    def _latents_of(self, entries: AxisEntries) -> LatentArray:
        vectors = sparse_vectors(entries, self._inputs(entries.values))
        return _with_constant(all_hidden(self.network_, vectors))


class ReadsRows:
    """For a model that reads rows and has one output for each column."""

    axis: ClassVar[AxisName] = "row"
    predicts: ClassVar[tuple[str, ...]] = ("I", "II")
    cannot: ClassVar[str] = "it has one output for each column it was trained on"


class ReadsColumns:
    """For a model that reads columns and has one output for each row."""

    axis: ClassVar[AxisName] = "column"
    predicts: ClassVar[tuple[str, ...]] = ("I", "III")
    cannot: ClassVar[str] = "it has one output for each row it was trained on"


def all_hidden(network: Any, vectors: Vectors) -> Tensor:
    """Return what the last layer reads of all vectors (vectors, hidden), in single precision, some at a time."""
    ids = torch.arange(len(vectors), device=network.first.weight.device)
    return torch.cat([network.hidden(vectors.take(some)).float() for some in torch.split(ids, _VECTORS_AT_A_TIME)])


def _with_constant(hidden: Tensor) -> LatentArray:
    latents: LatentArray = torch.cat([hidden, torch.ones_like(hidden[:, :1])], dim=1).cpu().numpy()
    return latents
