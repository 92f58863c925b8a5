"""Forgetting: entries of training and of extensions, labels that go and labels that stay."""

import numpy as np
from tests.matrix.test_entry_store import STARS, TRAIN, shown

from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.forgetting import Forgotten, asked_to_forget, without
from deepmf.matrix.matrix import ObservedMatrix

NEW = ObservedMatrix.from_entries(["c", "c", "d", "d", "b"], ["x", "z", "y", "w", "w"], [5, 4, 3, 2, 1], STARS)


def forgotten(**asked: object) -> Forgotten:
    store, *_ = EntryStore.of(TRAIN).extended(NEW)
    given = {"rows": None, "columns": None, "entries": None} | asked
    return without(store, asked_to_forget(store, **given, missing="error"))  # type: ignore[arg-type]


def test_added_rows_and_columns_go_and_later_ones_move_up() -> None:
    found = forgotten(rows=["c"], columns=["w"])
    store = found.store
    assert store.rows.array.tolist() == ["a", "b", "d"] and store.columns.array.tolist() == ["x", "y", "z"]
    assert (found.gone_rows.tolist(), found.gone_columns.tolist()) == ([2], [2])
    assert shown(store.seen_columns(np.arange(3))) == [{0: 1, 1: 2}, {1: 3}, {1: 3}]
    assert found.rows.tolist() == [] and found.columns.tolist() == []  # what describes those that are left is the same
    alone, *_ = EntryStore.of(TRAIN).extended(
        ObservedMatrix.from_entries(["d"], ["y"], [3], STARS, column_labels=["y", "z"])
    )
    assert store.extension == alone.extension


def test_nothing_is_left_of_an_extension() -> None:
    found = forgotten(rows=["c", "d"], columns=["w", "z"])
    assert found.store == EntryStore.of(TRAIN) and found.store.extension is None


def test_trained_ones_stay_without_entries() -> None:
    found = forgotten(rows=["b"], columns=["x"])
    store = found.store
    assert store.rows.array.tolist() == ["a", "b", "c", "d"] and len(store.columns) == 4
    assert store.dropped.tolist() == [0, 2]
    assert found.rows.tolist() == [0, 1, 2] and found.columns.tolist() == [0, 1, 2]
    assert shown(store.seen_columns(np.arange(4))) == [{1: 2}, {}, {3: 4}, {1: 3, 2: 2}]


def test_single_entries() -> None:
    for entries in ((["a", "d"], ["x", "y"]), ObservedMatrix.from_entries(["a", "d"], ["x", "y"], [5, 5], STARS)):
        found = forgotten(entries=entries)
        assert shown(found.store.seen_columns(np.arange(4))) == [{1: 2}, {1: 3, 2: 1}, {0: 5, 3: 4}, {2: 2}]
        assert (found.rows.tolist(), found.columns.tolist()) == ([0, 3], [0])  # d is new, and describes no column


def test_numbered_rows_and_columns() -> None:
    train = ObservedMatrix.from_array([[1, 2], [np.nan, 3]], STARS)
    new = ObservedMatrix.from_array([[np.nan, 2, 4], [5, np.nan, np.nan], [1, 1, 1], [2, 2, 2], [3, 3, 3]], STARS)
    store, *_ = EntryStore.of(train).extended(new, conflicts="replace")
    found = without(store, asked_to_forget(store, [2, 4], None, None, missing="error"))
    assert found.store.rows.array.tolist() == [0, 1, 3] and found.store.rows.positions([3]).tolist() == [2]
    assert shown(found.store.seen_columns(np.arange(3))) == [{0: 1, 1: 2, 2: 4}, {0: 5, 1: 3}, {0: 2, 1: 2, 2: 2}]
    none = without(found.store, asked_to_forget(found.store, [3, 7], [2, 9], ([1, 1], [0, 8]), missing="ignore"))
    assert none.store == EntryStore.of(train)
