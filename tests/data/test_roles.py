"""The roles of files: what each needs, and whether line 1 is a header."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars
import polars as pl
import pytest

from deepmf.data import read_matrix
from deepmf.data.roles import COLUMNS, ENTRIES, HISTORY, PAIRS, ROWS, Column, Role, check_decimal, parsed, read_columns
from deepmf.errors import BadEntries, BadSetting, FileAbsent, UnreadableFile
from deepmf.matrix.scale import Scale


def test_what_a_line_must_hold() -> None:
    assert ENTRIES.needed == "a row, a column and a value"
    assert PAIRS.needed == "a row and a column"
    assert HISTORY.needed == "a column and a value"
    assert COLUMNS.needed == "a column"


@pytest.mark.parametrize(
    ("first", "rest", "expected"),
    [
        ("user,item,rating", "1,10,4", True),
        ("u,i,2020", "1,10,4", True),
        ("u,i,2020", "ann,Alien,4", True),
        ("member,film,2020", "1,10,4", True),  # words where all that follow are numbers
        ("member,thing,points", "ann,Alien,4", True),
        ("userId,itemId,", "ann,Alien,4", True),
        (",a,b", "0,10,4", True),
        ("ann,Alien,4", "bob,Big,3", False),
        ("ann,Alien,", "bob,Big,3", False),  # an entry whose value is missing
        ("ann,Alien,NA", "bob,Big,3", False),
        ("1,10,", "2,10,3", False),
        ("1,10,x", "2,10,3", False),
        ("1,1,1", "2,10,3", False),
        ("x9,5,4", "1,2,3", False),
    ],
)
def test_headers_of_entries(first: str, rest: str, expected: bool) -> None:
    assert ENTRIES.is_header(first.split(","), [rest.split(",")], lambda _: False) is expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("user,item", True),
        ("item,when,user", True),
        ("who,what", True),
        ("ann,what", False),  # ann is known
        ("who,7", False),
        ("who,what,2020", False),
        ("who,", False),
        ("who,what,", True),
        ("007,x", True),  # no whole number
    ],
)
def test_headers_of_pairs(first: str, expected: bool) -> None:
    assert PAIRS.is_header(first.split(","), [], lambda text: text == "ann") is expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("title,stars", True),
        ("title,points", True),
        ("item,2020", True),
        ("Alien,4", False),
        ("Alien,", False),
        ("Alien,NA", False),
        ("user,title,7", False),
    ],
)
def test_headers_of_histories(first: str, expected: bool) -> None:
    assert HISTORY.is_header(first.split(","), [], lambda _: False) is expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("film", True),
        ("title,how much", True),
        ("user,item,rating", True),
        ("Alien", False),
        ("Nobody's film", False),  # an unknown id, which is to be refused
        ("book", False),  # known
        ("7", False),
    ],
)
def test_headers_of_columns(first: str, expected: bool) -> None:
    assert COLUMNS.is_header(first.split(","), [], lambda text: text in ("Alien", "book")) is expected


@pytest.mark.parametrize(
    ("first", "expected"),
    [("user", True), ("name,age", True), ("user,item,rating", True), ("ann", False), ("Nobody", False), ("7", False)],
)
def test_headers_of_rows(first: str, expected: bool) -> None:
    assert ROWS.is_header(first.split(","), [], lambda text: text == "ann") is expected


def test_gaps_are_null() -> None:
    found = parsed(pl.Series(["1.5", None, "", " NA ", "null", "NaN", "n/a", "-", "-2"]))
    assert found.to_list() == [1.5, *[None] * 7, -2.0]


def test_decimal_commas() -> None:
    assert parsed(pl.Series(["1,5", " 2 ", "-0,25", "NA"]), decimal=",").to_list() == [1.5, 2.0, -0.25, None]
    for text in ("1.5", "1.234,5", "1,2,3"):
        with pytest.raises(BadEntries, match="is not a number$"):
            parsed(pl.Series(["1", text]), decimal=",")


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(BadEntries, match="entry 1: value 'good' is not a number$") as caught:
        parsed(pl.Series(["1", "good", "bad"]))
    assert caught.value.position == 1
    with pytest.raises(BadEntries, match="value '3,5' is not a number; decimal=',' reads decimal commas"):
        parsed(pl.Series(["3,5"]))
    with pytest.raises(BadSetting, match="decimal must be '.' or ','; got ';'"):
        check_decimal(";")


def test_a_first_value_that_is_missing_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("ann,Alien,\nbob,Big,3\ncid,Big,4\n")
    with pytest.raises(BadEntries, match=r"r.csv, line 1: the value is missing"):
        read_matrix(tmp_path / "r.csv")


def test_a_header_with_a_number_is_no_entry(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("u,i,2020\n1,10,4\n2,10,3\n")
    assert read_matrix(tmp_path / "r.csv").entries().values.tolist() == [4, 3]


QUESTIONS = [f"A{k}" for k in range(1, 29)]

WIDE = {
    "many.csv": f"id,{','.join(QUESTIONS)}\n" + "".join(f"{k}{',3' * 28}\n" for k in range(5)),
    "holes.csv": "who,a,b,c\nann,1,,3\nbob,2,3,\n",
    "few.csv": "respondent,q1,q2,q3\n1,4,5,3\n2,5,5,4\n3,1,2,2\n",
    "years.csv": "country,2019,2020,2021\nFR,1.5,2.5,3.5\nDE,4.5,1.0,2.0\n",
    "tabs.tsv": "id\tx\ty\tz\n7\t0.5\t1.5\t2.5\n8\t1.5\t0.25\t9\n",
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_tables_are_refused_with_the_way_to_read_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(WIDE[name])
    with pytest.raises(UnreadableFile, match="looks like a wide table.*wide=True reads it.*column= and value="):
        read_matrix(path)
    matrix = read_matrix(path, wide=True, scale=Scale(low=0, high=10))
    n_columns = WIDE[name].splitlines()[0].replace("\t", ",").count(",")
    assert matrix.shape == (WIDE[name].count("\n") - 1, n_columns)


def test_a_wide_parquet_file_is_refused_and_named_columns_are_read(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], **{name: [1.0, None, 3.0] for name in QUESTIONS}})
    frame.write_parquet(tmp_path / "wide.parquet")
    with pytest.raises(UnreadableFile, match=r"wide table.*29 columns.*wide=True"):
        read_matrix(tmp_path / "wide.parquet")
    (tmp_path / "few.csv").write_text(WIDE["few.csv"])
    assert read_matrix(tmp_path / "few.csv", column="q1", value="q2").column_labels.tolist() == [1, 4, 5]
    assert read_matrix(tmp_path / "few.csv", column=1, value=2).n_entries == 3


@pytest.mark.parametrize(
    "content",
    [
        "member,thing,points,moment\n1,310,4,881250949\n2,20,5,881250950\n",  # columns that reach unequally far
        "1\t30\t4\t881250949\n2\t31\t3\t891717742\n",
        "userId,movieId,rating,a,b,c,d,e\n1,2,3,4,5,6,7,8\n2,2,4,4,5,6,7,8\n",  # usual names
        "a,b,c,d\n1,2,3,4\n1,3,4,4\n",  # a row twice
        "who,what,points,extra\nann,Alien,3,4\nbob,Big,4,4\n",  # the second column holds words
    ],
)
def test_what_has_a_line_per_entry_is_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "r.txt").write_text(content)
    assert read_matrix(tmp_path / "r.txt", duplicates="last").n_entries == 2


@pytest.mark.parametrize(
    "content",
    ["Big\nUp, Up\n", 'Big\n"Up, Up"\n', 'Big,1988\n"Up, Up",2009\n', "Big\t1\nUp, Up\t2\n", "title\nBig\n\nUp, Up"],
)
def test_a_list_of_ids_is_split_by_what_is_known(tmp_path: Path, content: str) -> None:
    (tmp_path / "ids").write_text(content)
    found = read_columns(tmp_path / "ids", COLUMNS, is_known=lambda text: text in ("Big", "Up, Up")).frame
    assert found.to_series().to_list() == ["Big", "Up, Up"]


def test_a_list_of_ids_in_parquet(tmp_path: Path) -> None:
    pl.DataFrame({"user": ["ann"], "item": ["Big"]}).write_parquet(tmp_path / "ids.parquet")
    assert read_columns(tmp_path / "ids.parquet", COLUMNS).frame.to_series().to_list() == ["Big"]
    pl.DataFrame().write_parquet(tmp_path / "none.parquet")
    with pytest.raises(BadEntries, match="none.parquet: a column is needed; got 0"):
        read_columns(tmp_path / "none.parquet", COLUMNS)


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
