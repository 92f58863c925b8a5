"""Masking: which entries the branches do not see, in a training step or in one of the views of a row or column."""

from __future__ import annotations

import torch
from torch import Tensor

from deepmf.layers.blank import is_blank
from deepmf.layers.dropout import RandomModule
from deepmf.layers.vectors import Batch, FeatureBatch, SparseBatch

# Odd numbers without pattern, as 32-bit integers: two that spread rows and columns, two of a mixer ("lowbias32" of
# Wellons' search for integer hashes).
_SPREAD_ROWS, _SPREAD_COLUMNS = -1640531535, -2048144777
_MIX = (0x7FEB352D, -2073254261)

# The share of a cold row's entries that is masked: of a hundred, three are left.
_OF_COLD_ROWS = 0.97
# Where there are features: the share of rows, and of columns, of which a step masks all entries, and of which it masks
# the features.
EMPTY_RATE, FEATURE_MASK_RATE = 0.1, 0.2
# The largest threshold: everything is masked.
_ALL = 2**31 - 1


def feature_masking(
    mask_rate: float, cold_row_rate: float = 0.0, *, row_features: bool, column_features: bool
) -> Masking:
    """Return a masking that also masks features, and all entries of some of the vectors that have them."""
    return Masking(
        mask_rate,
        cold_row_rate,
        empty_row_rate=EMPTY_RATE if row_features else 0.0,
        empty_column_rate=EMPTY_RATE if column_features else 0.0,
        feature_mask_rate=FEATURE_MASK_RATE,
    )


class Masking(RandomModule):
    """Masks a fresh random share of all entries in every step, the same ones from both branches.

    Of `cold_row_rate` of the rows, almost everything is masked, so that the branches also train on rows of one or two
    entries. Whether an entry is masked is computed from its row, its column and one number drawn for the
    step: nothing is drawn or stored for entries that no branch reads, and both branches mask the same entries.

    Where there are features, all entries of `empty_row_rate` of the rows and of `empty_column_rate` of the columns are
    masked, and the features of `feature_mask_rate` of both, so that either may be absent.
    """

    def __init__(
        self,
        mask_rate: float,
        cold_row_rate: float = 0.0,
        *,
        empty_row_rate: float = 0.0,
        empty_column_rate: float = 0.0,
        feature_mask_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.mask_rate, self.cold_row_rate = mask_rate, cold_row_rate
        self.empty_row_rate, self.empty_column_rate = empty_row_rate, empty_column_rate
        self.feature_mask_rate = feature_mask_rate

    def draw(self) -> Tensor:
        """Draw the number of a step."""
        device = None if self.generator is None else self.generator.device
        return torch.randint(-(2**31), 2**31 - 1, (), dtype=torch.int32, generator=self.generator, device=device)

    def masked(self, rows: Tensor, columns: Tensor, drawn: Tensor) -> Tensor:
        """Return which entries at these positions are masked in a step; rows and columns are broadcast."""
        row_number = _mixed(rows.int() * _SPREAD_ROWS + drawn)
        column_number = _mixed(columns.int() * _SPREAD_COLUMNS - drawn)
        below = self._below(row_number)
        for numbers, rate in ((row_number, self.empty_row_rate), (column_number, self.empty_column_rate)):
            if rate:
                below = torch.where(_chosen(numbers >> 16, rate), _ALL, below)
        return row_number * column_number < below  # modulo 2^32, as good as drawn for each pair

    def visible_features(self, features: FeatureBatch | None, ids: Tensor, drawn: Tensor) -> FeatureBatch | None:
        """Return the features of rows (or columns) with these positions without those that are masked in a step."""
        if features is None or not self.feature_mask_rate:
            return features
        masked = _chosen(_mixed(ids.int() * _SPREAD_ROWS ^ drawn), self.feature_mask_rate)
        return features._replace(weights=torch.where(masked[:, None], 0.0, features.weights))

    def _below(self, row_numbers: Tensor) -> Tensor | int:
        """Return the threshold of each row: a high one for cold rows, which some bits of their numbers choose."""
        if not self.cold_row_rate:
            return _threshold(self.mask_rate)
        threshold = _threshold(max(self.mask_rate, _OF_COLD_ROWS))
        return torch.where(_chosen(row_numbers, self.cold_row_rate), threshold, _threshold(self.mask_rate))


def _chosen(numbers: Tensor, rate: float) -> Tensor:
    """Return which of some mixed numbers are chosen, at a rate, by some of their bits."""
    return (numbers & 0xFFF0) < 0xFFF0 * rate


def _threshold(share: float) -> int:
    """Return the 32-bit integer that a share of all of them lies below."""
    return round((share - 0.5) * 2**32)


def _mixed(numbers: Tensor) -> Tensor:
    """Return 32-bit integers that look random, one for one; odd, so that their products lose nothing."""
    numbers = (numbers ^ ((numbers >> 16) & 0xFFFF)) * _MIX[0]
    numbers = (numbers ^ ((numbers >> 15) & 0x1FFFF)) * _MIX[1]
    return (numbers ^ ((numbers >> 16) & 0xFFFF)) | 1


def views(n_views: int, n_inputs: int, *, mask_rate: float, generator: torch.Generator) -> Tensor:
    """Return which inputs each of some views sees (views, inputs).

    A view masks about the share that a training step masks. Every input is seen by the same number of views, so
    that their average leaves nothing out. Views are of inputs, not of vectors: equal vectors have equal views.
    """
    if is_blank():
        return torch.empty(n_views, n_inputs, dtype=torch.bool)
    n_seen = min(max(round((1.0 - mask_rate) * n_views), 1), n_views)
    order = torch.rand(n_views, n_inputs, generator=generator, dtype=torch.float32).argsort(dim=0)
    return order.argsort(dim=0) < n_seen


def positions(batch: Batch, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each entry or place of some vectors, the position of its vector and its place in it."""
    if isinstance(batch, SparseBatch):
        return torch.repeat_interleave(ids, batch.starts.diff()), batch.indices
    return ids[:, None], torch.arange(batch.shape[1], device=batch.device)
