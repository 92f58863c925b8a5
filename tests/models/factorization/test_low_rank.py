"""Matrices of low rank: products and truncated SVD against dense ones, thresholds against what they minimise."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from tests.models.contract import additive

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.factorization import low_rank
from deepmf.models.factorization.low_rank import (
    LowRank,
    LowRankPlusSparse,
    Products,
    RowBlocks,
    Sparse,
    grown,
    krylov_svd,
    soft_threshold,
    sparse_of,
    truncated_svd,
)


def some_low_rank(n_rows: int = 12, n_columns: int = 9, *, rank: int = 3) -> LowRank:
    generator = np.random.default_rng(0)
    vectors = [np.linalg.qr(generator.standard_normal((size, rank))).Q for size in (n_rows, n_columns)]
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
def matrix(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Products, FloatArray]:
    """A matrix known by products, and the same one dense."""
    part, observed = some_low_rank(), half_observed()
    both = dense_of(part) + np.nan_to_num(observed.to_array())
    monkeypatch.setattr(low_rank, "_ENTRIES_AT_A_TIME", 50)  # blocks of 5 rows, the last of 2
    matrices: dict[str, tuple[Products, FloatArray]] = {
        "low rank": (part, dense_of(part)),
        "sparse": (Sparse.of(scipy.sparse.csr_array(both)), both),
        "low rank + sparse": (
            LowRankPlusSparse(part, sparse_of(observed, observed.values.astype(np.float64))),
            both,
        ),
        "blocks of rows": (RowBlocks(both.shape, lambda some: both[some]), both),
    }
    return matrices[request.param]


def test_products(matrix: tuple[Products, FloatArray]) -> None:
    products, dense = matrix
    block = np.random.default_rng(2).standard_normal((12, 4))
    np.testing.assert_allclose(products.times(block[:9]), dense @ block[:9], atol=1e-12)
    np.testing.assert_allclose(products.transposed_times(block), dense.T @ block, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 3])
def test_truncated_svd(matrix: tuple[Products, FloatArray], rank: int) -> None:
    products, dense = matrix
    start = LowRank.zero(dense.shape, rank=rank, seed=0).column_vectors
    found = truncated_svd(products, start=start, steps=300)
    rows, values, columns = np.linalg.svd(dense)
    np.testing.assert_allclose(found.values, values[:rank], rtol=1e-10)
    np.testing.assert_allclose(dense_of(found), (rows[:, :rank] * values[:rank]) @ columns[:rank], atol=1e-8)
    for vectors in (found.row_vectors, found.column_vectors):
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-12)


def test_a_warm_start_needs_one_step(matrix: tuple[Products, FloatArray]) -> None:
    products, dense = matrix
    columns = np.linalg.svd(dense)[2][:3].T
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3))).Q  # the space is known, its vectors are not
    found = truncated_svd(products, start=columns @ turn, steps=1)
    np.testing.assert_allclose(dense_of(found), dense @ columns @ columns.T, atol=1e-12)
    np.testing.assert_allclose(found.values, np.linalg.svd(dense)[1][:3])


@pytest.mark.parametrize("rank", [1, 4, 30])
def test_krylov_svd_from_random_vectors(rank: int) -> None:
    sparse = additive(40, 30).to_sparse()
    left, values, right = np.linalg.svd(sparse.toarray())
    start = np.random.default_rng(0).standard_normal((30, rank))
    found = krylov_svd(Sparse.of(sparse), start=start, powers=20)
    np.testing.assert_allclose(found.values, values[:rank], rtol=1e-10)
    for vectors, expected in ((found.row_vectors, left[:, :rank]), (found.column_vectors, right[:rank].T)):
        np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-8)


def test_single_precision_stays_single() -> None:
    sparse = additive(40, 30).to_sparse().astype(np.float32)
    start = np.random.default_rng(0).standard_normal((30, 1), dtype=np.float32)
    found = truncated_svd(Sparse.of(sparse), start=start, steps=4)
    assert {part.dtype for part in found} == {np.dtype(np.float32)}
    np.testing.assert_allclose(found.values, np.linalg.svd(sparse.toarray())[1][:1], rtol=1e-4)


def test_entries_at_pairs() -> None:
    rows, columns = np.array([0, 11, 5, 5]), np.array([8, 0, 3, 3])
    part = some_low_rank()
    np.testing.assert_allclose(part.at(rows, columns), dense_of(part)[rows, columns], atol=1e-14)
    assert part.at(rows[:0], columns[:0]).shape == (0,)


def test_thresholded_singular_values() -> None:
    dense = dense_of(some_low_rank(rank=4)) + 0.1 * np.random.default_rng(5).standard_normal((12, 9))
    start = LowRank.zero(dense.shape, rank=9, seed=0).column_vectors
    part = truncated_svd(RowBlocks(dense.shape, lambda some: dense[some]), start=start, steps=50)
    found = dense_of(part.thresholded(1.5))
    rows, values, columns = np.linalg.svd(dense, full_matrices=False)
    np.testing.assert_allclose(found, (rows * np.maximum(values - 1.5, 0)) @ columns, atol=1e-10)

    def objective(candidate: FloatArray) -> float:
        return float(1.5 * np.linalg.norm(candidate, "nuc") + ((candidate - dense) ** 2).sum() / 2)

    generator = np.random.default_rng(6)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            assert objective(found + size * generator.standard_normal(found.shape)) > objective(found)


@pytest.mark.parametrize("value", [-3.0, -0.7, -0.69, 0.0, 0.2, 0.7, 4.5])
def test_the_soft_threshold_solves_its_problem(value: float) -> None:
    found = soft_threshold(np.array([value]), 0.7)[0]
    solved = scipy.optimize.minimize_scalar(
        lambda x: 0.7 * abs(x) + (x - value) ** 2 / 2, bounds=(-6, 6), method="bounded", options={"xatol": 1e-9}
    )
    assert found == pytest.approx(solved.x, abs=1e-5)


def test_a_penalty_grows_to_a_limit() -> None:
    assert grown(0.5, 1.1, 0) == 0.5
    assert grown(0.5, 1.1, 3) == pytest.approx(0.5 * 1.1**3)
    assert grown(0.5, 1.0, 100) == 0.5
    assert grown(0.5, 1.5, 10**6) == pytest.approx(0.5e9)


def test_the_start_is_zero_and_no_larger_than_the_matrix() -> None:
    zero = LowRank.zero((3, 7), rank=5, seed=0)
    assert [part.shape for part in zero] == [(3, 3), (3,), (7, 3)]
    assert not np.any(dense_of(zero))
    np.testing.assert_allclose(zero.column_vectors.T @ zero.column_vectors, np.eye(3), atol=1e-14)
    np.testing.assert_array_equal(zero.column_vectors, LowRank.zero((3, 7), rank=5, seed=0).column_vectors)
    assert not np.allclose(zero.column_vectors, LowRank.zero((3, 7), rank=5, seed=1).column_vectors)


def test_latents_carry_the_mean() -> None:
    part = some_low_rank()
    rows, columns = part.latents(-2.5)
    np.testing.assert_allclose(rows @ columns.T, dense_of(part) - 2.5, atol=1e-14)
