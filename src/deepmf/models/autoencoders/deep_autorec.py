"""Deep U-AutoRec: a deep autoencoder on rows, whose answers are fed back to it as further examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from deepmf.layers.vectors import SparseBatch
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.autoencoders.autoencoder_model import (
    AutoencoderModel,
    AutoencoderObjective,
    ValueEncoding,
    squared_errors,
)
from deepmf.models.autoencoders.autoencoder_network import Autoencoder
from deepmf.models.autoencoders.autoencoder_settings import DeepAutoRecSettings
from deepmf.models.autoencoders.vector_model import ReadsRows
from deepmf.training.optimisers import SGD
from deepmf.training.runtime import Runtime, private_generator
from deepmf.training.settings import Settings
from deepmf.training.trainer import Evaluate


class DeepAutoRecObjective(AutoencoderObjective):
    """The mean squared error on the observed entries of some rows, then on all entries of what was answered for them.

    Dense re-feeding (Kuchaiev and Ginsburg 2017): a network that has learned the matrix would leave its own answers,
    which are full rows, as they are; so they are examples too.
    """

    def __init__(
        self,
        network: Autoencoder,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        runtime: Runtime,
        *,
        units: ValueEncoding,
        refeeds: int,
    ) -> None:
        super().__init__(network, train, validation, runtime, axis="row", units=units)
        self._refeeds = refeeds

    def loss(self, *block: Tensor) -> Tensor:
        """Return the mean squared error on the observed entries of some rows."""
        (ids,) = block
        inputs, targets = self.batches.take(ids)
        return _mean_squared_error(self.network(inputs), targets)

    def passes(self, *block: Tensor) -> Sequence[Evaluate]:
        """Return the loss on a batch, and that on its answers, as often as they are fed back."""
        (ids,) = block
        inputs, targets = self.batches.take(ids)
        answers: list[Tensor] = []  # of each pass, as they were before its step

        def first() -> Tensor:
            hidden = self.network.hidden(inputs)
            if isinstance(inputs, SparseBatch):
                with torch.no_grad():
                    answers.append(self.network.outputs(hidden))
                return _mean_squared_error(self.network.outputs_at(hidden, inputs), targets)
            outputs = self.network.outputs(hidden)
            answers.append(outputs.detach())
            return _mean_squared_error(outputs, targets)

        def again() -> Tensor:
            fed = answers[-1]
            outputs: Tensor = self.network(fed)
            answers.append(outputs.detach())
            return (outputs - fed).square().mean()

        return [first, *[again] * self._refeeds]


class DeepUAutoRec(ReadsRows, AutoencoderModel):
    """Deep U-AutoRec: a row in, through a wide code, one output for each column; it predicts for new rows.

    Settings are keyword arguments; `DeepAutoRecSettings` explains them. SELU follows every layer, the last too, so
    outputs lie above -1.76: values far below zero need `inputs="scaled"`.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DeepUAutoRec(hidden_sizes=(16, 8), dropout=0.1, batch_size=10, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = DeepAutoRecSettings
    settings: DeepAutoRecSettings

    def _new_network(self, train: ObservedMatrix) -> Autoencoder:
        return Autoencoder(
            self._n_outputs(train),
            self.settings.layer_sizes,
            activation="selu",
            output_activation="selu",
            dropout=self.settings.dropout,
            generator=private_generator(self.settings.seed, "weights"),
        )

    def _objective(
        self, train: ObservedMatrix, validation: ObservedMatrix | None, runtime: Runtime
    ) -> DeepAutoRecObjective:
        units = ValueEncoding.of(self.settings.inputs, train)
        return DeepAutoRecObjective(
            self._new_network(train), train, validation, runtime, units=units, refeeds=self.settings.refeeds
        )

    def _optimiser(self, network: nn.Module) -> SGD:
        return SGD(network.parameters(), self.settings.learning_rate, momentum=self.settings.momentum)


def _mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return squared_errors(outputs, targets) / (~torch.isnan(targets)).sum().clamp(min=1)
