"""Reasons: which entries and features of a row pulled its predictions for several columns up or down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from deepmf.errors import CannotExtend
from deepmf.models.explanation import explained_all
from deepmf.models.folded import FoldedRows
from deepmf.serve.prediction_bodies import FeatureReason, Reason
from deepmf.serve.snapshot import Snapshot


class Reasons(NamedTuple):
    """The entries and the features with the largest effects on a prediction, largest first."""

    entries: list[Reason]
    features: list[FeatureReason]


def reasons_of(snapshot: Snapshot, guest: FoldedRows | None, row: Any, columns: Sequence[Any], n: int) -> list[Reasons]:
    """Return for each column the n entries, and features, of a guest or of a known row with the largest effects."""
    model, entries = snapshot.model, snapshot.model.entries_
    targets = entries.columns.positions(columns)
    if guest is not None:
        own, predictor, described = 0, guest.predictor, guest.observed.below(entries.train.shape[1])
    elif "II" in model.predicts:
        at = entries.rows.positions([row])
        own, predictor, described = int(at[0]), model.predictor_, entries.row_entries(at)
    else:
        raise CannotExtend(f"{type(model).__name__} cannot explain by the entries of a row: {model.cannot}")
    encoding = None if entries.row_features is None else entries.row_features.encoding
    found = explained_all(predictor, "row", described, entries.columns, own, targets, n, encoding=encoding)
    return [
        Reasons(
            [
                Reason(column=label, value=value, effect=effect)
                for label, value, effect in zip(
                    each.labels.tolist(), each.values.tolist(), each.effects.tolist(), strict=True
                )
            ],
            [FeatureReason(name=name, value=value, effect=effect) for name, value, effect in each.features],
        )
        for each in found
    ]
