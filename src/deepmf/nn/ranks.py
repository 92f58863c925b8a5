"""Ranks: the processes that train one network together, and the collectives they exchange tensors
by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from deepmf.errors import RankLost, UserError
from deepmf.matrix.arrays import Numbers

# Turns sums over the entries of one rank into sums over the entries of all ranks.
SumOverRanks = Callable[[Tensor], Tensor]


def keep_sums(sums: Tensor) -> Tensor:
    """Return sums unchanged: a process that trains alone has all entries."""
    return sums


class Ranks:
    """The processes of torch's default process group, of which this one is number `index`.

    Tables and batches are divided by lines, in order: ceil(lines / ranks) for each rank, the rest
    for the last.
    """

    def __init__(self, index: int, size: int) -> None:
        self.index, self.size = index, size

    @property
    def device(self) -> torch.device:
        """A device whose tensors these ranks can exchange."""
        return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")

    def find_lines(self, n_lines: int) -> slice:
        """Return the slice of `n_lines` lines that belongs to this rank; it may be empty."""
        size = self._count_lines(n_lines)
        return slice(min(self.index * size, n_lines), min((self.index + 1) * size, n_lines))

    def gather(self, share: Tensor, n_lines: int) -> Tensor:
        """Return the lines of all ranks."""
        size = self._count_lines(n_lines)
        padded = share.new_zeros(size, *share.shape[1:])
        padded[: len(share)] = share
        lines = share.new_empty(self.size * size, *share.shape[1:])
        # The name of the collective up to torch 2.12 is the second one.
        collect = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        with report_lost_ranks():
            collect(lines, padded)
        return lines[:n_lines]

    def sum_products(self, part: Tensor) -> Tensor:
        """Sum over ranks a tensor that each computes from lines of its own, differentiable.

        Its gradient is the mean over ranks.
        """
        total: Tensor = _SumProducts.apply(part, self)  # type: ignore[no-untyped-call]
        return total

    def sum_parts(self, part: Tensor) -> Tensor:
        """Sum over ranks a tensor that each computes from its part of a batch, differentiable.

        The backward pass multiplies the gradient by the number of ranks, because `sum_products` and
        `SpreadNetwork.average_gradients` take means.
        """
        return self.sum_(part.detach().clone()) + self.size * (part - part.detach())

    def sum_(self, array: Numbers) -> Numbers:
        """Sum an array or a tensor over ranks, in place."""
        with report_lost_ranks():
            dist.all_reduce(torch.as_tensor(array))
        return array

    def broadcast(self, number: float, device: torch.device) -> float:
        """Return the number of the first rank, so that all ranks decide alike."""
        tensor = torch.tensor(number, dtype=torch.float64, device=device)
        with report_lost_ranks():
            dist.broadcast(tensor, src=0)
        return float(tensor)

    def broadcast_items(self, items: list[Any]) -> list[Any]:
        """Return the objects of the first rank."""
        with report_lost_ranks():
            dist.broadcast_object_list(items, src=0)
        return items

    def collect(self, item: Any) -> list[Any]:
        """Return the objects of all ranks."""
        items: list[Any] = [None] * self.size
        with report_lost_ranks():
            dist.all_gather_object(items, item)
        return items

    def _count_lines(self, n_lines: int) -> int:
        return -(-n_lines // self.size)


class _SumProducts(torch.autograd.Function):
    """Sum over ranks; the backward pass takes the mean of the gradients of all ranks."""

    @staticmethod
    def forward(context: Any, part: Tensor, ranks: Ranks) -> Tensor:
        context.ranks = ranks
        return ranks.sum_(part.clone())

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return context.ranks.sum_(gradients[0].clone()) / context.ranks.size, None


@contextmanager
def report_lost_ranks() -> Iterator[None]:
    """Raise `RankLost` for the errors by which torch reports that other ranks are gone."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, UserError):
            raise
        # Its first sentence, without the location in the sources of torch.
        reason = (
            re.sub(r"^\[\S+\] ", "", str(error)).split("\n")[0].split(". ")[0]
            or type(error).__name__
        )
        raise RankLost(
            f"the processes that train together lost each other ({reason}); if one was killed, "
            "torchrun --max-restarts restarts them, and a checkpoint (--resume) lets them continue"
        ) from error
