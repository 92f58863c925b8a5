"""From a trained network to the encoder: landmarks, penalties, rounds of refinement, and the linear part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import expit

from deepmf.layers.vectors import SparseVectors
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.entry_store import EntryStore
from deepmf.models.factorization.als import ALS
from deepmf.models.factorization.ridge_encoder import RidgeEncoder
from deepmf.models.fitting import Fitting
from deepmf.models.latents import Latents, pair_products
from deepmf.models.ordinal.landmarks import Landmarks, landmarks_among
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
from deepmf.models.ordinal.ordinal_encoder import OrdinalEncoder, as_numpy
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork
from deepmf.models.ordinal.ordinal_settings import OrdinalDMFSettings
from deepmf.models.ordinal.penalties import HeldOutSide, Penalties, best_penalty
from deepmf.models.ordinal.refinement import column_side
from deepmf.models.predictive_distribution import PredictiveDistribution
from deepmf.training.matrix_blocks import MatrixBlocks
from deepmf.training.validation import ValidationEntries

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
        encoder.coverages = _coverages(encoder, logits, held_out, seed=settings.seed)
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


def _coverages(encoder: OrdinalEncoder, logits: LatentArray, held_out: ValidationEntries, *, seed: int) -> FloatArray:
    """Return which coverages intervals state that hold evenly spaced shares of held-out values with some logits."""
    head = encoder.network.head
    boundaries = encoder.scale.from_unit(as_numpy(head.boundaries))
    stated = PredictiveDistribution(head.support.cpu().numpy(), boundaries, expit(logits).astype(np.float64))
    return stated.stated_coverages(held_out.values, seed=seed)


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
