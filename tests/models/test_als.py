"""ALS: the contract, and every solve against its closed form in double precision."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.models import described
from tests.models.contract import FullContract
from tests.models.resuming import assert_resumes_to_the_bit

from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.errors import BadSetting, ConstantValues, NothingObserved, TrainingInterrupted
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS, LIMITS, ALSSettings, ALSSolver
from deepmf.models.loading import load
from deepmf.training.history import EpochRecord, History
from deepmf.training.holdout import HeldOut

Floats = npt.NDArray[np.float64]


# A row and a column without entries, and counts from 1 up.
RATINGS = generate(60, 50, density=0.3, seed=3).matrix.to_array()

RATINGS[7], RATINGS[:, 11], RATINGS[8, 1:], RATINGS[8, 0] = np.nan, np.nan, np.nan, 4.0

MATRIX = ObservedMatrix.from_array(RATINGS, Scale([1, 2, 3, 4, 5]))

STORE = EntryStore.of(MATRIX)

SETTINGS = ALSSettings(latent_size=6, penalty=0.03, count_power=0.7, effect_penalty=1.5)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def closed_form(values: Floats, latents: Floats, effects: Floats, settings: ALSSettings) -> Floats:
    """The ridge solution of every row, one after the other; `values` (rows, columns) are less their
    mean."""
    factors = np.zeros((len(values), latents.shape[1] + 1))
    for row, line in enumerate(values):
        seen = ~np.isnan(line)
        if not seen.any():
            continue
        inputs = np.column_stack([latents[seen], np.ones(seen.sum())])
        ridge = np.full(inputs.shape[1], settings.penalty * 4 * seen.sum() ** settings.count_power)
        ridge[-1] = settings.effect_penalty
        right = inputs.T @ (line[seen] - effects[seen])
        factors[row] = np.linalg.solve(inputs.T @ inputs + np.diag(ridge), right)
    return factors


def objective(solver: ALSSolver, settings: ALSSettings) -> float:
    """The objective of a solver's factors."""
    rows, columns = solver.row_factors.astype(np.float64), solver.column_factors.astype(np.float64)
    scores = rows[:, :-1] @ columns[:, :-1].T + rows[:, -1:] + columns[:, -1]
    total = np.nansum((RATINGS - np.nanmean(RATINGS) - scores) ** 2)
    for factors, counts in ((rows, MATRIX.row_counts), (columns, MATRIX.column_counts)):
        total += (
            settings.penalty
            * 4
            * (counts**settings.count_power @ np.square(factors[:, :-1]).sum(axis=1))
        )
        total += settings.effect_penalty * np.square(factors[:, -1]).sum()
    return float(total)


def low_rank(n_rows: int = 60, n_columns: int = 40) -> Floats:
    generator = np.random.default_rng(5)
    rows, columns = generator.normal(size=(n_rows, 2)), generator.normal(size=(n_columns, 2))
    return (
        rows @ columns.T
        + generator.normal(size=(n_rows, 1))
        + generator.normal(size=n_columns)
        + 10.0
    )


def real_values(noise: float, unit: float = 1.0) -> ObservedMatrix:
    """Factors, effects and noise without bounds: the ends of the scale are outliers."""
    whole = low_rank() + noise * np.random.default_rng(2).standard_normal((60, 40))
    whole *= unit
    return ObservedMatrix.from_array(
        np.where(np.random.default_rng(1).random(whole.shape) < 0.7, whole, np.nan)
    )


class TestALS(FullContract):
    model = ALS
    settings: ClassVar[dict[str, Any]] = {"latent_size": 4, "penalty": 0.05, "epochs": 60}
    recovery_error = 0.2
    permutation_error = 1e-5
    copy_error = 1e-5

    @pytest.mark.parametrize("entries_at_a_time, piece", [(16, 5), (1 << 14, 5), (1 << 14, 192)])
    def test_a_half_sweep_is_the_closed_form(self, entries_at_a_time: int, piece: int) -> None:
        solver = ALSSolver(
            STORE,
            SETTINGS,
            limits=LIMITS._replace(entries_at_a_time=entries_at_a_time, piece=piece),
        )
        columns = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
        centred = RATINGS - np.nanmean(RATINGS)
        rows = solver.rows.solve(columns).factors
        expected = closed_form(
            centred, columns[:, :-1].astype(np.float64), columns[:, -1], SETTINGS
        )
        np.testing.assert_allclose(rows, expected, atol=2e-5)
        again = solver.columns.solve(rows).factors
        expected = closed_form(centred.T, rows[:, :-1].astype(np.float64), rows[:, -1], SETTINGS)
        np.testing.assert_allclose(again, expected, atol=2e-5)
        assert not rows[7].any()
        assert not again[11].any()

    @pytest.mark.parametrize("entries_at_a_time", [8, 1 << 14])
    def test_factors_improve_up_to_the_solution(self, entries_at_a_time: int) -> None:
        limits = LIMITS._replace(
            entries_at_a_time=entries_at_a_time, piece=min(192, entries_at_a_time)
        )
        rows = ALSSolver(STORE, SETTINGS, limits=limits, least_gain=0.0).rows
        columns = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
        # these are solved for at once
        solution, long = rows.solve(columns), MATRIX.row_counts > entries_at_a_time
        found = [rows.improve(columns, np.zeros((60, 7), dtype=np.float32))]
        for _ in range(12):
            found.append(rows.improve(columns, found[-1].factors))
        told = [each.objective for each in found]
        assert np.all(np.diff(told) <= 1e-6 * told[0])
        assert told[0] < 1.03 * solution.objective
        assert told[-1] == pytest.approx(solution.objective, rel=1e-5)
        np.testing.assert_array_equal(found[0].factors[long], solution.factors[long])
        np.testing.assert_allclose(found[-1].factors, solution.factors, atol=1e-3)
        assert not found[-1].factors[7].any()

    def test_long_rows_in_pieces_improve_as_whole_ones(self) -> None:
        columns = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
        zeros = np.zeros((60, 7), dtype=np.float32)
        whole = ALSSolver(STORE, SETTINGS).rows.improve(columns, zeros)
        limits = LIMITS._replace(piece=4)  # no number of entries but 4, 8, ... fills its pieces
        pieces = ALSSolver(STORE, SETTINGS, limits=limits).rows.improve(columns, zeros)
        np.testing.assert_allclose(pieces.factors, whole.factors, atol=1e-5)
        assert pieces.objective == pytest.approx(whole.objective, rel=1e-6)

    def test_fewer_steps_leave_the_errors_of_all_sweeps(self) -> None:
        split = split_entries(
            generate(100, 80, density=0.4, seed=0).matrix, train=0.8, validation=0.2, test=0
        )
        held_out = HeldOut.of(split.train, split.validation)
        assert held_out is not None

        def compute_errors(**given: float) -> list[float]:
            solver, errors = (
                ALSSolver(EntryStore.of(split.train), ALSSettings(latent_size=10), **given),
                [],
            )
            for _ in range(15):
                solver.sweep()
                rows, columns = solver.compute_latents()
                predicted = (rows[held_out.rows] * columns[held_out.columns]).sum(axis=1)
                errors.append(rmse_error(predicted, held_out.values))
            return errors

        errors, expected = compute_errors(), compute_errors(least_gain=0.0)
        assert errors != expected
        np.testing.assert_allclose(errors, expected, atol=3e-4)

    def test_the_objective_is_told_and_never_rises(self) -> None:
        solver = ALSSolver(STORE, SETTINGS)
        told = [objective(solver, SETTINGS)]
        for _ in range(30):
            told.append(solver.sweep())
            assert told[-1] == pytest.approx(objective(solver, SETTINGS), rel=1e-6)
        assert np.all(np.diff(told) <= 1e-6 * told[0])
        assert told[-1] < 0.9 * told[1]

    def test_it_recovers_a_matrix_of_low_rank_with_effects(self) -> None:
        whole = low_rank()
        holes = np.where(np.random.default_rng(1).random(whole.shape) < 0.6, whole, np.nan)
        matrix = ObservedMatrix.from_array(holes, Scale(low=whole.min(), high=whole.max()))
        model = ALS(latent_size=2, penalty=1e-6, effect_penalty=1e-5, epochs=100).fit(matrix)
        np.testing.assert_allclose(model.complete(), whole, atol=1e-3)

    def test_a_known_row_with_new_entries_is_solved_for_with_all_of_them(self) -> None:
        model = ALS(**SETTINGS.to_dict()).fit(MATRIX)
        new = ObservedMatrix.from_entries([8, 8], [1, 2], [2, 5], MATRIX.scale)
        columns = np.delete(model.predictor_.columns.whole(), (-3, -1), axis=1).astype(np.float64)
        line = RATINGS[[8]].copy()
        line[0, 1:3] = 2, 5
        expected = closed_form(
            line - np.nanmean(RATINGS), columns[:, :-1], columns[:, -1], SETTINGS
        )
        np.testing.assert_allclose(
            model.extend(new).predictor_.rows.whole()[8, :-2], expected[0], atol=2e-5
        )

    @pytest.mark.parametrize("on", ["both", "rows"])
    def test_a_trained_row_is_what_its_entries_and_features_fold_in_to(self, on: str) -> None:
        matrix, features = described.matrix(), {"row_features": described.row_features()}
        features |= {"column_features": described.column_features()} if on == "both" else {}
        model = ALS(latent_size=3, epochs=4).fit(matrix, **features)
        rows, columns, values = matrix.entries()
        for at in (0, 3, 17):
            mine = rows == described.ROWS[at]
            folded = model.fold_in(columns[mine], values[mine], features=described.row_values(at))
            known = model.predict([described.ROWS[at]] * 30, matrix.column_labels)
            np.testing.assert_allclose(folded.predict(matrix.column_labels), known, atol=1e-5)

    def test_a_trained_column_is_what_its_entries_and_features_fold_in_to(self) -> None:
        matrix = described.matrix()
        model = ALS(latent_size=3, epochs=4).fit(
            matrix, column_features=described.column_features()
        )
        rows, columns, values = matrix.entries()
        mine = columns == described.COLUMNS[3]
        folded = model.fold_in_column(rows[mine], values[mine], features=described.column_values(3))
        known = model.predict(matrix.row_labels, [described.COLUMNS[3]] * 40)
        np.testing.assert_allclose(folded.predict(matrix.row_labels), known, atol=1e-5)

    def test_rows_without_entries_are_predicted_by_the_mean_and_the_column(self) -> None:
        model = ALS(**SETTINGS.to_dict()).fit(MATRIX)
        mean, effects = np.nanmean(RATINGS), model.predictor_.columns.whole()[:, -2]
        np.testing.assert_allclose(
            model.predict([7] * 3, [0, 1, 11]), mean + effects[[0, 1, 11]], rtol=1e-6
        )
        with pytest.warns(NothingObserved):
            more = model.extend(
                ObservedMatrix.from_entries(
                    [], [], [], MATRIX.scale, row_labels=[99], column_labels=[99]
                )
            )
        np.testing.assert_allclose(
            more.predict([99, 99], [0, 99]), [mean + effects[0], mean], rtol=1e-6
        )
        alone = model.extend(ObservedMatrix.from_entries([99], [99], [1], MATRIX.scale))
        # of the column, and then of the row what is left
        effect = (1 - mean) / (1 + SETTINGS.effect_penalty)
        effect += (1 - mean - effect) / (1 + SETTINGS.effect_penalty)
        np.testing.assert_allclose(alone.predict([99], [99]), mean + effect, rtol=1e-4)

    def test_a_run_goes_on_from_its_arrays_to_the_bit(self) -> None:
        assert_resumes_to_the_bit(*(ALSSolver(STORE, SETTINGS) for _ in range(3)))

    def test_two_threads_find_the_same(self, two_threads: None) -> None:
        solver, alone = (
            ALSSolver(STORE, SETTINGS, limits=LIMITS._replace(entries_at_a_time=64))
            for _ in range(2)
        )
        objective = solver.sweep()
        with ThreadPoolExecutor(1) as thread:
            assert torch.get_num_threads() == thread.submit(torch.get_num_threads).result() == 2
        torch.set_num_threads(1)
        assert alone.sweep() == pytest.approx(objective, rel=1e-6)
        np.testing.assert_allclose(alone.column_factors, solver.column_factors, atol=1e-5)

    @pytest.mark.slow
    def test_penalties_fit_any_scale(self) -> None:
        tenfold = ObservedMatrix.from_array(10 * RATINGS - 30, Scale([-20, -10, 0, 10, 20]))
        everyone = np.arange(60), np.arange(50)
        scores, wide = (
            ALS(**SETTINGS.to_dict()).fit(matrix).predictor_.score_block(*everyone)
            for matrix in (MATRIX, tenfold)
        )
        np.testing.assert_allclose(wide, 10 * scores - 30, atol=2e-3)

    @pytest.mark.slow
    @pytest.mark.parametrize("noise, unit", [(0.3, 1.0), (1.0, 1e-3)])
    def test_the_default_is_as_good_on_real_values_as_a_penalty_that_was_searched(
        self, noise: float, unit: float
    ) -> None:
        split = split_entries(real_values(noise, unit), train=0.7, validation=0.1, test=0.2)
        rows, columns, values = split.test.entries()

        def error(**given: Any) -> float:
            model = ALS(**given).fit(split.train, split.validation)
            return rmse_error(model.predict(rows, columns), values) / float(np.std(values))

        searched = min(error(penalty=penalty) for penalty in np.geomspace(0.002, 0.5, 9))
        assert error() < 1.03 * searched < 0.75

    @pytest.mark.slow
    def test_the_penalty_is_chosen_on_real_values_where_it_is_not_given(
        self, tmp_path: Path
    ) -> None:
        matrix = real_values(0.5)
        model = ALS(epochs=4).fit(matrix)
        assert model.chosen_["penalty"] == model.settings.penalty and model.settings.penalty < 0.1
        assert not {"penalty"} & {*ALS(penalty=0.2).fit(matrix).chosen_, *ALS().fit(MATRIX).chosen_}
        assert ALS().fit(MATRIX).settings.penalty == ALSSettings().penalty
        # A file keeps it: rows are folded in with the ridge that columns were fitted with.
        model.save(tmp_path / "model")
        again = load(tmp_path / "model")
        assert again.settings == model.settings
        folded = (
            each.fold_in([0, 1], [12.0, 8.0]).predict(np.arange(40)) for each in (again, model)
        )
        np.testing.assert_array_equal(*folded)
        same = ALS(**model.settings.to_dict()).fit(matrix)
        np.testing.assert_array_equal(same.complete(), model.complete())

    @pytest.mark.slow
    def test_a_fit_to_real_values_goes_on_from_its_checkpoint_to_the_bit(
        self, tmp_path: Path
    ) -> None:
        matrix, kept = real_values(0.5), tmp_path / "checkpoint"

        def interrupt(record: EpochRecord, history: History) -> None:
            if record.epoch == 3:
                raise KeyboardInterrupt

        with pytest.warns(TrainingInterrupted):
            ALS(epochs=6).fit(matrix, checkpoint=kept, checkpoint_every=1, callbacks=[interrupt])
        assert kept.exists()
        again = ALS(epochs=6).fit(matrix, checkpoint=kept, checkpoint_every=1)
        whole = ALS(epochs=6).fit(matrix)
        assert again.chosen_ == whole.chosen_
        np.testing.assert_array_equal(again.complete(), whole.complete())

    def test_too_few_real_values_to_choose_by_take_the_usual_penalty(self) -> None:
        few = ObservedMatrix.from_array(np.random.default_rng(0).normal(size=(10, 12)))
        assert ALS().fit(few).settings.penalty == ALSSettings().penalty

    def test_what_is_alike_is_told_by_latents_alone(self) -> None:
        whole = low_rank()
        whole[:, 1] = whole[:, 0] + 3  # another effect, the same latents
        model = ALS(latent_size=2, penalty=1e-6, effect_penalty=1e-5, epochs=60).fit(
            ObservedMatrix.from_array(whole)
        )
        labels, values = model.similar_columns(0, n=2)
        assert labels[0] == 1
        assert values[0] == pytest.approx(1, abs=1e-4)
        assert values[1] < 0.9999
        assert model.predictor_.directions(model.predictor_.rows).shape == (60, 2)

    def test_next_to_no_penalty_stays_finite(self) -> None:
        model = ALS(latent_size=30, penalty=1e-30, effect_penalty=0.0).fit(MATRIX)
        assert np.all(np.isfinite(model.complete()))

    def test_a_scale_of_one_value(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstantValues)
            matrix = ObservedMatrix.from_array([[3, 3, np.nan], [3, np.nan, 3]])
        np.testing.assert_array_equal(ALS().fit(matrix).complete(), np.full((2, 3), 3.0))

    @pytest.mark.parametrize(
        "setting, wrong",
        [("latent_size", 0), ("penalty", 0), ("count_power", 1.5), ("effect_penalty", -1)],
    )
    def test_settings_out_of_range(self, setting: str, wrong: float) -> None:
        with pytest.raises(BadSetting, match=setting):
            ALS(**{setting: wrong})
