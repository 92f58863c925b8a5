"""Export a model to a folder of ONNX files, with the latents and labels that a service needs."""

from __future__ import annotations

import copy
import io
import itertools
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.errors import BadSetting, CannotSave, Hint, MissingDependency, warn
from deepmf.files import check_parts, write_parts
from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.labels import AS_TEXT, Labels, find_stored_kind
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD, Quantizer
from deepmf.models.gibbs.chain import AxisSamples
from deepmf.models.gibbs.prior import AVERAGE_COUNT, CENTRE_COUNT
from deepmf.models.ordinal.encoder import OrdinalEncoder
from deepmf.models.ordinal.head import OrdinalHead
from deepmf.models.ordinal.linear_part import LinearPart, SampledModel
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.ordinal.refinement import PaddedEntries, Refinement, solve_cholesky
from deepmf.models.registry import MODELS
from deepmf.nn.branch import Branch, normalise_latents
from deepmf.nn.inputs import make_channels
from deepmf.recommend.presence import Presence, make_positive
from deepmf.recommend.request import Request
from deepmf.scoring.latents import Latents
from deepmf.scoring.predictor import LEAST_PROBABILITY


class ExportModules(nn.Module):
    """The row branch, the column branch and the head of a model, as one module.

    `rows` and `columns` map values (vectors, inputs), NaN where nothing is observed, to latents (vectors, latent);
    `head` maps row latents and column latents to a tuple with a tensor (rows, columns, ...) for each of `outputs`,
    of which the first is "predictions".
    """

    def __init__(self, rows: nn.Module, columns: nn.Module, head: nn.Module, outputs: Sequence[str]) -> None:
        super().__init__()
        self.rows, self.columns, self.head = rows, columns, head
        self.outputs = tuple(outputs)

    def forward(self, row_values: Tensor, column_values: Tensor) -> tuple[Tensor, ...]:
        """Return row latents, column latents, and the outputs of the head."""
        row_latents, column_latents = self.rows(row_values), self.columns(column_values)
        return row_latents, column_latents, *self.head(row_latents, column_latents)


def make_modules(model: Model) -> ExportModules:
    """Return the modules of a fitted model; raise `BadSetting` for a model that cannot be exported."""
    make = _MAKERS.get(type(model))
    if make is None:
        names = {each.class_name: name for name, each in MODELS.items()}
        own, *can = (names.get(kind.__name__, kind.__name__) for kind in (type(model), *_MAKERS))
        raise BadSetting(f"{own!r} cannot be exported; the models that can are {', '.join(can)}")
    model.scale_  # noqa: B018 (raises NotFitted)
    if model.has_drift:
        raise BadSetting(
            "this model drifts with time, and an export has no dates",
            hint=Hint("fit it without times", "fit it without --set times=auto"),
        )
    if model.asked_ is not None:
        raise BadSetting(
            "this model is calibrated on asked cells, and an export is not",
            hint=Hint("fit it without asked", "fit it without --asked"),
        )
    return make(model)


class ExportBranch(nn.Module):
    """A branch that maps values in the units of the scale, NaN where missing, to latents of length 1."""

    def __init__(self, branch: Branch, *, inputs: str, scale: Scale) -> None:
        super().__init__()
        self.branch = branch
        self._scaled, self._unit_map = inputs == "scaled", scale.unit_map

    def forward(self, values: Tensor) -> Tensor:
        """Map values (vectors, inputs) to latents (vectors, latent)."""
        inputs = self._unit_map.to_unit(values) if self._scaled else values
        return normalise_latents(self.branch(torch.where(torch.isnan(values), 0.0, inputs)))


@torch.library.custom_op("deepmf::solve", mutates_args=())
def solve(matrices: Tensor, right: Tensor) -> Tensor:
    """Return the solutions (n, unknowns, 1) of positive definite systems, as one operator of an exported graph."""
    return solve_cholesky(matrices, right).contiguous()


@solve.register_fake
def _(matrices: Tensor, right: Tensor) -> Tensor:
    return torch.empty_like(right)


class RefinedBranch(nn.Module):
    """A side of OrdinalDMF that reads values as they are: its views, refined as `Refinement` does it.

    ONNX has no operator that solves a system of equations: `onnx_solver` puts conjugate gradients in its place.
    """

    def __init__(self, network: nn.Module, refinement: Refinement, *, scale: Scale) -> None:
        super().__init__()
        self.network = network  # the branch and the head of the refinement
        self._refinement, self._unit_map = replace(refinement, solve=solve), scale.unit_map
        with torch.no_grad():  # constants of the graph are computed now
            self.eval()(torch.full((1, refinement.side.views.shape[1]), float("nan")))

    def forward(self, values: Tensor) -> Tensor:
        """Map values (vectors, inputs) to latents (vectors, latent)."""
        side, units = self._refinement.side, self._unit_map.to_unit(values)
        seen = torch.where(side.views, units[:, None], float("nan")).flatten(0, 1)
        outputs = side.branch(make_channels(seen, values.shape[1])).reshape(values.shape[0], len(side.views), -1)
        real = ~torch.isnan(values)
        every = torch.arange(values.shape[1])[None]
        return self._refinement.refine_outputs(outputs, PaddedEntries(every, torch.where(real, units, 0.0), real))


class LinearBranch(nn.Module):
    """A refined side of OrdinalDMF with its linear part.

    fields: where the linear part lies in latents.
    """

    def __init__(self, refined: RefinedBranch, solution: nn.Module, part: LinearPart, *, fields: slice) -> None:
        super().__init__()
        self.refined, self.solution, self._blend, self._fields = refined, solution, part.blend, fields

    def forward(self, values: Tensor) -> Tensor:
        """Map values (vectors, inputs) to latents (vectors, latent)."""
        latents = self.refined(values)
        factors, effects = self.solution(values)
        linear = self._place(factors, effects, torch.ones_like(effects), latents[:, -1:])
        return torch.cat([latents[:, : self._fields.start], linear, latents[:, self._fields.stop :]], dim=1)

    def _place(self, factors: Tensor, effects: Tensor, ones: Tensor, log_slopes: Tensor) -> Tensor:
        raise NotImplementedError


class LinearRows(LinearBranch):
    """Rows, whose linear part is weighted."""

    def _place(self, factors: Tensor, effects: Tensor, ones: Tensor, log_slopes: Tensor) -> Tensor:
        nothing = 0.0 * ones  # neither a mean nor deviations, which draws alone use
        weight = self._blend.weight * (-log_slopes).exp()
        return torch.cat([factors, effects, ones, nothing, nothing, nothing], dim=1) * weight


class LinearColumns(LinearBranch):
    """Columns, whose share of the linear part depends on their number of entries."""

    def forward(self, values: Tensor) -> Tensor:
        """Map values (vectors, inputs) to latents (vectors, latent)."""
        latents, fields = super().forward(values), self._fields
        share, few_count = self._blend.share, self._blend.few_count
        if few_count == 0.0:
            return latents
        counts = (~torch.isnan(values)).sum(1, keepdim=True).float()
        shares = share * (1.0 - 0.5 / (1.0 + (counts / few_count).square()))
        balanced = latents * ((1.0 - shares) / (1.0 - share))
        linear = latents[:, fields] * (shares / share)
        return torch.cat([balanced[:, : fields.start], linear, balanced[:, fields.stop :]], dim=1)

    def _place(self, factors: Tensor, effects: Tensor, ones: Tensor, log_slopes: Tensor) -> Tensor:
        return torch.cat([factors, ones, effects, ones, 0.0 * ones, 0.0 * ones], dim=1)


class SampledSolution(nn.Module):
    """Samples of the posterior: the conditional means of `gibbs/` in each sample, given its draws of the other side.

    factor: of the latents of this side; the product of both sides is an average over samples.
    projection: (samples x latent, projected) of the factors of all samples; None: they stay as they are.
    """

    lines: Tensor  # (samples, inputs, latent + 1) the last for the effect; times the root of the reliability
    roots: Tensor  # (samples, 1, inputs) these roots
    effects: Tensor  # (samples, 1, inputs)
    weights: Tensor  # (samples, inputs, latent + 1)
    means: Tensor  # (samples, 1, latent + 1)
    averages: Tensor
    centres: Tensor
    precisions: Tensor  # (samples, latent + 1, latent + 1)
    alphas: Tensor  # (samples, 1, 1)

    projection: Tensor | None

    def __init__(
        self,
        model: SampledModel,
        own: AxisSamples,
        others: AxisSamples,
        *,
        factor: float,
        projection: LatentArray | None,
    ) -> None:
        super().__init__()
        self.register_buffer("projection", None if projection is None else torch.from_numpy(factor * projection))
        draws = torch.from_numpy(others.draws.astype(np.float32))
        roots = torch.from_numpy(others.reliabilities.astype(np.float32)).sqrt()
        self._units, self._factor = model.encoder.units, factor
        tensors = {
            "lines": functional.pad(draws[..., :-1], (0, 1), value=1.0) * roots[..., None],
            "roots": roots[:, None],
            "effects": draws[:, None, :, -1],
            "weights": torch.from_numpy(own.weights[:, : draws.shape[1]].astype(np.float32)),
            "means": torch.from_numpy(own.means)[:, None],
            "averages": torch.from_numpy(own.averages)[:, None],
            "centres": torch.from_numpy(own.centres)[:, None],
            "precisions": torch.from_numpy(own.precisions),
            "alphas": torch.from_numpy(model.encoder.samples.alphas)[:, None, None],
        }
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.contiguous())

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return factors (vectors, samples x latent or projected) and effects (vectors, 1)."""
        real = ~torch.isnan(values)
        scores = self._score(values)
        left = torch.where(real, (scores - self._units.mean) / self._units.deviation - self.effects, 0.0)
        seen = real.float()
        counts = seen.sum(1, keepdim=True)
        shares = counts / (counts + AVERAGE_COUNT)
        present = (seen @ self.weights) * (shares / counts.clamp_min(1.0).sqrt())
        centred = CENTRE_COUNT / (counts + CENTRE_COUNT) * self.centres
        priors = self.means + present + (1.0 - shares) * self.averages + centred
        # Of one sample after another: a table of all would have as many times the size.
        systems = [
            (
                alpha * ((lines * seen[..., None]).mT @ lines) + precision,
                (alpha * rest * roots) @ lines + prior @ precision,
            )
            for alpha, lines, roots, precision, rest, prior in zip(
                self.alphas, self.lines, self.roots, self.precisions, left, priors, strict=True
            )
        ]
        matrices, right = (torch.stack(each, dim=1).flatten(0, 1) for each in zip(*systems, strict=True))
        found = solve(matrices, right[..., None]).reshape(values.shape[0], len(self.alphas), -1)
        effects = self._units.deviation * found[..., -1].mean(1, keepdim=True)
        factors = found[..., :-1].flatten(1)
        return self._factor * factors if self.projection is None else factors @ self.projection, effects

    def _score(self, values: Tensor) -> Tensor:
        """Return the scores of values, as `Units.score` does."""
        if self._units.knots is None:
            return values
        at, scores = self._units.knots.tolist()
        total: Tensor = 0.0 * values + scores[0]
        for start, end, low, high in zip(at[:-1], at[1:], scores[:-1], scores[1:], strict=True):
            total = total + (high - low) / (end - start) * (values - start).clamp(0.0, end - start)
        return total


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
    coverages: the stated coverages of `PredictiveDistribution.measure_coverages`; None: without calibration.
    """

    linear_cutpoints: Tensor
    coverages: Tensor | None

    def __init__(self, head: OrdinalHead, linear: LinearPart | None, coverages: FloatArray | None) -> None:
        super().__init__()
        self.head, self._linear_share = head, 0.0 if linear is None else linear.blend.share
        self.register_buffer("linear_cutpoints", None if linear is None else torch.from_numpy(linear.cutpoints))
        self.register_buffer("coverages", None if coverages is None else torch.from_numpy(coverages).float())

    def forward(self, row_latents: Tensor, column_latents: Tensor) -> tuple[Tensor, ...]:
        """Return the prediction (rows, columns) and the probabilities (rows, columns, values) of every pair."""
        response, share = row_latents[:, None, -self.head.n_response :], self._linear_share
        logits = (1.0 - share) * self.head.logits(row_latents @ column_latents.T, response)
        if share:
            logits = logits - share * self.linear_cutpoints
        exceeded = functional.pad(functional.pad(self._calibrate(logits.sigmoid()), (1, 0), value=1.0), (0, 1))
        return self.head.expectation(logits), exceeded[..., :-1] - exceeded[..., 1:]

    def _calibrate(self, exceedance: Tensor) -> Tensor:
        if self.coverages is None:
            return exceedance
        from_median, held = 2.0 * exceedance - 1.0, torch.zeros_like(exceedance)
        for below, above in itertools.pairwise(self.coverages):
            held = held + ((from_median.abs() - below) / (above - below)).clamp(0.0, 1.0) / (len(self.coverages) - 1)
        return (1.0 + from_median.sign() * held) / 2.0


def _make_dmf(model: DMF | DMFD) -> ExportModules:
    inputs, scale, network = model.settings.inputs, model.scale_, model.network_
    rows, columns = (ExportBranch(branch, inputs=inputs, scale=scale) for branch in (network.rows, network.columns))
    if isinstance(model, DMFD):
        head: nn.Module = QuantizingHead(scale, network.quantizer)
        return ExportModules(rows, columns, head, ["predictions", "scores"]).eval()
    return ExportModules(rows, columns, CosineHead(scale), ["predictions"]).eval()


def _make_ordinal_dmf(model: OrdinalDMF) -> ExportModules:
    encoder = copy.deepcopy(model.predictor_.encoder)  # on the CPU
    assert isinstance(encoder, OrdinalEncoder)
    network, scale, trained_rows = encoder.network, model.scale_, model.predictor_.rows.base
    rows: nn.Module
    columns: nn.Module
    rows = of_rows = RefinedBranch(network, encoder.row_refinement(), scale=scale)
    columns = of_columns = RefinedBranch(network, encoder.column_refinement(trained_rows), scale=scale)
    if encoder.linear is not None:
        part, fields = encoder.linear, encoder.layout.linear
        row_solution, column_solution = _make_solutions(part)
        rows = LinearRows(of_rows, row_solution, part, fields=fields)
        columns = LinearColumns(of_columns, column_solution, part, fields=fields)
    coverages = encoder.coverages if scale.levels is None else None  # levels keep their probabilities
    head = DistributionHead(network.head, encoder.linear, coverages)
    return ExportModules(rows, columns, head, ["predictions", "probabilities"]).eval()


def read_latents(model: Model, table: Latents) -> LatentArray:
    """Return the latents of all rows, or columns, as branches make them: without deviations, which draws alone use."""
    encoder, latents = model.predictor_.encoder, table.whole()
    if isinstance(encoder, OrdinalEncoder) and encoder.linear is not None:
        end = encoder.layout.linear.stop
        latents = latents.copy()
        latents[:, end - 2 : end] = 0.0
    return latents


def _make_solutions(part: LinearPart) -> tuple[nn.Module, nn.Module]:
    """Return the modules that compute the factors and effects of rows, and of columns."""
    model = part.model
    samples, factor = model.encoder.samples, model.encoder.units.deviation / model.n_samples
    rows, columns = samples.rows, samples.columns
    projections = model.encoder.projection or (None, None)
    return (
        SampledSolution(model, rows, columns, factor=factor, projection=projections[0]),
        SampledSolution(model, columns, rows, factor=1.0, projection=projections[1]),
    )


_MAKERS: dict[type[Model], Callable[..., ExportModules]] = {
    DMF: _make_dmf,
    DMFD: _make_dmf,
    OrdinalDMF: _make_ordinal_dmf,
}


FORMAT = 1

FILES = (
    "rows.onnx",
    "columns.onnx",
    "head.onnx",
    "relevance.onnx",
    "row_latents.npy",
    "column_latents.npy",
    "model.json",
)


_OPSET = 18  # the version of ONNX's operators, known to every ONNX runtime since 2023

_MOST_BYTES = 2**31 - 2**20  # of weights: an ONNX file cannot be larger than 2 GiB


def export_onnx(model: Model, folder: str | Path) -> list[Path]:
    """Write a fitted model to a folder of ONNX files, and return the files.

    An earlier export is replaced only when the new one is complete; a folder with other files is refused.

    ======================================  ==========================================================================
    rows.onnx                               row_values (rows, trained columns), NaN where missing -> row_latents
    columns.onnx                            column_values (columns, trained rows), NaN where missing -> column_latents
    head.onnx                               row_latents, column_latents -> predictions (rows, columns); DMFD adds
                                            scores (rows, columns), OrdinalDMF probabilities (rows, columns, values)
    relevance.onnx                          row_values and an output of the head (see its inputs) -> presence, liked and
                                            relevance (rows, columns); if the model has a presence part by EASE
    row_latents.npy, column_latents.npy     latents of all rows and columns, in single precision
    model.json                              their labels in the same order, the scale, the support of distributions,
                                            and the number of trained rows and columns
    ======================================  ==========================================================================
    """
    parts, place = make_modules(model), Path(folder)
    check_weights(parts)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotSave(f"{place} cannot be a folder ({error.strerror}); nothing was changed") from error
    check_parts(place, is_part=is_part)
    if model.entries_.row_features is not None or model.entries_.column_features is not None:
        warn(
            "rows.onnx and columns.onnx read entries alone: what features say is in the latents of known rows and "
            "columns"
        )
    latents = {"row_latents": model.predictor_.rows, "column_latents": model.predictor_.columns}
    whole = _build_graph(parts, *model.entries_.train.shape)
    contents = {
        "rows.onnx": _extract_part(whole, ["row_values"], ["row_latents"]),
        "columns.onnx": _extract_part(whole, ["column_values"], ["column_latents"]),
        "head.onnx": _extract_part(whole, list(latents), parts.outputs),
        **_build_relevance(model, parts.outputs),
    }
    for name, table in latents.items():
        stream = io.BytesIO()
        np.save(stream, read_latents(model, table), allow_pickle=False)
        contents[f"{name}.npy"] = stream.getvalue()
    contents["model.json"] = json.dumps(describe_model(model), ensure_ascii=False).encode()
    return replace_export(place, contents)


def replace_export(place: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write the files of an export to a folder, all or none; those of an earlier export go."""
    assert set(contents) <= set(FILES)

    def write(whole: Path) -> None:
        for name, content in contents.items():
            (whole / name).write_bytes(content)

    write_parts(place, write, is_part=is_part)
    return [place / name for name in contents]


def check_weights(parts: ExportModules, *, most_bytes: int = _MOST_BYTES) -> None:
    """Refuse weights that no ONNX file holds."""
    n_bytes = sum(parameter.nbytes for parameter in parts.parameters())
    if n_bytes > most_bytes:
        raise BadSetting(
            f"the branches have {n_bytes / 2**30:.1f} GiB of weights; an ONNX file holds 2 GiB, "
            "so smaller hidden_sizes could be exported"
        )


def make_relevance(model: Model, outputs: Sequence[str]) -> RelevanceModule | None:
    """Return the module of relevance, or None with a warning if the model has no presence part that can be exported.

    outputs: the outputs of the head.
    """
    presence = model.rankers_.presence
    if presence is None or (model.gives_distribution and model.support_.size == 1):
        return None
    if presence.kind != "full":
        warn("relevance.onnx is left out: there are too many columns to regress each on all others")
        return None
    scored = next(name for name in ("probabilities", "scores", "predictions") if name in outputs)
    return RelevanceModule(model, presence, scored).eval()


def _build_relevance(model: Model, outputs: Sequence[str]) -> dict[str, bytes]:
    module = make_relevance(model, outputs)
    if module is None:
        return {}
    of_values = (model.support_.size,) if model.gives_distribution else ()
    scored = torch.zeros((2, len(model.entries_.columns), *of_values))
    given = torch.zeros(2, model.entries_.train.shape[1]), scored
    graph = _export_graph(module, given, ["rows", "rows"], module.inputs, RELEVANCE_OUTPUTS)
    content: bytes = graph.SerializeToString()
    return {"relevance.onnx": content}


def is_part(file: Path) -> bool:
    """Return whether a file may belong to an earlier export."""
    return file.is_file() and file.name in FILES


def _build_graph(parts: ExportModules, n_rows: int, n_columns: int) -> Any:
    given = torch.zeros(2, n_columns, dtype=torch.float32), torch.zeros(3, n_rows, dtype=torch.float32)
    outputs = ["row_latents", "column_latents", *parts.outputs]
    whole = _export_graph(parts, given, ["rows", "columns"], ["row_values", "column_values"], outputs)
    with _silence_exporter():
        from deepmf.export.onnx_solver import enclose_constants

        enclose_constants(whole.graph)
    return whole


def _export_graph(
    module: nn.Module, given: tuple[Tensor, ...], sizes: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]
) -> Any:
    """Return the ONNX graph of a module; `sizes` name the first axes of its inputs, which stay open."""
    dimensions = {name: torch.export.Dim(name) for name in sizes}
    with _silence_exporter():
        from deepmf.export.onnx_solver import list_translations

        program = torch.onnx.export(
            module,
            given,
            dynamo=True,
            verbose=False,
            opset_version=_OPSET,
            custom_translation_table=list_translations(),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=[{0: dimensions[name]} for name in sizes],
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # they hold paths of the source on this computer
    return program.model_proto


def _extract_part(whole: Any, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return the part of a graph between some inputs and outputs, as the bytes of an ONNX file."""
    from onnx.utils import Extractor

    part = Extractor(whole).extract_model(list(inputs), list(outputs))
    # Constants that only the body of a loop reads: no input of a node names them.
    inner = [node for outer in part.graph.node for each in outer.attribute for node in each.g.node]
    missing = {name for node in inner for name in node.input} - {each.name for each in part.graph.initializer}
    part.graph.initializer.extend(each for each in whole.graph.initializer if each.name in missing)
    content: bytes = part.SerializeToString()
    return content


def describe_model(model: Model) -> dict[str, Any]:
    """Return the content of `model.json`."""
    n_rows, n_columns = model.entries_.train.shape
    # The values of the last axis of probabilities.
    support = {"support": model.support_.tolist()} if model.gives_distribution else {}
    return {
        "format": FORMAT,
        "model": type(model).__name__,
        "scale": model.scale_.to_dict(),
        **support,
        "trained_rows": n_rows,  # the first of `rows`
        "trained_columns": n_columns,
        "rows": _encode_labels(model.entries_.rows),
        "columns": _encode_labels(model.entries_.columns),
    }


def _encode_labels(labels: Labels) -> list[Any]:
    """Return labels for JSON: numbers and strings as they are, dates, UUIDs and bytes as text."""
    kind = find_stored_kind(labels)
    items: list[Any] = labels.array.tolist()
    return [AS_TEXT[kind].write(item) for item in items] if kind in AS_TEXT and kind != "bool" else items


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence warnings of torch's exporter about torch itself and about packages that are not needed."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingDependency("export needs onnx and onnxscript: pip install 'deepmf[onnx]'") from error
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", "# The axis name", UserWarning)  # two inputs have as many rows
            yield
    finally:
        log.setLevel(level)


RELEVANCE_OUTPUTS = ("presence", "liked", "relevance")


class RelevanceModule(nn.Module):
    """Both probabilities of relevance and their product, for rows with some entries and all columns of a model.

    inputs: the names of its inputs: "row_values" (rows, trained columns), NaN where nothing is observed, and the output
        of the head that liking is read from.
    """

    weights: Tensor
    popularity: Tensor
    raised: Tensor
    empty_scores: Tensor
    levels: Tensor | None
    lower_ends: Tensor
    edges: Tensor | None

    def __init__(self, model: Model, presence: Presence, scored: str) -> None:
        super().__init__()
        readout = model.predictor_.readout
        popularity = model.rankers_.popularity
        self.inputs = ("row_values", scored)
        self._presence, self._mean = presence, model.rankers_.entries.train.mean
        levels = model.scale_.levels
        first = np.zeros(1, dtype=np.int64)
        edges = model.predictor_.distribution(first, first).edges if readout.gives_distribution else None
        self.register_buffer("weights", torch.tensor(presence.model.take_weights(np.arange(popularity.size))))
        self.register_buffer("popularity", torch.tensor(popularity))
        self.register_buffer("raised", torch.tensor(model.rankers_.factors))
        relevance = model.make_ranker(Request(rank_by="relevance")).relevance
        assert relevance is not None
        self.register_buffer("empty_scores", torch.tensor(relevance.empty_scores))
        self.register_buffer("levels", None if levels is None else torch.tensor(levels, dtype=torch.float32))
        ends = np.empty(0) if levels is None else np.maximum(readout.lower_ends(levels), -1e30)  # the first is infinite
        self.register_buffer("lower_ends", torch.tensor(ends, dtype=torch.float32))
        self.register_buffer("edges", None if edges is None else torch.tensor(edges, dtype=torch.float32))

    def forward(self, row_values: Tensor, scored: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return presence, liked and relevance, each (rows, columns)."""
        taken = (~row_values.isnan()).float()
        presence = self._find_presence(taken)
        liked = self._find_liked(scored, self._find_thresholds(row_values.nan_to_num(0.0), taken))
        liked = liked.clamp(min=LEAST_PROBABILITY)
        return presence, liked, presence * liked**self._presence.liking_weight

    def _find_presence(self, taken: Tensor) -> Tensor:
        """Return the probabilities that entries exist, as `Presence.log_probabilities` does."""
        scores = taken @ self.weights
        scores = scores + self._presence.popularity_share * self.popularity
        if self._presence.popularity_power:
            scores = scores * self.raised
        scores = torch.where(taken.sum(dim=1, keepdim=True) > 0, scores, self.empty_scores)
        return torch.sigmoid(self._presence.intercept + self._presence.score_power * make_positive(scores).log())

    def _find_thresholds(self, values: Tensor, taken: Tensor) -> Tensor:
        """Return from which values on each row likes a column, (rows, 1): its mean, rounded up to a level."""
        counts = taken.sum(dim=1, keepdim=True)
        means = torch.where(counts > 0, values.sum(dim=1, keepdim=True) / counts.clamp(min=1.0), self._mean)
        if self.levels is None:
            return means
        close = 1e-5 * (self.levels[-1] - self.levels[0])  # single precision may exceed a level
        above = (self.levels < means - close).sum(dim=1).clamp(max=len(self.levels) - 1)
        return self.lower_ends[above][:, None]

    def _find_liked(self, scored: Tensor, thresholds: Tensor) -> Tensor:
        """Return the probabilities that values reach the thresholds, from distributions or from predictions."""
        if self.edges is None:
            return 0.5 * torch.erfc((thresholds - scored) / (self._presence.spread * 2**0.5))
        low, widths = self.edges[:-1], (self.edges[1:] - self.edges[:-1]).clamp(min=1e-30)
        above = 1.0 - ((thresholds[:, :, None] - low) / widths).clamp(0.0, 1.0)  # the part of each bin
        return (scored * above).sum(dim=2)
