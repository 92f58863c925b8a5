"""ODMC: the contract, and its mathematics against plain restatements."""

from typing import Any, ClassVar

import numpy as np
import pytest
from tests.models.resuming import assert_resumes_to_the_bit

from deepmf.datasets import checkerboard
from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.paper.odmc import ODMC, ODMCSettings, ODMCSolver
from deepmf.testing import ModelContract, additive

UNEQUAL = Scale([-1, 0, 2, 7])


def solver_of(matrix: ObservedMatrix, **settings: Any) -> ODMCSolver:
    return ODMCSolver(matrix, ODMCSettings(**settings))


def unequal(n_rows: int = 9, n_columns: int = 7) -> ObservedMatrix:
    """Random levels in unequal steps, two thirds of them observed."""
    generator = np.random.default_rng(0)
    values = generator.choice(UNEQUAL.levels, size=(n_rows, n_columns))
    return ObservedMatrix.from_array(
        np.where(generator.random(values.shape) < 0.67, values, np.nan), UNEQUAL
    )


def shaken(matrix: ObservedMatrix, **settings: Any) -> ODMCSolver:
    """A solver at a random place, far from its start."""
    generator = np.random.default_rng(1)
    solver = solver_of(matrix, latent_size=3, **settings)
    for name, spread in (("rows", 0.7), ("columns", 0.7), ("thresholds", 0.1)):
        solver.learned[name] += spread * generator.standard_normal(solver.learned[name].shape)
    solver.learned["rows"][:, -1] = solver.learned["columns"][:, -2] = 1.0
    return solver


def everything(solver: ODMCSolver) -> np.ndarray:
    return np.arange(solver.entry_levels.size)


def objective_of(solver: ODMCSolver, matrix: ObservedMatrix) -> float:
    """The objective, entry by entry, in units of a quarter of the scale."""
    settings, unit = solver.settings, (matrix.scale.high - matrix.scale.low) / 4
    levels = matrix.scale.levels / unit
    rows, columns, thresholds = (solver.learned[name] for name in ("rows", "columns", "thresholds"))
    total = 0.5 * settings.gamma * (np.sum(rows**2) - len(rows) + np.sum(columns**2) - len(columns))
    for i, j, value in zip(*matrix.entries(), strict=True):
        score = matrix.values.mean(dtype=np.float64) / unit + rows[i] @ columns[j]
        level = levels.tolist().index(value / unit)
        if level > 0:
            gap = levels[level] - levels[level - 1]
            lower = levels[level - 1] + (thresholds[level - 1] + settings.margin) * gap
            total += 0.5 * max(0.0, lower - score) ** 2
        if level < levels.size - 1:
            gap = levels[level + 1] - levels[level]
            upper = levels[level] + (thresholds[level] - settings.margin) * gap
            total += 0.5 * max(0.0, score - upper) ** 2
        total += 0.5 * settings.alpha * np.sum((thresholds - 0.5) ** 2)
    return float(total)


@pytest.mark.slow
class TestODMC(ModelContract):
    model = ODMC
    settings: ClassVar[dict[str, Any]] = {
        "latent_size": 2,
        "epochs": 10,
        "gamma": 0.02,
        "margin": 0.25,
        "learning_rate": 0.03,
        "decay": 0.85,
    }
    recovery_error = 0.4
    permutation_error = 0.22

    @pytest.mark.parametrize("margin", [0.0, 0.2])
    def test_the_objective_against_a_plain_restatement(self, margin: float) -> None:
        matrix = unequal()
        solver = shaken(matrix, gamma=0.7, alpha=0.3, margin=margin)
        assert solver.differentiate(everything(solver)).objective == pytest.approx(
            objective_of(solver, matrix)
        )

    @pytest.mark.parametrize("margin", [0.0, 0.2])
    def test_the_gradient_against_finite_differences(self, margin: float) -> None:
        solver = shaken(unequal(), gamma=0.7, alpha=0.3, margin=margin)
        slopes = solver.differentiate(everything(solver))
        fixed = {"rows": -1, "columns": -2}
        for name, array in solver.learned.items():
            expected = np.zeros_like(array)
            for place in np.ndindex(array.shape):
                if array.ndim == 2 and place[1] == fixed[name] % array.shape[1]:
                    continue  # ones are no parameters
                there = array[place]
                array[place] = there + 1e-6
                ahead = solver.differentiate(everything(solver)).objective
                array[place] = there - 1e-6
                expected[place] = (
                    ahead - solver.differentiate(everything(solver)).objective
                ) / 2e-6
                array[place] = there
            np.testing.assert_allclose(getattr(slopes, name), expected, atol=1e-6, err_msg=name)

    def test_scores_inside_their_intervals_cost_nothing(self) -> None:
        matrix = additive()
        dense, mean = matrix.to_array(), matrix.values.mean(dtype=np.float64)
        row_effects = np.nanmin(dense, axis=1) - 1
        column_effects = np.nanmin(dense - row_effects[:, None], axis=0)
        solver = solver_of(matrix, latent_size=1, gamma=0.0)
        rows, columns = solver.learned["rows"], solver.learned["columns"]
        rows[:, 0], rows[:, -2], columns[:, -1] = 0.0, row_effects, column_effects - mean
        slopes = solver.differentiate(everything(solver))
        assert slopes.objective == 0.0
        assert not any(np.any(slope) for slope in slopes[1:])
        columns[:, -1] += 0.49  # still inside
        assert solver.differentiate(everything(solver)).objective == 0.0
        columns[:, -1] += 0.11  # 0.1 above the upper boundary, where there is one
        free = int(np.sum(matrix.values == 5))
        assert solver.differentiate(everything(solver)).objective == pytest.approx(
            0.005 * (matrix.n_entries - free)
        )

    @pytest.mark.slow
    def test_thresholds_stay_inside_and_boundaries_never_cross(self) -> None:
        solver = solver_of(
            unequal(30, 20), latent_size=2, alpha=0.0, learning_rate=0.5, gamma=20.0, momentum=0.5
        )
        reached = []
        for _ in range(8):
            solver.sweep()
            thresholds = solver.learned["thresholds"]
            assert np.all((thresholds >= 0) & (thresholds <= 1))
            assert np.all(np.diff(solver.boundaries) >= 0)
            np.testing.assert_allclose(
                solver.boundaries,
                UNEQUAL.levels[:-1] + thresholds * np.diff(UNEQUAL.levels),
                atol=1e-12,
            )
            reached += [*thresholds]
        assert {0.0, 1.0} <= set(reached)  # they were stopped at both ends

    def test_scores_become_the_level_whose_interval_holds_them(self) -> None:
        model = ODMC(latent_size=2, epochs=1).fit(unequal())
        boundaries = np.array([-0.25, 1.5, 4.0])
        stored = model.predictor_.pack().tensors | {"boundaries": boundaries}
        readout = model._load_predictor(model.entries_, {}, stored).readout
        scores = np.array([-99, -0.26, -0.25, 1.49, 1.5, 3.99, 4.0, 99])
        assert readout.values(scores).tolist() == [-1, -1, 0, 0, 2, 2, 7, 7]

    @pytest.mark.slow
    def test_two_levels(self) -> None:
        board = checkerboard(20, 20, observed=0.7, seed=0).matrix
        model = ODMC(latent_size=1, gamma=0.1, margin=0.25, learning_rate=0.02, epochs=20).fit(
            board
        )
        assert model.boundaries_.shape == (1,)
        truth = np.where(np.add.outer(np.arange(20), np.arange(20)) % 2 == 0, 5.0, 1.0)
        np.testing.assert_array_equal(model.complete(), truth)

    @pytest.mark.slow
    def test_the_unit_of_the_scale_is_irrelevant(self) -> None:
        stars = additive()
        rows, columns, values = stars.entries()
        labels = {"row_labels": stars.row_labels, "column_labels": stars.column_labels}
        tens = ObservedMatrix.from_entries(
            rows, columns, 10 * values - 70, Scale([-60, -50, -40, -30, -20]), **labels
        )
        one, other = self.new().fit(stars), self.new().fit(tens)
        np.testing.assert_allclose(other.boundaries_, 10 * one.boundaries_ - 70)
        np.testing.assert_array_equal(
            other.predict(rows, columns), 10 * one.predict(rows, columns) - 70
        )

    def test_a_sweep_is_gradient_descent_with_momentum(self) -> None:
        settings = {
            "latent_size": 2,
            "alpha": 0.0,
            "learning_rate": 0.1,
            "decay": 0.5,
            "momentum": 0.6,
            "seed": 3,
        }
        solver, plain = (solver_of(unequal(60, 40), **settings) for _ in range(2))
        n_entries, clipped = plain.entry_levels.size, 0
        velocities = {name: np.zeros_like(array) for name, array in plain.learned.items()}
        for sweep, rate in ((1, 0.1), (2, 0.05)):
            order = np.random.default_rng([3, sweep]).permutation(n_entries)
            for batch in np.split(
                order, np.arange(plain._batch_size, n_entries, plain._batch_size)
            ):
                slopes = plain.differentiate(batch)
                for name, array in plain.learned.items():
                    slope = getattr(slopes, name) / (batch.size if name == "thresholds" else 1)
                    velocities[name] = 0.6 * velocities[name] - rate * slope
                    plain.learned[name] = array + velocities[name]
                free = plain.learned["thresholds"]
                plain.learned["thresholds"] = np.clip(free, 0, 1)
                velocities["thresholds"] = np.where(
                    free == np.clip(free, 0, 1), velocities["thresholds"], 0
                )
                clipped += int(np.sum(free != np.clip(free, 0, 1)))
            solver.sweep()
        assert clipped > 0
        for name, array in plain.learned.items():
            np.testing.assert_allclose(solver.learned[name], array, atol=1e-10, err_msg=name)

    @pytest.mark.slow
    def test_a_resumed_run_goes_on_to_the_bit(self) -> None:
        matrix = additive()
        assert_resumes_to_the_bit(*(solver_of(matrix, latent_size=3) for _ in range(3)))

    def test_scales_without_two_levels_are_refused(self) -> None:
        interval = ObservedMatrix.from_array([[0.5, 1.5], [2.5, np.nan]], Scale(low=0, high=3))
        with pytest.raises(BadSetting, match="ODMC"):
            ODMC().fit(interval)
        with pytest.raises(BadSetting, match="levels"):
            ODMC().fit(ObservedMatrix.from_array([[3, np.nan], [3, 3]], Scale([3])))
