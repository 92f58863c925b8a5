"""Changes of entries and features: what is put and what is forgotten, and the model that comes of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from deepmf.errors import BadFeatures
from deepmf.matrix.feature_encoding import CategoryEncoding, ColumnEncoding, FeatureVectors
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.serve.errors import Refusal
from deepmf.serve.schemas import MOST_CATEGORIES_SHOWN, MOST_FEATURES, FeatureDescription, ReadFeature

AxisName = Literal["row", "column"]

Given = Mapping[str, Any]  # values by name, as they came

FeatureChanges = Mapping[tuple[AxisName, Any], Given | None]  # by axis and label; None: forget


def has_features(model: Model, axis: AxisName, label: Any) -> bool:
    """Say whether a model has features of a row or column, if only such as it does not tell apart."""
    known, store = axis_features(model, axis), model.entries_
    at = (store.rows if axis == "row" else store.columns).find([label])
    return known is not None and bool(at[0] >= 0) and bool(known.take(at).are_known[0])


def features_of(model: Model, axis: AxisName, label: Any) -> dict[str, ReadFeature]:
    """Return the features of a row or column as the model reads them; none where it, or all of them, are unknown."""
    known, store = axis_features(model, axis), model.entries_
    at = (store.rows if axis == "row" else store.columns).find([label])
    return {} if known is None or at[0] < 0 else as_read(known, known.take(at))


def axis_features(model: Model, axis: AxisName) -> AxisFeatures | None:
    """Return the features that a model has of an axis."""
    return model.entries_.row_features if axis == "row" else model.entries_.column_features


def as_read(known: AxisFeatures, vectors: FeatureVectors) -> dict[str, ReadFeature]:
    """Return what a single vector of features says."""
    kinds = {column.name: column.kind for column in known.encoding.columns}
    found: dict[str, Any] = {}
    for item in known.encoding.items(vectors):
        if kinds[item.name] == "list":
            found.setdefault(item.name, []).append(item.text)
        else:
            found[item.name] = float(item.text) if kinds[item.name] == "number" else item.text
    return found


def check_features(model: Model, axis: AxisName, given: Given) -> AxisFeatures:
    """Refuse features that the model cannot read; return those that it has of the axis."""
    known = axis_features(model, axis)
    if known is None:
        raise Refusal(409, "no_features", f"the model was fitted without {axis} features, and cannot read any")
    try:
        known.encode_one(given)
    except BadFeatures as error:
        raise Refusal(422, "bad_features", str(error)) from error
    return known


def readable(model: Model, axis: AxisName, given: Given) -> Given | None:
    """Return what a model can read of features that another one could; None where that is nothing."""
    known = axis_features(model, axis)
    if known is None:
        return None
    left = {}
    for name, value in given.items():
        try:
            known.encode_one({name: value})
        except BadFeatures:
            continue
        left[name] = value
    return left or None


def together(changes: FeatureChanges, axis: AxisName) -> Features | None:
    """Return the features that changes give to labels of an axis; None where there are none."""
    given = {label: values for (of, label), values in changes.items() if of == axis and values is not None}
    if not given:
        return None
    names = dict.fromkeys(name for values in given.values() for name in values)
    columns = {name: [values.get(name) for values in given.values()] for name in names}
    return Features.from_columns(list(given), columns)


def forgotten(changes: FeatureChanges, axis: AxisName) -> list[Any] | None:
    """Return the labels of an axis whose features changes forget; None where there are none."""
    return [label for (of, label), values in changes.items() if of == axis and values is None] or None


def described(model: Model, axis: AxisName) -> list[FeatureDescription]:
    """Return the features that a model reads of an axis."""
    known = axis_features(model, axis)
    columns: Iterable[ColumnEncoding] = () if known is None else known.encoding.columns[:MOST_FEATURES]
    return [_description(column) for column in columns]


def _description(column: ColumnEncoding) -> FeatureDescription:
    known = column.categories if isinstance(column, CategoryEncoding) else None
    return FeatureDescription(
        name=column.name,
        kind=column.kind,  # type: ignore[arg-type]
        categories=None if known is None else list(known[:MOST_CATEGORIES_SHOWN]),
        n_categories=None if known is None else len(known),
    )


Pair = tuple[Any, Any]  # labels of a row and a column

Changes = Mapping[Pair, float | None]  # None: forget


def entries_of(model: Model, axis: AxisName, label: Any) -> dict[Any, float]:
    """Return the entries of a row by column, or those of a column by row; none where it is unknown."""
    entries = model.entries_
    labels, others = (entries.rows, entries.columns) if axis == "row" else (entries.columns, entries.rows)
    at = labels.find([label])
    if at[0] < 0:
        return {}
    found = entries.seen_columns(at) if axis == "row" else entries.seen_rows(at)
    return dict(zip(others[found.others].tolist(), found.values.tolist(), strict=True))


def has_entry(model: Model, row: Any, column: Any) -> bool:
    """Say whether a model has an entry for a pair."""
    entries = model.entries_
    at = entries.rows.find([row]), entries.columns.find([column])
    return bool(at[0][0] >= 0 and at[1][0] >= 0 and not np.isnan(entries.values_at(*at)[0]))


def changed_model(model: Model, changes: Changes, features: FeatureChanges | None = None) -> Model:
    """Return a model with the changes; what is as they want it already stays.

    A row or column that came after training and has neither an entry nor features left is forgotten.
    """
    features = features or {}
    drops = [pair for pair, value in changes.items() if value is None]
    puts = _news(model, {pair: value for pair, value in changes.items() if value is not None})
    rows, columns = _unzipped(drops)
    bare_rows, bare_columns = forgotten(features, "row"), forgotten(features, "column")
    if drops or bare_rows or bare_columns:
        model = model.forget(
            entries=(rows, columns), row_features=bare_rows, column_features=bare_columns, missing="ignore"
        )
    new = _matrix(puts, model) if puts else None
    row_features, column_features = together(features, "row"), together(features, "column")
    if new is not None or row_features is not None or column_features is not None:
        model = model.extend(new, row_features=row_features, column_features=column_features, conflicts="replace")
    return _without_empty(model, [*rows, *(bare_rows or ())], [*columns, *(bare_columns or ())])


def _matrix(puts: Mapping[Pair, float], model: Model) -> ObservedMatrix:
    rows, columns = _unzipped(list(puts))
    return ObservedMatrix.from_entries(rows, columns, list(puts.values()), model.scale_)


def etag_of(entries: Mapping[Any, Any]) -> str:
    """Return the tag of some entries, or features: equal where they are."""
    digest = hashlib.sha256()
    for label, value in sorted(entries.items()):
        digest.update(repr((label, value)).encode("utf-8", "surrogatepass"))
    return f'"{digest.hexdigest()[:32]}"'


def _news(model: Model, puts: dict[Pair, float]) -> dict[Pair, float]:
    """Return what the model does not have already."""
    if not puts:
        return puts
    entries = model.entries_
    rows, columns = _unzipped(list(puts))
    row_at, column_at = entries.rows.find(rows), entries.columns.find(columns)
    known = (row_at >= 0) & (column_at >= 0)
    values = np.full(len(puts), np.nan)
    values[known] = entries.values_at(row_at[known].astype(np.int64), column_at[known].astype(np.int64))
    return {pair: value for (pair, value), old in zip(puts.items(), values.tolist(), strict=True) if old != value}


def _without_empty(model: Model, rows: list[Any], columns: list[Any]) -> Model:
    """Return a model without those of some rows and columns that came after training and have nothing left."""
    if not rows and not columns:
        return model
    entries = model.entries_
    empty_rows = _empty(entries.rows, entries.seen_columns, entries.row_features, entries.train.shape[0], rows)
    empty_columns = _empty(entries.columns, entries.seen_rows, entries.column_features, entries.train.shape[1], columns)
    if not empty_rows and not empty_columns:
        return model
    return model.forget(rows=empty_rows or None, columns=empty_columns or None)


def _empty(labels: Labels, seen: Any, features: AxisFeatures | None, n_trained: int, touched: list[Any]) -> list[Any]:
    at = np.unique(labels.find(touched)) if touched else np.empty(0, dtype=np.int64)
    at = at[at >= n_trained]
    if not at.size:
        return []
    nothing = np.diff(seen(at).starts) == 0
    if features is not None:
        nothing &= ~features.take(at).are_known
    without: list[Any] = labels[at[nothing]].tolist()
    return without


def _unzipped(pairs: list[Pair]) -> tuple[list[Any], list[Any]]:
    return [row for row, _ in pairs], [column for _, column in pairs]
