"""EASE (Steck, "Embarrassingly shallow autoencoders for sparse data", 2019), a presence model of item-item weights.

The scores of a row x are x B, where B = I - P diag(1 / diag P) and P = (X'DX + penalty I)^-1. B_kj are the weights of
the ridge regression of column j on all other columns. A new column with the entries c has the weights P X'Dc of the
same regression. The diagonal matrix D weighs rows by the inverse root of their number of entries, so that long rows do
not outweigh all others.

An entry with the count c and the weight w is read as sqrt(w) (1 + count_weight * log(c)) instead of 1, so that a row
whose entries all have the weight 2 counts twice. The length of a row is then (sum of w)^2 / (sum of w^2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from scipy.linalg.lapack import spotrf, spotri
from torch import Tensor

from deepmf.linalg.products import make_product
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.recommend.presence_model import CPU, PAIRS_AT_A_TIME, PresenceModel, weigh_counts
from deepmf.storage.model_file import Tensors, read_numbers

# The penalties that are tried, in rows.
_PENALTY_SHARES = (1 / 8, 1 / 4, 1 / 2)

# The power of the number of entries by which long rows count less: better rankings than powers of 0 and 1.
_ROW_POWER = 0.5

# Rows of a dense block, and how many products of dense numbers take as long as a product of two sparse ones.
_ROWS_AT_A_TIME, _SPARSE_COST = 2048, 400


@dataclass(frozen=True)
class Ease(PresenceModel):
    """EASE: item-item weights in closed form.

    weights: B, (trained columns, trained columns); weights[k, j] is what an entry in column k adds to column j.
    diagonal: diag P, (trained columns,).
    co_counts: for each new column and each trained one, the weighted number of trained rows with entries in both.
    """

    weights: LatentArray
    diagonal: LatentArray
    penalty: float
    co_counts: scipy.sparse.csr_array
    count_weight: float = 0.0

    kind: ClassVar[str] = "ease"

    @property
    def n_trained(self) -> int:
        """The number of trained columns."""
        return len(self.weights)

    @classmethod
    def prepare(cls, train: ObservedMatrix, count_weight: float = 0.0, device: torch.device = CPU) -> EaseGram:
        """Return X'DX."""
        return EaseGram(_multiply(_weigh_entries(train, _ROW_POWER / 2, count_weight), device), count_weight)

    @classmethod
    def narrow(cls, prepared: EaseGram, columns: IndexArray) -> EaseGram:
        """Return X'DX of some columns; rows keep their weights."""
        at = torch.from_numpy(columns).to(prepared.gram.device)
        return EaseGram(prepared.gram[at[:, None], at], prepared.count_weight)

    @classmethod
    def fit_prepared(cls, prepared: EaseGram, penalty: float) -> Self:
        """Return the model of a prepared matrix."""
        equations = prepared.gram.clone()
        equations.diagonal().add_(penalty)
        inverse = _invert(equations)
        diagonal = inverse.diagonal().clone()
        weights = inverse.div_(-diagonal).fill_diagonal_(0.0)
        # As in the file, which has half precision: no score changes by more than 1e-4.
        weights = weights.half().float().cpu()
        nothing = scipy.sparse.csr_array((0, len(weights)), dtype=np.float32)
        return cls(weights.numpy(), diagonal.cpu().numpy(), penalty, nothing, prepared.count_weight)

    @classmethod
    def list_penalties(cls, train: ObservedMatrix) -> list[float]:
        """Return penalties in proportion to the number of rows."""
        return [max(train.shape[0] * share, 0.5) for share in _PENALTY_SHARES]

    def encode_rows(self, entries: AxisEntries) -> EaseRows:
        """Return the entries of the rows, and the weights of these."""
        return EaseRows(entries, _read_entries(entries, self.count_weight), self.weights)

    def score_block(self, encoded: EaseRows, columns: slice | IndexArray) -> npt.NDArray[Any]:
        """Return the scores (rows, columns) of encoded rows."""
        scores: npt.NDArray[Any] = encoded.scores
        if self.co_counts.shape[0]:
            # x P = (x - x B) diag(P), so a new column with the counts X'c has the score x P X'c.
            projected = (encoded.as_matrix().toarray() - scores) * self.diagonal
            scores = np.hstack([scores, (self.co_counts @ projected.T).T])
        found = scores[:, columns]
        return found.copy() if isinstance(columns, slice) else found

    def score_pairs(self, encoded: EaseRows, columns: IndexArray) -> npt.NDArray[Any]:
        """Return the scores (rows, n) of encoded rows for columns (rows, n) of their own."""
        if "scores" in vars(encoded) or np.any(columns >= len(self.weights)):
            every = slice(0, len(self.weights) + self.co_counts.shape[0])
            return np.take_along_axis(self.score_block(encoded, every), columns, axis=1)
        others, starts = encoded.entries.others, encoded.entries.starts
        counts = np.diff(starts)
        filled = np.flatnonzero(counts)
        scores = np.zeros(columns.shape, dtype=np.float32)
        step = max(PAIRS_AT_A_TIME // max(others.size, 1), 1)
        for start in range(0, columns.shape[1] if filled.size else 0, step):
            some = slice(start, start + step)
            weights = self.weights[others[:, None], np.repeat(columns[:, some], counts, axis=0)]
            scores[filled, some] = np.add.reduceat(weights * encoded.own[:, None], starts[filled], axis=0)
        return scores

    def send(self, columns: IndexArray, device: torch.device) -> DeviceEase:
        """Return the model of some columns on a device."""
        is_trained = columns < self.n_trained
        weights = np.empty((self.n_trained, columns.size), dtype=np.float32)
        weights[:, is_trained] = self.weights[:, columns[is_trained]]
        if not is_trained.all():  # as in score_block: x P X'c, where x P = x (I - B) diag(P)
            counts = self.co_counts[columns[~is_trained] - self.n_trained].toarray().T * self.diagonal[:, None]
            weights[:, ~is_trained] = counts - self.weights @ counts
        return DeviceEase(torch.from_numpy(weights).to(device), self.count_weight)

    def find_effects(self, entries: AxisEntries, column: int) -> FloatArray:
        """Return how much each entry of a single row adds to its score for a column: weights of B, exactly."""
        if column < len(self.weights):
            parts = self.weights[entries.others, column]
        else:
            counts = self.co_counts[[column - len(self.weights)]].toarray()[0] * self.diagonal
            parts = counts[entries.others] - self.weights[entries.others] @ counts
        return np.asarray(parts * _read_entries(entries, self.count_weight), dtype=np.float64)

    def extend(self, entries: EntryStore, columns: IndexArray) -> Ease:
        """Return a model in which the new columns among some positions are described by their entries."""
        n_trained, n_new = len(self.weights), len(entries.columns) - len(self.weights)
        changed = columns[columns >= n_trained]
        if changed.size == 0:
            return self
        train, found = entries.train, entries.column_entries(changed)
        own = _read_entries(found, self.count_weight)
        by_column = scipy.sparse.csr_array((own, found.others, found.starts), (changed.size, train.shape[0]))
        counts = by_column @ _weigh_entries(train, _ROW_POWER, self.count_weight)
        kept = np.setdiff1d(np.arange(self.co_counts.shape[0]), changed - n_trained)
        together = scipy.sparse.vstack([self.co_counts[kept], counts], format="csr")
        order = np.argsort(np.concatenate([kept, changed - n_trained]))
        assert order.size == n_new
        return replace(self, co_counts=scipy.sparse.csr_array(together)[order])

    def without_columns(self, columns: IndexArray) -> Ease:
        """Return a model without some new columns."""
        if columns.size == 0:
            return self
        kept = np.setdiff1d(np.arange(self.co_counts.shape[0]), columns - len(self.weights))
        return replace(self, co_counts=self.co_counts[kept])

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the weights in half precision, and the diagonal."""
        return {"presence.weights": self.weights.astype(np.float16), "presence.diagonal": self.diagonal}

    @classmethod
    def unpack(cls, tensors: Tensors, entries: EntryStore, penalty: float, count_weight: float = 0.0) -> Ease:
        """Return the stored model with the new columns of a store."""
        n_columns = entries.train.shape[1]
        weights = read_numbers(tensors, "presence.weights", "float16", (n_columns, n_columns)).astype(np.float32)
        diagonal = read_numbers(tensors, "presence.diagonal", "float32", (n_columns,))
        nothing = scipy.sparse.csr_array((0, n_columns), dtype=np.float32)
        model = cls(weights, diagonal, penalty, nothing, count_weight)
        return model.extend(entries, np.arange(n_columns, len(entries.columns)))


class EaseGram(NamedTuple):
    """X'DX, (columns, columns), on the device to fit on."""

    gram: Tensor
    count_weight: float


def _multiply(weighted: scipy.sparse.csr_array, device: torch.device) -> Tensor:
    """Return the product of the transposed matrix with itself.

    A product in dense blocks of rows is faster than a sparse one on a GPU, and on a CPU where rows have many entries:
    1.0 instead of 1.8 CPU seconds on MovieLens-1M.
    """
    n_rows, n_columns = weighted.shape
    counts = np.diff(weighted.indptr).astype(np.float64)
    on_gpu = device.type == "cuda"
    if not on_gpu and n_rows * float(n_columns) ** 2 > _SPARSE_COST * np.square(counts).sum():
        return torch.from_numpy((weighted.T @ weighted).toarray())
    product = torch.zeros(n_columns, n_columns, dtype=torch.float32, device=device)
    for start in range(0, n_rows, _ROWS_AT_A_TIME):
        block = weighted[start : start + _ROWS_AT_A_TIME].toarray()
        if on_gpu:
            sent = torch.from_numpy(block).to(device)
            product.addmm_(sent.mT, sent)
        else:
            product += torch.from_numpy(block.T @ block)  # numpy computes one half of it, and copies that
    return product


def _invert(equations: Tensor) -> Tensor:
    """Return the inverse of a positive definite matrix, which it overwrites."""
    if equations.is_cuda:
        factor, failed = torch.linalg.cholesky_ex(equations)
    else:  # LAPACK in place takes three quarters of the time
        lower, failed = spotrf(equations.numpy().T, lower=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("the weights of EASE have no solution")
    if equations.is_cuda:
        return torch.cholesky_inverse(factor)
    half = torch.from_numpy(spotri(lower, lower=1, overwrite_c=1)[0].T).triu()
    return half + half.triu(1).mT


@dataclass(frozen=True)
class EaseRows:
    """Rows as EASE reads them.

    own: the number that each entry is read as.
    """

    entries: AxisEntries
    own: LatentArray
    weights: LatentArray

    @cached_property
    def scores(self) -> npt.NDArray[Any]:
        """The scores (rows, trained columns), which rankings by value do not need."""
        found: npt.NDArray[Any] = self.as_matrix() @ self.weights
        return found

    def as_matrix(self) -> scipy.sparse.csr_array:
        """Return the entries (rows, trained columns)."""
        starts = self.entries.starts
        return scipy.sparse.csr_array((self.own, self.entries.others, starts), (starts.size - 1, len(self.weights)))


class DeviceEase(NamedTuple):
    """The weights (trained columns, columns) of some columns on a device."""

    weights: Tensor
    count_weight: float

    def score(self, entries: AxisEntries) -> Tensor:
        """Return the scores (rows, columns) of rows with these entries over the trained columns."""
        own, n_trained = _read_entries(entries, self.count_weight), len(self.weights)
        return make_product(entries.starts, entries.others, own, n_trained, self.weights.device)(self.weights)


def _read_entries(entries: AxisEntries, count_weight: float) -> LatentArray:
    """Return entries as EASE reads them: weighed counts, times the root of their weights."""
    counts = weigh_counts(entries.values, count_weight)
    weights = entries.extras.weights
    return counts if weights is None else counts * np.sqrt(weights).astype(np.float32)


def _weigh_entries(train: ObservedMatrix, power: float, count_weight: float) -> scipy.sparse.csr_array:
    """Return the matrix of all entries, each weighted by (mean row length / length of its row) to a power.

    Counts of interactions and weights of entries are read as EASE reads them.
    """
    counts = np.maximum(train.row_counts, 1)
    if train.weights is not None:
        counts = _count_effective(train.entry_rows, train.weights, train.shape[0])
    by_row = (counts.mean() / counts).astype(np.float32) ** np.float32(power)
    weights = np.repeat(by_row, np.diff(train.by_row.starts))
    if count_weight or train.weights is not None:
        values = np.asarray(train.values, dtype=np.float64)
        entries = AxisEntries(train.by_row.starts, train.by_row.columns, values, extras=Extras(weights=train.weights))
        weights *= _read_entries(entries, count_weight)
    return scipy.sparse.csr_array((weights, train.by_row.columns, train.by_row.starts), shape=train.shape)


def _count_effective(rows: IndexArray, weights: npt.NDArray[Any], n_rows: int) -> FloatArray:
    """Return the effective number of entries of each row, at least 1: equal weights count as without weights."""
    largest = np.zeros(n_rows)
    np.maximum.at(largest, rows, weights)
    relative = weights / largest[rows]  # squares of tiny weights would be 0
    sums, squares = (np.bincount(rows, part, minlength=n_rows) for part in (relative, np.square(relative)))
    return np.maximum(np.square(sums) / np.maximum(squares, 1e-300), 1.0)
