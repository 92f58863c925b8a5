"""Encodings of features: what becomes of numbers, categories, lists and dates, and what they say again."""

import json
import time

import numpy as np
import pytest

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.feature_encoding import (
    MOST_CATEGORIES,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    FeatureEncoding,
    ListEncoding,
    NumberEncoding,
)
from deepmf.matrix.feature_values import values_as


def dense(encoding: ColumnEncoding, values: object) -> FloatArray:
    """Return the inputs of values as a dense array, put together in the plainest way."""
    converted = values_as(encoding.kind, values, "x")  # type: ignore[arg-type]
    found = np.zeros((converted.size, encoding.n_inputs))
    for which, inputs, weights in encoding.parts(converted):
        for row, column, weight in zip(which, inputs, weights, strict=True):
            found[row, column] += weight
    return found


def test_numbers_are_standardised_and_missing_is_told_apart() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, np.nan])
    encoding = NumberEncoding.learned("x", values)
    found = dense(encoding, values)
    np.testing.assert_allclose(found[:4, 0], (values[:4] - 2.5) / np.std(values[:4]))
    assert found[:, 1].tolist() == [0, 0, 0, 0, 1]
    assert not found[4, [0, *range(2, encoding.n_inputs)]].any()


def test_a_number_lies_between_two_quantiles() -> None:
    encoding = NumberEncoding.learned("x", np.arange(9.0))  # 0 to 8: each is a quantile
    found = dense(encoding, [0.0, 3.25, 8.0, 100.0, -5.0])[:, 2:]
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found[0, 0] == found[2, 8] == found[3, 8] == found[4, 0] == 1.0
    assert found[1, 3:5].tolist() == [0.75, 0.25]


def test_an_outlier_does_not_drown_all_else() -> None:
    encoding = NumberEncoding.learned("x", np.arange(100.0))
    assert dense(encoding, [1e90, -1e90])[:, 0].tolist() == [4.0, -4.0]


@pytest.mark.parametrize("number", [0.0, 0.1, 1e99, -3.0])
def test_numbers_that_are_equal_but_for_rounding(number: float) -> None:
    encoding = NumberEncoding.learned("x", np.full(1000, number))
    assert (encoding.spread, encoding.knots) == (1.0, ())
    assert abs(dense(encoding, [number])[0, 0]) <= 1e-12 * abs(number)


def test_categories_rare_and_unknown_ones_share_an_input() -> None:
    encoding = CategoryEncoding.learned("x", values_as("category", ["b", "a", "b", "a", "once", None], "x"))
    assert encoding.categories == ("a", "b")
    expected = [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert dense(encoding, ["a", "b", "once", "never seen", None]).tolist() == expected


def test_lists_are_of_length_one() -> None:
    encoding = ListEncoding.learned("x", values_as("list", ["a|b", "a", "b|once", None], "x"))
    assert encoding.categories == ("a", "b")
    half = 0.5**0.5
    expected = [[0, 0, half, half], [half, 0, half, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(dense(encoding, ["b|a", "a|once|never", "never|once", None, []]), expected)


def test_the_most_frequent_categories_are_told_apart_whatever_their_order() -> None:
    texts = [f"c{number}" for number in range(MOST_CATEGORIES + 50) for _ in range(20)] + ["often"] * 30
    encodings = [
        CategoryEncoding.learned("x", values_as("category", some, "x")) for some in (texts, texts[::-1], sorted(texts))
    ]
    assert encodings[0] == encodings[1] == encodings[2]
    assert len(encodings[0].categories) == MOST_CATEGORIES and "often" in encodings[0].categories


def test_dates_are_a_year_an_age_and_a_month() -> None:
    encoding = DateEncoding.learned("x", values_as("date", ["1979-05-25", "1988-06-03", "2000-01-01"], "x"))
    assert encoding.latest == "2000-01-01"
    (alien, gap) = dense(encoding, ["1979-05-25", None])
    n_year, n_age = encoding.year.n_inputs, encoding.age.n_inputs
    assert alien[0] == pytest.approx((1979 - encoding.year.mean) / encoding.year.spread)
    years = (np.datetime64("2000-01-01") - np.datetime64("1979-05-25")).astype(float) / 365.25
    assert alien[n_year] == pytest.approx((years - encoding.age.mean) / encoding.age.spread)
    assert np.flatnonzero(alien[n_year + n_age :]).tolist() == [2 + 4]  # May
    assert np.flatnonzero(gap).tolist() == [1, n_year + 1, n_year + n_age + 1]


@pytest.fixture
def encoding() -> FeatureEncoding:
    return FeatureEncoding(
        (
            NumberEncoding.learned("year", np.array([1979.0, 1988.0, 1995.0, 2001.0])),
            ListEncoding("genres", ("Comedy", "Horror", "Sci-Fi")),
            DateEncoding.learned("seen", values_as("date", ["2001-12-31", "1999-01-01"], "seen")),
            CategoryEncoding("studio", ("Fox",)),
        )
    )


def test_vectors_say_again_what_they_were_made_of(encoding: FeatureEncoding) -> None:
    raw = {
        "year": [1979.0, None],
        "genres": ["Horror|Sci-Fi|Western", ["Comedy"]],
        "seen": ["2001-05-06", None],
        "studio": ["Fox", "Disney"],
    }
    vectors = encoding.encode(2, {name: values_as(encoding.kinds[name], each, name) for name, each in raw.items()})
    assert vectors.n_inputs == encoding.n_inputs
    first = encoding.items(vectors.take(np.array([0])))
    assert [(item.name, item.text) for item in first] == [
        *(("year", "1979"), ("genres", "Horror"), ("genres", "Sci-Fi"), ("seen", "2001"), ("studio", "Fox"))
    ]
    second = encoding.items(vectors.take(np.array([1])))
    assert [(item.name, item.text) for item in second] == [("genres", "Comedy")]
    inputs = [at for item in first for at in item.inputs]
    assert len(set(inputs)) == len(inputs) and 0 not in inputs
    assert encoding.items(vectors.take(np.array([5]))) == []


def test_features_without_values_are_missing(encoding: FeatureEncoding) -> None:
    given, none = encoding.encode(1, {"studio": np.array(["Fox"], dtype=object)}), encoding.encode(1, {})
    assert [item.text for item in encoding.items(given)] == ["Fox"]
    assert encoding.items(none) == []
    assert none.are_known.tolist() == [True]  # known to be missing


def test_content_is_json(encoding: FeatureEncoding) -> None:
    assert json.loads(json.dumps(encoding.to_dict())) == encoding.to_dict()


@pytest.mark.slow
def test_a_million_labels_take_seconds() -> None:
    dice = np.random.default_rng(0)
    texts = [f"c{number}" for number in dice.integers(5000, size=1_000_000)]
    begin = time.process_time()
    values = values_as("category", texts, "x")
    encoding = CategoryEncoding.learned("x", values)
    encoding.parts(values)
    assert time.process_time() - begin < 10
