"""How `fit` chooses the directed ridge: by NDCG@10 on the first later entry of each of some rows.

Chosen are the decays, their ridges, how much each part counts, whether rows take columns again, the
sharpness of probabilities, and how much liking counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from deepmf.linalg.largest import find_largest
from deepmf.linalg.ridge import run_batches
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import score_lists
from deepmf.recommend.column_gram import Gram
from deepmf.recommend.column_ridge import ColumnRidge, Ridge
from deepmf.recommend.next_gram import count_next
from deepmf.recommend.next_neighbours import Memory
from deepmf.recommend.next_ridge import MEMORIES, NextPart, NextRidge, list_decays, scale_rows
from deepmf.recommend.presence import Presence
from deepmf.recommend.presence_fit import HiddenRows, score_columns
from deepmf.recommend.ranker import Rankers, find_relevant
from deepmf.recommend.ranking import batches
from deepmf.recommend.request import Order
from deepmf.recommend.sequences import Decay, Histories
from deepmf.training.holdout import choose, draw_some

if TYPE_CHECKING:
    import torch

Weighted = TypeVar("Weighted", NextPart, Memory)

# Rows on which orders are compared.
COMPARED_ROWS = 2000

# The length of a ranking.
_LENGTH = 10

# Those that are tried, the usual one first.
_RIDGES = (Ridge(100.0, 0.1), Ridge(20.0, 0.5), Ridge(5.0, 0.5), Ridge(500.0, 0.0))

# The most popular columns on which ridges are compared.
_NARROW = 1500

# Columns of each row, by each part, among which weights are compared.
_SHORTLIST = 60

# Weights of a part that are compared.
_WEIGHTS = (0.0, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)

# Times that the weights of all parts are moved, one after the other, at most.
_PASSES = 3

# Rows on which probabilities are calibrated.
_CALIBRATION_ROWS = 500

# Numbers that multiply scores, from 0.05 to 8.5 in steps of a quarter.
_SHARPNESS = tuple(0.05 * 1.25**step for step in range(24))

# Weights of known columns, where rows take columns again.
_REPEATS = (0.0, 1.0, 3.0, 10.0, 30.0)

# Powers of the probability of liking, and the usual one.
_LIKING_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 1.5)
_USUAL_LIKING = 0.5


def choose_next(held_out: HiddenRows, presence: Presence, gpu: torch.device | None) -> NextRidge:
    """Return the directed ridge that ranks the first later entry of each row best."""
    return _Choice(held_out, presence, gpu).fit()


def fit_next_again(
    found: NextRidge, train: ObservedMatrix, presence: Presence, gpu: torch.device | None
) -> NextRidge:
    """Return a directed ridge of another matrix with the same settings."""
    histories, n_columns = Histories(EntryStore.of(train)), presence.model.n_trained
    rows = histories.trained_sequences

    def fit(part: NextPart) -> NextPart:
        (model,) = count_next(rows, part.decay, n_columns, presence.model.kind, gpu).fit(
            [part.model.ridge]
        )
        return part._replace(model=model)

    return replace(found, parts=tuple(_run(fit, found.parts, gpu)), histories=histories)


def _weigh(parts: Sequence[Weighted], weights: Sequence[float]) -> tuple[Weighted, ...]:
    """Return the parts that count, with their weights."""
    weighted = zip(parts, weights, strict=False)
    return tuple(part._replace(weight=weight) for part, weight in weighted if weight > 0)


def _run(
    fit: Callable[[Any], NextPart], settings: Sequence[Any], gpu: torch.device | None
) -> list[NextPart]:
    """Fit parts, on a CPU in several threads."""
    return run_batches(fit, settings) if gpu is None else [fit(setting) for setting in settings]


class _Choice:
    """Chooses a directed ridge by NDCG@10 on the first later entry of some rows."""

    def __init__(self, held_out: HiddenRows, presence: Presence, gpu: torch.device | None) -> None:
        self._held_out, self._presence, self._gpu = held_out, presence, gpu
        self._store = EntryStore.of(held_out.train)
        self._histories = Histories(self._store)
        totals = self._store.column_totals
        self._popularity = ((totals + 0.5) / (held_out.train.shape[0] + 1.0)).astype(np.float32)
        first = held_out.extras.sort_within(held_out.hidden.rows)[::-1]
        self._targets: IndexArray = np.empty(held_out.n_rows, dtype=np.int64)
        self._targets[held_out.hidden.rows[first]] = held_out.hidden.columns[first]

    def fit(self) -> NextRidge:
        """Return the directed ridge of the visible entries with the best decays, ridges and
        weights."""
        rows, kind = self._histories.trained_sequences, self._presence.model.kind
        n_columns = self._popularity.size

        def fit(decay: Decay) -> NextPart:
            gram = count_next(rows, decay, n_columns, kind, self._gpu)
            return NextPart(
                decay, self._choose_ridge(gram, decay.weigh(self._held_out.visible)), 1.0
            )

        parts = _run(fit, list_decays(np.diff(rows.starts)), self._gpu)
        lists = self._shortlist(parts)
        weights = lists.choose_weights(len(parts))
        undirected, popularity, *of_memories = weights[len(parts) :].tolist()
        following = NextRidge(
            _weigh(parts, weights.tolist()),
            self._histories,
            undirected,
            popularity,
            1.0,
            _weigh(MEMORIES, of_memories),
            ndcg=float(lists.measure(weights).mean()),
        )
        following = self._calibrate(following)
        return replace(following, liking_weight=self._choose_liking(following))

    def _choose_ridge(self, gram: Gram, visible: AxisEntries) -> ColumnRidge:
        """Return the model of the best ridge, which is chosen on the most popular columns."""
        columns = np.sort(np.argsort(-self._popularity, kind="stable")[:_NARROW])
        at, inside = locate(columns, self._targets)
        targets, visible = at[inside], visible.take(np.flatnonzero(inside))
        places, are_among = locate(columns, visible.others)
        observed_cells = visible.group_of[are_among], places[are_among]
        lines, losses = np.arange(targets.size), []
        for model in gram.fit_some(_RIDGES, columns):
            keys = score_columns(model, visible, columns)
            target_keys = keys[lines, targets]
            keys[observed_cells] = -np.inf
            keys[lines, targets] = target_keys
            losses.append(-score_targets(keys, targets))
        best = (
            choose(range(len(_RIDGES)), lambda which: losses[which], at_least=1.0).candidate
            if targets.size
            else 0
        )
        return gram.fit([_RIDGES[best]])[0]

    def _shortlist(self, parts: Sequence[NextPart]) -> _Shortlists:
        shortlists = []
        for lines in batches(np.arange(self._targets.size), width=self._popularity.size):
            visible = self._held_out.visible.take(lines)
            undirected = self._presence.model.score(visible)
            popularity = np.broadcast_to(self._popularity, undirected.shape)
            directed = (part.score(visible) for part in parts)
            votes = (memory.score(visible, self._histories) for memory in MEMORIES)
            scores = [
                scale_rows(part_scores)
                for part_scores in (*directed, undirected, popularity, *votes)
            ]
            shortlists.append(_Shortlists.of(scores, self._targets[lines], visible))
        return _Shortlists(*(np.concatenate(arrays) for arrays in zip(*shortlists, strict=True)))

    def _calibrate(self, following: NextRidge) -> NextRidge:
        """Return whether known columns may come next, by which later entries are ranked best, and
        the sharpness.

        The sharpness has the largest likelihood of the later entries that can be ranked.
        """
        lines = draw_some(np.arange(self._targets.size), _CALIBRATION_ROWS, seed=0)
        visible, targets = self._held_out.visible.take(lines), self._targets[lines]
        scores = following.score(visible, self._presence.model.score(visible), self._popularity)
        observed_cells, target_cells = (
            (visible.group_of, visible.others),
            (np.arange(targets.size), targets),
        )

        def find_keys(option: NextRidge) -> Array:
            keys = np.array(scores)
            if not option.allows_repeats:
                keys[observed_cells] = -np.inf
            elif option.repeats:
                keys[observed_cells] += option.find_repeats(visible)
            return keys

        def measure_rankings(option: NextRidge) -> FloatArray:
            return -score_targets(find_keys(option), targets)

        are_known = np.zeros(scores.shape, dtype=bool)
        are_known[observed_cells] = True
        if are_known[target_cells].any():
            options = [
                following,
                *(replace(following, allows_repeats=True, repeats=repeats) for repeats in _REPEATS),
            ]
            following = choose(options, measure_rankings, at_least=1.0).candidate
        keys = find_keys(following)
        inside = np.isfinite(keys[target_cells])
        if not inside.any():
            return following
        largest = keys.max(axis=1, keepdims=True)[inside]
        keys, margins = keys[inside], keys[target_cells][inside] - largest[:, 0]

        def measure_likelihood(sharpness: float) -> float:
            logs = np.log(np.exp(sharpness * (keys - largest)).sum(axis=1))
            return float(np.mean(logs - sharpness * margins))

        return replace(following, sharpness=choose(_SHARPNESS, measure_likelihood).candidate)

    def _choose_liking(self, found: NextRidge) -> float:
        """Return the weight of liking that ranks liked later entries best."""
        held_out = self._held_out
        if not held_out.train.has_values:
            return 0.0
        hidden, usual = held_out.hidden.rows < COMPARED_ROWS, _LIKING_WEIGHTS.index(_USUAL_LIKING)

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
        of_target = np.stack([part_scores[lines, targets] for part_scores in parts], axis=-1)
        left_out = np.zeros(parts[0].shape, dtype=bool)
        left_out[visible.group_of, visible.others] = left_out[lines, targets] = True
        best = [find_largest(np.where(left_out, -np.inf, scores), _SHORTLIST) for scores in parts]
        places = np.sort(np.concatenate(best, axis=1), axis=1)
        scores = np.stack(
            [np.take_along_axis(part_scores, places, axis=1) for part_scores in parts], axis=-1
        )
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
        """Return the weights of the directed parts, the column ridge, popularity and neighbours.

        The best directed part and the column ridge come first; others join, and weights move, if
        this is better by a standard error.
        """
        starts = np.eye(n_directed, self.scores.shape[2])
        starts[:, n_directed] = 1.0
        weights = choose(list(starts), lambda each: -self.measure(each)).candidate
        for _ in range(_PASSES):
            before = weights
            for at in range(weights.size):
                options = [
                    np.where(np.arange(weights.size) == at, weight, weights)
                    for weight in (weights[at], *_WEIGHTS)
                ]
                options = [option for option in options if option.any()]
                weights = choose(options, lambda each: -self.measure(each), at_least=1.0).candidate
            if np.array_equal(before, weights):
                break
        return weights


def score_targets(keys: Array, targets: IndexArray) -> FloatArray:
    """Return the NDCG@10 (rows,) of a target column of each row by keys (rows, columns); ties count
    against it.

    >>> score_targets(np.array([[3.0, 2.0, 1.0], [2.0, 2.0, 2.0]]), np.array([0, 0]))
    array([1. , 0.5])
    """
    target_keys = np.take_along_axis(keys, targets[:, None], axis=1)
    return _score_ranks(np.count_nonzero(keys >= target_keys, axis=1) - 1)


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
    scores = [np.zeros(0)]
    for lines in batches(np.unique(row_of), width=n_columns):
        ranker = rankers.make(
            held_out.predictor, visible.take, order, None if first is None else first[lines]
        )
        keys = np.array(ranker.rank_block(lines, slice(0, n_columns)))
        at, inside = locate(lines, row_of)
        observed_entries = None if ranker.allows_repeats else visible.take(lines)
        scores.append(measure_keys(keys, observed_entries, at[inside], column_of[inside]))
    return np.concatenate(scores)


def measure_keys(
    keys: Array, visible: AxisEntries | None, row_of: IndexArray, column_of: IndexArray
) -> FloatArray:
    """Return the NDCG@10 (rows,) of some pairs in rankings by keys (rows, columns), without the
    visible entries."""
    keys = np.array(keys, dtype=np.float64)
    if visible is not None:
        keys[visible.group_of, visible.others] = -np.inf
    is_wanted = np.zeros(keys.shape, dtype=bool)
    is_wanted[row_of, column_of] = True
    best = find_largest(keys, _LENGTH)
    hits = np.take_along_axis(is_wanted & (keys > -np.inf), best, axis=1)
    return score_lists(hits, is_wanted.sum(axis=1), n=_LENGTH).ndcg
