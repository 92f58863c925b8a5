"""A branch, which maps the vector of a row or column to its latent, and the layers that it is made
of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from deepmf.nn.inputs import Batch, Channels, FeatureBatch
from deepmf.nn.sparse_linear import SparseLinear


def is_blank() -> bool:
    """Whether networks are made without weights, on the "meta" device of torch."""
    return torch.get_default_device().type == "meta"


def make_linear(
    n_inputs: int, n_outputs: int, generator: torch.Generator, *, bias: bool = False
) -> nn.Linear:
    """Return a linear layer on the default device: Xavier weights, and no bias, as batch norm has a
    shift, or 0."""
    layer = nn.Linear(n_inputs, n_outputs, bias=bias, dtype=torch.float32, device="meta")
    if not is_blank():
        # `torch.nn.utils.skip_init` and `to_empty` import torch's compiler, which takes as long as
        # torch itself.
        for name, weight in list(layer.named_parameters()):
            layer.register_parameter(
                name, nn.Parameter(torch.zeros(weight.shape, dtype=torch.float32))
            )
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    return layer


def compute_inner_products(row_latents: Tensor, column_latents: Tensor) -> Tensor:
    """Return the inner products (..., rows, columns) of all pairs of latents, in single
    precision."""
    with torch.autocast(row_latents.device.type, enabled=False):
        return row_latents @ column_latents.mT


class RandomModule(nn.Module):
    """A module that draws random numbers from `generator`, which the trainer sets, and never from
    the global one."""

    generator: torch.Generator | None = None


class Dropout(RandomModule):
    """Sets a fraction of the inputs to zero in training and scales up the rest."""

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self.fraction = fraction

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop inputs in training mode; otherwise return them unchanged."""
        if not self.training or self.fraction == 0.0:
            return inputs
        numbers = torch.rand(
            inputs.shape, generator=self.generator, device=inputs.device, dtype=torch.float32
        )
        return inputs * (numbers >= self.fraction) * (1.0 / (1.0 - self.fraction))


def use_generator(network: nn.Module, generator: torch.Generator | None) -> None:
    """Set the generator of every random module of a network."""
    for module in network.modules():
        if isinstance(module, RandomModule):
            module.generator = generator


class GroupedLinear(nn.Module):
    """Several linear layers of one size side by side, without bias; `weight` is (groups, outputs,
    inputs)."""

    def __init__(
        self, groups: int, n_inputs: int, n_outputs: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, n_outputs, n_inputs, dtype=torch.float32))
        for group in self.weight.detach():
            nn.init.xavier_uniform_(group, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, groups x inputs) to (batch, groups x outputs)."""
        by_group = inputs.reshape(inputs.shape[0], self.weight.shape[0], -1).transpose(0, 1)
        return torch.bmm(by_group, self.weight.mT).transpose(0, 1).flatten(1)


class Branch(nn.Module):
    """Fully connected layers with batch norm, ReLU and dropout (h_X or h_Y of the paper).

    Parameters
    ----------
    n_inputs : length of the vectors.
    sizes : sizes of all layers; the last is the latent size.
    dropout : fraction dropped after every hidden layer.
    generator : draws the initial weights.
    n_summary_features : number of summary features; if there are any, the branch reads `Channels`.
    n_features : number of inputs for features of the row or column.
    groups : number of such branches side by side, which share nothing but their inputs.
    """

    def __init__(
        self,
        n_inputs: int,
        sizes: Sequence[int],
        *,
        dropout: float,
        generator: torch.Generator,
        n_summary_features: int = 0,
        n_features: int = 0,
        groups: int = 1,
    ) -> None:
        super().__init__()
        widths = [groups * size for size in sizes]
        self.first = SparseLinear(n_inputs, widths[0], generator=generator)
        self.summary_features = (
            make_linear(n_summary_features, widths[0], generator) if n_summary_features else None
        )
        self.features = make_linear(n_features, widths[0], generator) if n_features else None
        self.others = nn.ModuleList(
            make_linear(*shape, generator)
            if groups == 1
            else GroupedLinear(groups, *shape, generator=generator)
            for shape in pairwise(sizes)
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width, momentum=0.1, dtype=torch.float32) for width in widths
        )
        self.dropout = Dropout(dropout)
        self.n_outputs = widths[-1]

    @property
    def n_channels(self) -> int:
        """The number of lines in the first layer for each input; the lines of a channel are
        contiguous."""
        return 1 if self.summary_features is None else 2

    def forward(self, batch: Batch | Channels, features: FeatureBatch | None = None) -> Tensor:
        """Map a batch of vectors and their features to latents (batch, latent)."""
        latents: Tensor = self.first(batch.places if isinstance(batch, Channels) else batch)
        if isinstance(batch, Channels) and self.summary_features is not None:
            latents = latents + self.summary_features(batch.summary_features)
        if self.features is not None and features is not None:
            latents = latents + self.features(features.dense(self.features.in_features))
        latents = self.norms[0](latents)
        for layer, norm in zip(self.others, list(self.norms)[1:], strict=True):
            latents = norm(layer(self.dropout(latents.relu_())))
        return latents

    def list_weights(self) -> list[Tensor]:
        """Return the weights of the layers, for an L2 penalty."""
        return [self.first.weight, *(layer.get_parameter("weight") for layer in self.others)]
