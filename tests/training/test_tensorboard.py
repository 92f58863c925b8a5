"""The log for TensorBoard: what is read back from its files is the history of the fit."""

import errno
import os
import sys
import threading
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deepmf.data.splits import split_entries
from deepmf.data.synthetic.generator import generate
from deepmf.errors import CannotSave, DeepMFWarning, MissingDependency
from deepmf.models.dmf.dmfd import DMFD
from deepmf.training.tensorboard import tensorboard_log


def logged(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return (epoch, number) of every name in a folder's log."""
    log = EventAccumulator(str(folder)).Reload()
    return {name: [(event.step, event.value) for event in log.Scalars(name)] for name in log.Tags()["scalars"]}


def test_the_log_is_the_history(tmp_path: Path) -> None:
    split = split_entries(generate(30, 20, density=0.5, seed=0).matrix, seed=0)
    model = DMFD(hidden_sizes=(8,), latent_size=4, dropout=0.1, epochs=5, validate_every=2, decay_every=2, device="cpu")
    with tensorboard_log(tmp_path / "runs" / "first") as log:
        model.fit(split.train, split.validation, callbacks=[log])
    records = model.history_.records
    numbers = logged(tmp_path / "runs" / "first")
    boundaries = [f"boundaries/{number}" for number in (1, 2, 3, 4)]
    assert numbers.keys() == {"loss", "validation_error", "learning_rate", "sharpness", *boundaries}
    epochs = [1, 2, 3, 4, 5]
    assert [epoch for epoch, _ in numbers["loss"]] == epochs
    for name in ("loss", "learning_rate"):
        assert [number for _, number in numbers[name]] == pytest.approx([getattr(each, name) for each in records])
    looked = [(each.epoch + 1, each.validation_error) for each in records if each.validation_error is not None]
    assert [epoch for epoch, _ in looked] == [2, 4, 5]
    assert numbers["validation_error"] == [(epoch, pytest.approx(error)) for epoch, error in looked]
    assert [number for _, number in numbers["boundaries/4"]] == pytest.approx(
        [each.notes["boundaries"][3] for each in records]
    )


def test_what_was_logged_before_an_error_is_kept_and_the_writer_ends(tmp_path: Path) -> None:
    matrix = generate(30, 20, density=0.5, seed=0).matrix
    threads = threading.active_count()
    with pytest.raises(ZeroDivisionError), tensorboard_log(tmp_path) as log:
        DMFD(hidden_sizes=(8,), latent_size=4, epochs=1, device="cpu").fit(matrix, callbacks=[log])
        raise ZeroDivisionError
    assert threading.active_count() == threads
    assert len(logged(tmp_path)["loss"]) == 1


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotSave, match="file cannot hold a log"), tensorboard_log(tmp_path / "file"):
        pass


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingDependency, match=r"pip install 'deepmf\[tensorboard\]'"), tensorboard_log(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_the_log_and_not_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter.add_scalar", full)
    matrix = generate(30, 20, density=0.5, seed=0).matrix
    with pytest.warns(DeepMFWarning) as caught, tensorboard_log(tmp_path) as log:
        model = DMFD(hidden_sizes=(8,), latent_size=4, epochs=3, device="cpu").fit(matrix, callbacks=[log])
    assert len(model.history_) == 3
    (said,) = [str(warning.message) for warning in caught]
    assert said == f"{tmp_path} could not be written (No space left on device); training goes on without a log"
