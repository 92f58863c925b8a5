"""Approximate rankings where there are very many columns: which of them are worth scoring for a row (faiss)."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepmf.errors import BadSetting, MissingDependency
from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.models.best_so_far import BestSoFar
from deepmf.models.predictor import Predictor

WANTED_RECALL = 0.98  # of the ten best, measured on rows of the model when the index is built

_LEAST_COLUMNS = 1000  # what 16 centroids are learned from
_LEARNED_FROM = 20_000
_NUMBERS_A_CODE = 2  # of a latent, which together become 4 bits
_MOST_CODES = 256
_MOST_ROWS = 200  # that recall is measured on
_LEAST_SPARE, _MOST_SPARE = 90, 6000  # columns scored beyond those asked for
_COLUMNS_AT_A_TIME = 1 << 16


class ColumnNeighbours:
    """The column latents of training in 4 bits for every two numbers, by which those worth scoring exactly are found.

    All columns are looked through, whatever their latents are like: with 45 numbers each, in a fifteenth of the memory.
    Columns that changed since, or are new, are always scored, so that rankings differ from exact ones only where a
    column of training is missed. An index serves the model it was built for and all that come of it by `extend` and
    `forget`.

    recall: how many of the ten best columns it finds, measured on rows of the model.
    """

    def __init__(self, predictor: Predictor) -> None:
        faiss = _faiss()
        self._latents = predictor.columns.base
        n_columns, width = self._latents.shape
        if type(predictor) is not Predictor:  # others score in a way of their own
            raise BadSetting("this model does not rank by products of latents: its rankings are exact alone")
        if n_columns < _LEAST_COLUMNS:
            raise BadSetting(
                f"an index of columns needs at least {_LEAST_COLUMNS:,} of them; got {n_columns}, whose exact rankings "
                "take no time"
            )
        n_codes = min(-(-width // _NUMBERS_A_CODE), _MOST_CODES)
        self._width = -(-width // n_codes) * n_codes
        self._index: Any = faiss.IndexPQFastScan(self._width, n_codes, 4, faiss.METRIC_INNER_PRODUCT)
        some = np.linspace(0, n_columns - 1, min(n_columns, _LEARNED_FROM)).astype(np.int64)
        self._index.train(self._padded(self._latents[some]))
        for start in range(0, n_columns, _COLUMNS_AT_A_TIME):
            self._index.add(self._padded(self._latents[start : start + _COLUMNS_AT_A_TIME]))
        self._spare = _LEAST_SPARE
        self.recall = self._tuned(predictor)

    def candidates(self, predictor: Predictor, row: int, n: int) -> IndexArray:
        """Return the rising positions of columns among which the n best of a row, by its position, are looked for."""
        if predictor.columns.base is not self._latents:
            raise BadSetting("this index of columns is that of another model; build one for this")
        found = np.sort(self._found(predictor.rows.take(np.array([row])), n + self._spare)[0])
        return np.union1d(found, predictor.columns.positions) if predictor.columns.positions.size else found

    def _found(self, queries: LatentArray, n: int) -> IndexArray:
        found: IndexArray = self._index.search(self._padded(queries), min(n, len(self._latents)))[1]
        return found

    def _padded(self, latents: LatentArray) -> LatentArray:
        """Return latents in single precision, with zeros behind them so that all codes are of one width."""
        padded = np.zeros((len(latents), self._width), dtype=np.float32)
        padded[:, : latents.shape[1]] = latents
        return padded

    def _tuned(self, predictor: Predictor) -> float:
        """Score as many columns exactly as the wanted recall needs, and return the recall that was measured."""
        n_rows = len(predictor.rows)
        some = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _MOST_ROWS)).astype(np.int64))
        queries = predictor.rows.take(some)
        best = BestSoFar(some.size, 10)
        for start in range(0, len(self._latents), _COLUMNS_AT_A_TIME):
            best.add(queries @ self._latents[start : start + _COLUMNS_AT_A_TIME].T, start)
        while True:
            found = self._found(queries, 10 + self._spare)
            hits = [np.isin(wanted, line).mean() for wanted, line in zip(best.places, found, strict=True)]
            recall = float(np.mean(hits))
            if recall >= WANTED_RECALL or self._spare >= _MOST_SPARE:
                return recall
            self._spare += self._spare // 2


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingDependency("approximate rankings need faiss: pip install 'deepmf[ann]'") from error
    return faiss
