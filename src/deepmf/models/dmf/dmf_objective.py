"""The objective of DMF on a block, and its predictions for pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from deepmf.layers.branch import Branch
from deepmf.layers.cosine import directions
from deepmf.layers.input_channels import apply_mask
from deepmf.layers.masking import positions
from deepmf.layers.ranks import Total, itself
from deepmf.layers.vectors import Vectors, features_of
from deepmf.matrix.scale import Scale
from deepmf.models.dmf.dmf_network import DMFNetwork
from deepmf.training.matrix_blocks import Block, MatrixBlocks
from deepmf.training.trainer import Objective

_VECTORS_AT_A_TIME = 1024


class DMFObjective(Objective):
    """Equation 1: the (root) mean squared error of the cosines on a block's observed entries, plus an L2 penalty.

    root: whether the root of a block's mean squared error is taken.
    """

    def __init__(self, scale: Scale, *, root: bool, gamma: float) -> None:
        super().__init__()
        self.scale, self.root, self.gamma = scale, root, gamma

    def loss(self, network: DMFNetwork, block: Block) -> Tensor:
        """Return the loss of a block."""
        loss = self.error(network, _cosines(network, block), block.targets, block.total)
        return loss + self.gamma * network.squared_weights() if self.gamma else loss

    def error(self, network: DMFNetwork, cosines: Tensor, targets: Tensor, total: Total = itself) -> Tensor:
        """Return the error of a block's cosines; targets (rows, columns) are NaN where nothing is observed."""
        return self.squared_error(cosines, targets, total)

    def squared_error(self, predictions: Tensor, targets: Tensor, total: Total = itself) -> Tensor:
        """Return the mean squared error where there are targets, or its root; `total` is that of the block."""
        observed = ~torch.isnan(targets)
        squares = torch.where(observed, predictions - targets, 0.0).square().sum()
        sums = total(torch.stack([squares, observed.sum().to(squares.dtype)]))
        mean = sums[0] / sums[1].clamp(min=1)
        # The smallest trace keeps the root's slope finite for a block that is predicted exactly, or has no entry.
        return (mean + 1e-12).sqrt() if self.root else mean

    def predictions(self, network: DMFNetwork, source: MatrixBlocks, rows: Tensor, columns: Tensor) -> Tensor:
        """Return what the network predicts for pairs of positions, in the scale's units."""
        row_directions = all_directions(network.rows, source.rows)
        column_directions = all_directions(network.columns, source.columns)
        return self.read(network, (row_directions[rows] * column_directions[columns]).sum(1))

    def read(self, network: DMFNetwork, cosines: Tensor) -> Tensor:
        """Return cosines in the scale's units."""
        return self.scale.unit_map.from_unit(cosines)


def _cosines(network: DMFNetwork, block: Block) -> Tensor:
    """Return the cosines of a block; where there are features, some are masked, and all entries of some vectors."""
    if network.masking is None or not network.training:
        cosines: Tensor = network(block.rows, block.columns, block.row_features, block.column_features)
        return cosines
    masking, drawn = network.masking, network.masking.draw()
    row_of, columns_of_row = positions(block.rows, block.row_ids)
    column_of, rows_of_column = positions(block.columns, block.column_ids)
    masked: Tensor = network(
        apply_mask(block.rows, ~masking.masked(row_of, columns_of_row, drawn), missing=0.0),
        apply_mask(block.columns, ~masking.masked(rows_of_column, column_of, drawn), missing=0.0),
        masking.visible_features(block.row_features, block.row_ids, drawn),
        masking.visible_features(block.column_features, block.column_ids, drawn),
    )
    return masked


def all_directions(branch: Branch, vectors: Vectors, *, single_precision: bool = False) -> Tensor:
    """Return the latents of all vectors, of length 1 (vectors, latent), some at a time."""
    device = branch.first.weight.device
    parts = []
    for ids in torch.split(torch.arange(len(vectors), device=device), _VECTORS_AT_A_TIME):
        batch = vectors.take(ids)
        if single_precision and isinstance(batch, Tensor):
            batch = batch.float()
        parts.append(directions(branch(batch, features_of(vectors, ids))))
    return torch.cat(parts)
