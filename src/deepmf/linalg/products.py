"""Products: of the latents of pairs, and of sparse matrices with dense ones, on a CPU or a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from deepmf.matrix.arrays import Array, IndexArray
from deepmf.training.threads import count_threads

if TYPE_CHECKING:
    import torch

# Numbers of latents gathered at a time from either table, 1 MB in single precision, which caches
# hold.
_GATHERED_AT_A_TIME = 1 << 18

Take = Callable[[Array], Array]  # from positions (pairs,) to latents (pairs, latent)
Product: TypeAlias = "Callable[[torch.Tensor], torch.Tensor]"


def entry_products(
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

    Batches of pairs are computed by as many threads as torch uses; numpy releases the interpreter
    lock.
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
    starts: Array, indices: Array, weights: Array | None, n_inputs: int, device: torch.device
) -> Product:
    """Return the product of a sparse matrix in CSR format with dense ones; its entries are 1
    without weights."""
    import torch
    from torch.nn import functional

    starts, indices = (
        np.ascontiguousarray(starts, dtype=np.int64),
        np.ascontiguousarray(indices, dtype=np.int64),
    )
    if device.type == "cuda":
        values = np.ones(indices.size) if weights is None else weights
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls CSR tensors a beta
            matrix = torch.sparse_csr_tensor(
                torch.from_numpy(starts),
                torch.from_numpy(indices),
                torch.from_numpy(values.astype(np.float32)),
                size=(starts.size - 1, n_inputs),
                device=device,
            )
        return lambda dense: matrix @ dense
    first, at = torch.from_numpy(starts), torch.from_numpy(indices)
    numbers = None if weights is None else torch.from_numpy(np.ascontiguousarray(weights))

    def multiply(dense: torch.Tensor) -> torch.Tensor:
        if at.numel() == 0:
            return dense.new_zeros(first.numel() - 1, dense.shape[1])
        per_sample = None if numbers is None else numbers.to(dense.dtype)
        return functional.embedding_bag(
            at, dense, first, mode="sum", include_last_offset=True, per_sample_weights=per_sample
        )

    return multiply
