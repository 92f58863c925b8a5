"""Export a model to a folder of ONNX files, with the latents and labels that a service needs."""

from __future__ import annotations

import copy
import itertools
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.errors import BadSetting, Hint, import_optional, warn
from deepmf.files import check_parts, write_folder_atomically
from deepmf.matrix.arrays import FloatArray, LatentArray
from deepmf.matrix.labels import AS_TEXT, Labels, find_stored_kind
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD, Quantizer
from deepmf.models.gibbs.prior import AVERAGE_COUNT, CENTRE_COUNT
from deepmf.models.ordinal.encoder import OrdinalEncoder
from deepmf.models.ordinal.head import OrdinalHead
from deepmf.models.ordinal.linear_part import LinearPart
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.models.ordinal.refinement import PaddedEntries, Refinement, solve_cholesky
from deepmf.models.registry import MODELS
from deepmf.nn.branch import Branch, normalise_latents
from deepmf.nn.inputs import make_channels
from deepmf.scoring.latents import Latents


class ExportModules(NamedTuple):
    """The row branch and the head of a model.

    rows: maps values (rows, trained columns), NaN where nothing is observed, to latents (rows,
    latent). head: maps row latents and column latents to a tuple with a tensor (rows, columns, ...)
    for each of `outputs`.
    """

    rows: nn.Module
    head: nn.Module
    outputs: tuple[str, ...]


def make_modules(model: Model) -> ExportModules:
    """Return the modules of a fitted model; raise `BadSetting` for a model that cannot be
    exported."""
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
    parts = make(model)
    parts.rows.eval()
    parts.head.eval()
    return parts


class ExportBranch(nn.Module):
    """A branch that maps values in the units of the scale, NaN where missing, to latents of length
    1."""

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
    """Return the solutions (n, unknowns, 1) of positive definite systems, as one operator of an
    exported graph."""
    return solve_cholesky(matrices, right).contiguous()


@solve.register_fake
def _(matrices: Tensor, right: Tensor) -> Tensor:
    return torch.empty_like(right)


class RefinedBranch(nn.Module):
    """A side of OrdinalDMF that reads values as they are: its views, refined as `Refinement` does
    it.

    ONNX has no operator that solves a system of equations: `onnx_solver` puts conjugate gradients
    in its place.
    """

    def __init__(self, network: nn.Module, refinement: Refinement, *, scale: Scale) -> None:
        super().__init__()
        self.network = network  # the branch and the head of the refinement
        self._refinement, self._unit_map = replace(refinement, solve=solve), scale.unit_map
        with torch.no_grad():  # constants of the graph are computed now
            self.eval()(torch.full((1, refinement.views.shape[1]), float("nan")))

    def forward(self, values: Tensor) -> Tensor:
        """Map values (vectors, inputs) to latents (vectors, latent)."""
        views, units = self._refinement.views, self._unit_map.to_unit(values)
        seen = torch.where(views, units[:, None], float("nan")).flatten(0, 1)
        read = make_channels(seen, values.shape[1])
        outputs = self._refinement.branch(read).reshape(values.shape[0], len(views), -1)
        real = ~torch.isnan(values)
        every = torch.arange(values.shape[1])[None]
        padded = PaddedEntries(every, torch.where(real, units, 0.0), real)
        return self._refinement.refine_outputs(outputs, padded, [self._refinement.penalty])[0]


class LinearBranch(nn.Module):
    """The refined rows of OrdinalDMF with their linear part, which lies in some fields of the
    latents."""

    def __init__(self, refined: RefinedBranch, part: LinearPart, fields: slice) -> None:
        super().__init__()
        self.refined, self.solution, self.blend, self.fields = (
            refined,
            SampledSolution(part),
            part.blend,
            fields,
        )

    def forward(self, values: Tensor) -> Tensor:
        """Map values (rows, inputs) to latents (rows, latent)."""
        latents = self.refined(values)
        factors, effects = self.solution(values)
        ones, nothing = torch.ones_like(effects), torch.zeros_like(effects)
        # Neither a mean nor deviations, which draws alone use.
        linear = torch.cat([factors, effects, ones, nothing, nothing, nothing], dim=1)
        linear = linear * (self.blend.weight * (-latents[:, -1:]).exp())
        return torch.cat(
            [latents[:, : self.fields.start], linear, latents[:, self.fields.stop :]], dim=1
        )


class SampledSolution(nn.Module):
    """Samples of the posterior: the conditional means of rows (`gibbs/`) in each sample, given its
    draws of columns.

    projection: (samples x latent, projected) of the factors of all samples; None: they stay as they
    are.
    """

    # (samples, inputs, latent + 1) the last for the effect; times the root of the reliability
    lines: Tensor
    roots: Tensor  # (samples, 1, inputs) these roots
    effects: Tensor  # (samples, 1, inputs)
    weights: Tensor  # (samples, inputs, latent + 1)
    means: Tensor  # (samples, 1, latent + 1)
    averages: Tensor
    centres: Tensor
    precisions: Tensor  # (samples, latent + 1, latent + 1)
    alphas: Tensor  # (samples, 1, 1)

    projection: Tensor | None

    def __init__(self, part: LinearPart) -> None:
        super().__init__()
        model, samples = part.model, part.model.samples
        own, others = samples.rows, samples.columns
        self._units = model.units
        # the product of both sides is an average over samples
        self._factor = self._units.deviation / samples.n_samples
        projection = None if model.projection is None else model.projection[0]
        self.register_buffer(
            "projection",
            None if projection is None else torch.from_numpy(self._factor * projection),
        )
        draws = torch.from_numpy(others.draws.astype(np.float32))
        roots = torch.from_numpy(others.reliabilities.astype(np.float32)).sqrt()
        tensors = {
            "lines": functional.pad(draws[..., :-1], (0, 1), value=1.0) * roots[..., None],
            "roots": roots[:, None],
            "effects": draws[:, None, :, -1],
            "weights": torch.from_numpy(own.weights[:, : draws.shape[1]].astype(np.float32)),
            "means": torch.from_numpy(own.means)[:, None],
            "averages": torch.from_numpy(own.averages)[:, None],
            "centres": torch.from_numpy(own.centres)[:, None],
            "precisions": torch.from_numpy(own.precisions),
            "alphas": torch.from_numpy(samples.alphas)[:, None, None],
        }
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.contiguous())

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return factors (vectors, samples x latent or projected) and effects (vectors, 1)."""
        real = ~torch.isnan(values)
        scores = self._score(values)
        left = torch.where(
            real, (scores - self._units.mean) / self._units.deviation - self.effects, 0.0
        )
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
        matrices, right = (
            torch.stack(each, dim=1).flatten(0, 1) for each in zip(*systems, strict=True)
        )
        found = solve(matrices, right[..., None]).reshape(values.shape[0], len(self.alphas), -1)
        effects = self._units.deviation * found[..., -1].mean(1, keepdim=True)
        factors = found[..., :-1].flatten(1)
        return (
            self._factor * factors if self.projection is None else factors @ self.projection,
            effects,
        )

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
    coverages: the stated coverages of `PredictiveDistribution.measure_coverages`; None: without
    calibration.
    """

    linear_cutpoints: Tensor
    coverages: Tensor | None

    def __init__(
        self, head: OrdinalHead, linear: LinearPart | None, coverages: FloatArray | None
    ) -> None:
        super().__init__()
        self.head, self._linear_share = head, 0.0 if linear is None else linear.blend.share
        self.register_buffer(
            "linear_cutpoints", None if linear is None else torch.from_numpy(linear.cutpoints)
        )
        self.register_buffer(
            "coverages", None if coverages is None else torch.from_numpy(coverages).float()
        )

    def forward(self, row_latents: Tensor, column_latents: Tensor) -> tuple[Tensor, ...]:
        """Return the prediction (rows, columns) and the probabilities (rows, columns, values) of
        every pair."""
        response, share = row_latents[:, None, -self.head.n_response :], self._linear_share
        logits = (1.0 - share) * self.head.logits(row_latents @ column_latents.T, response)
        if share:
            logits = logits - share * self.linear_cutpoints
        exceeded = functional.pad(
            functional.pad(self._calibrate(logits.sigmoid()), (1, 0), value=1.0), (0, 1)
        )
        return self.head.expectation(logits), exceeded[..., :-1] - exceeded[..., 1:]

    def _calibrate(self, exceedance: Tensor) -> Tensor:
        if self.coverages is None:
            return exceedance
        from_median, held = 2.0 * exceedance - 1.0, torch.zeros_like(exceedance)
        for below, above in itertools.pairwise(self.coverages):
            held = held + ((from_median.abs() - below) / (above - below)).clamp(0.0, 1.0) / (
                len(self.coverages) - 1
            )
        return (1.0 + from_median.sign() * held) / 2.0


def _make_dmf(model: DMF | DMFD) -> ExportModules:
    scale, network = model.scale_, model.network_
    rows = ExportBranch(network.rows, inputs=model.settings.inputs, scale=scale)
    if isinstance(model, DMFD):
        return ExportModules(
            rows, QuantizingHead(scale, network.quantizer), ("predictions", "scores")
        )
    return ExportModules(rows, CosineHead(scale), ("predictions",))


def _make_ordinal(model: OrdinalDMF) -> ExportModules:
    encoder, scale = copy.deepcopy(model.predictor_.encoder), model.scale_  # on the CPU
    assert isinstance(encoder, OrdinalEncoder)
    refined, linear = (
        RefinedBranch(encoder.network, encoder.row_refinement(), scale=scale),
        encoder.linear,
    )
    rows = refined if linear is None else LinearBranch(refined, linear, encoder.layout.linear)
    # levels keep their probabilities
    coverages = encoder.coverages if scale.levels is None else None
    head = DistributionHead(encoder.network.head, linear, coverages)
    return ExportModules(rows, head, ("predictions", "probabilities"))


def read_latents(model: Model, table: Latents) -> LatentArray:
    """Return the latents of all rows, or columns, as branches make them: without deviations, which
    draws alone use."""
    encoder, latents = model.predictor_.encoder, table.whole()
    if isinstance(encoder, OrdinalEncoder) and encoder.linear is not None:
        end = encoder.layout.linear.stop
        latents = latents.copy()
        latents[:, end - 2 : end] = 0.0
    return latents


_MAKERS: dict[type[Model], Callable[..., ExportModules]] = {
    DMF: _make_dmf,
    DMFD: _make_dmf,
    OrdinalDMF: _make_ordinal,
}


FORMAT = 1

FILES = ("rows.onnx", "head.onnx", "row_latents.npy", "column_latents.npy", "model.json")

_OPSET = 18  # the version of ONNX's operators, known to every ONNX runtime since 2023
_MOST_BYTES = 2**31 - 2**20  # of weights: an ONNX file cannot be larger than 2 GiB


def export_onnx(model: Model, folder: str | Path) -> list[Path]:
    """Write a fitted model to a folder of ONNX files, and return the files.

    An earlier export is replaced only when the new one is complete; a folder with other files is
    refused.

    ======================================
    ========================================================================== rows.onnx
    row_values (rows, trained columns), NaN where missing -> row_latents head.onnx
    row_latents, column_latents -> predictions (rows, columns); DMFD adds
                                            scores (rows, columns), OrdinalDMF probabilities (rows,
                                            columns, values)
    row_latents.npy, column_latents.npy     latents of all rows and columns, in single precision
    model.json                              their labels in the same order, the scale, the support
    of distributions,
                                            and the number of trained rows and columns
    ======================================
    ==========================================================================
    """
    parts, place = make_modules(model), Path(folder)
    n_bytes = sum(parameter.nbytes for parameter in parts.rows.parameters())
    if n_bytes > _MOST_BYTES:
        raise BadSetting(
            f"the branch of rows has {n_bytes / 2**30:.1f} GiB of weights; an ONNX file holds 2 GiB, "
            "so smaller hidden_sizes could be exported"
        )
    check_parts(place, is_part=_is_part)
    if model.entries_.row_features is not None:
        warn("rows.onnx reads entries alone: what features say is in the latents of known rows")
    latents = {"row_latents": model.predictor_.rows, "column_latents": model.predictor_.columns}
    row_values = torch.zeros(2, model.entries_.train.shape[1])
    some = [
        torch.zeros(size, table.base.shape[1])
        for size, table in zip((2, 3), latents.values(), strict=True)
    ]
    contents = {
        "rows.onnx": _export(parts.rows, {"row_values": row_values}, ["row_latents"]),
        "head.onnx": _export(parts.head, dict(zip(latents, some, strict=True)), parts.outputs),
        "model.json": json.dumps(describe_model(model), ensure_ascii=False).encode(),
    }

    def write(whole: Path) -> None:
        for name, content in contents.items():
            (whole / name).write_bytes(content)
        for name, table in latents.items():
            np.save(whole / f"{name}.npy", read_latents(model, table), allow_pickle=False)

    write_folder_atomically(place, write, is_part=_is_part)
    return [place / name for name in FILES]


def _is_part(file: Path) -> bool:
    return file.is_file() and file.name in FILES


def _export(module: nn.Module, inputs: dict[str, Tensor], outputs: Sequence[str]) -> bytes:
    """Return a module as an ONNX file; the numbers of rows and columns in its inputs stay open."""
    with _silence_exporter():
        from deepmf.export.onnx_solver import conjugate_gradients

        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            dynamo=True,
            verbose=False,
            opset_version=_OPSET,
            custom_translation_table={torch.ops.deepmf.solve.default: conjugate_gradients},
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=[{0: torch.export.Dim(f"{name.partition('_')[0]}s")} for name in inputs],
        )
        assert program is not None
        for node in program.model.graph:
            node.metadata_props.clear()  # they hold paths of the source on this computer
        content: bytes = program.model_proto.SerializeToString()
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
    return (
        [AS_TEXT[kind].write(item) for item in items]
        if kind in AS_TEXT and kind != "bool"
        else items
    )


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence warnings of torch's exporter about torch itself and about packages that are not
    needed."""
    import_optional("onnxscript", what="export needs onnx and onnxscript", install="'deepmf[onnx]'")
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        log.setLevel(level)
