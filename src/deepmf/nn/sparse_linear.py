"""The last layer of an autoencoder: an output for each position of a vector, or only for observed ones."""

from __future__ import annotations

from typing import Any

import scipy.sparse
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.nn.inputs import Batch, SparseBatch

# A GPU adds up the entries of a vector one after another, and would wait for its longest: none is longer than this.
_PIECE = 1024


class SparseLinear(nn.Module):
    """A linear layer without bias that reads dense vectors, or sparse ones at the cost of their entries alone."""

    def __init__(self, n_inputs: int, n_outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        # Transposed: an input's weights lie together.
        self.weight = nn.Parameter(torch.empty(n_inputs, n_outputs, dtype=torch.float32))
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def forward(self, batch: Batch) -> Tensor:
        """Map a batch of vectors to (batch, outputs)."""
        if isinstance(batch, SparseBatch):
            product: Tensor = _SparseProduct.apply(self.weight, *batch)  # type: ignore[no-untyped-call]
            return product
        return (
            batch.to(self.weight.dtype) @ self.weight
            if not torch.is_autocast_enabled(batch.device.type)
            else batch @ self.weight
        )

    def total(self, sums: Tensor) -> Tensor:
        """Return sums over all entries of some vectors, from those over the entries that are here: all of them."""
        return sums


class _SparseProduct(torch.autograd.Function):
    """Sparse vectors times a table of weights, with a backward pass that is one sparse product too.

    The gradient of the weights is the transposed vectors times the gradient of the outputs. Torch's own backward of
    `embedding_bag` adds it up entry by entry; here the entries are regrouped by input first, which makes it a second
    bag over the small table of output gradients (three times as fast: docs/log.md).
    """

    @staticmethod
    def forward(context: Any, weight: Tensor, indices: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        context.save_for_backward(indices, starts, weights)
        context.n_inputs = weight.shape[0]
        return bag(weight, indices, starts, weights)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        grouped = by_input(SparseBatch(*context.saved_tensors), context.n_inputs)
        return bag(gradients[0].contiguous(), *grouped), None, None, None


def by_input(batch: SparseBatch, n_inputs: int) -> SparseBatch:
    """Return the same entries grouped by input: the transposed vectors."""
    if batch.weights.device.type == "cpu":
        return _counted_by_input(batch, n_inputs)
    indices, starts, weights = batch
    order = torch.argsort(indices, stable=True)
    vector_of = torch.repeat_interleave(torch.arange(starts.numel() - 1, device=starts.device), starts.diff())
    inputs = torch.arange(n_inputs + 1, device=starts.device, dtype=indices.dtype)
    return SparseBatch(vector_of[order], torch.searchsorted(indices[order], inputs), weights[order])


def _counted_by_input(batch: SparseBatch, n_inputs: int) -> SparseBatch:
    """Return the same by counting, as scipy does; sorting takes six times as long."""
    indices, starts, weights = (each.numpy() for each in batch._replace(starts=batch.starts.to(batch.indices.dtype)))
    shape = starts.size - 1, n_inputs
    grouped = scipy.sparse.csr_array((weights, indices, starts), shape=shape).tocsc()
    return SparseBatch(*map(torch.from_numpy, (grouped.indices, grouped.indptr, grouped.data)))


def bag(table: Tensor, indices: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of lines of a table for each vector: its entries are starts[k]:starts[k + 1]."""
    if not table.is_cuda:
        return _sums(table, indices, starts, weights)
    piece_starts, first_pieces = pieces(starts, _PIECE)
    sums = _sums(table, indices, piece_starts, weights)
    if len(sums) == starts.numel() - 1:
        return sums
    return functional.embedding_bag(
        torch.arange(len(sums), device=sums.device), sums, first_pieces, mode="sum", include_last_offset=True
    )


def pieces(starts: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Cut vectors into pieces of a bounded number of entries.

    Returns where each piece starts among the entries, with their end, and where each vector starts among the pieces,
    with theirs. A vector without entries is one piece.
    """
    numbers = ((starts.diff() + most - 1) // most).clamp(min=1)
    first_pieces = functional.pad(numbers.cumsum(0), (1, 0))
    vector_of = torch.repeat_interleave(torch.arange(numbers.numel(), device=starts.device), numbers)
    within = torch.arange(vector_of.numel(), device=starts.device) - first_pieces[vector_of]
    return torch.cat([starts[vector_of] + most * within, starts[-1:]]), first_pieces


def _sums(table: Tensor, indices: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    return functional.embedding_bag(
        indices, table, starts.to(indices.dtype), mode="sum", per_sample_weights=weights, include_last_offset=True
    )


class SampledLinear(nn.Module):
    """A linear layer whose outputs are computed all (`forward`), or at the cost of the wanted ones alone (`at`)."""

    def __init__(self, n_inputs: int, n_outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        # An output's weights lie together.
        self.weight = nn.Parameter(torch.empty(n_outputs, n_inputs, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(n_outputs, dtype=torch.float32))
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, outputs)."""
        return functional.linear(hidden, self.weight, self.bias)

    def at(self, hidden: Tensor, indices: Tensor, starts: Tensor) -> Tensor:
        """Return some outputs of each vector: those of vector k are at `indices[starts[k]:starts[k + 1]]`."""
        hidden = hidden.to(self.weight.dtype)
        outputs: Tensor = _SampledProduct.apply(hidden, self.weight, self.bias, indices, starts)  # type: ignore[no-untyped-call]
        return outputs


class _SampledProduct(torch.autograd.Function):
    """hidden[vector] . weight[output] + bias[output] for each entry, in memory of the size of the entries.

    Forward it is what torch computes as the gradient of `embedding_bag` by its entries' weights: one pass without
    gathering (five times as fast as gathering in pieces). Backward it is two bags, as for the first layer.
    """

    @staticmethod
    def forward(context: Any, hidden: Tensor, weight: Tensor, bias: Tensor, indices: Tensor, starts: Tensor) -> Tensor:
        indices = indices.to(starts.dtype)
        context.save_for_backward(hidden, weight, indices, starts)
        if not indices.numel():
            return hidden.new_zeros(0)
        vector_of = torch.repeat_interleave(torch.arange(starts.numel() - 1, device=starts.device), starts.diff())
        products: Tensor = torch.ops.aten._embedding_bag_per_sample_weights_backward(
            hidden, weight, indices, starts[:-1], vector_of, 0
        )
        return products.add_(bias[indices])

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        hidden, weight, indices, starts = context.saved_tensors
        by_vector = SparseBatch(indices, starts, gradients[0].contiguous())
        by_output = by_input(by_vector, weight.shape[0])
        of_bias = torch.segment_reduce(by_output.weights, "sum", offsets=by_output.starts)
        return bag(weight, *by_vector), bag(hidden, *by_output), of_bias, None, None
