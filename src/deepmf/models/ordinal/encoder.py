"""From a trained network to the encoder: landmarks, penalties, rounds of refinement, and the linear part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from deepmf.errors import BadModelFile
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.scale import ENCODINGS, Scale
from deepmf.models.als import ALS, ALSSettings, RidgeEncoder
from deepmf.models.distribution import PredictiveDistribution
from deepmf.models.fitting import Fitting
from deepmf.models.latents import Latents, pair_products
from deepmf.models.means import load_feature_weights
from deepmf.models.network_model import NetworkEncoder, sparse_vectors
from deepmf.models.ordinal.head import LatentLayout
from deepmf.models.ordinal.linear_part import (
    Blend,
    LearnedLinear,
    LinearPart,
    SolvedLinear,
    best_blend,
    error_of,
    linear_size,
    solved_linear,
)
from deepmf.models.ordinal.network import OrdinalNetwork
from deepmf.models.ordinal.refinement import (
    HeldOutSide,
    Landmarks,
    Penalties,
    Refinement,
    best_penalty,
    column_side,
    landmarks_among,
    row_side,
)
from deepmf.models.ordinal.settings import OrdinalDMFSettings
from deepmf.models.ordinal.views import entry_parts
from deepmf.nn.inputs import SparseVectors
from deepmf.storage.model_file import Packed, Tensors, field
from deepmf.training.blocks import MatrixBlocks
from deepmf.training.loop import ValidationEntries

# The largest penalty or weight that a file may hold.
_LARGEST = 1e12


class OrdinalEncoder(NetworkEncoder):
    """Views of the entries by the network, averaged, and refined along landmarks and along rows.

    landmarks: the directions (landmarks, direction) that give the features of columns in the refinement of rows.
    refinement_columns: the latents of the trained columns that rows are refined by, a round behind the final ones;
        those of the linear part are the ones that it begins with.
    penalties: the ridge penalties of the refinement of rows and of columns.
    linear: the linear part, where there is one.
    coverages: those stated by intervals that hold evenly spaced shares of held-out values; None: the shares.
    """

    network: OrdinalNetwork

    def __init__(
        self,
        network: OrdinalNetwork,
        scale: Scale,
        *,
        landmarks: LatentArray,
        refinement_columns: LatentArray,
        penalties: Penalties,
        linear: LinearPart | None = None,
        coverages: FloatArray | None = None,
    ) -> None:
        super().__init__(network)
        self.linear, self.coverages = linear, coverages
        self.landmarks, self.refinement_columns, self.penalties = landmarks, refinement_columns, penalties
        self.scale = scale

    @property
    def layout(self) -> LatentLayout:
        """The fields of latents."""
        return replace(
            self.network.layout,
            n_landmarks=len(self.landmarks),
            n_linear=0 if self.linear is None else self.linear.width,
        )

    @property
    def linear_share(self) -> float:
        """How much of the logits belongs to the linear part."""
        return 0.0 if self.linear is None else self.linear.blend.share

    @property
    def linear_cutpoints(self) -> LatentArray | None:
        """The cutpoints of the linear part, where there is one."""
        return None if self.linear is None else self.linear.cutpoints(self.network.head)

    @torch.no_grad()
    def rows(self, entries: AxisEntries, columns: Latents) -> LatentArray:
        """Return the latents of rows."""
        return self._with_linear_rows(self._refined(self.row_refinement(), entries), entries)

    @torch.no_grad()
    def columns(self, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return the latents of columns."""
        refined = self._refined(self.column_refinement(rows.base), entries)
        return self._with_linear_columns(refined, entries, rows)

    @torch.no_grad()
    def rows_without_each(self, entries: AxisEntries, left_out: IndexArray, columns: Latents) -> LatentArray:
        """Return the latents of a single row without each of some of its entries."""
        refined = self.row_refinement().without_each(*self._to_leave_out(entries, left_out))
        return self._with_linear_rows(as_numpy(refined), entries.without_each(left_out))

    @torch.no_grad()
    def columns_without_each(self, entries: AxisEntries, left_out: IndexArray, rows: Latents) -> LatentArray:
        """Return the latents of a single column without each of some of its entries."""
        refined = self.column_refinement(rows.base).without_each(*self._to_leave_out(entries, left_out))
        return self._with_linear_columns(as_numpy(refined), entries.without_each(left_out), rows)

    def trained_rows(self, entries: EntryStore) -> LatentArray:
        """Return the latents of all trained rows without the linear part, computed in parts that fit into memory."""
        refinement, parts = self.row_refinement(), entry_parts(entries.train.row_counts)
        return np.concatenate([self._refined(refinement, entries.row_entries(part)) for part in parts])

    def trained_columns(self, entries: EntryStore, row_latents: LatentArray) -> LatentArray:
        """Return those of all trained columns, by the latents of the trained rows."""
        refinement, parts = self.column_refinement(row_latents), entry_parts(entries.train.column_counts)
        return np.concatenate([self._refined(refinement, entries.column_entries(part)) for part in parts])

    def _refined(self, refinement: Refinement, entries: AxisEntries) -> LatentArray:
        """Return the latents of rows, or of columns, without the linear part."""
        return as_numpy(refinement.latents(self.vectors(entries).to(self._device)))

    def row_refinement(self) -> Refinement:
        """Return the refinement of rows, by the columns that are kept for it."""
        response = self.layout.response

        def own_response(latents: Tensor, viewed: Tensor) -> Tensor:
            return latents[:, None, response].expand(-1, viewed.shape[1], -1)

        columns, side = self._on_device(self.refinement_columns), row_side(self.network, self.layout)
        return Refinement(self.network.head, side, columns, own_response, self.penalties.rows)

    def column_refinement(self, row_latents: LatentArray) -> Refinement:
        """Return the refinement of columns, by the latents of the trained rows."""
        n_response = self.layout.n_response

        def others_response(latents: Tensor, viewed: Tensor) -> Tensor:
            return viewed[..., -n_response:]

        side = column_side(self.network, self._landmarks(), self.layout)
        rows = self._on_device(row_latents)
        return Refinement(self.network.head, side, rows, others_response, self.penalties.columns)

    def join(
        self, part: LinearPart, begin: LatentArray, solved: SolvedLinear, rows: LatentArray, columns: LatentArray
    ) -> tuple[LatentArray, LatentArray]:
        """Take a linear part that begins with some columns; return the latents of all rows and columns with it."""
        start = self.layout.linear.start

        def placed(latents: LatentArray, linear: LatentArray) -> LatentArray:
            return np.hstack([latents[:, :start], linear, latents[:, start:]])

        self.linear, self.refinement_columns = part, placed(self.refinement_columns, begin)
        return placed(rows, part.weighted(solved.rows, rows[:, -1])), placed(columns, solved.columns)

    def _with_linear_rows(self, latents: LatentArray, entries: AxisEntries) -> LatentArray:
        """Return latents of rows, whose fields of the linear part are set."""
        if self.linear is not None:
            fields = self.layout.linear
            latents[:, fields] = self.linear.rows(entries, self.refinement_columns[:, fields], latents[:, -1])
        return latents

    def _with_linear_columns(self, latents: LatentArray, entries: AxisEntries, rows: Latents) -> LatentArray:
        """Return latents of columns, whose fields of the linear part are set."""
        if self.linear is not None:
            fields = self.layout.linear
            latents[:, fields] = self.linear.columns(entries, rows.base[:, fields], rows.base[:, -1])
        return latents

    def pack(self) -> Packed:
        """Return the network, landmarks, the columns that rows are refined by, and what held-out entries chose."""
        packed = super().pack()
        learned = {"refinement.columns": self.refinement_columns, "refinement.landmarks": self.landmarks}
        content = {
            "penalties": [penalty if math.isfinite(penalty) else None for penalty in self.penalties],
            "linear": None if self.linear is None else self.linear.pack(),
        }
        content |= {} if self.coverages is None else {"coverages": self.coverages.tolist()}
        of_features = {} if self.linear is None else self.linear.feature_weights.tensors()
        return Packed(packed.content | content, packed.tensors | learned | of_features)

    @property
    def _device(self) -> torch.device:
        return self.network.head.scale.device

    def _on_device(self, latents: LatentArray) -> Tensor:
        return torch.from_numpy(latents).to(self._device)

    def _to_leave_out(self, entries: AxisEntries, left_out: IndexArray) -> tuple[SparseVectors, Tensor]:
        return self.vectors(entries).to(self._device), torch.from_numpy(left_out).to(self._device)

    def _landmarks(self) -> Landmarks:
        return Landmarks(self._on_device(self.landmarks))

    def vectors(self, entries: AxisEntries) -> SparseVectors:
        """Return entries as the branches read them."""
        return sparse_vectors(entries, ENCODINGS["scaled"].encode(self.scale, entries.values))


def as_numpy(latents: Tensor) -> LatentArray:
    array: LatentArray = latents.cpu().numpy()
    return array


def stored_parts(content: Any, entries: EntryStore, tensors: Tensors) -> dict[str, Any]:
    """Return what an encoder packed of what was chosen on held-out entries; anything else raises `BadModelFile`."""
    train = entries.train
    penalties, linear = field(content, "penalties"), field(content, "linear")
    if not isinstance(penalties, list) or len(penalties) != 2:
        raise BadModelFile("the stored penalties must be two")
    kept = Penalties(*(math.inf if each is None else _positive(each, "penalty") for each in penalties))
    part = None
    if linear is not None:
        size = field(linear, "size")
        if type(size) is not int or not 1 <= size <= min(train.shape):
            raise BadModelFile(f"the stored size of the linear part must be 1 to {min(train.shape)}")
        share = _positive(field(linear, "share"), "share of the linear part", below=1.0)
        width = train.scale.high - train.scale.low or 1.0
        slope = _positive(field(linear, "slope"), "slope of the linear part", below=_LARGEST / width)
        weights = load_feature_weights(entries, tensors, width=size + 1, kind="float32")
        # Files of earlier versions have neither: their parts have the usual penalty on every scale.
        penalty = _positive(linear.get("penalty", ALSSettings().penalty), "penalty of the linear part")
        in_values = linear.get("in_values", False)
        if type(in_values) is not bool or (in_values and train.scale.levels is not None):
            raise BadModelFile("the linear part can be in values only on a scale without levels")
        settings = ALSSettings(latent_size=size, penalty=penalty)
        part = LinearPart(train, settings, Blend(share, slope, in_values), weights)
    coverages = _coverages(content["coverages"]) if "coverages" in content else None
    return {"penalties": kept, "linear": part, "coverages": coverages}


def _coverages(content: Any) -> FloatArray:
    """Return stored coverages, which rise from 0 to 1."""
    if not isinstance(content, list) or not all(type(each) in (int, float) for each in content):
        raise BadModelFile("the stored coverages must be a list of numbers")
    coverages = np.array(content, dtype=np.float64)
    if coverages.size < 2 or coverages[0] != 0 or coverages[-1] != 1 or not np.all(np.diff(coverages) > 0):
        raise BadModelFile("the stored coverages must rise from 0 to 1")
    return coverages


def _positive(value: Any, name: str, *, below: float = _LARGEST) -> float:
    if type(value) not in (int, float) or not 0.0 < value < below:
        raise BadModelFile(f"the stored {name} must be a number above 0 and below {below:g}")
    return float(value)


# Rows are refined by columns and columns by rows this many times; a third round gains half of what the second does.
_ROUNDS = 2

# Where there is nothing to choose penalties on: those that were best on MovieLens.
_USUAL = Penalties(3.0, 40.0)


# Sweeps of the linear part that do not lower its error: a part need not be the best that it could be alone.
_ALS_PATIENCE = 2


class Described(NamedTuple):
    """An encoder with the latents of all rows and columns, and how it came about.

    stages: the error on held-out entries after the refinement, and with the linear part.
    """

    encoder: OrdinalEncoder
    rows: Latents
    columns: Latents
    stages: dict[str, float]


def trained_encoder(
    network: OrdinalNetwork,
    source: MatrixBlocks,
    entries: EntryStore,
    held_out: ValidationEntries | None,
    settings: OrdinalDMFSettings,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> Described:
    """Return the encoder of a trained network, and the latents of all rows and columns.

    entries: those that describe rows and columns; the network was trained on those of the source, which may be fewer.
    held_out: entries that the network was not trained on; what the settings do not give is chosen on them.
    tell: is called with the name of each stage as it begins.
    """
    tell("refining")
    encoder = _start(network, source, entries, settings)
    start = encoder.refinement_columns
    if held_out is None:
        rows, columns = _rounds(encoder, encoder.trained_rows(entries), entries)
        return Described(encoder, Latents(rows), Latents(columns), {})
    held_out = held_out.sampled(seed=settings.seed)
    seen = entries
    if source.matrix is not entries.train:
        seen = EntryStore.of(source.matrix, entries.row_features, entries.column_features)
    rows = _choose_penalties(encoder, seen, held_out, settings)
    rows, columns = _rounds(encoder, rows, seen)
    if settings.linear_size != 0:
        tell("linear part")
    linear = _linear_part(seen, held_out, settings)
    solved = None if linear is None else solved_linear(entries.train, linear, seen)
    stages, blend = _blended(encoder, rows, columns, solved, held_out)
    part = None
    if blend is not None and linear is not None:
        part = LinearPart(entries.train, linear.settings, blend, linear.feature_weights)
    if entries.scale.levels is None:
        logits = _blended_logits(encoder, rows, columns, solved, part, held_out)
        encoder.coverages = _measure_coverages(encoder, logits, held_out, seed=settings.seed)
    if seen is not entries:
        tell("refining")
        encoder.refinement_columns = start
        rows, columns = _rounds(encoder, encoder.trained_rows(entries), entries)
    if part is not None and linear is not None and solved is not None:
        solved = solved if seen is entries else solved_linear(entries.train, linear, entries)
        rows, columns = encoder.join(part, linear.columns, solved, rows, columns)
    return Described(encoder, Latents(rows), Latents(columns), stages)


def _start(
    network: OrdinalNetwork, source: MatrixBlocks, entries: EntryStore, settings: OrdinalDMFSettings
) -> OrdinalEncoder:
    """Return an encoder with landmarks among the columns, which are as the branch has them."""
    viewed = network.viewed_column_latents(source.columns)
    directions = viewed[:, network.layout.direction]
    chosen = directions[landmarks_among(directions, settings.landmarks)]
    layout = replace(network.layout, n_landmarks=len(chosen))
    counts = torch.from_numpy(source.matrix.column_counts).to(viewed.device)
    start = column_side(network, Landmarks(chosen), layout).placed(viewed, counts)
    penalties = Penalties(settings.row_penalty or _USUAL.rows, settings.column_penalty or _USUAL.columns)
    return OrdinalEncoder(
        network,
        entries.scale,
        landmarks=as_numpy(chosen),
        refinement_columns=as_numpy(start),
        penalties=penalties,
    )


def _choose_penalties(
    encoder: OrdinalEncoder, seen: EntryStore, held_out: ValidationEntries, settings: OrdinalDMFSettings
) -> LatentArray:
    """Choose the penalties that the settings do not give; return the latents of rows, as refined once."""
    layout, seed = encoder.layout, settings.seed
    if settings.row_penalty is None:
        of_rows = HeldOutSide(held_out.rows, held_out.columns, held_out.values, own_are_rows=True)

        def rows_at(positions: IndexArray) -> SparseVectors:
            return encoder.vectors(seen.row_entries(positions))

        choice = best_penalty(encoder.row_refinement(), rows_at, of_rows, layout, seed=seed)
        encoder.penalties = encoder.penalties._replace(rows=choice)
    rows = encoder.trained_rows(seen)
    if settings.column_penalty is None:
        of_columns = HeldOutSide(held_out.columns, held_out.rows, held_out.values, own_are_rows=False)

        def columns_at(positions: IndexArray) -> SparseVectors:
            return encoder.vectors(seen.column_entries(positions))

        choice = best_penalty(encoder.column_refinement(rows), columns_at, of_columns, layout, seed=seed)
        encoder.penalties = encoder.penalties._replace(columns=choice)
    return rows


def _rounds(encoder: OrdinalEncoder, rows: LatentArray, entries: EntryStore) -> tuple[LatentArray, LatentArray]:
    """Refine columns by rows that were refined once, and these by columns, in rounds; return the latents of both."""
    columns = encoder.trained_columns(entries, rows)
    for _ in range(_ROUNDS - 1 if math.isfinite(max(encoder.penalties)) else 0):
        encoder.refinement_columns = columns
        rows = encoder.trained_rows(entries)
        columns = encoder.trained_columns(entries, rows)
    return rows, columns


def _linear_part(seen: EntryStore, held_out: ValidationEntries, settings: OrdinalDMFSettings) -> LearnedLinear | None:
    """Return what ALS has learned for the linear part; None where there is to be no such part."""
    train = seen.train
    size = linear_size(*train.shape, train.n_entries) if settings.linear_size is None else settings.linear_size
    if not size:
        return None
    als = ALS(latent_size=size, patience=_ALS_PATIENCE, seed=settings.seed)._with_choice(train, None)
    als._learn(seen, held_out, Fitting())
    encoder = als.predictor_.encoder
    assert isinstance(encoder, RidgeEncoder)
    columns = als.predictor_.columns.base
    learned = replace(als.settings, latent_size=columns.shape[1] - ALS.n_beside)  # no more than rows or columns
    return LearnedLinear(learned, columns, encoder.feature_weights)


def _blended(
    encoder: OrdinalEncoder,
    rows: LatentArray,
    columns: LatentArray,
    solved: SolvedLinear | None,
    held_out: ValidationEntries,
) -> tuple[dict[str, float], Blend | None]:
    """Return the errors without and with a linear part, and how it joins."""
    pairs, head = (held_out.rows, held_out.columns), encoder.network.head
    logits = _network_logits(encoder, rows, columns, held_out)
    support = head.support.cpu().numpy()
    if solved is None:
        return {"refined": error_of(logits, held_out.values, support)}, None
    values, scale = solved.values(*pairs), encoder.scale
    boundaries = None if scale.levels is not None else scale.from_unit(as_numpy(head.boundaries)) - solved.mean
    blend, without, together = best_blend(
        logits, values, as_numpy(head.cutpoints), held_out.values, support, boundaries
    )
    return {"refined": without, "with the linear part": together}, blend


def _measure_coverages(
    encoder: OrdinalEncoder, logits: LatentArray, held_out: ValidationEntries, *, seed: int
) -> FloatArray:
    """Return which coverages intervals state that hold evenly spaced shares of held-out values with some logits."""
    head = encoder.network.head
    boundaries = encoder.scale.from_unit(as_numpy(head.boundaries))
    stated = PredictiveDistribution(head.support.cpu().numpy(), boundaries, expit(logits).astype(np.float64))
    return stated.measure_coverages(held_out.values, seed=seed)


def _blended_logits(
    encoder: OrdinalEncoder,
    rows: LatentArray,
    columns: LatentArray,
    solved: SolvedLinear | None,
    part: LinearPart | None,
    held_out: ValidationEntries,
) -> LatentArray:
    """Return the logits (entries, cutpoints) of held-out entries, with the linear part where there is one."""
    logits = _network_logits(encoder, rows, columns, held_out)
    if part is None or solved is None:
        return logits
    share, slope, _ = part.blend
    linear = slope * solved.values(held_out.rows, held_out.columns)[:, None] - part.cutpoints(encoder.network.head)
    return (1.0 - share) * logits + share * linear


def _network_logits(
    encoder: OrdinalEncoder, rows: LatentArray, columns: LatentArray, held_out: ValidationEntries
) -> LatentArray:
    """Return the logits (entries, cutpoints) of held-out entries without the linear part."""
    scores = pair_products(Latents(rows), Latents(columns), held_out.rows, held_out.columns)
    response = rows[held_out.rows][:, encoder.layout.response]
    logits: LatentArray = scores[:, None] * np.exp(response[:, -1:]) - response[:, :-1]
    return logits
