"""How a fit is run: from its own checkpoint alone, what is said of its ending, and which matrices are told apart."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.contract import additive

from deepmf.errors import BadModelFile, TrainingDiverged, TrainingInterrupted
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.factorization.als import ALS, ALSSettings
from deepmf.models.fitting import Fitting, digest, tell_ending
from deepmf.models.means import MeansSettings
from deepmf.training.history import EpochRecord, History
from deepmf.training.settings import LoopSettings, TrainingSettings

SETTINGS = ALSSettings(latent_size=2, epochs=4)


def run(fitting: Fitting, fingerprint: dict[str, Any]) -> list[float]:
    """The losses of a training run."""
    task = ALS(**SETTINGS.to_dict())._task(additive(12, 10), None)
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


def test_matrices_that_differ_have_other_digests() -> None:
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
