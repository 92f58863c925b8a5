"""CF-NADE-S: a network that predicts the levels of some entries of a row, or of a column, from the
others."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import Array, FloatArray, IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.paper.autorec import (
    ReadsColumns,
    ReadsRows,
    ToInputs,
    VectorEncoder,
    VectorModel,
    VectorObjective,
    VectorSettings,
    compute_at_pairs,
    count_outputs,
)
from deepmf.nn.branch import RandomModule
from deepmf.nn.inputs import SparseBatch
from deepmf.nn.sparse_linear import SampledLinear, SparseLinear
from deepmf.scoring.distribution import PredictiveDistribution
from deepmf.scoring.factors import Positions, list_positions
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.training.blocks import VectorBlock
from deepmf.training.runtime import make_generator
from deepmf.training.settings import WIDEST, Settings, setting, settings_dataclass


@settings_dataclass
class CFNADESettings(VectorSettings):
    """The settings of I-CF-NADE; except for `epochs` and `normalise`, the defaults are those of
    Zheng et al. 2016.

    `normalise` is not in the paper: it makes the inputs of vectors with few and with many entries
    comparable.
    """

    epochs: int = 200
    learning_rate: float = 1e-3
    averaging: float = 0.995
    batch_size: int | None = 512
    hidden_size: int = setting(500, "Width of the hidden layer.", low=1, high=WIDEST)
    gamma: float = setting(
        0.02,
        "Weight of the L2 penalty gamma / 2 (||W||^2 + ||V||^2), relative to the cost of one row or column.",
        low=0.0,
    )
    normalise: str = setting(
        "count",
        'Factor on the sum of inputs: 1 ("none"), the square root of 100 / count ("root") or 100 / count ("count").',
        choices=("none", "root", "count"),
    )


@settings_dataclass
class UCFNADESettings(CFNADESettings):
    """The settings of U-CF-NADE: those of I-CF-NADE, with a default for rows."""

    normalise: str = "root"


# The power of (usual count / count) that scales the sum over the entries of a vector.
NORMALISATIONS = {"none": 0.0, "root": 0.5, "count": 1.0}

_USUAL_COUNT = 100.0


class Nade(nn.Module):
    """One tanh layer on thermometer-encoded levels, and a score for each level of each output.

    Levels are numbered from 1. Parameters are shared between levels
    (Zheng et al. 2016): the input of level k is the sum of W^1 to W^k, and the score of level k is
    the sum of b^1 + V^1 h to b^k + V^k h. Weights are stored level by level. The biases are
    initialised such that the network predicts `frequencies` (levels,).
    """

    def __init__(
        self,
        n_places: int,
        hidden_size: int,
        *,
        frequencies: Tensor,
        normalise: str,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.n_places, self.n_levels = n_places, frequencies.numel()
        self.first = SparseLinear(n_places * self.n_levels, hidden_size, generator=generator)
        self.first_bias = nn.Parameter(torch.zeros(hidden_size, dtype=torch.float32))
        self.last = SampledLinear(hidden_size, n_places * self.n_levels, generator=generator)
        with torch.no_grad():
            self.last.bias.copy_(
                frequencies.log().diff(prepend=frequencies.new_zeros(1)).repeat_interleave(n_places)
            )
        self.subset = Subset()
        self._power = NORMALISATIONS[normalise]

    def hidden(self, batch: SparseBatch) -> Tensor:
        """Return the hidden activations of a batch of vectors, (batch, hidden)."""
        counts, sums = batch.starts.diff(), self.first(make_thermometers(batch, self.n_places))
        usual = (_USUAL_COUNT / counts.clamp(min=1).to(self.first_bias.dtype)) ** self._power
        return torch.tanh(sums.to(self.first_bias.dtype) * usual[:, None] + self.first_bias)

    def score_levels(self, hidden: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Return the scores of the levels of all outputs, or of some, (batch, levels, outputs)."""
        weight: Tensor = self.last.weight
        bias: Tensor = self.last.bias
        if outputs is not None:
            places = self._find_places(outputs).T.flatten()
            weight, bias = weight[places], bias[places]
        # also where the product is in half precision
        steps = functional.linear(hidden, weight).to(bias.dtype) + bias
        return steps.view(len(hidden), self.n_levels, -1).cumsum(1)

    def outputs_at(self, hidden: Tensor, outputs: Tensor, starts: Tensor) -> Tensor:
        """Return the scores of some outputs of each vector, (entries, levels); vector k has
        starts[k]:starts[k + 1]."""
        steps = self.last.forward_at(
            hidden, self._find_places(outputs).flatten(), starts * self.n_levels
        )
        return steps.view(-1, self.n_levels).cumsum(1)

    def sum_squared_weights(self) -> Tensor:
        """Return ||W||^2 + ||V||^2: the L2 penalty."""
        return self.first.weight.square().sum() + self.last.weight.square().sum()

    def _find_places(self, outputs: Tensor) -> Tensor:
        """Return the positions of the weights of all levels of some outputs, (outputs, levels)."""
        return outputs.long()[:, None] + self.n_places * torch.arange(
            self.n_levels, device=outputs.device
        )


class Subset(RandomModule):
    """Draws the input entries of each vector: d of its D entries, with d uniform from 0 to D - 1.

    Each entry gets a random key; the inputs are the entries whose key is below the key of one
    random entry. The rank of that entry is uniform and all subsets of a size are equally likely,
    without sorting. Equal keys are rare.
    """

    def of_entries(self, starts: Tensor) -> Tensor:
        """Return which entries are inputs, (entries,); the entries of vector k are
        starts[k]:starts[k + 1]."""
        counts = starts.diff()
        n_entries = int(starts[-1])
        keys, lots = (
            torch.rand(size, generator=self.generator, device=starts.device, dtype=torch.float32)
            for size in (n_entries, counts.numel())
        )
        # A vector without entries takes one of another.
        chosen_entries = (starts[:-1] + (lots * counts).long()).clamp(max=n_entries - 1)
        return keys < torch.repeat_interleave(keys[chosen_entries], counts)


def select_entries(batch: SparseBatch, kept: Tensor) -> SparseBatch:
    """Return the vectors with only the entries that `kept` (entries,) marks."""
    ends = functional.pad(kept.cumsum(0), (1, 0))
    return SparseBatch(batch.indices[kept], ends[batch.starts], batch.weights[kept])


def make_thermometers(batch: SparseBatch, n_places: int) -> SparseBatch:
    """Encode vectors of level numbers as thermometers: ones at every level up to the level of an
    entry.

    Summing the weights over levels beforehand takes the same time with 5 levels, and far more for a
    few vectors.
    """
    numbers = batch.weights.long()
    ends = functional.pad(numbers.cumsum(0), (1, 0))
    shifts = torch.repeat_interleave(batch.indices.long() - n_places * ends[:-1], numbers)
    indices = shifts + n_places * torch.arange(shifts.numel(), device=shifts.device)
    return SparseBatch(
        indices, ends[batch.starts], torch.ones_like(indices, dtype=batch.weights.dtype)
    )


def compute_ordinal_costs(level_scores: Tensor, levels: Tensor) -> Tensor:
    """Return the cost (batch, ...) of scores (batch, levels, ...) given the true levels (batch,
    ...), counted from 1.

    Zheng et al. 2016: the negative log-probability of picking the true level first, then each lower
    level in turn, out of the levels that are left and not higher; and the same upwards.
    """
    down = level_scores.logcumsumexp(1) - level_scores
    up = level_scores.flip(1).logcumsumexp(1).flip(1) - level_scores
    n_levels = level_scores.shape[1]
    numbers = torch.arange(1, n_levels + 1, device=levels.device).view(
        n_levels, *[1] * (levels.ndim - 1)
    )
    true = levels[:, None]
    return (torch.where(numbers <= true, down, 0.0) + torch.where(numbers >= true, up, 0.0)).sum(1)


def average_levels(level_scores: Tensor, values: Tensor) -> Tensor:
    """Return the expected value (batch, ...) of levels (levels,) under the softmax of scores
    (batch, levels, ...)."""
    return level_scores.to(values.dtype).softmax(1).movedim(1, -1) @ values


_PAIRS_AT_A_TIME = 1 << 14

_SCORES_AT_A_TIME = 1 << 22  # 32 MB in double precision


class CFNADEObjective(VectorObjective):
    """The ordinal cost of the entries of a vector that are not inputs.

    If d of D entries are inputs, the cost of the others is multiplied by D / (D - d).
    """

    levels: Tensor

    def __init__(self, train: ObservedMatrix, settings: CFNADESettings) -> None:
        super().__init__()
        levels, self._gamma = train.scale.require_levels("CF-NADE"), settings.gamma
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.float32), persistent=False)

    def loss(self, network: Nade, block: VectorBlock) -> Tensor:
        """Return the loss of a batch of vectors; random entries of each are inputs."""
        assert isinstance(block.inputs, SparseBatch)
        shown = network.subset.of_entries(block.inputs.starts)
        loss = self.compute_cost(network, block.inputs, shown) / block.n_vectors
        return loss + self._gamma / 2 * network.sum_squared_weights() if self._gamma else loss

    def compute_cost(self, network: Nade, batch: SparseBatch, shown: Tensor) -> Tensor:
        """Return the sum of the costs of all vectors; `shown` marks the inputs, (entries,)."""
        inputs, targets = select_entries(batch, shown), select_entries(batch, ~shown)
        scores = network.outputs_at(network.hidden(inputs), targets.indices, targets.starts)
        n_targets = targets.starts.diff()
        weights = batch.starts.diff() / n_targets.clamp(min=1)
        costs = compute_ordinal_costs(scores, targets.weights)
        return costs @ torch.repeat_interleave(weights, n_targets).to(costs.dtype)

    def read(self, outputs: Tensor) -> Tensor:
        return average_levels(outputs, self.levels)


def _find_middles(levels: FloatArray) -> FloatArray:
    return (levels[:-1] + levels[1:]) / 2.0


class NadePredictor(Predictor):
    """Predicts with the level scores of the network instead of products of latents."""

    @property
    def is_stacked(self) -> bool:
        return False

    def score_pairs(self, rows: IndexArray, columns: IndexArray) -> Array:
        return average_levels(self._level_scores(rows, columns), self._levels).numpy()

    @torch.no_grad()
    def score_block(self, rows: IndexArray, columns: Positions) -> Array:
        latents, read, outputs = self._sort_by_role(rows, list_positions(columns))
        are_all_outputs = outputs.size == self._reader.network.n_places and np.array_equal(
            outputs, np.arange(outputs.size)
        )
        output_places = None if are_all_outputs else torch.from_numpy(outputs)
        block = np.empty((read.size, outputs.size))
        step = max(_SCORES_AT_A_TIME // max(outputs.size * self._levels.numel(), 1), 1)
        for start in range(0, read.size, step):
            batch = slice(start, start + step)
            hidden = torch.from_numpy(latents.take(read[batch])[:, :-1])
            block[batch] = average_levels(
                self._reader.network.score_levels(hidden, output_places), self._levels
            ).numpy()
        return block if self._reader.axis == "row" else block.T

    def read_distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        probabilities: FloatArray = self._level_scores(rows, columns).double().softmax(1).numpy()
        levels = self.readout.support
        distribution = PredictiveDistribution.of_probabilities(
            levels, _find_middles(levels), probabilities
        )
        return self.readout.calibrate(distribution)

    @torch.no_grad()
    def _level_scores(self, rows: IndexArray, columns: IndexArray) -> Tensor:
        """Return the scores of all levels for each pair of positions, (pairs, levels)."""
        latents, read, outputs = self._sort_by_role(rows, columns)
        scores = torch.empty(read.size, self._reader.network.n_levels, dtype=torch.float32)
        for start in range(0, read.size, _PAIRS_AT_A_TIME):
            batch = slice(start, start + _PAIRS_AT_A_TIME)
            distinct, which = np.unique(read[batch], return_inverse=True)
            hidden = torch.from_numpy(latents.take(distinct)[:, :-1])
            compute = partial(self._reader.network.outputs_at, hidden)
            pairs = torch.from_numpy(which), torch.from_numpy(outputs[batch])
            scores[batch] = compute_at_pairs(compute, *pairs, len(hidden))
        return scores

    def _sort_by_role(
        self, rows: IndexArray, columns: IndexArray
    ) -> tuple[Latents, IndexArray, IndexArray]:
        """Return the latents of the axis that the network reads, its positions, and the positions
        of outputs."""
        if self._reader.axis == "row":
            return (self.rows, rows, columns)
        return (self.columns, columns, rows)

    @property
    def _reader(self) -> VectorEncoder:
        assert isinstance(self.encoder, VectorEncoder)
        return self.encoder

    @property
    def _levels(self) -> Tensor:
        return torch.tensor(self.readout.support, dtype=torch.float64)


class CFNADE(VectorModel):
    """The base class of I-CF-NADE and U-CF-NADE.

    The latents of a vector are its hidden activations and a constant 1. The latents of an output
    are the weights and the bias of the log-odds of the highest level against the lowest, so similar
    outputs have similar latents.
    """

    objective_class = CFNADEObjective
    predictor_class = NadePredictor
    force_dense = False
    settings: CFNADESettings

    def _make_encoding(self, train: ObservedMatrix) -> ToInputs:
        return partial(number_levels, train.scale)

    def _new_network(self, entries: EntryStore) -> Nade:
        train = entries.train
        levels = train.scale.require_levels("CF-NADE")
        # One extra entry of each level: a level that never occurs is rare, not impossible.
        counts = (
            np.bincount(number_levels(train.scale, train.values) - 1, minlength=levels.size) + 1.0
        )
        return Nade(
            count_outputs(train, self.axis),
            self.settings.hidden_size,
            frequencies=torch.from_numpy(counts / counts.sum()).float(),
            normalise=self.settings.normalise,
            generator=make_generator(self.settings.seed, "weights"),
        )

    def _make_output_latents(self, network: Nade) -> Tensor:
        by_level = (
            super()._make_output_latents(network).view(network.n_levels, network.n_places, -1)
        )
        return by_level[1:].sum(0)

    def _make_readout(self, network: Nade, train: ObservedMatrix) -> Readout:
        scale, levels = train.scale, train.scale.require_levels("CF-NADE")
        return Readout(scale, levels, scale.to_unit(_find_middles(levels)).astype(np.float32))

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        predictor = super()._load_predictor(entries, content, tensors)
        if (predictor.rows if self.axis == "row" else predictor.columns).largest().max(
            initial=0.0
        ) > 1.0:
            raise BadModelFile(
                "the stored latents are not hidden activations, which are between -1 and 1"
            )
        return predictor


class ICFNADE(ReadsColumns, CFNADE):
    """I-CF-NADE reads the levels of a column and predicts those of all its rows, for new columns
    too.

    Predictions are the means of a distribution over levels (`predict_distribution`). The scale
    needs at least two levels. Settings are keyword arguments, see `CFNADESettings`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = ICFNADE(hidden_size=8, epochs=100, learning_rate=0.02, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = CFNADESettings


class UCFNADE(ReadsRows, CFNADE):
    """U-CF-NADE reads the levels of a row and predicts those of all its columns, for new rows too.

    Predictions are the means of a distribution over levels (`predict_distribution`). The scale
    needs at least two levels. Settings are keyword arguments, see `UCFNADESettings`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = UCFNADE(hidden_size=8, epochs=100, learning_rate=0.02, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = UCFNADESettings


def number_levels(scale: Scale, values: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return the number of the level of each value, counted from 1."""
    return scale.level_positions(values) + 1
