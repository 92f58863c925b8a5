"""What a service exports: the entries of a model's file with all that it learned since, and features that came."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadFeatures, BadSetting, FileAbsent
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import AREAS, Entries
from deepmf.models.base import Model
from deepmf.serve.changes import (
    AxisName,
    Changes,
    FeatureChanges,
    Given,
    Pair,
    axis_features,
    changed_model,
    described,
    entries_of,
    has_features,
    readable,
    together,
)
from deepmf.serve.database import EntryDatabase, Transaction, open_database
from deepmf.serve.ids import are_numbers, check_servable
from deepmf.serve.schemas import ModelDescription, ScaleBody, VersionBody


@dataclass(frozen=True)
class Snapshot:
    """A model with the entries that came since it was loaded; immutable, so that an answer is of one moment.

    base: the model as its file has it.
    model: the same with the entries that came since.
    """

    base: Model
    model: Model
    model_version: int = 1
    data_version: int = 0

    @classmethod
    def of(cls, model: Model, *, model_version: int = 1) -> Snapshot:
        """Return the snapshot of a model as its file has it; one whose ids cannot be served is refused."""
        for labels in (model.entries_.rows, model.entries_.columns):
            check_servable(labels)
        return cls(model, model, model_version)

    @property
    def version(self) -> VersionBody:
        """The versions that answers carry."""
        return VersionBody(model=self.model_version, data=self.data_version)

    def describe(self) -> ModelDescription:
        """Say what model this is."""
        model, entries = self.model, self.model.entries_
        scale, (n_rows, n_columns) = model.scale_, entries.train.shape
        return ModelDescription(
            model=type(model).__name__,
            scale=ScaleBody(
                levels=None if scale.levels is None else scale.levels.tolist(), low=scale.low, high=scale.high
            ),
            n_rows=len(entries.rows),
            n_columns=len(entries.columns),
            n_entries=entries.n_entries,
            n_trained_rows=n_rows,
            n_trained_columns=n_columns,
            areas=[area for area in AREAS if area in model.predicts],  # type: ignore[misc]
            gives_distribution=model.gives_distribution,
            ids={
                axis: "number" if are_numbers(labels) else "text"
                for axis, labels in (("row", entries.rows), ("column", entries.columns))
            },
            row_features=described(model, "row"),
            column_features=described(model, "column"),
            version=self.version,
        )


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
            features.encode(known.encoding)
    except BadFeatures:
        return False
    return True


def _readable_parts(model: Model, stored: FeatureChanges) -> dict[tuple[AxisName, Any], Given | None]:
    parts = {key: None if given is None else readable(model, key[0], given) for key, given in stored.items()}
    return {key: part for key, part in parts.items() if part is not None or stored[key] is None}


class Exported(NamedTuple):
    """All entries that a service knows, and the features that rows and columns were given since training.

    Features are as they were given, those that the model does not read too; None where none came. Of those that its
    file has, a model knows what it reads of them alone, such as the year of a date: they are in no export.
    """

    entries: Entries
    row_features: Features | None
    column_features: Features | None


def exported(model: Model, url: str) -> Exported:
    """Return what a service with this model and database exports, and remember that it was exported."""
    if "://" not in url and not Path(url).is_file():
        raise FileAbsent(f"there is no database {url}; --database names the one that the service was started with")
    database = EntryDatabase(open_database(url))
    try:
        with database.reading() as transaction:
            with database.writing() as marking:  # for a moment: what is written while entries are read waits for nobody
                marking.lock()
                marking.mark_exported()
                transaction.state()  # from here on it sees what the mark is of
            snapshot = replayed(Snapshot.of(model), transaction)
            came = transaction.all_features()
    finally:
        database.close()
    return Exported(
        current_entries(snapshot.model), _given_features(model, came, "row"), _given_features(model, came, "column")
    )


def _given_features(model: Model, came: FeatureChanges, axis: AxisName) -> Features | None:
    """Return the features that came for an axis, of the kinds that the model has them as, where they can be."""
    features, known = together(came, axis), axis_features(model, axis)
    if features is None or known is None:
        return features
    kinds = known.encoding.kinds
    return features.with_kinds({name: kinds[name] for name in features.names if _can_be(features, name, kinds)})


def _can_be(features: Features, name: str, kinds: Mapping[str, str]) -> bool:
    if name not in kinds:
        return False
    try:
        features.with_kinds({name: kinds[name]}).values(name)
    except BadFeatures:
        return False
    return True


def current_entries(model: Model) -> Entries:
    """Return the entries of training that were neither replaced nor forgotten, then those that came since."""
    store = model.entries_
    rows, columns, values = (np.delete(part, store.dropped) for part in store.train.entries())
    if store.added is None:
        return Entries(rows, columns, values)
    added = store.added
    return Entries(
        np.concatenate([rows, store.rows[added.rows]]),
        np.concatenate([columns, store.columns[added.columns]]),
        np.concatenate([values, added.values]),
    )
