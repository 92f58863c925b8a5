"""Truncated singular value decompositions of matrices that are known by their products with
vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse

from deepmf.linalg.products import multiply_entries
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, ValueArray
from deepmf.matrix.matrix import ObservedMatrix

# Cells of a dense matrix that exist at a time, 16 MB: in smaller blocks, the threads of a product
# wait for each other.
CELLS_AT_A_TIME = 1 << 21

Vectors = Array  # (rows or columns, vectors), in double or in single precision


class LowRank(NamedTuple):
    """A matrix of low rank: its singular vectors and values, largest value first."""

    # (rows, rank), orthonormal; all 0 in the matrix 0 that methods start from
    row_vectors: FloatArray
    values: FloatArray  # (rank,)
    column_vectors: FloatArray  # (columns, rank), orthonormal

    @classmethod
    def zero(cls, shape: tuple[int, int], *, rank: int, seed: int) -> LowRank:
        """Return the matrix 0 with random column vectors, to start a truncated SVD from; its rank
        fits the shape."""
        rank = min(rank, *shape)
        directions = np.random.default_rng(seed).standard_normal((shape[1], rank))
        return cls(np.zeros((shape[0], rank)), np.zeros(rank), orthonormalise(directions))

    def multiply(self, block: FloatArray) -> FloatArray:
        """Return the product (rows, vectors) with a block of vectors (columns, vectors)."""
        return np.asarray((self.row_vectors * self.values) @ (self.column_vectors.T @ block))

    def multiply_transposed(self, block: FloatArray) -> FloatArray:
        """Return the product (columns, vectors) of the transpose with a block of vectors (rows,
        vectors)."""
        return np.asarray((self.column_vectors * self.values) @ (self.row_vectors.T @ block))

    def predict(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the values (pairs,) at pairs of positions."""
        return multiply_entries(self.row_vectors * self.values, self.column_vectors, rows, columns)

    def make_latents(self, mean: float) -> tuple[FloatArray, FloatArray]:
        """Return latents (rows, rank + 1) and (columns, rank + 1) whose inner products are this
        matrix + mean."""
        roots = np.sqrt(self.values)
        rows, columns = self.row_vectors * roots, self.column_vectors * roots
        return (
            np.hstack([rows, np.full((len(rows), 1), mean)]),
            np.hstack([columns, np.ones((len(columns), 1))]),
        )


class Products(NamedTuple):
    """A matrix that is known by its products with vectors.

    multiply: returns the product (rows, vectors) with a block of vectors (columns, vectors).
    multiply_transposed: returns the product (columns, vectors) of the transpose with a block (rows,
        vectors).
    """

    multiply: Callable[[Vectors], Vectors]
    multiply_transposed: Callable[[Vectors], Vectors]


def multiply_sparse(matrix: scipy.sparse.csr_array) -> Products:
    """Return the products of a sparse matrix, which is laid out both ways."""
    transpose = matrix.T.tocsr()
    return Products(lambda block: matrix @ block, lambda block: transpose @ block)


def multiply_sum(low_rank: LowRank, sparse: scipy.sparse.csr_array) -> Products:
    """Return the products of the sum of a matrix of low rank and a sparse matrix, which is never
    made dense."""
    return Products(
        lambda block: low_rank.multiply(block) + sparse @ block,
        lambda block: low_rank.multiply_transposed(block) + sparse.T @ block,
    )


def multiply_row_blocks(
    shape: tuple[int, int],
    make: Callable[[slice], FloatArray],
    cells_at_a_time: int = CELLS_AT_A_TIME,
) -> Products:
    """Return the products of a dense matrix of which only some rows (rows, columns), which `make`
    returns, exist."""
    n_rows, n_columns = shape
    step = max(1, cells_at_a_time // max(1, n_columns))
    slices = [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]

    def multiply(block: FloatArray) -> FloatArray:
        product = np.empty((n_rows, block.shape[1]))
        for block_rows in slices:
            product[block_rows] = make(block_rows) @ block
        return product

    def multiply_transposed(block: FloatArray) -> FloatArray:
        product = np.zeros((n_columns, block.shape[1]))
        for block_rows in slices:
            product += make(block_rows).T @ block[block_rows]
        return product

    return Products(multiply, multiply_transposed)


def compute_truncated_svd(matrix: Products, *, start: Vectors, steps: int) -> LowRank:
    """Return the part of a matrix with its largest singular values, by subspace iteration.

    `start` (columns, rank) sets the rank. Starting from the vectors of a similar matrix, one or two
    steps are enough; from random vectors, a few steps give a rough approximation. Each step reduces
    the error by the squared ratio of the first singular value left out to the last one kept.
    """
    column_vectors = start
    for _ in range(steps):
        row_basis = orthonormalise(matrix.multiply(column_vectors))
        column_vectors, values, turn = np.linalg.svd(
            matrix.multiply_transposed(row_basis), full_matrices=False
        )
    return LowRank(row_basis @ turn.T, values, np.ascontiguousarray(column_vectors))


def compute_krylov_svd(matrix: Products, *, start: Vectors, powers: int) -> LowRank:
    """Return the part of a matrix with its largest singular values, by Rayleigh-Ritz in a block
    Krylov space.

    `start` (columns, rank) sets the rank. From random vectors it is accurate to many digits where
    subspace iteration would take hundreds of steps, because it keeps the blocks of all powers of
    the Gram matrix. Unlike ARPACK, which restarts at random where the rank of the matrix is small,
    it gives the same vectors every time.
    """
    rank = start.shape[1]
    blocks = [start]
    for _ in range(powers):
        blocks.append(orthonormalise(matrix.multiply_transposed(matrix.multiply(blocks[-1]))))
    basis = orthonormalise(np.hstack(blocks[1:]))
    row_vectors, values, column_vectors = np.linalg.svd(matrix.multiply(basis), full_matrices=False)
    return LowRank(
        orthonormalise(row_vectors[:, :rank]),
        values[:rank],
        orthonormalise(basis @ column_vectors[:rank].T),
    )


def soft_threshold(values: FloatArray, threshold: float) -> FloatArray:
    """Move each value towards 0 by a threshold, at most to 0.

    It minimises threshold * |x| + (x - value)^2 / 2.
    """
    return values - np.clip(values, -threshold, threshold)


def make_sparse(matrix: ObservedMatrix, values: ValueArray) -> scipy.sparse.csr_array:
    """Return a sparse matrix with values (entries,) where `matrix` is observed."""
    return scipy.sparse.csr_array(
        (values, matrix.by_row.columns, matrix.by_row.starts), shape=matrix.shape
    )


def orthonormalise(vectors: Vectors) -> Vectors:
    """Return an orthonormal basis in row-major memory, as files store it, so that products agree to
    the bit."""
    return np.ascontiguousarray(np.linalg.qr(vectors).Q)
