"""Summarisation of very wide vectors by a one-dimensional convolution, before the first layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deepmf.layers.blank import blank


class Convolution(nn.Module):
    """Convolve a vector with some filters, half a filter's width apart, then batch norm and ReLU.

    The authors' code: 32 filters, width 20 for rows and 10 for columns. Reads dense vectors only.
    """

    def __init__(self, n_inputs: int, *, n_filters: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        width = min(width, n_inputs)
        stride = max(width // 2, 1)
        self.convolution = blank(nn.Conv1d, 1, n_filters, width, stride=stride, bias=False, dtype=torch.float32)
        nn.init.xavier_uniform_(self.convolution.weight, generator=generator)
        self.norm = nn.BatchNorm1d(n_filters, dtype=torch.float32)
        self.n_outputs = n_filters * ((n_inputs - width) // stride + 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, filters x places)."""
        summarised: Tensor = torch.relu(self.norm(self.convolution(vectors.unsqueeze(1).float())))
        return summarised.flatten(1)
