"""RDMC: the contract, exact recovery on several scales, and the augmented Lagrangian."""

from typing import Any, ClassVar

import numpy as np
import pytest
from tests.models.contract import ModelContract, additive
from tests.models.factorization.resuming import assert_resumes_to_the_bit

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.factorization import low_rank
from deepmf.models.factorization.factorization_settings import RDMCSettings
from deepmf.models.factorization.rdmc import RDMC, RDMCSolver, drawn_to_levels

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
TWO = (0.0, 1.0)
UNEQUAL = (-3.0, 0.0, 1.0, 7.0, 20.0)


def grouped(levels: tuple[float, ...], *, wrong: float = 0.0, seed: int = 0) -> tuple[ObservedMatrix, FloatArray]:
    """A level for each of 3 x 3 groups of rows and columns, 60 % observed, a share of it wrong; and the truth."""
    generator = np.random.default_rng(seed)
    of_groups = np.array(levels)[np.array([[0, 1, 2], [4, 3, 0], [1, 4, 4]]) % len(levels)]
    truth = of_groups[np.ix_(generator.integers(0, 3, 60), generator.integers(0, 3, 50))]
    values = np.where(generator.random(truth.shape) < wrong, generator.choice(levels, truth.shape), truth)
    values[generator.random(truth.shape) < 0.4] = np.nan
    return ObservedMatrix.from_array(values, Scale(levels)), truth


def solver_of(matrix: ObservedMatrix, **settings: Any) -> RDMCSolver:
    return RDMCSolver(matrix, RDMCSettings(**settings))


def scores_of(solver: RDMCSolver) -> FloatArray:
    """Z + mean."""
    rows, columns = solver.latents()
    return np.asarray(rows @ columns.T)


class TestRDMC(ModelContract):
    model = RDMC
    settings: ClassVar[dict[str, Any]] = {"latent_size": 4, "gamma": 0.2}
    recovery_error = 0.3
    permutation_error = 1e-3

    @pytest.mark.parametrize("levels", [STARS, TWO, UNEQUAL])
    @pytest.mark.parametrize("wrong", [0.0, 0.05])
    def test_a_discrete_matrix_is_recovered_exactly(self, levels: tuple[float, ...], wrong: float) -> None:
        matrix, truth = grouped(levels, wrong=wrong)
        model = RDMC(latent_size=3, gamma=0.2).fit(matrix)
        rows, columns = np.indices(truth.shape)
        np.testing.assert_array_equal(model.predict(rows.ravel(), columns.ravel()), truth.ravel())

    def test_scores_become_levels(self) -> None:
        matrix, _ = grouped(STARS, wrong=0.7)  # no matrix of rank 4 fits it
        distances = []
        for level_penalty in (0.0, 3e-4):
            model = self.new(epochs=250, level_penalty=level_penalty).fit(matrix)
            scores = model.predictor_.score_block(np.arange(60), np.arange(50))
            distances.append(np.abs(scores - matrix.scale.nearest_level(scores)).mean())
        assert distances[1] < 0.5 * distances[0]

    @pytest.mark.parametrize("levels", [STARS, TWO, UNEQUAL])
    def test_being_drawn_to_levels_solves_its_problem(self, levels: tuple[float, ...]) -> None:
        mu, nu = 0.7, 1.9
        grid = np.linspace(-10, 30, 400_001)
        to_levels = np.abs(grid[:, None] - np.array(levels)).min(axis=1)
        for value in (-5.2, -1.4, 0.4, 0.6, 3.3, 6.1, 13.4, 13.6, 22.0):
            solved = grid[np.argmin(nu / 2 * to_levels**2 + mu / 2 * (grid - value) ** 2)]
            found = drawn_to_levels(np.array([value]), Scale(levels), share=nu / (mu + nu))
            np.testing.assert_allclose(found, solved, atol=1e-4)

    def test_no_step_raises_the_lagrangian(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(low_rank, "_ENTRIES_AT_A_TIME", 200)  # blocks of 4 of the 60 rows
        matrix, _ = grouped(UNEQUAL, wrong=0.1)
        # All 50 columns as rank, so that one step of subspace iteration is exact.
        solver = solver_of(matrix, latent_size=50, penalty=0.5, level_penalty=0.1, level_penalty_growth=1.2)
        observed = ~np.isnan(matrix.to_array())
        targets = matrix.to_array()[observed]
        discrete, scores = np.full(matrix.shape, solver.mean), scores_of(solver)

        def lagrangian(errors: FloatArray, discrete: FloatArray, scores: FloatArray) -> float:
            mu, nu = solver.penalty, solver.level_penalty
            error_gap, copy_gap = discrete[observed] - targets - errors, discrete - scores
            to_levels = np.abs(discrete[..., None] - np.array(UNEQUAL)).min(axis=-1)
            return float(
                np.abs(errors).sum()
                + solver.error_multipliers @ error_gap
                + mu / 2 * (error_gap @ error_gap)
                + nu / 2 * (to_levels**2).sum()
                + solver.gamma * np.linalg.norm(scores - solver.mean, "nuc")
                + solver.copy_multipliers @ copy_gap[observed]
                + mu / 2 * (copy_gap**2).sum()
            )

        def nearest_low_rank(discrete: FloatArray) -> FloatArray:
            shifted = discrete - solver.mean
            shifted[observed] += solver.copy_multipliers / solver.penalty
            rows, values, columns = np.linalg.svd(shifted, full_matrices=False)
            return np.asarray((rows * np.maximum(values - solver.gamma / solver.penalty, 0)) @ columns)

        generator = np.random.default_rng(0)
        for _ in range(15):
            levels = [lagrangian(solver.errors, discrete, scores)]
            solver.update_errors()
            levels.append(lagrangian(solver.errors, discrete, scores))
            solver.update_discrete()
            share = solver.level_penalty / (solver.penalty + solver.level_penalty)
            discrete = drawn_to_levels(scores, matrix.scale, share=share)
            discrete[observed] = solver.discrete
            levels.append(lagrangian(solver.errors, discrete, scores))
            aside = generator.standard_normal(discrete.shape)
            for size in (-1e-3, 1e-3, 0.1):
                assert lagrangian(solver.errors, discrete + size * aside, scores) > levels[-1]
            solver.update_low_rank()
            scores = scores_of(solver)
            levels.append(lagrangian(solver.errors, discrete, scores))
            np.testing.assert_allclose(scores, solver.mean + nearest_low_rank(discrete), atol=1e-8)
            assert np.all(np.diff(levels) <= 1e-9 * np.abs(levels[0]))
            solver.update_multipliers()

    def test_multipliers_move_by_what_is_left_of_the_constraints(self) -> None:
        matrix, _ = grouped(STARS)
        solver = solver_of(matrix)
        solver.sweep()
        mu = solver._unit * 0.3  # of the first sweep
        targets = matrix.values.astype(np.float64)
        np.testing.assert_allclose(solver.error_multipliers, mu * (solver.discrete - targets - solver.errors))
        left = solver.discrete - scores_of(solver)[~np.isnan(matrix.to_array())]
        np.testing.assert_allclose(solver.copy_multipliers, mu * left, atol=1e-12)

    def test_the_loss_is_the_objective_per_entry(self) -> None:
        matrix, _ = grouped(STARS, wrong=0.1)
        solver = solver_of(matrix, level_penalty=0)
        losses = [solver.sweep() for _ in range(40)]
        scores, observed = scores_of(solver), ~np.isnan(matrix.to_array())
        error = np.abs(scores - matrix.to_array())[observed].sum()
        nuclear = np.linalg.norm(scores - solver.mean, "nuc")
        assert losses[-1] == pytest.approx((error + solver.gamma * nuclear) / matrix.n_entries)
        assert losses[-1] < losses[5] < losses[0]

    def test_a_heavy_nuclear_norm_leaves_the_mean(self) -> None:
        matrix, _ = grouped(STARS)
        model = RDMC(gamma=10.0).fit(matrix)
        level = matrix.scale.nearest_level(matrix.values.mean())
        np.testing.assert_array_equal(model.predict([0, 7], [3, 30]), [level, level])
        assert model.history_.records[-1].notes["rank"] == 0

    def test_a_resumed_run_goes_on_to_the_bit(self) -> None:
        matrix, _ = grouped(STARS, wrong=0.1)
        assert_resumes_to_the_bit(*(solver_of(matrix) for _ in range(3)))

    def test_rankings_go_by_scores(self) -> None:
        model = self.new(epochs=30).fit(additive())
        ranking = model.recommend("row 0", n=25, include_observed=True)
        scores = model.predictor_.score_block(np.array([0]), model.entries_.columns.positions(ranking.labels))[0]
        assert np.all(np.diff(scores) <= 0)
        assert np.unique(ranking.values).size < np.unique(scores).size

    def test_needs_levels(self) -> None:
        values = np.random.default_rng(0).random((12, 12))
        for matrix in (ObservedMatrix.from_array(values), ObservedMatrix.from_array(values > 2, Scale([0]))):
            with pytest.raises(BadSetting, match="RDMC needs a scale of at least two levels"):
                self.new().fit(matrix)

    @pytest.mark.parametrize(
        "changes",
        [
            {"latent_size": 0},
            {"gamma": -1},
            {"penalty": 0},
            {"penalty_growth": 0.9},
            {"level_penalty": -1},
            {"level_penalty_growth": 0.9},
        ],
    )
    def test_bad_penalties(self, changes: dict[str, Any]) -> None:
        with pytest.raises(BadSetting, match=next(iter(changes))):
            self.new(**changes)
