"""The writer: checks changes of entries and features, makes them durable, and only then lets answers see them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from deepmf.matrix.matrix import AREAS
from deepmf.serve.changes import (
    AxisName,
    Given,
    Pair,
    as_read,
    changed_model,
    check_features,
    entries_of,
    etag_of,
    features_of,
    has_entry,
    has_features,
)
from deepmf.serve.database import AreaError, EntryDatabase, Receipt, Transaction
from deepmf.serve.errors import Refusal
from deepmf.serve.ids import Id, as_label, shown, unknown
from deepmf.serve.queries import check_value
from deepmf.serve.snapshot import Snapshot, caught_up

Job = TypeVar("Job")

Answer = TypeVar("Answer")


MOST_TOGETHER = 64

MOST_WAITING = 1_000


class Batcher(Generic[Job, Answer]):
    """One thread that answers jobs: all that wait when it is free, in one call.

    Nothing waits for others to come: a job that finds the thread free is answered alone, at once.

    cost, most: jobs are answered together as long as their costs add up to no more than this.
    late: what is said of a job that was begun and takes too long.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Job]], Sequence[Answer | Exception]],
        *,
        name: str,
        cost: Callable[[Job], int] = lambda _: 0,
        most: int = 0,
        late: str = "this took too long; ask for less",
    ) -> None:
        self._answer = answer
        self._cost, self._most, self._late = cost, most, late
        self._waiting: queue.Queue[tuple[Job, Future[Answer]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closed = threading.Event()
        self._thread.start()

    def submit(self, job: Job) -> Future[Answer]:
        """Queue a job; where too many wait already, or the service is stopping, it is refused."""
        if self._closed.is_set():
            raise Refusal(503, "stopping", "the service is stopping", retry_after=1)
        if self._waiting.qsize() >= MOST_WAITING:
            raise Refusal(503, "busy", "the service is too busy; try again in a second", retry_after=1)
        future: Future[Answer] = Future()
        self._waiting.put((job, future))
        return future

    async def answer(self, job: Job, *, timeout: float) -> Answer:
        """Return the answer to a job; one that takes too long is given up, unless it was begun."""
        future = self.submit(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except TimeoutError as error:
            if future.cancel():
                reason = "this waited too long for others, and nothing was done; try again"
                raise Refusal(503, "too_slow", reason, retry_after=1) from error
            raise Refusal(503, "unfinished", self._late, retry_after=1) from error

    def close(self) -> None:
        """Answer what waits, then stop."""
        self._closed.set()
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            taken = self._take()
            stopping = None in taken
            jobs = [one for one in taken if one is not None and one[1].set_running_or_notify_cancel()]
            if jobs:
                self._answer_together(jobs)

    def _take(self) -> list[tuple[Job, Future[Answer]] | None]:
        """Wait for a job; return it, and those behind it that may go along."""
        taken = [self._waiting.get()]
        left = self._most - self._cost_of(taken[0])
        while len(taken) < MOST_TOGETHER and self._waiting.queue:
            left -= self._cost_of(self._waiting.queue[0])  # nobody else takes any
            if left < 0:
                break
            taken.append(self._waiting.get())
        return taken

    def _cost_of(self, one: tuple[Job, Future[Answer]] | None) -> int:
        return 0 if one is None else self._cost(one[0])

    def _answer_together(self, jobs: list[tuple[Job, Future[Answer]]]) -> None:
        try:
            answers = self._answer([job for job, _ in jobs])
        except Exception as error:  # noqa: BLE001 (the thread must live on; whoever waits gets the error)
            answers = [error] * len(jobs)
        for (_, future), result in zip(jobs, answers, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


@dataclass(frozen=True)
class EntryWrite:
    """A change of the entries of one row, or of one column.

    method: "put" leaves these entries alone, "patch" changes some (None: forget), "delete" forgets all.
    if_match: the tags of which the entries must have one; None: whatever they are.
    key: what identifies the request where it may be sent twice (Idempotency-Key); only hashes of it are stored.
    """

    axis: AxisName
    id: Id
    method: Literal["put", "patch", "delete"]
    entries: tuple[tuple[Id, float | None], ...] = ()
    if_match: frozenset[str] | None = None
    key: str | None = None

    @property
    def size(self) -> int:
        """How many entries it names."""
        return len(self.entries)

    def digest(self) -> str:
        """Return what tells this request from others."""
        return _digest(self.key, [self.axis, self.id, self.method, self.entries])


@dataclass(frozen=True)
class FeatureWrite:
    """A change of the features of one row, or of one column: all that there are then; None: forget them."""

    axis: AxisName
    id: Id
    features: Given | None
    if_match: frozenset[str] | None = None
    key: str | None = None

    @property
    def size(self) -> int:
        """How many features it names."""
        return len(self.features or ())

    def digest(self) -> str:
        """Return what tells this request from others."""
        return _digest(self.key, [self.axis, self.id, "features", self.features])


AnyWrite = EntryWrite | FeatureWrite


def _digest(*parts: Any) -> str:
    """Return a hash; of what comes with a key, which is stored nowhere, nobody can find the parts by trying."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class WriteReceipt(NamedTuple):
    """What a write did, and the tag of the entries (or features) afterwards; counts are of these."""

    id: Id
    n_entries: int
    n_changed: int
    n_forgotten: int
    etag: str
    model_version: int
    data_version: int
    repeated: bool = False

    def packed(self) -> bytes:
        """Return it as the database keeps it: without the id, which may be forgotten."""
        return json.dumps(self._replace(repeated=True)[1:]).encode()


class Written(NamedTuple):
    """The snapshot after some writes, what each is answered, and what was learned."""

    snapshot: Snapshot
    answers: list[WriteReceipt | Exception]
    n_learned: int = 0
    n_latents: int = 0


@dataclass
class Staged:
    """Changes on top of a snapshot that are not yet durable."""

    snapshot: Snapshot
    changes: dict[Pair, float | None] = field(default_factory=dict)
    features: dict[tuple[AxisName, Any], Given | None] = field(default_factory=dict)
    touched: set[tuple[AxisName, Any]] = field(default_factory=set)

    def entries_of(self, axis: AxisName, label: Any) -> dict[Any, float]:
        """Return the entries of a row or column, staged changes with them."""
        found = entries_of(self.snapshot.model, axis, label)
        place = 0 if axis == "row" else 1
        for pair, value in self.changes.items():
            if pair[place] == label:
                found.pop(pair[1 - place], None)
                if value is not None:
                    found[pair[1 - place]] = value
        return found

    def knows(self, axis: AxisName, label: Any) -> bool:
        """Say whether there is such a row or column."""
        store = self.snapshot.model.entries_
        labels = store.rows if axis == "row" else store.columns
        place = 0 if axis == "row" else 1
        return (
            label in labels
            or self.features.get((axis, label)) is not None
            or any(pair[place] == label and value is not None for pair, value in self.changes.items())
        )

    def features_of(self, axis: AxisName, label: Any) -> dict[str, Any]:
        """Return the features of a row or column as the model reads them, staged changes with them."""
        if (axis, label) not in self.features:
            return features_of(self.snapshot.model, axis, label)
        given = self.features[axis, label]
        if given is None:
            return {}
        known = check_features(self.snapshot.model, axis, given)
        return as_read(known, known.encode_one(given))

    def has_features(self, axis: AxisName, label: Any) -> bool:
        """Say whether a row or column has features, staged changes with them."""
        if (axis, label) in self.features:
            return self.features[axis, label] is not None
        return has_features(self.snapshot.model, axis, label)

    def stage(self, write: AnyWrite) -> WriteReceipt:
        """Check a write and add its changes; the receipt lacks the version, which is not known yet."""
        return self._stage_entries(write) if isinstance(write, EntryWrite) else self._stage_features(write)

    def _stage_features(self, write: FeatureWrite) -> WriteReceipt:
        store = self.snapshot.model.entries_
        label = as_label(write.id, store.rows if write.axis == "row" else store.columns)
        if write.features is not None:
            check_features(self.snapshot.model, write.axis, write.features)
        elif not self.knows(write.axis, label):
            raise unknown(write.id, write.axis)
        current = self.features_of(write.axis, label)
        _check_tag(write, current, "features")
        if write.features is not None or self.has_features(write.axis, label):
            self.features[write.axis, label] = write.features
            self.touched.add((write.axis, label))
        left = self.features_of(write.axis, label)
        n_forgotten = len(current) if write.features is None else 0
        return WriteReceipt(label, len(left), len(left), n_forgotten, etag_of(left), self.snapshot.model_version, 0)

    def _stage_entries(self, write: EntryWrite) -> WriteReceipt:
        store = self.snapshot.model.entries_
        own, others = (store.rows, store.columns) if write.axis == "row" else (store.columns, store.rows)
        label = as_label(write.id, own)
        current = self.entries_of(write.axis, label)
        _check_tag(write, current, "entries")
        if write.method == "delete" and not self.knows(write.axis, label):
            raise unknown(write.id, write.axis)
        given: dict[Any, float | None] = {}
        for other_id, value in write.entries:
            other = as_label(other_id, others)
            if other in given:
                raise Refusal(422, "given_twice", f"{others.axis} {shown(other_id)} was given twice")
            if value is not None:
                check_value(self.snapshot, value)
            given[other] = value
        wanted = {other: value for other, value in given.items() if value != current.get(other)}
        if write.method != "patch":
            wanted |= dict.fromkeys(current.keys() - given.keys())
        self._check_learnable(write.axis, label, wanted)
        for other, value in wanted.items():
            self.changes[(label, other) if write.axis == "row" else (other, label)] = value
        if wanted:
            self.touched.add((write.axis, label))
        if write.method == "delete" and self.has_features(write.axis, label):
            self.features[write.axis, label] = None
            self.touched.add((write.axis, label))
        after = {**current, **wanted}
        left = {other: value for other, value in after.items() if value is not None}
        n_forgotten = sum(value is None for value in wanted.values())
        return WriteReceipt(
            label, len(left), len(wanted) - n_forgotten, n_forgotten, etag_of(left), self.snapshot.model_version, 0
        )

    def _check_learnable(self, axis: AxisName, label: Any, wanted: dict[Any, float | None]) -> None:
        """Refuse new rows and columns that the model cannot predict for."""
        model = self.snapshot.model
        puts = [other for other, value in wanted.items() if value is not None]
        if model.predicts == ("I",) and wanted:
            raise Refusal(409, "cannot_extend", f"{type(model).__name__} cannot learn entries without training")
        rows, columns = ([label], puts) if axis == "row" else (puts, [label])
        for area, kind, labels in (("II", "row", rows), ("III", "column", columns)):
            if area not in model.predicts and puts:
                new = [one for one in labels if not self.knows(kind, one)]  # type: ignore[arg-type]
                if new:
                    raise Refusal(
                        409,
                        "cannot_extend",
                        f"{type(model).__name__} cannot predict for new {kind}s, such as {shown(new[0])}",
                    )


def _check_tag(write: AnyWrite, current: Mapping[Any, Any], what: str) -> None:
    """Refuse a write whose condition does not hold."""
    tags = write.if_match
    if tags is not None and not ("*" in tags and current) and etag_of(current) not in tags:
        raise Refusal(
            412, "changed_meanwhile", f"the {what} of {write.axis} {shown(write.id)} are not those given in If-Match"
        )


def write_together(database: EntryDatabase, current: Snapshot, writes: Sequence[AnyWrite]) -> Written:
    """Do some writes in one transaction, each after the other; those that are refused change nothing.

    What comes back is durable. Others may have written meanwhile: their changes are in the snapshot too.
    """
    with database.writing() as transaction:
        state = transaction.lock()
        staged = Staged(caught_up(current, transaction))
        answers = _staged(staged, writes, transaction)
        before, after = staged.snapshot, staged.snapshot
        if staged.changes or staged.features:
            model = changed_model(before.model, staged.changes, staged.features)
            # Another worker may serve a newer file already, which may have anything.
            is_newest = state.model_version == before.model_version
            version = transaction.change(
                staged.changes,
                {pair for pair in staged.changes if not is_newest or has_entry(before.base, *pair)},
                staged.touched,
                features=staged.features,
                described_in_file={key for key in staged.features if not is_newest or has_features(before.base, *key)},
            )
            transaction.add_live_errors(before.model_version, _live_errors(before, staged))
            after = replace(before, model=model, data_version=version)
        answers = [_dated(one, after) for one in answers]
        transaction.keep_receipts(
            {
                _digest(write.key): Receipt(write.digest(), one.packed())
                for write, one in zip(writes, answers, strict=True)
                if write.key is not None and isinstance(one, WriteReceipt) and not one.repeated
            }
        )
    rows, columns = (
        {pair[place] for pair in staged.changes} | {label for of, label in staged.features if of == axis}
        for place, axis in enumerate(("row", "column"))
    )
    n_learned = sum(value is not None for value in staged.changes.values())
    return Written(after, answers, n_learned, len(rows) + len(columns))


def _staged(staged: Staged, writes: Sequence[AnyWrite], transaction: Transaction) -> list[WriteReceipt | Exception]:
    keys = {_digest(write.key) for write in writes if write.key is not None}
    known = transaction.receipts(keys) if keys else {}
    answers: list[WriteReceipt | Exception] = []
    for write in writes:
        try:
            receipt = known.get(_digest(write.key)) if write.key is not None else None
            if receipt is None:
                answer = staged.stage(write)
                answers.append(answer)
                if write.key is not None:  # the same key may come twice at once
                    known[_digest(write.key)] = Receipt(write.digest(), answer.packed())
            elif receipt.request == write.digest():
                store = staged.snapshot.model.entries_
                label = as_label(write.id, store.rows if write.axis == "row" else store.columns)
                answers.append(WriteReceipt(label, *json.loads(receipt.answer)))
            else:
                raise Refusal(422, "key_reused", "this Idempotency-Key came with another request before")
        except Refusal as refusal:
            answers.append(refusal)
    return answers


def _dated(answer: WriteReceipt | Exception, snapshot: Snapshot) -> WriteReceipt | Exception:
    if isinstance(answer, Exception) or answer.data_version:
        return answer
    return answer._replace(model_version=snapshot.model_version, data_version=snapshot.data_version)


def _live_errors(before: Snapshot, staged: Staged) -> dict[str, AreaError]:
    """Return the errors of what was predicted for the new entries before they came, by area.

    Of rows and columns that were known, and had no entry there.
    """
    model, entries = before.model, before.model.entries_
    puts = {pair: value for pair, value in staged.changes.items() if value is not None}
    if not puts:
        return {}
    rows, columns = entries.rows.find([row for row, _ in puts]), entries.columns.find([column for _, column in puts])
    known = (rows >= 0) & (columns >= 0)
    rows, columns = rows[known].astype(np.int64), columns[known].astype(np.int64)
    values = np.fromiter(puts.values(), dtype=np.float64)[known]
    fresh = np.isnan(entries.values_at(rows, columns))
    rows, columns, values = rows[fresh], columns[fresh], values[fresh]
    areas = entries.areas(rows, columns)
    predicted = model.predictor_.readout.units(model.predictor_.score_pairs(rows, columns))
    errors = predicted - values
    return {
        area: AreaError(int(at.sum()), float(np.square(errors[at]).sum()), float(np.abs(errors[at]).sum()))
        for area in AREAS
        if (at := areas == area).any()
    }
