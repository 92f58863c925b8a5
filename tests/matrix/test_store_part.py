"""Parts of a store: stores without a name, which hold what parts in memory would."""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.data.read import read_matrix
from deepmf.data.splits import split_areas, split_entries
from deepmf.data.synthetic.generator import generate
from deepmf.errors import CannotSave, UnreadableFile
from deepmf.matrix import buckets, matrix, store_part
from deepmf.matrix.array_file import ArrayFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.registry import HOMES, model_class

QUICK = ["als", "dmf", "means"]
WHOLE = generate(60, 40, density=0.3, seed=0).matrix


@pytest.fixture
def mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObservedMatrix:
    monkeypatch.setattr(matrix, "IN_MEMORY", 0)
    monkeypatch.setattr(store_part, "_PIECE", 50)
    monkeypatch.setattr(buckets, "BUCKET", 40)
    WHOLE.write(tmp_path / "r.store")
    return read_matrix(tmp_path / "r.store")


def same(ours: ObservedMatrix, theirs: ObservedMatrix) -> bool:
    return ours == theirs and all(map(np.array_equal, ours.by_column, theirs.by_column))


@pytest.mark.parametrize("which", ["mask", "places"])
def test_a_part_holds_what_it_would_in_memory(mapped: ObservedMatrix, tmp_path: Path, which: str) -> None:
    kept: Any = np.random.default_rng(0).random(WHOLE.n_entries) < 0.3
    chosen = kept if which == "mask" else np.flatnonzero(kept)[::-1]
    part = mapped.take_entries(chosen)
    assert part.origin is not None
    assert same(part, WHOLE.take_entries(kept))
    assert part.mean == pytest.approx(WHOLE.take_entries(kept).mean)
    again = part.take_entries(np.arange(part.n_entries) % 2 == 0)
    assert same(again, WHOLE.take_entries(np.flatnonzero(kept)[::2]))
    assert [path.name for path in tmp_path.iterdir()] == ["r.store"]


def test_splits_are_those_in_memory(mapped: ObservedMatrix) -> None:
    ours, theirs = split_entries(mapped, seed=3), split_entries(WHOLE, seed=3)
    assert all(same(getattr(ours, part), getattr(theirs, part)) for part in ("train", "validation", "test"))
    our_areas, their_areas = split_areas(mapped, seed=3), split_areas(WHOLE, seed=3)
    assert our_areas.train.origin is not None
    assert same(our_areas.train, their_areas.train)
    assert same(our_areas.extension, their_areas.extension)
    assert all(same(our_areas.test[area], their_areas.test[area]) for area in their_areas.test)


def test_rows_and_columns_in_another_order_are_taken_in_memory(mapped: ObservedMatrix) -> None:
    rows, columns = np.array([5, 3]), np.arange(40)
    part = mapped.take(rows, columns)
    assert part.origin is None
    assert same(part, WHOLE.take(rows, columns))


def test_a_few_entries_are_taken_in_memory(mapped: ObservedMatrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "IN_MEMORY", 3)
    assert mapped.take_entries(np.array([7, 1, 2])).origin is None


def test_a_changed_store_is_not_cut(mapped: ObservedMatrix, tmp_path: Path) -> None:
    (tmp_path / "r.store" / "rows").write_bytes(b"")
    with pytest.raises(UnreadableFile, match="was changed while it was open"):
        mapped.take_entries(np.arange(9))


def test_a_full_disk_leaves_nothing(mapped: ObservedMatrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ArrayFile, array: np.ndarray[Any, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ArrayFile, "append", full)
    with pytest.raises(CannotSave, match=r"a part of a store could not be written to .* \(No space left on device\)"):
        mapped.take_entries(np.arange(9))
    assert [path.name for path in tmp_path.iterdir()] == ["r.store"]


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in HOMES if name not in QUICK)]
)
@pytest.mark.filterwarnings("ignore::deepmf.errors.DeepMFWarning")  # what is learned in no time is not worth much
def test_every_model_learns_from_a_store_what_it_learns_in_memory(mapped: ObservedMatrix, name: str) -> None:
    model = model_class(name)
    small = {"epochs": 2, "sweeps": 2, "hidden_sizes": [8], "latent_size": 3, "device": "cpu"}
    chosen: dict[str, Any] = {
        key: value for key, value in small.items() if key in model.settings_class.__dataclass_fields__
    }
    predictions = []
    for whole in (mapped, WHOLE):
        split = split_entries(whole, seed=0)
        fitted = model(seed=0, **chosen).fit(split.train, split.validation)
        predictions.append(fitted.predict(*WHOLE.entries()[:2]))
    assert np.allclose(predictions[0], predictions[1], atol=1e-6)
