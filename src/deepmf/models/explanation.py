"""Explanations: which entries of a row, or of a column, pulled a prediction up or down, and by how much."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import FeatureEncoding
from deepmf.matrix.labels import Labels
from deepmf.models.predictor import Predictor
from deepmf.models.ranking import check_n

Axis = Literal["row", "column"]


# At most this many entries are left out in turn.
_MOST_CANDIDATES = 256

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


def explain_pair(seen: EntryStore, predictor: Predictor, row: Any, column: Any, n: int, *, axis: Axis) -> Explanation:
    """Return what the entries of a row (or of a column) did to its prediction for a column (or a row), by label."""
    at = seen.rows.positions([row]), seen.columns.positions([column])
    pair = int(at[0][0]), int(at[1][0])
    if axis == "row":
        entries, others, features = seen.row_entries(at[0]), seen.columns, seen.row_features
    else:
        entries, others, features = seen.column_entries(at[1]), seen.rows, seen.column_features
    encoding = None if features is None else features.encoding
    return explained(predictor, axis, entries, others, pair, n, encoding=encoding)


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
    """Return what the entries of one row (or column), the only group, did to the prediction of a pair of positions."""
    own, target = pair if axis == "row" else pair[::-1]
    return explain_targets(predictor, axis, entries, labels, own, np.array([target]), n, encoding=encoding)[0]


def check_axis(axis: str) -> None:
    """Refuse what is neither of the axes that entries can be of."""
    if axis not in get_args(Axis):
        raise BadSetting(f"axis must be 'row' or 'column'; got {axis!r}")


def explain_targets(
    predictor: Predictor,
    axis: Axis,
    entries: AxisEntries,
    labels: Labels,
    own: int,
    targets: IndexArray,
    n: int,
    *,
    encoding: FeatureEncoding | None = None,
) -> list[Explanation]:
    """Return what the entries of the row (or column) at a position did to its prediction for each of some others.

    Every entry is left out in turn, once for all targets. Of more than 256, those are that stand out most: by how far
    their value lies from the mean of all, times how alike the latents of where they stand are to those of the target.
    """
    check_n(n)
    if targets.size != 1 and _most_candidates(entries, n) < entries.values.size:  # others stand out for each target
        return [
            explain_targets(predictor, axis, entries, labels, own, targets[[k]], n, encoding=encoding)[0]
            for k in range(targets.size)
        ]
    predictions = _predictions(predictor, axis, np.array([own]), targets)[0]
    candidates = _candidates(predictor, axis, entries, targets, n)
    with_all = _predictions(_with(predictor, axis, entries), axis, np.array([0]), targets)
    effects = with_all - _predictions_without(predictor, axis, entries, candidates, targets)
    best = np.argsort(-np.abs(effects), axis=0, kind="stable")[:n]  # (n, targets)
    of_features = _feature_effects(predictor, axis, entries, encoding, targets, with_all[0])
    return [
        Explanation(
            labels[entries.others[candidates[chosen]]],
            entries.values[candidates[chosen]],
            effects[chosen, k],
            float(predictions[k]),
            tuple(of_features[k][:n]),
        )
        for k, chosen in enumerate(best.T)
    ]


def _feature_effects(
    predictor: Predictor,
    axis: Axis,
    entries: AxisEntries,
    encoding: FeatureEncoding | None,
    targets: IndexArray,
    with_all: FloatArray,
) -> list[list[FeatureEffect]]:
    """Return what each thing that features say did to the prediction for each target, the largest effects first."""
    items = [] if encoding is None or entries.features is None else encoding.items(entries.features)
    if not items or entries.features is None:
        return [[] for _ in range(targets.size)]
    without = entries.with_features_of(entries.features.without_inputs([item.inputs for item in items]))
    effects = with_all - _predictions(_with(predictor, axis, without), axis, np.arange(len(items)), targets)
    return [
        sorted(
            (FeatureEffect(item.name, item.text, float(effect)) for item, effect in zip(items, column, strict=True)),
            key=lambda each: -abs(each.effect),
        )
        for column in effects.T
    ]


def _most_candidates(entries: AxisEntries, n: int) -> int:
    return max(min(_MOST_CANDIDATES, _MOST_ENTRIES // max(entries.values.size, 1)), n)


def _candidates(predictor: Predictor, axis: Axis, entries: AxisEntries, targets: IndexArray, n: int) -> IndexArray:
    """Return which entries are left out in turn; there is one target where these are not all."""
    most = _most_candidates(entries, n)
    if entries.values.size <= most:
        return np.arange(entries.values.size)
    others = predictor.columns if axis == "row" else predictor.rows
    n_latent = others.base.shape[1] - predictor.n_beside
    size = np.abs(entries.values - entries.values.mean())
    if n_latent:
        latents, aim = (others.take(at, slice(0, n_latent)) for at in (entries.others, targets))
        lengths = np.linalg.norm(latents, axis=1)
        size = size * np.abs(latents @ aim[0]) / np.where(lengths > 0, lengths, 1.0)
    return np.sort(np.argsort(-size, kind="stable")[:most])


def _with(predictor: Predictor, axis: Axis, entries: AxisEntries) -> Predictor:
    """Return a predictor for what all entries describe, encoded as those without one of them are."""
    return predictor.with_rows(entries) if axis == "row" else predictor.with_columns(entries)


def _predictions_without(
    predictor: Predictor, axis: Axis, entries: AxisEntries, left_out: IndexArray, targets: IndexArray
) -> FloatArray:
    """Return the predictions from all entries but one, for each that is left out (left out, targets)."""
    step = max(_ENTRIES_AT_A_TIME // max(entries.values.size, 1), 1)
    parts = [np.empty((0, targets.size))]
    for start in range(0, left_out.size, step):
        some = left_out[start : start + step]
        without = predictor.with_rows_without_each if axis == "row" else predictor.with_columns_without_each
        parts.append(_predictions(without(entries, some), axis, np.arange(some.size), targets))
    return np.concatenate(parts)


def _predictions(predictor: Predictor, axis: Axis, own: IndexArray, targets: IndexArray) -> FloatArray:
    """Return the predictions of some rows (or columns) for each of some others (own, targets)."""
    at = np.repeat(own, targets.size), np.tile(targets, own.size)
    scores = predictor.score_pairs(*(at if axis == "row" else at[::-1]))
    return predictor.readout.units(scores).reshape(own.size, targets.size)
