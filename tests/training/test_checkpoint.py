"""Checkpoints: a killed training continues to the same result, to the bit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deepmf
from deepmf.data import split_entries
from deepmf.datasets import generate
from deepmf.errors import (
    BadModelFile,
    BadSetting,
    DeepMFWarning,
    TrainingDiverged,
    TrainingInterrupted,
)
from deepmf.models.dmf import DMF
from deepmf.storage.model_file import StoredFile, read_file
from deepmf.training.checkpoint import Checkpoint
from deepmf.training.history import Callback, EpochRecord, History
from deepmf.training.loop import TrainingState

SETTINGS = {
    "hidden_sizes": (16,),
    "latent_size": 8,
    "dropout": 0.4,
    "epochs": 9,
    "block_rows": 12,
    "block_columns": 10,
    "validate_every": 2,
    "decay_every": 3,
    "device": "cpu",
}

SPLIT = split_entries(
    generate(40, 30, n_entries=300, seed=0).matrix, train=0.8, validation=0.1, test=0.1, seed=0
)

KILLED_IN_EPOCH = 5


FINGERPRINT = {
    "model": "DMF",
    "settings": {"epochs": 9, "hidden_sizes": [16]},
    "training entries": "abc",
}


def fitted(
    *,
    checkpoint: Path | None = None,
    callback: Callback | None = None,
    validation: bool = True,
    **settings: Any,
) -> DMF:
    """A model fitted on the same data as all others here."""
    return DMF(**SETTINGS | settings).fit(
        SPLIT.train,
        SPLIT.validation if validation else None,
        callbacks=[callback] if callback else [],
        checkpoint=checkpoint,
        checkpoint_every=2,
    )


def counted(epochs: list[int]) -> Callback:
    def callback(record: EpochRecord, _: History) -> None:
        epochs.append(record.epoch)

    return callback


def stopping_in(epoch: int, error: type[BaseException]) -> Callback:
    def callback(record: EpochRecord, _: History) -> None:
        if record.epoch == epoch:
            raise error

    return callback


def saved(model: DMF, folder: Path) -> StoredFile:
    """What a model saves, without the times in its history."""
    model.save(folder / "model.safetensors")
    stored = read_file(folder / "model.safetensors", kind="model")
    for record in stored.content["history"]["records"]:
        record["seconds"] = None
    return stored


def assert_same(one: StoredFile, other: StoredFile) -> None:
    assert one.content == other.content
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype
        np.testing.assert_array_equal(tensor, other.tensors[name], err_msg=name)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> StoredFile:
    return saved(fitted(), tmp_path_factory.mktemp("uninterrupted"))


@pytest.mark.slow
def test_a_killed_training_continues_to_the_same_result(
    tmp_path: Path, uninterrupted: StoredFile
) -> None:
    path = tmp_path / "run.checkpoint"
    source = Path(deepmf.__file__).parents[1]
    child = subprocess.Popen(
        [sys.executable, __file__, str(path), str(torch.get_num_threads())],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    try:
        assert child.stdout is not None
        seen = [int(child.stdout.readline()) for _ in range(KILLED_IN_EPOCH + 1)]
        assert seen == list(range(KILLED_IN_EPOCH + 1))
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert child.returncode < 0 and path.exists()
    epochs: list[int] = []
    model = fitted(checkpoint=path, callback=counted(epochs))
    # It was killed before the sixth epoch was kept, so that one is trained again.
    assert epochs == [4, 5, 6, 7, 8]
    assert_same(saved(model, tmp_path), uninterrupted)
    assert not path.exists()


def test_a_checkpoint_changes_nothing_and_goes_at_the_end(
    tmp_path: Path, uninterrupted: StoredFile
) -> None:
    path, there = tmp_path / "run.checkpoint", []
    model = fitted(checkpoint=path, callback=lambda *_: there.append(path.exists()))
    assert there == [False, False] + [True] * 7  # after an epoch, before its state is kept
    assert_same(saved(model, tmp_path), uninterrupted)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_an_interrupted_training_keeps_its_file_and_can_be_continued(
    tmp_path: Path, uninterrupted: StoredFile
) -> None:
    path = tmp_path / "run.checkpoint"
    with pytest.warns(TrainingInterrupted):
        stopped = fitted(checkpoint=path, callback=stopping_in(6, KeyboardInterrupt))
    assert stopped.history_.stopped == "interrupted" and path.exists()
    assert np.isfinite(
        stopped.predict(SPLIT.test.row_labels[:3], SPLIT.test.column_labels[:3])
    ).all()
    assert_same(saved(fitted(checkpoint=path), tmp_path), uninterrupted)
    assert not path.exists()


DIFFERENT_RUNS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "seed": ("seed", lambda path: fitted(checkpoint=path, seed=1)),
    "epochs": ("epochs", lambda path: fitted(checkpoint=path, epochs=10)),
    "no validation": ("validation entries", lambda path: fitted(checkpoint=path, validation=False)),
    "entries": (
        "training entries",
        lambda path: DMF(**SETTINGS).fit(SPLIT.test, SPLIT.validation, checkpoint=path),
    ),
}


@pytest.mark.parametrize("differing, start", DIFFERENT_RUNS.values(), ids=DIFFERENT_RUNS.keys())
def test_the_file_of_another_run_is_refused(
    tmp_path: Path, differing: str, start: Callable[[Path], object]
) -> None:
    path = tmp_path / "run.checkpoint"
    with pytest.raises(ZeroDivisionError):
        fitted(checkpoint=path, callback=stopping_in(2, ZeroDivisionError))
    kept = path.read_bytes()
    with pytest.raises(BadModelFile) as caught:
        start(path)
    assert re.match(f"{path} .*another run .*its {differing} differ", str(caught.value))
    assert path.read_bytes() == kept


STATE = TrainingState(
    {"history": {"records": [{"loss": 0.1 + 0.2, "notes": {}}], "best_error": None}},
    {
        "network.weight": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
        "network.count": np.array(7),
        "optimiser.0.step": np.array(3.0),
        "generator.walk": torch.Generator().manual_seed(3).get_state().numpy(),
        "empty": np.empty((0, 4), dtype=np.float32),
    },
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", FINGERPRINT)
    assert checkpoint.read() is None
    checkpoint.write(TrainingState({"history": {}}, {}))
    checkpoint.write(STATE)  # the later one replaces the one before
    state = checkpoint.read()
    assert state is not None and state.content == STATE.content
    assert state.tensors.keys() == STATE.tensors.keys()
    for name, array in STATE.tensors.items():
        assert state.tensors[name].dtype == array.dtype
        assert np.array_equal(state.tensors[name], array)
        state.tensors[name][...] = 0  # and may be written to
    assert [file.name for file in tmp_path.iterdir()] == ["run.checkpoint"]


def test_a_fit_that_diverges_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged):
        fitted(checkpoint=tmp_path / "run.checkpoint", learning_rate=1e38)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_cannot_be_written_is_told_once_and_training_goes_on(
    tmp_path: Path, uninterrupted: StoredFile
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def remove_folder(record: EpochRecord, _: History) -> None:
        if record.epoch == 0:
            folder.rmdir()

    with pytest.warns(DeepMFWarning) as caught:
        model = fitted(checkpoint=folder / "run.checkpoint", callback=remove_folder)
    (said,) = [str(warning.message) for warning in caught if warning.category is DeepMFWarning]
    assert re.match(f"{folder / 'run.checkpoint'} .*no folder {folder}", said)
    assert "training continues" in said
    assert_same(saved(model, tmp_path), uninterrupted)


def test_a_missing_folder_is_noticed_before_training(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="nowhere"):
        fitted(
            checkpoint=tmp_path / "nowhere" / "run.checkpoint",
            callback=stopping_in(0, ZeroDivisionError),
        )


def train_until_killed(path: Path) -> None:
    """Fit with a checkpoint, say each epoch, and hang in one."""

    def callback(record: EpochRecord, _: History) -> None:
        sys.stdout.write(f"{record.epoch}\n")
        sys.stdout.flush()
        if record.epoch == KILLED_IN_EPOCH:
            signal.pause()

    fitted(checkpoint=path, callback=callback)


if __name__ == "__main__":
    # the last bits of a sum depend on how many threads share it
    torch.set_num_threads(int(sys.argv[2]))
    train_until_killed(Path(sys.argv[1]))
