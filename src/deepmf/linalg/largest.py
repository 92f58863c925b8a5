"""The n largest numbers of each row of a matrix, as an array or as a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deepmf.matrix.arrays import Array, IndexArray

if TYPE_CHECKING:
    import torch


def find_largest(keys: Array, n: int) -> IndexArray:
    """Return the places (rows, n) of the n largest keys of each row, or of all: largest first, and
    of equal keys the earliest.

    >>> find_largest(np.array([[3, 5, 4, 5], [1, 1, 1, 0]]), 2)
    array([[1, 3],
           [0, 1]])
    """
    n = min(n, keys.shape[1])
    if n == 0:
        return np.empty((len(keys), 0), dtype=np.int64)
    places = np.sort(np.argpartition(-keys, n - 1, axis=1)[:, :n], axis=1)
    largest = np.take_along_axis(keys, places, axis=1)
    order = np.argsort(-largest, axis=1, kind="stable")
    places = np.take_along_axis(places, order, axis=1)
    smallest = largest.min(axis=1, keepdims=True)
    # of several keys equal to the n-th, a partition takes any
    is_tied = np.count_nonzero(keys >= smallest, axis=1) > n
    is_tied &= smallest[:, 0] > -np.inf
    places[is_tied] = np.argsort(-keys[is_tied], axis=1, kind="stable")[:, :n]
    return places


def find_largest_on_device(keys: torch.Tensor, n: int) -> torch.Tensor:
    """Return the same of a tensor, on its device."""
    import torch

    if not keys.is_cuda:
        return torch.from_numpy(find_largest(keys.numpy(), n))
    n = min(n, keys.shape[1])
    places = keys.topk(n).indices.sort(dim=1).values
    largest, order = keys.gather(1, places).sort(dim=1, descending=True, stable=True)
    places, smallest = places.gather(1, order), largest[:, -1:]
    is_tied = ((keys >= smallest).sum(dim=1) > n) & (smallest[:, 0] > -torch.inf)
    if bool(is_tied.any()):
        places[is_tied] = keys[is_tied].sort(dim=1, descending=True, stable=True).indices[:, :n]
    return places
