"""Autoencoders as models: the encoding of values, the blocks of training, and the predictor."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.layers.vectors import SparseBatch
from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.unit_map import Numbers, UnitMap
from deepmf.models.autoencoders.autoencoder_network import Autoencoder
from deepmf.models.autoencoders.autoencoder_settings import AutoencoderSettings
from deepmf.models.autoencoders.vector_encoder import VectorEncoder, all_hidden
from deepmf.models.predictor import Predictor, unpack_latents
from deepmf.models.readout import Readout
from deepmf.storage.packed import Tensors
from deepmf.training.trainer import Objective, Trainer
from deepmf.training.vector_blocks import AxisName, VectorBlocks


class ValueEncoding(NamedTuple):
    """How values enter and leave a network: less a shift, or on [-1, 1]; what is missing enters as 0."""

    shift: float = 0.0
    unit_map: UnitMap | None = None

    @classmethod
    def of(cls, inputs: str, train: ObservedMatrix) -> ValueEncoding:
        """Return the units of a setting: "raw", "centred" (minus the mean of all entries) or "scaled" (to [-1, 1])."""
        if inputs == "scaled":
            return cls(unit_map=train.scale.unit_map)
        return cls(0.0 if inputs == "raw" else train.mean)

    def encode(self, values: Numbers) -> Numbers:
        """Return values in the units of the network's inputs and outputs."""
        return values - self.shift if self.unit_map is None else self.unit_map.to_unit(values)

    def decode(self, outputs: Numbers) -> Numbers:
        """Return outputs in the scale's units."""
        return outputs + self.shift if self.unit_map is None else self.unit_map.from_unit(outputs)


class AutoencoderObjective(Objective):
    """The predictions that all autoencoders share; a subclass defines the loss."""

    def __init__(self, scale: Scale, encoding: ValueEncoding, *, axis: AxisName) -> None:
        super().__init__()
        self._scale, self._encoding, self._axis = scale, encoding, axis

    def predictions(self, network: Autoencoder, source: VectorBlocks, rows: Tensor, columns: Tensor) -> Tensor:
        """Return what the network predicts for pairs of positions, in the scale's units."""
        vectors, outputs = (rows, columns) if self._axis == "row" else (columns, rows)
        order = torch.argsort(vectors, stable=True)
        starts = torch.searchsorted(vectors[order], torch.arange(len(source.vectors) + 1, device=vectors.device))
        wanted = SparseBatch(outputs[order], starts, torch.empty(0, device=vectors.device))
        found = network.outputs_at(all_hidden(network, source.vectors), wanted)
        return self.read(torch.empty_like(found).index_copy_(0, order, found))

    def read(self, outputs: Tensor) -> Tensor:
        """Return outputs in the scale's units."""
        values = self._encoding.decode(outputs)
        return values.clamp(self._scale.low, self._scale.high) if self._scale.is_bounded else values


class AutoencoderReadout(Readout):
    """Products are sums of the last layer: its activation follows, and the way back to the scale's units."""

    def __init__(self, scale: Scale, network: Autoencoder, encoding: ValueEncoding) -> None:
        super().__init__(scale)
        self._activation, self._encoding = network.output_activation, encoding

    def scores(self, products: npt.NDArray[Any], row_fields: LatentArray) -> npt.NDArray[Any]:
        """Return outputs of the network."""
        return self._activation(torch.from_numpy(products)).numpy()

    def units(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return outputs in the scale's units."""
        return self.scale.clip(self._encoding.decode(scores.astype(np.float64)))


def autoencoder_source(train: ObservedMatrix, settings: AutoencoderSettings, axis: AxisName) -> VectorBlocks:
    """Return the blocks of an autoencoder: vectors whose values are what it reads and predicts."""
    values = ValueEncoding.of(settings.inputs, train).encode(train.values.astype(np.float64))
    return VectorBlocks(train, values, axis=axis, batch_size=settings.batch_size)


def trained_autoencoder(
    trainer: Trainer, entries: EntryStore, settings: AutoencoderSettings, axis: AxisName
) -> Predictor:
    """Return the predictor of a trained autoencoder."""
    network, source = trainer.network, trainer.source
    assert isinstance(network, Autoencoder) and isinstance(source, VectorBlocks)
    encoding = ValueEncoding.of(settings.inputs, entries.train)
    encoder = VectorEncoder(network, axis=axis, inputs=encoding.encode)
    last = network.last
    rows, columns = encoder.placed(source.vectors, torch.cat([last.weight, last.bias[:, None]], dim=1))
    network.to("cpu")
    return Predictor(rows, columns, encoder, AutoencoderReadout(entries.scale, network, encoding), n_beside=1)


def restored_autoencoder(
    network: Autoencoder, entries: EntryStore, tensors: Tensors, settings: AutoencoderSettings, axis: AxisName
) -> Predictor:
    """Return the predictor of a stored autoencoder."""
    encoding = ValueEncoding.of(settings.inputs, entries.train)
    rows, columns = unpack_latents(tensors, entries, width=network.last.weight.shape[1] + 1)
    encoder = VectorEncoder(network, axis=axis, inputs=encoding.encode)
    return Predictor(rows, columns, encoder, AutoencoderReadout(entries.scale, network, encoding), n_beside=1)


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of squared errors where there are targets; NaN is none."""
    return torch.where(torch.isnan(targets), 0.0, outputs - targets).square().sum()
