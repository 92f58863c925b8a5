"""Columns of files: which are chosen for rows, columns and values, and how they are read."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from deepmf.data.columns import read_columns
from deepmf.data.layout import (
    COLUMNS,
    ENTRIES,
    HISTORY,
    PAIRS,
    ColumnOptions,
    LineKind,
    NameOrPosition,
)
from deepmf.data.read import read_matrix
from deepmf.errors import BadEntries, BadSetting, FileAbsent, GuessedColumns, UnreadableFile


def read_rows(
    path: Path, kind: LineKind, *, separator: str | None = None, **asked: NameOrPosition
) -> list[tuple[object, ...]]:
    return read_columns(path, kind, ColumnOptions(asked=asked, separator=separator)).frame.rows()


@pytest.mark.parametrize(
    "content",
    [
        "Big\nUp, Up\n",
        'Big\n"Up, Up"\n',
        'Big,1988\n"Up, Up",2009\n',
        "Big\t1\nUp, Up\t2\n",
        "title\nBig\n\nUp, Up",
    ],
)
def test_a_list_of_ids_is_split_by_what_is_known(tmp_path: Path, content: str) -> None:
    (tmp_path / "ids").write_text(content)
    found = read_columns(
        tmp_path / "ids", COLUMNS, ColumnOptions(is_known=lambda text: text in ("Big", "Up, Up"))
    ).frame
    assert found.to_series().to_list() == ["Big", "Up, Up"]


def test_a_list_of_ids_in_parquet(tmp_path: Path) -> None:
    pl.DataFrame({"user": ["ann"], "item": ["Big"]}).write_parquet(tmp_path / "ids.parquet")
    assert read_rows(tmp_path / "ids.parquet", COLUMNS) == [("Big",)]
    pl.DataFrame().write_parquet(tmp_path / "none.parquet")
    with pytest.raises(BadEntries, match="none.parquet"):
        read_rows(tmp_path / "none.parquet", COLUMNS)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(ENTRIES, [("1", "007", 4.0)]), (PAIRS, [("1", "007")]), (HISTORY, [("007", "4")])],
)
@pytest.mark.parametrize(
    "content", ["rating,item,user,when\n4,007,1,9\n", "user::item::rating\n1::007::4\n"]
)
def test_one_file_for_every_kind_of_lines(
    tmp_path: Path, kind: LineKind, expected: list[tuple[object, ...]], content: str
) -> None:
    path = tmp_path / "lines.csv"
    path.write_text(content)
    assert read_rows(path, kind) == expected
    assert read_columns(path, kind, ColumnOptions()).roles.table.first_line == 2
    (tmp_path / "lines.csv.gz").write_bytes(gzip.compress(content.encode()))
    assert read_rows(tmp_path / "lines.csv.gz", kind) == expected


@pytest.mark.parametrize(
    ("kind", "expected"), [(ENTRIES, [(1, "a", 4.5)]), (PAIRS, [(1, "a")]), (HISTORY, [("a", 4.5)])]
)
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_typed_files_for_every_kind_of_lines(
    tmp_path: Path, kind: LineKind, expected: list[tuple[object, ...]], ending: str
) -> None:
    path = tmp_path / f"lines.{ending}"
    frame = pl.DataFrame({"rating": [4.5], "item": ["a"], "user": [1]})
    frame.write_parquet(path) if ending == "parquet" else frame.write_ndjson(path)
    assert read_rows(path, kind) == expected
    assert read_columns(path, kind, ColumnOptions()).roles.table.first_line is None


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        ('user,item\nann,"Big, the"\n', [("ann", "Big, the")]),
        ("user::item\nann::Alien: 3\n", [("ann", "Alien: 3")]),
        ("\nuser,item\n1,10\n\n2,20,more\n\n", [("1", "10"), ("2", "20")]),
    ],
)
def test_quotes_colons_blank_lines_and_further_fields(
    tmp_path: Path, content: str, pairs: list[tuple[str, str]]
) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    assert read_rows(tmp_path / "pairs.csv", PAIRS) == pairs


def test_a_known_id_makes_the_first_line_no_header(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("ann,Alien\nbob,Big\n")
    assert read_rows(path, PAIRS) == [("bob", "Big")]
    known = read_columns(path, PAIRS, ColumnOptions(is_known=lambda text: text == "Alien"))
    assert known.frame.rows() == [("ann", "Alien"), ("bob", "Big")]
    assert read_columns(path, PAIRS, ColumnOptions(header=False)).frame.height == 2


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "index"])
def test_an_index_that_was_written_along_is_no_id_and_no_value(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{name},Name,Title,Mark\n0,ann,Alien,5\n1,ann,Big,3\n2,bob,Big,4\n")
    with pytest.warns(GuessedColumns, match="'Mark'"):
        assert read_matrix(path).shape == (2, 2)
    path.write_text(f"{name},user,item\n0,ann,Alien\n1,ann,Big\n")
    with pytest.raises(BadEntries, match="value=None"):
        read_matrix(path)
    path.write_text(f"{name},item,rating\nann,Alien,5\nbob,Big,3\n")  # nothing else can be the row
    assert read_matrix(path, row=0).row_labels.tolist() == ["ann", "bob"]


def test_chosen_names(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("user|b|c\n9|10|1\n")
    assert read_rows(path, PAIRS, row="c", column="b") == [("1", "10")]
    assert read_rows(path, PAIRS, row=2, column=1, separator="|") == [("1", "10")]
    assert read_rows(path, HISTORY, value=0) == [("10", "9")]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, FileAbsent, "pairs.csv"),
        (b"", UnreadableFile, "empty"),
        (b"\n\n", UnreadableFile, "empty"),
        (b"user,item\n", UnreadableFile, "lines"),
        (b"user\n1\n", UnreadableFile, "'user'"),
        (b"user,user\n1,10\n", UnreadableFile, "twice"),
        (b"user,item\n1,10\n2\n", UnreadableFile, "'2'"),
        (b"1 a,10\n2 b\n", UnreadableFile, "'2 b'"),  # a space separates nothing
        (b"user,item\n\xff\x81,10\n", UnreadableFile, "UTF-8"),
    ],
)
def test_bad_files(
    tmp_path: Path, content: bytes | None, error: type[Exception], message: str
) -> None:
    path = tmp_path / "pairs.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        read_rows(path, PAIRS)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"row": "who"}, BadEntries, "'who'"),
        ({"row": 2}, BadEntries, "column 2"),
        ({"row": 0, "column": 0}, BadEntries, "different"),
        ({"separator": ",,"}, BadSetting, "separator"),
        ({"separator": ";"}, UnreadableFile, "';'"),
    ],
)
def test_bad_names(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], word: str
) -> None:
    (tmp_path / "pairs.csv").write_text("user,item\n1,10\n")
    with pytest.raises(error, match=word):
        read_rows(tmp_path / "pairs.csv", PAIRS, **options)
