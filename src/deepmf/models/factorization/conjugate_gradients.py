"""Conjugate gradients: a few steps from given factors towards the ridge solutions of many rows at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]  # in single precision

# As many as leave sweeps of ALS what they are with exact solutions (docs/log.md).
_STEPS = 3
# Entries of a row that are multiplied at a time: of larger products numpy's BLAS would make pieces for threads of its
# own, which wait for those that groups are solved by.
_ENTRIES_AT_A_TIME = 192


class Improved(NamedTuple):
    """Better factors, and what they leave of the targets."""

    factors: Array  # (rows, unknowns)
    left: Array  # (rows, entries)


def improved(inputs: Array, targets: Array, *, ridges: Array, sizes: Array, start: Array) -> Improved:
    """Return factors x with less |targets - inputs x|^2 + x' diag(ridges) x than at the start.

    A step costs two products with the inputs; forming the systems would cost as many as there are unknowns.

    inputs: (rows, entries, unknowns), zeros where a row has fewer entries.
    sizes: about the diagonals (rows, unknowns) of the systems, above 0, which steps are scaled by.
    """
    factors = start.copy()
    left = targets - _products(inputs, factors)
    slope = _sums(inputs, left) - ridges * factors
    direction = slope / sizes
    fall = _dots(slope, direction)
    for step in range(_STEPS):
        along = _products(inputs, direction)
        length = _ratios(fall, _dots(along, along) + _dots(ridges * direction, direction))
        factors += length * direction
        left -= length * along
        if step + 1 < _STEPS:
            slope -= length * (_sums(inputs, along) + ridges * direction)
            scaled = slope / sizes
            next_fall = _dots(slope, scaled)
            direction = scaled + _ratios(next_fall, fall) * direction
            fall = next_fall
    return Improved(factors, left)


def _products(inputs: Array, factors: Array) -> Array:
    """Return the product (rows, entries) of each row's inputs with its factors."""
    products = np.empty(inputs.shape[:2], dtype=np.float32)
    for some in _slices(inputs.shape[1]):
        products[:, some] = np.matmul(inputs[:, some], factors[..., None])[..., 0]
    return products


def _sums(inputs: Array, weights: Array) -> Array:
    """Return the sum (rows, unknowns) of each row's inputs, weighted by (rows, entries)."""
    sums = np.zeros((inputs.shape[0], inputs.shape[2]), dtype=np.float32)
    for some in _slices(inputs.shape[1]):
        sums += np.matmul(weights[:, None, some], inputs[:, some])[:, 0]
    return sums


def _slices(n_entries: int) -> list[slice]:
    return [slice(start, start + _ENTRIES_AT_A_TIME) for start in range(0, n_entries, _ENTRIES_AT_A_TIME)]


def _dots(some: Array, others: Array) -> Array:
    """Return the inner product of each row with another's (rows, 1)."""
    dots: Array = np.einsum("rk,rk->r", some, others)
    return dots[:, None]


def _ratios(some: Array, others: Array) -> Array:
    """Return ratios of numbers that are not negative, 0 where there is nothing to divide by."""
    return np.divide(some, others, out=np.zeros_like(some), where=others > 0)
