"""Reranking: which of the best columns of a row make its list, beside their order.

`balance` picks columns with the shares of a feature that the row likes (Steck, "Calibrated
recommendations", 2018). Each next column maximises

    (1 - BALANCE) * key - BALANCE * divergence

among the best columns of the row. Keys, by which columns are ranked otherwise, are scaled to 0 for
the last and 1 for the best of these. The divergence is that of the list's shares from those of the
row's liked entries. `explore` gives the last places to a draw from the posterior of the values
(Thompson sampling).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from deepmf.errors import BadSetting, Hint
from deepmf.matrix.arrays import Array, FloatArray, IndexArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import CategoryEncoding
from deepmf.recommend.ranker import Observed, find_relevant
from deepmf.recommend.request import Request
from deepmf.scoring.predictor import Predictor

# The weight of divergence against keys.
BALANCE = 0.5

# Steck's alpha: the share of the row's own shares in those of a list, so that none is 0.
_SMOOTHING = 0.01

# Candidates for each place of a list, and beyond the length of a list at most.
_CANDIDATES_PER_PLACE = 5
_MOST_BEYOND = 500


@dataclass(frozen=True)
class Reranker:
    """Picks lists among the best columns of each row."""

    entries: EntryStore
    predictor: Predictor
    observed: Observed
    request: Request

    @classmethod
    def of(
        cls, entries: EntryStore, predictor: Predictor, observed: Observed, request: Request
    ) -> Reranker | None:
        """Return the reranker that a request asks for, if any."""
        if request.balance is None and not request.explore:
            return None
        if request.explore:
            predictor.draw_values(NOTHING, NOTHING, np.empty(0))  # raises where nothing is sampled
        if request.balance is not None:
            find_shares(entries, NOTHING, request.balance)
        return cls(entries, predictor, observed, request)

    def count_candidates(self, n: int) -> int:
        """Return the number of best columns among which the n of a list are picked."""
        if self.request.explore:
            return n + _MOST_BEYOND
        return min(_CANDIDATES_PER_PLACE * n, n + _MOST_BEYOND)

    def pick(self, rows: IndexArray, keys: Array, columns: IndexArray, n: int) -> IndexArray:
        """Return the places (rows, n) of the columns of each list among candidates (rows, m), best
        first.

        Keys of minus infinity mark places without a column; they come last.
        """
        places = np.tile(np.arange(min(n, columns.shape[1])), (len(columns), 1))
        if self.request.balance is not None:
            places = self._balance(rows, keys, columns, places)
        if self.request.explore:
            n_candidates = np.count_nonzero(keys > -np.inf, axis=1)
            for line, row in enumerate(rows.tolist()):
                candidates = columns[line, : n_candidates[line]]
                places[line] = self._explore(row, candidates, places[line])
        return places

    def _balance(
        self, rows: IndexArray, keys: Array, columns: IndexArray, places: IndexArray
    ) -> IndexArray:
        """Return the places of lists whose shares of a feature are like those of liked entries."""
        feature, n = str(self.request.balance), places.shape[1]
        distinct, which = np.unique(columns, return_inverse=True)
        which = which.reshape(columns.shape)
        shares = find_shares(self.entries, distinct, feature)
        liked = find_liked_shares(self.entries, self.observed(rows), feature, self.request.relevant)
        n_best = np.minimum(
            np.count_nonzero(keys > -np.inf, axis=1), _CANDIDATES_PER_PLACE * int(self.request.n)
        )
        for line, count in enumerate(n_best.tolist()):
            if count > 1:
                candidate_shares = shares[which[line, :count]]
                balanced = pick_balanced(keys[line, :count], candidate_shares, liked[line], n)
                places[line, : balanced.size] = balanced
        return places

    def _explore(self, row: int, candidates: IndexArray, places: IndexArray) -> IndexArray:
        """Return a list whose last places have the candidates with the largest values in a draw of
        the posterior."""
        n_filled = min(places.size, candidates.size)
        n_explored = round(self.request.explore * n_filled)
        n_explored = min(n_explored, candidates.size - n_filled)
        if n_explored <= 0:
            return places
        generator = np.random.default_rng([self.request.explore_seed, row])
        noise = generator.standard_normal(candidates.size)
        values = self.predictor.draw_values(np.full(candidates.size, row), candidates, noise)
        values[places[:n_filled]] = -np.inf
        explored = np.argsort(-values, kind="stable")[:n_explored]
        return np.concatenate([places[: n_filled - n_explored], explored, places[n_filled:]])


def pick_balanced(keys: Array, shares: FloatArray, liked: FloatArray, n: int) -> IndexArray:
    """Return the places of n candidates whose shares of a feature (candidates, categories) are like
    those liked.

    >>> shares = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> pick_balanced(np.array([4.0, 3.9, 3.8, 3.0]), shares, np.array([0.5, 0.5]), 2)
    array([0, 3])
    """
    relevance = (1 - BALANCE) * _scale_keys(keys)
    if not liked.any():
        return np.arange(min(n, keys.size))
    picked: list[int] = []
    total = np.zeros(liked.size)
    for _ in range(min(n, keys.size)):
        gains = relevance - BALANCE * measure_divergence(liked, total + shares)
        gains[picked] = -np.inf
        picked.append(int(np.argmax(gains)))
        total += shares[picked[-1]]
    return np.array(picked)


def measure_divergence(liked: FloatArray, listed: FloatArray) -> FloatArray:
    """Return the Kullback-Leibler divergence of the shares of lists (..., categories) from those of
    rows (Steck 2018).

    Sums of shares are normalised; a list without the feature is farthest.
    """
    smooth = (1 - _SMOOTHING) * _normalise(listed) + _SMOOTHING * liked
    ratios = np.divide(
        liked, smooth, out=np.ones(np.broadcast_shapes(liked.shape, smooth.shape)), where=smooth > 0
    )
    divergence: FloatArray = (liked * np.log(np.maximum(ratios, 1e-300))).sum(axis=-1)
    return divergence


def find_shares(entries: EntryStore, columns: IndexArray, name: str) -> FloatArray:
    """Return the shares (columns, categories) of the categories of a feature in each column; 0
    where it has none."""
    features = entries.column_features
    located = [] if features is None else features.encoding.locate_columns()
    encodings = {
        encoding.name: (first, encoding)
        for first, encoding in located
        if isinstance(encoding, CategoryEncoding)
    }
    if features is None or name not in encodings:
        raise BadSetting(
            f"there are no categories {name!r} of columns; those that the model was fitted with: "
            f"{', '.join(encodings) or 'none'}",
            hint=Hint("fit it with column_features", "fit it with --column-features"),
        )
    first, encoding = encodings[name]
    inputs = features.take(columns).to_sparse()[:, first : first + encoding.n_inputs].toarray()
    amounts = np.delete(inputs.astype(np.float64), 1, axis=1)  # input 1 marks a missing value
    return _normalise(amounts)


def find_liked_shares(
    entries: EntryStore, own: AxisEntries, name: str, relevant: float | None
) -> FloatArray:
    """Return the mean shares (rows, categories) of a feature in the liked entries of some rows."""
    least = find_relevant(entries.train, relevant)
    is_liked = np.ones(own.group_of.size, dtype=bool) if least is None else own.values >= least
    distinct, which = np.unique(own.others[is_liked], return_inverse=True)
    lines, n_rows = own.group_of[is_liked], own.starts.size - 1
    are_liked = scipy.sparse.csr_array(
        (np.ones(lines.size), (lines, which)), (n_rows, distinct.size)
    )
    return _normalise(are_liked @ find_shares(entries, distinct, name))


def _normalise(amounts: FloatArray) -> FloatArray:
    """Return amounts (..., categories) as shares of their sum; 0 where there are none."""
    sums = amounts.sum(axis=-1, keepdims=True)
    shares: FloatArray = np.divide(amounts, sums, out=np.zeros(amounts.shape), where=sums > 0)
    return shares


def _scale_keys(keys: Array) -> FloatArray:
    spread = keys[0] - keys[-1]
    return np.asarray((keys - keys[-1]) / spread if spread > 0 else np.zeros(keys.size))
