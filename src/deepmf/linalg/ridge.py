"""Ridge regressions of the rows of a matrix given its columns: one engine for ALS, the sampler and
presence models.

Rows with about as many entries are padded to one length (`lay_out`). The lines of their columns are
gathered, and give Gram matrices (`compute_grams`) that Cholesky factors solve (`solve_bordered`),
or directions of conjugate gradients (`descend`). Batches run in threads on a CPU, or on a GPU.
Everything is described for rows, and used for columns too. Arrays are in single precision.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from deepmf.matrix.arrays import Array, FloatArray, Numbers
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.nn.ranks import Ranks
from deepmf.training.runtime import GraphFunction

T = TypeVar("T")

CPU = torch.device("cpu")


class Limits(NamedTuple):
    """How many rows and entries are computed together.

    entries_at_a_time: padded entries to gather; with 42 factors, 1 << 14 take 2.6 MB, which the
        caches of a CPU hold.
    least_width: minimum padded length; bounds the Gram matrices of a group to a few MB.
    least_filled: a group ends where rows have less than this share of the entries of its first row.
    rows_at_a_time: rows that end a batch; 1 for one group in each.
    piece: entries of a row that are multiplied at a time, default all. numpy's BLAS would cut
        larger products for threads of its own, which wait for the threads that solve groups.
    """

    entries_at_a_time: int = 1 << 14
    least_width: int = 32
    least_filled: float = 0.75
    rows_at_a_time: int = 1 << 9
    piece: int | None = None


ON_CPU, ON_GPU = Limits(), Limits(entries_at_a_time=1 << 20, least_width=64, rows_at_a_time=1 << 15)

# On a GPU, up to this many entries are solved for by a CUDA graph: their kernels take less time
# than launching them.
_MOST_RECORDED = 1 << 22

# Steps of conjugate gradients by which new entries move a trained row: its trained entries make
# them precise.
_MOVE_STEPS = 4


class Group(NamedTuple):
    """Rows with about as many entries each, solved for together; padded to the longest row, in
    pieces of one length."""

    positions: Tensor  # (rows,)
    others: Tensor  # (rows, entries) columns; one past the last column where padded
    values: Tensor  # (rows, entries); 0 where padded
    # (rows, entries) square roots of weights, 0 where padded; None where all weights are 1
    roots: Tensor | None = None
    n_pieces: int = 1

    def cut(self, numbers: Tensor) -> Array:
        """Return numbers (rows, entries) of the group as an array (rows, pieces, entries)."""
        return numbers.numpy().reshape(len(numbers), self.n_pieces, -1)


class Batch(NamedTuple):
    """Groups whose rows are solved for at once: one on a CPU, whose caches hold it, many on a
    GPU."""

    positions: Tensor  # (rows,)
    groups: list[Group]


class RowFit(NamedTuple):
    """How well draws fit the entries of each row, which count by the reliability of their
    columns."""

    squared_errors: Tensor  # (rows,) the weighted sum of squared errors
    totals: Tensor  # (rows,) the sum of the weights


class AxisPosterior(NamedTuple):
    """The conditional posterior of all rows given the columns."""

    means: Tensor  # (rows, D)
    draws: Tensor  # (rows, D)
    # (rows,) of products with columns, averaged over these; empty unless asked for
    variances: Tensor
    fit: RowFit


class AxisSolver:
    """The conditional posteriors of rows given the columns, laid out once; described for rows, used
    for columns too.

    With the table G of (v_j, 1) of a row's entries, and t their values less the effects c_j, the
    posterior of p_i is normal with precision A = alpha G'G + precision and mean A^-1 (alpha G't +
    precision prior_i). An entry of weight w counts as w entries, times the reliability of its
    column: its line of G and of t is multiplied by the root of both. Ranks that are given divide
    the rows.
    """

    def __init__(
        self,
        entries: AxisEntries,
        values: FloatArray,
        *,
        n_others: int,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        self.device, self.n_vectors, self._ranks = device, entries.starts.size - 1, ranks
        self._batches = lay_out(entries, values, n_others=n_others, device=device, ranks=ranks)
        without = (
            np.flatnonzero(np.diff(entries.starts) == 0)
            if ranks is None or ranks.index == 0
            else NOTHING
        )
        self._own = [
            torch.from_numpy(without).to(device),
            *(batch.positions for batch in self._batches),
        ]
        is_recorded = device.type == "cuda" and entries.others.size <= _MOST_RECORDED
        self._recorded = GraphFunction(partial(_draw_all, self._batches)) if is_recorded else None

    def draw(
        self,
        others: Tensor,
        prior_means: Tensor,
        precision: Tensor,
        alpha: float,
        *,
        other_reliabilities: Tensor | None = None,
        reliabilities: Tensor | None = None,
        noise: Tensor | None = None,
        moment: Tensor | None = None,
    ) -> AxisPosterior:
        """Return the posterior of every row given the factors of the columns.

        Parameters
        ----------
        others : factors (columns, D).
        prior_means : (rows, D); rows without entries have their prior.
        other_reliabilities, reliabilities : those of the columns, and of the rows, whose alpha is
            multiplied by them; default: 1.
        noise : standard normal numbers (rows, D) that make the draws; default: the draws are the
            means.
        moment : mean (D, D) of (v_j, 1)(v_j, 1)' over columns. With it, variances are computed:
            tr(A^-1 moment).
        """
        prior_draws = prior_means if noise is None else prior_means + noise @ invert_root(precision)
        ones = others.new_ones(max(len(others), len(prior_means)))
        roots = ones[: len(others)] if other_reliabilities is None else other_reliabilities.sqrt()
        strengths = alpha * (ones[: len(prior_means)] if reliabilities is None else reliabilities)
        arguments = others, roots, prior_means, prior_draws, precision, strengths
        if self._recorded is not None and noise is not None and moment is None:
            posterior = self._recorded(*arguments, noise)
        else:
            posterior = _draw_all(self._batches, *arguments, noise, moment)
        if self._ranks is not None:
            posterior = tuple(self._join(lines, self._ranks) for lines in posterior)
        means, draws, variances, squared_errors, totals = posterior
        return AxisPosterior(means, draws, variances, RowFit(squared_errors, totals))

    def _join(self, lines: Tensor, ranks: Ranks) -> Tensor:
        """Return the lines (rows, ...) of all ranks; the first has the rows without entries."""
        if len(lines) == 0:
            return lines
        joined_lines = torch.zeros_like(lines)
        for positions in self._own:
            joined_lines[positions] = lines[positions]
        return ranks.sum_(joined_lines)


def _draw_all(
    batches: Sequence[Batch],
    others: Tensor,
    roots: Tensor,
    prior_means: Tensor,
    prior_draws: Tensor,
    precision: Tensor,
    strengths: Tensor,
    noise: Tensor | None,
    moment: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return means, draws, variances, squared errors and totals, as `AxisSolver.draw` does.

    roots: of the reliabilities of columns, (columns,). strengths: the alpha of each row times its
        reliability, (rows,).
    """
    table, padded_roots = make_table(others, roots), torch.cat([roots, roots.new_zeros(1)])
    means, draws = prior_means.clone(), prior_draws.clone()
    root = None
    # of rounded numbers, it has a Cholesky factor with a little more on its diagonal
    if moment is not None:
        jitter = 1e-6 * moment.diagonal().mean() + 1e-12
        identity = torch.eye(len(moment), dtype=moment.dtype, device=moment.device)
        root, failed = torch.linalg.cholesky_ex(moment + jitter * identity)
        if bool(failed):
            raise np.linalg.LinAlgError("the mean products of factors are not positive definite")
    variances = (
        means.new_empty(0)
        if root is None
        else _compute_traces(precision[None], root).repeat(len(means))
    )
    errors, totals = torch.zeros_like(strengths), torch.zeros_like(strengths)
    buffer = Buffer(table)

    def solve(batch: Batch) -> None:
        grams, at = compute_grams(batch, table, buffer, padded_roots), batch.positions
        row_strengths = strengths[at, None, None]
        posterior = _solve_posterior(
            grams, prior_means[at], precision, row_strengths, None if noise is None else noise[at]
        )
        means[at], draws[at] = posterior.solutions, posterior.draws
        if root is not None:
            variances[at] = _compute_traces(row_strengths * grams[:, :-1, :-1] + precision, root)
        # (t - Gp)'(t - Gp)
        sides = torch.cat([-posterior.draws, torch.ones_like(posterior.draws[:, :1])], dim=1)
        errors[at] = ((grams @ sides[..., None])[..., 0] * sides).sum(1).clamp_min(0.0)
        totals[at] = grams[:, -2, -2]

    run_batches(solve, batches, table.device)
    return means, draws, variances, errors, totals


class Held(NamedTuple):
    """What holds rows where training left them: n M + lambda P for a row of n entries, diagonal in
    other coordinates.

    M is the mean of (v_j, 1)(v_j, 1)' over trained entries, and stands for those of the row; P is
    the precision of the prior. T'MT = diag(values) and T'PT = 1.
    """

    values: Array  # (D,)
    turn: Array  # T, (D, D)

    @classmethod
    def of(cls, lines: Array, counts: Array, precision: Array) -> Held:
        """Return it for the lines (columns, D) of the trained columns, by the numbers of their
        entries."""
        moment = lines.T @ (counts[:, None] / max(counts.sum(), 1) * lines.astype(np.float64))
        values, turn = scipy.linalg.eigh(moment, precision.astype(np.float64))
        return cls(np.maximum(values, 0.0).astype(np.float32), turn.astype(np.float32))

    def move_rows(
        self, batches: Sequence[Batch], lines: Array, totals: Array, penalties: Any
    ) -> Array:
        """Return how far rows (rows, D) move by new entries, whose residuals `batches` hold.

        lines: of the columns, (columns, D). totals, penalties: n and lambda of each row, (rows, 1).
        """
        ridges = (totals * self.values + penalties).astype(np.float32)
        return (
            solve_residuals(batches, lines @ self.turn, ridges, n_steps=_MOVE_STEPS) @ self.turn.T
        )


def solve_residuals(
    batches: Sequence[Batch], lines: Array, ridges: Array, *, n_steps: int
) -> Array:
    """Return the ridge regressions (rows, D) of residuals, which `batches` hold, by as many steps
    for every row."""
    table, factors = np.pad(lines, ((0, 1), (0, 0))), np.zeros_like(ridges)

    def solve(group: Group) -> None:
        at, inputs, residuals = (
            group.positions.numpy(),
            table[group.cut(group.others)],
            group.cut(group.values),
        )
        if group.roots is not None:
            roots = group.cut(group.roots)
            inputs, residuals = inputs * roots[..., None], residuals * roots
        factors[at] = descend(
            inputs,
            residuals,
            ridges=ridges[at],
            sizes=ridges[at] + np.einsum("rpek,rpek->rk", inputs, inputs),
            start=factors[at],
            most_steps=n_steps,
            least_gain=0.0,
        ).factors

    run_batches(solve, [group for batch in batches for group in batch.groups])
    return factors


def invert_root(precision: Tensor) -> Tensor:
    """Return L^-1, by which standard normal numbers get a precision LL': `noise @ L^-1`; NaN where
    there is no L.

    Nothing waits for a GPU.
    """
    lower, info = torch.linalg.cholesky_ex(precision)
    identity = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
    inverse: Tensor = torch.linalg.solve_triangular(lower, identity, upper=False)
    return inverse.masked_fill(info != 0, torch.nan)


def lay_out(
    entries: AxisEntries,
    values: FloatArray,
    *,
    n_others: int,
    device: torch.device = CPU,
    ranks: Ranks | None = None,
    limits: Limits | None = None,
) -> list[Batch]:
    """Return the rows that have entries in batches, the longest rows first; those of this rank."""
    limits = limits or (ON_GPU if device.type == "cuda" else ON_CPU)
    batches: list[list[Group]] = []
    n_rows = limits.rows_at_a_time  # in the last batch
    for group in _group_rows(entries, values, n_others, device, ranks, limits):
        if n_rows >= limits.rows_at_a_time:
            batches.append([])
            n_rows = 0
        batches[-1].append(group)
        n_rows += group.positions.numel()
    return [Batch(torch.cat([group.positions for group in groups]), groups) for groups in batches]


def _group_rows(
    entries: AxisEntries,
    values: FloatArray,
    n_others: int,
    device: torch.device,
    ranks: Ranks | None,
    limits: Limits,
) -> Iterator[Group]:
    """Yield groups of rows with a bounded number of padded entries."""
    counts, weights = np.diff(entries.starts), entries.extras.weights
    starts = torch.from_numpy(entries.starts.astype(np.int64)).to(device)
    columns = torch.from_numpy(entries.others.astype(np.int32)).to(device)
    targets = torch.from_numpy(values.astype(np.float32)).to(device)
    roots = (
        None
        if weights is None
        else torch.from_numpy(np.sqrt(weights).astype(np.float32)).to(device)
    )
    remaining = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    if ranks is not None:
        remaining = remaining[ranks.index :: ranks.size]
    falling = -counts[remaining]
    first = 0
    while first < remaining.size:
        longest = int(-falling[first])
        n_pieces = 1 if limits.piece is None else -(-longest // limits.piece)
        width = n_pieces * -(-longest // n_pieces)
        stop = first + max(1, limits.entries_at_a_time // max(width, limits.least_width))
        stop = min(
            stop,
            int(np.searchsorted(falling, -math.floor(limits.least_filled * width), side="right")),
        )
        positions = torch.from_numpy(remaining[first : max(stop, first + 1)]).to(device)
        first += positions.numel()
        places, observed = pad_entries(starts, positions, width)
        yield Group(
            positions,
            torch.where(observed, columns[places], n_others),
            torch.where(observed, targets[places], 0.0),
            None if roots is None else torch.where(observed, roots[places], 0.0),
            n_pieces,
        )


def pad_entries(starts: Tensor, positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return the places (rows, width) of the entries of rows, and which are observed; the others
    have the place 0."""
    places = starts[positions, None] + torch.arange(width, device=starts.device)
    observed = places < starts[positions + 1, None]
    return torch.where(observed, places, 0), observed


def run_batches(
    solve: Callable[[T], Any], batches: Sequence[T], device: torch.device = CPU
) -> list[Any]:
    """Solve batches, on a CPU in as many threads as torch uses; return the results in their
    order."""
    n_threads = min(torch.get_num_threads(), len(batches))
    if n_threads <= 1 or device.type == "cuda":
        return [solve(batch) for batch in batches]
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(
            n_threads, initializer=torch.set_num_threads, initargs=(1,)
        ) as threads:
            return list(threads.map(solve, batches))
    finally:
        torch.set_num_threads(before)


def make_table(factors: Tensor, roots: Tensor | None = None) -> Tensor:
    """Return (v_j, 1, -c_j) times a root for each column, and zeros for padding: (columns + 1, D +
    1)."""
    table = factors.new_zeros(factors.shape[0] + 1, factors.shape[1] + 1)
    table[:-1, :-2], table[:-1, -2], table[:-1, -1] = factors[:, :-1], 1.0, -factors[:, -1]
    if roots is not None:
        table[:-1] *= roots[:, None]
    return table


class Buffer(threading.local):
    """Memory of each thread for the lines that it gathers: filling fresh memory can take four times
    as long."""

    def __init__(self, table: Tensor, limits: Limits = ON_CPU) -> None:
        n_lines = 0 if table.is_cuda else limits.entries_at_a_time
        self.lines: Array = torch.empty(n_lines, table.shape[1], dtype=table.dtype).numpy()

    def gather(self, table: Array, others: Array) -> Array:
        """Return the lines of a table at some positions; they stay until the next call."""
        if others.size > len(self.lines):
            return table.take(others, axis=0)
        lines = self.lines[: others.size].reshape(*others.shape, -1)
        # "raise" would write to a copy first
        return table.take(others, axis=0, out=lines, mode="clip")


def compute_grams(
    batch: Batch, table: Tensor, buffer: Buffer, roots: Tensor | None = None
) -> Tensor:
    """Return the Gram matrices (rows, D + 1, D + 1) of (v_j, 1, x_ij - c_j) over each row's
    entries.

    roots: (columns + 1,) those that the lines of `table` are multiplied by; default: 1.
    """
    grams = table.new_empty(batch.positions.numel(), table.shape[1], table.shape[1])
    first = 0
    for group in batch.groups:
        group_grams = grams[first : first + group.positions.numel()]
        first += group.positions.numel()
        values = group.values
        if roots is not None:
            values = values * roots.index_select(0, group.others.view(-1)).view_as(values)
        if table.device.type == "cuda":
            gathered = table.index_select(0, group.others.view(-1)).view(*group.others.shape, -1)
            gathered[..., -1] += values
            if group.roots is not None:
                gathered *= group.roots[..., None]
            torch.bmm(gathered.mT, gathered, out=group_grams)
        else:
            _multiply_pieces(group, values, table.numpy(), group_grams.numpy(), buffer)
    return grams


def _multiply_pieces(
    group: Group, values: Tensor, table: Array, grams: Array, buffer: Buffer
) -> None:
    """Write the Gram matrices of a group; numpy's products of a matrix with its own transpose take
    half the time."""
    columns, targets = group.cut(group.others), group.cut(values)
    roots = None if group.roots is None else group.cut(group.roots)
    at_a_time = max(1, len(buffer.lines) // columns[:, 0].size)
    for start in range(0, group.n_pieces, at_a_time):
        pieces = slice(start, start + at_a_time)
        lines = buffer.gather(table, columns[:, pieces])
        lines[..., -1] += targets[:, pieces]
        if roots is not None:
            lines *= roots[:, pieces, :, None]
        if group.n_pieces == 1:
            np.matmul(lines.mT, lines, out=grams[:, None])
        else:
            np.add(grams if start else 0.0, (lines.mT @ lines).sum(axis=1), out=grams)


class Bordered(NamedTuple):
    """Solutions A^-1 r (rows, D), and L^-1 r, whose squares are r'A^-1 r; draws have the noise
    L'^-1 e beside."""

    solutions: Tensor
    draws: Tensor
    reduced: Tensor


def solve_bordered(matrices: Tensor, noise: Tensor | None = None) -> Bordered:
    """Solve with the blocks A = LL' and r of matrices (rows, D + 1, D + 1); without noise, draws
    are solutions.

    The last line of the Cholesky factor of a whole matrix is L^-1 r. The corner, at least about
    r'A^-1 r, is overwritten by a number that rounding cannot bring below that.
    """
    matrices[:, -1, -1] = 2.0 * matrices[:, -1, -1] + 1.0
    lower = torch.linalg.cholesky_ex(matrices).L
    reduced, upper = lower[:, -1, :-1, None], lower[:, :-1, :-1].mT
    right = reduced if noise is None else torch.cat([reduced, reduced + noise[..., None]], dim=2)
    solutions = torch.linalg.solve_triangular(upper, right, upper=True)
    return Bordered(solutions[..., 0], solutions[..., -1], reduced[..., 0])


def _solve_posterior(
    grams: Tensor, prior_means: Tensor, precision: Tensor, alpha: Tensor, noise: Tensor | None
) -> Bordered:
    """Return the posterior means A^-1 r, and draws A^-1 r + L'^-1 noise; alpha is (rows, 1, 1)."""
    systems = alpha * grams
    systems[:, :-1, :-1] += precision
    pulled = prior_means @ precision
    systems[:, -1, :-1] += pulled
    systems[:, :-1, -1] += pulled
    # The minimum of alpha |t - Gp|^2 + (p - prior)'precision(p - prior) is this less r'A^-1 r, and
    # is at least 0.
    systems[:, -1, -1] += (pulled * prior_means).sum(1)
    return solve_bordered(systems, noise)


def _compute_traces(matrices: Tensor, root: Tensor) -> Tensor:
    """Return tr(A^-1 RR') of each matrix A."""
    lower = torch.linalg.cholesky_ex(matrices).L
    solved: Tensor = torch.linalg.solve_triangular(lower, root.expand_as(lower), upper=False)
    return solved.square().sum((1, 2))


def take_steps(
    solution: Numbers,
    gradient: Numbers,
    *,
    multiply: Callable[[Numbers], tuple[Numbers, Numbers]],
    apply: Callable[[Numbers, Numbers], Numbers],
    precondition: Callable[[Numbers], Numbers],
    dot: Callable[[Numbers, Numbers], Numbers],
    most_steps: int,
    tolerance: float = 0.0,
    has_ended: Callable[[Numbers, Numbers, Numbers], bool] = lambda product, length, fall: False,
) -> Numbers:
    """Return better solutions of systems Ax = b by preconditioned conjugate gradients, all systems
    at once.

    gradient: b - Ax of the solution to begin with.
    multiply: from directions d to a product with them, and d'Ad.
    apply: from that product, and the directions, to Ad; called only if another step follows.
    dot: inner products of each system, in a shape that multiplies solutions.
    tolerance: steps end where preconditioned gradients have fallen to this share, looked at before
        every other step.
    has_ended: called after each step, with the product, the lengths of steps, and the dots of
        gradients and directions.
    """
    direction = precondition(gradient)
    fall = dot(gradient, direction)
    enough = tolerance**2 * fall
    for step in range(most_steps):
        if tolerance and step % 2 == 0 and bool((fall <= enough).all()):
            break
        product, curvature = multiply(direction)
        length = _divide(fall, curvature)
        solution = solution + length * direction
        if has_ended(product, length, fall) or step + 1 == most_steps:
            break
        gradient = gradient - length * apply(product, direction)
        scaled = precondition(gradient)
        next_fall = dot(gradient, scaled)
        direction = scaled + _divide(next_fall, fall) * direction
        fall = next_fall
    return solution


def _divide(some: Numbers, others: Numbers) -> Numbers:
    """Return ratios of numbers that are not negative; 0 where the divisor is 0, or no number."""
    if isinstance(some, Tensor):
        return torch.where(others > 0, some / others, 0.0)
    return np.divide(some, others, out=np.zeros_like(some), where=others > 0)


class Descent(NamedTuple):
    """Better factors, and their residuals."""

    factors: Array  # (rows, unknowns)
    residuals: Array  # (rows, pieces, entries)


def descend(
    inputs: Array,
    residuals: Array,
    *,
    ridges: Array,
    sizes: Array,
    start: Array,
    most_steps: int,
    least_gain: float,
) -> Descent:
    """Lower |targets - inputs x|^2 + x' diag(ridges) x of each row by a few steps of conjugate
    gradients.

    A step costs two products with the inputs; forming the normal equations costs as many as there
    are unknowns.

    inputs: (rows, pieces, entries, unknowns), zeros where a row has fewer entries.
    residuals: targets less inputs times start, (rows, pieces, entries).
    sizes: preconditioner: about the diagonals (rows, unknowns) of the normal equations, above 0.
    least_gain: steps end when one lowers the squared residuals by less than this share.
    """

    def multiply(direction: Array) -> tuple[Array, Array]:
        along = multiply_inputs(inputs, direction)
        return along, np.einsum("rpe,rpe->r", along, along)[:, None] + dot(
            ridges * direction, direction
        )

    def sum_weighted(weights: Array) -> Array:
        sums: Array = np.matmul(weights[:, :, None], inputs)[:, :, 0].sum(axis=1)
        return sums

    def dot(some: Array, others: Array) -> Array:
        dots: Array = np.einsum("rk,rk->r", some, others)[:, None]
        return dots

    def has_ended(along: Array, length: Array, fall: Array) -> bool:
        nonlocal residuals
        residuals = residuals - length[..., None] * along
        return bool(np.vdot(length, fall) < least_gain * np.vdot(residuals, residuals))

    factors = take_steps(
        start,
        sum_weighted(residuals) - ridges * start,
        multiply=multiply,
        apply=lambda along, direction: sum_weighted(along) + ridges * direction,
        precondition=lambda gradient: gradient / sizes,
        dot=dot,
        most_steps=most_steps,
        has_ended=has_ended,
    )
    return Descent(factors, residuals)


def multiply_inputs(inputs: Array, factors: Array) -> Array:
    """Return the product (rows, pieces, entries) of each row's inputs with its factors."""
    products: Array = np.matmul(inputs, factors[:, None, :, None])[..., 0]
    return products
