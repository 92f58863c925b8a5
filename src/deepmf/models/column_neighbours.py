"""Approximate rankings where there are very many columns: which of them are worth scoring for a row (faiss)."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepmf.errors import MissingDependency
from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.models.model import Model
from deepmf.models.predictor import Predictor

# From this number of columns on; with fewer, scoring all of them takes some milliseconds.
LEAST_COLUMNS = 200_000
WANTED_RECALL = 0.98  # of the ten best, measured on rows of the model when the index is built

_LISTS = 1024
_MOST_ROWS = 200  # that recall is measured on
_SPARE = 90  # columns scored beyond those asked for


class ColumnNeighbours:
    """An inverted file of the column latents of training, and how much of it is looked through.

    Columns that changed since, or are new, are always scored: rankings differ from exact ones only where the index
    misses a column of training.
    """

    def __init__(self, model: Model) -> None:
        faiss = _faiss()
        self._latents = model.predictor_.columns.base.astype(np.float32)
        n_columns, width = self._latents.shape
        n_lists = min(_LISTS, max(1, n_columns // 40))
        self._index: Any = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, n_lists, faiss.METRIC_INNER_PRODUCT)
        self._index.cp.niter = 10
        self._index.cp.max_points_per_centroid = 64
        self._index.train(self._latents)
        self._index.add(self._latents)
        self.recall = self._tuned(model)

    def candidates(self, predictor: Predictor, row: int, n: int) -> IndexArray:
        """Return the positions of columns among which the n best of a row, by its position, are looked for."""
        query = predictor.rows.take(np.array([row])).astype(np.float32)
        return np.union1d(self._found(query, n + _SPARE)[0], predictor.columns.positions)

    def _found(self, queries: LatentArray, n: int) -> IndexArray:
        found: IndexArray = self._index.search(np.ascontiguousarray(queries), min(n, len(self._latents)))[1]
        return found

    def _tuned(self, model: Model) -> float:
        """Look through as many lists as the wanted recall needs, and return the recall that was measured."""
        n_rows = len(model.predictor_.rows)
        some = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _MOST_ROWS)).astype(np.int64))
        queries = model.predictor_.rows.take(some).astype(np.float32)
        exact = [_best(self._latents @ query) for query in queries]
        recall = 0.0
        n_lists = self._index.nlist
        for n_probes in (2**power for power in range(n_lists.bit_length() + 1)):
            self._index.nprobe = min(n_probes, n_lists)
            found = self._found(queries, 10 + _SPARE)
            recall = float(np.mean([np.isin(best, line).mean() for best, line in zip(exact, found, strict=True)]))
            if recall >= WANTED_RECALL:
                break
        return recall


def _best(scores: LatentArray) -> IndexArray:
    n = min(10, scores.size)
    return np.argpartition(-scores, n - 1)[:n]


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingDependency("approximate rankings need faiss: pip install 'deepmf[ann]'") from error
    return faiss
