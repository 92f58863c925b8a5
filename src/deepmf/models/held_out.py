"""Entries held out of training where no validation entries are given, for all that is chosen on data."""

from __future__ import annotations

import warnings

import numpy as np

from deepmf.errors import DeepMFWarning
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.warm_start import WarmStart
from deepmf.training.validation import ValidationEntries

# As many entries as a choice needs, and no more than it needs.
_FEWEST, _MOST = 20, 50_000
# From the warning to the caller of `fit`: set_aside, _warm_task, _learn, fit, the caller.
_TO_FIT = 5


def set_aside(
    train: ObservedMatrix, *, seed: int, one_in: int = 20, start: WarmStart | None = None
) -> tuple[ObservedMatrix, ValidationEntries | None]:
    """Return a matrix without some of its entries, and these; all of it, and none, where there are too few.

    one_in: one entry in this many is held out, where these are as many as a choice needs.
    start: what a warm fit begins with; entries are then held out among those that it was not trained on, half of them
    at most. Where too few are new to it, they come from all, with a warning.
    """
    n_held_out = min(train.n_entries // one_in, _MOST)
    if n_held_out < _FEWEST:
        return train, None
    eligible = np.arange(train.n_entries)
    if start is not None:
        unseen = np.flatnonzero(start.are_unseen(train.entry_rows, train.by_row.columns))
        if unseen.size // 2 >= _FEWEST:
            eligible, n_held_out = unseen, min(n_held_out, unseen.size // 2)
        else:
            warnings.warn(
                f"{unseen.size} of {train.n_entries} entries are new to start_from, too few to choose the best epoch "
                "by: it may have been trained on those that are held out; pass validation entries that it has not seen",
                DeepMFWarning,
                stacklevel=_TO_FIT,
            )
    chosen = np.zeros(train.n_entries, dtype=bool)
    chosen[np.random.default_rng(seed).choice(eligible, n_held_out, replace=False)] = True
    seen = train.take_entries(np.flatnonzero(~chosen))
    values = train.values[chosen].astype(np.float64)
    held_out = ValidationEntries(train.entry_rows[chosen], train.by_row.columns[chosen], values)
    return seen, held_out
