"""ALS: matrix factorisation with row and column effects by alternating least squares, which extends by one solve."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from deepmf.matrix.areas import AREAS
from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.factorization.als_start import first_column_factors, subtract_effects
from deepmf.models.factorization.factorization_settings import ALSSettings
from deepmf.models.factorization.feature_prior import FeaturePrior
from deepmf.models.factorization.least_squares import LeastSquares, latent_ridges
from deepmf.models.factorization.ridge_encoder import RidgeEncoder, column_latents, row_latents
from deepmf.models.factorization.solver import Arrays, FactorModel, Solver
from deepmf.models.feature_ridge import FeatureWeights, stored_weights
from deepmf.models.held_out import set_aside
from deepmf.models.latents import Latents, pair_products
from deepmf.models.model import Model
from deepmf.storage.packed import Tensors
from deepmf.training.declarations import takes_settings
from deepmf.training.fit_plan import FitPlan
from deepmf.training.settings import Settings

# Penalties are compared on one entry in this many, after so many sweeps, or as soon as one lowers the error by less
# than this share of it; so many of them at least, and at most.
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
    seen, held_out = set_aside(train, seed=settings.seed, one_in=_ONE_IN)
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

    def plan(self, train: ObservedMatrix, *, start_from: Model | None = None) -> FitPlan | None:
        """Return what `fit` is going to do with a matrix, in words; it does not depend on the penalty."""
        return self._plan(train, warm=start_from is not None)

    def _chosen_for(self, train: ObservedMatrix, earlier: Settings | None) -> dict[str, Any]:
        if train.scale.levels is not None or "penalty" in self._given:
            return {}
        return {"penalty": choose_penalty(train, self.settings) if earlier is None else earlier.to_dict()["penalty"]}

    def _solver(self, entries: EntryStore) -> ALSSolver:
        return ALSSolver(entries, self.settings)

    def _encoder(self, solver: ALSSolver, entries: EntryStore) -> RidgeEncoder:
        return RidgeEncoder(entries.train, self.settings, solver.feature_weights)

    def _stored_encoder(self, entries: EntryStore, tensors: Tensors) -> RidgeEncoder:
        width = self._rank(entries.train) + 1
        weights = stored_weights(entries, tensors, width=width, kind="float32")
        return RidgeEncoder(entries.train, self.settings, weights)
