"""OptSpace: the contract, and its mathematics against plain restatements."""

from typing import Any, ClassVar

import numpy as np
import pytest
from tests.models.contract import ModelContract, additive
from tests.models.factorization.resuming import assert_resumes_to_the_bit

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.factorization.factorization_settings import OptSpaceSettings
from deepmf.models.factorization.optspace import (
    OptSpace,
    OptSpaceSolver,
    Spaces,
    light_entries,
)


def solver_of(matrix: ObservedMatrix, **settings: Any) -> OptSpaceSolver:
    return OptSpaceSolver(matrix, OptSpaceSettings(**settings))


def random_spaces(generator: np.random.Generator, shape: tuple[int, int], rank: int) -> Spaces:
    rows, columns = (np.linalg.qr(generator.standard_normal((size, rank))).Q for size in shape)
    return Spaces(rows, columns)


def low_rank() -> tuple[FloatArray, ObservedMatrix]:
    """A matrix of rank 2 without noise, and the half of it that is observed; its lower half mirrors the upper one.

    So the observed mean is 0, and subtracting it leaves the rank as it is.
    """
    generator = np.random.default_rng(5)
    half = generator.standard_normal((30, 2)) @ generator.standard_normal((2, 50))
    whole, observed = np.vstack([half, -half]), np.tile(generator.random(half.shape) < 0.5, (2, 1))
    return whole, ObservedMatrix.from_array(np.where(observed, whole, np.nan), Scale(low=-20, high=20))


class TestOptSpace(ModelContract):
    model = OptSpace
    settings: ClassVar[dict[str, Any]] = {"latent_size": 2, "epochs": 40}
    recovery_error = 0.25

    def test_the_objective_against_a_dense_restatement(self) -> None:
        matrix = additive(8, 7)
        solver = solver_of(matrix, latent_size=2)
        for _ in range(3):
            objective = solver.sweep()
        spaces, core, residuals, _ = solver.point
        dense = matrix.to_array()
        error = (spaces.rows @ core @ spaces.columns.T - (dense - np.nanmean(dense)))[~np.isnan(dense)]
        np.testing.assert_allclose(residuals, error, atol=1e-12)
        assert objective == pytest.approx(0.5 * np.sum(error**2))
        rows, columns = solver.latents()
        np.testing.assert_allclose(rows @ columns.T, spaces.rows @ core @ spaces.columns.T + np.nanmean(dense))

    def test_the_gradient_against_finite_differences(self) -> None:
        generator = np.random.default_rng(0)
        solver = solver_of(additive(12, 9), latent_size=3)
        solver.point = solver.best_at(random_spaces(generator, (12, 9), 3))
        spaces, gradient = solver.point.spaces, solver.gradient()
        for space, slope in zip(spaces, gradient, strict=True):
            np.testing.assert_allclose(space.T @ slope, 0, atol=1e-10)  # tangent
        for _ in range(5):
            free = [generator.standard_normal(space.shape) for space in spaces]
            direction = Spaces(*(d - space @ (space.T @ d) for d, space in zip(free, spaces, strict=True)))
            ahead, behind = (solver.best_at(spaces.moved(direction, h)).objective for h in (1e-5, -1e-5))
            expected = sum(np.sum(g * d) for g, d in zip(gradient, direction, strict=True))
            assert (ahead - behind) / 2e-5 == pytest.approx(expected, rel=1e-6)

    def test_the_objective_is_one_of_subspaces(self) -> None:
        generator = np.random.default_rng(1)
        solver = solver_of(additive(12, 9), latent_size=3)
        spaces = random_spaces(generator, (12, 9), 3)
        turned = Spaces(*(space @ np.linalg.qr(generator.standard_normal((3, 3))).Q for space in spaces))
        assert solver.best_at(turned).objective == pytest.approx(solver.best_at(spaces).objective)

    def test_the_core_is_the_least_squares_solution(self) -> None:
        matrix = additive(15, 11)
        solver = solver_of(matrix, latent_size=3)
        spaces = random_spaces(np.random.default_rng(2), (15, 11), 3)
        # an entry (i, j) has the coefficients x_ia y_jb of S_ab
        design = np.einsum("ea,eb->eab", spaces.rows[matrix.entry_rows], spaces.columns[matrix.by_row.columns])
        values = matrix.values - matrix.values.mean(dtype=np.float64)
        expected = np.linalg.lstsq(design.reshape(-1, 9), values)[0].reshape(3, 3)
        np.testing.assert_allclose(solver.best_core(spaces), expected, rtol=1e-9)

    def test_an_undetermined_core_is_the_smallest(self) -> None:
        matrix = ObservedMatrix.from_array([[1, np.nan, 2], [np.nan, 5, np.nan], [np.nan, np.nan, 4]])
        solver = solver_of(matrix, latent_size=3)
        spaces = Spaces(np.eye(3), np.eye(3))
        expected = np.where(np.isnan(matrix.to_array()), 0, matrix.to_array() - 3)
        np.testing.assert_allclose(solver.best_core(spaces), expected, atol=1e-12)

    def test_sweeps_stay_on_the_manifolds_and_never_rise(self) -> None:
        solver = solver_of(additive(), latent_size=4)
        objectives = [solver.point.objective]
        for _ in range(30):
            objectives.append(solver.sweep())
            for space in solver.point.spaces:
                np.testing.assert_allclose(space.T @ space, np.eye(4), atol=1e-12)
        assert np.all(np.diff(objectives) <= 0)
        assert objectives[-1] < 0.5 * objectives[0]

    def test_a_step_that_is_too_long_is_shortened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deepmf.models.factorization.optspace._OVERSHOOT", 100.0)
        solver = solver_of(additive(), latent_size=4)
        first = solver.point.spaces.moved(Spaces(*(-100 * part for part in solver.gradient())), 1.0)
        assert solver.best_at(first).objective > solver.point.objective
        objectives = [solver.point.objective, *(solver.sweep() for _ in range(10))]
        assert np.all(np.diff(objectives) < 0)

    def test_half_of_a_matrix_without_noise_gives_the_whole(self) -> None:
        whole, observed = low_rank()
        model = OptSpace(latent_size=2, epochs=150).fit(observed)
        assert rmse_error(model.complete().ravel(), whole.ravel()) < 1e-5

    def test_at_the_minimum_it_stays(self) -> None:
        _, observed = low_rank()
        solver = solver_of(observed, latent_size=2)
        for _ in range(300):
            objective = solver.sweep()
        assert objective < 1e-10
        before = solver.point
        solver.sweep()
        assert solver.point is before

    def test_the_start_is_the_same_where_the_rank_is_less_than_asked_for(self) -> None:
        generator = np.random.default_rng(0)
        matrix = ObservedMatrix.from_array(np.outer(generator.integers(1, 4, 80), generator.integers(1, 4, 60)) / 1.0)
        one, other = (solver_of(matrix, latent_size=6).arrays() for _ in range(2))
        for name, space in one.items():
            np.testing.assert_array_equal(space, other[name])
            np.testing.assert_allclose(space.T @ space, np.eye(6), atol=1e-12)

    def test_trimming_drops_exactly_the_heavy_rows_and_columns(self) -> None:
        values = np.full((8, 8), np.nan)
        values[np.arange(8), np.arange(8)] = np.arange(8)
        values[1, [0, 2, 4, 5]] = 2.0  # with the diagonal 5 entries, and a sixth below: just twice the mean, so light
        values[0] = values[:, 3] = 1.0  # 8 entries each: heavy
        values[7, 1] = 3.0
        matrix = ObservedMatrix.from_array(values)
        assert matrix.row_counts.tolist() == [8, 6, 2, 1, 2, 2, 2, 3]
        assert matrix.row_counts.mean() == 3.25
        rows, columns, _ = matrix.entries()
        np.testing.assert_array_equal(light_entries(matrix, 2.0), (rows != 0) & (columns != 3))
        np.testing.assert_array_equal(light_entries(matrix, 6 / 3.25), (rows != 0) & (columns != 3))  # not more than
        np.testing.assert_array_equal(light_entries(matrix, 5.9 / 3.25), (rows > 1) & (columns != 3))
        solver = solver_of(matrix, latent_size=2)
        start = solver.point.spaces
        np.testing.assert_allclose(start.rows[0], 0, atol=1e-12)
        np.testing.assert_allclose(start.columns[3], 0, atol=1e-12)
        assert np.abs(start.rows[1:]).max() > 0.1
        solver.sweep()  # for the start only: now they count
        assert np.abs(solver.point.spaces.rows[0]).max() > 1e-3
        assert np.abs(solver.point.spaces.columns[3]).max() > 1e-3

    def test_a_resumed_run_goes_on_to_the_bit(self) -> None:
        matrix = additive()
        assert_resumes_to_the_bit(*(solver_of(matrix, latent_size=3, seed=seed) for seed in (0, 0, 1)))

    def test_a_matrix_of_one_value_and_an_empty_row(self) -> None:
        constant = ObservedMatrix.from_array([[3, np.nan, 3], [3, 3, np.nan], [np.nan] * 3], Scale([1, 2, 3]))
        np.testing.assert_allclose(OptSpace().fit(constant).complete(), 3)
        lonely = ObservedMatrix.from_array([[1, 5, 2], [2, 5, 1], [np.nan] * 3], Scale([1, 2, 3, 4, 5]))
        np.testing.assert_allclose(OptSpace().fit(lonely).complete()[2], 16 / 6, rtol=1e-6)

    def test_settings(self) -> None:
        with pytest.raises(BadSetting, match="latent_size must be a whole number of at least 1; got 0"):
            OptSpace(latent_size=0)
        with pytest.raises(BadSetting, match="trimming must be a number at least 1; got 0.5"):
            OptSpace(trimming=0.5)
