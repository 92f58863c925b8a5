"""The channels of a vector: its values, which of its entries are observed, and two features that summarise them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from deepmf.layers.ranks import Total, itself
from deepmf.layers.vectors import Batch, SparseBatch

N_SUMMARY_FEATURES = 2

# Two entries of value 0, so that the mean of a few entries is not trusted as that of many.
_SHRINKAGE = 2.0


class Channels(NamedTuple):
    """The inputs of a branch: the value of every place, whether it is observed, and features that summarise them."""

    places: Batch  # (batch, 2 * inputs): all values, then all indicators, both over the root of the count
    summary_features: Tensor  # (batch, 2): the mean, and how many entries there are, both of the size of an input


class EntrySums(NamedTuple):
    """What the first layer makes of the channels of sparse vectors before it is scaled: sums over their entries."""

    lines: Tensor  # (batch, outputs) of a value's weights times the value, and of an indicator's weights
    units: Tensor  # (batch,) of the values
    counts: Tensor  # (batch,) how many entries there are

    def scaled(self) -> Tensor:
        """Return the sums over the root of the count."""
        return self.lines * self.counts.clamp(min=1.0).rsqrt()[:, None]

    def summary_features(self) -> Tensor:
        """Return the features (batch, 2) that summarise the entries."""
        return _summary_features(self.units, self.counts)


def channels(batch: Batch, n_inputs: int, *, total: Total = itself) -> Channels:
    """Return the channels of a batch of vectors; in dense ones (batch, inputs) what is missing is NaN.

    Dividing by the root of the count keeps the sum over random entries at one size, however many there are; the
    summary features give back what that takes away. Where a sparse batch has a part of the entries of its vectors,
    `total` makes the sums over all of them from those over this part.
    """
    return _sparse(batch, n_inputs, total) if isinstance(batch, SparseBatch) else _dense(batch)


def apply_mask(batch: Batch, visible: Tensor, *, missing: float = float("nan")) -> Batch:
    """Return a batch without its masked entries: `visible` is for each entry, or for each place of dense vectors."""
    if not isinstance(batch, SparseBatch):
        return torch.where(visible, batch, missing)
    kept = visible.nonzero().squeeze(1)
    starts = torch.searchsorted(kept, batch.starts)
    return SparseBatch(batch.indices.index_select(0, kept), starts, batch.weights.index_select(0, kept))


def _dense(batch: Tensor) -> Channels:
    observed = ~batch.isnan()
    values = batch.nan_to_num(0.0)
    counts = observed.sum(1)
    places = torch.cat([values, observed.to(batch.dtype)], dim=1)
    places *= counts.clamp(min=1).to(torch.float32).rsqrt()[:, None].to(batch.dtype)
    return Channels(places, _summary_features(values.sum(1, dtype=torch.float32), counts))


def _sparse(batch: SparseBatch, n_inputs: int, total: Total) -> Channels:
    here = batch.starts.diff()
    sums = torch.segment_reduce(batch.weights, "sum", offsets=batch.starts)
    sums, counts = total(torch.stack([sums, here.to(sums.dtype)]))
    scale = torch.repeat_interleave(counts.clamp(min=1).rsqrt(), here)
    indices = torch.stack([batch.indices, batch.indices + n_inputs], dim=1).flatten()
    weights = torch.stack([batch.weights * scale, scale], dim=1).flatten()
    return Channels(SparseBatch(indices, 2 * batch.starts, weights), _summary_features(sums, counts))


def _summary_features(sums: Tensor, counts: Tensor) -> Tensor:
    # MovieLens' rows have 20 to 2000 entries: the logarithm's quarter less 1 is between -.3 and 1.
    counts = counts.to(sums.dtype)
    return torch.stack([2.0 * sums / (counts + _SHRINKAGE), (counts + 1.0).log() / 4.0 - 1.0], dim=1)
