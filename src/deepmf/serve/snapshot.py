"""Snapshots: a model with the entries and features written since training, replayed from the
database, or exported."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadFeatures, BadSetting, CannotExtend, FileAbsent
from deepmf.matrix.extras import NO_TIME, Extras
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import AREAS, Entries
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.serve.changes import (
    UNUSABLE,
    Entry,
    EntryChanges,
    FeatureChanges,
    FeatureValues,
    Pair,
    apply_changes,
    collect_features,
    find_refused,
    get_axis_features,
    get_labels,
    has_features,
    is_ordered,
    keep_readable,
    list_changed,
    read_entries,
    read_pairs,
    summarise_features,
)
from deepmf.serve.database import StoredEntry, Transaction, open_database
from deepmf.serve.ids import are_numbers, check_servable, is_visitor
from deepmf.serve.omissions import OMISSIONS, Omissions
from deepmf.serve.schemas import MAX_UNUSED, ApiError, Axis, ModelResponse, ScaleSummary, Version

logger = logging.getLogger("deepmf.serve")

_AXES: tuple[Axis, ...] = ("row", "column")
# share of the stored rows, or of the columns, that a model of the same data knows
_FEWEST_KNOWN = 0.1


class UnusedEntry(NamedTuple):
    """An entry in the database that the model cannot use, and why."""

    entry: Entry
    reason: str


@dataclass(frozen=True)
class Snapshot:
    """A model with the entries written since training; immutable, so that a response reflects one
    moment.

    Parameters
    ----------
    base : the model as its file has it.
    model : the same model with the entries written since.
    omissions : the columns that recommendations leave out.
    unused : entries in the database that the model cannot use.
    """

    base: Model
    model: Model
    model_version: int = 1
    data_version: int = 0
    omissions: Omissions = field(default_factory=Omissions)
    unused: Mapping[Pair, UnusedEntry] = field(default_factory=dict)

    @classmethod
    def from_model(cls, model: Model) -> Snapshot:
        """Return the snapshot of a model as its file has it; raise `BadSetting` if its ids cannot
        be served."""
        for labels in (model.entries_.rows, model.entries_.columns):
            check_servable(labels)
        return cls(model, model)

    @property
    def version(self) -> Version:
        """The versions that responses carry."""
        return Version(model=self.model_version, data=self.data_version)

    @property
    def now(self) -> int:
        """The time of an entry that is written now without one: the current time if the model's
        entries are ordered."""
        return int(time.time()) if is_ordered(self.base) else NO_TIME

    def read_entries(self, axis: Axis, label: Any) -> dict[Any, Entry]:
        """Return the entries of a row by column, or of a column by row, also unused ones."""
        entries = read_entries(self.model, axis, label)
        place = 0 if axis == "row" else 1
        for pair, line in self.unused.items():
            if pair[place] == label:
                entries[pair[1 - place]] = line.entry
        return entries

    def read_pairs(self, pairs: Collection[Pair]) -> list[Entry | None]:
        """Return the entry of each pair, also an unused one; None if there is none."""
        entries = read_pairs(self.model, pairs)
        if not self.unused:
            return entries
        return [
            self.unused[pair].entry if pair in self.unused else entry
            for pair, entry in zip(pairs, entries, strict=True)
        ]

    def change(
        self,
        entries: EntryChanges,
        features: FeatureChanges | None = None,
        *,
        moved: Collection[Pair] = (),
    ) -> Snapshot:
        """Return a snapshot with changes of the database; entries that the model cannot use are
        logged and left out."""
        refused: dict[Pair, str] = {}
        try:
            model = apply_changes(self.model, entries, features, moved=moved)
        except CannotExtend:
            raise
        except UNUSABLE:
            refused = find_refused(self.model, entries)
            usable = {
                pair: changed_entry
                for pair, changed_entry in entries.items()
                if pair not in refused
            }
            model = apply_changes(self.model, usable, features, moved=moved)
        unused = {pair: line for pair, line in self.unused.items() if pair not in entries}
        for pair, reason in refused.items():
            entry = entries[pair]
            assert entry is not None  # the model can forget any entry
            unused[pair] = UnusedEntry(entry, reason)
        return replace(self, model=model, unused=unused)

    def describe(self) -> ModelResponse:
        """Return a description of the model."""
        model, entries = self.model, self.model.entries_
        scale, (n_rows, n_columns) = model.scale_, entries.train.shape
        return ModelResponse(
            model=type(model).__name__,
            scale=ScaleSummary(
                levels=None if scale.levels is None else scale.levels.tolist(),
                low=scale.low,
                high=scale.high,
            ),
            has_values=not scale.is_interactions,
            n_rows=len(entries.rows),
            n_columns=len(entries.columns),
            n_entries=entries.n_entries,
            n_trained_rows=n_rows,
            n_trained_columns=n_columns,
            areas=[area for area in AREAS if area in model.predicts],  # type: ignore[misc]
            gives_distribution=model.gives_distribution,
            ids={
                axis: "number" if are_numbers(get_labels(model, axis)) else "text" for axis in _AXES
            },
            nouns=dict(zip(_AXES, entries.train.form.nouns, strict=True)),
            row_features=summarise_features(model, "row"),
            column_features=summarise_features(model, "column"),
            version=self.version,
        )


def check_value(snapshot: Snapshot, value: float) -> None:
    """Raise `ApiError` for a value that is not on the scale."""
    if not snapshot.model.scale_.holds(value):
        raise ApiError(
            422,
            "off_scale",
            f"the value {value:g} is not on the scale, which is {snapshot.model.scale_}",
        )


def replay(base: Snapshot, transaction: Transaction) -> Snapshot:
    """Return the snapshot of a model's file with everything in the database that the model can use;
    raise `BadSetting` if they do not belong together."""
    state, entries = transaction.read_state(), transaction.read_entries()
    for place, axis in enumerate(_AXES):
        _check_ids(base.base, axis, (pair[place] for pair in entries))
    features = _select_readable(base.base, transaction.read_contents(*_AXES))
    omissions = Omissions(transaction.read_contents(*OMISSIONS))
    _check_ids(base.base, "row", omissions.dismissals)
    _check_ids(base.base, "column", omissions.states)
    try:
        snapshot = base.change(entries, features)
    except UNUSABLE as error:
        reason = f"the model cannot use the entries in the database ({error}); serve it with another --database"
        raise BadSetting(reason) from error
    _report_unused(snapshot.unused)
    return replace(snapshot, data_version=state.data_version, omissions=omissions)


def _report_unused(unused: Mapping[Pair, UnusedEntry]) -> None:
    """Log which entries the model cannot use."""
    for (row, column), line in list(unused.items())[:MAX_UNUSED]:
        shown_row = None if is_visitor(row) else row
        fields = {"row": shown_row, "column": column, "reason": line.reason, "of": len(unused)}
        logger.error("the model cannot use an entry in the database", extra={"fields": fields})


def check_replacement(
    model: Model, digest: str, transaction: Transaction, *, is_running: bool
) -> None:
    """Raise `BadSetting` for a model of other data than the model that the database was last served
    with.

    Parameters
    ----------
    is_running : whether clients use the earlier model: its scale counts even if there are no stored
        entries.
    """
    served = transaction.read_newest_model()
    if served is None or served.digest == digest:
        return
    pairs = [pair for pair, entry in transaction.read_entries().items() if entry is not None]
    if (pairs or is_running) and not _are_alike(served.scale, model.scale_):
        raise BadSetting(
            f"the model is of other data: its scale is {model.scale_}, that of the model before is {served.scale}; "
            "serve it with another --database"
        )
    shares = []
    for axis, stored in zip(_AXES, zip(*pairs, strict=True), strict=False):
        _check_ids(model, axis, stored)
        shares.append(float(np.mean(get_labels(model, axis).find(list(set(stored))) >= 0)))
    if shares and max(shares) < _FEWEST_KNOWN:
        raise BadSetting(
            f"the model knows {shares[0]:.0%} of the rows and {shares[1]:.0%} of the columns of stored entries; serve "
            "it with another --database"
        )


def _are_alike(one: Scale, other: Scale) -> bool:
    """Whether scales are equal; inferred intervals differ a little after each fit and must overlap
    by half."""
    if one.is_bounded or other.is_bounded or one.is_interactions or other.is_interactions:
        return one == other
    overlap = min(one.high, other.high) - max(one.low, other.low)
    return overlap >= 0.5 * max(one.high - one.low, other.high - other.low)


def catch_up(snapshot: Snapshot, transaction: Transaction) -> Snapshot:
    """Return a snapshot with the writes of other processes; the same snapshot if there are none."""
    version = transaction.read_state().data_version
    if version == snapshot.data_version:
        return snapshot
    # A database that was restored to an earlier state lacks changes that the snapshot has: replay
    # it.
    touched = (
        transaction.read_changes_since(snapshot.data_version)
        if version > snapshot.data_version
        else None
    )
    if touched is None:
        return replay(replace(snapshot, model=snapshot.base, unused={}), transaction)
    entries: dict[Pair, Entry | None] = {}
    features: dict[tuple[Axis, Any], FeatureValues | None] = {}
    moved: set[Pair] = set()
    changed = [key for key in touched if key[0] in OMISSIONS]
    omitted = dict.fromkeys(changed) | transaction.read_contents(
        *OMISSIONS, labels=[label for _, label in changed]
    )
    for axis in _AXES:
        labels = [label for topic, label in touched if topic == axis]
        stored = transaction.read_stored_entries(axis, labels)
        if is_ordered(snapshot.base):
            moved |= {pair for pair, line in stored.items() if line.version > snapshot.data_version}
        entries |= _compare_entries(snapshot, axis, labels, stored, moved)
        if get_axis_features(snapshot.model, axis) is not None:
            features |= _compare_features(
                snapshot, axis, labels, transaction.read_contents(axis, labels=labels)
            )
    changed_snapshot = snapshot.change(entries, features, moved=moved)
    if changed_snapshot.unused.keys() - snapshot.unused.keys():
        _report_unused(changed_snapshot.unused)
    omissions = snapshot.omissions.change(omitted)
    return replace(changed_snapshot, data_version=version, omissions=omissions)


def _check_ids(model: Model, axis: Axis, ids: Iterable[Any]) -> None:
    """Raise `BadSetting` for ids of another type than the model's."""
    number = are_numbers(get_labels(model, axis))
    if any(isinstance(label, int) != number for label in ids):
        kinds = ("integers", "text") if number else ("text", "integers")
        raise BadSetting(
            f"the database and the model do not belong together: the {axis}s of the model are {kinds[0]}, "
            f"those of the database are {kinds[1]}"
        )


def _compare_entries(
    snapshot: Snapshot,
    axis: Axis,
    labels: list[Any],
    stored: dict[Pair, StoredEntry],
    moved: Set[Pair],
) -> dict[Pair, Entry | None]:
    """Return the changes that bring some rows or columns of a snapshot to the state of the
    database, and the entries of moved pairs."""
    changed = {
        pair
        for model in (snapshot.base, snapshot.model)
        for pair in list_changed(model, axis, labels)
    }
    pairs = [*stored, *(changed - stored.keys())]
    # Entries that the database does not have are those of the model's file.
    of_file = read_pairs(snapshot.base, pairs[len(stored) :])
    stored_entries = [*(line.entry for line in stored.values()), *of_file]
    present_entries = snapshot.read_pairs(pairs)
    return {
        pair: stored_entry
        for pair, stored_entry, present_entry in zip(
            pairs, stored_entries, present_entries, strict=True
        )
        if stored_entry != present_entry or (pair in moved and stored_entry is not None)
    }


def _compare_features(
    snapshot: Snapshot, axis: Axis, labels: list[Any], stored: FeatureChanges
) -> dict[tuple[Axis, Any], FeatureValues | None]:
    """Return the changes that bring the features of some rows or columns to the state of the
    database."""
    changes: dict[tuple[Axis, Any], FeatureValues | None] = {}
    readable = _select_readable(snapshot.model, stored)
    for label in labels:
        is_known, key = has_features(snapshot.model, axis, label), (axis, label)
        if key in stored:
            if readable.get(key) is not None or is_known:
                changes[key] = readable.get(key)
        elif is_known and not has_features(snapshot.base, axis, label):
            # features that the database does not have are those of the model's file
            changes[key] = None
    return changes


def _select_readable(
    model: Model, stored: FeatureChanges
) -> dict[tuple[Axis, Any], FeatureValues | None]:
    """Return the features that a model can read, of those written for an earlier model; log how
    many it cannot."""
    readable: dict[tuple[Axis, Any], FeatureValues | None] = {}
    for axis in _AXES:
        of_axis = {key: values for key, values in stored.items() if key[0] == axis}
        axis_features, features = get_axis_features(model, axis), collect_features(of_axis, axis)
        if axis_features is None:
            continue
        with suppress(BadFeatures):  # it reads all of them, usually: that is checked in one go
            if features is not None:
                features.encode(axis_features.encoding)
            readable |= of_axis
            continue
        for key, values in of_axis.items():
            readable_values = None if values is None else keep_readable(model, axis, values)
            if readable_values is not None or values is None:
                readable[key] = readable_values
    n_left = sum(
        values is not None and len(readable.get(key) or ()) < len(values)
        for key, values in stored.items()
    )
    if n_left:
        logger.warning("the model does not read some features", extra={"fields": {"count": n_left}})
    return readable


class ExportedData(NamedTuple):
    """All entries that a service knows, with dates and weights, and the features written since
    training, if any.

    Features are exported as they were given, including those that the model does not read. Features
    of training are not exported, since a model keeps only their encoding, such as the year of a
    date.
    """

    entries: Entries
    extras: Extras
    row_features: Features | None
    column_features: Features | None


def export_data(model: Model, url: str) -> ExportedData:
    """Return the entries and features of a service with this model and database, and mark them as
    exported."""
    if "://" not in url and not Path(url).is_file():
        raise FileAbsent(
            f"there is no database {url}; --database names the one that the service was started with"
        )
    database = open_database(url)
    try:
        with database.begin_read() as transaction:
            with database.begin_write() as marking:  # brief, so that it delays no write
                marking.lock()
                marking.mark_exported()
                # the reading transaction starts here, at the state that was marked
                transaction.read_state()
            snapshot = replay(Snapshot.from_model(model), transaction)
            features = transaction.read_contents(*_AXES)
    finally:
        database.close()
    store = snapshot.model.entries_
    entries = store.seen_columns(np.arange(len(store.rows)))
    rows = np.repeat(store.rows.array, np.diff(entries.starts))
    order = entries.extras.sort_within(entries.group_of)
    return ExportedData(
        Entries(rows, store.columns[entries.others[order]], entries.values[order]),
        entries.extras.take(order),
        _export_features(model, features, "row"),
        _export_features(model, features, "column"),
    )


def _export_features(model: Model, stored: FeatureChanges, axis: Axis) -> Features | None:
    """Return the stored features of an axis, with the kinds that they have in the model where
    possible."""
    features, axis_features = collect_features(stored, axis), get_axis_features(model, axis)
    if features is None or axis_features is None:
        return features
    for name in features.names:
        with suppress(KeyError, BadFeatures):
            typed = features.with_kinds({name: axis_features.encoding.kinds[name]})
            typed.values(name)
            features = typed
    return features
