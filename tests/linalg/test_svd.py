"""Truncated decompositions of matrices that are known by products, against dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from deepmf.linalg.svd import (
    LowRank,
    Products,
    compute_krylov_svd,
    compute_truncated_svd,
    make_sparse,
    multiply_row_blocks,
    multiply_sparse,
    multiply_sum,
    soft_threshold,
)
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.testing import additive


def some_low_rank(n_rows: int = 12, n_columns: int = 9, *, rank: int = 3) -> LowRank:
    generator = np.random.default_rng(0)
    vectors = [
        np.linalg.qr(generator.standard_normal((size, rank))).Q for size in (n_rows, n_columns)
    ]
    return LowRank(vectors[0], np.arange(rank, 0.0, -1.0), vectors[1])


def dense_of(matrix: LowRank) -> FloatArray:
    return np.asarray(matrix.row_vectors @ np.diag(matrix.values) @ matrix.column_vectors.T)


def half_observed(n_rows: int = 12, n_columns: int = 9) -> ObservedMatrix:
    generator = np.random.default_rng(1)
    values = generator.standard_normal((n_rows, n_columns))
    values[generator.random(values.shape) < 0.5] = np.nan
    values[4], values[:, 2] = np.nan, np.nan
    return ObservedMatrix.from_array(values, Scale(low=-9, high=9))


@pytest.fixture(params=["low rank", "sparse", "low rank + sparse", "blocks of rows"])
def matrix(request: pytest.FixtureRequest) -> tuple[Products, FloatArray]:
    """A matrix known by products, and the same one dense."""
    part, observed = some_low_rank(), half_observed()
    both = dense_of(part) + np.nan_to_num(observed.to_array())
    matrices: dict[str, tuple[Products, FloatArray]] = {
        "low rank": (part, dense_of(part)),
        "sparse": (multiply_sparse(scipy.sparse.csr_array(both)), both),
        "low rank + sparse": (
            multiply_sum(part, make_sparse(observed, observed.values.astype(np.float64))),
            both,
        ),
        "blocks of rows": (
            multiply_row_blocks(both.shape, lambda some: both[some], cells_at_a_time=50),
            both,
        ),
    }
    return matrices[request.param]


def test_products(matrix: tuple[Products, FloatArray]) -> None:
    products, dense = matrix
    block = np.random.default_rng(2).standard_normal((12, 4))
    np.testing.assert_allclose(products.multiply(block[:9]), dense @ block[:9], atol=1e-12)
    np.testing.assert_allclose(products.multiply_transposed(block), dense.T @ block, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 3])
def test_truncated_svd(matrix: tuple[Products, FloatArray], rank: int) -> None:
    products, dense = matrix
    start = LowRank.zero(dense.shape, rank=rank, seed=0).column_vectors
    found = compute_truncated_svd(products, start=start, steps=300)
    rows, values, columns = np.linalg.svd(dense)
    np.testing.assert_allclose(found.values, values[:rank], rtol=1e-10)
    np.testing.assert_allclose(
        dense_of(found), (rows[:, :rank] * values[:rank]) @ columns[:rank], atol=1e-8
    )
    for vectors in (found.row_vectors, found.column_vectors):
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-12)


def test_a_warm_start_needs_one_step(matrix: tuple[Products, FloatArray]) -> None:
    products, dense = matrix
    columns = np.linalg.svd(dense)[2][:3].T
    # the space is known, its vectors are not
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3))).Q
    found = compute_truncated_svd(products, start=columns @ turn, steps=1)
    np.testing.assert_allclose(dense_of(found), dense @ columns @ columns.T, atol=1e-12)
    np.testing.assert_allclose(found.values, np.linalg.svd(dense)[1][:3])


@pytest.mark.parametrize("rank", [1, 4, 30])
def test_krylov_svd_from_random_vectors(rank: int) -> None:
    sparse = additive(40, 30).to_sparse()
    left, values, right = np.linalg.svd(sparse.toarray())
    start = np.random.default_rng(0).standard_normal((30, rank))
    found = compute_krylov_svd(multiply_sparse(sparse), start=start, powers=20)
    np.testing.assert_allclose(found.values, values[:rank], rtol=1e-10)
    for vectors, expected in (
        (found.row_vectors, left[:, :rank]),
        (found.column_vectors, right[:rank].T),
    ):
        np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-8)


def test_entries_at_pairs() -> None:
    rows, columns = np.array([0, 11, 5, 5]), np.array([8, 0, 3, 3])
    part = some_low_rank()
    np.testing.assert_allclose(
        part.predict(rows, columns), dense_of(part)[rows, columns], atol=1e-14
    )
    assert part.predict(rows[:0], columns[:0]).shape == (0,)


def test_lower_singular_values() -> None:
    dense = dense_of(some_low_rank(rank=4)) + 0.1 * np.random.default_rng(5).standard_normal(
        (12, 9)
    )
    start = LowRank.zero(dense.shape, rank=9, seed=0).column_vectors
    part = compute_truncated_svd(
        multiply_row_blocks(dense.shape, lambda some: dense[some]), start=start, steps=50
    )
    found = dense_of(part._replace(values=soft_threshold(part.values, 1.5)))
    rows, values, columns = np.linalg.svd(dense, full_matrices=False)
    np.testing.assert_allclose(found, (rows * np.maximum(values - 1.5, 0)) @ columns, atol=1e-10)

    def objective(candidate: FloatArray) -> float:
        return float(1.5 * np.linalg.norm(candidate, "nuc") + ((candidate - dense) ** 2).sum() / 2)

    generator = np.random.default_rng(6)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            assert objective(found + size * generator.standard_normal(found.shape)) > objective(
                found
            )


@pytest.mark.parametrize("value", [-3.0, -0.7, -0.69, 0.0, 0.2, 0.7, 4.5])
def test_the_soft_threshold_solves_its_problem(value: float) -> None:
    found = soft_threshold(np.array([value]), 0.7)[0]
    solved = scipy.optimize.minimize_scalar(
        lambda x: 0.7 * abs(x) + (x - value) ** 2 / 2,
        bounds=(-6, 6),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert found == pytest.approx(solved.x, abs=1e-5)
