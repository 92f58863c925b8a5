"""One branch: it maps the vector of a row, or of a column, to its latent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.nn.inputs import Batch, Channels, EntrySums, FeatureBatch
from deepmf.nn.sparse_linear import SparseLinear

Layer = TypeVar("Layer", bound=nn.Module)


def is_blank() -> bool:
    """Return whether networks are made without weights: on torch's "meta" device, where tensors are shapes alone."""
    return torch.get_default_device().type == "meta"


def make_blank(kind: type[Layer], *sizes: int, **options: Any) -> Layer:
    """Return a layer whose weights are to be set, on the default device."""
    layer = kind(*sizes, **options, device="meta")
    # `torch.nn.utils.skip_init` would go from "meta" to "meta" by way of torch's compiler, whose import takes seconds.
    return layer if is_blank() else layer.to_empty(device=torch.get_default_device())


def normalise_latents(latents: Tensor) -> Tensor:
    """Return latents of length 1, in single precision."""
    return functional.normalize(latents.float(), dim=-1)


def compute_inner_products(row_latents: Tensor, column_latents: Tensor) -> Tensor:
    """Return the inner product of every pair (..., rows, columns) of latents, in single precision."""
    with torch.autocast(row_latents.device.type, enabled=False):
        return row_latents @ column_latents.mT


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
        return inputs * (self._draw(inputs) >= self.fraction) * (1.0 / (1.0 - self.fraction))

    def _draw(self, inputs: Tensor) -> Tensor:
        """Return a number between 0 and 1 for each input."""
        return torch.rand(inputs.shape, generator=self.generator, device=inputs.device, dtype=torch.float32)


def use_generator(network: nn.Module, generator: torch.Generator | None) -> None:
    """Let every module of a network that draws do so from this generator, or from none."""
    for module in network.modules():
        if isinstance(module, RandomModule):
            module.generator = generator


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
        by_group = inputs.reshape(inputs.shape[0], self.weight.shape[0], -1).transpose(0, 1)
        return torch.bmm(by_group, self.weight.mT).transpose(0, 1).flatten(1)


# The most vectors that count as few.
_FEW = 64


class Branch(nn.Module):
    """Fully connected layers with batch norm after every one, ReLU and dropout between them (h_X or h_Y of the paper).

    With `n_summary_features`, it reads channels: two inputs for each place of a vector, and features that summarise the
    whole vector. With `n_features`, it also reads the features of the row or column, any of which may be missing. With
    `groups`, it is so many branches of these sizes side by side, which share their inputs only.
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
        self.summary_features = _make_linear(n_summary_features, widths[0], generator) if n_summary_features else None
        self.features = _make_linear(n_features, widths[0], generator) if n_features else None
        self.others = nn.ModuleList(
            _make_linear(*shape, generator) if groups == 1 else GroupedLinear(groups, *shape, generator=generator)
            for shape in pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width, momentum=0.1, dtype=torch.float32) for width in widths)
        self.dropout = Dropout(dropout)
        self.n_outputs = widths[-1]

    @property
    def n_channels(self) -> int:
        """How many lines of the first layer's table belong to an input; all those of one channel lie together."""
        return 1 if self.summary_features is None else 2

    def forward(self, batch: Batch | Channels, features: FeatureBatch | None = None) -> Tensor:
        """Map a batch of vectors, and what else is known of them, to latents (batch, latent)."""
        summary_features = None
        if isinstance(batch, Channels):
            batch, summary_features = batch
        latents: Tensor = self.first(batch)
        if summary_features is not None and self.summary_features is not None:
            latents = latents + self.summary_features(summary_features)
        return self._forward_rest(self._add_features(latents, features))

    def embed_entries(self, indices: Tensor, units: Tensor) -> Tensor:
        """Return what each entry adds to the first layer's sums (..., outputs), of a branch that reads channels."""
        table: Tensor = self.first.weight
        flat = indices.flatten()
        values, indicators = (table.index_select(0, places) for places in (flat, flat + table.shape[0] // 2))
        return torch.addcmul(indicators, values, units.reshape(-1, 1)).view(*indices.shape, table.shape[1])

    def forward_sums(self, sums: EntrySums, features: FeatureBatch | None = None) -> Tensor:
        """Map sums over the entries of vectors to latents (batch, latent), as `forward` maps their channels."""
        latents = sums.normalise()
        if self.summary_features is not None:
            latents += self.summary_features(sums.summary_features())  # in place: fresh memory costs as much as the sum
        return self._forward_rest(self._add_features(latents, features))

    def _add_features(self, latents: Tensor, features: FeatureBatch | None) -> Tensor:
        if self.features is None or features is None:
            return latents
        said: Tensor = self.features(features.dense(self.features.in_features))
        return latents + said

    def _forward_rest(self, latents: Tensor) -> Tensor:
        latents = self.norms[0](latents)
        for layer, norm in zip(self.others, list(self.norms)[1:], strict=True):
            latents = norm(_multiply(layer, self.dropout(latents.relu_())))
        return latents

    def list_weights(self) -> list[Tensor]:
        """Return the weights of the layers, for an L2 penalty."""
        return [self.first.weight, *(layer.get_parameter("weight") for layer in self.others)]


def _multiply(layer: nn.Module, inputs: Tensor) -> Tensor:
    """Return what a linear layer without bias makes of inputs (batch, inputs).

    Of a few vectors on a CPU it is a third faster the other way round, as weights lie in memory.
    """
    plain = inputs.requires_grad or inputs.device.type != "cpu" or torch.compiler.is_exporting()
    if plain or len(inputs) > _FEW or not isinstance(layer, nn.Linear):
        outputs: Tensor = layer(inputs)
        return outputs
    return (layer.get_parameter("weight") @ inputs.T).T


def _make_linear(n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Linear:
    # No bias: batch norm brings the shift.
    layer = make_blank(nn.Linear, n_inputs, n_outputs, bias=False, dtype=torch.float32)
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    return layer
