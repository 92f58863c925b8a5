"""Systems of equations with positive definite matrices, as arrays or as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import sposv

from deepmf.matrix.library import find_library


def solve_positive(matrices: Any, right: Any) -> tuple[Any, Any]:
    """Solve positive definite systems (n, unknowns, unknowns) for right sides (n, unknowns).

    Returns the solutions, and for each system whether it has none.
    """
    if not isinstance(matrices, np.ndarray):
        torch = find_library(matrices)
        lower, failures = torch.linalg.cholesky_ex(matrices)
        return torch.cholesky_solve(right[..., None], lower)[..., 0], failures > 0
    solutions, failures = np.empty_like(right), np.empty(len(right), dtype=bool)
    for at, (matrix, sums) in enumerate(zip(matrices, right, strict=True)):
        _, solutions[at], failures[at] = sposv(matrix.T, sums, lower=1)
    return solutions, failures
