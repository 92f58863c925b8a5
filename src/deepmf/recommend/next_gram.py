"""The sums S'S and S'T of the directed ridge over all beginnings of rows, and what they are fitted to.

Both depend on the places of pairs of entries alone. `count_next` returns them as a `Gram`, which
solves the regressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.matrix.sorting import number_within
from deepmf.recommend.column_gram import Gram, Near, count_affordable, count_near, send_cells
from deepmf.recommend.column_ridge import TINY, Sparse
from deepmf.recommend.sequences import Decay, Sequences

if TYPE_CHECKING:
    import torch

# Pairs of entries that are added up at a time (100 MB), and in all where columns are many.
_PAIRS_AT_A_TIME = 1 << 22
_MOST_PAIRS = 1 << 26


def count_next(
    rows: Sequences, decay: Decay, n_columns: int, kind: str, gpu: torch.device | None = None
) -> Gram:
    """Return S'S and S'T of a decay over all beginnings of rows, for a kind of model: "full" or
    "nearest"."""
    squares_of_entries = _sum_squares(decay)[0][np.minimum(rows.later, decay.window)]
    squares_of_entries = (
        squares_of_entries if rows.roots is None else squares_of_entries * np.square(rows.roots)
    )
    # the diagonal of S'S
    sizes = np.bincount(rows.columns, squares_of_entries, minlength=n_columns).astype(np.float32)
    if kind == "nearest":
        return _sum_near(rows, decay, sizes)
    squares, sums = np.zeros((2, n_columns**2), dtype=np.float32)
    for at, of_squares, of_sums in _list_pairs(rows, decay, n_columns):
        np.add.at(sums, at, of_sums)
        if of_squares is not None:
            np.add.at(squares, at, of_squares)
    squares = squares.reshape(n_columns, n_columns)
    squares = squares + squares.T
    squares[np.diag_indices(n_columns)] += sizes
    sizes = squares.diagonal().copy()
    return Gram(
        send_cells(squares, gpu), sizes, send_cells(sums.reshape(n_columns, n_columns), gpu)
    )


def _sum_squares(decay: Decay) -> LatentArray:
    """Return the sums (distance of two entries, number of beginnings after both) of products of
    their weights."""
    weights = np.concatenate([decay.inputs, np.zeros(decay.window)])
    shifted = weights[np.add.outer(np.arange(decay.window), np.arange(decay.window))]
    return np.pad(np.cumsum(shifted * decay.inputs, axis=1), ((0, 0), (1, 0))).astype(np.float32)


def _list_pairs(
    rows: Sequences, decay: Decay, n_columns: int
) -> Iterator[tuple[IndexArray, LatentArray | None, LatentArray]]:
    """Yield pairs of an entry and a later one: the cells, and what they add to S'S (None: nothing)
    and to S'T."""
    squares, window = _sum_squares(decay), decay.window
    targets = np.convolve(decay.inputs, decay.targets).astype(np.float32)  # by distance, from 1
    n_later, places = rows.later, np.arange(rows.columns.size)
    for distance in range(1, targets.size + 1):
        places = places[n_later[places] >= distance]
        if places.size == 0:
            return
        for start in range(0, places.size, _PAIRS_AT_A_TIME):
            first = places[start : start + _PAIRS_AT_A_TIME]
            later = first + distance
            at = rows.columns[first] * n_columns + rows.columns[later]
            of_sums = np.full(first.size, targets[distance - 1])
            of_squares = (
                squares[distance][np.minimum(n_later[later], window)] if distance < window else None
            )
            if rows.roots is not None:
                pair_roots = rows.roots[first] * rows.roots[later]
                of_sums, of_squares = (
                    of_sums * pair_roots,
                    None if of_squares is None else of_squares * pair_roots,
                )
            yield at, of_squares, of_sums


def _sum_near(rows: Sequences, decay: Decay, diagonal: LatentArray) -> Gram:
    """Return S'S as a sparse matrix, and the columns that precede each column most often."""
    n_columns, n_pairs = diagonal.size, 0
    totals = [Sparse((n_columns, n_columns), dtype=np.float32) for _ in range(2)]
    for at, *amounts in _list_pairs(rows, decay, n_columns):
        n_pairs += at.size
        if n_pairs > _MOST_PAIRS:
            break
        places = np.divmod(at, n_columns)
        for which, amount in enumerate(amounts):
            if amount is not None:
                totals[which] = totals[which] + Sparse(
                    (amount, places), shape=(n_columns, n_columns)
                )
    squares = Sparse(totals[0] + totals[0].T + scipy.sparse.diags_array(diagonal))
    sizes = squares.diagonal().astype(np.float32)
    # The nearest columns have the largest cells of S'T, divided by the root of their sizes.
    cells = totals[1].tocsc()
    target = np.repeat(np.arange(n_columns), np.diff(cells.indptr))
    order = np.lexsort((-cells.data / np.sqrt(np.maximum(sizes[cells.indices], TINY)), target))
    rank = number_within(target)
    most = count_affordable(n_columns)
    is_near = rank < count_near(np.bincount(rows.columns, minlength=n_columns), most)[target]
    order, target, rank = order[is_near], target[is_near], rank[is_near]
    near = Near(
        np.full((n_columns, most), n_columns, dtype=np.int32),
        np.zeros((n_columns, most), dtype=np.float32),
    )
    near.places[target, rank], near.cells[target, rank] = cells.indices[order], cells.data[order]
    return Gram(squares, sizes, near)
