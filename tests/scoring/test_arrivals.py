"""What arrives after training: which columns and rows new entries unsettle."""

from __future__ import annotations

import numpy as np
import pytest

from deepmf.matrix.axis_entries import NOTHING, PlacedEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.scoring.arrivals import Arrived, find_changed, find_met, find_unsettled

NO_PAIRS = NOTHING, NOTHING


@pytest.fixture
def entries() -> EntryStore:
    """Return two trained rows and columns, and new ones: row 2 has an entry in column 2, row 0 in
    column 3, and row 3 in column 0."""
    train = ObservedMatrix.from_array(np.array([[1.0, 2.0], [2.0, 1.0]]))
    added = PlacedEntries(np.array([0, 2, 3]), np.array([3, 2, 0]), np.ones(3))
    labels = (Labels(list(range(4)), axis=axis) for axis in ("row", "column"))
    return EntryStore(train, *labels, added)


def test_new_columns_are_met_by_new_rows_alone(entries: EntryStore) -> None:
    assert find_met(entries).tolist() == [False, False, True, False]


def test_new_rows_change_their_new_columns(entries: EntryStore) -> None:
    assert find_changed(entries, np.array([0, 2, 3]), NOTHING, NO_PAIRS).tolist() == [2]
    crossed = np.array([1]), np.array([0, 3])
    assert find_changed(entries, NOTHING, np.array([1]), crossed).tolist() == [1, 3]


def test_a_column_is_solved_again_with_the_rows_that_have_it(entries: EntryStore) -> None:
    unsettled = find_unsettled(entries, NOTHING, np.array([2]), NO_PAIRS)
    assert unsettled.columns.tolist() == [2] and unsettled.are_any
    assert unsettled.rows.tolist() == [2] and unsettled.rows_left.tolist() == []


def test_a_column_that_no_new_row_has_any_longer_is_solved_again(entries: EntryStore) -> None:
    unsettled = find_unsettled(entries, NOTHING, NOTHING, (np.array([3]), np.array([3])))
    assert unsettled.columns.tolist() == [3]
    assert unsettled.rows.tolist() == [] and unsettled.rows_left.tolist() == [0, 3]


def test_factors_that_are_gone_move_those_behind_them_up() -> None:
    arrived = Arrived().put("row", np.array([0, 2]), np.array([[1.0], [3.0]]))
    assert arrived.rows is not None and arrived.rows.tolist() == [[1.0], [0.0], [3.0]]
    left = arrived.without("row", np.array([0, 1]))
    assert left is not None and left.rows is not None and left.rows.tolist() == [[3.0]]
    assert arrived.without("row", np.arange(3)) is None
