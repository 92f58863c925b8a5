"""The memory of a fit: what it needs at least, and the refusal where a device has less left."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from deepmf.errors import NotEnoughMemory
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.nn.parallel import count_divided_weights
from deepmf.training.blocks import count_dense_bytes, prefer_dense
from deepmf.training.runtime import Runtime, count_free_bytes
from deepmf.training.settings import TrainingSettings

# A weight, its gradient, the two averages of Adam's, and that of the best epoch.
_BYTES_A_WEIGHT = 4 * 5

# Positions and values, by row and by column.
_BYTES_AN_ENTRY = 2 * (8 + 4) + 4

# Latents are computed anew from earlier ones, more than once; five copies were measured with OrdinalDMF.
_BYTES_OF_A_LATENT = 4 * 5

# What a step holds of each entry that it reads: where it is, whether it is masked, and what the backward pass needs.
_BYTES_AN_ENTRY_READ = 60

_GIB = 1 << 30


class FitBytes(NamedTuple):
    """What a fit allocates beside the matrix, which is there already."""

    weights: int
    entries: int
    latents: int
    steps: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def estimate_fit_bytes(
    network: nn.Module,
    matrix: ObservedMatrix,
    settings: TrainingSettings,
    runtime: Runtime,
    *,
    latent_width: int,
    n_read: float = 0,
) -> FitBytes:
    """Return what the fit of a network to a matrix needs at least; the network may be one without weights.

    Where several processes fit it, this is what those on this machine need together.
    n_read: how many entries a step reads, on average; those of dense tables are not counted.
    """
    a_weight = _BYTES_A_WEIGHT + 4 * bool(settings.averaging)
    weights = sum(each.numel() for each in network.parameters()) * a_weight
    if runtime.ranks is not None:
        divided = count_divided_weights(network) * a_weight
        weights += divided // runtime.ranks.size - divided
    weights += sum(each.numel() * each.element_size() for each in network.buffers())
    if prefer_dense(matrix, runtime.device, half=runtime.half):
        entries, n_read = count_dense_bytes(matrix, half=runtime.half), 0
    else:
        n_parts = 1 if runtime.ranks is None else runtime.ranks.size
        entries, n_read = matrix.n_entries * _BYTES_AN_ENTRY // n_parts, n_read / n_parts
    latents = sum(matrix.shape) * latent_width * _BYTES_OF_A_LATENT
    needed = weights, entries, latents, round(n_read * _BYTES_AN_ENTRY_READ)
    return FitBytes(*(runtime.n_sharing * each for each in needed))


def check_memory(needed: FitBytes, device: torch.device, *, what: str, instead: str) -> None:
    """Refuse what does not fit into the free memory of a device; `instead` says what would."""
    free = count_free_bytes(device)
    if free is None or needed.total <= free:
        return
    largest = max(needed._fields, key=lambda name: getattr(needed, name))
    place = "of the GPU " if device.type == "cuda" else ""
    raise NotEnoughMemory(
        f"{what} needs at least {needed.total / _GIB:.1f} GiB of memory, most of it for {largest}, and "
        f"{free / _GIB:.1f} GiB {place}are free; {instead}"
    )
