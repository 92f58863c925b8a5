"""Encodings of features: what becomes of numbers, categories, lists and dates, and what they say
again."""

from __future__ import annotations

import datetime
import sys
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deepmf.errors import BadFeatures
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.feature_encoding import (
    MOST_CATEGORIES,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    FeatureEncoding,
    FeatureVectors,
    ListEncoding,
    NumberEncoding,
)
from deepmf.matrix.feature_values import are_missing, convert_values, infer_kind, read_values


def dense(encoding: ColumnEncoding, values: object) -> FloatArray:
    """Return the inputs of values as a dense array, put together in the plainest way."""
    converted = convert_values(encoding.kind, values, "x")  # type: ignore[arg-type]
    found = np.zeros((converted.size, encoding.n_inputs))
    for which, inputs, weights in encoding.parts(converted):
        for row, column, weight in zip(which, inputs, weights, strict=True):
            found[row, column] += weight
    return found


def test_numbers_are_standardised_and_missing_is_told_apart() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, np.nan])
    encoding = NumberEncoding.learn("x", values)
    found = dense(encoding, values)
    np.testing.assert_allclose(found[:4, 0], (values[:4] - 2.5) / np.std(values[:4]))
    assert found[:, 1].tolist() == [0, 0, 0, 0, 1]
    assert not found[4, [0, *range(2, encoding.n_inputs)]].any()


def test_a_number_lies_between_two_quantiles() -> None:
    encoding = NumberEncoding.learn("x", np.arange(9.0))  # 0 to 8: each is a quantile
    found = dense(encoding, [0.0, 3.25, 8.0, 100.0, -5.0])[:, 2:]
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found[0, 0] == found[2, 8] == found[3, 8] == found[4, 0] == 1.0
    assert found[1, 3:5].tolist() == [0.75, 0.25]


def test_an_outlier_does_not_drown_all_else() -> None:
    encoding = NumberEncoding.learn("x", np.arange(100.0))
    assert dense(encoding, [1e90, -1e90])[:, 0].tolist() == [4.0, -4.0]


@pytest.mark.parametrize("number", [0.0, 0.1, 1e99, -3.0])
def test_numbers_that_are_equal_but_for_rounding(number: float) -> None:
    encoding = NumberEncoding.learn("x", np.full(1000, number))
    assert (encoding.spread, encoding.knots) == (1.0, ())
    assert abs(dense(encoding, [number])[0, 0]) <= 1e-12 * abs(number)


def test_categories_rare_and_unknown_ones_share_an_input() -> None:
    encoding = CategoryEncoding.learn(
        "x", convert_values("category", ["b", "a", "b", "a", "once", None], "x")
    )
    assert encoding.categories == ("a", "b")
    expected = [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert dense(encoding, ["a", "b", "once", "never seen", None]).tolist() == expected


def test_lists_are_of_length_one() -> None:
    encoding = ListEncoding.learn("x", convert_values("list", ["a|b", "a", "b|once", None], "x"))
    assert encoding.categories == ("a", "b")
    half = 0.5**0.5
    expected = [[0, 0, half, half], [half, 0, half, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(
        dense(encoding, ["b|a", "a|once|never", "never|once", None, []]), expected
    )


def test_the_most_frequent_categories_are_told_apart_whatever_their_order() -> None:
    texts = 20 * [f"c{number}" for number in range(MOST_CATEGORIES + 50)] + ["often"] * 30
    first, *others = (
        CategoryEncoding.learn("x", convert_values("category", some, "x"))
        for some in (texts, texts[::-1], sorted(texts))
    )
    assert others == [first] * 2
    assert len(first.categories) == MOST_CATEGORIES and "often" in first.categories


def test_dates_are_years() -> None:
    encoding = DateEncoding.learn(
        "x", convert_values("date", ["1979-05-25", "1988-06-03", "2000-01-01"], "x")
    )
    alien, later, gap = dense(encoding, ["1979-01-01", "2000-07-02", None])
    assert alien[0] == pytest.approx((1979 - encoding.mean) / encoding.spread)
    assert later[0] == pytest.approx((2000.5 - encoding.mean) / encoding.spread)
    assert np.flatnonzero(gap).tolist() == [1]


@pytest.fixture
def encoding() -> FeatureEncoding:
    return FeatureEncoding(
        (
            NumberEncoding.learn("year", np.array([1979.0, 1988.0, 1995.0, 2001.0])),
            ListEncoding("genres", ("Comedy", "Horror", "Sci-Fi")),
            DateEncoding.learn(
                "seen", convert_values("date", ["2001-12-31", "1999-01-01"], "seen")
            ),
            CategoryEncoding("studio", ("Fox",)),
        )
    )


def test_vectors_say_again_what_they_were_made_of(encoding: FeatureEncoding) -> None:
    raw: dict[str, Any] = {"year": [1979.0, None], "genres": ["Horror|Sci-Fi|Western", ["Comedy"]]}
    raw |= {"seen": ["2001-05-06", None], "studio": ["Fox", "Disney"]}
    values = {name: convert_values(encoding.kinds[name], some, name) for name, some in raw.items()}
    vectors = encoding.encode(2, values)
    assert vectors.n_inputs == encoding.n_inputs
    first, second, beyond = (encoding.items(vectors.take(np.array([at]))) for at in (0, 1, 5))
    expected = "year 1979, genres Horror, genres Sci-Fi, seen 2001, studio Fox"
    assert ", ".join(f"{item.name} {item.text}" for item in first) == expected
    assert [(item.name, item.text) for item in second] == [("genres", "Comedy")]
    assert beyond == []
    inputs = [at for item in first for at in item.inputs]
    assert len(set(inputs)) == len(inputs) and 0 not in inputs


def test_features_without_values_are_missing(encoding: FeatureEncoding) -> None:
    given = encoding.encode(1, {"studio": np.array(["Fox"], dtype=object)})
    none = encoding.encode(1, {})
    assert [item.text for item in encoding.items(given)] == ["Fox"]
    assert encoding.items(none) == []
    assert none.are_known.tolist() == [True]  # known to be missing


def test_many_labels_take_few_calls_each() -> None:
    texts = [f"c{number}" for number in np.random.default_rng(0).integers(1000, size=20_000)]
    calls: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        values = convert_values("category", texts, "x")
        CategoryEncoding.learn("x", values).parts(values)
    finally:
        sys.setprofile(None)
    assert calls.total() < 4 * len(texts)


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
            read_values(values)
    else:
        assert infer_kind(read_values(values)) == kind


@pytest.mark.parametrize(
    "gap", [None, np.nan, "", "  ", pd.NA, pd.NaT, np.datetime64("NaT", "s"), Decimal("nan")]
)
def test_what_is_missing(gap: Any) -> None:
    for kind, known in (("number", 2.5), ("category", "a"), ("list", ["a"]), ("date", DAY)):
        found = convert_values(kind, [known, gap], "x")
        assert are_missing(kind, found).tolist() == [False, True]
        assert are_missing(kind, convert_values(kind, [gap], "x")).tolist() == [True]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("number", ["1.5", 2, Decimal("3")], [1.5, 2.0, 3.0]),
        ("number", np.array([True, False]), [1.0, 0.0]),
        ("number", [2**63], [2.0**63]),
        ("category", [1, 2], ["1", "2"]),
        ("category", [1.0, None, 2.5], ["1", None, "2.5"]),
        ("category", [True, 1, " a "], ["True", "1", "a"]),
        ("category", np.array([1.0, np.nan]), ["1", None]),
        ("category", np.array(["2001-12-31T01:00", "NaT"], "M8[ns]"), ["2001-12-31", None]),
        ("list", ["a| b|a||", ["b", None, "a", "b"], {"b", "a"}], [("a", "b"), ("b", "a"), ("a", "b")]),
        ("list", ["c", [], 3, None, np.array([1, 2])], [("c",), (), ("3",), None, ("1", "2")]),
        ("date", ["2001-12-31", "2001-12-31 23:59", DAY], [DAY] * 3),
        ("date", [datetime.datetime(2001, 12, 31, 23)], [DAY]),
        ("date", [" 1999-05 ", "1979"], [datetime.date(1999, 5, 1), datetime.date(1979, 1, 1)]),
        ("date", [pd.Timestamp("2001-12-31 01:00", tz="Asia/Tokyo")], [DAY]),
    ],
    ids=range(14),
)  # fmt: skip
def test_values_of_a_kind(kind: str, values: Any, expected: list[Any]) -> None:
    assert convert_values(kind, values, "x").tolist() == expected


@pytest.mark.parametrize(
    "kind, values, said",
    [
        ("number", ["1", "many"], "'many'"),
        ("number", [["a"]], "numbers"),
        ("number", [DAY], "numbers"),
        ("number", np.array(["2001-12-31"], dtype="datetime64[D]"), "dates"),
        ("number", [1.0, np.inf], "infinite"),
        ("number", ["-inf", "1"], "infinite"),
        ("number", [1e200, 1.0], r"1e\+200"),
        ("number", [10**400], "numbers"),
        ("date", ["31.12.2001"], "'31.12.2001'"),
        ("date", ["2001-13-31"], "dates"),
        ("date", ["today"], "'today'"),
        ("date", np.array([2**62], dtype="datetime64[D]"), "years 1 to 9999"),
        ("position", np.array([2**62], dtype="datetime64[D]"), "years 1 to 9999"),
        ("date", [1979, 1980], "numbers"),
        ("category", [["a"], ["b"]], r"\['a'\]"),
        ("category", [{"a": 1}], "category"),
        ("list", [[0.25, 0.5]], "0.25"),
        ("list", np.zeros((2, 3), dtype=int), r"\(2, 3\)"),
        ("category", "abc", "'abc'"),
    ],
)
def test_what_is_not_of_a_kind_is_refused(kind: str, values: Any, said: str) -> None:
    with pytest.raises(BadFeatures, match=said):
        convert_values(kind, values, "x")


VECTORS = FeatureVectors.of_parts(
    3,
    5,
    [
        (np.array([2, 0]), np.array([1, 4]), np.array([0.5, 2.0])),
        # a weight of 0 is none
        (np.array([0, 0, 2]), np.array([0, 3, 2]), np.array([1.0, 0.0, -1.0])),
    ],
)


def to_table(vectors: FeatureVectors) -> FloatArray:
    found = np.zeros((len(vectors), vectors.n_inputs))
    for at in range(len(vectors)):
        np.add.at(found[at], vectors.inputs[at], vectors.weights[at])
    return found


EXPECTED = np.array([[1, 0, 0, 0, 2], [0, 0, 0, 0, 0], [0, 0.5, -1, 0, 0]])


def test_vectors_are_those_of_their_parts() -> None:
    np.testing.assert_array_equal(to_table(VECTORS), EXPECTED)
    np.testing.assert_array_equal(VECTORS.to_sparse().toarray(), EXPECTED)
    assert VECTORS.inputs.shape == (3, 2)
    assert (VECTORS.inputs.dtype, VECTORS.weights.dtype) == (np.int32, np.float32)
    assert VECTORS.are_known.tolist() == [True, False, True]
    beyond = to_table(VECTORS.take(np.array([7, 2, 0])))
    np.testing.assert_array_equal(beyond, [np.zeros(5), EXPECTED[2], EXPECTED[0]])
    more = FeatureVectors.of_parts(1, 5, [(np.zeros(3, int), np.arange(3), np.ones(3))])
    for first, second in ((VECTORS, more), (more, VECTORS)):
        both = np.concatenate([to_table(first), to_table(second)])
        np.testing.assert_array_equal(to_table(first.join(second)), both)


def test_products_do_not_depend_on_padding() -> None:
    wide = VECTORS.pad(4)
    assert wide.inputs.shape == (3, 4) and wide.pad(2) is wide
    for dtype in (np.float32, np.float64):
        table = np.random.default_rng(0).normal(size=(5, 3)).astype(dtype)
        product = VECTORS.product(table)
        np.testing.assert_allclose(product, EXPECTED @ table, rtol=1e-6)
        assert product.dtype == dtype and wide.product(table).tobytes() == product.tobytes()
    assert FeatureVectors.empty(0, 5).product(table).shape == (0, 3)
    assert not FeatureVectors.empty(2, 5).product(table).any()


@pytest.mark.parametrize("groups", [[[4]], [[0], [4, 3], [1, 2]], [[0, 4]]])
def test_without_inputs(groups: list[list[int]]) -> None:
    found = to_table(VECTORS.take(np.array([0])).without_inputs(groups))
    for line, group in zip(found, groups, strict=True):
        assert line.tolist() == [
            0 if at in group else value for at, value in enumerate(EXPECTED[0])
        ]


@pytest.mark.parametrize("count", [50, 3000], ids=["few", "many"])
def test_an_input_has_the_weights_of_all_vectors(count: int) -> None:
    dice = np.random.default_rng(0)
    inputs = np.argsort(dice.random((count, 9)), axis=1)[:, :4].astype(np.int32)
    weights = (dice.integers(-1, 3, (count, 4)) / 2).astype(np.float32)  # some are padding
    vectors = FeatureVectors(inputs, weights, n_inputs=9)
    dense = vectors.to_sparse().toarray()
    for at in range(9):
        np.testing.assert_array_equal(vectors.read_input(at), dense[:, at])
