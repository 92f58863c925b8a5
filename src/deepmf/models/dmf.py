"""DMF: the cosine of two branches, which predicts for new rows and columns without training.

With h_X and h_Y the branches, X_i the entries of row i and Y_j those of column j, it minimises
equation 1 of the paper:

    mean over observed (i, j) of (M_ij - cos(h_X(X_i), h_Y(Y_j)))^2 + gamma (||W_X||^2 + ||W_Y||^2)

on values M scaled to [-1, 1], or the root of that mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from deepmf.errors import BadSetting
from deepmf.linalg.ridge import lay_out, solve_residuals
from deepmf.matrix.arrays import Array, FloatArray, LatentArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import ENCODINGS, Scale
from deepmf.models.fitting import Fitting
from deepmf.models.network_model import NetworkModel, TrainedEncoder
from deepmf.models.trained_network import (
    TrainedNetwork,
    describe_branch,
    load_weights,
    read_weights,
)
from deepmf.models.traits import Recommends
from deepmf.scoring.arrivals import TrainedRows
from deepmf.scoring.encoders import SolvingEncoder
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.scoring.latents import Latents, multiply_each
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.training.holdout import HeldOut
from deepmf.training.settings import (
    RecommendationSettings,
    Settings,
    StepDecaySettings,
    TwoBranchSettings,
    setting,
    settings_dataclass,
)

if TYPE_CHECKING:
    from deepmf.models.dmf_network import DMFNetwork, DMFObjective
    from deepmf.nn.branch import Branch
    from deepmf.training.trainer import Trainer


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


class BranchEncoder(TrainedEncoder, SolvingEncoder):
    """The latent of a row, or of a column, is the direction that its branch gives its entries.

    Entries in new columns, which the branch of rows does not know, move it by a ridge regression;
    without others, from the mean of the trained rows.
    """

    moves_rows = True

    def __init__(
        self, network: TrainedNetwork, scale: Scale, rows: Latents, columns: Latents, *, inputs: str
    ) -> None:
        super().__init__(network)
        self._scale, self._encoding = scale, ENCODINGS[inputs]
        self._mean_row, self._mean_column = (
            latents.base.mean(axis=0) for latents in (rows, columns)
        )

    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return the latents of rows (or columns), and whether anything is known of each."""
        branch, mean, mean_other = self.network.rows, self._mean_row, self._mean_column
        if axis == "column":
            branch, mean, mean_other = self.network.columns, self._mean_column, self._mean_row
        is_trained = entries.others < len(others.base)
        trained_entries, new_entries = entries.select(is_trained), entries.select(~is_trained)
        latents = branch.encode(
            trained_entries, self._encoding(self._scale, trained_entries.values)
        )
        latents[trained_entries.are_empty & (np.diff(new_entries.starts) > 0)] = mean
        is_known = (~entries.are_empty).astype(np.float32)
        return np.column_stack([self._move(latents, new_entries, others, mean_other), is_known])

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
    fits_on_ranks: ClassVar[bool] = True
    settings: DMFSettings
    takes_weights: ClassVar[bool] = True

    def _check_ranks(self, train: ObservedMatrix) -> None:
        super()._check_ranks(train)
        from deepmf.nn.group import find_ranks

        gamma = self.settings.gamma
        if gamma and find_ranks() is not None:
            raise BadSetting(
                f"gamma must be 0 where several processes fit a model together; got {gamma!r}"
            )

    @property
    def _latent_width(self) -> int:
        return self.settings.latent_size

    def _make_task(self, entries: EntryStore, validation: HeldOut | None) -> Trainer:
        from deepmf.training.blocks import MatrixBlocks
        from deepmf.training.trainer import Trainer

        train, settings = entries.train, self.settings
        source = MatrixBlocks(
            train,
            ENCODINGS[settings.inputs],
            block_rows=settings.block_rows,
            block_columns=settings.block_columns,
        )
        network, objective = self._new_network(entries), self._make_objective(train)
        return Trainer(network, objective, source, settings, validation=validation)

    def _make_objective(self, train: ObservedMatrix) -> DMFObjective:
        from deepmf.models.dmf_network import DMFObjective

        return DMFObjective(train, self.settings)

    def _new_network(self, entries: EntryStore) -> DMFNetwork:
        from deepmf.models.dmf_network import DMFNetwork

        return DMFNetwork(*self._make_branches(entries))

    def _make_branches(self, entries: EntryStore) -> tuple[Branch, Branch]:
        """Return a row branch and a column branch with fresh weights."""
        from deepmf.nn.branch import Branch
        from deepmf.training.runtime import make_generator

        generator, settings = make_generator(self.settings.seed, "weights"), self.settings
        rows, columns = (
            Branch(n_inputs, settings.layer_sizes, dropout=settings.dropout, generator=generator)
            for n_inputs in entries.train.shape[::-1]
        )
        return rows, columns

    def _wrap_network(self, trainer: Trainer, entries: EntryStore, fitting: Fitting) -> Predictor:
        network = TrainedNetwork(read_weights(trainer.network.to("cpu")))
        latents = []
        for branch, take, n in (
            (network.rows, entries.row_entries, entries.train.shape[0]),
            (network.columns, entries.column_entries, entries.train.shape[1]),
        ):
            vectors = take(np.arange(n))
            inputs = ENCODINGS[self.settings.inputs](entries.scale, vectors.values)
            latents.append(Latents(branch.encode(vectors, inputs)))
        factors = self._make_factors(network, entries, *latents)
        return Predictor.of(factors, self._make_readout(network, entries.scale))

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        network = TrainedNetwork(load_weights(self._describe_weights(entries), tensors))
        latents = unpack_latents(tensors, entries, width=self.settings.latent_size)
        factors = self._make_factors(network, entries, *latents).with_arrived(tensors, entries)
        return Predictor.of(factors, self._make_readout(network, entries.scale))

    def _describe_weights(self, entries: EntryStore) -> dict[str, Any]:
        """Return the types and the shapes of the weights of the network."""
        n_rows, n_columns = entries.train.shape
        sizes = self.settings.layer_sizes
        rows, columns = (
            describe_branch("rows", n_columns, sizes),
            describe_branch("columns", n_rows, sizes),
        )
        return rows | columns

    def _make_factors(
        self, network: TrainedNetwork, entries: EntryStore, rows: Latents, columns: Latents
    ) -> Factors:
        encoder = BranchEncoder(network, entries.scale, rows, columns, inputs=self.settings.inputs)
        return Factors(rows, columns, encoder)

    def _make_readout(self, network: TrainedNetwork, scale: Scale) -> Readout:
        return CosineReadout(scale)
