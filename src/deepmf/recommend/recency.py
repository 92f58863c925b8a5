"""Recency: the popularity of columns at a time, when older entries count less."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import DAY, NO_TIME, Extras, TimeArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.storage.parts import Form, Part, positive
from deepmf.training.holdout import choose, draw_some

_HALF_LIVES = tuple(float(days * DAY) for days in (3, 7, 14, 30, 60, 120, 240, 480, 960))
_LATER = 0.1  # the share of the entries, the latest ones, on which the half-life is chosen

# Rows and columns of the rankings by which it is chosen, and their length.
_MOST_ROWS, _MOST_COLUMNS, _LENGTH = 2000, 1000, 10

# Standard errors by which recent popularity must rank better.
BEYOND_DOUBT = 2.0


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
        if added is not None:
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


def weigh_times(times: TimeArray, at: int, half_life: float) -> FloatArray:
    """Return weights that halve with each half-life between times and a time; no date counts as the earliest one."""
    dated = times != NO_TIME
    earliest = int(times[dated].min()) if dated.any() else at
    distances = np.abs(at - np.where(dated, times, earliest)).astype(np.float64)
    weights: FloatArray = np.exp2(-distances / half_life)
    return weights


def learn_recency(train: ObservedMatrix, *, seed: int = 0) -> Recency | None:
    """Choose the half-life with which earlier entries rank the columns of the latest tenth best, by NDCG@10.

    None if entries have no dates, or if no half-life ranks better than equal weights by two standard errors.
    """
    times = train.times
    if times is None:
        return None
    dated = np.flatnonzero(times != NO_TIME)
    cut = int(np.quantile(times[dated], 1 - _LATER))
    is_later = times >= cut
    if is_later.all() or not is_later.any():
        return None
    columns, weights = train.by_row.columns, train.extras.fill_weights(times.size)
    measure = _LaterRows.of(train, is_later, seed)

    def rank(half_life: float) -> FloatArray:
        by_age = 1.0 if half_life == np.inf else weigh_times(times[~is_later], cut, half_life)
        return measure.score(np.bincount(columns[~is_later], weights[~is_later] * by_age, minlength=train.shape[1]))

    half_life = choose([np.inf, *_HALF_LIVES], lambda each: -rank(each), at_least=BEYOND_DOUBT).candidate
    return None if half_life == np.inf else Recency(half_life, int(times.max()))


class _LaterRows(NamedTuple):
    """The earlier and the later entries of some rows, by line and column."""

    n_rows: int
    earlier: tuple[IndexArray, IndexArray]
    later: tuple[IndexArray, IndexArray]

    @classmethod
    def of(cls, train: ObservedMatrix, is_later: npt.NDArray[np.bool_], seed: int) -> _LaterRows:
        """Return the entries of all rows with later entries, or of a sample."""
        rows = draw_some(np.unique(train.entry_rows[is_later]), _MOST_ROWS, seed=seed)
        lines, inside = locate(rows, train.entry_rows)
        parts = (np.flatnonzero(inside & ~is_later), np.flatnonzero(inside & is_later))
        earlier, later = ((lines[part], train.by_row.columns[part]) for part in parts)
        return cls(rows.size, earlier, later)

    def score(self, counts: npt.NDArray[Any]) -> FloatArray:
        """Return the NDCG@10 (rows,) of the columns with the largest counts, without those that a row had before."""
        order = np.argsort(-counts, kind="stable")[:_MOST_COLUMNS]
        place = np.full(counts.size, -1)
        place[order] = np.arange(order.size)
        known, wanted = (self._mark(place, order.size, *part) for part in (self.earlier, self.later))
        ranks = np.cumsum(~known, axis=1)  # from 1, of the columns that are not known
        gains = np.where(wanted & ~known & (ranks <= _LENGTH), 1 / np.log2(np.maximum(ranks, 1) + 1), 0.0).sum(axis=1)
        n_wanted = np.minimum(np.bincount(self.later[0], minlength=self.n_rows), _LENGTH)
        ideal = np.cumsum(1 / np.log2(np.arange(_LENGTH) + 2))
        return np.asarray(gains / ideal[n_wanted - 1])

    def _mark(self, place: IndexArray, width: int, lines: IndexArray, columns: IndexArray) -> npt.NDArray[np.bool_]:
        marked = np.zeros((self.n_rows, width), dtype=bool)
        inside = place[columns] >= 0
        marked[lines[inside], place[columns[inside]]] = True
        return marked
