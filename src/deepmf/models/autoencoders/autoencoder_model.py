"""Autoencoders as models: how values enter and leave the network, and what it is measured on."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.vectors import SparseBatch
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.autoencoders.autoencoder_network import Autoencoder
from deepmf.models.autoencoders.autoencoder_settings import AutoencoderSettings
from deepmf.models.autoencoders.vector_model import VectorModel, all_hidden
from deepmf.models.dmf.dmf_objective import validation_tensors
from deepmf.storage.packed import Tensors
from deepmf.training.batches import AxisName, Batches
from deepmf.training.runtime import Runtime
from deepmf.training.trainer import Objective

Numbers = TypeVar("Numbers", npt.NDArray[Any], Tensor)


class ValueEncoding(NamedTuple):
    """How values enter and leave a network, as (value - shift) / unit; what is missing enters as 0."""

    shift: float
    unit: float

    @classmethod
    def of(cls, inputs: str, train: ObservedMatrix) -> ValueEncoding:
        """Return the units of a setting: "raw", "centred" (minus the mean of all entries) or "scaled" (to [-1, 1])."""
        low, high = train.scale.low, train.scale.high
        if inputs == "scaled" and high > low:
            return cls((low + high) / 2, (high - low) / 2)
        return cls(0.0 if inputs == "raw" else train.mean, 1.0)

    def encode(self, values: Numbers) -> Numbers:
        """Return values as the network reads and answers them."""
        return (values - self.shift) / self.unit

    def decode(self, outputs: Numbers) -> Numbers:
        """Return outputs in the scale's units."""
        return outputs * self.unit + self.shift


class AutoencoderObjective(Objective):
    """The vectors, their targets and the validation entries of an autoencoder; a subclass brings the loss."""

    network: Autoencoder

    def __init__(
        self,
        network: Autoencoder,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        runtime: Runtime,
        *,
        axis: AxisName,
        units: ValueEncoding,
    ) -> None:
        self.network = network.to(runtime.device)
        self.batches = Batches(train, units.encode(train.values.astype(np.float64)), axis=axis, runtime=runtime)
        self.static_shapes = self.batches.dense
        self._units, self._scale = units, train.scale
        entries = validation_tensors(train, validation, runtime)
        self._validation = None if entries is None else _by_vector(*entries, axis=axis, count=len(self.batches.vectors))

    def validation_error(self) -> float | None:
        """Return the root mean squared error on validation entries, in the scale's units."""
        if self._validation is None:
            return None
        hidden = all_hidden(self.network, self.batches.vectors)
        predictions = self.predictions(self.network.outputs_at(hidden, self._validation))
        return float((predictions - self._validation.weights).square().mean().sqrt())

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return what the model would answer, in the scale's units."""
        return self._units.decode(outputs).clamp(self._scale.low, self._scale.high)


class AutoencoderModel(VectorModel):
    """What all autoencoders share: the inner product of a vector's and an output's latent is the output."""

    settings: AutoencoderSettings
    network_: Autoencoder
    units_: ValueEncoding

    def _inputs(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.units_.encode(values)

    def _set_latents(self, objective: AutoencoderObjective) -> None:
        self.units_ = ValueEncoding.of(self.settings.inputs, self._seen.train)
        last = objective.network.last
        read = all_hidden(objective.network, objective.batches.vectors)
        self._place_latents(read, torch.cat([last.weight, last.bias[:, None]], dim=1))

    def _set_learned(self, content: Any, tensors: Tensors) -> None:
        super()._set_learned(content, tensors)
        self.units_ = ValueEncoding.of(self.settings.inputs, self._seen.train)

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._activated(super()._score_pairs(rows, columns))

    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._activated(super()._score_block(rows, columns))

    def _activated(self, products: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.network_.output_activation(torch.from_numpy(products)).numpy()

    def _to_units(self, scores: npt.NDArray[Any]) -> FloatArray:
        return self.scale_.clip(self.units_.decode(scores.astype(np.float64)))


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of squared errors where there are targets; NaN is none."""
    return torch.where(torch.isnan(targets), 0.0, outputs - targets).square().sum()


def _by_vector(rows: Tensor, columns: Tensor, values: Tensor, *, axis: AxisName, count: int) -> SparseBatch:
    """Group entries by the vector that they belong to."""
    vectors, outputs = (rows, columns) if axis == "row" else (columns, rows)
    order = torch.argsort(vectors, stable=True)
    starts = torch.searchsorted(vectors[order], torch.arange(count + 1, device=vectors.device))
    return SparseBatch(outputs[order], starts, values[order])
