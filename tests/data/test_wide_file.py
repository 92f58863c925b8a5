"""Wide tables: what their fields say, gaps, ids of rows, and a sentence for what does not fit."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from deepmf.data.read import read_file_of_entries, read_matrix
from deepmf.errors import BadEntries, BadSetting, UnreadableFile

TABLE = pl.DataFrame({"id": ["ann", "bob"], "q1": [1, None], "q2": [2, 3], "q3": [None, 5]})
ARRAY = [[1, 2, np.nan], [np.nan, 3, 5]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "id,q1,q2,q3\nann,1,2,\nbob,NA,3,5\n"),
        ("t.tsv", "id\tq1\tq2\tq3\nann\t1\t2\t\nbob\tnull\t3\t5\n\n"),
        ("t.txt", "id;q1;q2;q3\nann;1;2;\nbob;?;3;5\n"),
    ],
)
def test_text(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    matrix = read_matrix(tmp_path / name, wide=True)
    np.testing.assert_array_equal(matrix.to_array(), ARRAY)
    assert (matrix.row_labels.tolist(), matrix.column_labels.tolist()) == (["ann", "bob"], ["q1", "q2", "q3"])
    assert matrix.form.wide and matrix.form.row == "id"
    matrix.write(tmp_path / "again.csv")
    assert read_matrix(tmp_path / "again.csv", wide=True) == matrix


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_typed_files_and_chosen_rows(tmp_path: Path, ending: str) -> None:
    frame, path = TABLE.select("q1", "id", "q2", "q3"), tmp_path / f"t.{ending}"
    frame.write_parquet(path) if ending == "parquet" else frame.write_ndjson(path)
    np.testing.assert_array_equal(read_matrix(path, row="id", wide=True).to_array(), ARRAY)
    np.testing.assert_array_equal(read_matrix(path, row=1, wide=True).to_array(), ARRAY)


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("country,2019,2020\nFR,1.5,2.5\nDE,4.5,1\n", ["2019", "2020"]),  # years count up
        ("id,3,3.5\n1,1.5,2.5\n2,4.5,1\n", ["3", "3.5"]),  # a heading
        ("FR,2.5,1.5\nDE,4.5,1\n", ["1", "2"]),  # no header: positions
        ("1,2.5,1.5\n2,4.5,1\n", ["1", "2"]),
    ],
)
def test_headers(tmp_path: Path, content: str, columns: list[str]) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert read_matrix(tmp_path / "t.csv", wide=True).column_labels.tolist() == columns


def test_decimal_commas(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("7;3,5;2\n8;1;\n")
    matrix = read_matrix(tmp_path / "t.csv", wide=True, decimal=",")
    assert (matrix.row_labels.tolist(), matrix.entries().values.tolist()) == ([7, 8], [3.5, 2, 1])


def test_the_rows_are_told_where_they_were_guessed(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,q1,q2\nann,1,2\nbob,,3\n")
    asked = {"row": None, "column": None, "value": None}
    told = read_file_of_entries(tmp_path / "t.csv", asked=asked, wide=True).guessed
    assert told == "'id' holds the row ids of a wide table of 2 columns"
    assert read_file_of_entries(tmp_path / "t.csv", asked=asked | {"row": "id"}, wide=True).guessed is None


@pytest.mark.parametrize(
    ("content", "options", "error", "message"),
    [
        ("id,a,b\n1,2,good\n", {}, BadEntries, "t.csv, line 2, column 'b': value 'good' is not a number"),
        ("id,a,b\n1,2,3\n,3,4\n", {}, BadEntries, "t.csv, line 3: the row id is missing"),
        ("id,a,b\n1,2,3\n1,3,4\n", {}, BadEntries, "t.csv: .*1"),
        ("id,a,b\n1,,\n2,NA,\n", {}, UnreadableFile, "t.csv holds no entries"),
        ("id,a,b\n1,2,3\n", {"row": "x"}, BadEntries, "t.csv: there is no column 'x' for the row"),
        ("id,a,b\n1,2,3\n", {"column": "a"}, BadSetting, "so wide=True takes no column; got 'a'"),
        ("id\n1\n", {}, UnreadableFile, "a row and a column are needed"),
    ],
)
def test_what_does_not_fit(
    tmp_path: Path, content: str, options: dict[str, str], error: type[Exception], message: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(error, match=message):
        read_matrix(tmp_path / "t.csv", wide=True, **options)  # type: ignore[arg-type]
