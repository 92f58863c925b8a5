"""Ranking metrics: how relevant the first n columns of each row are, compared with a ranking by popularity.

There are two protocols: held-out entries of rows that the model knows, and whole rows that it has never seen, of which
some entries are given (strong generalisation, Liang et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, Hint
from deepmf.evaluation.areas import (
    Propensities,
    check_test_known,
    ignore_empty_lines,
    select_known_entries,
    weigh_by_propensity,
)
from deepmf.files import import_polars
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import NO_TIME
from deepmf.matrix.feature_encoding import CategoryEncoding
from deepmf.matrix.matrix import AREAS, ObservedMatrix, compute_area_codes
from deepmf.matrix.scale import Scale
from deepmf.metrics import ListScores, score_lists, self_information
from deepmf.models.base import Model
from deepmf.recommend.ranker import Omit, Ranker
from deepmf.recommend.ranking import batches
from deepmf.recommend.request import Order, OrderOptions, RankBy, Request
from deepmf.recommend.reranking import find_liked_shares, find_shares, measure_divergence
from deepmf.recommend.top_n import BestSoFar
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

# The tail: the least popular columns, which have this share of the entries together.
_TAIL = 0.2

# Maps row positions, a range of columns, the length of a list and what leaves columns out to keys (rows, columns), of
# which the largest matter; a column with a larger key is ranked first.
Rank = Callable[[IndexArray, slice, int, Omit], npt.NDArray[Any]]


@dataclass(frozen=True)
class RankingScores:
    """The ranking metrics at n.

    Attributes
    ----------
    name : the class of the model, or "popularity".
    ndcg, recall, precision, mrr, map, hit_rate : means over rows (see `deepmf.metrics`).
    margins : the standard errors of these means; None for a single row.
    n_distinct, coverage : the number of distinct columns in the lists of all rows, and their share of the columns that
        can be ranked; None for sampled candidates.
    novelty : mean self-information of the columns in the lists, in bits; None for sampled candidates.
    gini, tail_share, mean_popularity : of the places in the lists: how unequally the columns share them (0: all alike,
        1: one has all), the share of the tail (the least popular columns, with a fifth of the entries), and the mean
        share of the rows that have an entry in the column. None for sampled candidates.
    list_similarity : mean cosine of two columns of a list, by latents; None if the model has none.
    miscalibration : mean divergence of the shares of a feature in the lists from those in the liked entries (Steck
        2018); None unless a `feature` is asked for.
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
    candidates : number of columns drawn for each row beside its relevant ones; None: all columns without an entry.
    n_given : number of given entries of rows that the model has never seen; None if the model knows the rows.
    areas : the scores by area: among trained columns in areas I and II, among new columns in areas III and IV.
    groups : the scores of each group of rows, if they are asked for.
    clipped : share of relevant test entries whose propensity was raised; None without propensities.
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
    candidates: int | None = None
    n_given: int | None = None
    areas: dict[str, AreaRanking] = field(default_factory=dict)
    groups: dict[str, AreaRanking] = field(default_factory=dict)
    clipped: float | None = None
    by_row: ListScores | None = field(default=None, repr=False, compare=False)

    @property
    def overall(self) -> AreaRanking:
        """The scores over all columns, as an area named "all"."""
        return AreaRanking("all", self.n_rows, self.n_relevant, self.model, self.popularity)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(replace(self, by_row=None))

    def to_frame(self) -> Any:
        """Return a polars frame with a line for each area, and for the model and popularity in it."""
        lines = [
            {"area": found.area, "n_rows": found.n_rows, "ranked_by": scores.name}
            | {metric: getattr(scores, metric) for metric in TITLES}
            for found in (*self.areas.values(), *self.groups.values(), self.overall)
            for scores in (found.model, found.popularity)
        ]
        return import_polars().DataFrame(lines, infer_schema_length=None)


def evaluate_ranking(
    model: Model,
    test: ObservedMatrix,
    *,
    given: ObservedMatrix | None = None,
    n: int = 10,
    candidates: int | None = None,
    min_entries: int = 0,
    unknown: Unknown = "error",
    most_rows: int | None = None,
    feature: str | None = None,
    by: str | None = None,
    propensities: Propensities = None,
    seed: int = 0,
    **order: Unpack[OrderOptions],
) -> RankingEvaluation:
    """Measure how relevant the n columns are that a model ranks first for each row of a test.

    The candidates of a row are the columns in which the model knows no entry of this row. Ties go to the column that
    came first, as in `recommend`. A model that ranks by what comes next by default ranks by relevance if most test
    entries are earlier than the last entry of their row, as in a random split. Rows without a relevant test entry are
    left out, and so are test entries that the model has seen. Popularity ranks columns by their number of entries. A
    model that has learned from times ranks the columns of a row at the time of its first test entry.

    Parameters
    ----------
    model : a fitted model.
    test : the test entries.
    given : entries of rows that the model has never seen, as from `split_rows`. The model is extended by them, without
        training, and ranks the other columns of these rows (strong generalisation). None: the model knows the rows of
        the test.
    n : length of the ranked lists.
    candidates : rank the relevant columns of a row among this many others, drawn at random from the columns without an
        entry of the row. Such scores are higher than those among all columns (None), and compare only with one another.
    min_entries : columns with fewer entries are not ranked; their relevant test entries count as missed.
    unknown : entries whose row or column the model does not know raise `UnknownLabel` ("error") or are left out.
    most_rows : evaluate at most this many rows, drawn at random.
    feature : also measure how far the shares of this feature of columns in the lists are from those in liked entries.
    by : also measure groups of rows by this feature of rows, such as "sex".
    propensities : as in `evaluate`: NDCG and recall then count relevant entries by 1 / propensity, relative to all of
        the row.
    seed : seed of the rows and candidates that are drawn.
    order : the order of the columns, as in `recommend`: `rank_by` and the other fields of `Order`. `relevant` is also
        the smallest value of relevant test entries; default: the lowest level above the mean of the training entries.
        Interactions without values are all relevant.

    >>> from deepmf import Means
    >>> train = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> test = ObservedMatrix.from_entries(["bob"], ["Alien"], [5], train.scale)
    >>> evaluation = evaluate_ranking(Means().fit(train), test, n=1, relevant=4)
    >>> evaluation.model.precision, evaluation.n_rows
    (1.0, 1)
    """
    check_candidates(candidates)
    check_unknown(unknown)
    request = Request(n=n, min_entries=min_entries, **fix_order(model.entries_.train, order).given)
    level = request.relevant
    popularity = model.entries_.column_counts
    ranking_model = model if given is None else _extend_by_given(model, given, unknown)
    if request.rank_by is None and model.rankers_.rank_by == "next" and _lie_between(model, test):
        request = replace(request, rank_by="relevance")
    ranker = ranking_model.make_ranker(request)
    if unknown == "error":
        check_test_known(ranking_model, test)
    seen = ranking_model.entries_
    known = select_known_entries(ranking_model, test)
    inverse = weigh_by_propensity(model, test, propensities)
    if inverse is not None and known.n_entries < test.n_entries:
        raise BadSetting("propensities need a test of known rows and columns")
    again = ranker.allows_repeats
    pairs = _find_pairs(seen, known, level, None if inverse is None else inverse.weights, again)
    drawn = pairs.draw(most_rows, seed=seed)

    def rank_popular(rows: IndexArray, columns: slice, n: int, omit: Omit) -> npt.NDArray[Any]:
        keys = np.tile(popularity[columns].astype(float), (len(rows), 1))
        omit(keys)
        return keys

    lists = _Lists(
        rankings={
            "model": (type(model).__name__, _rank_then(ranking_model, ranker, test, request)),
            "popularity": ("popularity", rank_popular),
        },
        seen=seen,
        popularity=popularity,
        n_rows=len(model.entries_.rows),
        n=int(n),
        min_entries=int(min_entries),
        candidates=candidates,
        seed=seed,
        predictor=ranking_model.predictor_,
        feature=feature,
        relevant=level,
        again=again,
    )
    every = slice(0, len(seen.columns))
    tallies = lists.tally(drawn, every)
    overall = lists.summarise(tallies, every)
    return RankingEvaluation(
        n=int(n),
        relevant=level,
        n_rows=drawn.rows.size,
        n_without=pairs.n_without,
        n_not_drawn=pairs.rows.size - drawn.rows.size,
        n_relevant=drawn.row_of.size,
        **overall,
        min_entries=int(min_entries),
        rank_by=ranker.rank_by,
        candidates=candidates,
        n_given=None if given is None else given.n_entries,
        areas=_score_areas(lists, drawn, overall),
        groups={} if by is None else _score_groups(lists, tallies, drawn, by),
        clipped=None if inverse is None else inverse.clipped,
        by_row=tallies["model"].by_row,
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


def _rank_then(model: Model, ranker: Ranker, test: ObservedMatrix, request: Request) -> Rank:
    """Return the keys of a model: of a row whose test entries have dates, at the time of the first one."""
    rankers, latest = model.rankers_, model.entries_.train.times
    if test.times is None or latest is None or (rankers.drift is None and rankers.recency is None):
        return lambda rows, columns, n, omit: ranker.rank_best(rows, columns, n, omit, None)
    dated, never = np.flatnonzero(test.times != NO_TIME), np.iinfo(np.int64).max
    first = np.full(len(model.entries_.rows), never)
    rows = model.entries_.rows.find(test.row_labels)[test.entry_rows[dated]]
    np.minimum.at(first, rows[rows >= 0], test.times[dated][rows >= 0])
    first[first == never] = latest.max()

    def rank(rows: IndexArray, columns: slice, n: int, omit: Omit) -> npt.NDArray[Any]:
        return model.make_ranker(replace(request, at=first[rows])).rank_best(rows, columns, n, omit, None)

    return rank


def choose_relevant(scale: Scale, mean: float) -> float:
    """Return the lowest level above a mean, or the highest level if none is above.

    >>> choose_relevant(Scale([1, 2, 3, 4, 5]), 3.6)
    4.0
    """
    if scale.levels is None:
        raise BadSetting(
            f"the scale {scale} has no levels, so the lowest relevant value must be given",
            hint=Hint("set relevant", "set --relevant"),
        )
    above = int(np.searchsorted(scale.levels, mean, side="right"))
    return float(scale.levels[min(above, scale.levels.size - 1)])


def fix_order(train: ObservedMatrix, options: OrderOptions) -> Order:
    """Return an order with the smallest relevant value, the given one or the default for the entries.

    Interactions have no values, and are all relevant (None).
    """
    order = Order(**options)
    order.check_scale(train.scale)
    if not train.has_values:
        return order
    relevant = choose_relevant(train.scale, train.mean) if order.relevant is None else float(order.relevant)
    return replace(order, relevant=relevant)


def check_candidates(candidates: Any) -> None:
    """Refuse a number of sampled candidates that is neither None nor a whole number of at least 1."""
    is_count = isinstance(candidates, int | np.integer) and not isinstance(candidates, bool)
    if candidates is not None and not (is_count and candidates >= 1):
        raise BadSetting(f"candidates must be a whole number of at least 1, or None for all; got {candidates!r}")


def _extend_by_given(model: Model, given: ObservedMatrix, unknown: Unknown) -> Model:
    """Return a model extended by the given entries of rows that it has never seen."""
    seen = model.entries_
    rows = np.flatnonzero(given.row_counts > 0)
    known = np.flatnonzero(seen.rows.find(given.row_labels[rows]) >= 0)
    if known.size:
        label = given.row_labels[rows].tolist()[known[0]]
        raise BadEntries(
            f"the model knows the row {label!r}; given takes rows that were held out whole, as split_rows does"
        )
    if unknown == "error":
        seen.columns.positions(given.column_labels[given.column_counts > 0])
    columns = np.flatnonzero(seen.columns.find(given.column_labels) >= 0)
    with ignore_empty_lines():
        return model.extend(given.take(rows, columns))


@dataclass(frozen=True)
class _Pairs:
    """Relevant pairs in increasing order of rows, then columns: (pairs,) positions.

    n_without: the number of test rows without a relevant pair. tested: the keys `row * n_columns + column` of all test
    entries that the model has not seen, relevant or not, sorted.
    """

    row_of: IndexArray
    column_of: IndexArray
    n_columns: int
    n_without: int
    tested: IndexArray
    weights: FloatArray | None = None

    @property
    def rows(self) -> IndexArray:
        return np.unique(self.row_of)

    def take(self, which: npt.NDArray[np.bool_]) -> _Pairs:
        weights = None if self.weights is None else self.weights[which]
        return replace(self, row_of=self.row_of[which], column_of=self.column_of[which], weights=weights)

    def draw(self, most_rows: int | None, *, seed: int) -> _Pairs:
        """Return the pairs of at most `most_rows` rows, drawn at random."""
        rows = self.rows
        if most_rows is None or rows.size <= most_rows:
            return self
        return self.take(np.isin(self.row_of, np.random.default_rng(seed).choice(rows, size=most_rows, replace=False)))


def _find_pairs(
    seen: EntryStore, test: ObservedMatrix, level: float | None, weights: FloatArray | None, again: bool
) -> _Pairs:
    row_of = seen.rows.find(test.row_labels)[test.entry_rows].astype(np.int64)
    column_of = seen.columns.find(test.column_labels)[test.by_row.columns].astype(np.int64)
    is_new = np.isnan(seen.values_at(row_of, column_of)) | again
    is_relevant = np.ones(row_of.size, dtype=bool) if level is None else test.values >= level
    is_good = is_new & is_relevant
    if not np.any(is_good):
        why = "the model has seen all test entries" if np.any(is_relevant) else "no test entry has a value"
        raise BadEntries(f"no row can be ranked: {why}{'' if level is None else f' of at least {level:g}'}")
    n_columns = len(seen.columns)
    keys = row_of * n_columns + column_of
    order = np.argsort(keys[is_good], kind="stable")
    rows, columns = np.divmod(keys[is_good][order], n_columns)
    n_without = np.unique(row_of).size - np.unique(rows).size
    own = None if weights is None else weights[is_good][order]
    return _Pairs(rows, columns, n_columns, int(n_without), np.sort(keys[is_new]), own)


def _score_areas(lists: _Lists, pairs: _Pairs, overall: dict[str, RankingScores]) -> dict[str, AreaRanking]:
    n_rows, n_trained = lists.seen.train.shape
    codes = compute_area_codes(pairs.row_of >= n_rows, pairs.column_of >= n_trained)
    areas = {}
    for code in np.unique(codes).tolist():
        own, columns = (
            pairs.take(codes == code),
            slice(n_trained, pairs.n_columns) if code >= 2 else slice(0, n_trained),
        )
        is_all = own.row_of.size == pairs.row_of.size and columns == slice(0, pairs.n_columns)
        scores = overall if is_all else lists.summarise(lists.tally(own, columns), columns)
        areas[AREAS[code]] = AreaRanking(AREAS[code], own.rows.size, own.row_of.size, **scores)
    return areas


def _score_groups(lists: _Lists, tallies: dict[str, _Tally], pairs: _Pairs, by: str) -> dict[str, AreaRanking]:
    """Return the scores of each group of rows, by a feature of rows with categories."""
    features = lists.seen.row_features
    first, encoding = next(
        (each for each in (() if features is None else features.encoding.locate_columns()) if each[1].name == by),
        (0, None),
    )
    if features is None or not isinstance(encoding, CategoryEncoding):
        raise BadSetting(
            f"there are no categories {by!r} of rows to group by",
            hint=Hint("fit the model with row_features", "fit it with --row-features"),
        )
    names, rows = ("other", "missing", *encoding.categories), pairs.rows
    own = features.take(rows).to_sparse()[:, first : first + encoding.n_inputs].toarray()
    group_of = np.where(own.any(axis=1), own.argmax(axis=1), 1)
    counts, every = np.bincount(np.searchsorted(rows, pairs.row_of)), slice(0, pairs.n_columns)
    return {
        f"{by} {names[group]}": AreaRanking(
            f"{by} {names[group]}",
            int(np.sum(group_of == group)),
            int(counts[group_of == group].sum()),
            **lists.summarise({name: tally.take(group_of == group) for name, tally in tallies.items()}, every),
        )
        for group in np.unique(group_of).tolist()
    }


@dataclass(frozen=True)
class _Lists:
    """Ranks columns by several rankings, and scores the first n of each row.

    rankings: the name and the keys of each ranking.
    popularity: the number of entries of each column, without those given for new rows, (columns,).
    n_rows: the number of rows that these entries come from.
    again: whether columns that a row has seen are ranked, too.
    """

    rankings: dict[str, tuple[str, Rank]]
    seen: EntryStore
    popularity: IndexArray
    n_rows: int
    n: int
    min_entries: int
    candidates: int | None
    seed: int
    predictor: Predictor
    feature: str | None
    relevant: float | None
    again: bool

    def tally(self, pairs: _Pairs, columns: slice) -> dict[str, _Tally]:
        """Return the lists of each ranking for the rows of some relevant pairs, among a range of columns.

        Rows are ranked in batches, so that memory does not grow with their number.
        """
        width = columns.stop - columns.start
        is_barred = self.popularity[columns] < self.min_entries
        tallies = {each: _Tally(self.n) for each in self.rankings}
        generator = np.random.default_rng([self.seed, columns.start])  # the same draws for every ranking
        for rows in batches(pairs.rows, width=width):
            batch = _Batch.of(self.seen, pairs, rows, columns)
            is_left_out = (batch.is_seen & (not self.again)) | is_barred
            if self.candidates is not None:
                is_left_out |= ~(batch.is_relevant | batch.draw(self.candidates, is_barred, generator))
            omit = partial(_leave_out, is_left_out)
            for each, (_, rank) in self.rankings.items():
                keys = rank(rows, columns, self.n, omit)
                tallies[each].add(rows, keys, batch.is_relevant, batch.gains)
        return tallies

    def summarise(self, tallies: dict[str, _Tally], columns: slice) -> dict[str, RankingScores]:
        """Return the scores of each ranking, whose lists are places in a range of columns."""
        return {
            each: tallies[each].summarise(name, self._measure_lists(tallies[each], columns))
            for each, (name, _) in self.rankings.items()
        }

    def _measure_lists(self, tally: _Tally, columns: slice) -> dict[str, Any]:
        """Return the metrics of the columns in all lists by name; none for sampled candidates."""
        places, popularity = tally.places, self.popularity[columns]
        listed = places[places >= 0]
        n_rankable = int(np.count_nonzero(popularity >= self.min_entries))
        if self.candidates is not None or listed.size == 0:
            return {}
        counts = np.bincount(listed, minlength=popularity.size)
        is_tail = find_tail(popularity)
        n_distinct = int(np.count_nonzero(counts))
        return {
            "n_distinct": n_distinct,
            "coverage": n_distinct / n_rankable,
            "novelty": float(counts @ self_information(popularity, self.n_rows) / listed.size),
            "gini": compute_gini(counts[popularity >= self.min_entries]),
            "tail_share": float(np.mean(is_tail[listed])),
            "mean_popularity": float(np.mean(popularity[listed]) / self.n_rows),
            "list_similarity": self._compare_columns(places, columns.start),
            "miscalibration": self._compare_shares(tally, columns.start),
        }

    def _compare_columns(self, places: IndexArray, first: int) -> float | None:
        """Return the mean cosine of two columns of a list; None where the model has no latents."""
        if self.predictor.columns.base.shape[1] <= self.predictor.n_beside or places.shape[1] < 2:
            return None
        distinct, which = np.unique(places, return_inverse=True)
        directions = self.predictor.directions(Latents(self.predictor.columns.take(np.maximum(distinct, 0) + first)))
        directions[distinct < 0] = 0.0
        which, filled = which.reshape(places.shape), (places >= 0).sum(axis=1)
        sums = np.zeros((len(places), directions.shape[1]))
        for at in range(places.shape[1]):
            sums += directions[which[:, at]]
        own = np.square(directions).sum(axis=1)[which].sum(axis=1)
        several = filled > 1
        pairs = filled[several] * (filled[several] - 1)
        return float(np.mean((np.square(sums).sum(axis=1) - own)[several] / pairs)) if several.any() else None

    def _compare_shares(self, tally: _Tally, first: int) -> float | None:
        """Return how far the shares of the feature in the lists are from those in the liked entries of the rows."""
        if self.feature is None:
            return None
        places = tally.places
        distinct, which = np.unique(np.maximum(places, 0), return_inverse=True)
        shares = find_shares(self.seen, distinct + first, self.feature)
        listed = (shares[which.reshape(places.shape)] * (places >= 0)[..., None]).sum(axis=1)
        liked = find_liked_shares(self.seen, self.seen.seen_columns(tally.rows), self.feature, self.relevant)
        counted = liked.any(axis=1)
        return float(measure_divergence(liked[counted], listed[counted]).mean()) if counted.any() else None


def _leave_out(which: npt.NDArray[np.bool_], keys: npt.NDArray[Any]) -> None:
    keys[which] = -np.inf


def find_tail(popularity: IndexArray) -> npt.NDArray[np.bool_]:
    """Return which columns are in the tail: the least popular ones, which have a fifth of the entries together.

    >>> find_tail(np.array([8, 1, 1])).tolist()
    [False, True, True]
    """
    order = np.argsort(popularity, kind="stable")
    is_tail = np.zeros(popularity.size, dtype=bool)
    is_tail[order] = np.cumsum(popularity[order]) <= _TAIL * popularity.sum()
    return is_tail


def compute_gini(counts: IndexArray) -> float:
    """Return the Gini coefficient of counts: 0 if all are equal, near 1 if one has everything.

    >>> compute_gini(np.array([2, 2, 2])), round(compute_gini(np.array([0, 0, 6])), 3)
    (0.0, 0.667)
    """
    rising = np.sort(counts).astype(np.float64)
    places = 2.0 * np.arange(1, rising.size + 1) - rising.size - 1.0
    return float(places @ rising / (rising.size * rising.sum()))


@dataclass(frozen=True)
class _Batch:
    """Masks over the cells of some rows and a range of columns, (rows, columns)."""

    is_seen: npt.NDArray[np.bool_]
    is_tested: npt.NDArray[np.bool_]
    is_relevant: npt.NDArray[np.bool_]
    gains: FloatArray | None = None  # of relevant cells, by their propensities

    @classmethod
    def of(cls, seen: EntryStore, pairs: _Pairs, rows: IndexArray, columns: slice) -> _Batch:
        """Return the masks of a batch; rows are increasing."""
        known = seen.seen_columns(rows)
        first, last = int(rows[0]), int(rows[-1]) + 1
        good = slice(*np.searchsorted(pairs.row_of, [first, last]))
        tested = slice(*np.searchsorted(pairs.tested, [first * pairs.n_columns, last * pairs.n_columns]))
        is_relevant, gains = _mark(rows, columns, pairs.row_of[good], pairs.column_of[good]), None
        if pairs.weights is not None:
            column_of = pairs.column_of[good]
            gains, inside = np.zeros(is_relevant.shape), (column_of >= columns.start) & (column_of < columns.stop)
            gains[is_relevant] = pairs.weights[good][inside]  # both in the order of rows, then columns
        return cls(
            _mark(rows, columns, np.repeat(rows, np.diff(known.starts)), known.others),
            _mark(rows, columns, *np.divmod(pairs.tested[tested], pairs.n_columns)),
            is_relevant,
            gains,
        )

    def draw(
        self, count: int, is_barred: npt.NDArray[np.bool_], generator: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Choose for each row `count` columns without an entry at random, or all if there are fewer."""
        is_free = ~(self.is_seen | self.is_tested | is_barred)
        if count >= is_free.shape[1]:
            return is_free
        draws = np.where(is_free, generator.random(is_free.shape), 1.0)
        is_chosen = np.zeros_like(is_free)
        np.put_along_axis(is_chosen, np.argpartition(draws, count - 1, axis=1)[:, :count], True, axis=1)
        return is_chosen & is_free


def _mark(rows: IndexArray, columns: slice, row_of: IndexArray, column_of: IndexArray) -> npt.NDArray[np.bool_]:
    """Return a mask (rows, columns) that is true at the pairs of these rows and columns."""
    lines, is_here = locate(rows, row_of)
    is_here &= (column_of >= columns.start) & (column_of < columns.stop)
    mask = np.zeros((rows.size, columns.stop - columns.start), dtype=bool)
    mask[lines[is_here], column_of[is_here] - columns.start] = True
    return mask


class _Tally:
    """The lists of one ranking so far, and their scores by row.

    places: (rows, n) in the range of columns; -1 where a row has fewer columns.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._parts: list[tuple[ListScores, IndexArray, IndexArray]] = []

    def add(
        self,
        rows: IndexArray,
        keys: npt.NDArray[Any],
        is_relevant: npt.NDArray[np.bool_],
        gains: FloatArray | None = None,
    ) -> None:
        """Add a batch of keys and a mask of the relevant columns, both (rows, columns); -inf is not ranked."""
        best = BestSoFar(len(keys), min(self.n, keys.shape[1]))
        best.add(keys, 0)
        is_filled = best.keys > -np.inf
        hits = np.take_along_axis(is_relevant, best.places, axis=1) & is_filled
        scores = score_lists(hits, is_relevant.sum(axis=1), n=self.n)
        if gains is not None:
            own = np.where(hits, np.take_along_axis(gains, best.places, axis=1), 0.0)
            ideal = -np.sort(-gains, axis=1)[:, : own.shape[1]]
            discounts = 1.0 / np.log2(np.arange(2, own.shape[1] + 2))
            scores = scores._replace(
                ndcg=own @ discounts / (ideal @ discounts), recall=own.sum(axis=1) / gains.sum(axis=1)
            )
        self._parts.append((scores, rows, np.where(is_filled, best.places, -1)))

    @cached_property
    def by_row(self) -> ListScores:
        """The scores of each row."""
        scores = (part[0] for part in self._parts)
        return ListScores(*(np.concatenate(each) for each in zip(*scores, strict=True)))

    @cached_property
    def rows(self) -> IndexArray:
        """The rows."""
        return np.concatenate([part[1] for part in self._parts])

    @cached_property
    def places(self) -> IndexArray:
        """The places of the columns of each list."""
        return np.concatenate([part[2] for part in self._parts])

    def take(self, which: npt.NDArray[np.bool_]) -> _Tally:
        """Return the lists of some rows."""
        taken = _Tally(self.n)
        taken._parts = [(ListScores(*(each[which] for each in self.by_row)), self.rows[which], self.places[which])]
        return taken

    def summarise(self, name: str, of_lists: dict[str, Any]) -> RankingScores:
        """Return the means over rows, with the metrics of all lists together."""
        by_row = self.by_row._asdict()
        means: dict[str, Any] = {metric: float(values.mean()) for metric, values in by_row.items()}
        margins = {metric: _compute_margin(values) for metric, values in by_row.items()}
        return RankingScores(name, **means, margins=margins, **of_lists)


def _compute_margin(numbers: FloatArray) -> float | None:
    """Return the standard error of a mean; None for a single number."""
    return float(np.std(numbers, ddof=1) / math.sqrt(numbers.size)) if numbers.size > 1 else None
