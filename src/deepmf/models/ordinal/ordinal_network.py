"""The network of OrdinalDMF: two branches that see a part of the entries at a time, and the ordinal head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deepmf.layers.branch import Branch
from deepmf.layers.input_channels import apply_mask, channels
from deepmf.layers.masking import Masking
from deepmf.layers.vectors import Batch, FeatureBatch, SparseBatch, SparseVectors, Vectors, features_of
from deepmf.models.ordinal.latent_layout import LatentLayout
from deepmf.models.ordinal.ordinal_head import OrdinalHead

# What is encoded at a time: vectors times views, and their entries, some 500 MB on the way.
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
        outputs: Tensor = self.rows(channels(batch, self.row_views.shape[1]), features)
        return outputs

    def column_outputs(self, batch: Batch, features: FeatureBatch | None = None) -> Tensor:
        """Return what the branch makes of columns, from their visible entries and features."""
        outputs: Tensor = self.columns(channels(batch, self.column_views.shape[1]), features)
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
    """Return the mean latents of vectors over views (views, inputs), some at a time."""
    n_views = len(views)
    ids = torch.arange(len(vectors), device=views.device) if ids is None else ids
    parts = []
    for some in _parts(vectors, ids, n_views):
        repeated = some.repeat_interleave(n_views)
        batch = vectors.take(repeated)
        latents = latents_of(apply_mask(batch, visible_to(views, batch)), features_of(vectors, repeated))
        parts.append(latents.reshape(some.numel(), n_views, -1).mean(1))
    return torch.cat(parts)


def _parts(vectors: Vectors, ids: Tensor, n_views: int) -> tuple[Tensor, ...]:
    """Return vectors in parts that fit into memory together."""
    part_of = torch.arange(ids.numel(), device=ids.device) // max(1, _VECTORS_AT_A_TIME // n_views)
    if isinstance(vectors, SparseVectors):
        part_of += n_views * vectors.starts.diff()[ids].cumsum(0) // _ENTRIES_AT_A_TIME
    ends = (part_of.diff().nonzero().squeeze(1) + 1).tolist()
    return ids.tensor_split(ends)


def visible_to(views: Tensor, batch: Batch) -> Tensor:
    """Return which entries, or places, are visible in a batch that holds every vector once for each view."""
    if not isinstance(batch, SparseBatch):
        return views.repeat(len(batch) // len(views), 1)
    counts = batch.starts.diff()
    view_of = torch.arange(counts.numel(), device=views.device) % len(views)
    return views[torch.repeat_interleave(view_of, counts), batch.indices.long()]
