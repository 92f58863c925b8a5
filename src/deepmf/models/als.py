"""ALS: matrix factorisation with row and column effects by alternating least squares.

With m the mean, b and c the effects, u and v the latents, w the weights of entries (1 unless they
are given), and n the total weights of rows and columns, which are their entry counts unless weights
are given, it minimises

    sum over observed (i, j) of w_ij (x_ij - m - b_i - c_j - u_i'v_j)^2
    + penalty * width of the scale * sum of n_i^count_power |u_i|^2
    + penalty * width of the scale * sum of n_j^count_power |v_j|^2
    + effect_penalty * (|b|^2 + |c|^2)

by improving all rows given the columns, then all columns given the rows. A fold-in is the solution
of one row.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from deepmf.linalg.ridge import (
    Batch,
    Buffer,
    Held,
    Limits,
    compute_grams,
    descend,
    lay_out,
    make_table,
    multiply_inputs,
    run_batches,
    solve_bordered,
)
from deepmf.linalg.svd import compute_truncated_svd, make_sparse, multiply_sparse
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.means import (
    NO_WEIGHTS,
    FeatureRidge,
    FeatureWeights,
    compute_prior,
    load_feature_weights,
)
from deepmf.models.solver import Arrays, FactorModel, Solver
from deepmf.models.traits import Recommends
from deepmf.scoring.arrivals import TrainedRows
from deepmf.scoring.encoders import SolvingEncoder
from deepmf.scoring.latents import Latents, multiply_each, pair_products
from deepmf.storage.model_file import Packed, Tensors
from deepmf.training.holdout import HeldOut
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
class ALSSettings(LoopSettings, RecommendationSettings):
    """The settings of ALS; the defaults were chosen on validation entries of MovieLens-1M.

    On MovieLens-1M and on generated matrices of many shapes, the best `penalty` times the width of
    the scale is 1 to 2 standard deviations of the noise. On a scale without levels, `fit` chooses
    the penalty.

    A `count_power` of 1 gives the penalty of Zhou et al., "Large-scale parallel collaborative
    filtering for the Netflix prize", 2008. The validation error mostly rises after a few sweeps.
    With a `patience` of 6, none of the recipes' 50 fits stops before its best sweep; with a
    patience of 2, 8 of them would.
    """

    chosen_at_fit: ClassVar[Collection[str]] = ("penalty", *RECOMMENDATION)

    epochs: int = setting(
        15, "Number of sweeps; a sweep solves for all rows, then for all columns.", low=1
    )
    patience: int | None = 6
    latent_size: int = setting(
        40,
        "Latent size without the effect; at most the smaller side of the matrix.",
        low=1,
        high=WIDEST,
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
    effect_penalty: float = setting(
        3.0, "Weight of the L2 penalty on row and column effects.", low=0.0
    )
    feature_penalty: float = setting(
        10.0, "Ridge penalty on the weights of features, as a number of rows or columns.", above=0.0
    )


# Conjugate gradient steps of a row in a sweep: with 3 steps, sweeps are as good as with exact
# solutions (docs/log.md).
_MOST_STEPS = 3

# A row's steps end when a step lowers the squared errors by less than this share: the next step
# would gain a tenth of that, and validation errors stay the same to 1e-4 in every sweep
# (docs/log.md).
_LEAST_GAIN = 3e-4

LIMITS = Limits(least_filled=0.0, rows_at_a_time=1, piece=192)

# The smallest ridge as a share of the diagonal: single precision cannot solve with less.
LEAST_RIDGE = 1e-5

# Steps of the subspace iteration that starts the columns; more steps start lower and end no better.
_START_STEPS = 4

# `choose_penalty` compares 3 to 12 penalties on one entry in ten, each after 15 sweeps or as soon
# as a sweep lowers the error by less than this share.
_ONE_IN, _TRIAL_SWEEPS, _LEAST_FALL, _FEWEST_TRIALS, _MOST_TRIALS = 10, 15, 1e-3, 3, 12


class ALSSolver(Solver):
    """Minimises the objective at the top of this file by sweeps over rows and columns.

    A sweep improves all (u_i, b_i), then all (v_j, c_j), by a few conjugate gradient steps from
    their last values. With features f_i, the penalty is on the distance of (u_i, b_i) from W f_i,
    where W is the ridge regression of all (u_i, b_i) of the last sweep on the features; likewise
    for columns.
    """

    def __init__(
        self,
        entries: EntryStore,
        settings: ALSSettings,
        *,
        limits: Limits = LIMITS,
        least_gain: float = _LEAST_GAIN,
    ) -> None:
        train = entries.train
        n_rows, n_columns = train.shape
        (row_starts, columns), (column_starts, rows, order) = train.by_row, train.by_column
        by_row = AxisEntries(
            row_starts, columns, train.values.astype(np.float64), extras=train.extras
        )
        by_column = AxisEntries(
            column_starts, rows, by_row.values[order], extras=train.extras.take(order)
        )
        self.mean = train.mean
        self.rows, self.columns = (
            LeastSquares(
                each,
                n_others=n,
                train=train,
                settings=settings,
                limits=limits,
                least_gain=least_gain,
            )
            for each, n in ((by_row, n_columns), (by_column, n_rows))
        )
        self.column_factors = start_columns(train, settings)
        width = self.column_factors.shape[1]
        self.row_factors = np.zeros((n_rows, width), dtype=np.float32)
        sides = (
            (entries.row_features, by_row, self.rows.latent_ridges),
            (entries.column_features, by_column, self.columns.latent_ridges),
        )
        self._regressions = [
            None
            if features is None
            else FeatureRegression(features, own.totals, ridges, settings, width)
            for features, own, ridges in sides
        ]

    def sweep(self) -> float:
        """Regress factors on features, then improve all rows, then all columns; return the
        objective."""
        for regression, factors in zip(
            self._regressions, (self.row_factors, self.column_factors), strict=True
        ):
            if regression is not None:
                regression.learn(factors)
        row_prior, column_prior = self._compute_priors()
        self.row_factors = self.rows.improve(
            self.column_factors, self.row_factors, row_prior
        ).factors
        self.column_factors, objective = self.columns.improve(
            self.row_factors, self.column_factors, column_prior
        )
        return objective + self.rows.compute_penalty(self.row_factors, row_prior)

    def finish(self) -> None:
        """Solve for the side that has features, so that a fold-in of the same entries and features
        gives its factors.

        If both sides have features, only the rows are solved for, because each side depends on the
        other.
        """
        row_prior, column_prior = self._compute_priors()
        if row_prior is not None:
            self.row_factors = self.rows.solve(self.column_factors, row_prior).factors
        elif column_prior is not None:
            self.column_factors = self.columns.solve(self.row_factors, column_prior).factors

    def _compute_priors(self) -> list[LatentArray | None]:
        return [
            None if regression is None else regression.predict() for regression in self._regressions
        ]

    def compute_latents(self) -> tuple[LatentArray, LatentArray]:
        """Return (u, b, 1, m) of each row and (v, 1, c, 1) of each column."""
        return make_row_latents(self.row_factors, self.mean), make_column_latents(
            self.column_factors
        )

    def get_arrays(self) -> Arrays:
        factors = {"row_factors": self.row_factors, "column_factors": self.column_factors}
        return factors | self.feature_weights.list_tensors()

    def set_arrays(self, arrays: Arrays) -> None:
        self.row_factors, self.column_factors = arrays["row_factors"], arrays["column_factors"]
        for regression, axis in zip(self._regressions, FeatureWeights._fields, strict=True):
            if regression is not None:
                regression.weights = arrays[f"features.{axis}"]

    @property
    def feature_weights(self) -> FeatureWeights:
        """The weights of features."""
        return FeatureWeights(
            *(
                None if regression is None else regression.weights
                for regression in self._regressions
            )
        )


def start_columns(train: ObservedMatrix, settings: ALSSettings) -> LatentArray:
    """Return column factors (columns, latent + 1) to start from: leading singular vectors, and
    shrunk means.

    From latents of 0, the objective falls fastest along the leading singular vectors of the
    residuals of the effects, with each row and column divided by the root of its share of the
    penalty: in these units all penalties are equal.
    """
    size = min(settings.latent_size, *train.shape)
    residuals, effects = subtract_effects(train, settings.effect_penalty)
    power = -settings.count_power / 2
    row_units, column_units = (
        np.maximum(totals, 1.0) ** power for totals in count_by_weight(train)
    )
    residuals = residuals if train.weights is None else residuals * train.weights
    scaled = (residuals * row_units[train.entry_rows] * column_units[train.by_row.columns]).astype(
        np.float32
    )
    # Single precision takes half the time and is precise enough for a start.
    directions = np.random.default_rng(settings.seed).standard_normal(
        (train.shape[1], size), dtype=np.float32
    )
    leading = compute_truncated_svd(
        multiply_sparse(make_sparse(train, scaled)), start=directions, steps=_START_STEPS
    )
    vectors = leading.column_vectors * np.sqrt(leading.values) * column_units[:, None]
    return np.column_stack([vectors, effects]).astype(np.float32)


def subtract_effects(train: ObservedMatrix, shrinkage: float) -> tuple[FloatArray, FloatArray]:
    """Return the values less the mean, the shrunk means of columns and those of rows; and the
    column effects."""
    residuals = train.values.astype(np.float64) - train.mean
    effects: list[FloatArray] = []
    row_totals, column_totals = count_by_weight(train)
    for which, totals in ((train.by_row.columns, column_totals), (train.entry_rows, row_totals)):
        weighted = residuals if train.weights is None else residuals * train.weights
        sums = np.bincount(which, weights=weighted, minlength=totals.size)
        effects.append(sums / (np.maximum(totals, np.finfo(np.float32).tiny) + shrinkage))
        residuals = residuals - effects[-1][which]
    return residuals, effects[0]


def count_by_weight(train: ObservedMatrix) -> tuple[Array, Array]:
    """Return the total weight of the entries of each row and of each column; their numbers without
    weights."""
    if train.weights is None:
        return train.row_counts, train.column_counts
    rows, columns = (
        np.bincount(which, weights=train.weights, minlength=count)
        for which, count in zip((train.entry_rows, train.by_row.columns), train.shape, strict=True)
    )
    return rows, columns


class FeatureRegression:
    """The ridge regression of one side's factors on its features, learned anew in every sweep;
    weights start at 0.

    In the regression of latents, a row (or column) counts by the penalty of its latents,
    `latent_ridges`. In the regression of effects, every entry counts the same, because a new row or
    column is evaluated at its entries, and popular ones have more entries and larger effects.
    """

    def __init__(
        self,
        features: AxisFeatures,
        counts: Array,
        latent_ridges: FloatArray,
        settings: ALSSettings,
        width: int,
    ) -> None:
        self._features = features.take(np.arange(counts.size))
        self._latents, self._effects = (
            FeatureRidge(self._features, each, settings.feature_penalty)
            for each in (latent_ridges, counts.astype(np.float64))
        )
        self.weights: LatentArray = np.zeros((self._features.n_inputs, width), dtype=np.float32)

    def predict(self) -> LatentArray:
        """Return the factors that the features predict."""
        return self._features.product(self.weights)

    def learn(self, factors: LatentArray) -> None:
        """Regress factors on the features."""
        weights = np.column_stack(
            [self._latents.weights(factors[:, :-1]), self._effects.weights(factors[:, -1:])]
        )
        self.weights = weights.astype(np.float32)


class Solution(NamedTuple):
    """The factors of one side given the other, and their squared errors plus penalty."""

    factors: LatentArray  # (rows, latent + 1)
    objective: float


class LeastSquares:
    """The ridge regressions of one side, laid out once for all sweeps; described for rows, used for
    columns too.

    Factors (rows, latent + 1) are the latents of each row and, last, its effect. A prior has the
    same shape: the penalty is on the distance from it, rows without entries get it, and None stands
    for zeros.
    """

    def __init__(
        self,
        entries: AxisEntries,
        *,
        n_others: int,
        train: ObservedMatrix,
        settings: ALSSettings,
        limits: Limits = LIMITS,
        least_gain: float = _LEAST_GAIN,
    ) -> None:
        self._limits, self._least_gain = limits, least_gain
        self._counts = entries.totals.astype(np.float32)
        # (rows,)
        self.latent_ridges = compute_latent_ridges(
            self._counts.astype(np.float64), train.scale, settings
        )
        self.effect_ridge = settings.effect_penalty
        values = entries.values - train.mean
        self._batches = lay_out(entries, values, n_others=n_others, limits=limits)

    def solve(self, others: LatentArray, prior: LatentArray | None = None) -> Solution:
        """Return the exact ridge solution of every row given the factors of the columns."""
        table = make_table(others.astype(np.float32))
        shape = self.latent_ridges.size, others.shape[1]
        factors = np.zeros(shape, dtype=np.float32) if prior is None else prior.astype(np.float32)
        buffer, has_prior = Buffer(table, self._limits), prior is not None
        solve = partial(
            self._solve_batch, table=table, factors=factors, has_prior=has_prior, buffer=buffer
        )
        return Solution(factors, sum(run_batches(solve, self._batches)))

    def improve(
        self, others: LatentArray, factors: LatentArray, prior: LatentArray | None = None
    ) -> Solution:
        """Return better factors of every row, at a third of the cost of the exact solution.

        They come from a few conjugate gradient steps. Rows with more entries than are gathered at a
        time are solved exactly: every step would read their entries from memory again.
        """
        table = make_table(others.astype(np.float32))
        # next to no penalty, factors may be that large; they move no further
        with np.errstate(over="ignore"):
            squares = np.square(table[:-1, :-1]).mean(axis=0)
        better = np.zeros_like(factors) if prior is None else prior.astype(np.float32)
        buffer = Buffer(table, self._limits)

        def improve_batch(batch: Batch) -> float:
            (group,), at = batch.groups, batch.positions
            if group.values.shape[1] > self._limits.entries_at_a_time:
                return self._solve_batch(
                    batch, table=table, factors=better, has_prior=prior is not None, buffer=buffer
                )
            ridges, start = self._make_ridges(at, others.shape[1]), factors[at]
            gathered = buffer.gather(table, group.cut(group.others))
            values = group.cut(group.values)
            if group.roots is not None:
                roots = group.cut(group.roots)
                gathered *= roots[..., None]
                values = values * roots
            moved = descend(
                gathered[..., :-1],
                values
                + multiply_inputs(gathered, np.column_stack([-start, np.ones_like(start[:, 0])])),
                ridges=ridges,
                sizes=np.maximum(
                    self._counts[at, None] * squares + ridges, np.finfo(np.float32).tiny
                ),
                start=start - better[at],
                most_steps=_MOST_STEPS,
                least_gain=self._least_gain,
            )
            better[at] += moved.factors
            return float(
                np.vdot(moved.residuals, moved.residuals)
                + np.vdot(ridges * moved.factors, moved.factors)
            )

        return Solution(better, sum(run_batches(improve_batch, self._batches)))

    def _solve_batch(
        self,
        batch: Batch,
        *,
        table: LatentArray,
        factors: LatentArray,
        has_prior: bool,
        buffer: Buffer,
    ) -> float:
        """Write the ridge solutions around `factors` where these are a prior, or around 0; return
        their objective."""
        at = batch.positions
        grams, ridges = compute_grams(batch, table, buffer), self._make_ridges(at, factors.shape[1])
        if has_prior:
            _subtract_prior(grams, factors[at])
        steps, objective = _solve_ridge(grams, ridges)
        factors[at] = factors[at] + steps if has_prior else steps
        return objective

    def compute_penalty(self, factors: LatentArray, prior: LatentArray | None = None) -> float:
        """Return the penalty of factors, which is on their distance from a prior."""
        squares = np.square(factors if prior is None else factors - prior, dtype=np.float64)
        of_latents = (squares[:, :-1].sum(axis=1) * self.latent_ridges).sum()
        return float(of_latents + squares[:, -1].sum() * self.effect_ridge)

    def _make_ridges(self, at: IndexArray, n_unknowns: int) -> LatentArray:
        ridges = np.full((at.size, n_unknowns), self.effect_ridge, dtype=np.float32)
        ridges[:, :-1] = self.latent_ridges[at, None]
        return ridges


def compute_latent_ridges(counts: Any, scale: Scale, settings: ALSSettings) -> Any:
    """Return the weights of the squared latents of rows from their entry counts."""
    width = scale.high - scale.low or 1.0  # a scale of one value has no width
    return settings.penalty * width * counts**settings.count_power


def _subtract_prior(grams: Array, prior: LatentArray) -> None:
    """Turn Gram matrices of (A, t) into those of (A, t - Ap), for the prior p of each row."""
    p = prior[..., None]
    fitted = grams[:, :-1, :-1] @ p  # A'Ap
    grams[:, -1, -1] += (p.mT @ (fitted - 2.0 * grams[:, :-1, -1:]))[:, 0, 0]
    grams[:, :-1, -1:] -= fitted
    grams[:, -1:, :-1] -= fitted.mT


def _solve_ridge(grams: Array, ridges: LatentArray) -> Solution:
    """Return the x (rows, latent + 1) that minimise |t - Ax|^2 + x'Dx, and the sum of the minima.

    `grams` are the Gram matrices of (A, t). With A'A + D = LL', the minimum is t't less the squares
    of L^-1 A't.
    """
    diagonals = np.einsum("rkk->rk", grams)  # a view
    squares = diagonals[:, -1].sum(dtype=np.float64)
    diagonals[:, :-1] += np.maximum(ridges, LEAST_RIDGE * diagonals[:, :-1])
    solution = solve_bordered(grams)
    explained = np.square(solution.reduced, dtype=np.float64).sum()
    return Solution(solution.solutions, float(squares - explained))


def choose_penalty(train: ObservedMatrix, settings: ALSSettings) -> float:
    """Return the penalty that predicts held-out entries best; that of the settings, where there are
    too few.

    Penalties are halved until the error rises. The second one is the penalty that suppresses pure
    noise: at the optimum, every singular value is lowered by the penalty (in the units of
    `start_columns`). The largest singular value of noise with standard deviation s is s times the
    root of the entry count of a row plus that of a column; the units divide it by both counts to
    the power of `count_power` / 2.
    """
    training, held_out = HeldOut.split(train, seed=settings.seed, one_in=_ONE_IN)
    noise = float(np.std(subtract_effects(training, settings.effect_penalty)[0]))
    if held_out is None or noise == 0.0:
        return settings.penalty
    solver = ALSSolver(EntryStore.of(training), settings)
    start, sides = solver.get_arrays(), (solver.rows, solver.columns)
    units = [side.latent_ridges / settings.penalty for side in sides]

    def find_error(penalty: float) -> float:
        solver.set_arrays(start)
        for side, unit in zip(sides, units, strict=True):
            side.latent_ridges = penalty * unit
        error = math.inf
        for _ in range(min(settings.epochs, _TRIAL_SWEEPS)):
            solver.sweep()
            rows, columns = map(Latents, solver.compute_latents())
            products = pair_products(rows, columns, held_out.rows, held_out.columns)
            before, error = error, rmse_error(products, held_out.values)
            if not error < (1.0 - _LEAST_FALL) * before:
                break
        return error

    in_row, in_column = (training.n_entries / n for n in training.shape)
    largest = (
        noise
        * (math.sqrt(in_row) + math.sqrt(in_column))
        / (in_row * in_column) ** (settings.count_power / 2)
    )
    first = (
        2.0 * largest / compute_latent_ridges(1.0, training.scale, replace(settings, penalty=1.0))
    )
    errors: list[float] = []
    while len(errors) < _FEWEST_TRIALS or (
        len(errors) < _MOST_TRIALS and errors[-1] == min(errors)
    ):
        errors.append(find_error(first * 0.5 ** len(errors)))
    return float(f"{first * 0.5 ** find_minimum(errors):.3g}")


def find_minimum(errors: list[float]) -> float:
    """Return the place in the list where the parabola through the smallest number and its
    neighbours is lowest.

    >>> find_minimum([3.0, 1.0, 1.0]), find_minimum([1.0, 2.0])
    (1.5, 0.0)
    """
    at = int(np.argmin(errors))
    if not 0 < at < len(errors) - 1:
        return float(at)
    before, lowest, after = errors[at - 1 : at + 2]
    return at + (before - after) / (2.0 * (before - 2.0 * lowest + after))


class RidgeEncoder(SolvingEncoder):
    """The fold-in: a row is the ridge solution of its entries given the columns, and a column given
    the rows."""

    moves_rows = True

    def __init__(
        self,
        train: ObservedMatrix,
        settings: ALSSettings,
        feature_weights: FeatureWeights = NO_WEIGHTS,
    ) -> None:
        self._train, self._settings, self.feature_weights = train, settings, feature_weights
        self._held: Held | None = None

    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return (u, b, 1, m) of each row, or (v, 1, c, 1) of each column."""
        needed, latents = _select_needed(entries, others)
        if axis == "row":
            factors = np.delete(latents, (-3, -1), axis=1)
            return make_row_latents(
                self._solve(needed, factors, self.feature_weights.rows), self._train.mean
            )
        return make_column_latents(
            self._solve(needed, latents[:, :-2], self.feature_weights.columns)
        )

    def move_rows(self, trained: TrainedRows, new: AxisEntries, columns: Latents) -> LatentArray:
        """Return (u, b, 1, m) of trained rows with new entries."""
        if self._held is None:
            lines = columns.base[:, :-2]  # (v, 1)
            self._held = Held.of(lines, trained.column_counts, np.eye(lines.shape[1]))
        used, new = new.renumber_others()
        latents, moved = columns.take(used), trained.latents.copy()
        residuals = new.values - multiply_each(moved, latents, new)
        batches = lay_out(new, residuals, n_others=used.size, limits=LIMITS)
        penalties = compute_latent_ridges(
            trained.totals + new.totals, self._train.scale, self._settings
        )
        moved[:, :-2] += self._held.move_rows(
            batches, latents[:, :-2], trained.totals[:, None], penalties[:, None]
        )
        return moved

    def pack(self) -> Packed:
        return Packed({}, self.feature_weights.list_tensors())

    def _solve(
        self, entries: AxisEntries, others: LatentArray, feature_weights: LatentArray | None
    ) -> LatentArray:
        equations = LeastSquares(
            entries, n_others=len(others), train=self._train, settings=self._settings
        )
        return equations.solve(others, compute_prior(entries, feature_weights)).factors


def make_row_latents(factors: LatentArray, mean: float) -> LatentArray:
    """Return (u, b, 1, m) of rows with the factors (u, b)."""
    ones = np.ones((len(factors), 1), dtype=np.float32)
    return np.hstack([factors, ones, mean * ones])


def make_column_latents(factors: LatentArray) -> LatentArray:
    """Return (v, 1, c, 1) of columns with the factors (v, c)."""
    ones = np.ones((len(factors), 1), dtype=np.float32)
    return np.hstack([factors[:, :-1], ones, factors[:, -1:], ones])


def _select_needed(entries: AxisEntries, others: Latents) -> tuple[AxisEntries, LatentArray]:
    """Return entries that point into the few latents they need, so that one row does not copy the
    whole table."""
    if entries.others.size >= len(others):
        return entries, others.whole()
    used, entries = entries.renumber_others()
    return entries, others.take(used)


class ALS(Recommends, FactorModel):
    """Mean + row effect + column effect + u_i'v_j by alternating least squares; covers all four
    areas.

    A new row is the ridge solution of its entries given the trained columns, a new column given the
    trained rows. A row or column without any entry has no effect and no latents. Settings are
    keyword arguments, see `ALSSettings`.

    >>> from deepmf.datasets import checkerboard
    >>> board = checkerboard(20, 20, observed=0.7, seed=0).matrix
    >>> ALS(penalty=0.01).fit(board).predict_levels([0, 0, 1], [0, 1, 1])
    array([5., 1., 5.])
    """

    settings_class: ClassVar[type[Settings]] = ALSSettings
    settings: ALSSettings
    takes_features: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
    predicts: ClassVar[tuple[str, ...]] = AREAS
    cannot: ClassVar[str] = ""
    n_beside: ClassVar[int] = 3  # effect, constant and mean

    def plan(self, train: ObservedMatrix) -> str | None:
        """Describe what `fit` would do for a matrix; it does not depend on the penalty."""
        return self._plan_epochs(train)

    def _choose_settings(self, train: ObservedMatrix) -> dict[str, Any]:
        if train.scale.levels is not None or "penalty" in self._given:
            return {}
        return {"penalty": choose_penalty(train, self.settings)}

    def _make_solver(self, entries: EntryStore) -> ALSSolver:
        return ALSSolver(entries, self.settings)

    def _make_encoder(self, solver: ALSSolver, entries: EntryStore) -> RidgeEncoder:
        return RidgeEncoder(entries.train, self.settings, solver.feature_weights)

    def _load_encoder(self, entries: EntryStore, tensors: Tensors) -> RidgeEncoder:
        width = self._count_latents(entries.train) + 1
        weights = load_feature_weights(entries, tensors, width=width, kind="float32")
        return RidgeEncoder(entries.train, self.settings, weights)
