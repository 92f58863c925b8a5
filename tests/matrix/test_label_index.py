"""Indices of labels: what is found in a table is what a search finds, and what a plain list has."""

from typing import Any

import numpy as np
import pytest

from deepmf.matrix.label_index import IntegerIndex, gathered_integers, gathered_objects

CLOSE, FAR = [4, -2, 9, 0], [4, -(10**15), 10**18, 0]


@pytest.mark.parametrize("labels", [CLOSE, FAR, [7]])
def test_integers_are_found_where_they_stand(labels: list[int]) -> None:
    asked = [*labels, 1, 5, -3, 2 * 10**18]
    found = IntegerIndex(np.array(labels)).find(np.array(asked)).tolist()
    assert found == [labels.index(each) if each in labels else -1 for each in asked]


@pytest.mark.parametrize("labels", [CLOSE, FAR, []])
def test_distinct_integers_rise_and_every_one_is_found_again(labels: list[int]) -> None:
    items = np.array(labels * 2, dtype=np.int64)
    distinct, positions = gathered_integers(items)
    assert distinct.tolist() == sorted(labels)
    assert distinct[positions].tolist() == items.tolist()


@pytest.mark.parametrize(("items", "distinct"), [(["b", "a", "b"], ["a", "b"]), ([1j, 0j, 1j], [1j, 0j])])
def test_objects_without_an_order_keep_that_of_their_first_appearance(items: list[Any], distinct: list[Any]) -> None:
    labels, positions = gathered_objects(np.array(items, dtype=object))
    assert labels.tolist() == distinct
    assert labels[positions].tolist() == items
