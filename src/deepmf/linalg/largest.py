"""The n largest numbers of each row of a matrix, as an array or as a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepmf.matrix.library import find_library


def find_largest(keys: Any, n: int) -> Any:
    """Return the places (rows, n) of the n largest keys of each row, or of all: largest first, and
    of equal keys the earliest.

    >>> find_largest(np.array([[3, 5, 4, 5], [1, 1, 1, 0]]), 2)
    array([[1, 3],
           [0, 1]])
    """
    library, n = find_library(keys), min(n, keys.shape[1])
    if n == 0:
        return library.empty((len(keys), 0), dtype=library.int64)
    if isinstance(keys, np.ndarray):
        places = np.sort(np.argpartition(-keys, n - 1, axis=1)[:, :n], axis=1)
    else:
        places = keys.topk(n).indices.sort(dim=1).values
    lines = library.arange(len(keys), device=keys.device)[:, None]
    places = places[lines, library.argsort(-keys[lines, places], stable=True)]
    smallest = keys[lines, places[:, -1:]]
    # of several keys equal to the n-th, a partition takes any
    is_tied = ((keys >= smallest).sum(1) > n) & (smallest[:, 0] > -np.inf)
    if is_tied.any():
        places[is_tied] = library.argsort(-keys[is_tied], stable=True)[:, :n]
    return places
