"""The prior of rows: their mean, their precision, and weights of inputs that say which entries
exist.

`chain.py` has the model. Everything is described for rows, and used for columns too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
import torch
from torch import Tensor

from deepmf.linalg.products import Product, make_product
from deepmf.linalg.ridge import invert_root, take_steps
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.nn.ranks import Ranks
from deepmf.training.runtime import GraphFunction, make_generator

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

# On a GPU, systems of up to this many rows or inputs, and tables F of up to this many numbers, are
# solved directly.
_LARGEST_DENSE, _LARGEST_TABLE = 6144, 1 << 29

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
        device: torch.device,
        n_leading: int | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks
        self.dense: DenseInputs | None = None
        counts = np.diff(entries.starts)
        shares = counts / (counts + AVERAGE_COUNT)
        self.centre_shares = _to_single(CENTRE_COUNT / (counts + CENTRE_COUNT)).to(device)[:, None]
        self._entry_shares = _to_single(counts / max(1, counts.sum())).to(device)
        self.scales = _to_single(shares * np.maximum(counts, 1) ** -0.5).to(device)[:, None]
        self.average_shares = _to_single(1.0 - shares).to(device)[:, None]
        self.n_vectors = counts.size
        self.blocks = [n_others]
        self._present = make_product(entries.starts, entries.others, None, n_others, device)
        self._features = self._features_back = self._empty_features = None
        if entries.features is not None:
            table = entries.features.to_sparse().astype(np.float32).tocsr()
            table.sum_duplicates()  # in place, before its arrays are shared
            self.blocks.append(table.shape[1])
            if mirrored is not None and np.any((counts == 0) & (np.diff(table.indptr) > 0)):
                empty = scipy.sparse.diags_array((counts == 0).astype(np.float32)) @ table
                empty.eliminate_zeros()
                self._empty_features = make_product(
                    empty.indptr, empty.indices, empty.data, table.shape[1], device
                )
                table = (table - empty).tocsr()
                table.eliminate_zeros()
            self._features = make_product(
                table.indptr, table.indices, table.data, table.shape[1], device
            )
            back = table.T.tocsr()
            self._features_back = make_product(
                back.indptr, back.indices, back.data, self.n_vectors, device
            )
        block_of_input = np.repeat(np.arange(len(self.blocks)), self.blocks)
        self._block_of_input = torch.from_numpy(block_of_input).to(device)
        if mirrored is not None:  # only the weights need these
            self._present_back = make_product(
                mirrored.starts, mirrored.others, None, self.n_vectors, device
            )
            roots = _to_single(np.sqrt(counts) / max(1, counts.sum())).to(device)[:, None]
            self._average = self._present_back(roots)  # (columns, 1), of the rows of all entries
            # (inputs, 1), the diagonal of F'F
            self.sizes = self._present_back(self.scales.square().contiguous())
            if self._features is not None:
                of_features = torch.from_numpy(np.asarray(table.power(2).sum(axis=0)).ravel()).to(
                    self.sizes
                )
                self.sizes = torch.cat([self.sizes, of_features[:, None]])
            n_inputs = sum(self.blocks)
            is_small = (
                min(self.n_vectors, n_inputs) <= _LARGEST_DENSE
                and self.n_vectors * n_inputs <= _LARGEST_TABLE
            )
            if device.type == "cuda" and is_small:
                self._make_dense()
            n_leading = (
                _LEADING
                if n_leading is None and min(self.n_vectors, n_others) >= 4 * _LEADING
                else n_leading
            )
            self._leading = (
                None
                if self.dense is not None or not n_leading
                else self._find_leading(n_leading, device)
            )

    def average(self, weights: Tensor) -> Tensor:
        """Return the average inputs times weights, (D,)."""
        return (self._average.to(weights.dtype).mT @ weights[: self.blocks[0]])[0]

    def find_centre(self, factors: Tensor, prior: Prior, average: Tensor) -> Tensor:
        """Return the average factors (D,) of the rows of all entries, less their prior mean without
        features."""
        if self._features is not None:
            factors = factors - self._features(prior.weights[self.blocks[0] :])
        return self._entry_shares @ factors - prior.mean - average

    def multiply(self, weights: Tensor, average: Tensor | None = None) -> Tensor:
        """Return F weights, (rows, D); `average` is that of all training rows, where these are
        others."""
        if self.dense is not None:
            return self.dense.multiply(weights)
        average = self.average(weights) if average is None else average
        found = self._present(weights[: self.blocks[0]]) * self.scales.to(weights.dtype)
        found = found + self.average_shares.to(weights.dtype) * average
        if self._features is not None:
            found = found + self._features(weights[self.blocks[0] :])
        return found

    def predict(self, prior: Prior, average: Tensor) -> Tensor:
        """Return the prior means of all rows, (rows, D)."""
        means = prior.mean + self.multiply(prior.weights, average)
        return means + self.multiply_features_of_empty(prior.weights)

    def multiply_features_of_empty(self, weights: Tensor) -> Tensor | float:
        """Return the features of rows without entries times weights, (rows, D)."""
        return (
            0.0 if self._empty_features is None else self._empty_features(weights[self.blocks[0] :])
        )

    def multiply_back(self, factors: Tensor) -> Tensor:
        """Return F' factors, (inputs, D)."""
        if self.dense is not None:
            return self.dense.table.mT @ factors
        present = self._present_back(factors * self.scales.to(factors.dtype))
        present = present + self._average.to(factors.dtype) @ (
            self.average_shares.to(factors.dtype).mT @ factors
        )
        return (
            present
            if self._features_back is None
            else torch.cat([present, self._features_back(factors)])
        )

    def sum_products(self, factors: Tensor, weights: Tensor, lambdas: Tensor) -> FloatArray:
        """Return the mean and the sum of outer products of factors less F weights, and the sum of
        lambda w w'.

        They are one below the other, (1 + 2D, D).
        """
        compute = (
            partial(_sum_products, self.multiply) if self.dense is None else self._recorded_sums
        )
        (sums,) = compute(factors, weights, lambdas)
        return sums.double().cpu().numpy()

    def solve_densely(self, target: Tensor, lambdas: Tensor) -> Tensor:
        """Return W with (F'F + lambda) W = target, by the dense table."""
        assert self.dense is not None
        (weights,) = self._recorded_solve(self.dense.invert_near(lambdas), target, lambdas)
        return weights

    def repeat_lambdas(self, lambdas: Tensor) -> Tensor:
        """Return the lambda of each input, (inputs, 1), from those of the blocks."""
        return lambdas[self._block_of_input, None]

    def precondition(self, residual: Tensor, lambdas: Tensor) -> Tensor:
        """Return about (F'F + lambda)^-1 residual: by leading eigenvectors if there are any, or by
        the diagonal."""
        scaled = residual / (self.sizes.to(residual.dtype) + lambdas)
        if self._leading is None:
            return scaled
        vectors, values = (each.to(residual.dtype) for each in self._leading)
        present, own = residual[: self.blocks[0]], lambdas[0]
        rest = 1.0 / (values.min() + own)
        along = (1.0 / (values + own) - rest)[:, None] * (vectors.mT @ present)
        scaled[: self.blocks[0]] = rest * present + vectors @ along
        return scaled

    def _find_leading(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return leading eigenvectors (inputs, count) and eigenvalues of F'F without features, by
        subspace iteration.

        A few popular columns make the largest eigenvalues, which slow conjugate gradients down.
        """
        generator = make_generator(0, "leading", device)
        vectors = torch.randn(
            self.blocks[0], count, generator=generator, dtype=torch.float32, device=device
        )
        for _ in range(_LEADING_STEPS):
            vectors = torch.linalg.qr(vectors).Q
            images = self._present_back(self._present(vectors) * self.scales.square())
            values, turns = torch.linalg.eigh(vectors.mT @ images)
            eigenvectors, vectors = vectors @ turns, images
        return eigenvectors, values.clamp_min(0.0)

    def _make_dense(self) -> None:
        """Make a dense table of the inputs, and use it from now on; its kernels are recorded as
        CUDA graphs."""
        n_inputs, device = sum(self.blocks), self.scales.device
        table = torch.empty(self.n_vectors, n_inputs, dtype=torch.float32, device=device)
        for first in range(0, n_inputs, 1024):  # F times a part of the identity
            size = min(1024, n_inputs - first)
            part = torch.zeros(n_inputs, size, dtype=torch.float32, device=device)
            part[first : first + size].fill_diagonal_(1.0)
            table[:, first : first + size] = self.multiply(part)
        self.dense = DenseInputs(table, self.blocks)
        self._recorded_sums = GraphFunction(partial(_sum_products, self.dense.multiply))
        self._recorded_solve = GraphFunction(self.dense.solve)


class DenseInputs:
    """F as a dense `table` (rows, inputs), which solves (F'F + lambda) W = target.

    With more inputs than rows, the system is (F lambda^-1 F' + 1), by Woodbury's identity.
    Inverting it takes about a tenth of an iteration, and lambda hardly changes from one iteration
    to the next. So the inverse is that of the nearest lambda on a grid, which iterative refinement
    corrects: each step leaves the distance to the grid, at most `_LAMBDA_STEP` / 2, of the error.
    """

    def __init__(self, table: Tensor, blocks: Sequence[int]) -> None:
        self.table, self._is_wide = table, table.shape[1] > table.shape[0]
        self._first = [sum(blocks[:block]) for block in range(len(blocks))]
        self._sizes = torch.tensor(blocks, device=table.device)
        parts = table.split(list(blocks), dim=1) if self._is_wide else [table]  # type: ignore[no-untyped-call]
        self._grams = [part @ part.mT if self._is_wide else part.mT @ part for part in parts]
        self._inverses: dict[tuple[int, ...], Tensor] = {}

    def multiply(self, weights: Tensor) -> Tensor:
        """Return F weights, (rows, D)."""
        return self.table @ weights

    def solve(self, inverse: Tensor, target: Tensor, lambdas: Tensor) -> tuple[Tensor]:
        """Return W (inputs, D) for the lambda (inputs, 1) of each input, given the inverse by
        `invert_near`."""
        of_blocks = [lambdas[first, 0] for first in self._first]
        wanted = self.table @ (target / lambdas) if self._is_wide else target
        solution = inverse @ wanted
        for _ in range(_REFINEMENTS):
            solution = solution + inverse @ (wanted - self._multiply(solution, of_blocks, lambdas))
        return ((target - self.table.mT @ solution) / lambdas if self._is_wide else solution,)

    def _multiply(self, vectors: Tensor, of_blocks: Sequence[Tensor], lambdas: Tensor) -> Tensor:
        """Return the system's matrix times vectors."""
        if not self._is_wide:
            return self._grams[0] @ vectors + lambdas * vectors
        return sum(
            (gram @ vectors / own for gram, own in zip(self._grams, of_blocks, strict=True)),
            vectors,
        )

    def invert_near(self, lambdas: Tensor) -> Tensor:
        """Return the inverse of the system's matrix at the nearest lambda on the grid; the last two
        are kept."""
        of_blocks = lambdas[self._first, 0].double().cpu().numpy()
        place = tuple(map(int, np.rint(np.log(of_blocks) / _LAMBDA_STEP)))
        if place not in self._inverses:
            near = torch.from_numpy(np.exp(_LAMBDA_STEP * np.array(place))).to(self.table)
            if self._is_wide:
                system = torch.eye(len(self.table), dtype=near.dtype, device=near.device)
                for gram, own in zip(self._grams, near, strict=True):
                    system = system + gram / own
            else:
                system = self._grams[0] + torch.diag(torch.repeat_interleave(near, self._sizes))
            kept = list(self._inverses.items())[-1:]
            self._inverses = dict(kept) | {
                place: torch.cholesky_inverse(torch.linalg.cholesky_ex(system).L)
            }
        return self._inverses[place]


def _to_single(array: FloatArray) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))


class Prior(NamedTuple):
    """The prior of one side: p_i ~ Normal(mean + W'f_i, precision^-1), and a lambda for each block
    of inputs."""

    mean: Tensor  # (D,)
    precision: Tensor  # (D, D)
    weights: Tensor  # W, (inputs, D)
    lambdas: Tensor  # (blocks,)


def draw_prior(
    prior: Prior,
    factors: Tensor,
    inputs: Inputs,
    numbers: np.random.Generator,
    noise: Callable[[int], Tensor] | None,
) -> Prior:
    """Draw (mean, precision) given the factors and the weights, then the weights, then lambda.

    noise: returns standard normal numbers (n, D); without it, weights and lambda stay as they are.
    """
    factors = factors - inputs.multiply_features_of_empty(prior.weights)
    of_inputs = inputs.repeat_lambdas(prior.lambdas)
    size, sums = factors.shape[1], inputs.sum_products(factors, prior.weights, of_inputs)
    moments, n_weights = (sums[0], sums[1 : 1 + size], sums[1 + size :]), len(prior.weights)
    mean, precision = draw_mean_and_precision(len(factors), *moments, n_weights, numbers)
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
    # as it is restored from a checkpoint: sums depend on the order in memory
    weights = weights.contiguous()
    return new._replace(
        weights=weights, lambdas=draw_lambdas(weights, new.precision, inputs.blocks, numbers)
    )


def _to_like(array: FloatArray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device, like.dtype)


def _sum_products(
    multiply: Product, factors: Tensor, weights: Tensor, lambdas: Tensor
) -> tuple[Tensor]:
    residuals = factors - multiply(weights)
    moments = residuals.mT @ residuals, (weights * lambdas).mT @ weights
    return (torch.cat([residuals.mean(0, keepdim=True), *moments]),)


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


def require_finite(what: str, *arrays: FloatArray | float) -> None:
    """Raise `LinAlgError` where a posterior would be drawn from numbers that are not finite."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise np.linalg.LinAlgError(f"{what} of the chain are not finite numbers")


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

    W solves (F'F + lambda) W = F'(deviations + E1) + sqrt(lambda) E2 with rows of E1 and E2 from
    Normal(0, precision^-1), which has the posterior's mean and covariance. The solution starts from
    E2 / sqrt(lambda), which is exact where inputs say nothing, and takes some conjugate gradient
    steps; small systems on a GPU are solved directly.
    """
    spread = invert_root(precision)
    row_noise, input_noise = row_noise @ spread, input_noise @ spread
    target = inputs.multiply_back(deviations + row_noise) + lambdas.sqrt() * input_noise
    if inputs.dense is not None:
        return inputs.solve_densely(target, lambdas)

    def apply(weights: Tensor) -> Tensor:
        return inputs.multiply_back(inputs.multiply(weights)) + lambdas * weights

    def multiply(direction: Tensor) -> tuple[Tensor, Tensor]:
        product = apply(direction)
        return product, (direction * product).sum(0)

    def solve(factors: slice) -> Tensor:
        start = input_noise[:, factors] / lambdas.sqrt()
        return take_steps(
            start,
            target[:, factors] - apply(start),
            multiply=multiply,
            apply=lambda product, direction: product,
            precondition=lambda residual: inputs.precondition(residual, lambdas),
            dot=lambda some, others: (some * others).sum(0),
            most_steps=steps,
            tolerance=tolerance,
        )

    if inputs.ranks is None:
        return solve(slice(None))
    own, found = inputs.ranks.find_lines(target.shape[1]), torch.zeros_like(target)
    if own.start < own.stop:
        found[:, own] = solve(own)
    return inputs.ranks.sum_(found)


def draw_lambdas(
    weights: Tensor, precision: Tensor, blocks: Sequence[int], numbers: np.random.Generator
) -> Tensor:
    """Draw the lambda of each block of inputs from its Gamma posterior."""
    squares = ((weights @ precision) * weights).sum(1, dtype=torch.float64)
    sums = torch.stack([part.sum() for part in torch.split(squares, list(blocks))]).cpu().numpy()
    require_finite("the weights of the prior", sums)
    counts = weights.shape[1] * np.array(blocks, dtype=np.float64)
    drawn = numbers.gamma(_LAMBDA_SHAPE + counts / 2.0, 1.0 / (_LAMBDA_RATE + sums / 2.0))
    return _to_like(drawn, weights)
