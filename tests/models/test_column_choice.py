"""The choice of columns: by labels, by masks and by numbers of entries, whichever way the columns are scored."""

import numpy as np
import pytest

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entry_store import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.column_choice import ColumnChoice, choice_of

ENTRIES = EntryStore.of(
    ObservedMatrix.from_entries(["ann", "bob", "bob", "bob", "cy"], ["a", "a", "b", "c", "a"], [1, 2, 3, 4, 5])
)


def test_a_choice_by_labels_by_masks_and_by_numbers_of_entries() -> None:
    def chosen(among: object = None, exclude: object = None, min_entries: int = 0) -> list[int]:
        choice = choice_of(ENTRIES, among, exclude, min_entries)  # type: ignore[arg-type]
        assert choice.size == choice.positions.size
        return choice.positions.tolist()

    assert chosen() == [0, 1, 2]
    assert chosen(["c", "a"]) == [2, 0]
    assert chosen(np.array([True, False, True])) == chosen(["a", "c"]) == [0, 2]
    assert chosen(exclude=np.array([True, False, False])) == chosen(exclude=["a"]) == [1, 2]
    assert chosen(min_entries=1) == [0, 1, 2]
    assert chosen(min_entries=2) == chosen(min_entries=3) == [0]
    assert chosen(exclude=["b", "b"], min_entries=1) == [0, 2]
    assert chosen(["b", "a"], np.array([False, False, True]), 1) == [1, 0]
    assert chosen(min_entries=4) == []
    with pytest.raises(BadSetting, match=r"among is a mask of shape \(2,\); one over all columns has the shape \(3,\)"):
        chosen(np.array([True, False]))
    for wrong in (-1, 2.5, True):
        with pytest.raises(BadSetting, match="min_entries must be a whole number of at least 0; got"):
            chosen(min_entries=wrong)  # type: ignore[arg-type]


def test_labels_that_are_booleans_are_no_mask() -> None:
    entries = EntryStore.of(ObservedMatrix.from_entries([0, 0], [False, True], [1, 2]))
    assert choice_of(entries, np.array([True]), None, 0).positions.tolist() == [1]


def test_many_columns_are_scored_where_they_lie_and_few_are_gathered() -> None:
    matrix = ObservedMatrix.from_entries([0] * 100, range(100), np.arange(100) % 5)
    entries = EntryStore.of(matrix)
    for choice in (choice_of(entries, range(60), None, 0), choice_of(entries, None, range(60, 100), 0)):
        assert choice.among is None and choice.positions.tolist() == list(range(60))
        assert choice.block(10, 20) == slice(10, 20)
    backwards = choice_of(entries, range(59, -1, -1), None, 0)  # ties go by the order that was given
    assert backwards.among is not None and backwards.positions.tolist() == list(range(59, -1, -1))
    few = choice_of(entries, None, range(5, 100), 0)
    assert few.among is not None and few.positions.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("among", [None, np.array([4, 0, 3])])
def test_what_rows_have_observed_is_left_out_in_every_block(among: IndexArray | None) -> None:
    choice = ColumnChoice(5, among, barred=np.array([1]))
    observed = AxisEntries(np.array([0, 2, 3]), np.array([3, 2, 4]), np.ones(3))
    left_out = choice.left_out(np.array([7, 8]), lambda rows: observed)
    keys = np.zeros((2, choice.n_places))
    for start in range(0, choice.n_places, 2):
        left_out.mark(keys[:, start : start + 2], start)
    positions = choice.columns(np.arange(choice.n_places))
    expected = [np.isin(positions, gone) for gone in ([2, 3], [4])]
    for line in expected:
        line[1] = True  # the place that is barred
    np.testing.assert_array_equal(keys == -np.inf, expected)
