"""CF-NADE-S: it learns to predict the levels of some entries of a row, or of a column, from any others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.errors import BadModelFile
from deepmf.layers.vectors import Batch, SparseBatch
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.autoencoders.autoencoder_settings import CFNADESettings, UCFNADESettings
from deepmf.models.autoencoders.nade_network import Nade, entries_where, expected_values, ordinal_costs
from deepmf.models.autoencoders.vector_encoder import CANNOT, LINES, PREDICTS, VectorEncoder, all_hidden, n_outputs
from deepmf.models.fitting import Fitting
from deepmf.models.latents import Latents
from deepmf.models.network_model import NetworkModel
from deepmf.models.predictive_distribution import PredictiveDistribution
from deepmf.models.predictor import Positions, Predictor, unpack_latents
from deepmf.models.readout import Readout
from deepmf.models.warm_start import LineOf
from deepmf.storage.packed import Tensors
from deepmf.training.block_source import dense_budget
from deepmf.training.declarations import takes_settings
from deepmf.training.runtime import private_generator
from deepmf.training.settings import Settings
from deepmf.training.trainer import Objective, Trainer
from deepmf.training.validation import ValidationEntries
from deepmf.training.vector_blocks import AxisName, VectorBlock, VectorBlocks

_PAIRS_AT_A_TIME = 1 << 14
_SCORES_AT_A_TIME = 1 << 22  # 32 MB in double precision

# How many numbers a dense step keeps, about, for each level of each place of its batch.
_NUMBERS_A_SCORE = 12
# The largest whole number that half precision counts up to.
_MOST_DENSE_LEVELS = 256


class CFNADEObjective(Objective):
    """The ordinal cost of the entries of each vector that it is not shown, weighted as if it were that of all.

    A vector of D entries is shown d of them; the cost of the others counts D / (D - d) times.
    """

    levels: Tensor

    def __init__(self, levels: FloatArray, *, axis: AxisName, gamma: float) -> None:
        super().__init__()
        self._axis, self._gamma = axis, gamma
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.float32), persistent=False)

    def loss(self, network: Nade, block: VectorBlock) -> Tensor:
        """Return the loss of some vectors, of which the network is shown random entries."""
        batch, subset = block.inputs, network.subset
        shown = subset.of_entries(batch.starts) if isinstance(batch, SparseBatch) else subset.of_table(batch > 0)
        loss = self.cost(network, batch, shown) / block.n_vectors
        return loss + self._gamma / 2 * network.squared_weights() if self._gamma else loss

    def cost(self, network: Nade, batch: Batch, shown: Tensor) -> Tensor:
        """Return the sum of the vectors' costs, where they are shown some entries: (entries,) or (batch, places)."""
        if isinstance(batch, SparseBatch):
            inputs, targets = entries_where(batch, shown), entries_where(batch, ~shown)
            scores = network.level_scores_at(network.hidden(inputs), targets.indices, targets.starts)
            n_targets = targets.starts.diff()
            weights = batch.starts.diff() / n_targets.clamp(min=1)
            costs = ordinal_costs(scores, targets.weights)
            return costs @ torch.repeat_interleave(weights, n_targets).to(costs.dtype)
        hidden = network.hidden(torch.where(shown, batch, 0.0))
        missing = (batch > 0) & ~shown
        weights = (batch > 0).sum(1) / missing.sum(1).clamp(min=1)
        costs = ordinal_costs(network.level_scores(hidden), batch)
        return torch.where(missing, costs, 0.0).sum(1) @ weights.to(costs.dtype)

    def predictions(self, network: Nade, source: VectorBlocks, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the expected values of pairs of positions, in the scale's units."""
        vectors, outputs = (rows, columns) if self._axis == "row" else (columns, rows)
        scores = pair_scores(network, all_hidden(network, source.vectors), vectors, outputs)
        return expected_values(scores, self.levels)


class NadeBlocks(VectorBlocks):
    """The vectors of CF-NADE, by the numbers of their levels.

    Dense tables are used on a GPU alone, where they and those of a step fit.
    """

    def __init__(
        self, train: ObservedMatrix, *, axis: AxisName, batch_size: int | None, force_dense: bool | None = None
    ) -> None:
        numbers = level_numbers(train.scale, train.values)
        super().__init__(train, numbers, axis=axis, batch_size=batch_size, force_dense=force_dense)
        n_levels = train.scale.levels_for("CF-NADE").size
        n_places = n_outputs(train, axis)
        self._step_bytes = 4 * _NUMBERS_A_SCORE * (batch_size or sum(train.shape) - n_places) * n_places * n_levels
        self._has_few_levels = n_levels <= _MOST_DENSE_LEVELS

    def _prefers_dense(self, device: torch.device, *, half: bool) -> bool:
        fits = device.type == "cuda" and self._has_few_levels and self._step_bytes <= dense_budget(device)
        return fits and super()._prefers_dense(device, half=half)


class NadePredictor(Predictor):
    """Predicts from hidden activations by the network's scores of all levels, not by products of latents."""

    @property
    def gives_distribution(self) -> bool:
        """It gives a distribution over the levels."""
        return True

    @property
    def support(self) -> FloatArray:
        """The levels."""
        return self.readout.scale.levels_for("CF-NADE")

    @property
    def unit_boundaries(self) -> npt.NDArray[np.float32]:
        """The middles between neighbouring levels, in units of [-1, 1]."""
        return self.readout.scale.to_unit((self.support[:-1] + self.support[1:]) / 2.0).astype(np.float32)

    def score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return the expected value of each pair of positions."""
        return expected_values(self._level_scores(rows, columns), self._levels).numpy()

    @torch.no_grad()
    def score_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return the expected values (rows, columns) of all pairs of some positions."""
        if isinstance(columns, slice):
            columns = np.arange(columns.start, columns.stop)
        latents, read, outputs = self._by_role(rows, columns)
        every = outputs.size == self._network.n_places and np.array_equal(outputs, np.arange(outputs.size))
        wanted = None if every else torch.from_numpy(outputs)
        block = np.empty((read.size, outputs.size))
        step = max(_SCORES_AT_A_TIME // max(outputs.size * self._levels.numel(), 1), 1)
        for start in range(0, read.size, step):
            some = slice(start, start + step)
            hidden = torch.from_numpy(latents.take(read[some])[:, :-1])
            block[some] = expected_values(self._network.level_scores(hidden, wanted), self._levels).numpy()
        return block if self._reads_rows else block.T

    def distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the distribution over levels of each pair of positions."""
        probabilities: FloatArray = self._level_scores(rows, columns).double().softmax(1).numpy()
        boundaries = (self.support[:-1] + self.support[1:]) / 2.0
        return PredictiveDistribution.of_probabilities(self.support, boundaries, probabilities)

    @torch.no_grad()
    def _level_scores(self, rows: IndexArray, columns: IndexArray) -> Tensor:
        """Return the scores of all levels for each pair of positions, (pairs, levels)."""
        latents, read, outputs = self._by_role(rows, columns)
        scores = torch.empty(read.size, self._network.n_levels, dtype=torch.float32)
        for start in range(0, read.size, _PAIRS_AT_A_TIME):
            some = slice(start, start + _PAIRS_AT_A_TIME)
            distinct, which = np.unique(read[some], return_inverse=True)
            hidden = torch.from_numpy(latents.take(distinct)[:, :-1])
            scores[some] = pair_scores(self._network, hidden, torch.from_numpy(which), torch.from_numpy(outputs[some]))
        return scores

    def _by_role(self, rows: IndexArray, columns: IndexArray) -> tuple[Latents, IndexArray, IndexArray]:
        """Return the latents of what is read, and which positions are read, and which are outputs."""
        return (self.rows, rows, columns) if self._reads_rows else (self.columns, columns, rows)

    @property
    def _network(self) -> Nade:
        assert isinstance(self.encoder, VectorEncoder)
        network: Nade = self.encoder.network
        return network

    @property
    def _reads_rows(self) -> bool:
        assert isinstance(self.encoder, VectorEncoder)
        return self.encoder.axis == "row"

    @property
    def _levels(self) -> Tensor:
        return torch.tensor(self.support, dtype=torch.float64)


class CFNADE(NetworkModel):
    """What I-CF-NADE and U-CF-NADE share.

    The latent of a vector is its hidden activations, and a constant 1. That of an output is how they change the
    log-odds of the highest level against the lowest, and the constant part of these: so similar outputs have similar
    latents. Predictions come from the hidden activations and the network's scores of all levels.
    """

    axis: ClassVar[AxisName]  # what it reads
    settings: CFNADESettings

    def _task(self, entries: EntryStore, validation: ValidationEntries | None) -> Trainer:
        network, train = self._new_network(entries), entries.train
        objective = CFNADEObjective(train.scale.levels_for("CF-NADE"), axis=self.axis, gamma=self.settings.gamma)
        source = NadeBlocks(train, axis=self.axis, batch_size=self.settings.batch_size)
        return Trainer(network, objective, source, self.settings, validation=validation)

    def _new_network(self, entries: EntryStore) -> Nade:
        train = entries.train
        levels = train.scale.levels_for("CF-NADE")
        # One entry more of each level: one that never occurs is rare, not impossible.
        counts = np.bincount(level_numbers(train.scale, train.values) - 1, minlength=levels.size) + 1.0
        return Nade(
            n_outputs(train, self.axis),
            self.settings.hidden_size,
            frequencies=torch.from_numpy(counts / counts.sum()).float(),
            normalise=self.settings.normalise,
            generator=private_generator(self.settings.seed, "weights"),
        )

    def _trained(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        network, source = trainer.network, trainer.source
        assert isinstance(network, Nade) and isinstance(source, VectorBlocks)
        encoder = self._encoder(network, entries.scale)
        last = torch.cat([network.last.weight, network.last.bias[:, None]], dim=1)
        outputs = last.view(network.n_levels, network.n_places, -1)[1:].sum(0)
        rows, columns = encoder.placed(source.vectors, outputs)
        network.to("cpu")
        return NadePredictor(rows, columns, encoder, Readout(entries.scale), n_beside=1)

    def _restored(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        network = self._stored_network(entries, tensors)
        rows, columns = unpack_latents(tensors, entries, width=self.settings.hidden_size + 1)
        if (rows if self.axis == "row" else columns).largest().max(initial=0.0) > 1.0:
            raise BadModelFile("the stored latents are no hidden activations, which lie between -1 and 1")
        encoder = self._encoder(network, entries.scale)
        return NadePredictor(rows, columns, encoder, Readout(entries.scale), n_beside=1)

    def _encoder(self, network: Nade, scale: Scale) -> VectorEncoder:
        return VectorEncoder(network, axis=self.axis, inputs=partial(level_numbers, scale))


class ICFNADE(CFNADE):
    """I-CF-NADE: the levels of a column's entries in, those of all its rows out; it predicts for new columns.

    Predictions are means of a distribution over levels (`predict_distribution`), levels the nearest to these. For
    matrices with at least two levels. Settings are keyword arguments; `CFNADESettings` explains them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = ICFNADE(hidden_size=8, epochs=100, learning_rate=0.02, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    axis: ClassVar[AxisName] = "column"
    predicts: ClassVar[tuple[str, ...]] = PREDICTS["column"]
    lines: ClassVar[Mapping[str, LineOf]] = LINES["column"]
    cannot: ClassVar[str] = CANNOT["column"]
    settings_class: ClassVar[type[Settings]] = CFNADESettings

    @takes_settings(CFNADESettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class UCFNADE(CFNADE):
    """U-CF-NADE: the levels of a row's entries in, those of all its columns out; it predicts for new rows.

    Predictions are means of a distribution over levels (`predict_distribution`), levels the nearest to these. For
    matrices with at least two levels. Settings are keyword arguments; `CFNADESettings` explains them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = UCFNADE(hidden_size=8, epochs=100, learning_rate=0.02, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    axis: ClassVar[AxisName] = "row"
    predicts: ClassVar[tuple[str, ...]] = PREDICTS["row"]
    lines: ClassVar[Mapping[str, LineOf]] = LINES["row"]
    cannot: ClassVar[str] = CANNOT["row"]
    settings_class: ClassVar[type[Settings]] = UCFNADESettings

    @takes_settings(UCFNADESettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


def level_numbers(scale: Scale, values: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return which levels values are, counted from 1."""
    return scale.level_positions(values) + 1


def pair_scores(network: Nade, hidden: Tensor, vectors: Tensor, outputs: Tensor) -> Tensor:
    """Return the scores of all levels for each pair of a vector and an output, (pairs, levels)."""
    order = torch.argsort(vectors, stable=True)
    starts = torch.searchsorted(vectors[order], torch.arange(len(hidden) + 1, device=vectors.device))
    scores = network.level_scores_at(hidden, outputs[order], starts)
    return torch.empty_like(scores).index_copy_(0, order, scores)
