"""Reasons: which entries of a row pulled its predictions for several columns up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepmf.models.explanation import MOST_CANDIDATES
from deepmf.models.folded import FoldedRows
from deepmf.serve.bodies import Reason
from deepmf.serve.entry_changes import entries_of
from deepmf.serve.snapshot import Snapshot


def reasons_of(
    snapshot: Snapshot, guest: FoldedRows | None, row: Any, columns: Sequence[Any], n: int
) -> list[list[Reason]]:
    """Return for each column the n entries of a guest, or of a known row, with the largest effects.

    As `explain` does, every entry is left out in turn, but once for all columns; long rows are left to `explain`.
    """
    entries = _entries(snapshot, guest, row)
    if not 1 < len(entries) <= MOST_CANDIDATES:
        return [_explained(snapshot, guest, row, column, n) for column in columns]
    labels, values = list(entries), list(entries.values())
    places = range(len(labels))
    without = [([labels[k] for k in places if k != left], [values[k] for k in places if k != left]) for left in places]
    folded = snapshot.model.fold_in_many([(labels, values), *without])
    at = snapshot.model.entries_.columns.positions(columns)
    scores = folded.predictor.score_block(np.arange(len(folded)), at)
    predicted = folded.predictor.readout.units(scores)  # (all entries, then each left out; columns)
    effects = predicted[0] - predicted[1:]
    best = np.argsort(-np.abs(effects), axis=0, kind="stable")[:n]
    return [
        [Reason(column=labels[k], value=values[k], effect=float(effects[k, column])) for k in best[:, column]]
        for column in range(len(columns))
    ]


def _entries(snapshot: Snapshot, guest: FoldedRows | None, row: Any) -> dict[Any, float]:
    """Return the entries that describe a row: those over trained columns."""
    store = snapshot.model.entries_
    if guest is None:
        trained = store.train.columns
        return {label: value for label, value in entries_of(snapshot.model, "row", row).items() if label in trained}
    described = guest.observed.below(store.train.shape[1])
    return dict(zip(store.columns[described.others].tolist(), described.values.tolist(), strict=True))


def _explained(snapshot: Snapshot, guest: FoldedRows | None, row: Any, column: Any, n: int) -> list[Reason]:
    found = snapshot.model.explain(row, column, n) if guest is None else guest.explain(column, n)
    entries = zip(found.labels.tolist(), found.values.tolist(), found.effects.tolist(), strict=True)
    return [Reason(column=label, value=value, effect=effect) for label, value, effect in entries]
