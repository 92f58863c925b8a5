"""The library and the device of arrays: numpy on a CPU, torch on a GPU.

Formulas that run on both are written once, in what the two libraries have in common. This module has
the few steps in which they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from deepmf.matrix.arrays import AnyArray, Array
from deepmf.matrix.library import find_library


class Backend(NamedTuple):
    """A library of arrays by its name, and the device where they lie, as torch names it."""

    library_name: str = "numpy"
    device: str = "cpu"

    @classmethod
    def of(cls, device: Any) -> Backend:
        """Return the backend of a device.

        On a CPU numpy is as fast for fits of any size (docs/performance.md) and starts in a tenth
        of the time.
        """
        if str(device) == "cpu":
            return NUMPY
        return cls("torch", str(device))

    @property
    def library(self) -> Any:
        """The library; a backend has its name, so that it can be pickled."""
        return import_module(self.library_name)

    @property
    def on_gpu(self) -> bool:
        """Whether arrays lie on a GPU."""
        return self.device != "cpu"

    def send(self, array: Array) -> AnyArray:
        """Return an array on the device."""
        if self.library is np:
            return array
        return self.library.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def send_single(self, array: Array) -> AnyArray:
        """Return a copy of an array in single precision on the device."""
        return self.send(array.astype(np.float32))

    def draw_normals(self, numbers: np.random.Generator, *shape: int) -> AnyArray:
        """Draw standard normal numbers in single precision: the same on every device."""
        return self.send(numbers.standard_normal(shape, dtype=np.float32))

    def record(self, function: Callable[..., tuple[AnyArray, ...]]) -> Callable[..., Any]:
        """Return a function of arrays of constant shapes that runs with less overhead on a GPU."""
        if not self.on_gpu:
            return function
        from deepmf.training.runtime import GraphFunction

        return GraphFunction(function)


NUMPY = Backend()


def make_contiguous(array: AnyArray) -> AnyArray:
    """Return an array whose numbers lie in the order of its lines, as a file has them: last bits of
    products depend on that."""
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()


def factorise(matrices: AnyArray) -> AnyArray:
    """Return the Cholesky factors L of matrices LL'.

    Where there is none, numpy raises `LinAlgError`, and torch returns numbers that are not finite:
    a check would wait for the GPU.
    """
    if isinstance(matrices, np.ndarray):
        return np.linalg.cholesky(matrices)
    factors, has_failed = find_library(matrices).linalg.cholesky_ex(matrices)
    return factors.masked_fill((has_failed != 0)[..., None, None], float("nan"))


def solve_triangular(factors: AnyArray, right: AnyArray, *, upper: bool) -> AnyArray:
    """Return the solutions (rows, D, n) of triangular systems (rows, D, D) with right sides (rows,
    D, n).

    numpy substitutes in all rows at once; for fewer rows than unknowns, LAPACK takes less time.
    """
    if not isinstance(factors, np.ndarray):
        return find_library(factors).linalg.solve_triangular(factors, right, upper=upper)
    n_rows, size = factors.shape[:2]
    if n_rows < size:
        return np.linalg.solve(factors, right)
    columns = np.ascontiguousarray(factors.transpose(2, 1, 0))
    solutions = np.array(right.transpose(1, 2, 0), order="C")
    steps = range(size)
    for step in reversed(steps) if upper else steps:
        remaining = slice(step) if upper else slice(step + 1, None)
        solutions[step] /= columns[step, step]
        solutions[remaining] -= columns[step, remaining, None] * solutions[step]
    return solutions.transpose(2, 0, 1)
