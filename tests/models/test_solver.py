"""Models around a solver: what the loop and the file see of it."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from deepmf.data import split_entries
from deepmf.errors import CannotExtend, TrainingDiverged, TrainingInterrupted
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS
from deepmf.models.solver import FACTORS_ONLY, Arrays, FactorModel, Solver
from deepmf.testing import additive
from deepmf.training.history import EpochRecord, History
from deepmf.training.settings import LoopSettings, Settings


class HalfwaySolver(Solver):
    """Moves a constant prediction halfway to the mean in every sweep."""

    def __init__(self, train: ObservedMatrix) -> None:
        self.target = float(train.values.mean())
        self.shape = train.shape
        self.value = np.zeros(1)

    def sweep(self) -> float:
        self.value += (self.target - self.value) / 2
        return float(abs(self.target - self.value[0]))

    def compute_latents(self) -> tuple[np.ndarray, np.ndarray]:
        return np.full((self.shape[0], 1), self.value[0]), np.ones((self.shape[1], 1))

    def get_arrays(self) -> Arrays:
        return {"value": self.value}

    def set_arrays(self, arrays: Arrays) -> None:
        self.value = arrays["value"]


class Halfway(FactorModel):
    settings_class: ClassVar[type[Settings]] = LoopSettings
    predicts: ClassVar[tuple[str, ...]] = ("I",)
    cannot: ClassVar[str] = FACTORS_ONLY

    n_beside: ClassVar[int] = 0

    def _make_solver(self, entries: EntryStore) -> Solver:
        return HalfwaySolver(entries.train)

    def _count_latents(self, train: ObservedMatrix) -> int:
        return 1


SPLIT = split_entries(additive(), train=0.8, validation=0.1, test=0.1, seed=0)


def test_sweeps_are_epochs_and_the_best_is_kept() -> None:
    model = Halfway(epochs=5).fit(SPLIT.train, SPLIT.validation)
    assert len(model.history_) == 5
    losses = [record.loss for record in model.history_.records]
    assert losses == pytest.approx([losses[0] / 2**k for k in range(5)])
    rows, columns, values = SPLIT.validation.entries()
    assert rmse_error(model.predict(rows, columns), values) == model.history_.best_error


def test_predictions_are_clipped_to_the_scale() -> None:
    model = Halfway(epochs=1).fit(SPLIT.train)
    assert model.predictor_.score_pairs(np.array([0]), np.array([0]))[0] == pytest.approx(
        SPLIT.train.values.mean() / 2
    )
    low = Halfway(epochs=1).fit(ObservedMatrix.from_array([[1, 1], [1, 2.0]]))
    assert low.predict([0], [0]) == 1


def test_a_killed_fit_continues_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    with pytest.warns(TrainingInterrupted):
        Halfway(epochs=6).fit(
            SPLIT.train,
            SPLIT.validation,
            checkpoint=path,
            checkpoint_every=1,
            callbacks=[_interrupt_at(2)],
        )
    assert path.exists()
    seen: list[int] = []
    model = Halfway(epochs=6).fit(
        SPLIT.train,
        SPLIT.validation,
        checkpoint=path,
        callbacks=[lambda record, _: seen.append(record.epoch)],
    )
    assert seen == [2, 3, 4, 5]
    whole = Halfway(epochs=6).fit(SPLIT.train, SPLIT.validation)
    np.testing.assert_array_equal(model.complete(), whole.complete())
    assert not path.exists()


def test_a_model_of_factors_says_why_it_cannot_extend() -> None:
    model = Halfway(epochs=1).fit(SPLIT.train)
    with pytest.raises(CannotExtend, match="Halfway"):
        model.extend(SPLIT.validation)


def test_a_sweep_that_cannot_be_solved_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsolvable(_: HalfwaySolver) -> float:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(HalfwaySolver, "sweep", unsolvable)
    with pytest.raises(TrainingDiverged, match="epoch 0"):
        Halfway(epochs=1).fit(SPLIT.train)


def test_settings_that_cannot_be_chosen_are_an_error_of_ours() -> None:
    rows, columns = np.nonzero(np.random.default_rng(0).random((60, 50)) < 0.5)
    huge = np.random.default_rng(1).normal(scale=1e300, size=rows.size)
    with pytest.raises(TrainingDiverged, match="too large"), np.errstate(all="ignore"):
        ALS(epochs=1).fit(ObservedMatrix.from_entries(rows, columns, huge))


def test_similar_rows_go_by_direction() -> None:
    model = Halfway(epochs=1).fit(SPLIT.train)
    assert model.similar_rows("row 1", n=3).values == pytest.approx([1, 1, 1])


def _interrupt_at(epoch: int) -> Callable[[EpochRecord, History], None]:
    def callback(record: EpochRecord, _: History) -> None:
        if record.epoch == epoch:
            raise KeyboardInterrupt

    return callback
