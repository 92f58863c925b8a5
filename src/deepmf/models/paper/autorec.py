"""I-AutoRec, U-AutoRec and Deep U-AutoRec: autoencoders on the entries of columns or of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.errors import CannotExtend
from deepmf.matrix.arrays import Array, FloatArray, LatentArray, Numbers
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale, UnitMap
from deepmf.models.fitting import Fitting
from deepmf.models.network_model import NetworkEncoder, NetworkModel, make_sparse_vectors
from deepmf.nn.branch import Dropout, make_linear
from deepmf.nn.inputs import Batch, SparseBatch, Vectors
from deepmf.nn.sparse_linear import SampledLinear, SparseLinear
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.training.blocks import VectorBlock, VectorBlocks
from deepmf.training.holdout import HeldOut
from deepmf.training.runtime import make_generator
from deepmf.training.settings import (
    WIDEST,
    Settings,
    StepDecaySettings,
    setting,
    settings_dataclass,
)
from deepmf.training.trainer import SGD, Adam, Evaluate, Objective, Optimiser, Trainer

Activation = Callable[[Tensor], Tensor]
ToInputs = Callable[[Array], Array]  # from values of entries to inputs of a network


@settings_dataclass
class VectorSettings(StepDecaySettings):
    """Settings of models that read whole rows or columns."""

    decay: float = 1.0
    batch_size: int | None = setting(
        None, "Number of rows or columns in a batch (none: all).", low=1
    )


@settings_dataclass
class AutoencoderSettings(VectorSettings):
    """Settings of all autoencoders."""

    precision: str = "single"
    inputs: str = setting(
        "raw",
        'Encoding of values: "raw", "centred" on the mean, or "scaled" to [-1, 1]; missing values are 0.',
        choices=("raw", "centred", "scaled"),
    )


@settings_dataclass
class AutoRecSettings(AutoencoderSettings):
    """The settings of I-AutoRec; the defaults were chosen on validation entries of MovieLens-1M."""

    epochs: int = 450
    learning_rate: float = 2e-3
    hidden_size: int = setting(500, "Width of the hidden layer.", low=1, high=WIDEST)
    initial: float = setting(
        1.0, "Scale of the initial weights, relative to Xavier initialisation.", above=0.0
    )
    gamma: float = setting(
        200.0,
        "Weight of the L2 penalty (lambda in the paper), for errors in the units of `inputs`.",
        low=0.0,
    )


@settings_dataclass
class UAutoRecSettings(AutoRecSettings):
    """The settings of U-AutoRec: those of I-AutoRec, with defaults for rows."""

    epochs: int = 100
    inputs: str = "centred"
    initial: float = 0.3
    gamma: float = 100.0


@settings_dataclass
class DeepAutoRecSettings(AutoencoderSettings):
    """The settings of Deep U-AutoRec; the defaults are those of the paper, except the learning rate
    (.005 there)."""

    epochs: int = 100
    validate_every: int = 2
    learning_rate: float = 2e-2
    decay: float = 0.5
    decay_every: int | tuple[int, ...] = (24, 36, 48, 66, 72)
    batch_size: int | None = 128
    hidden_sizes: tuple[int, ...] = setting(
        (512, 512, 1024),
        "Layer sizes of the encoder, the code last; the decoder mirrors them.",
        fewest=1,
    )
    dropout: float = setting(0.8, "Fraction of the code that is dropped.", low=0.0, high=0.99)
    refeeds: int = setting(1, "Number of dense re-feeding steps after each batch.", low=0)
    momentum: float = setting(0.9, "Momentum of the optimiser.", low=0.0, high=0.999)

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """The widths of all hidden layers, encoder and decoder."""
        return (*self.hidden_sizes, *reversed(self.hidden_sizes[:-1]))


class Autoencoder(nn.Module):
    """Fully connected layers with an activation after each, dropout after the middle one, and a
    last layer.

    It has as many outputs as inputs. `output_activation` is the activation of the last layer;
    `initial` scales the Xavier initialisation.
    """

    def __init__(
        self,
        n_inputs: int,
        sizes: Sequence[int],
        *,
        activation: Activation,
        output_activation: Activation = torch.positive,
        dropout: float = 0.0,
        initial: float = 1.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.first = SparseLinear(n_inputs, sizes[0], generator=generator)
        self.first_bias = nn.Parameter(torch.zeros(sizes[0], dtype=torch.float32))
        self.others = nn.ModuleList(
            make_linear(*shape, generator, bias=True) for shape in pairwise(sizes)
        )
        self.last = SampledLinear(sizes[-1], n_inputs, generator=generator)
        self.dropout = Dropout(dropout)
        self.output_activation, self._activation = output_activation, activation
        self._middle = len(sizes) // 2
        with torch.no_grad():
            for weight in self.weights():
                weight.mul_(initial)

    def forward(self, batch: Batch) -> Tensor:
        """Return all outputs (batch, outputs) of dense vectors, or those at the entries (entries,)
        of sparse ones."""
        hidden = self.hidden(batch)
        if isinstance(batch, SparseBatch):
            return self.outputs_at(hidden, batch.indices, batch.starts)
        return self.outputs(hidden)

    def hidden(self, batch: Batch) -> Tensor:
        """Return the last hidden layer (batch, hidden) of a batch of vectors."""
        hidden: Tensor = self.first(batch) + self.first_bias
        for depth, layer in enumerate([nn.Identity(), *self.others]):
            hidden = self._activation(layer(hidden))
            if depth == self._middle:
                hidden = self.dropout(hidden)
        return hidden

    def outputs(self, hidden: Tensor) -> Tensor:
        """Return all outputs, (batch, outputs), in the precision of the weights."""
        return self.output_activation(self.last(hidden).to(self.last.weight.dtype))

    def outputs_at(self, hidden: Tensor, outputs: Tensor, starts: Tensor) -> Tensor:
        """Return some outputs of each vector, (entries,); vector k has outputs[starts[k]:starts[k +
        1]]."""
        return self.output_activation(self.last.forward_at(hidden, outputs, starts))

    def weights(self) -> list[Tensor]:
        """Return the weights of the layers, without the biases."""
        return [layer.get_parameter("weight") for layer in (self.first, *self.others, self.last)]

    def sum_squared_weights(self) -> Tensor:
        """Return the sum of all squared weights, for an L2 penalty."""
        return torch.stack([weight.square().sum() for weight in self.weights()]).sum()


class ReadsRows:
    """A model whose network reads rows and has an output for each column."""

    axis: ClassVar[Axis] = "row"
    predicts: ClassVar[tuple[str, ...]] = ("I", "II")
    cannot: ClassVar[str] = "it has one output for each column it was trained on"


class ReadsColumns:
    """A model whose network reads columns and has an output for each row."""

    axis: ClassVar[Axis] = "column"
    predicts: ClassVar[tuple[str, ...]] = ("I", "III")
    cannot: ClassVar[str] = "it has one output for each row it was trained on"


class VectorEncoder(NetworkEncoder):
    """Latents of vectors are their last hidden layer and a constant 1; latents of outputs are their
    weights and bias.

    Parameters
    ----------
    network : module with `hidden`, which maps a batch of vectors to the last hidden layer.
    axis : axis that the network reads.
    inputs : maps values of entries to inputs of the network.
    """

    def __init__(self, network: Any, *, axis: Axis, inputs: ToInputs) -> None:
        super().__init__(network)
        self.axis, self._inputs = axis, inputs

    @torch.no_grad()
    def encode(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        if axis != self.axis:
            reason = (ReadsRows if self.axis == "row" else ReadsColumns).cannot
            raise CannotExtend(f"new {axis}s cannot be encoded: {reason}")
        return _append_constant(
            encode_hidden(self.network, make_sparse_vectors(entries, self._inputs(entries.values)))
        )


def count_outputs(train: ObservedMatrix, axis: Axis) -> int:
    """Return the number of outputs of a network that reads an axis."""
    return train.shape[1] if axis == "row" else train.shape[0]


def encode_hidden(network: Any, vectors: Vectors) -> Tensor:
    """Return the last hidden layer (vectors, hidden) of all vectors in single precision, batch by
    batch."""
    ids = torch.arange(len(vectors), device=network.first.weight.device)
    return torch.cat(
        [network.hidden(vectors.take(batch_ids)).float() for batch_ids in torch.split(ids, 1024)]
    )


def _append_constant(hidden: Tensor) -> LatentArray:
    return torch.cat([hidden, torch.ones_like(hidden[:, :1])], dim=1).cpu().numpy()


def compute_at_pairs(
    compute: Callable[[Tensor, Tensor], Tensor], vectors: Tensor, outputs: Tensor, n_vectors: int
) -> Tensor:
    """Return what `compute` gives for pairs of a vector and an output, (pairs, ...).

    compute: from outputs[starts[k]:starts[k + 1]] of each vector k, and `starts`, to values (pairs,
        ...).
    """
    order = torch.argsort(vectors, stable=True)
    starts = torch.searchsorted(vectors[order], torch.arange(n_vectors + 1, device=vectors.device))
    values = compute(outputs[order], starts)
    return torch.empty_like(values).index_copy_(0, order, values)


class VectorModel(NetworkModel):
    """The base class of models whose network reads the vectors of rows, or of columns."""

    axis: ClassVar[Axis]  # what the network reads
    objective_class: ClassVar[type[Any]]  # takes a matrix and settings
    predictor_class: ClassVar[type[Predictor]] = Predictor
    force_dense: ClassVar[bool | None] = None  # as of `VectorBlocks`
    settings: VectorSettings

    @abstractmethod
    def _make_encoding(self, train: ObservedMatrix) -> ToInputs:
        """Return the map from values of entries to inputs of the network."""

    @abstractmethod
    def _make_readout(self, network: Any, train: ObservedMatrix) -> Readout:
        """Return the readout of a trained network."""

    def _make_output_latents(self, network: Any) -> Tensor:
        """Return the latents (outputs, hidden + 1) of the outputs of a network."""
        return torch.cat([network.last.weight, network.last.bias[:, None]], dim=1)

    def _make_optimiser(self, parameters: Iterable[Tensor], learning_rate: float) -> Optimiser:
        return Adam(parameters, learning_rate)

    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> Trainer:
        train, settings = entries.train, self.settings
        inputs = self._make_encoding(train)(train.values.astype(np.float64))
        return Trainer(
            self._new_network(entries),
            self.objective_class(train, settings),
            VectorBlocks(
                train,
                inputs,
                axis=self.axis,
                batch_size=settings.batch_size,
                force_dense=self.force_dense,
            ),
            settings,
            validation=validation,
            new_optimiser=self._make_optimiser,
        )

    def _wrap_network(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        network, source = trainer.network, trainer.source
        assert isinstance(source, VectorBlocks)
        vectors = Latents(_append_constant(encode_hidden(network, source.vectors)))
        outputs = Latents(self._make_output_latents(network).cpu().numpy())
        network.to("cpu")
        rows, columns = (vectors, outputs) if self.axis == "row" else (outputs, vectors)
        return self._build_predictor(network, entries, rows, columns)

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        network = self._load_network(entries, tensors)
        latents = unpack_latents(tensors, entries, width=network.last.weight.shape[1] + 1)
        return self._build_predictor(network, entries, *latents)

    def _build_predictor(
        self, network: Any, entries: EntryStore, rows: Latents, columns: Latents
    ) -> Predictor:
        encoder = VectorEncoder(network, axis=self.axis, inputs=self._make_encoding(entries.train))
        factors = Factors(rows, columns, encoder, n_beside=1)
        return self.predictor_class.of(factors, self._make_readout(network, entries.train))


class VectorObjective(Objective):
    """The predictions of a network that reads vectors; a subclass defines the loss, and what
    outputs mean."""

    @abstractmethod
    def read(self, outputs: Tensor) -> Tensor:
        """Return outputs (pairs, ...) in the scale's units, (pairs,)."""

    def predictions(
        self, network: Any, source: VectorBlocks, rows: Tensor, columns: Tensor
    ) -> Tensor:
        vectors, outputs = (rows, columns) if source.axis == "row" else (columns, rows)
        hidden = encode_hidden(network, source.vectors)
        return self.read(
            compute_at_pairs(partial(network.outputs_at, hidden), vectors, outputs, len(hidden))
        )


class Shift(NamedTuple):
    """Maps values to inputs of a network and back, as a `UnitMap` does: minus a number."""

    by: float

    def to_unit(self, values: Numbers) -> Numbers:
        """Return values as inputs."""
        return values - self.by

    def from_unit(self, outputs: Numbers) -> Numbers:
        """Return outputs in the scale's units."""
        return outputs + self.by


def find_unit_map(inputs: str, train: ObservedMatrix) -> Shift | UnitMap:
    """Return the map for inputs that are "raw", "centred" (minus the mean of all entries) or
    "scaled" to [-1, 1]."""
    if inputs == "scaled":
        return train.scale.unit_map
    return Shift(0.0 if inputs == "raw" else train.mean)


class AutoencoderObjective(VectorObjective):
    """The predictions of an autoencoder; a subclass defines the loss."""

    def __init__(self, train: ObservedMatrix, settings: Any) -> None:
        super().__init__()
        self.scale, self.n_entries, self.settings = train.scale, train.n_entries, settings
        self._unit_map = find_unit_map(settings.inputs, train)

    def read(self, outputs: Tensor) -> Tensor:
        values = self._unit_map.from_unit(outputs)
        return values.clamp(self.scale.low, self.scale.high) if self.scale.is_bounded else values


class AutoencoderReadout(Readout):
    """Applies the activation of the last layer to products, and maps outputs to the scale's
    units."""

    def __init__(self, scale: Scale, network: Autoencoder, unit_map: Shift | UnitMap) -> None:
        super().__init__(scale)
        self._activation, self._unit_map = network.output_activation, unit_map

    def scores(self, products: Array, row_fields: LatentArray) -> Array:
        return self._activation(torch.from_numpy(products)).numpy()

    def units(self, scores: Array) -> FloatArray:
        """Return outputs in the scale's units."""
        return self.scale.clip(self._unit_map.from_unit(scores.astype(np.float64)))


class AutoencoderModel(VectorModel):
    """The base class of models that train an autoencoder on the entries of rows, or of columns."""

    settings: AutoencoderSettings

    def _make_encoding(self, train: ObservedMatrix) -> ToInputs:
        return find_unit_map(self.settings.inputs, train).to_unit

    def _make_readout(self, network: Autoencoder, train: ObservedMatrix) -> AutoencoderReadout:
        return AutoencoderReadout(train.scale, network, find_unit_map(self.settings.inputs, train))


def sum_squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of squared errors; a target of NaN does not count."""
    return torch.where(torch.isnan(targets), 0.0, outputs - targets).square().sum()


class AutoRecObjective(AutoencoderObjective):
    """The squared errors of entries plus the L2 penalty (Sedhain et al. 2015), divided by the
    number of entries."""

    def loss(self, network: Autoencoder, block: VectorBlock) -> Tensor:
        loss = sum_squared_errors(network(block.inputs), block.targets) / block.share
        if self.settings.gamma:
            loss = loss + self.settings.gamma / 2 * network.sum_squared_weights()
        return loss / self.n_entries


class AutoRec(AutoencoderModel):
    """The base class of I-AutoRec and U-AutoRec."""

    objective_class = AutoRecObjective
    settings: AutoRecSettings

    def _new_network(self, entries: EntryStore) -> Autoencoder:
        return Autoencoder(
            count_outputs(entries.train, self.axis),
            (self.settings.hidden_size,),
            activation=torch.sigmoid,
            initial=self.settings.initial,
            generator=make_generator(self.settings.seed, "weights"),
        )


class IAutoRec(ReadsColumns, AutoRec):
    """I-AutoRec reads the entries of a column and has one output for each row; it predicts for new
    columns.

    Settings are keyword arguments, see `AutoRecSettings`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = IAutoRec(hidden_size=8, gamma=0.1, epochs=100, learning_rate=0.05, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = AutoRecSettings


class UAutoRec(ReadsRows, AutoRec):
    """U-AutoRec reads the entries of a row and has one output for each column; it predicts for new
    rows.

    Settings are keyword arguments, see `UAutoRecSettings`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = UAutoRec(hidden_size=8, gamma=0.1, epochs=100, learning_rate=0.05, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = UAutoRecSettings


class DeepAutoRecObjective(AutoencoderObjective):
    """The mean squared error on the observed entries of a batch, then on its outputs, which are fed
    back as inputs.

    Dense re-feeding (Kuchaiev and Ginsburg 2017): a perfect network maps its own outputs, which are
    complete rows, to themselves, so they are training examples too.
    """

    def loss(self, network: Autoencoder, block: VectorBlock) -> Tensor:
        return _average_squared_errors(network(block.inputs), block.targets)

    def list_passes(self, network: Autoencoder, block: VectorBlock) -> Sequence[Evaluate]:
        """Return the loss of a block, followed by the loss of its outputs for each re-feeding."""
        fed_back: list[Tensor] = []  # the outputs of each pass, as they were before its step

        def feed_first() -> Tensor:
            hidden = network.hidden(block.inputs)
            if not isinstance(block.inputs, SparseBatch):
                outputs = network.outputs(hidden)
                fed_back.append(outputs.detach())
                return _average_squared_errors(outputs, block.targets)
            with torch.no_grad():
                fed_back.append(network.outputs(hidden))
            predictions = network.outputs_at(hidden, block.inputs.indices, block.inputs.starts)
            return _average_squared_errors(predictions, block.targets)

        def feed_again() -> Tensor:
            inputs = fed_back[-1]
            outputs: Tensor = network(inputs)
            fed_back.append(outputs.detach())
            return (outputs - inputs).square().mean()

        return [feed_first, *[feed_again] * self.settings.refeeds]


class DeepUAutoRec(ReadsRows, AutoencoderModel):
    """Deep U-AutoRec: U-AutoRec with several layers, a wide code and dense re-feeding; it predicts
    for new rows.

    Settings are keyword arguments, see `DeepAutoRecSettings`. SELU follows every layer, the last
    one included, so outputs are above -1.76: values far below zero need `inputs="scaled"`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DeepUAutoRec(hidden_sizes=(16, 8), dropout=0.1, batch_size=10, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = DeepAutoRecSettings
    settings: DeepAutoRecSettings
    objective_class = DeepAutoRecObjective

    def _make_optimiser(self, parameters: Iterable[Tensor], learning_rate: float) -> Optimiser:
        return SGD(parameters, learning_rate, momentum=self.settings.momentum)

    def _new_network(self, entries: EntryStore) -> Autoencoder:
        return Autoencoder(
            count_outputs(entries.train, self.axis),
            self.settings.layer_sizes,
            activation=functional.selu,
            output_activation=functional.selu,
            dropout=self.settings.dropout,
            generator=make_generator(self.settings.seed, "weights"),
        )


def _average_squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    return sum_squared_errors(outputs, targets) / (~torch.isnan(targets)).sum().clamp(min=1)
