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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from scipy.linalg.lapack import spotrf, spotri
from torch import Tensor

from deepmf.linalg.products import make_product
from deepmf.linalg.ridge import CPU, run_batches
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries, PlacedEntries, find_spans, group
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import Extras
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Form, Part, ends_of, not_falling, positions_of

if TYPE_CHECKING:
    from deepmf.nn.ranks import Ranks

# The largest number of columns that are regressed on all others: the weights take 150 MB, and an
# inverse seconds.
MOST_FULL = 6000

# The most nearest columns on a CPU and on a GPU, the fewest, and how many cells of Gram matrices a
# CPU gathers for all columns together: gathering a million takes some 30 ms, and more time than
# solving.
_MOST_NEAR, _FEWEST_NEAR, _MOST_CELLS = {False: 200, True: 400}, 50, 1.6e9

# Where columns have fewer entries than this on average, a CPU regresses a column on this many
# nearest columns for each of its entries.
_FEW_ENTRIES, _NEAR_BY_ENTRY = 16.0, 8

# The most columns of which all cells of the Gram matrix are kept, on a CPU (400 MB) and on a GPU;
# and the cells that are kept for each of more columns, in nearest columns.
_MOST_DENSE, _KEPT = {False: 10_000, True: 60_000}, 4

# The nearest trained columns on which a new column is regressed.
_NEAR_NEW = 100

# The power of the number of entries by which long rows count less.
_ROW_POWER = 0.3

# Rows of a dense block, and how many products of dense numbers take as long as a product of two
# sparse ones.
_ROWS_AT_A_TIME, _SPARSE_COST = 2048, 400

_TINY = 1e-12

# Columns whose lines of the Gram matrix exist at a time and their cells, and cells of regressions
# that are solved together.
_LINES_AT_A_TIME, _CELLS_AT_A_TIME, _CELLS_ON_CPU, _CELLS_ON_GPU = (
    1024,
    1 << 23,
    16 * 200**2,
    1 << 28,
)

# Entries or cells that are read for regressions that are solved together, and how many times as
# long the product of an entry takes as finding a cell.
_READ_AT_A_TIME, _PRODUCT_COST = 1 << 19, 4

Sparse: TypeAlias = scipy.sparse.csr_array
# from the entries of rows in trained columns to scores (rows, columns)
Score = Callable[[AxisEntries], Tensor]


class Ridge(NamedTuple):
    """How strongly weights are shrunk.

    penalty: on the squares of all weights. noise: of the inputs, in shares of their squares.
    """

    penalty: float
    noise: float


# Those that are tried on held-out entries, by kind, the usual one first: the best penalty grows
# with the number of entries of a column.
RIDGES = {
    "full": (Ridge(500.0, 1.5), Ridge(200.0, 2.5), Ridge(80.0, 1.5)),
    "nearest": (Ridge(80.0, 1.5), Ridge(40.0, 1.5), Ridge(200.0, 2.5), Ridge(200.0, 6.0)),
}


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
        own, added = rows @ self.weights, self.settled.added
        scores = own if isinstance(own, np.ndarray) else own.toarray()
        return np.hstack([scores, (rows @ added).toarray()]) if added.shape[1] else scores

    def translate(self, entries: AxisEntries) -> AxisEntries:
        """Return entries over the trained columns: those in new columns as what they say of trained
        ones."""
        is_new = entries.others >= self.n_trained
        if not is_new.any():
            return entries
        which = entries.group_of
        columns, known = entries.others[is_new] - self.n_trained, entries.select(~is_new)
        sizes, added_sizes = (
            each * (1.0 + self.ridge.noise) + self.ridge.penalty
            for each in (self.sizes, self.settled.added_sizes)
        )
        lines = scipy.sparse.csr_array(self.settled.added[:, columns].T)
        counts = np.diff(lines.indptr)
        own = np.repeat(
            _read_entries(entries, self.count_weight)[is_new] / added_sizes[columns], counts
        )
        # entries are read by its root
        weights = np.square(np.maximum(lines.data * sizes[lines.indices] * own, 0.0))
        there = weights > 0
        said = PlacedEntries(
            np.repeat(which[is_new], counts)[there],
            lines.indices[there].astype(np.int64),
            np.ones(np.count_nonzero(there)),
            Extras(weights=weights[there]),
        )
        parts = (
            PlacedEntries(
                which[~is_new], known.others, known.values, Extras(weights=known.extras.weights)
            ),
            said,
        )
        return group(entries.starts.size - 1, *parts)

    def send(self, columns: IndexArray, device: torch.device) -> Score:
        """Return how a device scores some columns of rows."""
        weights, n_trained, count_weight = (
            self.take_weights(columns),
            self.n_trained,
            self.count_weight,
        )
        if isinstance(weights, np.ndarray):
            dense = torch.from_numpy(weights).to(device)

            def score_by_all(entries: AxisEntries) -> Tensor:
                own = _read_entries(entries, count_weight)
                return make_product(entries.starts, entries.others, own, n_trained, device)(dense)

            return score_by_all
        if device.type == "cpu":
            return lambda entries: torch.from_numpy(
                (read_rows(entries, n_trained, count_weight) @ weights).toarray()
            )
        turned = scipy.sparse.csr_array(weights.T)
        multiply = make_product(turned.indptr, turned.indices, turned.data, n_trained, device)

        def score_by_nearest(entries: AxisEntries) -> Tensor:
            rows = read_rows(entries, n_trained, count_weight).toarray()
            return multiply(torch.from_numpy(rows.T.copy()).to(device)).mT

        return score_by_nearest

    def take_weights(self, columns: IndexArray) -> LatentArray | Sparse:
        """Return the weights (trained columns, columns) of some columns, in increasing order."""
        is_new, added = columns >= self.n_trained, self.settled.added
        own, new = columns[~is_new], columns[is_new] - self.n_trained
        if isinstance(self.weights, np.ndarray):
            taken = self.weights.take(own, axis=1)
            return np.hstack([taken, added[:, new].toarray()]) if new.size else taken
        taken = self.weights[:, own]
        return (
            Sparse(scipy.sparse.hstack([taken, added[:, new]], format="csr")) if new.size else taken
        )

    def find_effects(self, entries: AxisEntries, column: int) -> FloatArray:
        """Return how much each entry of a single row adds to its score for a column."""
        weights = self.take_weights(np.array([column]))
        dense = weights if isinstance(weights, np.ndarray) else weights.toarray()
        return np.asarray(
            dense[entries.others, 0] * _read_entries(entries, self.count_weight), dtype=np.float64
        )

    def extend(self, entries: EntryStore, columns: IndexArray) -> ColumnRidge:
        """Return a model in which the new columns among some positions are described by their
        entries."""
        changed = columns[columns >= self.n_trained] - self.n_trained
        if changed.size == 0:
            return self
        known: ColumnRidge = self.__dict__.get("settled", self)
        return replace(known, due=np.union1d(known.due, changed), store=entries)

    @cached_property
    def settled(self) -> ColumnRidge:
        """The model with the weights of all new columns."""
        if self.store is None or self.due.size == 0:
            return self
        kept = np.setdiff1d(np.arange(self.added.shape[1]), self.due)
        weights, sizes = self._regress_new(self.store, self.due)
        together = scipy.sparse.hstack([self.added[:, kept], weights], format="csc")
        order = np.argsort(np.concatenate([kept, self.due]))
        sizes = np.concatenate([self.added_sizes[kept], sizes])[order]
        return replace(self, added=together[:, order], added_sizes=sizes, due=NOTHING, store=None)

    def _regress_new(
        self, entries: EntryStore, changed: IndexArray
    ) -> tuple[scipy.sparse.csc_array, LatentArray]:
        """Return the weights (trained columns, changed) of new columns, by their nearest trained
        columns, and sizes."""
        trained, scales = EntryStore.of(entries.train), _scale_rows(entries.train, _ROW_POWER)
        found, counts = entries.seen_rows(changed + self.n_trained), self.count_weight
        own, places, weights = _read_entries(found, counts), [], []
        sizes = np.zeros(changed.size, dtype=np.float32)
        for at, (start, stop) in enumerate(zip(found.starts[:-1], found.starts[1:], strict=True)):
            rows, amounts = found.others[start:stop], own[start:stop]
            is_new = rows >= scales.size
            read = read_rows(trained.row_entries(rows[~is_new]), self.n_trained, counts)
            together = amounts[~is_new] * scales[rows[~is_new]] @ read
            sizes[at] = np.square(amounts[~is_new]) @ scales[rows[~is_new]]
            if is_new.any():
                read = read_rows(entries.row_entries(rows[is_new]), self.n_trained, counts)
                mean = entries.train.n_entries / scales.size
                scale = (mean / np.maximum(np.diff(read.indptr), 1)).astype(
                    np.float32
                ) ** np.float32(_ROW_POWER)
                together = together + (amounts[is_new] * scale @ read)
                sizes[at] += np.square(amounts[is_new]) @ scale
            near = np.flatnonzero(together)
            if near.size > _NEAR_NEW:
                cosines = together[near] / np.sqrt(self.sizes[near])
                near = np.sort(near[np.argpartition(-cosines, _NEAR_NEW)[:_NEAR_NEW]])
            lines = read_rows(trained.column_entries(near), scales.size, counts)
            gram = ((lines * scales) @ lines.T).toarray()
            gram[np.diag_indices(near.size)] += self.ridge.penalty + self.ridge.noise * np.diagonal(
                gram
            )
            places.append(near)
            weights.append(
                np.linalg.solve(gram.astype(np.float64), together[near]).astype(np.float32)
            )
        starts = np.cumsum([0, *(near.size for near in places)])
        data = (np.concatenate(weights), np.concatenate(places), starts)
        return scipy.sparse.csc_array(data, shape=(self.n_trained, changed.size)), sizes

    def without_columns(self, columns: IndexArray) -> ColumnRidge:
        """Return a model without some new columns."""
        if columns.size == 0:
            return self
        known = self.settled
        kept = np.setdiff1d(np.arange(known.added.shape[1]), columns - self.n_trained)
        return replace(known, added=known.added[:, kept], added_sizes=known.added_sizes[kept])

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
        found = form.read({}, tensors, prefix=prefix, columns=n_columns)
        weights: Any = found["weights"].astype(np.float32)
        if "starts" in found:
            weights = scipy.sparse.csr_array(
                (weights, found["columns"], found["starts"]), shape=(n_columns, n_columns)
            )
        return cls(weights, found["sizes"], ridge, make_empty(n_columns), count_weight)


_SIZES = Part("sizes", "float32", ("columns",))

_DENSE = Form(_SIZES, Part("weights", "float16", ("columns", "columns")))

_SPARSE = Form(
    _SIZES,
    Part("weights", "float16", ("weights",)),
    Part("starts", "int64", ("columns + 1",), ends_of("weights"), not_falling),
    Part("columns", "int32", ("weights",), positions_of("columns")),
)


class Near(NamedTuple):
    """The nearest columns (columns, K) of each column, nearest first, and their cells of G in its
    column.

    One past the last column, and 0, where there are fewer.
    """

    places: npt.NDArray[np.int32]
    cells: LatentArray


class Gram(NamedTuple):
    """G on the device to fit on, and what columns are regressed on.

    cells: all cells of G, or for each column some of them. sizes: the diagonal (columns,).
    sums: the right sides (columns, columns); None: G itself, each column regressed on all others.
        Or the nearest columns.
    lines: X'D^(1/2) beside sparse cells: products of short lines take less time than finding cells.
    ranks: those that divide the regressions; None: each solves all, as where several threads fit
        models at a time.
    """

    cells: Tensor | Sparse
    sizes: LatentArray
    sums: Tensor | Near | None = None
    count_weight: float = 0.0
    lines: Sparse | None = None
    ranks: Ranks | None = None

    @classmethod
    def of(
        cls,
        train: ObservedMatrix,
        kind: str,
        count_weight: float = 0.0,
        device: torch.device = CPU,
        *,
        most_near: int | None = None,
        most_dense: int | None = None,
    ) -> Gram:
        """Return the Gram matrix of a matrix, for a kind of model: "full" or "nearest".

        most_near: the number of nearest columns; default: as many as take seconds on the device.
        most_dense: the most columns of which all cells are kept; default: as many as suit the
            device.
        """
        weighted, n_columns = _weigh_entries(train, _ROW_POWER / 2, count_weight), train.shape[1]
        sizes = np.bincount(weighted.indices, np.square(weighted.data), minlength=n_columns).astype(
            np.float32
        )
        if kind == "full":
            return cls(_multiply(weighted, device), sizes, count_weight=count_weight)
        on_gpu = device.type == "cuda"
        is_dense = n_columns <= (_MOST_DENSE[on_gpu] if most_dense is None else most_dense)
        on_gpu = on_gpu and is_dense
        most = max(min(most_near or count_affordable(n_columns, on_gpu=on_gpu), n_columns - 1), 1)
        counts = np.full(n_columns, most)
        if not on_gpu and train.n_entries < _FEW_ENTRIES * n_columns:
            counts = count_near(np.bincount(weighted.indices, minlength=n_columns), most)
        ranks = None if on_gpu else _find_sharing()
        if is_dense:
            cells = _multiply(weighted, device)
            return cls(cells, sizes, _find_near(cells, sizes, counts), count_weight, ranks=ranks)
        lines = Sparse(weighted.T)
        return cls(*_prune(weighted, lines, sizes, counts, ranks), count_weight, lines, ranks)

    def fit_some(self, ridges: Sequence[Ridge], columns: IndexArray) -> list[ColumnRidge]:
        """Return models that score some columns: regressed on these alone, or on their nearest
        columns."""
        if isinstance(self.sums, Near):
            return self.fit(ridges, columns)
        assert isinstance(self.cells, Tensor)
        at = torch.from_numpy(columns).to(self.cells.device)
        sums = None if self.sums is None else self.sums[at[:, None], at]
        return Gram(self.cells[at[:, None], at], self.sizes[columns], sums, self.count_weight).fit(
            ridges
        )

    def fit(self, ridges: Sequence[Ridge], targets: IndexArray | None = None) -> list[ColumnRidge]:
        """Return the model of each ridge; of nearest columns, with the weights of some targets
        alone."""
        n_columns = self.sizes.size
        found: list[LatentArray | Sparse] = []
        if isinstance(self.sums, Near):
            targets = np.arange(n_columns) if targets is None else targets
            near = Near(self.sums.places[targets], self.sums.cells[targets])
            starts = np.zeros(n_columns + 1, dtype=np.int64)
            for weights in self._regress_on_near(near, ridges):
                is_kept = weights != 0
                starts[targets + 1] = np.count_nonzero(is_kept, axis=1)
                data = (weights[is_kept], near.places[is_kept], np.cumsum(starts))
                found.append(scipy.sparse.csc_array(data, shape=(n_columns, n_columns)).tocsr())
        else:
            assert isinstance(self.cells, Tensor)
            found = [_regress_on_all(self.cells, self.sums, ridge) for ridge in ridges]
        return [
            ColumnRidge(weights, self.sizes, ridge, make_empty(n_columns), self.count_weight)
            for weights, ridge in zip(found, ridges, strict=True)
        ]

    def _regress_on_near(self, near: Near, ridges: Sequence[Ridge]) -> list[LatentArray]:
        """Return the weights (targets, K) of the nearest columns of some targets, for each
        ridge."""
        device = self.cells.device if isinstance(self.cells, Tensor) else CPU
        solved = [np.zeros(near.cells.shape, dtype=np.float32) for _ in ridges]
        counts = np.count_nonzero(near.places < self.sizes.size, axis=1)
        are_short, costs = self._compare_costs(near.places)
        order = np.lexsort((-counts, are_short))
        order = order[counts[order] > 0]
        most_cells = _CELLS_ON_GPU if device.type == "cuda" else _CELLS_ON_CPU
        ends = _cut(
            np.square(counts[order]) / most_cells + costs[order] / _READ_AT_A_TIME, 1.0, order.size
        )
        turn = np.searchsorted(are_short[order], True)  # from here on, lines are short
        parts = [order[start:stop] for start, stop in pairwise(np.unique([*ends, turn]))]

        def solve(targets: IndexArray) -> None:
            width = int(counts[targets[0]])
            equations = self._gather(
                near.places[targets, :width], by_lines=bool(are_short[targets[0]])
            )
            sums = torch.from_numpy(near.cells[targets, :width]).to(device)
            for ridge, weights in zip(ridges, solved, strict=True):
                weights[targets, :width] = round_weights(_solve(equations, sums, ridge))

        ranks = self.ranks
        run_batches(solve, parts if ranks is None else parts[ranks.index :: ranks.size], device)
        if ranks is not None:
            for weights in solved:
                ranks.sum_(torch.from_numpy(weights))
        return solved

    def _compare_costs(self, places: IndexArray) -> tuple[BoolArray, FloatArray]:
        """Return for which targets products of lines take less time than finding cells, and what
        either reads."""
        if isinstance(self.cells, Tensor):
            return np.zeros(len(places), dtype=bool), np.zeros(len(places))
        matrices = (self.cells,) if self.lines is None else (self.cells, self.lines)
        lengths = [np.append(np.diff(each.indptr), 0)[places].sum(axis=1) for each in matrices]
        are_short = _PRODUCT_COST * lengths[-1] < lengths[0]
        return are_short, np.where(are_short, lengths[-1], lengths[0]).astype(np.float64)

    def _gather(self, places: IndexArray, *, by_lines: bool) -> Tensor:
        """Return the cells G_SS (targets, K, K) of places S (targets, K), and 0 where there is no
        column."""
        n_columns = self.sizes.size
        if isinstance(self.cells, Tensor):
            at = torch.from_numpy(places).to(self.cells.device).long()
            is_missing, at = at == n_columns, at.clamp_max(n_columns - 1)
            found = self.cells.view(-1).index_select(
                0, (at[:, :, None] * n_columns + at[:, None]).view(-1)
            )
            found = found.view(*at.shape, -1)
            if np.any(places == n_columns):
                found.masked_fill_(is_missing[:, :, None] | is_missing[:, None], 0.0)
            return found
        target, first = np.nonzero(places < n_columns)
        columns = places[target, first]
        if by_lines and self.lines is not None:
            at_line = target * places.shape[1] + first
            return torch.from_numpy(_multiply_lines(self.lines, at_line, columns, places.shape))
        cells = np.zeros((len(places), *places.shape[1:] * 2), dtype=np.float32)
        own, n_own = _number(columns, n_columns)
        place_of = np.full((len(places), n_own + 1), -1, dtype=np.int32)
        place_of[target, own[columns]] = first
        cells_at, which = find_spans(columns, self.cells.indptr)
        second = place_of.ravel()[target[which] * (n_own + 1) + own[self.cells.indices[cells_at]]]
        inside = np.flatnonzero(second >= 0)
        which = which[inside]
        cells[target[which], first[which], second[inside]] = self.cells.data[cells_at[inside]]
        return torch.from_numpy(np.maximum(cells, cells.transpose(0, 2, 1)))  # either may be pruned


def count_affordable(n_columns: int, *, on_gpu: bool = False) -> int:
    """Return the number of nearest columns whose regressions take seconds."""
    most = _MOST_NEAR[on_gpu]
    return most if on_gpu else int(np.clip((_MOST_CELLS / n_columns) ** 0.5, _FEWEST_NEAR, most))


def _regress_on_all(gram: Tensor, sums: Tensor | None, ridge: Ridge) -> LatentArray:
    """Return the weights A^-1 B, A = G with its ridge; without sums B, -P / diag P off the
    diagonal, P = A^-1."""
    equations = gram.clone()
    equations.diagonal().add_(ridge.penalty + ridge.noise * gram.diagonal())
    if sums is not None:
        return round_weights(torch.cholesky_solve(sums, torch.linalg.cholesky(equations)))
    inverse = _invert(equations)
    return round_weights(inverse.div_(-inverse.diagonal().clone()).fill_diagonal_(0.0))


def _solve(equations: Tensor, sums: Tensor, ridge: Ridge) -> Tensor:
    """Return the weights (targets, K) of some regressions.

    Where a pruned matrix is not positive definite, each column is regressed on its own.
    """
    shrunk, sizes = equations.clone(), equations.diagonal(dim1=1, dim2=2)
    diagonals = sizes * (1.0 + ridge.noise) + ridge.penalty
    shrunk.diagonal(dim1=1, dim2=2).copy_(diagonals)
    lower, failed = torch.linalg.cholesky_ex(shrunk)
    found: Tensor = torch.cholesky_solve(sums[..., None], lower)[..., 0]
    return torch.where(failed[:, None] > 0, sums / diagonals, found)


def round_weights(weights: Tensor) -> LatentArray:
    """Return weights as they are in a file, which has half precision: no score changes by more than
    1e-4."""
    return np.ascontiguousarray(weights.half().float().cpu().numpy())


def count_near(n_entries: IndexArray, most: int) -> IndexArray:
    """Return the number of nearest columns of each column, which grows with its number of
    entries."""
    return np.clip(_NEAR_BY_ENTRY * n_entries, min(_FEWEST_NEAR, most), most)


def _find_near(cells: Tensor, sizes: LatentArray, counts: IndexArray) -> Near:
    """Return the nearest columns by the cosine, some for each column, from all cells of G."""
    n_columns, most, device = counts.size, int(counts.max()), cells.device
    scales = torch.from_numpy(sizes).to(device).clamp_min(_TINY).rsqrt()
    near = Near(
        np.empty((n_columns, most), dtype=np.int32), np.empty((n_columns, most), dtype=np.float32)
    )
    for start in range(0, n_columns, _LINES_AT_A_TIME):
        some = slice(start, start + _LINES_AT_A_TIME)
        lines = cells[some]
        cosines = (lines * scales).diagonal_scatter(
            torch.full((len(lines),), -1.0, device=device), offset=start
        )
        places = cosines.topk(most, dim=1).indices
        found = lines.gather(1, places)
        is_near = (found > 0) & (
            torch.arange(most, device=device) < torch.from_numpy(counts[some, None]).to(device)
        )
        near.places[some] = torch.where(is_near, places, n_columns).cpu().numpy()
        near.cells[some] = torch.where(is_near, found, 0.0).cpu().numpy()
    return near


def _prune(
    weighted: Sparse, turned: Sparse, sizes: LatentArray, counts: IndexArray, ranks: Ranks | None
) -> tuple[Sparse, LatentArray, Near]:
    """Return the cells of G among nearest columns, its diagonal, and the nearest columns by the
    cosine.

    Ranks divide the columns.
    """
    n_columns, most = counts.size, int(counts.max())
    n_kept, scales = _KEPT * most, 1 / np.sqrt(np.maximum(sizes, _TINY))

    def search(span: tuple[int, int]) -> tuple[Sparse, Near]:
        """Return the pruned lines of G of some columns, and their nearest columns."""
        start, stop = span
        shape = stop - start, most
        near = Near(np.full(shape, n_columns, dtype=np.int32), np.zeros(shape, dtype=np.float32))
        lines = turned[start:stop] @ weighted
        cosines, kept = lines.data * scales[lines.indices], []
        for at, (first, last) in enumerate(pairwise(lines.indptr)):
            own, found = cosines[first:last], lines.indices[first:last]
            own[found == start + at] = np.inf  # the diagonal is kept, and is not among the nearest
            best = np.arange(own.size)
            if own.size > n_kept + 1:
                best = np.argpartition(own, own.size - n_kept - 1)[own.size - n_kept - 1 :]
            kept.append(first + best)
            n_near = counts[start + at] + 1
            if best.size > n_near:
                best = best[np.argpartition(own[best], best.size - n_near)[best.size - n_near :]]
            best = best[np.lexsort((found[best], -own[best]))][1:]
            near.places[at, : best.size] = found[best]
            near.cells[at, : best.size] = lines.data[first:last][best]
        ends, cells = np.cumsum([0, *map(len, kept)]), np.concatenate(kept)
        return Sparse((lines.data[cells], lines.indices[cells], ends), shape=lines.shape), near

    lengths = np.diff(weighted.indptr)
    cells = np.bincount(weighted.indices, np.repeat(lengths, lengths), minlength=n_columns)
    spans = list(pairwise(_cut(np.minimum(cells, n_columns), _CELLS_AT_A_TIME, _LINES_AT_A_TIME)))
    found = run_batches(search, spans if ranks is None else spans[ranks.index :: ranks.size])
    if ranks is not None:
        shares = ranks.collect(found)
        found = [shares[at % ranks.size][at // ranks.size] for at in range(len(spans))]
    pruned, near = zip(*found, strict=True)
    places, nearest = (np.concatenate(parts) for parts in zip(*near, strict=True))
    return Sparse(scipy.sparse.vstack(pruned, format="csr")), sizes, Near(places, nearest)


def _find_sharing() -> Ranks | None:
    """Return the ranks that divide the regressions of columns, which are independent; on GPUs, each
    solves all."""
    from deepmf.nn.ranks import find_ranks  # only several processes need it

    ranks = find_ranks()
    return ranks if ranks is not None and ranks.device.type == "cpu" else None


def _cut(sizes: Array, most: float, most_items: int) -> list[int]:
    """Return the ends of consecutive groups of items, each of bounded size and number; a large item
    alone."""
    sums, ends = np.cumsum(sizes), [0]
    while ends[-1] < sums.size:
        start = ends[-1]
        reached = np.searchsorted(sums, most + (sums[start - 1] if start else 0.0), side="right")
        ends.append(int(np.clip(reached, start + 1, min(start + most_items, sums.size))))
    return ends


def _number(used: IndexArray, n: int) -> tuple[IndexArray, int]:
    """Return a number from 0 on for each of the positions that are used, and after these one for
    all others."""
    is_used = np.zeros(n, dtype=bool)
    is_used[used] = True
    n_used = int(np.count_nonzero(is_used))
    return np.where(is_used, np.cumsum(is_used) - 1, n_used), n_used


def _multiply_lines(
    lines: Sparse, at: IndexArray, columns: IndexArray, shape: tuple[int, ...]
) -> LatentArray:
    """Return the inner products (targets, K, K) of the lines of columns at places of (targets, K),
    in one product."""
    n_targets, n_near = shape
    taken = lines[columns]
    targets = np.repeat(at // n_near, np.diff(taken.indptr))
    own, n_own = _number(taken.indices, lines.shape[1])
    apart = Sparse(
        (taken.data, targets * n_own + own[taken.indices], taken.indptr),
        shape=(at.size, n_targets * n_own),
    )
    product = (apart @ apart.T).tocoo()
    found = np.zeros((n_targets * n_near, n_near), dtype=np.float32)
    found[at[product.row], at[product.col] % n_near] = product.data
    return found.reshape(n_targets, n_near, n_near)


def _multiply(weighted: Sparse, device: torch.device) -> Tensor:
    """Return the product of the transposed matrix with itself.

    A product in dense blocks of rows is faster than a sparse one on a GPU, and on a CPU where rows
    have many entries: 1.0 instead of 1.8 CPU seconds on MovieLens-1M.
    """
    n_rows, n_columns = weighted.shape
    counts = np.diff(weighted.indptr).astype(np.float64)
    on_gpu = device.type == "cuda"
    if not on_gpu and n_rows * float(n_columns) ** 2 > _SPARSE_COST * np.square(counts).sum():
        turned, cells = Sparse(weighted.T), np.empty((n_columns, n_columns), dtype=np.float32)

        def fill(start: int) -> None:
            some = slice(start, start + _LINES_AT_A_TIME)
            (turned[some] @ weighted).toarray(out=cells[some])

        run_batches(fill, range(0, n_columns, _LINES_AT_A_TIME))
        return torch.from_numpy(cells)
    product = torch.zeros(n_columns, n_columns, dtype=torch.float32, device=device)
    for start in range(0, n_rows, _ROWS_AT_A_TIME):
        block = weighted[start : start + _ROWS_AT_A_TIME].toarray()
        if on_gpu:
            sent = torch.from_numpy(block).to(device)
            product.addmm_(sent.mT, sent)
        else:
            # numpy computes one half of it, and copies that
            product += torch.from_numpy(block.T @ block)
    return product


def _invert(equations: Tensor) -> Tensor:
    """Return the inverse of a positive definite matrix, which it overwrites."""
    if equations.is_cuda:
        factor, failed = torch.linalg.cholesky_ex(equations)
    else:  # LAPACK in place takes three quarters of the time
        lower, failed = spotrf(equations.numpy().T, lower=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("the regressions of columns have no solution")
    if equations.is_cuda:
        return torch.cholesky_inverse(factor)
    half = torch.from_numpy(spotri(lower, lower=1, overwrite_c=1)[0].T).triu()
    return half + half.triu(1).mT


def read_rows(entries: AxisEntries, n_others: int, count_weight: float) -> Sparse:
    """Return entries as a sparse matrix (groups, others), in the numbers that the regressions
    read."""
    shape = (entries.starts.size - 1, n_others)
    return Sparse(
        (_read_entries(entries, count_weight), entries.others, entries.starts), shape=shape
    )


def _read_entries(entries: AxisEntries, count_weight: float) -> LatentArray:
    """Return the number that each entry is read as: its weighed count, times the root of its
    weight."""
    counts = np.ones(entries.values.shape, dtype=np.float32)
    if count_weight:
        counts = (1.0 + count_weight * np.log(np.maximum(entries.values, 1.0))).astype(np.float32)
    weights = entries.extras.weights
    return counts if weights is None else counts * np.sqrt(weights).astype(np.float32)


def _scale_rows(train: ObservedMatrix, power: float) -> LatentArray:
    """Return (mean row length / length of a row) to a power for each row."""
    counts = np.maximum(train.row_counts, 1)
    if train.weights is not None:
        counts = _count_effective(train.entry_rows, train.weights, train.shape[0])
    scales: LatentArray = (counts.mean() / counts).astype(np.float32) ** np.float32(power)
    return scales


def _weigh_entries(train: ObservedMatrix, power: float, count_weight: float) -> Sparse:
    """Return the matrix of all entries as they are read, each times the scale of its row."""
    values = np.asarray(train.values, dtype=np.float64)
    entries = AxisEntries(
        train.by_row.starts, train.by_row.columns, values, extras=Extras(weights=train.weights)
    )
    weighted = read_rows(entries, train.shape[1], count_weight)
    weighted.data *= np.repeat(_scale_rows(train, power), np.diff(train.by_row.starts))
    return weighted


def _count_effective(rows: IndexArray, weights: Array, n_rows: int) -> FloatArray:
    """Return the effective number of entries of each row, at least 1: equal weights count as
    without weights."""
    largest = np.zeros(n_rows)
    np.maximum.at(largest, rows, weights)
    relative = weights / largest[rows]  # squares of tiny weights would be 0
    sums, squares = (
        np.bincount(rows, part, minlength=n_rows) for part in (relative, np.square(relative))
    )
    return np.maximum(np.square(sums) / np.maximum(squares, 1e-300), 1.0)


def make_empty(n_columns: int) -> scipy.sparse.csc_array:
    """Return the weights of no new columns."""
    return scipy.sparse.csc_array((n_columns, 0), dtype=np.float32)
