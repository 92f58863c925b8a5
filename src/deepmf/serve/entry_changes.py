"""Changes of entries: values put and entries forgotten, and the model that comes of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.model import Model

AxisName = Literal["row", "column"]
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


def changed_model(model: Model, changes: Changes) -> Model:
    """Return a model with the changes; what is as they want it already stays.

    A row or column that came after training and has no entry left is forgotten.
    """
    drops = [pair for pair, value in changes.items() if value is None]
    puts = _news(model, {pair: value for pair, value in changes.items() if value is not None})
    if drops:
        model = model.forget(entries=_unzipped(drops), missing="ignore")
    if puts:
        rows, columns = _unzipped(list(puts))
        new = ObservedMatrix.from_entries(rows, columns, list(puts.values()), model.scale_)
        model = model.extend(new, conflicts="replace")
    return _without_empty(model, drops) if drops else model


def etag_of(entries: Mapping[Any, float]) -> str:
    """Return the tag of some entries: equal where they are."""
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


def _without_empty(model: Model, dropped: list[Pair]) -> Model:
    entries = model.entries_
    rows, columns = _unzipped(dropped)
    empty_rows = _empty(entries.rows, entries.seen_columns, entries.train.shape[0], rows)
    empty_columns = _empty(entries.columns, entries.seen_rows, entries.train.shape[1], columns)
    if not empty_rows and not empty_columns:
        return model
    return model.forget(rows=empty_rows or None, columns=empty_columns or None)


def _empty(labels: Labels, seen: Any, n_trained: int, touched: list[Any]) -> list[Any]:
    at = np.unique(labels.find(touched))
    at = at[at >= n_trained]
    without: list[Any] = labels[at[np.diff(seen(at).starts) == 0]].tolist() if at.size else []
    return without


def _unzipped(pairs: list[Pair]) -> tuple[list[Any], list[Any]]:
    return [row for row, _ in pairs], [column for _, column in pairs]
