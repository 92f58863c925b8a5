"""Entries in order: sequences without dates, and entries that have the same date."""

from pathlib import Path

import numpy as np
import pytest

import deepmf
from deepmf import Means, ObservedMatrix, pack, read_matrix, split_last
from deepmf.errors import BadEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.table_form import DETECT

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


def test_the_order_belongs_to_the_matrix_and_to_its_store(tmp_path: Path) -> None:
    films = ObservedMatrix.from_sequences(FILMS)
    assert films != ObservedMatrix.from_sequences(FILMS | {"bob": ["Big", "Fargo"]})
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
    in_order = store.columns[entries.others[np.argsort(entries.extras.places)]]
    assert in_order.tolist() == ["Fargo", "Big", "Jaws", "Alien"]


def list_in_order(matrix: ObservedMatrix) -> list[tuple[object, object]]:
    """Return the row and the column of each entry, those of a row from first to last."""
    rows, columns, _ = matrix.entries()
    order = matrix.extras.sort_within(matrix.entry_rows)
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl", "store", "safetensors"])
def test_every_file_keeps_the_order_of_entries_of_the_same_time(
    tmp_path: Path, ending: str
) -> None:
    films, days = ["Jaws", "Alien", "Big", "Fargo"], [9, 9, 9, 5]
    rated = ObservedMatrix.from_entries(["ann"] * 4, films, [1, 2, 3, 4], times=days)
    path = tmp_path / f"m.{ending}"
    if ending == "safetensors":
        Means().fit(rated).save(path)
        again = deepmf.load(path).entries_.train
    else:
        rated.to_frame().write_ndjson(path) if ending == "jsonl" else rated.write(path)
        again = read_matrix(path, time=DETECT if ending == "store" else "time")
    expected = [("ann", film) for film in ("Fargo", "Jaws", "Alien", "Big")]
    assert list_in_order(again) == list_in_order(rated) == expected
    packed = pack(path, tmp_path / "p.store", time="time") if ending == "csv" else again
    packed = pack(tmp_path / "p.store", tmp_path / "q.store") if ending == "csv" else packed
    assert list_in_order(packed) == expected


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_sequences_come_back_from_a_file_with_a_line_per_entry(tmp_path: Path, ending: str) -> None:
    films = ObservedMatrix.from_sequences({"ann": ["Jaws", "Alien", "Big"], "bob": ["Big", "Jaws"]})
    films.write(tmp_path / f"films.{ending}")
    assert read_matrix(tmp_path / f"films.{ending}", form="sequences") == films


def test_of_equal_times_the_entry_that_was_added_last_is_the_last() -> None:
    films, days = ["Big", "Jaws", "Alien"], [9, 1, 2]
    store = EntryStore.of(
        ObservedMatrix.from_interactions(["ann", "bob", "bob"], films, times=days)
    )
    for film in ("Jaws", "Alien"):
        new = ObservedMatrix.from_interactions(["ann"], [film], times=[9])
        store = store.extend(new).entries
    entries = store.seen_columns(np.array([0]))
    order = entries.extras.sort_within(np.zeros(3, dtype=int))
    assert store.columns[entries.others[order]].tolist() == ["Big", "Jaws", "Alien"]


@pytest.mark.parametrize("wrong", [3, "ann", {"ann": "Alien"}, {"ann": 3}, [None, ["Big"]]])
def test_anything_but_lists_of_columns_is_refused(wrong: object) -> None:
    with pytest.raises(BadEntries, match="columns"):
        ObservedMatrix.from_sequences(wrong)  # type: ignore[arg-type]
