"""Linear layers at the cost of the entries: one that reads sparse vectors, one that computes
selected outputs."""

from __future__ import annotations

from typing import Any

import scipy.sparse
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.nn.inputs import Batch, SparseBatch
from deepmf.nn.ranks import SumOverRanks, keep_sums

# Entries in a piece. A GPU adds up the entries of a vector one after another and waits for the
# longest vector.
_PIECE = 1024


class SparseLinear(nn.Module):
    """A linear layer without bias that reads dense vectors, or sparse vectors at the cost of their
    entries."""

    def __init__(self, n_inputs: int, n_outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        # Transposed, so that the weights of an input are contiguous.
        self.weight = nn.Parameter(torch.empty(n_inputs, n_outputs, dtype=torch.float32))
        nn.init.xavier_uniform_(self.weight, generator=generator)
        self.sum_over_ranks: SumOverRanks = keep_sums

    def forward(self, batch: Batch) -> Tensor:
        """Map a batch of vectors to (batch, outputs)."""
        if isinstance(batch, SparseBatch):
            product: Tensor = _SparseProduct.apply(self.weight, *batch)  # type: ignore[no-untyped-call]
            return product
        if not torch.is_autocast_enabled(batch.device.type):
            return batch.to(self.weight.dtype) @ self.weight
        return batch @ self.weight


class _SparseProduct(torch.autograd.Function):
    """Sparse vectors times a table of weights; the backward pass is a sparse product too.

    The gradient of the weights is the transposed vectors times the gradient of the outputs. Torch's
    own backward of `embedding_bag` adds it up entry by entry. Here the entries are grouped by input
    first, so that it is a second bag over the small table of output gradients, which is three times
    as fast (docs/log.md).
    """

    @staticmethod
    def forward(
        context: Any, weight: Tensor, indices: Tensor, starts: Tensor, weights: Tensor
    ) -> Tensor:
        context.save_for_backward(indices, starts, weights)
        context.n_inputs = weight.shape[0]
        return sum_bags(weight, indices, starts, weights)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        grouped = group_by_input(SparseBatch(*context.saved_tensors), context.n_inputs)
        return sum_bags(gradients[0].contiguous(), *grouped), None, None, None


def group_by_input(batch: SparseBatch, n_inputs: int) -> SparseBatch:
    """Return the transpose of a batch: its entries grouped by input."""
    indices, starts, weights = batch
    if weights.device.type == "cpu":  # scipy groups by counting; sorting takes six times as long
        arrays = weights.numpy(), indices.numpy(), starts.to(indices.dtype).numpy()
        grouped = scipy.sparse.csr_array(arrays, shape=(starts.numel() - 1, n_inputs)).tocsc()
        return SparseBatch(*map(torch.from_numpy, (grouped.indices, grouped.indptr, grouped.data)))
    order = torch.argsort(indices, stable=True)
    vector_of = torch.repeat_interleave(
        torch.arange(starts.numel() - 1, device=starts.device), starts.diff()
    )
    inputs = torch.arange(n_inputs + 1, device=starts.device, dtype=indices.dtype)
    return SparseBatch(vector_of[order], torch.searchsorted(indices[order], inputs), weights[order])


def sum_bags(table: Tensor, indices: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of table lines for each vector k, whose entries are
    `starts[k]:starts[k + 1]`."""
    if not table.is_cuda:
        return _embedding_bag(table, indices, starts, weights)
    piece_starts, first_pieces = cut_into_pieces(starts, _PIECE)
    sums = _embedding_bag(table, indices, piece_starts, weights)
    if len(sums) == starts.numel() - 1:
        return sums
    return _embedding_bag(sums, torch.arange(len(sums), device=sums.device), first_pieces, None)


def cut_into_pieces(starts: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Cut vectors into pieces of at most `most` entries.

    Return the start of each piece among the entries, and the first piece of each vector; both end
    with the total. A vector without entries is one piece.
    """
    numbers = ((starts.diff() + most - 1) // most).clamp(min=1)
    first_pieces = functional.pad(numbers.cumsum(0), (1, 0))
    vector_of = torch.repeat_interleave(
        torch.arange(numbers.numel(), device=starts.device), numbers
    )
    within = torch.arange(vector_of.numel(), device=starts.device) - first_pieces[vector_of]
    return torch.cat([starts[vector_of] + most * within, starts[-1:]]), first_pieces


def _embedding_bag(
    table: Tensor, indices: Tensor, starts: Tensor, weights: Tensor | None
) -> Tensor:
    return functional.embedding_bag(
        indices,
        table,
        starts.to(indices.dtype),
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )


class SampledLinear(nn.Module):
    """A linear layer that computes all outputs (`forward`), or some at their own cost
    (`forward_at`)."""

    def __init__(self, n_inputs: int, n_outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        # The weights of an output are contiguous.
        self.weight = nn.Parameter(torch.empty(n_outputs, n_inputs, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(n_outputs, dtype=torch.float32))
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, outputs)."""
        return functional.linear(hidden, self.weight, self.bias)

    def forward_at(self, hidden: Tensor, indices: Tensor, starts: Tensor) -> Tensor:
        """Return the outputs `indices[starts[k]:starts[k + 1]]` of each vector k, (entries,)."""
        hidden = hidden.to(self.weight.dtype)
        outputs: Tensor = _SampledProduct.apply(hidden, self.weight, self.bias, indices, starts)  # type: ignore[no-untyped-call]
        return outputs


class _SampledProduct(torch.autograd.Function):
    """hidden[vector] . weight[output] + bias[output] for each entry, in memory proportional to the
    entries.

    The forward pass is torch's gradient of `embedding_bag` by its weights, which gathers nothing
    (five times as fast as gathering in pieces). The backward pass is two bags, as for the first
    layer.
    """

    @staticmethod
    def forward(
        context: Any, hidden: Tensor, weight: Tensor, bias: Tensor, indices: Tensor, starts: Tensor
    ) -> Tensor:
        indices = indices.to(starts.dtype)
        context.save_for_backward(hidden, weight, indices, starts)
        if not indices.numel():
            return hidden.new_zeros(0)
        vector_of = torch.repeat_interleave(
            torch.arange(starts.numel() - 1, device=starts.device), starts.diff()
        )
        products: Tensor = torch.ops.aten._embedding_bag_per_sample_weights_backward(
            hidden, weight, indices, starts[:-1], vector_of, 0
        )
        return products.add_(bias[indices])

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        hidden, weight, indices, starts = context.saved_tensors
        by_vector = SparseBatch(indices, starts, gradients[0].contiguous())
        by_output = group_by_input(by_vector, weight.shape[0])
        of_bias = torch.segment_reduce(by_output.weights, "sum", offsets=by_output.starts)
        return sum_bags(weight, *by_vector), sum_bags(hidden, *by_output), of_bias, None, None
