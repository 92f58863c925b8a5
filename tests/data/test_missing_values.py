"""Lines without a value: counted and refused, or left out without moving the place of the others."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from deepmf.data.read import read_file_of_entries, read_matrix
from deepmf.errors import BadEntries, BadSetting, OffScale, UnreadableFile
from deepmf.matrix.scale import Scale

LINES = "user,item,rating\n1,10,4\n1,20,NA\n2,10,\n,20,3\n2,20,null\n3,20,5\n"
ASKED = {"row": None, "column": None, "value": None}


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    (tmp_path / "r.csv").write_text(LINES)
    return tmp_path / "r.csv"


def test_the_error_counts_and_says_the_option(messy: Path) -> None:
    wanted = r"r.csv, line 3: the value is missing; so it is in 4 of 6 lines: missing='drop' leaves them out$"
    with pytest.raises(BadEntries, match=wanted):
        read_matrix(messy)
    with pytest.raises(BadSetting, match="missing must be 'error' or 'drop'; got 'zero'"):
        read_matrix(messy, missing="zero")  # type: ignore[arg-type]


def test_dropped_lines_leave_the_others_as_they_are(messy: Path, tmp_path: Path) -> None:
    read = read_file_of_entries(messy, asked=ASKED, missing="drop")
    assert list(zip(*(part.tolist() for part in read.matrix.entries()), strict=True)) == [(1, 10, 4), (3, 20, 5)]
    assert (read.n_dropped, read.matrix.row_labels.dtype) == (4, np.int64)
    with pytest.raises(OffScale, match="r.csv, line 7: row 3, column 20 has value 5"):  # its line in the file
        read_matrix(messy, missing="drop", scale=Scale([1, 2, 3, 4]))
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 2], "rating": [1.5, float("nan"), None]})
    frame.write_parquet(tmp_path / "r.parquet")
    with pytest.raises(BadEntries, match="r.parquet, entry 1: the value is missing; so it is in 2 of 3 lines"):
        read_matrix(tmp_path / "r.parquet")
    assert read_matrix(tmp_path / "r.parquet", missing="drop", scale=Scale(low=0, high=2)).n_entries == 1


def test_nothing_but_gaps(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item,rating\n1,10,NA\n")
    with pytest.raises(UnreadableFile, match="r.csv holds no entries; lines without a value: 1"):
        read_matrix(tmp_path / "r.csv", missing="drop")


def test_sparse_matrices_with_gaps(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    scipy.sparse.save_npz(path, scipy.sparse.coo_array(([1.0, np.nan, 2.0], ([0, 1, 1], [0, 0, 1]))))
    with pytest.raises(BadEntries, match="has value nan"):
        read_matrix(path)
    read = read_file_of_entries(path, asked=ASKED, missing="drop")
    assert (read.matrix.entries().values.tolist(), read.n_dropped) == ([1, 2], 1)


def test_decimal_commas(tmp_path: Path) -> None:
    for content in (
        "user;item;rating\n1;10;4,5\n2;10;3\n",
        'user,item,rating\n1,10,"4,5"\n2,10,3\n',
        "1;10;4,5\n2;10;3\n",
    ):
        (tmp_path / "r.csv").write_text(content)
        assert read_matrix(tmp_path / "r.csv", decimal=",").entries().values.tolist() == [4.5, 3]
        with pytest.raises(BadEntries, match="value '4,5' is not a number; decimal=',' reads decimal commas"):
            read_matrix(tmp_path / "r.csv", separator=";" if ";" in content else ",")
