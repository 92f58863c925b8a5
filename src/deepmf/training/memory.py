"""The memory of a fit: an estimate of the least it needs, and a check against the free memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deepmf.errors import NotEnoughMemory
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.training.devices import count_free_bytes

if TYPE_CHECKING:
    from torch import nn

    from deepmf.training.runtime import Runtime
    from deepmf.training.settings import TrainingSettings

# A weight, its gradient, the two averages of Adam, and the weight of the best epoch.
_BYTES_PER_WEIGHT = 4 * 5

# Positions and values, by row and by column, and the target.
_BYTES_PER_ENTRY = 2 * (8 + 4) + 4

# OrdinalDMF was measured to hold five copies of its latents.
_BYTES_PER_LATENT = 4 * 5

# Of each entry that a step reads: its position, whether it is masked, and tensors for the backward
# pass.
_BYTES_PER_READ_ENTRY = 60

_GIB = 1 << 30


class FitBytes(NamedTuple):
    """Bytes that a fit allocates beside the matrix."""

    weights: int
    entries: int
    latents: int
    steps: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
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
    """Estimate the least memory for fitting a network to a matrix, for all processes on this
    machine together.

    Parameters
    ----------
    network : may be on the "meta" device, without weights.
    latent_width : width of the latents that are kept for all rows and columns.
    n_read : mean number of entries that a step reads from sparse vectors.
    """
    # Here, because every model checks its memory, and only networks need these modules.
    from deepmf.nn.parallel import count_divided_weights
    from deepmf.training.blocks import count_dense_bytes, prefer_dense

    per_weight = _BYTES_PER_WEIGHT + 4 * bool(settings.averaging)
    weights = sum(weight.numel() for weight in network.parameters()) * per_weight
    if runtime.ranks is not None:
        divided = count_divided_weights(network) * per_weight
        weights += divided // runtime.ranks.size - divided
    weights += sum(buffer.nbytes for buffer in network.buffers())
    if prefer_dense(matrix, runtime.device, half=runtime.half):
        entries, n_read = count_dense_bytes(matrix, half=runtime.half), 0
    else:  # after the last step, every rank has all entries
        entries = matrix.n_entries * _BYTES_PER_ENTRY
        n_read /= 1 if runtime.ranks is None else runtime.ranks.size
    latents = sum(matrix.shape) * latent_width * _BYTES_PER_LATENT
    parts = weights, entries, latents, round(n_read * _BYTES_PER_READ_ENTRY)
    return FitBytes(*(runtime.n_sharing * part for part in parts))


def check_memory(needed: FitBytes, device: str, *, what: str, instead: str) -> None:
    """Raise `NotEnoughMemory` if a device has less free memory; `instead` says what would fit."""
    free = count_free_bytes(device)
    if free is None or needed.total <= free:
        return
    largest = max(needed._fields, key=lambda name: getattr(needed, name))
    place = "" if device == "cpu" else "of the GPU "
    raise NotEnoughMemory(
        f"{what} needs at least {needed.total / _GIB:.1f} GiB of memory, most of it for {largest}, and "
        f"{free / _GIB:.1f} GiB {place}are free; {instead}"
    )
