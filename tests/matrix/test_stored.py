"""Labels as tensors: every kind that a file can hold comes back as given, the others are refused
before any work."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, strategies as st

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix import TableForm
from deepmf.matrix.labels import Labels, TextLabels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.packed import (
    pack_labels,
    pack_mapped_matrix,
    pack_matrix,
    unpack_labels,
    unpack_scale,
)
from deepmf.matrix.scale import Scale
from deepmf.matrix.stored import check_storable, unpack_matrix
from deepmf.storage.model_file import MappedTensors

any_text = st.text(max_size=4)

some_labels = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6, unique=True),
    st.lists(any_text, max_size=6, unique=True),
    st.lists(st.floats(allow_nan=False), max_size=6, unique=True),
)

some_zones = st.none() | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)

other_labels = st.one_of(
    st.lists(st.booleans(), unique=True),
    st.lists(st.binary(max_size=4), max_size=6, unique=True),
    st.lists(st.dates(), max_size=6, unique=True),
    some_zones.flatmap(
        lambda zone: st.lists(st.datetimes(timezones=st.just(zone)), max_size=6, unique=True)
    ),
    st.lists(st.decimals(allow_nan=False), max_size=6, unique=True),
    st.lists(st.uuids(), max_size=6, unique=True),
)


@given(some_labels | other_labels)
def test_labels_come_back_as_given(items: list[Any]) -> None:
    labels = unpack_labels("l", *pack_labels(Labels(items, axis="row"), "l"), axis="row")
    assert labels == Labels(items, axis="row")
    assert list(map(type, labels.array.tolist())) == list(map(type, items))


@pytest.mark.parametrize("item", [(1, 2), Fraction(1, 2), time(12), timedelta(1), 1j], ids=str)
def test_labels_that_cannot_be_saved(item: object) -> None:
    labels = Labels([item], axis="column")
    matrix = ObservedMatrix.from_entries([1, 2], [item, item], [1.0, 2.0])
    for refuse in (
        lambda: check_storable(labels),
        lambda: pack_labels(labels, "l"),
        lambda: pack_matrix(matrix, "m"),
    ):
        with pytest.raises(BadSetting, match=f"type {type(item).__name__}"):
            refuse()


def test_times_are_saved_with_an_offset_not_with_the_name_of_a_zone() -> None:
    check_storable(Labels([datetime(2020, 1, 1, tzinfo=UTC)], axis="row"))
    with pytest.raises(BadSetting, match="zone"):
        check_storable(Labels([datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC"))], axis="row"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("date", b"2020-13-01"),
        ("bool", b"true"),
        ("Decimal", b" 1"),
        ("Decimal", b"sNaN"),
        ("UUID", b"1"),
        ("str", b"\xff"),
    ],
)
def test_texts_that_stand_for_no_label(kind: str, text: bytes) -> None:
    tensors = {"l.text": np.frombuffer(text, np.uint8), "l.starts": np.array([0, len(text)])}
    with pytest.raises(BadModelFile, match="row labels"):
        unpack_labels("l", {"kind": kind, "is_sorted": True}, tensors, axis="row")


@pytest.mark.parametrize("half", ["\ud800", "a\udcffb"])
def test_half_characters_are_refused_before_anything_is_learned(half: str) -> None:
    with pytest.raises(BadSetting, match="surrogate"):
        check_storable(Labels([half, "ann"], axis="row"))
    check_storable(Labels(["\ud7ff", "\U0001f600", "í"], axis="row"))


some_scales = st.one_of(
    st.sets(st.floats(-1e300, 1e300), min_size=1, max_size=5).map(sorted).map(Scale),
    st.just(Scale(low=-1e300, high=0.1)),
    st.just(Scale(low=0.1, high=7, bounded=False)),
)


MATRIX = ObservedMatrix.from_entries(
    ["zoe", "ann", "ann", "bób"],
    [30, 10, 30, 20],
    [5, 1, 3, 3],
    scale=Scale(levels=[1, 2, 3, 4, 5]),
    row_labels=["zoe", "nobody", "ann", "bób", ""],  # neither sorted nor all with entries
    column_labels=[40, 30, 10, 20],
)

PACKED = pack_matrix(MATRIX, "observed")


@st.composite
def some_matrices(draw: st.DrawFn) -> ObservedMatrix:
    rows, columns, scale = draw(some_labels), draw(some_labels), draw(some_scales)
    pairs = [(row, column) for row in rows for column in columns]
    entries = draw(st.lists(st.sampled_from(pairs), max_size=8, unique=True)) if pairs else []
    one_value = st.floats(scale.low, scale.high)
    if scale.levels is not None:
        one_value = st.sampled_from(scale.levels.tolist())
    of_rows, of_columns = ([pair[axis] for pair in entries] for axis in range(2))
    values = [draw(one_value) for _ in entries]
    labels: Any = {"row_labels": rows, "column_labels": columns}
    return ObservedMatrix.from_entries(of_rows, of_columns, values, scale, **labels)


def assert_identical(found: ObservedMatrix, expected: ObservedMatrix) -> None:
    assert found == expected
    for name in ("row_labels", "column_labels"):
        mine, theirs = (getattr(matrix, name).tolist() for matrix in (found, expected))
        assert list(map(type, mine)) == list(map(type, theirs))
    for one, other in zip(found.by_row, expected.by_row, strict=True):
        assert one.dtype == other.dtype
    for one, other in zip(found.by_column, expected.by_column, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.values.tobytes() == expected.values.tobytes()
    assert (found.rows.axis, found.columns.axis) == ("row", "column")


@given(some_matrices())
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_the_same_matrix_comes_back(matrix: ObservedMatrix) -> None:
    assert_identical(unpack_matrix("m", *pack_matrix(matrix, "m")), matrix)


def test_entries_are_stored_compactly() -> None:
    matrix = ObservedMatrix.from_array(np.ones((100, 50)), scale=Scale(levels=[1, 2]))
    tensors = pack_matrix(matrix, "m").tensors
    assert sum(array.nbytes for array in tensors.values()) == 8 * 5000 + 4 * 101 + 8 * 150


@given(some_scales)
def test_scale_comes_back(scale: Scale) -> None:
    assert unpack_scale(scale.to_dict()) == scale


BAD_INTERVALS: list[Any] = [{}, {"low": 1}, {"low": 2, "high": 1}, {"low": 0, "levels": [1]}]


@pytest.mark.parametrize("content", [*BAD_INTERVALS, {"levels": [2, 1]}, {"levels": [1, None]}])
def test_bad_scale(content: Any) -> None:
    with pytest.raises(BadModelFile, match="scale"):
        unpack_scale(content)


def test_the_form_of_its_table_comes_back() -> None:
    form = TableForm("user", "film", "stars", wide=True)
    packed = pack_matrix(MATRIX.with_form(form), "observed")
    assert unpack_matrix("observed", packed.content, packed.tensors).form == form
    assert "form" not in PACKED.content
    with pytest.raises(BadModelFile, match="form"):
        unpack_matrix("observed", packed.content | {"form": {"row": "a"}}, packed.tensors)


UNSORTED = ObservedMatrix.from_entries(["bob", "ann", "bob"], ["é", "b", "b"], [1, 2, 5])


def test_text_is_decoded_when_it_is_asked_for() -> None:
    content, tensors = pack_mapped_matrix(UNSORTED, "m")
    opened = unpack_matrix("m", content, MappedTensors(tensors))
    assert isinstance(opened.columns, TextLabels)
    assert opened.columns[1] == "é" and "array" not in vars(opened.columns)


def damaged(**changes: Any) -> tuple[Any, dict[str, Any]]:
    content, tensors = pack_mapped_matrix(UNSORTED, "m")
    return content, tensors | {
        f"m.{name.replace('__', '.')}": value for name, value in changes.items()
    }


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"by_column__rows": np.array([1, 0, 1], dtype=np.int32)}, "column"),
        ({"rows__text": np.frombuffer(b"annann", dtype=np.uint8)}, "repeats|differ"),
        ({"rows__text": np.frombuffer(b"zzzann", dtype=np.uint8)}, "sorted"),
        ({"rows__text": np.frombuffer(b"an\xffbob", dtype=np.uint8)}, "row labels"),
        ({"rows__starts": np.array([0, 9, 6])}, "m.rows.starts"),
    ],
)
def test_false_values_are_refused_by_verifying_alone(changes: dict[str, Any], message: str) -> None:
    content, tensors = damaged(**changes)
    unpack_matrix("m", content, MappedTensors(tensors))
    with pytest.raises(BadModelFile, match=message):
        unpack_matrix("m", content, tensors)


@pytest.mark.parametrize(
    "changes",
    [
        {"entries__columns": np.array([0, 7, 1], dtype=np.int32)},
        {"entries__starts": np.array([0, 9, 3], dtype=np.int32)},
        {"by_column__rows": np.array([-1, 0, 1], dtype=np.int32)},
        {"by_column__entries": np.array([0, 1, 3], dtype=np.int32)},
        {"by_column__starts": np.array([0, -4, 3], dtype=np.int32)},
    ],
)
def test_positions_outside_are_refused_in_what_is_mapped_too(changes: dict[str, Any]) -> None:
    content, tensors = damaged(**changes)
    with pytest.raises(BadModelFile, match="positions|rise|fall"):
        unpack_matrix("m", content, MappedTensors(tensors))
