"""Presence: the probability that an entry exists, learned from the positions of entries alone.

It is the first factor of the relevance of a column for a row (`ranker.py`). The column ridge
(`column_ridge.py`) scores the columns of a row; `Presence` turns the scores into probabilities.
`Recency` is the popularity of columns at a time, when older entries count less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray, Numbers
from deepmf.matrix.entries import ChangedStore, EntryStore, ForgetPlan
from deepmf.matrix.extras import NO_TIME, Extras, TimeArray
from deepmf.matrix.library import find_library
from deepmf.recommend.column_ridge import ColumnRidge, Ridge
from deepmf.scoring.arrivals import find_changed
from deepmf.scoring.learning import SteadyPart
from deepmf.scoring.predictor import Predictor
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Form, Part, below, not_negative, positive, rising

# Scores may be negative; below this size they are smoothly turned into small positive numbers.
_SMALL_SCORE = 0.01

# The popularity whose powers are 1, so that no score becomes tiny.
_UNIT_POPULARITY = 0.01


@dataclass(frozen=True)
class Presence(SteadyPart):
    """A column ridge, and how its scores become probabilities and relevance.

    The popularity of a column is its share of the rows. The odds that an entry exists are

        exp(intercept + offset) * ((score + popularity_share * popularity) *
        popularity^popularity_power)^score_power

    lengths, offsets: numbers of entries, and the offsets of rows with as many, interpolated in
        their logarithms; see `presence_odds`.
    liking_weight: w, the power of the probability that the value is at least the relevant one.
    spread: the standard deviation of held-out residuals, for models that predict values alone.
    ndcg, popularity_ndcg: NDCG@10 on held-out entries, of rankings by relevance and by popularity;
        0 if there are none.
    """

    model: ColumnRidge
    intercept: float = 0.0
    score_power: float = 1.0
    popularity_share: float = 0.0
    popularity_power: float = 0.0
    liking_weight: float = 1.0
    spread: float = 1.0
    ndcg: float = 0.0
    popularity_ndcg: float = 0.0
    lengths: FloatArray = field(default_factory=lambda: np.zeros(1))
    offsets: FloatArray = field(default_factory=lambda: np.zeros(1))

    def extend(self, change: ChangedStore) -> Presence:
        """Return a presence that also scores new columns."""
        columns = find_changed(change.entries, change.rows, change.columns, change.crossed)
        return replace(self, model=self.model.extend(change.entries, columns))

    def forget(self, plan: ForgetPlan, change: ChangedStore) -> Presence:
        """Return a presence without removed columns."""
        return replace(self, model=self.model.without_columns(change.gone_columns))

    def describe_choice(self) -> dict[str, float]:
        """Return what was chosen on held-out entries, by name."""
        return {
            "presence_penalty": self.model.ridge.penalty,
            "presence_noise": self.model.ridge.noise,
            "low_pass": self.model.ridge.low_pass,
            "count_weight": self.model.count_weight,
            "popularity_share": self.popularity_share,
            "popularity_power": self.popularity_power,
            "liking_weight": self.liking_weight,
            "presence_ndcg": self.ndcg,
            "popularity_ndcg": self.popularity_ndcg,
        }

    def pack(self) -> Packed:
        """Return the numbers as JSON content, and the model as tensors."""
        of_model = self.model.ridge._asdict() | {"count_weight": self.model.count_weight}
        return Packed(_PRESENCE.pack(self, **of_model).content, self.model.pack())

    @classmethod
    def unpack(
        cls, content: Any, tensors: Tensors, entries: EntryStore, predictor: Predictor
    ) -> Presence:
        """Return the stored presence; impossible content raises `BadModelFile`."""
        numbers = _PRESENCE.read(content)
        ridge, count_weight = (
            Ridge(*(numbers.pop(name) for name in Ridge._fields)),
            numbers.pop("count_weight"),
        )
        n_columns = entries.train.shape[1]
        model = ColumnRidge.unpack(tensors, n_columns, ridge, count_weight)
        return cls(model.extend(entries, np.arange(n_columns, len(entries.columns))), **numbers)

    def scale_popularity(self, amount: float, usual: float) -> Presence:
        """Return a presence whose scores favour popular columns more or less: 1 as learned, 0 not
        at all.

        Both terms of popularity are scaled, and the scores divided by popularity to the power 1 -
        amount. The odds of a column with the usual popularity keep their size: where all odds are
        large, relevance is liking alone.
        """
        share, power = amount * self.popularity_share, amount * self.popularity_power + amount - 1
        shift = (
            (self.popularity_power - power) * math.log(usual / _UNIT_POPULARITY) * self.score_power
        )
        return replace(
            self, intercept=self.intercept + shift, popularity_share=share, popularity_power=power
        )

    def add_popularity(self, scores: Numbers, popularity: Numbers, raised: Numbers) -> Numbers:
        """Return scores (rows, columns) blended with popularity (columns,), times popularity raised
        to its power."""
        blended = scores + self.popularity_share * popularity if self.popularity_share else scores
        return blended * raised if self.popularity_power else blended

    def raise_popularity(self, popularity: Numbers) -> Numbers:
        """Return popularity to its power."""
        return (popularity / _UNIT_POPULARITY) ** self.popularity_power

    def find_offsets(self, n_known: IndexArray) -> LatentArray:
        """Return the offsets of the log-odds of rows with some numbers of entries."""
        offsets = np.interp(np.log1p(n_known), np.log1p(self.lengths), self.offsets)
        return offsets.astype(np.float32)

    def find_log_odds(self, scores: Numbers, offsets: Numbers | float = 0.0) -> Numbers:
        """Return the log-odds that entries exist, from scores times powers of popularity."""
        logarithms = find_library(scores).log(make_positive(scores))
        log_odds: Numbers = self.score_power * logarithms + self.intercept + offsets
        return log_odds

    def log_probabilities(self, scores: Numbers, offsets: Numbers | float = 0.0) -> Numbers:
        """Return the logarithms of the probabilities that entries exist, from scores times powers
        of popularity."""
        log_odds = self.find_log_odds(scores, offsets)
        if not isinstance(log_odds, np.ndarray):
            return find_library(log_odds).nn.functional.logsigmoid(log_odds)  # type: ignore[no-any-return]
        log_probabilities: Numbers = special.log_expit(log_odds)
        return log_probabilities

    def score_of(self, log_probability: Array, offsets: Array) -> Array:
        """Return the scores times powers of popularity that have these probabilities, minus
        infinity for P = 0."""
        with np.errstate(divide="ignore", over="ignore"):
            log_odds = log_probability - np.log(-np.expm1(log_probability))
            positive = np.exp((log_odds - offsets - self.intercept) / self.score_power)
            found: Array = positive - _SMALL_SCORE**2 / (4 * positive)
        return found


def share_rows(counts: Array, n_rows: int | FloatArray) -> LatentArray:
    """Return numbers of entries as shares of the rows; unknown entries add half an entry."""
    shares: LatentArray = ((counts + 0.5) / (n_rows + 1.0)).astype(np.float32)
    return shares


def make_positive(scores: Numbers) -> Numbers:
    """Return scores as positive numbers in the same order; large scores hardly change."""
    library = find_library(scores)
    sums = library.sqrt(library.square(scores) + _SMALL_SCORE**2) + library.abs(scores)
    positive: Numbers = library.where(scores > 0, sums / 2, _SMALL_SCORE**2 / (2 * sums))
    return positive


_bounded = below(1e300)

_PRESENCE = Form(
    Part("penalty", "number", (), not_negative, _bounded),
    Part("noise", "number", (), not_negative, _bounded),
    Part("low_pass", "number", (), not_negative, below(1.0)),
    Part("count_weight", "number", (), not_negative, _bounded),
    Part("intercept", "number", (), _bounded),
    Part("score_power", "number", (), positive, _bounded),
    Part("popularity_share", "number", (), _bounded),
    Part("popularity_power", "number", (), _bounded),
    Part("liking_weight", "number", (), not_negative, _bounded),
    Part("spread", "number", (), positive),  # in the unit of the scale
    Part("ndcg", "number", (), _bounded),
    Part("popularity_ndcg", "number", (), _bounded),
    Part("lengths", "number", ("lengths",), not_negative, rising, _bounded),
    Part("offsets", "number", ("lengths",), _bounded),
)


@dataclass(frozen=True)
class Recency(SteadyPart):
    """How the popularity of columns depends on time.

    half_life: of the weight of an entry. latest: the time of the latest training entry; both in
        seconds.
    blends: whether recent popularity joins the scores of rows with entries; it always ranks columns
        for rows without.
    """

    half_life: float
    latest: int
    blends: bool = False

    def count_entries(self, entries: EntryStore, at: int | TimeArray | None = None) -> FloatArray:
        """Return the entries of each column by their age at a time (default: of the latest entry).

        Several times give an array (times, columns). The counts of a time add up to the number of
        all entries.
        """
        train, added_entries = entries.train, entries.added
        remaining = (
            np.delete(np.arange(train.n_entries), entries.dropped)
            if entries.dropped.size
            else slice(None)
        )
        columns, extras = train.by_row.columns[remaining], train.extras.take(remaining)
        extras = Extras.join(
            [(columns.size, extras), (added_entries.columns.size, added_entries.extras)]
        )
        columns = np.concatenate([columns, added_entries.columns])
        times, weights = extras.times, extras.fill_weights(columns.size)
        dated = np.empty(0, dtype=np.int64) if times is None else times[times != NO_TIME]
        first, last = (
            (int(dated.min()), int(dated.max())) if dated.size else (self.latest, self.latest)
        )
        # No date counts as the earliest one. Before the first and after the last entry all weights
        # shrink alike: they must not become 0.
        times = np.full(columns.size, first) if times is None else np.maximum(times, first)
        asked = np.clip(last if at is None else at, first, last)
        moments, which = np.unique(asked, return_inverse=True)
        counts = self._sum_by_age(columns, times, weights, moments, len(entries.columns))
        counts *= weights.sum() / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
        return counts[which].reshape(*asked.shape, -1)

    def _sum_by_age(
        self,
        columns: IndexArray,
        times: TimeArray,
        weights: Array,
        moments: TimeArray,
        n_columns: int,
    ) -> FloatArray:
        """Return the sums (moments, columns) of weights that halve with each half-life to either
        side of a moment.

        Each entry is added at its nearest moments; from there, sums fade from moment to moment.
        """
        total, next_of = np.zeros((moments.size, n_columns)), np.searchsorted(moments, times)
        fading = np.exp2(-np.diff(moments) / self.half_life)
        for nearest, steps in (
            (next_of, range(1, moments.size)),
            (next_of - 1, range(moments.size - 2, -1, -1)),
        ):
            inside = np.flatnonzero((nearest >= 0) & (nearest < moments.size))
            by_age = weights[inside] * np.exp2(
                -np.abs(moments[nearest[inside]] - times[inside]) / self.half_life
            )
            cells = nearest[inside] * n_columns + columns[inside]
            sums = np.bincount(cells, by_age, minlength=total.size).reshape(total.shape)
            for to in steps:
                before = to - steps.step
                sums[to] += fading[min(to, before)] * sums[before]
            total += sums
        return total

    def pack(self) -> Packed:
        """Return the recency for a model file."""
        return _RECENCY.pack(self)

    @classmethod
    def unpack(
        cls, content: Any, tensors: Tensors, entries: EntryStore, predictor: Predictor
    ) -> Recency:
        """Return the stored recency; impossible content raises `BadModelFile`."""
        return cls(**_RECENCY.read(content))


_RECENCY = Form(
    Part("half_life", "number", (), positive), Part("latest", "whole"), Part("blends", "flag")
)
