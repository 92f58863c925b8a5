"""CF-NADE-S: it learns to predict the levels of some entries of a row, or of a column, from any others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.errors import BadModelFile
from deepmf.layers.vectors import Batch, SparseBatch
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.autoencoders.autoencoder_settings import CFNADESettings, UCFNADESettings
from deepmf.models.autoencoders.nade_network import Nade, entries_where, expected_values, ordinal_costs
from deepmf.models.autoencoders.vector_model import ReadsColumns, ReadsRows, VectorModel, all_hidden
from deepmf.models.dmf.dmf_objective import validation_tensors
from deepmf.models.label_pairs import Unknown
from deepmf.models.latents import Latents
from deepmf.storage.packed import Tensors
from deepmf.training.batches import Batches
from deepmf.training.block_source import DENSE_BYTES_ON_GPU, prefer_dense
from deepmf.training.runtime import Runtime, private_generator
from deepmf.training.settings import Settings
from deepmf.training.trainer import Objective

_PAIRS_AT_A_TIME = 1 << 14
_SCORES_AT_A_TIME = 1 << 22  # 32 MB in double precision

# A dense step keeps about so many numbers for each level of each place of its batch.
_NUMBERS_A_SCORE = 12
# The largest whole number that half precision counts up to.
_MOST_DENSE_LEVELS = 256


class CFNADEObjective(Objective):
    """The ordinal cost of the entries of each vector that it is not shown, weighted as if it were that of all.

    A vector of D entries is shown d of them; the cost of the others counts D / (D - d) times.
    """

    network: Nade

    def __init__(
        self,
        network: Nade,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        runtime: Runtime,
        *,
        model: CFNADE,
        force_dense: bool | None = None,
    ) -> None:
        self.network = network.to(runtime.device)
        dense = _prefer_dense(train, runtime, model=model) if force_dense is None else force_dense
        numbers = level_numbers(train, train.values)
        self.batches = Batches(train, numbers, axis=model.axis, runtime=runtime, force_dense=dense)
        self.static_shapes = self.batches.dense
        self._gamma = model.settings.gamma
        self._levels = torch.tensor(train.scale.levels, dtype=torch.float32, device=runtime.device)
        self._validation = validation_tensors(train, validation, runtime)
        self._reads_rows = model.axis == "row"

    def loss(self, *block: Tensor) -> Tensor:
        """Return the loss of some vectors, of which the network is shown random entries."""
        (ids,) = block
        batch = self.batches.take(ids).inputs
        subset = self.network.subset
        shown = subset.of_entries(batch.starts) if isinstance(batch, SparseBatch) else subset.of_table(batch > 0)
        loss = self.cost(batch, shown) / ids.numel()
        return loss + self._gamma / 2 * self.network.squared_weights() if self._gamma else loss

    def cost(self, batch: Batch, shown: Tensor) -> Tensor:
        """Return the sum of the vectors' costs, where they are shown some entries: (entries,) or (batch, places)."""
        if isinstance(batch, SparseBatch):
            inputs, targets = entries_where(batch, shown), entries_where(batch, ~shown)
            scores = self.network.level_scores_at(self.network.hidden(inputs), targets.indices, targets.starts)
            n_targets = targets.starts.diff()
            weights = batch.starts.diff() / n_targets.clamp(min=1)
            costs = ordinal_costs(scores, targets.weights)
            return costs @ torch.repeat_interleave(weights, n_targets).to(costs.dtype)
        hidden = self.network.hidden(torch.where(shown, batch, 0.0))
        missing = (batch > 0) & ~shown
        weights = (batch > 0).sum(1) / missing.sum(1).clamp(min=1)
        costs = ordinal_costs(self.network.level_scores(hidden), batch)
        return torch.where(missing, costs, 0.0).sum(1) @ weights.to(costs.dtype)

    def validation_error(self) -> float | None:
        """Return the root mean squared error on validation entries, in the scale's units."""
        if self._validation is None:
            return None
        rows, columns, values = self._validation
        vectors, outputs = (rows, columns) if self._reads_rows else (columns, rows)
        scores = pair_scores(self.network, all_hidden(self.network, self.batches.vectors), vectors, outputs)
        return float((expected_values(scores, self._levels) - values).square().mean().sqrt())


class CFNADE(VectorModel):
    """What I-CF-NADE and U-CF-NADE share.

    The latent of a vector is its hidden activations, and a constant 1. That of an output is how they change the
    log-odds of the highest level against the lowest, and the constant part of these: so alike outputs have alike
    latents. Predictions come from the hidden activations and the network's scores of all levels.
    """

    settings: CFNADESettings
    network_: Nade

    def predict_distribution(
        self, rows: Iterable[Any], columns: Iterable[Any], *, unknown: Unknown = "error"
    ) -> FloatArray:
        """Return the probability of each level for each pair of a row and a column, (pairs, levels).

        By `unknown="fallback"`, it is how frequent each level is in the row or column that is known, or in training.
        """
        levels = self.scale_.levels_for("CF-NADE")
        boundaries = self.scale_.to_unit((levels[:-1] + levels[1:]) / 2.0).astype(np.float32)
        return self._pairs(rows, columns, unknown).answered(
            lambda *pairs: self._level_scores(*pairs).double().softmax(1).numpy(),
            lambda rows, columns: self._fallback.distribution(rows, columns, boundaries),
        )

    def _set_learned(self, content: Any, tensors: Tensors) -> None:
        super()._set_learned(content, tensors)
        if (self.row_latents_ if self.axis == "row" else self.column_latents_).largest() > 1.0:
            raise BadModelFile("the stored latents are no hidden activations, which lie between -1 and 1")

    def _inputs(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return level_numbers(self._seen.train, values)

    def _objective(self, train: ObservedMatrix, validation: ObservedMatrix | None, runtime: Runtime) -> CFNADEObjective:
        return CFNADEObjective(self._new_network(train), train, validation, runtime, model=self)

    def _new_network(self, train: ObservedMatrix) -> Nade:
        levels = train.scale.levels_for("CF-NADE")
        # One entry more of each level: one that nobody used is rare, not impossible.
        counts = np.bincount(level_numbers(train, train.values) - 1, minlength=levels.size) + 1.0
        return Nade(
            self._n_outputs(train),
            self.settings.hidden_size,
            frequencies=torch.from_numpy(counts / counts.sum()).float(),
            normalise=self.settings.normalise,
            generator=private_generator(self.settings.seed, "weights"),
        )

    def _set_latents(self, objective: CFNADEObjective) -> None:
        network = objective.network
        last = torch.cat([network.last.weight, network.last.bias[:, None]], dim=1)
        outputs = last.view(network.n_levels, network.n_places, -1)[1:].sum(0)
        self._place_latents(all_hidden(network, objective.batches.vectors), outputs)

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        return expected_values(self._level_scores(rows, columns), self._levels()).numpy()

    @torch.no_grad()
    def _score_block(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        latents, read, outputs = self._by_role(rows, columns)
        levels, n_outputs = self._levels(), outputs.size
        every = n_outputs == self.network_.n_places and np.array_equal(outputs, np.arange(n_outputs))
        wanted = None if every else torch.from_numpy(outputs)
        block = np.empty((read.size, n_outputs))
        step = max(_SCORES_AT_A_TIME // max(n_outputs * levels.numel(), 1), 1)
        for start in range(0, read.size, step):
            some = slice(start, start + step)
            hidden = torch.from_numpy(latents.take(read[some])[:, :-1])
            block[some] = expected_values(self.network_.level_scores(hidden, wanted), levels).numpy()
        return block if self.axis == "row" else block.T

    @torch.no_grad()
    def _level_scores(self, rows: IndexArray, columns: IndexArray) -> Tensor:
        """Return the scores of all levels for each pair of positions, (pairs, levels)."""
        latents, read, outputs = self._by_role(rows, columns)
        scores = torch.empty(read.size, self.network_.n_levels, dtype=torch.float32)
        for start in range(0, read.size, _PAIRS_AT_A_TIME):
            some = slice(start, start + _PAIRS_AT_A_TIME)
            distinct, which = np.unique(read[some], return_inverse=True)
            hidden = torch.from_numpy(latents.take(distinct)[:, :-1])
            scores[some] = pair_scores(self.network_, hidden, torch.from_numpy(which), torch.from_numpy(outputs[some]))
        return scores

    def _by_role(self, rows: IndexArray, columns: IndexArray) -> tuple[Latents, IndexArray, IndexArray]:
        """Return the latents of what is read, and which positions are read, and which are outputs."""
        return (self.row_latents_, rows, columns) if self.axis == "row" else (self.column_latents_, columns, rows)

    def _levels(self) -> Tensor:
        return torch.tensor(self.scale_.levels, dtype=torch.float64)


class ICFNADE(ReadsColumns, CFNADE):
    """I-CF-NADE: the levels of a column's entries in, those of all its rows out; it predicts for new columns.

    Predictions are means of a distribution over levels (`predict_distribution`), levels the nearest to these. For
    matrices with at least two levels. Settings are keyword arguments; `CFNADESettings` explains them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = ICFNADE(hidden_size=8, epochs=100, learning_rate=0.02, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = CFNADESettings


class UCFNADE(ReadsRows, CFNADE):
    """U-CF-NADE: the levels of a row's entries in, those of all its columns out; it predicts for new rows.

    Predictions are means of a distribution over levels (`predict_distribution`), levels the nearest to these. For
    matrices with at least two levels. Settings are keyword arguments; `CFNADESettings` explains them.

    >>> from deepmf.data.synthetic import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = UCFNADE(hidden_size=8, epochs=100, learning_rate=0.02, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = UCFNADESettings


def level_numbers(train: ObservedMatrix, values: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return which levels values are, counted from 1."""
    return train.scale.level_positions(values) + 1


def pair_scores(network: Nade, hidden: Tensor, vectors: Tensor, outputs: Tensor) -> Tensor:
    """Return the scores of all levels for each pair of a vector and an output, (pairs, levels)."""
    order = torch.argsort(vectors, stable=True)
    starts = torch.searchsorted(vectors[order], torch.arange(len(hidden) + 1, device=vectors.device))
    scores = network.level_scores_at(hidden, outputs[order], starts)
    return torch.empty_like(scores).index_copy_(0, order, scores)


def _prefer_dense(train: ObservedMatrix, runtime: Runtime, *, model: CFNADE) -> bool:
    """Say whether dense tables are faster: on a GPU, where they and those of a step fit."""
    n_levels = 0 if train.scale.levels is None else train.scale.levels.size
    n_places = model._n_outputs(train)
    batch = model.settings.batch_size or sum(train.shape) - n_places
    step_bytes = 4 * _NUMBERS_A_SCORE * batch * n_places * n_levels
    fits = n_levels <= _MOST_DENSE_LEVELS and step_bytes <= DENSE_BYTES_ON_GPU
    return runtime.is_gpu and fits and prefer_dense(train, runtime)
