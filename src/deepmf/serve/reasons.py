"""Reasons: which entries of a row pulled its predictions for several columns up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepmf.errors import CannotExtend
from deepmf.models.explanation import explained_all
from deepmf.models.folded import FoldedRows
from deepmf.serve.prediction_bodies import Reason
from deepmf.serve.snapshot import Snapshot


def reasons_of(
    snapshot: Snapshot, guest: FoldedRows | None, row: Any, columns: Sequence[Any], n: int
) -> list[list[Reason]]:
    """Return for each column the n entries of a guest, or of a known row, with the largest effects."""
    model, entries = snapshot.model, snapshot.model.entries_
    targets = entries.columns.positions(columns)
    if guest is not None:
        own, predictor, described = 0, guest.predictor, guest.observed.below(entries.train.shape[1])
    elif "II" in model.predicts:
        at = entries.rows.positions([row])
        own, predictor, described = int(at[0]), model.predictor_, entries.row_entries(at)
    else:
        raise CannotExtend(f"{type(model).__name__} cannot explain by the entries of a row: {model.cannot}")
    found = explained_all(predictor, "row", described, entries.columns, own, targets, n)
    return [
        [
            Reason(column=label, value=value, effect=effect)
            for label, value, effect in zip(
                each.labels.tolist(), each.values.tolist(), each.effects.tolist(), strict=True
            )
        ]
        for each in found
    ]
