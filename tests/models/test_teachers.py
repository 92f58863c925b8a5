"""Teachers: their answer for a block is the mean of theirs; a fit that they teach can be killed and continued."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from deepmf.data.splits import split_entries
from deepmf.data.synthetic import generate
from deepmf.errors import BadModelFile, TrainingInterrupted
from deepmf.models.dmf import DMF
from deepmf.models.ordinal_dmf import OrdinalDMF
from deepmf.models.teachers import Teacher, Teachers
from deepmf.networks.ordinal_head import OrdinalHead
from deepmf.storage.model_file import read_file
from deepmf.training.history import EpochRecord, History
from deepmf.training.loop import Callback
from deepmf.training.machine import Machine

CPU = Machine("cpu")
N_ROWS, N_COLUMNS, LATENT = 7, 5, 3
HEAD = OrdinalHead([1, 2, 4], [-0.5, 0.4], [0.7, 0.3])  # two thresholds and a slope: three marks


def teacher(seed: int) -> Teacher:
    dice = np.random.default_rng(seed)
    rows, columns = (dice.normal(size=(count, LATENT + 2 + 3)).astype(np.float32) for count in (N_ROWS, N_COLUMNS))
    rows[:, -3:-1].sort(axis=1)
    columns[:, -3:] = 0
    return Teacher(rows, columns)


def said(one: Teacher, row: int, column: int) -> npt.NDArray[np.float64]:
    """The chance of more than each answer but the last, from one teacher for one pair."""
    of_row, of_column = one.rows[row].astype(float), one.columns[column].astype(float)
    score = of_row[:-3] @ of_column[:-3]
    chances: npt.NDArray[np.float64] = 1 / (1 + np.exp(of_row[-3:-1] - np.exp(of_row[-1]) * score))
    return chances


@pytest.mark.parametrize("n_teachers", [1, 3])
def test_their_answer_is_the_mean_of_their_chances(n_teachers: int) -> None:
    all_of_them = [teacher(seed) for seed in range(n_teachers)]
    rows, columns = [6, 0, 3, 3], [4, 1, 0]
    found = Teachers(all_of_them, CPU).exceeded(HEAD, torch.tensor(rows), torch.tensor(columns))
    assert found.shape == (4, 3, 2) and not found.requires_grad
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            expected = np.mean([said(one, row, column) for one in all_of_them], axis=0)
            np.testing.assert_allclose(found[i, j], expected, atol=1e-5)
    assert bool((found.diff(dim=-1) <= 0).all())


EPOCHS = 6
SETTINGS: dict[str, Any] = {
    "hidden_sizes": (12,),
    "latent_size": 6,
    "dropout": 0.4,
    "epochs": EPOCHS,
    "block_rows": 20,
    "block_columns": 15,
    "validate_every": 2,
    "views": 4,
    "teachers": 2,
    "device": "cpu",
}
SPLIT = split_entries(generate(40, 30, n_entries=300, seed=0).matrix, train=0.8, validation=0.1, test=0.1, seed=0)


def fitted(*, checkpoint: Path | None = None, callback: Callback | None = None, **changes: Any) -> OrdinalDMF:
    """A model fitted on the same data as all others here."""
    return OrdinalDMF(**SETTINGS | changes).fit(
        SPLIT.train,
        SPLIT.validation,
        callbacks=[callback] if callback else [],
        checkpoint=checkpoint,
        checkpoint_every=2,
    )


def stopping_at(call: int, error: type[BaseException]) -> Callback:
    """Raise after so many epochs of all the models that are trained, which count from 0."""
    n_calls = 0

    def callback(record: EpochRecord, _: History) -> None:
        nonlocal n_calls
        if n_calls == call:
            raise error
        n_calls += 1

    return callback


def counted(epochs: list[int]) -> Callback:
    def callback(record: EpochRecord, _: History) -> None:
        epochs.append(record.epoch)

    return callback


def assert_same(one: OrdinalDMF, other: OrdinalDMF) -> None:
    for name, tensor in one.network_.state_dict().items():
        assert torch.equal(tensor, other.network_.state_dict()[name]), name
    pairs = SPLIT.test.entries()[:2]
    np.testing.assert_array_equal(one.predict_distribution(*pairs), other.predict_distribution(*pairs))
    assert [record.loss for record in one.history_.records] == [record.loss for record in other.history_.records]
    assert one.history_.best_epoch == other.history_.best_epoch


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@pytest.fixture(scope="module")
def uninterrupted() -> OrdinalDMF:
    return fitted()


def test_what_teachers_say_changes_what_is_learned(uninterrupted: OrdinalDMF) -> None:
    alone = fitted(teachers=0)
    first = uninterrupted.history_.records[0].loss, alone.history_.records[0].loss
    assert first[0] > first[1]  # of two terms, the first is the same at the start
    assert not torch.equal(alone.network_.rows.first.weight, uninterrupted.network_.rows.first.weight)
    assert_same(fitted(), uninterrupted)  # the seed decides that of the teachers


def test_callbacks_see_every_epoch_of_every_model_and_no_file_stays(tmp_path: Path, uninterrupted: OrdinalDMF) -> None:
    epochs: list[int] = []
    model = fitted(checkpoint=tmp_path / "run", callback=counted(epochs))
    assert epochs == [*range(EPOCHS)] * 3
    assert_same(model, uninterrupted)
    assert names(tmp_path) == set()


# After how many epochs of all it is killed: which files stay, and which epochs are left to train.
KILLS: dict[str, tuple[int, set[str], list[int]]] = {
    "in the first teacher": (3, {"run.teacher-0.checkpoint"}, [*range(2, 6), *range(6), *range(6)]),
    "in the second": (EPOCHS + 5, {"run.teacher-0", "run.teacher-1.checkpoint"}, [4, 5, *range(6)]),
    "before the student has a state": (2 * EPOCHS, {"run.teacher-0", "run.teacher-1"}, [*range(6)]),
    "in the student": (2 * EPOCHS + 4, {"run", "run.teacher-0", "run.teacher-1"}, [4, 5]),
}


@pytest.mark.parametrize("call, files, left", KILLS.values(), ids=KILLS.keys())
def test_a_killed_fit_continues_to_the_same_result(
    tmp_path: Path, uninterrupted: OrdinalDMF, call: int, files: set[str], left: list[int]
) -> None:
    with pytest.raises(ZeroDivisionError):
        fitted(checkpoint=tmp_path / "run", callback=stopping_at(call, ZeroDivisionError))
    assert names(tmp_path) == files
    epochs: list[int] = []
    model = fitted(checkpoint=tmp_path / "run", callback=counted(epochs))
    assert epochs == left
    assert_same(model, uninterrupted)
    assert names(tmp_path) == set()


def test_teachers_are_models_like_the_student_with_other_seeds(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fitted(checkpoint=tmp_path / "run", callback=stopping_at(2 * EPOCHS, ZeroDivisionError))
    stored = [read_file(tmp_path / f"run.teacher-{number}", kind="teacher") for number in range(2)]
    seeds = [one.content["fingerprint"]["seed"] for one in stored]
    assert len({0, *seeds}) == 3
    for one, seed in zip(stored, seeds, strict=True):
        alone = fitted(teachers=0, seed=seed)
        np.testing.assert_array_equal(one.tensors["rows"], alone.row_latents_.base)
        np.testing.assert_array_equal(one.tensors["columns"], alone.column_latents_.base)


def test_ctrl_c_in_a_teacher_leaves_no_model_and_can_be_continued(tmp_path: Path, uninterrupted: OrdinalDMF) -> None:
    model = OrdinalDMF(**SETTINGS)
    with pytest.raises(KeyboardInterrupt), pytest.warns(TrainingInterrupted, match="interrupted in epoch 5"):
        model.fit(
            SPLIT.train,
            SPLIT.validation,
            callbacks=[stopping_at(4, KeyboardInterrupt)],
            checkpoint=tmp_path / "run",
            checkpoint_every=2,
        )
    assert model.observations_ is None
    assert names(tmp_path) == {"run.teacher-0.checkpoint"}
    assert_same(fitted(checkpoint=tmp_path / "run"), uninterrupted)
    assert names(tmp_path) == set()


def test_ctrl_c_in_the_student_leaves_a_model_and_can_be_continued(tmp_path: Path, uninterrupted: OrdinalDMF) -> None:
    with pytest.warns(TrainingInterrupted, match="interrupted in epoch 5"):
        stopped = fitted(checkpoint=tmp_path / "run", callback=stopping_at(2 * EPOCHS + 4, KeyboardInterrupt))
    assert stopped.history_.stopped == "interrupted"
    assert np.isfinite(stopped.predict(*SPLIT.test.entries()[:2])).all()
    assert names(tmp_path) == {"run", "run.teacher-0", "run.teacher-1"}
    assert_same(fitted(checkpoint=tmp_path / "run"), uninterrupted)
    assert names(tmp_path) == set()


DIFFERENT_RUNS: dict[str, Callable[[Path], object]] = {
    "seed": lambda path: fitted(checkpoint=path, seed=1),
    "settings": lambda path: fitted(checkpoint=path, latent_size=7),
    "entries": lambda path: OrdinalDMF(**SETTINGS).fit(SPLIT.validation, checkpoint=path),
    "validation": lambda path: OrdinalDMF(**SETTINGS).fit(SPLIT.train, SPLIT.test, checkpoint=path),
}


@pytest.mark.parametrize("start", DIFFERENT_RUNS.values(), ids=DIFFERENT_RUNS.keys())
def test_a_teacher_of_another_run_is_refused_and_left(tmp_path: Path, start: Callable[[Path], object]) -> None:
    with pytest.raises(ZeroDivisionError):
        fitted(checkpoint=tmp_path / "run", callback=stopping_at(EPOCHS, ZeroDivisionError))
    kept = (tmp_path / "run.teacher-0").read_bytes()
    with pytest.raises(BadModelFile, match="run.teacher-0 is a teacher of another run; delete it to start afresh"):
        start(tmp_path / "run")
    assert (tmp_path / "run.teacher-0").read_bytes() == kept


def test_a_file_that_is_no_teacher_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.teacher-0"
    DMF(hidden_sizes=(4,), latent_size=4, epochs=1, device="cpu").fit(SPLIT.train).save(path)
    with pytest.raises(BadModelFile, match="run.teacher-0"):
        fitted(checkpoint=tmp_path / "run")
    path.write_text("nothing of ours")
    with pytest.raises(BadModelFile):
        fitted(checkpoint=tmp_path / "run")
