"""The objective of OrdinalDMF: the ordinal loss on entries that are masked from both branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from deepmf.layers.cosine import inner_products
from deepmf.layers.input_channels import apply_mask
from deepmf.layers.masking import positions
from deepmf.layers.vectors import SparseBatch
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork
from deepmf.training.matrix_blocks import Block, BlockEntries, MatrixBlocks
from deepmf.training.trainer import Objective

# Enough to rank epochs; all views would cost more than the epochs between two validations.
_VIEWS_TO_VALIDATE = 4

Masked = Callable[[Tensor, Tensor], Tensor]  # from positions of rows and columns to which of these entries are masked


class OrdinalObjective(Objective):
    """The ordinal loss on the masked entries of a block; what is visible is read, never predicted."""

    def loss(self, network: OrdinalNetwork, block: Block) -> Tensor:
        """Return the mean loss of a block's masked entries."""
        drawn = network.masking.draw()
        masked = _masked_in_step(network, block, drawn)
        row_of, columns_of_row = positions(block.rows, block.row_ids)
        column_of, rows_of_column = positions(block.columns, block.column_ids)
        row_outputs = network.row_outputs(
            apply_mask(block.rows, ~masked(row_of, columns_of_row)),
            network.masking.visible_features(block.row_features, block.row_ids, drawn),
        )
        column_outputs = network.column_outputs(
            apply_mask(block.columns, ~masked(rows_of_column, column_of)),
            network.masking.visible_features(block.column_features, block.column_ids, drawn),
        )
        row_latents = network.head.row_latents_by_group(row_outputs)
        column_latents = network.head.column_latents_by_group(column_outputs)
        if isinstance(block.observed, BlockEntries):
            return _mean_loss_of_entries(network, row_latents, column_latents, block, block.observed, masked)
        return _mean_loss_of_table(network, row_latents, column_latents, block, block.observed, masked)

    def predictions(self, network: OrdinalNetwork, source: MatrixBlocks, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the expected values of pairs of positions, by a few views and without refinement.

        Only rows and columns of these pairs are encoded.
        """
        (needed_rows, row_at), (needed_columns, column_at) = (
            each.unique(return_inverse=True)  # type: ignore[no-untyped-call]
            for each in (rows, columns)
        )
        row_latents = network.viewed_row_latents(source.rows, needed_rows, n_views=_VIEWS_TO_VALIDATE)
        column_latents = network.viewed_column_latents(source.columns, needed_columns, n_views=_VIEWS_TO_VALIDATE)
        scores = (row_latents[row_at] * column_latents[column_at]).sum(1)
        return network.head.expected(network.head.logits(scores, row_latents[:, network.layout.response][row_at]))


def _masked_in_step(network: OrdinalNetwork, block: Block, drawn: Tensor) -> Masked:
    """Return which entries a step with a drawn number masks.

    For sparse vectors the numbers of all rows and columns are computed once, and looked up for each of their entries.
    """
    if not isinstance(block.rows, SparseBatch):
        return partial(network.masking.masked, drawn=drawn)
    sizes = network.column_views.shape[1], network.row_views.shape[1]
    every_row, every_column = (torch.arange(size, device=drawn.device) for size in sizes)
    return network.masking.numbers(every_row, every_column, drawn).masked


def _mean_loss_of_entries(
    network: OrdinalNetwork,
    row_latents: Tensor,
    column_latents: Tensor,
    block: Block,
    entries: BlockEntries,
    masked_at: Masked,
) -> Tensor:
    """Return the mean loss of the masked entries of a block, computed for these alone.

    Latents (vectors, groups, latent) are those of each network, which learns by a loss of its own.
    """
    row_at, column_at, units = entries
    masked = masked_at(block.row_ids[row_at], block.column_ids[column_at]).nonzero().squeeze(1)
    if not masked.numel():
        return 0.0 * (row_latents.sum() + column_latents.sum())
    rows, columns = row_latents.index_select(0, row_at[masked]), column_latents.index_select(0, column_at[masked])
    logits = network.head.logits((rows * columns).sum(-1), network.head.response(rows))
    return network.head.loss(logits, network.head.above(units[masked])[:, None]).mean()


def _mean_loss_of_table(
    network: OrdinalNetwork, row_latents: Tensor, column_latents: Tensor, block: Block, table: Tensor, masked_at: Masked
) -> Tensor:
    """Return the same from a table of targets, by kernels of static shapes."""
    row_latents, column_latents = row_latents.transpose(0, 1), column_latents.transpose(0, 1)
    scores, response = inner_products(row_latents, column_latents), network.head.response(row_latents)[:, :, None]
    wanted = ~table.isnan() & masked_at(block.row_ids[:, None], block.column_ids)
    losses = network.head.loss(network.head.logits(scores, response), network.head.above(table)) * wanted
    return losses.sum() / (len(scores) * wanted.sum()).clamp(min=1)
