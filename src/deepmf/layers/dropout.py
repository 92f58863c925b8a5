"""Dropout with a generator of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RandomModule(nn.Module):
    """A module that draws random numbers: from `generator`, which the trainer sets, never from the global one."""

    def __init__(self) -> None:
        super().__init__()
        self.generator: torch.Generator | None = None


class Dropout(RandomModule):
    """Set a fraction of the inputs to zero in training, and scale up the rest."""

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self.fraction = fraction

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop out in training mode; otherwise return the inputs."""
        if not self.training or self.fraction == 0.0:
            return inputs
        return inputs * (self._draws(inputs) >= self.fraction) * (1.0 / (1.0 - self.fraction))

    def _draws(self, inputs: Tensor) -> Tensor:
        """Return a number between 0 and 1 for each input."""
        return torch.rand(inputs.shape, generator=self.generator, device=inputs.device, dtype=torch.float32)


def use_generator(network: nn.Module, generator: torch.Generator | None) -> None:
    """Let every module of a network that draws do so from this generator, or from none."""
    for module in network.modules():
        if isinstance(module, RandomModule):
            module.generator = generator
