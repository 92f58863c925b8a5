"""Entries held out of training where no validation entries are given, for all that is chosen on data."""

from __future__ import annotations

import numpy as np

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.training.validation import ValidationEntries

# One entry in this many is held out, where these are as many as a choice needs; and no more than it needs.
_ONE_IN, _FEWEST, _MOST = 20, 20, 50_000


def set_aside(train: ObservedMatrix, *, seed: int) -> tuple[ObservedMatrix, ValidationEntries | None]:
    """Return a matrix without some of its entries, and these; all of it, and none, where there are too few."""
    n_held_out = min(train.n_entries // _ONE_IN, _MOST)
    if n_held_out < _FEWEST:
        return train, None
    chosen = np.zeros(train.n_entries, dtype=bool)
    chosen[np.random.default_rng(seed).choice(train.n_entries, n_held_out, replace=False)] = True
    seen = train.take_entries(np.flatnonzero(~chosen))
    values = train.values[chosen].astype(np.float64)
    held_out = ValidationEntries(train.entry_rows[chosen], train.by_row.columns[chosen], values)
    return seen, held_out
