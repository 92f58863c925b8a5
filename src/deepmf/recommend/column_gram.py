"""Gram matrices of columns, and the regressions of columns on others that they give.

`Gram.of` returns G = X'DX of a matrix, whole where columns are few, otherwise the cells among
nearest columns. `Gram.fit` solves the regressions of `column_ridge.py` for several ridges at once.
Columns are nearest by the cosine in G.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.linalg.lapack import spotrf, spotri

from deepmf.linalg.positive import solve_positive
from deepmf.linalg.ridge import run_batches
from deepmf.linalg.svd import LowRank, Products, compute_truncated_svd
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, LatentArray, fetch
from deepmf.matrix.axis_entries import AxisEntries, find_spans
from deepmf.matrix.extras import Extras
from deepmf.matrix.library import place_beside
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.recommend.column_ridge import (
    ROW_POWER,
    TINY,
    ColumnRidge,
    Ridge,
    Sparse,
    make_empty,
    read_rows,
    scale_rows_by_length,
)

if TYPE_CHECKING:
    import torch

    from deepmf.nn.ranks import Ranks

# The cells of a dense matrix: an array, or a tensor on a GPU.
Cells: TypeAlias = Any

# Columns that are regressed on all others, at most: their weights take 150 MB, an inverse seconds.
MOST_FULL = 6000

# Nearest columns on which a column is regressed, at most on a GPU and on a CPU, and at least.
_MOST_NEAR_ON_GPU = 400
_MOST_NEAR_ON_CPU = 200
_FEWEST_NEAR = 50

# Cells of Gram matrices that a CPU gathers for all columns together: 30 ms for a million.
_MOST_GATHERED = 1.6e9

# Nearest columns for each entry of a column, on a CPU.
_NEAR_BY_ENTRY = 4

# Columns of which all cells of the Gram matrix are kept, at most: 400 MB on a CPU, 14 GB on a GPU.
_MOST_DENSE_ON_CPU = 10_000
_MOST_DENSE_ON_GPU = 60_000

# Cells that are kept of a line of a pruned Gram matrix, in nearest columns.
_KEPT_BY_NEAR = 4

# Rows of a dense block.
_ROWS_AT_A_TIME = 2048

# Products of dense numbers that take as long as a product of two sparse ones.
_SPARSE_COST = 1000

# Lines of a matrix that LAPACK inverts; products of blocks invert larger ones in half the time.
_INVERTED_AT_A_TIME = 512

# Lines of the Gram matrix that exist at a time, and their cells (64 MB with their columns).
_LINES_AT_A_TIME = 1024
_CELLS_AT_A_TIME = 1 << 23

# Cells of regressions that are solved together: 2.5 MB on a CPU, 1 GB on a GPU.
_CELLS_ON_CPU = 16 * 200**2
_CELLS_ON_GPU = 1 << 28

# Entries or cells that are read for regressions that are solved together.
_READ_AT_A_TIME = 1 << 19

# How many times as long the product of an entry takes as finding a cell.
_PRODUCT_COST = 4

# Leading directions that a filter passes, at most.
_MOST_DIRECTIONS = 100

# Those that are tried on held-out entries, by kind, the usual one first: the best penalty grows
# with the number of entries of a column.
RIDGES = {
    "full": (Ridge(500.0, 1.5), Ridge(200.0, 2.5), Ridge(80.0, 1.5)),
    "nearest": (Ridge(80.0, 1.5), Ridge(40.0, 1.5), Ridge(200.0, 2.5), Ridge(200.0, 6.0)),
}


class Near(NamedTuple):
    """The nearest columns (columns, K) of each column, nearest first, and their cells of G in its
    column.

    One past the last column, and 0, where there are fewer.
    """

    places: npt.NDArray[np.int32]
    cells: LatentArray


class Gram(NamedTuple):
    """G on the CPU or a GPU, and what columns are regressed on.

    cells: all cells of G, or for each column some of them. sizes: the diagonal (columns,).
    sums: the right sides (columns, columns); None: G itself, each column regressed on all others.
        Or the nearest columns.
    lines: X'D^(1/2) beside sparse cells: products of short lines take less time than finding cells.
    ranks: those that divide the regressions; None: each solves all, as where several threads fit
        models at a time.
    """

    cells: Cells | Sparse
    sizes: LatentArray
    sums: Cells | Near | None = None
    count_weight: float = 0.0
    lines: Sparse | None = None
    ranks: Ranks | None = None

    @classmethod
    def of(
        cls,
        train: ObservedMatrix,
        kind: str,
        count_weight: float = 0.0,
        gpu: torch.device | None = None,
        *,
        power: float = ROW_POWER,
        columns: IndexArray | None = None,
        most_near: int | None = None,
        most_dense: int | None = None,
    ) -> Gram:
        """Return the Gram matrix of a matrix, for a kind of model: "full" or "nearest".

        power: of the number of entries of a row, by which long rows count less.
        columns: those that it is of; default: all.
        most_near: the number of nearest columns; default: as many as take seconds.
        most_dense: the most columns of which all cells are kept; default: as many as suit the
            device.
        """
        weighted = _weigh_entries(train, power / 2, count_weight)
        if columns is not None:
            weighted = weighted[:, columns]
        n_columns = weighted.shape[1]
        sizes = np.bincount(weighted.indices, np.square(weighted.data), minlength=n_columns).astype(
            np.float32
        )
        if kind == "full":
            return cls(multiply_columns(weighted, gpu), sizes, count_weight=count_weight)
        on_gpu = gpu is not None
        if most_dense is None:
            most_dense = _MOST_DENSE_ON_GPU if on_gpu else _MOST_DENSE_ON_CPU
        is_dense = n_columns <= most_dense
        on_gpu = on_gpu and is_dense
        most = max(min(most_near or count_affordable(n_columns, on_gpu=on_gpu), n_columns - 1), 1)
        counts = np.full(n_columns, most)
        if not on_gpu:
            counts = count_near(np.bincount(weighted.indices, minlength=n_columns), most)
        ranks = None if on_gpu else _find_sharing()
        if is_dense:
            cells = multiply_columns(weighted, gpu)
            return cls(cells, sizes, _find_near(cells, sizes, counts), count_weight, ranks=ranks)
        lines = Sparse(weighted.T)
        return cls(*_prune(weighted, lines, sizes, counts, ranks), count_weight, lines, ranks)

    def fit_some(self, ridges: Sequence[Ridge], columns: IndexArray) -> list[ColumnRidge]:
        """Return models that score some columns: regressed on these alone, or on their nearest
        columns."""
        if isinstance(self.sums, Near):
            return self.fit(ridges, columns)
        cells = self.cells[np.ix_(columns, columns)]
        sums = None if self.sums is None else self.sums[np.ix_(columns, columns)]
        return Gram(cells, self.sizes[columns], sums, self.count_weight).fit(ridges)

    def fit(self, ridges: Sequence[Ridge], targets: IndexArray | None = None) -> list[ColumnRidge]:
        """Return the model of each ridge; of nearest columns, with the weights of some targets
        alone."""
        n_columns = self.sizes.size
        models_weights: list[LatentArray | Sparse] = []
        if isinstance(self.sums, Near):
            targets = np.arange(n_columns) if targets is None else targets
            near = Near(self.sums.places[targets], self.sums.cells[targets])
            starts = np.zeros(n_columns + 1, dtype=np.int64)
            for weights in self._regress_on_near(near, ridges):
                is_kept = weights != 0
                starts[targets + 1] = np.count_nonzero(is_kept, axis=1)
                data = (weights[is_kept], near.places[is_kept], np.cumsum(starts))
                models_weights.append(
                    scipy.sparse.csc_array(data, shape=(n_columns, n_columns)).tocsr()
                )
        else:
            models_weights = [_regress_on_all(self.cells, self.sums, ridge) for ridge in ridges]
        return [
            ColumnRidge(weights, self.sizes, ridge, make_empty(n_columns), self.count_weight)
            for weights, ridge in zip(models_weights, ridges, strict=True)
        ]

    def pass_low(self) -> LatentArray:
        """Return the weights of an ideal low-pass filter: what the leading directions of rows pass.

        With V the leading eigenvectors of the cosines of columns and D the diagonal of G, they are
        D^-1/2 V V' D^1/2 (Shen et al., "How powerful is graph convolution for recommendation?",
        2021), here times (d / D)^1/5, which lets popular columns count less; d is a usual size.
        """
        n_columns, roots = self.sizes.size, np.sqrt(np.maximum(self.sizes, TINY))
        cosines = fetch(self.cells) / roots / roots[:, None]
        n_directions = min(_MOST_DIRECTIONS, n_columns // 8 + 1)  # few of a narrow matrix
        start = LowRank.zero(cosines.shape, rank=n_directions, seed=0).column_vectors
        products = Products(cosines.__matmul__, cosines.__matmul__)
        leading = compute_truncated_svd(products, start=start.astype(np.float32), steps=4)
        directions = leading.column_vectors
        usual = self.sizes @ self.sizes / max(self.sizes.sum(), TINY)
        scales = roots * (usual / np.square(roots)) ** 0.2
        passed = (directions / roots[:, None]) @ (directions.T * scales)
        np.fill_diagonal(passed, 0.0)
        weights: LatentArray = passed.astype(np.float32)
        return weights

    def _regress_on_near(self, near: Near, ridges: Sequence[Ridge]) -> list[LatentArray]:
        """Return the weights (targets, K) of the nearest columns of some targets, for each
        ridge."""
        on_gpu = _is_on_gpu(self.cells)
        weights_of_ridges = [np.zeros(near.cells.shape, dtype=np.float32) for _ in ridges]
        counts = np.count_nonzero(near.places < self.sizes.size, axis=1)
        are_short, costs = self._compare_costs(near.places)
        order = np.lexsort((-counts, are_short))
        order = order[counts[order] > 0]
        most_cells = _CELLS_ON_GPU if on_gpu else _CELLS_ON_CPU
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
            for ridge, weights in zip(ridges, weights_of_ridges, strict=True):
                solutions = _solve(equations, near.cells[targets, :width], ridge)
                weights[targets, :width] = round_weights(solutions)

        ranks = self.ranks
        if on_gpu:
            for targets in parts:
                solve(targets)
        else:
            run_batches(solve, parts if ranks is None else parts[ranks.index :: ranks.size])
        if ranks is not None:
            for weights in weights_of_ridges:
                ranks.sum_(weights)
        return weights_of_ridges

    def _compare_costs(self, places: IndexArray) -> tuple[BoolArray, FloatArray]:
        """Return for which targets products of lines take less time than finding cells, and what
        either reads."""
        if not isinstance(self.cells, scipy.sparse.csr_array):
            return np.zeros(len(places), dtype=bool), np.zeros(len(places))
        matrices = (self.cells,) if self.lines is None else (self.cells, self.lines)
        lengths = [np.append(np.diff(matrix.indptr), 0)[places].sum(axis=1) for matrix in matrices]
        are_short = _PRODUCT_COST * lengths[-1] < lengths[0]
        return are_short, np.where(are_short, lengths[-1], lengths[0]).astype(np.float64)

    def _gather(self, places: IndexArray, *, by_lines: bool) -> Cells:
        """Return the cells G_SS (targets, K, K) of places S (targets, K), and 0 where there is no
        column."""
        n_columns = self.sizes.size
        if not isinstance(self.cells, scipy.sparse.csr_array):
            is_missing = places == n_columns
            at = np.minimum(places, n_columns - 1).astype(np.int64)
            gathered = self.cells.take(
                place_beside(at[:, :, None] * n_columns + at[:, None], self.cells)
            )
            if is_missing.any():
                gathered[place_beside(is_missing[:, :, None] | is_missing[:, None], self.cells)] = (
                    0.0
                )
            return gathered
        target, first = np.nonzero(places < n_columns)
        columns = places[target, first]
        if by_lines and self.lines is not None:
            at_line = target * places.shape[1] + first
            return _multiply_lines(self.lines, at_line, columns, places.shape)
        cells = np.zeros((len(places), *places.shape[1:] * 2), dtype=np.float32)
        number_of, n_numbers = _number(columns, n_columns)
        place_of = np.full((len(places), n_numbers + 1), -1, dtype=np.int32)
        place_of[target, number_of[columns]] = first
        cells_at, which = find_spans(columns, self.cells.indptr)
        second = place_of.ravel()[
            target[which] * (n_numbers + 1) + number_of[self.cells.indices[cells_at]]
        ]
        inside = np.flatnonzero(second >= 0)
        which = which[inside]
        cells[target[which], first[which], second[inside]] = self.cells.data[cells_at[inside]]
        pruned: LatentArray = np.maximum(cells, cells.transpose(0, 2, 1))  # either may be pruned
        return pruned


def count_affordable(n_columns: int, *, on_gpu: bool = False) -> int:
    """Return the number of nearest columns whose regressions take seconds."""
    if on_gpu:
        return _MOST_NEAR_ON_GPU
    return int(np.clip((_MOST_GATHERED / n_columns) ** 0.5, _FEWEST_NEAR, _MOST_NEAR_ON_CPU))


def _regress_on_all(gram: Cells, sums: Cells | None, ridge: Ridge) -> LatentArray:
    """Return the weights A^-1 B, A = G with its ridge; without sums B, -P / diag P off the
    diagonal, P = A^-1."""
    diagonal = np.arange(len(gram))
    equations = gram * 1.0
    equations[diagonal, diagonal] *= 1.0 + ridge.noise
    equations[diagonal, diagonal] += ridge.penalty
    inverse = _invert(equations)
    if sums is not None:
        return round_weights(inverse @ sums)
    inverse /= -inverse.diagonal() * 1.0
    inverse[diagonal, diagonal] = 0.0
    return round_weights(inverse)


def _solve(equations: Cells, sums: LatentArray, ridge: Ridge) -> Cells:
    """Return the weights (targets, K) of some regressions.

    Where a pruned matrix is not positive definite, each column is regressed on its own.
    """
    diagonals = equations.diagonal(0, 1, 2) * (1.0 + ridge.noise) + ridge.penalty
    right = place_beside(sums, equations)
    shrunk = equations * 1.0
    diagonal = np.arange(sums.shape[1])
    shrunk[:, diagonal, diagonal] = diagonals
    solutions, failures = solve_positive(shrunk, right)
    alone = (right / diagonals)[failures]
    solutions[failures] = alone
    return solutions


def _is_on_gpu(cells: Any) -> bool:
    return bool(getattr(cells, "is_cuda", False))


def send_cells(array: Array, gpu: torch.device | None) -> Any:
    """Return an array as a tensor on a GPU; the array itself without one."""
    if gpu is None:
        return array
    import torch

    return torch.from_numpy(array).to(gpu)


def round_weights(weights: Cells) -> LatentArray:
    """Return weights as they are in a file, which has half precision: no score changes by more than
    1e-4."""
    return fetch(weights).astype(np.float16).astype(np.float32)


def count_near(n_entries: IndexArray, most: int) -> IndexArray:
    """Return the number of nearest columns of each column, which grows with its number of
    entries."""
    return np.clip(_NEAR_BY_ENTRY * n_entries, min(_FEWEST_NEAR, most), most)


def _find_near(cells: Cells, sizes: LatentArray, counts: IndexArray) -> Near:
    """Return the nearest columns by the cosine, some for each column, from all cells of G."""
    shape = counts.size, int(counts.max())
    near = Near(np.full(shape, counts.size, dtype=np.int32), np.zeros(shape, dtype=np.float32))
    roots = np.sqrt(np.maximum(sizes, TINY))
    if _is_on_gpu(cells):
        return _find_near_on_gpu(cells, roots, near)
    for column, n_near in enumerate(counts):
        line = cells[column]
        beside = np.flatnonzero(line > 0)
        beside = beside[beside != column]
        cosines = line[beside] / roots[beside]
        if beside.size > n_near:
            best = np.argpartition(cosines, beside.size - n_near)[beside.size - n_near :]
            beside, cosines = beside[best], cosines[best]
        beside = beside[np.lexsort((beside, -cosines))]
        near.places[column, : beside.size] = beside
        near.cells[column, : beside.size] = line[beside]
    return near


def _find_near_on_gpu(cells: Any, roots: LatentArray, near: Near) -> Near:
    """Write the nearest columns, as many for each column as there is room for."""
    n_columns, most = near.places.shape
    roots = place_beside(roots, cells)
    for start in range(0, n_columns, _LINES_AT_A_TIME):
        span = slice(start, start + _LINES_AT_A_TIME)
        cosines = cells[span] / roots
        cosines.reshape(-1)[start :: n_columns + 1] = -1.0  # no column is near itself
        places = cosines.topk(most, dim=1).indices
        nearest_cells = cells[span].gather(1, places)
        is_near = nearest_cells > 0
        near.places[span] = places.where(is_near, n_columns).cpu().numpy()
        near.cells[span] = nearest_cells.where(is_near, 0.0).cpu().numpy()
    return near


def _prune(
    weighted: Sparse, turned: Sparse, sizes: LatentArray, counts: IndexArray, ranks: Ranks | None
) -> tuple[Sparse, LatentArray, Near]:
    """Return the cells of G among nearest columns, its diagonal, and the nearest columns by the
    cosine.

    Ranks divide the columns.
    """
    n_columns, most = counts.size, int(counts.max())
    n_kept, scales = _KEPT_BY_NEAR * most, 1 / np.sqrt(np.maximum(sizes, TINY))

    def search(span: tuple[int, int]) -> tuple[Sparse, Near]:
        """Return the pruned lines of G of some columns, and their nearest columns."""
        start, stop = span
        shape = stop - start, most
        near = Near(np.full(shape, n_columns, dtype=np.int32), np.zeros(shape, dtype=np.float32))
        lines = turned[start:stop] @ weighted
        cosines, kept_cells = lines.data * scales[lines.indices], []
        for at, (first, last) in enumerate(pairwise(lines.indptr)):
            line_cosines, line_columns = cosines[first:last], lines.indices[first:last]
            line_cosines[line_columns == start + at] = (
                np.inf
            )  # the diagonal is kept, and is not among the nearest
            best = np.arange(line_cosines.size)
            if line_cosines.size > n_kept + 1:
                best = np.argpartition(line_cosines, line_cosines.size - n_kept - 1)[
                    line_cosines.size - n_kept - 1 :
                ]
            kept_cells.append(first + best)
            n_near = counts[start + at] + 1
            if best.size > n_near:
                best = best[
                    np.argpartition(line_cosines[best], best.size - n_near)[best.size - n_near :]
                ]
            best = best[np.lexsort((line_columns[best], -line_cosines[best]))][1:]
            near.places[at, : best.size] = line_columns[best]
            near.cells[at, : best.size] = lines.data[first:last][best]
        ends, cells = np.cumsum([0, *map(len, kept_cells)]), np.concatenate(kept_cells)
        return Sparse((lines.data[cells], lines.indices[cells], ends), shape=lines.shape), near

    lengths = np.diff(weighted.indptr)
    cells = np.bincount(weighted.indices, np.repeat(lengths, lengths), minlength=n_columns)
    spans = list(pairwise(_cut(np.minimum(cells, n_columns), _CELLS_AT_A_TIME, _LINES_AT_A_TIME)))
    pruned_parts = run_batches(search, spans if ranks is None else spans[ranks.index :: ranks.size])
    if ranks is not None:
        shares = ranks.collect(pruned_parts)
        pruned_parts = [shares[at % ranks.size][at // ranks.size] for at in range(len(spans))]
    pruned, near = zip(*pruned_parts, strict=True)
    places, nearest = (np.concatenate(parts) for parts in zip(*near, strict=True))
    return Sparse(scipy.sparse.vstack(pruned, format="csr")), sizes, Near(places, nearest)


def _find_sharing() -> Ranks | None:
    """Return the ranks that divide the regressions of columns, which are independent; on GPUs, each
    solves all."""
    from deepmf.nn.group import find_ranks  # only several processes need it

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
    taken_lines = lines[columns]
    targets = np.repeat(at // n_near, np.diff(taken_lines.indptr))
    number_of, n_numbers = _number(taken_lines.indices, lines.shape[1])
    apart = Sparse(
        (
            taken_lines.data,
            targets * n_numbers + number_of[taken_lines.indices],
            taken_lines.indptr,
        ),
        shape=(at.size, n_targets * n_numbers),
    )
    product = (apart @ apart.T).tocoo()
    products = np.zeros((n_targets * n_near, n_near), dtype=np.float32)
    products[at[product.row], at[product.col] % n_near] = product.data
    return products.reshape(n_targets, n_near, n_near)


def multiply_columns(weighted: Sparse, gpu: torch.device | None) -> Cells:
    """Return the product of the transposed matrix with itself.

    Products of dense blocks of rows are faster than sparse ones on a GPU, and on a CPU between
    columns in which many rows have an entry: .9 CPU seconds on MovieLens-1M, instead of 1.5 in
    dense blocks alone and 2.0 as a sparse product.
    """
    n_rows, n_columns = weighted.shape
    shares = np.bincount(weighted.indices, minlength=n_columns) / max(n_rows, 1)
    is_dense = (np.square(shares) * _SPARSE_COST > 1.0) | (gpu is not None)
    dense, sparse = np.flatnonzero(is_dense), np.flatnonzero(~is_dense)
    square = send_cells(np.zeros((dense.size, dense.size), dtype=np.float32), gpu)
    dense_columns = weighted if sparse.size == 0 else weighted[:, dense]
    for start in range(0, n_rows if dense.size else 0, _ROWS_AT_A_TIME):
        block = place_beside(dense_columns[start : start + _ROWS_AT_A_TIME].toarray(), square)
        square += block.T @ block  # numpy computes one half of it, and copies that
    if sparse.size == 0:
        return square
    product = np.empty((n_columns, n_columns), dtype=np.float32)
    product[np.ix_(dense, dense)] = square
    turned = Sparse(weighted.T)

    def fill(start: int) -> None:
        columns = sparse[start : start + _LINES_AT_A_TIME]
        lines = (turned[columns] @ weighted).toarray()
        product[columns] = lines
        product[np.ix_(dense, columns)] = lines[:, dense].T

    run_batches(fill, range(0, sparse.size, _LINES_AT_A_TIME))
    return product


def _invert(matrix: Cells) -> Any:
    """Return the inverse of a positive definite matrix.

    With A and C the blocks on the diagonal, B beside A and S = C - B' A^-1 B, the inverse has the
    blocks A^-1 + T S^-1 T' and S^-1 on its diagonal and -T S^-1 beside, where T = A^-1 B.
    """
    if _is_on_gpu(matrix):
        import torch

        return torch.cholesky_inverse(torch.linalg.cholesky(matrix))
    if len(matrix) <= _INVERTED_AT_A_TIME:
        lower, failed = spotrf(matrix.T, lower=1)
        if failed:
            raise np.linalg.LinAlgError("the regressions of columns have no solution")
        upper = np.triu(spotri(lower, lower=1, overwrite_c=1)[0].T)
        return upper + np.triu(upper, 1).T
    half = len(matrix) // 2
    first = _invert(matrix[:half, :half])
    turned = first @ matrix[:half, half:]
    last = _invert(matrix[half:, half:] - matrix[half:, :half] @ turned)
    beside = turned @ last
    return np.block([[first + beside @ turned.T, -beside], [-beside.T, last]])


def _weigh_entries(train: ObservedMatrix, power: float, count_weight: float) -> Sparse:
    """Return the matrix of all entries as they are read, each times the scale of its row."""
    values = np.asarray(train.values, dtype=np.float64)
    entries = AxisEntries(
        train.by_row.starts, train.by_row.columns, values, extras=Extras(weights=train.weights)
    )
    weighted = read_rows(entries, train.shape[1], count_weight)
    weighted.data *= np.repeat(scale_rows_by_length(train, power), np.diff(train.by_row.starts))
    return weighted
