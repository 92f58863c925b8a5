"""Relevance: how likely a row is to take a column and to like it.

    relevance = P(entry exists) * P(value >= relevant | entry exists)^w

`Presence` gives the first factor, the predictor of a model the second. The rankers of `ranker.py` rank by it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.scale import Scale
from deepmf.recommend.column_ridge import ColumnRidge
from deepmf.recommend.next_ridge import NextRidge
from deepmf.recommend.presence import Presence
from deepmf.scoring.predictor import Positions, Predictor

Observed = Callable[[IndexArray], AxisEntries]  # from positions of rows to their entries


@dataclass(eq=False)
class Relevance:
    """Both probabilities of some rows: that an entry exists, and that its value is at least the relevant one.

    Parameters
    ----------
    predictor, presence : the parts of a model.
    observed : maps positions of rows to their entries, over all columns.
    popularity : the share of the rows that have an entry in each column: (columns,), or (rows, columns) for the rows of
        one block.
    factors : popularity to its power.
    find_recent : returns the popularity that ranks the columns of rows without entries.
    relevant : the smallest value that counts as liked; None: the mean of each row, rounded up to a level.
    mean : the mean of all entries, for rows without entries.
    following : scores what a row takes next; None in other orders.
    """

    predictor: Predictor
    presence: Presence
    observed: Observed
    popularity: LatentArray
    factors: LatentArray
    find_recent: Callable[[], LatentArray]
    relevant: float | None
    mean: float
    following: NextRidge | None = None
    _last: threading.local = field(default_factory=threading.local, init=False)  # the rows that a thread encoded last
    _scores: npt.NDArray[Any] | None = field(default=None, init=False)

    def with_known(self, predictor: Predictor, scores: npt.NDArray[Any] | None) -> Relevance:
        """Return the probabilities of pairs that a predictor knows, and whose scores of presence may be known."""
        known = copy.copy(self)
        known.predictor, known._scores = predictor, scores
        return known

    @cached_property
    def empty_scores(self) -> LatentArray:
        """The scores of rows without entries: the recent popularity of columns."""
        recent = self.find_recent()
        return self.presence.add_popularity(recent, recent, self.presence.raise_popularity(recent))

    def score_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return the scores (rows, columns) of presence, times powers of popularity."""
        encoded = self.encode_rows(rows)
        scores = np.array(encoded.presence[:, columns])
        scores = self.presence.add_popularity(scores, self.popularity[..., columns], self.factors[..., columns])
        if encoded.are_empty.any():
            empty_scores = np.broadcast_to(self.empty_scores[..., columns], scores.shape)
            scores[encoded.are_empty] = empty_scores[encoded.are_empty]
        return scores

    def log_next(self, rows: IndexArray) -> npt.NDArray[Any]:
        """Return the logarithms (rows, all columns) of the probabilities that a column comes next.

        That of a row without entries is the share of the column in recent popularity.
        """
        encoded, following = self.encode_rows(rows), self.following
        assert following is not None
        if encoded.log_next is None:
            keys = following.sharpness * following.score(encoded.entries, encoded.presence, self.popularity)
            keys[encoded.are_empty] = np.broadcast_to(np.log(self.find_recent()), keys.shape)[encoded.are_empty]
            encoded.log_next = keys - logsumexp(keys, axis=1, keepdims=True)
        return encoded.log_next

    def log_liked_block(self, rows: IndexArray, columns: Positions) -> npt.NDArray[Any]:
        """Return the logarithms (rows, columns) of the probabilities that values are at least the relevant one."""
        thresholds = self.encode_rows(rows).thresholds
        return self.predictor.log_exceed_block(rows, columns, thresholds, spread=self.presence.spread)

    def log_liked_pairs(self, rows: IndexArray, lines: IndexArray, columns: IndexArray) -> npt.NDArray[Any]:
        """Return `log_liked_block` for pairs (pairs,) of a place in `rows` and a column."""
        if rows.size == 1:
            return self.log_liked_block(rows, columns).reshape(-1)
        thresholds, spread = self.encode_rows(rows).thresholds[lines], self.presence.spread
        found = self.predictor.log_exceed_pairs(rows[lines], columns[:, None], thresholds, spread=spread)
        return found.reshape(-1)

    def read_presence(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the probabilities that entries exist in the columns (rows, n) of each row."""
        encoded, scores = self.encode_rows(rows), self._scores
        if scores is None:
            scores = np.take_along_axis(encoded.presence, columns, axis=1)
            scores = self.presence.add_popularity(scores, self.popularity[columns], self.factors[columns])
            if encoded.are_empty.any():
                scores[encoded.are_empty] = self.empty_scores[columns[encoded.are_empty]]
        found: FloatArray = np.exp(self.presence.log_probabilities(scores)).astype(np.float64)
        return found

    def encode_rows(self, rows: IndexArray) -> EncodedRows:
        """Return the inputs of the probabilities of some rows; those of the last rows are cached."""
        last: tuple[IndexArray, EncodedRows] | None = getattr(self._last, "encoded", None)
        if last is not None and np.array_equal(last[0], rows):
            return last[1]
        entries, model = self.observed(rows), self.presence.model
        if self.relevant is None:
            thresholds = find_thresholds(entries, self.predictor.readout.scale, self.mean)
        else:
            thresholds = np.full(rows.size, float(self.relevant))
        encoded = EncodedRows(model, entries.below(model.n_trained), model.translate(entries), thresholds)
        self._last.encoded = rows, encoded
        return encoded


@dataclass
class EncodedRows:
    """Inputs of the probabilities of some rows: entries in trained columns, what all entries say, and thresholds."""

    model: ColumnRidge
    entries: AxisEntries
    said: AxisEntries
    thresholds: FloatArray
    log_next: npt.NDArray[Any] | None = None  # (rows, columns), once it is asked for

    @property
    def are_empty(self) -> npt.NDArray[np.bool_]:
        """Which rows have no entries in trained columns: popularity ranks better than what new columns alone say."""
        return np.asarray(np.diff(self.entries.starts) == 0)

    @cached_property
    def presence(self) -> npt.NDArray[Any]:
        """The scores (rows, columns) of the column ridge."""
        return self.model.score(self.said)


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
