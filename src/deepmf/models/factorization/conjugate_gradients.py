"""Conjugate gradients: a few steps from given factors towards the ridge solutions of many rows at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]  # in single precision

# As many as leave sweeps of ALS what they are with exact solutions (docs/log.md).
_STEPS = 3
# The last step is one that takes less than this share off the squares that are left: the next would take off a
# tenth of that, and the error on validation entries is the same to 1e-4 in every sweep (docs/log.md).
_LEAST_GAIN = 3e-4


class Improved(NamedTuple):
    """Better factors, and what they leave of the targets."""

    factors: Array  # (rows, unknowns)
    left: Array  # (rows, pieces, entries)


def improved(inputs: Array, left: Array, *, ridges: Array, sizes: Array, start: Array) -> Improved:
    """Return factors x with less |targets - inputs x|^2 + x' diag(ridges) x than at the start, which leaves `left`.

    A step costs two products with the inputs; forming the systems would cost as many as there are unknowns.

    inputs: (rows, pieces, entries, unknowns), zeros where a row has fewer entries.
    sizes: about the diagonals (rows, unknowns) of the systems, above 0, which steps are scaled by.
    """
    slope = sums(inputs, left) - ridges * start
    direction = slope / sizes
    fall = _dots(slope, direction)
    factors = start
    for step in range(_STEPS):
        along = products(inputs, direction)
        length = _ratios(fall, np.einsum("rpe,rpe->r", along, along) + _dots(ridges * direction, direction))
        factors = factors + length[:, None] * direction
        left = left - length[:, None, None] * along
        if step + 1 == _STEPS or length @ fall < _LEAST_GAIN * np.vdot(left, left):
            break
        slope -= length[:, None] * (sums(inputs, along) + ridges * direction)
        scaled = slope / sizes
        next_fall = _dots(slope, scaled)
        direction = scaled + _ratios(next_fall, fall)[:, None] * direction
        fall = next_fall
    return Improved(factors, left)


def products(inputs: Array, factors: Array) -> Array:
    """Return the product (rows, pieces, entries) of each row's inputs with its factors."""
    result: Array = np.matmul(inputs, factors[:, None, :, None])[..., 0]
    return result


def sums(inputs: Array, weights: Array) -> Array:
    """Return the sum (rows, unknowns) of each row's inputs, weighted by (rows, pieces, entries)."""
    result: Array = np.matmul(weights[:, :, None], inputs)[:, :, 0].sum(axis=1)
    return result


def _dots(some: Array, others: Array) -> Array:
    """Return the inner product of each row with another's (rows,)."""
    dots: Array = np.einsum("rk,rk->r", some, others)
    return dots


def _ratios(some: Array, others: Array) -> Array:
    """Return ratios of numbers that are not negative, 0 where there is nothing to divide by."""
    return np.divide(some, others, out=np.zeros_like(some), where=others > 0)
