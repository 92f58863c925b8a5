"""Opening a store: what is not whole, not a store, newer or changed is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf import ALS, DMF
from deepmf.data import read_matrix, split_entries
from deepmf.datasets import generate
from deepmf.errors import OffScale, UnreadableFile
from deepmf.matrix import TableForm
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.stored import verify_store

MATRIX = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    MATRIX.write(tmp_path / "r.store")
    return tmp_path / "r.store"


def test_a_store_without_entries_is_refused(tmp_path: Path) -> None:
    MATRIX.take_entries(np.zeros(3, dtype=bool)).write(tmp_path / "r.store")
    with pytest.raises(UnreadableFile, match="entries"):
        read_matrix(tmp_path / "r.store")


def test_checksums_tell_other_content(store: Path) -> None:
    verify_store(store)
    content = bytearray(store.read_bytes())
    content[content.index(np.float32([5, 3, 1]).tobytes()) + 2] = 0x40  # 5 becomes 3
    store.write_bytes(bytes(content))
    read_matrix(store)  # it could be the values of a store
    with pytest.raises(UnreadableFile, match="checksum"):
        verify_store(store)


def test_a_scale_that_is_asked_for_must_hold_the_values(store: Path) -> None:
    wider = Scale(levels=[1, 2, 3, 4, 5])
    read = read_matrix(store, scale=wider)
    assert read.scale == wider
    assert read.entries().values.tolist() == [5, 3, 1]
    assert read.take_entries(np.array([True, False, True])).scale == wider
    with pytest.raises(OffScale, match="'Big'"):
        read_matrix(store, scale=Scale(levels=[1, 5]))


FORM = TableForm("who", "what", "stars")


def matrices() -> dict[str, ObservedMatrix]:
    texts = ObservedMatrix.from_entries(["007", "ann", "ann"], ["x", "y", "Zoë"], [5, 1, 5])
    ends = Scale(low=0, high=1e301)
    return {
        "texts": texts.with_form(FORM),
        "doubles": ObservedMatrix.from_entries(["a", "b"], [1.5, 2.5], [0.1, 1e300], ends),
        "gaps": ObservedMatrix.from_entries(
            [2, 4], [0, 3], [1, 2], row_labels=range(9), column_labels=range(5)
        ),
    }


@pytest.mark.parametrize("name", matrices())
def test_what_is_written_opens_as_it_was(tmp_path: Path, name: str) -> None:
    matrix = matrices()[name]
    matrix.write(tmp_path / "r.store")
    read = read_matrix(tmp_path / "r.store")
    assert read == matrix
    assert read.form == matrix.form
    assert read.mean == pytest.approx(matrix.mean)
    assert read.describe() == matrix.describe()
    assert read.values.dtype == matrix.values.dtype
    assert read.by_row.columns.dtype == matrix.by_row.columns.dtype
    for ours, theirs in zip(read.by_column, matrix.by_column, strict=True):
        assert np.array_equal(ours, theirs)
    assert read.row_labels.dtype == matrix.row_labels.dtype
    assert read.take_entries(np.arange(matrix.n_entries) % 2 == 0) == matrix.take_entries(
        np.arange(matrix.n_entries) % 2 == 0
    )
    read.write(tmp_path / "again.store")
    assert read_matrix(tmp_path / "again.store") == matrix


# what is learned in no time is not worth much
@pytest.mark.filterwarnings("ignore::deepmf.errors.DeepMFWarning")
def test_a_model_learns_from_a_store_what_it_learns_in_memory(tmp_path: Path) -> None:
    whole = generate(60, 40, density=0.3, seed=0).matrix
    whole.write(tmp_path / "r.store")
    splits = [split_entries(part, seed=0) for part in (read_matrix(tmp_path / "r.store"), whole)]
    small: Any = {"seed": 0, "latent_size": 3, "epochs": 2}
    for model in (ALS(**small), DMF(**small, hidden_sizes=[8])):
        one, other = (
            model.fit(split.train, split.validation).predict(*whole.entries()[:2])
            for split in splits
        )
        assert np.allclose(one, other, atol=1e-6)
