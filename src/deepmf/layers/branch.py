"""One branch: it maps the vector of a row, or of a column, to its latent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from deepmf.layers.blank import blank
from deepmf.layers.convolution import Convolution
from deepmf.layers.dropout import Dropout
from deepmf.layers.grouped_linear import GroupedLinear
from deepmf.layers.input_channels import Channels, EntrySums
from deepmf.layers.sparse_linear import SparseLinear
from deepmf.layers.vectors import Batch, FeatureBatch

# The most vectors that count as few.
_FEW = 64


class Branch(nn.Module):
    """Fully connected layers with batch norm after every one, ReLU and dropout between them (h_X or h_Y of the paper).

    `summary` is an optional convolution in front for very wide vectors. With `n_summary_features` it reads channels:
    two inputs for every place of a vector, and the features that summarise all of it. With `n_features` it also reads
    what is known of the row or column beside its entries, which may be missing in any of them. With `groups` it is as
    many branches of these sizes side by side, which share nothing but their inputs.
    """

    def __init__(
        self,
        n_inputs: int,
        sizes: Sequence[int],
        *,
        dropout: float,
        generator: torch.Generator,
        summary: Convolution | None = None,
        n_summary_features: int = 0,
        n_features: int = 0,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.summary = summary
        widths = [groups * size for size in sizes]
        self.first = SparseLinear(summary.n_outputs if summary else n_inputs, widths[0], generator=generator)
        self.summary_features = _linear(n_summary_features, widths[0], generator) if n_summary_features else None
        self.features = _linear(n_features, widths[0], generator) if n_features else None
        self.others = nn.ModuleList(
            _linear(*shape, generator) if groups == 1 else GroupedLinear(groups, *shape, generator=generator)
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
        if self.summary is not None:
            assert isinstance(batch, Tensor), "a summary reads dense vectors"
            batch = self.summary(batch)
        latents: Tensor = self.first(batch)
        if summary_features is not None and self.summary_features is not None:
            latents = latents + self.summary_features(summary_features)
        return self._after_first(self._with_features(latents, features))

    def entry_lines(self, indices: Tensor, units: Tensor) -> Tensor:
        """Return what each entry adds to the first layer's sums (..., outputs), of a branch that reads channels."""
        table: Tensor = self.first.weight
        flat = indices.flatten()
        values, indicators = (table.index_select(0, places) for places in (flat, flat + table.shape[0] // 2))
        return torch.addcmul(indicators, values, units.reshape(-1, 1)).view(*indices.shape, table.shape[1])

    def of_sums(self, sums: EntrySums, features: FeatureBatch | None = None) -> Tensor:
        """Map sums over the entries of vectors to latents (batch, latent), as `forward` maps their channels."""
        latents = sums.scaled()
        if self.summary_features is not None:
            latents += self.summary_features(sums.summary_features())  # in place: fresh memory costs as much as the sum
        return self._after_first(self._with_features(latents, features))

    def _with_features(self, latents: Tensor, features: FeatureBatch | None) -> Tensor:
        if self.features is None or features is None:
            return latents
        said: Tensor = self.features(features.dense(self.features.in_features))
        return latents + said

    def _after_first(self, latents: Tensor) -> Tensor:
        latents = self.norms[0](latents)
        for layer, norm in zip(self.others, list(self.norms)[1:], strict=True):
            latents = norm(_product(layer, self.dropout(latents.relu_())))
        return latents

    def weights(self) -> list[Tensor]:
        """Return the weights of the layers, for an L2 penalty."""
        return [self.first.weight, *(layer.get_parameter("weight") for layer in self.others)]


def _product(layer: nn.Module, inputs: Tensor) -> Tensor:
    """Return what a linear layer without bias makes of inputs (batch, inputs).

    Of a few vectors on a CPU it is a third faster the other way round, as weights lie in memory.
    """
    plain = inputs.requires_grad or inputs.device.type != "cpu" or torch.compiler.is_exporting()
    if plain or len(inputs) > _FEW or not isinstance(layer, nn.Linear):
        outputs: Tensor = layer(inputs)
        return outputs
    return (layer.get_parameter("weight") @ inputs.T).T


def _linear(n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Linear:
    # No bias: batch norm brings the shift.
    layer = blank(nn.Linear, n_inputs, n_outputs, bias=False, dtype=torch.float32)
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    return layer
