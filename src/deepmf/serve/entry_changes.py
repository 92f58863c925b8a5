"""Changes of entries and features: what is put and what is forgotten, and the model that comes of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from deepmf.matrix.axis_features import AxisFeatures
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.model import Model
from deepmf.serve.served_features import AxisName, FeatureChanges, forgotten, together

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
