"""How a fit is run: from its own checkpoint alone, what is said of its ending, and which matrices
are told apart."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.lies import small_model

from deepmf.data import read_matrix, split_entries, split_time
from deepmf.errors import (
    BadModelFile,
    DeepMFWarning,
    NotBetterThanMeans,
    TrainingDiverged,
    TrainingInterrupted,
)
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.als import ALS, ALSSettings
from deepmf.models.fitting import Fitting, digest, report_ending
from deepmf.models.loading import load
from deepmf.models.means import Means, MeansSettings
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.registry import MODELS
from deepmf.testing import additive
from deepmf.training.history import EpochRecord, History
from deepmf.training.holdout import HeldOut
from deepmf.training.settings import LoopSettings, TrainingSettings

SETTINGS = ALSSettings(latent_size=2, epochs=4)


def run(fitting: Fitting, fingerprint: dict[str, Any]) -> list[float]:
    """The losses of a training run."""
    task = ALS(**SETTINGS.to_dict())._make_task(EntryStore.of(additive(12, 10)), None)
    return [record.loss for record in fitting.run(task, SETTINGS, lambda: fingerprint).records]


def stop(record: EpochRecord, _: History) -> None:
    if record.epoch == 1:
        raise KeyboardInterrupt


@pytest.mark.parametrize("are_interactions", [False, True])
def test_validation_entries_of_unknown_rows_and_columns_are_left_out(
    are_interactions: bool, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    rows, columns = np.nonzero(random.random((12, 10)) < 0.8)
    days = np.where(
        rows == 11, 255, np.where(columns == 9, 252, random.integers(100, 270, rows.size))
    )
    matrix = ObservedMatrix.from_entries(
        rows, columns, 1 + (rows + columns) % 5, times=days * 86_400
    )
    split = split_time(matrix, train_before=250 * 86_400, validation_before=260 * 86_400)
    for name in ("train", "validation"):  # a file holds the rows and columns that have entries
        getattr(split, name).write(tmp_path / f"{name}.csv")
    options: dict[str, Any] = {"value": None} if are_interactions else {}
    train, validation = (
        read_matrix(tmp_path / f"{name}.csv", **options) for name in ("train", "validation")
    )
    known = validation.take_known(train.rows, train.columns)
    assert 0 < known.n_entries < validation.n_entries
    with pytest.warns(DeepMFWarning) as given:
        model = ALS(epochs=4, latent_size=2).fit(train, validation)
        expected = ALS(epochs=4, latent_size=2).fit(train, known)
    assert [each.filename for each in given if "left out" in str(each.message)] == [__file__]
    assert model.history_.best_error == expected.history_.best_error
    assert model.recommend(0, n=9).values.tolist() == expected.recommend(0, n=9).values.tolist()


def test_a_checkpoint_of_the_same_fingerprint_is_taken_up(tmp_path: Path) -> None:
    path, seen = tmp_path / "run", []
    straight = run(Fitting(), {"a": 1})
    assert len(straight) == 4 and not path.exists()
    assert run(Fitting([stop], path, checkpoint_every=1), {"a": 1}) == straight[:2]
    again = Fitting([lambda record, _: seen.append(record.epoch)], path, checkpoint_every=1)
    with pytest.raises(BadModelFile, match=str(path)):
        run(again, {"a": 2})
    assert run(again, {"a": 1}) == straight and 0 not in seen and seen[-1] == 3


def ended(stopped: str, *, best: int | None = None, n_epochs: int = 3) -> History:
    records = [EpochRecord(epoch, 1.0, None, None, 0.0) for epoch in range(n_epochs)]
    return History(records=records, best_epoch=best, stopped=stopped)


@pytest.mark.parametrize(
    "settings, best, rest",
    [
        (LoopSettings(), None, ""),
        (TrainingSettings(), None, "; try a smaller learning_rate"),
        (LoopSettings(), 1, "; the model keeps what it had learned in epoch 1"),
        (
            TrainingSettings(),
            1,
            "; the model keeps what it had learned in epoch 1; try a smaller learning_rate",
        ),
    ],
)
def test_divergence_is_told(settings: Any, best: int | None, rest: str) -> None:
    with pytest.raises(TrainingDiverged) as caught:
        report_ending(ended("diverged", best=best), settings)
    assert "epoch 3" in str(caught.value) and str(caught.value).endswith(rest)


def test_an_interruption_is_told_and_an_end_of_its_own_is_not() -> None:
    with pytest.warns(TrainingInterrupted, match="epoch 3$"):
        report_ending(ended("interrupted"), LoopSettings())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for stopped in ("epochs", "patience", ""):
            report_ending(ended(stopped), MeansSettings())


def no_better(
    stopped: str = "epochs", *, best_error: float = 0.9, means_error: float = 0.8
) -> History:
    history = ended(stopped, best=2)
    history.best_error, history.means_error = best_error, means_error
    return history


@pytest.mark.parametrize("stopped", ["epochs", "patience"])
def test_a_model_no_better_than_the_means_is_told(stopped: str) -> None:
    told = (
        "the validation RMSE of 0.9000 is not below that of the means, 0.8000: "
        "try other settings (epochs, penalty, latent_size) or another model"
    )
    with pytest.warns(NotBetterThanMeans) as caught:
        report_ending(no_better(stopped), SETTINGS)
    assert [str(warning.message) for warning in caught] == [told]


def test_nothing_is_told_of_the_means_where_the_model_is_better_or_could_not_be() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_ending(no_better(best_error=0.7), SETTINGS)
        report_ending(no_better(""), MeansSettings())  # the means themselves
        # equal values: the means are never wrong
        report_ending(no_better(best_error=1e-6, means_error=0.0), SETTINGS)
        warnings.simplefilter("ignore", TrainingInterrupted)
        report_ending(no_better("interrupted"), SETTINGS)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_knows_the_error_of_the_means(name: str, tmp_path: Path) -> None:
    split = split_entries(additive(12, 10), train=0.8, validation=0.2, test=0, seed=0)
    model = small_model(name).fit(split.train, split.validation)
    rows, columns, values = split.validation.entries()
    means = Means().fit(split.train)
    predict = means.predict_levels if model.predictor_.readout.predicts_levels else means.predict
    assert model.history_.means_error == rmse_error(predict(rows, columns), values)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").history_ == model.history_.drop_times()
    assert small_model(name).fit(split.train).history_.means_error is None


def test_the_means_have_a_validation_error_of_their_own() -> None:
    split = split_entries(additive(12, 10), train=0.8, validation=0.2, test=0, seed=0)
    model = Means(shrinkage=50).fit(split.train, split.validation)
    rows, columns, values = split.validation.entries()
    assert model.history_.best_error == rmse_error(model.predict(rows, columns), values)
    assert model.fit(split.train).history_ == History()


def test_matrices_that_differ_have_other_digests(tmp_path: Path) -> None:
    values = np.array([[1, 2, np.nan], [4, np.nan, 5]])
    plain = ObservedMatrix.from_array(values, Scale([1, 2, 3, 4, 5]))
    assert digest(plain) == digest(ObservedMatrix.from_array(values.copy(), Scale([1, 2, 3, 4, 5])))
    others = [
        ObservedMatrix.from_array(values, Scale(low=1, high=5)),
        ObservedMatrix.from_array(np.where(values == 2, 3, values), Scale([1, 2, 3, 4, 5])),
        ObservedMatrix.from_array(values[:, [0, 2, 1]], Scale([1, 2, 3, 4, 5])),
        ObservedMatrix.from_array(values, Scale([1, 2, 3, 4, 5]), row_labels=["a", "b"]),
        ObservedMatrix.from_array(values, Scale([1, 2, 3, 4, 5]), column_labels=[0, 1, 3]),
    ]
    assert len({digest(matrix) for matrix in (plain, *others)}) == 6
    others[3].write(tmp_path / "r.store")
    assert digest(read_matrix(tmp_path / "r.store")) == digest(others[3])


def test_one_entry_in_twenty_is_set_aside_and_no_longer_seen() -> None:
    matrix = additive(40, 30)
    seen, held_out = HeldOut.split(matrix, seed=0)
    assert held_out is not None and held_out.values.size == matrix.n_entries // 20
    assert seen.n_entries + held_out.values.size == matrix.n_entries
    assert seen.shape == matrix.shape and seen.scale == matrix.scale and seen.rows == matrix.rows
    left, whole = seen.to_array(), matrix.to_array()
    assert np.isnan(left[held_out.rows, held_out.columns]).all()
    left[held_out.rows, held_out.columns] = held_out.values
    np.testing.assert_array_equal(left, whole)
    assert held_out.values.dtype == np.float64


def test_the_seed_says_which() -> None:
    matrix = additive(40, 30)
    first, again, other = (HeldOut.split(matrix, seed=seed)[1] for seed in (0, 0, 1))
    assert first is not None and again is not None and other is not None
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert not np.array_equal(first.rows, other.rows)


def test_none_where_there_are_too_few() -> None:
    matrix = additive(40, 30)
    some = matrix.take_entries(np.arange(400))
    fewer = matrix.take_entries(np.arange(399))
    assert HeldOut.split(some, seed=0)[1] is not None
    seen, held_out = HeldOut.split(fewer, seed=0)
    assert seen is fewer and held_out is None


def test_no_more_than_a_choice_needs() -> None:
    _, held_out = HeldOut.split(additive(40, 30), seed=0, most=25)
    assert held_out is not None and held_out.values.size == 25


def test_own_settings_are_those_that_no_fit_chooses_and_those_given() -> None:
    assert (
        "latent_size" not in OrdinalDMF(seed=3).own_settings
        and OrdinalDMF(seed=3).own_settings["seed"] == 3
    )
    assert OrdinalDMF(latent_size=5).own_settings["latent_size"] == 5
