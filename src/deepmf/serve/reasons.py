"""Reasons: which entries and features of a row pulled its predictions for several columns up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entry_store import AxisEntries
from deepmf.models.explanation import MOST_CANDIDATES
from deepmf.models.folded import FoldedRows
from deepmf.models.predictor import Predictor
from deepmf.serve.bodies import FeatureReason, Reason
from deepmf.serve.snapshot import Snapshot


class Reasons(NamedTuple):
    """The entries and the features with the largest effects on a prediction, largest first."""

    entries: list[Reason]
    features: list[FeatureReason]


def reasons_of(snapshot: Snapshot, guest: FoldedRows | None, row: Any, columns: Sequence[Any], n: int) -> list[Reasons]:
    """Return for each column the n entries, and features, of a guest or of a known row with the largest effects.

    As `explain` does, every entry is left out in turn, but once for all columns; long rows are left to `explain`.
    """
    described = _described(snapshot, guest, row)
    if described.values.size > MOST_CANDIDATES:
        return [_explained(snapshot, guest, row, column, n) for column in columns]
    store, predictor = snapshot.model.entries_, snapshot.model.predictor_
    at = store.columns.positions(columns)
    (with_all,) = _predicted(predictor.with_rows(described), at)
    labels, values = store.columns[described.others].tolist(), described.values.tolist()
    effects = np.empty((0, at.size))
    if labels:
        effects = with_all - _predicted(predictor.with_rows_without_each(described, np.arange(len(labels))), at)
    known = store.row_features
    items = [] if known is None or described.features is None else known.encoding.items(described.features)
    of_features = np.empty((0, at.size))
    if items and described.features is not None:
        without = described.with_features_of(described.features.without_inputs([item.inputs for item in items]))
        of_features = with_all - _predicted(predictor.with_rows(without), at)
    return [
        Reasons(
            [
                Reason(column=labels[k], value=values[k], effect=float(effects[k, place]))
                for k in _largest(effects[:, place], n)
            ],
            [
                FeatureReason(name=items[k].name, value=items[k].text, effect=float(of_features[k, place]))
                for k in _largest(of_features[:, place], n)
            ],
        )
        for place in range(at.size)
    ]


def _described(snapshot: Snapshot, guest: FoldedRows | None, row: Any) -> AxisEntries:
    """Return what describes a row: its entries over trained columns, and its features."""
    store = snapshot.model.entries_
    if guest is not None:
        return guest.observed.below(store.train.shape[1])
    return store.row_entries(store.rows.positions([row]))


def _predicted(predictor: Predictor, columns: Any) -> FloatArray:
    """Return what is predicted (rows, columns) for all rows of a predictor."""
    return predictor.readout.units(predictor.score_block(np.arange(len(predictor.rows)), columns))


def _largest(effects: FloatArray, n: int) -> list[int]:
    found: list[int] = np.argsort(-np.abs(effects), kind="stable")[:n].tolist()
    return found


def _explained(snapshot: Snapshot, guest: FoldedRows | None, row: Any, column: Any, n: int) -> Reasons:
    found = snapshot.model.explain(row, column, n) if guest is None else guest.explain(column, n)
    entries = zip(found.labels.tolist(), found.values.tolist(), found.effects.tolist(), strict=True)
    return Reasons(
        [Reason(column=label, value=value, effect=effect) for label, value, effect in entries],
        [FeatureReason(name=name, value=value, effect=effect) for name, value, effect in found.features],
    )
