"""The service: the current snapshot that answers requests, its writer, and the threads that follow
other processes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from deepmf.errors import BadSetting, DeepMFWarning, UnknownLabel, UserError
from deepmf.models.base import Model
from deepmf.models.fold_in import FoldedRows
from deepmf.models.loading import load
from deepmf.serve.batcher import Batcher
from deepmf.serve.database import EntryDatabase
from deepmf.serve.follower import Follower
from deepmf.serve.metrics import ServiceMetrics
from deepmf.serve.queries import ColumnIndex, History, check_history, fold_in
from deepmf.serve.schemas import ApiError, NewRow
from deepmf.serve.snapshot import Snapshot, catch_up, check_replacement, replay
from deepmf.serve.writer import BulkWrite, Write, WriteReceipt, commit_writes
from deepmf.storage.model_file import compute_digest

logger = logging.getLogger("deepmf.serve")

Result = TypeVar("Result")
Ask = Callable[[Snapshot, FoldedRows | None], Result]


@dataclass(frozen=True)
class ServiceLimits:
    """Limits on the cost of a request.

    Parameters
    ----------
    seconds : timeout of a request.
    database_seconds : timeout of a request that only reads the database.
    body_bytes, all_bodies_bytes : largest request body, and largest sum of the bodies of all
        requests in progress.
    bulk_bytes, bulk_seconds : largest body of a bulk write, also after it is decompressed, and its
        timeout.
    staleness : seconds between checks for a model file that another process was told to load, and
        for its writes while nobody asks.
    keep_changes : seconds for which the database keeps what was forgotten, without its content, for
        other workers to forget it too, at least; at most twice as long.
    rewritten_bytes : largest SQLite file that is rewritten while it is served, to erase what was
        forgotten; this takes seconds during which nobody can write.
    writes_at_once : most writes in one transaction, since each may have thousands of entries.
    bulk_at_once : bulk writes in memory: one that is performed, and one that arrives.
    """

    seconds: float = 10.0
    database_seconds: float = 2.0
    body_bytes: int = 1 << 20
    all_bodies_bytes: int = 64 << 20
    bulk_bytes: int = 16 << 20
    bulk_seconds: float = 60.0
    staleness: float = 0.1
    keep_changes: float = 60.0
    rewritten_bytes: int = 200_000_000
    writes_at_once: int = 16
    bulk_at_once: int = 2


def load_with_digest(path: Path) -> tuple[Model, str]:
    """Load a model; return it with the digest of the same file, even if that is replaced
    meanwhile."""
    while True:
        before = _identify_file(path) if path.exists() else None  # `load` reports a missing file
        loaded = load(path), compute_digest(path)
        if _identify_file(path) == before:
            return loaded


class Query(NamedTuple):
    """A question to the current snapshot, and the request that may describe a new row to fold in
    for it."""

    ask: Ask[Any]
    new_row: NewRow | None = None


class Service:
    """A model that answers requests, learns entries, and can be replaced while it runs.

    `await service.ask(...)` answers a query, in a thread of its own if it takes longer than
    milliseconds; `await service.writer.run(EntryWrite(...))` writes. When a write returns, it is
    durable and visible to every query.

    Parameters
    ----------
    source : the file of the model, to reload it; None if it cannot be replaced.
    digest : the digest of that file.
    """

    def __init__(
        self,
        model: Model,
        database: EntryDatabase,
        *,
        source: Path | None = None,
        digest: str = "in memory",
        limits: ServiceLimits | None = None,
    ) -> None:
        # they name rows and columns, and nobody reads them here
        warnings.simplefilter("ignore", DeepMFWarning)
        self.limits = limits or ServiceLimits()
        self.metrics = ServiceMetrics()
        self.start_time = time.monotonic()
        self._database = database
        self.source, self._digest = source, digest
        # a damaged file may have the same digest
        self._file = None if source is None else _identify_file(source)
        self._write_lock, self._load_lock = threading.Lock(), threading.Lock()
        self._publish_lock = threading.Lock()
        self._index: ColumnIndex | None = None
        # the model version and the file that the follower loaded last
        self._last_followed: tuple[int, ...] = ()
        try:
            snapshot = self._replay(Snapshot.from_model(model), digest, is_running=False)
            self._publish(self._register(snapshot, digest))
        except BaseException:
            database.close()
            raise
        # Two threads, so that slow queries (explain, search) do not delay those that take
        # milliseconds.
        timeout = self.limits.seconds
        self.quick, self.slow = (
            Batcher[Query, Any](self._answer_queries, name=name, timeout=timeout)
            for name in ("quick queries", "slow queries")
        )
        self.writer: Batcher[Write, WriteReceipt] = Batcher(
            self._perform_writes,
            name="writer",
            timeout=timeout,
            max_batch=self.limits.writes_at_once,
            late="this takes long and may still be written; send it again, with the same Idempotency-Key if it had one",
        )
        self.bulk_slots = asyncio.Semaphore(self.limits.bulk_at_once)
        self.follower = Follower(
            self._catch_up,
            report=_report_follower,
            patience=self.limits.database_seconds,
            longest=0.8 * timeout,  # so that the query still has time for its answer
        )
        self._is_stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    async def ask(
        self, question: Ask[Result], new_row: NewRow | None = None, *, is_slow: bool = False
    ) -> Result:
        """Answer a question to the current snapshot, and to the new row that a request describes,
        if it does."""
        result: Result = await (self.slow if is_slow else self.quick).run(Query(question, new_row))
        return result

    def export(self) -> Snapshot:
        """Return a snapshot that is marked as exported: a model may be trained on all of its
        entries."""
        with self._database.begin_write() as transaction:
            transaction.mark_exported()
            return catch_up(self.current, transaction)

    def get_index(self, snapshot: Snapshot) -> ColumnIndex:
        """Return the search index of a snapshot's columns; it is rebuilt when there are new
        columns."""
        if self._index is None or self._index.columns is not snapshot.model.entries_.columns:
            self._index = ColumnIndex(snapshot.model.entries_)
        return self._index

    def reload(self) -> Snapshot:
        """Load the model's file again; the old model answers until the new one is ready, or if the
        file is bad.

        A model of another scale is refused, and so is a model that knows hardly any label in the
        database.
        """
        if self.source is None:
            raise ApiError(409, "no_file", "this service was not started from a model file")
        with self._load_lock:
            file = _identify_file(self.source)
            if file != self._file or compute_digest(self.source) != self._digest:
                model, digest = load_with_digest(self.source)
                snapshot = self._replay(Snapshot.from_model(model), digest, is_running=True)
                with self._write_lock:
                    self._publish(self._register(snapshot, digest))
                self._file, self._digest = file, digest
            return self.current

    def close(self) -> None:
        """Finish waiting requests and close the database."""
        self._is_stopping.set()
        for batcher in (self.writer, self.quick, self.slow):
            batcher.close()
        self._keeper.join(self.limits.seconds)
        self.follower.close()
        self._database.close()

    def _answer_queries(self, queries: Sequence[Query]) -> list[Any]:
        snapshot = self.follower.wait() or self.current
        new_rows = _fold_in_histories(snapshot, queries)
        self.metrics.histories.inc(sum(isinstance(row, FoldedRows) for row in new_rows))
        results: list[Any] = []
        for query, new_row in zip(queries, new_rows, strict=True):
            try:
                if isinstance(new_row, Exception):
                    raise new_row
                results.append(query.ask(snapshot, new_row))
            except Exception as error:  # noqa: BLE001 (an error of this query only; the others are answered)
                results.append(_to_api_error(error))
        return results

    def _perform_writes(self, writes: Sequence[Write]) -> list[WriteReceipt | Exception]:
        with self._write_lock:
            try:
                result = commit_writes(self._database, self.current, writes)
            except SQLAlchemyError as error:
                logger.error(
                    "cannot write to the database", extra={"fields": {"error": _name_cause(error)}}
                )
                reason = (
                    "the database does not answer; this may be written nonetheless: send it again"
                )
                return [ApiError(503, "no_database", reason)] * len(writes)
            except UserError as error:
                refusal = _to_api_error(error)
            else:
                self._publish(result.snapshot)
                self.metrics.learned.inc(result.n_learned)
                self.metrics.latents.inc(result.n_latents)
                return result.receipts
        # The model cannot learn one of the writes: perform each by itself, and one in bulk without
        # the lines that it cannot learn.
        if len(writes) > 1:
            return [receipt for write in writes for receipt in self._perform_writes([write])]
        write = writes[0]
        if isinstance(write, BulkWrite):
            reduced = write.refuse_lines(self.current)
            if len(reduced.entries) < len(write.entries):
                return self._perform_writes([reduced])
        return [refusal]

    def _replay(self, base: Snapshot, digest: str, *, is_running: bool) -> Snapshot:
        """Return a snapshot with all entries of the database, warmed up by a first answer."""
        with self._database.begin_read() as transaction:
            check_replacement(base.base, digest, transaction, is_running=is_running)
            snapshot = replay(base, transaction)
        entries, first = snapshot.model.entries_, np.zeros(1, dtype=np.int64)
        snapshot.model.predictor_.score_pairs(first, first)
        if "II" in snapshot.model.predicts:
            column, value = (
                entries.columns[int(entries.train.by_row.columns[0])],
                float(entries.train.values[0]),
            )
            snapshot.model.fold_in([column], [value]).recommend(1)
        return snapshot

    def _register(self, snapshot: Snapshot, digest: str) -> Snapshot:
        with self._database.begin_write() as transaction:
            version = transaction.register_model(digest, snapshot.base.scale_)
            return catch_up(replace(snapshot, model_version=version), transaction)

    def _publish(self, snapshot: Snapshot) -> None:
        with self._publish_lock:
            self.current = snapshot
        self.metrics.set_versions(snapshot)

    def _catch_up(self, report_answer: Callable[[], None]) -> Snapshot:
        """Return a snapshot with everything that was committed before, and make it the current
        one.

        report_answer : called when the database has answered.
        """
        while True:
            before = self.current
            if self._database.read_state().data_version == before.data_version:
                return before
            report_answer()
            with self._database.begin_read() as transaction:
                after = catch_up(before, transaction)
            with self._publish_lock:
                if self.current is before:
                    self.current = after
            self.metrics.set_versions(self.current)

    def _keep(self) -> None:
        """Load a model that another worker was told to load; prune the list of changes, and erase
        what was forgotten, so that it does not stay there.

        A process that was away for longer than the list reaches back replays everything.
        """
        pruned_version = last_version = 0
        is_erased = True
        next_pruning = time.monotonic() + self.limits.keep_changes
        while not self._is_stopping.wait(self.limits.staleness):
            try:
                if self.follower.wait() is None:
                    continue  # the follower reports it
                self._follow_model(self._database.read_state().model_version)
                if time.monotonic() >= next_pruning:
                    pruned_version, last_version = last_version, self.current.data_version
                    self._database.prune(pruned_version)
                    is_erased = False
                    next_pruning += self.limits.keep_changes
                if not is_erased:  # tried again as long as a reader is in the way
                    largest = self.limits.rewritten_bytes
                    is_erased = self._database.erase(pruned_version, largest=largest)
            except Exception as error:  # noqa: BLE001 (the database may be away for a while: try again later)
                _report_follower(error)
                self._is_stopping.wait(1.0)
        try:  # no process may be left to do it later
            last_version = self.current.data_version
            self._database.prune(last_version)
            self._database.erase(last_version)
        except SQLAlchemyError as error:
            fields = {"error": _name_cause(error)}
            logger.error("cannot prune the database", extra={"fields": fields})

    def _follow_model(self, version: int) -> None:
        """Load the file that another worker was told to load: once, and again when the file
        changes."""
        if self.source is None or version == self.current.model_version:
            return
        followed = version, *_identify_file(self.source)
        if followed == self._last_followed:
            return
        try:
            loaded = self.reload().model_version
        except UserError:
            self._last_followed = followed
            raise
        self._last_followed = followed
        if loaded != version:
            logger.warning("another service uses this database with another model file")


def _fold_in_histories(
    snapshot: Snapshot, queries: Sequence[Query]
) -> list[FoldedRows | Exception | None]:
    """Fold in the histories of all queries together; return for each query its row, an error, or
    None."""
    new_rows: list[FoldedRows | Exception | None] = [None] * len(queries)
    histories: dict[int, History] = {}
    for place, query in enumerate(queries):
        new_row = query.new_row
        if new_row is not None and (new_row.history or new_row.features is not None):
            try:
                histories[place] = check_history(snapshot, new_row.history or (), new_row.features)
            except Exception as error:  # noqa: BLE001 (an error of this query only)
                new_rows[place] = error
    if histories:
        try:
            folded = fold_in(snapshot, list(histories.values()))
            for number, place in enumerate(histories):
                new_rows[place] = folded.row(number)
        except Exception as error:  # noqa: BLE001 (an error of all queries with a history)
            for place in histories:
                new_rows[place] = error
    return new_rows


def _to_api_error(error: Exception) -> Exception:
    """Return an error of the library as an `ApiError`, which names only content of the request;
    keep other errors."""
    if isinstance(error, ApiError) or not isinstance(error, UserError):
        return error
    if isinstance(error, UnknownLabel):
        # Without the labels that the library's message suggests, which may be private.
        return ApiError(404, "unknown_label", str(error).split("; there are ")[0])
    if isinstance(error, BadSetting | NotImplementedError):
        return ApiError(409, "cannot", str(error))
    return ApiError(422, "refused", str(error))


def _report_follower(error: Exception) -> None:
    reason = str(error) if isinstance(error, UserError) else ""
    fields = {"error": type(error).__name__, "reason": reason}
    logger.error("cannot follow the database", extra={"fields": fields})


def _name_cause(error: SQLAlchemyError) -> str:
    """Return what the database calls an error, such as SQLITE_FULL or DiskFull; its message may
    have ids."""
    cause = getattr(error, "orig", None) or error
    return str(getattr(cause, "sqlite_errorname", type(cause).__name__))


def _identify_file(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is written or replaced."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
