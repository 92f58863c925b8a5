"""How `fit` chooses what follows order and time, by one rule: rankings of held-out entries that are
later.

These are the validation entries if each is later than the entries of its row, as `split_last` and
`split_time` make them; otherwise the last entries of rows. They choose the parts of the directed
ridge and their weights. Validation entries of any kind, or else the last entries, choose how far
relevance follows the ages of entries, and the default order; what is usual without times stays
unless another choice is better beyond doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from deepmf.linalg.ridge import CPU, run_batches
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries, PlacedEntries, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import DAY, NO_TIME
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import score_lists
from deepmf.recommend.column_ridge import ColumnRidge, Gram
from deepmf.recommend.next_ridge import (
    RIDGES,
    Decay,
    NextPart,
    NextRidge,
    Sequences,
    count_next,
    list_decays,
    scale_rows,
)
from deepmf.recommend.presence import Presence, Recency
from deepmf.recommend.presence_fit import HiddenRows, fit_again, score_columns
from deepmf.recommend.ranker import Rankers, find_relevant
from deepmf.recommend.ranking import batches, best_positions
from deepmf.recommend.request import Order
from deepmf.scoring.learning import Learning, SteadyPart
from deepmf.training.holdout import choose, draw_some
from deepmf.training.runtime import Runtime

# The fewest rows with held-out entries, the most, the cells of rankings by which weights are
# chosen, and the length of a ranking.
_FEWEST_ROWS, _MOST_ROWS, _MOST_CELLS, _LENGTH = 20, 6000, 1 << 25, 10

# Rows on which orders are compared.
_COMPARED_ROWS = 2000

# The most popular columns on which ridges are compared.
_NARROW = 1500

# Columns of each row, by each part, among which weights are compared, and the weights.
_SHORTLIST, _WEIGHTS = 60, (0.0, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)

# Rows on which probabilities are calibrated, and the numbers that are tried.
_CALIBRATION_ROWS, _SHARPNESS = 500, tuple(0.05 * 1.25**k for k in range(24))

# Weights of known columns, where rows take columns again.
_REPEATS = (0.0, 1.0, 3.0, 10.0, 30.0)

_LIKING_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 1.5)

# Half-lives of popularity in seconds, and of the entries of the presence part in spans of all
# times; the weights of recent popularity in relevance; the share of the entries, the latest ones,
# on which a half-life is chosen.
_HALF_LIVES = tuple(float(days * DAY) for days in (3, 7, 14, 30, 60, 120, 240, 480, 960))
_BLENDED = _HALF_LIVES[1::2]
_SPANS, _POPULARITY_SHARES, _LATEST = (0.5, 0.125), (0.1, 0.3, 1.0, 3.0), 0.1

# Standard errors by which a choice must be better than the usual one, and the best of many choices.
_BEYOND_DOUBT, _BEST_OF_MANY, _MANY = 2.0, 3.0, 5


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
    seed, device = learning.settings["seed"], Runtime(learning.device).device
    most = int(np.clip(_MOST_CELLS // train.shape[1], _COMPARED_ROWS, _MOST_ROWS))
    later = None
    if validation is not None and validation.rows.size >= _FEWEST_ROWS:
        asked = HiddenRows.from_validation(entries, predictor, validation, seed, most)
        later = asked if _come_later(train, validation) else None
    if later is None:
        later = HiddenRows.from_training(entries, predictor, seed, last=True, most=most)
    if later is None or later.n_rows < _FEWEST_ROWS:
        return {}
    known = presence
    if later.train is not train:
        known = replace(presence, model=fit_again(presence.model, later.train, device))
    found = _Choice(later, known, device).fit()
    final = found if later.train is train else _fit_again(found, train, presence, device)
    compared = (later, known, found) if asked is None else (asked, presence, final)
    rankings = _Rankings(*compared, seed, device)
    ages = rankings.choose_ages(choose_half_life(train, seed))
    final = replace(final, is_default=rankings.prefer_next(ages))
    parts: dict[str, SteadyPart] = {"presence": ages.adapt(presence, train, device), "next": final}
    return parts if ages.recency is None else parts | {"recency": ages.recency}


def _come_later(train: ObservedMatrix, others: PlacedEntries) -> bool:
    """Whether entries are not earlier than any entry of their row, by time, or by place if there
    are no times."""
    for own, their in (
        (train.extras.times, others.extras.times),
        (train.extras.places, others.extras.places),
    ):
        if own is not None and their is not None:
            latest = np.full(train.shape[0], np.iinfo(np.int64).min)
            np.maximum.at(latest, train.entry_rows, own)
            return bool(np.all(their >= latest[others.rows]))
    return False


def _fit_again(
    found: NextRidge, train: ObservedMatrix, presence: Presence, device: torch.device
) -> NextRidge:
    """Return a directed ridge of another matrix with the same settings."""
    rows, n_columns = Sequences.of(train), presence.model.n_trained

    def fit(part: NextPart) -> NextPart:
        (model,) = count_next(rows, part.decay, n_columns, presence.model.kind, device).fit(
            [part.model.ridge]
        )
        return part._replace(model=model)

    return replace(found, parts=tuple(run_batches(fit, found.parts, device)))


class _Ages(NamedTuple):
    """How relevance follows the ages of entries.

    recency: recent popularity. share: its weight in relevance; None: as without times. half_life:
        in seconds, of the entries that the presence part learns from.
    """

    recency: Recency | None
    share: float | None = None
    half_life: float | None = None

    def adapt(self, presence: Presence, train: ObservedMatrix, device: torch.device) -> Presence:
        """Return a presence part of a matrix that follows the ages."""
        if self.share is not None:
            presence = replace(presence, popularity_share=self.share)
        if self.half_life is None:
            return presence
        weighted = train.with_extras(train.extras.decay(round(self.half_life)))
        return replace(presence, model=fit_again(presence.model, weighted, device))


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
    rows = draw_some(np.unique(train.entry_rows[is_later]), min(most, _COMPARED_ROWS), seed=seed)
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
        return -_score_keys(np.tile(counts, (rows.size, 1)), visible, lines, columns)

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
        device: torch.device,
    ) -> None:
        self._held_out, self._presence, self._following, self._device = (
            held_out,
            presence,
            following,
            device,
        )
        self._store = EntryStore.of(held_out.train)
        lines = draw_some(np.arange(held_out.n_rows), _COMPARED_ROWS, seed=seed)
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
            else [Recency(each, int(times.max())) for each in _BLENDED]
        )
        options = [_Ages(replace(each, blends=True), share) for each in recents for share in shares]
        options = [_Ages(recency), *options]
        best = self._choose(options)
        span = float(times.max() - times[times != NO_TIME].min())
        half_lives = [span * share for share in _SPANS if span * share >= 1]
        return self._choose([best, *(best._replace(half_life=each) for each in half_lives)])

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
        presence = ages.adapt(self._presence, self._held_out.train, self._device)
        return Rankers(self._store, presence, "relevance", ages.recency, following=self._following)

    def _measure(self, rankers: Rankers, order: Order) -> FloatArray:
        return -measure_order(rankers, self._held_out, order, self._hidden)


class _Choice:
    """Chooses a directed ridge by NDCG@10 on the first later entry of some rows."""

    def __init__(self, held_out: HiddenRows, presence: Presence, device: torch.device) -> None:
        self._held_out, self._presence, self._device = held_out, presence, device
        self._store = EntryStore.of(held_out.train)
        totals = self._store.column_totals
        self._popularity = ((totals + 0.5) / (held_out.train.shape[0] + 1.0)).astype(np.float32)
        first = held_out.extras.sort_within(held_out.hidden.rows)[::-1]
        self._targets: IndexArray = np.empty(held_out.n_rows, dtype=np.int64)
        self._targets[held_out.hidden.rows[first]] = held_out.hidden.columns[first]

    def fit(self) -> NextRidge:
        """Return the directed ridge of the visible entries with the best decays, ridges and
        weights."""
        rows, kind = Sequences.of(self._held_out.train), self._presence.model.kind
        n_columns = self._popularity.size

        def fit(decay: Decay) -> NextPart:
            gram = count_next(rows, decay, n_columns, kind, self._device)
            return NextPart(
                decay, self._choose_ridge(gram, decay.weigh(self._held_out.visible)), 1.0
            )

        parts = run_batches(fit, list_decays(np.diff(rows.starts)), self._device)
        lists = self._shortlist(parts)
        weights = lists.choose_weights(len(parts))
        weighted = zip(parts, weights.tolist(), strict=False)
        used = tuple(part._replace(weight=weight) for part, weight in weighted if weight > 0)
        found = NextRidge(
            used,
            float(weights[-2]),
            float(weights[-1]),
            1.0,
            ndcg=float(lists.measure(weights).mean()),
        )
        found = self._calibrate(found)
        return replace(found, liking_weight=self._choose_liking(found))

    def _choose_ridge(self, gram: Gram, visible: AxisEntries) -> ColumnRidge:
        """Return the model of the best ridge, which is chosen on the most popular columns."""
        columns = np.sort(np.argsort(-self._popularity, kind="stable")[:_NARROW])
        at, inside = locate(columns, self._targets)
        targets, visible = at[inside], visible.take(np.flatnonzero(inside))
        places, are_among = locate(columns, visible.others)
        known = visible.group_of[are_among], places[are_among]
        lines, found = np.arange(targets.size), []
        for model in gram.fit_some(RIDGES, columns):
            keys = score_columns(model, visible, columns, CPU).numpy()
            own = keys[lines, targets]
            keys[known] = keys[lines, targets] = -np.inf
            found.append(-_score_ranks(np.count_nonzero(keys >= own[:, None], axis=1)))
        best = (
            choose(range(len(RIDGES)), lambda which: found[which], at_least=1.0).candidate
            if targets.size
            else 0
        )
        return gram.fit([RIDGES[best]])[0]

    def _shortlist(self, parts: Sequence[NextPart]) -> _Shortlists:
        found = []
        for lines in batches(np.arange(self._targets.size), width=self._popularity.size):
            visible = self._held_out.visible.take(lines)
            undirected = self._presence.model.score(visible)
            popularity = np.broadcast_to(self._popularity, undirected.shape)
            directed = (part.score(visible) for part in parts)
            scores = [scale_rows(each) for each in (*directed, undirected, popularity)]
            found.append(_Shortlists.of(scores, self._targets[lines], visible))
        return _Shortlists(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def _calibrate(self, found: NextRidge) -> NextRidge:
        """Return whether known columns may come next, by which later entries are ranked best, and
        the sharpness.

        The sharpness has the largest likelihood of the later entries that can be ranked.
        """
        lines = draw_some(np.arange(self._targets.size), _CALIBRATION_ROWS, seed=0)
        visible, targets = self._held_out.visible.take(lines), self._targets[lines]
        scores = found.score(visible, self._presence.model.score(visible), self._popularity)
        known, own = (visible.group_of, visible.others), (np.arange(targets.size), targets)

        def find_keys(option: NextRidge) -> Array:
            keys = np.array(scores)
            if not option.allows_repeats:
                keys[known] = -np.inf
            elif option.repeats:
                keys[known] += option.find_repeats(visible)
            return keys

        def measure_rankings(option: NextRidge) -> FloatArray:
            keys = find_keys(option)
            return -_score_ranks(np.count_nonzero(keys >= keys[own][:, None], axis=1) - 1)

        are_known = np.zeros(scores.shape, dtype=bool)
        are_known[known] = True
        if are_known[own].any():
            options = [
                found,
                *(replace(found, allows_repeats=True, repeats=each) for each in _REPEATS),
            ]
            found = choose(options, measure_rankings, at_least=1.0).candidate
        keys = find_keys(found)
        inside = np.isfinite(keys[own])
        if not inside.any():
            return found
        largest = keys.max(axis=1, keepdims=True)[inside]
        keys, margins = keys[inside], keys[own][inside] - largest[:, 0]

        def measure_likelihood(sharpness: float) -> float:
            logs = np.log(np.exp(sharpness * (keys - largest)).sum(axis=1))
            return float(np.mean(logs - sharpness * margins))

        return replace(found, sharpness=choose(_SHARPNESS, measure_likelihood).candidate)

    def _choose_liking(self, found: NextRidge) -> float:
        """Return the weight of liking that ranks liked later entries best."""
        held_out = self._held_out
        if not held_out.train.has_values:
            return 0.0
        hidden, usual = held_out.hidden.rows < _COMPARED_ROWS, _LIKING_WEIGHTS.index(0.5)

        def measure(weight: float) -> FloatArray:
            liking = replace(found, liking_weight=weight)
            rankers = Rankers(self._store, self._presence, "relevance", following=liking)
            return -measure_order(rankers, held_out, Order(rank_by="next"), hidden)

        return choose(_LIKING_WEIGHTS, measure, usual=usual, at_least=1.0).candidate


class _Shortlists(NamedTuple):
    """Candidates of each row: their scores by each part, (rows, candidates, parts), and those of
    the target."""

    scores: LatentArray
    of_target: LatentArray

    @classmethod
    def of(cls, parts: Sequence[Array], targets: IndexArray, visible: AxisEntries) -> _Shortlists:
        """Return the best columns by each part; columns of the row and the target are none of
        them."""
        lines = np.arange(targets.size)
        of_target = np.stack([each[lines, targets] for each in parts], axis=-1)
        left_out = np.zeros(parts[0].shape, dtype=bool)
        left_out[visible.group_of, visible.others] = left_out[lines, targets] = True
        best = [
            best_positions(np.where(left_out, -np.inf, each), _SHORTLIST).places for each in parts
        ]
        places = np.sort(np.concatenate(best, axis=1), axis=1)
        scores = np.stack([np.take_along_axis(each, places, axis=1) for each in parts], axis=-1)
        scores[np.take_along_axis(left_out, places, axis=1)] = np.nan
        # the best by several parts count once
        scores[:, 1:][places[:, 1:] == places[:, :-1]] = np.nan
        return cls(scores.astype(np.float32), of_target.astype(np.float32))

    def measure(self, weights: FloatArray) -> FloatArray:
        """Return the NDCG@10 (rows,) of a blend; ties count against the target."""
        weights = weights.astype(np.float32)
        with np.errstate(invalid="ignore"):
            ranks = np.count_nonzero(
                self.scores @ weights >= (self.of_target @ weights)[:, None], axis=1
            )
        return _score_ranks(ranks)

    def choose_weights(self, n_directed: int) -> FloatArray:
        """Return the weights of the directed parts, of the column ridge and of popularity.

        The best directed part and the column ridge come first; others join, and weights move, if
        this is better by a standard error.
        """
        starts = [np.append(np.eye(n_directed)[at], [1.0, 0.0]) for at in range(n_directed)]
        weights = choose(starts, lambda each: -self.measure(each)).candidate
        for _ in range(3):
            before = weights
            for at in range(weights.size):
                options = [
                    np.where(np.arange(weights.size) == at, each, weights)
                    for each in (weights[at], *_WEIGHTS)
                ]
                options = [each for each in options if each.any()]
                weights = choose(options, lambda each: -self.measure(each), at_least=1.0).candidate
            if np.array_equal(before, weights):
                break
        return weights


def _score_ranks(ranks: IndexArray) -> FloatArray:
    return np.where(ranks < _LENGTH, 1.0 / np.log2(ranks + 2.0), 0.0)


def measure_order(
    rankers: Rankers, held_out: HiddenRows, order: Order, some: BoolArray
) -> FloatArray:
    """Return the NDCG@10 (rows,) of the liked ones among some hidden entries, of rows with any, at
    their first time."""
    train, visible, n_columns = held_out.train, held_out.visible, held_out.train.shape[1]
    hidden = held_out.hidden
    rows, columns, values = hidden.rows[some], hidden.columns[some], hidden.values[some]
    liked = values >= (find_relevant(train) or 0.0)
    row_of, column_of, first = rows[liked], columns[liked], None
    if held_out.extras.times is not None:
        first = np.full(held_out.n_rows, np.iinfo(np.int64).max)
        np.minimum.at(first, rows, held_out.extras.times[some])
    found = [np.zeros(0)]
    for lines in batches(np.unique(row_of), width=n_columns):
        ranker = rankers.make(
            held_out.predictor, visible.take, order, None if first is None else first[lines]
        )
        keys = np.array(ranker.rank_block(lines, slice(0, n_columns)))
        at, inside = locate(lines, row_of)
        known = None if ranker.allows_repeats else visible.take(lines)
        found.append(_score_keys(keys, known, at[inside], column_of[inside]))
    return np.concatenate(found)


def _score_keys(
    keys: Array, visible: AxisEntries | None, row_of: IndexArray, column_of: IndexArray
) -> FloatArray:
    """Return the NDCG@10 (rows,) of some pairs in rankings by keys (rows, columns), without the
    visible entries."""
    keys = np.array(keys, dtype=np.float64)
    if visible is not None:
        keys[visible.group_of, visible.others] = -np.inf
    is_wanted = np.zeros(keys.shape, dtype=bool)
    is_wanted[row_of, column_of] = True
    best = best_positions(keys, _LENGTH)
    hits = np.take_along_axis(is_wanted, best.places, axis=1) & (best.keys > -np.inf)
    return score_lists(hits, is_wanted.sum(axis=1), n=_LENGTH).ndcg
