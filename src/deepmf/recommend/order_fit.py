"""How `fit` chooses what rankings follow of order and time, by one rule: held-out entries that are
later.

These are the validation entries if each is later than the entries of its row, as `split_last` and
`split_time` make them; otherwise the last entries of rows. They choose the directed ridge
(`next_fit.py`). Validation entries of any kind, or else the last entries, choose how far relevance
follows the ages of entries, and the default order; what is usual without times stays unless another
choice is better beyond doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.axis_entries import PlacedEntries, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import DAY, NO_TIME
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.recommend.next_fit import (
    COMPARED_ROWS,
    choose_next,
    fit_next_again,
    measure_keys,
    measure_order,
)
from deepmf.recommend.next_ridge import NextRidge
from deepmf.recommend.presence import Presence, Recency
from deepmf.recommend.presence_fit import HiddenRows, find_gpu, fit_again
from deepmf.recommend.ranker import Rankers
from deepmf.recommend.request import Order
from deepmf.scoring.learning import Learning, SteadyPart
from deepmf.training.holdout import choose, draw_some

if TYPE_CHECKING:
    import torch

# Rows with held-out entries by which anything is chosen, at least and at most.
_FEWEST_ROWS = 20
_MOST_ROWS = 3000

# Cells of rankings in memory: 270 MB.
_MOST_CELLS = 1 << 25

# Half-lives of popularity that are compared, in seconds: from three days to nearly three years.
_HALF_LIVES = tuple(float(days * DAY) for days in (3, 7, 14, 30, 60, 120, 240, 480, 960))

# Half-lives of the entries that the presence part learns from, in spans of all times.
_SPANS = (0.5, 0.125)

# Weights of recent popularity in relevance that are compared.
_POPULARITY_SHARES = (0.1, 0.3, 1.0, 3.0)

# The share of the entries, the latest ones, on which a half-life is chosen.
_LATEST = 0.1

# Standard errors by which a choice must be better than the usual one.
_BEYOND_DOUBT = 2.0

# The same for the best of at least this many choices, one of which looks good by chance.
_BEST_OF_MANY = 3.0
_MANY = 5


def fit_order(learning: Learning) -> dict[str, SteadyPart]:
    """Choose how far rankings follow the order and the times of entries.

    Returns what comes next, recent popularity where it helps, and the presence part as it follows
    the ages of entries; nothing where entries have no order, or there is no presence part.
    """
    entries, predictor, validation = learning.entries, learning.predictor, learning.held_out
    train, asked = entries.train, None
    presence: Presence | None = learning.parts.get("presence")
    if presence is None or not learning.folds_in or not train.extras.are_ordered:
        return {}
    seed, gpu = learning.settings["seed"], find_gpu(learning.device)
    most = int(np.clip(_MOST_CELLS // train.shape[1], COMPARED_ROWS, _MOST_ROWS))
    later = None
    if validation is not None and validation.rows.size >= _FEWEST_ROWS:
        asked = HiddenRows.from_validation(entries, predictor, validation, seed, most)
        later = asked if come_later(train, validation) else None
    if later is None:
        later = HiddenRows.from_training(entries, predictor, seed, last=True, most=most)
    if later is None or later.n_rows < _FEWEST_ROWS:
        return {}
    fitted_presence = presence
    if later.train is not train:
        model = fit_again(presence.model, later.train, gpu)
        fitted_presence = replace(presence, model=model)
    following = choose_next(later, fitted_presence, gpu)
    final = following if later.train is train else fit_next_again(following, train, presence, gpu)
    compared = (later, fitted_presence, following) if asked is None else (asked, presence, final)
    rankings = _Rankings(*compared, seed, gpu)
    ages = rankings.choose_ages(choose_half_life(train, seed))
    is_default = rankings.prefer_next(ages)
    final = replace(final, is_default=is_default, histories=final.histories.update(entries))
    parts: dict[str, SteadyPart] = {"presence": ages.adapt(presence, train, gpu), "next": final}
    return parts if ages.recency is None else parts | {"recency": ages.recency}


def come_later(train: ObservedMatrix, others: PlacedEntries) -> bool:
    """Whether entries are not earlier than any entry of their row, by time, or by place if there
    are no times."""
    for train_order, held_out_order in (
        (train.extras.times, others.extras.times),
        (train.extras.places, others.extras.places),
    ):
        if train_order is not None and held_out_order is not None:
            latest = np.full(train.shape[0], np.iinfo(np.int64).min)
            np.maximum.at(latest, train.entry_rows, train_order)
            return bool(np.all(held_out_order >= latest[others.rows]))
    return False


class _Ages(NamedTuple):
    """How relevance follows the ages of entries.

    recency: recent popularity. share: its weight in relevance; None: as without times. half_life:
        in seconds, of the entries that the presence part learns from.
    """

    recency: Recency | None
    share: float | None = None
    half_life: float | None = None

    def adapt(
        self, presence: Presence, train: ObservedMatrix, gpu: torch.device | None
    ) -> Presence:
        """Return a presence part of a matrix that follows the ages."""
        if self.share is not None:
            presence = replace(presence, popularity_share=self.share)
        if self.half_life is None:
            return presence
        weighted = train.with_extras(train.extras.decay(round(self.half_life)))
        model = fit_again(presence.model, weighted, gpu)
        return replace(presence, model=model)


def choose_half_life(train: ObservedMatrix, seed: int = 0) -> Recency | None:
    """Return the half-life with which popularity ranks the columns of the latest tenth best; None
    if there is none."""
    times = train.times
    if times is None:
        return None
    is_later = times >= np.quantile(times[times != NO_TIME], 1 - _LATEST)
    if is_later.all():
        return None
    store, most = EntryStore.of(train.take_entries(~is_later)), _MOST_CELLS // 4 // train.shape[1]
    rows = draw_some(np.unique(train.entry_rows[is_later]), min(most, COMPARED_ROWS), seed=seed)
    at, inside = locate(rows, train.entry_rows[is_later])
    lines, columns, visible = (
        at[inside],
        train.by_row.columns[is_later][inside],
        store.row_entries(rows),
    )

    def measure(half_life: float) -> FloatArray:
        counts = store.column_totals
        if half_life < np.inf:
            counts = Recency(half_life, int(times.max())).count_entries(store)
        return -measure_keys(np.tile(counts, (rows.size, 1)), visible, lines, columns)

    half_life = choose([np.inf, *_HALF_LIVES], measure, at_least=_BEYOND_DOUBT).candidate
    return None if half_life == np.inf else Recency(half_life, int(times.max()))


class _Rankings:
    """Rankings of the liked ones among hidden entries, by which orders are compared."""

    def __init__(
        self,
        held_out: HiddenRows,
        presence: Presence,
        following: NextRidge,
        seed: int,
        gpu: torch.device | None,
    ) -> None:
        self._held_out, self._presence = held_out, presence
        self._following, self._gpu = following, gpu
        self._store = EntryStore.of(held_out.train)
        lines = draw_some(np.arange(held_out.n_rows), COMPARED_ROWS, seed=seed)
        self._hidden = np.isin(held_out.hidden.rows, lines)

    def choose_ages(self, recency: Recency | None) -> _Ages:
        """Return how relevance follows the ages of entries: not at all, unless this ranks better
        beyond doubt."""
        times = self._held_out.train.times
        if times is None:
            return _Ages(None)
        shares = sorted({*_POPULARITY_SHARES, self._presence.popularity_share} - {0.0})
        recents = (
            [recency]
            if recency is not None
            else [Recency(half_life, int(times.max())) for half_life in _HALF_LIVES[1::2]]
        )
        options = [
            _Ages(replace(recent, blends=True), share) for recent in recents for share in shares
        ]
        options = [_Ages(recency), *options]
        best = self._choose(options)
        span = float(times.max() - times[times != NO_TIME].min())
        half_lives = [span * share for share in _SPANS if span * share >= 1]
        return self._choose(
            [best, *(best._replace(half_life=half_life) for half_life in half_lives)]
        )

    def prefer_next(self, ages: _Ages) -> bool:
        """Whether the directed order ranks better than relevance, beyond doubt."""
        rankers, orders = self._make(ages), (Order(rank_by="relevance"), Order(rank_by="next"))
        return (
            choose(orders, partial(self._measure, rankers), at_least=_BEYOND_DOUBT).candidate
            is orders[1]
        )

    def _choose(self, options: Sequence[_Ages]) -> _Ages:
        if len(options) == 1:
            return options[0]
        order, at_least = (
            Order(rank_by="relevance"),
            _BEYOND_DOUBT if len(options) < _MANY else _BEST_OF_MANY,
        )
        return choose(
            options, lambda ages: self._measure(self._make(ages), order), at_least=at_least
        ).candidate

    def _make(self, ages: _Ages) -> Rankers:
        presence = ages.adapt(self._presence, self._held_out.train, self._gpu)
        return Rankers(self._store, presence, "relevance", ages.recency, following=self._following)

    def _measure(self, rankers: Rankers, order: Order) -> FloatArray:
        return -measure_order(rankers, self._held_out, order, self._hidden)
