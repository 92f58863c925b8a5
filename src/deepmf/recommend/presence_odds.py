"""Odds of presence: probabilities that add up to the further entries that rows get.

Of the training rows with at least k entries, the mean number of further ones is m(k), the mean
residual life of row lengths. For rows with k entries, one offset of the log-odds lets the
probabilities of the columns without an entry add up to m(k).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.recommend.presence import Presence, share_rows
from deepmf.training.holdout import draw_some

Score: TypeAlias = Callable[[AxisEntries], LatentArray]

# Row lengths that have an offset, beside that of rows without entries, and the training rows that
# reach the longest.
_N_LENGTHS, _FEWEST_ROWS = 8, 10

# Rows as long as the longest ones may still get another entry.
_LEAST_FURTHER = 0.5

# Cells on which an offset is found.
_MOST_CELLS = 1 << 20

# The largest log-odds and offsets, and the bins of log-odds.
_LARGEST, _N_BINS = 100.0, 10_000


def calibrate_odds(
    presence: Presence, train: ObservedMatrix, columns: IndexArray, score: Score, *, seed: int
) -> Presence:
    """Return a presence whose probabilities in some columns add up to further entries there.

    score: returns the scores (rows, columns) of rows with some entries.
    """
    store, numbers = EntryStore.of(train), np.random.default_rng(seed)
    popularity = share_rows(store.column_totals[columns], train.shape[0])
    raised = presence.raise_popularity(popularity)
    share = train.column_counts[columns].sum() / train.n_entries
    lengths = _choose_lengths(train.row_counts)
    offsets = np.zeros(lengths.size)
    for place, n_known in enumerate(lengths):
        rows: IndexArray = np.flatnonzero(train.row_counts >= n_known)
        n_further = max(float(train.row_counts[rows].mean() - n_known), _LEAST_FURTHER) * share
        rows = draw_some(rows, max(_MOST_CELLS // columns.size, _FEWEST_ROWS), seed=seed)
        entries = store.row_entries(rows).draw(np.full(rows.size, n_known), numbers)
        scores = score(entries) if n_known else np.tile(popularity, (rows.size, 1))
        log_odds = presence.find_log_odds(presence.add_popularity(scores, popularity, raised))
        at, are_inside = locate(columns, entries.others)
        log_odds[entries.group_of[are_inside], at[are_inside]] = -_LARGEST
        offsets[place] = _find_offset(log_odds, n_further * rows.size)
    return replace(presence, lengths=lengths.astype(np.float64), offsets=offsets)


def _choose_lengths(row_counts: IndexArray) -> IndexArray:
    """Return the row lengths that have an offset, increasing from 0."""
    longest = np.sort(row_counts)[-min(_FEWEST_ROWS, row_counts.size)]
    steps = np.geomspace(1, max(longest, 1), _N_LENGTHS)
    return np.unique([0, *np.rint(steps).astype(np.int64)])


def _find_offset(log_odds: FloatArray, total: float) -> float:
    """Return the offset with which probabilities add up to a total."""
    edges = np.linspace(-_LARGEST, _LARGEST, _N_BINS + 1)
    counts, _ = np.histogram(np.clip(log_odds, -_LARGEST, _LARGEST), edges)
    middles = (edges[:-1] + edges[1:]) / 2.0

    def find_excess(offset: float) -> float:
        return float(counts @ expit(middles + offset)) - total

    if find_excess(_LARGEST) <= 0:
        return _LARGEST
    if find_excess(-_LARGEST) >= 0:
        return -_LARGEST
    return float(brentq(find_excess, -_LARGEST, _LARGEST))
