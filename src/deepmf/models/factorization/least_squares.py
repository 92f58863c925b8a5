"""Ridge regressions of all rows on columns, or of all columns on rows: solved, or improved by conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.matrix.arrays import IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.factorization.conjugate_gradients import improved, products
from deepmf.models.factorization.factorization_settings import ALSSettings

# Entries whose factors are gathered at a time: 42 numbers for each take 2.6 MB.
_ENTRIES_AT_A_TIME = 1 << 14
# Entries of a row that are multiplied at a time: of larger products numpy's BLAS would make pieces for threads of its
# own, which wait for those that groups are solved by.
_PIECE = 192
# Rows with fewer entries count as many, so that the Gram matrices of a group take no more than a few megabytes.
_LEAST_WIDTH = 32
# The smallest ridge as a share of the diagonal: single precision cannot solve with less.
LEAST_RIDGE = 1e-5


class Group(NamedTuple):
    """Rows with about as many entries each, solved for together; padded to the most entries among them."""

    positions: IndexArray  # (rows,)
    others: npt.NDArray[np.int32]  # (rows, pieces, entries) their columns; one past the last column where padded
    values: LatentArray  # (rows, pieces, entries) less the mean; 0 where padded


class Solved(NamedTuple):
    """The best factors of one side given the other's, and what they leave: squared errors and their own penalty."""

    factors: LatentArray  # (rows, latent + 1)
    objective: float


class LeastSquares:
    """One side of a matrix, laid out once for all solves; described for rows, used for columns too.

    Factors (rows, latent + 1) are the latents of each row and, last, its effect.
    """

    def __init__(self, entries: AxisEntries, *, n_others: int, train: ObservedMatrix, settings: ALSSettings) -> None:
        self._counts = np.diff(entries.starts).astype(np.float32)
        self.latent_ridges = latent_ridges(self._counts.astype(np.float64), train.scale, settings)  # (rows,)
        self.effect_ridge = settings.effect_penalty
        self._groups = list(_groups(entries, n_others=n_others, mean=train.mean))

    def solve(self, others: LatentArray, prior: LatentArray | None = None) -> Solved:
        """Return the ridge solution of every row given the factors of the columns.

        prior: the factors (rows, latent + 1) that rows are drawn to, and that those without entries get; zeros, where
        there are none.
        """
        table = _table(others)
        shape = self.latent_ridges.size, others.shape[1]
        factors = np.zeros(shape, dtype=np.float32) if prior is None else prior.astype(np.float32)

        def solve_group(group: Group, buffer: LatentArray) -> float:
            ridges, gram = self._ridges(group, others.shape[1]), _gram(group, table, buffer)
            said = None if prior is None else factors[group.positions]
            factors[group.positions], objective = _solution(gram, ridges, said)
            return objective

        return Solved(factors, _in_threads(solve_group, self._groups, table.shape[1]))

    def improve(self, others: LatentArray, factors: LatentArray, prior: LatentArray | None = None) -> Solved:
        """Return factors of every row that are better than given ones, at a third of the cost of a solution.

        They are on the way to the solution by some steps of conjugate gradients. Rows that are longer than what is
        gathered at a time are solved for: these would be read from memory again in every step.
        """
        table = _table(others)
        squares = np.square(table[:-1, :-1]).mean(axis=0)
        better = np.zeros_like(factors) if prior is None else prior.astype(np.float32)

        def improve_group(group: Group, buffer: LatentArray) -> float:
            ridges, drawn_to = self._ridges(group, others.shape[1]), better[group.positions]
            if group.values[0].size > _ENTRIES_AT_A_TIME:
                said = None if prior is None else drawn_to
                better[group.positions], objective = _solution(_gram(group, table, buffer), ridges, said)
                return objective
            gathered = _gathered(table, group.others, buffer)
            given = factors[group.positions]
            left = group.values + products(gathered, np.column_stack([-given, np.ones_like(given[:, 0])]))
            sizes = np.maximum(self._counts[group.positions, None] * squares + ridges, np.finfo(np.float32).tiny)
            found = improved(gathered[..., :-1], left, ridges=ridges, sizes=sizes, start=given - drawn_to)
            better[group.positions] += found.factors
            return float(np.vdot(found.left, found.left) + np.vdot(ridges * found.factors, found.factors))

        return Solved(better, _in_threads(improve_group, self._groups, table.shape[1]))

    def _ridges(self, group: Group, n_unknowns: int) -> LatentArray:
        """Return the ridges (rows, unknowns) of a group."""
        ridges = np.full((group.positions.size, n_unknowns), self.effect_ridge, dtype=np.float32)
        ridges[:, :-1] = self.latent_ridges[group.positions, None]
        return ridges

    def penalty(self, factors: LatentArray, prior: LatentArray | None = None) -> float:
        """Return the penalty of factors, by how far they are from a prior."""
        squares = np.square(factors if prior is None else factors - prior, dtype=np.float64)
        return float(
            (squares[:, :-1].sum(axis=1) * self.latent_ridges).sum() + squares[:, -1].sum() * self.effect_ridge
        )


def latent_ridges(counts: Any, scale: Scale, settings: ALSSettings) -> Any:
    """Return the weights of the squared latents of rows by their numbers of entries, an array or a tensor as these."""
    width = scale.high - scale.low or 1.0  # a scale of one value has no width
    return settings.penalty * width * counts**settings.count_power


def _groups(entries: AxisEntries, *, n_others: int, mean: float) -> Iterator[Group]:
    """Yield groups of rows, those with most entries first, each of a bounded number of padded entries."""
    starts, counts = entries.starts[:-1].astype(np.int64), np.diff(entries.starts)
    left = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    while left.size:
        n_pieces = -(-counts[left[0]] // _PIECE)
        width = n_pieces * -(-counts[left[0]] // n_pieces)
        positions, left = np.split(left, [max(1, _ENTRIES_AT_A_TIME // max(width, _LEAST_WIDTH))])
        places = np.arange(width).reshape(n_pieces, -1)
        observed = places < counts[positions, None, None]
        places = np.where(observed, starts[positions, None, None] + places, 0)
        yield Group(
            positions,
            np.where(observed, entries.others[places], n_others).astype(np.int32),
            np.where(observed, entries.values[places] - mean, 0.0).astype(np.float32),
        )


def _in_threads(solve: Callable[[Group, LatentArray], float], groups: list[Group], width: int) -> float:
    """Solve groups by as many threads as torch uses, which gather, multiply and eliminate without the interpreter.

    Each thread works alone: left to themselves, they would cut every product, small as it is, into pieces for further
    threads, and mostly wait for each other. It has one buffer for the factors that it gathers, of a width, since
    memory that is new for every group can take four times as long to fill.
    """

    def solve_all(groups: list[Group]) -> float:
        buffer = np.empty((_ENTRIES_AT_A_TIME, width), dtype=np.float32)
        return sum(solve(group, buffer) for group in groups)

    n_threads = torch.get_num_threads()
    if min(n_threads, len(groups)) <= 1:
        return solve_all(groups)
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as threads:
            return sum(threads.map(solve_all, (groups[first::n_threads] for first in range(n_threads))))
    finally:
        torch.set_num_threads(n_threads)


def _gathered(table: LatentArray, positions: npt.NDArray[np.int32], buffer: LatentArray) -> LatentArray:
    """Return lines of a table, in the memory of a buffer."""
    lines = buffer[: positions.size].reshape(*positions.shape, -1)
    return table.take(positions, axis=0, out=lines, mode="clip")  # unlike "raise", this one writes there at once


def _table(factors: LatentArray) -> LatentArray:
    """Return (v_j, 1, -c_j) for each column, and zeros for padding: (columns + 1, latent + 2)."""
    n_columns, width = factors.shape
    table = np.zeros((n_columns + 1, width + 1), dtype=np.float32)
    table[:-1, :-2], table[:-1, -2], table[:-1, -1] = factors[:, :-1], 1.0, -factors[:, -1]
    return table


def _gram(group: Group, table: LatentArray, buffer: LatentArray) -> Tensor:
    """Return the Gram matrices (rows, latent + 2, latent + 2) of (v_j, 1, x_ij - m - c_j) over each row's entries."""
    n_rows, n_pieces, n_entries = group.values.shape
    gram = np.zeros((n_rows, *table.shape[1:] * 2), dtype=np.float32)
    at_a_time = max(1, _ENTRIES_AT_A_TIME // (n_rows * n_entries))
    for start in range(0, n_pieces, at_a_time):
        some = slice(start, start + at_a_time)
        gathered = _gathered(table, group.others[:, some], buffer)
        gathered[..., -1] += group.values[:, some]
        of_pieces = gathered.mT @ gathered
        gram += of_pieces.sum(axis=1) if n_pieces > 1 else of_pieces[:, 0]
    return torch.from_numpy(gram)


def _solution(gram: Tensor, ridges: LatentArray, prior: LatentArray | None) -> tuple[LatentArray, float]:
    """Return ridge solutions that are drawn to a prior, or to 0, and the sum of the minima."""
    if prior is None:
        return _ridge_solution(gram, ridges)
    _take_off(gram, prior)
    moves, objective = _ridge_solution(gram, ridges)
    return prior + moves, objective


def _take_off(gram: Tensor, factors: LatentArray) -> None:
    """Let Gram matrices of (A, t) be those of (A, t - Ap), for the factors p of each row."""
    p = torch.from_numpy(factors)[..., None]
    fitted = gram[:, :-1, :-1] @ p  # A'Ap
    gram[:, -1, -1] += (p.mT @ (fitted - 2.0 * gram[:, :-1, -1:]))[:, 0, 0]
    gram[:, :-1, -1:] -= fitted
    gram[:, -1:, :-1] -= fitted.mT


def _ridge_solution(gram: Tensor, ridges: LatentArray) -> tuple[LatentArray, float]:
    """Return the x (rows, latent + 1) that minimise |t - Ax|^2 + x'Dx, and the sum of the minima.

    `gram` holds the Gram matrices of (A, t). The Cholesky factor of the whole has z = L^-1 A't for its last line, where
    L is that of A'A + D, so that x = L'^-1 z, and the minimum is t't - z'z.
    """
    diagonals = gram.diagonal(dim1=1, dim2=2)  # a view
    squares = diagonals[:, -1].sum(dtype=torch.float64)
    diagonals[:, :-1] += torch.maximum(torch.from_numpy(ridges), LEAST_RIDGE * diagonals[:, :-1])
    diagonals[:, -1] = 2.0 * diagonals[:, -1] + 1.0  # any number that rounding cannot bring below z'z
    lower = torch.linalg.cholesky_ex(gram).L
    z = lower[:, -1, :-1, None]
    x = torch.linalg.solve_triangular(lower[:, :-1, :-1].mT, z, upper=True)
    return x[..., 0].numpy(), float(squares - z.double().square().sum())
