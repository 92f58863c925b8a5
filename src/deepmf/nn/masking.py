"""Masking: the entries and features that a training step, or a view of a row or column, hides from
the branches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from deepmf.nn.branch import RandomModule, is_blank
from deepmf.nn.inputs import Batch, FeatureBatch, SparseBatch

# Factors of integer hashes, as signed 32-bit integers: one each for rows and columns, and those of
# "lowbias32" from Wellons' search for hashes.
_ROW_FACTOR, _COLUMN_FACTOR = -1640531535, -2048144777
_HASH_FACTORS = (0x7FEB352D, -2073254261)

# A cold row or column shows fewer entries, in one of 16 degrees: each shows half of the one before,
# the last 8 nothing.
_DEGREES, _EMPTY_DEGREES = 16, 8

# The largest threshold, which masks everything.
_ALL = 2**31 - 1

# The share of rows, and of columns, whose features a step masks.
FEATURE_MASK_RATE = 0.2


class Masking(RandomModule):
    """Masks a new random share of the entries in every step, the same entries from both branches.

    A share of the rows (`cold_row_rate`) and columns (`cold_column_rate`) is masked further, up to
    completely, so that the branches learn rows and columns with few or no entries. A hash of the
    row, the column and a seed of the step decides whether an entry is masked: nothing is drawn or
    stored per entry, and both branches agree. The features of a row or column are masked together,
    independently of its entries.
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
        visible = [
            (1.0 - mask_rate) / 2 ** (1 + degree) for degree in range(_DEGREES - _EMPTY_DEGREES)
        ]
        with torch.device("cpu"):
            thresholds = [_find_threshold(1.0 - share) for share in visible] + [
                _ALL
            ] * _EMPTY_DEGREES
            self.register_buffer(
                "_thresholds", torch.tensor(thresholds, dtype=torch.int32), persistent=False
            )

    def draw_step_seed(self) -> Tensor:
        """Draw the seed of a step."""
        device = None if self.generator is None else self.generator.device
        return torch.randint(
            -(2**31), 2**31 - 1, (), dtype=torch.int32, generator=self.generator, device=device
        )

    def is_masked(self, rows: Tensor, columns: Tensor, step_seed: Tensor) -> Tensor:
        """Whether the entries at these positions are masked in a step; rows and columns are
        broadcast."""
        numbers = self.hash_positions(rows, columns, step_seed)
        return _compare(numbers.rows * numbers.columns, numbers.below_rows, numbers.below_columns)

    def hash_positions(self, rows: Tensor, columns: Tensor, step_seed: Tensor) -> MaskHashes:
        """Return the hashes of rows and columns in a step."""
        row_numbers = _hash(rows.int() * _ROW_FACTOR + step_seed)
        column_numbers = _hash(columns.int() * _COLUMN_FACTOR - step_seed)
        below_columns = (
            self._find_thresholds(column_numbers, self.cold_column_rate)
            if self.cold_column_rate
            else None
        )
        below_rows = self._find_thresholds(row_numbers, self.cold_row_rate)
        return MaskHashes(row_numbers, column_numbers, below_rows, below_columns)

    def mask_features(
        self, features: FeatureBatch | None, ids: Tensor, step_seed: Tensor
    ) -> FeatureBatch | None:
        """Return the features of the rows or columns at these positions, with masked ones set to
        0."""
        if features is None or not self.feature_mask_rate:
            return features
        masked = _select(_hash(ids.int() * _ROW_FACTOR ^ step_seed), self.feature_mask_rate)
        return features._replace(weights=torch.where(masked[:, None], 0.0, features.weights))

    def _find_thresholds(self, numbers: Tensor, cold_rate: float) -> Tensor:
        """Return the threshold of each row or column: a higher one for cold ones, chosen by bits of
        their hashes."""
        usual = _find_threshold(self.mask_rate)
        if not cold_rate:
            return torch.full_like(numbers, usual)
        colder = self._thresholds[((numbers >> 20) & (_DEGREES - 1)).long()]
        return torch.where(_select(numbers, cold_rate), colder, usual).int()


class MaskHashes(NamedTuple):
    """The hashes of rows and columns in a step, as 32-bit integers.

    The product of two hashes, modulo 2^32, serves as a random number of the pair; pairs below a
    threshold are masked.
    """

    rows: Tensor
    columns: Tensor
    below_rows: Tensor  # thresholds, (rows,)
    below_columns: Tensor | None  # thresholds, (columns,), if columns can be cold

    def is_masked(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Whether the entries at these positions among the rows and columns are masked."""
        products = self.rows.index_select(0, rows).mul_(self.columns.index_select(0, columns))
        below_columns = (
            None if self.below_columns is None else self.below_columns.index_select(0, columns)
        )
        return _compare(products, self.below_rows.index_select(0, rows), below_columns)


def _compare(products: Tensor, below_rows: Tensor, below_columns: Tensor | None) -> Tensor:
    masked = products < below_rows
    return masked if below_columns is None else masked | (products < below_columns)


def _select(numbers: Tensor, rate: float) -> Tensor:
    return (numbers & 0xFFF0) < 0xFFF0 * rate


def _find_threshold(share: float) -> int:
    """Return the integer that a share of all signed 32-bit integers lies below."""
    return round((share - 0.5) * 2**32)


def _hash(numbers: Tensor) -> Tensor:
    """Hash 32-bit integers to odd ones, so that multiplying by them is invertible."""
    numbers = (numbers ^ ((numbers >> 16) & 0xFFFF)) * _HASH_FACTORS[0]
    numbers = (numbers ^ ((numbers >> 15) & 0x1FFFF)) * _HASH_FACTORS[1]
    return (numbers ^ ((numbers >> 16) & 0xFFFF)) | 1


def draw_views(
    n_views: int, n_inputs: int, *, mask_rate: float, generator: torch.Generator
) -> Tensor:
    """Draw the inputs that each view sees, (views, inputs).

    A view masks about the share that a training step masks. Every input is seen by the same number
    of views, so that their average covers all inputs. All vectors share the views, so that equal
    vectors have equal latents.
    """
    if is_blank():
        return torch.empty(n_views, n_inputs, dtype=torch.bool)
    n_seen = min(max(round((1.0 - mask_rate) * n_views), 1), n_views)
    order = torch.rand(n_views, n_inputs, generator=generator, dtype=torch.float32).argsort(dim=0)
    return order.argsort(dim=0) < n_seen


def locate_inputs(batch: Batch, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vector and the input of each entry, or of each place of dense vectors."""
    if isinstance(batch, SparseBatch):
        return torch.repeat_interleave(ids, batch.starts.diff()), batch.indices
    return ids[:, None], torch.arange(batch.shape[1], device=batch.device)
