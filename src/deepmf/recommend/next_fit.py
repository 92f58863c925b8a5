"""How `fit` chooses the directed ridge: its penalties and the weights of its parts, by the last entries of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from deepmf.linalg.ridge import run_batches
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries, PlacedEntries, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.metrics import score_lists
from deepmf.recommend.column_ridge import ColumnRidge, Ridge
from deepmf.recommend.next_ridge import (
    DECAYS,
    RIDGES,
    Decay,
    NextGram,
    NextPart,
    NextRidge,
    Sequences,
    densify,
    scale_rows,
    score_parts,
)
from deepmf.recommend.presence import Presence
from deepmf.recommend.presence_fit import HiddenRows, fit_again
from deepmf.recommend.ranker import Rankers
from deepmf.recommend.ranking import batches
from deepmf.recommend.recency import Recency
from deepmf.recommend.relevance import find_thresholds
from deepmf.recommend.request import Order
from deepmf.recommend.top_n import best_positions
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor
from deepmf.training.holdout import choose, draw_some

# The fewest and the most rows with held-out entries, and the length of a ranking.
_FEWEST_ROWS, _MOST_ROWS, _LENGTH = 20, 2000, 10

# The most popular columns on which ridges are compared where columns are regressed on all others.
_NARROW = 1500

# Columns of each row, by each part, among which weights are compared, and the weights.
_SHORTLIST, _WEIGHTS = 60, (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)

# Rows on which probabilities are calibrated, and the numbers that are tried.
_CALIBRATION_ROWS, _SHARPNESS = 500, tuple(0.05 * 1.25**k for k in range(24))

_LIKING_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 1.5)

# Standard errors by which the directed order must be better to become the default.
_BEYOND_DOUBT = 2.0


def fit_next(
    entries: EntryStore,
    predictor: Predictor,
    presence: Presence,
    validation: PlacedEntries | None,
    recency: Recency | None = None,
    *,
    seed: int,
    device: torch.device,
) -> NextRidge | None:
    """Fit the directed ridge of a model; None where entries have no order, or too few rows have two entries.

    Penalties and weights are chosen by rankings of the last entry of some rows, which is hidden. The default order is
    chosen on the validation entries, or on these last entries if there are none.
    """
    train = entries.train
    if not train.extras.are_ordered:
        return None
    held_out = HiddenRows.from_training(entries, predictor, seed, last=True, share=0.0)
    if held_out is None or held_out.n_rows < _FEWEST_ROWS:
        return None
    choice = _Choice(held_out, presence, recency, device)
    found = choice.fit()
    parts = _fit_parts(Sequences.of(train), [(each.decay, each.model.ridge) for each in found.parts], presence, device)
    final = replace(
        found, parts=tuple(each._replace(model=model) for each, model in zip(found.parts, parts, strict=True))
    )
    if validation is not None and validation.rows.size >= _FEWEST_ROWS:
        rankers = Rankers(entries, presence, "relevance", recency, following=final)
        is_default = _is_better(rankers, predictor, validation, seed)
        return replace(final, is_default=is_default)
    return final


def _fit_parts(
    rows: Sequences, settings: Sequence[tuple[Decay, Ridge]], presence: Presence, device: torch.device
) -> list[ColumnRidge]:
    n_columns = presence.model.n_trained

    def fit(each: tuple[Decay, Ridge]) -> ColumnRidge:
        return NextGram.of(rows, each[0], n_columns, presence.kind, device).fit([each[1]])[0]

    return run_batches(fit, settings, device)


class _Choice:
    """Chooses a directed ridge by NDCG@10 on the last entry of some rows."""

    def __init__(self, held_out: HiddenRows, presence: Presence, recency: Recency | None, device: torch.device) -> None:
        self._held_out, self._recency, self._device = held_out, recency, device
        self.presence = replace(presence, model=fit_again(presence.model, held_out.train, device))
        self.store = EntryStore.of(held_out.train)
        totals = self.store.column_totals
        self._popularity = ((totals + 0.5) / (held_out.train.shape[0] + 1.0)).astype(np.float32)
        self._targets: IndexArray = np.empty(held_out.n_rows, dtype=np.int64)
        self._targets[held_out.hidden.rows] = held_out.hidden.columns

    def fit(self) -> NextRidge:
        """Return the directed ridge of the visible entries with the best ridges and weights."""
        rows, kind = Sequences.of(self._held_out.train), self.presence.kind
        n_columns = self._popularity.size

        def fit(decay: Decay) -> NextPart:
            gram = NextGram.of(rows, decay, n_columns, kind, self._device)
            return NextPart(decay, self._choose_ridge(gram), 1.0)

        parts = run_batches(fit, DECAYS, self._device)
        lists = self._shortlist(parts)
        weights = lists.choose_weights(np.array([1.0] * len(parts) + [0.5, 0.0]))
        used = tuple(
            part._replace(weight=float(weight)) for part, weight in zip(parts, weights, strict=False) if weight > 0
        )
        found = NextRidge(used, float(weights[-2]), float(weights[-1]), 1.0)
        found = replace(found, sharpness=self._calibrate(found))
        found = replace(found, liking_weight=self._choose_liking(found))
        rankers = Rankers(self.store, self.presence, "relevance", self._recency, following=found)
        hidden = PlacedEntries(*self._held_out.hidden, Extras(self._held_out.times))
        is_default = _is_better(rankers, self._held_out.predictor, hidden, 0, self._held_out.visible)
        return replace(found, ndcg=float(lists.measure(weights).mean()), is_default=is_default)

    def _choose_ridge(self, gram: NextGram) -> ColumnRidge:
        """Return the model of the best ridge."""
        visible, targets, narrow = gram.decay.weigh(self._held_out.visible), self._targets, gram
        lines: IndexArray = np.arange(targets.size)
        if isinstance(gram.squares, torch.Tensor) and self._popularity.size > _NARROW:
            columns = np.sort(np.argsort(-self._popularity, kind="stable")[:_NARROW])
            narrow, visible = gram.narrow(columns), _narrow_entries(visible, columns)
            at, inside = locate(columns, targets)
            lines, targets = lines[inside], at[inside]
        models = narrow.fit(RIDGES)

        def measure(which: int) -> FloatArray:
            scores = densify(models[which].encode_rows(visible.take(lines)).scores)
            return -_score_ranks(_rank_targets(scores, targets, visible.take(lines)))

        best = choose(range(len(RIDGES)), measure, at_least=1.0).candidate if lines.size else 0
        return models[best] if narrow is gram else gram.fit([RIDGES[best]])[0]

    def _shortlist(self, parts: Sequence[NextPart]) -> _Shortlists:
        found = []
        for lines in batches(np.arange(self._targets.size), width=self._popularity.size):
            visible = self._held_out.visible.take(lines)
            undirected = densify(self.presence.model.encode_rows(visible).scores)
            popularity = np.broadcast_to(self._popularity, undirected.shape)
            directed = score_parts([part[:2] for part in parts], visible)
            scores = [scale_rows(each) for each in (*directed, undirected, popularity)]
            found.append(_Shortlists.of(scores, self._targets[lines], visible))
        return _Shortlists(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def _calibrate(self, found: NextRidge) -> float:
        """Return the sharpness with the largest likelihood of the last entries."""
        lines = draw_some(np.arange(self._targets.size), _CALIBRATION_ROWS, seed=0)
        visible, targets = self._held_out.visible.take(lines), self._targets[lines]
        undirected = densify(self.presence.model.encode_rows(visible).scores)
        scores = found.score(visible, undirected, self._popularity)
        scores[_list_cells(visible)] = -np.inf
        own = scores[np.arange(lines.size), targets]
        largest = scores.max(axis=1, keepdims=True)

        def measure(sharpness: float) -> float:
            logs = np.log(np.exp(sharpness * (scores - largest)).sum(axis=1))
            return float(np.mean(logs - sharpness * (own - largest[:, 0])))

        return choose(_SHARPNESS, measure).candidate

    def _choose_liking(self, found: NextRidge) -> float:
        """Return the weight of liking that ranks liked last entries best."""
        held_out = self._held_out
        if not held_out.train.has_values:
            return 0.0
        hidden = PlacedEntries(*held_out.hidden)
        usual = _LIKING_WEIGHTS.index(0.5)

        def measure(weight: float) -> FloatArray:
            liking = replace(found, liking_weight=weight)
            rankers = Rankers(self.store, self.presence, "relevance", following=liking)
            return -_measure_order(rankers, held_out.predictor, Order(rank_by="next"), hidden, held_out.visible)

        return choose(_LIKING_WEIGHTS, measure, usual=usual, at_least=1.0).candidate


class _Shortlists(NamedTuple):
    """Candidates of each row: their scores by each part, (rows, candidates, parts), and those of the target."""

    scores: LatentArray
    of_target: LatentArray

    @classmethod
    def of(cls, parts: Sequence[npt.NDArray[Any]], targets: IndexArray, visible: AxisEntries) -> _Shortlists:
        """Return the best columns by each part; columns of the row and the target are none of them."""
        lines = np.arange(targets.size)
        of_target = np.stack([each[lines, targets] for each in parts], axis=-1)
        best = []
        for each in parts:
            keys = np.array(each)
            keys[_list_cells(visible)] = keys[lines, targets] = -np.inf
            best.append(best_positions(keys, min(_SHORTLIST, keys.shape[1]))[0])
        places = np.sort(np.concatenate(best, axis=1), axis=1)
        scores = np.stack([np.take_along_axis(each, places, axis=1) for each in parts], axis=-1)
        left_out = np.pad(places[:, 1:] == places[:, :-1], ((0, 0), (1, 0))) | (places == targets[:, None])
        known = np.zeros(parts[0].shape, dtype=bool)
        known[_list_cells(visible)] = True
        left_out |= np.take_along_axis(known, places, axis=1)
        scores[left_out] = np.nan
        return cls(scores.astype(np.float32), of_target.astype(np.float32))

    def measure(self, weights: FloatArray) -> FloatArray:
        """Return the NDCG@10 (rows,) of a blend; ties count against the target."""
        weights = weights.astype(np.float32)
        with np.errstate(invalid="ignore"):
            ranks = np.count_nonzero(self.scores @ weights >= (self.of_target @ weights)[:, None], axis=1)
        return _score_ranks(ranks)

    def choose_weights(self, weights: FloatArray) -> FloatArray:
        """Return weights that are each the best beside the others, found in three rounds."""
        for _ in range(3):
            before = weights
            for at in range(weights.size):
                options = [np.where(np.arange(weights.size) == at, each, weights) for each in (weights[at], *_WEIGHTS)]
                options = [each for each in options if each.any()]
                weights = choose(options, lambda each: -self.measure(each)).candidate
            if np.array_equal(before, weights):
                break
        return weights


def _rank_targets(scores: npt.NDArray[Any], targets: IndexArray, visible: AxisEntries) -> IndexArray:
    """Return the rank from 0 of the target of each row; ties count against it."""
    lines = np.arange(targets.size)
    own = scores[lines, targets]
    keys = np.array(scores)
    keys[_list_cells(visible)] = keys[lines, targets] = -np.inf
    ranks: IndexArray = np.count_nonzero(keys >= own[:, None], axis=1)
    return ranks


def _score_ranks(ranks: IndexArray) -> FloatArray:
    return np.where(ranks < _LENGTH, 1.0 / np.log2(ranks + 2.0), 0.0)


def _list_cells(entries: AxisEntries) -> tuple[IndexArray, IndexArray]:
    return np.repeat(np.arange(entries.starts.size - 1), np.diff(entries.starts)), entries.others


def _narrow_entries(entries: AxisEntries, columns: IndexArray) -> AxisEntries:
    at, inside = locate(columns, entries.others)
    return entries.select(inside)._replace(others=at[inside])


def _is_better(
    rankers: Rankers, predictor: Predictor, wanted: PlacedEntries, seed: int, visible: AxisEntries | None = None
) -> bool:
    """Whether the directed order ranks some entries better than relevance, beyond doubt.

    visible: the entries of the rows, which the predictor has alone; None: all rows of the model.
    """
    if visible is None:
        rows = draw_some(np.unique(wanted.rows), _MOST_ROWS, seed=seed)
        at, inside = locate(rows, wanted.rows)
        extras = wanted.extras.take(inside)
        wanted = PlacedEntries(at[inside], wanted.columns[inside], wanted.values[inside], extras)
        predictor = replace(predictor, rows=Latents(predictor.rows.take(rows)))
        visible = rankers.entries.row_entries(rows)
    orders = (Order(rank_by="relevance"), Order(rank_by="next"))

    def measure(order: Order) -> FloatArray:
        return -_measure_order(rankers, predictor, order, wanted, visible)

    return choose(orders, measure, at_least=_BEYOND_DOUBT).candidate is orders[1]


def _measure_order(
    rankers: Rankers, predictor: Predictor, order: Order, wanted: PlacedEntries, visible: AxisEntries
) -> FloatArray:
    """Return the NDCG@10 (rows,) of the liked ones among some entries, of rows that have any, at their first time."""
    train, n_columns = rankers.entries.train, rankers.entries.train.shape[1]
    thresholds = find_thresholds(visible, train.scale, train.mean)
    liked = wanted.values >= thresholds[wanted.rows]
    row_of, column_of = wanted.rows[liked], wanted.columns[liked]
    found, first, times = [np.zeros(0)], None, wanted.extras.times
    if times is not None:
        first = np.full(visible.starts.size - 1, np.iinfo(np.int64).max)
        np.minimum.at(first, wanted.rows, times)
    for lines in batches(np.unique(row_of), width=n_columns):
        ranker = rankers.make(predictor, visible.take, order, None if first is None else first[lines])
        keys = np.array(ranker.rank_block(lines, slice(0, n_columns)))
        keys[_list_cells(visible.take(lines))] = -np.inf
        is_wanted = np.zeros(keys.shape, dtype=bool)
        at, inside = locate(lines, row_of)
        is_wanted[at[inside], column_of[inside]] = True
        best = best_positions(keys, min(_LENGTH, n_columns))[0]
        hits = np.take_along_axis(is_wanted, best, axis=1)
        found.append(score_lists(hits, is_wanted.sum(axis=1), n=_LENGTH).ndcg)
    every = np.concatenate(found)
    return every if every.size else np.zeros(1)
