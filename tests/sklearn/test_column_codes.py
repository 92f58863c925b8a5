"""Categories as numbers and back."""

import numpy as np
import pandas as pd
import pytest

from deepmf.errors import BadEntries
from deepmf.sklearn.column_codes import ColumnCodes
from deepmf.sklearn.mixed_table import MixedTable

NAMES = ["size", "colour", "number"]


@pytest.fixture
def table() -> MixedTable:
    order = pd.CategoricalDtype(["s", "m", "l"], ordered=True)
    frame = pd.DataFrame({"size": ["s", "l", None], "colour": ["red", None, "blue"], "number": [1.0, 2.0, np.nan]})
    found = MixedTable.of(frame.astype({"size": order}), missing=np.nan)
    assert found is not None
    return found


def test_a_column_for_each_category_and_one_for_an_order(table: MixedTable) -> None:
    codes = ColumnCodes.of(table, NAMES)
    assert codes.names(NAMES) == ["size", "colour=blue", "colour=red", "number"]
    assert codes.sources.tolist() == [0, 1, 1, 2]
    assert codes.are_shares.tolist() == [False, True, True, False]
    nan = np.nan
    np.testing.assert_array_equal(codes.encoded(table), [[0, 0, 1, 1], [2, nan, nan, 2], [nan, 1, 0, nan]])


def test_back_again(table: MixedTable) -> None:
    codes = ColumnCodes.of(table, NAMES)
    numbers = np.array([[9.0, 9, 9, 9], [1.2, 0.3, 0.2, 2], [1.4, 0, 0, 3]])
    size, colour, number = codes.decoded(numbers, table, None)
    assert (size, colour) == (["s", "l", "m"], ["red", "blue", "blue"])
    assert number.tolist() == [9, 2, 3]


def test_draws_follow_the_shares() -> None:
    cells = np.array([["a"], ["b"], *[[None]] * 4000], dtype=object)
    table = MixedTable.of(cells, missing=np.nan)
    assert table is not None
    codes = ColumnCodes.of(table, ["x"])
    numbers = np.tile([0.75, 0.25], (4002, 1))
    (drawn,) = codes.decoded(numbers, table, np.random.default_rng(0))
    assert drawn[:2] == ["a", "b"]
    assert 0.72 < np.mean([each == "a" for each in drawn]) < 0.78
    assert set(codes.decoded(numbers, table, None)[0][2:]) == {"a"}


def test_a_category_that_nobody_knows_is_missing_to_the_model(table: MixedTable) -> None:
    codes = ColumnCodes.of(table, NAMES)
    other = MixedTable.of([["s", "pink", 1.0]], missing=np.nan, texts=[0, 1])
    assert other is not None
    np.testing.assert_array_equal(codes.encoded(other), [[0, np.nan, np.nan, 1]])
    assert codes.decoded(np.ones((1, 4)), other, None)[1] == ["pink"]


def test_texts_that_are_no_categories_are_refused() -> None:
    table = MixedTable.of([[f"name {number}", 1.0] for number in range(65)], missing=np.nan)
    assert table is not None
    with pytest.raises(BadEntries, match="column 'who' holds 65 different texts; at most 64 are taken as categories"):
        ColumnCodes.of(table, ["who", "n"])
