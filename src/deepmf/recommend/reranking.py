"""Reranking: which of the best columns of a row make its list, beside their order.

"mmr" picks columns that differ (Carbonell and Goldstein, "The use of MMR, diversity-based
reranking", 1998), `balance` columns with the shares of a feature that the row likes (Steck,
"Calibrated recommendations", 2018). Each next column maximises

    (1 - WEIGHT) * key - WEIGHT * penalty

among the best columns of the row. Keys, by which columns are ranked otherwise, are scaled to 0 for
the last and 1 for the best of these. The penalty of "mmr" is the largest similarity to a column in
the list, as in `similar_columns`: cosines of latents, or of entries if there are none. The penalty
of `balance` is the divergence of the list's shares from those of the row. `explore` gives the last
places to a draw from the posterior of the values (Thompson sampling).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from deepmf.errors import BadSetting, Hint
from deepmf.matrix.arrays import Array, FloatArray, IndexArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import CategoryEncoding
from deepmf.matrix.features import AxisFeatures
from deepmf.recommend.ranker import Observed, find_thresholds
from deepmf.recommend.request import Request
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor

# The weights of similarity, and of divergence, against relevance.
DIVERSITY = 0.4
BALANCE = 0.5

# The part of the row's own shares that is added to those of a list, so that none is 0 (Steck's
# alpha).
_SMOOTHING = 0.01

# Candidates for each place of a list, and beyond the length of a list at most.
_TIMES, _MOST_BEYOND = 5, 500


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
        if request.rerank is None and request.balance is None and not request.explore:
            return None
        if request.explore:
            predictor.draw_values(
                np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
            )
        if request.balance is not None:
            find_shares(entries, np.empty(0, dtype=np.int64), request.balance)
        return cls(entries, predictor, observed, request)

    def count_candidates(self, n: int) -> int:
        """Return the number of best columns among which the n of a list are picked."""
        return n + _MOST_BEYOND if self.request.explore else min(_TIMES * n, n + _MOST_BEYOND)

    def pick(self, rows: IndexArray, keys: Array, columns: IndexArray, n: int) -> IndexArray:
        """Return the places (rows, n) of the columns of each list among candidates (rows, m), best
        first.

        Keys of minus infinity mark places without a column; they come last.
        """
        picked = np.tile(np.arange(min(n, columns.shape[1])), (len(columns), 1))
        distinct, which = np.unique(columns, return_inverse=True)
        which, n_best, balance = (
            which.reshape(columns.shape),
            _TIMES * int(self.request.n),
            self.request.balance,
        )
        vectors = self._describe(distinct) if self.request.rerank is not None else None
        if balance is not None:
            shares = find_shares(self.entries, distinct, balance)
            liked = find_liked_shares(
                self.entries, self.observed(rows), balance, self.request.relevant
            )
        for line, row in enumerate(rows.tolist()):
            n_left = int(np.count_nonzero(keys[line] > -np.inf))
            if n_left < 2:
                continue
            own, best = keys[line, : min(n_left, n_best)], which[line, : min(n_left, n_best)]
            if vectors is not None:
                cosines = vectors[best] @ vectors[best].T
                chosen = pick_diverse(
                    own, cosines.toarray() if scipy.sparse.issparse(cosines) else cosines, n
                )
            elif balance is not None:
                chosen = pick_balanced(own, shares[best], liked[line], n)
            else:
                chosen = np.arange(min(n, n_left))
            if self.request.explore:
                chosen = self._explore(row, columns[line, :n_left], chosen)
            picked[line, : chosen.size] = chosen
        return picked

    def _explore(self, row: int, columns: IndexArray, chosen: IndexArray) -> IndexArray:
        """Return a list whose last places have the columns with the largest values in a draw of the
        posterior."""
        n_explored = min(round(self.request.explore * chosen.size), columns.size - chosen.size)
        if n_explored <= 0:
            return chosen
        noise = np.random.default_rng([self.request.explore_seed, row]).standard_normal(
            columns.size
        )
        drawn = self.predictor.draw_values(np.full(columns.size, row), columns, noise)
        drawn[chosen] = -np.inf
        return np.concatenate(
            [chosen[: chosen.size - n_explored], np.argsort(-drawn, kind="stable")[:n_explored]]
        )

    def _describe(self, columns: IndexArray) -> Any:
        """Return a vector of length 1 for each column: its latents, or its entries if the model has
        no latents."""
        latents = Latents(self.predictor.columns.take(columns))
        if latents.base.shape[1] > self.predictor.n_beside:
            return self.predictor.directions(latents)
        found = self.entries.seen_rows(columns)
        counts = np.diff(found.starts)
        lengths = np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts).astype(np.float32)
        return scipy.sparse.csr_array(
            (lengths, found.others, found.starts), (columns.size, len(self.entries.rows))
        )


def pick_diverse(keys: Array, similarities: Array, n: int) -> IndexArray:
    """Return the places of n candidates in the order of their marginal relevance; the first has the
    largest key.

    keys: (candidates,), in falling order.
    similarities: (candidates, candidates).

    >>> alike = np.array([[1.0, 0.9, 0.0, 0.0], [0.9, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> pick_diverse(np.array([5.0, 4.9, 4.5, 3.0]), alike, 2)
    array([0, 2])
    """
    relevance = (1 - DIVERSITY) * _scale_keys(keys)
    picked = [0]
    nearest = similarities[0].copy()  # the largest similarity to a picked candidate
    for _ in range(min(n, keys.size) - 1):
        gains = relevance - DIVERSITY * nearest
        gains[picked] = -np.inf
        picked.append(int(np.argmax(gains)))
        np.maximum(nearest, similarities[picked[-1]], out=nearest)
    return np.array(picked)


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
    found: FloatArray = (liked * np.log(np.maximum(ratios, 1e-300))).sum(axis=-1)
    return found


def read_categories(
    features: AxisFeatures | None, name: str, places: IndexArray, axis: Axis
) -> tuple[FloatArray, CategoryEncoding]:
    """Return the inputs (places, inputs) of a feature with categories, and how it is encoded."""
    located = [] if features is None else features.encoding.locate_columns()
    found = {each.name: (at, each) for at, each in located if isinstance(each, CategoryEncoding)}
    if features is None or name not in found:
        raise BadSetting(
            f"there are no categories {name!r} of {axis}s; those that the model was fitted with: "
            f"{', '.join(found) or 'none'}",
            hint=Hint(f"fit it with {axis}_features", f"fit it with --{axis}-features"),
        )
    first, encoding = found[name]
    inputs = features.take(places).to_sparse()[:, first : first + encoding.n_inputs].toarray()
    return inputs.astype(np.float64), encoding


def find_shares(entries: EntryStore, columns: IndexArray, name: str) -> FloatArray:
    """Return the shares (columns, categories) of the categories of a feature in each column; 0
    where it has none."""
    inputs, _ = read_categories(entries.column_features, name, columns, "column")
    return _normalise(np.delete(np.abs(inputs), 1, axis=1))  # input 1 marks a missing value


def find_liked_shares(
    entries: EntryStore, own: AxisEntries, name: str, relevant: float | None
) -> FloatArray:
    """Return the mean shares (rows, categories) of a feature in the liked entries of some rows."""
    line, n_rows = own.group_of, own.starts.size - 1
    if entries.scale.is_interactions:
        is_liked = np.ones(line.size, dtype=bool)
    else:
        usual = find_thresholds(own, entries.scale, entries.train.mean)
        is_liked = own.values >= (usual[line] if relevant is None else relevant)
    distinct, which = np.unique(own.others[is_liked], return_inverse=True)
    line, of_columns = line[is_liked], find_shares(entries, distinct, name)
    chosen = scipy.sparse.csr_array((np.ones(line.size), (line, which)), (n_rows, distinct.size))
    return _normalise(chosen @ of_columns)


def _normalise(amounts: FloatArray) -> FloatArray:
    """Return amounts (..., categories) as shares of their sum; 0 where there are none."""
    sums = amounts.sum(axis=-1, keepdims=True)
    shares: FloatArray = np.divide(amounts, sums, out=np.zeros(amounts.shape), where=sums > 0)
    return shares


def _scale_keys(keys: Array) -> FloatArray:
    spread = keys[0] - keys[-1]
    return np.asarray((keys - keys[-1]) / spread if spread > 0 else np.zeros(keys.size))
