"""An index of columns, by faiss: approximate rankings by value in milliseconds for millions of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepmf.errors import BadSetting, MissingDependency
from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.recommend.top_n import BestSoFar
from deepmf.scoring.predictor import Predictor

WANTED_RECALL = 0.98  # of the ten best columns, measured on rows of the model when the index is built

_LEAST_COLUMNS = 1000  # to learn 16 centroids from
_LEARNED_FROM = 20_000  # columns that the centroids are learned from, at most
_NUMBERS_A_CODE = 2  # numbers of a latent that become one code of 4 bits
_MOST_CODES = 256
_MOST_ROWS = 200  # on which recall is measured
_LEAST_SPARE, _MOST_SPARE = 90, 6000  # candidates beyond the n best
_INDEXED_AT_A_TIME = 1 << 16  # columns


class ColumnNeighbours:
    """An index of the trained columns that finds the candidates worth scoring exactly.

    It quantises column latents to 4 bits for every two numbers and scans all of them; with 45 numbers each, that reads
    a fifteenth of the memory. Columns that changed since training, or are new, are always scored, so rankings differ
    from exact ones only if a trained column is missed. An index serves the model it was built for, and the models that
    `extend` and `forget` make from it.

    recall: the share of the ten best columns that it finds, measured on rows of the model.
    """

    def __init__(self, predictor: Predictor) -> None:
        faiss = _import_faiss()
        self._latents = predictor.columns.base
        n_columns, width = self._latents.shape
        if type(predictor) is not Predictor:  # others score in a way of their own
            raise BadSetting("this model does not rank by products of latents, so it has only exact rankings")
        if n_columns < _LEAST_COLUMNS:
            raise BadSetting(
                f"an index needs at least {_LEAST_COLUMNS:,} columns; got {n_columns}, where exact rankings are fast"
            )
        n_codes = min(-(-width // _NUMBERS_A_CODE), _MOST_CODES)
        self._width = -(-width // n_codes) * n_codes
        self._index: Any = faiss.IndexPQFastScan(self._width, n_codes, 4, faiss.METRIC_INNER_PRODUCT)
        some = np.linspace(0, n_columns - 1, min(n_columns, _LEARNED_FROM)).astype(np.int64)
        self._index.train(self._pad(self._latents[some]))
        for start in range(0, n_columns, _INDEXED_AT_A_TIME):
            self._index.add(self._pad(self._latents[start : start + _INDEXED_AT_A_TIME]))
        self._spare = _LEAST_SPARE
        self.recall = self._tune(predictor)

    def candidates(self, predictor: Predictor, row: int, n: int) -> IndexArray:
        """Return the increasing positions of the candidate columns for the n best of the row at a position."""
        if predictor.columns.base is not self._latents:
            raise BadSetting("this index belongs to another model; build one by column_neighbours")
        found = np.sort(self._search(predictor.rows.take(np.array([row])), n + self._spare)[0])
        return np.union1d(found, predictor.columns.positions) if predictor.columns.positions.size else found

    def _search(self, queries: LatentArray, n: int) -> IndexArray:
        found: IndexArray = self._index.search(self._pad(queries), min(n, len(self._latents)))[1]
        return found

    def _pad(self, latents: LatentArray) -> LatentArray:
        """Return latents in single precision, padded with zeros to a whole number of codes."""
        padded = np.zeros((len(latents), self._width), dtype=np.float32)
        padded[:, : latents.shape[1]] = latents
        return padded

    def _tune(self, predictor: Predictor) -> float:
        """Increase the number of spare candidates until the wanted recall is reached; return the measured recall."""
        n_rows = len(predictor.rows)
        some = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _MOST_ROWS)).astype(np.int64))
        queries = predictor.rows.take(some)
        best = BestSoFar(some.size, 10)
        for start in range(0, len(self._latents), _INDEXED_AT_A_TIME):
            best.add(queries @ self._latents[start : start + _INDEXED_AT_A_TIME].T, start)
        while True:
            found = self._search(queries, 10 + self._spare)
            hits = [np.isin(wanted, line).mean() for wanted, line in zip(best.places, found, strict=True)]
            recall = float(np.mean(hits))
            if recall >= WANTED_RECALL or self._spare >= _MOST_SPARE:
                return recall
            self._spare += self._spare // 2


def _import_faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingDependency("approximate rankings need faiss: pip install 'deepmf[ann]'") from error
    return faiss
