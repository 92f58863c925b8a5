"""Recency: the popularity of columns at a time, when older entries count less."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import DAY, NO_TIME, TimeArray, fill_weights
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.storage.model_file import read_field, read_number

_HALF_LIVES = tuple(float(days * DAY) for days in (3, 7, 14, 30, 60, 120, 240, 480, 960))
_LATER = 0.1  # the share of the entries, the latest ones, on which the half-life is chosen


class Recency(NamedTuple):
    """The half-life of the popularity of columns, and the time of the latest training entry, in seconds."""

    half_life: float
    latest: int

    def count_entries(self, entries: EntryStore, at: int | None = None) -> FloatArray:
        """Return the entries of each column by their age at a time (default: of the latest entry).

        The counts add up to the number of all entries, so that they compare to those without ages.
        """
        train, added = entries.train, entries.added
        kept = np.delete(np.arange(train.n_entries), entries.dropped) if entries.dropped.size else slice(None)
        parts = [(train.by_row.columns[kept], train.extras.take(kept))]
        parts += [] if added is None else [(added.columns, added.extras)]
        dated = [extras.times[extras.times != NO_TIME] for _, extras in parts if extras.times is not None]
        known = np.concatenate(dated) if dated else np.empty(0, dtype=np.int64)
        first, last = (int(known.min()), int(known.max())) if known.size else (self.latest, self.latest)
        # Before the first and after the last entry all weights shrink alike: they must not become 0.
        moment = last if at is None else min(max(at, first), last)
        counts, total = np.zeros(len(entries.columns)), 0.0
        for columns, extras in parts:
            dates = np.full(columns.size, NO_TIME) if extras.times is None else extras.times
            weights = fill_weights(extras, columns.size)
            by_age = weights * weigh_times(dates, moment, self.half_life)
            counts, total = counts + np.bincount(columns, by_age, minlength=counts.size), total + weights.sum()
        scaled: FloatArray = counts * (total / max(counts.sum(), 1e-300))
        return scaled

    @classmethod
    def from_dict(cls, content: Any) -> Recency:
        """Return the recency of a model file; impossible content raises `BadModelFile`."""
        half_life, latest = (read_number(read_field(content, name), "a stored recency") for name in cls._fields)
        if half_life <= 0:
            raise BadModelFile(f"a stored half-life must be above 0; got {half_life:g}")
        return cls(half_life, int(latest))


def weigh_times(times: TimeArray, at: int, half_life: float) -> FloatArray:
    """Return weights that halve with each half-life between times and a time; no date counts as the earliest one."""
    dated = times != NO_TIME
    earliest = int(times[dated].min()) if dated.any() else at
    distances = np.abs(at - np.where(dated, times, earliest)).astype(np.float64)
    weights: FloatArray = np.exp2(-distances / half_life)
    return weights


def learn_recency(train: ObservedMatrix) -> Recency | None:
    """Choose the half-life with which earlier entries predict best in which columns the latest tenth lies.

    None if entries have no dates, or if all entries count the same for the best prediction.
    """
    times = train.times
    if times is None:
        return None
    dated = np.flatnonzero(times != NO_TIME)
    cut = int(np.quantile(times[dated], 1 - _LATER))
    is_later = times >= cut
    columns, n_columns = train.by_row.columns, train.shape[1]
    if is_later.all() or not is_later.any():
        return None
    later = np.bincount(columns[is_later], minlength=n_columns)

    def measure(half_life: float) -> float:
        weights = None if half_life == np.inf else weigh_times(times[~is_later], cut, half_life)
        if train.weights is not None:
            weights = train.weights[~is_later].astype(np.float64) * (1.0 if weights is None else weights)
        counts = np.bincount(columns[~is_later], weights, minlength=n_columns).astype(np.float64)
        counts *= (~is_later).sum() / max(counts.sum(), 1e-300)
        shares = (counts + 0.5) / (counts + 0.5).sum()
        return float(later @ np.log(shares))

    best = max((np.inf, *_HALF_LIVES), key=measure)
    return None if best == np.inf else Recency(float(best), int(times.max()))
