"""The encoder of OrdinalDMF: latents of rows and columns from their entries, and how `fit` builds
it.

The latent of a row is the mean of the branch's latents over views, one refinement step on the row's
own entries, and the linear part; so for columns. Landmarks, penalties, the linear part and the
calibration of intervals are chosen after the network is trained, on held-out entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.scale import Scale
from deepmf.models.gibbs.prediction import NOTHING_NEW
from deepmf.models.network_model import NetworkEncoder, sparse_vectors
from deepmf.models.ordinal.head import LatentLayout
from deepmf.models.ordinal.linear_part import (
    LARGEST,
    Blend,
    Chain,
    LinearFit,
    LinearLatents,
    LinearPart,
    choose_blend,
    choose_few_count,
    compute_rmse,
    cut_columns,
    find_seen,
    fit_linear,
    load_linear_part,
)
from deepmf.models.ordinal.network import OrdinalNetwork, split_by_entries
from deepmf.models.ordinal.refinement import (
    ColumnRefinement,
    Landmarks,
    Penalties,
    Refinement,
    RowRefinement,
    choose_landmarks,
    choose_penalty,
)
from deepmf.models.ordinal.settings import OrdinalDMFSettings
from deepmf.nn.inputs import SparseVectors
from deepmf.scoring.distribution import PredictiveDistribution
from deepmf.scoring.latents import Latents, pair_products
from deepmf.scoring.predictor import SolvingEncoder
from deepmf.storage.model_file import Packed, Tensors
from deepmf.storage.parts import Check, Form, Part, below, between, not_falling, positive
from deepmf.training.blocks import MatrixBlocks
from deepmf.training.holdout import HeldOut

# Columns are refined given rows and rows given columns this many times; a third round gains half of
# the second.
_ROUNDS = 2

# The penalties without held-out entries: those that were best on MovieLens.
_DEFAULT_PENALTIES = Penalties(3.0, 40.0)


class OrdinalEncoder(NetworkEncoder, SolvingEncoder):
    """Encodes rows and columns: views through the branches, averaged, refined, with the linear
    part.

    Parameters
    ----------
    landmarks : directions of the Nyström landmarks, (landmarks, direction).
    refinement_columns : latents of the trained columns that rows are refined by, one round behind
        the final latents; their linear fields are 0.
    penalties : ridge penalties of the refinement of rows and of columns.
    linear : the linear part, if there is one.
    coverages : calibration of intervals, as in `OrdinalReadout`.
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
        self.scale = scale
        self.landmarks, self.refinement_columns, self.penalties = (
            landmarks,
            refinement_columns,
            penalties,
        )
        self.linear, self.coverages = linear, coverages

    @property
    def layout(self) -> LatentLayout:
        """The fields of latents."""
        return replace(
            self.network.layout,
            n_landmarks=len(self.landmarks),
            n_linear=0 if self.linear is None else self.linear.model.width,
        )

    @property
    def linear_share(self) -> float:
        """The share of the linear part in the logits."""
        return 0.0 if self.linear is None else self.linear.blend.share

    @property
    def linear_cutpoints(self) -> LatentArray | None:
        """The cutpoints of the linear part; None without a linear part."""
        return None if self.linear is None else self.linear.cutpoints

    def count_factors(self, n_latents: int) -> int:
        """Return the numbers of a latent and of the linear part's factors; the entry count of a
        column is not kept."""
        return n_latents + (
            0 if self.linear is None else self.linear.model.count_factors(n_latents)
        )

    @torch.no_grad()
    def solve(self, axis: Axis, entries: AxisEntries, others: Latents) -> LatentArray:
        """Return latents, and the factors of their linear part; of columns before they are
        balanced, and counts."""
        is_row = axis == "row"
        refinement = (
            self.row_refinement(others) if is_row else self.column_refinement(others.base, others)
        )
        latents = self.refine(refinement, entries)
        if self.linear is None:
            return latents
        model, fields = self.linear.model, self.layout.linear
        base = self.refinement_columns if is_row else others.base
        others = Latents(base[:, fields], others.positions, others.extra[:, self.layout.width :])
        factors = model.solve(axis, entries, others)
        linear, kept = (
            model.finish(axis, factors),
            factors[:, : model.count_factors(latents.shape[1])],
        )
        if is_row:
            latents[:, fields] = self.linear.apply_weights(linear, latents[:, -1])
            return np.hstack([latents, kept])
        latents[:, fields] = linear
        return np.hstack([latents, kept, np.diff(entries.starts)[:, None]]).astype(np.float32)

    def finish(self, axis: Axis, factors: LatentArray) -> LatentArray:
        """Return the latents; in those of columns, the linear part has its share."""
        latents, layout = factors[:, : self.layout.width], self.layout
        if axis == "row" or self.linear is None:
            return latents
        return self.linear.balance_columns(latents, layout.linear, factors[:, -1])

    def find_deviations(self, rows: LatentArray, columns: LatentArray) -> LatentArray:
        """Return the standard deviations of products by the posterior of the linear part, if there
        is one."""
        fields = self.layout.linear
        if self.linear is None:
            return super().find_deviations(rows, columns)
        return self.linear.find_deviations(rows[:, fields], columns[:, fields])

    def refine_all(self, refinement: Refinement, entries: EntryStore) -> LatentArray:
        """Return the latents of all trained rows, or columns, without the linear part, a part of
        them at a time."""
        if refinement.axis == "row":
            counts, take = entries.train.row_counts, entries.row_entries
        else:
            counts, take = entries.train.column_counts, entries.column_entries
        return np.concatenate(
            [self.refine(refinement, take(part)) for part in split_by_entries(counts)]
        )

    def row_refinement(self, columns: Latents | None = None) -> RowRefinement:
        """Return the refinement of rows, given `refinement_columns` and the latents of new
        columns."""
        return RowRefinement(
            network=self.network,
            layout=self.layout,
            others=self._to_device(self.refinement_columns),
            penalty=self.penalties.rows,
            new=self._take_new(columns),
        )

    def column_refinement(
        self, row_latents: LatentArray, rows: Latents | None = None
    ) -> ColumnRefinement:
        """Return the refinement of columns, given the latents of the trained rows and of new
        ones."""
        return ColumnRefinement(
            network=self.network,
            layout=self.layout,
            others=self._to_device(row_latents),
            penalty=self.penalties.columns,
            new=self._take_new(rows),
            landmarks=Landmarks(self._to_device(self.landmarks)),
        )

    def read_vectors(self, entries: AxisEntries) -> SparseVectors:
        """Return entries as the inputs of a branch."""
        return sparse_vectors(entries, self.scale.to_unit(entries.values))

    def add_linear_part(
        self, part: LinearPart, entries: EntryStore, rows: LatentArray, columns: LatentArray
    ) -> tuple[LatentArray, LatentArray]:
        """Take a linear part; return all latents of rows and columns with it."""
        linear, place = part.model.encode_all(entries), self.layout.linear.start

        def insert(latents: LatentArray, fields: LatentArray) -> LatentArray:
            return np.hstack([latents[:, :place], fields, latents[:, place:]])

        nothing = np.zeros((len(columns), part.model.width), dtype=np.float32)
        self.linear, self.refinement_columns = (
            part.on_cpu(),
            insert(self.refinement_columns, nothing),
        )
        counts = entries.train.column_counts
        joined = part.balance_columns(insert(columns, linear.columns), self.layout.linear, counts)
        return insert(rows, part.apply_weights(linear.rows, rows[:, -1])), joined

    def pack(self) -> Packed:
        """Return the network, the landmarks, the refinement columns, and the choices on held-out
        entries."""
        parts = [
            super().pack(),
            REFINEMENT.pack(columns=self.refinement_columns, landmarks=self.landmarks),
        ]
        penalties = {
            axis: each if math.isfinite(each) else None
            for axis, each in self.penalties._asdict().items()
        }
        linear = Packed({}, {}) if self.linear is None else self.linear.pack()
        parts += [
            _CHOICES.pack(
                penalties=penalties, linear=linear.content or None, coverages=self.coverages
            ),
            linear,
        ]
        return Packed(
            parts[2].content, {name: each for part in parts for name, each in part.tensors.items()}
        )

    def refine(self, refinement: Refinement, entries: AxisEntries) -> LatentArray:
        """Return latents without the linear part; all vectors without entries and features share
        one."""
        kept, places = share_empty(entries.are_empty)
        refined: LatentArray = (
            refinement.refine(self.read_vectors(entries.take(kept)).to(self.device)).cpu().numpy()
        )
        return refined[places]

    def _take_new(self, others: Latents | None) -> Tensor | None:
        """Return the latents of new rows, or columns; None where there are none."""
        if others is None or not len(others.extra):
            return None
        return self._to_device(np.ascontiguousarray(others.extra[:, : self.layout.width]))

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.network.head.scale.device

    def _to_device(self, latents: LatentArray) -> Tensor:
        return torch.from_numpy(latents).to(self.device)


def share_empty(are_empty: BoolArray) -> tuple[IndexArray, IndexArray]:
    """Return the vectors to encode, the first empty one among them, and the place of each vector's
    latent there.

    >>> share_empty(np.array([False, True, False, True]))
    (array([0, 1, 2]), array([0, 1, 2, 1]))
    """
    kept, first = ~are_empty, np.flatnonzero(are_empty)[:1]
    kept[first] = True
    places = np.cumsum(kept) - 1
    places[are_empty] = places[first]
    return np.flatnonzero(kept), places


def load_choices(
    content: Any, entries: EntryStore, tensors: Tensors, *, n_cutpoints: int
) -> dict[str, Any]:
    """Return the stored choices on held-out entries by name; raise `BadModelFile` for anything
    else."""
    found = _CHOICES.read(content)
    penalties = (math.inf if each is None else each for each in found["penalties"].values())
    linear = (
        None
        if found["linear"] is None
        else load_linear_part(found["linear"], entries, tensors, n_cutpoints=n_cutpoints)
    )
    return found | {"penalties": Penalties(*penalties), "linear": linear}


_PENALTY = (), positive, below(LARGEST)

_CHOICES = Form(
    Part(
        "penalties",
        Form(
            Part("rows", "number", *_PENALTY, optional=True),
            Part("columns", "number", *_PENALTY, optional=True),
        ),
    ),
    Part("linear", "object", optional=True),
    Part(
        "coverages",
        "number",
        ("coverages",),
        not_falling,
        between(0.0, 1.0),
        Check("have numbers", lambda found, _: found.size > 1),
        optional=True,
    ),
)

REFINEMENT = Form(
    Part("landmarks", "float32", ("landmarks", "directions")),
    Part("columns", "float32", ("columns", "beside + landmarks")),
    prefix="refinement",
)


class EncodedMatrix(NamedTuple):
    """An encoder with the latents of all rows and columns.

    stages: the error on held-out entries after the refinement, of the linear part alone, and of
        both.
    """

    encoder: OrdinalEncoder
    rows: Latents
    columns: Latents
    stages: dict[str, float]
    chain: Chain | None = None


def build_encoder(
    network: OrdinalNetwork,
    source: MatrixBlocks,
    entries: EntryStore,
    held_out: HeldOut | None,
    settings: OrdinalDMFSettings,
    *,
    linear_fit: Future[LinearFit | None] | None = None,
    earlier: Chain | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> EncodedMatrix:
    """Return the encoder of a trained network, and the latents of all rows and columns.

    Parameters
    ----------
    entries : entries that the latents are computed from. The network was trained on the entries of
        `source`, which are fewer where `fit` has held some out.
    held_out : entries that the network was not trained on, for choices that the settings leave
        open.
    linear_fit : the model of `fit_linear`, where it is fitted beside the network; default: it is
        fitted now.
    earlier : a chain that it goes on from.
    tell : called with the name of each stage as it begins.
    """
    tell("refining")
    encoder = _start_encoder(network, source, entries, settings)
    start = encoder.refinement_columns
    if held_out is None:
        rows, columns = _refine_in_rounds(
            encoder, encoder.refine_all(encoder.row_refinement(), entries), entries
        )
        return EncodedMatrix(encoder, Latents(rows), Latents(columns), {})
    held_out = held_out.sample(seed=settings.seed)
    seen = find_seen(source.matrix, entries)
    if not settings.networks:
        encoder.penalties = Penalties(math.inf, math.inf)
    rows = _choose_penalties(encoder, seen, held_out, settings)
    rows, columns = _refine_in_rounds(encoder, rows, seen)
    if settings.linear_size != 0:
        tell("linear part")
    if linear_fit is None:
        fit = fit_linear(source.matrix, entries, held_out, settings, earlier, encoder.device)
    else:
        fit = linear_fit.result()
    scores, cutpoints = _compute_scores(encoder, rows, columns, held_out.rows, held_out.columns)
    logits: LatentArray = scores[:, None] - cutpoints
    support = encoder.network.head.support.cpu().numpy()
    stages = {"refined": compute_rmse(logits, held_out.values, support)}
    part = None
    if fit is not None:
        stages["linear part alone"] = math.sqrt(fit.chain.held_out.square_errors_alone().mean())
        blend = choose_blend(logits, fit.chain.held_out, is_trained=settings.networks > 0).candidate
        if blend is not None:
            if entries.scale.levels is not None and settings.networks > 0:
                blend = blend._replace(
                    few_count=_choose_few_count(encoder, blend, fit, rows, seen, held_out)
                )
            part = LinearPart(fit.model, blend)
            counts = seen.train.column_counts[held_out.columns]
            logits = blend.mix_logits(scores, cutpoints, fit.chain.held_out.linear, counts)
        stages["with the linear part"] = compute_rmse(logits, held_out.values, support)
    if support.size > 1:
        encoder.coverages = _measure_coverages(encoder, logits, held_out, seed=settings.seed)
    if seen is not entries:
        tell("refining")
        encoder.refinement_columns = start
        rows, columns = _refine_in_rounds(
            encoder, encoder.refine_all(encoder.row_refinement(), entries), entries
        )
    if part is not None:
        rows, columns = encoder.add_linear_part(part, entries, rows, columns)
    return EncodedMatrix(
        encoder, Latents(rows), Latents(columns), stages, None if fit is None else fit.chain
    )


def _start_encoder(
    network: OrdinalNetwork, source: MatrixBlocks, entries: EntryStore, settings: OrdinalDMFSettings
) -> OrdinalEncoder:
    """Return an encoder with landmarks chosen among the columns, which are not refined yet."""
    column_counts = source.matrix.column_counts
    shared = share_empty((column_counts == 0) & (entries.column_features is None))
    counts, kept, places = (
        torch.from_numpy(each).to(network.head.scale.device) for each in (column_counts, *shared)
    )
    encoded = network.encode_views("column", source.columns, kept)[places]
    directions = encoded[:, network.layout.direction]
    encoder = OrdinalEncoder(
        network,
        entries.scale,
        landmarks=directions[choose_landmarks(directions, settings.landmarks)].cpu().numpy(),
        refinement_columns=encoded[:0].cpu().numpy(),
        penalties=Penalties(
            settings.row_penalty or _DEFAULT_PENALTIES.rows,
            settings.column_penalty or _DEFAULT_PENALTIES.columns,
        ),
    )
    unrefined = encoder.column_refinement(encoder.refinement_columns).add_landmarks(encoded, counts)
    encoder.refinement_columns = unrefined.cpu().numpy()
    return encoder


def _choose_penalties(
    encoder: OrdinalEncoder, seen: EntryStore, held_out: HeldOut, settings: OrdinalDMFSettings
) -> LatentArray:
    """Choose the penalties that the settings leave open; return the latents of rows, refined
    once."""

    def choose(refinement: Refinement, take: Callable[[IndexArray], AxisEntries]) -> float:
        return choose_penalty(
            refinement, lambda at: encoder.read_vectors(take(at)), held_out, seed=settings.seed
        )

    if settings.row_penalty is None and settings.networks:
        penalty = choose(encoder.row_refinement(), seen.row_entries)
        encoder.penalties = encoder.penalties._replace(rows=penalty)
    rows = encoder.refine_all(encoder.row_refinement(), seen)
    if settings.column_penalty is None and settings.networks:
        penalty = choose(encoder.column_refinement(rows), seen.column_entries)
        encoder.penalties = encoder.penalties._replace(columns=penalty)
    return rows


def _refine_in_rounds(
    encoder: OrdinalEncoder, rows: LatentArray, entries: EntryStore
) -> tuple[LatentArray, LatentArray]:
    """Refine columns given rows that were refined once, then rows given columns, in rounds; return
    both latents."""
    columns = encoder.refine_all(encoder.column_refinement(rows), entries)
    for _ in range(_ROUNDS - 1 if math.isfinite(max(encoder.penalties)) else 0):
        encoder.refinement_columns = columns
        rows = encoder.refine_all(encoder.row_refinement(), entries)
        columns = encoder.refine_all(encoder.column_refinement(rows), entries)
    return rows, columns


def _compute_scores(
    encoder: OrdinalEncoder,
    rows: LatentArray,
    columns: LatentArray,
    row_at: IndexArray,
    column_at: IndexArray,
) -> tuple[LatentArray, LatentArray]:
    """Return the network's scores of pairs times the slopes of rows, and the rows' cutpoints
    (pairs, cutpoints)."""
    scores = pair_products(Latents(rows), Latents(columns), row_at, column_at)
    response = rows[row_at][:, encoder.layout.response]
    return scores * np.exp(response[:, -1]), response[:, :-1]


def _choose_few_count(
    encoder: OrdinalEncoder,
    blend: Blend,
    fit: LinearFit,
    rows: LatentArray,
    seen: EntryStore,
    held_out: HeldOut,
) -> float:
    """Return how many entries are few for a linear part of samples, by columns cut to a few of
    their entries."""
    cut = cut_columns(seen, held_out, seed=0)
    columns = encoder.refine(encoder.column_refinement(rows), cut.entries)
    scores, cutpoints = _compute_scores(encoder, rows, columns, cut.rows, cut.places)
    used, row_at = np.unique(cut.rows, return_inverse=True)
    linear_rows = fit.blind.encode("row", seen.row_entries(used), NOTHING_NEW)
    linear_columns = fit.blind.encode("column", cut.entries, NOTHING_NEW)
    linear = LinearLatents(linear_rows, linear_columns).predict(row_at, cut.places)
    counts = np.diff(cut.entries.starts)[cut.places]
    support = encoder.network.head.support.cpu().numpy()
    return choose_few_count(blend, scores, cutpoints, linear, counts, cut.values, support)


def _measure_coverages(
    encoder: OrdinalEncoder, logits: LatentArray, held_out: HeldOut, *, seed: int
) -> FloatArray:
    """Return the calibration of intervals by held-out values, as in `OrdinalReadout`."""
    head = encoder.network.head
    boundaries = encoder.scale.from_unit(head.boundaries.cpu().numpy())
    nominal = PredictiveDistribution(
        head.support.cpu().numpy(), boundaries, expit(logits).astype(np.float64)
    )
    return nominal.choose_coverages(
        held_out.values, of_levels=encoder.scale.levels is not None, seed=seed
    )


def explain_parts(
    encoder: OrdinalEncoder, stages: dict[str, float], settings: OrdinalDMFSettings
) -> dict[str, str]:
    """Say for each part whether it was fitted and takes part, and what it does to the error of
    held-out entries."""
    errors = {name: f"{error:.4f}" for name, error in stages.items()}
    blend = None if encoder.linear is None else encoder.linear.blend
    alone, together = errors.get("linear part alone"), errors.get("with the linear part")
    if not stages:
        return dict.fromkeys(("network", "refinement"), "fitted; no entries were held out") | {
            "sampler": "not fitted: no entries were held out"
        }
    if alone is None:
        sampler = "not fitted" + (
            ": linear_size is 0" if settings.linear_size == 0 else ": its chain has no posterior"
        )
    elif blend is None:
        sampler = f"left out: the network alone has a held-out error of {errors['refined']}, the sampler {alone}"
    else:
        sampler = f"fitted: held-out error {alone}"
    if not settings.networks:
        network, refinement = (
            "not fitted: it takes longer than this effort allows",
            "not fitted: no network to refine",
        )
    else:
        network = f"fitted: held-out error {errors['refined']}" + (
            f", together {together}" if blend else ""
        )
        if blend is not None and blend.leaves_network_out:
            network = f"left out: beside the sampler's {alone}, its {errors['refined']} lowers no error beyond doubt"
        refinement = f"fitted: lowers the network's held-out error from {errors['branches']} to {errors['refined']}"
        if not math.isfinite(min(encoder.penalties)):
            refinement = "left out: it does not lower the network's held-out error"
    return {"sampler": sampler, "network": network, "refinement": refinement}
