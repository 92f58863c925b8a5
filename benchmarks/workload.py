"""What the benchmarks run on: a matrix the size of MovieLens-1M, and the machine, commit and time for the record."""

import platform
import time
from typing import Any

import torch

from deepmf.datasets import find, generate, load
from deepmf.experiments.source import find_commit
from deepmf.matrix.matrix import ObservedMatrix


def ml_1m() -> tuple[str, ObservedMatrix]:
    """Return a name and a matrix of 6,040 x 3,706 with a million entries; nothing is downloaded."""
    if find("ml-1m") is not None:
        return "ml-1m", load("ml-1m")
    return "generated, the size of ml-1m", generate(6040, 3706, n_entries=1_000_209, named=False, seed=0).matrix


def machine() -> dict[str, Any]:
    """Return what a benchmark ran on, and when."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": gpu,
        "commit": find_commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
