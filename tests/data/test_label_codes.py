"""Labels that come some at a time: in the end they are those, and in the order, of a file that is read at once."""

import datetime

import numpy as np
import polars as pl
import pytest

from deepmf.data.label_codes import MOST_WAITING, LabelCodes
from deepmf.errors import BadEntries
from deepmf.matrix.labels import find_stored_kind


def sort_labels(
    *parts: tuple[pl.Series, bool], most_waiting: int = MOST_WAITING
) -> tuple[list[object], list[list[int]]]:
    codes = LabelCodes("row", most_waiting=most_waiting)
    coded = [codes.add(ids, is_typed=is_typed) for ids, is_typed in parts]
    found = codes.sort()
    return found.labels.array.tolist(), [found.find_positions(each).tolist() for each in coded]


def test_ints_are_sorted() -> None:
    parts = (pl.Series([7, -1, 7]), True), (pl.Series([10**15, 3], dtype=pl.UInt64), True)
    assert sort_labels(*parts) == ([-1, 3, 7, 10**15], [[2, 0, 2], [3, 1]])


def test_texts_are_sorted() -> None:
    parts = (pl.Series(["b", "Zoë", "b"]), False), (pl.Series(["a", "b"], dtype=pl.Categorical), True)
    assert sort_labels(*parts) == (["Zoë", "a", "b"], [[2, 0, 2], [1, 2]])


def test_digits_in_text_are_numbers_if_all_are() -> None:
    assert sort_labels((pl.Series(["10", "9"]), False), (pl.Series(["9", "-3"]), False)) == (
        [-3, 9, 10],
        [[2, 1], [1, 0]],
    )
    assert sort_labels((pl.Series(["10", "9"]), False), (pl.Series([9, 11]), True)) == ([9, 10, 11], [[1, 0], [0, 2]])
    assert sort_labels((pl.Series(["10", "9"]), False), (pl.Series(["007"]), False)) == (
        ["007", "10", "9"],
        [[1, 2], [0]],
    )
    assert sort_labels((pl.Series(["10", "9"]), True)) == (["10", "9"], [[0, 1]])


def test_numbers_beside_texts_are_texts() -> None:
    assert sort_labels((pl.Series([9, 10]), True), (pl.Series(["x", "9"]), False)) == (
        ["10", "9", "x"],
        [[1, 0], [2, 1]],
    )


def test_other_kinds() -> None:
    days = [datetime.date(2021, 1, 1), datetime.date(2020, 1, 1)]
    assert sort_labels((pl.Series(days), True), (pl.Series(days[1:]), True)) == (days[::-1], [[1, 0], [0]])
    with pytest.raises(BadEntries, match="int 3"):
        sort_labels((pl.Series(days), True), (pl.Series([3]), True))
    with pytest.raises(BadEntries, match="float 0.5"):
        sort_labels((pl.Series(days), True), (pl.Series([0.5]), True))


def test_many_ints_join_in_the_end() -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.integers(-(10**12), 10**12, 50) for _ in range(20)]
    labels, positions = sort_labels(*((pl.Series(array), True) for array in arrays), most_waiting=10)
    assert labels == np.unique(np.concatenate(arrays)).tolist()
    assert [[labels[at] for at in part] for part in positions] == [array.tolist() for array in arrays]


def test_texts_are_kept_without_python_strings() -> None:
    codes = LabelCodes("row")
    codes.add(pl.Series(["b", "a"]), is_typed=False)
    labels = codes.sort().labels
    assert find_stored_kind(labels) == "str"
    assert "array" not in vars(labels)
