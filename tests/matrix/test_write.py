"""Matrices as files: what is written reads back as it was, names and types of ids too."""

import datetime
import uuid
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from deepmf.data import pack, read_matrix
from deepmf.errors import BadEntries, BadSetting, CannotSave, UnreadableFile
from deepmf.matrix.frames import TableForm
from deepmf.matrix.matrix import ENDINGS, ObservedMatrix
from deepmf.matrix.scale import Scale

FORM = TableForm("who", "what", "stars")
RATINGS = ObservedMatrix.from_entries(["007", "ann", "ann"], [3, 3, 20], [4.5, 1, 0], Scale(low=0, high=5)).with_form(
    FORM
)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_written_reads_back(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"r{ending}"
    RATINGS.write(path)
    read = read_matrix(path, scale=RATINGS.scale)
    assert read == RATINGS
    assert read.form == FORM
    assert read.column_labels.dtype == np.int64


def test_a_frame_has_the_words_and_types_of_its_source() -> None:
    frame = pl.DataFrame({"day": [datetime.date(2020, 1, 2)] * 2, "film": ["x", "y"], "stars": [3, 4]})
    read = ObservedMatrix.from_frame(frame, row="day", column="film", value="stars")
    assert read.to_frame().equals(frame)
    assert read.take_entries(np.array([True, False])).to_frame().equals(frame.head(1))  # whole numbers stay whole
    assert ObservedMatrix.from_entries([1], [2], [0.5], Scale(low=0, high=1)).to_frame().rows() == [(1, 2, 0.5)]
    named = ObservedMatrix.from_entries([uuid.UUID(int=1)] * 2, [2, 3], [1, 2])
    assert named.to_frame()["row"].to_list() == ["00000000-0000-0000-0000-000000000001"] * 2


def test_a_table_has_a_line_per_row(tmp_path: Path) -> None:
    table = pl.DataFrame({"id": ["a", "b"], "q1": [1, None], "q2": [2, 3]})
    matrix = ObservedMatrix.from_table(table, row="id")
    assert matrix.to_table().equals(table)
    matrix.write(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "id,q1,q2\na,1,2\nb,,3\n"
    assert matrix.to_frame().columns == ["id", "column", "value"]
    clash = ObservedMatrix.from_entries(["a", "a"], ["row", "x"], [1, 2])
    with pytest.raises(BadEntries, match="'row'"):
        clash.to_table()


def test_scipy_reads_an_npz_too(tmp_path: Path) -> None:
    RATINGS.write(tmp_path / "r.npz")
    assert (scipy.sparse.load_npz(tmp_path / "r.npz") != RATINGS.to_sparse()).nnz == 0
    numbered = ObservedMatrix.from_sparse(RATINGS.to_sparse())
    numbered.write(tmp_path / "n.npz")
    assert read_matrix(tmp_path / "n.npz") == numbered
    assert "row_labels.npy" not in zipfile.ZipFile(tmp_path / "n.npz").namelist()
    days = ObservedMatrix.from_entries([datetime.date(2020, 1, 2)] * 2, ["x", "y"], [1, 2])
    with pytest.raises(BadEntries, match="row labels"):
        days.write(tmp_path / "d.npz")
    assert not (tmp_path / "d.npz").exists()


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("row_labels", np.array(["a", None], dtype=object), "labels"),
        ("row_labels", np.array(["a"]), "1 row labels"),
        ("form", np.array([1, 2]), "names"),
    ],
)
def test_an_npz_that_lies(tmp_path: Path, name: str, array: np.ndarray, message: str) -> None:
    path = tmp_path / "r.npz"
    scipy.sparse.save_npz(path, RATINGS.to_sparse())
    with zipfile.ZipFile(path, "a") as archive, archive.open(f"{name}.npy", "w") as member:
        np.lib.format.write_array(member, array)
    with pytest.raises((UnreadableFile, BadEntries), match=message) as caught:
        read_matrix(path)
    assert str(path) in str(caught.value)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="must end in .*r.xlsx"):
        RATINGS.write("r.xlsx")
    with pytest.raises(CannotSave, match="no folder"):
        RATINGS.write(tmp_path / "none" / "r.csv")


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "npz", "store"])
@pytest.mark.parametrize(
    "rows", [["a\tb", "c\nd", "e,f", "g\rh"], ['"x"', 'q"y', "back\\slash", "\\t"], ["007", "8", "9", "10"]]
)
def test_ids_come_back_as_they_were(tmp_path: Path, rows: list[str], ending: str) -> None:
    matrix = ObservedMatrix.from_entries(rows, ["x", "y\tz", "x", "y\tz"], [1, 2, 3, 4])
    matrix.write(tmp_path / f"m.{ending}")
    assert read_matrix(tmp_path / f"m.{ending}") == matrix


def test_texts_of_digits_stay_texts_in_csv(tmp_path: Path) -> None:
    matrix = ObservedMatrix.from_entries(["1", "2", "2"], ["7", "8", "7"], [1, 2, 3])
    matrix.write(tmp_path / "m.csv")
    assert read_matrix(tmp_path / "m.csv") == matrix
    pack([tmp_path / "m.csv"], tmp_path / "m.store")
    assert read_matrix(tmp_path / "m.store") == matrix
    numbers = ObservedMatrix.from_entries([1, 2, 2], [7, 8, 7], [1, 2, 3])
    numbers.write(tmp_path / "n.csv")
    assert (tmp_path / "n.csv").read_text().splitlines()[1] == "1,7,1"
    (tmp_path / "all.csv").write_text('"row","column","value"\n"1","7","1"\n"2","8","2"\n"2","7","3"\n')
    assert read_matrix(tmp_path / "all.csv") == read_matrix(tmp_path / "n.csv") == numbers


def test_the_same_matrix_gives_the_same_npz_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RATINGS.write(tmp_path / "one.npz")
    monkeypatch.setattr("time.localtime", lambda *_: (2040, 5, 6, 7, 8, 9, 0, 0, 0))
    RATINGS.write(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert scipy.sparse.load_npz(tmp_path / "one.npz").shape == RATINGS.shape
