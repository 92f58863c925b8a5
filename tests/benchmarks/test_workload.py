"""What benchmarks share: rows with at most so many entries."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from workload import limit_row_entries

from deepmf.datasets import generate
from deepmf.matrix.matrix import ObservedMatrix

MATRIX = generate(30, 40, density=0.3, seed=0).matrix


def cells(matrix: ObservedMatrix) -> set[tuple[object, ...]]:
    return set(zip(*(part.tolist() for part in matrix.entries()), strict=True))


@pytest.mark.parametrize("n_entries", [0, 1, 5, 1000])
def test_a_row_keeps_at_most_so_many_of_its_entries(n_entries: int) -> None:
    kept = limit_row_entries(MATRIX, n_entries, seed=3)
    np.testing.assert_array_equal(kept.row_counts, np.minimum(MATRIX.row_counts, n_entries))
    assert cells(kept) <= cells(MATRIX) and kept.shape == MATRIX.shape


def test_of_one_seed_more_entries_are_those_before_and_others() -> None:
    kept = [cells(limit_row_entries(MATRIX, n_entries, seed=3)) for n_entries in (1, 2, 5, 10)]
    assert all(fewer < more for fewer, more in pairwise(kept))
    assert cells(limit_row_entries(MATRIX, 2, seed=4)) != kept[1]
