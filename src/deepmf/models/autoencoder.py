"""Models that read a whole row and answer for all its columns, or a whole column and answer for all its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.row_order import IndexArray
from deepmf.matrix.scale import FloatArray
from deepmf.models.latents import LatentArray, Latents
from deepmf.models.network_model import NetworkModel
from deepmf.models.objective import validation_tensors
from deepmf.models.observations import AxisEntries
from deepmf.networks.autoencoder import Autoencoder
from deepmf.networks.two_branches import directions
from deepmf.networks.vectors import SparseBatch, SparseVectors, Vectors
from deepmf.training.batches import AxisName, Batches
from deepmf.training.machine import Machine
from deepmf.training.settings import TrainingSettings
from deepmf.training.trainer import Objective
from deepmf.training.walk import Axis

_VECTORS_AT_A_TIME = 1024

INPUTS = ("raw", "centred", "scaled")

Numbers = TypeVar("Numbers", npt.NDArray[Any], Tensor)


class Units(NamedTuple):
    """How values enter and leave a network, as (value - shift) / unit; what is missing enters as 0."""

    shift: float
    unit: float

    @classmethod
    def of(cls, inputs: str, train: ObservedMatrix) -> Units:
        """Return the units of a setting: "raw", "centred" (minus the mean of all entries) or "scaled" (to [-1, 1])."""
        low, high = train.scale.low, train.scale.high
        if inputs == "scaled" and high > low:
            return cls((low + high) / 2, (high - low) / 2)
        return cls(0.0 if inputs == "raw" else float(train.values.mean(dtype=np.float64)), 1.0)

    def encode(self, values: Numbers) -> Numbers:
        """Return values as the network reads and answers them."""
        return (values - self.shift) / self.unit

    def decode(self, outputs: Numbers) -> Numbers:
        """Return outputs in the scale's units."""
        return outputs * self.unit + self.shift


@dataclass(frozen=True, kw_only=True)
class AutoencoderSettings(TrainingSettings):
    """The settings that all models of this kind share.

    batch_size: how many rows (or columns) make a step (None: all).
    inputs: how values enter and leave the network: "raw" (as they are), "centred" (minus the mean of all training
        entries) or "scaled" (to [-1, 1]); what is missing is 0.
    """

    decay: float = 1.0
    precision: str = "single"
    batch_size: int | None = None
    inputs: str = "raw"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size is not None:
            self.check_whole("batch_size", low=1)
        self.check_choice("inputs", INPUTS)


class AutoencoderObjective(Objective):
    """The vectors, their targets and the validation entries of an autoencoder; a subclass brings the loss."""

    network: Autoencoder

    def __init__(
        self,
        network: Autoencoder,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        machine: Machine,
        *,
        axis: AxisName,
        units: Units,
    ) -> None:
        self.network = network.to(machine.device)
        self.batches = Batches(train, units.encode(train.values.astype(np.float64)), axis=axis, machine=machine)
        self.fixed_shapes = self.batches.dense
        self._units, self._scale = units, train.scale
        entries = validation_tensors(train, validation, machine)
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


class AutoencoderModel(NetworkModel):
    """What all models share that read the vectors of one axis and have an output for each position on the other.

    The latent of a vector is what the last layer reads of it, and a constant 1; that of an output are its weights, and
    its bias: their inner product is the output. A vector that changes costs one pass through the network.
    """

    axis: ClassVar[AxisName]  # what it reads
    settings: AutoencoderSettings
    network_: Autoencoder
    units_: Units

    def _axes(self, train: ObservedMatrix) -> Sequence[Axis]:
        positions = np.flatnonzero(train.row_counts if self.axis == "row" else train.column_counts)
        return [Axis(torch.from_numpy(positions), self.settings.batch_size or positions.size)]

    def _n_outputs(self, train: ObservedMatrix) -> int:
        return train.shape[1] if self.axis == "row" else train.shape[0]

    def _set_latents(self, objective: AutoencoderObjective) -> None:
        self.units_ = Units.of(self.settings.inputs, self._seen.train)
        outputs = Latents(self._output_latents(objective.network))
        read = Latents(_with_constant(all_hidden(objective.network, objective.batches.vectors)))
        self.row_latents_, self.column_latents_ = (read, outputs) if self.axis == "row" else (outputs, read)

    def _output_latents(self, network: Autoencoder) -> LatentArray:
        """Return what belongs to each output, (outputs, latent)."""
        weight, bias = network.last.weight, network.last.bias
        latents: LatentArray = torch.cat([weight, bias[:, None]], dim=1).cpu().numpy()
        return latents

    def _set_learned(self, content: dict[str, Any], tensors: dict[str, npt.NDArray[Any]]) -> None:
        super()._set_learned(content, tensors)
        self.units_ = Units.of(self.settings.inputs, self._seen.train)

    def _extend(self, rows: IndexArray, columns: IndexArray) -> None:
        seen = self._seen
        with torch.no_grad():
            if self.axis == "row" and rows.size:
                latents = self._latents_of(seen.row_entries(rows))
                self.row_latents_ = self.row_latents_.changed(rows, latents, count=len(seen.rows))
            if self.axis == "column" and columns.size:
                latents = self._latents_of(seen.column_entries(columns))
                self.column_latents_ = self.column_latents_.changed(columns, latents, count=len(seen.columns))

    def _latents_of(self, entries: AxisEntries) -> LatentArray:
        inputs = self.units_.encode(entries.values).astype(np.float32)
        vectors = SparseVectors(*(torch.from_numpy(np.array(array)) for array in (*entries[:2], inputs)))
        return _with_constant(all_hidden(self.network_, vectors))

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._activated(super()._score_pairs(rows, columns))

    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return self._activated(super()._score_block(rows, columns))

    def _activated(self, products: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.network_.output_activation(torch.from_numpy(products)).numpy()

    def _to_units(self, scores: npt.NDArray[Any]) -> FloatArray:
        return self.scale_.clip(self.units_.decode(scores.astype(np.float64)))

    def _row_directions(self) -> LatentArray:
        return _directions(self.row_latents_)

    def _column_directions(self) -> LatentArray:
        return _directions(self.column_latents_)


class ReadsRows:
    """For an autoencoder that reads rows and has one output for each column."""

    axis: ClassVar[AxisName] = "row"
    predicts: ClassVar[tuple[str, ...]] = ("I", "II")
    cannot: ClassVar[str] = "it has one output for each column it was trained on"


class ReadsColumns:
    """For an autoencoder that reads columns and has one output for each row."""

    axis: ClassVar[AxisName] = "column"
    predicts: ClassVar[tuple[str, ...]] = ("I", "III")
    cannot: ClassVar[str] = "it has one output for each row it was trained on"


def all_hidden(network: Autoencoder, vectors: Vectors) -> Tensor:
    """Return what the last layer reads of all vectors (vectors, hidden), in single precision, some at a time."""
    ids = torch.arange(len(vectors), device=next(network.parameters()).device)
    return torch.cat([network.hidden(vectors.take(some)).float() for some in torch.split(ids, _VECTORS_AT_A_TIME)])


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of squared errors where there are targets; NaN is none."""
    return torch.where(torch.isnan(targets), 0.0, outputs - targets).square().sum()


def _by_vector(rows: Tensor, columns: Tensor, values: Tensor, *, axis: AxisName, count: int) -> SparseBatch:
    """Group entries by the vector that they belong to."""
    vectors, outputs = (rows, columns) if axis == "row" else (columns, rows)
    order = torch.argsort(vectors, stable=True)
    starts = torch.searchsorted(vectors[order], torch.arange(count + 1, device=vectors.device))
    return SparseBatch(outputs[order], starts, values[order])


def _with_constant(hidden: Tensor) -> LatentArray:
    latents: LatentArray = torch.cat([hidden, torch.ones_like(hidden[:, :1])], dim=1).cpu().numpy()
    return latents


def _directions(latents: Latents) -> LatentArray:
    """Return latents without the constant, or the bias, of length 1."""
    likeness: LatentArray = directions(torch.from_numpy(latents.whole()[:, :-1])).numpy()
    return likeness
