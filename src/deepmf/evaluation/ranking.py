"""Ranking metrics: how relevant the first n columns of each row are, compared with a ranking by
popularity.

There are two protocols: held-out entries of rows that the model knows, and whole rows that it has
never seen, of which some entries are given (strong generalisation, Liang et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, Hint, check_count
from deepmf.evaluation.areas import (
    check_model,
    check_test_known,
    ignore_empty_lines,
    select_known_entries,
)
from deepmf.files import polars
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_entries import NOTHING, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import NO_TIME
from deepmf.matrix.matrix import AREAS, ObservedMatrix, check_matrix, compute_area_codes
from deepmf.metrics import ListScores, score_lists, self_information
from deepmf.models.base import Model
from deepmf.recommend.column_choice import ColumnChoice, choose_marked
from deepmf.recommend.ranker import Ranker, find_relevant
from deepmf.recommend.ranking import batches, find_best
from deepmf.recommend.request import Order, OrderOptions, RankBy, Request
from deepmf.recommend.reranking import find_liked_shares, find_shares, measure_divergence
from deepmf.scoring.factors import Positions
from deepmf.scoring.latents import Latents
from deepmf.scoring.pairs import Unknown, check_unknown
from deepmf.scoring.predictor import Predictor

ROW_METRICS = ListScores._fields  # means over rows

# How metrics are written in tables: means over rows, and metrics of all lists together.
TITLES = {
    "ndcg": "NDCG",
    "recall": "recall",
    "precision": "precision",
    "mrr": "MRR",
    "map": "MAP",
    "hit_rate": "hit rate",
    "coverage": "coverage",
    "novelty": "novelty",
    "gini": "Gini",
    "tail_share": "share of tail",
    "mean_popularity": "mean popularity",
    "list_similarity": "list similarity",
    "miscalibration": "miscalibration",
}

MakeRanker = Callable[[IndexArray], Ranker]  # of a block of rows


@dataclass(frozen=True)
class RankingScores:
    """The ranking metrics at n.

    Attributes
    ----------
    name : the class of the model, or "popularity".
    ndcg, recall, precision, mrr, map, hit_rate : means over rows (see `deepmf.metrics`).
    margins : the standard errors of these means; None for a single row.
    n_distinct, coverage : the number of distinct columns in the lists of all rows, and their share
        of the columns that can be ranked; like what follows None if all lists are empty.
    novelty : mean self-information of the columns in the lists, in bits.
    gini, tail_share, mean_popularity : of the places in the lists: how unequally the columns share
        them (0: all alike, 1: one has all), the share of the tail (the least popular columns, with
        a fifth of the entries), and the mean share of the rows that have an entry in the column.
    list_similarity : mean cosine of two columns of a list, by latents; None if the model has none.
    miscalibration : mean divergence of the shares of a feature in the lists from those in the liked
        entries (Steck 2018); None unless a `feature` is asked for.
    """

    name: str
    ndcg: float
    recall: float
    precision: float
    mrr: float
    map: float
    hit_rate: float
    margins: dict[str, float | None]
    n_distinct: int | None = None
    coverage: float | None = None
    novelty: float | None = None
    gini: float | None = None
    tail_share: float | None = None
    mean_popularity: float | None = None
    list_similarity: float | None = None
    miscalibration: float | None = None


@dataclass(frozen=True)
class AreaRanking:
    """The ranking metrics in one area: of its rows, among its columns alone."""

    area: str
    n_rows: int
    n_relevant: int
    model: RankingScores
    popularity: RankingScores


@dataclass(frozen=True)
class RankingEvaluation:
    """The ranking metrics of a model, and of popularity as the baseline.

    Attributes
    ----------
    n : length of the ranked lists.
    relevant : test entries of at least this value are relevant; None: all are.
    n_rows : number of rows evaluated, all of which have a relevant test entry.
    n_without : number of test rows left out because they have no relevant entry.
    n_not_drawn : number of rows left out by `most_rows`.
    n_relevant : number of relevant test entries of the rows evaluated.
    model, popularity : the scores of both rankings, over all columns.
    min_entries : columns with fewer entries were not ranked.
    rank_by : the order of the model's columns: "relevance" or "value".
    n_given : number of given entries of rows that the model has never seen; None if the model knows
        the rows.
    areas : the scores by area: among trained columns in areas I and II, among new columns in areas
        III and IV.
    by_row : the scores of the model in each row evaluated, in the order of rows.
    """

    n: int
    relevant: float | None
    n_rows: int
    n_without: int
    n_not_drawn: int
    n_relevant: int
    model: RankingScores
    popularity: RankingScores
    min_entries: int = 0
    rank_by: RankBy = "value"
    n_given: int | None = None
    areas: dict[str, AreaRanking] = field(default_factory=dict)
    by_row: ListScores | None = field(default=None, repr=False, compare=False)

    @property
    def overall(self) -> AreaRanking:
        """The scores over all columns, as an area named "all"."""
        return AreaRanking("all", self.n_rows, self.n_relevant, self.model, self.popularity)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(replace(self, by_row=None))

    def to_frame(self) -> Any:
        """Return a polars frame with a line for each area, and for the model and popularity in
        it."""
        lines = [
            {"area": area.area, "n_rows": area.n_rows, "ranked_by": scores.name}
            | {metric: getattr(scores, metric) for metric in TITLES}
            for area in (*self.areas.values(), self.overall)
            for scores in (area.model, area.popularity)
        ]
        return polars.DataFrame(lines, infer_schema_length=None)


def evaluate_ranking(
    model: Model,
    test: ObservedMatrix,
    *,
    given: ObservedMatrix | None = None,
    n: int = 10,
    min_entries: int = 0,
    unknown: Unknown = "error",
    most_rows: int | None = None,
    feature: str | None = None,
    seed: int = 0,
    **order: Unpack[OrderOptions],
) -> RankingEvaluation:
    """Measure how relevant the n columns are that a model ranks first for each row of a test.

    The columns are ranked in which the model knows no entry of the row. Ties go to the column that
    came first, as in `recommend`. A model that ranks by what comes next by default ranks by
    relevance if most test entries are earlier than the last entry of their row, as in a random
    split. Rows without a relevant test entry are left out, and so are test entries that the model
    has seen. Popularity ranks columns by their number of entries. A model that has learned from
    times ranks the columns of a row at the time of its first test entry.

    Parameters
    ----------
    model : a fitted model.
    test : the test entries.
    given : entries of rows that the model has never seen, as from `split_rows`. The model is
        extended by them, without training, and ranks the other columns of these rows (strong
        generalisation). None: the model knows the rows of the test.
    n : length of the ranked lists.
    min_entries : columns with fewer entries are not ranked; their relevant test entries count as
        missed.
    unknown : entries whose row or column the model does not know raise `UnknownLabel` ("error") or
        are left out.
    most_rows : evaluate at most this many rows, drawn at random.
    feature : also measure how far the shares of this feature of columns in the lists are from those
        in liked entries.
    seed : seed of the rows that are drawn.
    order : the order of the columns, as in `recommend`: `rank_by` and the other fields of `Order`.
        `relevant` is also the smallest value of relevant test entries. Interactions without values
        are all relevant.

    >>> from deepmf import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [5], train.scale)
    >>> evaluation = evaluate_ranking(Means().fit(train), test, n=1, relevant=4)
    >>> evaluation.model.precision, evaluation.n_rows
    (1.0, 1)
    """
    check_model(model, "evaluate_ranking")
    check_matrix(test, "evaluate_ranking")
    check_unknown(unknown)
    if most_rows is not None:
        check_count("most_rows", most_rows)
    if feature is not None:
        find_shares(model.entries_, NOTHING, feature)
    request = Request(
        n=n, min_entries=min_entries, **fix_order(model.entries_.train, order).changed_options
    )
    ranked = model if given is None else _extend_by_given(model, given, unknown)
    if request.rank_by is None and model.rankers_.rank_by == "next" and _lie_between(model, test):
        request = replace(request, rank_by="relevance")
    ranker = ranked.make_ranker(request)
    pairs = _find_pairs(
        ranked.entries_, _select_test(ranked, test, unknown), request.relevant, ranker
    )
    drawn_pairs = pairs.draw(most_rows, seed=seed)
    evaluator = _make_evaluator(model, ranked, ranker, test, request, feature)
    choice = evaluator.choose(np.ones(len(ranked.entries_.columns), dtype=bool))
    lists = evaluator.rank(drawn_pairs, choice)
    overall = evaluator.summarise(lists, choice)
    return RankingEvaluation(
        n=int(n),
        relevant=request.relevant,
        n_rows=drawn_pairs.rows.size,
        n_without=pairs.n_without,
        n_not_drawn=pairs.rows.size - drawn_pairs.rows.size,
        n_relevant=drawn_pairs.row_of.size,
        **overall,
        min_entries=int(min_entries),
        rank_by=ranker.rank_by,
        n_given=None if given is None else given.n_entries,
        areas=_score_areas(evaluator, drawn_pairs, overall),
        by_row=lists["model"].by_row,
    )


def _select_test(model: Model, test: ObservedMatrix, unknown: Unknown) -> ObservedMatrix:
    """Return the test entries that a model can rank; refuse others where these are errors."""
    if unknown == "error":
        check_test_known(model, test)
    known_test = select_known_entries(model, test)
    if not known_test.n_entries:
        raise BadEntries(
            "no row can be ranked: the model knows the row and the column of no test entry",
            hint=Hint("pass entries of these rows as given=", "--extend adds entries of new rows"),
        )
    return known_test


def _make_evaluator(
    model: Model,
    ranked: Model,
    ranker: Ranker,
    test: ObservedMatrix,
    request: Request,
    feature: str | None,
) -> _Evaluator:
    """Return what ranks by a model, which `ranked` is with the entries of given rows, and by
    popularity."""
    popularity = model.entries_.column_counts
    of_popularity = _Popularity(ranked.predictor_, counts=popularity)
    return _Evaluator(
        makers={
            "model": (type(model).__name__, _make_rankers(ranked, ranker, test, request)),
            "popularity": ("popularity", lambda rows: of_popularity),
        },
        seen=ranked.entries_,
        popularity=popularity,
        n_rows=len(model.entries_.rows),
        request=replace(request, include_observed=ranker.allows_repeats),
        predictor=ranked.predictor_,
        feature=feature,
    )


def _lie_between(model: Model, test: ObservedMatrix) -> bool:
    """Whether most dated test entries are earlier than the latest training entry of their row."""
    train = model.entries_.train
    if train.times is None or test.times is None:
        return False
    rows = train.rows.find(test.row_labels)[test.entry_rows]
    dated, latest = (rows >= 0) & (test.times != NO_TIME), np.full(train.shape[0], NO_TIME)
    np.maximum.at(latest, train.entry_rows, train.times)
    return bool(np.any(dated) and np.mean(test.times[dated] < latest[rows[dated]]) > 0.5)


def _make_rankers(
    model: Model, ranker: Ranker, test: ObservedMatrix, request: Request
) -> MakeRanker:
    """Return what makes the ranker of a block of rows: where test entries have dates, at the time
    of the first one."""
    rankers, latest = model.rankers_, model.entries_.train.times
    if test.times is None or latest is None or not (model.has_drift or rankers.recency is not None):
        return lambda rows: ranker
    dated, never = np.flatnonzero(test.times != NO_TIME), np.iinfo(np.int64).max
    first = np.full(len(model.entries_.rows), never)
    rows = model.entries_.rows.find(test.row_labels)[test.entry_rows[dated]]
    np.minimum.at(first, rows[rows >= 0], test.times[dated][rows >= 0])
    first[first == never] = latest.max()
    return lambda rows: model.make_ranker(request, times=first[rows])


@dataclass(frozen=True)
class _Popularity(Ranker):
    """Ranks columns by their numbers of entries (columns,)."""

    counts: IndexArray = field(default_factory=lambda: NOTHING)

    def rank_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return the numbers of entries (rows, columns)."""
        return np.tile(self.counts[columns].astype(np.float64), (rows.size, 1))


def fix_order(train: ObservedMatrix, options: OrderOptions) -> Order:
    """Return an order with the smallest relevant value, the given one or the default for the
    entries.

    Interactions have no values, and are all relevant (None).
    """
    order = Order(**options)
    order.check_scale(train.scale)
    return replace(order, relevant=find_relevant(train, order.relevant))


def _extend_by_given(model: Model, given: ObservedMatrix, unknown: Unknown) -> Model:
    """Return a model extended by the given entries of rows that it has never seen."""
    entries = model.entries_
    rows = np.flatnonzero(given.row_counts > 0)
    known_rows = np.flatnonzero(entries.rows.find(given.row_labels[rows]) >= 0)
    if known_rows.size:
        label = given.row_labels[rows].tolist()[known_rows[0]]
        raise BadEntries(
            f"the model knows the row {label!r}; given takes rows that were held out whole, as split_rows does"
        )
    if unknown == "error":
        entries.columns.positions(given.column_labels[given.column_counts > 0])
    columns = np.flatnonzero(entries.columns.find(given.column_labels) >= 0)
    with ignore_empty_lines():
        return model.extend(given.take(rows, columns))


@dataclass(frozen=True)
class _Pairs:
    """Relevant pairs in increasing order of rows, then columns: (pairs,) positions.

    keys: row * n_columns + column. n_without: the number of test rows without a relevant pair.
    """

    keys: IndexArray
    n_columns: int
    n_without: int

    @cached_property
    def row_of(self) -> IndexArray:
        return self.keys // self.n_columns

    @cached_property
    def column_of(self) -> IndexArray:
        return self.keys % self.n_columns

    @cached_property
    def rows(self) -> IndexArray:
        return np.unique(self.row_of)

    def take(self, which: npt.NDArray[np.bool_]) -> _Pairs:
        return replace(self, keys=self.keys[which])

    def draw(self, most_rows: int | None, *, seed: int) -> _Pairs:
        """Return the pairs of at most `most_rows` rows, drawn at random."""
        rows = self.rows
        if most_rows is None or rows.size <= most_rows:
            return self
        return self.take(
            np.isin(
                self.row_of, np.random.default_rng(seed).choice(rows, size=most_rows, replace=False)
            )
        )

    def score(self, columns: IndexArray, n: int) -> ListScores:
        """Return the scores of lists of columns (rows, n), -1 where there is none."""
        _, hits = locate(self.keys, (self.rows[:, None] * self.n_columns + columns).ravel())
        hits = hits.reshape(columns.shape) & (columns >= 0)
        line = np.searchsorted(self.rows, self.row_of)
        return score_lists(hits, np.bincount(line), n=n)


def _find_pairs(
    seen: EntryStore, test: ObservedMatrix, level: float | None, ranker: Ranker
) -> _Pairs:
    row_of, column_of = test.find_in(seen.rows, seen.columns)
    is_relevant = np.ones(row_of.size, dtype=bool) if level is None else test.values >= level
    is_good = (np.isnan(seen.values_at(row_of, column_of)) | ranker.allows_repeats) & is_relevant
    if not np.any(is_good):
        why = (
            "the model has seen all test entries"
            if np.any(is_relevant)
            else "no test entry has a value"
        )
        raise BadEntries(
            f"no row can be ranked: {why}{'' if level is None else f' of at least {level:g}'}"
        )
    keys = row_of * len(seen.columns) + column_of
    order = np.argsort(keys[is_good], kind="stable")
    n_without = np.unique(row_of).size - np.unique(row_of[is_good]).size
    return _Pairs(keys[is_good][order], len(seen.columns), int(n_without))


def _score_areas(
    evaluator: _Evaluator, pairs: _Pairs, overall: dict[str, RankingScores]
) -> dict[str, AreaRanking]:
    n_rows, n_trained = evaluator.seen.train.shape
    codes = compute_area_codes(pairs.row_of >= n_rows, pairs.column_of >= n_trained)
    areas = {}
    for code in np.unique(codes).tolist():
        area_pairs, is_new = pairs.take(codes == code), np.arange(pairs.n_columns) >= n_trained
        scores = overall
        if area_pairs.keys.size < pairs.keys.size or is_new.any():
            choice = evaluator.choose(is_new if code >= 2 else ~is_new)
            scores = evaluator.summarise(evaluator.rank(area_pairs, choice), choice)
        areas[AREAS[code]] = AreaRanking(
            AREAS[code], area_pairs.rows.size, area_pairs.row_of.size, **scores
        )
    return areas


class _Lists(NamedTuple):
    """The first n columns of some rows (rows, n), -1 where a row has fewer, and their scores by
    row."""

    rows: IndexArray
    columns: IndexArray
    by_row: ListScores


@dataclass(frozen=True)
class _Evaluator:
    """Ranks columns by several rankings, and scores the first n of each row.

    makers: the name of each ranking, and what makes the rankers of blocks of rows.
    popularity: the number of entries of each column, without those given for new rows, (columns,).
    n_rows: the number of rows that these entries come from.
    """

    makers: dict[str, tuple[str, MakeRanker]]
    seen: EntryStore
    popularity: IndexArray
    n_rows: int
    request: Request
    predictor: Predictor
    feature: str | None

    def choose(self, is_inside: npt.NDArray[np.bool_]) -> ColumnChoice:
        is_allowed = is_inside & (self.popularity >= self.request.min_entries)
        return choose_marked(is_allowed, include_observed=bool(self.request.include_observed))

    def rank(self, pairs: _Pairs, choice: ColumnChoice) -> dict[str, _Lists]:
        """Return the lists of each ranking for the rows of some relevant pairs, in batches of
        bounded memory."""
        n, lists = int(self.request.n), {}
        for name, (_, make) in self.makers.items():
            parts = [np.full((0, max(min(n, choice.size), 1)), -1)]
            for rows in batches(pairs.rows, width=choice.n_places):
                omitted = choice.omit(rows, self.seen.seen_columns)
                best = find_best(make(rows), rows, choice, parts[0].shape[1], omitted)
                parts.append(np.full(best.places.shape, -1))
                parts[-1][best.keys > -np.inf] = choice.columns(best.places[best.keys > -np.inf])
            columns = np.concatenate(parts)
            lists[name] = _Lists(pairs.rows, columns, pairs.score(columns, n))
        return lists

    def summarise(self, lists: dict[str, _Lists], choice: ColumnChoice) -> dict[str, RankingScores]:
        """Return the scores of the lists of each ranking: means over rows, and metrics of all lists
        together."""
        summaries = {}
        for name, ranked_lists in lists.items():
            by_row = ranked_lists.by_row._asdict()
            means: dict[str, Any] = {
                metric: float(values.mean()) for metric, values in by_row.items()
            }
            n_rows = ranked_lists.rows.size
            margins = {
                metric: float(np.std(values, ddof=1) / math.sqrt(n_rows)) if n_rows > 1 else None
                for metric, values in by_row.items()
            }
            summaries[name] = RankingScores(
                self.makers[name][0],
                **means,
                margins=margins,
                **self._measure(ranked_lists, choice),
            )
        return summaries

    def _measure(self, lists: _Lists, choice: ColumnChoice) -> dict[str, Any]:
        """Return the metrics of the columns in all lists by name."""
        listed, positions = lists.columns[lists.columns >= 0], choice.positions
        if listed.size == 0:
            return {}
        counts = np.bincount(listed, minlength=self.popularity.size)[positions]
        popularity, n_distinct = self.popularity[positions], int(np.count_nonzero(counts))
        return {
            "n_distinct": n_distinct,
            "coverage": n_distinct / positions.size,
            "novelty": float(counts @ self_information(popularity, self.n_rows) / listed.size),
            "gini": compute_gini(counts),
            "tail_share": float(counts @ find_tail(popularity) / listed.size),
            "mean_popularity": float(counts @ popularity / listed.size / self.n_rows),
            "list_similarity": self._compare_columns(lists.columns),
            "miscalibration": self._compare_shares(lists),
        }

    def _compare_columns(self, columns: IndexArray) -> float | None:
        """Return the mean cosine of two columns of a list; None where the model has no latents."""
        if not self.predictor.has_latents:
            return None
        distinct, which = np.unique(columns, return_inverse=True)
        directions = self.predictor.directions(
            Latents(self.predictor.columns.take(np.maximum(distinct, 0)))
        )
        directions[distinct < 0] = 0.0
        which, filled = which.reshape(columns.shape), (columns >= 0).sum(axis=1)
        sums = sum(directions[which[:, at]].astype(np.float64) for at in range(columns.shape[1]))
        squares, several = np.square(directions).sum(axis=1)[which].sum(axis=1), filled > 1
        pairs = filled[several] * (filled[several] - 1)
        if several.any():
            return float(np.mean((np.square(sums).sum(axis=1) - squares)[several] / pairs))
        return None

    def _compare_shares(self, lists: _Lists) -> float | None:
        """Return how far the shares of the feature in the lists are from those in the liked entries
        of the rows."""
        if self.feature is None:
            return None
        distinct, which = np.unique(np.maximum(lists.columns, 0), return_inverse=True)
        shares = find_shares(self.seen, distinct, self.feature)[which.reshape(lists.columns.shape)]
        listed = (shares * (lists.columns >= 0)[..., None]).sum(axis=1)
        liked = find_liked_shares(
            self.seen, self.seen.seen_columns(lists.rows), self.feature, self.request.relevant
        )
        counted = liked.any(axis=1)
        if counted.any():
            return float(measure_divergence(liked[counted], listed[counted]).mean())
        return None


def find_tail(popularity: IndexArray) -> npt.NDArray[np.bool_]:
    """Return which columns are in the tail: the least popular ones, which have a fifth of the
    entries together.

    >>> find_tail(np.array([8, 1, 1])).tolist()
    [False, True, True]
    """
    order = np.argsort(popularity, kind="stable")
    is_tail = np.zeros(popularity.size, dtype=bool)
    is_tail[order] = np.cumsum(popularity[order]) <= 0.2 * popularity.sum()
    return is_tail


def compute_gini(counts: IndexArray) -> float:
    """Return the Gini coefficient of counts: 0 if all are equal, near 1 if one has everything.

    >>> compute_gini(np.array([2, 2, 2])), round(compute_gini(np.array([0, 0, 6])), 3)
    (0.0, 0.667)
    """
    rising = np.sort(counts).astype(np.float64)
    places = 2.0 * np.arange(1, rising.size + 1) - rising.size - 1.0
    return float(places @ rising / (rising.size * rising.sum()))
