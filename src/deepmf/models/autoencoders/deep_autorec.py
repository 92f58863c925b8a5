"""Deep U-AutoRec: a deep autoencoder on rows, trained on its own outputs too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from deepmf.layers.vectors import SparseBatch
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.scale import Scale
from deepmf.models.autoencoders.autoencoder_model import (
    AutoencoderObjective,
    ValueEncoding,
    autoencoder_source,
    restored_autoencoder,
    squared_errors,
    trained_autoencoder,
)
from deepmf.models.autoencoders.autoencoder_network import Autoencoder
from deepmf.models.autoencoders.autoencoder_settings import DeepAutoRecSettings
from deepmf.models.autoencoders.vector_encoder import CANNOT, LINES, PREDICTS, n_outputs
from deepmf.models.fitting import Fitting
from deepmf.models.network_model import NetworkModel
from deepmf.models.predictor import Predictor
from deepmf.models.warm_start import LineOf
from deepmf.storage.packed import Tensors
from deepmf.training.declarations import takes_settings
from deepmf.training.optimisers import SGD
from deepmf.training.runtime import private_generator
from deepmf.training.settings import Settings
from deepmf.training.trainer import Evaluate, Trainer
from deepmf.training.validation import ValidationEntries
from deepmf.training.vector_blocks import VectorBlock


class DeepAutoRecObjective(AutoencoderObjective):
    """The mean squared error on the observed entries of some rows, then on all entries of the outputs for them.

    Dense re-feeding (Kuchaiev and Ginsburg 2017): a network that has learned the matrix maps its own outputs,
    which are full rows, to themselves; so they are training examples too.
    """

    def __init__(self, scale: Scale, encoding: ValueEncoding, *, refeeds: int) -> None:
        super().__init__(scale, encoding, axis="row")
        self._refeeds = refeeds

    def loss(self, network: Autoencoder, block: VectorBlock) -> Tensor:
        """Return the mean squared error on the observed entries of some rows."""
        return _mean_squared_error(network(block.inputs), block.targets)

    def passes(self, network: Autoencoder, block: VectorBlock) -> Sequence[Evaluate]:
        """Return the loss on a block, and that on its outputs, as often as they are fed back."""
        fed_back: list[Tensor] = []  # the outputs of each pass, as they were before its step

        def first() -> Tensor:
            hidden = network.hidden(block.inputs)
            if isinstance(block.inputs, SparseBatch):
                with torch.no_grad():
                    fed_back.append(network.outputs(hidden))
                return _mean_squared_error(network.outputs_at(hidden, block.inputs), block.targets)
            outputs = network.outputs(hidden)
            fed_back.append(outputs.detach())
            return _mean_squared_error(outputs, block.targets)

        def again() -> Tensor:
            inputs = fed_back[-1]
            outputs: Tensor = network(inputs)
            fed_back.append(outputs.detach())
            return (outputs - inputs).square().mean()

        return [first, *[again] * self._refeeds]


class DeepUAutoRec(NetworkModel):
    """Deep U-AutoRec: a row in, through a wide code, one output for each column; it predicts for new rows.

    Settings are keyword arguments; `DeepAutoRecSettings` explains them. SELU follows every layer, the last too, so
    outputs lie above -1.76: values far below zero need `inputs="scaled"`.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DeepUAutoRec(hidden_sizes=(16, 8), dropout=0.1, batch_size=10, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    predicts: ClassVar[tuple[str, ...]] = PREDICTS["row"]
    lines: ClassVar[Mapping[str, LineOf]] = LINES["row"]
    cannot: ClassVar[str] = CANNOT["row"]
    settings_class: ClassVar[type[Settings]] = DeepAutoRecSettings
    settings: DeepAutoRecSettings

    @takes_settings(DeepAutoRecSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def _task(self, entries: EntryStore, validation: ValidationEntries | None) -> Trainer:
        train = entries.train
        encoding = ValueEncoding.of(self.settings.inputs, train)
        objective = DeepAutoRecObjective(train.scale, encoding, refeeds=self.settings.refeeds)
        return Trainer(
            self._new_network(entries),
            objective,
            autoencoder_source(train, self.settings, "row"),
            self.settings,
            validation=validation,
            new_optimiser=partial(SGD, momentum=self.settings.momentum),
        )

    def _new_network(self, entries: EntryStore) -> Autoencoder:
        return Autoencoder(
            n_outputs(entries.train, "row"),
            self.settings.layer_sizes,
            activation="selu",
            output_activation="selu",
            dropout=self.settings.dropout,
            generator=private_generator(self.settings.seed, "weights"),
        )

    def _trained(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        return trained_autoencoder(trainer, entries, self.settings, "row")

    def _restored(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        network = self._stored_network(entries, tensors)
        return restored_autoencoder(network, entries, tensors, self.settings, "row")


def _mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return squared_errors(outputs, targets) / (~torch.isnan(targets)).sum().clamp(min=1)
