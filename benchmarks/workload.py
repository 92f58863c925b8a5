"""What the benchmarks run on: a matrix the size of MovieLens-1M, and the machine, commit and time
for the record."""

import os
import platform
import time
from typing import Any

import numpy as np
import torch

from deepmf.datasets import find, generate, load
from deepmf.experiments.source import find_commit
from deepmf.matrix.matrix import ObservedMatrix

# Small matrices and few turns: shows that a benchmark runs to its end; its figures mean nothing.
QUICK = bool(os.environ.get("QUICK"))


def ml_1m() -> tuple[str, ObservedMatrix]:
    """Return a name and a matrix of 6,040 x 3,706 with a million entries; nothing is downloaded."""
    if QUICK:
        return "generated, small", generate(300, 200, n_entries=6_000, named=False, seed=0).matrix
    if find("ml-1m") is not None:
        return "ml-1m", load("ml-1m")
    return "generated, the size of ml-1m", generate(
        6040, 3706, n_entries=1_000_209, named=False, seed=0
    ).matrix


def machine() -> dict[str, Any]:
    """Return what a benchmark ran on, and when."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        **({"quick": True} if QUICK else {}),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": gpu,
        "commit": find_commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def limit_row_entries(matrix: ObservedMatrix, n_entries: int, *, seed: int) -> ObservedMatrix:
    """Keep at most n random entries of each row; with the same seed, a larger n keeps the same
    entries and more.

    >>> matrix = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> limit_row_entries(matrix, 1, seed=0).row_counts.tolist()
    [1, 1]
    """
    draws = np.random.default_rng(seed).random(matrix.n_entries)
    # rows stay together, each in an order of its own
    order = np.lexsort([draws, matrix.entry_rows])
    place_in_row = np.arange(matrix.n_entries) - matrix.by_row.starts[matrix.entry_rows[order]]
    return matrix.take_entries(np.sort(order[place_in_row < n_entries]))
