"""Relevance: how likely a row is to take a column and to like it, and the rankers of `recommend` and the evaluation.

    relevance = P(entry exists) * P(value >= relevant | entry exists)^w

`Presence` gives the first factor, the predictor of a model the second. `Model.make_ranker(rank_by, relevant)` returns
a `Ranker`. Its `rank_block(rows, columns)` returns keys (rows, columns) by which the columns of each row are ranked;
larger is better. `recommend` and the evaluation of rankings use the same rankers.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import log_ndtr
from torch import Tensor

from deepmf.errors import BadSetting, Hint, TrainingDiverged
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries, PlacedEntries, find_spans, locate
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import score_lists
from deepmf.models.drift import Drift, DriftAt
from deepmf.models.latents import Latents
from deepmf.models.predictor import LEAST_PROBABILITY, KnownProducts, Positions, Predictor
from deepmf.models.presence import MODELS, Presence, PresenceModel, choose_kind, make_positive
from deepmf.models.recency import Recency

RankBy = Literal["relevance", "value"]
RANK_BY: tuple[RankBy, ...] = ("relevance", "value")

Observed = Callable[[IndexArray], AxisEntries]  # from positions of rows to their entries
Omit = Callable[[npt.NDArray[Any]], None]  # gives the columns that are left out the key minus infinity

# The share of observed cells from which on columns are ranked by value by default.
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
        """Whether keys are products of latents: they are not."""
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
        """Return the same for pairs (pairs,) of a line, which counts the rows from 0, and a column."""
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
    """What the probabilities of some rows are computed from: their entries in trained columns, and thresholds."""

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


# Rows on which the parts of relevance are chosen, cells of these, and the most popular columns that are candidates.
_MOST_ROWS, _MOST_CELLS, _MOST_CANDIDATES = 2000, 1 << 23, 1 << 14

# Cells without an entry on which probabilities are calibrated, and the most steps of the fit.
_CALIBRATION_CELLS, _CALIBRATION_STEPS = 1 << 18, 25

# The share of the entries of a row that is hidden where there are too few validation entries, how many of these are
# enough, and the fewest hidden entries.
_HIDDEN_SHARE, _ENOUGH_HIDDEN, _FEWEST_HIDDEN = 0.2, 20_000, 20

# The most entries of a matrix whose rows and columns are all encoded again without the hidden ones.
_FEW_ENTRIES = 1 << 18

# Columns of each row, by presence, among which weights of liking and of popularity are compared; and the length of a
# ranking.
_SHORTLIST, _LONG_LIST, _LENGTH = 300, 500, 10

_POPULARITY_SHARES = (0.0, 0.1, 1.0)
_POPULARITY_POWERS = (-0.45, -0.3, -0.15, 0.0, 0.15)
_LIKING_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)  # in powers of scores
_USUAL_LIKING_WEIGHT = 0.75
_COUNT_WEIGHTS = (0.0, 0.5, 2.0)  # of interactions

# The most popular columns on which penalties are compared, on a CPU and on a GPU: a fit to these takes little time.
_NARROW = {False: 1500, True: _MOST_CANDIDATES}

# A share so large that scores are popularity alone.
_ALL_POPULARITY = 1e4


@dataclass(frozen=True)
class HeldOut:
    """Rows some of whose entries are hidden.

    train: the training matrix without the hidden entries, which presence models are fitted to.
    predictor: a predictor whose only rows are these.
    visible: their other entries, over the trained columns.
    lines, columns, values: the hidden entries: indices of rows, positions of columns, values.
    """

    train: ObservedMatrix
    predictor: Predictor
    visible: AxisEntries
    lines: IndexArray
    columns: IndexArray
    values: FloatArray

    @classmethod
    def from_validation(
        cls, entries: EntryStore, predictor: Predictor, validation: PlacedEntries, seed: int
    ) -> HeldOut:
        """Hide validation entries, which are not among the entries of the model anyway."""
        rows = _draw(np.unique(validation.rows), _count_rows(entries.train), seed)
        lines = np.minimum(np.searchsorted(rows, validation.rows), rows.size - 1)
        kept = rows[lines] == validation.rows
        own = replace(predictor, rows=Latents(predictor.rows.take(rows)))
        hidden = lines[kept], validation.columns[kept], validation.values[kept]
        return cls(entries.train, own, entries.row_entries(rows), *hidden)

    @classmethod
    def from_training(cls, entries: EntryStore, predictor: Predictor, seed: int) -> HeldOut | None:
        """Hide a share of the entries of some rows, and encode these from the others; None if there are too few.

        Where hidden entries are a large part of all, all rows and columns are encoded again without them. Latents that
        were learned from hidden entries know which columns their rows like: the weight of liking would be too large.
        """
        train = entries.train
        rows = _draw(np.flatnonzero(train.row_counts > 1), _count_rows(train), seed)
        if train.row_counts[rows].sum() * _HIDDEN_SHARE < _FEWEST_HIDDEN:
            return None
        all_entries = entries.row_entries(rows)
        counts = np.diff(all_entries.starts)
        lines = np.repeat(np.arange(rows.size), counts)
        drawn = np.random.default_rng(seed).random(lines.size)
        place = np.argsort(np.lexsort((drawn, lines))) - all_entries.starts[lines]  # in a random order of the row
        hidden = place < np.maximum(np.round(_HIDDEN_SHARE * counts), 1)[lines]
        visible = all_entries.select(~hidden)
        is_kept = np.ones(train.n_entries, dtype=bool)
        is_kept[find_spans(rows, train.by_row.starts)[0][hidden]] = False
        if train.n_entries <= _FEW_ENTRIES:
            by_row = entries.row_entries(np.arange(train.shape[0])).select(is_kept)
            by_column = entries.column_entries(np.arange(train.shape[1])).select(is_kept[train.by_column.entries])
            # With next to no penalty, latents of fewer entries may grow beyond all bounds; then the old ones stay.
            with np.errstate(over="ignore", invalid="ignore"), contextlib.suppress(TrainingDiverged):
                predictor = predictor.with_columns(by_column).with_rows(by_row).with_columns(by_column)
        return cls(
            train.take_entries(np.flatnonzero(is_kept)),
            predictor.with_rows(visible),
            visible,
            lines[hidden],
            all_entries.others[hidden],
            all_entries.values[hidden],
        )

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.visible.starts.size) - 1


def _count_rows(train: ObservedMatrix) -> int:
    return min(_MOST_ROWS, max(_MOST_CELLS // min(train.shape[1], _MOST_CANDIDATES), 1))


def _draw(rows: IndexArray, count: int, seed: int) -> IndexArray:
    """Return some of the rows in increasing order, or all."""
    if rows.size <= count:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))


class _Choice:
    """Chooses how presence and liking are combined, by NDCG@10 on hidden entries.

    Candidates are the most popular columns; liked are hidden entries of at least the row's own mean, rounded up.
    """

    def __init__(self, held_out: HeldOut, device: torch.device) -> None:
        train, self._held_out, self._visible, self._device = held_out.train, held_out, held_out.visible, device
        counts = EntryStore.of(train).column_totals
        self._candidates = np.sort(np.argsort(-counts, kind="stable")[:_MOST_CANDIDATES])
        popularity = (counts[self._candidates] + 0.5) / (train.shape[0] + 1.0)
        self._popularity = torch.from_numpy(popularity.astype(np.float32)).to(device)
        self.spread = self._measure_spread()
        lines = np.arange(held_out.n_rows)
        thresholds = find_thresholds(held_out.visible, train.scale, train.mean)
        self._hidden = self._mark(held_out.lines, held_out.columns)
        self._known = self._mark(np.repeat(lines, np.diff(held_out.visible.starts)), held_out.visible.others)
        liked = held_out.values >= thresholds[held_out.lines]
        self._n_liked = np.bincount(held_out.lines[liked], minlength=held_out.n_rows)
        self._liked = self._mark(held_out.lines[liked], held_out.columns[liked])
        log_liked = held_out.predictor.log_exceed_block(lines, self._candidates, thresholds, spread=self.spread)
        self._log_liked = torch.from_numpy(log_liked.astype(np.float32)).to(device)

    def fit(self, kind: str) -> Presence:
        """Return a presence part of a kind, with the best penalty, weights of counts, popularity and liking."""
        train, model_class = self._held_out.train, MODELS[kind]
        narrow, columns = self._narrow(_NARROW[self._device.type == "cuda"])

        def fit_narrow(count_weight: float, penalties: Sequence[float]) -> list[PresenceModel]:
            shared = prepared if count_weight == 0 else model_class.prepare(train, count_weight, self._device)
            shared = shared if columns.size == train.shape[1] else model_class.narrow(shared, columns)
            return [model_class.fit_prepared(shared, penalty) for penalty in penalties]

        prepared, penalties = model_class.prepare(train, 0.0, self._device), model_class.list_penalties(train)
        models = fit_narrow(0.0, penalties)
        best = narrow.pick(models)
        if not train.has_values and np.max(train.values) > 1:
            models = [model for weight in _COUNT_WEIGHTS for model in fit_narrow(weight, [penalties[best]])]
            best = narrow.pick(models)
        model = models[best]
        if columns.size < train.shape[1]:
            if model.count_weight:
                prepared = model_class.prepare(train, model.count_weight, self._device)
            model = model_class.fit_prepared(prepared, model.penalty)
        return self.combine(model)

    def _narrow(self, n_columns: int) -> tuple[_Choice, IndexArray]:
        """Return a choice on the most popular columns alone, and the positions of these."""
        train = self._held_out.train
        if train.shape[1] <= n_columns:
            return self, np.arange(train.shape[1])
        kept = np.sort(np.argsort(-EntryStore.of(train).column_totals, kind="stable")[:n_columns])
        own, inside = locate(kept, self._visible.others)
        starts = np.concatenate([[0], np.cumsum(inside)])[self._visible.starts]
        choice, at = copy.copy(self), self._send(np.searchsorted(self._candidates, kept))
        values, extras = self._visible.values[inside], self._visible.extras.take(inside)
        choice._visible = AxisEntries(starts, own[inside], values, extras=extras)
        choice._candidates, choice._popularity = np.arange(kept.size), self._popularity[at]
        for name in ("_hidden", "_known", "_liked", "_log_liked"):
            setattr(choice, name, getattr(self, name)[:, at])
        choice._n_liked = choice._liked.sum(dim=1).cpu().numpy()
        return choice, kept

    def _send(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def pick(self, models: Sequence[PresenceModel]) -> int:
        """Return the number of the model with the best rankings; the first one is the usual one."""
        usual = (_USUAL_LIKING_WEIGHT,)
        found = [self._measure(Presence(each), self._list(self._score(each), _SHORTLIST), usual)[0] for each in models]
        return _pick(found, 0)

    def combine(self, model: PresenceModel) -> Presence:
        """Return a model with the best weights of popularity and liking; popularity if it ranks as well."""
        scores = self._score(model)
        best = self._combine(model, scores)
        popular = replace(best[0], popularity_share=_ALL_POPULARITY, popularity_power=0.0)
        plain = replace(self._calibrate_blended(popular, scores)[0], liking_weight=0.0)
        trials = [(plain, self._popularity_ndcg), self._finish(popular, scores), best]
        at = _pick([found for _, found in trials], 0)
        ndcg, of_popularity = (float(found.mean()) for found in (trials[at][1], self._popularity_ndcg))
        return replace(trials[at][0], ndcg=ndcg, popularity_ndcg=of_popularity)

    def _combine(self, model: PresenceModel, scores: Tensor) -> tuple[Presence, FloatArray]:
        """Return a model with the best weights of popularity and liking, and its NDCG@10 (rows,)."""
        best = Presence(
            model, popularity_share=0.1, popularity_power=0.0, spread=self.spread, liking_weight=_USUAL_LIKING_WEIGHT
        )
        lists = self._list(scores, _LONG_LIST)
        for name, values in (
            ("popularity_share", _POPULARITY_SHARES),
            ("popularity_power", _POPULARITY_POWERS),
        ):
            trials: list[Presence] = [replace(best, **{name: value}) for value in values]  # type: ignore[arg-type]
            found = [self._measure(trial, lists, (trial.liking_weight,))[0] for trial in trials]
            best = trials[_pick(found, values.index(getattr(best, name)))]
        return self._finish(best, scores)

    def _finish(self, presence: Presence, scores: Tensor) -> tuple[Presence, FloatArray]:
        """Return a presence with calibrated probabilities and the best weight of liking, and its NDCG@10 (rows,)."""
        presence, blended = self._calibrate_blended(presence, scores)
        weights = [presence.score_power * weight for weight in _LIKING_WEIGHTS]
        found = self._measure(presence, self._list(scores, _SHORTLIST, by=blended), weights)
        at = _pick(found, _LIKING_WEIGHTS.index(_USUAL_LIKING_WEIGHT))
        return replace(presence, liking_weight=weights[at]), found[at]

    def _calibrate_blended(self, presence: Presence, scores: Tensor) -> tuple[Presence, Tensor]:
        """Return a presence with calibrated probabilities, and the scores blended with popularity."""
        blended = presence.add_popularity(scores, self._popularity, presence.raise_popularity(self._popularity))
        return self._calibrate(presence, blended), blended

    @cached_property
    def _popularity_ndcg(self) -> FloatArray:
        """The NDCG@10 (rows,) of rankings by popularity."""
        counted = np.flatnonzero(self._n_liked)
        if counted.size == 0:
            return np.zeros(1)
        at = self._send(counted)
        hits = self._liked[at].gather(1, _find_first(self._popularity.masked_fill(self._known[at], -math.inf), _LENGTH))
        return score_lists(hits.cpu().numpy(), self._n_liked[counted], n=_LENGTH).ndcg

    def _score(self, model: PresenceModel) -> Tensor:
        scores = model.score_all(self._visible, self._candidates, self._device)
        empty = np.flatnonzero(np.diff(self._visible.starts) == 0)
        scores[self._send(empty)] = self._popularity
        return scores

    def _list(self, scores: Tensor, length: int, *, by: Tensor | None = None) -> _Lists:
        """Return the best columns, by these scores or others, of the rows that have liked hidden entries."""
        counted = np.flatnonzero(self._n_liked)
        at = self._send(counted)
        order = (scores if by is None else by)[at].masked_fill(self._known[at], -math.inf)
        places = _find_largest(order, length)
        taken = (each[at[:, None], places] for each in (scores, self._known, self._log_liked, self._liked))
        scores, are_known, log_liked, are_liked = taken
        return _Lists(places, scores, are_known, log_liked, are_liked, self._n_liked[counted])

    def _measure(self, presence: Presence, lists: _Lists, weights: Sequence[float]) -> list[FloatArray]:
        """Return the NDCG@10 (rows,) of rankings by relevance with each of some weights of liking."""
        if len(lists.places) == 0:
            return [np.zeros(1)] * len(weights)
        popularity = self._popularity
        raised = presence.raise_popularity(popularity)[lists.places] if presence.popularity_power else popularity
        scores = presence.add_popularity(lists.scores, popularity[lists.places], raised)
        log_presence = presence.log_probabilities(scores).masked_fill(lists.are_known, -math.inf)
        found = []
        for weight in weights:
            first = _find_first(log_presence + weight * lists.log_liked, _LENGTH)
            hits = lists.are_liked.gather(1, first).cpu().numpy()
            found.append(score_lists(hits, lists.n_liked, n=_LENGTH).ndcg)
        return found

    def _calibrate(self, presence: Presence, scores: Tensor) -> Presence:
        """Return a presence whose probabilities are those of entries, by logistic regression on the log of scores.

        Of all entries only a share is hidden, so the odds of hidden ones are divided by it.
        """
        n_rows, n_all = max(_CALIBRATION_CELLS // scores.shape[1], 1), len(scores)
        n_rows = min(n_rows, n_all)
        exist = scores[self._hidden]
        absent = scores[:n_rows][~(self._known[:n_rows] | self._hidden[:n_rows])]
        if exist.numel() == 0 or absent.numel() == 0:
            return presence
        logs = torch.log(make_positive(torch.cat([exist, absent])).double())
        counts = torch.ones_like(logs)
        counts[exist.numel() :] = n_all / n_rows
        intercept, power = _fit_logistic(logs, torch.arange(logs.numel(), device=logs.device) < exist.numel(), counts)
        share = self._held_out.lines.size / (self._held_out.lines.size + self._held_out.visible.others.size)
        return replace(presence, intercept=intercept - math.log(share), score_power=power)

    def _measure_spread(self) -> float:
        """Return the root mean squared residual of the hidden entries."""
        held_out = self._held_out
        scores = held_out.predictor.score_pairs(held_out.lines, held_out.columns)
        residuals = held_out.predictor.readout.units(scores) - held_out.values
        scale = held_out.train.scale
        return max(_measure_root_mean_square(residuals), 1e-3 * (scale.high - scale.low), 1e-9)

    def _mark(self, lines: IndexArray, columns: IndexArray) -> Tensor:
        """Return the cells (rows, candidates) of some pairs."""
        marked = torch.zeros(self._held_out.n_rows, self._candidates.size, dtype=torch.bool, device=self._device)
        at, found = locate(self._candidates, columns)
        marked[self._send(lines[found]), self._send(at[found])] = True
        return marked


class _Lists(NamedTuple):
    """Columns (rows, n) of each row that may come first: their places, and what is known of them."""

    places: Tensor
    scores: Tensor
    are_known: Tensor  # which are not ranked, because the row has an entry there
    log_liked: Tensor
    are_liked: Tensor  # which have a hidden entry that is liked
    n_liked: IndexArray  # (rows,) in all columns


def _find_largest(keys: Tensor, n: int) -> Tensor:
    """Return the places (rows, n) of the n largest keys of each row, or of all, in increasing order."""
    if n >= keys.shape[1]:
        return torch.arange(keys.shape[1], device=keys.device).expand(len(keys), -1)
    if keys.is_cuda:
        return keys.topk(n, dim=1, sorted=False).indices.sort(dim=1).values
    return torch.from_numpy(np.sort(np.argpartition(-keys.numpy(), n - 1, axis=1)[:, :n], axis=1))


def _find_first(keys: Tensor, n: int) -> Tensor:
    """Return the places of the n largest keys of each row, largest first."""
    best = _find_largest(keys, n)
    return best.gather(1, keys.gather(1, best).argsort(dim=1, descending=True, stable=True))


def _pick(found: Sequence[FloatArray], usual: int) -> int:
    """Return the place of the best scores (rows,), or of the usual ones unless it is better by a standard error."""
    best = int(np.argmax([scores.mean() for scores in found]))
    gain = found[best] - found[usual]
    return best if gain.mean() > gain.std() / math.sqrt(gain.size) else usual


def _fit_logistic(inputs: Tensor, targets: Tensor, counts: Tensor) -> tuple[float, float]:
    """Return the intercept and the slope, at least 0.1, of the logistic regression of counted targets on inputs."""
    share = float(counts @ targets.double() / counts.sum())
    coefficients = np.array([math.log(share / (1.0 - share)), 0.0])
    middle = float(counts @ inputs / counts.sum())
    centred = inputs - middle
    powers = torch.stack([torch.ones_like(centred), centred, centred.square()])
    for _ in range(_CALIBRATION_STEPS):
        chances = torch.sigmoid(coefficients[0] + coefficients[1] * centred)
        errors = (powers[:2] @ (counts * (targets.double() - chances))).cpu().numpy()
        hessian = (powers @ (counts * chances * (1.0 - chances))).cpu().numpy()[[[0, 1], [1, 2]]]
        hessian[np.diag_indices(2)] += 1e-9 + 1e-6 * np.diag(hessian)
        step = np.linalg.solve(hessian, errors)
        coefficients += np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-5:
            break
    slope = float(np.clip(coefficients[1], 0.1, 5.0))
    return float(coefficients[0]) - slope * middle, slope


def fit_presence(
    entries: EntryStore,
    predictor: Predictor,
    kind: str,
    validation: PlacedEntries | None,
    *,
    folds_in: bool,
    seed: int,
    device: torch.device,
) -> Presence | None:
    """Fit the presence part of a model; None where every cell has an entry.

    Penalty and weights are those of the best rankings of validation entries. If these are few, a fifth of the
    entries of some rows is hidden from the presence model instead, and these rows are encoded again without them.

    Parameters
    ----------
    kind : the kind of the presence model, or "auto".
    folds_in : whether the predictor can encode rows.
    device : where to fit.
    """
    train = entries.train
    n_rows, n_columns = train.shape
    if train.n_entries == n_rows * n_columns:
        return None
    kind = choose_kind(n_columns) if kind == "auto" else kind
    held_out = (
        HeldOut.from_validation(entries, predictor, validation, seed)
        if validation is not None and validation.rows.size >= (_ENOUGH_HIDDEN if folds_in else _FEWEST_HIDDEN)
        else (HeldOut.from_training(entries, predictor, seed) if folds_in else None)
    )
    if held_out is None:
        spread = max(_measure_root_mean_square(train.values.astype(np.float64) - train.mean), 1e-9)
        usual = MODELS[kind]
        model = usual.fit(train, usual.list_penalties(train)[0], device=device)
        return Presence(model, popularity_share=1.0, spread=spread)
    best = _Choice(held_out, device).fit(kind)
    if held_out.train is train:
        return best
    return replace(best, model=MODELS[kind].fit(train, best.model.penalty, best.model.count_weight, device))


def _measure_root_mean_square(numbers: FloatArray) -> float:
    """Return the root of the mean square, also of numbers whose squares are too large for double precision."""
    exponent = math.frexp(float(np.max(np.abs(numbers))))[1]
    return math.ldexp(float(np.sqrt(np.mean(np.square(np.ldexp(numbers, -exponent))))), exponent)
