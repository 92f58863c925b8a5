"""The entries of some vectors as the views see them: what a branch makes of each view, also without one entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deepmf.matrix.arrays import IndexArray
from deepmf.nn.branch import Branch
from deepmf.nn.inputs import EntrySums, FeatureBatch, SparseVectors

# What a part takes on the way, some 200 bytes an entry, stays below a gigabyte.
_ENTRIES_AT_A_TIME = 1 << 22


def entry_parts(counts: IndexArray) -> list[IndexArray]:
    """Return the positions of rows (or columns) with these numbers of entries, in order, part by part.

    >>> [part.size for part in entry_parts(np.full(10, 1 << 20))]
    [3, 4, 3]
    """
    part_of = np.cumsum(counts, dtype=np.int64) // _ENTRIES_AT_A_TIME
    return np.split(np.arange(counts.size), np.flatnonzero(np.diff(part_of)) + 1)


# Entries whose weights are gathered at a time: 64 MB at 2048 hidden units.
_VIEW_ENTRIES_AT_A_TIME = 8192


class PaddedEntries(NamedTuple):
    """The entries of some vectors side by side, padded to the most that one has."""

    indices: Tensor  # (vectors, entries)
    units: Tensor  # (vectors, entries)
    real: Tensor  # (vectors, entries) false where padded

    @classmethod
    def of(cls, vectors: SparseVectors, ids: Tensor) -> PaddedEntries:
        """Return the entries of the vectors with these positions."""
        if ids.numel() == 1:  # nothing to pad
            some = slice(*vectors.starts[ids[0] : ids[0] + 2].tolist())
            indices, units = vectors.indices[some].long()[None], vectors.weights[some][None]
            return cls(indices, units, torch.ones_like(indices, dtype=torch.bool))
        batch = vectors.take(ids)
        counts = batch.starts.diff()
        real = torch.arange(int(counts.max()), device=counts.device) < counts[:, None]
        indices = torch.zeros(real.shape, dtype=torch.int64, device=counts.device)
        units = torch.zeros(real.shape, dtype=torch.float32, device=counts.device)
        indices[real], units[real] = batch.indices.long(), batch.weights
        return cls(indices, units, real)

    def split(self, most: int) -> Iterator[PaddedEntries]:
        """Yield the entries of the same vectors in parts of about one length, at most `most` of each vector."""
        n_parts = -(-self.indices.shape[1] // most)
        return map(PaddedEntries._make, zip(*(each.tensor_split(n_parts, dim=1) for each in self), strict=True))


def outputs_by_view(
    branch: Branch, views: Tensor, entries: PaddedEntries, features: FeatureBatch | None = None
) -> Tensor:
    """Return a branch's outputs (vectors, views, outputs) for vectors of which each view sees a part.

    The first layer is one product of who sees what and the entries' weights, gathered once for all views.
    """
    outputs: Tensor = branch.of_sums(_sums_by_view(branch, views, entries), _repeated(features, len(views)))
    return outputs.reshape(len(entries.indices), len(views), -1)


def outputs_without_each(
    branch: Branch,
    views: Tensor,
    entries: PaddedEntries,
    left_out: Tensor,
    features: FeatureBatch | None = None,
) -> Tensor:
    """Return the outputs (left out, views, outputs) for a single vector without each of some of its entries.

    Views that do not see the entry stay as they are; of the others, the sums lose one term.
    """
    sums = _sums_by_view(branch, views, entries)
    whole: Tensor = branch.of_sums(sums, _repeated(features, len(views)))
    indices, units = entries.indices[0, left_out], entries.units[0, left_out]
    which, view = views.T[indices].nonzero(as_tuple=True)
    less = EntrySums(
        sums.lines.index_select(0, view) - branch.entry_lines(indices, units).index_select(0, which),
        sums.units[view] - units[which],
        sums.counts[view] - 1.0,
    )
    outputs = whole.repeat(left_out.numel(), 1, 1)
    outputs[which, view] = branch.of_sums(less, _repeated(features, which.numel()))
    return outputs


def _repeated(features: FeatureBatch | None, n_times: int) -> FeatureBatch | None:
    """Return the features of vectors once for each of their views."""
    if features is None:
        return None
    return FeatureBatch(*(part.repeat_interleave(n_times, dim=0) for part in features))


def _sums_by_view(branch: Branch, views: Tensor, entries: PaddedEntries) -> EntrySums:
    """Return the sums (vectors x views, ...) over the entries that each view of each vector sees."""
    visible = (views.T[entries.indices] & entries.real[..., None]).mT.float()  # (vectors, views, entries)
    n_vectors, n_entries = entries.indices.shape
    lines = visible.new_zeros(n_vectors, len(views), branch.first.weight.shape[1])
    step = max(1, _VIEW_ENTRIES_AT_A_TIME // n_vectors)
    for some in (slice(start, start + step) for start in range(0, n_entries, step)):
        lines.baddbmm_(visible[..., some], branch.entry_lines(entries.indices[:, some], entries.units[:, some]))
    units = (visible @ entries.units[..., None]).squeeze(-1)
    return EntrySums(lines.flatten(0, 1), units.flatten(), visible.sum(-1).flatten())
