"""The best so far: block by block, what a full stable sort of all keys finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepmf.models.best_so_far import BestSoFar


@given(st.lists(st.integers(0, 4), min_size=24, max_size=24), st.integers(1, 8), st.integers(1, 9))
def test_blocks_agree_with_a_full_stable_sort(numbers: list[int], n: int, width: int) -> None:
    keys = np.array(numbers, dtype=np.float32).reshape(2, 12)
    best = BestSoFar(2, n)
    for start in range(0, 12, width):
        best.add(keys[:, start : start + width], start)
    expected = np.argsort(-keys, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(best.places, expected)
    np.testing.assert_array_equal(best.keys, np.take_along_axis(keys, expected, axis=1))


def test_a_block_in_which_every_key_is_better_than_those_before() -> None:
    best = BestSoFar(3, 2)
    keys = np.tile(np.arange(1000.0), (3, 1))
    for start in range(0, 1000, 100):
        best.add(keys[:, start : start + 100], start)
    assert best.places.tolist() == [[999, 998]] * 3
    assert best.keys.dtype == np.float64  # that of the keys


def test_what_is_left_out_never_comes_in() -> None:
    best = BestSoFar(2, 3)
    best.add(np.array([[-np.inf, 1.0, -np.inf], [-np.inf] * 3]), 0)
    assert best.keys[0].tolist() == [1, -np.inf, -np.inf] and best.places[0, 0] == 1
    assert np.all(best.keys[1] == -np.inf)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_nothing_wanted(shape: tuple[int, int]) -> None:
    assert BestSoFar(*shape).keys.shape == shape
