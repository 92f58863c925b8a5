"""The rows of a matrix given its columns: normal posteriors of all rows, solved in batches on a CPU or a GPU.

`chain.py` has the model. Everything is described for rows, and used for columns too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.nn.ranks import Ranks
from deepmf.training.runtime import GraphFunction

T = TypeVar("T")

# Padded entries that are gathered at a time on a CPU, where caches hold them, and on a GPU; rows with fewer entries
# count as `_LEAST_WIDTH`, so that the Gram matrices of a group are bounded, too. A group ends where rows have less than
# this share of the entries of its first row.
_ENTRIES_AT_A_TIME = {False: 1 << 14, True: 1 << 20}
_LEAST_WIDTH = {False: 32, True: 64}
_LEAST_FILLED = 0.75

# Rows that are solved for at once, on a CPU and on a GPU.
_ROWS_AT_A_TIME = {False: 1 << 9, True: 1 << 15}

# On a GPU, up to this many entries are solved for by a CUDA graph: their kernels take less time than launching them.
_MOST_RECORDED = 1 << 22


class Group(NamedTuple):
    """Rows with about as many entries each, solved for together; padded to the longest row."""

    positions: Tensor  # (rows,)
    others: Tensor  # (rows, entries) columns; one past the last column where padded
    values: Tensor  # (rows, entries); 0 where padded
    roots: Tensor | None = None  # (rows, entries) square roots of weights; None where all weights are 1


class Batch(NamedTuple):
    """Groups whose rows are solved for at once: one on a CPU, whose caches hold it, many on a GPU."""

    positions: Tensor  # (rows,)
    groups: list[Group]


class AxisPosterior(NamedTuple):
    """The conditional posterior of all rows given the columns."""

    means: Tensor  # (rows, D)
    draws: Tensor  # (rows, D)
    variances: Tensor  # (rows,) of products with columns, averaged over these; empty unless asked for
    fit: RowFit


class RowFit(NamedTuple):
    """How well draws fit the entries of each row, which count by the reliability of their columns."""

    squared_errors: Tensor  # (rows,) the weighted sum of squared errors
    totals: Tensor  # (rows,) the sum of the weights


class AxisSolver:
    """The conditional posteriors of rows given the columns, laid out once; described for rows, used for columns too.

    With the table G of (v_j, 1) of a row's entries, and t their values less the effects c_j, the posterior of p_i is
    normal with precision A = alpha G'G + precision and mean A^-1 (alpha G't + precision prior_i). An entry of weight w
    counts as w entries, times the reliability of its column: its line of G and of t is multiplied by the root of both.
    Ranks that are given divide the rows.
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
        without = np.flatnonzero(np.diff(entries.starts) == 0) if ranks is None or ranks.index == 0 else NOTHING
        self._own = [torch.from_numpy(without).to(device), *(batch.positions for batch in self._batches)]
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
        others
            Factors (columns, D).
        prior_means
            (rows, D); rows without entries have their prior.
        other_reliabilities, reliabilities
            Those of the columns, and of the rows, whose alpha is multiplied by them; default: 1.
        noise
            Standard normal numbers (rows, D) that make the draws; default: the draws are the means.
        moment
            Mean (D, D) of (v_j, 1)(v_j, 1)' over columns. With it, variances are computed: tr(A^-1 moment).
        """
        prior_draws = prior_means if noise is None else prior_means + noise @ invert_root(precision)
        ones = others.new_ones(max(len(others), len(prior_means)))
        roots = ones[: len(others)] if other_reliabilities is None else other_reliabilities.sqrt()
        strengths = alpha * (ones[: len(prior_means)] if reliabilities is None else reliabilities)
        given = others, roots, prior_means, prior_draws, precision, strengths
        if self._recorded is not None and noise is not None and moment is None:
            found = self._recorded(*given, noise)
        else:
            found = _draw_all(self._batches, *given, noise, moment)
        if self._ranks is not None:
            found = tuple(self._join(each, self._ranks) for each in found)
        means, draws, variances, squared_errors, totals = found
        return AxisPosterior(means, draws, variances, RowFit(squared_errors, totals))

    def _join(self, lines: Tensor, ranks: Ranks) -> Tensor:
        """Return the lines (rows, ...) of all ranks; the first has the rows without entries."""
        if len(lines) == 0:
            return lines
        joined = torch.zeros_like(lines)
        for own in self._own:
            joined[own] = lines[own]
        return ranks.sum_(joined)


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

    roots: of the reliabilities of columns, (columns,). strengths: the alpha of each row times its reliability, (rows,).
    """
    table, padded_roots = make_table(others, roots), torch.cat([roots, roots.new_zeros(1)])
    means, draws = prior_means.clone(), prior_draws.clone()
    root = None if moment is None else torch.linalg.cholesky(_add_jitter(moment))
    variances = means.new_empty(0) if root is None else _compute_traces(precision[None], root).repeat(len(means))
    errors, totals = torch.zeros_like(strengths), torch.zeros_like(strengths)

    def solve(batch: Batch) -> None:
        grams, at = compute_grams(batch, table, padded_roots), batch.positions
        own = strengths[at, None, None]
        found = solve_grams(grams, prior_means[at], precision, own, None if noise is None else noise[at])
        means[at], draws[at] = found.means, found.draws
        if root is not None:
            variances[at] = _compute_traces(own * grams[:, :-1, :-1] + precision, root)
        errors[at], totals[at] = _sum_squared_errors(grams, found.draws), grams[:, -2, -2]

    run_batches(solve, batches, table.device)
    return means, draws, variances, errors, totals


def invert_root(precision: Tensor) -> Tensor:
    """Return L^-1, by which standard normal numbers get a precision LL': `noise @ L^-1`; NaN where there is no L.

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
    device: torch.device,
    ranks: Ranks | None = None,
    rows_at_a_time: int | None = None,
) -> list[Batch]:
    """Return the rows that have entries in batches, the longest rows first; those of this rank.

    rows_at_a_time: rows that end a batch, 1 for one group in each; default: as many as the device solves for at once.
    """
    groups = _group_rows(entries, values, n_others, device, ranks)
    return list(_batch_groups(groups, rows_at_a_time or _ROWS_AT_A_TIME[device.type == "cuda"]))


def _group_rows(
    entries: AxisEntries, values: FloatArray, n_others: int, device: torch.device, ranks: Ranks | None
) -> Iterator[Group]:
    """Yield groups of rows with a bounded number of padded entries."""
    on_gpu, weights = device.type == "cuda", entries.extras.weights
    counts = np.diff(entries.starts)
    starts = torch.from_numpy(entries.starts.astype(np.int64)).to(device)
    others = torch.from_numpy(entries.others.astype(np.int32)).to(device)
    own = torch.from_numpy(values.astype(np.float32)).to(device)
    roots = None if weights is None else torch.from_numpy(np.sqrt(weights).astype(np.float32)).to(device)
    remaining = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    if ranks is not None:
        remaining = remaining[ranks.index :: ranks.size]
    falling = -counts[remaining]
    first = 0
    while first < remaining.size:
        width = int(-falling[first])
        stop = first + max(1, _ENTRIES_AT_A_TIME[on_gpu] // max(width, _LEAST_WIDTH[on_gpu]))
        stop = min(stop, int(np.searchsorted(falling, -math.floor(_LEAST_FILLED * width), side="right")))
        positions = torch.from_numpy(remaining[first : max(stop, first + 1)]).to(device)
        first += positions.numel()
        places = starts[positions, None] + torch.arange(width, device=device)
        observed = places < starts[positions + 1, None]
        places = torch.where(observed, places, 0)
        yield Group(
            positions,
            torch.where(observed, others[places], n_others),
            torch.where(observed, own[places], 0.0),
            None if roots is None else roots[places],
        )


def _batch_groups(groups: Iterator[Group], rows_at_a_time: int) -> Iterator[Batch]:
    batch: list[Group] = []
    for group in groups:
        batch.append(group)
        if sum(each.positions.numel() for each in batch) >= rows_at_a_time:
            yield Batch(torch.cat([each.positions for each in batch]), batch)
            batch = []
    if batch:
        yield Batch(torch.cat([each.positions for each in batch]), batch)


def run_batches(solve: Callable[[T], Any], batches: Sequence[T], device: torch.device) -> list[Any]:
    """Solve batches, on a CPU in as many threads as torch uses; return the results in their order."""
    n_threads = min(torch.get_num_threads(), len(batches))
    if n_threads <= 1 or device.type == "cuda":
        return [solve(batch) for batch in batches]
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as threads:
            return list(threads.map(solve, batches))
    finally:
        torch.set_num_threads(before)


def make_table(factors: Tensor, roots: Tensor) -> Tensor:
    """Return (v_j, 1, -c_j) times a root for each column, and zeros for padding: (columns + 1, D + 1)."""
    table = factors.new_zeros(factors.shape[0] + 1, factors.shape[1] + 1)
    table[:-1, :-2], table[:-1, -2], table[:-1, -1] = factors[:, :-1], 1.0, -factors[:, -1]
    table[:-1] *= roots[:, None]
    return table


def compute_grams(batch: Batch, table: Tensor, roots: Tensor | None = None) -> Tensor:
    """Return the Gram matrices (rows, D + 1, D + 1) of (v_j, 1, x_ij - c_j) over each row's entries.

    roots: (columns + 1,) those that the lines of `table` are multiplied by; default: 1.
    """
    grams = table.new_empty(batch.positions.numel(), table.shape[1], table.shape[1])
    on_gpu, first = table.device.type == "cuda", 0
    for group in batch.groups:
        own = grams[first : first + group.positions.numel()]
        first += group.positions.numel()
        values = group.values
        if roots is not None:
            values = values * roots.index_select(0, group.others.view(-1)).view_as(values)
        if on_gpu:
            gathered = table.index_select(0, group.others.view(-1)).view(*group.others.shape, -1)
            gathered[..., -1] += values
            if group.roots is not None:
                gathered *= group.roots[..., None]
            torch.bmm(gathered.mT, gathered, out=own)
        else:  # numpy's products of a matrix with its own transpose take half the time
            lines = table.numpy().take(group.others.numpy(), axis=0)
            lines[..., -1] += values.numpy()
            if group.roots is not None:
                lines *= group.roots.numpy()[..., None]
            np.matmul(lines.swapaxes(1, 2), lines, out=own.numpy())
    return grams


class GroupPosterior(NamedTuple):
    """Means and draws (rows, D) of a group."""

    means: Tensor
    draws: Tensor


def solve_grams(
    grams: Tensor, prior_means: Tensor, precision: Tensor, alpha: Tensor, noise: Tensor | None
) -> GroupPosterior:
    """Return the posterior means A^-1 r, and draws A^-1 r + L'^-1 noise, where A = LL'; alpha is (rows, 1, 1).

    The last line of the Cholesky factor of the matrix with the blocks A and r is L^-1 r.
    """
    size = precision.shape[0]
    whole = alpha * grams
    whole[:, :-1, :-1] += precision
    pulled = prior_means @ precision
    whole[:, -1, :-1] += pulled
    whole[:, :-1, -1] += pulled
    # The minimum of alpha |t - Gp|^2 + (p - prior)'precision(p - prior) is this less r'A^-1 r, and is at least 0.
    whole[:, -1, -1] += (pulled * prior_means).sum(1)
    whole[:, -1, -1] = 1.01 * whole[:, -1, -1] + 1.0
    lower = torch.linalg.cholesky_ex(whole).L
    reduced = lower[:, -1, :size, None]
    factor = lower[:, :size, :size].mT
    if noise is None:
        means = torch.linalg.solve_triangular(factor, reduced, upper=True)[..., 0]
        return GroupPosterior(means, means)
    both = torch.linalg.solve_triangular(factor, torch.cat([reduced, reduced + noise[..., None]], dim=2), upper=True)
    return GroupPosterior(both[..., 0], both[..., 1])


def _sum_squared_errors(grams: Tensor, factors: Tensor) -> Tensor:
    """Return |t - Gp|^2 of each row, from its Gram matrix."""
    weights = torch.cat([-factors, torch.ones_like(factors[:, :1])], dim=1)
    return ((grams @ weights[..., None])[..., 0] * weights).sum(1).clamp_min(0.0)


def _compute_traces(matrices: Tensor, root: Tensor) -> Tensor:
    """Return tr(A^-1 RR') of each matrix A."""
    lower = torch.linalg.cholesky_ex(matrices).L
    solved: Tensor = torch.linalg.solve_triangular(lower, root.expand_as(lower), upper=False)
    return solved.square().sum((1, 2))


def _add_jitter(matrix: Tensor) -> Tensor:
    """Return a matrix of second moments that has a Cholesky factor."""
    size = matrix.shape[0]
    return matrix + (1e-6 * matrix.diagonal().mean() + 1e-12) * torch.eye(
        size, dtype=matrix.dtype, device=matrix.device
    )
