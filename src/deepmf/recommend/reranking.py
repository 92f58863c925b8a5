"""Reranking: lists of different columns instead of ten alike, by maximal marginal relevance.

Carbonell and Goldstein, "The use of MMR, diversity-based reranking", 1998. Each next column of a list maximises

    (1 - DIVERSITY) * key - DIVERSITY * (the largest similarity to a column that is already in the list)

among the best columns of the row. Keys, by which columns are ranked otherwise, are scaled to 0 for the last and 1 for
the best of these. Similarities are those of `similar_columns`: cosines of latents, or of entries if there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.entries import EntryStore
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import Predictor

# The weight of similarity against relevance.
DIVERSITY = 0.4

# Candidates for each place of a list, and beyond the length of a list at most.
_TIMES, _MOST_BEYOND = 5, 500


@dataclass(frozen=True)
class Reranker:
    """Picks lists of different columns among the best of each row."""

    entries: EntryStore
    predictor: Predictor

    def count_candidates(self, n: int) -> int:
        """Return the number of best columns among which the n of a list are picked."""
        return min(_TIMES * n, n + _MOST_BEYOND)

    def pick(self, keys: npt.NDArray[Any], columns: IndexArray, n: int) -> IndexArray:
        """Return the places (rows, n) of the columns of each list among candidates (rows, m), best first.

        Keys of minus infinity mark places without a column; they come last.
        """
        picked = np.tile(np.arange(min(n, columns.shape[1])), (len(columns), 1))
        distinct, which = np.unique(columns, return_inverse=True)
        vectors = self._describe(distinct)
        for line, places in enumerate(which.reshape(columns.shape)):
            n_left = np.count_nonzero(keys[line] > -np.inf)
            if n_left > 1:
                own = vectors[places[:n_left]]
                cosines = own @ own.T
                cosines = cosines.toarray() if scipy.sparse.issparse(cosines) else cosines
                chosen = pick_diverse(keys[line, :n_left], cosines, n)
                picked[line, : chosen.size] = chosen
        return picked

    def _describe(self, columns: IndexArray) -> Any:
        """Return a vector of length 1 for each column: its latents, or its entries if the model has no latents."""
        latents = Latents(self.predictor.columns.take(columns))
        if latents.base.shape[1] > self.predictor.n_beside:
            return self.predictor.directions(latents)
        found = self.entries.seen_rows(columns)
        counts = np.diff(found.starts)
        lengths = np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts).astype(np.float32)
        return scipy.sparse.csr_array((lengths, found.others, found.starts), (columns.size, len(self.entries.rows)))


def pick_diverse(keys: npt.NDArray[Any], similarities: npt.NDArray[Any], n: int) -> IndexArray:
    """Return the places of n candidates in the order of their marginal relevance; the first has the largest key.

    keys: (candidates,), in falling order.
    similarities: (candidates, candidates).

    >>> alike = np.array([[1.0, 0.9, 0.0, 0.0], [0.9, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> pick_diverse(np.array([5.0, 4.9, 4.5, 3.0]), alike, 2)
    array([0, 2])
    """
    spread = keys[0] - keys[-1]
    relevance = (1 - DIVERSITY) * ((keys - keys[-1]) / spread if spread > 0 else np.zeros(keys.size))
    picked = [0]
    nearest = similarities[0].copy()  # the largest similarity to a picked candidate
    for _ in range(min(n, keys.size) - 1):
        gains = relevance - DIVERSITY * nearest
        gains[picked] = -np.inf
        picked.append(int(np.argmax(gains)))
        np.maximum(nearest, similarities[picked[-1]], out=nearest)
    return np.array(picked)
