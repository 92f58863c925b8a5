"""The columns of a role: names, separators, Parquet, and a clear sentence for every bad file."""

import gzip
from pathlib import Path

import polars
import pytest

from deepmf.data.role_columns import Column, read_columns
from deepmf.data.roles import ENTRIES, HISTORY, PAIRS, Role
from deepmf.errors import BadEntries, BadSetting, FileAbsent, UnreadableFile


def lines_of(path: Path, role: Role, *, separator: str | None = None, **asked: Column) -> list[tuple[object, ...]]:
    return read_columns(path, role, asked=asked, separator=separator).frame.rows()


@pytest.mark.parametrize(
    ("role", "expected"),
    [(ENTRIES, [(1, "007", 4.0)]), (PAIRS, [("1", "007")]), (HISTORY, [("007", "4")])],
)
@pytest.mark.parametrize("content", ["rating,item,user,when\n4,007,1,9\n", "user::item::rating\n1::007::4\n"])
def test_one_file_in_every_role(tmp_path: Path, role: Role, expected: list[tuple[object, ...]], content: str) -> None:
    path = tmp_path / "lines.csv"
    path.write_text(content)
    assert lines_of(path, role) == expected  # only entries decide of which type ids are
    assert read_columns(path, role).first_line == 2
    (tmp_path / "lines.csv.gz").write_bytes(gzip.compress(content.encode()))
    assert lines_of(tmp_path / "lines.csv.gz", role) == expected


@pytest.mark.parametrize(
    ("role", "expected"), [(ENTRIES, [(1, "a", 4.5)]), (PAIRS, [(1, "a")]), (HISTORY, [("a", 4.5)])]
)
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_typed_files_in_every_role(tmp_path: Path, role: Role, expected: list[tuple[object, ...]], ending: str) -> None:
    path = tmp_path / f"lines.{ending}"
    frame = polars.DataFrame({"rating": [4.5], "item": ["a"], "user": [1]})
    frame.write_parquet(path) if ending == "parquet" else frame.write_ndjson(path)
    assert lines_of(path, role) == expected
    assert read_columns(path, role).first_line is None


def test_quotes_and_colons(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text('user,item\nann,"Big, the"\n')
    assert lines_of(path, PAIRS) == [("ann", "Big, the")]
    path.write_text("user::item\nann::Alien: 3\n")
    assert lines_of(path, PAIRS) == [("ann", "Alien: 3")]


def test_blank_lines_and_further_fields_of_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("\nuser,item\n1,10\n\n2,20,more\n\n")
    assert lines_of(path, PAIRS) == [("1", "10"), ("2", "20")]


def test_a_known_id_makes_the_first_line_no_header(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("ann,Alien\nbob,Big\n")
    assert lines_of(path, PAIRS) == [("bob", "Big")]
    known = read_columns(path, PAIRS, is_known=lambda text: text == "Alien")
    assert known.frame.rows() == [("ann", "Alien"), ("bob", "Big")]
    assert read_columns(path, PAIRS, header=False).frame.height == 2


def test_chosen_names(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("user|b|c\n9|10|1\n")
    assert lines_of(path, PAIRS, row="c", column="b") == [("1", "10")]
    assert lines_of(path, PAIRS, row=2, column=1, separator="|") == [("1", "10")]
    assert lines_of(path, HISTORY, value=0) == [("10", "9")]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, FileAbsent, "there is no file"),
        (b"", UnreadableFile, "is empty"),
        (b"\n\n", UnreadableFile, "is empty"),
        (b"user,item\n", UnreadableFile, "holds no lines with a row and a column"),
        (b"user\n1\n", UnreadableFile, "'user' has one column; a row and a column are needed"),
        (b"user,user\n1,10\n", UnreadableFile, "names a column twice"),
        (b"user,item\n1,10\n2\n", UnreadableFile, "the line '2' has one column"),
        (b"1 a,10\n2 b\n", UnreadableFile, "the line '2 b' has one column"),  # a space separates nothing
        (b"user,item\n\xff\xfe,10\n", UnreadableFile, "is not UTF-8 text; convert it first"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes | None, error: type[Exception], message: str) -> None:
    path = tmp_path / "pairs.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        lines_of(path, PAIRS)


def test_bad_names(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("user,item\n1,10\n")
    with pytest.raises(BadEntries, match=r"no column 'who' for the row; there are 'user', 'item'$"):
        lines_of(path, PAIRS, row="who")
    with pytest.raises(BadEntries, match=r"row column 2 does not exist; there are columns 0 to 1$"):
        lines_of(path, PAIRS, row=2)
    with pytest.raises(BadEntries, match=r"row and column must be two different columns; got user, user$"):
        lines_of(path, PAIRS, row=0, column=0)
    with pytest.raises(BadSetting, match="separator must be one character"):
        lines_of(path, PAIRS, separator=",,")
    with pytest.raises(UnreadableFile, match=r"has 1 column\(s\) when split at ';'; a row and a column are needed"):
        lines_of(path, PAIRS, separator=";")
    with pytest.raises(UnreadableFile, match="is a directory"):
        lines_of(tmp_path, PAIRS)


def test_bad_parquet(tmp_path: Path) -> None:
    path = tmp_path / "pairs.parquet"
    path.write_text("no parquet")
    with pytest.raises(UnreadableFile, match="not a whole Parquet file"):
        lines_of(path, PAIRS)
    polars.DataFrame({"user": [1]}).write_parquet(path)
    with pytest.raises(BadEntries, match="a row and a column are needed, so at least two columns; got 1: user"):
        lines_of(path, PAIRS)


def test_the_name_of_a_file_is_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "p1.csv").write_text("user,item\n1,10\n")
    (tmp_path / "p[1].csv").write_text("user,item\n2,20\n")
    assert lines_of(tmp_path / "p[1].csv", PAIRS) == [("2", "20")]
    polars.DataFrame({"user": [1], "item": [10]}).write_parquet(tmp_path / "p1.parquet")
    polars.DataFrame({"user": [2], "item": [20]}).write_parquet(tmp_path / "p?.parquet")
    assert lines_of(tmp_path / "p?.parquet", PAIRS) == [(2, 20)]
