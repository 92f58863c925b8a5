"""What DMF minimises on a block, and its error on validation entries."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from deepmf.layers.branch import Branch
from deepmf.layers.cosine import directions
from deepmf.layers.vectors import Vectors
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf.dmf_network import DMFNetwork
from deepmf.training.block_source import Blocks
from deepmf.training.runtime import Runtime
from deepmf.training.trainer import Objective

_VECTORS_AT_A_TIME = 1024


class ObjectiveSettings(Protocol):
    """The settings that an objective reads."""

    @property
    def inputs(self) -> str: ...
    @property
    def gamma(self) -> float: ...
    @property
    def loss(self) -> str: ...
    @property
    def summary_filters(self) -> int: ...


class DMFObjective(Objective):
    """Equation 1: the (root) mean squared error of the cosines on a block's observed entries, plus an L2 penalty."""

    network: DMFNetwork

    def __init__(
        self,
        network: DMFNetwork,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        settings: ObjectiveSettings,
        runtime: Runtime,
    ) -> None:
        self.network = network.to(runtime.device)
        self.scale = train.scale
        self.blocks = Blocks(
            train, ENCODINGS[settings.inputs], runtime, force_dense=True if settings.summary_filters else None
        )
        self.static_shapes = self.blocks.dense
        self._settings = settings
        self._validation = validation_tensors(train, validation, runtime)

    def loss(self, *block: Tensor) -> Tensor:
        """Return the loss of a block: its rows and its columns."""
        rows, columns = block
        cosines = self.network(self.blocks.rows.take(rows), self.blocks.columns.take(columns))
        loss = self.error(cosines, self.blocks.targets(rows, columns))
        if self._settings.gamma:
            loss = loss + self._settings.gamma * self.network.squared_weights()
        return loss

    def error(self, cosines: Tensor, targets: Tensor) -> Tensor:
        """Return the error of a block's cosines; targets (rows, columns) are NaN where nothing is observed."""
        return self.squared_error(cosines, targets)

    def squared_error(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error where there are targets, or its root."""
        observed = ~torch.isnan(targets)
        squares = torch.where(observed, predictions - targets, 0.0).square().sum()
        mean = squares / observed.sum().clamp(min=1)
        # The smallest trace keeps the root's slope finite for a block that is predicted exactly, or has no entry.
        return (mean + 1e-12).sqrt() if self._settings.loss == "root" else mean

    def validation_error(self) -> float | None:
        """Return the root mean squared error on validation entries, in the scale's units."""
        if self._validation is None:
            return None
        rows, columns, values = self._validation
        row_directions = all_directions(self.network.rows, self.blocks.rows)
        column_directions = all_directions(self.network.columns, self.blocks.columns)
        cosines = (row_directions[rows] * column_directions[columns]).sum(1)
        return float((self.predictions(cosines) - values).square().mean().sqrt())

    def predictions(self, cosines: Tensor) -> Tensor:
        """Return what the model would answer, in the scale's units."""
        return in_units_of(self.scale.low, self.scale.high, cosines)


def validation_tensors(
    train: ObservedMatrix, validation: ObservedMatrix | None, runtime: Runtime
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the rows, columns and values of validation entries, as positions in the training matrix; None if none."""
    if validation is None or not validation.n_entries:
        return None
    rows, columns, values = validation.entries()
    arrays = train.rows.positions(rows), train.columns.positions(columns), values
    row_of, column_of, value_of = (torch.from_numpy(array).to(runtime.device) for array in arrays)
    return row_of, column_of, value_of


def all_directions(branch: Branch, vectors: Vectors, *, single_precision: bool = False) -> Tensor:
    """Return the latents of all vectors, of length 1 (vectors, latent), some at a time."""
    device = branch.first.weight.device
    parts = []
    for ids in torch.split(torch.arange(len(vectors), device=device), _VECTORS_AT_A_TIME):
        batch = vectors.take(ids)
        if single_precision and isinstance(batch, Tensor):
            batch = batch.float()
        parts.append(directions(branch(batch)))
    return torch.cat(parts)


def in_units_of(low: float, high: float, cosines: Tensor) -> Tensor:
    """Map [-1, 1] to [low, high], exact at both ends."""
    share = (cosines + 1.0) / 2.0
    return low * (1.0 - share) + high * share
