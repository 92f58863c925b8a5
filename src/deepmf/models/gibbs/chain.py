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

    (mean, precision) ~ Normal-Wishart,
    rows of W ~ Normal(0, (lambda * precision)^-1), with a lambda for each block,
    lambda ~ Gamma, alpha ~ Gamma.

One iteration draws each of them given all others: (mean, precision), W, lambda of both sides
(`prior.py`), then all rows given the columns and all columns given the rows, with their
reliabilities (`posterior.py`), then alpha. Some iterations are kept as samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from deepmf.files import special
from deepmf.linalg.backend import NUMPY, Backend, make_contiguous
from deepmf.linalg.ridge import AxisPosterior, AxisSolver, RowFit
from deepmf.matrix.arrays import (
    AnyArray,
    Array,
    FloatArray,
    IndexArray,
    SingleArray,
    fetch,
    send_like,
)
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.library import find_library
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.gibbs.prior import LINK_EVERY, Inputs, Prior, draw_prior, require_finite
from deepmf.training.holdout import HeldOut
from deepmf.training.memory import FitBytes

if TYPE_CHECKING:
    from deepmf.nn.ranks import Ranks

# Shape and rate of the Gamma prior of alpha, whose mean of 1 explains nothing.
_ALPHA_SHAPE, _ALPHA_RATE = 1.0, 1.0

# The prior of a reliability counts as this many entries of usual noise. Half precision holds the
# smallest and largest.
_RELIABILITY_COUNT, _RELIABILITIES = 100.0, (1e-3, 1e3)

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
    fit: RowFit, totals: FloatArray, alpha: float, numbers: np.random.Generator
) -> AnyArray:
    """Draw the reliabilities (rows,) of rows with some numbers of entries from their Gamma
    posteriors."""
    errors = fit.squared_errors
    gammas = send_like(numbers.standard_gamma((_RELIABILITY_COUNT + totals) / 2.0), errors)
    reliabilities = gammas / ((_RELIABILITY_COUNT + alpha * errors) / 2.0)
    return reliabilities.clip(*_RELIABILITIES)


class Parameters(NamedTuple):
    """The parameters of a chain that the next iteration depends on."""

    rows: Prior
    columns: Prior
    alpha: float
    row_reliabilities: AnyArray  # (rows,)
    column_reliabilities: AnyArray  # (columns,)


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
        backend: Backend = NUMPY,
        ranks: Ranks | None = None,
        start_lambda: float = START_LAMBDA,
    ) -> None:
        n_rows, n_columns = entries.train.shape
        self._seed, self.backend, self._ranks, self.units = seed, backend, ranks, units
        self.most_alpha = math.inf
        size = min(latent_size, n_rows, n_columns) + 1
        self.set_entries(entries)
        self.row_factors = backend.send(np.zeros((n_rows, size), dtype=np.float32))
        numbers = np.random.default_rng(seed)
        self.column_factors = 0.3 * backend.draw_normals(numbers, n_columns, size)

        def start_prior(inputs: Inputs) -> Prior:
            return Prior(
                backend.send_single(np.zeros(size)),
                backend.send_single(_START_PRECISION * np.eye(size)),
                backend.send_single(np.zeros((sum(inputs.blocks), size))),
                backend.send_single(np.full(len(inputs.blocks), start_lambda)),
            )

        self.parameters = Parameters(
            start_prior(self.row_inputs),
            start_prior(self.column_inputs),
            _START_ALPHA,
            backend.send_single(np.ones(n_rows)),
            backend.send_single(np.ones(n_columns)),
        )

    def set_entries(self, entries: EntryStore) -> None:
        """Sample given these entries from now on."""
        n_rows, n_columns = entries.train.shape
        by_row = entries.row_entries(np.arange(n_rows))
        by_column = entries.column_entries(np.arange(n_columns))
        self._row_totals, self._column_totals = by_row.totals, by_column.totals
        row_values = self.units.standardise(by_row.values)
        column_values = self.units.standardise(by_column.values)
        where: dict[str, Any] = {"backend": self.backend, "ranks": self._ranks}
        self.rows = AxisSolver(by_row, row_values, n_others=n_columns, **where)
        self.columns = AxisSolver(by_column, column_values, n_others=n_rows, **where)
        self.row_inputs = Inputs(by_row, by_column, n_others=n_columns, **where)
        self.column_inputs = Inputs(by_column, by_row, n_others=n_rows, **where)

    def start(self) -> None:
        """Move from random factors to ridge regressions of all rows and columns in turn."""
        rows, columns, alpha, *_ = self.parameters
        zeros_like = self.backend.library.zeros_like
        row_zeros, column_zeros = zeros_like(self.row_factors), zeros_like(self.column_factors)
        for _ in range(_START_SWEEPS):
            row_posterior = self.rows.draw(self.column_factors, row_zeros, rows.precision, alpha)
            self.row_factors = row_posterior.means
            column_posterior = self.columns.draw(
                self.row_factors, column_zeros, columns.precision, alpha
            )
            self.column_factors = column_posterior.means

    def iterate(self, epoch: int) -> Iteration:
        """Draw everything once."""
        numbers = np.random.default_rng([self._seed, epoch])
        size = self.row_factors.shape[1]

        def draw_noise(count: int) -> AnyArray:
            return self.backend.draw_normals(numbers, count, size)

        row_inputs, column_inputs = self.row_inputs, self.column_inputs
        has_link = epoch % LINK_EVERY[self.backend.on_gpu] == 0
        draw_link_noise = draw_noise if has_link else None
        rows, columns, alpha, row_reliabilities, column_reliabilities = self.parameters
        rows = draw_prior(rows, self.row_factors, row_inputs, numbers, draw_link_noise)
        columns = draw_prior(columns, self.column_factors, column_inputs, numbers, draw_link_noise)
        given_columns = self.column_factors
        row_average = row_inputs.average(rows.weights)
        column_average = column_inputs.average(columns.weights)
        row_posterior = self.rows.draw(
            given_columns,
            row_inputs.predict(rows, row_average),
            rows.precision,
            alpha,
            other_reliabilities=column_reliabilities,
            reliabilities=row_reliabilities,
            noise=draw_noise(row_inputs.n_vectors),
        )
        row_reliabilities = draw_reliabilities(row_posterior.fit, self._row_totals, alpha, numbers)
        used = Parameters(rows, columns, alpha, row_reliabilities, column_reliabilities)
        column_posterior = self.columns.draw(
            row_posterior.draws,
            column_inputs.predict(columns, column_average),
            columns.precision,
            alpha,
            other_reliabilities=row_reliabilities,
            reliabilities=column_reliabilities,
            noise=draw_noise(column_inputs.n_vectors),
        )
        column_reliabilities = draw_reliabilities(
            column_posterior.fit, self._column_totals, alpha, numbers
        )
        squared_error, total = (
            float(fetch(column_reliabilities).astype(np.float64) @ fetch(sums))
            for sums in column_posterior.fit
        )
        self.row_factors = make_contiguous(row_posterior.draws)
        self.column_factors = make_contiguous(column_posterior.draws)
        n_entries = float(self._row_totals.sum())
        alpha = min(draw_alpha(n_entries, squared_error, numbers), self.most_alpha)
        self.parameters = Parameters(rows, columns, alpha, row_reliabilities, column_reliabilities)
        return Iteration(
            row_posterior,
            column_posterior,
            given_columns,
            used,
            averages=(row_average, column_average),
            centres=(
                row_inputs.find_centre(self.row_factors, rows, row_average),
                column_inputs.find_centre(given_columns, columns, column_average),
            ),
            mean_squared_error=squared_error / total,
        )


class Iteration(NamedTuple):
    """An iteration: the posteriors of rows given `given_columns` and of columns given the rows,
    under the same parameters."""

    rows: AxisPosterior
    columns: AxisPosterior
    given_columns: AnyArray
    parameters: Parameters
    # the average inputs of rows, and of columns, times their weights
    averages: tuple[AnyArray, AnyArray]
    centres: tuple[AnyArray, AnyArray]  # by `Inputs.find_centre`
    mean_squared_error: float  # in which entries count by their reliability

    def predict(self, rows: AnyArray, columns: AnyArray) -> AnyArray:
        """Return the products of conditional means of pairs of positions, in units of the chain."""
        row_factors, column_factors = self.rows.means[rows], self.columns.means[columns]
        products = (row_factors[:, :-1] * column_factors[:, :-1]).sum(1)
        return products + row_factors[:, -1] + column_factors[:, -1]


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
        units = cls(0.0, 1.0, np.stack([values, special.ndtri(middles)]))
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
        size, send = sampler.row_factors.shape[1], sampler.backend.send

        def fill(number: float, *shape: int, dtype: type = np.float32) -> AnyArray:
            return send(np.full((n_samples, *shape), number, dtype=dtype))

        identities = np.tile(np.eye(size, dtype=np.float32), (n_samples, 1, 1))
        self.arrays: dict[str, AnyArray] = {"alphas": fill(1.0)}
        for axis, inputs in (("rows", sampler.row_inputs), ("columns", sampler.column_inputs)):
            axis_arrays = {
                "draws": fill(0.0, inputs.n_vectors, size, dtype=np.float16),
                "reliabilities": fill(1.0, inputs.n_vectors, dtype=np.float16),
                "weights": fill(0.0, sum(inputs.blocks), size, dtype=np.float16),
                "precisions": send(identities.copy()),
                "moments": send(identities.copy()),
                "means": fill(0.0, size),
                "averages": fill(0.0, size),
                "centres": fill(0.0, size),
            }
            self.arrays |= {f"{axis}.{name}": array for name, array in axis_arrays.items()}

    def keep(self, slot: int, iteration: Iteration) -> None:
        """Store an iteration: the rows it drew, and the columns that they were drawn given."""
        parameters = iteration.parameters
        self.arrays["alphas"][slot] = parameters.alpha
        axes = (
            ("rows", iteration.rows.draws, parameters.rows, parameters.row_reliabilities),
            (
                "columns",
                iteration.given_columns,
                parameters.columns,
                parameters.column_reliabilities,
            ),
        )
        for (axis, factors, prior, reliabilities), average, centre in zip(
            axes, iteration.averages, iteration.centres, strict=True
        ):
            lines = end_in_ones(factors)
            sample = AxisSamples(
                draws=factors,
                reliabilities=reliabilities,
                weights=prior.weights,
                means=prior.mean,
                averages=average,
                centres=centre,
                precisions=prior.precision,
                moments=lines.mT @ lines / len(lines),
            )
            with np.errstate(over="ignore"):  # half precision has infinity beyond its range
                for name, array in sample._asdict().items():
                    self.arrays[f"{axis}.{name}"][slot] = array

    def take(self, slots: IndexArray) -> Samples:
        """Return the samples of some slots."""
        arrays = {name: fetch(array[slots]) for name, array in self.arrays.items()}
        rows, columns = (
            AxisSamples(*(arrays[f"{axis}.{name}"] for name in AxisSamples._fields))
            for axis in ("rows", "columns")
        )
        return Samples(rows, columns, arrays["alphas"])


def end_in_ones(factors: AnyArray) -> AnyArray:
    """Return (v_j, 1) of columns with the factors (v_j, c_j)."""
    library = find_library(factors)
    return library.concatenate([factors[:, :-1], library.ones_like(factors[:, :1])], axis=1)


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
        self, held_out: HeldOut, units: Units, backend: Backend = NUMPY, share: float = NOISE_SHARE
    ) -> None:
        self._rows, self._columns = backend.send(held_out.rows), backend.send(held_out.columns)
        self._targets = backend.send_single(units.standardise(held_out.values))
        self._share = share
        self.mean = self._targets + math.nan  # of the last predictions
        self.newest = self.mean

    def apply(self, sampler: GibbsSampler, iteration: Iteration) -> None:
        """Bound the next noise by the last predictions, of which an iteration's is the newest."""
        self.newest = iteration.predict(self._rows, self._columns)
        mixed = self.mean + _NEWEST_SHARE * (self.newest - self.mean)
        library = find_library(mixed)
        self.mean = library.where(library.isnan(self.mean), self.newest, mixed)
        sampler.most_alpha = self.find_most_alpha()

    def find_most_alpha(self) -> float:
        """Return the largest precision of the noise; infinity before the first iteration."""
        error = float(((self.mean - self._targets) ** 2).mean())
        if not math.isfinite(error):
            return math.inf
        return 1.0 / (self._share * min(max(error, 1e-9), _LARGEST_ERROR))


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
        self._kept_at = np.zeros(n_samples, dtype=np.int64)
        self._counts = np.zeros(2, dtype=np.int64)  # samples kept so far, and iterations
        n_held_out = 0 if bound is None else len(bound.mean)
        self.predicted = np.zeros((n_samples, n_held_out), dtype=np.float32)

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
            slot = n_kept % self._kept_at.size
            self._ring.keep(slot, iteration)
            self._kept_at[slot], self._counts[0] = epoch, n_kept + 1
            if self.bound is not None:
                self.predicted[slot] = fetch(self.bound.newest)
        return iteration

    @property
    def n_run(self) -> int:
        """The number of iterations so far."""
        return int(self._counts[1])

    @property
    def arrays(self) -> dict[str, AnyArray]:
        """The samples, and when they were kept."""
        return {**self._ring.arrays, "kept_at": self._kept_at, "counts": self._counts}

    def drop_samples(self) -> None:
        """Use none of the samples so far."""
        self._counts[0] = 0

    def find_samples(self) -> Samples:
        """Return the samples that predictions use, the oldest first."""
        slots = self.find_usable()
        return self._ring.take(slots[np.argsort(self._kept_at[slots])])

    def find_usable(self) -> IndexArray:
        """Return the slots of the samples that predictions use."""
        n_kept, n_run = max(1, int(self._counts[0])), self.n_run - self.epochs.start
        is_filled = np.arange(self._kept_at.size) < n_kept
        first = self.epochs.start + self._burn_in * n_run / len(self.epochs)
        is_recent = self._kept_at >= min(first, int(self._kept_at[is_filled].max()))
        return np.flatnonzero(is_filled & is_recent)


class ChainPart(NamedTuple):
    """A part of a chain: its samples, and the mean predictions of held-out entries, in the units of
    the chain."""

    samples: Samples
    predictions: FloatArray  # (entries,) less the mean


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
    total = np.zeros(1)
    for epoch in epochs:
        chain.run_epoch(epoch)
        if bound is not None and epoch >= epochs.start + burn_in:
            total = total + fetch(bound.newest)
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
    return compare_chains(halves)


def compare_chains(chains: FloatArray) -> float:
    """Return the potential scale reduction of chains (chains, steps): their variance together to
    that of each (Gelman and Rubin, 1992); 1 where they agree."""
    n_steps = chains.shape[1]
    within = float(chains.var(axis=1, ddof=1).mean())
    between = float(chains.mean(axis=1).var(ddof=1))
    return math.sqrt((n_steps - 1) / n_steps + between / within) if within > 0 else 1.0
