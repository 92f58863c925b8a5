"""Rankers: the keys by which `recommend` and the evaluation of rankings order the columns of each
row.

`Model.make_ranker(request)` returns a `Ranker`. Its `rank_block(rows, columns)` returns keys (rows,
columns); larger is better. A `Ranker` ranks by value, a `RelevanceRanker` by how likely a row is to
take a column and to like it:

    relevance = P(entry exists) * P(value >= relevant | entry exists)^w

`Presence` gives the first factor, the predictor of a model the second. A `NextRanker` has the
probability that a column comes next as the first factor.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np

from deepmf.errors import BadSetting, Hint
from deepmf.files import special
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import TimeArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.recommend.column_ridge import ColumnRidge
from deepmf.recommend.next_ridge import NextRidge
from deepmf.recommend.presence import Presence, Recency, share_rows
from deepmf.recommend.request import Order, RankBy
from deepmf.scoring.factors import Positions, list_positions
from deepmf.scoring.predictor import KnownProducts, Predictor

Observed = Callable[[IndexArray], AxisEntries]  # from positions of rows to their entries
Omit = Callable[[Array], None]  # gives the columns that are left out the key minus infinity

# With at least this share of cells observed, columns are ranked by value by default.
MOST_DENSE = 0.5

# Up to this share of candidates in a block, liking is computed for the candidates alone.
_FEW = 0.25

# Columns beyond the n likeliest entries whose relevance tells how likely a candidate has to be.
_SPARE = 40


@dataclass(eq=False)
class Relevance:
    """Both probabilities of some rows: that an entry exists, and that its value is at least the
    relevant one.

    Parameters
    ----------
    predictor, presence : the parts of a model.
    observed : maps positions of rows to their entries, over all columns.
    popularity : the share of the rows that have an entry in each column: (columns,), or (rows,
        columns) for the rows of one block.
    factors : popularity to its power.
    find_recent : returns the popularity that ranks the columns of rows without entries.
    relevant : the smallest value that counts as liked.
    following : scores what a row takes next; None in other orders.
    """

    predictor: Predictor
    presence: Presence
    observed: Observed
    popularity: LatentArray
    factors: LatentArray
    find_recent: Callable[[], LatentArray]
    relevant: float
    following: NextRidge | None = None
    # the rows that a thread encoded last
    _last: threading.local = field(default_factory=threading.local, init=False)
    _scores: Array | None = field(default=None, init=False)

    def with_known(self, predictor: Predictor, scores: Array | None) -> Relevance:
        """Return the probabilities of pairs that a predictor knows, and whose scores of presence
        may be known."""
        relevance = copy.copy(self)
        relevance.predictor, relevance._scores = predictor, scores
        return relevance

    @cached_property
    def empty_scores(self) -> LatentArray:
        """The scores of rows without entries: the recent popularity of columns."""
        recent = self.find_recent()
        return self.presence.add_popularity(recent, recent, self.presence.raise_popularity(recent))

    def score_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the scores (rows, columns) of presence, times powers of popularity."""
        encoded = self.encode_rows(rows)
        scores = np.array(encoded.presence[:, columns])
        scores = self.presence.add_popularity(
            scores, self.popularity[..., columns], self.factors[..., columns]
        )
        if encoded.are_empty.any():
            empty_scores = np.broadcast_to(self.empty_scores[..., columns], scores.shape)
            scores[encoded.are_empty] = empty_scores[encoded.are_empty]
        return scores

    def log_next(self, rows: IndexArray) -> Array:
        """Return the logarithms (rows, all columns) of the probabilities that a column comes next.

        That of a row without entries is the share of the column in recent popularity.
        """
        encoded, following = self.encode_rows(rows), self.following
        assert following is not None
        if encoded.log_next is None:
            keys = following.sharpness * following.score(
                encoded.entries, encoded.presence, self.popularity
            )
            keys[encoded.are_empty] = np.broadcast_to(np.log(self.find_recent()), keys.shape)[
                encoded.are_empty
            ]
            encoded.log_next = keys - special.logsumexp(keys, axis=1, keepdims=True)
        return encoded.log_next

    def log_liked_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the logarithms (rows, columns) of the probabilities that values are at least the
        relevant one."""
        thresholds = self.repeat_threshold(rows.size)
        return self.predictor.log_exceed_block(
            rows, columns, thresholds, spread=self.presence.spread
        )

    def log_liked_pairs(self, rows: IndexArray, lines: IndexArray, columns: IndexArray) -> Array:
        """Return `log_liked_block` for pairs (pairs,) of a place in `rows` and a column."""
        if rows.size == 1:
            return self.log_liked_block(rows, columns).reshape(-1)
        log_liked = self.predictor.log_exceed_pairs(
            rows[lines],
            columns[:, None],
            self.repeat_threshold(lines.size),
            spread=self.presence.spread,
        )
        return log_liked.reshape(-1)

    def repeat_threshold(self, n_rows: int) -> FloatArray:
        """Return the smallest value that counts as liked for each of some rows, (rows,)."""
        return np.full(n_rows, self.relevant)

    def read_presence(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the probabilities that entries exist in the columns (rows, n) of each row."""
        encoded, scores = self.encode_rows(rows), self._scores
        if scores is None:
            scores = np.take_along_axis(encoded.presence, columns, axis=1)
            scores = self.presence.add_popularity(
                scores, self.popularity[columns], self.factors[columns]
            )
            if encoded.are_empty.any():
                scores[encoded.are_empty] = self.empty_scores[columns[encoded.are_empty]]
        offsets = self.find_offsets(rows)[:, None]
        return np.exp(self.presence.log_probabilities(scores, offsets)).astype(np.float64)

    def find_offsets(self, rows: IndexArray) -> LatentArray:
        """Return the offsets (rows,) of the log-odds of presence, by the number of entries."""
        return self.presence.find_offsets(np.diff(self.encode_rows(rows).entries.starts))

    def encode_rows(self, rows: IndexArray) -> EncodedRows:
        """Return the inputs of the probabilities of some rows; those of the last rows are
        cached."""
        last: tuple[IndexArray, EncodedRows] | None = getattr(self._last, "encoded", None)
        if last is not None and np.array_equal(last[0], rows):
            return last[1]
        entries, model = self.observed(rows), self.presence.model
        encoded = EncodedRows(model, entries)
        self._last.encoded = rows, encoded
        return encoded


@dataclass
class EncodedRows:
    """Inputs of the probabilities of some rows with these entries."""

    model: ColumnRidge
    entries: AxisEntries
    log_next: Array | None = None  # (rows, columns), once it is asked for

    @cached_property
    def trained_entries(self) -> AxisEntries:
        """Entries in the trained columns."""
        return self.entries.below(self.model.n_trained)

    @cached_property
    def implied_entries(self) -> AxisEntries:
        """Entries over the trained columns, also those that new columns imply."""
        return self.model.translate(self.entries)

    @property
    def are_empty(self) -> BoolArray:
        """Which rows have no entries in trained columns: popularity ranks better than what new
        columns alone say."""
        return np.asarray(np.diff(self.trained_entries.starts) == 0)

    @cached_property
    def presence(self) -> Array:
        """The scores (rows, columns) of the column ridge."""
        return self.model.score(self.implied_entries)


class RankedRows(NamedTuple):
    """The best columns of some rows by position, (rows, n), and what the model tells of them; None
    where it cannot.

    values: as in `Ranking`; NaN where a row has fewer columns.
    presence: the probabilities that an entry exists.
    liked: that its value is then at least the relevant one.
    distribution: of each level, (rows, n, levels).
    """

    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    presence: FloatArray | None = None
    liked: FloatArray | None = None
    distribution: FloatArray | None = None


@dataclass(frozen=True)
class Ranker:
    """Ranks columns by expected value; with a `Relevance`, it also tells the probabilities of
    relevance.

    learned: tells the probabilities that entries exist where the order is by others.
    """

    predictor: Predictor
    relevance: Relevance | None = None
    learned: Relevance | None = None

    rank_by: ClassVar[RankBy] = "value"

    def rank_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return keys (rows, columns) by which the columns of each row are ranked; larger is
        better."""
        return self.predictor.rank_block(rows, columns)

    def rank_best(self, rows: IndexArray, columns: Positions, n: int, omit: Omit) -> Array:
        """Return keys (rows, columns), minus infinity for omitted columns; only the n best of each
        row matter."""
        keys = self.rank_block(rows, columns)
        omit(keys)
        return keys

    @property
    def has_values(self) -> bool:
        """Whether entries have values; if not, the value of a column is the probability by which it
        is ranked."""
        return not self.predictor.readout.scale.is_interactions

    @property
    def allows_repeats(self) -> bool:
        """Whether columns in which a row has an entry are recommended by default."""
        return False

    def with_known(self, products: Array, scores: Array | None = None) -> Self:
        """Return a ranker that reads columns (rows, n) of each row whose products, and scores of
        presence, are known.

        It belongs to a predictor that reads everything from products of latents.
        """
        predictor = KnownProducts(**vars(self.predictor), known=products)
        relevance = None if self.relevance is None else self.relevance.with_known(predictor, scores)
        return replace(self, predictor=predictor, relevance=relevance)

    @property
    def known_chances(self) -> dict[str, bool]:
        """Whether the model has the probabilities of `RankedRows`, by name."""
        return {
            "presence": self.relevance is not None,
            "liked": self.relevance is not None and self.has_values,
            "distribution": self.has_values and self.predictor.readout.gives_distribution,
        }

    def read(self, rows: IndexArray, columns: IndexArray, keys: Array) -> RankedRows:
        """Return predictions and probabilities of the columns (rows, n) of each row, which have
        these keys."""
        if not self.has_values:
            presence = self._read_presence(rows, columns, keys)
            return RankedRows(rows, columns, presence, presence)
        relevance, shape, readout = self.relevance, columns.shape, self.predictor.readout
        values = self.predictor.predict_lines(
            rows, columns, keys if self.rank_by == "value" else None
        )
        distribution = predicted = None
        pairs = np.repeat(rows, shape[1]), columns.ravel()
        if readout.gives_distribution:
            predicted = self.predictor.distribution(*pairs)
            distribution = predicted.probabilities.reshape(*shape, predicted.support.size)
        if relevance is None:
            return RankedRows(rows, columns, values, distribution=distribution)
        presence = self._read_presence(rows, columns, keys)
        chosen = self.predictor.as_chosen
        ends = chosen.readout.lower_ends(relevance.repeat_threshold(columns.size))
        if predicted is None:
            margins = chosen.predict_units(*pairs) - ends
            liked = special.ndtr(margins / relevance.presence.spread)
        else:
            judged = predicted if chosen is self.predictor else chosen.distribution(*pairs)
            liked = judged.exceed(ends)
        return RankedRows(rows, columns, values, presence, liked.reshape(shape), distribution)

    def _read_presence(self, rows: IndexArray, columns: IndexArray, keys: Array) -> FloatArray:
        """Return the probabilities that entries exist in the columns (rows, n) of each row."""
        relevance = self.learned or self.relevance
        assert relevance is not None
        return relevance.read_presence(rows, columns)


class RelevanceRanker(Ranker):
    """Ranks columns by relevance; keys are its logarithms.

    The probability of liking does not move with time here: rankings of held-out entries are no
    better for it.
    """

    relevance: Relevance

    rank_by: ClassVar[RankBy] = "relevance"

    def rank_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the logarithms (rows, columns) of relevance."""
        relevance, presence = self.relevance, self.relevance.presence
        offsets = relevance.find_offsets(rows)[:, None]
        keys: Array = presence.log_probabilities(relevance.score_block(rows, columns), offsets)
        if presence.liking_weight:
            keys = keys + presence.liking_weight * relevance.log_liked_block(rows, columns)
        return keys

    def rank_best(self, rows: IndexArray, columns: Positions, n: int, omit: Omit) -> Array:
        """Return the logarithms of relevance, minus infinity for omitted columns and for most that
        cannot be best.

        Relevance is at most the probability that an entry exists, so columns with too small a score
        are skipped.
        """
        scores, n_likely = self.relevance.score_block(rows, columns), n + _SPARE
        omit(scores)
        if n_likely >= _FEW * scores.shape[1]:
            return super().rank_best(rows, columns, n, omit)
        lines = np.repeat(np.arange(rows.size), n_likely)
        likely = np.argpartition(-scores, n_likely - 1, axis=1)[:, :n_likely]
        likely_keys = self._rank_pairs(scores, rows, columns, lines, likely.ravel()).reshape(
            likely.shape
        )
        floor = np.partition(likely_keys, _SPARE, axis=1)[:, _SPARE]
        # A little below the floor: single precision must not skip a column that reaches it.
        least = self.relevance.presence.score_of(
            np.minimum(floor * (1 + 1e-4) - 1e-4, -1e-6), self.relevance.find_offsets(rows)
        ).astype(scores.dtype)
        above = scores > least[:, None]
        if np.count_nonzero(above) > _FEW * above.size:
            return super().rank_best(rows, columns, n, omit)
        lines, places = np.nonzero(above)
        keys = np.full(scores.shape, -np.inf)
        keys[lines, places] = self._rank_pairs(scores, rows, columns, lines, places)
        return keys

    def _rank_pairs(
        self,
        scores: Array,
        rows: IndexArray,
        columns: Positions,
        lines: IndexArray,
        places: IndexArray,
    ) -> Array:
        """Return the logarithms of relevance of some pairs (pairs,) of a block with these
        scores."""
        relevance, presence = self.relevance, self.relevance.presence
        offsets = relevance.find_offsets(rows)[lines]
        with np.errstate(divide="ignore"):  # omitted columns have a score of minus infinity
            keys: Array = presence.log_probabilities(scores[lines, places], offsets)
        if presence.liking_weight:
            liked = relevance.log_liked_pairs(rows, lines, list_positions(columns)[places])
            keys = keys + presence.liking_weight * liked
        return keys


class NextRanker(Ranker):
    """Ranks columns by the probability that they come next, and that they are liked."""

    relevance: Relevance

    rank_by: ClassVar[RankBy] = "next"

    @property
    def following(self) -> NextRidge:
        """What scores the next columns of a row."""
        assert self.relevance.following is not None
        return self.relevance.following

    @property
    def allows_repeats(self) -> bool:
        """Whether columns in which a row has an entry are recommended by default: where rows take
        columns again."""
        return self.following.allows_repeats

    def rank_block(self, rows: IndexArray, columns: Positions) -> Array:
        """Return the logarithms (rows, columns) of both probabilities."""
        keys = self.relevance.log_next(rows)[:, columns]
        if self.following.liking_weight:
            return keys + self.following.liking_weight * self.relevance.log_liked_block(
                rows, columns
            )
        return keys.copy() if isinstance(columns, slice) else keys

    def _read_presence(self, rows: IndexArray, columns: IndexArray, keys: Array) -> FloatArray:
        """Return the probabilities that the columns (rows, n) of each row come next, which are
        parts of the keys."""
        log_next = keys.astype(np.float64)
        if self.following.liking_weight:
            lines = np.repeat(np.arange(rows.size), columns.shape[1])
            log_liked = self.relevance.log_liked_pairs(rows, lines, columns.ravel())
            log_next -= self.following.liking_weight * log_liked.reshape(columns.shape)
        return np.exp(log_next)


_RANKERS: dict[RankBy, type[Ranker]] = {
    each.rank_by: each for each in (Ranker, RelevanceRanker, NextRanker)
}


@dataclass(eq=False)
class Rankers:
    """Makes the rankers of a fitted model.

    entries: the entries that the model knows.
    presence: its presence part; None if it has none.
    rank_by: the order in which it ranks columns by default.
    recency: how popularity depends on the ages of entries; None if it does not.
    following: what a row takes next, by the order of its entries; None if these have none.
    """

    entries: EntryStore
    presence: Presence | None
    rank_by: RankBy
    recency: Recency | None = None
    following: NextRidge | None = None

    def make(
        self,
        predictor: Predictor,
        observed: Observed,
        order: Order,
        at: int | TimeArray | None = None,
    ) -> Ranker:
        """Return the ranker of a predictor's rows, whose entries `observed` returns.

        at: the time of predictions, and of the popularity of columns; None: that of the latest
            entry. An array has a time for each row, and makes a ranker of one block of these rows.
        """
        are_interactions, predictor = self.entries.scale.is_interactions, predictor.at(at)
        order.check_scale(self.entries.scale)
        rank_by = order.rank_by or self.rank_by
        rank_by = "relevance" if are_interactions and rank_by == "value" else rank_by
        if rank_by == "next" and self.following is None:
            raise BadSetting(
                "this model has not learned what comes next: the entries of a fit need times or an order",
                hint=Hint("ObservedMatrix.from_sequences has one", "--time names their column"),
            )
        order = replace(order, rank_by=rank_by)  # which is checked with the other options
        if self.presence is None:
            if rank_by == "relevance":
                raise BadSetting(
                    "this model has no presence part, so it cannot rank by relevance",
                    hint=Hint(
                        "fit it with presence='auto', or rank_by='value'",
                        "fit it again, or set --rank-by value",
                    ),
                )
            return Ranker(predictor)
        if order.popularity != 1:
            plain = replace(order, popularity=1.0)
            # of an entry's column
            usual = float(np.average(self.popularity, weights=self.popularity))
            presence = self.presence.scale_popularity(order.popularity, usual)
            scaled = Rankers(
                self.entries, presence, rank_by, self.recency, following=self.following
            )
            learned = self.make(predictor, observed, plain, at).relevance
            return replace(scaled.make(predictor, observed, plain, at), learned=learned)
        popularity, factors = self.popularity, self.factors
        if at is not None and self.recency is not None and self.recency.blends:
            popularity = self.find_recent(at)
            factors = self._raise_popularity(popularity)
        find_recent = functools.partial(self.find_recent, at)
        relevance = Relevance(
            predictor,
            self.presence,
            observed,
            popularity,
            factors,
            find_recent,
            find_relevant(self.entries.train, order.relevant) or 0.0,
            self.following,
        )
        return _RANKERS[rank_by](predictor, relevance)

    @cached_property
    def popularity(self) -> LatentArray:
        """The share of the rows that have an entry in each column, of recent entries where these
        blend with scores."""
        blends = self.recency is not None and self.recency.blends
        return self.find_recent() if blends else self._share_rows(self.entries.column_totals)

    @cached_property
    def factors(self) -> LatentArray:
        """The popularity of all columns to its power."""
        return self._raise_popularity(self.popularity)

    def _raise_popularity(self, recent: LatentArray) -> LatentArray:
        """Return the popularity of all columns to its power.

        A negative power corrects for the presence model, which favours columns with many entries of
        any age.
        """
        assert self.presence is not None
        if self.recency is not None and self.presence.popularity_power < 0:
            recent = self._share_rows(self.entries.column_totals)
        return self.presence.raise_popularity(recent)

    def find_recent(self, at: int | TimeArray | None = None) -> LatentArray:
        """Return the popularity of all columns at a time, (columns,), or at several, (times,
        columns)."""
        counts = (
            self.entries.column_totals
            if self.recency is None
            else self.recency.count_entries(self.entries, at)
        )
        return self._share_rows(counts)

    def _share_rows(self, counts: Array) -> LatentArray:
        """Return numbers of entries as shares of as many rows as would have them if rows were as
        long as in training: many arrivals with few entries make no column less popular."""
        n_rows, n_columns = self.entries.train.shape
        total = counts[..., :n_columns].sum(axis=-1, keepdims=True)
        return share_rows(counts, n_rows * total / self._trained_total)

    @cached_property
    def _trained_total(self) -> float:
        """The total weight of the training entries."""
        train = self.entries.train
        if train.weights is None:
            return train.n_entries
        return float(train.weights.sum(dtype=np.float64))


def choose_order(train: ObservedMatrix) -> RankBy:
    """Return the order that suits a matrix: relevance where few cells have an entry, otherwise
    value.

    Where most cells have an entry, as in a survey or a table of measurements, rows did not choose
    their entries.
    """
    if not train.has_values:
        return "relevance"
    return (
        "relevance" if train.n_entries < MOST_DENSE * train.shape[0] * train.shape[1] else "value"
    )


def find_relevant(train: ObservedMatrix, relevant: float | None = None) -> float | None:
    """Return the smallest value that counts as liked: the one that is asked for, or the default.

    By default, that is the lowest level above the mean of the entries, or the highest level if none
    is above; on a scale without levels, the mean. All interactions are liked: None.

    >>> find_relevant(ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1]))
    5.0
    """
    if not train.has_values:
        return None
    if relevant is not None:
        return float(relevant)
    levels = train.scale.levels
    if levels is None:
        return train.mean
    above = int(np.searchsorted(levels, train.mean, side="right"))
    return float(levels[min(above, levels.size - 1)])
