"""Entries come out of tables of every kind, and go back into them."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.utils import check_array

from deepmf.matrix.scale import Scale
from deepmf.sklearn.observed_table import CHECKS, TableEntries, dense_copy, showing

TABLE = np.array([[1.0, np.nan, 0.0], [np.nan, 5.0, 6.0]])
MASK = np.array([[True, False, False], [False, True, True]])
SHOWN = np.array([[1.0, np.nan, np.nan], [np.nan, 5.0, 6.0]])


def test_entries_of_arrays_and_sparse_matrices_are_the_same() -> None:
    rows, columns = [0, 0, 1, 1, 1], [0, 2, 0, 1, 2]
    stored = scipy.sparse.csr_array(([1.0, 0.0, np.nan, 5.0, 6.0], (rows, columns)), shape=(2, 3))
    for table in (TABLE, stored):
        entries = TableEntries.of(table)
        assert entries.shape == (2, 3)
        assert [part.tolist() for part in entries[1:]] == [[0, 0, 1, 1], [0, 2, 1, 2], [1, 0, 5, 6]]
        np.testing.assert_array_equal(dense_copy(table), TABLE)


def test_columns_are_taken_in_the_order_asked_for() -> None:
    entries = TableEntries.of(TABLE).take_columns(np.array([2, 0]))
    matrix = entries.matrix(Scale(low=0, high=10), column_labels=["c", "a"])
    np.testing.assert_array_equal(matrix.to_array(), TABLE[:, [2, 0]])
    assert matrix.row_labels.tolist() == [0, 1]
    assert matrix.column_labels.tolist() == ["c", "a"]


def test_a_copy_is_a_copy() -> None:
    dense_copy(TABLE)[0, 0] = 99
    assert TABLE[0, 0] == 1


@pytest.mark.parametrize("names", [["a", "b", "c"], [0, 1, 2]])
def test_a_frame_of_pandas_stays_one(names: list[object]) -> None:
    frame = pd.DataFrame(TABLE, columns=names, index=["x", "y"])
    for rows in (None, np.array([1])):
        shown = showing(frame, check_array(frame, **CHECKS), MASK, rows=rows)
        expected = pd.DataFrame(SHOWN, columns=names)
        pd.testing.assert_frame_equal(shown, expected if rows is None else expected.iloc[rows].reset_index(drop=True))


def test_other_kinds_stay_what_they_are() -> None:
    frame = pl.DataFrame(TABLE, schema=["a", "b", "c"])
    shown = showing(frame, check_array(frame, **CHECKS), MASK, rows=np.array([1, 0]))
    assert isinstance(shown, pl.DataFrame)
    assert shown.columns == ["a", "b", "c"]
    np.testing.assert_array_equal(shown.to_numpy(), SHOWN[[1, 0]])
    np.testing.assert_array_equal(showing(TABLE.tolist(), TABLE, MASK), SHOWN)
    stored = scipy.sparse.csr_array(([0.0, 7.0], ([0, 1], [0, 0])), shape=(2, 3))
    shown = showing(stored, stored, MASK)
    assert shown.nnz == 1  # the zero that is stored and shown
    assert showing(stored, stored, MASK, rows=np.array([0])).shape == (1, 3)
