"""The network of OrdinalDMF, and its objective: the ordinal loss of entries that are masked from
both branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.matrix.axis_entries import Axis
from deepmf.models.ordinal.head import CumulativeLogits, LatentLayout
from deepmf.nn.branch import Branch, compute_inner_products
from deepmf.nn.inputs import (
    Batch,
    DenseVectors,
    FeatureBatch,
    SparseBatch,
    Vectors,
    apply_mask,
    make_channels,
    take_features,
)
from deepmf.nn.masking import Masking, locate_inputs
from deepmf.scoring.encoders import split_by_entries
from deepmf.training.blocks import Block, BlockEntries, MatrixBlocks
from deepmf.training.trainer import Objective

# Vectors that are encoded at a time: some 300 MB in views.
_VECTORS_AT_A_TIME = 1024

# Views that validation uses: enough to rank epochs. All views would cost more than the epochs
# between validations.
_VALIDATION_VIEWS = 4


# The scale of directions, and the least gap between two cutpoints, before training.
_START_SCALE = 3.0
_SMALLEST_GAP = 0.05


class OrdinalHead(nn.Module, CumulativeLogits):
    """Cumulative logits with parameters that are learned, and their loss.

    Parameters
    ----------
    support, boundaries, groups : those of `CumulativeLogits`.
    exceedance : share of entries above each boundary, from which the cutpoints start.
    """

    boundaries: Tensor
    support: Tensor

    def __init__(
        self,
        support: Sequence[float],
        boundaries: Sequence[float],
        exceedance: Sequence[float],
        *,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.groups = groups
        self.register_buffer("support", torch.tensor(support, dtype=torch.float64))
        self.register_buffer("boundaries", torch.tensor(boundaries, dtype=torch.float32))
        start = -torch.logit(torch.tensor(exceedance, dtype=torch.float32))
        self.scale = nn.Parameter(torch.tensor(_START_SCALE, dtype=torch.float32))
        self.offset = nn.Parameter(torch.tensor(0.0, dtype=torch.float32))
        self.first_cutpoint = nn.Parameter(start[:1].clone())
        gaps = start.diff().clamp(min=_SMALLEST_GAP)
        self.gaps = nn.Parameter(gaps + (-(-gaps).expm1()).log())  # the inverse of softplus

    def loss(self, logits: Tensor, exceeded: Tensor) -> Tensor:
        """Return the binary cross-entropy (...) of the exceeded boundaries, summed over
        boundaries."""
        exceeded = exceeded.expand_as(logits)
        return functional.binary_cross_entropy_with_logits(logits, exceeded, reduction="none").sum(
            -1
        )


class OrdinalNetwork(nn.Module):
    """A row branch, a column branch, an ordinal head and the masking of entries.

    In training, each step masks different entries. Afterwards, a vector is encoded under several
    fixed Monte Carlo masks (views), which hide as many entries as training does, and its latent is
    the mean over views: a branch that was trained on parts of vectors encodes parts best. The inner
    product of two means is the mean score over all pairs of views; the more the views of a vector
    disagree, the smaller it is.

    Parameters
    ----------
    row_views : columns that each view of a row sees, (views, columns).
    column_views : rows that each view of a column sees, (views, rows).
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
        """The fields of the network's own latents, without landmarks."""
        n_direction = self.columns.n_outputs - self.head.groups * self.head.n_column_outputs
        return LatentLayout(n_direction, 0, self.head.n_response)

    def get_branch(self, axis: Axis) -> Branch:
        """Return the branch that reads rows, or columns."""
        return self.rows if axis == "row" else self.columns

    def get_views(self, axis: Axis) -> Tensor:
        """Return the inputs that each view of a row, or of a column, sees, (views, inputs)."""
        return self.row_views if axis == "row" else self.column_views

    def run_branch(self, axis: Axis, batch: Batch, features: FeatureBatch | None = None) -> Tensor:
        """Return the outputs of a branch for visible entries and features."""
        branch = self.get_branch(axis)
        read = make_channels(
            batch, self.get_views(axis).shape[1], sum_over_ranks=branch.first.sum_over_ranks
        )
        outputs: Tensor = branch(read, features)
        return outputs

    def make_latents(self, axis: Axis, outputs: Tensor) -> Tensor:
        """Return the latents of rows, cutpoints and slope included, or of columns, from the outputs
        of the branch."""
        make = self.head.make_row_latents if axis == "row" else self.head.make_column_latents
        latents: Tensor = self.head.join_groups(make(outputs))
        return latents

    def encode(self, axis: Axis, batch: Batch, features: FeatureBatch | None = None) -> Tensor:
        """Return the latents of rows, or of columns, from their visible entries and features."""
        return self.make_latents(axis, self.run_branch(axis, batch, features))

    def encode_views(
        self, axis: Axis, vectors: Vectors, ids: Tensor | None = None, *, n_views: int | None = None
    ) -> Tensor:
        """Return the mean latents of vectors (default: all) over all views, or over the first
        `n_views`."""
        views = self.get_views(axis)[:n_views]
        ids = torch.arange(len(vectors), device=views.device) if ids is None else ids
        latents = []
        counts = torch.zeros_like(ids) if isinstance(vectors, DenseVectors) else vectors.counts[ids]
        parts = split_by_entries(counts.cpu().numpy(), most_vectors=_VECTORS_AT_A_TIME)
        for part_ids in ids.split([part.size for part in parts]):  # type: ignore[no-untyped-call]
            batch, features = vectors.take(part_ids), take_features(vectors, part_ids)
            of_views = [
                self.encode(axis, apply_mask(batch, _find_visible(view, batch)), features)
                for view in views
            ]
            latents.append(torch.stack(of_views).mean(0))
        return torch.cat(latents)


def _find_visible(view: Tensor, batch: Batch) -> Tensor:
    """Return which entries (sparse), or inputs (dense), of a batch a view (inputs,) sees."""
    return view.index_select(0, batch.indices) if isinstance(batch, SparseBatch) else view


# from positions of rows and columns to whether an entry is masked
FindMasked = Callable[[Tensor, Tensor], Tensor]
# of rows and of columns, (vectors, groups, latent): each network has its own
BothLatents = tuple[Tensor, Tensor]


class OrdinalObjective(Objective):
    """The ordinal loss of the masked entries of a block; visible entries are inputs only."""

    def loss(self, network: OrdinalNetwork, block: Block) -> Tensor:
        step_seed = network.masking.draw_step_seed()
        find_masked = _mask_step(network, block, step_seed)
        row_of, columns_of_row = locate_inputs(block.rows, block.row_ids)
        column_of, rows_of_column = locate_inputs(block.columns, block.column_ids)
        row_outputs = network.run_branch(
            "row",
            apply_mask(block.rows, ~find_masked(row_of, columns_of_row)),
            network.masking.mask_features(block.row_features, block.row_ids, step_seed),
        )
        column_outputs = network.run_branch(
            "column",
            apply_mask(block.columns, ~find_masked(rows_of_column, column_of)),
            network.masking.mask_features(block.column_features, block.column_ids, step_seed),
        )
        latents = (
            network.head.make_row_latents(row_outputs),
            network.head.make_column_latents(column_outputs),
        )
        if isinstance(block.observed, BlockEntries):
            return _average_entry_losses(network, latents, block, block.observed, find_masked)
        return _average_table_losses(network, latents, block, block.observed, find_masked)

    def predictions(
        self, network: OrdinalNetwork, source: MatrixBlocks, rows: Tensor, columns: Tensor
    ) -> Tensor:
        """Return the expected values of pairs of positions, by a few views and without
        refinement."""
        (needed_rows, row_at), (needed_columns, column_at) = (
            positions.unique(return_inverse=True)  # type: ignore[no-untyped-call]
            for positions in (rows, columns)
        )
        row_latents = network.encode_views(
            "row", source.rows, needed_rows, n_views=_VALIDATION_VIEWS
        )
        column_latents = network.encode_views(
            "column", source.columns, needed_columns, n_views=_VALIDATION_VIEWS
        )
        scores = (row_latents[row_at] * column_latents[column_at]).sum(1)
        response = row_latents[:, network.layout.response][row_at]
        expected: Tensor = network.head.expectation(network.head.logits(scores, response))
        return expected


def _mask_step(network: OrdinalNetwork, block: Block, step_seed: Tensor) -> FindMasked:
    """Return the mask of a training step.

    For sparse vectors, the random numbers of all rows and columns are computed once and looked up
    for each entry.
    """
    if not isinstance(block.rows, SparseBatch):
        return partial(network.masking.is_masked, step_seed=step_seed)
    sizes = network.column_views.shape[1], network.row_views.shape[1]
    rows, columns = (torch.arange(size, device=step_seed.device) for size in sizes)
    return network.masking.hash_positions(rows, columns, step_seed).is_masked


def _average_entry_losses(
    network: OrdinalNetwork,
    latents: BothLatents,
    block: Block,
    entries: BlockEntries,
    find_masked: FindMasked,
) -> Tensor:
    """Return the mean loss of the masked entries of a sparse block."""
    (row_latents, column_latents), (row_at, column_at, units) = latents, entries
    masked = find_masked(block.row_ids[row_at], block.column_ids[column_at]).nonzero().squeeze(1)
    rows, columns = (
        row_latents.index_select(0, row_at[masked]),
        column_latents.index_select(0, column_at[masked]),
    )
    logits = network.head.logits((rows * columns).sum(-1), network.head.take_response(rows))
    losses = network.head.loss(logits, network.head.mark_exceeded(units[masked])[:, None])
    if block.weights is not None:
        weights = block.weights.index_select(0, masked)[:, None]
        return (losses * weights).sum() / (losses.shape[1] * weights.sum()).clamp(min=1e-12)
    sums = block.sum_over_ranks(torch.stack([losses.sum(), losses.new_tensor(losses.numel())]))
    return sums[0] / sums[1].clamp(min=1)


def _average_table_losses(
    network: OrdinalNetwork,
    latents: BothLatents,
    block: Block,
    table: Tensor,
    find_masked: FindMasked,
) -> Tensor:
    """Return the mean loss of the masked entries of a dense block, by kernels of static shapes."""
    row_latents, column_latents = (table.transpose(0, 1) for table in latents)
    scores = compute_inner_products(row_latents, column_latents)
    response = network.head.take_response(row_latents)[:, :, None]
    is_target = ~table.isnan() & find_masked(block.row_ids[:, None], block.column_ids)
    logits = network.head.logits(scores, response)
    losses = network.head.loss(logits, network.head.mark_exceeded(table)) * is_target
    if block.weights is not None:
        weights = block.weights * is_target
        return (losses * weights).sum() / (len(scores) * weights.sum()).clamp(min=1e-12)
    return losses.sum() / (len(scores) * is_target.sum()).clamp(min=1)
