"""Masking: which entries the branches do not see, in a training step or in one of the views of a row or column."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from deepmf.nn.branch import RandomModule, is_blank
from deepmf.nn.inputs import Batch, FeatureBatch, SparseBatch

# Odd numbers without pattern, as 32-bit integers: two that spread rows and columns, two of a mixer ("lowbias32" of
# Wellons' search for integer hashes).
_SPREAD_ROWS, _SPREAD_COLUMNS = -1640531535, -2048144777

_MIX = (0x7FEB352D, -2073254261)


# Of a cold row or column less is visible than of others, in one of these many degrees: each leaves half of what the one
# before leaves, and the last ones leave nothing.
_DEGREES, _EMPTY_DEGREES = 16, 8

# The largest threshold: everything is masked.
_ALL = 2**31 - 1

# The share of rows, and of columns, whose features a step masks.
FEATURE_MASK_RATE = 0.2


class Masking(RandomModule):
    """Masks a fresh random share of all entries in every step, the same ones from both branches.

    Of `cold_row_rate` of the rows and of `cold_column_rate` of the columns more is masked, up to everything, so that
    the branches also train on rows and columns of few entries, or none. Whether an entry is masked is computed from
    its row, its column and one number drawn for the step: nothing is drawn or stored for entries that no branch reads,
    and both branches mask the same entries. Features of a row or column are masked all together, independently of its
    entries, so that either may be absent.
    """

    _thresholds: Tensor

    def __init__(
        self,
        mask_rate: float,
        *,
        cold_row_rate: float = 0.0,
        cold_column_rate: float = 0.0,
        feature_mask_rate: float = FEATURE_MASK_RATE,
    ) -> None:
        super().__init__()
        self.mask_rate, self.feature_mask_rate = mask_rate, feature_mask_rate
        self.cold_row_rate, self.cold_column_rate = cold_row_rate, cold_column_rate
        visible = [(1.0 - mask_rate) / 2 ** (1 + degree) for degree in range(_DEGREES - _EMPTY_DEGREES)]
        with torch.device("cpu"):
            thresholds = [_find_threshold(1.0 - share) for share in visible] + [_ALL] * _EMPTY_DEGREES
            self.register_buffer("_thresholds", torch.tensor(thresholds, dtype=torch.int32), persistent=False)

    def draw_step_seed(self) -> Tensor:
        """Draw the number of a step."""
        device = None if self.generator is None else self.generator.device
        return torch.randint(-(2**31), 2**31 - 1, (), dtype=torch.int32, generator=self.generator, device=device)

    def is_masked(self, rows: Tensor, columns: Tensor, drawn: Tensor) -> Tensor:
        """Return which entries at these positions are masked in a step; rows and columns are broadcast."""
        numbers = self.hash_positions(rows, columns, drawn)
        return _compare(numbers.rows * numbers.columns, numbers.below_rows, numbers.below_columns)

    def hash_positions(self, rows: Tensor, columns: Tensor, drawn: Tensor) -> MaskHashes:
        """Return the numbers of rows and columns in a step."""
        row_numbers = _hash(rows.int() * _SPREAD_ROWS + drawn)
        column_numbers = _hash(columns.int() * _SPREAD_COLUMNS - drawn)
        below_columns = self._find_thresholds(column_numbers, self.cold_column_rate) if self.cold_column_rate else None
        return MaskHashes(
            row_numbers, column_numbers, self._find_thresholds(row_numbers, self.cold_row_rate), below_columns
        )

    def mask_features(self, features: FeatureBatch | None, ids: Tensor, drawn: Tensor) -> FeatureBatch | None:
        """Return the features of rows (or columns) with these positions without those that are masked in a step."""
        if features is None or not self.feature_mask_rate:
            return features
        masked = _select(_hash(ids.int() * _SPREAD_ROWS ^ drawn), self.feature_mask_rate)
        return features._replace(weights=torch.where(masked[:, None], 0.0, features.weights))

    def _find_thresholds(self, numbers: Tensor, cold_rate: float) -> Tensor:
        """Return the threshold of each row (or column): a higher one for cold ones, by some bits of their numbers."""
        usual = _find_threshold(self.mask_rate)
        if not cold_rate:
            return torch.full_like(numbers, usual)
        colder = self._thresholds[((numbers >> 20) & (_DEGREES - 1)).long()]
        return torch.where(_select(numbers, cold_rate), colder, usual).int()


class MaskHashes(NamedTuple):
    """The numbers of rows and columns in a step, as 32-bit integers: a pair is masked by the product of its two.

    Products, modulo 2^32, are as good as drawn for each pair.
    """

    rows: Tensor
    columns: Tensor
    below_rows: Tensor  # like rows: products below it are masked
    below_columns: Tensor | None  # like columns, where there are cold ones

    def is_masked(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return which entries at these places among the rows and columns are masked."""
        products = self.rows.index_select(0, rows).mul_(self.columns.index_select(0, columns))
        below_columns = None if self.below_columns is None else self.below_columns.index_select(0, columns)
        return _compare(products, self.below_rows.index_select(0, rows), below_columns)


def _compare(products: Tensor, below_rows: Tensor, below_columns: Tensor | None) -> Tensor:
    masked = products < below_rows
    return masked if below_columns is None else masked | (products < below_columns)


def _select(numbers: Tensor, rate: float) -> Tensor:
    """Return which of some mixed numbers are chosen, at a rate, by some of their bits."""
    return (numbers & 0xFFF0) < 0xFFF0 * rate


def _find_threshold(share: float) -> int:
    """Return the 32-bit integer that a share of all of them lies below."""
    return round((share - 0.5) * 2**32)


def _hash(numbers: Tensor) -> Tensor:
    """Return 32-bit integers that look random, one for one; odd, so that their products lose nothing."""
    numbers = (numbers ^ ((numbers >> 16) & 0xFFFF)) * _MIX[0]
    numbers = (numbers ^ ((numbers >> 15) & 0x1FFFF)) * _MIX[1]
    return (numbers ^ ((numbers >> 16) & 0xFFFF)) | 1


def draw_views(n_views: int, n_inputs: int, *, mask_rate: float, generator: torch.Generator) -> Tensor:
    """Return which inputs each of some views sees (views, inputs).

    A view masks about the share that a training step masks. Every input is seen by the same number of views, so
    that their average leaves nothing out. Views are of inputs, not of vectors: equal vectors have equal views.
    """
    if is_blank():
        return torch.empty(n_views, n_inputs, dtype=torch.bool)
    n_seen = min(max(round((1.0 - mask_rate) * n_views), 1), n_views)
    order = torch.rand(n_views, n_inputs, generator=generator, dtype=torch.float32).argsort(dim=0)
    return order.argsort(dim=0) < n_seen


def locate_inputs(batch: Batch, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each entry or place of some vectors, the position of its vector and its place in it."""
    if isinstance(batch, SparseBatch):
        return torch.repeat_interleave(ids, batch.starts.diff()), batch.indices
    return ids[:, None], torch.arange(batch.shape[1], device=batch.device)
