"""The features of rows and columns that a model knows, as bodies have them, and checks of those that are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from deepmf.errors import BadFeatures
from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.feature_encoding import CategoryEncoding, ColumnEncoding
from deepmf.matrix.feature_vectors import FeatureVectors
from deepmf.matrix.features import Features
from deepmf.models.model import Model
from deepmf.serve.bodies import MOST_CATEGORIES_SHOWN, MOST_FEATURES, FeatureDescription, ReadFeature
from deepmf.serve.refusals import Refusal

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
        known.of_one(given)
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
            known.of_one({name: value})
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
