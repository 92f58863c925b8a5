"""Snapshots: a model with the entries and features written since training, replayed from the
database, or exported."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from deepmf.errors import BadFeatures, BadSetting, CannotExtend, FileAbsent
from deepmf.matrix.extras import NO_TIME, Extras
from deepmf.matrix.features import Features
from deepmf.matrix.matrix import AREAS, Entries
from deepmf.matrix.scale import Scale
from deepmf.models.base import Model
from deepmf.serve.changes import (
    NO_ENTRIES,
    UNUSABLE,
    Entry,
    EntryChanges,
    Pair,
    apply_changes,
    collect_features,
    find_refused,
    is_ordered,
    keep_readable,
    read_entries,
    read_pairs,
    summarise_features,
)
from deepmf.serve.database import Transaction, open_database
from deepmf.serve.ids import ID_KINDS, check_servable, get_kind, is_visitor
from deepmf.serve.omissions import AXIS_OF, OMISSIONS, ContentChanges, Omissions
from deepmf.serve.schemas import (
    MAX_CONDITIONS,
    ApiError,
    Axis,
    ModelResponse,
    ScaleSummary,
    Version,
)

logger = logging.getLogger("deepmf.serve")

_AXES: tuple[Axis, ...] = ("row", "column")
_ID_WORDS: dict[type, Literal["text", "number"]] = {str: "text", int: "number"}
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

    @cached_property
    def unused_entries(self) -> dict[Pair, Entry]:
        """The entries that the model cannot use."""
        return {pair: line.entry for pair, line in self.unused.items()}

    def read_entries(
        self, axis: Axis, label: Any, changes: EntryChanges = NO_ENTRIES
    ) -> dict[Any, Entry]:
        """Return the entries of a row by column, or of a column by row, also unused ones, after
        some changes."""
        entries: dict[Any, Entry | None] = dict(read_entries(self.model, axis, label))
        for pair, entry in itertools.chain(self.unused_entries.items(), changes.items()):
            axis_label, other_label = pair if axis == "row" else reversed(pair)
            if axis_label == label:
                entries[other_label] = entry
        return {other_label: entry for other_label, entry in entries.items() if entry is not None}

    def read_pairs(
        self, pairs: Collection[Pair], changes: EntryChanges = NO_ENTRIES
    ) -> list[Entry | None]:
        """Return the entry of each pair, also an unused one, after some changes; None if there is
        none."""
        changed = {**self.unused_entries, **changes}
        entries = zip(pairs, read_pairs(self.model, pairs), strict=True)
        return [changed.get(pair, entry) for pair, entry in entries]

    def change(
        self,
        entries: EntryChanges,
        contents: ContentChanges,
        *,
        version: int,
        moved: Collection[Pair] = (),
    ) -> Snapshot:
        """Return the snapshot of a data version with changes; raise an error of the model that
        cannot use them."""
        return replace(
            self,
            model=apply_changes(self.model, entries, contents, moved=moved),
            data_version=version,
            omissions=self.omissions.change(contents),
            unused={pair: line for pair, line in self.unused.items() if pair not in entries},
        )

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
            ids={axis: _ID_WORDS[get_kind(model.entries_.get_labels(axis))] for axis in _AXES},
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
    file = Snapshot(base.base, base.base, base.model_version)
    try:
        return _read_changes(file, transaction)
    except UNUSABLE as error:
        reason = f"the model cannot use the entries in the database ({error}); serve it with another --database"
        raise BadSetting(reason) from error


def catch_up(snapshot: Snapshot, transaction: Transaction) -> Snapshot:
    """Return a snapshot with the writes of other processes; the same snapshot if there are none."""
    state = transaction.state
    if snapshot.data_version == state.data_version:
        return snapshot
    if state.pruned_version <= snapshot.data_version < state.data_version:
        return _read_changes(snapshot, transaction)
    # This process was away for long, or the database was restored to an earlier state.
    return replay(snapshot, transaction)


def _read_changes(snapshot: Snapshot, transaction: Transaction) -> Snapshot:
    """Return a snapshot with everything that was written to the database after it."""
    version, since = transaction.state.data_version, snapshot.data_version
    entries = transaction.read_entries(since=since)
    stored = transaction.read_contents(since=since)
    for place, axis in enumerate(_AXES):
        ids = [label for topic, label in stored if AXIS_OF[topic] == axis]
        _check_ids(snapshot.base, axis, [*ids, *(pair[place] for pair in entries)])
    contents = _drop_unreadable(snapshot.model, stored)
    moved = entries.keys() if since > 0 and is_ordered(snapshot.base) else ()
    try:
        return snapshot.change(entries, contents, version=version, moved=moved)
    except CannotExtend:
        raise
    except UNUSABLE:
        refused = find_refused(snapshot.model, entries)
    usable = {pair: entry for pair, entry in entries.items() if pair not in refused}
    after = snapshot.change(usable, contents, version=version, moved=moved)
    unused = {
        pair: UnusedEntry(entry, reason)
        for pair, reason in refused.items()
        if (entry := entries[pair]) is not None
    }
    _report_unused(unused)
    return replace(after, unused={**after.unused, **unused})


def _report_unused(unused: Mapping[Pair, UnusedEntry]) -> None:
    """Log which entries the model cannot use."""
    for (row, column), line in list(unused.items())[:MAX_CONDITIONS]:
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
    if served.digest in ("", digest):
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
        shares.append(np.mean(model.entries_.get_labels(axis).find(list(set(stored))) >= 0))
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


def _check_ids(model: Model, axis: Axis, ids: Iterable[Any]) -> None:
    """Raise `BadSetting` for ids of another type than the model's."""
    kind = get_kind(model.entries_.get_labels(axis))
    if not all(isinstance(label, kind) for label in ids):
        raise BadSetting(
            f"the database and the model do not belong together: the {axis}s of the model are {ID_KINDS[kind]}, "
            "those of the database are not"
        )


def _drop_unreadable(model: Model, stored: ContentChanges) -> ContentChanges:
    """Return contents without features that the model cannot read, which were written for an
    earlier model; log how many they are."""
    readable = {key: content for key, content in stored.items() if key[0] in OMISSIONS}
    for axis in _AXES:
        axis_features = model.entries_.get_features(axis)
        if axis_features is None:
            continue
        of_axis = {key: values for key, values in stored.items() if key[0] == axis}
        try:  # it reads all of them, usually: that is checked in one go
            features = collect_features(of_axis, axis)
            if features is not None:
                features.encode(axis_features.encoding)
            readable |= of_axis
        except BadFeatures:
            readable |= {
                key: keep_readable(axis_features, values or {}) for key, values in of_axis.items()
            }
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
    with ExitStack() as stack:
        database = stack.enter_context(closing(open_database(url)))
        with database.begin_write() as marking:  # brief, so that it delays no write
            marking.mark_exported()
            # it goes on reading the state that was marked
            transaction = stack.enter_context(database.begin_read())
        snapshot = replay(Snapshot.from_model(model), transaction)
        contents = transaction.read_contents()
    store = snapshot.model.entries_
    entries = store.seen_columns(np.arange(len(store.rows)))
    rows = np.repeat(store.rows.array, np.diff(entries.starts))
    order = entries.extras.sort_within(entries.group_of)
    return ExportedData(
        Entries(rows, store.columns[entries.others[order]], entries.values[order]),
        entries.extras.take(order),
        _export_features(model, contents, "row"),
        _export_features(model, contents, "column"),
    )


def _export_features(model: Model, stored: ContentChanges, axis: Axis) -> Features | None:
    """Return the stored features of an axis, with the kinds that they have in the model where
    possible."""
    features, axis_features = collect_features(stored, axis), model.entries_.get_features(axis)
    if features is None or axis_features is None:
        return features
    for name in features.names:
        with suppress(KeyError, BadFeatures):
            typed = features.with_kinds({name: axis_features.encoding.kinds[name]})
            typed.values(name)
            features = typed
    return features
