"""Replay: from a model as its file has it, or an older snapshot, to one with everything that the database has."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from deepmf.errors import BadFeatures, BadSetting
from deepmf.models.model import Model
from deepmf.serve.entry_changes import Changes, Pair, changed_model, entries_of
from deepmf.serve.entry_database import Transaction
from deepmf.serve.served_features import (
    AxisName,
    FeatureChanges,
    Given,
    axis_features,
    has_features,
    readable,
    together,
)
from deepmf.serve.snapshot import Snapshot
from deepmf.serve.wire_ids import are_numbers

logger = logging.getLogger("deepmf.serve")


def replayed(base: Snapshot, transaction: Transaction) -> Snapshot:
    """Return the snapshot of a model's file with everything that the database has."""
    state, entries = transaction.state(), transaction.all_entries()
    check_fits(base.base, entries)
    features = _read_by(base.base, transaction.all_features())
    return replace(base, model=changed_model(base.base, entries, features), data_version=state.data_version)


def caught_up(snapshot: Snapshot, transaction: Transaction) -> Snapshot:
    """Return a snapshot with what other processes wrote since; the same where there is nothing."""
    version = transaction.state().data_version
    if version == snapshot.data_version:
        return snapshot
    # A database that was restored to an earlier state lacks something of the snapshot.
    touched = transaction.changed_since(snapshot.data_version) if version > snapshot.data_version else None
    if touched is None:
        return replayed(Snapshot.of(snapshot.base, model_version=snapshot.model_version), transaction)
    changes: dict[Pair, float | None] = {}
    features: dict[tuple[AxisName, Any], Given | None] = {}
    for axis, label in touched:
        changes |= _difference(snapshot, axis, label, transaction.entries_at(axis, label))
        features |= _feature_difference(snapshot, axis, label, transaction.features_at(axis, label))
    return replace(snapshot, model=changed_model(snapshot.model, changes, features), data_version=version)


def check_fits(model: Model, entries: Changes) -> None:
    """Refuse entries that a model cannot take: ids of another kind, or values that are not on its scale."""
    numbers = tuple(are_numbers(labels) for labels in (model.entries_.rows, model.entries_.columns))
    for pair, value in entries.items():
        for axis, number, label in zip(("row", "column"), numbers, pair, strict=True):
            if isinstance(label, int) != number:
                kinds = ("whole numbers", "text") if number else ("text", "whole numbers")
                raise BadSetting(
                    f"the database and the model do not belong together: the {axis}s of the model are {kinds[0]}, "
                    f"those of the database {kinds[1]}"
                )
        if value is not None and not model.scale_.holds(value):
            raise BadSetting(
                "the database and the model do not belong together: the database has the value "
                f"{value:g}; the scale of the model is {model.scale_}"
            )


def _difference(
    snapshot: Snapshot, axis: AxisName, label: object, stored: dict[Pair, float | None]
) -> dict[Pair, float | None]:
    """Return what has to change in a snapshot for a row, or a column, to be as the database has it."""
    place = 1 if axis == "row" else 0
    wanted: dict[object, float | None] = dict(entries_of(snapshot.base, axis, label))
    wanted |= {pair[place]: value for pair, value in stored.items()}
    known = entries_of(snapshot.model, axis, label)
    others = wanted.keys() | known.keys()
    found = {other: wanted.get(other) for other in others if wanted.get(other) != known.get(other)}
    return {(label, other) if axis == "row" else (other, label): value for other, value in found.items()}


def _feature_difference(
    snapshot: Snapshot, axis: AxisName, label: object, stored: FeatureChanges
) -> dict[tuple[AxisName, Any], Given | None]:
    """Return what has to change in the features of a snapshot for a row, or column, to be as the database has it."""
    key, known = (axis, label), axis_features(snapshot.model, axis)
    if known is None:
        return {}
    if key in stored:
        found = _read_by(snapshot.model, stored)
        return {} if found.get(key) is None and not has_features(snapshot.model, axis, label) else found
    # What is not in the database is as the model's file has it: without features, or as it was all the time.
    is_left = has_features(snapshot.model, axis, label) and not has_features(snapshot.base, axis, label)
    return {key: None} if is_left else {}


def _read_by(model: Model, stored: FeatureChanges) -> dict[tuple[AxisName, Any], Given | None]:
    """Return what a model can read of features that came for another; the log says how much it cannot."""
    found: dict[tuple[AxisName, Any], Given | None] = {}
    axes: tuple[AxisName, ...] = ("row", "column")
    for axis in axes:
        own = {key: given for key, given in stored.items() if key[0] == axis}
        if own and axis_features(model, axis) is not None:
            found |= own if _all_readable(model, own, axis) else _readable_parts(model, own)
    n_left = sum(given is not None and len(found.get(key) or ()) < len(given) for key, given in stored.items())
    if n_left:
        logger.warning("features that the model does not read are left out", extra={"fields": {"count": n_left}})
    return found


def _all_readable(model: Model, stored: FeatureChanges, axis: AxisName) -> bool:
    known, features = axis_features(model, axis), together(stored, axis)
    try:
        if known is not None and features is not None:
            features.encoded(known.encoding)
    except BadFeatures:
        return False
    return True


def _readable_parts(model: Model, stored: FeatureChanges) -> dict[tuple[AxisName, Any], Given | None]:
    parts = {key: None if given is None else readable(model, key[0], given) for key, given in stored.items()}
    return {key: part for key, part in parts.items() if part is not None or stored[key] is None}
