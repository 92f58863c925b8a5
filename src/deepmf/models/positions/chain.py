"""A Gibbs sampler whose factors of one side are smooth along positions, such as times.

The side with positions is called times, the other one series. Standardised by the mean and the
deviation of its series, an entry is y_it = w_i'x_t + b_i + noise of precision alpha_i. Factors of
times are x_t = B'f_t + u_t, with features f_t of the time. Each factor of u is an
Ornstein-Uhlenbeck process of its own: u_t = a u_(t-1) + noise of precision p, where a = phi^gap and
p = s / (1 - a^2), with the stationary precision s.

All x are drawn at once, as they hardly move one at a time: their precision is block tridiagonal, and
its off-diagonal blocks are diagonal. So it is a band matrix, with as many bands as factors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.linalg.lapack import dtbtrs

from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries

# Correlations of neighbours at the median gap: those of processes that forget within .2 to 5,000
# gaps.
_CORRELATIONS = np.exp(-1.0 / np.geomspace(0.2, 5e3, 60))

# The least gap, as a share of the median one: equal positions have nearly equal factors.
_LEAST_GAP = 1e-3

# A table with more than this share of its cells observed is multiplied as a dense one.
_DENSE = 0.1

# The Gamma prior of precisions of the noise, in units of standardised values.
_NOISE_SHAPE = 1.0
_NOISE_RATE = 0.01


class Times(NamedTuple):
    """The positions of times in the unit of their median gap, and their features.

    positions: (times,), NaN where unknown. features: (times, inputs).
    """

    positions: FloatArray
    features: FloatArray

    def leave_out(self, some: BoolArray) -> Times:
        """Return the times where some have no positions."""
        return self._replace(positions=np.where(some, np.nan, self.positions))

    @property
    def order(self) -> IndexArray:
        """The times in order; those without positions are last."""
        return np.argsort(self.positions, kind="stable")

    @property
    def gaps(self) -> FloatArray:
        """The gaps between times in order, (times - 1,); infinite before unknown positions."""
        gaps: FloatArray = np.maximum(np.diff(self.positions[self.order]), _LEAST_GAP)
        gaps[np.isnan(gaps)] = np.inf
        return gaps


class Process(NamedTuple):
    """The processes of factors: their correlations phi at a gap of 1, their stationary precisions,
    and the weights B of features."""

    correlations: FloatArray  # (factors,)
    precisions: FloatArray  # (factors,)
    weights: FloatArray  # (inputs, factors)

    def step(self, gaps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the correlations a over gaps and the precisions p of their noise, (gaps, factors)
        each."""
        correlations = self.correlations ** gaps[:, None]
        return correlations, self.precisions / (1.0 - np.square(correlations))


class SmoothSample(NamedTuple):
    """A draw of everything but x, which has its expected values given all else: they are no draw of
    gaps that only the process fills."""

    times: FloatArray  # (times, factors), E[x]
    series: FloatArray  # (series, factors + 1), w and b
    alphas: FloatArray  # (series,), precisions of the noise
    series_precisions: FloatArray  # (factors,), of w
    process: Process


class SmoothChain:
    """The state of the sampler, and the entries that it is given.

    entries: those of each series, standardised.
    """

    def __init__(self, entries: AxisEntries, times: Times, *, size: int, seed: int) -> None:
        self._numbers = np.random.default_rng(seed)
        self._order, self._gaps = times.order, times.gaps
        self._features = times.features[self._order]
        n_series, n_times = entries.starts.size - 1, self._order.size
        self.set_entries(entries)
        n_inputs = self._features.shape[1]
        self._times = 0.1 * self._numbers.standard_normal((n_times, size))
        self._series = np.zeros((n_series, size + 1))
        self._process = Process(np.zeros(size), np.ones(size), np.zeros((n_inputs, size)))
        steps = _CORRELATIONS ** self._gaps[:, None]
        self._log_noise = np.log1p(-np.square(steps)).sum(axis=0)
        precisions = 1.0 / (1.0 - np.square(steps))
        self._squares = precisions, -2.0 * steps * precisions, np.square(steps) * precisions

    def set_entries(self, entries: AxisEntries) -> None:
        """Go on with other entries of the same series and times."""
        n_series, n_times = entries.starts.size - 1, self._order.size
        place = np.argsort(self._order)
        weights = entries.weights
        shape = n_series, n_times
        cells = entries.group_of, place[entries.others]
        observed = scipy.sparse.csr_array((weights, cells), shape=shape)
        values = scipy.sparse.csr_array((weights * entries.values, cells), shape=shape)
        is_dense = entries.values.size > _DENSE * n_series * n_times
        self._observed: Any = observed.toarray() if is_dense else observed
        self._values: Any = values.toarray() if is_dense else values
        self._cells, self._weights, self._targets = cells, weights, entries.values
        self._counts = np.diff(entries.starts)

    def run(self, n_passes: int) -> SmoothSample:
        """Draw everything some times in turn; return the last draw, its times in given order."""
        for _ in range(n_passes):
            process = self._process = self._draw_process()
            alphas = self._draw_noise()
            series_precisions = self._draw_series(alphas)
            expected = self._draw_times(alphas)
        times: FloatArray = np.empty_like(expected)
        times[self._order] = expected
        return SmoothSample(times, self._series, alphas, series_precisions, process)

    def draw_values(self, n_passes: int) -> FloatArray:
        """Draw everything some times in turn, then the values (series, times) of all cells."""
        alphas, place = self.run(n_passes).alphas, np.argsort(self._order)
        values = self._series[:, :-1] @ self._times[place].T + self._series[:, -1:]
        noise: FloatArray = self._numbers.standard_normal(values.shape)
        return values + noise / np.sqrt(alphas)[:, None]

    def _draw_series(self, alphas: FloatArray) -> FloatArray:
        """Draw the precisions of w, then w and b of all series; return the precisions."""
        numbers, factors = self._numbers, self._series[:, :-1]
        rates = 1.0 + 0.5 * np.square(factors).sum(axis=0)
        precisions: FloatArray = numbers.gamma(1.0 + 0.5 * len(factors), 1.0 / rates)
        times = np.column_stack([self._times, np.ones(len(self._times))])
        posterior = solve_normal(
            self._observed @ square_each(times),
            self._values @ times,
            alphas,
            np.append(precisions, 1.0),
        )
        self._series = posterior.draw(numbers.standard_normal(self._series.shape))
        return precisions

    def _draw_times(self, alphas: FloatArray) -> FloatArray:
        """Draw x of all times at once; return their expected values."""
        process, (n_times, size) = self._process, self._times.shape
        factors = self._series[:, :-1]
        correlations, noise = process.step(self._gaps)
        weighted = alphas[:, None] * factors
        blocks = unfold(self._observed.T @ (alphas[:, None] * square_each(factors)), size)
        diagonal = np.arange(size)
        blocks[0, diagonal, diagonal] += process.precisions
        blocks[1:, diagonal, diagonal] += noise
        blocks[:-1, diagonal, diagonal] += np.square(correlations) * noise
        bands = np.zeros((size + 1, n_times, size))
        for band in range(size):
            bands[band, :, : size - band] = blocks[:, diagonal[band:], diagonal[: size - band]]
        bands[size, :-1] = -correlations * noise

        prior = self._features @ process.weights
        innovations = noise * (prior[1:] - correlations * prior[:-1])
        targets = self._values.T @ weighted
        targets -= self._observed.T @ (self._series[:, -1:] * weighted)
        targets[0] += process.precisions * prior[0]
        targets[1:] += innovations
        targets[:-1] -= correlations * innovations
        root = cholesky_banded(bands.reshape(size + 1, -1), lower=True, overwrite_ab=True)
        expected: FloatArray = cho_solve_banded((root, True), targets.ravel())
        noise_drawn = self._numbers.standard_normal((expected.size, 1))
        spread, info = dtbtrs(root, noise_drawn, uplo="L", trans="T")
        if info != 0:
            raise np.linalg.LinAlgError("the factors of times have no finite precision")
        expected = expected.reshape(n_times, size)
        self._times = expected + spread.reshape(n_times, size)
        return expected

    def _draw_process(self) -> Process:
        """Draw the weights of features, the correlations and the stationary precisions."""
        numbers, times = self._numbers, self._times
        weights = self._draw_weights()
        residuals = times - self._features @ weights
        later, earlier = residuals[1:], residuals[:-1]
        products = np.square(later), later * earlier, np.square(earlier)
        squares = np.square(residuals[0]) + sum(
            table.T @ product for table, product in zip(self._squares, products, strict=True)
        )  # (correlations, factors)
        scores = -0.5 * (self._process.precisions * squares + self._log_noise[:, None])
        places = np.argmax(scores + numbers.gumbel(size=scores.shape), axis=0)
        rates = 1.0 + 0.5 * squares[places, np.arange(places.size)]
        precisions = numbers.gamma(1.0 + 0.5 * len(times), 1.0 / rates)
        return Process(_CORRELATIONS[places], precisions, weights)

    def _draw_weights(self) -> FloatArray:
        """Draw the weights B of features, (inputs, factors)."""
        features, process = self._features, self._process
        weights = np.zeros_like(process.weights)
        if not weights.size:
            return weights
        correlations, noise = process.step(self._gaps)
        precisions = np.concatenate([process.precisions[None], noise])
        for factor, correlation in enumerate(correlations.T):
            scale = np.sqrt(precisions[:, factor, None])
            inputs = scale * _subtract_earlier(features, correlation)
            targets = scale * _subtract_earlier(self._times[:, factor, None], correlation)
            gram, sums = (inputs.T @ inputs)[None], (inputs.T @ targets).T
            posterior = solve_normal(fold(gram), sums, np.ones(1), np.ones(len(weights)))
            noise_drawn = self._numbers.standard_normal((1, len(weights)))
            weights[:, factor] = posterior.draw(noise_drawn)[0]
        return weights

    def _draw_noise(self) -> FloatArray:
        """Draw the precisions of the noise of series."""
        rows, columns = self._cells
        series = self._series[rows]
        predicted = np.einsum("ef,ef->e", series[:, :-1], self._times[columns]) + series[:, -1]
        errors = self._weights * np.square(self._targets - predicted)
        sums = np.bincount(rows, weights=errors, minlength=len(self._series))
        shape = _NOISE_SHAPE + 0.5 * self._counts
        alphas: FloatArray = self._numbers.gamma(shape, 1.0 / (_NOISE_RATE + 0.5 * sums))
        return alphas


class Normal(NamedTuple):
    """Normal distributions of vectors: their means, and the Cholesky factors of their precisions."""

    means: FloatArray  # (vectors, size)
    roots: FloatArray  # (vectors, size, size)

    def draw(self, noise: FloatArray) -> FloatArray:
        """Return draws by standard normal noise (vectors, size)."""
        spread = np.linalg.solve(self.roots.transpose(0, 2, 1), noise[:, :, None])
        drawn: FloatArray = self.means + spread[:, :, 0]
        return drawn


def solve_normal(
    grams: Array, targets: FloatArray, alphas: FloatArray, precisions: FloatArray
) -> Normal:
    """Return the posterior of vectors v with the precision alpha * gram + diag(precisions).

    grams: (vectors, pairs), folded. targets: (vectors, size), which alpha multiplies.
    """
    size = targets.shape[1]
    diagonal = np.arange(size)
    matrices = alphas[:, None, None] * unfold(grams, size)
    matrices[:, diagonal, diagonal] += precisions
    roots = np.linalg.cholesky(matrices).astype(np.float64, copy=False)
    halves = np.linalg.solve(roots, (alphas[:, None] * targets)[:, :, None])
    return Normal(np.linalg.solve(roots.transpose(0, 2, 1), halves)[:, :, 0], roots)


def square_each(vectors: FloatArray) -> FloatArray:
    """Return the lower triangles (vectors, pairs) of the products v v' of vectors."""
    lower = np.tril_indices(vectors.shape[1])
    squared: FloatArray = vectors[:, lower[0]] * vectors[:, lower[1]]
    return squared


def fold(matrices: FloatArray) -> FloatArray:
    """Return the lower triangles (matrices, pairs) of symmetric matrices."""
    lower = np.tril_indices(matrices.shape[1])
    return matrices[:, lower[0], lower[1]]


def unfold(triangles: Array, size: int) -> FloatArray:
    """Return the symmetric matrices (matrices, size, size) with some lower triangles."""
    lower = np.tril_indices(size)
    matrices = np.empty((len(triangles), size, size))
    matrices[:, lower[0], lower[1]] = triangles
    matrices[:, lower[1], lower[0]] = triangles
    return matrices


def _subtract_earlier(values: FloatArray, correlation: FloatArray) -> FloatArray:
    """Return the values (times, n), less the part that those before them explain."""
    return np.concatenate([values[:1], values[1:] - correlation[:, None] * values[:-1]])
