"""BayesianMF: matrix factorisation by Gibbs sampling, with priors that know which entries exist.

The model. With m the mean of all values and s their standard deviation,

    x_ij = m + s (b_i + c_j + u_i'v_j + noise),   noise ~ Normal(0, 1 / alpha).

Let p_i = (u_i, b_i) be the D = d + 1 factors of a row, and q_j = (v_j, c_j) those of a column. Their priors are

    p_i ~ Normal(mean + W'f_i, precision^-1),

and likewise for columns. The inputs f_i of a row say in which of the columns it has entries, each 1 / sqrt(n_i): the
choice of columns says something before their values do. Few entries say little about the choice, so that f_i is shrunk
to the average of all entries' rows, as if by 5 entries. Features of the row are a second block of inputs. This is the
prior of Macau (Simm et al., "Macau: scalable Bayesian multi-relational factorization with side information using MCMC",
2015); the inputs are those of SVD++ (Koren, 2008), on both sides. All parameters have conjugate priors:

    (mean, precision) ~ Normal-Wishart        rows of W ~ Normal(0, (lambda * precision)^-1), a lambda for each block
    lambda ~ Gamma, alpha ~ Gamma

One iteration draws each of them given all others: (mean, precision), W, lambda of both sides (`draw_prior`), then all
rows given the columns and all columns given the rows (`AxisSolver`), then alpha. Some iterations are kept as samples.

Predictions. A kept sample has draws of all rows P and columns Q, and its parameters. Given these, p_i and q_j of a pair
without an entry are independent, so that the product of the conditional means E[p_i | Q] and E[q_j | P] is an unbiased
estimate of the posterior mean with far less noise than the product of two draws (Rao-Blackwell). Predictions average
this product over the samples. A fold-in is the same conditional mean, so that a new row with the entries of a trained
row gets its latents.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.special
import torch
from torch import Tensor
from torch.nn import functional

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.distribution import PredictiveDistribution, find_support
from deepmf.models.fitting import Fitting, split_validation
from deepmf.models.latents import Latents
from deepmf.models.pairs import Fallback, find_pairs
from deepmf.models.predictor import Encoder, Predictor, Readout, unpack_latents
from deepmf.models.warm_start import WarmStart
from deepmf.storage.model_file import Packed, Tensors, read_field, read_numbers
from deepmf.training.loop import Epoch, ValidationEntries
from deepmf.training.memory import FitBytes, check_memory
from deepmf.training.runtime import Runtime, make_generator
from deepmf.training.settings import (
    RECOMMENDATION,
    WIDEST,
    LoopSettings,
    RecommendationSettings,
    Settings,
    setting,
    settings_dataclass,
)


@settings_dataclass
class BayesianMFSettings(LoopSettings, RecommendationSettings):
    """The settings of BayesianMF; `fit` chooses the size and the length of the chain unless they are given."""

    chosen_at_fit: ClassVar[Collection[str]] = (
        "epochs",
        "burn_in",
        "samples",
        "latent_size",
        "validate_every",
        *RECOMMENDATION,
    )

    epochs: int = setting(300, "Number of iterations of the sampler.", low=1)
    validate_every: int = 10
    burn_in: int = setting(100, "Number of iterations before the first sample that predictions use.", low=0)
    samples: int = setting(16, "Number of samples to keep, evenly spaced after the burn-in.", low=1, high=WIDEST)
    latent_size: int = setting(
        32, "Latent size without the effect; at most the smaller side of the matrix.", low=1, high=WIDEST
    )
    bins: int = setting(
        32, "Number of bins for values on a scale without levels; most bins have equal frequency.", low=2, high=1 << 16
    )
    device: str = setting(
        "auto", 'Device to sample on; "auto" is a GPU if there is one.', choices=("auto", "cpu", "cuda")
    )


# Normal-Wishart prior of (mean, precision) in units of the values' standard deviation: the mean counts as this many
# rows at 0; the precision has D degrees of freedom and the identity as its scale (Salakhutdinov and Mnih, 2008).
_MEAN_COUNT = 2.0

# Shape and rate of the Gamma priors: of lambda, whose mean of 10 leaves most of the variance to the entries, and of
# alpha, whose mean of 1 explains nothing.
_LAMBDA_SHAPE, _LAMBDA_RATE = 1.0, 0.1
_ALPHA_SHAPE, _ALPHA_RATE = 1.0, 1.0

# Inputs are shrunk to their average as if by this many entries.
_AVERAGE_COUNT = 5.0

# Conjugate gradient steps for the weights W at most; they end where the residual has fallen to this share. On a CPU the
# weights cost more than all rows and columns, and are drawn every few iterations: a Gibbs sampler may draw some of its
# parameters less often.
_LINK_STEPS, _LINK_TOLERANCE = 25, 1e-2
_LINK_EVERY = 3

# Eigenvectors of F'F that precondition these steps, and the steps of the subspace iteration that finds them.
_LEADING, _LEADING_STEPS = 48, 4

# On a GPU, systems of up to this many rows or inputs, and tables F of up to this many numbers, are solved directly.
_LARGEST_DENSE, _LARGEST_TABLE = 6144, 1 << 29

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

# Scales of the predictive spread that are compared on held-out entries, and the steps of the search for cutpoints.
_SPREADS = np.geomspace(0.6, 1.7, 27)
_BISECTIONS = 30
_MOST_CALIBRATED = 8192


class Group(NamedTuple):
    """Rows with about as many entries each, solved for together; padded to the longest row."""

    positions: Tensor  # (rows,)
    others: Tensor  # (rows, entries) columns; one past the last column where padded
    values: Tensor  # (rows, entries); 0 where padded


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
    normal with precision A = alpha G'G + precision and mean A^-1 (alpha G't + precision prior_i).
    """

    def __init__(self, entries: AxisEntries, values: FloatArray, *, n_others: int, device: torch.device) -> None:
        self.device, self.n_vectors = device, entries.starts.size - 1
        groups = _group_rows(entries, values, n_others=n_others, device=device)
        self._batches = list(_batch_groups(groups, device))

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
        return AxisPosterior(means, draws, variances, error)


def _group_rows(entries: AxisEntries, values: FloatArray, *, n_others: int, device: torch.device) -> Iterator[Group]:
    """Yield groups of rows with a bounded number of padded entries, the longest rows first."""
    on_gpu = device.type == "cuda"
    starts, counts = entries.starts[:-1].astype(np.int64), np.diff(entries.starts)
    remaining = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
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
            torch.bmm(gathered.mT, gathered, out=grams[first : first + len(gathered)])
            first += len(gathered)
        return grams
    (group,) = batch.groups
    # On a CPU, numpy's products of a matrix with its own transpose take half the time.
    lines = table.numpy().take(group.others.numpy(), axis=0)
    lines[..., -1] += group.values.numpy()
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
    ) -> None:
        counts = np.diff(entries.starts)
        shares = counts / (counts + _AVERAGE_COUNT)
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
    """F as a dense table (rows, inputs), which solves (F'F + lambda) W = target by a Cholesky factor.

    With more inputs than rows, the system is (F lambda^-1 F' + 1), by Woodbury's identity.
    """

    def __init__(self, table: Tensor, blocks: Sequence[int]) -> None:
        self._table, self._is_wide = table, table.shape[1] > table.shape[0]
        self._first = np.concatenate([[0], np.cumsum(blocks)])
        parts = table.split(list(blocks), dim=1) if self._is_wide else [table]  # type: ignore[no-untyped-call]
        self._grams = [part @ part.mT if self._is_wide else part.mT @ part for part in parts]

    def solve(self, target: Tensor, lambdas: Tensor) -> Tensor:
        """Return W (inputs, D) for the lambda (inputs, 1) of each input."""
        if not self._is_wide:
            system = self._grams[0] + torch.diag(lambdas[:, 0])
            return torch.cholesky_solve(target, torch.linalg.cholesky_ex(system).L)
        scaled = target / lambdas
        system = torch.eye(len(self._table), dtype=target.dtype, device=target.device)
        for first, gram in zip(self._first[:-1], self._grams, strict=True):
            system = system + gram / lambdas[first]
        inner = torch.cholesky_solve(self._table @ scaled, torch.linalg.cholesky_ex(system).L)
        return scaled - (self._table.mT @ inner) / lambdas


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

    def apply(weights: Tensor) -> Tensor:
        return inputs.multiply_back(inputs.multiply(weights)) + lambdas * weights

    solution = input_noise / roots
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


def draw_alpha(n_entries: int, squared_error: float, numbers: np.random.Generator) -> float:
    """Draw the precision of the noise from its Gamma posterior."""
    return float(numbers.gamma(_ALPHA_SHAPE + n_entries / 2.0, 1.0 / (_ALPHA_RATE + squared_error / 2.0)))


class Parameters(NamedTuple):
    """The parameters of a chain that the next iteration depends on."""

    rows: Prior
    columns: Prior
    alpha: float


class GibbsSampler:
    """The chain: factors of all rows and columns, their priors and the noise; an iteration draws each given all others.

    Random numbers depend on the seed and the iteration alone, so that a resumed chain goes on as it would have.
    """

    def __init__(self, entries: EntryStore, units: Units, settings: BayesianMFSettings, device: torch.device) -> None:
        n_rows, n_columns = entries.train.shape
        self._settings, self._device, self.units = settings, device, units
        size = min(settings.latent_size, n_rows, n_columns) + 1
        self.set_entries(entries)
        self.row_factors = torch.zeros(n_rows, size, dtype=torch.float32, device=device)
        self.column_factors = 0.3 * torch.randn(
            n_columns,
            size,
            generator=make_generator(settings.seed, "start", device),
            dtype=torch.float32,
            device=device,
        )
        self.parameters = Parameters(
            _start_prior(self.row_inputs, size, device), _start_prior(self.column_inputs, size, device), _START_ALPHA
        )

    def set_entries(self, entries: EntryStore) -> None:
        """Sample given these entries from now on."""
        (n_rows, n_columns), device = entries.train.shape, self._device
        by_row, by_column = entries.row_entries(np.arange(n_rows)), entries.column_entries(np.arange(n_columns))
        self.n_entries = by_row.values.size
        self.rows = AxisSolver(by_row, self.units.standardise(by_row.values), n_others=n_columns, device=device)
        self.columns = AxisSolver(by_column, self.units.standardise(by_column.values), n_others=n_rows, device=device)
        self.row_inputs = Inputs(by_row, by_column, n_others=n_columns, device=device)
        self.column_inputs = Inputs(by_column, by_row, n_others=n_rows, device=device)

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
        numbers = np.random.default_rng([self._settings.seed, epoch])
        generator = make_generator(self._settings.seed, f"iteration {epoch}", self._device)
        size = self.row_factors.shape[1]

        def noise(count: int) -> Tensor:
            return torch.randn(count, size, generator=generator, dtype=torch.float32, device=self._device)

        has_link = self._device.type == "cuda" or epoch % _LINK_EVERY == 0
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
        used = Parameters(rows, columns, alpha)
        return Iteration(drawn, other, given, used, averages, other.squared_error / self.n_entries)


class Iteration(NamedTuple):
    """An iteration: the posteriors of rows given `given` and of columns given the rows, under the same parameters."""

    rows: AxisPosterior
    columns: AxisPosterior
    given: Tensor
    parameters: Parameters
    averages: tuple[Tensor, Tensor]  # the average inputs of rows, and of columns, times their weights
    mean_squared_error: float


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
        units = cls(train.mean, max(float(np.std(values / largest)), 1e-9) * largest)
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
                f"{axis}.precisions": identities.clone(),
                f"{axis}.moments": identities.clone(),
            }

    def keep(self, slot: int, iteration: Iteration) -> None:
        """Store an iteration: the rows it drew, and the columns that they were drawn given."""
        parameters, (row_average, column_average) = iteration.parameters, iteration.averages
        self.tensors["alphas"][slot] = parameters.alpha
        for axis, factors, prior, average in (
            ("rows", iteration.rows.draws, parameters.rows, row_average),
            ("columns", iteration.given, parameters.columns, column_average),
        ):
            inputs = torch.cat([factors[:, :-1], torch.ones_like(factors[:, :1])], dim=1)
            kept = factors, prior.weights, prior.mean, average, prior.precision, inputs.mT @ inputs / len(inputs)
            for name, tensor in zip(AxisSamples._fields, kept, strict=True):
                self.tensors[f"{axis}.{name}"][slot] = tensor

    def take(self, slots: Tensor) -> Samples:
        """Return the samples of some slots."""
        arrays = {name: tensor[slots.to(tensor.device)].cpu().numpy() for name, tensor in self.tensors.items()}
        rows, columns = (
            AxisSamples(*(arrays[f"{axis}.{name}"] for name in AxisSamples._fields)) for axis in ("rows", "columns")
        )
        return Samples(rows, columns, arrays["alphas"])


# What follows the factors in a latent: of a row (b, 1, m, r, 0), of a column (1, c, 1, 0, r), where r is the standard
# deviation that the posterior of the row, or the column, adds to a prediction.
N_BESIDE = 5
_ROW_SPREAD, _COLUMN_SPREAD = slice(-2, -1), slice(-1, None)


class AxisFactors(NamedTuple):
    """Posterior means of rows in each sample (samples, rows, D), and the variances of their products (rows,)."""

    means: Tensor
    variances: Tensor


class SampleEncoder(Encoder):
    """The fold-in: the posterior mean of a row given its entries in each kept sample; so for a column.

    A row depends on the drawn columns of the samples, whatever was encoded since.
    """

    def __init__(self, units: Units, samples: Samples, device: torch.device | None = None) -> None:
        self.units, self.samples = units, samples
        self._device = torch.device("cpu") if device is None else device

    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of rows."""
        return self.encode_rows(entries)

    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the latents of columns."""
        return self.encode_columns(entries)

    def encode_rows(self, entries: AxisEntries) -> LatentArray:
        """Return the latents of rows: (u of all samples, b, 1, m, r, 0)."""
        found = self._find_posterior(entries, self.samples.rows, self.samples.columns)
        factors, effects, spreads = self._join_samples(found)
        ones = np.ones_like(effects)
        beside = effects, ones, np.float32(self.units.mean) * ones, spreads, np.zeros_like(ones)
        return np.column_stack([factors * np.float32(self.units.deviation / self.samples.n_samples), *beside])

    def encode_columns(self, entries: AxisEntries) -> LatentArray:
        """Return the latents of columns: (v of all samples, 1, c, 1, 0, r)."""
        found = self._find_posterior(entries, self.samples.columns, self.samples.rows)
        factors, effects, spreads = self._join_samples(found)
        ones = np.ones_like(effects)
        return np.column_stack([factors, ones, effects, ones, np.zeros_like(ones), spreads])

    def draw_rows(self, entries: AxisEntries, which: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw rows from their posterior in some samples, (draws, rows, D)."""
        return self._draw(entries, self.samples.rows, self.samples.columns, which, generator)

    def draw_columns(self, entries: AxisEntries, which: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw columns from their posterior in some samples, (draws, columns, D)."""
        return self._draw(entries, self.samples.columns, self.samples.rows, which, generator)

    def pack(self) -> Packed:
        """Return the samples."""
        tensors = {f"samples.{name}": array for name, array in self.samples.arrays().items()}
        return Packed({"mean": self.units.mean, "deviation": self.units.deviation}, tensors)

    def _find_posterior(self, entries: AxisEntries, own: AxisSamples, others: AxisSamples) -> AxisFactors:
        problem = _FoldIn(entries, own, others, self.units, self._device)
        found = [problem.solve(sample, float(self.samples.alphas[sample])) for sample in range(self.samples.n_samples)]
        variances = torch.stack([each.variances for each in found]).mean(0)
        return AxisFactors(torch.stack([each.means for each in found]), variances)

    def _draw(
        self,
        entries: AxisEntries,
        own: AxisSamples,
        others: AxisSamples,
        which: Sequence[int],
        generator: torch.Generator,
    ) -> Tensor:
        problem = _FoldIn(entries, own, others, self.units, torch.device("cpu"))
        shape = entries.starts.size - 1, own.means.shape[1]
        return torch.stack(
            [
                problem.solve(
                    each, float(self.samples.alphas[each]), torch.randn(shape, generator=generator, dtype=torch.float32)
                ).draws
                for each in which
            ]
        )

    def _join_samples(self, found: AxisFactors) -> tuple[LatentArray, LatentArray, LatentArray]:
        """Return the factors of all samples side by side, the mean effects, and the spreads."""
        n_vectors = found.means.shape[1]
        factors = found.means[..., :-1].transpose(0, 1).reshape(n_vectors, -1).cpu().numpy()
        deviation = np.float32(self.units.deviation)
        effects = found.means[..., -1].mean(0).cpu().numpy() * deviation
        return factors, effects, found.variances.clamp_min(0.0).sqrt().cpu().numpy() * deviation


class _FoldIn:
    """The entries of some rows, laid out to find their posterior in several samples."""

    def __init__(
        self, entries: AxisEntries, own: AxisSamples, others: AxisSamples, units: Units, device: torch.device
    ) -> None:
        n_others = others.draws.shape[1]
        self._used: slice | IndexArray = slice(0, n_others)
        n_used = n_others
        if entries.others.size < n_others:  # few of the columns are needed
            used, places = np.unique(entries.others, return_inverse=True)
            entries, self._used, n_used = entries._replace(others=places.astype(np.int64)), used, used.size
        self._own, self._others, self._n_others, self._device = own, others, n_others, device
        self._solver = AxisSolver(entries, units.standardise(entries.values), n_others=n_used, device=device)
        self._inputs = Inputs(entries, None, n_others=n_used, device=device)

    def solve(self, sample: int, alpha: float, noise: Tensor | None = None) -> AxisPosterior:
        """Return the posterior in a sample; with variances, unless it draws."""
        own, others = self._own, self._others
        weights = torch.cat(
            [self._copy(own.weights[sample][self._used]), self._copy(own.weights[sample][self._n_others :])]
        )
        means = self._copy(own.means[sample]) + self._inputs.multiply(weights, self._copy(own.averages[sample]))
        return self._solver.draw(
            self._copy(others.draws[sample][self._used]),
            means,
            self._copy(own.precisions[sample]),
            alpha,
            noise=noise,
            moment=self._copy(others.moments[sample]) if noise is None else None,
        )

    def _copy(self, array: npt.NDArray[Any]) -> Tensor:
        """Return an array, which may be memory-mapped, as a tensor in single precision."""
        return torch.from_numpy(array.astype(np.float32)).to(self._device)


class SampleReadout(Readout):
    """Values are clipped products; distributions are normal, between cutpoints.

    Parameters
    ----------
    cutpoints
        Boundaries between neighbouring values of the support, in the scale's units, as held-out entries place them.
    noise
        Standard deviation of the noise.
    spread
        Factor on the standard deviation of predictions, chosen on held-out entries.
    coverages
        Calibration of intervals on a scale without levels, see `PredictiveDistribution.calibrate`.
    """

    row_fields = _ROW_SPREAD

    def __init__(
        self,
        scale: Scale,
        support: FloatArray,
        unit_boundaries: npt.NDArray[np.float32],
        *,
        cutpoints: FloatArray,
        noise: float,
        spread: float = 1.0,
        coverages: FloatArray | None = None,
    ) -> None:
        super().__init__(scale, support, unit_boundaries)
        self.cutpoints, self.noise, self.spread, self.coverages = cutpoints, noise, spread, coverages

    def distribution(self, products: npt.NDArray[Any], row_fields: npt.NDArray[Any]) -> PredictiveDistribution:
        """Return the distribution of each product, of which `row_fields` (pairs, 1) is the posterior's spread."""
        deviations = self.spread * np.hypot(self.noise, row_fields[:, :1].astype(np.float64))
        exceedance = scipy.special.ndtr((products[:, None].astype(np.float64) - self.cutpoints) / deviations)
        boundaries = self.scale.from_unit(self.unit_boundaries)
        found = PredictiveDistribution(self.support, boundaries, exceedance)
        return found if self.coverages is None else found.calibrate(self.coverages)

    def log_exceedance(
        self, products: npt.NDArray[Any], row_fields: npt.NDArray[Any], thresholds: FloatArray
    ) -> npt.NDArray[Any]:
        """Return the logarithms of P(value >= threshold) for products (rows, columns), by one cutpoint a row."""
        if self.scale.levels is None or self.coverages is not None:
            return super().log_exceedance(products, row_fields, thresholds)
        deviations = self.spread * np.hypot(self.noise, row_fields[:, :1].astype(np.float64))
        ends = np.concatenate([[-np.inf], self.cutpoints, [np.inf]])
        own = ends[np.searchsorted(self.scale.levels, thresholds)]
        found: npt.NDArray[Any] = scipy.special.log_ndtr((products - own[:, None]) / deviations)
        return found

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """Return the support, its boundaries and the calibration."""
        coverages = np.empty(0) if self.coverages is None else self.coverages
        return {
            "readout.support": self.support,
            "readout.boundaries": self.unit_boundaries,
            "readout.cutpoints": self.cutpoints,
            "readout.spread": np.array([self.noise, self.spread]),
            "readout.coverages": coverages,
        }


class SamplePredictor(Predictor):
    """A predictor whose distributions are wider for rows and columns of which little is known."""

    def distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the distribution over the support of each pair of positions."""
        spreads = np.hypot(self.rows.take(rows, _ROW_SPREAD), self.columns.take(columns, _COLUMN_SPREAD))
        return self.readout.distribution(self._products(rows, columns), spreads)


def calibrate(
    scale: Scale, support: FloatArray, unit_boundaries: npt.NDArray[np.float32], noise: float, held_out: HeldOut | None
) -> SampleReadout:
    """Return the readout whose distributions fit held-out entries best; without any, those of the model.

    On levels, cutpoints are placed so that each level is predicted as often as it occurs, for the spread under which
    the held-out entries are most probable. On other scales, cutpoints are the boundaries, and coverages are calibrated.
    """
    boundaries = scale.from_unit(unit_boundaries)
    readout = SampleReadout(scale, support, unit_boundaries, cutpoints=boundaries, noise=noise)
    if held_out is None or support.size < 2:
        return readout
    held_out = held_out.sample(_MOST_CALIBRATED)
    above = held_out.values[:, None] > boundaries

    def place(spread: float) -> SampleReadout:
        cutpoints = boundaries
        if scale.levels is not None:
            deviations = spread * np.hypot(noise, held_out.spreads)
            cutpoints = np.array([_place_cutpoint(held_out.means, deviations, n) for n in above.sum(axis=0)])
        return SampleReadout(scale, support, unit_boundaries, cutpoints=cutpoints, noise=noise, spread=spread)

    def surprise(candidate: SampleReadout) -> float:
        chances = candidate.distribution(held_out.means, held_out.spreads[:, None]).probabilities
        own = chances[np.arange(len(chances)), above.sum(axis=1)]
        return float(-np.log(np.maximum(own, 1e-12)).mean())

    best = min(map(place, _SPREADS), key=surprise)
    if scale.levels is None:
        found = best.distribution(held_out.means, held_out.spreads[:, None])
        best.coverages = found.measure_coverages(held_out.values, seed=0)
    return best


def _place_cutpoint(means: FloatArray, deviations: FloatArray, n_above: int) -> float:
    """Return the cutpoint above which normal distributions expect this many values, by bisection."""
    reach = 8.0 * float(deviations.max())
    low, high = float(means.min()) - reach, float(means.max()) + reach
    wanted = np.clip(n_above, 0.5, means.size - 0.5)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (
            (middle, high) if scipy.special.ndtr((means - middle) / deviations).sum() > wanted else (low, middle)
        )
    return (low + high) / 2.0


class HeldOut(NamedTuple):
    """Predictions of held-out entries: their means and spreads, and the true values, in the scale's units."""

    means: FloatArray
    spreads: FloatArray
    values: FloatArray

    def sample(self, most: int) -> HeldOut:
        """Return all entries, or a random sample of the most."""
        if self.values.size <= most:
            return self
        chosen = np.sort(np.random.default_rng(0).choice(self.values.size, most, replace=False))
        return HeldOut(*(array[chosen] for array in self))


class GibbsTask:
    """The chain as a task of the training loop: an epoch is an iteration, and what is learned are the kept samples.

    The samples lie in a ring: at any time it holds the last of them, of which predictions use those after the burn-in's
    share of the iterations so far. If the fit holds out entries of its own, these check and calibrate the first part of
    the chain, and then join the others.
    """

    def __init__(
        self,
        seen: EntryStore,
        entries: EntryStore,
        validation: ValidationEntries | None,
        settings: BayesianMFSettings,
        device: torch.device,
        *,
        epochs: int,
    ) -> None:
        self.units, self._device, self._validation = Units.of(entries.train), device, validation
        self.sampler = GibbsSampler(seen, self.units, settings, device)
        self._seen, self._entries, self._settings = seen, entries, settings
        self._last, self._burn_share = epochs - 1, min(1.0, settings.burn_in / settings.epochs)
        self._thinning = max(1, math.ceil((1.0 - self._burn_share) * epochs / settings.samples))
        self._join_at = None if seen is entries else choose_join(epochs, self._burn_share)
        self._has_joined = False
        n_samples, size = settings.samples, self.sampler.row_factors.shape[1]
        self._ring = SampleRing(
            n_samples, size, rows=self.sampler.row_inputs, columns=self.sampler.column_inputs, device=device
        )
        self._kept_at = torch.zeros(n_samples, dtype=torch.int64)
        self._counts = torch.zeros(2, dtype=torch.int64)  # samples kept so far, and iterations
        n_validation = 0 if validation is None else validation.values.size
        self._held_out = torch.zeros(
            2, n_validation, dtype=torch.float32
        )  # means and spreads by the first part of the chain
        self._predicted = torch.zeros(n_samples, n_validation, dtype=torch.float32)
        self.has_started = False

    def run_epoch(self, epoch: int) -> Epoch:
        """Run one iteration, and keep it where it is the turn of a sample."""
        if epoch == 0 and not self.has_started:
            self.sampler.start()
        joins = self._join_at is not None and epoch >= self._join_at
        if joins and not self._has_joined:
            self._join(first=epoch == self._join_at)
        try:
            iteration = self.sampler.iterate(epoch)
        except (np.linalg.LinAlgError, RuntimeError, ValueError):  # no posterior, or none that can be drawn
            return Epoch(math.nan)
        self._counts[1] = epoch + 1
        if epoch in (0, self._join_at) or (self._last - epoch) % self._thinning == 0:
            self._keep(epoch, iteration)
        rows, columns, alpha = self.sampler.parameters
        notes = {
            "alpha": alpha,
            "row_lambda": float(rows.lambdas[0]),
            "column_lambda": float(columns.lambdas[0]),
            "row_size": float(self.sampler.row_factors[:, :-1].square().mean()),
        }
        return Epoch(math.sqrt(iteration.mean_squared_error) * self.units.deviation, notes=notes)

    def begin_from(self, units: Units, samples: Samples) -> None:
        """Begin with samples of an earlier chain, in its units, and go on from the last of them."""
        if units != self.units:
            self.units = self.sampler.units = units
            self.sampler.set_entries(self._seen)
        slots = min(samples.n_samples, self._kept_at.numel())
        for name, array in samples.arrays().items():
            self._ring.tensors[name][:slots] = torch.from_numpy(array[-slots:]).to(self._device)
        self._counts[0] = slots
        self.sampler.go_on_from(self._ring.tensors, slots - 1)
        self.has_started = True

    def validation_error(self) -> float | None:
        """Return the root mean squared error on the validation entries; None once they have joined the others."""
        if self._validation is None or self._has_joined:
            return None
        predicted = self._predicted[self._find_usable()].mean(0).double().numpy()
        return rmse_error(self._seen.scale.clip(predicted), self._validation.values)

    def get_learned(self) -> dict[str, Tensor]:
        """Return the kept samples."""
        return {
            **self._ring.tensors,
            "kept_at": self._kept_at,
            "counts": self._counts,
            "held_out": self._held_out,
        }

    def set_learned(self, learned: Mapping[str, Tensor]) -> None:
        """Go back to samples that were kept earlier."""
        for name, tensor in self.get_learned().items():
            tensor.copy_(learned[name])

    def state(self) -> dict[str, Tensor]:
        """Return the current factors and parameters of the chain."""
        sampler = self.sampler
        rows, columns, alpha = sampler.parameters
        return {
            "row_factors": sampler.row_factors,
            "column_factors": sampler.column_factors,
            **{f"rows.{name}": tensor for name, tensor in rows._asdict().items()},
            **{f"columns.{name}": tensor for name, tensor in columns._asdict().items()},
            "alpha": torch.tensor(alpha, dtype=torch.float64),
            "predicted": self._predicted,
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore the chain."""
        sampler, device = self.sampler, self._device
        sampler.row_factors = state["row_factors"].to(device, copy=True)
        sampler.column_factors = state["column_factors"].to(device, copy=True)
        rows, columns = (
            Prior(*(state[f"{axis}.{name}"].to(device, copy=True) for name in Prior._fields))
            for axis in ("rows", "columns")
        )
        sampler.parameters = Parameters(rows, columns, float(state["alpha"]))
        self._predicted.copy_(state["predicted"])

    def find_samples(self) -> Samples:
        """Return the samples that predictions use, the oldest first."""
        slots = self._find_usable()
        return self._ring.take(slots[torch.argsort(self._kept_at[slots])])

    def find_held_out(self, predictor: Predictor) -> HeldOut | None:
        """Return predictions of entries that the chain was not given: of the validation, or by its first part."""
        validation = self._validation
        if validation is None:
            return None
        if self._join_at is not None and int(self._counts[1]) > self._join_at:
            means, spreads = self._held_out.double().numpy()
            return HeldOut(means, spreads, validation.values)
        return predict_held_out(predictor, validation)

    def find_means_error(self) -> float | None:
        """Return the error of the means on entries that the fit itself held out; None without any."""
        if self._validation is None or self._seen is self._entries:
            return None
        means = Fallback(self._seen).means(self._validation.rows, self._validation.columns)
        return rmse_error(self._seen.scale.clip(means), self._validation.values)

    def _find_usable(self) -> Tensor:
        """Return the slots of the samples that predictions use."""
        n_kept, n_run = max(1, int(self._counts[0])), int(self._counts[1])
        filled = torch.arange(self._kept_at.numel()) < n_kept
        recent = self._kept_at >= min(self._burn_share * n_run, int(self._kept_at[filled].max()))
        return torch.nonzero(filled & recent)[:, 0]

    def _keep(self, epoch: int, iteration: Iteration) -> None:
        n_kept = int(self._counts[0])
        slot = n_kept % self._kept_at.numel()
        self._ring.keep(slot, iteration)
        self._kept_at[slot], self._counts[0] = epoch, n_kept + 1
        if self._validation is not None and not self._has_joined:
            self._predicted[slot] = self._predict(iteration)

    def _predict(self, iteration: Iteration) -> Tensor:
        """Return the predictions of the validation entries by an iteration."""
        assert self._validation is not None
        rows, columns = (torch.from_numpy(each).to(self._device) for each in self._validation[:2])
        row_factors, column_factors = iteration.rows.means[rows], iteration.columns.means[columns]
        products = (row_factors[:, :-1] * column_factors[:, :-1]).sum(1) + row_factors[:, -1] + column_factors[:, -1]
        return (self.units.mean + self.units.deviation * products).cpu()

    def _join(self, *, first: bool) -> None:
        """Sample given all entries from now on; before, predict those that were held out."""
        if first:
            assert self._validation is not None
            samples = self.find_samples().take_last(_CALIBRATION_SAMPLES)
            predictor = encode_all(self._seen, self.units, samples, self._settings, self._device)
            held_out = predict_held_out(predictor, self._validation)
            self._held_out.copy_(torch.from_numpy(np.stack([held_out.means, held_out.spreads])))
            self._counts[0] = 0
        self.sampler.set_entries(self._entries)
        self._has_joined = True


# Samples whose posterior spreads calibrate intervals in the first part of a chain.
_CALIBRATION_SAMPLES = 4


def choose_join(epochs: int, burn_share: float) -> int | None:
    """Return the iteration in which held-out entries join the others; None where the chain is too short."""
    join_at = round(min(burn_share, 0.5) * epochs)
    return join_at if join_at >= 2 else None


def encode_all(
    entries: EntryStore, units: Units, samples: Samples, settings: BayesianMFSettings, device: torch.device
) -> SamplePredictor:
    """Return the predictor of all trained rows and columns, not calibrated."""
    n_rows, n_columns = entries.train.shape
    encoder = SampleEncoder(units, samples, device)
    if not np.all(samples.alphas > 0):
        raise np.linalg.LinAlgError("the precision of the noise is not above 0")
    rows = Latents(encoder.encode_rows(entries.row_entries(np.arange(n_rows))))
    columns = Latents(encoder.encode_columns(entries.column_entries(np.arange(n_columns))))
    noise = float(np.sqrt((1.0 / samples.alphas.astype(np.float64)).mean())) * units.deviation
    support = find_support(entries.train, n_bins=settings.bins)
    unit_boundaries = np.array(support.boundaries, dtype=np.float32)
    readout = calibrate(entries.scale, np.array(support.values), unit_boundaries, noise, None)
    return SamplePredictor(rows, columns, SampleEncoder(units, samples), readout, N_BESIDE)


def predict_held_out(predictor: Predictor, held_out: ValidationEntries) -> HeldOut:
    """Return the predictions of held-out entries."""
    means = predictor.score_pairs(held_out.rows, held_out.columns).astype(np.float64)
    row_spreads = predictor.rows.take(held_out.rows, _ROW_SPREAD)[:, 0]
    spreads = np.hypot(row_spreads, predictor.columns.take(held_out.columns, _COLUMN_SPREAD)[:, 0])
    return HeldOut(means, spreads.astype(np.float64), held_out.values)


class BayesianMF(Model):
    """Mean + row effect + column effect + u_i'v_j, averaged over samples of the posterior; covers all four areas.

    Predictions are distributions: the more is known of a row and a column, the narrower. A new row is the posterior
    mean of its factors given its entries and features, in each kept sample. Settings are keyword arguments, see
    `BayesianMFSettings`.

    Validation entries calibrate the distributions. Without validation entries, `fit` holds out 5 % of the entries for
    the first part of the chain, and samples given all entries afterwards.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> model = BayesianMF(epochs=30, latent_size=4, device="cpu").fit(board)
    >>> model.predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = BayesianMFSettings
    settings: BayesianMFSettings
    takes_features: ClassVar[bool] = True
    holds_out: ClassVar[bool] = True

    def draw(
        self, rows: Iterable[Any], columns: Iterable[Any], n: int = 10, *, seed: int = 0, of: str = "entries"
    ) -> FloatArray:
        """Draw the values of pairs jointly from the posterior.

        Within a draw, all pairs of a row share one draw of its factors, and so do all pairs of a column. Different
        draws belong to different kept samples as far as there are enough.

        Parameters
        ----------
        rows, columns : the labels of the pairs, of one length.
        n : the number of draws.
        seed : seed of the draws.
        of : "entries" draws values with their noise, on the scale; "means" draws expected values.

        Returns
        -------
        The draws, (n, pairs).
        """
        if of not in ("entries", "means"):
            raise BadSetting(f"of must be 'entries' or 'means'; got {of!r}")
        if not isinstance(n, int) or n < 1:
            raise BadSetting(f"n must be a whole number of at least 1; got {n!r}")
        entries, predictor = self.entries_, self.predictor_
        encoder, readout = predictor.encoder, predictor.readout
        assert isinstance(encoder, SampleEncoder) and isinstance(readout, SampleReadout)
        pairs = find_pairs(entries, rows, columns, "error")
        generator = make_generator(seed, "draws")
        which = [int(each) for each in torch.randperm(encoder.samples.n_samples, generator=generator)]
        which = [which[number % len(which)] for number in range(n)]
        row_at, row_of = np.unique(pairs.rows, return_inverse=True)
        column_at, column_of = np.unique(pairs.columns, return_inverse=True)
        row_draws = encoder.draw_rows(entries.row_entries(row_at), which, generator)
        column_draws = self._draw_columns(column_at, which, generator)
        found = np.empty((n, pairs.rows.size))
        noise = np.random.default_rng([seed, 1]).standard_normal(found.shape) if of == "entries" else np.zeros((n, 1))
        for number, sample in enumerate(which):
            own, other = row_draws[number].numpy()[row_of], column_draws[number].numpy()[column_of]
            products = np.einsum("pd,pd->p", own[:, :-1], other[:, :-1]) + own[:, -1] + other[:, -1]
            deviation = float(encoder.samples.alphas[sample]) ** -0.5
            found[number] = encoder.units.mean + encoder.units.deviation * (products + deviation * noise[number])
        if of == "means":
            return found
        if self.scale_.levels is None:
            return self.scale_.clip(found)
        levels: FloatArray = readout.support[np.searchsorted(readout.cutpoints, found)]
        return levels

    def _draw_columns(self, at: IndexArray, which: Sequence[int], generator: torch.Generator) -> Tensor:
        """Return columns (draws, columns, D): trained ones as the samples drew them, others from their posterior."""
        entries, encoder = self.entries_, self.predictor_.encoder
        assert isinstance(encoder, SampleEncoder)
        known = (at < entries.train.shape[1]) & entries.are_columns_as_trained(at)
        drawn = torch.empty(len(which), at.size, encoder.samples.columns.means.shape[1], dtype=torch.float32)
        for number, sample in enumerate(which):
            drawn[number, known] = torch.from_numpy(encoder.samples.columns.draws[sample][at[known]].astype(np.float32))
        if not known.all():
            new = entries.column_entries(at[~known])
            drawn[:, torch.from_numpy(~known)] = encoder.draw_columns(new, which, generator)
        return drawn

    @property
    def diagnostics_(self) -> dict[str, dict[str, float]]:
        """Effective sample size and split R-hat of parameters of the chain after the burn-in, by name.

        An R-hat above 1.1 says that the two halves of the chain differ: run more epochs.
        """
        records = self.history_.records
        share = min(1.0, self.settings.burn_in / self.settings.epochs)
        after = [record.notes for record in records[math.floor(share * len(records)) :]]
        if len(after) < 4:
            return {}
        series = {name: np.array([notes[name] for notes in after], dtype=np.float64) for name in after[0]}
        return {
            name: {"effective_size": compute_effective_size(each), "r_hat": compute_r_hat(each)}
            for name, each in series.items()
        }

    @property
    def _on_gpu(self) -> bool:
        return Runtime(self.settings.device).is_gpu

    def _describe_work(self, train: ObservedMatrix, epochs: int) -> str:
        return f"{epochs} iterations, {self.settings.samples} samples of {self.settings.latent_size} latents"

    def _choose_settings(self, train: ObservedMatrix, earlier: Settings | None) -> dict[str, Any]:
        return choose_settings(train, self._on_gpu, epochs=self.settings.epochs if "epochs" in self._given else None)

    def _check_memory(self, entries: EntryStore) -> None:
        train, settings = entries.train, self.settings
        size = min(settings.latent_size, *train.shape) + 1
        check_memory(
            FitBytes(
                0, _BYTES_PER_ENTRY * train.n_entries, _BYTES_PER_LATENT * settings.samples * size * sum(train.shape), 0
            ),
            Runtime(settings.device).device,
            what=f"fitting BayesianMF to {train.n_entries:,} entries in {train.shape[0]:,} rows x "
            f"{train.shape[1]:,} columns",
            instead="fewer samples, a smaller latent_size or ALS (als) needs less",
        )

    def _make_task(self, entries: EntryStore, validation: ValidationEntries | None) -> GibbsTask:
        return self._build_task(entries, validation, None)

    def _make_warm_task(self, entries: EntryStore, validation: ValidationEntries | None, start: WarmStart) -> GibbsTask:
        task = self._build_task(entries, validation, start)
        self._begin_from(task, start)
        return task

    def _build_task(
        self, entries: EntryStore, validation: ValidationEntries | None, start: WarmStart | None
    ) -> GibbsTask:
        settings = self.settings
        epochs = settings.epochs if start is None else start.shorten(settings).epochs
        seen = entries
        if validation is not None:
            validation = validation.sample(seed=settings.seed)
        elif choose_join(epochs, min(1.0, settings.burn_in / settings.epochs)) is not None:
            left, validation = split_validation(entries.train, seed=settings.seed, start=start)
            if validation is not None:
                seen = EntryStore.of(left, entries.row_features, entries.column_features)
        return GibbsTask(seen, entries, validation, settings, Runtime(settings.device).device, epochs=epochs)

    def _begin_from(self, task: GibbsTask, start: WarmStart) -> None:
        old = start.predictor.encoder
        assert isinstance(old, SampleEncoder)
        rows, columns = start.find_trained()
        n_rows, n_columns = start.entries.train.shape
        samples = old.samples

        def make_features(axis: Literal["row", "column"]) -> npt.NDArray[Any] | None:
            """Return weights of 0 for features that the samples do not know; None where they know them."""
            if start.has_same_features(axis):
                return None
            new = getattr(start, f"{axis}_features")
            width = samples.rows.means.shape[1]
            return np.zeros((samples.n_samples, 0 if new is None else new.n_inputs, width), dtype=np.float16)

        task.begin_from(
            old.units,
            Samples(
                _align_samples(samples.rows, rows, columns, n_old=n_columns, features=make_features("row")),
                _align_samples(samples.columns, columns, rows, n_old=n_rows, features=make_features("column")),
                samples.alphas,
            ),
        )

    def _make_predictor(self, task: GibbsTask, entries: EntryStore, fitting: Fitting) -> Predictor:
        fitting.show_stage("encoding all rows and columns in each sample")
        try:
            predictor = encode_all(
                entries, task.units, task.find_samples(), self.settings, Runtime(self.settings.device).device
            )
        except RuntimeError as error:
            raise np.linalg.LinAlgError(str(error)) from error
        held_out = task.find_held_out(predictor)
        means_error = task.find_means_error()
        if held_out is not None and means_error is not None:
            self.history_.best_error = rmse_error(entries.scale.clip(held_out.means), held_out.values)
            self.history_.means_error = means_error
        plain = predictor.readout
        assert isinstance(plain, SampleReadout)
        readout = calibrate(entries.scale, plain.support, plain.unit_boundaries, plain.noise, held_out)
        return SamplePredictor(predictor.rows, predictor.columns, predictor.encoder, readout, N_BESIDE)

    def _load_predictor(self, entries: EntryStore, content: Any, tensors: Tensors) -> Predictor:
        size = min(self.settings.latent_size, *entries.train.shape) + 1
        alphas = read_numbers(tensors, "samples.alphas", "float32", (None,))
        if alphas.size < 1 or not np.all(alphas > 0):
            raise BadModelFile("the stored samples must have a noise precision above 0 each")
        n_rows, n_columns = entries.train.shape
        features = (
            each.n_inputs if each is not None else 0 for each in (entries.row_features, entries.column_features)
        )
        rows, columns = (
            _load_axis(tensors, axis, alphas.size, n_vectors, n_inputs + n_features, size)
            for axis, n_vectors, n_inputs, n_features in zip(
                ("rows", "columns"), (n_rows, n_columns), (n_columns, n_rows), features, strict=True
            )
        )
        units = Units(_read_finite(content, "mean"), _read_finite(content, "deviation"))
        if not units.deviation > 0:
            raise BadModelFile(f"the stored deviation must be above 0; it is {units.deviation!r}")
        encoder = SampleEncoder(units, Samples(rows, columns, alphas))
        latents = unpack_latents(tensors, entries, width=alphas.size * (size - 1) + N_BESIDE)
        return SamplePredictor(*latents, encoder, _load_readout(entries.scale, tensors), N_BESIDE)


def _align_samples(
    samples: AxisSamples, own: IndexArray, others: IndexArray, *, n_old: int, features: npt.NDArray[Any] | None
) -> AxisSamples:
    """Return the samples of one side for a matrix with other labels.

    own, others: the places of its rows and columns in the samples; -1 is a new label, which has zeros.
    n_old: the number of columns in the samples. features: weights of features; None where those of the samples stay.
    """
    present = _align_lines(samples.weights[:, :n_old], others)
    weights = np.concatenate([present, samples.weights[:, n_old:] if features is None else features], axis=1)
    return samples._replace(draws=_align_lines(samples.draws, own), weights=weights)


def _align_lines(table: npt.NDArray[Any], places: IndexArray) -> npt.NDArray[Any]:
    """Return the lines (samples, places, D) of a table at some places; zeros for -1."""
    aligned = np.zeros((table.shape[0], places.size, table.shape[2]), dtype=table.dtype)
    known = places >= 0
    aligned[:, known] = table[:, places[known]]
    return aligned


# The least memory of a fit: positions and values by row and by column; in half precision draws and weights of the ring
# and of its copy, in single precision the latents.
_BYTES_PER_ENTRY = 2 * (4 + 4)
_BYTES_PER_LATENT = 2 * (2 + 2) + 4


def choose_settings(train: ObservedMatrix, on_gpu: bool, *, epochs: int | None) -> dict[str, Any]:
    """Return the settings for a matrix on a machine; the others suit the epochs where these are given.

    Few entries for each row and column need few latents and, since they start farther from the posterior, more
    iterations, which cost little there.
    """
    n_entries, mean_count = train.n_entries, 2 * train.n_entries / sum(train.shape)
    if epochs is None:
        usual = 300 if on_gpu else 120
        fewer = math.sqrt(_USUAL_ENTRIES / max(n_entries, 1))
        epochs = round(min(_MOST_EPOCHS, usual * max(1.0, fewer))) if n_entries < _MANY_ENTRIES else usual // 2
    burn_in = epochs // 3
    return {
        "epochs": epochs,
        "burn_in": burn_in,
        "samples": max(1, min(16 if n_entries < _MANY_ENTRIES else 8, epochs - burn_in)),
        "latent_size": max(_FEWEST_LATENTS, min(32 if on_gpu else 16, round(mean_count))),
        "validate_every": max(1, epochs // 12),
    }


# Matrices with fewer entries than usual take more iterations, those with many take fewer.
_USUAL_ENTRIES, _MANY_ENTRIES, _MOST_EPOCHS = 300_000, 3_000_000, 400
_FEWEST_LATENTS = 4


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


def _load_axis(tensors: Tensors, axis: str, n_samples: int, n_vectors: int, n_inputs: int, size: int) -> AxisSamples:
    """Return the stored samples of one side; raise `BadModelFile` for anything else."""
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "draws": ("float16", (n_samples, n_vectors, size)),
        "weights": ("float16", (n_samples, n_inputs, size)),
        "means": ("float32", (n_samples, size)),
        "averages": ("float32", (n_samples, size)),
        "precisions": ("float32", (n_samples, size, size)),
        "moments": ("float32", (n_samples, size, size)),
    }
    found = AxisSamples(
        *(read_numbers(tensors, f"samples.{axis}.{name}", kind, shape) for name, (kind, shape) in shapes.items())
    )
    for name, matrices in (("precisions", found.precisions), ("moments", found.moments)):
        if np.linalg.eigvalsh(matrices.astype(np.float64)).min() < (1e-12 if name == "precisions" else -1e-4):
            raise BadModelFile(f"the stored {name} of {axis} must be positive definite")
    return found


def _read_finite(content: Any, name: str) -> float:
    value = read_field(content, name)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise BadModelFile(f"the stored {name} must be a finite number; it is {value!r}")
    return float(value)


def _load_readout(scale: Scale, tensors: Tensors) -> SampleReadout:
    support = read_numbers(tensors, "readout.support", "float64", (None,))
    boundaries = read_numbers(tensors, "readout.boundaries", "float32", (support.size - 1,))
    cutpoints = read_numbers(tensors, "readout.cutpoints", "float64", (support.size - 1,))
    noise, spread = map(float, read_numbers(tensors, "readout.spread", "float64", (2,)))
    coverages = read_numbers(tensors, "readout.coverages", "float64", (None,))
    if scale.levels is not None and not np.array_equal(support, scale.levels):
        raise BadModelFile(f"the stored support must be the levels of {scale}; it is {support.tolist()}")
    if any(np.any(np.diff(each) < 0) for each in (support, boundaries, cutpoints, coverages)) or not (
        noise > 0 and spread > 0
    ):
        raise BadModelFile("the stored support and its cutpoints must increase, and its spread be above 0")
    return SampleReadout(
        scale,
        support,
        boundaries,
        cutpoints=cutpoints,
        noise=noise,
        spread=spread,
        coverages=coverages if coverages.size else None,
    )
