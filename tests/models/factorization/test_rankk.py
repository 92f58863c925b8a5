"""RankK: the contract, its rank, its robustness, and the augmented Lagrangian."""

from typing import Any, ClassVar

import numpy as np
import pytest
from tests.models.contract import ModelContract, additive
from tests.models.factorization.resuming import assert_resumes_to_the_bit

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.factorization.factorization_settings import RankKSettings
from deepmf.models.factorization.rankk import RankK, RankKSolver


def with_gross_errors(*, seed: int = 0) -> tuple[ObservedMatrix, FloatArray]:
    """A matrix of rank 2, 70 % observed, 5 % grossly wrong, its lower half the mirror of the upper; and the truth.

    So the observed mean is 0, and subtracting it leaves the rank as it is.
    """
    generator = np.random.default_rng(seed)
    truth = generator.standard_normal((25, 2)) @ generator.standard_normal((2, 30))
    values = np.where(generator.random(truth.shape) < 0.7, truth, np.nan)
    wrong = generator.random(truth.shape) < 0.05
    values[wrong] += generator.choice([-20.0, 20.0], np.count_nonzero(wrong))
    return ObservedMatrix.from_array(np.vstack([values, -values]), Scale(low=-40, high=40)), np.vstack([truth, -truth])


def solver_of(matrix: ObservedMatrix, **settings: Any) -> RankKSolver:
    return RankKSolver(matrix, RankKSettings(**settings))


def dense_of(solver: RankKSolver) -> FloatArray:
    """X, which holds the values less their mean."""
    rows, columns = solver.latents()
    return np.asarray(rows @ columns.T - solver.mean)


class TestRankK(ModelContract):
    model = RankK
    settings: ClassVar[dict[str, Any]] = {"latent_size": 2, "epochs": 150}
    recovery_error = 0.05
    permutation_error = 1e-3

    @pytest.mark.parametrize("latent_size", [1, 2, 4])
    def test_the_rank_is_exact(self, latent_size: int) -> None:
        solver = solver_of(additive(), latent_size=latent_size)
        for _ in range(5):
            solver.sweep()
            assert np.linalg.matrix_rank(dense_of(solver)) == latent_size

    def test_gross_errors_do_not_bend_it(self) -> None:
        matrix, truth = with_gross_errors()
        robust = RankK(latent_size=2).fit(matrix)
        missing = np.isnan(matrix.to_array())
        assert np.abs(robust.complete() - truth)[missing].max() < 1e-3
        # Without growth, a penalty so small makes every error a small one: least squares.
        least_squares = RankK(latent_size=2, penalty=1e-6, penalty_growth=1.0).fit(matrix)
        assert np.sqrt(np.mean((least_squares.complete() - truth)[missing] ** 2)) > 1.0

    def test_neither_step_raises_the_lagrangian(self) -> None:
        matrix, _ = with_gross_errors()
        solver = solver_of(matrix, latent_size=2, penalty=0.5)
        observed = ~np.isnan(matrix.to_array())
        targets = matrix.to_array()[observed] - solver.mean

        def lagrangian(errors: FloatArray) -> float:
            gap = dense_of(solver)[observed] - targets - errors
            linear, squared = solver.multipliers @ gap, gap @ gap
            return float(np.abs(errors).sum() + linear + solver.penalty / 2 * squared)

        generator = np.random.default_rng(0)
        for _ in range(30):
            before = lagrangian(solver.errors)
            solver.update_errors()
            best = lagrangian(solver.errors)
            assert best <= before + 1e-9 * abs(before)
            aside = generator.standard_normal(targets.size)
            for size in (-1e-3, 1e-3, 0.1):
                assert lagrangian(solver.errors + size * aside) > best
            solver.update_low_rank()
            assert lagrangian(solver.errors) <= best + 1e-9 * abs(best)
            gap = dense_of(solver)[observed] - targets - solver.errors
            expected = solver.multipliers + solver.penalty * gap
            solver.update_multipliers()
            np.testing.assert_allclose(solver.multipliers, expected, atol=1e-9)

    def test_the_step_over_low_rank_matrices_is_the_best_to_what_is_filled_in(self) -> None:
        matrix, _ = with_gross_errors()
        solver = solver_of(matrix, latent_size=30)  # all that 30 columns have, so that one step is exact
        for _ in range(3):
            solver.sweep()
        solver.update_errors()
        observed = ~np.isnan(matrix.to_array())
        filled = dense_of(solver)
        filled[observed] = solver.targets + solver.errors - solver.multipliers / solver.penalty
        solver.update_low_rank()
        np.testing.assert_allclose(dense_of(solver), filled, atol=1e-10)

    def test_the_loss_is_the_mean_absolute_error(self) -> None:
        matrix, _ = with_gross_errors()
        solver = solver_of(matrix)
        losses = [solver.sweep() for _ in range(100)]
        difference = (dense_of(solver) + solver.mean - matrix.to_array())[~np.isnan(matrix.to_array())]
        assert losses[-1] == pytest.approx(np.abs(difference).mean())
        assert losses[-1] < 0.7 * losses[0]

    def test_the_penalty_grows_from_sweep_to_sweep(self) -> None:
        matrix = additive()
        deviation = np.abs(matrix.values - matrix.values.mean()).mean()
        model = self.new(penalty=0.5, penalty_growth=1.2, epochs=4).fit(matrix)
        penalties = [record.notes["penalty"] for record in model.history_.records]
        np.testing.assert_allclose(penalties, 0.5 / deviation * 1.2 ** np.arange(1, 5), rtol=1e-6)

    def test_a_resumed_run_goes_on_to_the_bit(self) -> None:
        matrix, _ = with_gross_errors()
        assert_resumes_to_the_bit(*(solver_of(matrix) for _ in range(3)))

    def test_units_do_not_matter(self) -> None:
        matrix, _ = with_gross_errors()
        rows, columns, values = matrix.entries()
        other = ObservedMatrix.from_entries(rows, columns, 100 * values + 7, Scale(low=-4000, high=4100))
        predicted = (self.new().fit(each).predict(rows, columns) for each in (matrix, other))
        np.testing.assert_allclose(100 * next(predicted) + 7, next(predicted), atol=1e-2)

    def test_one_value_everywhere(self) -> None:
        matrix = ObservedMatrix.from_array([[2, 2, np.nan], [2, np.nan, 2]], Scale([1, 2, 3]))
        np.testing.assert_array_equal(self.new().fit(matrix).complete(), np.full((2, 3), 2.0))

    @pytest.mark.parametrize("changes", [{"latent_size": 0}, {"penalty": 0}, {"penalty_growth": 0.9}])
    def test_bad_penalties(self, changes: dict[str, Any]) -> None:
        with pytest.raises(BadSetting, match=next(iter(changes))):
            self.new(**changes)
