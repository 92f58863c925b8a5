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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import scipy.linalg

from deepmf.linalg.backend import NUMPY, Backend, factorise, solve_triangular
from deepmf.matrix.arrays import AnyArray, Array, FloatArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.matrix.library import find_library
from deepmf.training.threads import count_threads, set_threads

if TYPE_CHECKING:
    from deepmf.nn.ranks import Ranks

T = TypeVar("T")


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


# On a CPU, and on a GPU.
LIMITS = {
    False: Limits(),
    True: Limits(entries_at_a_time=1 << 20, least_width=64, rows_at_a_time=1 << 15),
}

# On a GPU, up to this many entries are solved for by a CUDA graph: their kernels take less time
# than launching them.
_MOST_RECORDED = 1 << 22

# Steps of conjugate gradients by which new entries move a trained row: its trained entries make
# them precise.
_MOVE_STEPS = 4


class Group(NamedTuple):
    """Rows with about as many entries each, solved for together; padded to the longest row, in
    pieces of one length."""

    positions: AnyArray  # (rows,)
    others: AnyArray  # (rows, entries) columns; one past the last column where padded
    values: AnyArray  # (rows, entries); 0 where padded
    # (rows, entries) square roots of weights, 0 where padded; None where all weights are 1
    roots: AnyArray | None = None
    n_pieces: int = 1

    def cut(self, entries: AnyArray) -> AnyArray:
        """Return numbers of entries (rows, entries) as an array (rows, pieces, entries)."""
        return entries.reshape(len(entries), self.n_pieces, -1)


class Batch(NamedTuple):
    """Groups whose rows are solved for at once: one on a CPU, whose caches hold it, many on a
    GPU."""

    positions: AnyArray  # (rows,)
    groups: list[Group]


class RowFit(NamedTuple):
    """How well draws fit the entries of each row, which count by the reliability of their
    columns."""

    squared_errors: AnyArray  # (rows,) the weighted sum of squared errors
    totals: AnyArray  # (rows,) the sum of the weights


class AxisPosterior(NamedTuple):
    """The conditional posterior of all rows given the columns."""

    means: AnyArray  # (rows, D)
    draws: AnyArray  # (rows, D)
    # (rows,) of products with columns, averaged over these; empty unless asked for
    variances: AnyArray
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
        backend: Backend = NUMPY,
        ranks: Ranks | None = None,
    ) -> None:
        self.n_vectors, self._ranks = entries.starts.size - 1, ranks
        self._batches = lay_out(entries, values, n_others=n_others, backend=backend, ranks=ranks)
        empty_rows = NOTHING
        if ranks is None or ranks.index == 0:
            empty_rows = np.flatnonzero(np.diff(entries.starts) == 0)
        self._positions = [backend.send(empty_rows), *(batch.positions for batch in self._batches)]
        self._draw: Callable[..., Any] = partial(_draw_all, self._batches)
        self._draw_recorded: Callable[..., Any] = self._draw
        if entries.others.size <= _MOST_RECORDED:
            self._draw_recorded = backend.record(self._draw)

    def draw(
        self,
        others: AnyArray,
        prior_means: AnyArray,
        precision: AnyArray,
        alpha: float,
        *,
        other_reliabilities: AnyArray | None = None,
        reliabilities: AnyArray | None = None,
        noise: AnyArray | None = None,
        moment: AnyArray | None = None,
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
        library = find_library(others)
        if other_reliabilities is None:
            other_reliabilities = library.ones_like(others[:, 0])
        if reliabilities is None:
            reliabilities = library.ones_like(prior_means[:, 0])
        prior_draws = prior_means
        if noise is not None:
            prior_draws = prior_means + noise @ invert_root(precision)
        roots, strengths = library.sqrt(other_reliabilities), alpha * reliabilities
        arguments = others, roots, prior_means, prior_draws, precision, strengths
        if noise is not None and moment is None:
            arrays = self._draw_recorded(*arguments, noise)
        else:
            arrays = self._draw(*arguments, noise, moment)
        if self._ranks is not None:
            arrays = tuple(self._join(lines, self._ranks) for lines in arrays)
        means, draws, variances, squared_errors, totals = arrays
        return AxisPosterior(means, draws, variances, RowFit(squared_errors, totals))

    def _join(self, lines: AnyArray, ranks: Ranks) -> AnyArray:
        """Return the lines (rows, ...) of all ranks; the first has the rows without entries."""
        if len(lines) == 0:
            return lines
        joined_lines = find_library(lines).zeros_like(lines)
        for positions in self._positions:
            joined_lines[positions] = lines[positions]
        return ranks.sum_(joined_lines)


def _draw_all(
    batches: Sequence[Batch],
    others: AnyArray,
    roots: AnyArray,
    prior_means: AnyArray,
    prior_draws: AnyArray,
    precision: AnyArray,
    strengths: AnyArray,
    noise: AnyArray | None,
    moment: AnyArray | None = None,
) -> tuple[AnyArray, ...]:
    """Return means, draws, variances, squared errors and totals, as `AxisSolver.draw` does.

    roots: of the reliabilities of columns, (columns,). strengths: the alpha of each row times its
        reliability, (rows,).
    """
    library = find_library(others)
    table = make_table(others, roots)
    padded_roots = library.concatenate([roots, library.zeros_like(roots[:1])])
    means, draws = (library.asarray(lines, copy=True) for lines in (prior_means, prior_draws))
    errors, totals = library.zeros_like(strengths), library.zeros_like(strengths)
    moment_root, variances = None, errors[:0]
    if moment is not None:
        # of rounded numbers, it has a Cholesky factor with a little more on its diagonal
        jitter = 1e-6 * library.einsum("kk->", moment) / len(moment) + 1e-12
        identity = library.eye(len(moment), dtype=moment.dtype, device=moment.device)
        moment_root = factorise(moment + jitter * identity)
        of_prior = _compute_traces(factorise(precision)[None], moment_root)
        variances = library.zeros_like(errors) + of_prior
    buffer = Buffer(table)

    def solve(batch: Batch) -> None:
        grams, at = compute_grams(batch, table, buffer, padded_roots), batch.positions
        posterior = _solve_posterior(
            grams,
            prior_means[at],
            precision,
            strengths[at, None, None],
            None if noise is None else noise[at],
        )
        means[at], draws[at] = posterior.solutions, posterior.draws
        if moment_root is not None:
            variances[at] = _compute_traces(posterior.factors, moment_root)
        # (t - Gp)'(t - Gp)
        ones = library.ones_like(posterior.draws[:, :1])
        sides = library.concatenate([-posterior.draws, ones], axis=1)
        errors[at] = ((grams @ sides[..., None])[..., 0] * sides).sum(1).clip(min=0.0)
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
        at, inputs = group.positions, table[group.cut(group.others)]
        residuals = group.cut(group.values)
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


def invert_root(precision: AnyArray) -> AnyArray:
    """Return L^-1, by which standard normal numbers get a precision LL': `noise @ L^-1`."""
    identity = find_library(precision).eye(
        len(precision), dtype=precision.dtype, device=precision.device
    )
    return solve_triangular(factorise(precision)[None], identity[None], upper=False)[0]


def lay_out(
    entries: AxisEntries,
    values: FloatArray,
    *,
    n_others: int,
    backend: Backend = NUMPY,
    ranks: Ranks | None = None,
    limits: Limits | None = None,
) -> list[Batch]:
    """Return the rows that have entries in batches, the longest rows first; those of this rank."""
    if limits is None:
        limits = LIMITS[backend.on_gpu]
    batches: list[list[Group]] = []
    n_rows = limits.rows_at_a_time  # in the last batch
    for group in _group_rows(entries, values, n_others, backend, ranks, limits):
        if n_rows >= limits.rows_at_a_time:
            batches.append([])
            n_rows = 0
        batches[-1].append(group)
        n_rows += len(group.positions)
    return [
        Batch(backend.library.concatenate([group.positions for group in groups]), groups)
        for groups in batches
    ]


def _group_rows(
    entries: AxisEntries,
    values: FloatArray,
    n_others: int,
    backend: Backend,
    ranks: Ranks | None,
    limits: Limits,
) -> Iterator[Group]:
    """Yield groups of rows with a bounded number of padded entries."""
    counts, weights, where = np.diff(entries.starts), entries.extras.weights, backend.library.where
    starts = backend.send(entries.starts.astype(np.int64))
    columns = backend.send(entries.others.astype(np.int32))
    targets = backend.send_single(values)
    roots = None if weights is None else backend.send_single(np.sqrt(weights))
    remaining = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    if ranks is not None:
        remaining = remaining[ranks.index :: ranks.size]
    falling = -counts[remaining]
    first = 0
    while first < remaining.size:
        longest = int(-falling[first])
        n_pieces = 1 if limits.piece is None else -(-longest // limits.piece)
        width = n_pieces * -(-longest // n_pieces)
        n_rows = max(1, limits.entries_at_a_time // max(width, limits.least_width))
        least_count = math.floor(limits.least_filled * width)
        n_filled = int(np.searchsorted(falling, -least_count, side="right")) - first
        positions = backend.send(remaining[first : first + max(1, min(n_rows, n_filled))])
        first += len(positions)
        places, is_observed = pad_entries(starts, positions, width)
        yield Group(
            positions,
            where(is_observed, columns[places], n_others),
            where(is_observed, targets[places], 0.0),
            None if roots is None else where(is_observed, roots[places], 0.0),
            n_pieces,
        )


def pad_entries(starts: AnyArray, positions: AnyArray, width: int) -> tuple[AnyArray, AnyArray]:
    """Return the places (rows, width) of the entries of rows, and which are observed; the others
    have the place 0."""
    library = find_library(starts)
    places = starts[positions, None] + library.arange(width, device=starts.device)
    is_observed = places < starts[positions + 1, None]
    return library.where(is_observed, places, 0), is_observed


def run_batches(solve: Callable[[T], Any], batches: Sequence[T], device: Any = "cpu") -> list[Any]:
    """Solve batches, on a CPU in as many threads as a fit may use; return the results in their
    order."""
    n_threads = min(count_threads(), len(batches))
    if n_threads <= 1 or str(device) != "cpu":
        return [solve(batch) for batch in batches]
    before = count_threads()
    try:
        with ThreadPoolExecutor(n_threads, initializer=set_threads, initargs=(1,)) as threads:
            return list(threads.map(solve, batches))
    finally:
        set_threads(before)


def make_table(factors: AnyArray, roots: AnyArray | None = None) -> AnyArray:
    """Return (v_j, 1, -c_j) times a root for each column, and zeros for padding: (columns + 1, D +
    1)."""
    n_columns, size = factors.shape
    table = find_library(factors).zeros(
        (n_columns + 1, size + 1), dtype=factors.dtype, device=factors.device
    )
    table[:-1, :-2], table[:-1, -2], table[:-1, -1] = factors[:, :-1], 1.0, -factors[:, -1]
    if roots is not None:
        table[:-1] *= roots[:, None]
    return table


class Buffer(threading.local):
    """Memory of each thread for the lines that it gathers: filling fresh memory can take four times
    as long."""

    def __init__(self, table: AnyArray, limits: Limits = LIMITS[False]) -> None:
        self.most_lines = limits.entries_at_a_time
        if isinstance(table, np.ndarray):
            self._lines = np.empty((self.most_lines, table.shape[1]), dtype=table.dtype)

    def gather(self, table: AnyArray, others: AnyArray) -> AnyArray:
        """Return the lines of a table at some positions; they stay until the next call."""
        if not isinstance(table, np.ndarray):
            return table.index_select(0, others.reshape(-1)).reshape(*others.shape, -1)
        if others.size > self.most_lines:
            return table.take(others, axis=0)
        lines = self._lines[: others.size].reshape(*others.shape, -1)
        # "raise" would write to a copy first
        return table.take(others, axis=0, out=lines, mode="clip")


def compute_grams(
    batch: Batch, table: AnyArray, buffer: Buffer, roots: AnyArray | None = None
) -> AnyArray:
    """Return the Gram matrices (rows, D + 1, D + 1) of (v_j, 1, x_ij - c_j) over each row's
    entries.

    roots: (columns + 1,) those that the lines of `table` are multiplied by; default: 1.
    """
    shape = len(batch.positions), table.shape[1], table.shape[1]
    grams = find_library(table).empty(shape, dtype=table.dtype, device=table.device)
    first = 0
    for group in batch.groups:
        values = group.values
        if roots is not None:
            values = values * roots[group.others]
        group_grams = grams[first : first + len(group.positions)]
        _multiply_pieces(group, values, table, group_grams, buffer)
        first += len(group.positions)
    return grams


def _multiply_pieces(
    group: Group, values: AnyArray, table: AnyArray, grams: AnyArray, buffer: Buffer
) -> None:
    """Write the Gram matrices of a group."""
    library, columns, targets = find_library(table), group.cut(group.others), group.cut(values)
    roots = None if group.roots is None else group.cut(group.roots)
    n_rows, _, width = columns.shape
    at_a_time = max(1, buffer.most_lines // (n_rows * width))
    for start in range(0, group.n_pieces, at_a_time):
        pieces = slice(start, start + at_a_time)
        lines = buffer.gather(table, columns[:, pieces])
        lines[..., -1] += targets[:, pieces]
        if roots is not None:
            lines *= roots[:, pieces, :, None]
        if group.n_pieces == 1:
            library.matmul(lines.mT, lines, out=grams[:, None])
        elif start:
            grams += (lines.mT @ lines).sum(axis=1)
        else:
            grams[...] = (lines.mT @ lines).sum(axis=1)


class Bordered(NamedTuple):
    """Solutions A^-1 r (rows, D), and L^-1 r, whose squares are r'A^-1 r; draws have the noise
    L'^-1 e beside."""

    solutions: AnyArray
    draws: AnyArray
    reduced: AnyArray
    factors: AnyArray  # L, (rows, D, D)


def solve_bordered(matrices: AnyArray, noise: AnyArray | None = None) -> Bordered:
    """Solve with the blocks A = LL' and r of matrices (rows, D + 1, D + 1); without noise, draws
    are solutions.

    The last line of the Cholesky factor of a whole matrix is L^-1 r. The corner, at least about
    r'A^-1 r, is overwritten by a number that rounding cannot bring below that.
    """
    matrices[:, -1, -1] = 2.0 * matrices[:, -1, -1] + 1.0
    whole_factors = factorise(matrices)
    factors, reduced = whole_factors[:, :-1, :-1], whole_factors[:, -1, :-1]
    right = reduced[..., None]
    if noise is not None:
        right = find_library(matrices).stack([reduced, reduced + noise], axis=2)
    solutions = solve_triangular(factors.mT, right, upper=True)
    return Bordered(solutions[..., 0], solutions[..., -1], reduced, factors)


def _solve_posterior(
    grams: AnyArray,
    prior_means: AnyArray,
    precision: AnyArray,
    alpha: AnyArray,
    noise: AnyArray | None,
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


def _compute_traces(factors: AnyArray, root: AnyArray) -> AnyArray:
    """Return tr((LL')^-1 RR') for the factor L of each row."""
    right = find_library(root).broadcast_to(root, factors.shape)
    return (solve_triangular(factors, right, upper=False) ** 2).sum((1, 2))


def take_steps(
    solution: AnyArray,
    gradient: AnyArray,
    *,
    multiply: Callable[[AnyArray], tuple[AnyArray, AnyArray]],
    apply: Callable[[AnyArray, AnyArray], AnyArray],
    precondition: Callable[[AnyArray], AnyArray],
    dot: Callable[[AnyArray, AnyArray], AnyArray],
    most_steps: int,
    tolerance: float = 0.0,
    has_ended: Callable[[AnyArray, AnyArray, AnyArray], bool] = lambda product, length, fall: False,
) -> AnyArray:
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


def _divide(numerators: AnyArray, divisors: AnyArray) -> AnyArray:
    """Return ratios of numbers that are not negative; 0 where the divisor is 0, or no number."""
    library = find_library(divisors)
    return numerators / library.where(divisors > 0, divisors, library.inf)


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
