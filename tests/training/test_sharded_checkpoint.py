"""The folder of a checkpoint in one process: what it keeps, replaces and refuses."""

import hashlib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from deepmf.errors import BadModelFile, CannotSave
from deepmf.layers.spread_branch import Division
from deepmf.storage.model_file import read_file, write_file
from deepmf.training.checkpoint import numbered_states, remove_checkpoint
from deepmf.training.loop import TrainingState
from deepmf.training.sharded_checkpoint import ShardedCheckpoint

pytestmark = pytest.mark.slow  # the first use of torch.distributed.checkpoint imports it

FINGERPRINT = {"model": "DMF", "epochs": 9}
STATE = TrainingState(
    {"history": {"records": []}},
    {
        "learned.weight": torch.arange(6.0).view(3, 2),
        "learned.views": torch.tensor([True, False]),
        "state.generator": torch.tensor([1, 2], dtype=torch.uint8),
        "state.step": torch.tensor(3.0),
    },
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> ShardedCheckpoint:
    return ShardedCheckpoint(tmp_path / "run.checkpoint", FINGERPRINT)


def assert_same(found: TrainingState | None, expected: TrainingState) -> None:
    assert found is not None and found.content == expected.content
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert torch.equal(found.tensors[name], tensor) and found.tensors[name].dtype == tensor.dtype


def test_a_state_comes_back_and_replaces_the_one_before(checkpoint: ShardedCheckpoint) -> None:
    assert checkpoint.read() is None
    checkpoint.write(STATE)
    assert_same(checkpoint.read(), STATE)
    later = TrainingState({"history": {}}, {"learned.weight": torch.zeros(2, 2)})
    checkpoint.write(later)
    assert_same(checkpoint.read(), later)
    assert [each.name for each in checkpoint.path.iterdir()] == ["00000002"]


def test_divided_tables_are_stored_by_channel(tmp_path: Path) -> None:
    table = torch.arange(12.0).view(6, 2)
    state = TrainingState({}, {"learned.weight": table, "good.weight": table + 1})
    path, division = tmp_path / "run.checkpoint", Division(n_inputs=3, n_channels=2)
    ShardedCheckpoint(path, FINGERPRINT, {"learned.weight": division}).write(state)
    assert_same(ShardedCheckpoint(path, FINGERPRINT, {"learned.weight": division}).read(), state)
    stored = ShardedCheckpoint(path, FINGERPRINT).read()
    assert stored is not None and torch.equal(stored.tensors["learned.weight"], table.view(2, 3, 2))
    with pytest.raises(BadModelFile, match=r"run.checkpoint holds \w+.weight of shape \(2, 3, 2\), which does not fit"):
        ShardedCheckpoint(path, FINGERPRINT, {"learned.weight": Division(n_inputs=6, n_channels=1)}).read()


def test_what_was_not_finished_is_no_state(checkpoint: ShardedCheckpoint) -> None:
    checkpoint.write(STATE)
    (checkpoint.path / "00000002").mkdir()  # no content: nothing that we have renamed
    assert list(numbered_states(checkpoint.path)) == [1]
    assert_same(checkpoint.read(), STATE)


def damage(kind: str, state: Path) -> None:
    shard = next(state.glob("*.safetensors"))
    if kind == "missing":
        shard.unlink()
    elif kind == "added":
        (state / "other.safetensors").write_bytes(shard.read_bytes())
    elif kind == "truncated":
        shard.write_bytes(shard.read_bytes()[:-1])
    else:
        (state / "content").write_bytes(b"{}")


@pytest.mark.parametrize("kind", ["missing", "added", "truncated", "content"])
def test_damage_is_refused(checkpoint: ShardedCheckpoint, kind: str) -> None:
    checkpoint.write(STATE)
    damage(kind, checkpoint.path / "00000001")
    with pytest.raises(BadModelFile, match="00000001"):
        checkpoint.read()


@pytest.mark.parametrize(
    "change", [lambda b: b[:20], lambda b: b"\xff" * 8 + b[8:], lambda b: b.replace(b"F32", b"F33")]
)
def test_a_shard_that_lies_although_its_checksum_is_right(checkpoint: ShardedCheckpoint, change: Any) -> None:
    checkpoint.write(STATE)
    state = checkpoint.path / "00000001"
    stored, shard = read_file(state / "content").content, next(state.glob("*.safetensors"))
    shard.write_bytes(change(shard.read_bytes()))
    stored["shards"][shard.name] = hashlib.sha256(shard.read_bytes()).hexdigest()
    write_file(state / "content", kind="checkpoint", content=stored, tensors={})
    with pytest.raises(BadModelFile, match="00000001"):
        checkpoint.read()


def test_another_run_and_a_file_are_refused(checkpoint: ShardedCheckpoint) -> None:
    checkpoint.write(STATE)
    with pytest.raises(BadModelFile, match="another run .its epochs differ"):
        ShardedCheckpoint(checkpoint.path, FINGERPRINT | {"epochs": 8}).read()
    file = checkpoint.path.with_name("file")
    file.touch()
    with pytest.raises(BadModelFile, match="one process, which several cannot continue"):
        ShardedCheckpoint(file, FINGERPRINT).read()
    with pytest.raises(CannotSave, match="file could not be written"):
        ShardedCheckpoint(file, FINGERPRINT).write(STATE)


@pytest.mark.parametrize("place", ["torch.distributed.checkpoint.filesystem.os.fsync", "deepmf.files.atomic._flush"])
def test_a_failed_write_leaves_the_state_before(
    checkpoint: ShardedCheckpoint, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Of a shard, or of the file beside them."""
    checkpoint.write(STATE)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, full)
    with pytest.raises(CannotSave, match="run.checkpoint could not be written .No space left on device.; nothing was"):
        checkpoint.write(TrainingState({}, {"learned.weight": torch.zeros(1)}))
    monkeypatch.undo()
    assert_same(checkpoint.read(), STATE)
    assert [each.name for each in checkpoint.path.iterdir()] == ["00000001"]


def test_only_states_are_removed(checkpoint: ShardedCheckpoint) -> None:
    checkpoint.write(STATE)
    own = checkpoint.path / "notes.txt"
    own.touch()
    with pytest.warns(UserWarning, match="could not be removed"):
        remove_checkpoint(checkpoint.path)
    assert [each.name for each in checkpoint.path.iterdir()] == ["notes.txt"]
    own.unlink()
    with warnings.catch_warnings():
        remove_checkpoint(checkpoint.path)
    assert not checkpoint.path.exists()
