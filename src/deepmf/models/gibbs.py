"""The Gibbs sampler of a matrix factorisation whose priors know which entries exist.

The model. With m the mean of all values and s their standard deviation,

    x_ij = m + s (b_i + c_j + u_i'v_j + noise),   noise ~ Normal(0, 1 / alpha).

Let p_i = (u_i, b_i) be the D = d + 1 factors of a row, and q_j = (v_j, c_j) those of a column. Their priors are

    p_i ~ Normal(mean + W'f_i, precision^-1),

and likewise for columns. The inputs f_i of a row say in which of the columns it has entries, each 1 / sqrt(n_i): the
choice of columns says something before their values do. Few entries say little about the choice, so that f_i is shrunk
to the average of all entries' rows, as if by 5 entries. Features of the row are a second block of
inputs. This is the prior of Macau (Simm et al., "Macau: scalable Bayesian multi-relational factorization with side
information using MCMC", 2015); the inputs are those of SVD++ (Koren, 2008), on both sides. All parameters have
conjugate priors:

    (mean, precision) ~ Normal-Wishart        rows of W ~ Normal(0, (lambda * precision)^-1), a lambda for each block
    lambda ~ Gamma, alpha ~ Gamma

One iteration draws each of them given all others: (mean, precision), W, lambda of both sides (`draw_prior`), then all
rows given the columns and all columns given the rows (`AxisSolver`), then alpha. Some iterations are kept as samples.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
import torch
from torch import Tensor
from torch.nn import functional

from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.nn.ranks import Ranks
from deepmf.training.runtime import make_generator

# Normal-Wishart prior of (mean, precision) in units of the values' standard deviation: the mean counts as this many
# rows at 0; the precision has D degrees of freedom and the identity as its scale (Salakhutdinov and Mnih, 2008).
_MEAN_COUNT = 2.0

# Shape and rate of the Gamma priors: of lambda, whose mean of 10 leaves most of the variance to the entries, and of
# alpha, whose mean of 1 explains nothing.
_LAMBDA_SHAPE, _LAMBDA_RATE = 1.0, 0.1
_ALPHA_SHAPE, _ALPHA_RATE = 1.0, 1.0

# Inputs are shrunk to their average as if by this many entries. In predictions, the prior means are further shrunk to
# the average factors of all entries: a new column with few entries seldom is an unpopular one. On MovieLens-1M, 20
# takes .012 from the error of new columns with two entries, and adds .0001 to that of known ones.
AVERAGE_COUNT, CENTRE_COUNT = 5.0, 20.0

# Conjugate gradient steps for the weights W at most; they end where the residual has fallen to this share. On a CPU the
# weights cost more than all rows and columns, and are drawn every few iterations: a Gibbs sampler may draw some of its
# parameters less often.
_LINK_STEPS, _LINK_TOLERANCE = 25, 1e-2
_LINK_EVERY = {False: 3, True: 1}

# Eigenvectors of F'F that precondition these steps, and the steps of the subspace iteration that finds them.
_LEADING, _LEADING_STEPS = 48, 4

# On a GPU, systems of up to this many rows or inputs, and tables F of up to this many numbers, are solved directly.
_LARGEST_DENSE, _LARGEST_TABLE = 6144, 1 << 29

# The grid of log lambda at which these systems are inverted, and the steps of refinement from there.
_LAMBDA_STEP, _REFINEMENTS = 0.1, 3

# Sweeps of ridge regressions from which a chain starts, with this precision and noise, in standard deviations.
_START_SWEEPS, _START_PRECISION, _START_ALPHA = 4, 10.0, 1.5

# Padded entries that are gathered at a time on a CPU, where caches hold them, and on a GPU; rows with fewer entries
# count as `_LEAST_WIDTH`, so that the Gram matrices of a group are bounded, too. A group ends where rows have less than
# this share of the entries of its first row.
_ENTRIES_AT_A_TIME = {False: 1 << 14, True: 1 << 20}
_LEAST_WIDTH = {False: 32, True: 64}
_LEAST_FILLED = 0.75

# Rows that a GPU solves for at once.
_ROWS_AT_A_TIME = 1 << 15


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
    squared_error: float | None  # of all entries, by the draws; None unless asked for


class AxisSolver:
    """The conditional posteriors of rows given the columns, laid out once; described for rows, used for columns too.

    With the table G of (v_j, 1) of a row's entries, and t their values less the effects c_j, the posterior of p_i is
    normal with precision A = alpha G'G + precision and mean A^-1 (alpha G't + precision prior_i). An entry of weight w
    counts as w entries: its line of G and of t is multiplied by the root of w. Ranks that are given divide the rows.
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
        groups = _group_rows(entries, values, n_others=n_others, device=device, ranks=ranks)
        self._batches = list(_batch_groups(groups, device))
        without = np.flatnonzero(np.diff(entries.starts) == 0) if ranks is None or ranks.index == 0 else NOTHING
        self._own = [torch.from_numpy(without).to(device), *(batch.positions for batch in self._batches)]

    def draw(
        self,
        others: Tensor,
        prior_means: Tensor,
        precision: Tensor,
        alpha: float,
        *,
        noise: Tensor | None = None,
        moment: Tensor | None = None,
        with_error: bool = False,
    ) -> AxisPosterior:
        """Return the posterior of every row given the factors of the columns.

        Parameters
        ----------
        others
            Factors (columns, D).
        prior_means
            (rows, D); rows without entries have their prior.
        noise
            Standard normal numbers (rows, D) that make the draws; default: the draws are the means.
        moment
            Mean (D, D) of (v_j, 1)(v_j, 1)' over columns. With it, variances are computed: tr(A^-1 moment).
        with_error
            Compute the squared error.
        """
        table = make_table(others)
        means, draws = prior_means.clone(), prior_means.clone()
        root = None if moment is None else torch.linalg.cholesky(_add_jitter(moment))
        variances = means.new_empty(0) if root is None else _compute_traces(precision[None], root).repeat(len(means))
        if noise is not None:
            lower = torch.linalg.cholesky(precision)
            draws += torch.linalg.solve_triangular(lower.mT, noise.mT, upper=True).mT

        def solve(batch: Batch) -> Tensor | None:
            grams, at = compute_grams(batch, table), batch.positions
            found = solve_grams(grams, prior_means[at], precision, alpha, None if noise is None else noise[at])
            means[at], draws[at] = found.means, found.draws
            if root is not None:
                variances[at] = _compute_traces(alpha * grams[:, :-1, :-1] + precision, root)
            return _sum_squared_errors(grams, found.draws) if with_error else None

        errors = run_batches(solve, self._batches, self.device)
        error = sum(map(float, errors)) if with_error else None
        if self._ranks is not None:
            means, draws, variances = (self._join(each, self._ranks) for each in (means, draws, variances))
            if error is not None:
                error = float(self._ranks.sum_(torch.tensor(error, dtype=torch.float64, device=self.device)))
        return AxisPosterior(means, draws, variances, error)

    def _join(self, lines: Tensor, ranks: Ranks) -> Tensor:
        """Return the lines (rows, ...) of all ranks; the first has the rows without entries."""
        if len(lines) == 0:
            return lines
        joined = torch.zeros_like(lines)
        for own in self._own:
            joined[own] = lines[own]
        return ranks.sum_(joined)


def _group_rows(
    entries: AxisEntries, values: FloatArray, *, n_others: int, device: torch.device, ranks: Ranks | None
) -> Iterator[Group]:
    """Yield groups of rows with a bounded number of padded entries, the longest rows first; those of this rank."""
    on_gpu = device.type == "cuda"
    starts, counts = entries.starts[:-1].astype(np.int64), np.diff(entries.starts)
    roots = None if entries.extras.weights is None else np.sqrt(entries.extras.weights).astype(np.float32)
    remaining = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    if ranks is not None:
        remaining = remaining[ranks.index :: ranks.size]
    falling = -counts[remaining]
    first = 0
    while first < remaining.size:
        width = int(-falling[first])
        stop = first + max(1, _ENTRIES_AT_A_TIME[on_gpu] // max(width, _LEAST_WIDTH[on_gpu]))
        stop = min(stop, int(np.searchsorted(falling, -math.floor(_LEAST_FILLED * width), side="right")))
        positions = remaining[first : max(stop, first + 1)]
        first += positions.size
        places = np.arange(width)
        observed = places < counts[positions, None]
        places = np.where(observed, starts[positions, None] + places, 0)
        yield Group(
            torch.from_numpy(positions).to(device),
            torch.from_numpy(np.where(observed, entries.others[places], n_others).astype(np.int32)).to(device),
            torch.from_numpy(np.where(observed, values[places], 0.0).astype(np.float32)).to(device),
            None if roots is None else torch.from_numpy(roots[places]).to(device),
        )


def _batch_groups(groups: Iterator[Group], device: torch.device) -> Iterator[Batch]:
    """Yield batches of groups."""
    if device.type != "cuda":
        yield from (Batch(group.positions, [group]) for group in groups)
        return
    batch: list[Group] = []
    for group in groups:
        batch.append(group)
        if sum(each.positions.numel() for each in batch) >= _ROWS_AT_A_TIME:
            yield Batch(torch.cat([each.positions for each in batch]), batch)
            batch = []
    if batch:
        yield Batch(torch.cat([each.positions for each in batch]), batch)


def run_batches(solve: Callable[[Batch], Any], batches: Sequence[Batch], device: torch.device) -> list[Any]:
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


def make_table(factors: Tensor) -> Tensor:
    """Return (v_j, 1, -c_j) for each column, and zeros for padding: (columns + 1, D + 1)."""
    table = factors.new_zeros(factors.shape[0] + 1, factors.shape[1] + 1)
    table[:-1, :-2], table[:-1, -2], table[:-1, -1] = factors[:, :-1], 1.0, -factors[:, -1]
    return table


def compute_grams(batch: Batch, table: Tensor) -> Tensor:
    """Return the Gram matrices (rows, D + 1, D + 1) of (v_j, 1, x_ij - c_j) over each row's entries."""
    if table.device.type == "cuda":
        grams = table.new_empty(batch.positions.numel(), table.shape[1], table.shape[1])
        first = 0
        for group in batch.groups:
            gathered = table.index_select(0, group.others.view(-1)).view(*group.others.shape, -1)
            gathered[..., -1] += group.values
            if group.roots is not None:
                gathered *= group.roots[..., None]
            torch.bmm(gathered.mT, gathered, out=grams[first : first + len(gathered)])
            first += len(gathered)
        return grams
    (group,) = batch.groups
    # On a CPU, numpy's products of a matrix with its own transpose take half the time.
    lines = table.numpy().take(group.others.numpy(), axis=0)
    lines[..., -1] += group.values.numpy()
    if group.roots is not None:
        lines *= group.roots.numpy()[..., None]
    return torch.from_numpy(lines.swapaxes(1, 2) @ lines)


class GroupPosterior(NamedTuple):
    """Means and draws (rows, D) of a group."""

    means: Tensor
    draws: Tensor


def solve_grams(
    grams: Tensor, prior_means: Tensor, precision: Tensor, alpha: float, noise: Tensor | None
) -> GroupPosterior:
    """Return the posterior means A^-1 r, and draws A^-1 r + L'^-1 noise, where A = LL'.

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
    """Return the sum of |t - Gp|^2 over rows, from their Gram matrices."""
    weights = torch.cat([-factors, torch.ones_like(factors[:, :1])], dim=1)
    return ((grams @ weights[..., None])[..., 0] * weights).sum(dtype=torch.float64)


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


Product = Callable[[Tensor], Tensor]


class Inputs:
    """The inputs F (rows, inputs) of the prior: in which columns each row has entries, and its features.

    `blocks` are the numbers of inputs of each block, which has a lambda of its own.
    """

    def __init__(
        self,
        entries: AxisEntries,
        mirrored: AxisEntries | None,
        *,
        n_others: int,
        device: torch.device,
        n_leading: int | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks
        counts = np.diff(entries.starts)
        shares = counts / (counts + AVERAGE_COUNT)
        self.centre_shares = _to_single(CENTRE_COUNT / (counts + CENTRE_COUNT)).to(device)[:, None]
        self._entry_shares = _to_single(counts / max(1, counts.sum())).to(device)
        self.scales = _to_single(shares * np.maximum(counts, 1) ** -0.5).to(device)[:, None]
        self.average_shares = _to_single(1.0 - shares).to(device)[:, None]
        self.n_vectors = counts.size
        self.blocks = [n_others]
        self._present = make_product(entries.starts, entries.others, None, n_others, device)
        self._features = self._features_back = None
        if entries.features is not None:
            table = entries.features.to_sparse().astype(np.float32).tocsr()
            table.sum_duplicates()  # in place, before its arrays are shared
            self.blocks.append(table.shape[1])
            self._features = make_product(table.indptr, table.indices, table.data, table.shape[1], device)
            back = table.T.tocsr()
            self._features_back = make_product(back.indptr, back.indices, back.data, self.n_vectors, device)
            self._feature_sizes = np.asarray(table.power(2).sum(axis=0)).ravel()
        if mirrored is not None:  # only the weights need these
            self._present_back = make_product(mirrored.starts, mirrored.others, None, self.n_vectors, device)
            roots = _to_single(np.sqrt(counts) / max(1, counts.sum())).to(device)[:, None]
            self._average = self._present_back(roots)  # (columns, 1), of the rows of all entries
            self.sizes = self._compute_sizes()
            self.dense = self._make_dense(device)
            n_leading = _LEADING if n_leading is None and min(self.n_vectors, n_others) >= 4 * _LEADING else n_leading
            self._leading = None if self.dense is not None or not n_leading else self._find_leading(n_leading, device)

    def average(self, weights: Tensor) -> Tensor:
        """Return the average inputs times weights, (D,)."""
        return (self._average.to(weights.dtype).mT @ weights[: self.blocks[0]])[0]

    def find_centre(self, factors: Tensor, prior: Prior, average: Tensor) -> Tensor:
        """Return the average factors (D,) of the rows of all entries, less their prior mean without features."""
        if self._features is not None:
            factors = factors - self._features(prior.weights[self.blocks[0] :])
        return self._entry_shares @ factors - prior.mean - average

    def multiply(self, weights: Tensor, average: Tensor | None = None) -> Tensor:
        """Return F weights, (rows, D); `average` is that of all training rows, where these are others."""
        average = self.average(weights) if average is None else average
        found = self._present(weights[: self.blocks[0]]) * self.scales.to(weights.dtype)
        found = found + self.average_shares.to(weights.dtype) * average
        if self._features is not None:
            found = found + self._features(weights[self.blocks[0] :])
        return found

    def multiply_back(self, factors: Tensor) -> Tensor:
        """Return F' factors, (inputs, D)."""
        present = self._present_back(factors * self.scales.to(factors.dtype))
        present = present + self._average.to(factors.dtype) @ (self.average_shares.to(factors.dtype).mT @ factors)
        return present if self._features_back is None else torch.cat([present, self._features_back(factors)])

    def precondition(self, residual: Tensor, lambdas: Tensor) -> Tensor:
        """Return about (F'F + lambda)^-1 residual: by leading eigenvectors if there are any, or by the diagonal."""
        scaled = residual / (self.sizes.to(residual.dtype) + lambdas)
        if self._leading is None:
            return scaled
        vectors, values = (each.to(residual.dtype) for each in self._leading)
        present, own = residual[: self.blocks[0]], lambdas[0]
        rest = 1.0 / (values.min() + own)
        scaled[: self.blocks[0]] = rest * present + vectors @ (
            (1.0 / (values + own) - rest)[:, None] * (vectors.mT @ present)
        )
        return scaled

    def _find_leading(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return leading eigenvectors (inputs, count) and eigenvalues of F'F without features, by subspace iteration.

        A few popular columns make the largest eigenvalues, which slow conjugate gradients down.
        """
        generator = make_generator(0, "leading", device)
        vectors = torch.randn(self.blocks[0], count, generator=generator, dtype=torch.float32, device=device)
        for _ in range(_LEADING_STEPS):
            vectors = torch.linalg.qr(vectors).Q
            images = self._present_back(self._present(vectors) * self.scales.square())
            values, turns = torch.linalg.eigh(vectors.mT @ images)
            eigenvectors, vectors = vectors @ turns, images
        return eigenvectors, values.clamp_min(0.0)

    def _make_dense(self, device: torch.device) -> DenseInputs | None:
        """Return F as a dense table, where that is the fastest."""
        n_inputs = sum(self.blocks)
        is_small = min(self.n_vectors, n_inputs) <= _LARGEST_DENSE and self.n_vectors * n_inputs <= _LARGEST_TABLE
        if device.type != "cuda" or not is_small:
            return None
        table = torch.empty(self.n_vectors, n_inputs, dtype=torch.float32, device=device)
        for first in range(0, n_inputs, 1024):  # F times a part of the identity
            size = min(1024, n_inputs - first)
            part = torch.zeros(n_inputs, size, dtype=torch.float32, device=device)
            part[first : first + size].fill_diagonal_(1.0)
            table[:, first : first + size] = self.multiply(part)
        return DenseInputs(table, self.blocks)

    def _compute_sizes(self) -> Tensor:
        """Return the diagonal (inputs, 1) of F'F."""
        sizes = self._present_back(self.scales.square().contiguous())
        if self._features is None:
            return sizes
        return torch.cat([sizes, torch.from_numpy(self._feature_sizes).to(sizes)[:, None]])


class DenseInputs:
    """F as a dense table (rows, inputs), which solves (F'F + lambda) W = target.

    With more inputs than rows, the system is (F lambda^-1 F' + 1), by Woodbury's identity. Inverting it takes about a
    tenth of an iteration, and lambda hardly changes from one iteration to the next. So the inverse is that of the
    nearest lambda on a grid, which iterative refinement corrects: each step leaves the distance to the grid, at most
    `_LAMBDA_STEP` / 2, of the error.
    """

    def __init__(self, table: Tensor, blocks: Sequence[int]) -> None:
        self._table, self._is_wide = table, table.shape[1] > table.shape[0]
        self._first = [sum(blocks[:block]) for block in range(len(blocks))]
        self._sizes = torch.tensor(blocks, device=table.device)
        parts = table.split(list(blocks), dim=1) if self._is_wide else [table]  # type: ignore[no-untyped-call]
        self._grams = [part @ part.mT if self._is_wide else part.mT @ part for part in parts]
        self._inverses: dict[tuple[int, ...], Tensor] = {}

    def solve(self, target: Tensor, lambdas: Tensor) -> Tensor:
        """Return W (inputs, D) for the lambda (inputs, 1) of each input."""
        of_blocks = lambdas[self._first, 0]
        inverse = self._invert_near(of_blocks.double().cpu().numpy())
        wanted = self._table @ (target / lambdas) if self._is_wide else target
        solution = inverse @ wanted
        for _ in range(_REFINEMENTS):
            solution = solution + inverse @ (wanted - self._multiply(solution, of_blocks, lambdas))
        return (target - self._table.mT @ solution) / lambdas if self._is_wide else solution

    def _multiply(self, vectors: Tensor, of_blocks: Tensor, lambdas: Tensor) -> Tensor:
        """Return the system's matrix times vectors."""
        if not self._is_wide:
            return self._grams[0] @ vectors + lambdas * vectors
        products = (gram @ vectors / own for gram, own in zip(self._grams, of_blocks, strict=True))
        return sum(products, vectors)

    def _invert_near(self, of_blocks: FloatArray) -> Tensor:
        """Return the inverse of the system's matrix at the nearest lambda on the grid; the last two are kept."""
        place = tuple(map(int, np.rint(np.log(of_blocks) / _LAMBDA_STEP)))
        if place not in self._inverses:
            near = torch.from_numpy(np.exp(_LAMBDA_STEP * np.array(place))).to(self._table)
            if self._is_wide:
                system = torch.eye(len(self._table), dtype=near.dtype, device=near.device)
                for gram, own in zip(self._grams, near, strict=True):
                    system = system + gram / own
            else:
                system = self._grams[0] + torch.diag(torch.repeat_interleave(near, self._sizes))
            kept = list(self._inverses.items())[-1:]
            self._inverses = dict(kept) | {place: torch.cholesky_inverse(torch.linalg.cholesky_ex(system).L)}
        return self._inverses[place]


def _to_single(array: FloatArray) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))


def make_product(
    starts: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    weights: npt.NDArray[Any] | None,
    n_inputs: int,
    device: torch.device,
) -> Product:
    """Return the product of a sparse matrix in CSR format with dense ones; its entries are 1 without weights."""
    starts, indices = np.ascontiguousarray(starts, dtype=np.int64), np.ascontiguousarray(indices, dtype=np.int64)
    if device.type == "cuda":
        values = np.ones(indices.size) if weights is None else weights
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls CSR tensors a beta
            matrix = torch.sparse_csr_tensor(
                torch.from_numpy(starts),
                torch.from_numpy(indices),
                torch.from_numpy(values.astype(np.float32)),
                size=(starts.size - 1, n_inputs),
                device=device,
            )
        return lambda dense: matrix @ dense
    first, at = torch.from_numpy(starts), torch.from_numpy(indices)
    own = None if weights is None else torch.from_numpy(np.ascontiguousarray(weights))

    def multiply(dense: Tensor) -> Tensor:
        if at.numel() == 0:
            return dense.new_zeros(first.numel() - 1, dense.shape[1])
        per_sample = None if own is None else own.to(dense.dtype)
        return functional.embedding_bag(
            at, dense, first, mode="sum", include_last_offset=True, per_sample_weights=per_sample
        )

    return multiply


class Prior(NamedTuple):
    """The prior of one side: p_i ~ Normal(mean + W'f_i, precision^-1), and a lambda for each block of inputs."""

    mean: Tensor  # (D,)
    precision: Tensor  # (D, D)
    weights: Tensor  # W, (inputs, D)
    lambdas: Tensor  # (blocks,)


def draw_prior(
    prior: Prior, factors: Tensor, inputs: Inputs, numbers: np.random.Generator, noise: Callable[[int], Tensor] | None
) -> Prior:
    """Draw (mean, precision) given the factors and the weights, then the weights, then lambda.

    noise: returns standard normal numbers (n, D); without it, weights and lambda stay as they are.
    """
    residuals = factors - inputs.multiply(prior.weights)
    of_inputs = _repeat_lambdas(prior.lambdas, inputs)
    mean, precision = draw_mean_and_precision(
        residuals.shape[0],
        residuals.mean(0).double().cpu().numpy(),
        (residuals.mT @ residuals).double().cpu().numpy(),
        ((prior.weights * of_inputs).mT @ prior.weights).double().cpu().numpy(),
        prior.weights.shape[0],
        numbers,
    )
    new = prior._replace(mean=_to_like(mean, factors), precision=_to_like(precision, factors))
    if noise is None:
        return new
    weights = draw_weights(
        factors - new.mean,
        inputs,
        of_inputs,
        new.precision,
        noise(factors.shape[0]),
        noise(prior.weights.shape[0]),
        steps=_LINK_STEPS,
        tolerance=_LINK_TOLERANCE,
    )
    weights = weights.contiguous()  # as it is restored from a checkpoint: sums depend on the order in memory
    return new._replace(weights=weights, lambdas=draw_lambdas(weights, new.precision, inputs.blocks, numbers))


def _to_like(array: FloatArray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device, like.dtype)


def _repeat_lambdas(lambdas: Tensor, inputs: Inputs) -> Tensor:
    """Return the lambda of each input, (inputs, 1)."""
    return torch.repeat_interleave(lambdas, torch.tensor(inputs.blocks, device=lambdas.device))[:, None]


def draw_mean_and_precision(
    count: int,
    average: FloatArray,
    moment: FloatArray,
    weight_moment: FloatArray,
    n_weights: int,
    numbers: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draw (mean, precision) from the Normal-Wishart posterior.

    Parameters
    ----------
    count, average, moment
        Number, mean (D,) and sum of outer products (D, D) of the factors less W'f_i.
    weight_moment, n_weights
        Sum of lambda w w' over the rows w of W, whose prior has the same precision, and their number.
    """
    size = average.size
    shrunk = count / (count + _MEAN_COUNT) * average
    scatter = moment - count * np.outer(average, average) + _MEAN_COUNT * np.outer(average, shrunk)
    scale = np.eye(size) + scatter + weight_moment
    precision = draw_wishart(size + count + n_weights, (scale + scale.T) / 2.0, numbers)
    spread = scipy.linalg.solve_triangular(
        np.linalg.cholesky((count + _MEAN_COUNT) * precision), numbers.standard_normal(size), lower=True, trans=1
    )
    return shrunk + spread, precision


def draw_wishart(degrees: float, inverse_scale: FloatArray, numbers: np.random.Generator) -> FloatArray:
    """Draw from the Wishart distribution with this inverse of its scale, by Bartlett's decomposition."""
    size = len(inverse_scale)
    bartlett = np.tril(numbers.standard_normal((size, size)), -1)
    bartlett[np.diag_indices(size)] = np.sqrt(numbers.chisquare(degrees - np.arange(size)))
    # With inverse_scale = LL', the scale is L'^-1 L^-1.
    root = scipy.linalg.solve_triangular(np.linalg.cholesky(inverse_scale), bartlett, lower=True, trans=1)
    drawn: FloatArray = root @ root.T
    return drawn


def draw_weights(
    deviations: Tensor,
    inputs: Inputs,
    lambdas: Tensor,
    precision: Tensor,
    row_noise: Tensor,
    input_noise: Tensor,
    *,
    steps: int,
    tolerance: float = 0.0,
) -> Tensor:
    """Draw W given the factors less their mean, `deviations` (rows, D).

    W solves (F'F + lambda) W = F'(deviations + E1) + sqrt(lambda) E2 with rows of E1 and E2 from Normal(0,
    precision^-1), which has the posterior's mean and covariance. The solution starts from E2 / sqrt(lambda), which is
    exact where inputs say nothing, and takes some conjugate gradient steps; small systems on a GPU are solved directly.
    """
    lower = torch.linalg.cholesky(precision)
    row_noise, input_noise = (
        torch.linalg.solve_triangular(lower, each, upper=False, left=False) for each in (row_noise, input_noise)
    )
    roots = lambdas.sqrt()
    target = inputs.multiply_back(deviations + row_noise) + roots * input_noise
    if inputs.dense is not None:
        return inputs.dense.solve(target, lambdas)

    def solve(factors: slice) -> Tensor:
        start = input_noise[:, factors] / roots
        return _solve_weights(inputs, target[:, factors], lambdas, start, steps=steps, tolerance=tolerance)

    if inputs.ranks is None:
        return solve(slice(None))
    own, found = inputs.ranks.find_lines(target.shape[1]), torch.zeros_like(target)
    if own.start < own.stop:
        found[:, own] = solve(own)
    return inputs.ranks.sum_(found)


def _solve_weights(
    inputs: Inputs, target: Tensor, lambdas: Tensor, solution: Tensor, *, steps: int, tolerance: float
) -> Tensor:
    """Return W with (F'F + lambda) W = target, by conjugate gradient steps from a solution."""

    def apply(weights: Tensor) -> Tensor:
        return inputs.multiply_back(inputs.multiply(weights)) + lambdas * weights

    residual = target - apply(solution)
    direction = inputs.precondition(residual, lambdas)
    fall = (residual * direction).sum(0)
    tiny = torch.finfo(target.dtype).tiny
    enough = tolerance**2 * fall
    for step in range(steps):
        if step % 2 == 0 and bool((fall <= enough).all()):
            break
        along = apply(direction)
        length = fall / (direction * along).sum(0).clamp_min(tiny)
        solution = solution + length * direction
        residual = residual - length * along
        scaled = inputs.precondition(residual, lambdas)
        next_fall = (residual * scaled).sum(0)
        direction = scaled + next_fall / fall.clamp_min(tiny) * direction
        fall = next_fall
    return solution


def draw_lambdas(weights: Tensor, precision: Tensor, blocks: Sequence[int], numbers: np.random.Generator) -> Tensor:
    """Draw the lambda of each block of inputs from its Gamma posterior."""
    squares = ((weights @ precision) * weights).sum(1, dtype=torch.float64)
    sums = torch.stack([part.sum() for part in torch.split(squares, list(blocks))]).cpu().numpy()
    counts = weights.shape[1] * np.array(blocks, dtype=np.float64)
    drawn = numbers.gamma(_LAMBDA_SHAPE + counts / 2.0, 1.0 / (_LAMBDA_RATE + sums / 2.0))
    return _to_like(drawn, weights)


def draw_alpha(n_entries: float, squared_error: float, numbers: np.random.Generator) -> float:
    """Draw the precision of the noise from its Gamma posterior."""
    return float(numbers.gamma(_ALPHA_SHAPE + n_entries / 2.0, 1.0 / (_ALPHA_RATE + squared_error / 2.0)))


class Parameters(NamedTuple):
    """The parameters of a chain that the next iteration depends on."""

    rows: Prior
    columns: Prior
    alpha: float


class GibbsSampler:
    """The chain: factors of all rows and columns, their priors and the noise; an iteration draws each given all others.

    Random numbers depend on the seed and the iteration alone, so that a resumed chain goes on as it would have, and all
    ranks draw the same: they divide the rows and columns that they solve for, and each knows all factors.
    """

    def __init__(
        self,
        entries: EntryStore,
        units: Units,
        *,
        latent_size: int,
        seed: int,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        n_rows, n_columns = entries.train.shape
        self._seed, self._device, self._ranks, self.units = seed, device, ranks, units
        size = min(latent_size, n_rows, n_columns) + 1
        self.set_entries(entries)
        self.row_factors = torch.zeros(n_rows, size, dtype=torch.float32, device=device)
        self.column_factors = 0.3 * torch.randn(
            n_columns,
            size,
            generator=make_generator(seed, "start", device),
            dtype=torch.float32,
            device=device,
        )
        self.parameters = Parameters(
            _start_prior(self.row_inputs, size, device), _start_prior(self.column_inputs, size, device), _START_ALPHA
        )

    def set_entries(self, entries: EntryStore) -> None:
        """Sample given these entries from now on."""
        n_rows, n_columns = entries.train.shape
        by_row, by_column = entries.row_entries(np.arange(n_rows)), entries.column_entries(np.arange(n_columns))
        self.n_entries = float(by_row.totals.sum())
        where: dict[str, Any] = {"device": self._device, "ranks": self._ranks}
        self.rows = AxisSolver(by_row, self.units.standardise(by_row.values), n_others=n_columns, **where)
        self.columns = AxisSolver(by_column, self.units.standardise(by_column.values), n_others=n_rows, **where)
        self.row_inputs = Inputs(by_row, by_column, n_others=n_columns, **where)
        self.column_inputs = Inputs(by_column, by_row, n_others=n_rows, **where)

    def start(self) -> None:
        """Move from random factors to ridge regressions of all rows and columns in turn."""
        rows, columns, alpha = self.parameters
        for _ in range(_START_SWEEPS):
            zeros = torch.zeros_like(self.row_factors), torch.zeros_like(self.column_factors)
            self.row_factors = self.rows.draw(self.column_factors, zeros[0], rows.precision, alpha).means
            self.column_factors = self.columns.draw(self.row_factors, zeros[1], columns.precision, alpha).means

    def go_on_from(self, samples: Mapping[str, Tensor], slot: int) -> None:
        """Go on from a kept sample; the rows of new labels are drawn first."""
        rows, columns = (
            prior._replace(
                mean=samples[f"{axis}.means"][slot].clone(),
                precision=samples[f"{axis}.precisions"][slot].clone(),
                weights=samples[f"{axis}.weights"][slot].float(),
            )
            for axis, prior in (("rows", self.parameters.rows), ("columns", self.parameters.columns))
        )
        self.row_factors = samples["rows.draws"][slot].float()
        self.column_factors = samples["columns.draws"][slot].float()
        self.parameters = Parameters(rows, columns, float(samples["alphas"][slot]))

    def iterate(self, epoch: int) -> Iteration:
        """Draw everything once."""
        numbers = np.random.default_rng([self._seed, epoch])
        generator = make_generator(self._seed, f"iteration {epoch}", self._device)
        size = self.row_factors.shape[1]

        def noise(count: int) -> Tensor:
            return torch.randn(count, size, generator=generator, dtype=torch.float32, device=self._device)

        has_link = epoch % _LINK_EVERY[self._device.type == "cuda"] == 0
        rows, columns, alpha = self.parameters
        rows = draw_prior(rows, self.row_factors, self.row_inputs, numbers, noise if has_link else None)
        columns = draw_prior(columns, self.column_factors, self.column_inputs, numbers, noise if has_link else None)
        given = self.column_factors
        averages = self.row_inputs.average(rows.weights), self.column_inputs.average(columns.weights)
        row_means = rows.mean + self.row_inputs.multiply(rows.weights, averages[0])
        drawn = self.rows.draw(given, row_means, rows.precision, alpha, noise=noise(len(row_means)))
        column_means = columns.mean + self.column_inputs.multiply(columns.weights, averages[1])
        other = self.columns.draw(
            drawn.draws, column_means, columns.precision, alpha, noise=noise(len(column_means)), with_error=True
        )
        assert other.squared_error is not None
        self.row_factors, self.column_factors = drawn.draws.contiguous(), other.draws.contiguous()
        self.parameters = Parameters(rows, columns, draw_alpha(self.n_entries, other.squared_error, numbers))
        centres = (
            self.row_inputs.find_centre(drawn.draws, rows, averages[0]),
            self.column_inputs.find_centre(given, columns, averages[1]),
        )
        used = Parameters(rows, columns, alpha)
        return Iteration(drawn, other, given, used, averages, centres, other.squared_error / self.n_entries)


class Iteration(NamedTuple):
    """An iteration: the posteriors of rows given `given` and of columns given the rows, under the same parameters."""

    rows: AxisPosterior
    columns: AxisPosterior
    given: Tensor
    parameters: Parameters
    averages: tuple[Tensor, Tensor]  # the average inputs of rows, and of columns, times their weights
    centres: tuple[Tensor, Tensor]  # by `Inputs.find_centre`
    mean_squared_error: float

    def predict(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the products of conditional means of pairs of positions, in units of the chain."""
        row_factors, column_factors = self.rows.means[rows], self.columns.means[columns]
        of_factors = (row_factors[:, :-1] * column_factors[:, :-1]).sum(1)
        return of_factors + row_factors[:, -1] + column_factors[:, -1]


def _start_prior(inputs: Inputs, size: int, device: torch.device) -> Prior:
    return Prior(
        torch.zeros(size, dtype=torch.float32, device=device),
        _START_PRECISION * torch.eye(size, dtype=torch.float32, device=device),
        torch.zeros(sum(inputs.blocks), size, dtype=torch.float32, device=device),
        torch.full((len(inputs.blocks),), _LAMBDA_SHAPE / _LAMBDA_RATE, dtype=torch.float32, device=device),
    )


class Units(NamedTuple):
    """The units of a chain: values less their mean, divided by their standard deviation."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, train: ObservedMatrix) -> Units:
        """Return the units of a matrix; values that are equal but for rounding have a small deviation."""
        values = train.values.astype(np.float64)
        largest = float(np.abs(values).max()) or 1.0
        deviation = np.std(values / largest)
        if train.weights is not None:
            deviation = np.sqrt(np.average(np.square((values - train.mean) / largest), weights=train.weights))
        units = cls(train.mean, max(float(deviation), 1e-9) * largest)
        if not all(map(math.isfinite, units)):
            raise np.linalg.LinAlgError(f"values of up to {largest:g} have no finite mean and deviation")
        return units

    def standardise(self, values: FloatArray) -> FloatArray:
        """Return values in these units."""
        standardised: FloatArray = (values - self.mean) / self.deviation
        return standardised


class AxisSamples(NamedTuple):
    """The kept samples of one side: draws of all rows, and what the posterior of a row depends on."""

    draws: npt.NDArray[Any]  # (samples, rows, D) in half precision
    weights: npt.NDArray[Any]  # W, (samples, inputs, D) in half precision
    means: npt.NDArray[Any]  # (samples, D)
    averages: npt.NDArray[Any]  # (samples, D) the average inputs times W
    centres: npt.NDArray[Any]  # (samples, D) the average factors of all entries, less their prior mean
    precisions: npt.NDArray[Any]  # (samples, D, D)
    moments: npt.NDArray[Any]  # (samples, D, D) the mean of (u_i, 1)(u_i, 1)' over rows


class Samples(NamedTuple):
    """The kept samples of a chain."""

    rows: AxisSamples
    columns: AxisSamples
    alphas: npt.NDArray[np.float32]  # (samples,)

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return self.alphas.size

    def take_last(self, count: int) -> Samples:
        """Return the last samples."""
        rows, columns = (AxisSamples(*(array[-count:] for array in axis)) for axis in (self.rows, self.columns))
        return Samples(rows, columns, self.alphas[-count:])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays by name."""
        axes = (("rows", self.rows), ("columns", self.columns))
        arrays = {f"{axis}.{name}": array for axis, part in axes for name, array in part._asdict().items()}
        return arrays | {"alphas": self.alphas}


class SampleRing:
    """Room for the last samples of a chain, on its device."""

    def __init__(self, n_samples: int, size: int, *, rows: Inputs, columns: Inputs, device: torch.device) -> None:
        identities = torch.eye(size, dtype=torch.float32, device=device).repeat(n_samples, 1, 1)
        self.tensors = {"alphas": torch.ones(n_samples, dtype=torch.float32, device=device)}
        for axis, inputs in (("rows", rows), ("columns", columns)):
            self.tensors |= {
                f"{axis}.draws": torch.zeros(n_samples, inputs.n_vectors, size, dtype=torch.float16, device=device),
                f"{axis}.weights": torch.zeros(n_samples, sum(inputs.blocks), size, dtype=torch.float16, device=device),
                f"{axis}.means": torch.zeros(n_samples, size, dtype=torch.float32, device=device),
                f"{axis}.averages": torch.zeros(n_samples, size, dtype=torch.float32, device=device),
                f"{axis}.centres": torch.zeros(n_samples, size, dtype=torch.float32, device=device),
                f"{axis}.precisions": identities.clone(),
                f"{axis}.moments": identities.clone(),
            }

    def keep(self, slot: int, iteration: Iteration) -> None:
        """Store an iteration: the rows it drew, and the columns that they were drawn given."""
        parameters = iteration.parameters
        self.tensors["alphas"][slot] = parameters.alpha
        for axis, factors, prior, average, centre in (
            ("rows", iteration.rows.draws, parameters.rows, iteration.averages[0], iteration.centres[0]),
            ("columns", iteration.given, parameters.columns, iteration.averages[1], iteration.centres[1]),
        ):
            inputs = torch.cat([factors[:, :-1], torch.ones_like(factors[:, :1])], dim=1)
            moment = inputs.mT @ inputs / len(inputs)
            kept = factors, prior.weights, prior.mean, average, centre, prior.precision, moment
            for name, tensor in zip(AxisSamples._fields, kept, strict=True):
                self.tensors[f"{axis}.{name}"][slot] = tensor

    def take(self, slots: Tensor) -> Samples:
        """Return the samples of some slots."""
        arrays = {name: tensor[slots.to(tensor.device)].cpu().numpy() for name, tensor in self.tensors.items()}
        rows, columns = (
            AxisSamples(*(arrays[f"{axis}.{name}"] for name in AxisSamples._fields)) for axis in ("rows", "columns")
        )
        return Samples(rows, columns, arrays["alphas"])


class Chain(NamedTuple):
    """The kept samples of a chain, and its predictions of some pairs in the units of the values."""

    samples: Samples
    predictions: LatentArray  # (pairs,)


def run_chain(
    entries: EntryStore,
    units: Units,
    row_at: IndexArray,
    column_at: IndexArray,
    *,
    latent_size: int,
    iterations: int,
    n_samples: int,
    seed: int,
    device: torch.device,
) -> Chain:
    """Run a chain, and keep samples that are evenly spaced in its last two thirds, the last iteration among them.

    row_at, column_at: the positions of the pairs to predict.
    """
    sampler = GibbsSampler(entries, units, latent_size=latent_size, seed=seed, device=device)
    n_usable = iterations - iterations // 3
    thinning = -(-n_usable // n_samples)
    n_kept, size = -(-n_usable // thinning), sampler.row_factors.shape[1]
    ring = SampleRing(n_kept, size, rows=sampler.row_inputs, columns=sampler.column_inputs, device=device)
    rows, columns = (torch.from_numpy(each).to(device) for each in (row_at, column_at))
    products = torch.zeros(rows.numel(), dtype=torch.float32, device=device)
    sampler.start()
    for epoch in range(iterations):
        iteration = sampler.iterate(epoch)
        slot, is_other = divmod(iterations - 1 - epoch, thinning)
        if slot < n_kept and not is_other:
            ring.keep(n_kept - 1 - slot, iteration)
            products += iteration.predict(rows, columns)
    predictions: LatentArray = (units.mean + units.deviation / n_kept * products).cpu().numpy()
    return Chain(ring.take(torch.arange(n_kept)), predictions)


def compute_effective_size(series: FloatArray) -> float:
    """Return the effective sample size of a series (Geyer's initial positive sequence).

    >>> compute_effective_size(np.random.default_rng(0).standard_normal(1000)) > 800
    True
    """
    centred = series - series.mean()
    n = centred.size
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    covariances = np.fft.irfft(spectrum)[:n] / n
    if covariances[0] <= 0:
        return float(n)
    sums = (covariances[: n // 2 * 2] / covariances[0]).reshape(-1, 2).sum(axis=1)
    positive = sums[: np.argmax(sums < 0) if np.any(sums < 0) else sums.size]
    return float(min(n, n / max(2.0 * positive.sum() - 1.0, 1.0 / n)))


def compute_r_hat(series: FloatArray) -> float:
    """Return the split R-hat of a series: how much its two halves differ; 1 where they agree.

    >>> compute_r_hat(np.array([0.0, 0.1, 0.0, 0.1])), compute_r_hat(np.array([0.0, 0.1, 5.0, 5.1])) > 10
    (0.7071067811865476, True)
    """
    half = series.size // 2
    halves = np.stack([series[:half], series[-half:]])
    within = float(halves.var(axis=1, ddof=1).mean())
    between = float(halves.mean(axis=1).var(ddof=1))
    return math.sqrt((half - 1) / half + between / within) if within > 0 else 1.0
