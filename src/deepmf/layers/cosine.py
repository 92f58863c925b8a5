"""The cosine of every pair of two tables of latents: directions, and their inner products."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def directions(latents: Tensor) -> Tensor:
    """Return latents of length 1, in single precision."""
    return functional.normalize(latents.float(), dim=-1)


def inner_products(row_latents: Tensor, column_latents: Tensor) -> Tensor:
    """Return the inner product of every pair (..., rows, columns) of latents, in single precision."""
    with torch.autocast(row_latents.device.type, enabled=False):
        return row_latents @ column_latents.mT
