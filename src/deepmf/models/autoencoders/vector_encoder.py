"""Networks that read whole rows, or whole columns, and have one output for each position on the other axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.errors import CannotExtend
from deepmf.layers.vectors import Vectors
from deepmf.matrix.arrays import LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.latents import Latents
from deepmf.models.network_model import NetworkEncoder, sparse_vectors
from deepmf.models.warm_start import LineOf
from deepmf.training.vector_blocks import AxisName

_VECTORS_AT_A_TIME = 1024

# What such a network can predict for, and why not for the rest, by what it reads.
PREDICTS: dict[AxisName, tuple[str, ...]] = {"row": ("I", "II"), "column": ("I", "III")}
CANNOT: dict[AxisName, str] = {
    "row": "it has one output for each column it was trained on",
    "column": "it has one output for each row it was trained on",
}

# The weights that belong to labels of the other axis, by what a network reads.
LINES: dict[AxisName, dict[str, LineOf]] = {
    "row": {"first.weight": "column", "last.weight": "column", "last.bias": "column"},
    "column": {"first.weight": "row", "last.weight": "row", "last.bias": "row"},
}


class VectorEncoder(NetworkEncoder):
    """The latent of a vector is what the network's last layer reads of it, and a constant 1.

    So an output's weights and its bias are a latent too. A vector that changes costs one pass through the network.

    network: a module with `hidden`, which maps a batch of vectors to what its last layer reads.
    inputs: from values of entries to what the network reads.
    """

    def __init__(self, network: Any, *, axis: AxisName, inputs: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> None:
        super().__init__(network)
        self.axis, self._inputs = axis, inputs

    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of rows, where it reads these."""
        return self._read("row", entries)

    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the latents of columns, where it reads these."""
        return self._read("column", entries)

    def placed(self, vectors: Vectors, outputs: Tensor) -> tuple[Latents, Latents]:
        """Return the latents of rows and of columns, from the vectors that are read and (outputs, hidden + 1)."""
        both = Latents(_with_constant(all_hidden(self.network, vectors))), Latents(outputs.cpu().numpy())
        return both if self.axis == "row" else both[::-1]

    @torch.no_grad()
    def _read(self, axis: AxisName, entries: AxisEntries) -> LatentArray:
        if axis != self.axis:
            raise CannotExtend(f"new {axis}s cannot be encoded: {CANNOT[self.axis]}")
        return _with_constant(all_hidden(self.network, sparse_vectors(entries, self._inputs(entries.values))))


def n_outputs(train: ObservedMatrix, axis: AxisName) -> int:
    """Return how many outputs a network has that reads the vectors of an axis."""
    return train.shape[1] if axis == "row" else train.shape[0]


def all_hidden(network: Any, vectors: Vectors) -> Tensor:
    """Return what the last layer reads of all vectors (vectors, hidden), in single precision, some at a time."""
    ids = torch.arange(len(vectors), device=network.first.weight.device)
    return torch.cat([network.hidden(vectors.take(some)).float() for some in torch.split(ids, _VECTORS_AT_A_TIME)])


def _with_constant(hidden: Tensor) -> LatentArray:
    latents: LatentArray = torch.cat([hidden, torch.ones_like(hidden[:, :1])], dim=1).cpu().numpy()
    return latents
