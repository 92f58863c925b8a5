"""The last layer of an autoencoder: an output for each position of a vector, or only for observed ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.layers.sparse_linear import bag, by_input
from deepmf.layers.vectors import SparseBatch


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
