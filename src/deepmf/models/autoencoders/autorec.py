"""AutoRec: an autoencoder with one hidden layer, on columns (I-AutoRec) or on rows (U-AutoRec)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

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
from deepmf.models.autoencoders.autoencoder_settings import AutoRecSettings, UAutoRecSettings
from deepmf.models.autoencoders.vector_encoder import CANNOT, LINES, PREDICTS, n_outputs
from deepmf.models.fitting import Fitting
from deepmf.models.network_model import NetworkModel
from deepmf.models.predictor import Predictor
from deepmf.models.warm_start import LineOf
from deepmf.storage.packed import Tensors
from deepmf.training.declarations import takes_settings
from deepmf.training.runtime import private_generator
from deepmf.training.settings import Settings
from deepmf.training.trainer import Trainer
from deepmf.training.validation import ValidationEntries
from deepmf.training.vector_blocks import AxisName, VectorBlock


class AutoRecObjective(AutoencoderObjective):
    """Squared errors on observed entries plus the L2 penalty (Sedhain et al. 2015), for each of `n_entries`."""

    def __init__(self, scale: Scale, encoding: ValueEncoding, *, axis: AxisName, gamma: float, n_entries: int) -> None:
        super().__init__(scale, encoding, axis=axis)
        self._gamma, self._n_entries = gamma, n_entries

    def loss(self, network: Autoencoder, block: VectorBlock) -> Tensor:
        """Return the loss of some vectors, which stand for all of them."""
        loss = squared_errors(network(block.inputs), block.targets) / block.share
        if self._gamma:
            loss = loss + self._gamma / 2 * network.squared_weights()
        return loss / self._n_entries


class AutoRec(NetworkModel):
    """What I-AutoRec and U-AutoRec share."""

    axis: ClassVar[AxisName]  # what it reads
    settings: AutoRecSettings

    def _task(self, entries: EntryStore, validation: ValidationEntries | None) -> Trainer:
        train = entries.train
        objective = AutoRecObjective(
            train.scale,
            ValueEncoding.of(self.settings.inputs, train),
            axis=self.axis,
            gamma=self.settings.gamma,
            n_entries=train.n_entries,
        )
        source = autoencoder_source(train, self.settings, self.axis)
        return Trainer(self._new_network(entries), objective, source, self.settings, validation=validation)

    def _new_network(self, entries: EntryStore) -> Autoencoder:
        return Autoencoder(
            n_outputs(entries.train, self.axis),
            (self.settings.hidden_size,),
            activation="sigmoid",
            initial=self.settings.initial,
            generator=private_generator(self.settings.seed, "weights"),
        )

    def _trained(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        return trained_autoencoder(trainer, entries, self.settings, self.axis)

    def _restored(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        network = self._stored_network(entries, tensors)
        return restored_autoencoder(network, entries, tensors, self.settings, self.axis)


class IAutoRec(AutoRec):
    """I-AutoRec: the entries of a column in, one output for each row; it predicts for new columns.

    Settings are keyword arguments; `AutoRecSettings` explains them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = IAutoRec(hidden_size=8, gamma=0.1, epochs=100, learning_rate=0.05, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    axis: ClassVar[AxisName] = "column"
    predicts: ClassVar[tuple[str, ...]] = PREDICTS["column"]
    lines: ClassVar[Mapping[str, LineOf]] = LINES["column"]
    cannot: ClassVar[str] = CANNOT["column"]
    settings_class: ClassVar[type[Settings]] = AutoRecSettings

    @takes_settings(AutoRecSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class UAutoRec(AutoRec):
    """U-AutoRec: the entries of a row in, one output for each column; it predicts for new rows.

    Settings are keyword arguments; `UAutoRecSettings` and `AutoRecSettings` explain them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = UAutoRec(hidden_size=8, gamma=0.1, epochs=100, learning_rate=0.05, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    axis: ClassVar[AxisName] = "row"
    predicts: ClassVar[tuple[str, ...]] = PREDICTS["row"]
    lines: ClassVar[Mapping[str, LineOf]] = LINES["row"]
    cannot: ClassVar[str] = CANNOT["row"]
    settings_class: ClassVar[type[Settings]] = UAutoRecSettings

    @takes_settings(UAutoRecSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
