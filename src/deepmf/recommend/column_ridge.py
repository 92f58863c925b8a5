"""The column ridge: which entries exist, from ridge regressions of every column on other columns.

A row x, which has a 1 for each of its entries, has the scores x W. Column j of W solves

    (G_SS + diag(penalty + noise * diag G_SS)) w = G_Sj,    G = X'DX,

where X is the 0/1 matrix of all entries. S are all other columns where these are few: EASE (Steck,
"Embarrassingly shallow autoencoders for sparse data", 2019) with the noise of Steck, "Autoencoders
that don't overfit towards the identity", 2020. Otherwise S are the nearest columns by the cosine in
G, so that the cost is linear in the number of columns. The diagonal matrix D weighs rows by a power
of their number of entries, so that long rows do not outweigh all others.

Rows fold in by their entries when they are ranked, so nothing becomes stale. A new column is
regressed on its nearest trained columns when it arrives, by the entries of trained and of new rows.
An entry in a new column stands for these trained columns: with the residuals r of regressions, w_kj
r_k = w_jk r_j for any two columns of EASE.

An entry with the count c and the weight w is read as sqrt(w) (1 + count_weight * log(c)) instead of
1, so that a row whose entries all have the weight 2 counts twice. The length of a row is then (sum
of w)^2 / (sum of w^2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from deepmf.linalg.backend import Backend
from deepmf.linalg.products import make_product
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries, PlacedEntries, group
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Form, Part, check_ends, not_falling, positions_of

if TYPE_CHECKING:
    import torch

# The nearest trained columns on which a new column is regressed.
_NEAR_NEW = 100

# The power of the number of entries by which long rows count less.
ROW_POWER = 0.3

# Divides instead of a size or a deviation of 0.
TINY = 1e-12

Sparse: TypeAlias = scipy.sparse.csr_array
# from the entries of rows in trained columns to scores (rows, columns)
Score: TypeAlias = "Callable[[AxisEntries], torch.Tensor]"


class Ridge(NamedTuple):
    """How strongly weights are shrunk.

    penalty: on the squares of all weights. noise: of the inputs, in shares of their squares.
    low_pass: the share that a filter without penalty has in the weights (`Gram.pass_low`).
    """

    penalty: float
    noise: float
    low_pass: float = 0.0


@dataclass(frozen=True)
class ColumnRidge:
    """Weights by which the entries of a row score its columns.

    weights: (trained columns, trained columns); weights[k, j] is what an entry in column k adds to
        column j. Dense if columns are regressed on all others, otherwise sparse.
    sizes: the diagonal of G, (trained columns,).
    added: the weights of new columns, (trained columns, new columns).
    added_sizes: the diagonal of G for new columns, (new columns,).
    due: new columns, counted from the first, that are regressed on the entries of `store` when they
        are first read.
    """

    weights: LatentArray | Sparse
    sizes: LatentArray
    ridge: Ridge
    added: scipy.sparse.csc_array
    count_weight: float = 0.0
    added_sizes: LatentArray = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    due: IndexArray = field(default_factory=lambda: NOTHING)
    store: EntryStore | None = None

    @property
    def kind(self) -> str:
        """Whether columns are regressed on all others or on the nearest ones: "full" or
        "nearest"."""
        return "full" if isinstance(self.weights, np.ndarray) else "nearest"

    @property
    def n_trained(self) -> int:
        """The number of trained columns."""
        return self.sizes.size

    def score(self, entries: AxisEntries) -> Array:
        """Return the scores (rows, columns) of rows with these entries over the trained columns;
        larger is likelier."""
        rows = read_rows(entries, self.n_trained, self.count_weight)
        new_weights = self.complete_model.added
        scores = to_dense(rows @ self.weights)
        if not new_weights.shape[1]:
            return scores
        return np.hstack([scores, to_dense(rows @ new_weights)])

    def translate(self, entries: AxisEntries) -> AxisEntries:
        """Return entries over the trained columns: one in a new column as the weighted entries in
        trained columns that it implies."""
        is_new = entries.others >= self.n_trained
        if not is_new.any():
            return entries
        columns = entries.others[is_new] - self.n_trained
        neighbour_weights = scipy.sparse.csr_array(self.complete_model.added[:, columns].T)
        counts = np.diff(neighbour_weights.indptr)
        rows = np.repeat(entries.group_of[is_new], counts)
        residuals = read_entries(entries, self.count_weight)[is_new]
        residuals = residuals / self._penalise(self.complete_model.added_sizes)[columns]
        sizes = self._penalise(self.sizes)[neighbour_weights.indices]
        roots = neighbour_weights.data * sizes * np.repeat(residuals, counts)
        is_positive = roots > 0
        implied_entries = PlacedEntries(
            rows[is_positive],
            neighbour_weights.indices[is_positive].astype(np.int64),
            np.ones(np.count_nonzero(is_positive)),
            Extras(weights=np.square(roots[is_positive])),  # entries are read by its root
        )
        trained = entries.select(~is_new)
        trained_entries = PlacedEntries(
            entries.group_of[~is_new],
            trained.others,
            trained.values,
            Extras(weights=trained.extras.weights),
        )
        return group(entries.starts.size - 1, trained_entries, implied_entries)

    def _penalise(self, diagonal: LatentArray) -> LatentArray:
        """Return the diagonal of G with the ridge."""
        penalised: LatentArray = diagonal * (1.0 + self.ridge.noise) + self.ridge.penalty
        return penalised

    def send(self, columns: IndexArray, device: torch.device) -> Score:
        """Return how a device scores some columns of rows."""
        import torch

        weights = self.take_weights(columns)
        n_trained, count_weight = self.n_trained, self.count_weight
        backend = Backend("torch", str(device))
        if isinstance(weights, np.ndarray):
            dense = torch.from_numpy(weights).to(device)

            def score_by_all(entries: AxisEntries) -> torch.Tensor:
                numbers = read_entries(entries, count_weight)
                multiply = make_product(entries.starts, entries.others, numbers, n_trained, backend)
                scores: torch.Tensor = multiply(dense)
                return scores

            return score_by_all
        if device.type == "cpu":
            return lambda entries: torch.from_numpy(
                (read_rows(entries, n_trained, count_weight) @ weights).toarray()
            )
        turned = scipy.sparse.csr_array(weights.T)
        multiply = make_product(turned.indptr, turned.indices, turned.data, n_trained, backend)

        def score_by_nearest(entries: AxisEntries) -> torch.Tensor:
            rows = read_rows(entries, n_trained, count_weight).toarray()
            scores: torch.Tensor = multiply(torch.from_numpy(rows.T.copy()).to(device)).mT
            return scores

        return score_by_nearest

    def take_weights(self, columns: IndexArray) -> LatentArray | Sparse:
        """Return the weights (trained columns, columns) of some columns, in increasing order."""
        is_new = columns >= self.n_trained
        new_weights = self.complete_model.added[:, columns[is_new] - self.n_trained]
        if isinstance(self.weights, np.ndarray):
            # In the order of rows, as products with entries read them: take, unlike [:, ...].
            taken: LatentArray = self.weights.take(columns[~is_new], axis=1)
            return np.hstack([taken, new_weights.toarray()]) if is_new.any() else taken
        trained_weights = self.weights[:, columns[~is_new]]
        if not is_new.any():
            return trained_weights
        return Sparse(scipy.sparse.hstack([trained_weights, new_weights], format="csr"))

    def find_effects(self, entries: AxisEntries, column: int) -> FloatArray:
        """Return how much each entry of a single row adds to its score for a column."""
        weights = to_dense(self.take_weights(np.array([column])))[:, 0]
        numbers = read_entries(entries, self.count_weight)
        return np.asarray(weights[entries.others] * numbers, dtype=np.float64)

    def extend(self, entries: EntryStore, columns: IndexArray) -> ColumnRidge:
        """Return a model in which the new columns among some positions are described by their
        entries."""
        changed = columns[columns >= self.n_trained] - self.n_trained
        if changed.size == 0:
            return self
        latest: ColumnRidge = self.__dict__.get("complete_model", self)
        return replace(latest, due=np.union1d(latest.due, changed), store=entries)

    @cached_property
    def complete_model(self) -> ColumnRidge:
        """The model with the weights of all new columns."""
        if self.store is None or self.due.size == 0:
            return self
        unchanged = np.setdiff1d(np.arange(self.added.shape[1]), self.due)
        weights, sizes = self._regress_new(self.store, self.due)
        together = scipy.sparse.hstack([self.added[:, unchanged], weights], format="csc")
        order = np.argsort(np.concatenate([unchanged, self.due]))
        sizes = np.concatenate([self.added_sizes[unchanged], sizes])[order]
        return replace(self, added=together[:, order], added_sizes=sizes, due=NOTHING, store=None)

    def _regress_new(
        self, entries: EntryStore, changed: IndexArray
    ) -> tuple[scipy.sparse.csc_array, LatentArray]:
        """Return the weights (trained columns, changed) of new columns, by their nearest trained
        columns, and sizes."""
        train = EntryStore.of(entries.train)
        scales = scale_rows_by_length(entries.train, ROW_POWER)
        column_entries = entries.seen_rows(changed + self.n_trained)
        sizes, places, weights = np.zeros(changed.size, dtype=np.float32), [], []
        for at in range(changed.size):
            sizes[at], sums = self._sum_products(
                entries, train, scales, column_entries.take(np.array([at]))
            )
            near = np.flatnonzero(sums)
            if near.size > _NEAR_NEW:
                cosines = sums[near] / np.sqrt(self.sizes[near])
                near = np.sort(near[np.argpartition(-cosines, _NEAR_NEW)[:_NEAR_NEW]])
            lines = read_rows(train.column_entries(near), scales.size, self.count_weight)
            gram = to_dense((lines * scales) @ lines.T).astype(np.float64)
            gram[np.diag_indices(near.size)] = self._penalise(np.diagonal(gram))
            places.append(near)
            weights.append(np.linalg.solve(gram, sums[near]).astype(np.float32))
        starts = np.cumsum([0, *(near.size for near in places)])
        data = (np.concatenate(weights), np.concatenate(places), starts)
        return scipy.sparse.csc_array(data, shape=(self.n_trained, changed.size)), sizes

    def _sum_products(
        self, entries: EntryStore, train: EntryStore, scales: LatentArray, column: AxisEntries
    ) -> tuple[float, LatentArray]:
        """Return the diagonal of G for a new column with these entries, and its products (trained
        columns,) with trained columns.

        scales: of the trained rows; new rows are scaled by their number of entries.
        """
        numbers, rows = read_entries(column, self.count_weight), column.others
        is_new = rows >= scales.size
        lines = read_rows(train.row_entries(rows[~is_new]), self.n_trained, self.count_weight)
        amounts, row_scales = numbers[~is_new], scales[rows[~is_new]]
        size = np.square(amounts) @ row_scales
        sums: LatentArray = (amounts * row_scales) @ lines
        if is_new.any():
            lines = read_rows(entries.row_entries(rows[is_new]), self.n_trained, self.count_weight)
            mean = entries.train.n_entries / scales.size
            lengths = np.maximum(np.diff(lines.indptr), 1)
            row_scales = (mean / lengths).astype(np.float32) ** np.float32(ROW_POWER)
            size += np.square(numbers[is_new]) @ row_scales
            sums = sums + (numbers[is_new] * row_scales) @ lines
        return float(size), sums

    def without_columns(self, columns: IndexArray) -> ColumnRidge:
        """Return a model without some new columns."""
        if columns.size == 0:
            return self
        complete = self.complete_model
        remaining = np.setdiff1d(np.arange(complete.added.shape[1]), columns - self.n_trained)
        return replace(
            complete,
            added=complete.added[:, remaining],
            added_sizes=complete.added_sizes[remaining],
        )

    def pack(self, prefix: str = "presence") -> dict[str, Array]:
        """Return the weights in half precision; new columns are left out, because their entries
        describe them."""
        if isinstance(self.weights, np.ndarray):
            return _DENSE.pack(self, prefix=prefix).tensors
        weights, columns, starts = self.weights.data, self.weights.indices, self.weights.indptr
        return _SPARSE.pack(
            self, prefix=prefix, weights=weights, starts=starts, columns=columns
        ).tensors

    @classmethod
    def unpack(
        cls,
        tensors: Tensors,
        n_columns: int,
        ridge: Ridge,
        count_weight: float = 0.0,
        prefix: str = "presence",
    ) -> ColumnRidge:
        """Return the stored model, without new columns."""
        form = _SPARSE if f"{prefix}.starts" in tensors else _DENSE
        arrays = form.read({}, tensors, prefix=prefix, columns=n_columns)
        weights: Any = arrays["weights"].astype(np.float32)
        if "starts" in arrays:
            weights = scipy.sparse.csr_array(
                (weights, arrays["columns"], arrays["starts"]), shape=(n_columns, n_columns)
            )
        return cls(weights, arrays["sizes"], ridge, make_empty(n_columns), count_weight)


_SIZES = Part("sizes", "float32", ("columns",))

_DENSE = Form(_SIZES, Part("weights", "float16", ("columns", "columns")))

_SPARSE = Form(
    _SIZES,
    Part("weights", "float16", ("weights",)),
    Part("starts", "int64", ("columns + 1",), check_ends("weights"), not_falling),
    Part("columns", "int32", ("weights",), positions_of("columns")),
)


def read_rows(entries: AxisEntries, n_others: int, count_weight: float) -> Sparse:
    """Return entries as a sparse matrix (groups, others), in the numbers that the regressions
    read."""
    shape = (entries.starts.size - 1, n_others)
    return Sparse(
        (read_entries(entries, count_weight), entries.others, entries.starts), shape=shape
    )


def read_entries(entries: AxisEntries, count_weight: float) -> LatentArray:
    """Return the number that each entry is read as: its weighed count, times the root of its
    weight."""
    counts = np.ones(entries.values.shape, dtype=np.float32)
    if count_weight:
        counts = (1.0 + count_weight * np.log(np.maximum(entries.values, 1.0))).astype(np.float32)
    weights = entries.extras.weights
    return counts if weights is None else counts * np.sqrt(weights).astype(np.float32)


def scale_rows_by_length(train: ObservedMatrix, power: float) -> LatentArray:
    """Return (mean row length / length of a row) to a power for each row."""
    counts = np.maximum(train.row_counts, 1)
    if train.weights is not None:
        counts = _count_effective(train.entry_rows, train.weights, train.shape[0])
    scales: LatentArray = (counts.mean() / counts).astype(np.float32) ** np.float32(power)
    return scales


def _count_effective(rows: IndexArray, weights: Array, n_rows: int) -> FloatArray:
    """Return the effective number of entries of each row, at least 1: equal weights count as
    without weights."""
    sums, squares = (
        np.bincount(rows, part, minlength=n_rows) for part in (weights, np.square(weights))
    )
    return np.maximum(np.square(sums) / np.maximum(squares, 1e-300), 1.0)


def to_dense(matrix: Any) -> LatentArray:
    """Return a matrix as an array, whether it is sparse or not."""
    dense: LatentArray = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    return dense


def make_empty(n_columns: int) -> scipy.sparse.csc_array:
    """Return the weights of no new columns."""
    return scipy.sparse.csc_array((n_columns, 0), dtype=np.float32)
