"""The objective of OrdinalDMF: the ordinal loss on entries that are masked from both branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from deepmf.models.ordinal.head import LatentLayout, OrdinalHead
from deepmf.nn.branch import Branch, inner_products
from deepmf.nn.inputs import Batch, DenseVectors, FeatureBatch, SparseBatch, Vectors, apply_mask, channels, features_of
from deepmf.nn.masking import Masking, positions
from deepmf.training.blocks import Block, BlockEntries, MatrixBlocks
from deepmf.training.trainer import Objective

# What is encoded at a time: vectors, and their entries, some 300 MB on the way.
_VECTORS_AT_A_TIME = 1024

_ENTRIES_AT_A_TIME = 1 << 22


class OrdinalNetwork(nn.Module):
    """A branch for rows and one for columns, a head, and the masks of entries.

    In training each step masks other entries. Afterwards a vector is encoded in several views, which mask as much,
    and its latent is the mean: branches that were trained on parts of vectors encode parts best. The inner
    product of two means is the mean score over all pairs of views, and the more the views of a vector disagree, the
    smaller it is.

    row_views, column_views: the columns that each view of a row sees, (views, columns); and (views, rows).
    """

    row_views: Tensor
    column_views: Tensor

    def __init__(
        self,
        rows: Branch,
        columns: Branch,
        head: OrdinalHead,
        masking: Masking,
        *,
        row_views: Tensor,
        column_views: Tensor,
    ) -> None:
        super().__init__()
        self.rows, self.columns, self.head, self.masking = rows, columns, head, masking
        self.register_buffer("row_views", row_views)
        self.register_buffer("column_views", column_views)

    @property
    def layout(self) -> LatentLayout:
        """The fields of what the branches give, without landmarks and linear part."""
        n_direction = self.columns.n_outputs - self.head.groups * self.head.n_column_outputs
        return LatentLayout(n_direction, 0, 0, self.head.n_response)

    def row_outputs(self, batch: Batch, features: FeatureBatch | None = None) -> Tensor:
        """Return what the branch makes of rows, from their visible entries and features."""
        read = channels(batch, self.row_views.shape[1], total=self.rows.first.total)
        outputs: Tensor = self.rows(read, features)
        return outputs

    def column_outputs(self, batch: Batch, features: FeatureBatch | None = None) -> Tensor:
        """Return what the branch makes of columns, from their visible entries and features."""
        read = channels(batch, self.column_views.shape[1], total=self.columns.first.total)
        outputs: Tensor = self.columns(read, features)
        return outputs

    def row_latents(self, batch: Batch, features: FeatureBatch | None = None) -> Tensor:
        """Return the latents of rows, cutpoints and slope included, from their visible entries and features."""
        return self.head.row_latents(self.row_outputs(batch, features))

    def column_latents(self, batch: Batch, features: FeatureBatch | None = None) -> Tensor:
        """Return the latents of columns from their visible entries and features."""
        return self.head.column_latents(self.column_outputs(batch, features))

    def viewed_row_latents(self, vectors: Vectors, ids: Tensor | None = None, *, n_views: int | None = None) -> Tensor:
        """Return the mean latents of some rows (all, where none are given) over their views, or over the first few."""
        return _viewed(vectors, ids, self.row_views[:n_views], self.row_latents)

    def viewed_column_latents(
        self, vectors: Vectors, ids: Tensor | None = None, *, n_views: int | None = None
    ) -> Tensor:
        """Return the mean latents of some columns (all, where none are given) over their views, or the first few."""
        return _viewed(vectors, ids, self.column_views[:n_views], self.column_latents)


def _viewed(
    vectors: Vectors, ids: Tensor | None, views: Tensor, latents_of: Callable[[Batch, FeatureBatch | None], Tensor]
) -> Tensor:
    """Return the mean latents of vectors over views (views, inputs), some at a time.

    One view after another: entries are looked up once for all of them.
    """
    ids = torch.arange(len(vectors), device=views.device) if ids is None else ids
    parts = []
    for some in _parts(vectors, ids):
        batch, features = vectors.take(some), features_of(vectors, some)
        latents = [latents_of(apply_mask(batch, _visible(view, batch)), features) for view in views]
        parts.append(torch.stack(latents).mean(0))
    return torch.cat(parts)


def _parts(vectors: Vectors, ids: Tensor) -> tuple[Tensor, ...]:
    """Return vectors in parts that fit into memory together."""
    part_of = torch.arange(ids.numel(), device=ids.device) // _VECTORS_AT_A_TIME
    if not isinstance(vectors, DenseVectors):
        part_of += vectors.counts[ids].cumsum(0) // _ENTRIES_AT_A_TIME
    ends = (part_of.diff().nonzero().squeeze(1) + 1).tolist()
    return ids.tensor_split(ends)


def _visible(view: Tensor, batch: Batch) -> Tensor:
    """Return which entries, or places, of a batch are visible in a view (inputs)."""
    return view.index_select(0, batch.indices) if isinstance(batch, SparseBatch) else view


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
    rows, columns = row_latents.index_select(0, row_at[masked]), column_latents.index_select(0, column_at[masked])
    logits = network.head.logits((rows * columns).sum(-1), network.head.response(rows))
    losses = network.head.loss(logits, network.head.above(units[masked])[:, None])
    sums = block.total(torch.stack([losses.sum(), losses.new_tensor(losses.numel())]))
    return sums[0] / sums[1].clamp(min=1)


def _mean_loss_of_table(
    network: OrdinalNetwork, row_latents: Tensor, column_latents: Tensor, block: Block, table: Tensor, masked_at: Masked
) -> Tensor:
    """Return the same from a table of targets, by kernels of static shapes."""
    row_latents, column_latents = row_latents.transpose(0, 1), column_latents.transpose(0, 1)
    scores, response = inner_products(row_latents, column_latents), network.head.response(row_latents)[:, :, None]
    wanted = ~table.isnan() & masked_at(block.row_ids[:, None], block.column_ids)
    losses = network.head.loss(network.head.logits(scores, response), network.head.above(table)) * wanted
    return losses.sum() / (len(scores) * wanted.sum()).clamp(min=1)
