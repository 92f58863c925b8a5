"""The service: the snapshot that answers, the one writer that replaces it, and what keeps it up to date."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from deepmf.errors import BadSetting, DeepMFWarning, MissingDependency, UnknownLabel, UserError
from deepmf.models.base import Model
from deepmf.models.fold_in import FoldedRows
from deepmf.models.loading import load
from deepmf.models.predictor import Predictor
from deepmf.models.ranking import ColumnNeighbours
from deepmf.serve.changes import Given
from deepmf.serve.database import AreaError, EntryDatabase, Transaction
from deepmf.serve.errors import Refusal
from deepmf.serve.ids import named_unknown
from deepmf.serve.metrics import ServiceMetrics
from deepmf.serve.queries import ColumnIndex, Guest, Projection, fold_in, guest_of
from deepmf.serve.schemas import MOST_ENTRIES, ColumnValue
from deepmf.serve.snapshot import Snapshot, caught_up, replayed
from deepmf.serve.writer import AnyWrite, Batcher, WriteReceipt, Written, write_together
from deepmf.storage.model_folder import model_digest

Body = TypeVar("Body")


logger = logging.getLogger("deepmf.serve")


_LARGEST_REWRITTEN = 200_000_000  # bytes of a SQLite file: it takes some seconds, in which nobody can write

# From this number of columns on rankings are approximate; with fewer, scoring all of them takes some milliseconds.
_LEAST_COLUMNS = 200_000


@dataclass(frozen=True)
class ServiceLimits:
    """What a request may cost at most.

    seconds: how long a request may take; after this it is given up.
    database_seconds: how long a question to the database alone may take.
    body_bytes: how long a body may be.
    staleness: seconds between looks for what other processes wrote.
    keep_changes: seconds that the database keeps which rows and columns changed, at least; at most twice as long.
    exact_columns: with fewer columns, rankings are exact; from this number on approximate, where faiss is installed.
    """

    seconds: float = 10.0
    database_seconds: float = 2.0
    body_bytes: int = 1 << 20
    staleness: float = 0.1
    keep_changes: float = 60.0
    exact_columns: int = _LEAST_COLUMNS


class ServedFile(NamedTuple):
    """A model, and the digest of the file or folder that it was loaded from."""

    model: Model
    digest: str


def load_served(path: Path) -> ServedFile:
    """Load a model and the digest of the very file that it came from, also where that is replaced meanwhile."""
    is_same = False
    while not is_same:
        before = _identity(path) if path.exists() else None  # `load` says what is missing
        loaded = ServedFile(load(path), model_digest(path))
        is_same = _identity(path) == before
    return loaded


def _identity(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class ReadJob(NamedTuple):
    """A question to the snapshot, and the history and features that are embedded for it, if any."""

    ask: Callable[[Snapshot, FoldedRows | None], Any]
    history: Sequence[ColumnValue] | None
    features: Given | None


class Service:
    """A model that answers, learns entries, and can be replaced while it runs.

    source: the file that the model came from, to read it anew; None: it cannot be replaced.
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
        warnings.simplefilter("ignore", DeepMFWarning)  # they name rows and columns, and nobody reads them here
        self.limits = limits or ServiceLimits()
        self.metrics = ServiceMetrics()
        self._database = database
        self._source = source
        self._digest = digest
        self.started = time.monotonic()
        self._writing, self._loading = threading.Lock(), threading.Lock()
        self.current = self._started(Snapshot.of(model), digest)
        self._index: ColumnIndex | None = None
        self._projection: tuple[int, Projection] | None = None
        self._neighbours: tuple[int, ColumnNeighbours] | None = None
        # What takes long (explain, search) does not hold up what takes milliseconds.
        self._quick: Batcher[ReadJob, Any] = Batcher(self._answer_together, name="quick answers")
        self._slow: Batcher[ReadJob, Any] = Batcher(self._answer_together, name="slow answers")
        self._writes: Batcher[AnyWrite, WriteReceipt] = Batcher(
            self._write_together,
            name="writer",
            cost=lambda write: write.size,
            most=MOST_ENTRIES,
            late="this takes long and may still be written; send it again, with the same Idempotency-Key if it had one",
        )
        # One thread of its own: questions to a database that hangs wait for each other and hold up nothing else.
        self._questions = ThreadPoolExecutor(1, thread_name_prefix="questions")
        self._approximates = True
        self._seen_model: tuple[int, ...] = ()  # the version and the file that the follower looked at last
        self._stopped = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="follower", daemon=True)
        self._follower.start()
        self.metrics.show(self.current)

    async def answer(
        self,
        ask: Callable[[Snapshot, FoldedRows | None], Body],
        history: Sequence[ColumnValue] | None = None,
        features: Given | None = None,
        *,
        slow: bool = False,
    ) -> Body:
        """Return what a question is answered, of the snapshot of the moment."""
        batcher = self._slow if slow else self._quick
        return cast("Body", await batcher.answer(ReadJob(ask, history, features), timeout=self.limits.seconds))

    async def write(self, write: AnyWrite) -> WriteReceipt:
        """Change entries or features; when this returns, the change is durable, and every later answer has it."""
        return await self._writes.answer(write, timeout=self.limits.seconds)

    async def ask_database(self, ask: Callable[[Transaction], Body]) -> Body:
        """Return what a question is answered of the database as it is; one that does not answer soon is refused."""

        def asked() -> Body:
            with self._database.reading() as transaction:
                return ask(transaction)

        try:
            running = asyncio.get_running_loop().run_in_executor(self._questions, asked)
            return await asyncio.wait_for(running, self.limits.database_seconds)
        except (SQLAlchemyError, TimeoutError) as error:
            raise Refusal(503, "no_database", "the database does not answer", retry_after=1) from error

    async def live_errors(self) -> dict[str, AreaError]:
        """Return the errors of predictions made before their entries came, by area."""
        version = self.current.model_version
        return await self.ask_database(lambda transaction: transaction.live_errors(version))

    def index(self, snapshot: Snapshot) -> ColumnIndex:
        """Return the index of a snapshot's columns, built anew where there are new ones."""
        if self._index is None or self._index.columns is not snapshot.model.entries_.columns:
            self._index = ColumnIndex(snapshot.model.entries_)
        return self._index

    def projection(self, snapshot: Snapshot) -> Projection:
        """Return the map of a model version, made once."""
        if self._projection is None or self._projection[0] != snapshot.model_version:
            self._projection = snapshot.model_version, Projection.of(snapshot.base)
        return self._projection[1]

    def neighbours(self, snapshot: Snapshot) -> ColumnNeighbours | None:
        """Return what makes rankings of a snapshot approximate; None while they are exact."""
        found = self._neighbours
        return None if found is None or found[0] != snapshot.model_version else found[1]

    def _build_neighbours(self) -> None:
        """Build the index of a model with very many columns; rankings are exact until it is there."""
        snapshot = self.current
        is_many = len(snapshot.base.entries_.columns) >= self.limits.exact_columns
        ranks_by_products = type(snapshot.base.predictor_) is Predictor  # others score in a way of their own
        if self.neighbours(snapshot) or not (self._approximates and is_many and ranks_by_products):
            return
        try:
            self._neighbours = snapshot.model_version, snapshot.base.column_neighbours()
        except MissingDependency as error:
            self._approximates = False
            logger.warning(str(error))

    def reload(self) -> Snapshot:
        """Read the model's file anew; the old model answers until the new one does, and for ever where it is bad."""
        if self._source is None:
            raise Refusal(409, "no_file", "this service was not started from a model file")
        with self._loading:
            if model_digest(self._source) != self._digest:
                model, digest = load_served(self._source)
                with self._database.reading() as transaction:
                    fresh = replayed(Snapshot.of(model), transaction)
                _warm_up(fresh)
                with self._writing:
                    self._publish(self._registered(fresh, digest))
                self._digest = digest
            return self.current

    def close(self) -> None:
        """Finish what waits, and let go of the database."""
        self._stopped.set()
        for batcher in (self._writes, self._quick, self._slow):
            batcher.close()
        self._follower.join()
        self._questions.shutdown(cancel_futures=True)
        self._database.close()

    def _started(self, base: Snapshot, digest: str) -> Snapshot:
        with self._database.reading() as transaction:
            fresh = replayed(base, transaction)
        _warm_up(fresh)
        return self._registered(fresh, digest)

    def _registered(self, fresh: Snapshot, digest: str) -> Snapshot:
        with self._database.writing() as transaction:
            transaction.lock()
            version = transaction.register_model(digest)
            return caught_up(replace(fresh, model_version=version), transaction)

    def _publish(self, snapshot: Snapshot) -> None:
        self.current = snapshot
        self.metrics.show(snapshot)

    def _answer_together(self, jobs: Sequence[ReadJob]) -> list[Any]:
        snapshot = self.current
        guests = _guests(snapshot, jobs)
        self.metrics.embedded(sum(isinstance(guest, FoldedRows) for guest in guests))
        return [
            guest if isinstance(guest, Exception) else _tried(partial(job.ask, snapshot, guest))
            for job, guest in zip(jobs, guests, strict=True)
        ]

    def _write_together(self, writes: Sequence[AnyWrite]) -> list[WriteReceipt | Exception]:
        with self._writing:
            try:
                return self._written(writes).answers
            except SQLAlchemyError as error:
                logger.error("cannot write to the database", extra={"fields": {"error": type(error).__name__}})
                reason = "the database does not answer; this may be written nonetheless: send it again"
                refusal = Refusal(503, "no_database", reason, retry_after=1)
                return [refusal] * len(writes)
            except UserError as error:
                if len(writes) == 1:
                    return [_refused(error)]
            answers: list[WriteReceipt | Exception] = []  # one of them is not to be learned: find out which
            for write in writes:
                try:
                    answers += self._written([write]).answers
                except UserError as error:
                    answers.append(_refused(error))
            return answers

    def _written(self, writes: Sequence[AnyWrite]) -> Written:
        written = write_together(self._database, self.current, writes)
        self._publish(written.snapshot)
        self.metrics.learned(written.n_learned, written.n_latents)
        return written

    def _follow(self) -> None:
        """Look for what other processes wrote, and for a model that another worker was told to load."""
        pruning = _Pruning(self._database, self.limits.keep_changes)
        while not self._stopped.wait(self.limits.staleness):
            try:
                self._build_neighbours()
                state = self._database.state()
                if state.data_version < self.current.data_version or state.model_version < self.current.model_version:
                    self._start_over()
                self._follow_model(state.model_version)
                if state.data_version != self.current.data_version:
                    with self._writing, self._database.reading() as transaction:
                        self._publish(caught_up(self.current, transaction))
                pruning.tick(self.current.data_version)
            except Exception as error:  # noqa: BLE001 (the database may be away for a while: look again later)
                logger.error("cannot follow the database", extra={"fields": {"error": type(error).__name__}})
                self._stopped.wait(1.0)
        try:
            pruning.finish(self.current.data_version)
        except SQLAlchemyError as error:
            logger.error("cannot prune the database", extra={"fields": {"error": type(error).__name__}})

    def _start_over(self) -> None:
        """Read a database that was restored to an earlier state, and tell it which model is served."""
        logger.warning("the database is at an earlier state than before; it is read anew")
        with self._loading, self._writing:
            self._publish(self._started(Snapshot.of(self.current.base), self._digest))

    def _follow_model(self, version: int) -> None:
        """Load the model file that another worker was told to; the file is read once, and again when it changes."""
        if self._source is None or version == self.current.model_version:
            return
        seen = version, *_identity(self._source)
        if seen == self._seen_model:
            return
        try:
            served = self.reload().model_version
        except UserError:
            self._seen_model = seen
            raise
        self._seen_model = seen
        if served != version:
            logger.warning("another service uses this database with another model file")


class _Pruning:
    """Removes from the database, once in a while, which rows and columns changed some time ago.

    Whoever was away for longer reads everything anew; what is forgotten does not stay in a list of changes.
    """

    def __init__(self, database: EntryDatabase, seconds: float) -> None:
        self._database = database
        self._seconds = seconds
        self._due, self._version, self._pruned = time.monotonic() + seconds, 0, 0
        self._is_clean = True

    def tick(self, version: int) -> None:
        """Prune where it is time."""
        if version < self._pruned:  # the database was restored to an earlier state
            self._version = self._pruned = 0
        if time.monotonic() >= self._due:
            due, self._version, self._due = self._version, version, time.monotonic() + self._seconds
            self._prune(due)
        if not self._is_clean:  # others may read at the moment: try again
            self._is_clean = self._database.erase(self._pruned, largest=_LARGEST_REWRITTEN)

    def finish(self, version: int) -> None:
        """Prune everything, as nobody may be there to do it later."""
        self._prune(version)
        self._database.erase(version)

    def _prune(self, version: int) -> None:
        if version > self._pruned:
            with self._database.writing() as transaction:
                transaction.prune(version)
            self._pruned, self._is_clean = version, False


def _guests(snapshot: Snapshot, jobs: Sequence[ReadJob]) -> list[FoldedRows | Exception | None]:
    """Return the row that each history, or its features, make, embedded together; the reason where they make none."""
    guests: list[Guest] = []
    found: list[FoldedRows | Exception | None] = []
    places = []
    for job in jobs:
        found.append(None)
        if job.history is not None or job.features is not None:
            checked = _tried(partial(guest_of, snapshot, job.history or (), job.features))
            if isinstance(checked, Exception):
                found[-1] = checked
            else:
                places.append(len(found) - 1)
                guests.append(checked)
    if guests:
        together = _tried(partial(fold_in, snapshot, guests))
        for number, place in enumerate(places):
            found[place] = together if isinstance(together, Exception) else together.row(number)
    return found


def _tried(ask: Callable[[], Any]) -> Any:
    """Return an answer, or the error that it raised."""
    try:
        return ask()
    except UserError as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001 (of this job alone; the others are answered)
        return error


def _refused(error: UserError) -> Refusal:
    """Return an error of the library as a refusal that names nothing but what was given."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, UnknownLabel):
        return Refusal(404, "unknown_label", named_unknown(error))
    if isinstance(error, BadSetting | NotImplementedError):
        return Refusal(409, "cannot", str(error))
    return Refusal(422, "refused", str(error))


def _warm_up(snapshot: Snapshot) -> None:
    """Answer once before anyone asks: what is computed at first use is ready then."""
    entries = snapshot.model.entries_
    first = np.zeros(1, dtype=np.int64)
    snapshot.model.predictor_.score_pairs(first, first)
    if "II" in snapshot.model.predicts:
        column, value = entries.columns[int(entries.train.by_row.columns[0])], float(entries.train.values[0])
        snapshot.model.fold_in([column], [value]).recommend(1)
