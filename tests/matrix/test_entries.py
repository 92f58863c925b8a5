"""Entries in a range of columns or rows: of every row, or column, those that the matrix has
there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deepmf.data import read_matrix
from deepmf.datasets import generate
from deepmf.errors import BadEntries, OffScale
from deepmf.matrix.axis_entries import AxisEntries, PlacedEntries
from deepmf.matrix.entries import ChangedStore, EntryStore, forget, plan_forget, take_entries_within
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale

WHOLE = generate(13, 9, density=0.4, seed=0).matrix

RANGES = [slice(0, 9), slice(0, 4), slice(4, 8), slice(8, 9), slice(3, 3), slice(9, 9)]


@pytest.fixture(params=["in memory", "mapped"])
def matrix(request: pytest.FixtureRequest, tmp_path: Path) -> ObservedMatrix:
    if request.param == "in memory":
        return WHOLE
    WHOLE.write(tmp_path / "r.store")
    return read_matrix(tmp_path / "r.store")


def table_of(entries: AxisEntries, n_others: int) -> np.ndarray:
    """Write entries into a table, group by group, NaN elsewhere; within a group the others rise."""
    table = np.full((entries.starts.size - 1, n_others), np.nan)
    for group, (start, end) in enumerate(zip(entries.starts[:-1], entries.starts[1:], strict=True)):
        others = entries.others[start:end]
        assert np.all(np.diff(others) > 0)
        table[group, others] = entries.values[start:end]
    return table


@pytest.mark.parametrize("some", RANGES, ids=str)
def test_entries_of_a_range_are_those_of_the_matrix(matrix: ObservedMatrix, some: slice) -> None:
    outside = np.ones(9, dtype=bool)
    outside[some] = False
    for array, entries in (
        (WHOLE.to_array(), take_entries_within(matrix, "row", some)),
        (WHOLE.to_array()[:9].T, take_entries_within(matrix, "column", some)),
    ):
        array[:, outside] = np.nan
        np.testing.assert_array_equal(table_of(entries, 9), array)
        assert entries.others.dtype == matrix.by_row.columns.dtype


STARS = Scale([1, 2, 3, 4, 5])

TRAIN = ObservedMatrix.from_entries(["a", "a", "b"], ["x", "y", "y"], [1, 2, 3], STARS)


def shown(entries: AxisEntries) -> list[dict[int, float]]:
    pairs = zip(entries.starts[:-1], entries.starts[1:], strict=True)
    return [
        dict(zip(entries.others[i:j].tolist(), entries.values[i:j].tolist(), strict=True))
        for i, j in pairs
    ]


def test_descriptions_after_an_extension() -> None:
    new = ObservedMatrix.from_entries(list("ccabc"), list("xzzxw"), [5, 4, 3, 2, 1], STARS)
    seen, rows, columns, *_ = EntryStore.of(TRAIN).extend(new)
    assert (list(seen.rows), list(seen.columns)) == (["a", "b", "c"], ["x", "y", "w", "z"])
    # b has a new entry over x, c is new; a's new entry is over a new column
    assert (rows.tolist(), columns.tolist()) == ([1, 2], [0, 2, 3])
    assert shown(seen.row_entries(np.arange(3))) == [{0: 1, 1: 2}, {0: 2, 1: 3}, {0: 5}]
    assert shown(seen.column_entries(np.arange(4))) == [{0: 1, 1: 2}, {0: 2, 1: 3}, {}, {0: 3}]
    assert shown(seen.seen_columns(np.array([2, 0]))) == [{0: 5, 2: 1, 3: 4}, {0: 1, 1: 2, 3: 3}]
    areas = seen.areas(np.array([0, 2, 0, 2]), np.array([0, 0, 3, 3]))
    assert areas.tolist() == ["I", "II", "III", "IV"]


def test_known_entries_are_not_taken_twice() -> None:
    again = ObservedMatrix.from_entries(["a", "b"], ["x", "x"], [1, 4], STARS)
    seen, rows, columns, *_ = EntryStore.of(TRAIN).extend(again)
    assert seen.extension is not None and seen.extension.n_entries == 1
    assert (rows.tolist(), columns.tolist()) == ([1], [0])
    found = seen.values_at(np.array([0, 0, 1, 1, 9]), np.array([0, 1, 0, 1, 0]))
    np.testing.assert_array_equal(found, [1, 2, 4, 3, np.nan])
    with pytest.raises(BadEntries, match="'x'"):
        seen.extend(ObservedMatrix.from_entries(["b"], ["x"], [5], STARS))
    with pytest.raises(BadEntries, match="nothing"):
        seen.extend(again)


@pytest.mark.parametrize("first, later", [((0, 2), (1, 0)), ((1, 0), (0, 5)), ((2, 3), (2, 1))])
def test_entries_that_come_later_are_put_in_row_order(
    first: tuple[int, int], later: tuple[int, int]
) -> None:
    held = PlacedEntries(*(np.array([at]) for at in first), np.array([1.0]))
    together = held.insert(PlacedEntries(*(np.array([at]) for at in later), np.array([2.0])))
    expected = sorted([(*first, 1.0), (*later, 2.0)])
    assert list(zip(together.rows, together.columns, together.values, strict=True)) == expected


def test_values_are_judged_not_their_declared_scale_and_rows_without_entries_are_new() -> None:
    declared = ObservedMatrix.from_entries(["c", "c"], ["x", "y"], [1, 5], Scale(low=0, high=10))
    assert EntryStore.of(TRAIN).extend(declared).rows.tolist() == [2]
    with pytest.raises(OffScale, match="1, 6"):
        EntryStore.of(TRAIN).extend(ObservedMatrix.from_entries(["c", "c"], ["x", "y"], [1, 6]))
    empty = ObservedMatrix.from_entries(["a"], ["x"], [1], STARS, row_labels=["a", "new"])
    seen, rows, columns, *_ = EntryStore.of(TRAIN).extend(empty)
    assert (rows.tolist(), columns.tolist()) == ([2], [])
    assert shown(seen.row_entries(rows)) == [{}]


def test_replacing_drops_the_trained_entry_and_going_back_restores_it() -> None:
    def replace(store: EntryStore, rows: str, columns: str, values: list[int]) -> ChangedStore:
        new = ObservedMatrix.from_entries(list(rows), list(columns), values, STARS)
        return store.extend(new, conflicts="replace")

    both = np.arange(2)
    seen = EntryStore.of(TRAIN)
    replaced, rows, columns, *_ = replace(seen, "abb", "yxy", [5, 4, 3])
    assert [part.tolist() for part in (replaced.dropped, rows, columns)] == [[1], [0, 1], [0, 1]]
    assert shown(replaced.row_entries(both)) == [{0: 1, 1: 5}, {1: 3, 0: 4}]
    assert shown(replaced.column_entries(both)) == [{0: 1, 1: 4}, {1: 3, 0: 5}]
    twice = replace(replaced, "ab", "yx", [4, 1]).entries
    assert shown(twice.seen_columns(both)) == [{0: 1, 1: 4}, {1: 3, 0: 1}]
    assert shown(twice.seen_rows(both)) == [{0: 1, 1: 1}, {1: 3, 0: 4}]
    back = replace(twice, "a", "y", [2]).entries
    assert back.dropped.size == 0
    assert shown(back.row_entries(both)) == [{0: 1, 1: 2}, {1: 3, 0: 1}]
    for store, axis, expected in (
        (twice, "row", [False, False]),
        (twice, "column", [False, False]),
        (back, "row", [True, False]),
        (back, "column", [False, True]),
    ):
        assert store.are_as_trained(axis, both).tolist() == expected
    assert seen.dropped.size == 0 and shown(seen.row_entries(both)) == [{0: 1, 1: 2}, {1: 3}]


def test_entries_of_each_column_are_counted_as_they_come_and_go() -> None:
    store = EntryStore.of(ObservedMatrix.from_entries([0, 0, 1], ["a", "b", "a"], [1, 2, 3]))
    assert store.column_counts.tolist() == [2, 1]
    new = ObservedMatrix.from_entries([0, 2, 2], ["a", "a", "c"], [3, 1, 3], store.scale)
    more = store.extend(new, conflicts="replace").entries
    assert more.column_counts.tolist() == [3, 1, 1]
    gone = forget(more, plan_forget(more, [0], None, None, missing="error")).entries
    assert gone.column_counts.tolist() == [2, 0, 1]


def test_a_group_without_each_of_some_entries() -> None:
    group = AxisEntries(np.array([0, 3]), np.array([1, 4, 6]), np.array([5.0, 3.0, 1.0]))
    less = group.without_each(np.array([2, 0]))
    assert less.starts.tolist() == [0, 2, 4]
    assert less.others.tolist() == [1, 4, 4, 6] and less.values.tolist() == [5, 3, 3, 1]
    assert group.without_each(np.empty(0, dtype=np.int64)).starts.tolist() == [0]


def test_entries_that_come_one_by_one_are_those_of_one_extension() -> None:
    dice = np.random.default_rng(0)
    pairs = zip(dice.integers(0, 12, 60).tolist(), dice.integers(0, 9, 60).tolist(), strict=True)
    values = {pair: float(1 + at % 5) for at, pair in enumerate(pairs)}
    train = ObservedMatrix.from_entries([20, 20], [10, 11], [1, 2], STARS)
    one_by_one = EntryStore.of(train)
    for (row, column), value in values.items():
        new = ObservedMatrix.from_entries([row], [column], [value], STARS)
        one_by_one = one_by_one.extend(new).entries
    rows, columns = zip(*values, strict=True)
    # In the order in which they came first, as positions are given in that order.
    known = {"row_labels": dict.fromkeys(rows), "column_labels": dict.fromkeys(columns)}
    new = ObservedMatrix.from_entries(rows, columns, values.values(), STARS, **known)
    together = EntryStore.of(train).extend(new).entries
    assert (one_by_one.rows, one_by_one.columns) == (together.rows, together.columns)
    some = np.array([5, 0, 5, 3, 1])
    for gather, positions in (
        (EntryStore.seen_columns, np.arange(len(together.rows))[::-1]),
        (EntryStore.seen_rows, some),
        (EntryStore.column_entries, some),
    ):
        found, wanted = gather(one_by_one, positions), gather(together, positions)
        for part in ("starts", "others", "values"):
            np.testing.assert_array_equal(getattr(found, part), getattr(wanted, part))
    assert together.are_as_trained("column", np.arange(0)).size == 0


NEW = ObservedMatrix.from_entries(
    ["c", "c", "d", "d", "b"], ["x", "z", "y", "w", "w"], [5, 4, 3, 2, 1], STARS
)


def forgotten(**asked: object) -> ChangedStore:
    store, *_ = EntryStore.of(TRAIN).extend(NEW)
    given = {"rows": None, "columns": None, "entries": None} | asked
    return forget(store, plan_forget(store, **given, missing="error"))  # type: ignore[arg-type]


def test_added_rows_and_columns_go_and_later_ones_move_up() -> None:
    found = forgotten(rows=["c"], columns=["w"])
    store = found.entries
    assert (list(store.rows), list(store.columns)) == (["a", "b", "d"], ["x", "y", "z"])
    assert (found.gone_rows.tolist(), found.gone_columns.tolist()) == ([2], [2])
    assert shown(store.seen_columns(np.arange(3))) == [{0: 1, 1: 2}, {1: 3}, {1: 3}]
    # what describes those that are left is the same
    assert found.rows.tolist() == [] and found.columns.tolist() == []
    alone, *_ = EntryStore.of(TRAIN).extend(
        ObservedMatrix.from_entries(["d"], ["y"], [3], STARS, column_labels=["y", "z"])
    )
    assert store.extension == alone.extension


def test_trained_ones_stay_without_entries() -> None:
    found = forgotten(rows=["b"], columns=["x"])
    store = found.entries
    assert store.rows.array.tolist() == ["a", "b", "c", "d"] and len(store.columns) == 4
    assert store.dropped.tolist() == [0, 2]
    assert found.rows.tolist() == [0, 1, 2] and found.columns.tolist() == [0, 1, 2]
    assert shown(store.seen_columns(np.arange(4))) == [{1: 2}, {}, {3: 4}, {1: 3, 2: 2}]


def test_single_entries() -> None:
    pairs = ["a", "d"], ["x", "y"]
    for entries in (pairs, ObservedMatrix.from_entries(*pairs, [5, 5], STARS)):
        found = forgotten(entries=entries)
        left = shown(found.entries.seen_columns(np.arange(4)))
        assert left == [{1: 2}, {1: 3, 2: 1}, {0: 5, 3: 4}, {2: 2}]
        # d is new, and describes no column
        assert (found.rows.tolist(), found.columns.tolist()) == ([0, 3], [0])


def test_numbered_rows_and_columns_and_nothing_left_of_an_extension() -> None:
    train = ObservedMatrix.from_array([[1, 2], [np.nan, 3]], STARS)
    of_known = [[np.nan, 2, 4], [5, np.nan, np.nan]]
    new = ObservedMatrix.from_array([*of_known, [1, 1, 1], [2, 2, 2], [3, 3, 3]], STARS)
    store, *_ = EntryStore.of(train).extend(new, conflicts="replace")
    found = forget(store, plan_forget(store, [2, 4], None, None, missing="error")).entries
    assert found.rows.array.tolist() == [0, 1, 3] and found.rows.positions([3]).tolist() == [2]
    left = shown(found.seen_columns(np.arange(3)))
    assert left == [{0: 1, 1: 2, 2: 4}, {0: 5, 1: 3}, {0: 2, 1: 2, 2: 2}]
    plan = plan_forget(found, [3, 7], [2, 9], ([1, 1], [0, 8]), missing="ignore")
    none = forget(found, plan).entries
    assert none.train is train and none.extension is None and none.dropped.size == 0
    assert (none.rows, none.columns) == (train.rows, train.columns)
