"""Raw values of features: their kinds, and what each kind makes of them."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deepmf.errors import BadFeatures
from deepmf.matrix.feature_values import are_missing, kind_of, raw_values, values_as

DAY = datetime.date(2001, 12, 31)


@pytest.mark.parametrize(
    "values, kind",
    [
        ([1.5, 2.5, None], "number"),
        ([1, 2, 3], "number"),  # too few to be codes
        ([1, 2] * 10, "category"),
        ([1.0, 2.0, np.nan] * 10, "category"),
        ([1.0, 2.5] * 20, "number"),
        (list(range(33)) * 11, "number"),
        (list(range(32)) * 11, "category"),
        ([Decimal("1.5"), Decimal("2")], "number"),
        ([np.float32(1.5), np.int64(2)], "number"),
        ([10**400, 2], "cannot"),
        ([True, False], "category"),
        (np.array([True, False]), "category"),
        ([True, 2], "category"),
        (["a", "b", ""], "category"),
        (["1", "2"], "category"),  # texts stay texts
        (["a|b", "c"], "list"),
        ([["a"], []], "list"),
        ([("a", "b"), None], "list"),
        ([np.array(["a", "b"]), np.array(["c", "d"])], "list"),
        (["2001-12-31", "", "1999-01-01T10:00:00+02:00"], "date"),
        (["2001-12-31", "soon"], "category"),
        ([DAY, None], "date"),
        ([pd.Timestamp("2001-12-31", tz="Asia/Tokyo"), pd.NaT], "date"),
        (np.array(["2001-12-31", "NaT"], dtype="datetime64[s]"), "date"),
        ([np.datetime64("2001-12-31"), None], "date"),
        ([None, None], "category"),
        ([], "category"),
    ],
)
def test_kinds_are_what_values_look_like(values: Any, kind: str) -> None:
    if kind == "cannot":
        with pytest.raises(OverflowError):
            raw_values(values)
    else:
        assert kind_of(raw_values(values)) == kind


@pytest.mark.parametrize("gap", [None, np.nan, "", "  ", pd.NA, pd.NaT, np.datetime64("NaT"), Decimal("nan")])
def test_what_is_missing(gap: Any) -> None:
    for kind, known in (("number", 2.5), ("category", "a"), ("list", ["a"]), ("date", DAY)):
        found = values_as(kind, [known, gap], "x")
        assert are_missing(kind, found).tolist() == [False, True]
        assert are_missing(kind, values_as(kind, [gap], "x")).tolist() == [True]


def test_numbers() -> None:
    assert values_as("number", ["1.5", 2, None, Decimal("3")], "x").tolist()[:2] == [1.5, 2.0]
    assert values_as("number", np.array([True, False]), "x").tolist() == [1.0, 0.0]
    assert values_as("number", [2**63], "x").tolist() == [2.0**63]


def test_categories_are_texts_however_they_are_given() -> None:
    assert values_as("category", [1, 2], "x").tolist() == ["1", "2"]
    assert values_as("category", [1.0, None, 2.5], "x").tolist() == ["1", None, "2.5"]
    assert values_as("category", [True, 1, " a "], "x").tolist() == ["True", "1", "a"]
    assert values_as("category", np.array([1.0, np.nan]), "x").tolist() == ["1", None]
    times = np.array(["2001-12-31T01:00", "NaT"], dtype="datetime64[ns]")
    assert values_as("category", times, "x").tolist() == ["2001-12-31", None]


def test_lists_have_each_category_once() -> None:
    given = ["a| b|a||", ["b", None, "a", "b"], {"b", "a"}, "c", [], 3, None, np.array([1, 2])]
    expected = [("a", "b"), ("b", "a"), ("a", "b"), ("c",), (), ("3",), None, ("1", "2")]
    assert values_as("list", given, "x").tolist() == expected


def test_dates() -> None:
    given = ["2001-12-31", "2001-12-31 23:59", " 1999-05 ", "1979", DAY, datetime.datetime(2001, 12, 31, 23)]
    expected = ["2001-12-31", "2001-12-31", "1999-05-01", "1979-01-01", "2001-12-31", "2001-12-31"]
    assert values_as("date", given, "x").astype(str).tolist() == expected
    assert values_as("date", [pd.Timestamp("2001-12-31 01:00", tz="Asia/Tokyo")], "x").astype(str) == ["2001-12-31"]


@pytest.mark.parametrize(
    "kind, values, said",
    [
        (
            "number",
            ["1", "many"],
            "the feature 'x' cannot be read as numbers: could not convert string to float: 'many'",
        ),
        ("number", [["a"]], "the feature 'x' cannot be read as numbers"),
        ("number", [DAY], "the feature 'x' cannot be read as numbers"),
        ("number", np.array(["2001-12-31"], dtype="datetime64[D]"), "cannot be read as numbers: they are dates"),
        ("number", [1.0, np.inf], "the feature 'x' has infinite numbers; leave them empty where they are not known"),
        ("number", ["-inf", "1"], "the feature 'x' has infinite numbers"),
        ("number", [1e200, 1.0], r"the feature 'x' has numbers up to 1e\+200; 1e\+100 is the most"),
        ("number", [10**400], "the feature 'x' cannot be read as numbers"),
        ("date", ["31.12.2001"], "cannot be read as dates: '31.12.2001' is no date such as 2001-12-31"),
        ("date", ["2001-13-31"], "the feature 'x' cannot be read as dates"),
        ("date", ["today"], "'today' is no date"),
        ("date", [1979, 1980], "cannot be read as dates: they are numbers"),
        ("category", [["a"], ["b"]], r"cannot be read as categories: \['a'\] is not one category"),
        ("category", [{"a": 1}], "is not one category"),
        ("list", [[0.25, 0.5]], "0.25 and others are no categories; numbers need a column each"),
        ("list", np.zeros((2, 3)), r"cannot be read as lists of categories: it has the shape \(2, 3\)"),
        ("category", "abc", "a value for each label is right; got 'abc'"),
    ],
)
def test_what_is_not_of_a_kind_is_refused(kind: str, values: Any, said: str) -> None:
    with pytest.raises(BadFeatures, match=said):
        values_as(kind, values, "x")
