"""Entries in order: sequences without dates, and entries that have the same date."""

from pathlib import Path

import numpy as np
import pytest

from deepmf import ObservedMatrix, read_matrix, split_last
from deepmf.errors import BadEntries
from deepmf.matrix.entries import EntryStore

FILMS = {"ann": ["Jaws", "Alien", "Big", "Alien"], "bob": ["Fargo", "Big"], "cem": []}


def test_sequences_are_interactions_whose_last_entries_can_be_split_off() -> None:
    films = ObservedMatrix.from_sequences(FILMS)
    assert films.shape == (3, 4) and not films.has_values and films.times is None
    assert films.to_sparse().toarray()[0].tolist() == [2, 1, 0, 1]
    rows, columns, _ = split_last(films).test.entries()
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [
        ("ann", "Alien"),
        ("bob", "Big"),
    ]
    assert ObservedMatrix.from_sequences([["x"], ["y"]]).row_labels.tolist() == [0, 1]


def test_the_order_belongs_to_the_matrix() -> None:
    forth, back = (
        ObservedMatrix.from_sequences({"ann": films})
        for films in (["Alien", "Big"], ["Big", "Alien"])
    )
    assert forth != back


def test_stores_keep_the_order(tmp_path: Path) -> None:
    films = ObservedMatrix.from_sequences(FILMS)
    films.write(tmp_path / "films.store")
    again = read_matrix(tmp_path / "films.store")
    assert again == films and split_last(again).test == split_last(films).test


@pytest.mark.parametrize(
    ("given", "last"), [(["Alien", "Big", "Jaws"], "Jaws"), (["Jaws", "Big", "Alien"], "Alien")]
)
def test_entries_of_the_same_time_keep_the_order_they_were_given_in(
    given: list[str], last: str
) -> None:
    rated = ObservedMatrix.from_entries(
        ["ann"] * 4, [*given, "Old"], [1, 2, 3, 4], times=[9, 9, 9, 5]
    )
    assert split_last(rated).test.entries().columns.tolist() == [last]


def test_added_entries_come_last() -> None:
    store = EntryStore.of(ObservedMatrix.from_sequences(FILMS))
    for film in ("Jaws", "Alien"):
        store = store.extend(ObservedMatrix.from_sequences({"bob": [film]})).entries
    entries = store.seen_columns(np.array([1]))
    assert store.columns[entries.others[np.argsort(entries.extras.places)]].tolist() == [
        "Fargo",
        "Big",
        "Jaws",
        "Alien",
    ]


@pytest.mark.parametrize("wrong", [3, "ann", {"ann": "Alien"}, {"ann": 3}, [None, ["Big"]]])
def test_anything_but_lists_of_columns_is_refused(wrong: object) -> None:
    with pytest.raises(BadEntries, match="columns"):
        ObservedMatrix.from_sequences(wrong)  # type: ignore[arg-type]
