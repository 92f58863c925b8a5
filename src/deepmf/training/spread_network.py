"""A network on several ranks: which of its weights are divided, and how gradients and weights come together."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from deepmf.layers.ranks import Ranks
from deepmf.layers.spread_branch import divisions, spread


class SpreadNetwork:
    """Divides the branches of a network over ranks; the rest of it every rank computes alike.

    divided: the names of the tables of which each rank holds some lines, and how they are divided.
    """

    def __init__(self, network: nn.Module, ranks: Ranks) -> None:
        self._ranks = ranks
        self.divided = divisions(network)
        self._branches = spread(network, ranks)
        self._named = list(network.named_parameters())

    def sum_gradients(self) -> None:
        """Have every rank hold the gradients of the whole batch.

        Of its lines of a table a rank has them already. In the rest of a branch each has those of its share, which are
        summed; elsewhere all have the same, and their mean keeps them so.
        """
        prefixes = tuple(name.removesuffix("first.weight") for name in self.divided)
        shared = [(name, each) for name, each in self._named if name not in self.divided and each.grad is not None]
        weights = [1.0 if name.startswith(prefixes) else 1.0 / self._ranks.size for name, _ in shared]
        gradients = [each.grad for _, each in shared if each.grad is not None]
        flat = torch.cat([weight * gradient.flatten() for weight, gradient in zip(weights, gradients, strict=True)])
        totals = self._ranks.sum_(flat).split([each.numel() for each in gradients])  # type: ignore[no-untyped-call]
        for gradient, total in zip(gradients, totals, strict=True):
            gradient.copy_(total.view_as(gradient))

    def whole(self, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return learned tensors with the lines of all ranks."""
        return {
            name: self.divided[name].whole(tensor, self._ranks) if name in self.divided else tensor
            for name, tensor in learned.items()
        }

    def share(self, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return whole tensors with the lines of this rank."""
        return {
            name: self.divided[name].share(tensor, self._ranks) if name in self.divided else tensor
            for name, tensor in learned.items()
        }

    def join(self) -> None:
        """Make the network whole on every rank."""
        for branch in self._branches:
            branch.join()
