"""Products: of the latents of pairs, and of sparse matrices with dense ones, on a CPU or a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import scipy.sparse

from deepmf.linalg.backend import NUMPY, Backend
from deepmf.matrix.arrays import AnyArray, Array, IndexArray
from deepmf.training.threads import count_threads

# Numbers of latents gathered at a time from either table, 1 MB in single precision, which caches
# hold.
_GATHERED_AT_A_TIME = 1 << 18

Take = Callable[[Array], Array]  # from positions (pairs,) to latents (pairs, latent)
Product: TypeAlias = Callable[[AnyArray], AnyArray]


def multiply_entries(
    row_latents: Array, column_latents: Array, rows: IndexArray, columns: IndexArray
) -> Array:
    """Return the inner product of the latents of each entry, from plain tables; entries are in the
    order of rows."""
    return multiply_pairs(
        row_latents.__getitem__, column_latents.__getitem__, rows, columns, like=row_latents
    )


def multiply_pairs(
    take_rows: Take, take_columns: Take, rows: IndexArray, columns: IndexArray, *, like: Array
) -> Array:
    """Return the inner product of the latents of each pair, which have the width and the type of a
    table's.

    Batches of pairs are computed by as many threads as a fit may use; numpy releases the
    interpreter lock.
    """
    products = np.empty(rows.size, dtype=like.dtype)
    pairs_at_a_time = max(1, _GATHERED_AT_A_TIME // max(1, like.shape[1]))

    def multiply(start: int) -> None:
        span = slice(start, start + pairs_at_a_time)
        np.einsum(
            "pd,pd->p", take_rows(rows[span]), take_columns(columns[span]), out=products[span]
        )

    starts = range(0, rows.size, pairs_at_a_time)
    n_threads = min(count_threads(), len(starts))
    if n_threads > 1:
        with ThreadPoolExecutor(n_threads) as threads:
            list(threads.map(multiply, starts))
    else:
        list(map(multiply, starts))
    return products


def make_product(
    starts: Array, indices: Array, weights: Array | None, n_inputs: int, backend: Backend = NUMPY
) -> Product:
    """Return the product of a sparse matrix in CSR format with dense ones; its entries are 1
    without weights."""
    if weights is None:
        weights = np.ones(len(indices))
    arrays = weights.astype(np.float32), indices, starts
    shape = len(starts) - 1, n_inputs
    if backend.library is np:
        table = scipy.sparse.csr_array(arrays, shape=shape)
        return lambda dense: table @ dense
    values, columns, ends = (backend.send(array) for array in arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls CSR tensors a beta
        matrix = backend.library.sparse_csr_tensor(
            ends.long(), columns.long(), values, size=shape, device=backend.device
        )
    return lambda dense: matrix @ dense
