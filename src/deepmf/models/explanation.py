"""Explanations: the effects of the entries of a row, or of a column, on a prediction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadSetting, check_count
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, IndexPair, ObjectArray
from deepmf.matrix.axis_entries import OTHER_AXIS, Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.features import AxisFeatures
from deepmf.matrix.names import Names
from deepmf.recommend.ranker import Rankers
from deepmf.scoring.predictor import Predictor

# The largest number of entries that are left out in turn.
_MOST_CANDIDATES = 256

# Effects on a probability up to this share of it are not worth a reason: popularity makes the
# column likely.
_LEAST_EFFECT = 1e-3

# The entries of all fold-ins of one explanation, unless n asks for more, and those encoded at a
# time.
_MOST_ENTRIES = 1 << 18
_ENTRIES_AT_A_TIME = 1 << 16


class FeatureEffect(NamedTuple):
    """The effect of a feature on a prediction: the prediction minus the one without the feature."""

    name: str
    value: str
    effect: float


class PresenceEffect(NamedTuple):
    """An entry of a row, and by how much it raises the probability that the row also has an entry
    in a column."""

    label: Any
    value: float
    effect: float
    name: str | None = None


class Explanation(NamedTuple):
    """The entries of a row (or of a column) with the largest effects on a prediction, largest
    first.

    labels: the columns (or rows) of the entries.
    values: their values.
    effects: the prediction with all entries minus the one without this entry; positive if it raised
        the prediction.
    prediction: the prediction with all entries; real-valued even if `predict` returns levels.
    features: the features with the largest effects, if the model was fitted with features.
    presence: the entries of the row that raise the probability that it takes the column the most,
        most first, if the model has a presence part; that it takes the column next, if the model
        ranks by what comes next.
    names: the names of the labels, None for labels without one; None if the model has no names.

    Interactions have no values to predict: values are counts, the prediction is the probability of
    an interaction, and effects are those on it.
    """

    labels: Array
    values: FloatArray
    effects: FloatArray
    prediction: float
    features: tuple[FeatureEffect, ...] = ()
    presence: tuple[PresenceEffect, ...] = ()
    names: ObjectArray | None = None

    def with_names(self, names: Names | None) -> Explanation:
        """Return the explanation with the names of its labels."""
        if names is None:
            return self
        presence = tuple(effect._replace(name=names.get(effect.label)) for effect in self.presence)
        return self._replace(names=names.find_array(self.labels), presence=presence)


def explain_predictions(
    rankers: Rankers,
    predictor: Predictor,
    axis: Axis,
    entries: AxisEntries,
    own: int,
    targets: IndexArray,
    n: int,
) -> list[Explanation]:
    """Return the effects of the entries of a row (or of a column) on its predictions for some
    columns (or rows).

    own: the position of the row (or column) in the predictor.
    """
    check_count("n", n)
    store, is_row = rankers.entries, axis == "row"
    entries, trained_entries = (
        predictor.factors.select_inputs(axis, entries),
        entries.below(store.train.shape[1]),
    )
    if store.scale.is_interactions and not is_row:
        raise BadSetting(
            "interactions are explained by the entries of the row; leave out axis='column'"
        )
    if store.scale.is_interactions:
        explanations = [
            _explain_interaction(rankers, trained_entries, column, n) for column in targets.tolist()
        ]
    else:
        explanations = explain_targets(store, predictor, axis, entries, own, targets, n)
    if not is_row:
        return [explanation.with_names(store.row_names) for explanation in explanations]
    return [
        explanation._replace(
            presence=_list_presence(rankers, trained_entries, column, n)
        ).with_names(store.column_names)
        for explanation, column in zip(explanations, targets.tolist(), strict=True)
    ]


def _explain_interaction(
    rankers: Rankers, entries: AxisEntries, column: int, n: int
) -> Explanation:
    effects, chance = _find_presence_effects(rankers, entries, column)
    best = np.argsort(-np.abs(effects), kind="stable")[:n]
    labels = rankers.entries.columns[entries.others[best]]
    return Explanation(labels, entries.values[best], effects[best], chance)


def _list_presence(
    rankers: Rankers, entries: AxisEntries, column: int, n: int
) -> tuple[PresenceEffect, ...]:
    """Return the n entries of a row that raise the probability of an entry in a column the most."""
    if rankers.presence is None or entries.others.size == 0:
        return ()
    effects, chance = _find_presence_effects(rankers, entries, column)
    best = np.argsort(-effects, kind="stable")[:n]
    best = best[effects[best] > _LEAST_EFFECT * chance]
    labels = rankers.entries.columns[entries.others[best]]
    fields = zip(
        labels.tolist(), entries.values[best].tolist(), effects[best].tolist(), strict=True
    )
    return tuple(PresenceEffect(*effect_fields) for effect_fields in fields)


def _find_presence_effects(
    rankers: Rankers, entries: AxisEntries, column: int
) -> tuple[FloatArray, float]:
    """Return by how much each entry of a row raises the probability of an entry in a column, and
    this probability.

    The score of a column is a sum over the entries of the row: the effect of an entry is the
    probability minus that of the score without its part, for a row with as many entries.
    """
    presence = rankers.presence
    assert presence is not None
    if rankers.rank_by == "next" and rankers.following is not None and entries.others.size:
        return rankers.following.explain(entries, presence.model, rankers.popularity, column)
    parts = presence.model.find_effects(entries, column)
    popularity = (rankers.popularity if parts.size else rankers.find_recent())[[column]]
    score = parts.sum() if parts.size else popularity[0]
    scores = np.append(score - parts, score)
    scores = presence.add_popularity(scores, popularity, presence.raise_popularity(popularity))
    offset = presence.find_offsets(np.array([entries.others.size]))
    chances = np.exp(presence.log_probabilities(scores, offset))
    return chances[-1] - chances[:-1], float(chances[-1])


def explain_targets(
    seen: EntryStore,
    predictor: Predictor,
    axis: Axis,
    entries: AxisEntries,
    own: int,
    targets: IndexArray,
    n: int,
) -> list[Explanation]:
    """Return the effects of the entries of one row (or column) on its prediction for each of some
    targets.

    Each entry is left out in turn, once for all targets. Of more than 256 entries, only the most
    prominent are: those with the largest distance of the value from the mean, times the similarity
    of their latents to the target's.

    entries: those that describe the row (or column). own: the position of the row (or column) in
        the predictor.
    """
    # Where not all entries are tried, others stand out for each target.
    if targets.size != 1 and _count_most_candidates(entries, n) < entries.values.size:
        return [
            explain_targets(seen, predictor, axis, entries, own, target, n)[0]
            for target in targets[:, None]
        ]
    predictions = predictor.predict_units(*_pair(axis, np.array([own]), targets))
    inputs = seen.limits.bound(entries)
    candidates = _choose_candidates(predictor, axis, inputs, targets, n)
    with_all = _predict(predictor.with_only(axis, inputs), axis, np.array([0]), targets)
    effects = with_all - _predict_without(predictor, axis, inputs, candidates, targets)
    best = np.argsort(-np.abs(effects), axis=0, kind="stable")[:n]  # (n, targets)
    labels, features = seen.get_labels(OTHER_AXIS[axis]), seen.get_features(axis)
    of_features = _find_feature_effects(predictor, axis, inputs, features, targets, with_all[0])
    return [
        Explanation(
            labels[entries.others[candidates[order]]],
            entries.values[candidates[order]],
            effects[order, k],
            float(predictions[k]),
            tuple(of_features[k][:n]),
        )
        for k, order in enumerate(best.T)
    ]


def _find_feature_effects(
    predictor: Predictor,
    axis: Axis,
    entries: AxisEntries,
    known: AxisFeatures | None,
    targets: IndexArray,
    with_all: FloatArray,
) -> list[list[FeatureEffect]]:
    """Return the effect of each feature on the prediction for each target, largest first."""
    items = (
        [] if known is None or entries.features is None else known.encoding.items(entries.features)
    )
    if not items or entries.features is None:
        return [[] for _ in range(targets.size)]
    features = entries.features.without_inputs([item.inputs for item in items])
    without = entries.take(np.zeros(len(items), dtype=np.int64))._replace(features=features)
    effects = with_all - _predict(
        predictor.with_only(axis, without), axis, np.arange(len(items)), targets
    )
    return [
        sorted(
            (
                FeatureEffect(item.name, item.text, float(effect))
                for item, effect in zip(items, column, strict=True)
            ),
            key=lambda each: -abs(each.effect),
        )
        for column in effects.T
    ]


def _count_most_candidates(entries: AxisEntries, n: int) -> int:
    return max(min(_MOST_CANDIDATES, _MOST_ENTRIES // max(entries.values.size, 1)), n)


def _choose_candidates(
    predictor: Predictor, axis: Axis, entries: AxisEntries, targets: IndexArray, n: int
) -> IndexArray:
    """Return the entries that are left out in turn; if these are not all, there is one target."""
    most = _count_most_candidates(entries, n)
    if entries.values.size <= most:
        return np.arange(entries.values.size)
    size = np.abs(entries.values - entries.values.mean())
    if predictor.has_latents:
        other_latents = predictor.columns if axis == "row" else predictor.rows
        n_latent = other_latents.base.shape[1] - predictor.factors.n_beside
        latents, aim = (
            other_latents.take(at, slice(0, n_latent)) for at in (entries.others, targets)
        )
        lengths = np.linalg.norm(latents, axis=1)
        size = size * np.abs(latents @ aim[0]) / np.where(lengths > 0, lengths, 1.0)
    return np.sort(np.argsort(-size, kind="stable")[:most])


def _predict_without(
    predictor: Predictor,
    axis: Axis,
    entries: AxisEntries,
    left_out: IndexArray,
    targets: IndexArray,
) -> FloatArray:
    """Return the predictions without each of some entries, (left out, targets)."""
    step = max(_ENTRIES_AT_A_TIME // max(entries.values.size, 1), 1)
    parts = [np.empty((0, targets.size))]
    for start in range(0, left_out.size, step):
        part = left_out[start : start + step]
        without = predictor.with_only(axis, entries, without=part)
        parts.append(_predict(without, axis, np.arange(part.size), targets))
    return np.concatenate(parts)


def _predict(predictor: Predictor, axis: Axis, own: IndexArray, targets: IndexArray) -> FloatArray:
    """Return the predictions as learned, without times and asked cells, (own, targets)."""
    units = predictor.read_units(*_pair(axis, own, targets))
    return units.reshape(own.size, targets.size)


def _pair(axis: Axis, own: IndexArray, targets: IndexArray) -> IndexPair:
    """Return the rows and columns of all pairs of some rows (or columns) and targets."""
    own_at, target_at = np.repeat(own, targets.size), np.tile(targets, own.size)
    return (own_at, target_at) if axis == "row" else (target_at, own_at)
