"""Labels kept as text: they are the labels that they were made of, decoded where they are asked
for."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pytest

from deepmf.errors import UnknownLabel
from deepmf.matrix.frames import gather_ids
from deepmf.matrix.labels import Labels, TextLabels, find_stored_kind

KINDS: list[list[Any]] = [
    ["Alien", "Big", "Zoë"],
    ["b", "a"],
    [True, False],
    [b"\xff", b"a"],
    [datetime.date(2020, 1, 2), datetime.date(2021, 1, 2)],
    [datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.UTC)],
    [Decimal("1.50"), Decimal("2")],
    [uuid.UUID(int=1), uuid.UUID(int=2)],
]


def text_of(items: list[Any]) -> TextLabels:
    labels = Labels(items, axis="column")
    return TextLabels.from_labels(labels, find_stored_kind(labels))


@pytest.mark.parametrize("items", KINDS, ids=lambda items: type(items[0]).__name__)
def test_they_are_what_they_were_made_of(items: list[Any]) -> None:
    labels = text_of(items)
    assert [labels[at] for at in range(len(items))] == items
    assert labels[-1] == items[-1]
    assert labels[:1].tolist() == items[:1]
    assert labels.positions(items).tolist() == list(range(len(items)))
    assert labels == Labels(items, axis="column")
    assert labels.array.tolist() == items


@pytest.mark.parametrize("is_sorted", [True, False])
def test_a_few_are_found_without_decoding_all(is_sorted: bool) -> None:
    items = [f"user-{number:03}" for number in range(1000)]
    labels = text_of(items if is_sorted else items[::-1])
    assert labels.find(["user-000", "user-007", "user-999", "nobody", "z"]).tolist() == [
        *([0, 7, 999] if is_sorted else [999, 992, 0]),
        -1,
        -1,
    ]
    assert labels.find([3]).tolist() == [-1]
    assert labels.find([b"user-007"]).tolist() == [-1]
    assert labels[np.array([3, -1])].tolist() == [labels[3], labels[999]]
    if is_sorted:
        assert "array" not in vars(labels)


def test_what_is_not_there() -> None:
    labels = text_of(["a", "b"])
    with pytest.raises(UnknownLabel, match="'c'"):
        labels.positions(["c"])
    with pytest.raises(IndexError):
        labels[2]


@pytest.mark.parametrize(
    "texts", [[], ["", "a", ""], [f"Zoë {number % 500}" for number in range(5000)]]
)
def test_positions_lead_back(texts: list[str]) -> None:
    series = nw.from_native(pl.Series(texts, dtype=pl.String), series_only=True)
    labels, positions = gather_ids(series, axis="row")
    assert list(labels) == sorted(set(texts))
    assert labels.array[positions].tolist() == texts
