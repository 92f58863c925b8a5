"""The two orders of entries: both are as of a dense array, and take as few bytes as hold them."""

import numpy as np

from deepmf.matrix.sorting import build_orders, compact


def test_both_orders_are_those_of_a_dense_array() -> None:
    observed = np.random.default_rng(0).random((6, 5)) < 0.4
    observed[2], observed[:, 3] = False, False
    row_of, column_of = np.nonzero(observed)
    by_row, by_column = build_orders(row_of, column_of, shape=observed.shape)
    assert by_row.starts.tolist() == [0, *np.cumsum(observed.sum(axis=1))]
    assert by_column.starts.tolist() == [0, *np.cumsum(observed.sum(axis=0))]
    assert by_row.columns.tolist() == column_of.tolist()
    columns, rows = np.nonzero(observed.T)
    assert by_column.rows.tolist() == rows.tolist()
    assert column_of[by_column.entries].tolist() == columns.tolist()
    assert {part.dtype for part in (*by_row, *by_column)} == {np.dtype(np.int32)}


def test_values_are_single_where_that_loses_nothing_and_copied_always() -> None:
    for values, kind in (([1.0, 0.5], np.float32), ([0.1], np.float64), ([1e300], np.float64), ([], np.float32)):
        given = np.array(values, dtype=np.float64)
        held = compact(given)
        assert held.dtype == kind and held is not given
        np.testing.assert_array_equal(held, given)
