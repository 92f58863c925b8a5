"""Masking: which entries the branches do not see, in a training step or in one of the views of a row or column."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from deepmf.layers.blank import is_blank
from deepmf.layers.dropout import RandomModule

# Odd numbers without pattern, as 32-bit integers: two that spread rows and columns, two of a mixer ("lowbias32" of
# Wellons' search for integer hashes).
_SPREAD_ROWS, _SPREAD_COLUMNS = -1640531535, -2048144777
_MIX = (0x7FEB352D, -2073254261)

# The share of a cold row's entries that is masked: of a hundred, three are left.
_OF_COLD_ROWS = 0.97


class Masking(RandomModule):
    """Masks a fresh random share of all entries in every step, the same ones from both branches.

    Of `cold_row_rate` of the rows, almost everything is masked, so that the branches also train on rows of one or two
    entries. Whether an entry is masked is computed from its row, its column and one number drawn for the
    step: nothing is drawn or stored for entries that no branch reads, and both branches mask the same entries.
    """

    def __init__(self, mask_rate: float, cold_row_rate: float = 0.0) -> None:
        super().__init__()
        self.mask_rate, self.cold_row_rate = mask_rate, cold_row_rate

    def draw(self) -> Tensor:
        """Draw the number of a step."""
        device = None if self.generator is None else self.generator.device
        return torch.randint(-(2**31), 2**31 - 1, (), dtype=torch.int32, generator=self.generator, device=device)

    def masked(self, rows: Tensor, columns: Tensor, drawn: Tensor) -> Tensor:
        """Return which entries at these positions are masked in a step; rows and columns are broadcast."""
        numbers = self.numbers(rows, columns, drawn)
        return numbers.rows * numbers.columns < numbers.below  # modulo 2^32, as good as drawn for each pair

    def numbers(self, rows: Tensor, columns: Tensor, drawn: Tensor) -> MaskNumbers:
        """Return the numbers of rows and columns in a step."""
        row_numbers = _mixed(rows.int() * _SPREAD_ROWS + drawn)
        column_numbers = _mixed(columns.int() * _SPREAD_COLUMNS - drawn)
        return MaskNumbers(row_numbers, column_numbers, self._below(row_numbers))

    def _below(self, row_numbers: Tensor) -> Tensor:
        """Return the threshold of each row: a high one for cold rows, which some bits of their numbers choose."""
        if not self.cold_row_rate:
            return torch.full_like(row_numbers, _threshold(self.mask_rate))
        chosen = (row_numbers & 0xFFF0) < 0xFFF0 * self.cold_row_rate
        cold, usual = _threshold(max(self.mask_rate, _OF_COLD_ROWS)), _threshold(self.mask_rate)
        return torch.where(chosen, cold, usual).int()


class MaskNumbers(NamedTuple):
    """The numbers of rows and columns in a step, as 32-bit integers: a pair is masked by the product of its two."""

    rows: Tensor
    columns: Tensor
    below: Tensor  # like rows: products below it are masked

    def masked(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return which entries at these places among the rows and columns are masked."""
        products = self.rows.index_select(0, rows).mul_(self.columns.index_select(0, columns))
        return products < self.below.index_select(0, rows)


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
