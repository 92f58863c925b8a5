"""The matrix that the benchmarks run on: MovieLens-1M where it is, otherwise a generated one of the same size."""

import platform
from typing import Any

import torch

from deepmf.data.datasets import find, load
from deepmf.data.synthetic import generate
from deepmf.matrix.matrix import ObservedMatrix


def ml_1m() -> tuple[str, ObservedMatrix]:
    """Return a name and a matrix of 6,040 x 3,706 with a million entries; nothing is downloaded."""
    if find("ml-1m") is not None:
        return "ml-1m", load("ml-1m")
    return "generated, the size of ml-1m", generate(6040, 3706, n_entries=1_000_209, named=False, seed=0).matrix


def machine() -> dict[str, Any]:
    """Return what a benchmark ran on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"machine": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__, "gpu": gpu}
