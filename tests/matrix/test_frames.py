"""Frames of any library, long and wide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deepmf.data import read_matrix
from deepmf.errors import BadEntries, BadSetting, DeepMFWarning
from deepmf.matrix.column_roles import assign_roles, is_guess
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.table_form import PLAIN, TableForm

LONG = {"user": ["ann", "bob", "ann"], "item": [7, 7, 9], "rating": [4.0, 2.5, 1.0]}

EXPECTED = ObservedMatrix.from_entries(LONG["user"], LONG["item"], LONG["rating"])  # type: ignore[arg-type]


libraries = pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table])


@libraries
def test_long_frames(library: type) -> None:
    assert ObservedMatrix.from_frame(library(LONG)) == EXPECTED
    mixed = library({"x": LONG["rating"], "y": LONG["item"], "z": LONG["user"]})
    assert ObservedMatrix.from_frame(mixed, row="z", column="y", value="x") == EXPECTED
    assert ObservedMatrix.from_frame(mixed, row=2, column=1, value=0) == EXPECTED


@pytest.mark.parametrize(
    "names, expected",
    [
        (["userId", "movieId", "rating", "timestamp"], ["userId", "movieId", "rating"]),
        (["timestamp", "Rating", "item_id", "user_id"], ["user_id", "item_id", "Rating"]),
        (["a", "b", "c"], ["a", "b", "c"]),
        (["timestamp", "user_id", "item_id", "plays"], ["user_id", "item_id", "plays"]),
        (["session_id", "visitor", "page", "seconds"], ["visitor", "page", "seconds"]),
        (["time", "sensor", "reading"], ["time", "sensor", "reading"]),
        (["stars", "who", "what"], ["who", "what", "stars"]),
        (["Book ID", "User ID", "x", "score"], ["User ID", "Book ID", "score"]),
    ],
)
def test_usual_names_are_recognised(names: list[str], expected: list[str]) -> None:
    chosen = assign_roles(names, dict.fromkeys(("row", "column", "value")))
    assert [chosen["row"], chosen["column"], chosen["value"]] == expected


def test_wide_tables() -> None:
    table = pd.DataFrame({"b": [1.0, np.nan], "a": [2.0, 3.0]}, index=["x", "y"])
    matrix = ObservedMatrix.from_table(table)
    assert matrix.row_labels.tolist() == ["x", "y"]
    assert matrix.column_labels.tolist() == ["b", "a"]
    np.testing.assert_array_equal(matrix.to_array(), table.to_numpy())
    nulls = pl.DataFrame({"id": ["x", "y"], "b": [1, None], "a": [2, 3]})
    assert ObservedMatrix.from_table(nulls, row="id") == matrix
    assert ObservedMatrix.from_table(pd.DataFrame({"b": [1, 2]})).row_labels.tolist() == [0, 1]
    assert ObservedMatrix.from_table(pl.DataFrame({"b": [1, 2]})).row_labels.tolist() == [0, 1]
    pandas_nullable = pd.DataFrame(
        {"b": pd.array([1, None], dtype="Int64"), "a": [2, 3]}, index=["x", "y"]
    )
    assert ObservedMatrix.from_table(pandas_nullable) == matrix


def test_integer_column_names() -> None:
    table = pd.DataFrame([[1, 2, np.nan], [2, 3, 4.0]])
    matrix = ObservedMatrix.from_table(table)
    assert matrix.column_labels.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(matrix.to_array(), table.to_numpy())
    long = ObservedMatrix.from_frame(pd.DataFrame([[1, 20, 3.0], [2, 30, 4.0]]))
    assert long.entries().columns.tolist() == [20, 30]
    with pytest.raises(BadEntries, match="same"):
        ObservedMatrix.from_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(BadEntries, match="row='id'"):
        ObservedMatrix.from_table(pl.DataFrame({"id": ["x"], "a": [1]}))


@libraries
@pytest.mark.parametrize(
    "frame, message",
    [
        ({"user": ["a", None], "item": [1, 2], "rating": [1, 2]}, "entry 1"),
        ({"user": ["a", "b"], "item": [1, 2], "rating": [1, None]}, "entry 1"),
        ({"user": ["a", "b"], "item": [1, 2], "rating": ["1", "x"]}, "'rating'"),
        ({"user": ["a"], "rating": [1]}, "columns are needed"),
    ],
)
def test_bad_long_frames(library: type, frame: dict[str, list[object]], message: str) -> None:
    with pytest.raises(BadEntries, match=message):
        ObservedMatrix.from_frame(library(frame))


MONTHS = pd.Series(["2024-01", "2024-02", "2024-03"], dtype="period[M]")
BEYOND = pl.Series([2**62, 1, 2]).cast(pl.Datetime("ms"))


@pytest.mark.parametrize(
    ("frame", "options", "word"),
    [
        (pl.DataFrame(LONG), {"row": "who"}, "'who'"),
        (pl.DataFrame(LONG), {"row": np.int64(5)}, "column 5"),
        (pl.DataFrame(LONG), {"row": np.array(["user", "item"])}, "array"),
        (pd.DataFrame(LONG | {"rating": MONTHS}), {}, r"'rating'.*period\[M\]"),
        (pd.DataFrame(LONG | {"when": MONTHS}), {"time": "when"}, "entry 0: column 'when'"),
        (pl.DataFrame(LONG | {"when": BEYOND}), {"time": "when"}, "9999"),
        (pl.DataFrame(LONG), {"row": "user", "column": "user"}, "different"),
        ([1, 2], {}, "list"),
        (pd.DataFrame([[1, 2]]), {"value": 1}, "columns are needed"),
    ],
    ids=range(9),
)
def test_other_bad_frames(frame: Any, options: dict[str, Any], word: str) -> None:
    with pytest.raises(BadEntries, match=word):
        ObservedMatrix.from_frame(frame, **options)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rating", "who", "what"], ["who", "what"]),  # a value to spare is neither
        (["rating", "who"], ["rating", "who"]),
        (["what", "user", "when"], ["user", "what"]),
    ],
)
def test_two_of_the_three_columns(names: list[str], expected: list[str]) -> None:
    assert list(assign_roles(names, {"row": None, "column": None}).values()) == expected


@pytest.mark.parametrize(
    ("names", "asked", "guess"),
    [
        (["user", "film", "stars"], {}, False),
        (["userId", "movie_id", "Rating", "when"], {}, False),
        (["who", "film", "stars"], {}, True),
        (["who", "film", "stars"], {"row": "who"}, False),
        (["user", "film", "rating", "score"], {}, True),
        (["user", "film", "rating", "score"], {"value": 3}, False),
        (["0", "1", "2"], {}, True),
    ],
)
def test_what_is_a_guess(names: list[str], asked: dict[str, str | int], guess: bool) -> None:
    wanted: dict[str, str | int | None] = dict.fromkeys(("row", "column", "value"))
    assert is_guess(names, wanted | asked) is guess


def test_names_are_all_different() -> None:
    assert PLAIN.names == ("row", "column", "value")
    assert TableForm("user", "film", "stars").names == ("user", "film", "stars")
    assert TableForm("value", wide=True).names == ("row", "column", "value")
    assert TableForm("column", wide=True).name_ids_beside(["area"]) == ("row", "column")
    assert TableForm("area", "row").name_ids_beside(["area"]) == ("row", "column")


def test_a_long_frame_is_no_table_and_a_table_is_no_long_frame() -> None:
    with pytest.raises(BadEntries, match="from_frame"):
        ObservedMatrix.from_table(pd.DataFrame(LONG))
    numbers = pd.DataFrame({"user": [1, 2, 1], "item": [10, 20, 20], "rating": [3, 4, 5]})
    with pytest.raises(BadEntries, match="from_frame"):
        ObservedMatrix.from_table(numbers)
    pivot = numbers.pivot(index="user", columns="item", values="rating").assign(other=[1.0, np.nan])
    with pytest.raises(BadEntries, match="from_table"):
        ObservedMatrix.from_frame(pivot)
    wide = pl.DataFrame({"respondent": [1, 2, 3], **{f"q{k}": [1, None, 3] for k in range(6)}})
    with pytest.raises(BadEntries, match="from_table"):
        ObservedMatrix.from_frame(wide)
    filtered = pd.DataFrame(
        {"who": [1, 2, 2], "what": [10, 20, 30], "stars": [3.0, 4.0, 5.0]}
    ).iloc[1:]
    assert ObservedMatrix.from_frame(filtered).n_entries == 2


@pytest.mark.parametrize("name", ["id", "user_id", "respondent", "Unnamed: 0", "key"])
def test_ids_in_the_first_column_of_a_table_are_no_values(name: str) -> None:
    wide = pl.DataFrame({name: [1, 2, 3], "a": [3, 4, 5], "b": [5, None, 3]})
    with pytest.raises(BadEntries, match="ids"):
        ObservedMatrix.from_table(wide)
    assert ObservedMatrix.from_table(wide, row=name).shape == (3, 2)


def test_columns_off_the_common_scale_are_named() -> None:
    survey = pd.DataFrame({f"q{k}": [1, 6, 3, 2] for k in range(5)}).assign(age=[23, 71, 44, 35])
    with pytest.raises(BadEntries, match="exclude="):
        ObservedMatrix.from_table(survey)
    assert ObservedMatrix.from_table(survey, exclude=["age"]).shape == (4, 5)
    assert ObservedMatrix.from_table(survey, scale=Scale(low=0, high=100)).shape == (4, 6)
    with pytest.raises(BadEntries, match="'sex'"):
        ObservedMatrix.from_table(survey, exclude=["sex"])
    alike = survey.assign(age=[0, 1, 1, 0])  # a question with two answers
    assert ObservedMatrix.from_table(alike).shape == (4, 6)
    sensors = pd.DataFrame(
        {"a": [0.31, 0.2], "b": [0.5, 0.9], "c": [0.1, 0.2], "d": [99.5, 80.25], "e": [0.7, 0.3]}
    )
    assert ObservedMatrix.from_table(sensors).shape == (2, 5)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_lines_without_a_value_are_dropped_on_request(library: Any) -> None:
    frame = library(
        {"user": ["ann", "bob", "cat"], "item": ["x", "y", "x"], "rating": [1.0, None, 3.0]}
    )
    with pytest.raises(BadEntries):
        ObservedMatrix.from_frame(frame)
    assert ObservedMatrix.from_frame(frame, missing="drop").values.tolist() == [1, 3]
    with pytest.raises(BadSetting, match="missing"):
        ObservedMatrix.from_frame(frame, missing="skip")  # type: ignore[arg-type]
    no_id = library({"user": ["ann", None, "ann"], "item": ["x", "y", "y"], "rating": [1, 2, 3]})
    assert ObservedMatrix.from_frame(no_id, missing="drop").row_labels.tolist() == ["ann"]


def test_texts_of_dates_are_times_as_in_a_file(tmp_path: Path) -> None:
    frame = pl.DataFrame(LONG | {"date": ["2024-05-01", "2024-05-02", None]})
    frame.write_csv(tmp_path / "r.csv")
    found = ObservedMatrix.from_frame(frame)
    assert found.times is not None and found == read_matrix(tmp_path / "r.csv", scale=found.scale)
    with pytest.warns(DeepMFWarning, match="31/12/2024"):
        unread = frame.with_columns(date=pl.lit("31/12/2024"))
        assert ObservedMatrix.from_frame(unread).times is None


@pytest.mark.parametrize("code", [99.0, -99.0])
def test_a_code_for_missing_values_is_suspected(code: float) -> None:
    ratings = np.tile([-10.0, -3.5, 0.0, 4.5, 10.0, 7.0], (8, 1))
    ratings[::2, :4] = code
    with pytest.warns(DeepMFWarning, match=f"33.3% .* {code:g}, .*-10 and 10"):
        ObservedMatrix.from_table(pd.DataFrame(ratings))
    with pytest.warns(DeepMFWarning, match="missing value"):
        ObservedMatrix.from_table(pl.DataFrame(ratings))


# in few columns; near the others
@pytest.mark.parametrize(("code", "n_columns"), [(99.0, 2), (40.0, 6)])
def test_a_value_that_may_be_real_is_not_called_a_code(code: float, n_columns: int) -> None:
    ratings = np.tile([-10.0, -3.3, 0.1, 4.7, 10.0, 7.2], (8, 1))
    ratings[::2, :n_columns] = code
    assert ObservedMatrix.from_table(pl.DataFrame(ratings)).n_entries == ratings.size
