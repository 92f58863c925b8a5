"""ALS: matrix factorisation with row and column effects by alternating least squares, which extends by one solve."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import FeatureVectors
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.fitting import split_validation
from deepmf.models.latents import Latents, pair_products
from deepmf.models.low_rank import Sparse, sparse_of, truncated_svd
from deepmf.models.means import NO_WEIGHTS, FeatureRidge, FeatureWeights, compute_prior, load_feature_weights
from deepmf.models.predictor import Encoder
from deepmf.models.solver import Arrays, FactorModel, Solver
from deepmf.storage.model_file import Packed, Tensors
from deepmf.training.progress import FitPlan
from deepmf.training.settings import WIDEST, LoopSettings, Settings, setting, settings_dataclass


@settings_dataclass
class ALSSettings(LoopSettings):
    """The settings of ALS; the defaults were chosen on validation entries of MovieLens-1M.

    The best `penalty` times the width of the scale is 1 to 2 standard deviations of the noise: on MovieLens-1M, and on
    generated matrices of many shapes. So it is chosen by the noise where the width says nothing of it.

    A `count_power` of 1 is that of Zhou et al., "Large-scale parallel collaborative filtering for the Netflix prize",
    2008. Most often the validation error rises after a few sweeps, and six that do not lower it end the fit. Of the 50
    fits of recipes, which make all sweeps, none has a lower error later; after two sweeps 8 of them had.
    """

    chosen_at_fit: ClassVar[Collection[str]] = ("penalty",)

    epochs: int = setting(15, "Number of sweeps; a sweep solves for all rows, then for all columns.", low=1)
    patience: int | None = 6
    latent_size: int = setting(
        40, "Latent size without the effect; at most the smaller side of the matrix.", low=1, high=WIDEST
    )
    penalty: float = setting(
        0.3,
        "Weight of the L2 penalty on latents, in widths of the scale; chosen at fit if the scale has no levels.",
        above=0.0,
    )
    count_power: float = setting(
        0.5,
        "Power of the entry count that multiplies the penalty of a row or column (0: constant penalty).",
        low=0.0,
        high=1.0,
    )
    effect_penalty: float = setting(3.0, "Weight of the L2 penalty on row and column effects.", low=0.0)
    feature_penalty: float = setting(
        10.0, "Ridge penalty on the weights of features, as a number of rows or columns.", above=0.0
    )


Array = npt.NDArray[Any]  # in single precision


# As many as leave sweeps of ALS what they are with exact solutions (docs/log.md).
_STEPS = 3

# The last step is one that takes less than this share off the squares that are left: the next would take off a
# tenth of that, and the error on validation entries is the same to 1e-4 in every sweep (docs/log.md).
_LEAST_GAIN = 3e-4


class Improved(NamedTuple):
    """Better factors, and what they leave of the targets."""

    factors: Array  # (rows, unknowns)
    left: Array  # (rows, pieces, entries)


def improved(inputs: Array, left: Array, *, ridges: Array, sizes: Array, start: Array) -> Improved:
    """Return factors x with less |targets - inputs x|^2 + x' diag(ridges) x than at the start, which leaves `left`.

    A step costs two products with the inputs; forming the systems would cost as many as there are unknowns.

    inputs: (rows, pieces, entries, unknowns), zeros where a row has fewer entries.
    sizes: about the diagonals (rows, unknowns) of the systems, above 0, which steps are scaled by.
    """
    slope = sums(inputs, left) - ridges * start
    direction = slope / sizes
    fall = _dots(slope, direction)
    factors = start
    for step in range(_STEPS):
        along = products(inputs, direction)
        length = _ratios(fall, np.einsum("rpe,rpe->r", along, along) + _dots(ridges * direction, direction))
        factors = factors + length[:, None] * direction
        left = left - length[:, None, None] * along
        if step + 1 == _STEPS or length @ fall < _LEAST_GAIN * np.vdot(left, left):
            break
        slope -= length[:, None] * (sums(inputs, along) + ridges * direction)
        scaled = slope / sizes
        next_fall = _dots(slope, scaled)
        direction = scaled + _ratios(next_fall, fall)[:, None] * direction
        fall = next_fall
    return Improved(factors, left)


def products(inputs: Array, factors: Array) -> Array:
    """Return the product (rows, pieces, entries) of each row's inputs with its factors."""
    result: Array = np.matmul(inputs, factors[:, None, :, None])[..., 0]
    return result


def sums(inputs: Array, weights: Array) -> Array:
    """Return the sum (rows, unknowns) of each row's inputs, weighted by (rows, pieces, entries)."""
    result: Array = np.matmul(weights[:, :, None], inputs)[:, :, 0].sum(axis=1)
    return result


def _dots(some: Array, others: Array) -> Array:
    """Return the inner product of each row with another's (rows,)."""
    dots: Array = np.einsum("rk,rk->r", some, others)
    return dots


def _ratios(some: Array, others: Array) -> Array:
    """Return ratios of numbers that are not negative, 0 where there is nothing to divide by."""
    return np.divide(some, others, out=np.zeros_like(some), where=others > 0)


# Entries whose factors are gathered at a time: 42 numbers for each take 2.6 MB.
_ENTRIES_AT_A_TIME = 1 << 14

# Entries of a row that are multiplied at a time: of larger products numpy's BLAS would make pieces for threads of its
# own, which wait for those that groups are solved by.
_PIECE = 192

# Rows with fewer entries count as many, so that the Gram matrices of a group take no more than a few megabytes.
_LEAST_WIDTH = 32

# The smallest ridge as a share of the diagonal: single precision cannot solve with less.
LEAST_RIDGE = 1e-5


class Group(NamedTuple):
    """Rows with about as many entries each, solved for together; padded to the most entries among them."""

    positions: IndexArray  # (rows,)
    others: npt.NDArray[np.int32]  # (rows, pieces, entries) their columns; one past the last column where padded
    values: LatentArray  # (rows, pieces, entries) less the mean; 0 where padded


class Solved(NamedTuple):
    """The best factors of one side given the other's, and what they leave: squared errors and their own penalty."""

    factors: LatentArray  # (rows, latent + 1)
    objective: float


class LeastSquares:
    """One side of a matrix, laid out once for all solves; described for rows, used for columns too.

    Factors (rows, latent + 1) are the latents of each row and, last, its effect.
    """

    def __init__(self, entries: AxisEntries, *, n_others: int, train: ObservedMatrix, settings: ALSSettings) -> None:
        self._counts = np.diff(entries.starts).astype(np.float32)
        self.latent_ridges = latent_ridges(self._counts.astype(np.float64), train.scale, settings)  # (rows,)
        self.effect_ridge = settings.effect_penalty
        self._groups = list(_groups(entries, n_others=n_others, mean=train.mean))

    def solve(self, others: LatentArray, prior: LatentArray | None = None) -> Solved:
        """Return the ridge solution of every row given the factors of the columns.

        prior: the factors (rows, latent + 1) that rows are drawn to, and that those without entries get; zeros, where
        there are none.
        """
        table = _table(others)
        shape = self.latent_ridges.size, others.shape[1]
        factors = np.zeros(shape, dtype=np.float32) if prior is None else prior.astype(np.float32)

        def solve_group(group: Group, buffer: LatentArray) -> float:
            ridges, gram = self._ridges(group, others.shape[1]), _gram(group, table, buffer)
            said = None if prior is None else factors[group.positions]
            factors[group.positions], objective = _solution(gram, ridges, said)
            return objective

        return Solved(factors, _in_threads(solve_group, self._groups, table.shape[1]))

    def improve(self, others: LatentArray, factors: LatentArray, prior: LatentArray | None = None) -> Solved:
        """Return factors of every row that are better than given ones, at a third of the cost of a solution.

        They are on the way to the solution by some steps of conjugate gradients. Rows that are longer than what is
        gathered at a time are solved for: these would be read from memory again in every step.
        """
        table = _table(others)
        squares = np.square(table[:-1, :-1]).mean(axis=0)
        better = np.zeros_like(factors) if prior is None else prior.astype(np.float32)

        def improve_group(group: Group, buffer: LatentArray) -> float:
            ridges, drawn_to = self._ridges(group, others.shape[1]), better[group.positions]
            if group.values[0].size > _ENTRIES_AT_A_TIME:
                said = None if prior is None else drawn_to
                better[group.positions], objective = _solution(_gram(group, table, buffer), ridges, said)
                return objective
            gathered = _gathered(table, group.others, buffer)
            given = factors[group.positions]
            left = group.values + products(gathered, np.column_stack([-given, np.ones_like(given[:, 0])]))
            sizes = np.maximum(self._counts[group.positions, None] * squares + ridges, np.finfo(np.float32).tiny)
            found = improved(gathered[..., :-1], left, ridges=ridges, sizes=sizes, start=given - drawn_to)
            better[group.positions] += found.factors
            return float(np.vdot(found.left, found.left) + np.vdot(ridges * found.factors, found.factors))

        return Solved(better, _in_threads(improve_group, self._groups, table.shape[1]))

    def _ridges(self, group: Group, n_unknowns: int) -> LatentArray:
        """Return the ridges (rows, unknowns) of a group."""
        ridges = np.full((group.positions.size, n_unknowns), self.effect_ridge, dtype=np.float32)
        ridges[:, :-1] = self.latent_ridges[group.positions, None]
        return ridges

    def penalty(self, factors: LatentArray, prior: LatentArray | None = None) -> float:
        """Return the penalty of factors, by how far they are from a prior."""
        squares = np.square(factors if prior is None else factors - prior, dtype=np.float64)
        return float(
            (squares[:, :-1].sum(axis=1) * self.latent_ridges).sum() + squares[:, -1].sum() * self.effect_ridge
        )


def latent_ridges(counts: Any, scale: Scale, settings: ALSSettings) -> Any:
    """Return the weights of the squared latents of rows by their numbers of entries, an array or a tensor as these."""
    width = scale.high - scale.low or 1.0  # a scale of one value has no width
    return settings.penalty * width * counts**settings.count_power


def _groups(entries: AxisEntries, *, n_others: int, mean: float) -> Iterator[Group]:
    """Yield groups of rows, those with most entries first, each of a bounded number of padded entries."""
    starts, counts = entries.starts[:-1].astype(np.int64), np.diff(entries.starts)
    left = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    while left.size:
        n_pieces = -(-counts[left[0]] // _PIECE)
        width = n_pieces * -(-counts[left[0]] // n_pieces)
        positions, left = np.split(left, [max(1, _ENTRIES_AT_A_TIME // max(width, _LEAST_WIDTH))])
        places = np.arange(width).reshape(n_pieces, -1)
        observed = places < counts[positions, None, None]
        places = np.where(observed, starts[positions, None, None] + places, 0)
        yield Group(
            positions,
            np.where(observed, entries.others[places], n_others).astype(np.int32),
            np.where(observed, entries.values[places] - mean, 0.0).astype(np.float32),
        )


def _in_threads(solve: Callable[[Group, LatentArray], float], groups: list[Group], width: int) -> float:
    """Solve groups by as many threads as torch uses, which gather, multiply and eliminate without the interpreter.

    Each thread works alone: left to themselves, they would cut every product, small as it is, into pieces for further
    threads, and mostly wait for each other. It has one buffer for the factors that it gathers, of a width, since
    memory that is new for every group can take four times as long to fill.
    """

    def solve_all(groups: list[Group]) -> float:
        buffer = np.empty((_ENTRIES_AT_A_TIME, width), dtype=np.float32)
        return sum(solve(group, buffer) for group in groups)

    n_threads = torch.get_num_threads()
    if min(n_threads, len(groups)) <= 1:
        return solve_all(groups)
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as threads:
            return sum(threads.map(solve_all, (groups[first::n_threads] for first in range(n_threads))))
    finally:
        torch.set_num_threads(n_threads)


def _gathered(table: LatentArray, positions: npt.NDArray[np.int32], buffer: LatentArray) -> LatentArray:
    """Return lines of a table, in the memory of a buffer."""
    lines = buffer[: positions.size].reshape(*positions.shape, -1)
    return table.take(positions, axis=0, out=lines, mode="clip")  # unlike "raise", this one writes there at once


def _table(factors: LatentArray) -> LatentArray:
    """Return (v_j, 1, -c_j) for each column, and zeros for padding: (columns + 1, latent + 2)."""
    n_columns, width = factors.shape
    table = np.zeros((n_columns + 1, width + 1), dtype=np.float32)
    table[:-1, :-2], table[:-1, -2], table[:-1, -1] = factors[:, :-1], 1.0, -factors[:, -1]
    return table


def _gram(group: Group, table: LatentArray, buffer: LatentArray) -> Tensor:
    """Return the Gram matrices (rows, latent + 2, latent + 2) of (v_j, 1, x_ij - m - c_j) over each row's entries."""
    n_rows, n_pieces, n_entries = group.values.shape
    gram = np.zeros((n_rows, *table.shape[1:] * 2), dtype=np.float32)
    at_a_time = max(1, _ENTRIES_AT_A_TIME // (n_rows * n_entries))
    for start in range(0, n_pieces, at_a_time):
        some = slice(start, start + at_a_time)
        gathered = _gathered(table, group.others[:, some], buffer)
        gathered[..., -1] += group.values[:, some]
        of_pieces = gathered.mT @ gathered
        gram += of_pieces.sum(axis=1) if n_pieces > 1 else of_pieces[:, 0]
    return torch.from_numpy(gram)


def _solution(gram: Tensor, ridges: LatentArray, prior: LatentArray | None) -> tuple[LatentArray, float]:
    """Return ridge solutions that are drawn to a prior, or to 0, and the sum of the minima."""
    if prior is None:
        return _ridge_solution(gram, ridges)
    _take_off(gram, prior)
    moves, objective = _ridge_solution(gram, ridges)
    return prior + moves, objective


def _take_off(gram: Tensor, factors: LatentArray) -> None:
    """Let Gram matrices of (A, t) be those of (A, t - Ap), for the factors p of each row."""
    p = torch.from_numpy(factors)[..., None]
    fitted = gram[:, :-1, :-1] @ p  # A'Ap
    gram[:, -1, -1] += (p.mT @ (fitted - 2.0 * gram[:, :-1, -1:]))[:, 0, 0]
    gram[:, :-1, -1:] -= fitted
    gram[:, -1:, :-1] -= fitted.mT


def _ridge_solution(gram: Tensor, ridges: LatentArray) -> tuple[LatentArray, float]:
    """Return the x (rows, latent + 1) that minimise |t - Ax|^2 + x'Dx, and the sum of the minima.

    `gram` holds the Gram matrices of (A, t). The Cholesky factor of the whole has z = L^-1 A't for its last line, where
    L is that of A'A + D, so that x = L'^-1 z, and the minimum is t't - z'z.
    """
    diagonals = gram.diagonal(dim1=1, dim2=2)  # a view
    squares = diagonals[:, -1].sum(dtype=torch.float64)
    diagonals[:, :-1] += torch.maximum(torch.from_numpy(ridges), LEAST_RIDGE * diagonals[:, :-1])
    diagonals[:, -1] = 2.0 * diagonals[:, -1] + 1.0  # any number that rounding cannot bring below z'z
    lower = torch.linalg.cholesky_ex(gram).L
    z = lower[:, -1, :-1, None]
    x = torch.linalg.solve_triangular(lower[:, :-1, :-1].mT, z, upper=True)
    return x[..., 0].numpy(), float(squares - z.double().square().sum())


# Passes of the subspace iteration that the start comes from; more start lower, and end no better.
_START_PASSES = 4


def first_column_factors(train: ObservedMatrix, settings: ALSSettings) -> LatentArray:
    """Return column factors to start from (columns, latent + 1): shrunk means, and what the rest shows at once.

    Without latents, the objective falls fastest along the leading singular vectors of what the effects leave, each row
    and column divided by the root of its share of the penalty: in those units the penalty is the same for all.
    """
    size = min(settings.latent_size, *train.shape)
    residuals, effects = subtract_effects(train, settings.effect_penalty)
    row_units, column_units = (
        np.maximum(counts, 1.0) ** (-settings.count_power / 2) for counts in (train.row_counts, train.column_counts)
    )
    scaled = (residuals * row_units[train.entry_rows] * column_units[train.by_row.columns]).astype(np.float32)
    # In single precision, which takes half the time and is more than the start needs.
    directions = np.random.default_rng(settings.seed).standard_normal((train.shape[1], size), dtype=np.float32)
    leading = truncated_svd(Sparse.of(sparse_of(train, scaled)), start=directions, steps=_START_PASSES)
    vectors = leading.column_vectors * np.sqrt(leading.values) * column_units[:, None]
    return np.column_stack([vectors, effects]).astype(np.float32)


class WithoutEffects(NamedTuple):
    """What effects leave of the values, and the effects of columns."""

    residuals: FloatArray
    column_effects: FloatArray


def subtract_effects(train: ObservedMatrix, shrinkage: float) -> WithoutEffects:
    """Return what shrunk means of columns, then of rows, leave of the values, and the column effects."""
    left = train.values.astype(np.float64) - train.mean
    effects: list[FloatArray] = []
    for which, counts in ((train.by_row.columns, train.column_counts), (train.entry_rows, train.row_counts)):
        sums = np.bincount(which, weights=left, minlength=counts.size)
        effects.append(sums / (np.maximum(counts, 1) + shrinkage))
        left = left - effects[-1][which]
    return WithoutEffects(left, effects[0])


class FeaturePrior:
    """What the features of one side say of its factors: their product with weights that are learned sweep by sweep."""

    def __init__(self, features: FeatureVectors, latents: FeatureRidge, effects: FeatureRidge, width: int) -> None:
        self._features, self._latents, self._effects = features, latents, effects
        self.weights: LatentArray = np.zeros((features.n_inputs, width), dtype=np.float32)

    @classmethod
    def of(
        cls, features: AxisFeatures | None, counts: IndexArray, latent_ridges: Any, settings: ALSSettings, width: int
    ) -> FeaturePrior | None:
        """Return the prior of a side, with weights of 0; None where there are no features.

        latent_ridges: the penalty of the latents of each row (or column), by which it counts for what features say of
        these. For the effects every entry counts the same: a new row or column is predicted at its entries, and there
        are more of those of popular ones, whose effects are larger.
        """
        if features is None:
            return None
        vectors = features.take(np.arange(counts.size))
        latents, effects = (
            FeatureRidge(vectors, each, settings.feature_penalty) for each in (latent_ridges, counts.astype(np.float64))
        )
        return cls(vectors, latents, effects, width)

    def factors(self) -> LatentArray:
        """Return what the features say of the factors."""
        return self._features.product(self.weights)

    def learn(self, factors: LatentArray) -> None:
        """Regress factors on the features."""
        weights = np.column_stack([self._latents.weights(factors[:, :-1]), self._effects.weights(factors[:, -1:])])
        self.weights = weights.astype(np.float32)


class RidgeEncoder(Encoder):
    """A row is the ridge solution of its entries given the trained columns, a column that given the trained rows.

    The base of either table of latents is what was trained, whatever has been encoded anew since.
    """

    def __init__(
        self, train: ObservedMatrix, settings: ALSSettings, feature_weights: FeatureWeights = NO_WEIGHTS
    ) -> None:
        self._train, self._settings, self.feature_weights = train, settings, feature_weights

    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return (u, b, 1, m) of each row."""
        needed, factors = _needed(entries, columns.base)
        others = np.delete(factors, (-3, -1), axis=1)
        return row_latents(self._solved(needed, others, self.feature_weights.rows), self._train.mean)

    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return (v, 1, c, 1) of each column."""
        needed, factors = _needed(entries, rows.base)
        return column_latents(self._solved(needed, factors[:, :-2], self.feature_weights.columns))

    def pack(self) -> Packed:
        """Return the weights of features."""
        return Packed({}, self.feature_weights.tensors())

    def _solved(self, entries: AxisEntries, others: LatentArray, feature_weights: LatentArray | None) -> LatentArray:
        equations = LeastSquares(entries, n_others=len(others), train=self._train, settings=self._settings)
        return equations.solve(others, compute_prior(entries, feature_weights)).factors


def row_latents(factors: LatentArray, mean: float) -> LatentArray:
    """Return (u, b, 1, m) of rows with the factors (u, b)."""
    ones = np.ones((len(factors), 1), dtype=np.float32)
    return np.hstack([factors, ones, mean * ones])


def column_latents(factors: LatentArray) -> LatentArray:
    """Return (v, 1, c, 1) of columns with the factors (v, c)."""
    ones = np.ones((len(factors), 1), dtype=np.float32)
    return np.hstack([factors[:, :-1], ones, factors[:, -1:], ones])


def _needed(entries: AxisEntries, others: LatentArray) -> tuple[AxisEntries, LatentArray]:
    """Return entries that point into the few latents they need, so that no table of all is copied for one row."""
    if entries.others.size >= len(others):
        return entries, others
    used, places = np.unique(entries.others, return_inverse=True)
    return entries._replace(others=places), others[used]


# Penalties are compared on one entry in ten, after 15 sweeps, or as soon as a sweep lowers the error by less than this
# share of it. At least 3 and at most 12 penalties are compared.
_ONE_IN, _TRIAL_SWEEPS, _LEAST_FALL, _FEWEST_TRIALS, _MOST_TRIALS = 10, 15, 1e-3, 3, 12


class ALSSolver(Solver):
    """Minimises over latents u, v and effects b, c, with m the mean and n the number of entries of a row or column:

    the sum over observed (i, j) of (x_ij - m - b_i - c_j - u_i'v_j)^2
    + penalty * width of the scale * (sum of n_i^count_power |u_i|^2 + sum of n_j^count_power |v_j|^2)
    + effect_penalty * (|b|^2 + |c|^2).

    A sweep improves all (u_i, b_i), then all (v_j, c_j), by a few steps of conjugate gradients from the last ones.
    Where there are features f_i, what is penalised is how far (u_i, b_i) is from W f_i, and W is the ridge regression
    of all (u_i, b_i) of the sweep before on the features; so for columns.
    """

    def __init__(self, entries: EntryStore, settings: ALSSettings) -> None:
        train = entries.train
        n_rows, n_columns = train.shape
        (row_starts, columns), (column_starts, rows, order) = train.by_row, train.by_column
        by_row = AxisEntries(row_starts, columns, train.values.astype(np.float64))
        self.mean = train.mean
        self.rows = LeastSquares(by_row, n_others=n_columns, train=train, settings=settings)
        by_column = AxisEntries(column_starts, rows, by_row.values[order])
        self.columns = LeastSquares(by_column, n_others=n_rows, train=train, settings=settings)
        self.column_factors = first_column_factors(train, settings)
        self.row_factors = np.zeros((n_rows, self.column_factors.shape[1]), dtype=np.float32)
        width = self.column_factors.shape[1]
        self.of_rows = FeaturePrior.of(entries.row_features, train.row_counts, self.rows.latent_ridges, settings, width)
        self.of_columns = FeaturePrior.of(
            entries.column_features, train.column_counts, self.columns.latent_ridges, settings, width
        )

    def begin_from(self, rows: FloatArray, columns: FloatArray) -> None:
        """Begin with factors learned earlier; new columns are solved for, and new rows are by the first sweep."""
        first = np.delete(columns, (-3, -1), axis=1).astype(np.float32)
        self.row_factors = rows[:, :-2].astype(np.float32)
        unknown = columns[:, -1] == 0  # where the latents of known columns have a constant
        if unknown.any():
            first[unknown] = self.columns.solve(self.row_factors).factors[unknown]
        absent = ~first.any(axis=0)
        first[:, absent] = self.column_factors[:, absent]
        self.column_factors = first

    def sweep(self) -> float:
        """Learn what features say; then improve all rows, then all columns."""
        for of, factors in ((self.of_rows, self.row_factors), (self.of_columns, self.column_factors)):
            if of is not None:
                of.learn(factors)
        row_prior, column_prior = self._priors()
        self.row_factors = self.rows.improve(self.column_factors, self.row_factors, row_prior).factors
        self.column_factors, objective = self.columns.improve(self.row_factors, self.column_factors, column_prior)
        return objective + self.rows.penalty(self.row_factors, row_prior)

    def finish(self) -> None:
        """Solve for the side that has features, so that a fold-in of the same entries and features gives its factors.

        That holds for one side alone as long as sweeps still change the other: for rows, where both have features.
        """
        row_prior, column_prior = self._priors()
        if row_prior is not None:
            self.row_factors = self.rows.solve(self.column_factors, row_prior).factors
        elif column_prior is not None:
            self.column_factors = self.columns.solve(self.row_factors, column_prior).factors

    def _priors(self) -> tuple[LatentArray | None, LatentArray | None]:
        """Return what features say of the factors of rows and of columns; None where there are no features."""
        of_rows, of_columns = self.of_rows, self.of_columns
        return (
            None if of_rows is None else of_rows.factors(),
            None if of_columns is None else of_columns.factors(),
        )

    def latents(self) -> tuple[LatentArray, LatentArray]:
        """Return (u, b, 1, m) of each row and (v, 1, c, 1) of each column."""
        return row_latents(self.row_factors, self.mean), column_latents(self.column_factors)

    def arrays(self) -> Arrays:
        """Return the factors of both sides, and the weights of features."""
        factors = {"row_factors": self.row_factors, "column_factors": self.column_factors}
        return factors | self.feature_weights.tensors()

    @property
    def feature_weights(self) -> FeatureWeights:
        """The weights of features."""
        return FeatureWeights(*(None if of is None else of.weights for of in (self.of_rows, self.of_columns)))

    def set_arrays(self, arrays: Arrays) -> None:
        """Go back to such factors."""
        self.row_factors, self.column_factors = arrays["row_factors"], arrays["column_factors"]
        for of, axis in ((self.of_rows, "rows"), (self.of_columns, "columns")):
            if of is not None:
                of.weights = arrays[f"features.{axis}"]


def choose_penalty(train: ObservedMatrix, settings: ALSSettings) -> float:
    """Return the penalty that predicts held-out entries best; that of the settings, where there are too few.

    Penalties are halved until the error rises. The second is what values that are all noise would need. Squared errors
    and penalties together let through of each singular value what is beyond the penalty (in the units of
    `first_column_factors`). The largest singular value of noise with standard deviation s is s times the root of the
    number of entries of a row plus that of a column, which the units divide by both numbers to the power of
    `count_power` / 2.
    """
    seen, held_out = split_validation(train, seed=settings.seed, one_in=_ONE_IN)
    noise = float(np.std(subtract_effects(seen, settings.effect_penalty).residuals))
    if held_out is None or noise == 0.0:
        return settings.penalty
    solver = ALSSolver(EntryStore.of(seen), settings)
    start, sides = solver.arrays(), (solver.rows, solver.columns)
    units = [side.latent_ridges / settings.penalty for side in sides]

    def find_error(penalty: float) -> float:
        solver.set_arrays(start)
        for side, unit in zip(sides, units, strict=True):
            side.latent_ridges = penalty * unit
        error = math.inf
        for _ in range(min(settings.epochs, _TRIAL_SWEEPS)):
            solver.sweep()
            rows, columns = map(Latents, solver.latents())
            products = pair_products(rows, columns, held_out.rows, held_out.columns)
            before, error = error, rmse_error(products, held_out.values)
            if not error < (1.0 - _LEAST_FALL) * before:
                break
        return error

    in_row, in_column = (seen.n_entries / n for n in seen.shape)
    largest = noise * (math.sqrt(in_row) + math.sqrt(in_column)) / (in_row * in_column) ** (settings.count_power / 2)
    first = 2.0 * largest / latent_ridges(1.0, seen.scale, replace(settings, penalty=1.0))
    errors: list[float] = []
    while len(errors) < _FEWEST_TRIALS or (len(errors) < _MOST_TRIALS and errors[-1] == min(errors)):
        errors.append(find_error(first * 0.5 ** len(errors)))
    return float(f"{first * 0.5 ** find_lowest(errors):.3g}")


def find_lowest(errors: list[float]) -> float:
    """Return where the parabola through the smallest number and its neighbours is lowest, by places in the list.

    >>> find_lowest([3.0, 1.0, 1.0]), find_lowest([1.0, 2.0])
    (1.5, 0.0)
    """
    at = int(np.argmin(errors))
    if not 0 < at < len(errors) - 1:
        return float(at)
    before, lowest, after = errors[at - 1 : at + 2]
    return at + (before - after) / (2.0 * (before - 2.0 * lowest + after))


class ALS(FactorModel):
    """Mean + row effect + column effect + u_i'v_j by alternating least squares; covers all four areas.

    A new row is the ridge solution of its entries given what was learned of the trained columns, a new column that of
    its entries given the trained rows. Settings are keyword arguments; `ALSSettings` explains them. A row or column
    without any entry has no effect and no latents.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> ALS(penalty=0.01).fit(board).predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = ALSSettings
    settings: ALSSettings
    takes_features: ClassVar[bool] = True
    predicts: ClassVar[tuple[str, ...]] = AREAS
    cannot: ClassVar[str] = ""
    n_beside: ClassVar[int] = 3  # effect, constant and mean

    def plan(self, train: ObservedMatrix, *, start_from: Model | None = None) -> FitPlan | None:
        """Return what `fit` is going to do with a matrix, in words; it does not depend on the penalty."""
        return self._plan(train, warm=start_from is not None)

    def _choose_settings(self, train: ObservedMatrix, earlier: Settings | None) -> dict[str, Any]:
        if train.scale.levels is not None or "penalty" in self._given:
            return {}
        return {"penalty": choose_penalty(train, self.settings) if earlier is None else earlier.to_dict()["penalty"]}

    def _solver(self, entries: EntryStore) -> ALSSolver:
        return ALSSolver(entries, self.settings)

    def _encoder(self, solver: ALSSolver, entries: EntryStore) -> RidgeEncoder:
        return RidgeEncoder(entries.train, self.settings, solver.feature_weights)

    def _stored_encoder(self, entries: EntryStore, tensors: Tensors) -> RidgeEncoder:
        width = self._rank(entries.train) + 1
        weights = load_feature_weights(entries, tensors, width=width, kind="float32")
        return RidgeEncoder(entries.train, self.settings, weights)
