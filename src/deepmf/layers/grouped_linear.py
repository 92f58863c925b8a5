"""A linear layer in groups: each group of outputs reads a group of inputs alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GroupedLinear(nn.Module):
    """Several linear layers of one size side by side, without bias.

    weight: (groups, outputs, inputs).
    """

    def __init__(self, groups: int, n_inputs: int, n_outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, n_outputs, n_inputs, dtype=torch.float32))
        for group in self.weight.detach():
            nn.init.xavier_uniform_(group, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, groups x inputs) to (batch, groups x outputs)."""
        by_group = inputs.unflatten(1, (self.weight.shape[0], -1)).transpose(0, 1)
        return torch.bmm(by_group, self.weight.mT).transpose(0, 1).flatten(1)
