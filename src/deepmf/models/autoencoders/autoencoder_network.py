"""The network of the AutoRec family: it maps a vector to hidden activations, and these to one output for each place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.layers.blank import blank
from deepmf.layers.dropout import Dropout
from deepmf.layers.sampled_linear import SampledLinear
from deepmf.layers.sparse_linear import SparseLinear
from deepmf.layers.vectors import Batch, SparseBatch


def identity(sums: Tensor) -> Tensor:
    """Return sums as they are; a function with a name, which can be pickled."""
    return sums


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": identity,
    "sigmoid": torch.sigmoid,
    "selu": functional.selu,
}


class Autoencoder(nn.Module):
    """Fully connected layers with an activation after each, dropout after the middle one, and a last layer.

    It has as many outputs as inputs. `output_activation` is that of the last layer; `initial` times Xavier's are the
    weights to start with.
    """

    def __init__(
        self,
        n_inputs: int,
        sizes: Sequence[int],
        *,
        activation: str,
        output_activation: str = "identity",
        dropout: float = 0.0,
        initial: float = 1.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.first = SparseLinear(n_inputs, sizes[0], generator=generator)
        self.first_bias = nn.Parameter(torch.zeros(sizes[0], dtype=torch.float32))
        self.others = nn.ModuleList(_linear(*shape, generator) for shape in pairwise(sizes))
        self.last = SampledLinear(sizes[-1], n_inputs, generator=generator)
        self.dropout = Dropout(dropout)
        self.output_activation = ACTIVATIONS[output_activation]
        self._activation = ACTIVATIONS[activation]
        self._middle = len(sizes) // 2
        with torch.no_grad():
            for weight in self.weights():
                weight.mul_(initial)

    def forward(self, batch: Batch) -> Tensor:
        """Return all outputs (batch, outputs) of dense vectors, or those at the entries (entries,) of sparse ones."""
        hidden = self.hidden(batch)
        return self.outputs_at(hidden, batch) if isinstance(batch, SparseBatch) else self.outputs(hidden)

    def hidden(self, batch: Batch) -> Tensor:
        """Return what the last layer reads of a batch of vectors, (batch, hidden)."""
        hidden = self._activation(self.first(batch) + self.first_bias)
        for number, layer in enumerate([None, *self.others]):
            if layer is not None:
                hidden = self._activation(layer(hidden))
            if number == self._middle:
                hidden = self.dropout(hidden)
        return hidden

    def outputs(self, hidden: Tensor) -> Tensor:
        """Return all outputs, (batch, outputs), in the precision of the weights."""
        return self.output_activation(self.last(hidden).to(self.last.weight.dtype))

    def outputs_at(self, hidden: Tensor, entries: SparseBatch) -> Tensor:
        """Return the outputs at the entries of each vector, (entries,)."""
        return self.output_activation(self.last.at(hidden, entries.indices, entries.starts))

    def weights(self) -> list[Tensor]:
        """Return the weights of the layers, without the biases."""
        return [layer.get_parameter("weight") for layer in (self.first, *self.others, self.last)]

    def squared_weights(self) -> Tensor:
        """Return the sum of all squared weights, for an L2 penalty."""
        return torch.stack([weight.square().sum() for weight in self.weights()]).sum()


def _linear(n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = blank(nn.Linear, n_inputs, n_outputs, dtype=torch.float32)
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
