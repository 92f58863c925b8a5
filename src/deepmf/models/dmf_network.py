"""The torch modules of DMF: the network that is trained, and its objective."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from deepmf.matrix.library import normalise
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.nn.branch import Branch, compute_inner_products
from deepmf.nn.inputs import Batch, Vectors
from deepmf.training.blocks import Block, MatrixBlocks
from deepmf.training.trainer import Objective

# Vectors that are encoded at a time.
_VECTORS_AT_A_TIME = 1024


class DMFNetwork(nn.Module):
    """F of the paper: R_ij = cos(h_X(X_i), h_Y(Y_j)), for every pair of a batch of rows and a batch
    of columns."""

    def __init__(self, rows: Branch, columns: Branch) -> None:
        super().__init__()
        self.rows = rows
        self.columns = columns

    def forward(self, rows: Batch, columns: Batch) -> Tensor:
        """Return the cosines (rows, columns), in [-1, 1]."""
        return compute_inner_products(normalise(self.rows(rows)), normalise(self.columns(columns)))

    def sum_squared_weights(self) -> Tensor:
        """Return ||W_X||^2 + ||W_Y||^2 of equation 1."""
        first, *other_weights = [*self.rows.list_weights(), *self.columns.list_weights()]
        return sum((weight.square().sum() for weight in other_weights), start=first.square().sum())


class DMFObjective(Objective):
    """Equation 1: the (root) mean squared error of the cosines on a block's observed entries, plus
    an L2 penalty."""

    settings: Any  # of a DMF

    def __init__(self, train: ObservedMatrix, settings: Any) -> None:
        super().__init__()
        self.scale, self.settings = train.scale, settings

    def loss(self, network: DMFNetwork, block: Block) -> Tensor:
        loss = self.compute_error(network, network(block.rows, block.columns), block)
        gamma = self.settings.gamma
        return loss + gamma * network.sum_squared_weights() if gamma else loss

    def compute_error(self, network: DMFNetwork, cosines: Tensor, block: Block) -> Tensor:
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
    return torch.cat([normalise(branch(vectors.take(ids))) for ids in parts])
