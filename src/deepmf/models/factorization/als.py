"""ALS: matrix factorisation with row and column effects by alternating least squares, which extends by one solve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepmf.matrix.areas import AREAS
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.factorization.conjugate_gradients import improved
from deepmf.models.factorization.factorization_settings import ALSSettings
from deepmf.models.factorization.feature_prior import FeaturePrior
from deepmf.models.factorization.low_rank import Sparse, sparse_of, truncated_svd
from deepmf.models.factorization.solver import Arrays, FactorModel, Solver
from deepmf.models.feature_ridge import NO_WEIGHTS, FeatureWeights, prior, stored_weights
from deepmf.models.latents import Latents
from deepmf.models.predictor import Encoder
from deepmf.storage.packed import Packed, Tensors
from deepmf.training.declarations import takes_settings
from deepmf.training.settings import Settings

# Entries whose factors are gathered at a time: 42 numbers for each take 2.6 MB.
_ENTRIES_AT_A_TIME = 1 << 14
# Rows with fewer entries count as many, so that the Gram matrices of a group take no more than a few megabytes.
_LEAST_WIDTH = 32
# The smallest ridge as a share of the diagonal: single precision cannot solve with less.
LEAST_RIDGE = 1e-5
# Passes of the subspace iteration that the start comes from; more start lower, and end no better.
_START_PASSES = 4


class Group(NamedTuple):
    """Rows with about as many entries each, solved for together; padded to the most entries among them."""

    positions: IndexArray  # (rows,)
    others: npt.NDArray[np.int32]  # (rows, entries) their columns; one past the last column where padded
    values: LatentArray  # (rows, entries) less the mean; 0 where padded


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

        def solve_group(group: Group) -> float:
            ridges, gram = self._ridges(group, others.shape[1]), _gram(group, table)
            said = None if prior is None else factors[group.positions]
            factors[group.positions], objective = _solution(gram, ridges, said)
            return objective

        return Solved(factors, sum(_in_threads(solve_group, self._groups)))

    def improve(self, others: LatentArray, factors: LatentArray, prior: LatentArray | None = None) -> Solved:
        """Return factors of every row that are better than given ones, at a third of the cost of a solution.

        They are on the way to the solution by some steps of conjugate gradients. Rows that are longer than what is
        gathered at a time are solved for: these would be read from memory again in every step.
        """
        table = _table(others)
        squares = np.square(table[:-1, :-1]).mean(axis=0)
        better = np.zeros_like(factors) if prior is None else prior.astype(np.float32)

        def improve_group(group: Group) -> float:
            ridges, drawn_to = self._ridges(group, others.shape[1]), better[group.positions]
            if group.others.shape[1] > _ENTRIES_AT_A_TIME:
                said = None if prior is None else drawn_to
                better[group.positions], objective = _solution(_gram(group, table), ridges, said)
                return objective
            gathered = table.take(group.others, axis=0)
            gathered[..., -1] += group.values
            if prior is not None:
                gathered[..., -1] -= (gathered[..., :-1] @ drawn_to[..., None])[..., 0]
            sizes = np.maximum(self._counts[group.positions, None] * squares + ridges, np.finfo(np.float32).tiny)
            start = factors[group.positions] - drawn_to
            found = improved(gathered[..., :-1], gathered[..., -1], ridges=ridges, sizes=sizes, start=start)
            better[group.positions] += found.factors
            penalty = np.sum(ridges * np.square(found.factors), dtype=np.float64)
            return float(np.square(found.left).sum(dtype=np.float64) + penalty)

        return Solved(better, sum(_in_threads(improve_group, self._groups)))

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
        return _row_latents(self.row_factors, self.mean), _column_latents(self.column_factors)

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
        return _row_latents(self._solved(needed, others, self.feature_weights.rows), self._train.mean)

    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return (v, 1, c, 1) of each column."""
        needed, factors = _needed(entries, rows.base)
        return _column_latents(self._solved(needed, factors[:, :-2], self.feature_weights.columns))

    def pack(self) -> Packed:
        """Return the weights of features."""
        return Packed({}, self.feature_weights.tensors())

    def _solved(self, entries: AxisEntries, others: LatentArray, feature_weights: LatentArray | None) -> LatentArray:
        equations = LeastSquares(entries, n_others=len(others), train=self._train, settings=self._settings)
        return equations.solve(others, prior(entries, feature_weights)).factors


def _needed(entries: AxisEntries, others: LatentArray) -> tuple[AxisEntries, LatentArray]:
    """Return entries that point into the few latents they need, so that no table of all is copied for one row."""
    if entries.others.size >= len(others):
        return entries, others
    used, places = np.unique(entries.others, return_inverse=True)
    return entries._replace(others=places), others[used]


class ALS(FactorModel):
    """Mean + row effect + column effect + u_i'v_j by alternating least squares; covers all four areas.

    A new row is the ridge solution of its entries given what was learned of the trained columns, a new column that of
    its entries given the trained rows. Settings are keyword arguments; `ALSSettings` explains them. A row or column
    without any entry has no effect and no latents.

    >>> from deepmf.data.synthetic import checkerboard
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

    @takes_settings(ALSSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def _solver(self, entries: EntryStore) -> ALSSolver:
        return ALSSolver(entries, self.settings)

    def _encoder(self, solver: ALSSolver, entries: EntryStore) -> RidgeEncoder:
        return RidgeEncoder(entries.train, self.settings, solver.feature_weights)

    def _stored_encoder(self, entries: EntryStore, tensors: Tensors) -> RidgeEncoder:
        width = self._rank(entries.train) + 1
        weights = stored_weights(entries, tensors, width=width, kind="float32")
        return RidgeEncoder(entries.train, self.settings, weights)


def latent_ridges(counts: Any, scale: Scale, settings: ALSSettings) -> Any:
    """Return the weights of the squared latents of rows by their numbers of entries, an array or a tensor as these."""
    width = scale.high - scale.low or 1.0  # a scale of one value has no width
    return settings.penalty * width * counts**settings.count_power


def first_column_factors(train: ObservedMatrix, settings: ALSSettings) -> LatentArray:
    """Return column factors to start from (columns, latent + 1): shrunk means, and what the rest shows at once.

    Without latents, the objective falls fastest along the leading singular vectors of what the effects leave, each row
    and column divided by the root of its share of the penalty: in those units the penalty is the same for all.
    """
    size = min(settings.latent_size, *train.shape)
    residuals, effects = _without_effects(train, settings.effect_penalty)
    row_units, column_units = (
        np.maximum(counts, 1.0) ** (-settings.count_power / 2) for counts in (train.row_counts, train.column_counts)
    )
    scaled = (residuals * row_units[train.entry_rows] * column_units[train.by_row.columns]).astype(np.float32)
    # In single precision, which takes half the time and is more than the start needs.
    directions = np.random.default_rng(settings.seed).standard_normal((train.shape[1], size), dtype=np.float32)
    leading = truncated_svd(Sparse.of(sparse_of(train, scaled)), start=directions, steps=_START_PASSES)
    vectors = leading.column_vectors * np.sqrt(leading.values) * column_units[:, None]
    return np.column_stack([vectors, effects]).astype(np.float32)


def _without_effects(train: ObservedMatrix, shrinkage: float) -> tuple[FloatArray, FloatArray]:
    """Return what shrunk means of columns, then of rows, leave of the values, and the column effects."""
    left = train.values.astype(np.float64) - train.mean
    effects: list[FloatArray] = []
    for which, counts in ((train.by_row.columns, train.column_counts), (train.entry_rows, train.row_counts)):
        sums = np.bincount(which, weights=left, minlength=counts.size)
        effects.append(sums / (np.maximum(counts, 1) + shrinkage))
        left = left - effects[-1][which]
    return left, effects[0]


def _groups(entries: AxisEntries, *, n_others: int, mean: float) -> Iterator[Group]:
    """Yield groups of rows, those with most entries first, each of a bounded number of padded entries."""
    starts, counts = entries.starts[:-1].astype(np.int64), np.diff(entries.starts)
    left = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    while left.size:
        width = int(counts[left[0]])
        positions, left = np.split(left, [max(1, _ENTRIES_AT_A_TIME // max(width, _LEAST_WIDTH))])
        places = np.arange(width)
        observed = places < counts[positions, None]
        places = np.where(observed, starts[positions, None] + places, 0)
        yield Group(
            positions,
            np.where(observed, entries.others[places], n_others).astype(np.int32),
            np.where(observed, entries.values[places] - mean, 0.0).astype(np.float32),
        )


def _in_threads(solve: Callable[[Group], float], groups: list[Group]) -> list[float]:
    """Solve groups by as many threads as torch uses, which gather, multiply and eliminate without the interpreter.

    Each thread works alone: left to themselves, they would cut every product, small as it is, into pieces for further
    threads, and mostly wait for each other.
    """
    n_threads = torch.get_num_threads()
    if min(n_threads, len(groups)) <= 1:
        return list(map(solve, groups))
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as threads:
            return list(threads.map(solve, groups))
    finally:
        torch.set_num_threads(n_threads)


def _table(factors: LatentArray) -> LatentArray:
    """Return (v_j, 1, -c_j) for each column, and zeros for padding: (columns + 1, latent + 2)."""
    n_columns, width = factors.shape
    table = np.zeros((n_columns + 1, width + 1), dtype=np.float32)
    table[:-1, :-2], table[:-1, -2], table[:-1, -1] = factors[:, :-1], 1.0, -factors[:, -1]
    return table


def _gram(group: Group, table: LatentArray) -> Tensor:
    """Return the Gram matrices (rows, latent + 2, latent + 2) of (v_j, 1, x_ij - m - c_j) over each row's entries."""
    gram = torch.zeros(group.positions.size, *table.shape[1:] * 2, dtype=torch.float32)
    for start in range(0, group.others.shape[1], _ENTRIES_AT_A_TIME):
        some = slice(start, start + _ENTRIES_AT_A_TIME)
        gathered = table.take(group.others[:, some], axis=0)
        gathered[..., -1] += group.values[:, some]
        vectors = torch.from_numpy(gathered)
        gram += vectors.mT @ vectors
    return gram


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


def _row_latents(factors: LatentArray, mean: float) -> LatentArray:
    ones = np.ones((len(factors), 1), dtype=np.float32)
    return np.hstack([factors, ones, mean * ones])


def _column_latents(factors: LatentArray) -> LatentArray:
    ones = np.ones((len(factors), 1), dtype=np.float32)
    return np.hstack([factors[:, :-1], ones, factors[:, -1:], ones])
