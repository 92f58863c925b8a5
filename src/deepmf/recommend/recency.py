"""Recency: the popularity of columns at a time, when older entries count less."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import NO_TIME, Extras, TimeArray
from deepmf.storage.parts import Form, Part, positive


class Recency(NamedTuple):
    """How the popularity of columns depends on time.

    half_life: of the weight of an entry. latest: the time of the latest training entry; both in seconds.
    blends: whether recent popularity joins the scores of rows with entries; it always ranks columns for rows without.
    """

    half_life: float
    latest: int
    blends: bool = False

    def count_entries(self, entries: EntryStore, at: int | TimeArray | None = None) -> FloatArray:
        """Return the entries of each column by their age at a time (default: of the latest entry).

        Several times give an array (times, columns). The counts of a time add up to the number of all entries.
        """
        train, added = entries.train, entries.added
        kept = np.delete(np.arange(train.n_entries), entries.dropped) if entries.dropped.size else slice(None)
        columns, extras = train.by_row.columns[kept], train.extras.take(kept)
        extras = Extras.join([(columns.size, extras), (added.columns.size, added.extras)])
        columns = np.concatenate([columns, added.columns])
        times, weights = extras.times, extras.fill_weights(columns.size)
        dated = np.empty(0, dtype=np.int64) if times is None else times[times != NO_TIME]
        first, last = (int(dated.min()), int(dated.max())) if dated.size else (self.latest, self.latest)
        # No date counts as the earliest one. Before the first and after the last entry all weights shrink alike: they
        # must not become 0.
        times = np.full(columns.size, first) if times is None else np.maximum(times, first)
        asked = np.clip(last if at is None else at, first, last)
        moments, which = np.unique(asked, return_inverse=True)
        counts = self._sum_by_age(columns, times, weights, moments, len(entries.columns))
        counts *= weights.sum() / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
        found: FloatArray = counts[which].reshape(*asked.shape, -1)
        return found

    def _sum_by_age(
        self, columns: IndexArray, times: TimeArray, weights: npt.NDArray[Any], moments: TimeArray, n_columns: int
    ) -> FloatArray:
        """Return the sums (moments, columns) of weights that halve with each half-life to either side of a moment.

        Each entry is added at its nearest moments; from there, sums fade from moment to moment.
        """
        total, next_of = np.zeros((moments.size, n_columns)), np.searchsorted(moments, times)
        fading = np.exp2(-np.diff(moments) / self.half_life)
        for nearest, steps in (
            (next_of, range(1, moments.size)),
            (next_of - 1, range(moments.size - 2, -1, -1)),
        ):
            own = np.flatnonzero((nearest >= 0) & (nearest < moments.size))
            by_age = weights[own] * np.exp2(-np.abs(moments[nearest[own]] - times[own]) / self.half_life)
            cells = nearest[own] * n_columns + columns[own]
            sums = np.bincount(cells, by_age, minlength=total.size).reshape(total.shape)
            for to in steps:
                before = to - steps.step
                sums[to] += fading[min(to, before)] * sums[before]
            total += sums
        return total

    @classmethod
    def from_dict(cls, content: Any) -> Recency:
        """Return the recency of a model file; impossible content raises `BadModelFile`."""
        return cls(**_RECENCY.read(content))


_RECENCY = Form(Part("half_life", "number", (), positive), Part("latest", "whole"), Part("blends", "flag"))
