"""Tables with text: which columns are numbers, what is missing, and frames given back."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from deepmf.errors import BadEntries
from deepmf.sklearn.mixed_table import MixedTable, with_columns

FRAME = pd.DataFrame(
    {
        "size": pd.Categorical(["s", None, "l"], categories=["s", "m", "l"], ordered=True),
        "colour": ["red", None, "blue"],
        "kind": pd.Categorical(["a", "b", None]),
        "number": [1.0, np.nan, 3.0],
        "count": pd.array([1, None, 3], dtype="Int64"),
        "yes": [True, False, True],
    }
)


def sizes(frame: pd.DataFrame) -> pl.DataFrame:
    return pl.from_pandas(frame).with_columns(pl.col("size").cast(pl.Enum(["s", "m", "l"])))


@pytest.mark.parametrize("frame", [FRAME, sizes(FRAME)], ids=["pandas", "polars"])
def test_frames(frame: Any) -> None:
    table = MixedTable.of(frame, missing=np.nan)
    assert table is not None
    assert {at: cells.tolist() for at, cells in table.texts.items()} == {
        0: ["s", None, "l"],
        1: ["red", None, "blue"],
        2: ["a", "b", None],
    }
    assert table.orders == {0: ("s", "m", "l")}
    expected = [[1, 1, 1], [np.nan, np.nan, 0], [3, 3, 1]]
    np.testing.assert_array_equal(table.numbers, np.column_stack([np.full((3, 3), np.nan), expected]))
    assert table.missing.tolist() == [
        [False] * 6,
        [True, True, False, True, True, False],
        [False] * 2 + [True] + [False] * 3,
    ]


def test_arrow() -> None:
    table = MixedTable.of(pa.table({"colour": ["red", None], "number": [1.5, None]}), missing=np.nan)
    assert table is not None and table.texts[0].tolist() == ["red", None]


def test_arrays_of_objects_and_lists() -> None:
    rows = [["red", 1.5, None], [float("nan"), 2, pd.NA], ["blue", np.float32("nan"), 4]]
    for given in (rows, np.array(rows, dtype=object)):
        table = MixedTable.of(given, missing=np.nan)
        assert table is not None and list(table.texts) == [0]
        np.testing.assert_array_equal(table.numbers[:, 1:], [[1.5, np.nan], [2, np.nan], [np.nan, 4]])
        assert table.texts[0].tolist() == ["red", None, "blue"]


@pytest.mark.parametrize(
    "numbers",
    [
        np.array([[1.0, np.nan]]),
        np.array([[1, None]], dtype=object),
        [[1.0, 2.0]],
        scipy.sparse.csr_array([[1.0]]),
        FRAME[["number", "count", "yes"]],
        FRAME[["number"]].astype(object),
    ],
    ids=["array", "objects", "list", "sparse", "frame", "frame of objects"],
)
def test_numbers_alone_are_left_to_scikit_learn(numbers: Any) -> None:
    assert MixedTable.of(numbers, missing=np.nan) is None


def test_marks_of_what_is_missing() -> None:
    table = MixedTable.of([["?", 1.0], ["a", "?"]], missing="?")
    assert table is not None and table.texts[0].tolist() == [None, "a"]
    np.testing.assert_array_equal(table.numbers[:, 1], [1.0, np.nan])
    table = MixedTable.of(pd.DataFrame({"t": ["a", "b"], "n": [-1, 2]}), missing=-1)
    assert table is not None
    np.testing.assert_array_equal(table.numbers[:, 1], [np.nan, 2.0])


def test_known_columns_stay_text() -> None:
    for given in ([[None, 1.0]], np.array([[np.nan, 1.0]]), pd.DataFrame({"t": [None], "n": [1.0]})):
        table = MixedTable.of(given, missing=np.nan, texts=[0])
        assert table is not None and table.texts[0].tolist() == [None]


def test_frames_are_given_back_with_their_types() -> None:
    columns = {"size": ["s", "m", "l"], "colour": ["red", "red", "blue"], "number": np.array([1.0, 2.0, 3.0])}
    frame = FRAME.set_axis([7, 8, 9])
    back = with_columns(frame, columns)
    assert back.index.tolist() == [7, 8, 9]
    assert back.dtypes.tolist() == FRAME[list(columns)].dtypes.tolist()
    assert back["size"].tolist() == ["s", "m", "l"]
    back = with_columns(sizes(FRAME), columns)
    assert back.schema == sizes(FRAME).select(list(columns)).schema
    assert back.to_dict(as_series=False)["colour"] == ["red", "red", "blue"]
    few = FRAME.assign(size=pd.Categorical(["s", None, "s"]))
    assert with_columns(few, {"size": ["s", "l", "s"]})["size"].cat.categories.tolist() == ["s", "l"]
    few = pl.DataFrame({"size": ["s", None]}, schema={"size": pl.Enum(["s"])})
    assert with_columns(few, {"size": ["s", "l"]})["size"].dtype == pl.Enum(["s", "l"])


def test_dates_are_refused() -> None:
    for frame in (
        pl.DataFrame({"day": pl.Series([1, 2]).cast(pl.Date)}),
        pd.DataFrame({"day": pd.to_datetime(["2026-01-01"])}),
    ):
        with pytest.raises(BadEntries, match="column 'day' holds Date.*; numbers, text and categories are filled in"):
            MixedTable.of(frame, missing=np.nan)


def test_what_pandas_has_for_nothing_is_a_mark_too() -> None:
    table = MixedTable.of(pd.DataFrame({"t": pd.array(["a", None], dtype="string")}), missing=pd.NA)
    assert table is not None and table.texts[0].tolist() == ["a", None]
