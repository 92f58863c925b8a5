"""Positive definite systems, many at a time, as arrays and as tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from deepmf.linalg.positive import solve_positive


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
def test_systems_are_solved_and_those_without_a_solution_are_marked(
    make: Callable[[Any], Any],
) -> None:
    matrices = np.array([[[4.0, 2.0], [2.0, 3.0]], [[1.0, 2.0], [2.0, 1.0]]], dtype=np.float32)
    solutions, failures = solve_positive(make(matrices), make(np.ones((2, 2), dtype=np.float32)))
    np.testing.assert_allclose(solutions[0], [1 / 8, 2 / 8], rtol=1e-6)
    assert failures.tolist() == [False, True]
