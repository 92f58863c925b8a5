"""The inputs of networks: vectors of rows and columns, dense or sparse, their features, and their
channels."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.nn.ranks import SumOverRanks, keep_sums
from deepmf.nn.summaries import summarise


class SparseBatch(NamedTuple):
    """A batch of vectors by their entries: entry t adds `weights[t]` to input `indices[t]`."""

    indices: Tensor  # (entries,)
    starts: Tensor  # (batch + 1,) first entry of each vector
    weights: Tensor  # (entries,) the encoded values


class FeatureBatch(NamedTuple):
    """The features of a batch of vectors: slot s of vector v adds `weights[v, s]` to input
    `inputs[v, s]`."""

    inputs: Tensor  # (batch, slots)
    weights: Tensor  # (batch, slots) 0 in padding

    def take(self, ids: Tensor) -> FeatureBatch:
        """Return the features of the vectors at these positions."""
        return FeatureBatch(self.inputs.index_select(0, ids), self.weights.index_select(0, ids))

    def to(self, device: torch.device | str) -> FeatureBatch:
        """Return the features on a device."""
        return FeatureBatch(self.inputs.to(device), self.weights.to(device))

    def dense(self, n_inputs: int) -> Tensor:
        """Return a table (batch, inputs)."""
        table = self.weights.new_zeros(self.inputs.shape[0], n_inputs)
        return table.scatter_add_(1, self.inputs, self.weights)


@dataclass(eq=False)
class SparseVectors:
    """Vectors as their entries, 8 or 12 bytes each, with optional features.

    `all_counts` has the number of all entries of each vector, if other ranks hold some of them, and
    `roots` the square roots of the weights of entries, if these have any; the weights belong to
    targets, not to inputs.
    """

    starts: Tensor
    indices: Tensor
    weights: Tensor
    _: KW_ONLY
    features: FeatureBatch | None = None
    all_counts: Tensor | None = None
    roots: Tensor | None = None

    def __post_init__(self) -> None:
        self.starts = self.starts.long()

    def __len__(self) -> int:
        return self.starts.numel() - 1

    @property
    def counts(self) -> Tensor:
        """The number of entries of each vector."""
        return self.starts.diff() if self.all_counts is None else self.all_counts

    def to(self, device: torch.device) -> SparseVectors:
        """Return the vectors on a device."""
        moved: dict[str, Any] = {
            name: None if part is None else part.to(device) for name, part in vars(self).items()
        }
        return SparseVectors(**moved)

    def take(self, ids: Tensor) -> SparseBatch:
        """Return the vectors at these positions."""
        places, starts = locate_entries(self.starts, ids)
        return SparseBatch(
            self.indices.index_select(0, places), starts, self.weights.index_select(0, places)
        )


@dataclass(eq=False)
class DenseVectors:
    """Vectors as one table (vectors, inputs), with optional features."""

    table: Tensor
    features: FeatureBatch | None = None

    def __len__(self) -> int:
        return self.table.shape[0]

    def take(self, ids: Tensor) -> Tensor:
        """Return the vectors at these positions, (batch, inputs)."""
        return self.table.index_select(0, ids)


Vectors = SparseVectors | DenseVectors

Batch = SparseBatch | Tensor


def make_feature_batch(
    features: FeatureVectors | None, device: torch.device | str = "cpu"
) -> FeatureBatch | None:
    """Return features as tensors on a device; None without features."""
    if features is None:
        return None
    return FeatureBatch(
        torch.from_numpy(features.inputs).long(), torch.from_numpy(features.weights)
    ).to(device)


def take_features(vectors: Vectors, ids: Tensor) -> FeatureBatch | None:
    """Return the features of the vectors at these positions; None without features."""
    return None if vectors.features is None else vectors.features.take(ids)


def locate_entries(starts: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions of the entries of the vectors `ids`, and the first entry of each vector
    among them."""
    first = starts[ids]
    counts = starts[ids + 1] - first
    new_starts = torch.zeros(ids.numel() + 1, dtype=torch.int64, device=ids.device)
    torch.cumsum(counts, 0, out=new_starts[1:])
    shifts = torch.repeat_interleave(first - new_starts[:-1], counts)
    return shifts + torch.arange(shifts.numel(), device=ids.device), new_starts


class Channels(NamedTuple):
    """The inputs of a branch: all values, indicators of observed entries, and features that
    summarise them."""

    # (batch, 2 * inputs): all values, then all indicators, both over the root of the count
    places: Batch
    # (batch, 2): the mean and the number of entries, on the scale of an input
    summary_features: Tensor


def make_channels(
    batch: Batch, n_inputs: int, *, sum_over_ranks: SumOverRanks = keep_sums
) -> Channels:
    """Return the channels of a batch of vectors; missing entries of dense vectors (batch, inputs)
    are NaN.

    Dividing by the root of the count keeps the sum over random entries at one size for any number
    of entries; the summary features restore the count. If a rank holds a part of the entries,
    `sum_over_ranks` turns sums over this part into sums over all entries.
    """
    if isinstance(batch, SparseBatch):
        return _make_sparse_channels(batch, n_inputs, sum_over_ranks)
    observed = ~batch.isnan()
    values = batch.nan_to_num(0.0)
    counts = observed.sum(1)
    places = torch.cat([values, observed.to(batch.dtype)], dim=1)
    places *= counts.clamp(min=1).to(torch.float32).rsqrt()[:, None].to(batch.dtype)
    return Channels(places, summarise(values.sum(1, dtype=torch.float32), counts.float()))


def apply_mask(batch: Batch, visible: Tensor) -> Batch:
    """Return a batch without masked entries; `visible` is per entry, or per input of dense
    vectors."""
    if not isinstance(batch, SparseBatch):
        return torch.where(visible, batch, float("nan"))
    places = visible.nonzero().squeeze(1)
    starts = torch.searchsorted(places, batch.starts)
    return SparseBatch(
        batch.indices.index_select(0, places), starts, batch.weights.index_select(0, places)
    )


def _make_sparse_channels(
    batch: SparseBatch, n_inputs: int, sum_over_ranks: SumOverRanks
) -> Channels:
    n_entries = batch.starts.diff()  # on this rank
    sums = torch.segment_reduce(batch.weights, "sum", offsets=batch.starts)
    sums, counts = sum_over_ranks(torch.stack([sums, n_entries.to(sums.dtype)]))
    scale = torch.repeat_interleave(counts.clamp(min=1).rsqrt(), n_entries)
    indices = torch.stack([batch.indices, batch.indices + n_inputs], dim=1).flatten()
    weights = torch.stack([batch.weights * scale, scale], dim=1).flatten()
    return Channels(
        SparseBatch(indices, 2 * batch.starts, weights), summarise(sums, counts.to(sums.dtype))
    )
