"""The prior of rows: their mean, their precision, and weights of inputs that say which entries
exist.

`chain.py` has the model. Everything is described for rows, and used for columns too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

from deepmf.linalg.backend import NUMPY, Backend, make_contiguous
from deepmf.linalg.products import Product, make_product
from deepmf.linalg.ridge import invert_root, take_steps
from deepmf.matrix.arrays import AnyArray, Array, FloatArray, fetch, send_like
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.library import find_library

if TYPE_CHECKING:
    from deepmf.nn.ranks import Ranks

# Normal-Wishart prior of (mean, precision) in units of the values' standard deviation: the mean
# counts as this many rows at 0; the precision has D degrees of freedom and the identity as its
# scale (Salakhutdinov and Mnih, 2008).
_MEAN_COUNT = 2.0

# Shape and rate of the Gamma prior of lambda, whose mean of 10 leaves most of the variance to the
# entries.
_LAMBDA_SHAPE, _LAMBDA_RATE = 1.0, 0.1

# Inputs are shrunk to their average as if by this many entries. In predictions, the prior means are
# further shrunk to the average factors of all entries: a new column with few entries seldom is an
# unpopular one. On MovieLens-1M, 20 takes .012 from the error of new columns with two entries, and
# adds .0001 to that of known ones.
AVERAGE_COUNT, CENTRE_COUNT = 5.0, 20.0

# Conjugate gradient steps for the weights W at most; they end where the residual has fallen to this
# share. On a CPU the weights cost more than all rows and columns, and are drawn every few
# iterations: a Gibbs sampler may draw some of its parameters less often.
_LINK_STEPS, _LINK_TOLERANCE = 25, 1e-2
LINK_EVERY = {False: 3, True: 1}

# Eigenvectors of F'F that precondition these steps, and the steps of the subspace iteration that
# finds them.
_LEADING, _LEADING_STEPS = 48, 4

# Systems of up to this many rows or inputs are solved directly, on a CPU and on a GPU: there that
# takes less time than conjugate gradients. Tables F have up to this many numbers.
_LARGEST_DENSE = {False: 256, True: 6144}
_LARGEST_TABLE = 1 << 29

# The grid of log lambda at which these systems are inverted, and the steps of refinement from
# there.
_LAMBDA_STEP, _REFINEMENTS = 0.2, 4


class Inputs:
    """The inputs F (rows, inputs) of the prior: in which columns each row has entries, and its
    features.

    `blocks` are the numbers of inputs of each block, which has a lambda of its own. Features of
    rows without entries are no part of F where it is `mirrored`, to draw weights by: they say
    nothing about other rows.
    """

    def __init__(
        self,
        entries: AxisEntries,
        mirrored: AxisEntries | None,
        *,
        n_others: int,
        backend: Backend = NUMPY,
        n_leading: int | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks, self._backend, send = ranks, backend, backend.send_single
        self.dense: DenseInputs | None = None
        counts = np.diff(entries.starts)
        shares = counts / (counts + AVERAGE_COUNT)
        self.centre_shares = send(CENTRE_COUNT / (counts + CENTRE_COUNT))[:, None]
        self._entry_shares = send(counts / max(1, counts.sum()))
        self.scales = send(shares * np.maximum(counts, 1) ** -0.5)[:, None]
        self.average_shares = send(1.0 - shares)[:, None]
        self.n_vectors = counts.size
        self.blocks = [n_others]
        self._present = make_product(entries.starts, entries.others, None, n_others, backend)
        self._features = self._features_back = self._empty_features = None
        if entries.features is not None:
            table = entries.features.to_sparse().astype(np.float32).tocsr()
            self.blocks.append(table.shape[1])
            if mirrored is not None and np.any((counts == 0) & (np.diff(table.indptr) > 0)):
                empty = scipy.sparse.diags_array((counts == 0).astype(np.float32)) @ table
                empty.eliminate_zeros()
                self._empty_features = _multiply_by(empty, backend)
                table = (table - empty).tocsr()
                table.eliminate_zeros()
            table.sum_duplicates()  # in place, before its arrays are shared
            self._features = _multiply_by(table, backend)
            self._features_back = _multiply_by(table.T.tocsr(), backend)
        self._block_of_input = backend.send(np.repeat(np.arange(len(self.blocks)), self.blocks))
        if mirrored is not None:  # only the weights need these
            self._present_back = make_product(
                mirrored.starts, mirrored.others, None, self.n_vectors, backend
            )
            roots = send(np.sqrt(counts) / max(1, counts.sum()))[:, None]
            self._average = self._present_back(roots)  # (columns, 1), of the rows of all entries
            # (inputs, 1), the diagonal of F'F
            self.sizes = self._present_back(self.scales**2)
            if self._features is not None:
                of_features = send(np.asarray(table.power(2).sum(axis=0)).ravel())
                library = backend.library
                self.sizes = library.concatenate([self.sizes, of_features[:, None]])
            n_inputs = sum(self.blocks)
            is_small = min(self.n_vectors, n_inputs) <= _LARGEST_DENSE[backend.on_gpu]
            if is_small and self.n_vectors * n_inputs <= _LARGEST_TABLE:
                self._make_dense()
            if n_leading is None and min(self.n_vectors, n_others) >= 4 * _LEADING:
                n_leading = _LEADING
            self._leading = None
            if self.dense is None and n_leading:
                self._leading = self._find_leading(n_leading)

    def average(self, weights: AnyArray) -> AnyArray:
        """Return the average inputs times weights, (D,)."""
        return (self._average.mT @ weights[: self.blocks[0]])[0]

    def find_centre(self, factors: AnyArray, prior: Prior, average: AnyArray) -> AnyArray:
        """Return the average factors (D,) of the rows of all entries, less their prior mean without
        features."""
        if self._features is not None:
            factors = factors - self._features(prior.weights[self.blocks[0] :])
        return self._entry_shares @ factors - prior.mean - average

    def multiply(self, weights: AnyArray, average: AnyArray | None = None) -> AnyArray:
        """Return F weights, (rows, D); `average` is that of all training rows, where these are
        others."""
        if self.dense is not None:
            return self.dense.multiply(weights)
        if average is None:
            average = self.average(weights)
        product = self._present(weights[: self.blocks[0]]) * self.scales
        product = product + self.average_shares * average
        if self._features is not None:
            product = product + self._features(weights[self.blocks[0] :])
        return product

    def predict(self, prior: Prior, average: AnyArray) -> AnyArray:
        """Return the prior means of all rows, (rows, D)."""
        means = prior.mean + self.multiply(prior.weights, average)
        return means + self.multiply_features_of_empty(prior.weights)

    def multiply_features_of_empty(self, weights: AnyArray) -> AnyArray | float:
        """Return the features of rows without entries times weights, (rows, D)."""
        if self._empty_features is None:
            return 0.0
        return self._empty_features(weights[self.blocks[0] :])

    def multiply_back(self, factors: AnyArray) -> AnyArray:
        """Return F' factors, (inputs, D)."""
        if self.dense is not None:
            return self.dense.table.mT @ factors
        product = self._present_back(factors * self.scales)
        product = product + self._average @ (self.average_shares.mT @ factors)
        if self._features_back is None:
            return product
        return self._backend.library.concatenate([product, self._features_back(factors)])

    def sum_products(self, factors: AnyArray, weights: AnyArray, lambdas: AnyArray) -> FloatArray:
        """Return the mean and the sum of outer products of factors less F weights, and the sum of
        lambda w w'.

        They are one below the other, (1 + 2D, D).
        """
        compute: Callable[..., tuple[AnyArray]] = partial(_sum_products, self.multiply)
        if self.dense is not None:
            compute = self._recorded_sums
        (sums,) = compute(factors, weights, lambdas)
        return fetch(sums).astype(np.float64)

    def solve_densely(self, target: AnyArray, lambdas: AnyArray) -> AnyArray:
        """Return W with (F'F + lambda) W = target, by the dense table."""
        assert self.dense is not None
        (weights,) = self._recorded_solve(self.dense.invert_near(lambdas), target, lambdas)
        return weights

    def repeat_lambdas(self, lambdas: AnyArray) -> AnyArray:
        """Return the lambda of each input, (inputs, 1), from those of the blocks."""
        return lambdas[self._block_of_input, None]

    def precondition(self, residual: AnyArray, lambdas: AnyArray) -> AnyArray:
        """Return about (F'F + lambda)^-1 residual: by leading eigenvectors if there are any, or by
        the diagonal."""
        scaled = residual / (self.sizes + lambdas)
        if self._leading is None:
            return scaled
        vectors, values = self._leading
        present, present_lambda = residual[: self.blocks[0]], lambdas[0]
        least = 1.0 / (values.min() + present_lambda)
        differences = 1.0 / (values + present_lambda) - least
        along = differences[:, None] * (vectors.mT @ present)
        scaled[: self.blocks[0]] = least * present + vectors @ along
        return scaled

    def _find_leading(self, count: int) -> tuple[AnyArray, AnyArray]:
        """Return leading eigenvectors (inputs, count) and eigenvalues of F'F without features, by
        subspace iteration.

        A few popular columns make the largest eigenvalues, which slow conjugate gradients down.
        """
        linalg = self._backend.library.linalg
        numbers = np.random.default_rng(0)
        vectors = self._backend.draw_normals(numbers, self.blocks[0], count)
        for _ in range(_LEADING_STEPS):
            vectors = linalg.qr(vectors)[0]
            images = self._present_back(self._present(vectors) * self.scales**2)
            values, turns = linalg.eigh(vectors.mT @ images)
            eigenvectors, vectors = vectors @ turns, images
        return eigenvectors, values.clip(min=0.0)

    def _make_dense(self) -> None:
        """Make a dense table of the inputs, and use it from now on; on a GPU its kernels are
        recorded as CUDA graphs."""
        n_inputs = sum(self.blocks)
        parts = []
        for first in range(0, n_inputs, 1024):  # F times a part of the identity
            size = min(1024, n_inputs - first)
            identity = np.eye(n_inputs, size, -first, dtype=np.float32)
            parts.append(self.multiply(self._backend.send(identity)))
        table = self._backend.library.concatenate(parts, axis=1)
        self.dense = DenseInputs(table, self.blocks)
        self._recorded_sums = self._backend.record(partial(_sum_products, self.dense.multiply))
        self._recorded_solve = self._backend.record(self.dense.solve)


def _multiply_by(table: scipy.sparse.csr_array, backend: Backend) -> Product:
    """Return the product with a sparse table."""
    return make_product(table.indptr, table.indices, table.data, table.shape[1], backend)


class DenseInputs:
    """F as a dense `table` (rows, inputs), which solves (F'F + lambda) W = target.

    With more inputs than rows, the system is (F lambda^-1 F' + 1), by Woodbury's identity.
    Inverting it takes about a tenth of an iteration, and lambda hardly changes from one iteration
    to the next. So the inverse is that of the nearest lambda on a grid, which iterative refinement
    corrects: each step leaves the distance to the grid, at most `_LAMBDA_STEP` / 2, of the error.
    """

    def __init__(self, table: AnyArray, blocks: Sequence[int]) -> None:
        self.table, self._is_wide, self._sizes = table, table.shape[1] > table.shape[0], blocks
        ends = np.cumsum(blocks)
        self._first = (ends - blocks).tolist()
        if self._is_wide:
            parts = [table[:, end - size : end] for end, size in zip(ends, blocks, strict=True)]
            self._grams = [part @ part.mT for part in parts]
        else:
            self._grams = [table.mT @ table]
        self._inverses: dict[tuple[int, ...], AnyArray] = {}

    def multiply(self, weights: AnyArray) -> AnyArray:
        """Return F weights, (rows, D)."""
        return self.table @ weights

    def solve(self, inverse: AnyArray, target: AnyArray, lambdas: AnyArray) -> tuple[AnyArray]:
        """Return W (inputs, D) for the lambda (inputs, 1) of each input, given the inverse by
        `invert_near`."""
        block_lambdas = [lambdas[first, 0] for first in self._first]
        target_rows = target
        if self._is_wide:
            target_rows = self.table @ (target / lambdas)
        solution = inverse @ target_rows
        for _ in range(_REFINEMENTS):
            product = self._multiply(solution, block_lambdas, lambdas)
            solution = solution + inverse @ (target_rows - product)
        if self._is_wide:
            solution = (target - self.table.mT @ solution) / lambdas
        return (solution,)

    def _multiply(
        self, vectors: AnyArray, block_lambdas: Sequence[AnyArray], lambdas: AnyArray
    ) -> AnyArray:
        """Return the system's matrix times vectors."""
        if not self._is_wide:
            return self._grams[0] @ vectors + lambdas * vectors
        parts = zip(self._grams, block_lambdas, strict=True)
        return sum((gram @ vectors / block_lambda for gram, block_lambda in parts), vectors)

    def invert_near(self, lambdas: AnyArray) -> AnyArray:
        """Return the inverse of the system's matrix at the nearest lambda on the grid; the last two
        are kept."""
        block_lambdas = fetch(lambdas[self._first, 0]).astype(np.float64)
        place = tuple(map(int, np.rint(np.log(block_lambdas) / _LAMBDA_STEP)))
        if place not in self._inverses:
            near = np.exp(_LAMBDA_STEP * np.array(place))
            if self._is_wide:
                system = send_like(np.eye(len(self.table)), self.table)
                for gram, block_lambda in zip(self._grams, near.tolist(), strict=True):
                    system = system + gram / block_lambda
            else:
                diagonal = np.diag(np.repeat(near, self._sizes))
                system = self._grams[0] + send_like(diagonal, self.table)
            root = invert_root(system)
            latest = list(self._inverses.items())[-1:]
            self._inverses = dict(latest) | {place: root.mT @ root}
        return self._inverses[place]


class Prior(NamedTuple):
    """The prior of one side: p_i ~ Normal(mean + W'f_i, precision^-1), and a lambda for each block
    of inputs."""

    mean: AnyArray  # (D,)
    precision: AnyArray  # (D, D)
    weights: AnyArray  # W, (inputs, D)
    lambdas: AnyArray  # (blocks,)


def draw_prior(
    prior: Prior,
    factors: AnyArray,
    inputs: Inputs,
    numbers: np.random.Generator,
    draw_noise: Callable[[int], AnyArray] | None,
) -> Prior:
    """Draw (mean, precision) given the factors and the weights, then the weights, then lambda.

    draw_noise: returns standard normal numbers (n, D); without it, weights and lambda stay as they
        are.
    """
    factors = factors - inputs.multiply_features_of_empty(prior.weights)
    input_lambdas = inputs.repeat_lambdas(prior.lambdas)
    n_rows, size = factors.shape
    sums, n_weights = inputs.sum_products(factors, prior.weights, input_lambdas), len(prior.weights)
    average, moment, weight_moment = sums[0], sums[1 : 1 + size], sums[1 + size :]
    mean, precision = draw_mean_and_precision(
        n_rows, average, moment, weight_moment, n_weights, numbers
    )
    prior = prior._replace(mean=send_like(mean, factors), precision=send_like(precision, factors))
    if draw_noise is None:
        return prior
    weights = draw_weights(
        factors - prior.mean,
        inputs,
        input_lambdas,
        prior.precision,
        draw_noise(n_rows),
        draw_noise(n_weights),
        steps=_LINK_STEPS,
        tolerance=_LINK_TOLERANCE,
    )
    weights = make_contiguous(weights)
    lambdas = draw_lambdas(weights, prior.precision, inputs.blocks, numbers)
    return prior._replace(weights=weights, lambdas=lambdas)


def _sum_products(
    multiply: Product, factors: AnyArray, weights: AnyArray, lambdas: AnyArray
) -> tuple[AnyArray]:
    residuals = factors - multiply(weights)
    average = residuals.mean(0)[None]
    moments = residuals.mT @ residuals, (weights * lambdas).mT @ weights
    return (find_library(factors).concatenate([average, *moments]),)


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
    count, average, moment : number, mean (D,) and sum of outer products (D, D) of the factors less
        W'f_i.
    weight_moment, n_weights : sum of lambda w w' over the rows w of W, whose prior has the same
        precision, and their number.
    """
    size = average.size
    require_finite("the factors", moment, weight_moment)
    shrunk = count / (count + _MEAN_COUNT) * average
    scatter = moment - count * np.outer(average, average) + _MEAN_COUNT * np.outer(average, shrunk)
    scale = np.eye(size) + scatter + weight_moment
    precision = draw_wishart(size + count + n_weights, (scale + scale.T) / 2.0, numbers)
    root = np.linalg.cholesky((count + _MEAN_COUNT) * precision)
    spread = scipy.linalg.solve_triangular(root, numbers.standard_normal(size), lower=True, trans=1)
    return shrunk + spread, precision


def require_finite(noun: str, *arrays: FloatArray | float) -> None:
    """Raise `LinAlgError` where a posterior would be drawn from numbers that are not finite."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise np.linalg.LinAlgError(f"{noun} of the chain are not finite numbers")


def draw_wishart(
    degrees: float, inverse_scale: FloatArray, numbers: np.random.Generator
) -> FloatArray:
    """Draw from the Wishart distribution with this inverse of its scale, by Bartlett's
    decomposition."""
    size = len(inverse_scale)
    bartlett = np.tril(numbers.standard_normal((size, size)), -1)
    bartlett[np.diag_indices(size)] = np.sqrt(numbers.chisquare(degrees - np.arange(size)))
    # With inverse_scale = LL', the scale is L'^-1 L^-1.
    root = scipy.linalg.solve_triangular(
        np.linalg.cholesky(inverse_scale), bartlett, lower=True, trans=1
    )
    precision: FloatArray = root @ root.T
    return precision


def draw_weights(
    deviations: AnyArray,
    inputs: Inputs,
    lambdas: AnyArray,
    precision: AnyArray,
    row_noise: AnyArray,
    input_noise: AnyArray,
    *,
    steps: int,
    tolerance: float = 0.0,
) -> AnyArray:
    """Draw W given the factors less their mean, `deviations` (rows, D).

    W solves (F'F + lambda) W = F'(deviations + E1) + sqrt(lambda) E2 with rows of E1 and E2 from
    Normal(0, precision^-1), which has the posterior's mean and covariance. The solution starts from
    E2 / sqrt(lambda), which is exact where inputs say nothing, and takes some conjugate gradient
    steps; small systems on a GPU are solved directly.
    """
    spread = invert_root(precision)
    row_noise, input_noise = row_noise @ spread, input_noise @ spread
    target = inputs.multiply_back(deviations + row_noise) + lambdas**0.5 * input_noise
    if inputs.dense is not None:
        return inputs.solve_densely(target, lambdas)

    def apply(weights: AnyArray) -> AnyArray:
        return inputs.multiply_back(inputs.multiply(weights)) + lambdas * weights

    def multiply(direction: AnyArray) -> tuple[AnyArray, AnyArray]:
        product = apply(direction)
        return product, (direction * product).sum(0)

    def solve(factors: slice) -> AnyArray:
        start = input_noise[:, factors] / lambdas**0.5
        return take_steps(
            start,
            target[:, factors] - apply(start),
            multiply=multiply,
            apply=lambda product, direction: product,
            precondition=lambda residual: inputs.precondition(residual, lambdas),
            dot=lambda left, right: (left * right).sum(0),
            most_steps=steps,
            tolerance=tolerance,
        )

    if inputs.ranks is None:
        return solve(slice(None))
    rank_factors = inputs.ranks.find_lines(target.shape[1])
    weights = find_library(target).zeros_like(target)
    if rank_factors.start < rank_factors.stop:
        weights[:, rank_factors] = solve(rank_factors)
    return inputs.ranks.sum_(weights)


def draw_lambdas(
    weights: AnyArray, precision: AnyArray, blocks: Sequence[int], numbers: np.random.Generator
) -> AnyArray:
    """Draw the lambda of each block of inputs from its Gamma posterior."""
    squares: Array = fetch(((weights @ precision) * weights).sum(1)).astype(np.float64)
    sums = np.array([part.sum() for part in np.split(squares, np.cumsum(blocks)[:-1])])
    require_finite("the weights of the prior", sums)
    counts = weights.shape[1] * np.array(blocks, dtype=np.float64)
    lambdas = numbers.gamma(_LAMBDA_SHAPE + counts / 2.0, 1.0 / (_LAMBDA_RATE + sums / 2.0))
    return send_like(lambdas, weights)
