"""AutoRec: an autoencoder with one hidden layer, on columns (I-AutoRec) or on rows (U-AutoRec)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.autoencoders.autoencoder_model import (
    AutoencoderModel,
    AutoencoderObjective,
    ValueEncoding,
    squared_errors,
)
from deepmf.models.autoencoders.autoencoder_network import Autoencoder
from deepmf.models.autoencoders.autoencoder_settings import AutoRecSettings, UAutoRecSettings
from deepmf.models.autoencoders.vector_model import ReadsColumns, ReadsRows
from deepmf.training.batches import AxisName
from deepmf.training.runtime import Runtime, private_generator
from deepmf.training.settings import Settings


class AutoRecObjective(AutoencoderObjective):
    """Squared errors on observed entries plus the L2 penalty (Sedhain et al. 2015), for each entry."""

    def __init__(
        self,
        network: Autoencoder,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        runtime: Runtime,
        *,
        axis: AxisName,
        units: ValueEncoding,
        gamma: float,
    ) -> None:
        super().__init__(network, train, validation, runtime, axis=axis, units=units)
        self._gamma, self._n_entries = gamma, train.n_entries

    def loss(self, *block: Tensor) -> Tensor:
        """Return the loss of some vectors, which stand for all of them."""
        (ids,) = block
        inputs, targets = self.batches.take(ids)
        share = ids.numel() / self.batches.positions.size
        loss = squared_errors(self.network(inputs), targets) / share
        if self._gamma:
            loss = loss + self._gamma / 2 * self.network.squared_weights()
        return loss / self._n_entries


class AutoRec(AutoencoderModel):
    """What I-AutoRec and U-AutoRec share."""

    settings: AutoRecSettings

    def _new_network(self, train: ObservedMatrix) -> Autoencoder:
        return Autoencoder(
            self._n_outputs(train),
            (self.settings.hidden_size,),
            activation="sigmoid",
            initial=self.settings.initial,
            generator=private_generator(self.settings.seed, "weights"),
        )

    def _objective(
        self, train: ObservedMatrix, validation: ObservedMatrix | None, runtime: Runtime
    ) -> AutoRecObjective:
        units = ValueEncoding.of(self.settings.inputs, train)
        return AutoRecObjective(
            self._new_network(train), train, validation, runtime, axis=self.axis, units=units, gamma=self.settings.gamma
        )


class IAutoRec(ReadsColumns, AutoRec):
    """I-AutoRec: the entries of a column in, one output for each row; it predicts for new columns.

    Settings are keyword arguments; `AutoRecSettings` explains them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = IAutoRec(hidden_size=8, gamma=0.1, epochs=100, learning_rate=0.05, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = AutoRecSettings


class UAutoRec(ReadsRows, AutoRec):
    """U-AutoRec: the entries of a row in, one output for each column; it predicts for new rows.

    Settings are keyword arguments; `UAutoRecSettings` and `AutoRecSettings` explain them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = UAutoRec(hidden_size=8, gamma=0.1, epochs=100, learning_rate=0.05, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = UAutoRecSettings
