"""Features from files: text and Parquet, the column of the labels, types, gaps; errors name the
file."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from deepmf.data import read_features
from deepmf.data.features import read_feature_file, read_mixed_table
from deepmf.data.layout import ColumnOptions
from deepmf.errors import BadFeatures, DeepMFWarning, FileAbsent, UnreadableFile, UserError

FILMS = """film,year,genres,seen,length,code
Alien,1979,Horror|Sci-Fi,2001-12-31,117.5,007
Big,NA,Comedy,,104,12
Cars,2006, Comedy ,1999-01-01,?,
"""


@pytest.fixture
def films(tmp_path: Path) -> Path:
    path = tmp_path / "films.csv"
    path.write_text(FILMS)
    return path


def test_text_is_typed_column_by_column(films: Path) -> None:
    found = read_features(films)
    assert found.labels.tolist() == ["Alien", "Big", "Cars"]
    kinds = {"year": "number", "genres": "list", "seen": "date", "length": "number"}
    assert found.kinds == kinds | {"code": "category"}
    np.testing.assert_array_equal(found.values("year"), [1979, np.nan, 2006])
    np.testing.assert_array_equal(found.values("length"), [117.5, 104, np.nan])
    assert found.values("genres").tolist() == [("Horror", "Sci-Fi"), ("Comedy",), ("Comedy",)]
    assert found.values("seen").astype(str).tolist() == ["2001-12-31", "NaT", "1999-01-01"]
    assert found.values("code").tolist() == ["007", "12", None]


def test_kinds_can_be_given(films: Path) -> None:
    found = read_features(films, kinds={"year": "category", "code": "number"})
    assert found.values("year").tolist() == ["1979", None, "2006"]
    np.testing.assert_array_equal(found.values("code"), [7, 12, np.nan])


def test_marks_of_gaps_are_missing_among_texts_and_words_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,country,age\n1,NA,1\n2,none,-inf\n3,,2\n4,DE,none\n")
    found = read_features(tmp_path / "a.csv")
    assert found.values("country").tolist() == [None, "none", None, "DE"]
    with pytest.raises(BadFeatures, match="infinite"):  # a number, as none is a missing one
        found.values("age")


def test_further_marks_are_gaps_in_columns_of_any_type(tmp_path: Path) -> None:
    rows = [("sun", 1.5, 3), ("Unknown", -99.0, -99), ("n/a", 2.0, 4)]
    frame = pl.DataFrame(rows, schema=["light", "height", "leaves"], orient="row")
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_csv(tmp_path / "a.csv")
    for path in (tmp_path / "a.parquet", tmp_path / "a.csv"):
        found = read_mixed_table(path, missing_values=["unknown", "-99"])
        assert found.rows() == [rows[0], (None, None, None), (None, 2.0, 4)]
        assert found.schema["leaves"] == pl.Int64


@pytest.mark.parametrize("kind", ["tsv", "gz", "parquet", "jsonl", "semicolon"])
def test_every_format_gives_the_same(films: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"films.{kind}"
    if kind in ("parquet", "jsonl"):
        types: Any = {"code": pl.String}
        frame = pl.read_csv(
            films, null_values=["NA", "?"], schema_overrides=types, try_parse_dates=True
        )
        frame = frame.with_columns(pl.col("genres").str.strip_chars().str.split("|"))
        frame.write_parquet(path) if kind == "parquet" else frame.write_ndjson(path)
    elif kind == "gz":
        path.write_bytes(gzip.compress(FILMS.encode()))
    else:
        path.write_text(FILMS.replace(",", {"tsv": "\t", "semicolon": ";"}[kind]))
    found, expected = read_features(path), read_features(films)
    assert found.kinds == expected.kinds
    for name in expected.names:
        np.testing.assert_array_equal(found.values(name), expected.values(name))


def test_files_without_a_header(tmp_path: Path) -> None:
    titles = ["Star Wars: Episode IV (1977)", "Heat, the (1995)"]
    (tmp_path / "users.dat").write_text("1::F::1::10::48067\n2::M::56::16::70072\n")
    (tmp_path / "movies.dat").write_text(
        f"1::{titles[0]}::Action|Sci-Fi\n2::{titles[1]}::Action\n\n"
    )
    users, movies = read_features(tmp_path / "users.dat"), read_features(tmp_path / "movies.dat")
    assert users.labels.tolist() == [1, 2]
    assert users.names == ("field 1", "field 2", "field 3", "field 4")
    assert users.values("field 1").tolist() == ["F", "M"]
    assert movies.values("field 1").tolist() == titles
    assert movies.kinds == {"field 1": "category", "field 2": "list"}
    assert read_features(tmp_path / "movies.dat", header=True).labels.tolist() == [2]


@pytest.mark.parametrize(
    "header, label, known_as, chosen, guessed",
    [
        ("age,user_id,x", None, [], "user_id", True),
        ("age,x,Item ID", None, [], "Item ID", True),
        ("age,id,x", None, [], "id", True),
        ("age,x,y", None, [], "age", True),
        ("age,user_id,x", "x", [], "x", False),
        ("age,user_id,x", 2, [], "x", False),
        ("age,user_id,who", None, ["who"], "who", False),
        ("age,user_id,x", None, ["who"], "user_id", True),
    ],
)
def test_the_column_of_the_labels(
    tmp_path: Path,
    header: str,
    label: str | int | None,
    known_as: list[str],
    chosen: str,
    guessed: bool,
) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n1,2,3\n4,5,6\n")
    found = read_feature_file(
        tmp_path / "a.csv", ColumnOptions(asked={"label": label}), known_as=known_as
    )
    assert (found.label, found.is_guess) == (chosen, guessed)
    at = header.split(",").index(chosen)
    assert found.features.labels.tolist() == [[1, 4], [2, 5], [3, 6]][at]


@pytest.mark.parametrize(
    "text, asked, message",
    [
        ("user,age\na,1\na,2\n", {}, "repeats"),
        ("user,age\na,1\n,2\nb,3\n", {}, "line 3"),
        ("user,age\na,1\n\nb,3\n", {}, "line 3"),
        ("user,age\na,1\n", {"label": "id"}, "'id'"),
        ("user,age\na,1\n", {"label": 7}, "column 7"),
        ("user,age\na,old\n", {"kinds": {"age": "number"}}, None),
        ("user,age\na,1\n", {"kinds": {"height": "number"}}, "'height'"),
        ("user,age\na,1\n", {"kinds": {"age": "years"}}, "'years'"),
        ("user\na\nb\n", {}, "1 column"),
        ("user,age\n", {}, "lines"),
        ("", {}, "empty"),
        ("user,age\na,1\nb,2,3\n", {}, "more"),
        ("user,user\na,1\n", {}, "twice"),
    ],
)
def test_bad_files_are_one_sentence(
    tmp_path: Path, text: str, asked: dict[str, Any], message: str | None
) -> None:
    path = tmp_path / "people.csv"
    path.write_text(text)
    if message is None:  # what a kind cannot read is found when it is used
        with pytest.raises(BadFeatures, match="'age'"):
            read_features(path, **asked).learn_encoding()
        return
    with pytest.raises(UserError, match=message) as error:
        read_features(path, **asked)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_names_are_no_patterns_and_folders_no_files(tmp_path: Path) -> None:
    (tmp_path / "a[1]*.csv").write_text("user,age\na,1\nb,2\n")
    assert read_features(tmp_path / "a[1]*.csv").labels.tolist() == ["a", "b"]
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nothing")
    for name, error, word in (
        ("*.csv", FileAbsent, "file"),
        ("", UnreadableFile, "directory"),
        ("x.parquet", UnreadableFile, "Parquet"),
    ):
        with pytest.raises(error, match=word):
            read_features(tmp_path / name)
    (tmp_path / "latin.csv").write_bytes("user,city\na,Köln\n".encode("latin-1"))
    with pytest.warns(DeepMFWarning, match="1252"):
        assert read_features(tmp_path / "latin.csv").values("city").tolist() == ["Köln"]
