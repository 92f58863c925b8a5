"""The n largest of rows: those of a full stable sort, whatever the ties."""

import numpy as np
import pytest
import torch

from deepmf.linalg.largest import find_largest

DICE = np.random.default_rng(0)


@pytest.mark.parametrize("n", [1, 3, 7, 12, 40])
@pytest.mark.parametrize("n_values", [2, 5, 1000])
def test_places_are_those_of_a_stable_sort(n: int, n_values: int) -> None:
    keys = DICE.integers(0, n_values, (50, 12)).astype(np.float32)
    expected = np.argsort(-keys, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(find_largest(keys, n), expected)
    found = find_largest(torch.from_numpy(keys), n)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_left_out_keys_come_last() -> None:
    keys = np.array([[-np.inf, 2.0, -np.inf, 2.0, -np.inf], [1.0, -np.inf, 3.0, 2.0, 0.0]])
    found = find_largest(keys, 3)
    assert found[0, :2].tolist() == [1, 3] and keys[0, found[0, 2]] == -np.inf
    assert found[1].tolist() == [2, 3, 0]


def test_nothing_is_found_among_nothing() -> None:
    assert find_largest(np.empty((4, 0)), 3).shape == (4, 0)
    assert find_largest(np.zeros((4, 2)), 0).shape == (4, 0)
    assert find_largest(np.empty((0, 5)), 2).shape == (0, 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same_places() -> None:
    keys = DICE.integers(0, 4, (50, 30)).astype(np.float32)
    found = find_largest(torch.from_numpy(keys).cuda(), 9).cpu().numpy()
    np.testing.assert_array_equal(found, find_largest(keys, 9))
