"""Labels kept as text: they are the labels that they were made of, decoded where they are asked for."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from deepmf.errors import UnknownLabel
from deepmf.matrix.labels import Labels, find_stored_kind
from deepmf.matrix.text_labels import TextLabels, encode_texts

KINDS: list[list[Any]] = [
    ["Alien", "Big", "Zoë", "\udc80"],
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
    return TextLabels.of(labels, find_stored_kind(labels))


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


def test_others_join_them() -> None:
    joined = text_of(["a", "b"]).join(Labels(["b", "c"], axis="column"))
    assert list(joined) == ["a", "b", "c"]
    assert joined.positions(["c", "a"]).tolist() == [2, 0]


def check(texts: list[str]) -> None:
    found = encode_texts(pl.Series(texts, dtype=pl.String))
    assert found.distinct.to_list() == sorted(set(texts))
    assert found.distinct.gather(found.positions).to_list() == texts


@pytest.mark.parametrize("n_distinct", [1, 3, 500, 50_000])  # so many hashes share slots of the table
def test_positions_lead_back(n_distinct: int) -> None:
    numbers = np.random.default_rng(0).integers(0, n_distinct, 50_000)
    check([f"Zoë {number}" for number in numbers.tolist()])


def test_nothing_and_the_empty_text() -> None:
    check([])
    check(["", "a", ""])


def test_texts_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl.Series, "hash", lambda self: pl.Series([7] * self.len(), dtype=pl.UInt64))
    check(["b", "a", "b", "c"])
