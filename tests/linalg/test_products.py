"""Products of pairs and of sparse matrices, against dense ones."""

import numpy as np
import pytest
import scipy.sparse
import torch

from deepmf.linalg import products
from deepmf.linalg.backend import NUMPY, Backend
from deepmf.linalg.products import make_product, multiply_entries, multiply_pairs
from deepmf.matrix.arrays import fetch

DICE = np.random.default_rng(0)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_pairs_are_those_of_their_latents(
    n_threads: int, dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    width = products._GATHERED_AT_A_TIME // 100  # a hundred pairs at a time
    rows, columns = (DICE.normal(size=(size, width)).astype(dtype) for size in (7, 5))
    pairs = DICE.integers(0, 7, 201), DICE.integers(0, 5, 201)  # the last one is alone
    found = multiply_entries(rows, columns, *pairs)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, (rows @ columns.T)[pairs], rtol=1e-3, atol=1e-3)


def test_products_without_pairs_or_latents() -> None:
    nothing = np.empty(0, dtype=np.int64)
    table = np.ones((3, 0), dtype=np.float32)
    assert multiply_entries(table, table, nothing, nothing).shape == (0,)
    found = multiply_pairs(table.__getitem__, table.__getitem__, *np.zeros((2, 4), int), like=table)
    assert found.tolist() == [0.0] * 4


@pytest.mark.parametrize("backend", [NUMPY, Backend("torch")], ids=["numpy", "torch"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_sparse_matrix_multiplies_dense_ones(is_weighted: bool, backend: Backend) -> None:
    dense = DICE.normal(size=(6, 4)).astype(np.float32)
    sparse = scipy.sparse.random_array((5, 6), density=0.4, rng=DICE, dtype=np.float32).tocsr()
    sparse.data[:] = sparse.data if is_weighted else 1.0
    weights = sparse.data if is_weighted else None
    multiply = make_product(sparse.indptr, sparse.indices, weights, 6, backend)
    found = fetch(multiply(backend.send(dense)))
    np.testing.assert_allclose(found, sparse @ dense, rtol=1e-5, atol=1e-6)


def test_a_matrix_without_entries_gives_zeros() -> None:
    multiply = make_product(np.zeros(4, int), np.empty(0, int), None, 6)
    assert multiply(np.ones((6, 2))).tolist() == [[0.0, 0.0]] * 3
