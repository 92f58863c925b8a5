"""Low-rank methods: linear algebra against dense matrices, thresholds against what they minimise,
the contract."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from tests.models.resuming import assert_resumes_to_the_bit

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.paper import low_rank
from deepmf.models.paper.low_rank import (
    RDMC,
    OptSpace,
    OptSpaceSettings,
    OptSpaceSolver,
    RankK,
    RankKSettings,
    RankKSolver,
    RDMCSettings,
    RDMCSolver,
    Spaces,
    find_light_entries,
    pull_to_levels,
)
from deepmf.testing import ModelContract, additive


def make_optspace(matrix: ObservedMatrix, **settings: Any) -> OptSpaceSolver:
    return OptSpaceSolver(matrix, OptSpaceSettings(**settings))


def random_spaces(generator: np.random.Generator, shape: tuple[int, int], rank: int) -> Spaces:
    rows, columns = (np.linalg.qr(generator.standard_normal((size, rank))).Q for size in shape)
    return Spaces(rows, columns)


def half_of_low_rank() -> tuple[FloatArray, ObservedMatrix]:
    """A matrix of rank 2 without noise, and the half of it that is observed; its lower half mirrors
    the upper one.

    So the observed mean is 0, and subtracting it leaves the rank as it is.
    """
    generator = np.random.default_rng(5)
    half = generator.standard_normal((30, 2)) @ generator.standard_normal((2, 50))
    whole, observed = np.vstack([half, -half]), np.tile(generator.random(half.shape) < 0.5, (2, 1))
    return whole, ObservedMatrix.from_array(
        np.where(observed, whole, np.nan), Scale(low=-20, high=20)
    )


class TestOptSpace(ModelContract):
    model = OptSpace
    settings: ClassVar[dict[str, Any]] = {"latent_size": 2, "epochs": 40}
    recovery_error = 0.25

    def test_the_objective_against_a_dense_restatement(self) -> None:
        matrix = additive(8, 7)
        solver = make_optspace(matrix, latent_size=2)
        for _ in range(3):
            objective = solver.sweep()
        spaces, core, residuals, _ = solver.point
        dense = matrix.to_array()
        error = (spaces.rows @ core @ spaces.columns.T - (dense - np.nanmean(dense)))[
            ~np.isnan(dense)
        ]
        np.testing.assert_allclose(residuals, error, atol=1e-12)
        assert objective == pytest.approx(0.5 * np.sum(error**2))
        rows, columns = solver.compute_latents()
        np.testing.assert_allclose(
            rows @ columns.T, spaces.rows @ core @ spaces.columns.T + np.nanmean(dense)
        )

    def test_the_gradient_against_finite_differences(self) -> None:
        generator = np.random.default_rng(0)
        solver = make_optspace(additive(12, 9), latent_size=3)
        solver.point = solver.solve_core(random_spaces(generator, (12, 9), 3))
        spaces, gradient = solver.point.spaces, solver.compute_gradient()
        for space, slope in zip(spaces, gradient, strict=True):
            np.testing.assert_allclose(space.T @ slope, 0, atol=1e-10)  # tangent
        for _ in range(5):
            free = [generator.standard_normal(space.shape) for space in spaces]
            direction = Spaces(
                *(d - space @ (space.T @ d) for d, space in zip(free, spaces, strict=True))
            )
            ahead, behind = (
                solver.solve_core(spaces.move(direction, h)).objective for h in (1e-5, -1e-5)
            )
            expected = sum(np.sum(g * d) for g, d in zip(gradient, direction, strict=True))
            assert (ahead - behind) / 2e-5 == pytest.approx(expected, rel=1e-6)

    def test_the_core_is_the_least_squares_solution(self) -> None:
        matrix = additive(15, 11)
        solver = make_optspace(matrix, latent_size=3)
        spaces = random_spaces(np.random.default_rng(2), (15, 11), 3)
        # an entry (i, j) has the coefficients x_ia y_jb of S_ab
        design = np.einsum(
            "ea,eb->eab", spaces.rows[matrix.entry_rows], spaces.columns[matrix.by_row.columns]
        )
        values = matrix.values - matrix.values.mean(dtype=np.float64)
        expected = np.linalg.lstsq(design.reshape(-1, 9), values)[0].reshape(3, 3)
        np.testing.assert_allclose(solver.find_best_core(spaces), expected, rtol=1e-9)

    def test_an_undetermined_core_is_the_smallest(self) -> None:
        matrix = ObservedMatrix.from_array(
            [[1, np.nan, 2], [np.nan, 5, np.nan], [np.nan, np.nan, 4]]
        )
        solver = make_optspace(matrix, latent_size=3)
        spaces = Spaces(np.eye(3), np.eye(3))
        expected = np.where(np.isnan(matrix.to_array()), 0, matrix.to_array() - 3)
        np.testing.assert_allclose(solver.find_best_core(spaces), expected, atol=1e-12)

    def test_sweeps_stay_on_the_manifolds_and_never_rise(self) -> None:
        solver = make_optspace(additive(), latent_size=4)
        objectives = [solver.point.objective]
        for _ in range(30):
            objectives.append(solver.sweep())
            for space in solver.point.spaces:
                np.testing.assert_allclose(space.T @ space, np.eye(4), atol=1e-12)
        assert np.all(np.diff(objectives) <= 0)
        assert objectives[-1] < 0.5 * objectives[0]

    def test_a_step_that_is_too_long_is_shortened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(low_rank, "_OVERSHOOT", 100.0)
        solver = OptSpaceSolver(additive(), OptSpaceSettings(latent_size=4))
        first = solver.point.spaces.move(
            Spaces(*(-100 * part for part in solver.compute_gradient())), 1.0
        )
        assert solver.solve_core(first).objective > solver.point.objective
        objectives = [solver.point.objective, *(solver.sweep() for _ in range(10))]
        assert np.all(np.diff(objectives) < 0)

    def test_half_of_a_matrix_without_noise_gives_the_whole(self) -> None:
        whole, observed = half_of_low_rank()
        model = OptSpace(latent_size=2, epochs=150).fit(observed)
        assert rmse_error(model.complete().ravel(), whole.ravel()) < 1e-5

    def test_trimming_drops_exactly_the_heavy_rows_and_columns(self) -> None:
        values = np.full((8, 8), np.nan)
        values[np.arange(8), np.arange(8)] = np.arange(8)
        # with the diagonal 5 entries, and a sixth below: just twice the mean, so light
        values[1, [0, 2, 4, 5]] = 2.0
        values[0] = values[:, 3] = 1.0  # 8 entries each: heavy
        values[7, 1] = 3.0
        matrix = ObservedMatrix.from_array(values)
        assert matrix.row_counts.tolist() == [8, 6, 2, 1, 2, 2, 2, 3]
        assert matrix.row_counts.mean() == 3.25
        rows, columns, _ = matrix.entries()
        np.testing.assert_array_equal(find_light_entries(matrix, 2.0), (rows != 0) & (columns != 3))
        np.testing.assert_array_equal(
            find_light_entries(matrix, 6 / 3.25), (rows != 0) & (columns != 3)
        )  # not more than
        np.testing.assert_array_equal(
            find_light_entries(matrix, 5.9 / 3.25), (rows > 1) & (columns != 3)
        )
        solver = make_optspace(matrix, latent_size=2)
        start = solver.point.spaces
        np.testing.assert_allclose(start.rows[0], 0, atol=1e-12)
        np.testing.assert_allclose(start.columns[3], 0, atol=1e-12)
        assert np.abs(start.rows[1:]).max() > 0.1
        solver.sweep()  # for the start only: now they count
        assert np.abs(solver.point.spaces.rows[0]).max() > 1e-3
        assert np.abs(solver.point.spaces.columns[3]).max() > 1e-3

    def test_a_resumed_run_goes_on_to_the_bit(self) -> None:
        matrix = additive()
        assert_resumes_to_the_bit(
            *(make_optspace(matrix, latent_size=3, seed=seed) for seed in (0, 0, 1))
        )


def with_gross_errors(*, seed: int = 0) -> tuple[ObservedMatrix, FloatArray]:
    """A matrix of rank 2, 70 % observed, 5 % grossly wrong, its lower half the mirror of the upper;
    and the truth.

    So the observed mean is 0, and subtracting it leaves the rank as it is.
    """
    generator = np.random.default_rng(seed)
    truth = generator.standard_normal((25, 2)) @ generator.standard_normal((2, 30))
    values = np.where(generator.random(truth.shape) < 0.7, truth, np.nan)
    wrong = generator.random(truth.shape) < 0.05
    values[wrong] += generator.choice([-20.0, 20.0], np.count_nonzero(wrong))
    return ObservedMatrix.from_array(
        np.vstack([values, -values]), Scale(low=-40, high=40)
    ), np.vstack([truth, -truth])


def make_rankk(matrix: ObservedMatrix, **settings: Any) -> RankKSolver:
    return RankKSolver(matrix, RankKSettings(**settings))


def centred_scores(solver: RankKSolver) -> FloatArray:
    """X, which holds the values less their mean."""
    rows, columns = solver.compute_latents()
    return np.asarray(rows @ columns.T - solver.mean)


@pytest.mark.slow
class TestRankK(ModelContract):
    model = RankK
    settings: ClassVar[dict[str, Any]] = {"latent_size": 2, "epochs": 150}
    recovery_error = 0.05
    permutation_error = 1e-3

    @pytest.mark.parametrize("latent_size", [1, 2, 4])
    def test_the_rank_is_exact(self, latent_size: int) -> None:
        solver = make_rankk(additive(), latent_size=latent_size)
        for _ in range(5):
            solver.sweep()
            assert np.linalg.matrix_rank(centred_scores(solver)) == latent_size

    @pytest.mark.slow
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
        solver = make_rankk(matrix, latent_size=2, penalty=0.5)
        observed = ~np.isnan(matrix.to_array())
        targets = matrix.to_array()[observed] - solver.mean

        def lagrangian(errors: FloatArray) -> float:
            gap = centred_scores(solver)[observed] - targets - errors
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
            gap = centred_scores(solver)[observed] - targets - solver.errors
            expected = solver.multipliers + solver.penalty * gap
            solver.update_multipliers()
            np.testing.assert_allclose(solver.multipliers, expected, atol=1e-9)

    def test_the_step_over_low_rank_matrices_is_the_best_to_what_is_filled_in(self) -> None:
        matrix, _ = with_gross_errors()
        # all that 30 columns have, so that one step is exact
        solver = make_rankk(matrix, latent_size=30)
        for _ in range(3):
            solver.sweep()
        solver.update_errors()
        observed = ~np.isnan(matrix.to_array())
        filled = centred_scores(solver)
        filled[observed] = solver.targets + solver.errors - solver.multipliers / solver.penalty
        solver.update_low_rank()
        np.testing.assert_allclose(centred_scores(solver), filled, atol=1e-10)

    def test_a_resumed_run_goes_on_to_the_bit(self) -> None:
        matrix, _ = with_gross_errors()
        assert_resumes_to_the_bit(*(make_rankk(matrix) for _ in range(3)))

    def test_units_do_not_matter(self) -> None:
        matrix, _ = with_gross_errors()
        rows, columns, values = matrix.entries()
        other = ObservedMatrix.from_entries(
            rows, columns, 100 * values + 7, Scale(low=-4000, high=4100)
        )
        predicted = (self.new().fit(each).predict(rows, columns) for each in (matrix, other))
        np.testing.assert_allclose(100 * next(predicted) + 7, next(predicted), atol=1e-2)


STARS = (1.0, 2.0, 3.0, 4.0, 5.0)

TWO = (0.0, 1.0)

UNEQUAL = (-3.0, 0.0, 1.0, 7.0, 20.0)


def grouped(
    levels: tuple[float, ...], *, wrong: float = 0.0, seed: int = 0
) -> tuple[ObservedMatrix, FloatArray]:
    """A level for each of 3 x 3 groups of rows and columns, 60 % observed, a share of it wrong; and
    the truth."""
    generator = np.random.default_rng(seed)
    of_groups = np.array(levels)[np.array([[0, 1, 2], [4, 3, 0], [1, 4, 4]]) % len(levels)]
    truth = of_groups[np.ix_(generator.integers(0, 3, 60), generator.integers(0, 3, 50))]
    values = np.where(
        generator.random(truth.shape) < wrong, generator.choice(levels, truth.shape), truth
    )
    values[generator.random(truth.shape) < 0.4] = np.nan
    return ObservedMatrix.from_array(values, Scale(levels)), truth


def make_rdmc(matrix: ObservedMatrix, **settings: Any) -> RDMCSolver:
    return RDMCSolver(matrix, RDMCSettings(**settings))


def scores_of(solver: RDMCSolver) -> FloatArray:
    """Z + mean."""
    rows, columns = solver.compute_latents()
    return np.asarray(rows @ columns.T)


@pytest.mark.slow
class TestRDMC(ModelContract):
    model = RDMC
    settings: ClassVar[dict[str, Any]] = {"latent_size": 4, "gamma": 0.2}
    recovery_error = 0.3
    permutation_error = 1e-3

    @pytest.mark.parametrize("levels", [STARS, TWO, UNEQUAL])
    @pytest.mark.parametrize("wrong", [0.0, 0.05])
    def test_a_discrete_matrix_is_recovered_exactly(
        self, levels: tuple[float, ...], wrong: float
    ) -> None:
        matrix, truth = grouped(levels, wrong=wrong)
        model = RDMC(latent_size=3, gamma=0.2).fit(matrix)
        rows, columns = np.indices(truth.shape)
        np.testing.assert_array_equal(model.predict(rows.ravel(), columns.ravel()), truth.ravel())

    @pytest.mark.slow
    def test_scores_become_levels(self) -> None:
        matrix, _ = grouped(STARS, wrong=0.7)  # no matrix of rank 4 fits it
        distances = []
        for level_penalty in (0.0, 3e-4):
            model = self.new(epochs=250, level_penalty=level_penalty).fit(matrix)
            scores = model.predictor_.score_block(np.arange(60), np.arange(50))
            distances.append(np.abs(scores - matrix.scale.nearest_level(scores)).mean())
        assert distances[1] < 0.5 * distances[0]

    @pytest.mark.parametrize("levels", [STARS, TWO, UNEQUAL])
    def test_pulling_to_levels_solves_its_problem(self, levels: tuple[float, ...]) -> None:
        mu, nu = 0.7, 1.9
        grid = np.linspace(-10, 30, 400_001)
        to_levels = np.abs(grid[:, None] - np.array(levels)).min(axis=1)
        for value in (-5.2, -1.4, 0.4, 0.6, 3.3, 6.1, 13.4, 13.6, 22.0):
            solved = grid[np.argmin(nu / 2 * to_levels**2 + mu / 2 * (grid - value) ** 2)]
            found = pull_to_levels(np.array([value]), Scale(levels), share=nu / (mu + nu))
            np.testing.assert_allclose(found, solved, atol=1e-4)

    def test_no_step_raises_the_lagrangian(self) -> None:
        matrix, _ = grouped(UNEQUAL, wrong=0.1)
        # All 50 columns as rank, so that one step of subspace iteration is exact.
        settings = RDMCSettings(
            latent_size=50, penalty=0.5, level_penalty=0.1, level_penalty_growth=1.2
        )
        solver = RDMCSolver(matrix, settings, cells_at_a_time=200)  # blocks of 4 of the 60 rows
        observed = ~np.isnan(matrix.to_array())
        targets = matrix.to_array()[observed]
        discrete, scores = np.full(matrix.shape, solver.mean), scores_of(solver)

        def lagrangian(errors: FloatArray, discrete: FloatArray, scores: FloatArray) -> float:
            mu, nu = solver.penalty, solver.level_penalty
            error_gap, copy_gap = discrete[observed] - targets - errors, discrete - scores
            to_levels = np.abs(discrete[..., None] - np.array(UNEQUAL)).min(axis=-1)
            return float(
                np.abs(errors).sum()
                + solver.multipliers @ error_gap
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
            return np.asarray(
                (rows * np.maximum(values - solver.gamma / solver.penalty, 0)) @ columns
            )

        generator = np.random.default_rng(0)
        for _ in range(15):
            levels = [lagrangian(solver.errors, discrete, scores)]
            solver.update_errors()
            levels.append(lagrangian(solver.errors, discrete, scores))
            solver.update_discrete()
            share = solver.level_penalty / (solver.penalty + solver.level_penalty)
            discrete = pull_to_levels(scores, matrix.scale, share=share)
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

    def test_a_heavy_nuclear_norm_leaves_the_mean(self) -> None:
        matrix, _ = grouped(STARS)
        model = RDMC(gamma=10.0).fit(matrix)
        level = matrix.scale.nearest_level(matrix.values.mean())
        np.testing.assert_array_equal(model.predict([0, 7], [3, 30]), [level, level])
        assert not np.any(model.predictor_.rows.take(np.arange(60))[:, :-1])

    def test_a_resumed_run_goes_on_to_the_bit(self) -> None:
        matrix, _ = grouped(STARS, wrong=0.1)
        assert_resumes_to_the_bit(*(make_rdmc(matrix) for _ in range(3)))

    def test_needs_levels(self) -> None:
        values = np.random.default_rng(0).random((12, 12))
        for matrix in (
            ObservedMatrix.from_array(values),
            ObservedMatrix.from_array(values > 2, Scale([0])),
        ):
            with pytest.raises(BadSetting, match="levels"):
                self.new().fit(matrix)
