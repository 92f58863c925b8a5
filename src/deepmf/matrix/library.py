"""Functions of arrays and of tensors, so that a formula is written once: by numpy, or by torch where
a network is trained or a GPU computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepmf.files import special
from deepmf.matrix.arrays import Array

# The length by which a shorter vector is divided.
_LEAST_LENGTH = 1e-12


def find_library(numbers: Any) -> Any:
    """Return numpy for an array, torch for a tensor."""
    if isinstance(numbers, np.ndarray | np.generic):
        return np
    import torch

    return torch


def place_beside(array: Array, like: Any) -> Any:
    """Return an array, or a tensor with its numbers where `like` is a tensor, on its device."""
    if isinstance(like, np.ndarray | np.generic):
        return array
    import torch

    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)


def to_single(numbers: Any) -> Any:
    """Return numbers in single precision."""
    return numbers.astype(np.float32) if isinstance(numbers, np.ndarray) else numbers.float()


def to_double(numbers: Any) -> Any:
    """Return numbers in double precision."""
    return numbers.astype(np.float64) if isinstance(numbers, np.ndarray) else numbers.double()


def sigmoid(numbers: Any) -> Any:
    """Return 1 / (1 + exp(-x)) of numbers."""
    return special.expit(numbers) if isinstance(numbers, np.ndarray) else numbers.sigmoid()


def softplus(numbers: Any) -> Any:
    """Return log(1 + exp(x)) of numbers."""
    if isinstance(numbers, np.ndarray):
        return np.logaddexp(numbers, np.float32(0.0))
    return find_library(numbers).nn.functional.softplus(numbers)


def normalise(vectors: Any) -> Any:
    """Scale vectors (..., numbers) to length 1, in single precision."""
    if isinstance(vectors, np.ndarray):
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / np.maximum(lengths, _LEAST_LENGTH)
    return find_library(vectors).nn.functional.normalize(vectors.float(), dim=-1)
