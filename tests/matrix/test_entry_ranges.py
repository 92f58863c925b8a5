"""Entries in a range of columns or rows: of every row, or column, those that the matrix has there."""

from pathlib import Path

import numpy as np
import pytest

from deepmf.data.read import read_matrix
from deepmf.data.synthetic.generator import generate
from deepmf.matrix.entry_ranges import GroupedEntries, column_entries_within, row_entries_within
from deepmf.matrix.matrix import ObservedMatrix

WHOLE = generate(13, 9, density=0.4, seed=0).matrix
RANGES = [slice(0, 9), slice(0, 4), slice(4, 8), slice(8, 9), slice(3, 3), slice(9, 9)]


@pytest.fixture(params=["in memory", "mapped"])
def matrix(request: pytest.FixtureRequest, tmp_path: Path) -> ObservedMatrix:
    if request.param == "in memory":
        return WHOLE
    WHOLE.write(tmp_path / "r.store")
    return read_matrix(tmp_path / "r.store")


def table_of(entries: GroupedEntries, n_others: int) -> np.ndarray:
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
        (WHOLE.to_array(), row_entries_within(matrix, some)),
        (WHOLE.to_array()[:9].T, column_entries_within(matrix, some)),
    ):
        array[:, outside] = np.nan
        np.testing.assert_array_equal(table_of(entries, 9), array)
        assert entries.others.dtype == matrix.by_row.columns.dtype
