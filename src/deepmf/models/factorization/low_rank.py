"""Matrices of low rank: truncated SVD from products alone, soft thresholds, and penalties that grow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.latents import entry_products

# Entries of a dense matrix that exist at a time, 16 MB: in smaller blocks the threads of a product wait for each other.
_ENTRIES_AT_A_TIME = 1 << 21
# A penalty that has grown so far holds its constraint to all digits that matter; more would only lose digits.
_MOST_GROWTH = 1e9


Vectors = npt.NDArray[Any]  # (rows or columns, vectors), in double or in single precision


class LowRank(NamedTuple):
    """A matrix of low rank by its singular vectors and values, the largest first."""

    row_vectors: FloatArray  # (rows, rank), orthonormal; all 0 in the matrix 0 that methods start from
    values: FloatArray  # (rank,)
    column_vectors: FloatArray  # (columns, rank), orthonormal

    @classmethod
    def zero(cls, shape: tuple[int, int], *, rank: int, seed: int) -> LowRank:
        """Return the matrix 0 with random column vectors, a start for `truncated_svd`; no rank exceeds the shape."""
        rank = min(rank, *shape)
        directions = np.random.default_rng(seed).standard_normal((shape[1], rank))
        return cls(np.zeros((shape[0], rank)), np.zeros(rank), orthonormal(directions))

    @classmethod
    def of_factors(cls, rows: FloatArray, columns: FloatArray) -> LowRank:
        """Return the product of factors (rows, rank) and (columns, rank)."""
        (row_basis, row_core), (column_basis, column_core) = np.linalg.qr(rows), np.linalg.qr(columns)
        left, values, right = np.linalg.svd(row_core @ column_core.T)
        return cls(row_basis @ left, values, np.ascontiguousarray(column_basis @ right.T))

    def times(self, block: FloatArray) -> FloatArray:
        """Return the product (rows, vectors) with a block of vectors (columns, vectors)."""
        product: FloatArray = (self.row_vectors * self.values) @ (self.column_vectors.T @ block)
        return product

    def transposed_times(self, block: FloatArray) -> FloatArray:
        """Return the product (columns, vectors) of the transpose with a block of vectors (rows, vectors)."""
        product: FloatArray = (self.column_vectors * self.values) @ (self.row_vectors.T @ block)
        return product

    def at(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the entries at some pairs of positions, (pairs,)."""
        return entry_products(self.row_vectors * self.values, self.column_vectors, rows, columns)

    def thresholded(self, threshold: float) -> LowRank:
        """Return the matrix with all singular values lowered by a threshold, those below it to 0.

        Of the matrices of this rank it minimises threshold * (nuclear norm) + half the squared distance to this one.
        """
        return self._replace(values=soft_threshold(self.values, threshold))

    def latents(self, mean: float) -> tuple[FloatArray, FloatArray]:
        """Return latents (rows, rank + 1) and (columns, rank + 1) whose inner products are this matrix + mean."""
        roots = np.sqrt(self.values)
        rows, columns = self.row_vectors * roots, self.column_vectors * roots
        return (
            np.hstack([rows, np.full((len(rows), 1), mean)]),
            np.hstack([columns, np.ones((len(columns), 1))]),
        )


class Products(Protocol):
    """A matrix given by its products with vectors."""

    def times(self, block: Vectors) -> Vectors:
        """Return the product (rows, vectors) with a block of vectors (columns, vectors)."""

    def transposed_times(self, block: Vectors) -> Vectors:
        """Return the product (columns, vectors) of the transpose with a block of vectors (rows, vectors)."""


class Sparse(NamedTuple):
    """A sparse matrix, and its transpose laid out for products as well."""

    matrix: scipy.sparse.csr_array
    transpose: scipy.sparse.csr_array

    @classmethod
    def of(cls, matrix: scipy.sparse.csr_array) -> Sparse:
        """Lay a matrix out both ways."""
        return cls(matrix, matrix.T.tocsr())

    def times(self, block: Vectors) -> Vectors:
        """Return the product (rows, vectors) with a block of vectors (columns, vectors)."""
        product: Vectors = self.matrix @ block
        return product

    def transposed_times(self, block: Vectors) -> Vectors:
        """Return the product (columns, vectors) of the transpose with a block of vectors (rows, vectors)."""
        product: Vectors = self.transpose @ block
        return product


class LowRankPlusSparse(NamedTuple):
    """The sum of a matrix of low rank and a sparse one, never made dense."""

    low_rank: LowRank
    sparse: scipy.sparse.csr_array

    def times(self, block: FloatArray) -> FloatArray:
        """Return the product (rows, vectors) with a block of vectors (columns, vectors)."""
        product: FloatArray = self.low_rank.times(block) + self.sparse @ block
        return product

    def transposed_times(self, block: FloatArray) -> FloatArray:
        """Return the product (columns, vectors) of the transpose with a block of vectors (rows, vectors)."""
        product: FloatArray = self.low_rank.transposed_times(block) + self.sparse.T @ block
        return product


class RowBlocks(NamedTuple):
    """A dense matrix of which only a block of rows exists at a time: `make` returns the rows (some, columns)."""

    shape: tuple[int, int]
    make: Callable[[slice], FloatArray]

    def times(self, block: FloatArray) -> FloatArray:
        """Return the product (rows, vectors) with a block of vectors (columns, vectors)."""
        product = np.empty((self.shape[0], block.shape[1]))
        for some in self._slices():
            product[some] = self.make(some) @ block
        return product

    def transposed_times(self, block: FloatArray) -> FloatArray:
        """Return the product (columns, vectors) of the transpose with a block of vectors (rows, vectors)."""
        product = np.zeros((self.shape[1], block.shape[1]))
        for some in self._slices():
            product += self.make(some).T @ block[some]
        return product

    def _slices(self) -> Iterator[slice]:
        n_rows, n_columns = self.shape
        step = max(1, _ENTRIES_AT_A_TIME // max(1, n_columns))
        return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def truncated_svd(matrix: Products, *, start: Vectors, steps: int) -> LowRank:
    """Return the part of a matrix with its largest singular values, by subspace iteration.

    `start` (columns, rank) sets the rank, and with the matrix the precision. Warm from the vectors of a similar matrix,
    one or two steps are enough, and a few from random ones give a rough part; the error falls in a step by the square
    of the ratio of the first value left out to the last kept.
    """
    column_vectors = start
    for _ in range(steps):
        row_basis = orthonormal(matrix.times(column_vectors))
        column_vectors, values, turn = np.linalg.svd(matrix.transposed_times(row_basis), full_matrices=False)
    return LowRank(row_basis @ turn.T, values, np.ascontiguousarray(column_vectors))


def krylov_svd(matrix: Products, *, start: Vectors, powers: int) -> LowRank:
    """Return the part of a matrix with its largest singular values, by Rayleigh-Ritz in a block Krylov space.

    `start` (columns, rank) sets the rank. From random vectors it is right to many digits where subspace iteration would
    take hundreds of steps, as it keeps the blocks of all powers of the Gram matrix. ARPACK restarts at random where the
    rank of the matrix is small; this gives the same vectors every time.
    """
    rank = start.shape[1]
    blocks = [start]
    for _ in range(powers):
        blocks.append(orthonormal(matrix.transposed_times(matrix.times(blocks[-1]))))
    basis = orthonormal(np.hstack(blocks[1:]))
    left, values, right = np.linalg.svd(matrix.times(basis), full_matrices=False)
    return LowRank(orthonormal(left[:, :rank]), values[:rank], orthonormal(basis @ right[:rank].T))


def soft_threshold(values: FloatArray, threshold: float) -> FloatArray:
    """Move each value towards 0 by a threshold, and not past it.

    It minimises threshold * |x| + (x - value)^2 / 2.
    """
    return values - np.clip(values, -threshold, threshold)


def grown(penalty: float, growth: float, sweeps: int) -> float:
    """Return a penalty after a number of sweeps, multiplied by `growth` in each, but by 1e9 at most in all."""
    return penalty * math.exp(min(sweeps * math.log(growth), math.log(_MOST_GROWTH)))


def sparse_of(matrix: ObservedMatrix, values: npt.NDArray[np.floating[Any]]) -> scipy.sparse.csr_array:
    """Return a sparse matrix with these values (entries,) where the given one is observed."""
    return scipy.sparse.csr_array((values, matrix.by_row.columns, matrix.by_row.starts), shape=matrix.shape)


def orthonormal(vectors: Vectors) -> Vectors:
    """Return an orthonormal basis, row by row in memory as storage keeps it, so that products agree to the bit."""
    basis: Vectors = np.ascontiguousarray(np.linalg.qr(vectors).Q)
    return basis
