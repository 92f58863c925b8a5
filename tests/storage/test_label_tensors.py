"""Labels as tensors: every kind that a file can hold comes back as given, the others are refused before any work."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepmf.errors import BadModelFile, BadSetting
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.text_labels import TextLabels
from deepmf.storage.label_tensors import KINDS, check_storable, pack_labels, unpack_labels
from deepmf.storage.matrix_tensors import pack_matrix

any_text = st.text(st.characters(), max_size=4)  # half surrogates included
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
    some_zones.flatmap(lambda zone: st.lists(st.datetimes(timezones=st.just(zone)), max_size=6, unique=True)),
    st.lists(st.decimals(allow_nan=False), max_size=6, unique=True),
    st.lists(st.uuids(), max_size=6, unique=True),
)


@given(some_labels | other_labels)
def test_labels_come_back_as_given(items: list[Any]) -> None:
    labels = unpack_labels("l", *pack_labels(Labels(items, axis="row"), "l"), axis="row")
    assert labels == Labels(items, axis="row")
    assert [(type(item), item) for item in labels.array.tolist()] == [(type(item), item) for item in items]


def test_labels_that_only_look_alike_stay_apart() -> None:
    items = ["", "\0", "a", "a\0", "e\u0301", "é", "\ud83d", "\ude00", "😀", "\n"]
    labels = unpack_labels("l", *pack_labels(Labels(items, axis="row"), "l"), axis="row")
    assert labels.array.tolist() == items


def test_every_kind_is_known_by_its_name() -> None:
    labels = [3, 0.5, "a", True, b"a", date(2020, 1, 1), datetime(2020, 1, 1), Decimal(1), UUID(int=1)]
    assert [pack_labels(Labels([label], axis="row"), "l").content["kind"] for label in labels] == list(KINDS)


@pytest.mark.parametrize(
    "item, name",
    [((1, 2), "tuple"), (Fraction(1, 2), "Fraction"), (time(12), "time"), (timedelta(1), "timedelta"), (1j, "complex")],
)
def test_labels_that_cannot_be_saved(item: object, name: str) -> None:
    message = f"^column labels of type {name} cannot be saved, such as .*; use ints or strings$"
    for refuse in (check_storable, lambda labels: pack_labels(labels, "l")):
        with pytest.raises(BadSetting, match=message):
            refuse(Labels([item], axis="column"))
    with pytest.raises(BadSetting, match=message):
        pack_matrix(ObservedMatrix.from_entries([1, 2], [item, item], [1.0, 2.0]), "m")


def test_times_are_saved_with_an_offset_not_with_the_name_of_a_zone() -> None:
    check_storable(Labels([datetime(2020, 1, 1, tzinfo=UTC)], axis="row"))
    with pytest.raises(
        BadSetting, match="^row labels with a named time zone cannot be saved, .*; use times in UTC, or"
    ):
        check_storable(Labels([datetime(2020, 1, 1, tzinfo=ZoneInfo("UTC"))], axis="row"))


def text(*items: str) -> dict[str, npt.NDArray[Any]]:
    """Some texts as they are stored."""
    return {
        "text": np.frombuffer("".join(items).encode(), dtype=np.uint8),
        "starts": np.cumsum([0, *map(len, items)], dtype=np.int64),
    }


@pytest.mark.parametrize(
    "kind, item",
    [
        ("date", "2020-13-01"),
        ("date", "20200101"),
        ("datetime", "2020-01-01 00:00:00"),
        ("bool", "true"),
        ("bytes", "\u0100"),
        ("Decimal", "one"),
        ("Decimal", " 1"),
        ("UUID", "1" * 32),
        ("UUID", "1"),
    ],
)
def test_texts_that_stand_for_no_label(kind: str, item: str) -> None:
    tensors = {f"l.{name}": tensor for name, tensor in text(item).items()}
    with pytest.raises(BadModelFile, match=f"^the stored label {item!r} is no {kind}$"):
        unpack_labels("l", {"kind": kind}, tensors, axis="row")


def array(*items: float, dtype: str = "int64") -> npt.NDArray[Any]:
    return np.array(items, dtype=dtype)


@pytest.mark.parametrize(
    "content, tensors, message",
    [
        (None, {}, "lacks 'kind'"),
        ({}, {}, "lacks 'kind'"),
        ({"kind": "tuple"}, {}, "unknown kind 'tuple'"),
        ({"kind": "Decimal"}, text("NaN"), "the row id is missing"),
        ({"kind": "Decimal"}, text("sNaN"), "the row id is missing"),
        ({"kind": "Decimal"}, text("1", "1.0"), "must differ"),
        ({"kind": ["int"]}, {}, "unknown kind"),
        ({"kind": "int"}, {}, "the tensor l.labels is missing"),
        ({"kind": "int"}, {"labels": array(1, 2, dtype="float64")}, "vector of int64; got float64 of shape"),
        ({"kind": "int"}, {"labels": array(1, 2, dtype="int32")}, "vector of int64"),
        ({"kind": "int"}, {"labels": np.zeros((1, 2), dtype=np.int64)}, r"got int64 of shape \(1, 2\)"),
        ({"kind": "int"}, {"labels": np.array(1)}, r"of shape \(\)"),
        ({"kind": "int"}, {"labels": array(1, 1)}, "row labels cannot be used: row labels must differ"),
        ({"kind": "float"}, {"labels": array(1, np.nan, dtype="float64")}, "the row id is missing"),
        ({"kind": "float"}, {"labels": array(1, 1, dtype="float64")}, "must differ"),
        ({"kind": "str"}, {"text": array(97, dtype="uint8")}, "l.starts is missing"),
        ({"kind": "str"}, {"starts": array(0)}, "l.text is missing"),
        ({"kind": "str"}, {"text": array(97, dtype="uint8"), "starts": array()}, "has 0 elements; 1 are needed"),
        ({"kind": "str"}, {"text": array(97, dtype="uint8"), "starts": array(0)}, "must rise from 0 to 1"),
        ({"kind": "str"}, {"text": array(97, dtype="uint8"), "starts": array(0, 2)}, "must rise from 0 to 1"),
        ({"kind": "str"}, {"text": array(97, dtype="uint8"), "starts": array(-1, 1)}, "must rise from 0 to 1"),
        ({"kind": "str"}, {"text": array(97, 98, dtype="uint8"), "starts": array(0, 2, 1, 2)}, "must rise"),
        ({"kind": "str"}, {"text": array(97, 97, dtype="uint8"), "starts": array(0, 1, 2)}, "must differ"),
        ({"kind": "str"}, {"text": array(255, dtype="uint8"), "starts": array(0, 1)}, "is not UTF-8"),
        ({"kind": "str"}, {"text": array(195, dtype="uint8"), "starts": array(0, 1)}, "is not UTF-8"),
    ],
)
def test_bad_labels(content: Any, tensors: dict[str, npt.NDArray[Any]], message: str) -> None:
    with pytest.raises(BadModelFile, match=message):
        unpack_labels("l", content, {f"l.{name}": tensor for name, tensor in tensors.items()}, axis="row")


@pytest.mark.parametrize("half", ["\ud800", "a\udcffb"])
def test_half_characters_are_refused_before_anything_is_learned(half: str) -> None:
    for labels in (Labels([half, "ann"], axis="row"), TextLabels.of(Labels(["ann", half], axis="row"), "str")):
        with pytest.raises(BadSetting, match="surrogate"):
            check_storable(labels)
    check_storable(TextLabels.of(Labels(["\ud7ff", "\U0001f600", "í"], axis="row"), "str"))
