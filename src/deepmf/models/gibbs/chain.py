"""The chain of the Gibbs sampler: the model, its iterations, and the samples that it keeps.

The model. With m the mean of all values and s their standard deviation,

    x_ij = m + s (b_i + c_j + u_i'v_j + noise),   noise ~ Normal(0, 1 / (alpha g_i h_j)).

Entries of some rows and columns are more reliable than others: g_i and h_j ~ Gamma with mean 1.

Let p_i = (u_i, b_i) be the D = d + 1 factors of a row, and q_j = (v_j, c_j) those of a column.
Their priors are

    p_i ~ Normal(mean + W'f_i, precision^-1),

and likewise for columns. The inputs f_i of a row say in which of the columns it has entries, each 1
/ sqrt(n_i): the choice of columns says something before their values do. Few entries say little
about the choice, so that f_i is shrunk to the average of all entries' rows, as if by 5 entries.
Features of the row are a second block of inputs. This is the prior of Macau (Simm et al., "Macau:
scalable Bayesian multi-relational factorization with side information using MCMC", 2015); the
inputs are those of SVD++ (Koren, 2008), on both sides. All parameters have conjugate priors:

    (mean, precision) ~ Normal-Wishart        rows of W ~ Normal(0, (lambda * precision)^-1), a
    lambda for each block lambda ~ Gamma, alpha ~ Gamma

One iteration draws each of them given all others: (mean, precision), W, lambda of both sides
(`prior.py`), then all rows given the columns and all columns given the rows, with their
reliabilities (`posterior.py`), then alpha. Some iterations are kept as samples.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import torch
from torch import Tensor

from deepmf.linalg.ridge import AxisPosterior, AxisSolver, RowFit
from deepmf.matrix.arrays import Array, FloatArray, SingleArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.gibbs.prior import LINK_EVERY, Inputs, Prior, draw_prior, require_finite
from deepmf.nn.ranks import Ranks
from deepmf.training.holdout import HeldOut
from deepmf.training.memory import FitBytes
from deepmf.training.runtime import make_generator

# Shape and rate of the Gamma prior of alpha, whose mean of 1 explains nothing.
_ALPHA_SHAPE, _ALPHA_RATE = 1.0, 1.0

# The prior of a reliability counts as this many entries of usual noise. Half precision holds the
# smallest and largest.
RELIABILITY_COUNT, _RELIABILITIES = 100.0, (1e-3, 1e3)

# Sweeps of ridge regressions from which a chain starts, with this precision and noise, in standard
# deviations; and the lambda that it starts from. Lambda moves slowly. From 2 instead of its prior
# mean of 10, held-out errors after 30 iterations are lower: .8302 instead of .8337 on MovieLens-1M,
# .8892 instead of .8968 on MovieLens-100K, .7617 instead of .7676 on a generated matrix.
_START_SWEEPS, _START_PRECISION, _START_ALPHA, START_LAMBDA = 4, 10.0, 1.5, 2.0

# The least noise of a chain, as a share of its squared error of entries that it is not given, the
# share of the newest iteration in their predictions, and the largest error that counts. Where the
# model is right, noise is a larger share.
NOISE_SHARE, _NEWEST_SHARE, _LARGEST_ERROR = 0.6, 0.1, 4.0


def draw_alpha(n_entries: float, squared_error: float, numbers: np.random.Generator) -> float:
    """Draw the precision of the noise from its Gamma posterior."""
    require_finite("the errors", squared_error)
    return float(
        numbers.gamma(_ALPHA_SHAPE + n_entries / 2.0, 1.0 / (_ALPHA_RATE + squared_error / 2.0))
    )


def draw_reliabilities(
    fit: RowFit,
    totals: FloatArray,
    alpha: float,
    numbers: np.random.Generator,
    *,
    prior_count: float = RELIABILITY_COUNT,
) -> Tensor:
    """Draw the reliabilities (rows,) of rows with some numbers of entries from their Gamma
    posteriors.

    prior_count: the number of entries that the prior counts as; infinity for the same noise
        everywhere.
    """
    errors = fit.squared_errors
    if math.isinf(prior_count):
        return torch.ones_like(errors)
    drawn = numbers.standard_gamma((prior_count + totals) / 2.0)
    reliabilities = torch.from_numpy(drawn).to(errors) / ((prior_count + alpha * errors) / 2.0)
    return reliabilities.clamp(*_RELIABILITIES)


class Parameters(NamedTuple):
    """The parameters of a chain that the next iteration depends on."""

    rows: Prior
    columns: Prior
    alpha: float
    row_reliabilities: Tensor  # (rows,)
    column_reliabilities: Tensor  # (columns,)


class GibbsSampler:
    """The chain: factors of all rows and columns, their priors and the noise; an iteration draws
    each given all others.

    Random numbers depend on the seed and the iteration alone, so that a resumed chain goes on as it
    would have, and all ranks draw the same: they divide the rows and columns that they solve for,
    and each knows all factors.
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
        start_lambda: float = START_LAMBDA,
        reliability_count: float = RELIABILITY_COUNT,
    ) -> None:
        n_rows, n_columns = entries.train.shape
        self._seed, self._device, self._ranks, self.units = seed, device, ranks, units
        self._reliability_count, self.most_alpha = reliability_count, math.inf
        size = min(latent_size, n_rows, n_columns) + 1
        self.set_entries(entries)
        self.row_factors = torch.zeros(n_rows, size, dtype=torch.float32, device=device)
        start = make_generator(seed, "start", device)
        self.column_factors = 0.3 * torch.randn(
            n_columns, size, generator=start, dtype=torch.float32, device=device
        )

        def start_prior(inputs: Inputs) -> Prior:
            zeros = self.row_factors.new_zeros(1 + sum(inputs.blocks), size)
            precision = _START_PRECISION * torch.eye(size, dtype=torch.float32, device=device)
            return Prior(
                zeros[0], precision, zeros[1:], zeros.new_full((len(inputs.blocks),), start_lambda)
            )

        rows, columns = start_prior(self.row_inputs), start_prior(self.column_inputs)
        reliabilities = self.row_factors.new_ones(n_rows), self.row_factors.new_ones(n_columns)
        self.parameters = Parameters(rows, columns, _START_ALPHA, *reliabilities)

    def set_entries(self, entries: EntryStore) -> None:
        """Sample given these entries from now on."""
        n_rows, n_columns = entries.train.shape
        by_row, by_column = (
            entries.row_entries(np.arange(n_rows)),
            entries.column_entries(np.arange(n_columns)),
        )
        self._row_totals, self._column_totals = by_row.totals, by_column.totals
        where: dict[str, Any] = {"device": self._device, "ranks": self._ranks}
        self.rows = AxisSolver(
            by_row, self.units.standardise(by_row.values), n_others=n_columns, **where
        )
        self.columns = AxisSolver(
            by_column, self.units.standardise(by_column.values), n_others=n_rows, **where
        )
        self.row_inputs = Inputs(by_row, by_column, n_others=n_columns, **where)
        self.column_inputs = Inputs(by_column, by_row, n_others=n_rows, **where)

    def start(self) -> None:
        """Move from random factors to ridge regressions of all rows and columns in turn."""
        rows, columns, alpha, *_ = self.parameters
        for _ in range(_START_SWEEPS):
            zeros = torch.zeros_like(self.row_factors), torch.zeros_like(self.column_factors)
            self.row_factors = self.rows.draw(
                self.column_factors, zeros[0], rows.precision, alpha
            ).means
            self.column_factors = self.columns.draw(
                self.row_factors, zeros[1], columns.precision, alpha
            ).means

    def iterate(self, epoch: int) -> Iteration:
        """Draw everything once."""
        numbers = np.random.default_rng([self._seed, epoch])
        generator = make_generator(self._seed, f"iteration {epoch}", self._device)
        size = self.row_factors.shape[1]

        def noise(count: int) -> Tensor:
            return torch.randn(
                count, size, generator=generator, dtype=torch.float32, device=self._device
            )

        has_link = epoch % LINK_EVERY[self._device.type == "cuda"] == 0
        rows, columns, alpha, own, others = self.parameters
        rows = draw_prior(
            rows, self.row_factors, self.row_inputs, numbers, noise if has_link else None
        )
        columns = draw_prior(
            columns, self.column_factors, self.column_inputs, numbers, noise if has_link else None
        )
        given = self.column_factors
        averages = (
            self.row_inputs.average(rows.weights),
            self.column_inputs.average(columns.weights),
        )
        row_means = self.row_inputs.predict(rows, averages[0])
        drawn = self.rows.draw(
            *(given, row_means, rows.precision, alpha),
            other_reliabilities=others,
            reliabilities=own,
            noise=noise(len(row_means)),
        )
        count = self._reliability_count
        own = draw_reliabilities(drawn.fit, self._row_totals, alpha, numbers, prior_count=count)
        used = Parameters(rows, columns, alpha, own, others)
        column_means = self.column_inputs.predict(columns, averages[1])
        other = self.columns.draw(
            *(drawn.draws, column_means, columns.precision, alpha),
            other_reliabilities=own,
            reliabilities=others,
            noise=noise(len(column_means)),
        )
        others = draw_reliabilities(
            other.fit, self._column_totals, alpha, numbers, prior_count=count
        )
        error, total = (float((others.double() * each).sum()) for each in other.fit)
        self.row_factors, self.column_factors = drawn.draws.contiguous(), other.draws.contiguous()
        alpha = min(draw_alpha(float(self._row_totals.sum()), error, numbers), self.most_alpha)
        self.parameters = Parameters(rows, columns, alpha, own, others)
        centres = (
            self.row_inputs.find_centre(drawn.draws, rows, averages[0]),
            self.column_inputs.find_centre(given, columns, averages[1]),
        )
        return Iteration(drawn, other, given, used, averages, centres, error / total)


class Iteration(NamedTuple):
    """An iteration: the posteriors of rows given `given` and of columns given the rows, under the
    same parameters."""

    rows: AxisPosterior
    columns: AxisPosterior
    given: Tensor
    parameters: Parameters
    # the average inputs of rows, and of columns, times their weights
    averages: tuple[Tensor, Tensor]
    centres: tuple[Tensor, Tensor]  # by `Inputs.find_centre`
    mean_squared_error: float  # in which entries count by their reliability

    def predict(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the products of conditional means of pairs of positions, in units of the chain."""
        row_factors, column_factors = self.rows.means[rows], self.columns.means[columns]
        of_factors = (row_factors[:, :-1] * column_factors[:, :-1]).sum(1)
        return of_factors + row_factors[:, -1] + column_factors[:, -1]


class Units(NamedTuple):
    """The units of a chain: values, or their scores, less the mean and divided by the standard
    deviation.

    knots: (2, knots) increasing values, and their scores; values between them have interpolated
        scores.
    """

    mean: float
    deviation: float
    knots: FloatArray | None = None

    @classmethod
    def of(cls, train: ObservedMatrix) -> Units:
        """Return the units of a matrix; values that are equal but for rounding have a small
        deviation."""
        values = train.values.astype(np.float64)
        largest = float(np.abs(values).max()) or 1.0
        deviation = np.std(values / largest)
        if train.weights is not None:
            deviation = np.sqrt(
                np.average(np.square((values - train.mean) / largest), weights=train.weights)
            )
        units = cls(train.mean, max(float(deviation), 1e-9) * largest)
        if not all(map(math.isfinite, units[:2])):
            raise np.linalg.LinAlgError(
                f"values of up to {largest:g} have no finite mean and deviation"
            )
        return units

    @classmethod
    def by_scores(cls, train: ObservedMatrix) -> Units:
        """Return the units of normal scores: the quantiles of a normal distribution at the middle
        ranks of values.

        The noise of scores is more nearly normal than that of counts, skewed levels or values with
        outliers.
        """
        values, counts = np.unique(train.values.astype(np.float64), return_counts=True)
        middles = (np.cumsum(counts) - counts / 2.0) / counts.sum()
        if values.size > _MOST_KNOTS:
            at = np.unique(
                np.searchsorted(middles, np.linspace(middles[0], middles[-1], _MOST_KNOTS))
            )
            values, middles = values[at], middles[at]
        units = cls(0.0, 1.0, np.stack([values, scipy.special.ndtri(middles)]))
        scores = units.score(train.values)
        mean = float(np.average(scores, weights=train.weights))
        deviation = math.sqrt(np.average(np.square(scores - mean), weights=train.weights))
        return units._replace(mean=mean, deviation=max(deviation, 1e-9))

    def score(self, values: Array) -> FloatArray:
        """Return values, or their scores, before they are standardised."""
        return values.astype(np.float64) if self.knots is None else np.interp(values, *self.knots)

    def standardise(self, values: FloatArray) -> FloatArray:
        """Return values in these units."""
        return (self.score(values) - self.mean) / self.deviation


# The most values whose scores are stored; other values are interpolated.
_MOST_KNOTS = 1024


class AxisSamples(NamedTuple):
    """The kept samples of one side: draws of all rows, and what the posterior of a row depends
    on."""

    draws: Array  # (samples, rows, D) in half precision
    reliabilities: Array  # (samples, rows) in half precision
    weights: Array  # W, (samples, inputs, D) in half precision
    means: Array  # (samples, D)
    averages: Array  # (samples, D) the average inputs times W
    centres: Array  # (samples, D) the average factors of all entries, less their prior mean
    precisions: Array  # (samples, D, D)
    moments: Array  # (samples, D, D) the mean of (u_i, 1)(u_i, 1)' over rows


class Samples(NamedTuple):
    """The kept samples of a chain."""

    rows: AxisSamples
    columns: AxisSamples
    alphas: SingleArray  # (samples,)

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return self.alphas.size

    def take_last(self, count: int) -> Samples:
        """Return the last samples."""
        rows, columns = (
            AxisSamples(*(array[-count:] for array in axis)) for axis in (self.rows, self.columns)
        )
        return Samples(rows, columns, self.alphas[-count:])


class SampleRing:
    """Room for the last samples of a chain, on its device."""

    def __init__(self, n_samples: int, sampler: GibbsSampler) -> None:
        size, device = sampler.row_factors.shape[1], sampler.row_factors.device

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(n_samples, *shape, dtype=dtype, device=device)

        identities = zeros(size, size) + torch.eye(size, dtype=torch.float32, device=device)
        self.tensors = {"alphas": zeros() + 1.0}
        for axis, inputs in (("rows", sampler.row_inputs), ("columns", sampler.column_inputs)):
            self.tensors |= {
                f"{axis}.draws": zeros(inputs.n_vectors, size, dtype=torch.float16),
                f"{axis}.reliabilities": zeros(inputs.n_vectors, dtype=torch.float16) + 1.0,
                f"{axis}.weights": zeros(sum(inputs.blocks), size, dtype=torch.float16),
                f"{axis}.precisions": identities.clone(),
                f"{axis}.moments": identities.clone(),
            } | {f"{axis}.{name}": zeros(size) for name in ("means", "averages", "centres")}

    def keep(self, slot: int, iteration: Iteration) -> None:
        """Store an iteration: the rows it drew, and the columns that they were drawn given."""
        parameters = iteration.parameters
        self.tensors["alphas"][slot] = parameters.alpha
        for at, (axis, factors, prior, reliabilities) in enumerate(
            (
                ("rows", iteration.rows.draws, parameters.rows, parameters.row_reliabilities),
                ("columns", iteration.given, parameters.columns, parameters.column_reliabilities),
            )
        ):
            lines = torch.cat([factors[:, :-1], torch.ones_like(factors[:, :1])], dim=1)
            beside = prior.mean, iteration.averages[at], iteration.centres[at], prior.precision
            kept = factors, reliabilities, prior.weights, *beside, lines.mT @ lines / len(lines)
            for name, tensor in zip(AxisSamples._fields, kept, strict=True):
                self.tensors[f"{axis}.{name}"][slot] = tensor

    def take(self, slots: Tensor) -> Samples:
        """Return the samples of some slots."""
        arrays = {
            name: tensor[slots.to(tensor.device)].cpu().numpy()
            for name, tensor in self.tensors.items()
        }
        names = AxisSamples._fields
        rows, columns = (
            AxisSamples(*(arrays[f"{axis}.{name}"] for name in names))
            for axis in ("rows", "columns")
        )
        return Samples(rows, columns, arrays["alphas"])


class NoiseBound:
    """Keeps the noise of a chain from falling far below what it leaves unexplained of entries that
    it is not given.

    Where values are far from normal (skewed levels, counts, outliers), or factors as many as
    entries, a chain may come to a state that explains every entry it is given, with next to no
    noise, and no other.

    share: the least variance of the noise, as a share of the mean squared error of held-out
        entries.
    """

    def __init__(
        self, held_out: HeldOut, units: Units, device: torch.device, share: float = NOISE_SHARE
    ) -> None:
        rows, columns = (torch.from_numpy(each).to(device) for each in held_out[:2])
        pairs, targets = (
            (rows, columns),
            torch.from_numpy(units.standardise(held_out.values)).float().to(device),
        )
        self._pairs, self._targets, self._share = pairs, targets, share
        self.mean = torch.full_like(targets, math.nan)  # of the last predictions
        self.newest = self.mean

    def apply(self, sampler: GibbsSampler, iteration: Iteration) -> None:
        """Bound the next noise by the last predictions, of which an iteration's is the newest."""
        self.newest = iteration.predict(*self._pairs)
        mixed = self.mean.lerp(self.newest, _NEWEST_SHARE)
        self.mean = torch.where(self.mean.isnan(), self.newest, mixed)
        sampler.most_alpha = self.find_most_alpha()

    def find_most_alpha(self) -> float:
        """Return the largest precision of the noise; infinity before the first iteration."""
        error = float((self.mean - self._targets).square().mean())
        return (
            1.0 / (self._share * min(max(error, 1e-9), _LARGEST_ERROR))
            if math.isfinite(error)
            else math.inf
        )


class Chain:
    """A sampler that runs: it keeps the last samples, evenly spaced, and bounds the noise.

    At any time, the samples that predictions use are those after the burn-in's share of the
    iterations so far.

    epochs: the iterations. burn_in: the number of them before the first sample that is used.
    bound: predicts held-out entries; None where the sampler is given all entries.
    """

    def __init__(
        self,
        sampler: GibbsSampler,
        epochs: range,
        *,
        burn_in: int,
        n_samples: int,
        bound: NoiseBound | None = None,
    ) -> None:
        self.sampler, self.epochs, self.bound = sampler, epochs, bound
        self._burn_in = min(burn_in, len(epochs))
        self._thinning = max(1, -(-(len(epochs) - self._burn_in) // n_samples))
        self._ring = SampleRing(n_samples, sampler)
        self._kept_at = torch.zeros(n_samples, dtype=torch.int64)
        self._counts = torch.zeros(2, dtype=torch.int64)  # samples kept so far, and iterations
        n_held_out = 0 if bound is None else bound.mean.numel()
        self.predicted = torch.zeros(n_samples, n_held_out, dtype=torch.float32)

    def run_epoch(self, epoch: int, *, is_kept: bool = False) -> Iteration:
        """Run one iteration; keep it where it is the turn of a sample, or `is_kept`."""
        if epoch == 0:
            self.sampler.start()
        iteration = self.sampler.iterate(epoch)
        if self.bound is not None:
            self.bound.apply(self.sampler, iteration)
        self._counts[1] = epoch + 1
        if is_kept or (self.epochs.stop - 1 - epoch) % self._thinning == 0:
            n_kept = int(self._counts[0])
            slot = n_kept % self._kept_at.numel()
            self._ring.keep(slot, iteration)
            self._kept_at[slot], self._counts[0] = epoch, n_kept + 1
            if self.bound is not None:
                self.predicted[slot] = self.bound.newest.cpu()
        return iteration

    @property
    def n_run(self) -> int:
        """The number of iterations so far."""
        return int(self._counts[1])

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The samples, and when they were kept."""
        return {**self._ring.tensors, "kept_at": self._kept_at, "counts": self._counts}

    def drop_samples(self) -> None:
        """Use none of the samples so far."""
        self._counts[0] = 0

    def find_samples(self) -> Samples:
        """Return the samples that predictions use, the oldest first."""
        slots = self.find_usable()
        return self._ring.take(slots[torch.argsort(self._kept_at[slots])])

    def find_usable(self) -> Tensor:
        """Return the slots of the samples that predictions use."""
        n_kept, n_run = max(1, int(self._counts[0])), self.n_run - self.epochs.start
        filled = torch.arange(self._kept_at.numel()) < n_kept
        first = self.epochs.start + self._burn_in * n_run / len(self.epochs)
        recent = self._kept_at >= min(first, int(self._kept_at[filled].max()))
        return torch.nonzero(filled & recent)[:, 0]


class ChainPart(NamedTuple):
    """A part of a chain: its samples, and the mean predictions of held-out entries, in the units of
    the chain."""

    samples: Samples
    predictions: Tensor  # (entries,) less the mean


def run_chain(
    sampler: GibbsSampler,
    epochs: range,
    *,
    burn_in: int,
    n_samples: int,
    bound: NoiseBound | None = None,
) -> ChainPart:
    """Run all iterations of a chain; predictions are means over those after the burn-in."""
    chain = Chain(sampler, epochs, burn_in=burn_in, n_samples=n_samples, bound=bound)
    total = sampler.row_factors.new_zeros(1)
    for epoch in epochs:
        chain.run_epoch(epoch)
        if bound is not None and epoch >= epochs.start + burn_in:
            total = total + bound.newest
    return ChainPart(chain.find_samples(), total / (len(epochs) - burn_in))


# The least memory of a fit: positions and values by row and by column; in half precision draws and
# weights of the ring and of its copy, in single precision the latents.
_BYTES_PER_ENTRY = 2 * (4 + 4)
_BYTES_PER_LATENT = 2 * (2 + 2) + 4


def estimate_chain_bytes(train: ObservedMatrix, n_samples: int, latent_size: int) -> FitBytes:
    """Return the least memory of a chain that keeps some samples."""
    n_latents = n_samples * (min(latent_size, *train.shape) + 1) * sum(train.shape)
    return FitBytes(0, _BYTES_PER_ENTRY * train.n_entries, _BYTES_PER_LATENT * n_latents, 0)


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
