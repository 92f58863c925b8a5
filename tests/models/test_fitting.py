"""How a fit is run: from its own checkpoint alone, what is said of its ending, and which matrices are told apart."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.contract import additive
from tests.models.lies import small_model

from deepmf.data.read import read_matrix
from deepmf.data.splits import split_entries
from deepmf.errors import BadModelFile, NotBetterThanMeans, TrainingDiverged, TrainingInterrupted
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import rmse_error
from deepmf.models.factorization.als import ALS, ALSSettings
from deepmf.models.fitting import Fitting, digest, tell_ending
from deepmf.models.load import load
from deepmf.models.means import Means, MeansSettings
from deepmf.models.registry import HOMES
from deepmf.training.history import EpochRecord, History
from deepmf.training.settings import LoopSettings, TrainingSettings

SETTINGS = ALSSettings(latent_size=2, epochs=4)


def run(fitting: Fitting, fingerprint: dict[str, Any]) -> list[float]:
    """The losses of a training run."""
    task = ALS(**SETTINGS.to_dict())._task(EntryStore.of(additive(12, 10)), None)
    return [record.loss for record in fitting.run(task, SETTINGS, fingerprint).records]


def stop(record: EpochRecord, _: History) -> None:
    if record.epoch == 1:
        raise KeyboardInterrupt


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
        tell_ending(ended("diverged", best=best), settings)
    assert str(caught.value) == f"the loss of epoch 3, or its validation error, is not a finite number{rest}"


def test_an_interruption_is_told_and_an_end_of_its_own_is_not() -> None:
    with pytest.warns(TrainingInterrupted, match="^training was interrupted in epoch 3$"):
        tell_ending(ended("interrupted"), LoopSettings())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for stopped in ("epochs", "patience", ""):
            tell_ending(ended(stopped), MeansSettings())


def no_better(stopped: str = "epochs", *, best_error: float = 0.9, means_error: float = 0.8) -> History:
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
        tell_ending(no_better(stopped), SETTINGS)
    assert [str(warning.message) for warning in caught] == [told]


def test_nothing_is_told_of_the_means_where_the_model_is_better_or_could_not_be() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_ending(no_better(best_error=0.7), SETTINGS)
        tell_ending(no_better(""), MeansSettings())  # the means themselves
        tell_ending(no_better(best_error=1e-6, means_error=0.0), SETTINGS)  # equal values: the means are never wrong
        warnings.simplefilter("ignore", TrainingInterrupted)
        tell_ending(no_better("interrupted"), SETTINGS)


@pytest.mark.parametrize("name", HOMES)
def test_every_model_knows_the_error_of_the_means(name: str, tmp_path: Path) -> None:
    split = split_entries(additive(12, 10), train=0.8, validation=0.2, test=0, seed=0)
    model = small_model(name).fit(split.train, split.validation)
    rows, columns, values = split.validation.entries()
    means = Means().fit(split.train)
    predict = means.predict_levels if model.predictor_.readout.predicts_levels else means.predict
    assert model.history_.means_error == rmse_error(predict(rows, columns), values)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").history_ == model.history_
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
