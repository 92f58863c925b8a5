"""What OrdinalDMF minimises: how badly it predicts entries that are masked from both branches."""

from __future__ import annotations

import torch
from torch import Tensor

from deepmf.layers.cosine import inner_products
from deepmf.layers.input_channels import apply_mask
from deepmf.layers.vectors import Batch, SparseBatch
from deepmf.matrix.encoding import ENCODINGS
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf.dmf_objective import validation_tensors
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork
from deepmf.training.block_source import Blocks
from deepmf.training.runtime import Runtime
from deepmf.training.trainer import Objective

# Enough to tell a better epoch from a worse one; all views cost more than the epochs between two looks.
_VIEWS_TO_VALIDATE = 8


class OrdinalObjective(Objective):
    """The ordinal loss on the hidden entries of a block; what is visible is read, never asked for."""

    network: OrdinalNetwork

    def __init__(
        self,
        network: OrdinalNetwork,
        train: ObservedMatrix,
        validation: ObservedMatrix | None,
        runtime: Runtime,
    ) -> None:
        self.network = network.to(runtime.device)
        self.blocks = Blocks(train, ENCODINGS["scaled"], runtime, missing=float("nan"))
        self.static_shapes = self.blocks.dense
        self._validation = validation_tensors(train, validation, runtime)

    def loss(self, *block: Tensor) -> Tensor:
        """Return the mean loss of a block's hidden entries."""
        rows, columns = block
        network, drawn = self.network, self.network.masking.draw()
        row_batch, column_batch = self.blocks.rows.take(rows), self.blocks.columns.take(columns)
        row_of, columns_of_row = _positions(row_batch, rows)
        column_of, rows_of_column = _positions(column_batch, columns)
        row_latents = network.row_latents(apply_mask(row_batch, ~network.masking.masked(row_of, columns_of_row, drawn)))
        column_latents = network.column_latents(
            apply_mask(column_batch, ~network.masking.masked(rows_of_column, column_of, drawn))
        )
        scores, marks = inner_products(row_latents, column_latents), self._marks(row_latents)
        targets, hidden = self.blocks.targets(rows, columns), network.masking.masked(rows[:, None], columns, drawn)
        return self._mean_loss(scores, marks, network.head.above(targets), ~targets.isnan() & hidden)

    def validation_error(self) -> float | None:
        """Return the root mean squared error on validation entries, in the scale's units, by a few views."""
        if self._validation is None:
            return None
        rows, columns, values = self._validation
        row_latents = self.network.viewed_row_latents(self.blocks.rows, n_views=_VIEWS_TO_VALIDATE)
        column_latents = self.network.viewed_column_latents(self.blocks.columns, n_views=_VIEWS_TO_VALIDATE)
        scores = (row_latents[rows] * column_latents[columns]).sum(1)
        predictions = self.network.head.expected(self.network.head.logits(scores, self._marks(row_latents)[rows]))
        return float((predictions - values).square().mean().sqrt())

    def _marks(self, row_latents: Tensor) -> Tensor:
        return row_latents[:, -self.network.head.n_marks :]

    def _mean_loss(self, scores: Tensor, marks: Tensor, exceeded: Tensor, asked: Tensor) -> Tensor:
        """Return the mean loss of what is asked: over all of the block where shapes are to be fixed, or those alone."""
        head = self.network.head
        if self.static_shapes:
            losses = head.loss(head.logits(scores, marks[:, None]), exceeded) * asked
        else:
            row_at, column_at = asked.nonzero(as_tuple=True)
            logits = head.logits(scores[row_at, column_at], marks[row_at])
            losses = head.loss(logits, exceeded[row_at, column_at])
        return losses.sum() / asked.sum().clamp(min=1)


def _positions(batch: Batch, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each entry or place of some vectors, the position of its vector and its place in it."""
    if isinstance(batch, SparseBatch):
        return torch.repeat_interleave(ids, batch.starts.diff()), batch.indices
    return ids[:, None], torch.arange(batch.shape[1], device=batch.device)
