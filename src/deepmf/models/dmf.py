"""DMF: the cosine of two branches, which predicts for new rows and columns without training.

With h_X and h_Y the branches, X_i the entries of row i and Y_j those of column j, it minimises
equation 1 of the paper:

    mean over observed (i, j) of (M_ij - cos(h_X(X_i), h_Y(Y_j)))^2 + gamma (||W_X||^2 + ||W_Y||^2)

on values M scaled to [-1, 1], or the root of that mean.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from deepmf.errors import BadSetting
from deepmf.linalg.ridge import lay_out, solve_residuals
from deepmf.matrix.arrays import Array, FloatArray, LatentArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import ENCODINGS, Scale
from deepmf.models.fitting import Fitting
from deepmf.models.network_model import NetworkEncoder, NetworkModel, sparse_vectors
from deepmf.models.traits import Recommends
from deepmf.nn.branch import Branch, compute_inner_products, normalise_latents
from deepmf.nn.inputs import Batch, Vectors
from deepmf.nn.ranks import find_ranks
from deepmf.scoring.arrivals import TrainedRows
from deepmf.scoring.encoders import SolvingEncoder
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents, multiply_each
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.training.blocks import Block, MatrixBlocks
from deepmf.training.holdout import HeldOut
from deepmf.training.runtime import make_generator
from deepmf.training.settings import (
    RecommendationSettings,
    Settings,
    StepDecaySettings,
    TwoBranchSettings,
    setting,
    settings_dataclass,
)
from deepmf.training.trainer import Objective, Trainer


@settings_dataclass
class DMFSettings(TwoBranchSettings, StepDecaySettings, RecommendationSettings):
    """The settings of DMF; the defaults are those of the paper and its code for MovieLens-1M."""

    epochs: int = 1000
    gamma: float = setting(0.0, "Weight of the L2 penalty (equation 1).", low=0.0)
    loss: str = setting(
        "root",
        'Loss of a block: its mean squared error ("mean", equation 1) or the root of it ("root").',
        choices=("root", "mean"),
    )
    inputs: str = setting(
        "scaled",
        'Encoding of values: "scaled" to [-1, 1] or "raw"; missing values are 0.',
        choices=("scaled", "raw"),
    )


class DMFNetwork(nn.Module):
    """F of the paper: R_ij = cos(h_X(X_i), h_Y(Y_j)), for every pair of a batch of rows and a batch
    of columns."""

    def __init__(self, rows: Branch, columns: Branch) -> None:
        super().__init__()
        self.rows = rows
        self.columns = columns

    def forward(self, rows: Batch, columns: Batch) -> Tensor:
        """Return the cosines (rows, columns), in [-1, 1]."""
        return compute_inner_products(
            normalise_latents(self.rows(rows)), normalise_latents(self.columns(columns))
        )

    def sum_squared_weights(self) -> Tensor:
        """Return ||W_X||^2 + ||W_Y||^2 of equation 1."""
        first, *others = [*self.rows.list_weights(), *self.columns.list_weights()]
        return sum((weight.square().sum() for weight in others), start=first.square().sum())


_VECTORS_AT_A_TIME = 1024


class DMFObjective(Objective):
    """Equation 1: the (root) mean squared error of the cosines on a block's observed entries, plus
    an L2 penalty."""

    settings: DMFSettings

    def __init__(self, train: ObservedMatrix, settings: DMFSettings) -> None:
        super().__init__()
        self.scale, self.settings = train.scale, settings

    def loss(self, network: DMFNetwork, block: Block) -> Tensor:
        loss = self.error(network, network(block.rows, block.columns), block)
        gamma = self.settings.gamma
        return loss + gamma * network.sum_squared_weights() if gamma else loss

    def error(self, network: DMFNetwork, cosines: Tensor, block: Block) -> Tensor:
        """Return the error of a block's cosines."""
        return self.compute_squared_error(cosines, block.targets, block)

    def compute_squared_error(self, predictions: Tensor, targets: Tensor, block: Block) -> Tensor:
        """Return the mean squared error of a block by the weights of its entries, or its root.

        Targets (rows, columns) are NaN where nothing is observed.
        """
        weights, observed = block.weight_table, ~torch.isnan(targets)
        errors = torch.where(observed, predictions - targets, 0.0).square()
        squares = errors.sum() if weights is None else (errors * weights).sum()
        weight = observed.sum() if weights is None else weights.sum()
        sums = block.sum_over_ranks(torch.stack([squares, weight.to(squares.dtype)]))
        mean = sums[0] / sums[1].clamp(min=1 if weights is None else 1e-12)
        # The smallest trace keeps the root's slope finite for a block that is predicted exactly, or
        # has no entry.
        return (mean + 1e-12).sqrt() if self.settings.loss == "root" else mean

    def predictions(
        self, network: DMFNetwork, source: MatrixBlocks, rows: Tensor, columns: Tensor
    ) -> Tensor:
        row_directions = encode_vectors(network.rows, source.rows)
        column_directions = encode_vectors(network.columns, source.columns)
        return self.read(network, (row_directions[rows] * column_directions[columns]).sum(1))

    def read(self, network: DMFNetwork, cosines: Tensor) -> Tensor:
        """Return cosines in the scale's units."""
        return self.scale.unit_map.from_unit(cosines)


def encode_vectors(branch: Branch, vectors: Vectors) -> Tensor:
    """Return the latents (vectors, latent) of all vectors, of length 1, a part of the vectors at a
    time."""
    parts = torch.split(
        torch.arange(len(vectors), device=branch.first.weight.device), _VECTORS_AT_A_TIME
    )
    return torch.cat([normalise_latents(branch(vectors.take(ids))) for ids in parts])


class CosineReadout(Readout):
    """Maps products, which are cosines, from [-1, 1] to the scale."""

    def scores(self, products: Array, row_fields: LatentArray) -> Array:
        """Return cosines, clipped to [-1, 1]."""
        return np.clip(products, -1.0, 1.0, out=products)

    def units(self, scores: Array) -> FloatArray:
        return self.scale.from_unit(scores)


# Branches read trained rows and columns alone. Entries in new ones move a latent, which has the
# length 1, by a ridge regression of their residuals, in units of [-1, 1].
_RIDGE, _RIDGE_STEPS = 5.0, 10


class BranchEncoder(NetworkEncoder, SolvingEncoder):
    """The latent of a row, or of a column, is the direction that its branch gives its entries.

    Entries in new columns, which the branch of rows does not know, move it by a ridge regression;
    without others, from the mean of the trained rows.
    """

    moves_rows = True

    def __init__(
        self, network: DMFNetwork, scale: Scale, rows: Latents, columns: Latents, *, inputs: str
    ) -> None:
        super().__init__(network)
        self._scale, self._encoding = scale, ENCODINGS[inputs]
        self._mean_row, self._mean_column = (each.base.mean(axis=0) for each in (rows, columns))

    @torch.no_grad()
    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the latents of rows (or columns), and whether anything is known of each."""
        branch, mean, mean_other = self.network.rows, self._mean_row, self._mean_column
        if axis == "column":
            branch, mean, mean_other = self.network.columns, self._mean_column, self._mean_row
        is_trained = entries.others < len(others.base)
        known, new = entries.select(is_trained), entries.select(~is_trained)
        latents = encode(branch, sparse_vectors(known, self._encoding(self._scale, known.values)))
        latents[known.are_empty & (np.diff(new.starts) > 0)] = mean
        is_known = (~entries.are_empty).astype(np.float32)
        return np.column_stack([self._move(latents, new, others, mean_other), is_known])

    def count_factors(self, n_latents: int) -> int:
        """Return the numbers of a latent, and one that says whether anything is known."""
        return n_latents + 1

    def finish(self, axis: Axis, factors: LatentArray) -> LatentArray:
        return factors[:, :-1]

    def move_rows(self, trained: TrainedRows, new: AxisEntries, columns: Latents) -> LatentArray:
        return self._move(trained.latents, new, columns, self._mean_column)

    def _move(
        self, latents: LatentArray, new: AxisEntries, others: Latents, mean_other: LatentArray
    ) -> LatentArray:
        if new.values.size == 0:
            return latents
        used, new = new.renumber_others()
        factors = others.extra[used - len(others.base)]
        lines = np.where(factors[:, -1:] > 0, factors[:, :-1], mean_other)
        residuals = self._scale.to_unit(new.values) - multiply_each(latents, lines, new)
        batches = lay_out(new, residuals, n_others=used.size)
        moves: LatentArray = solve_residuals(
            batches, lines, np.full_like(latents, _RIDGE), n_steps=_RIDGE_STEPS
        )
        return latents + moves


def encode(branch: Branch, vectors: Vectors) -> LatentArray:
    """Return a branch's latents of vectors; without autocast, all of it is in single precision."""
    return encode_vectors(branch, vectors).cpu().numpy()


class DMF(Recommends, NetworkModel):
    """Deep matrix factorization: the cosine of two latents, which branches compute from the entries
    of row and column.

    Settings are keyword arguments, see `DMFSettings`. A row or column without any entry is
    predicted from its branch's latent of an empty vector.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = DMF(hidden_sizes=(32,), latent_size=8, dropout=0.0, epochs=100, seed=0, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = DMFSettings
    objective_class: ClassVar[type[DMFObjective]] = DMFObjective
    fits_on_ranks: ClassVar[bool] = True
    settings: DMFSettings
    takes_weights: ClassVar[bool] = True

    def _check_ranks(self, train: ObservedMatrix) -> None:
        super()._check_ranks(train)
        gamma = self.settings.gamma
        if gamma and find_ranks() is not None:
            raise BadSetting(
                f"gamma must be 0 where several processes fit a model together; got {gamma!r}"
            )

    @property
    def _latent_width(self) -> int:
        return self.settings.latent_size

    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> Trainer:
        train, settings = entries.train, self.settings
        source = MatrixBlocks(
            train,
            ENCODINGS[settings.inputs],
            block_rows=settings.block_rows,
            block_columns=settings.block_columns,
        )
        objective = self.objective_class(train, settings)
        return Trainer(
            self._new_network(entries), objective, source, settings, validation=validation
        )

    def _new_network(self, entries: EntryStore) -> DMFNetwork:
        return DMFNetwork(*self._make_branches(entries))

    def _make_branches(self, entries: EntryStore) -> tuple[Branch, Branch]:
        """Return a row branch and a column branch with fresh weights."""
        generator, settings = make_generator(self.settings.seed, "weights"), self.settings
        rows, columns = (
            Branch(n_inputs, settings.layer_sizes, dropout=settings.dropout, generator=generator)
            for n_inputs in entries.train.shape[::-1]
        )
        return rows, columns

    def _wrap_network(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        network, source = trainer.network, trainer.source
        assert isinstance(network, DMFNetwork) and isinstance(source, MatrixBlocks)
        rows, columns = (
            Latents(encode(network.rows, source.rows)),
            Latents(encode(network.columns, source.columns)),
        )
        network.to("cpu")
        factors = self._make_factors(network, entries, rows, columns)
        return Predictor.of(factors, self._make_readout(network, entries.scale))

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        network = self._load_network(entries, tensors)
        latents = unpack_latents(tensors, entries, width=self.settings.latent_size)
        factors = self._make_factors(network, entries, *latents).with_arrived(tensors, entries)
        return Predictor.of(factors, self._make_readout(network, entries.scale))

    def _make_factors(
        self, network: Any, entries: EntryStore, rows: Latents, columns: Latents
    ) -> Factors:
        encoder = BranchEncoder(network, entries.scale, rows, columns, inputs=self.settings.inputs)
        return Factors(rows, columns, encoder)

    def _make_readout(self, network: Any, scale: Scale) -> Readout:
        return CosineReadout(scale)
