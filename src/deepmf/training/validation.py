"""Validation entries: by their positions in the training matrix, checked once."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deepmf.errors import BadEntries
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.store_reader import check_unchanged

# The most entries that epochs and settings are compared on: more would tell them apart no better, and need more rows
# and columns to be encoded.
_MOST_COMPARED_ON = 1 << 16


class ValidationEntries(NamedTuple):
    """Entries that choose the best epoch and never teach: positions in the training matrix, and values."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray

    @classmethod
    def of(cls, train: ObservedMatrix, validation: ObservedMatrix | None) -> ValidationEntries | None:
        """Return the validation entries, None where there are none; what training does not know is refused."""
        if validation is None:
            return None
        check_unchanged(train, validation)
        rows, columns, values = validation.entries()
        found = cls(train.rows.positions(rows), train.columns.positions(columns), values)
        # An interval is only what training showed: beyond it is no mistake.
        if train.scale.levels is not None and not np.all(train.scale.holds(values)):
            raise BadEntries(f"validation has the scale {validation.scale}; the training matrix has {train.scale}")
        return found if values.size else None

    def sampled(self, *, seed: int) -> ValidationEntries:
        """Return these entries, or as many of them, drawn at random, as are enough to compare on."""
        if self.values.size <= _MOST_COMPARED_ON:
            return self
        chosen = np.random.default_rng(seed).choice(self.values.size, _MOST_COMPARED_ON, replace=False)
        chosen.sort()
        return ValidationEntries(self.rows[chosen], self.columns[chosen], self.values[chosen])

    def digest(self) -> str:
        """Return a short fingerprint of the entries."""
        digest = hashlib.sha256()
        for array in self:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def to(self, device: torch.device) -> ValidationTensors:
        """Return the entries on a device."""
        return ValidationTensors(*(torch.from_numpy(array).to(device) for array in self))


class ValidationTensors(NamedTuple):
    """Validation entries on a device."""

    rows: Tensor
    columns: Tensor
    values: Tensor
