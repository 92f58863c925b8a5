"""Entries and features of a model: read them, and apply changes to them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadFeatures, CannotExtend, UserError
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.axis_entries import OTHER_AXIS
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import NO_TIME, Extras, check_weights, parse_times
from deepmf.matrix.feature_encoding import CategoryEncoding, ColumnEncoding
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.sorting import number_in_rows
from deepmf.models.base import Model
from deepmf.serve.omissions import NO_CHANGES, ContentChanges
from deepmf.serve.schemas import (
    MAX_ITEMS,
    MAX_SHOWN,
    ApiError,
    Axis,
    EncodedFeature,
    FeatureSummary,
)


class Entry(NamedTuple):
    """The value of an entry, its time in Unix seconds (`NO_TIME` without a date), and its
    weight."""

    value: float
    time: int = NO_TIME
    weight: float = 1.0

    def describe(self) -> dict[str, Any]:
        """Return its fields as JSON has them, without an absent date and a weight of 1."""
        fields: dict[str, Any] = {"value": self.value}
        if self.time != NO_TIME:
            fields["time"] = f"{np.datetime64(self.time, 's')}Z"
        if self.weight != 1:
            fields["weight"] = self.weight
        return fields


Pair = tuple[Any, Any]  # labels of a row and a column
EntryChanges = Mapping[Pair, Entry | None]  # None forgets an entry
NO_ENTRIES: EntryChanges = MappingProxyType({})
FeatureValues = Mapping[str, Any]  # by name, as they were given

# how a model refuses entries: ours, and those of the solvers
UNUSABLE = (UserError, ArithmeticError, ValueError)
_MOST_TRIALS = 200  # each takes milliseconds; a bulk write may have thousands of bad lines


def apply_changes(
    model: Model,
    entries: EntryChanges,
    contents: ContentChanges = NO_CHANGES,
    *,
    moved: Collection[Pair] = (),
) -> Model:
    """Return a model with changed entries and features, without training.

    A row or column that came after training is forgotten when it has neither entries nor features
    left.

    Parameters
    ----------
    entries : in the order in which they were written, which orders those of the same time.
    moved : pairs that come later in this order than in the model, though the entry may be the same.
    """
    rows, columns = _split_pairs([pair for pair, entry in entries.items() if entry is None])
    bare_rows, bare_columns = _list_forgotten(contents, "row"), _list_forgotten(contents, "column")
    new_entries, restated = _find_new(
        model, {pair: entry for pair, entry in entries.items() if entry is not None}, moved
    )
    forgotten = _split_pairs([*zip(rows, columns, strict=True), *restated])
    if forgotten[0] or bare_rows or bare_columns:
        model = model.forget(
            entries=forgotten,
            row_features=bare_rows,
            column_features=bare_columns,
            missing="ignore",
        )
    matrix = _build_matrix(new_entries, model) if new_entries else None
    row_features = collect_features(contents, "row")
    column_features = collect_features(contents, "column")
    if matrix is not None or row_features is not None or column_features is not None:
        model = model.extend(
            matrix, row_features=row_features, column_features=column_features, conflicts="replace"
        )
    empty_rows = _find_empty(model.entries_, "row", rows + bare_rows)
    empty_columns = _find_empty(model.entries_, "column", columns + bare_columns)
    if empty_rows or empty_columns:
        return model.forget(rows=empty_rows, columns=empty_columns)
    return model


def find_refused(model: Model, entries: EntryChanges) -> dict[Pair, str]:
    """Return the entries that a model cannot learn, and why.

    Entries are tried together, and those that fail in halves. After `_MOST_TRIALS`, all entries of
    a group that fails are refused.
    """
    refused: dict[Pair, str] = {}
    groups = [list(entries.items())]
    n_trials = 0
    while groups:
        group = groups.pop()
        n_trials += 1
        try:
            model = apply_changes(model, dict(group))
        except CannotExtend:
            raise
        except UNUSABLE as error:
            if len(group) == 1 or n_trials > _MOST_TRIALS:
                refused |= {pair: str(error) for pair, _ in group}
            else:
                half = len(group) // 2
                groups += [group[half:], group[:half]]
    return refused


def read_entries(model: Model, axis: Axis, label: Any) -> dict[Any, Entry]:
    """Return the entries of a row by column, or of a column by row; none if the label is
    unknown."""
    store, other_axis = model.entries_, OTHER_AXIS[axis]
    at = model.entries_.get_labels(axis).find([label])
    if at[0] < 0:
        return {}
    entries = store.all_entries(axis, at)
    other_labels = model.entries_.get_labels(other_axis)[entries.others].tolist()
    return dict(zip(other_labels, list_entries(entries.values, entries.extras), strict=True))


def read_pairs(model: Model, pairs: Collection[Pair]) -> list[Entry | None]:
    """Return the entry that a model has for each pair; None if it has none."""
    store = model.entries_
    rows, columns = _split_pairs(pairs)
    row_at, column_at = store.rows.find(rows), store.columns.find(columns)
    places = np.flatnonzero((row_at >= 0) & (column_at >= 0))
    values = store.values_at(row_at[places].astype(np.int64), column_at[places].astype(np.int64))
    places, values = places[~np.isnan(values)], values[~np.isnan(values)]  # NaN: there is no entry
    extras = store.take_extras(row_at[places].astype(np.int64), column_at[places].astype(np.int64))
    pair_entries: list[Entry | None] = [None] * len(pairs)
    for place, entry in zip(places.tolist(), list_entries(values, extras), strict=True):
        pair_entries[place] = entry
    return pair_entries


def list_entries(values: FloatArray, extras: Extras) -> list[Entry]:
    """Return entries from arrays of their values, times and weights."""
    if extras.are_absent:
        return [Entry(value) for value in values.tolist()]
    times = repeat(NO_TIME) if extras.times is None else extras.times.tolist()
    weights = repeat(1.0) if extras.weights is None else extras.weights.tolist()
    return list(map(Entry, values.tolist(), times, weights))


def compute_etag(entries: Mapping[Any, Any]) -> str:
    """Return the ETag of entries or features; equal entries have equal ETags."""
    digest = hashlib.sha256()
    for label, content in sorted(entries.items()):
        digest.update(repr((label, content)).encode("utf-8", "surrogatepass"))
    return f'"{digest.hexdigest()[:32]}"'


def read_features(model: Model, axis: Axis, label: Any) -> dict[str, EncodedFeature]:
    """Return the features of a row or column as the model encodes them; none if the label is
    unknown."""
    axis_features, at = (
        model.entries_.get_features(axis),
        model.entries_.get_labels(axis).find([label]),
    )
    if axis_features is None or at[0] < 0:
        return {}
    return axis_features.encoding.decode(axis_features.take(at))


def has_features(model: Model, axis: Axis, label: Any) -> bool:
    """Whether a model has features of a row or column, even if its encoding ignores all of them."""
    axis_features, at = (
        model.entries_.get_features(axis),
        model.entries_.get_labels(axis).find([label]),
    )
    if axis_features is None or at[0] < 0:
        return False
    return bool(axis_features.take(at).are_known[0])


def check_features(model: Model, axis: Axis, values: FeatureValues) -> AxisFeatures:
    """Raise `ApiError` for features that the model cannot read; return the features that it has of
    the axis."""
    axis_features = model.entries_.get_features(axis)
    if axis_features is None:
        raise ApiError(
            409, "no_features", f"the model was fitted without {axis} features and cannot read any"
        )
    try:
        axis_features.encode_one(values)
    except BadFeatures as error:
        raise ApiError(422, "bad_features", str(error)) from error
    return axis_features


def keep_readable(axis_features: AxisFeatures, values: FeatureValues) -> FeatureValues | None:
    """Return the features of another model that this model can read; None if there are none."""
    readable = {}
    for name, value in values.items():
        with suppress(BadFeatures):
            axis_features.encode_one({name: value})
            readable[name] = value
    return readable or None


def collect_features(changes: ContentChanges, axis: Axis) -> Features | None:
    """Return the features that changes give to labels of an axis; None if there are none."""
    values_of = {
        label: values
        for (kind, label), values in changes.items()
        if kind == axis and values is not None
    }
    if not values_of:
        return None
    names = dict.fromkeys(name for values in values_of.values() for name in values)
    columns = {name: [values.get(name) for values in values_of.values()] for name in names}
    return Features.from_columns(list(values_of), columns)


def summarise_features(model: Model, axis: Axis) -> list[FeatureSummary]:
    """Return the features that a model reads of an axis."""
    axis_features = model.entries_.get_features(axis)
    if axis_features is None:
        return []
    return [_summarise_column(column) for column in axis_features.encoding.columns[:MAX_ITEMS]]


def _summarise_column(column: ColumnEncoding) -> FeatureSummary:
    all_categories = column.categories if isinstance(column, CategoryEncoding) else None
    return FeatureSummary(
        name=column.name,
        kind=column.kind,  # type: ignore[arg-type]
        categories=None if all_categories is None else list(all_categories[:MAX_SHOWN]),
        n_categories=None if all_categories is None else len(all_categories),
    )


def _list_forgotten(changes: ContentChanges, axis: Axis) -> list[Any]:
    return [label for (kind, label), values in changes.items() if kind == axis and values is None]


def _find_new(
    model: Model, entries: dict[Pair, Entry], moved: Collection[Pair]
) -> tuple[dict[Pair, Entry], list[Pair]]:
    """Return the entries that the model does not have, and the pairs of which only the time, weight
    or place differs.

    The latter are forgotten first: `extend` cannot remove a date or reset a weight. A model that
    does not use weights gets none, since an earlier model may have used them.
    """
    if not model.takes_weights:
        entries = {pair: entry._replace(weight=1.0) for pair, entry in entries.items()}
    model_entries = dict(zip(entries, read_pairs(model, entries), strict=True)) if entries else {}
    new_entries = {
        pair: entry
        for pair, entry in entries.items()
        if entry != model_entries[pair] or pair in moved
    }
    return new_entries, [
        pair
        for pair, entry in new_entries.items()
        if (old := model_entries[pair]) is not None and old.value == entry.value
    ]


def _build_matrix(entries: dict[Pair, Entry], model: Model) -> ObservedMatrix:
    values, times, weights = zip(*entries.values(), strict=True)
    rows, columns = _split_pairs(list(entries))
    row_of, column_of = Labels.gather(rows, axis="row"), Labels.gather(columns, axis="column")
    extras = Extras(
        parse_times(np.array(times)).seconds,
        check_weights(weights, len(weights)),
        number_in_rows(row_of.positions) if is_ordered(model) else None,
    )
    return ObservedMatrix.from_positions(
        row_of, column_of, np.array(values), scale=model.scale_, extras=extras
    )


def is_ordered(model: Model) -> bool:
    """Whether a model was fitted to entries with an order, which then matters for new ones."""
    return model.entries_.train.extras.are_ordered


def _find_empty(entries: EntryStore, axis: Axis, touched: list[Any]) -> list[Any]:
    """Return the labels that were added after training and have neither entries nor features
    left."""
    if not touched:
        return []
    n_trained = entries.train.shape[axis == "column"]
    labels = entries.get_labels(axis)
    at = np.unique(labels.find(touched))
    at = at[at >= n_trained]
    empty: list[Any] = labels[at[entries.all_entries(axis, at).are_empty]].tolist()
    return empty


def _split_pairs(pairs: Collection[Pair]) -> tuple[list[Any], list[Any]]:
    return [row for row, _ in pairs], [column for _, column in pairs]
