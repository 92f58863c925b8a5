"""Stores: what is written opens as it was, whole or not at all."""

import datetime
import errno
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepmf.data.read import read_matrix
from deepmf.data.synthetic.generator import generate
from deepmf.errors import BadSetting, CannotSave
from deepmf.matrix.array_file import ArrayFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.table_form import TableForm

FORM = TableForm("who", "what", "stars")
LEVELS = Scale(levels=[0.1, 0.2, 3])  # of which one needs double precision


def matrices() -> dict[str, ObservedMatrix]:
    return {
        "texts": ObservedMatrix.from_entries(["007", "ann", "ann"], ["x", "y", "Zoë"], [5, 1, 5]).in_form(FORM),
        "ints": ObservedMatrix.from_entries([7, -3, 7], [10**12, 5, 5], [0.1, 0.2, 0.1], LEVELS),
        "numbered": ObservedMatrix.from_array([[1, np.nan, 0.25], [np.nan, np.nan, 7]], Scale(low=0, high=10)),
        "doubles": ObservedMatrix.from_entries(["a", "b"], [1.5, 2.5], [0.1, 1e300], Scale(low=0, high=1e301)),
        "dates": ObservedMatrix.from_entries(
            [datetime.date(2020, 1, 2)] * 2, [uuid.UUID(int=n) for n in (1, 2)], [1, 2]
        ),
        "many levels": ObservedMatrix.from_entries(range(300), [0] * 300, range(300), Scale(levels=range(300))),
        "gaps": ObservedMatrix.from_entries([2, 4], [0, 3], [1, 2], row_labels=range(9), column_labels=range(5)),
        "generated": generate(30, 20, density=0.3, seed=0).matrix,
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


def test_a_level_takes_one_byte(tmp_path: Path) -> None:
    matrix = matrices()["generated"]
    matrix.write(tmp_path / "r.store")
    assert (tmp_path / "r.store" / "values").stat().st_size == matrix.n_entries
    assert not read_matrix(tmp_path / "r.store").by_row.columns.flags.writeable


def test_nothing_is_written_over_another(tmp_path: Path) -> None:
    matrix = matrices()["texts"]
    matrix.write(tmp_path / "r.store")
    with pytest.raises(CannotSave, match=r"r.store could not be written \(it is there already; give another name"):
        matrix.write(tmp_path / "r.store")
    with pytest.raises(CannotSave, match="there is no folder"):
        matrix.write(tmp_path / "none" / "r.store")
    assert [path.name for path in tmp_path.iterdir()] == ["r.store"]


def test_labels_that_no_file_holds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="row labels of type tuple cannot be saved"):
        ObservedMatrix.from_entries([(1, 2)], ["x"], [1], Scale(levels=[1, 2])).write(tmp_path / "r.store")
    assert list(tmp_path.iterdir()) == []


def test_nothing_half_made_stays_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = ArrayFile.append

    def full(self: ArrayFile, array: np.ndarray[Any, Any]) -> None:
        if self.path.name == "entries":
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, array)

    monkeypatch.setattr(ArrayFile, "append", full)
    with pytest.raises(CannotSave, match=r"could not be written \(No space left on device\); nothing was changed"):
        matrices()["texts"].write(tmp_path / "r.store")
    assert list(tmp_path.iterdir()) == []
