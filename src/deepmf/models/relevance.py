"""Relevance: how likely a row is to take a column and to like it, and the rankers of `recommend` and the evaluation.

    relevance = P(entry exists) * P(value >= relevant | entry exists)^w

`Presence` gives the first factor, the predictor of a model the second. `Model.make_ranker(rank_by, relevant)` returns
a `Ranker`. Its `rank_block(rows, columns)` returns keys (rows, columns) by which the columns of each row are ranked;
larger is better. `recommend` and the evaluation of rankings use the same rankers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from deepmf.errors import BadSetting, Hint
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.drift import Drift, DriftAt
from deepmf.models.predictor import LEAST_PROBABILITY, KnownProducts, Positions, Predictor
from deepmf.models.presence import Presence
from deepmf.models.presence_model import PresenceModel
from deepmf.models.recency import Recency

RankBy = Literal["relevance", "value"]
RANK_BY: tuple[RankBy, ...] = ("relevance", "value")

Observed = Callable[[IndexArray], AxisEntries]  # from positions of rows to their entries
Omit = Callable[[npt.NDArray[Any]], None]  # gives the columns that are left out the key minus infinity

# With at least this share of cells observed, columns are ranked by value by default.
MOST_DENSE = 0.5

# Up to this share of candidates in a block, liking is computed for the candidates alone.
_FEW = 0.25

# Columns beyond the n likeliest entries whose relevance tells how likely a candidate has to be.
_SPARE = 40


class Chances(NamedTuple):
    """Probabilities of the columns (rows, n) of each row; None where a model does not have them.

    presence: that an entry exists.
    liked: that its value is then at least the relevant one.
    distribution: of each level, (rows, n, levels).
    """

    presence: FloatArray | None
    liked: FloatArray | None
    distribution: FloatArray | None


@dataclass(frozen=True)
class Ranker:
    """Ranks columns by expected value; with a `Relevance`, it also tells the probabilities of relevance.

    drift: moves values and distributions to a time.
    """

    predictor: Predictor
    relevance: Relevance | None = None
    drift: DriftAt | None = None

    def rank_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return keys (rows, columns) by which the columns of each row are ranked; larger is better."""
        if self.drift is None:
            return self.predictor.rank_block(rows, columns)
        values = self.predictor.readout.units(self.predictor.score_block(rows, columns))
        return self.drift.move_block(values, rows, _list_positions(columns), clips=False)

    def copy(self) -> Self:
        """Return a ranker that another thread may use at the same time."""
        return replace(self, relevance=copy.copy(self.relevance))

    @property
    def ranks_by_products(self) -> bool:
        """Whether keys are products of latents."""
        return self.drift is None and self.predictor.keys_are_products

    def with_known(self, products: npt.NDArray[Any], scores: npt.NDArray[Any] | None = None) -> Self:
        """Return a ranker that reads columns (rows, n) of each row whose products, and scores of presence, are known.

        It belongs to a predictor that reads everything from products of latents.
        """
        predictor = KnownProducts.of(self.predictor, products)
        relevance = None if self.relevance is None else self.relevance.with_known(predictor, scores)
        return replace(self, predictor=predictor, relevance=relevance)

    def rank_best(
        self, rows: IndexArray, columns: Positions, n: int, omit: Omit, floor: FloatArray | None
    ) -> npt.NDArray[Any]:
        """Return keys (rows, columns), minus infinity for omitted columns; only the n best of each row matter.

        floor: for each row, a key (rows,) up to which keys do not matter; None if there is none yet.
        """
        keys = self.rank_block(rows, columns)
        omit(keys)
        return keys

    def read_values(self, rows: IndexArray, columns: IndexArray, keys: npt.NDArray[Any]) -> FloatArray:
        """Return the predictions for the columns (rows, n) of each row, which have these keys."""
        if self.drift is not None:
            return self._predict(rows, columns)
        return self.predictor.readout.values(self.predictor.scores_of_keys(rows, keys))

    def _predict(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        pairs = np.repeat(rows, columns.shape[1]), columns.ravel()
        values = self.predictor.predict(*pairs)
        return (values if self.drift is None else self.drift.move_pairs(values, *pairs)).reshape(columns.shape)

    @property
    def known_chances(self) -> dict[str, bool]:
        """Whether the model has the probabilities of `Chances`, by name."""
        has_relevance = self.relevance is not None
        return {
            "presence": has_relevance,
            "liked": has_relevance,
            "distribution": self.predictor.readout.gives_distribution,
        }

    def read_chances(self, rows: IndexArray, columns: IndexArray, keys: npt.NDArray[Any]) -> Chances:
        """Return the probabilities of the columns (rows, n) of each row, which have these keys."""
        relevance, shape = self.relevance, columns.shape
        distribution = None
        if self.predictor.readout.gives_distribution:
            pairs = np.repeat(rows, shape[1]), columns.ravel()
            predicted = self.predictor.distribution(*pairs)
            if self.drift is not None:
                predicted = self.drift.shift(predicted, self.predictor.predict(*pairs), *pairs)
            distribution = predicted.probabilities.reshape(*shape, predicted.support.size)
        if relevance is None:
            return Chances(None, None, distribution)
        lines = np.repeat(np.arange(rows.size), shape[1])
        log_liked = relevance.log_liked_pairs(rows, lines, columns.ravel()).reshape(shape).astype(np.float64)
        return Chances(self._read_presence(rows, columns, keys, log_liked), np.exp(log_liked), distribution)

    def _read_presence(
        self, rows: IndexArray, columns: IndexArray, keys: npt.NDArray[Any], log_liked: FloatArray
    ) -> FloatArray:
        """Return the probabilities that entries exist in the columns (rows, n) of each row."""
        assert self.relevance is not None
        return self.relevance.read_presence(rows, columns)


class RelevanceRanker(Ranker):
    """Ranks columns by relevance; keys are its logarithms."""

    relevance: Relevance

    @property
    def ranks_by_products(self) -> bool:
        """Whether keys are products of latents; always False."""
        return False

    def rank_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return the logarithms (rows, columns) of relevance."""
        relevance, presence = self.relevance, self.relevance.presence
        keys: npt.NDArray[Any] = presence.log_probabilities(relevance.score_block(rows, columns))
        if presence.liking_weight:
            keys = keys + presence.liking_weight * relevance.log_liked_block(rows, columns)
        return keys

    def rank_best(
        self, rows: IndexArray, columns: Positions, n: int, omit: Omit, floor: FloatArray | None
    ) -> npt.NDArray[Any]:
        """Return the logarithms of relevance, minus infinity for omitted columns and for most that cannot be best.

        Relevance is at most the probability that an entry exists, so columns with too small a score are skipped.
        """
        scores = self.relevance.score_block(rows, columns)
        omit(scores)
        width, n_likely = scores.shape[1], n + _SPARE
        if n_likely >= _FEW * width:
            return super().rank_best(rows, columns, n, omit, floor)
        lines = np.repeat(np.arange(rows.size), n_likely)
        likely = found = None
        if floor is None:
            likely = np.argpartition(scores, width - n_likely, axis=1)[:, width - n_likely :].copy()
            found = self._rank_pairs(scores, rows, columns, lines, likely.ravel())
            floor = np.partition(found.reshape(likely.shape), _SPARE, axis=1)[:, _SPARE]
        # A little below the floor: single precision must not skip a column that reaches it.
        least = self.relevance.presence.score_of(np.minimum(floor * (1 + 1e-4) - 1e-4, -1e-6)).astype(scores.dtype)
        if likely is not None and np.all(np.take_along_axis(scores, likely[:, :1], axis=1)[:, 0] <= least):
            places = likely.ravel()  # no other column is likely enough
        else:
            above = scores > least[:, None]
            if np.count_nonzero(above) > _FEW * above.size:
                return super().rank_best(rows, columns, n, omit, floor)
            lines, places = np.nonzero(above)
            found = self._rank_pairs(scores, rows, columns, lines, places)
        keys = np.full(scores.shape, -np.inf)
        keys[lines, places] = found
        return keys

    def read_values(self, rows: IndexArray, columns: IndexArray, keys: npt.NDArray[Any]) -> FloatArray:
        """Return the predictions for the columns (rows, n) of each row."""
        return self._predict(rows, columns)

    def _read_presence(
        self, rows: IndexArray, columns: IndexArray, keys: npt.NDArray[Any], log_liked: FloatArray
    ) -> FloatArray:
        """Return the probabilities that entries exist, which are parts of the keys."""
        return np.exp(keys - self.relevance.presence.liking_weight * log_liked)

    def _rank_pairs(
        self, scores: npt.NDArray[Any], rows: IndexArray, columns: Positions, lines: IndexArray, places: IndexArray
    ) -> npt.NDArray[Any]:
        """Return the logarithms of relevance of some pairs (pairs,) of a block with these scores."""
        relevance, presence = self.relevance, self.relevance.presence
        with np.errstate(divide="ignore"):  # omitted columns have a score of minus infinity
            keys: npt.NDArray[Any] = presence.log_probabilities(scores[lines, places])
        if presence.liking_weight:
            keys = keys + presence.liking_weight * relevance.log_liked_pairs(rows, lines, _take(columns, places))
        return keys


class InteractionRanker(RelevanceRanker):
    """Ranks columns by the probability that an interaction exists, which is also their value."""

    def read_values(self, rows: IndexArray, columns: IndexArray, keys: npt.NDArray[Any]) -> FloatArray:
        """Return the probabilities of the columns (rows, n) of each row."""
        return np.exp(keys.astype(np.float64))

    @property
    def known_chances(self) -> dict[str, bool]:
        """Whether the model has the probabilities of `Chances`, by name."""
        return {"presence": True, "liked": False, "distribution": False}

    def read_chances(self, rows: IndexArray, columns: IndexArray, keys: npt.NDArray[Any]) -> Chances:
        """Return the probabilities of presence."""
        return Chances(np.exp(keys.astype(np.float64)), None, None)


class Relevance:
    """Both probabilities of some rows: that an entry exists, and that its value is at least the relevant one.

    Parameters
    ----------
    predictor, presence : the parts of a model.
    observed : maps positions of rows to their entries, over all columns.
    popularity : the share of the rows that have an entry in each column.
    factors : popularity to its power.
    relevant : the smallest value that counts as liked; None: the mean of each row, rounded up to a level.
    mean : the mean of all entries, for rows without entries.
    drift : moves values to a time; None if they do not depend on it.
    """

    def __init__(
        self,
        predictor: Predictor,
        presence: Presence,
        observed: Observed,
        popularity: LatentArray,
        factors: LatentArray,
        relevant: float | None,
        mean: float,
        drift: DriftAt | None = None,
    ) -> None:
        self.predictor, self.presence, self.relevant, self.drift = predictor, presence, relevant, drift
        self.popularity, self.factors = popularity, factors
        self._observed, self._mean = observed, mean
        self._last: tuple[IndexArray, DescribedRows] | None = None
        self._scores: npt.NDArray[Any] | None = None

    def with_known(self, predictor: Predictor, scores: npt.NDArray[Any] | None) -> Relevance:
        """Return the probabilities of pairs that a predictor knows, and whose scores of presence may be known."""
        known = copy.copy(self)
        known.predictor, known._scores = predictor, scores
        return known

    def score_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return the scores (rows, columns) of presence, times powers of popularity."""
        described = self.describe(rows)
        scores = self.presence.model.score_block(described.presence, columns)
        if described.are_empty.any():
            scores[described.are_empty] = self.popularity[columns]
        return self.presence.add_popularity(scores, self.popularity[columns], self.factors[columns])

    def log_liked_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return the logarithms (rows, columns) of the probabilities that values are at least the relevant one."""
        thresholds = self.describe(rows).thresholds
        if self.drift is None:
            return self.predictor.log_exceed_block(rows, columns, thresholds, spread=self.presence.spread)
        places = _list_positions(columns)
        pairs = np.repeat(rows, places.size), np.tile(places, rows.size)
        return self._log_liked_then(*pairs, np.repeat(thresholds, places.size)).reshape(rows.size, places.size)

    def log_liked_pairs(self, rows: IndexArray, lines: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return `log_liked_block` for pairs (pairs,) of a place in `rows` and a column."""
        if rows.size == 1:
            return self.log_liked_block(rows, columns).reshape(-1)
        thresholds, spread = self.describe(rows).thresholds[lines], self.presence.spread
        if self.drift is not None:
            return self._log_liked_then(rows[lines], columns, thresholds)
        found = self.predictor.log_exceed_pairs(rows[lines], columns[:, None], thresholds, spread=spread)
        return found.reshape(-1)

    def _log_liked_then(self, rows: IndexArray, columns: IndexArray, thresholds: FloatArray) -> npt.NDArray[Any]:
        """Return the same for pairs of positions with thresholds of their own, at the time of the drift."""
        assert self.drift is not None
        predictor, ends = self.predictor, self.predictor.readout.lower_ends(thresholds)
        if predictor.readout.gives_distribution:
            predicted = predictor.distribution(rows, columns)
            moved = self.drift.shift(predicted, predictor.predict(rows, columns), rows, columns)
            return np.log(np.maximum(moved.exceed(ends), LEAST_PROBABILITY))
        values = predictor.readout.units(predictor.score_pairs(rows, columns))
        moved_values = self.drift.move_pairs(values, rows, columns, clips=False)
        return np.asarray(log_ndtr((moved_values - ends) / self.presence.spread))

    def read_presence(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the probabilities that entries exist in the columns (rows, n) of each row."""
        scores = self._score_pairs(rows, columns) if self._scores is None else self._scores
        found: FloatArray = np.exp(self.presence.log_probabilities(scores)).astype(np.float64)
        return found

    def _score_pairs(self, rows: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return the scores of presence for the columns (rows, n) of each row, times powers of popularity."""
        described = self.describe(rows)
        scores = self.presence.model.score_pairs(described.presence, columns)
        scores[described.are_empty] = self.popularity[columns[described.are_empty]]
        return self.presence.add_popularity(scores, self.popularity[columns], self.factors[columns])

    def describe(self, rows: IndexArray) -> DescribedRows:
        """Return what the probabilities of some rows are computed from; that of the last rows is kept."""
        last = self._last
        if last is not None and np.array_equal(last[0], rows):
            return last[1]
        entries, model = self._observed(rows), self.presence.model
        described = DescribedRows(model, entries.below(model.n_trained), self._find_thresholds(entries))
        self._last = rows, described
        return described

    def _find_thresholds(self, entries: AxisEntries) -> FloatArray:
        """Return the smallest liked value of each row."""
        counts = np.diff(entries.starts)
        if self.relevant is not None:
            return np.full(counts.size, float(self.relevant))
        return find_thresholds(entries, self.predictor.readout.scale, self._mean)


class Rankers:
    """Makes the rankers of a fitted model.

    entries: the entries that the model knows.
    presence: its presence part; None if it has none.
    rank_by: the order in which it ranks columns by default.
    recency: how popularity depends on the ages of entries; None if it does not.
    drift: how predictions depend on time; None if they do not.
    """

    def __init__(
        self,
        entries: EntryStore,
        presence: Presence | None,
        rank_by: RankBy,
        recency: Recency | None = None,
        drift: Drift | None = None,
    ) -> None:
        self.entries, self.presence, self.rank_by = entries, presence, rank_by
        self.recency, self.drift = recency, drift

    def make(
        self,
        predictor: Predictor,
        observed: Observed,
        rank_by: RankBy | None,
        relevant: float | None,
        at: int | None = None,
        drift: DriftAt | None = None,
    ) -> Ranker:
        """Return the ranker of a predictor's rows, whose entries `observed` returns; None is the default order.

        at: the time for which columns are ranked, by their popularity then; None: the time of the latest entry.
        drift: moves values to this time.
        """
        are_interactions = self.entries.scale.is_interactions
        if rank_by is None:
            rank_by = "relevance" if are_interactions else self.rank_by
        check_rank_by(rank_by)
        check_relevant(relevant, self.entries.scale)
        if are_interactions and rank_by == "value":
            raise BadSetting("interactions have no values to rank by; leave out rank_by")
        if self.presence is None:
            if rank_by == "relevance":
                raise BadSetting(
                    "this model has no presence part, so it cannot rank by relevance",
                    hint=Hint(
                        "fit it with presence='auto', or rank_by='value'", "fit it again, or set --rank-by value"
                    ),
                )
            return Ranker(predictor, drift=drift)
        mean = self.entries.train.mean
        popularity, factors = self.popularity, self.factors
        if at is not None and self.recency is not None:
            popularity = self._find_popularity(at)
            factors = self._raise_popularity(popularity)
        relevance = Relevance(predictor, self.presence, observed, popularity, factors, relevant, mean, drift)
        if are_interactions:
            return InteractionRanker(predictor, relevance)
        return (RelevanceRanker if rank_by == "relevance" else Ranker)(predictor, relevance, drift)

    @cached_property
    def popularity(self) -> LatentArray:
        """The share of the rows that have an entry in each column; unknown entries add half an entry."""
        return self._find_popularity(None)

    @cached_property
    def factors(self) -> LatentArray:
        """The popularity of all columns to its power."""
        return self._raise_popularity(self.popularity)

    def _raise_popularity(self, recent: LatentArray) -> LatentArray:
        """Return the popularity of all columns to its power.

        A negative power takes back what the presence model adds to columns with many entries, whatever their age.
        """
        assert self.presence is not None
        if self.recency is not None and self.presence.popularity_power < 0:
            recent = self._share_rows(self.entries.column_totals)
        return self.presence.raise_popularity(recent)

    def _find_popularity(self, at: int | None) -> LatentArray:
        """Return the popularity of all columns at a time."""
        counts = self.entries.column_totals if self.recency is None else self.recency.count_entries(self.entries, at)
        return self._share_rows(counts)

    def _share_rows(self, counts: npt.NDArray[Any]) -> LatentArray:
        """Return numbers of entries as shares of the rows; unknown entries add half an entry."""
        return ((counts + 0.5) / (len(self.entries.rows) + 1.0)).astype(np.float32)


@dataclass(frozen=True)
class DescribedRows:
    """Inputs of the probabilities of some rows: their entries in trained columns, and thresholds."""

    model: PresenceModel
    entries: AxisEntries
    thresholds: FloatArray

    @property
    def are_empty(self) -> npt.NDArray[np.bool_]:
        """Which rows have no entries in trained columns."""
        return np.asarray(np.diff(self.entries.starts) == 0)

    @cached_property
    def presence(self) -> Any:
        """The rows as the presence model describes them."""
        return self.model.describe_rows(self.entries)


def _list_positions(columns: Positions) -> IndexArray:
    """Return a range of positions as an array."""
    return np.arange(columns.start, columns.stop) if isinstance(columns, slice) else columns


def _take(columns: Positions, some: IndexArray) -> IndexArray:
    """Return some of the positions."""
    if isinstance(columns, slice):
        return np.asarray(some + columns.start)
    taken: IndexArray = columns[some]
    return taken


def round_up(scale: Scale, values: FloatArray) -> FloatArray:
    """Return the lowest levels that are not below some values; values themselves on a scale without levels.

    >>> round_up(Scale([1, 2, 3]), np.array([1.2, 2.0, 3.0]))
    array([2., 2., 3.])
    """
    if scale.is_interactions:  # every interaction is liked
        return np.zeros_like(values)
    if scale.levels is None:
        return values
    levels: FloatArray = scale.levels[np.minimum(np.searchsorted(scale.levels, values - 1e-9), scale.levels.size - 1)]
    return levels


def find_thresholds(entries: AxisEntries, scale: Scale, mean: float) -> FloatArray:
    """Return the mean of each row's entries, rounded up to a level; the overall mean for rows without entries."""
    totals, weights = entries.totals, entries.extras.weights
    values = entries.values if weights is None else entries.values * weights
    sums = np.add.reduceat(np.append(values, 0.0), entries.starts[:-1]) if totals.size else np.empty(0)
    return round_up(scale, np.where(totals > 0, sums / np.where(totals > 0, totals, 1), mean))


def choose_order(train: ObservedMatrix) -> RankBy:
    """Return the order that suits a matrix: relevance where few cells have an entry, otherwise value.

    Where most cells have an entry, as in a survey or a table of measurements, rows did not choose their entries.
    """
    if not train.has_values:
        return "relevance"
    return "relevance" if train.n_entries < MOST_DENSE * train.shape[0] * train.shape[1] else "value"


def check_rank_by(rank_by: Any) -> None:
    """Refuse anything but the two orders."""
    if rank_by not in RANK_BY:
        raise BadSetting(f"rank_by must be 'relevance' or 'value'; got {rank_by!r}")


def check_relevant(relevant: Any, scale: Scale) -> None:
    """Refuse a smallest liked value that is no number, or not on the scale."""
    if relevant is None:
        return
    if scale.is_interactions:
        raise BadSetting("interactions have no values, so there is no smallest relevant one; leave out relevant")
    if isinstance(relevant, bool) or not isinstance(relevant, int | float | np.number) or not np.isfinite(relevant):
        raise BadSetting(f"relevant must be a number; got {relevant!r}")
    if scale.is_bounded and not scale.low <= relevant <= scale.high:
        raise BadSetting(f"relevant must lie on the scale, which is {scale}; got {relevant:g}")
