"""Explanations: which entries of a row, or of a column, pulled a prediction up or down, and by how much."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entry_store import AxisEntries
from deepmf.matrix.feature_encoding import FeatureEncoding
from deepmf.matrix.labels import Labels
from deepmf.models.predictor import Predictor
from deepmf.models.ranking import check_n

Axis = Literal["row", "column"]

# At most this many entries are left out in turn.
MOST_CANDIDATES = 256
# Entries that the fold-ins of one explanation have together, unless n asks for more, and those encoded at a time.
_MOST_ENTRIES = 1 << 18
_ENTRIES_AT_A_TIME = 1 << 16


class FeatureEffect(NamedTuple):
    """What a feature did to a prediction: its name, what it says, and the prediction less the one without it."""

    name: str
    value: str
    effect: float


class Explanation(NamedTuple):
    """The entries of a row (or of a column) with the largest effects on a prediction, largest first.

    labels: where they stand: their columns (or rows).
    values: their values.
    effects: the prediction with all entries less the one without this one; above 0, it pulled the prediction up.
    prediction: the one with all entries; real-valued, also where `predict` returns levels.
    features: the features with the largest effects, where the model was fitted with any.
    """

    labels: npt.NDArray[Any]
    values: FloatArray
    effects: FloatArray
    prediction: float
    features: tuple[FeatureEffect, ...] = ()


def explained(
    predictor: Predictor,
    axis: Axis,
    entries: AxisEntries,
    labels: Labels,
    pair: tuple[int, int],
    n: int,
    *,
    encoding: FeatureEncoding | None = None,
) -> Explanation:
    """Return what the entries of one row (or column), the only group, did to the prediction of a pair of positions.

    Every entry is left out in turn. Of more than 256, those are that stand out most: by how far their value lies from
    the mean of all, times how alike the latents of where they stand are to those of what is predicted.
    """
    check_n(n)
    target = pair[1] if axis == "row" else pair[0]
    prediction = predictor.readout.units(predictor.score_pairs(*(np.array([at]) for at in pair)))[0]
    candidates = _candidates(predictor, axis, entries, target, n)
    with_all = float(_predictions(predictor, axis, entries, target)[0])
    effects = with_all - _predictions_without(predictor, axis, entries, candidates, target)
    best = np.argsort(-np.abs(effects), kind="stable")[:n]
    chosen = candidates[best]
    features = _feature_effects(predictor, axis, entries, encoding, target, with_all)[:n]
    return Explanation(
        labels[entries.others[chosen]], entries.values[chosen], effects[best], float(prediction), tuple(features)
    )


def _feature_effects(
    predictor: Predictor,
    axis: Axis,
    entries: AxisEntries,
    encoding: FeatureEncoding | None,
    target: int,
    with_all: float,
) -> list[FeatureEffect]:
    """Return what each thing that features say did to the prediction, the largest effects first."""
    if encoding is None or entries.features is None:
        return []
    items = encoding.items(entries.features)
    if not items:
        return []
    without = entries.with_features_of(entries.features.without_inputs([item.inputs for item in items]))
    effects = with_all - _predictions(predictor, axis, without, target)
    found = [FeatureEffect(item.name, item.text, float(effect)) for item, effect in zip(items, effects, strict=True)]
    return sorted(found, key=lambda each: -abs(each.effect))


def _candidates(predictor: Predictor, axis: Axis, entries: AxisEntries, target: int, n: int) -> IndexArray:
    """Return which entries are left out in turn."""
    count = entries.values.size
    most = max(min(MOST_CANDIDATES, _MOST_ENTRIES // max(count, 1)), n)
    if count <= most:
        return np.arange(count)
    others = predictor.columns if axis == "row" else predictor.rows
    n_latent = others.base.shape[1] - predictor.n_beside
    size = np.abs(entries.values - entries.values.mean())
    if n_latent:
        latents, aim = (others.take(at, slice(0, n_latent)) for at in (entries.others, np.array([target])))
        lengths = np.linalg.norm(latents, axis=1)
        size = size * np.abs(latents @ aim[0]) / np.where(lengths > 0, lengths, 1.0)
    return np.sort(np.argsort(-size, kind="stable")[:most])


def _predictions(predictor: Predictor, axis: Axis, entries: AxisEntries, target: int) -> FloatArray:
    """Return the predictions for rows (or columns) with these entries, computed as those without an entry are."""
    places = np.arange(entries.starts.size - 1)
    targets = np.full(places.size, target)
    if axis == "row":
        scores = predictor.with_rows(entries).score_pairs(places, targets)
    else:
        scores = predictor.with_columns(entries).score_pairs(targets, places)
    return predictor.readout.units(scores)


def _predictions_without(
    predictor: Predictor, axis: Axis, entries: AxisEntries, left_out: IndexArray, target: int
) -> FloatArray:
    """Return the predictions from all entries but one, for each that is left out."""
    step = max(_ENTRIES_AT_A_TIME // max(entries.values.size, 1), 1)
    parts = [np.empty(0)]
    for start in range(0, left_out.size, step):
        some = left_out[start : start + step]
        places, targets = np.arange(some.size), np.full(some.size, target)
        if axis == "row":
            scores = predictor.with_rows_without_each(entries, some).score_pairs(places, targets)
        else:
            scores = predictor.with_columns_without_each(entries, some).score_pairs(targets, places)
        parts.append(predictor.readout.units(scores))
    return np.concatenate(parts)
