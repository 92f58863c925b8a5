"""OptSpace, rank-k recovery and RDMC: completion by a matrix of low rank, and the linear algebra
they share."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from deepmf.linalg.products import multiply_entries
from deepmf.linalg.svd import (
    CELLS_AT_A_TIME,
    LowRank,
    compute_krylov_svd,
    compute_truncated_svd,
    make_sparse,
    multiply_row_blocks,
    multiply_sparse,
    multiply_sum,
    orthonormalise,
    soft_threshold,
)
from deepmf.matrix.arrays import BoolArray, FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.solver import Arrays, FactorModel, Solver
from deepmf.scoring.readouts import LevelReadout
from deepmf.training.settings import WIDEST, LoopSettings, Settings, setting, settings_dataclass

# A penalty that has grown so far satisfies its constraint to all digits that matter; more growth
# would lose digits.
_MOST_GROWTH = 1e9


def grow_penalty(penalty: float, growth: float, sweeps: int) -> float:
    """Return a penalty after some sweeps, each of which multiplies it by `growth`; by 1e9 at most
    in total."""
    return penalty * math.exp(min(sweeps * math.log(growth), math.log(_MOST_GROWTH)))


@settings_dataclass
class OptSpaceSettings(LoopSettings):
    """The settings of OptSpace; `latent_size` was chosen on validation entries of MovieLens-1M."""

    epochs: int = setting(50, "Number of gradient steps.", low=1)
    latent_size: int = setting(
        12, "Rank r; at most the smaller side of the matrix.", low=1, high=WIDEST
    )
    trimming: float = setting(
        2.0,
        "The start leaves out rows and columns with more entries than this many times the mean.",
        low=1.0,
    )


# Powers of the Gram matrix in the Krylov space of the start: on MovieLens-1M, rank 20, its vectors
# are right to 1e-7.
_POWERS = 20

# The parabola is below its start up to twice its minimiser, and F, for which S is solved anew, is
# flatter: long steps pay. Twice was erratic from rank to rank on validation entries of
# MovieLens-1M, once slow.
_OVERSHOOT = 1.8

# A step must bring this share of the fall that the slope promises; a promise of less than this
# share of the squared values is lost in rounding, and not worth a trial.
_LEAST_FALL, _ROUNDING = 1e-4, 1e-14


class Spaces(NamedTuple):
    """A pair of subspaces: orthonormal bases X (rows, latent) and Y (columns, latent); also a
    direction to move in."""

    rows: FloatArray
    columns: FloatArray

    def move(self, direction: Spaces, step: float) -> Spaces:
        """Return the spaces after a step in a direction, back on the manifolds by a QR
        decomposition."""
        return Spaces(
            *(orthonormalise(space + step * to) for space, to in zip(self, direction, strict=True))
        )


class Point(NamedTuple):
    """The best matrix X S Y' of two spaces: its core S (latent, latent), its residuals (entries,),
    and F."""

    spaces: Spaces
    core: FloatArray
    residuals: FloatArray
    objective: float


class OptSpaceSolver(Solver):
    """Minimises F(X, Y) = min_S 1/2 sum over observed (i, j) of ((X S Y')_ij - M_ij)^2 over pairs
    of subspaces.

    M are the values less their mean. The start is the leading singular vectors of M with zeros for
    what is missing, after trimming (rescaling by cells / entries, as the paper does, changes
    singular values alone, and S is solved for anyway). A sweep is one step of gradient descent on
    the two Grassmann manifolds with backtracking.
    """

    def __init__(self, train: ObservedMatrix, settings: OptSpaceSettings) -> None:
        self._train, self.mean = train, train.mean
        self.entry_rows, self.entry_columns = train.entry_rows, train.by_row.columns
        self.values = train.values.astype(np.float64) - self.mean
        self._rounding = _ROUNDING * float(self.values @ self.values)
        self._centred, self._observed = (
            make_sparse(train, entry_values)
            for entry_values in (self.values, np.ones_like(self.values))
        )
        trimmed = make_sparse(
            train, np.where(find_light_entries(train, settings.trimming), self.values, 0.0)
        )
        rank = min(settings.latent_size, *train.shape)
        directions = np.random.default_rng(settings.seed).standard_normal((train.shape[1], rank))
        start = compute_krylov_svd(multiply_sparse(trimmed), start=directions, powers=_POWERS)
        self.point = self.solve_core(Spaces(start.row_vectors, start.column_vectors))

    def sweep(self) -> float:
        """Step downhill, at first by 1.8 times the minimiser of the parabola that holds S fixed,
        then by less."""
        gradient = self.compute_gradient()
        squared_slope = sum(float(np.sum(part * part)) for part in gradient)
        downhill = Spaces(*(-part for part in gradient))
        change = self._predict_change(downhill)
        bend = float(change @ change)
        step = _OVERSHOOT * squared_slope / bend if bend > 0 else 0.0
        while step * squared_slope > self._rounding:
            trial = self.solve_core(self.point.spaces.move(downhill, step))
            if trial.objective <= self.point.objective - _LEAST_FALL * step * squared_slope:
                self.point = trial
                break
            step /= 2.0
        return self.point.objective

    def solve_core(self, spaces: Spaces) -> Point:
        """Return the best matrix of two spaces."""
        core = self.find_best_core(spaces)
        residuals = self._multiply_at_entries(spaces.rows @ core, spaces.columns) - self.values
        return Point(spaces, core, residuals, 0.5 * float(residuals @ residuals))

    def find_best_core(self, spaces: Spaces) -> FloatArray:
        """Return the S that minimises the error, by its normal equations; the smallest where many
        do.

        With x_i and y_j for rows of X and Y, S_cd has in the equation of S_ab the coefficient sum
        over observed (i, j) of x_ia x_ic y_jb y_jd: a sum over rows i of products of x_i by sums
        over columns j of products of y_j. As products of pairs, only half of either is needed.
        """
        rank = spaces.rows.shape[1]
        first, second = np.triu_indices(rank)
        row_pairs, column_pairs = (space[:, first] * space[:, second] for space in spaces)
        sums = row_pairs.T @ (self._observed @ column_pairs)  # (pairs, pairs)
        pair = np.empty((rank, rank), dtype=np.intp)
        pair[first, second] = pair[second, first] = np.arange(first.size)
        coefficients = sums[pair[:, None, :, None], pair[None, :, None, :]].reshape(
            rank**2, rank**2
        )
        right = spaces.rows.T @ (self._centred @ spaces.columns)
        core: FloatArray = np.linalg.lstsq(coefficients, right.ravel(), rcond=1e-12)[0].reshape(
            rank, rank
        )
        return core

    def compute_gradient(self) -> Spaces:
        """Return the gradient of F: R Y S' and R' X S, where R are the sparse residuals.

        It is tangent to the manifolds as it stands, for X'RY = 0 are the normal equations of S.
        """
        (rows, columns), core, residuals, _ = self.point
        sparse = make_sparse(self._train, residuals)
        return Spaces(sparse @ (columns @ core.T), sparse.T @ (rows @ core))

    def _predict_change(self, direction: Spaces) -> FloatArray:
        """Return the first-order change (entries,) of the observed entries of X S Y' along a
        direction."""
        (rows, columns), core = self.point.spaces, self.point.core
        row_latents = np.hstack([direction.rows @ core, rows @ core])
        return self._multiply_at_entries(row_latents, np.hstack([columns, direction.columns]))

    def _multiply_at_entries(
        self, row_latents: FloatArray, column_latents: FloatArray
    ) -> FloatArray:
        """Return the inner products (entries,) of latents where an entry is observed."""
        return multiply_entries(row_latents, column_latents, self.entry_rows, self.entry_columns)

    def compute_latents(self) -> tuple[FloatArray, FloatArray]:
        """Return X P d and Y Q d, where S = P d^2 Q', and a further column for the mean."""
        (rows, columns), core = self.point.spaces, self.point.core
        left_vectors, values, right = np.linalg.svd(core)
        return LowRank(rows @ left_vectors, values, columns @ right.T).make_latents(self.mean)

    def get_arrays(self) -> Arrays:
        """Return the two spaces, which determine everything else."""
        return dict(self.point.spaces._asdict())

    def set_arrays(self, arrays: Arrays) -> None:
        self.point = self.solve_core(Spaces(**arrays))


def find_light_entries(matrix: ObservedMatrix, most: float) -> BoolArray:
    """Return which entries lie in a row and a column with at most `most` times the mean number of
    entries."""
    light_rows, light_columns = (
        counts <= most * counts.mean() for counts in (matrix.row_counts, matrix.column_counts)
    )
    kept: BoolArray = light_rows[matrix.entry_rows] & light_columns[matrix.by_row.columns]
    return kept


class OptSpace(FactorModel):
    """OptSpace (Keshavan, Montanari and Oh, "Matrix Completion from a Few Entries", 2009) on values
    less their mean.

    The paper's penalty on coherence is left out: on MovieLens-1M it overflows at the start.
    Settings are keyword arguments, see `OptSpaceSettings`. A row or column without any entry is
    predicted by the mean.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> OptSpace(latent_size=1).fit(board).predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = OptSpaceSettings
    settings: OptSpaceSettings
    solver_class = OptSpaceSolver


@settings_dataclass
class RankKSettings(LoopSettings):
    """The settings of RankK; the defaults were chosen on validation entries of MovieLens-1M.

    Of several settings that do as well there (within 0.005), these are also robust against gross
    errors. Errors above 1 / mu count as gross, so with a small `penalty` the first sweeps are least
    squares, from which few fits recover. As mu grows, X changes less. Slow growth needs more sweeps
    and reaches a lower error; a growth of 1.05 or more needs a smaller `penalty`.
    """

    epochs: int = 300
    latent_size: int = setting(
        5, "Rank k; at most the smaller side of the matrix.", low=1, high=WIDEST
    )
    penalty: float = setting(
        1.0,
        "Penalty mu in the first sweep, divided by the mean absolute deviation of the entries.",
        above=0.0,
    )
    penalty_growth: float = setting(1.01, "Factor on mu after each sweep.", low=1.0)


class LagrangianSolver(Solver):
    """The base class of solvers that minimise the sum of |X - M| over the observed entries by an
    augmented Lagrangian.

    Multipliers Lambda, and a penalty mu that grows with each sweep, hold E = X - M. X or a copy of
    it has low rank.
    """

    # the arrays that the next sweep depends on, beside the matrix of low rank
    kept_names: ClassVar[tuple[str, ...]]
    mean: float
    targets: FloatArray  # M
    fitted: FloatArray  # the matrix of low rank on the observed entries

    def __init__(
        self, train: ObservedMatrix, settings: RankKSettings | RDMCSettings, first_penalty: float
    ) -> None:
        self._train, self._settings, self._first_penalty = train, settings, first_penalty
        self._rows, self._columns = train.entry_rows, train.by_row.columns
        self.low_rank = LowRank.zero(train.shape, rank=settings.latent_size, seed=settings.seed)
        self.errors = np.zeros_like(self.targets)  # E
        self.multipliers = np.zeros_like(self.targets)  # Lambda
        self.n_sweeps = 0

    @property
    def penalty(self) -> float:
        """The penalty mu of the current sweep."""
        return grow_penalty(self._first_penalty, self._settings.penalty_growth, self.n_sweeps)

    @property
    def matrix_values(self) -> FloatArray:
        """X on the observed entries."""
        return self.fitted

    def compute_fitted(self) -> FloatArray:
        """Return the matrix of low rank on the observed entries, in the units of the targets."""
        return self.low_rank.predict(self._rows, self._columns)

    def update_errors(self) -> None:
        """Minimise the Lagrangian over E: a soft threshold."""
        shifted = self.matrix_values - self.targets + self.multipliers / self.penalty
        self.errors = soft_threshold(shifted, 1.0 / self.penalty)

    def update_multipliers(self) -> None:
        """Update the multipliers by the violation of the constraint, and increase the penalty."""
        self.multipliers = self.multipliers + self.penalty * (
            self.matrix_values - self.targets - self.errors
        )
        self.n_sweeps += 1

    def compute_latents(self) -> tuple[FloatArray, FloatArray]:
        """Return the factors of the matrix of low rank, and a further column for the mean."""
        return self.low_rank.make_latents(self.mean)

    def get_arrays(self) -> Arrays:
        """Return the matrix of low rank, the arrays to keep and the number of sweeps."""
        kept_arrays = {name: getattr(self, name) for name in self.kept_names}
        return {**self.low_rank._asdict(), **kept_arrays, "n_sweeps": np.array(self.n_sweeps)}

    def set_arrays(self, arrays: Arrays) -> None:
        self.low_rank = LowRank(*(arrays[name] for name in LowRank._fields))
        self.fitted, self.n_sweeps = self.compute_fitted(), int(arrays["n_sweeps"])
        for name in self.kept_names:
            setattr(self, name, arrays[name])


# Steps of subspace iteration in a sweep, from the vectors of the last sweep.
_RANK_K_SVD_STEPS = 2


class RankKSolver(LagrangianSolver):
    """Minimises the sum of |X - M| over the observed entries over all X of rank k.

    M are the values less their mean. With errors E = X - M and multipliers Lambda, all on the
    observed entries,

        L(X, E) = |E|_1 + <Lambda, X - M - E> + mu / 2 ||X - M - E||^2

    is minimised over E (a soft threshold) and lowered over X: what is missing is filled in by the X
    at hand, and the best rank-k matrix to that is a truncated SVD of low rank + sparse. Then Lambda
    += mu (X - M - E), and mu grows.
    """

    kept_names = ("multipliers",)

    def __init__(self, train: ObservedMatrix, settings: RankKSettings) -> None:
        self.mean = train.mean
        self.targets = train.values.astype(np.float64) - self.mean  # M
        deviation = float(np.abs(self.targets).mean())
        super().__init__(train, settings, settings.penalty / (deviation or 1.0))
        self.fitted = np.zeros_like(self.targets)

    def sweep(self) -> float:
        """Update errors, matrix and multipliers; return the mean absolute error."""
        self.update_errors()
        self.update_low_rank()
        self.update_multipliers()
        return float(np.abs(self.fitted - self.targets).mean())

    def update_low_rank(self) -> None:
        """Lower L over X of rank k."""
        low_rank_target = self.targets + self.errors - self.multipliers / self.penalty
        filled = multiply_sum(
            self.low_rank, make_sparse(self._train, low_rank_target - self.fitted)
        )
        self.low_rank = compute_truncated_svd(
            filled, start=self.low_rank.column_vectors, steps=_RANK_K_SVD_STEPS
        )
        self.fitted = self.compute_fitted()


class RankK(FactorModel):
    """Rank-k matrix recovery (Huang et al., "Social Trust Prediction Using Rank-k Matrix Recovery",
    IJCAI 2013).

    The paper leaves its solver's details open; ours are in `RankKSolver`. The mean is subtracted
    first. Settings are keyword arguments, see `RankKSettings`. A row or column without any entry is
    predicted by the mean.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> RankK(latent_size=1).fit(board).predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = RankKSettings
    settings: RankKSettings
    solver_class = RankKSolver


@settings_dataclass
class RDMCSettings(LoopSettings):
    """The settings of RDMC; the defaults were chosen on validation entries of MovieLens-1M.

    Both penalties are divided by the mean absolute deviation of the entries. The paper's hard
    constraint is an infinite nu; ours starts small and exceeds mu after about 100 sweeps. Levels do
    not help on MovieLens-1M: a `level_penalty` of 0 is as good, and more `epochs` or a larger nu
    are worse.
    """

    epochs: int = 70
    latent_size: int = setting(
        10, "Largest rank of Z; at most the smaller side of the matrix.", low=1, high=WIDEST
    )
    gamma: float = setting(
        0.4,
        "Weight of the nuclear norm, relative to the spectral norm of random signs at the observed entries.",
        low=0.0,
    )
    penalty: float = setting(0.3, "Penalty mu in the first sweep.", above=0.0)
    penalty_growth: float = setting(1.03, "Factor on mu after each sweep.", low=1.0)
    level_penalty: float = setting(
        3e-4, "Penalty nu in the first sweep, which pulls X towards the levels.", low=0.0
    )
    level_penalty_growth: float = setting(1.1, "Factor on nu after each sweep.", low=1.0)


# Steps of subspace iteration in a sweep, from the vectors of the last sweep; each makes all blocks
# of rows twice.
_RDMC_SVD_STEPS = 1


class RDMCSolver(LagrangianSolver):
    """Minimises the sum of |X - M| over the observed entries + gamma * (nuclear norm of X), X drawn
    to the levels.

    The constraint that every entry of X is a level is held by a penalty nu that grows. With errors
    E = X - M on the observed entries, a copy Z + mean of X for the nuclear norm, and multipliers
    Lambda and Y on the observed entries,

        L(E, X, Z) = |E|_1 + <Lambda, X - M - E> + mu / 2 ||X - M - E||^2
                     + nu / 2 ||X - nearest levels||^2
                     + gamma ||Z||_* + <Y, X - mean - Z> + mu / 2 ||X - mean - Z||^2

    is minimised over E (a soft threshold), over X (a part of the way to the nearest level) and over
    Z (a threshold on singular values) in turn. Then the multipliers move, and both penalties grow.
    There are no multipliers where nothing is observed: X is a function of Z there, of which only a
    block of rows is ever made.
    """

    kept_names = ("discrete", "multipliers", "copy_multipliers")

    def __init__(
        self,
        train: ObservedMatrix,
        settings: RDMCSettings,
        *,
        cells_at_a_time: int = CELLS_AT_A_TIME,
    ) -> None:
        train.scale.require_levels("RDMC")
        self.targets = train.values.astype(np.float64)  # M
        self.mean = float(self.targets.mean())
        deviation = float(np.abs(self.targets - self.mean).mean())
        unit = 1.0 / (deviation or 1.0)
        super().__init__(train, settings, unit * settings.penalty)
        self._cells_at_a_time = cells_at_a_time
        self._first_level_penalty, self._level_growth = (
            unit * settings.level_penalty,
            settings.level_penalty_growth,
        )
        self.gamma = settings.gamma * sum(np.sqrt(train.n_entries / size) for size in train.shape)
        self.fitted = np.full_like(self.targets, self.mean)  # Z + mean on the observed entries
        self.discrete = self.fitted  # X on the observed entries
        self.copy_multipliers = np.zeros_like(self.targets)  # Y

    @property
    def level_penalty(self) -> float:
        """The penalty nu of the current sweep."""
        return grow_penalty(self._first_level_penalty, self._level_growth, self.n_sweeps)

    def sweep(self) -> float:
        """Update errors, discrete matrix, low-rank copy and multipliers; return the objective per
        observed entry.

        It is that of Z + mean, so it falls while nu is small, and rises again as the levels take
        hold.
        """
        self.update_errors()
        self.update_discrete()
        self.update_low_rank()
        self.update_multipliers()
        absolute_error = np.abs(self.fitted - self.targets).sum()
        return float(absolute_error + self.gamma * self.low_rank.values.sum()) / self.targets.size

    @property
    def matrix_values(self) -> FloatArray:
        return self.discrete

    def update_discrete(self) -> None:
        """Minimise L over the observed entries of X; `update_low_rank` handles the others block by
        block."""
        from_errors = self.targets + self.errors - self.multipliers / self.penalty
        from_copy = self.fitted - self.copy_multipliers / self.penalty
        middle = (from_errors + from_copy) / 2.0
        share = self.level_penalty / (2.0 * self.penalty + self.level_penalty)
        self.discrete = pull_to_levels(middle, self._train.scale, share=share)

    def update_low_rank(self) -> None:
        """Minimise L over Z."""
        row_latents, column_latents = self.low_rank.make_latents(self.mean)
        observed = self.discrete + self.copy_multipliers / self.penalty
        starts, share = (
            self._train.by_row.starts,
            self.level_penalty / (self.penalty + self.level_penalty),
        )

        def make_discrete_rows(batch: slice) -> FloatArray:
            rows = pull_to_levels(
                row_latents[batch] @ column_latents.T, self._train.scale, share=share
            )
            entries = slice(starts[batch.start], starts[batch.stop])
            rows[self._rows[entries] - batch.start, self._columns[entries]] = observed[entries]
            return rows - self.mean

        matrix = multiply_row_blocks(self._train.shape, make_discrete_rows, self._cells_at_a_time)
        nearest = compute_truncated_svd(
            matrix, start=self.low_rank.column_vectors, steps=_RDMC_SVD_STEPS
        )
        self.low_rank = nearest._replace(
            values=soft_threshold(nearest.values, self.gamma / self.penalty)
        )
        self.fitted = self.compute_fitted()

    def update_multipliers(self) -> None:
        """Update the multipliers by the violation of both constraints, and increase both
        penalties."""
        self.copy_multipliers = self.copy_multipliers + self.penalty * (self.discrete - self.fitted)
        super().update_multipliers()

    def compute_fitted(self) -> FloatArray:
        return self.mean + super().compute_fitted()


def pull_to_levels(values: FloatArray, scale: Scale, *, share: float) -> FloatArray:
    """Move each value a share of the way to its nearest level.

    With share = nu / (mu + nu) it minimises nu / 2 (distance to the nearest level)^2 + mu / 2 (x -
    value)^2.
    """
    return values + share * (scale.nearest_level(values) - values)


class RDMC(FactorModel):
    """Robust discrete matrix completion (Huang, Nie and Huang, "Robust Discrete Matrix Completion",
    AAAI 2013).

    Predictions are the levels nearest to the scores; rankings use the scores. The scale needs at
    least two levels. The paper leaves the details of its solver open (`RDMCSolver`). Ours pulls
    entries towards levels gradually, with the default number of sweeps a tenth of the way: if they
    are held to levels from the first sweep, missing entries stay at the levels they start from.
    Settings are keyword arguments, see `RDMCSettings`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> RDMC().fit(board).predict([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = RDMCSettings
    settings: RDMCSettings
    solver_class = RDMCSolver

    def _make_readout(self, solver: Any, scale: Scale) -> LevelReadout:
        return LevelReadout(scale)
