"""Batch norm on several ranks: each normalises its share of a batch by the statistics of all of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from deepmf.errors import RankLost, UserError

Decision = TypeVar("Decision")

Total = Callable[[Tensor], Tensor]  # from sums over the entries that one rank has to those over all of them


def ranks_here() -> Ranks | None:
    """Return the ranks of the process group that this process has joined; None where it is alone."""
    joined = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return Ranks(dist.get_rank(), dist.get_world_size()) if joined else None


def itself(sums: Tensor) -> Tensor:
    """Return sums over all entries where one process alone has them: as they are."""
    return sums


class Ranks:
    """The processes of torch's default process group, of which this one is number `index`.

    Lines of tables and of batches are divided in order: ceil(lines / ranks) for each, the rest for the last.
    """

    def __init__(self, index: int, size: int) -> None:
        self.index, self.size = index, size

    def lines(self, n_lines: int) -> slice:
        """Return which of some lines are those of this rank; perhaps none."""
        each = self._each(n_lines)
        return slice(min(self.index * each, n_lines), min((self.index + 1) * each, n_lines))

    def share(self, lines: Tensor) -> Tensor:
        """Return those lines that are this rank's."""
        return lines[self.lines(len(lines))]

    def sum_to_shares(self, parts: Tensor) -> Tensor:
        """Return this rank's lines of the sum over ranks of tables of one shape, differentiable."""
        shares: Tensor = _SumToShares.apply(parts, self)  # type: ignore[no-untyped-call]
        return shares

    def gather(self, share: Tensor, n_lines: int) -> Tensor:
        """Return all lines from the shares of all ranks, differentiable.

        Every rank is to compute the same loss from them, each with gradients of its own: a line's gradient is the mean.
        """
        lines: Tensor = _Gather.apply(share, n_lines, self)  # type: ignore[no-untyped-call]
        return lines

    def total(self, part: Tensor) -> Tensor:
        """Return the sum over ranks of what each has computed from its part of a batch, differentiable.

        Gradients of `gather`, and those that ranks take the mean of, are then those of all parts.
        """
        total: Tensor = _Total.apply(part, self)  # type: ignore[no-untyped-call]
        return total

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over ranks, in place."""
        with together():
            dist.all_reduce(tensor)
        return tensor

    def stack(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all ranks, of one shape, one above another (ranks, ...)."""
        stacked = tensor.new_empty(self.size * len(tensor), *tensor.shape[1:])
        with together():
            _collective("all_gather_single", "all_gather_into_tensor")(stacked, tensor.contiguous())
        return stacked.view(self.size, *tensor.shape)

    def of_first(self, number: float, device: torch.device) -> float:
        """Return the number that the first rank has, so that all decide alike."""
        tensor = torch.tensor(number, dtype=torch.float64, device=device)
        with together():
            dist.broadcast(tensor, src=0)
        return float(tensor)

    def collected(self, what: Any) -> list[Any]:
        """Return a small object of every rank."""
        found: list[Any] = [None] * self.size
        with together():
            dist.all_gather_object(found, what)
        return found

    def decided(self, decide: Callable[[], Decision]) -> Decision:
        """Return what the first rank decides, on every rank; an error of the user's is raised on every rank."""
        outcome: list[Any] = [None, None]
        if self.index == 0:
            try:
                outcome[0] = decide()
            except UserError as error:
                outcome[1] = type(error), str(error)
        with together():
            dist.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            kind, message = outcome[1]
            raise kind(message)
        decision: Decision = outcome[0]
        return decision

    def _each(self, n_lines: int) -> int:
        return -(-n_lines // self.size)

    def _summed_share(self, parts: Tensor) -> Tensor:
        each = self._each(len(parts))
        share = parts.new_empty(each, *parts.shape[1:])
        with together():
            _collective("reduce_scatter_single", "reduce_scatter_tensor")(share, _padded(parts, each * self.size))
        lines = self.lines(len(parts))
        return share[: lines.stop - lines.start]

    def _gathered(self, share: Tensor, n_lines: int) -> Tensor:
        each = self._each(n_lines)
        return self.stack(_padded(share, each)).flatten(0, 1)[:n_lines]


class _SumToShares(torch.autograd.Function):
    """The sum of tables over ranks, of which each keeps its lines; backward every rank gets the gradients of all."""

    @staticmethod
    def forward(context: Any, parts: Tensor, ranks: Ranks) -> Tensor:
        context.ranks, context.n_lines = ranks, len(parts)
        return ranks._summed_share(parts)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return context.ranks._gathered(gradients[0], context.n_lines), None


class _Gather(torch.autograd.Function):
    """The lines of all ranks; backward each keeps the mean gradients of its own."""

    @staticmethod
    def forward(context: Any, share: Tensor, n_lines: int, ranks: Ranks) -> Tensor:
        context.ranks = ranks
        return ranks._gathered(share, n_lines)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return context.ranks._summed_share(gradients[0]) / context.ranks.size, None, None


class _Total(torch.autograd.Function):
    """A sum over ranks, from which each computes the same loss; backward it counts once for each of them."""

    @staticmethod
    def forward(context: Any, part: Tensor, ranks: Ranks) -> Tensor:
        context.ranks = ranks
        return ranks.sum_(part.clone())

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return context.ranks.size * gradients[0], None


def _padded(lines: Tensor, n_lines: int) -> Tensor:
    """Return lines with zeros below, as many as there are to be."""
    if len(lines) == n_lines:
        return lines.contiguous()
    padded = lines.new_zeros(n_lines, *lines.shape[1:])
    padded[: len(lines)] = lines
    return padded


def _collective(name: str, before: str) -> Callable[..., Any]:
    """Return a collective of torch's by its name, or by the one that it had up to torch 2.12."""
    found: Callable[..., Any] = getattr(dist, name if hasattr(dist, name) else before)
    return found


@contextmanager
def together() -> Iterator[None]:
    """Say in a sentence that other ranks are gone, where torch says that it has lost them."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, UserError):
            raise
        raise RankLost(
            f"the processes that train together no longer reach each other ({_reason(error)}); where one was killed, "
            "torchrun --max-restarts starts them again, and a checkpoint (--resume) lets them continue"
        ) from error


def _reason(error: RuntimeError) -> str:
    """Return the first sentence of what torch says, without the place in its sources."""
    text = re.sub(r"^\[\S+\] ", "", str(error)).split("\n")[0].split(". ")[0]
    return text or type(error).__name__


class RankedBatchNorm(nn.BatchNorm1d):
    """A batch norm with the weights and statistics of another, whose batches are divided over ranks."""

    def __init__(self, norm: nn.Module, ranks: Ranks) -> None:
        assert isinstance(norm, nn.BatchNorm1d)
        super().__init__(norm.num_features, eps=norm.eps, momentum=norm.momentum, device="meta")
        hand_on(norm, self)
        self._ranks = ranks

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise this rank's share of a batch (share, features)."""
        if not self.training:
            return super().forward(inputs)
        count, mean, variance = _statistics(inputs.detach().float(), self._ranks)
        self._follow(count, mean, variance)
        outputs: Tensor = _Normalised.apply(  # type: ignore[no-untyped-call]
            inputs, self.weight, self.bias, mean, (variance + self.eps).rsqrt(), count, self._ranks
        )
        return outputs

    @torch.no_grad()
    def _follow(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch."""
        running_mean, running_variance, counter = self.running_mean, self.running_var, self.num_batches_tracked
        assert running_mean is not None and running_variance is not None and counter is not None
        assert self.momentum is not None
        counter += 1
        running_mean.lerp_(mean, self.momentum)
        running_variance.lerp_(variance * (count / (count - 1.0)), self.momentum)


def hand_on(norm: nn.Module, other: nn.Module) -> None:
    """Let another batch norm have the weights and statistics of one: the tensors themselves, not copies."""
    assert isinstance(norm, nn.BatchNorm1d) and isinstance(other, nn.BatchNorm1d)
    other.weight, other.bias = norm.weight, norm.bias
    other.running_mean, other.running_var = norm.running_mean, norm.running_var
    other.num_batches_tracked = norm.num_batches_tracked


def _statistics(inputs: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of lines on all ranks, and the mean and variance of each feature over them.

    Means and squared deviations are computed on each rank, then put together (Chan, Golub and LeVeque): sums of squares
    would lose digits where a mean is large.
    """
    n_lines = len(inputs)
    mean = inputs.mean(0) if n_lines else inputs.new_zeros(inputs.shape[1])
    deviations = (inputs - mean).square().sum(0)
    every = ranks.stack(torch.cat([mean, deviations, mean.new_tensor([n_lines])]))
    means, squares, counts = every[:, : mean.numel()], every[:, mean.numel() : -1], every[:, -1:]
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    return count, mean, (squares.sum(0) + (counts * (means - mean).square()).sum(0)) / count


class _Normalised(torch.autograd.Function):
    """(inputs - mean) / deviation * weight + bias, where mean and deviation depend on the inputs of every rank."""

    @staticmethod
    def forward(
        context: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        scale: Tensor,
        count: Tensor,
        ranks: Ranks,
    ) -> Tensor:
        normalised = (inputs.float() - mean) * scale
        context.save_for_backward(normalised, weight, scale, count)
        context.ranks, context.dtype = ranks, inputs.dtype
        return (normalised * weight + bias).to(inputs.dtype)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        normalised, weight, scale, count = context.saved_tensors
        gradient = gradients[0].float()
        of_bias, of_weight = gradient.sum(0), (gradient * normalised).sum(0)  # of this rank's lines alone
        mean_bias, mean_weight = context.ranks.sum_(torch.stack([of_bias, of_weight])) / count
        of_inputs = (gradient - mean_bias - normalised * mean_weight) * (weight * scale)
        return of_inputs.to(context.dtype), of_weight, of_bias, None, None, None, None
