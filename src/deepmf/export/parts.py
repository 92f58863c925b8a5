"""The exported parts of a model: torch modules that read raw values and predict in the scale's units."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.errors import BadSetting
from deepmf.layers.branch import Branch
from deepmf.layers.cosine import directions
from deepmf.layers.input_channels import channels
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.scale import Scale
from deepmf.models.dmf.dmf import DMF
from deepmf.models.dmf.dmfd import DMFD
from deepmf.models.dmf.quantizer import Quantizer
from deepmf.models.factorization.least_squares import LEAST_RIDGE, latent_ridges
from deepmf.models.model import Model
from deepmf.models.ordinal.entry_views import PaddedEntries
from deepmf.models.ordinal.linear_part import LinearPart
from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.models.ordinal.ordinal_encoder import OrdinalEncoder
from deepmf.models.ordinal.ordinal_head import OrdinalHead
from deepmf.models.ordinal.refinement import Refinement, cholesky_solved
from deepmf.models.registry import HOMES


class ExportModules(nn.Module):
    """The three parts of a model with two branches, and the whole that they make.

    `rows` and `columns` map values (vectors, inputs), NaN where nothing is observed, to latents (vectors, latent);
    `head` maps row latents and column latents to a tuple with a tensor (rows, columns, ...) for each of `outputs`,
    of which the first is "predictions".
    """

    def __init__(self, rows: nn.Module, columns: nn.Module, head: nn.Module, outputs: Sequence[str]) -> None:
        super().__init__()
        self.rows, self.columns, self.head = rows, columns, head
        self.outputs = tuple(outputs)

    def forward(self, row_values: Tensor, column_values: Tensor) -> tuple[Tensor, ...]:
        """Return the latents of rows and of columns, and what the head makes of them."""
        row_latents, column_latents = self.rows(row_values), self.columns(column_values)
        return row_latents, column_latents, *self.head(row_latents, column_latents)


def parts_of(model: Model) -> ExportModules:
    """Return the parts of a fitted model; of one that has none, an error says which have."""
    make = _MAKERS.get(type(model))
    if make is None:
        names = {class_name: name for name, (_, class_name) in HOMES.items()}
        own, *can = (names.get(kind.__name__, kind.__name__) for kind in (type(model), *_MAKERS))
        raise BadSetting(f"{own!r} cannot be exported; what can is {', '.join(can)}")
    model.scale_  # noqa: B018 (says that the model is not fitted, where it is not)
    return make(model)


class ExportBranch(nn.Module):
    """A branch that reads values in the scale's units, NaN where nothing is observed, and gives latents of length 1."""

    def __init__(self, branch: Branch, *, inputs: str, scale: Scale) -> None:
        super().__init__()
        self.branch = branch
        self._scaled, self._unit_map = inputs == "scaled", scale.unit_map

    def forward(self, values: Tensor) -> Tensor:
        """Map values (vectors, inputs) to latents (vectors, latent)."""
        inputs = self._unit_map.to_unit(values) if self._scaled else values
        return directions(self.branch(torch.where(torch.isnan(values), 0.0, inputs)))


@torch.library.custom_op("deepmf::solved", mutates_args=())
def solved(matrices: Tensor, right: Tensor) -> Tensor:
    """Return the solutions (n, unknowns, 1) of positive definite systems, as one operator of an exported graph."""
    return cholesky_solved(matrices, right).contiguous()


@solved.register_fake
def _(matrices: Tensor, right: Tensor) -> Tensor:
    return torch.empty_like(right)


class RefinedBranch(nn.Module):
    """A side of OrdinalDMF that reads values as they are: its views, refined as `Refinement` does it.

    ONNX has no operator that solves a system of equations: `onnx_solver` puts conjugate gradients in its place.
    """

    def __init__(self, network: nn.Module, refinement: Refinement, *, scale: Scale) -> None:
        super().__init__()
        self.network = network  # the branch and the head of the refinement
        self._refinement, self._unit_map = replace(refinement, solve=solved), scale.unit_map
        with torch.no_grad():  # what is computed once is computed now, and is a constant of the graph
            self.eval()(torch.full((1, refinement.side.views.shape[1]), float("nan")))

    def forward(self, values: Tensor) -> Tensor:
        """Map values (vectors, inputs) to latents (vectors, latent)."""
        side, units = self._refinement.side, self._unit_map.to_unit(values)
        seen = torch.where(side.views, units[:, None], float("nan")).flatten(0, 1)
        outputs = side.branch(channels(seen, values.shape[1])).reshape(values.shape[0], len(side.views), -1)
        real = ~torch.isnan(values)
        every = torch.arange(values.shape[1])[None]
        return self._refinement.refined(outputs, PaddedEntries(every, torch.where(real, units, 0.0), real))


class LinearBranch(nn.Module):
    """A refined side of OrdinalDMF with its linear part: the ridge solution of its values, given the other side.

    factors: of the other side (inputs, latent), without effects. effects: of the other side (inputs,).
    fields: where the linear part lies in latents.
    """

    lines: Tensor  # (inputs, latent + 1) the last for the effect
    effects: Tensor

    def __init__(
        self, refined: RefinedBranch, part: LinearPart, factors: Tensor, effects: Tensor, *, fields: slice, scale: Scale
    ) -> None:
        super().__init__()
        self.refined, self._part, self._fields, self._scale = refined, part, fields, scale
        self.register_buffer("lines", functional.pad(factors, (0, 1), value=1.0).contiguous())
        self.register_buffer("effects", effects.contiguous())

    def forward(self, values: Tensor) -> Tensor:
        """Map values (vectors, inputs) to latents (vectors, latent)."""
        latents, real = self.refined(values), ~torch.isnan(values)
        left = torch.where(real, values - self._part.mean - self.effects, 0.0)
        seen = real.float()
        grams = (self.lines * seen[..., None]).mT @ self.lines
        ridges = torch.maximum(self._ridges(seen.sum(1, keepdim=True)), LEAST_RIDGE * (seen @ self.lines.square()))
        unit = torch.eye(self.lines.shape[1])
        found = solved(grams + ridges[..., None] * unit, (left @ self.lines)[..., None]).squeeze(-1)
        linear = self._placed(found, torch.ones_like(found[:, :1]), latents[:, -1:])
        return torch.cat([latents[:, : self._fields.start], linear, latents[:, self._fields.stop :]], dim=1)

    def _ridges(self, counts: Tensor) -> Tensor:
        """Return the ridges (vectors, latent + 1) of vectors by their numbers of entries (vectors, 1)."""
        settings = self._part.settings
        of_latents = latent_ridges(counts, self._scale, settings).expand(-1, self.lines.shape[1] - 1)
        ridges = functional.pad(of_latents, (0, 1), value=settings.effect_penalty)
        return torch.where(counts > 0, ridges, 1.0)  # a vector without entries has no latents and no effect

    def _placed(self, found: Tensor, ones: Tensor, log_slopes: Tensor) -> Tensor:
        raise NotImplementedError


class LinearRows(LinearBranch):
    """Rows, whose linear part is weighted."""

    def _placed(self, found: Tensor, ones: Tensor, log_slopes: Tensor) -> Tensor:
        return torch.cat([found, ones, 0.0 * ones], dim=1) * (self._part.blend.weight * (-log_slopes).exp())


class LinearColumns(LinearBranch):
    """Columns."""

    def _placed(self, found: Tensor, ones: Tensor, log_slopes: Tensor) -> Tensor:
        return torch.cat([found[:, :-1], ones, found[:, -1:], ones], dim=1)


class CosineHead(nn.Module):
    """The head of DMF: cosines in the scale's units."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self._unit_map = scale.unit_map

    def forward(self, row_latents: Tensor, column_latents: Tensor) -> tuple[Tensor, ...]:
        """Return the prediction of every pair (rows, columns)."""
        return (self._unit_map.from_unit((row_latents @ column_latents.T).clamp(-1.0, 1.0)),)


class QuantizingHead(CosineHead):
    """The head of DMF-D: levels by the learned boundaries, and the scores to rank by."""

    levels: Tensor  # (levels,)
    boundaries: Tensor  # (levels - 1,)

    def __init__(self, scale: Scale, quantizer: Quantizer) -> None:
        super().__init__(scale)
        self.register_buffer("levels", quantizer.levels)
        self.register_buffer("boundaries", quantizer.boundaries.detach())

    def forward(self, row_latents: Tensor, column_latents: Tensor) -> tuple[Tensor, ...]:
        """Return the level and the score of every pair, each (rows, columns)."""
        (scores,) = super().forward(row_latents, column_latents)
        return self.levels[(scores.unsqueeze(-1) >= self.boundaries).sum(-1)], scores


class DistributionHead(nn.Module):
    """The head of OrdinalDMF: the expected value, and the probability of each value.

    linear: the linear part, where there is one.
    coverages: those stated by intervals that hold evenly spaced shares of held-out values; None: the shares.
    """

    linear_cutpoints: Tensor
    coverages: Tensor | None

    def __init__(self, head: OrdinalHead, linear: LinearPart | None, coverages: FloatArray | None) -> None:
        super().__init__()
        self.head, self._linear_share = head, 0.0 if linear is None else linear.blend.share
        self.register_buffer("linear_cutpoints", None if linear is None else torch.from_numpy(linear.cutpoints(head)))
        self.register_buffer("coverages", None if coverages is None else torch.from_numpy(coverages).float())

    def forward(self, row_latents: Tensor, column_latents: Tensor) -> tuple[Tensor, ...]:
        """Return the prediction (rows, columns) and the probabilities (rows, columns, values) of every pair."""
        response, share = row_latents[:, None, -self.head.n_response :], self._linear_share
        logits = (1.0 - share) * self.head.logits(row_latents @ column_latents.T, response)
        if share:
            logits = logits - share * self.linear_cutpoints
        exceeded = functional.pad(functional.pad(self._calibrated(logits.sigmoid()), (1, 0), value=1.0), (0, 1))
        return self.head.expected(logits), exceeded[..., :-1] - exceeded[..., 1:]

    def _calibrated(self, exceedance: Tensor) -> Tensor:
        """Return what `PredictiveDistribution.calibrated` does."""
        if self.coverages is None:
            return exceedance
        from_median, held = 2.0 * exceedance - 1.0, torch.zeros_like(exceedance)
        for below, above in itertools.pairwise(self.coverages):
            held = held + ((from_median.abs() - below) / (above - below)).clamp(0.0, 1.0) / (len(self.coverages) - 1)
        return (1.0 + from_median.sign() * held) / 2.0


def _of_dmf(model: DMF) -> ExportModules:
    return _with_head(model, CosineHead(model.scale_), ["predictions"])


def _of_dmfd(model: DMFD) -> ExportModules:
    return _with_head(model, QuantizingHead(model.scale_, model.network_.quantizer), ["predictions", "scores"])


def _with_head(model: DMF, head: nn.Module, outputs: Sequence[str]) -> ExportModules:
    inputs, scale, network = model.settings.inputs, model.scale_, model.network_
    rows, columns = (ExportBranch(branch, inputs=inputs, scale=scale) for branch in (network.rows, network.columns))
    return ExportModules(rows, columns, head, outputs).eval()


def _of_ordinal_dmf(model: OrdinalDMF) -> ExportModules:
    encoder = copy.deepcopy(model.predictor_.encoder)  # on the CPU
    assert isinstance(encoder, OrdinalEncoder)
    network, scale, trained_rows = encoder.network, model.scale_, model.predictor_.rows.base
    rows: nn.Module
    columns: nn.Module
    rows = of_rows = RefinedBranch(network, encoder.row_refinement(), scale=scale)
    columns = of_columns = RefinedBranch(network, encoder.column_refinement(trained_rows), scale=scale)
    if encoder.linear is not None:
        part, fields = encoder.linear, encoder.layout.linear
        begin = torch.from_numpy(encoder.refinement_columns[:, fields])
        factors = torch.from_numpy(part.unweighted(trained_rows[:, fields], trained_rows[:, -1]))
        rows = LinearRows(of_rows, part, begin[:, : part.size], begin[:, -2], fields=fields, scale=scale)
        columns = LinearColumns(
            of_columns, part, factors[:, : part.size], factors[:, part.size], fields=fields, scale=scale
        )
    head = DistributionHead(network.head, encoder.linear, encoder.coverages)
    return ExportModules(rows, columns, head, ["predictions", "probabilities"]).eval()


_MAKERS: dict[type[Model], Callable[..., ExportModules]] = {DMF: _of_dmf, DMFD: _of_dmfd, OrdinalDMF: _of_ordinal_dmf}
