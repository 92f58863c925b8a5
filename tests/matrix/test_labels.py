"""Labels: kept as given, of one kind, found again."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from deepmf.errors import BadEntries, UnknownLabel
from deepmf.matrix.labels import JoinedLabels, Labels, gather_objects

some_labels = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.integers(0, 50)),
    st.lists(st.text(max_size=4)),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))),
    st.lists(st.dates()),
)


@pytest.mark.slow
@given(some_labels)
def test_gathering_loses_nothing(items: list[object]) -> None:
    labels, positions = Labels.gather(items, axis="row")
    assert [labels.array.tolist()[position] for position in positions] == items
    assert labels.array.tolist() == sorted(set(items))  # type: ignore[type-var]
    np.testing.assert_array_equal(labels.positions(items), positions)


def test_numpy_labels_are_plain_labels() -> None:
    days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]")
    for items, expected in (
        (np.array(["a", "b"]), ["a", "b"]),
        ([np.int32(4), np.int64(5)], [4, 5]),
        ([np.str_("a"), "b"], ["a", "b"]),
        (np.array([7, 9], dtype=np.uint8), [7, 9]),
        (days, [datetime(2020, 1, 1), datetime(2020, 1, 2)]),
    ):
        labels = Labels(items, axis="row")
        assert labels.array.tolist() == expected
        assert labels.positions(expected).tolist() == [0, 1]
    assert Labels([7, 9], axis="row").positions(range(9, 10)).tolist() == [1]


def test_unknown_labels_are_named_and_repeated_ones_found_once() -> None:
    labels = Labels(["ann", "bob"], axis="row")
    assert labels.find_distinct(["bob", "ann", "bob"]).tolist() == [1, 0]
    with pytest.raises(UnknownLabel, match="'zoe' is not known .and 1 more"):
        labels.positions(["ann", "zoe", "yan", "zoe"])
    with pytest.raises(UnknownLabel, match="'zoe' is not known;"):
        labels.positions(["zoe"] * 5)  # one label, however often it is asked for
    with pytest.raises(KeyError):
        Labels([1, 2], axis="column").positions([3])
    assert Labels([1, 2], axis="row").find(["1", "2"]).tolist() == [-1, -1]
    assert labels.find([]).tolist() == []


@given(
    st.lists(st.integers(-50, 50), min_size=1, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-60, 60)),
)
def test_integers_are_found_by_table_and_by_sorting(labels: list[int], items: list[int]) -> None:
    expected = [labels.index(item) if item in labels else -1 for item in items]
    assert Labels(labels, axis="row").find(items).tolist() == expected
    far = Labels([*labels, 2**62], axis="row")
    assert far.find(items).tolist() == [
        len(labels) if item == 2**62 else place for item, place in zip(items, expected, strict=True)
    ]


def test_joining_appends_what_is_new() -> None:
    labels = Labels(["b", "a"], axis="row")
    assert labels.join(Labels(["c", "a"], axis="row")).array.tolist() == ["b", "a", "c"]
    assert labels.join(Labels(["a"], axis="row")) is labels
    with pytest.raises(BadEntries, match="strs"):
        labels.join(Labels([4], axis="row"))
    with pytest.raises(BadEntries, match="dates"):
        labels.join(Labels([date(2020, 1, 1)], axis="row"))


@pytest.mark.parametrize(
    "items, message",
    [
        (["a", 1], "int 1"),
        ([1, 2.5], "kind"),
        (["a", None], "entry 1"),
        ([Decimal(1), Decimal("NaN")], "missing"),
        ([Decimal(1), Decimal("sNaN")], "missing"),
        ([1.0, float("nan")], "entry 1"),
        (["a", "a"], "1 of 2"),
        ([2, 2, 2], "2 of 3"),
        ([[1], [2]], "hashable"),
        ([2**70], "64 bits"),
        ("abc", "'abc'"),
        (7, "^rows"),
        (np.array([2**63 + 5], dtype=np.uint64), "9223372036854775813"),
        (np.zeros((2, 2), dtype=int), "one-dimensional"),
    ],
)
def test_bad_labels(items: object, message: str) -> None:
    with pytest.raises(BadEntries, match=message):
        Labels(items, axis="row")  # type: ignore[arg-type]


def test_sequence_manners() -> None:
    labels = Labels(["x", "y"], axis="column")
    assert (len(labels), labels[1], list(labels)) == (2, "y", ["x", "y"])
    assert "y" in labels and "z" not in labels
    assert labels == Labels(["x", "y"], axis="column") != Labels(["y", "x"], axis="column")
    assert repr(Labels(range(5), axis="row")) == "Labels(5 rows: 0, 1, 2, ...)"
    with pytest.raises(ValueError, match="read-only"):
        labels.array[0] = "q"


@pytest.mark.parametrize(
    ("first", "rest", "other"),
    [(["b", "a", "d"], ["c", "e"], "z"), ([5, 1, 9], [7, 3], 99), (range(4), [10, 8], 99)],
)
def test_joined_labels_are_those_of_one_list(first: Any, rest: Any, other: Any) -> None:
    start = Labels(first, axis="row")
    joined, whole = start.join(Labels(rest, axis="row")), Labels([*first, *rest], axis="row")
    assert joined == whole and len(joined) == len(whole) and list(joined) == [*first, *rest]
    assert joined.find([*rest, *first]).tolist() == whole.find([*rest, *first]).tolist()
    marks = np.arange(len(whole)) % 2 == 0
    for asked in (0, -1, slice(0, 2), slice(1, None), slice(None, None, -1), marks):
        assert np.array_equal(joined[asked], whole[asked]), asked
    for positions in ([0, 1], [len(whole) - 1], [0, len(whole) - 1], []):
        some = np.array(positions, dtype=int)
        assert joined[some].tolist() == whole[some].tolist()
    again = joined.join(Labels([rest[0], *first[:1], other], axis="row"))
    assert len(again) == len(whole) + 1
    assert again.find(again.array.tolist()).tolist() == list(range(len(again)))
    assert joined.join(start) is joined and rest[1] in joined
    with pytest.raises(UnknownLabel, match="known"):
        joined.positions([other])


def test_labels_that_come_one_by_one_are_those_of_one_list() -> None:
    names = [f"name {number}" for number in range(1500)]
    joined = Labels(names[:3], axis="row")
    for name in names[3:]:
        joined = joined.join(Labels([name], axis="row"))
    assert joined.positions(names).tolist() == list(range(1500))
    assert joined.find(["nobody"]).tolist() == [-1]
    mixed = np.array([1499, 0, 700, 2])
    assert joined[mixed].tolist() == [names[at] for at in mixed]
    assert joined.array.tolist() == names
    parts, first = 1, joined
    while isinstance(first, JoinedLabels):
        parts, first = parts + 1, first._first
    assert 2 < parts < 8  # few to look through, and the longest is not copied each time


@pytest.mark.parametrize(
    ("items", "distinct"), [(["b", "a", "b"], ["a", "b"]), ([1j, 0j, 1j], [1j, 0j])]
)
def test_objects_without_an_order_keep_that_of_their_first_appearance(
    items: list[Any], distinct: list[Any]
) -> None:
    labels, positions = gather_objects(np.array(items, dtype=object))
    assert labels.tolist() == distinct
    assert labels[positions].tolist() == items
