"""Writes of entries, features and omissions: checked, committed to the database, and then visible
to every request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import xor
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.matrix.axis_entries import OTHER_AXIS
from deepmf.matrix.labels import Labels
from deepmf.models.base import Model
from deepmf.serve.changes import (
    Entry,
    EntryChanges,
    FeatureValues,
    Pair,
    check_features,
    compute_etag,
    find_refused,
    has_features,
    read_features,
    read_pairs,
)
from deepmf.serve.database import EntryDatabase, Receipt, Transaction
from deepmf.serve.ids import ID_KINDS, convert_id, get_kind, is_id, make_unknown_id_error, quote_id
from deepmf.serve.omissions import ColumnState, Topic
from deepmf.serve.schemas import (
    MAX_COLUMNS,
    ApiError,
    Axis,
    EntryLine,
    EntryRequest,
    GivenEntry,
    Id,
    shorten,
)
from deepmf.serve.snapshot import Snapshot, catch_up, check_value

# lines of a bulk write that are refused, by code and message
Refusals = dict[tuple[str, str], list[int]]


class WriteReceipt(NamedTuple):
    """The effect of a write, and the ETag of the entries (or features) afterwards; a bulk write has
    no id and no ETag.

    A stored receipt must not tell what was written, since rows may be forgotten: it has no id, and
    its ETag is masked.
    """

    id: Id
    n_entries: int
    n_changed: int
    n_forgotten: int
    etag: str = ""
    model_version: int = 0  # the versions are set when the transaction commits
    data_version: int = 0
    repeated: bool = False
    # a code, a message, and the lines that it is about
    refused: Sequence[tuple[str, str, list[int]]] = ()

    def to_json(self, key: str) -> bytes:
        """Return the receipt of a request with an Idempotency-Key as the database stores it."""
        return json.dumps(self._replace(repeated=True, etag=_mask(self.etag, key))[1:]).encode()

    @classmethod
    def from_json(cls, label: Id, answer: bytes, key: str) -> WriteReceipt:
        """Return the receipt of an earlier request from what the database stores."""
        receipt = cls(label, *json.loads(answer))
        return receipt._replace(etag=_mask(receipt.etag, key))


def _mask(etag: str, key: str) -> str:
    """Mask an ETag by an Idempotency-Key, which the database does not have; masking it again gives
    it back.

    Otherwise an ETag could be compared with those of all possible entries.
    """
    pad = bytes.fromhex(_digest("etag", key))
    return etag and '"' + bytes(map(xor, bytes.fromhex(etag.strip('"')), pad)).hex() + '"'


@dataclass
class PendingChanges:
    """The changes of a transaction on top of a snapshot, before they are committed."""

    snapshot: Snapshot
    entries: dict[Pair, Entry | None] = field(default_factory=dict)
    # features, states and dismissals
    contents: dict[tuple[Topic, Any], Any] = field(default_factory=dict)

    def put_entries(self, changes: EntryChanges) -> None:
        """Replace entries; they come after those that are pending already."""
        for pair, entry in changes.items():
            self.entries.pop(pair, None)
            self.entries[pair] = entry

    def find_label(self, axis: Axis, given: Id) -> Any:
        """Return the label that an id stands for, known or new."""
        return convert_id(given, self.snapshot.model.entries_.get_labels(axis))

    def find_changes(self, given: Mapping[Pair, EntryRequest]) -> dict[Pair, Entry | None]:
        """Return what the entries that are given for pairs change."""
        now = self.snapshot.now
        present = self.snapshot.read_pairs(given, self.entries)
        return {
            pair: entry
            for (pair, request), present_entry in zip(given.items(), present, strict=True)
            if (entry := resolve(request, present_entry, now)) != present_entry
        }

    def read_features(self, axis: Axis, label: Any) -> dict[str, Any]:
        """Return the features of a row or column as the model encodes them, pending changes
        included."""
        if (axis, label) not in self.contents:
            return read_features(self.snapshot.model, axis, label)
        values = self.contents[axis, label]
        if values is None:
            return {}
        axis_features = check_features(self.snapshot.model, axis, values)
        return axis_features.encoding.decode(axis_features.encode_one(values))

    def has_features(self, axis: Axis, label: Any) -> bool:
        """Whether a row or column has features, pending changes included."""
        if (axis, label) in self.contents:
            return self.contents[axis, label] is not None
        return has_features(self.snapshot.model, axis, label)

    def read_omission(self, topic: Topic, label: Any) -> Any:
        """Return the state of a column, or the columns that a row has dismissed, pending changes
        included."""
        key = topic, label
        return self.contents.get(key, self.snapshot.omissions.contents.get(key))

    def is_known(self, axis: Axis, label: Any) -> bool:
        """Whether a row or column exists, pending changes included."""
        return (
            label in self.snapshot.model.entries_.get_labels(axis)
            or self.contents.get((axis, label)) is not None
            or bool(self.snapshot.read_entries(axis, label, self.entries))
        )

    def check_extends(self) -> None:
        """Raise `ApiError` for a model that cannot learn any entry."""
        if self.snapshot.model.predicts == ("I",):
            name = type(self.snapshot.model).__name__
            raise ApiError(409, "cannot_extend", f"{name} cannot learn entries without training")


def resolve(given: EntryRequest, known: Entry | None, now: int) -> Entry | None:
    """Return the entry to store; None forgets it.

    If the value is unchanged, a missing time or weight stays as it was; a new value gets the time
    now and weight 1.
    """
    if given.value is None:
        return None
    base = known if known is not None and known.value == given.value else Entry(given.value, now)
    time = base.time if given.time is None else given.time
    return Entry(given.value, time, base.weight if given.weight is None else given.weight)


@dataclass(frozen=True)
class _Write:
    """A write to one row or one column.

    if_match: ETags, one of which the content must have; none for any.
    key: the Idempotency-Key of the request and the name of its API key, if it has one; the database
        stores only hashes of it.
    """

    axis: Axis
    id: Id
    if_match: frozenset[str] = field(default=frozenset(), kw_only=True)
    key: str = field(default="", kw_only=True)

    def digest(self) -> str:
        """Return a hash that distinguishes this request from others with the same key."""
        content = {
            name: value for name, value in vars(self).items() if name not in ("if_match", "key")
        }
        return _digest(self.key, [type(self).__name__, content])

    def recall(self, pending: PendingChanges, answer: bytes) -> WriteReceipt:
        """Return the receipt of an earlier request with the same key."""
        return WriteReceipt.from_json(pending.find_label(self.axis, self.id), answer, self.key)

    def check_etag(self, current: Mapping[Any, Any], what: str) -> None:
        """Raise `ApiError` if the current content does not have an ETag that the write requires."""
        matching = {compute_etag(current), "*" if current else ""}
        if self.if_match and not matching & self.if_match:
            message = f"the {what} of {self.axis} {quote_id(self.id)} do not have the ETag given in If-Match"
            raise ApiError(412, "changed_meanwhile", message)


@dataclass(frozen=True)
class EntryWrite(_Write):
    """A write to the entries of one row or one column.

    Parameters
    ----------
    method : "put" replaces all entries, "patch" changes some (None forgets an entry), "delete"
        forgets all.
    """

    method: Literal["put", "patch", "delete"]
    entries: tuple[GivenEntry, ...] = ()

    def stage(self, pending: PendingChanges) -> WriteReceipt:
        """Check the write and add its changes to the transaction."""
        label = pending.find_label(self.axis, self.id)
        current = pending.snapshot.read_entries(self.axis, label, pending.entries)
        self.check_etag(current, "entries")
        dismissed = pending.read_omission("skips", label) if self.axis == "row" else None
        if self.method == "delete" and not (dismissed or pending.is_known(self.axis, label)):
            raise make_unknown_id_error(self.id, self.axis)
        pending.check_extends()
        accepted = self._check_entries(pending, label)
        changes = pending.find_changes(accepted)
        if self.method != "patch":
            replaced = {self._pair(label, other_label) for other_label in current}
            changes |= dict.fromkeys(replaced - accepted.keys())
        pending.put_entries(changes)
        if self.method == "delete":
            if pending.has_features(self.axis, label):
                pending.contents[self.axis, label] = None
            if dismissed:
                pending.contents["skips", label] = None
        remaining = pending.snapshot.read_entries(self.axis, label, pending.entries)
        n_forgotten = sum(entry is None for entry in changes.values())
        return WriteReceipt(
            label, len(remaining), len(changes) - n_forgotten, n_forgotten, compute_etag(remaining)
        )

    def _pair(self, label: Any, other_label: Any) -> Pair:
        return (label, other_label) if self.axis == "row" else (other_label, label)

    def _check_entries(self, pending: PendingChanges, label: Any) -> dict[Pair, GivenEntry]:
        """Return the entries by their pairs; raise `ApiError` for one that cannot be written."""
        model, accepted = pending.snapshot.model, dict[Pair, GivenEntry]()
        other_axis: Axis = "column" if self.axis == "row" else "row"
        for entry in self.entries:
            other_id = entry.find_other(self.axis)
            pair = self._pair(label, pending.find_label(other_axis, other_id))
            if pair in accepted:
                message = f"{other_axis} {quote_id(other_id)} was given twice"
                raise ApiError(422, "given_twice", message)
            if entry.value is not None:
                check_value(pending.snapshot, entry.value)
            accepted[pair] = entry
        for code, message, fails in find_unfit(model, list(accepted), list(accepted.values())):
            if fails.any():
                raise ApiError(409, code, message)
        return accepted


@dataclass(frozen=True)
class FeatureWrite(_Write):
    """A write that replaces the features of one row or one column; None forgets them."""

    features: FeatureValues | None

    def stage(self, pending: PendingChanges) -> WriteReceipt:
        """Check the write and add its changes to the transaction."""
        label = pending.find_label(self.axis, self.id)
        if self.features is not None:
            check_features(pending.snapshot.model, self.axis, self.features)
        elif not pending.is_known(self.axis, label):
            raise make_unknown_id_error(self.id, self.axis)
        current = pending.read_features(self.axis, label)
        self.check_etag(current, "features")
        if self.features is not None or pending.has_features(self.axis, label):
            pending.contents[self.axis, label] = self.features
        remaining = pending.read_features(self.axis, label)
        n_forgotten = len(current) if self.features is None else 0
        return WriteReceipt(
            label, len(remaining), len(remaining), n_forgotten, compute_etag(remaining)
        )


@dataclass(frozen=True)
class StateWrite(_Write):
    """A write of the state of a column; None makes it visible, as a column without a state is."""

    axis: Axis = field(default="column", init=False)
    state: ColumnState | None

    def stage(self, pending: PendingChanges) -> WriteReceipt:
        """Check the write and add its changes to the transaction."""
        column = pending.find_label(self.axis, self.id)
        current: ColumnState | None = pending.read_omission("state", column)
        self.check_etag(describe_state(current), "state")
        if self.state is None and current is None and not pending.is_known(self.axis, column):
            raise make_unknown_id_error(self.id, self.axis)
        if self.state != current:
            pending.contents["state", column] = self.state
        etag = compute_etag(describe_state(self.state))
        return WriteReceipt(column, 0, int(self.state != current), 0, etag)


def describe_state(state: ColumnState | None) -> dict[str, Any]:
    """Return the fields of a state; without a state, a column is visible."""
    return (state or ColumnState())._asdict()


@dataclass(frozen=True)
class DismissalWrite(_Write):
    """A write of columns that a row dismisses, and of columns that it takes back."""

    axis: Axis = field(default="row", init=False)
    add: tuple[Id, ...] = ()
    remove: tuple[Id, ...] = ()

    def stage(self, pending: PendingChanges) -> WriteReceipt:
        """Check the write and add its changes to the transaction."""
        row = pending.find_label(self.axis, self.id)
        current: frozenset[Any] = pending.read_omission("skips", row) or frozenset()
        self.check_etag(dict.fromkeys(current, True), "dismissed columns")
        add = {pending.find_label("column", column): column for column in self.add}
        for column, given_id in add.items():
            if not pending.is_known("column", column):
                raise make_unknown_id_error(given_id, "column")
        remove = {pending.find_label("column", column) for column in self.remove}
        remaining = frozenset((current - remove) | add.keys())
        if len(remaining) > MAX_COLUMNS:
            raise ApiError(
                422, "too_many_columns", f"a row can dismiss at most {MAX_COLUMNS:,} columns"
            )
        if remaining != current:
            pending.contents["skips", row] = remaining
        n_forgotten, etag = len(current - remaining), compute_etag(dict.fromkeys(remaining, True))
        return WriteReceipt(row, len(remaining), len(remaining - current), n_forgotten, etag)


@dataclass(frozen=True)
class BulkWrite:
    """Entries of any rows and columns; later lines replace earlier ones, and lines that fail do not
    stop the others.

    Parameters
    ----------
    entries : by the number of their lines.
    refused : lines that are not entries.
    body_digest : a hash of the request.
    key : the Idempotency-Key, as in other writes.
    """

    entries: Mapping[int, EntryLine]
    refused: Refusals
    body_digest: str
    key: str = ""

    def digest(self) -> str:
        """Return a hash that distinguishes this request from others with the same key."""
        return _digest(self.key, ["bulk", self.body_digest])

    def recall(self, pending: PendingChanges, answer: bytes) -> WriteReceipt:
        """Return the receipt of an earlier request with the same key."""
        return WriteReceipt.from_json("", answer, self.key)

    def stage(self, pending: PendingChanges) -> WriteReceipt:
        """Check the lines and add their changes to the transaction."""
        pending.check_extends()
        refusals: Refusals = {key: list(lines) for key, lines in self.refused.items()}
        lines = self._check_lines(pending, refusals)
        changes = pending.find_changes({pair: self.entries[at] for pair, at in lines.items()})
        pending.put_entries(changes)
        n_forgotten = sum(entry is None for entry in changes.values())
        n_lines = len(self.entries) + sum(map(len, self.refused.values()))
        refused = [(*key, lines) for key, lines in refusals.items() if lines]
        return WriteReceipt("", n_lines, len(changes) - n_forgotten, n_forgotten, refused=refused)

    def refuse_lines(self, snapshot: Snapshot) -> BulkWrite:
        """Return the write without the lines that the model of a snapshot cannot learn, which are
        refused."""
        pending = PendingChanges(snapshot)
        lines = self._check_lines(pending, {})
        changes = pending.find_changes({pair: self.entries[at] for pair, at in lines.items()})
        refused = find_refused(snapshot.model, changes)
        refusals: Refusals = {key: list(numbers) for key, numbers in self.refused.items()}
        for pair, message in refused.items():
            refusals.setdefault(("refused", shorten(message)), []).append(lines[pair])
        left_out = {lines[pair] for pair in refused}
        entries = {line: entry for line, entry in self.entries.items() if line not in left_out}
        return replace(self, entries=entries, refused=refusals)

    def _check_lines(self, pending: PendingChanges, refusals: Refusals) -> dict[Pair, int]:
        """Return the last line of each pair, without the lines that are refused."""
        model = pending.snapshot.model
        axes = model.entries_.rows, model.entries_.columns
        row_kind, column_kind = map(get_kind, axes)
        pairs: dict[int, Pair] = {}
        for line, entry in self.entries.items():
            if is_id(entry.row, row_kind) and is_id(entry.column, column_kind):
                pairs[line] = row_kind(entry.row), column_kind(entry.column)
            else:
                refusals.setdefault(("bad_id", _describe_kinds(axes)), []).append(line)
        lines = np.array(list(pairs), dtype=np.int64)
        fits = np.ones(lines.size, dtype=bool)
        entries = [self.entries[line] for line in pairs]
        for code, message, fails in find_unfit(model, list(pairs.values()), entries):
            refusals.setdefault((code, message), []).extend(lines[fits & fails].tolist())
            fits &= ~fails
        accepted: dict[Pair, int] = {}
        for line in lines[fits].tolist():
            accepted.pop(pairs[line], None)  # it has the place of its last line
            accepted[pairs[line]] = line
        return accepted


def _describe_kinds(axes: Iterable[Labels]) -> str:
    kinds = " and ".join(f"{labels.axis}s are {ID_KINDS[get_kind(labels)]}" for labels in axes)
    return f"an id of this line cannot be in the model, whose {kinds}"


def find_unfit(
    model: Model, pairs: Sequence[Pair], entries: Sequence[EntryRequest]
) -> list[tuple[str, str, npt.NDArray[np.bool_]]]:
    """Return why a model cannot learn entries: a code, a message, and whether each of the entries
    fails by it."""
    name, areas = type(model).__name__, model.predicts
    # None becomes NaN
    values = np.array([entry.value for entry in entries], dtype=np.float64)
    weights = np.array([entry.weight for entry in entries], dtype=np.float64)
    is_written = ~np.isnan(values)
    is_new_row = model.entries_.rows.find([row for row, _ in pairs]) < 0
    is_new_column = model.entries_.columns.find([column for _, column in pairs]) < 0
    not_held = f"this value is not on the scale, which is {model.scale_}"
    return [
        ("off_scale", not_held, is_written & ~model.scale_.holds(values)),
        (
            "no_weights",
            f"{name} does not use weights of entries",
            ~np.isnan(weights) & (weights != 1) & (not model.takes_weights),
        ),
        (
            "cannot_extend",
            f"{name} cannot predict for new rows",
            is_written & is_new_row & ("II" not in areas),
        ),
        (
            "cannot_extend",
            f"{name} cannot predict for new columns",
            is_written & is_new_column & ("III" not in areas),
        ),
    ]


Write = EntryWrite | FeatureWrite | StateWrite | DismissalWrite | BulkWrite


class WriteResult(NamedTuple):
    """The snapshot after some writes, a receipt or an error for each, and the number of changed
    entries and latents."""

    snapshot: Snapshot
    receipts: list[WriteReceipt | Exception]
    n_learned: int = 0
    n_latents: int = 0


def commit_writes(
    database: EntryDatabase, current: Snapshot, writes: Sequence[Write]
) -> WriteResult:
    """Perform writes in one transaction, one after the other; a write that fails changes nothing.

    The result is durable. Its snapshot also contains what other processes wrote meanwhile.
    """
    with database.begin_write() as transaction:
        pending = PendingChanges(catch_up(current, transaction))
        receipts = _stage_writes(pending, writes, transaction)
        before, after = pending.snapshot, pending.snapshot
        if pending.entries or pending.contents:
            # If another worker serves a newer file, that file may contain any of these.
            is_newest = transaction.state.model_version == before.model_version
            in_base = read_pairs(before.base, pending.entries)
            file_entries = zip(pending.entries, in_base, strict=True)
            version = transaction.write_changes(
                pending.entries,
                {pair for pair, entry in file_entries if entry is not None or not is_newest},
                contents=pending.contents,
                contents_in_file={
                    (topic, label)
                    for topic, label in pending.contents
                    if topic in OTHER_AXIS
                    and (not is_newest or has_features(before.base, topic, label))
                },
            )
            after = before.change(pending.entries, pending.contents, version=version)
        for at, receipt in enumerate(receipts):
            if not isinstance(receipt, Exception) and not receipt.data_version:
                receipts[at] = receipt._replace(
                    model_version=after.model_version, data_version=after.data_version
                )
        transaction.write_receipts(
            {
                _digest(write.key): Receipt(write.digest(), receipt.to_json(write.key))
                for write, receipt in zip(writes, receipts, strict=True)
                if write.key and isinstance(receipt, WriteReceipt) and not receipt.repeated
            }
        )
    n_learned = sum(entry is not None for entry in pending.entries.values())
    n_latents = sum(
        len(
            {pair[place] for pair in pending.entries}
            | {label for topic, label in pending.contents if topic == axis}
        )
        for place, axis in enumerate(("row", "column"))
    )
    return WriteResult(after, receipts, n_learned, n_latents)


def _stage_writes(
    pending: PendingChanges, writes: Sequence[Write], transaction: Transaction
) -> list[WriteReceipt | Exception]:
    keys = {_digest(write.key) for write in writes if write.key}
    earlier_receipts = transaction.read_receipts(keys)
    receipts: list[WriteReceipt | Exception] = []
    for write in writes:
        try:
            earlier = earlier_receipts.get(_digest(write.key))
            if earlier is None:
                receipt = write.stage(pending)
                if write.key:  # the same key may occur twice in this batch
                    stored = Receipt(write.digest(), receipt.to_json(write.key))
                    earlier_receipts[_digest(write.key)] = stored
            elif earlier.request == write.digest():
                receipt = write.recall(pending, earlier.answer)
            else:
                raise ApiError(
                    422, "key_reused", "another request used this Idempotency-Key before"
                )
            receipts.append(receipt)
        except ApiError as error:
            receipts.append(error)
    return receipts


def _digest(*parts: Any) -> str:
    """Return a hash; it covers a secret key, so that nobody can find the other parts by trying."""
    return hashlib.sha256(
        json.dumps(parts, default=lambda model: model.model_dump()).encode()
    ).hexdigest()
