"""The database of entries and features written since training: tables, connections and
transactions."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import closing, contextmanager, suppress
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.types import TypeDecorator

from deepmf.errors import BadModelFile, BadSetting, MissingDependency, UnreadableFile
from deepmf.matrix.extras import NO_TIME
from deepmf.matrix.packed import unpack_scale
from deepmf.matrix.scale import Scale
from deepmf.serve.changes import Entry, EntryChanges, Pair
from deepmf.serve.omissions import NO_CHANGES, OMISSIONS, ColumnState, ContentChanges, Topic

_VERSION = 3  # of the tables
_NO_VERSION = 2**62  # later than all: no model can have learned it
_PATIENCE = 5.0  # seconds; less than the timeout of a request
_STATEMENT_SECONDS = 60  # after which PostgreSQL ends a statement
_RECEIPT_SECONDS = 24 * 3600.0
_CACHE_KIB = 32 << 10  # of a SQLite file, so that a bulk write reads no page twice


class IdBytes(TypeDecorator[Any]):
    """An id as bytes: `s` and UTF-8 for text, `i` and digits for an integer; any database keeps any
    character."""

    impl = sa.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> bytes | None:
        """Return the bytes of an id."""
        return None if value is None else encode_id(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        """Return the id of stored bytes."""
        if value is None:
            return None
        stored = bytes(value)
        try:
            if stored[:1] == b"i":
                return int(stored[1:])
            return stored[1:].decode("utf-8", "surrogatepass")
        except ValueError as error:
            raise _build_damage_error(f"{stored[:20]!r} is not an id") from error


def encode_id(label: Any) -> bytes:
    """Return an id as the database stores it."""
    if isinstance(label, int):
        return b"i%d" % label
    return b"s" + str(label).encode("utf-8", "surrogatepass")


_FORGOTTEN = (None, NO_TIME, 1.0)  # the fields of an entry that is forgotten

METADATA = sa.MetaData()

# The contents of topics: features by name, the state of a column, and the columns that a row
# dismissed.
_FEATURES: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_CONTENTS: dict[Topic, TypeAdapter[Any]] = {
    "row": _FEATURES,
    "column": _FEATURES,
    "state": TypeAdapter(ColumnState),
    "skips": TypeAdapter(frozenset[str | int]),
}


def _declare_key(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _declare_column(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


# One line, whose key is the version of the tables. data_version counts transactions that changed
# something; exported_version is its value at the last export, pruned_version the one up to which
# what was forgotten is gone.
STATE = sa.Table(
    "state",
    METADATA,
    _declare_key("tables_version", sa.Integer),
    _declare_column("data_version", sa.BigInteger),
    _declare_column("model_version", sa.BigInteger),
    _declare_column("exported_version", sa.BigInteger),
    _declare_column("pruned_version", sa.BigInteger),
)
# The model files that were served, by their digests, and their scales as JSON.
MODELS = sa.Table(
    "models",
    METADATA,
    _declare_key("version", sa.BigInteger),
    _declare_column("digest", sa.String(64)),
    _declare_column("scale", sa.String),
)
# Entries that differ from the model's file; a null value means forgotten.
# time: seconds since 1970, null without a date. weight: null for 1.
# first_version: the data version at which the pair was first written; 0 if a model's file has or
# had it, and _NO_VERSION if it is forgotten and no model can have it: `prune` removes such lines.
# place: the number of the entry among those of its version, in the order of the write.
ENTRIES = sa.Table(
    "entries",
    METADATA,
    _declare_key("row_id", IdBytes),
    _declare_key("column_id", IdBytes),
    _declare_column("version", sa.BigInteger),
    _declare_column("first_version", sa.BigInteger),
    _declare_column("place", sa.BigInteger),
    sa.Column("value", sa.Double),
    sa.Column("time", sa.BigInteger),
    sa.Column("weight", sa.Double),
    sa.Index("entries_by_version", "version"),
)
# Features that differ from the model's file, as they were given; states of columns, and columns
# that rows dismissed. content: JSON; null means forgotten. first_version: as for entries.
CONTENTS = sa.Table(
    "contents",
    METADATA,
    _declare_key("topic", sa.String(6)),
    _declare_key("label", IdBytes),
    _declare_column("version", sa.BigInteger),
    _declare_column("first_version", sa.BigInteger),
    sa.Column("content", sa.LargeBinary),
    sa.Index("contents_by_version", "version"),
)
# Receipts of writes with an Idempotency-Key, for a day.
RECEIPTS = sa.Table(
    "receipts",
    METADATA,
    _declare_key("key", sa.String(64)),
    _declare_column("request", sa.String(64)),
    _declare_column("answer", sa.LargeBinary),
    _declare_column("time", sa.Double),
    sa.Index("receipts_by_time", "time"),
)


class State(NamedTuple):
    """The versions of the database."""

    data_version: int
    model_version: int
    exported_version: int
    pruned_version: int


class ServedModel(NamedTuple):
    """A model file that was served; by default none was."""

    version: int = 0
    digest: str = ""
    scale: Scale = Scale(low=0.0, high=1.0)


class Receipt(NamedTuple):
    """The stored receipt of a request with an Idempotency-Key, and the digest of that request."""

    request: str
    answer: bytes


class EntryDatabase:
    """The database behind a service; several processes may use it at once."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._reading = engine.execution_options(reading=True)
        if engine.dialect.name == "postgresql":
            self._reading = self._reading.execution_options(isolation_level="REPEATABLE READ")

    @contextmanager
    def begin_write(self) -> Iterator[Transaction]:
        """Begin a transaction that excludes other writers; it is durable when the block ends."""
        with self.engine.begin() as connection:
            yield Transaction(connection, sa.select(STATE).with_for_update())

    @contextmanager
    def begin_read(self) -> Iterator[Transaction]:
        """Begin a transaction that sees a single state of the database and changes nothing."""
        with self._reading.begin() as connection:
            yield Transaction(connection, sa.select(STATE))

    def read_state(self) -> State:
        """Return the current versions, by the driver: SQLAlchemy would take ten times as long."""
        with closing(self.engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT {', '.join(State._fields)} FROM state")
            return State(*cursor.fetchone())  # type: ignore[misc]

    def prune(self, version: int) -> None:
        """Remove what was forgotten up to a version, unless a model may have it, and old receipts."""
        with self.begin_write() as transaction:
            transaction.prune(version)

    def erase(self, version: int, *, largest: float = float("inf")) -> bool:
        """Erase the bytes of entries forgotten up to a version from a SQLite file and its log.

        SQLite overwrites deleted lines, but not the copies it left when it moved lines to other
        pages: the file is rewritten, unless it has more than `largest` bytes. Return False if
        another connection is in the way.
        """
        if self.engine.dialect.name != "sqlite":
            return True
        with self.engine.connect() as connection:
            cursor = connection.connection.cursor()
            (forgotten,) = cursor.execute("PRAGMA user_version").fetchone()
            if (
                0 < forgotten <= version
                and Path(str(self.engine.url.database)).stat().st_size <= largest
            ):
                cursor.execute("VACUUM")
                cursor.execute("BEGIN IMMEDIATE")  # more entries may have been forgotten meanwhile
                if cursor.execute("PRAGMA user_version").fetchone() == (forgotten,):
                    cursor.execute("PRAGMA user_version=0")
                cursor.execute("COMMIT")
            (patience,) = cursor.execute("PRAGMA busy_timeout").fetchone()
            cursor.execute("PRAGMA busy_timeout=100")  # milliseconds: nobody can write meanwhile
            try:
                is_busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                cursor.execute(f"PRAGMA busy_timeout={patience}")
        return not is_busy

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


class Transaction:
    """The reads and writes of one transaction."""

    def __init__(self, connection: sa.Connection, select_state: sa.Select[Any]) -> None:
        self._connection = connection
        self.state = State(*connection.execute(select_state).one()[1:])

    def read_entries(self, *, since: int = 0) -> dict[Pair, Entry | None]:
        """Return the entries that were written after a data version, in that order; None stands for
        forgotten entries."""
        lines = sorted(self._read_since(ENTRIES, since), key=attrgetter("version", "place"))
        return {(line.row_id, line.column_id): _read_entry(line) for line in lines}

    def read_contents(self, *, since: int = 0) -> dict[tuple[Topic, Any], Any]:
        """Return the contents that were written after a data version; None stands for forgotten
        contents."""
        return {
            (line.topic, line.label): _parse_content(line.topic, line.content)
            for line in self._read_since(CONTENTS, since)
        }

    def _read_since(self, table: sa.Table, version: int) -> Iterable[Any]:
        written = sa.select(table)
        if version > 0:  # a whole table is read faster without its index
            written = written.where(table.c.version > version)
        return self._connection.execute(written)

    def write_changes(
        self,
        changes: EntryChanges,
        in_file: Set[Pair] = frozenset(),
        *,
        contents: ContentChanges = NO_CHANGES,
        contents_in_file: Set[tuple[Topic, Any]] = frozenset(),
    ) -> int:
        """Write changes and return the new data version.

        A forgotten entry leaves a mark if a model may have been trained on it: if it is `in_file`,
        or if an earlier file had it, or if it was exported. All other forgotten entries stay until
        `prune` removes them, so that other workers forget them too. Features are treated alike.

        Parameters
        ----------
        in_file : pairs that the model's file has.
        contents_in_file : rows and columns whose features the model's file has.
        """
        version = self.state.data_version + 1
        self._write_entries(changes, in_file, version)
        self._write_contents(contents, contents_in_file, version)
        self._connection.execute(sa.update(STATE).values(data_version=version))
        return version

    def _write_entries(self, changes: EntryChanges, in_file: Set[Pair], version: int) -> None:
        encoded: dict[Any, bytes] = {
            label: encode_id(label) for label in {label for pair in changes for label in pair}
        }
        lines = [
            {
                "row_id": encoded[row],
                "column_id": encoded[column],
                "version": version,
                "first_version": _find_first(version, entry, (row, column) in in_file),
                "place": place,
                "value": value,
                "time": None if time == NO_TIME else time,
                "weight": None if weight == 1 else weight,
            }
            for place, ((row, column), entry) in enumerate(changes.items())
            for value, time, weight in [entry or _FORGOTTEN]
        ]
        # as the index of the table is sorted, and its pages lie
        lines.sort(key=itemgetter("row_id", "column_id"))
        self._upsert(
            ENTRIES,
            lines,
            keys=("row_id", "column_id"),
            content=("value", "time", "weight", "place"),
        )

    def _write_contents(
        self, contents: ContentChanges, in_file: Set[tuple[Topic, Any]], version: int
    ) -> None:
        lines = [
            {
                "topic": topic,
                "label": encode_id(label),
                "content": json.dumps(content, default=sorted).encode() if content else None,
                "version": version,
                "first_version": _find_first(
                    version, topic not in OMISSIONS and content, (topic, label) in in_file
                ),
            }
            for (topic, label), content in contents.items()
        ]
        self._upsert(CONTENTS, lines, keys=("topic", "label"), content=("content",))

    def _upsert(
        self,
        table: sa.Table,
        lines: list[dict[str, Any]],
        *,
        keys: tuple[str, str],
        content: tuple[str, ...],
    ) -> None:
        """Insert or replace lines; a line is forgotten if the first column of its content is null.

        The driver gets the lines with ids as bytes: SQLAlchemy would take three times as long as
        SQLite itself.
        """
        if not lines:
            return
        dialect = postgresql if self._connection.dialect.name == "postgresql" else sqlite
        put = dialect.insert(table)
        earlier, later = table.c.first_version, put.excluded.first_version
        first_version = sa.case((later < earlier, later), else_=earlier)
        exported: sa.ColumnElement[int] = sa.literal_column(str(self.state.exported_version))
        is_unlearned = put.excluded[content[0]].is_(None) & (first_version > exported)
        put = put.on_conflict_do_update(
            index_elements=keys,
            set_={
                **{name: put.excluded[name] for name in (*content, "version")},
                "first_version": sa.case(
                    (is_unlearned, sa.literal_column(str(_NO_VERSION))), else_=first_version
                ),
            },
        )
        compiled = put.compile(dialect=self._connection.dialect, column_keys=list(lines[0]))
        order = compiled.positiontup  # None if the driver takes values by name
        values: list[Any] = lines if order is None else list(map(itemgetter(*order), lines))
        self._connection.exec_driver_sql(compiled.string, values)
        if dialect is sqlite and any(line[content[0]] is None for line in lines):
            # note in a header field for applications when something was last forgotten, for `erase`
            self._connection.exec_driver_sql(f"PRAGMA user_version={lines[0]['version']}")

    def prune(self, version: int) -> None:
        """Remove what was forgotten up to a version, unless a model may have it, and old receipts."""
        version = min(version, self.state.data_version)  # the database may have been restored
        for table, content in ((ENTRIES, ENTRIES.c.value), (CONTENTS, CONTENTS.c.content)):
            is_unlearned = content.is_(None) & (table.c.first_version == _NO_VERSION)
            is_new = table.c.version.between(self.state.pruned_version + 1, version)
            self._connection.execute(sa.delete(table).where(is_new & is_unlearned))
        pruned_version = max(version, self.state.pruned_version)
        self._connection.execute(sa.update(STATE).values(pruned_version=pruned_version))
        self._connection.execute(sa.delete(RECEIPTS).where(~_is_valid()))

    def read_receipts(self, keys: Collection[str]) -> dict[str, Receipt]:
        """Return the receipts of keys."""
        if not keys:
            return {}
        asked = sa.select(RECEIPTS.c.key, RECEIPTS.c.request, RECEIPTS.c.answer).where(
            RECEIPTS.c.key.in_(list(keys)), _is_valid()
        )
        return {
            line.key: Receipt(line.request, bytes(line.answer))
            for line in self._connection.execute(asked)
        }

    def write_receipts(self, receipts: Mapping[str, Receipt]) -> None:
        """Write receipts; they replace expired receipts of the same keys."""
        for key, receipt in receipts.items():
            line = {"key": key, **receipt._asdict(), "time": time.time()}
            self._connection.execute(sa.delete(RECEIPTS).where(RECEIPTS.c.key == key))
            self._connection.execute(sa.insert(RECEIPTS), line)

    def read_newest_model(self) -> ServedModel:
        """Return the model that was served last."""
        newest = self._connection.execute(
            sa.select(MODELS).order_by(MODELS.c.version.desc()).limit(1)
        ).first()
        if newest is None:
            return ServedModel()
        try:
            scale = unpack_scale(json.loads(newest.scale))
        except (ValueError, BadModelFile) as error:
            raise _build_damage_error("the scale of a model is not JSON") from error
        return ServedModel(newest.version, newest.digest, scale)

    def register_model(self, digest: str, scale: Scale) -> int:
        """Return the version of a model file: that of the newest file if the digests are equal,
        otherwise the next."""
        newest = self.read_newest_model()
        if newest.digest == digest:
            return newest.version
        version = newest.version + 1
        line = {"version": version, "digest": digest, "scale": json.dumps(scale.to_dict())}
        self._connection.execute(sa.insert(MODELS), line)
        self._connection.execute(sa.update(STATE).values(model_version=version))
        return version

    def mark_exported(self) -> None:
        """Record that a later model may be trained on everything up to now."""
        self._connection.execute(sa.update(STATE).values(exported_version=STATE.c.data_version))


def _find_first(version: int, content: Any, is_in_file: bool) -> int:
    """Return the first version of a line that is written at a version."""
    if is_in_file:
        return 0
    return version if content else _NO_VERSION


def _is_valid() -> sa.ColumnElement[bool]:
    """Return the condition that a receipt is not too old."""
    return RECEIPTS.c.time >= time.time() - _RECEIPT_SECONDS


def _read_entry(line: Any) -> Entry | None:
    if line.value is None:
        return None
    extras = {"time": line.time, "weight": line.weight}
    return Entry(line.value, **{name: part for name, part in extras.items() if part is not None})


def _parse_content(topic: Topic, content: bytes | None) -> Any:
    try:
        if content is None:
            return None
        return _CONTENTS[topic].validate_json(bytes(content), strict=True)
    except ValidationError as error:
        raise _build_damage_error(f"a content of the topic {topic} is not valid") from error


def _build_damage_error(found: str) -> UnreadableFile:
    return UnreadableFile(f"the database is damaged: {found}; restore a backup")


def open_database(url: str, *, patience: float = _PATIENCE) -> EntryDatabase:
    """Open a database by URL (a plain path is a SQLite file) and create its tables.

    Parameters
    ----------
    patience : seconds to wait for a database that does not answer, or for another transaction.
    """
    try:
        engine = _create_engine(url, patience)
    except (ArgumentError, NoSuchModuleError, LookupError, ValueError) as error:
        raise BadSetting(
            f"{hide_password(url)} is neither SQLite nor PostgreSQL; give a file, or postgresql://user@host/name"
        ) from error
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"{error.name} is not installed; pip install 'deepmf[postgres]'"
        ) from error
    try:
        if engine.dialect.name == "sqlite":
            _check_file(Path(str(engine.url.database)).absolute(), patience)
        with engine.begin() as connection:
            _create_tables(connection)
    except (SQLAlchemyError, sqlite3.Error, ValueError) as error:
        engine.dispose()
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise UnreadableFile(
            f"the database {hide_password(url)} cannot be used ({reason})"
        ) from error
    return EntryDatabase(engine)


def hide_password(url: str) -> str:
    """Return a URL as messages show it, without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except (ArgumentError, ValueError):
        return "given"


def _create_engine(url: str, patience: float) -> sa.Engine:
    if "://" not in url:  # a path, in which "?" and "%" have no meaning
        return _create_sqlite(URL.create("sqlite", database=str(Path(url).absolute())), patience)
    if url.startswith(("postgresql://", "postgres://")):
        url = f"postgresql+psycopg://{url.split('://', 1)[1]}"
    parsed = make_url(url)
    create = {"sqlite": _create_sqlite, "postgresql": _create_postgresql}
    return create[parsed.get_backend_name()](parsed, patience)


def _create_postgresql(url: URL, patience: float) -> sa.Engine:
    limits = f"-c statement_timeout={_STATEMENT_SECONDS}s -c lock_timeout={round(800 * patience)}ms"
    given: dict[str, Any] = {
        "connect_timeout": max(2, round(patience)),
        "tcp_user_timeout": round(1000 * patience),
        **url.query,
        "options": f"{limits} {url.query.get('options', '')}",
    }
    return sa.create_engine(
        url,
        connect_args=given,
        pool_pre_ping=True,
        pool_timeout=patience,
        isolation_level="READ COMMITTED",
    )


def _create_sqlite(url: URL, patience: float) -> sa.Engine:
    if not url.database or url.database == ":memory:":
        raise ValueError("a database in memory would lose its entries")
    with suppress(OSError):  # SQLite reports errors; its log gets the same permissions as the file
        Path(url.database).touch(mode=0o600)
    file = Path(url.database).absolute()
    # "rw": a file that is removed while it is served is not created again, empty.
    named = f"file:{quote(str(file))}?mode=rw"
    connect = partial(sqlite3.connect, named, uri=True, timeout=patience, check_same_thread=False)
    engine = sa.create_engine(url, creator=connect, pool_timeout=patience)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        record.info["file"] = _read_inode(file)
        connection.isolation_level = None  # otherwise sqlite3 begins transactions too late
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")  # commits survive a loss of power
        cursor.execute("PRAGMA secure_delete=ON")  # deleted lines are overwritten
        cursor.execute(f"PRAGMA cache_size={-_CACHE_KIB}")
        cursor.close()

    @sa.event.listens_for(engine, "checkout")
    def check(_: Any, record: Any, __: Any) -> None:
        # another file took its place: writes would be lost
        if record.info["file"] != _read_inode(file):
            raise InvalidatePoolError

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        reading = connection.get_execution_options().get("reading")
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _check_file(file: Path, patience: float) -> None:
    """Raise `sqlite3.Error` unless a file is empty, or a whole database with values of the types of
    its tables.

    The file is opened for reading alone, so that nothing is written to a damaged one; but SQLite
    first undoes what a crash left half written, by the journal beside it.
    """
    name = f"file:{quote(str(file))}"
    try:
        _check_content(f"{name}?mode=ro", patience)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_READONLY_ROLLBACK":
            raise
        _check_content(f"{name}?mode=rw", patience)


def _check_content(name: str, patience: float) -> None:
    with closing(sqlite3.connect(name, uri=True, timeout=patience)) as connection:
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
            return
        checks = {"quick_check": "SELECT * FROM pragma_quick_check(1) WHERE quick_check != 'ok'"}
        # SQLite allows values of any type in any column; those that are not named are integers.
        types = {sa.Double: "real", sa.LargeBinary: "blob", IdBytes: "blob", sa.String: "text"}
        for table in METADATA.sorted_tables:
            kinds = {part.name: types.get(type(part.type), "integer") for part in table.columns}
            typed = [f"typeof({column}) IN ('{kind}', 'null')" for column, kind in kinds.items()]
            checks[table.name] = f"SELECT 1 FROM {table.name} WHERE NOT ({' AND '.join(typed)})"
        checks["state"] += f" OR data_version NOT BETWEEN 0 AND {2**62}"
        _check_version(*connection.execute("SELECT max(tables_version) FROM state").fetchone())
        for name, check in checks.items():
            if problem := connection.execute(f"{check} LIMIT 1").fetchone():
                raise sqlite3.DatabaseError(f"the file is damaged: {name}, {problem[0]}")


def _read_inode(file: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = file.stat()
        return status.st_dev, status.st_ino
    return None


def _create_tables(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":  # several workers may start at once
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(4271906)")
    if not sa.inspect(connection).has_table(STATE.name):
        METADATA.create_all(connection)
        line = dict.fromkeys(State._fields, 0) | {"tables_version": _VERSION}
        connection.execute(sa.insert(STATE), line)
    _check_version(connection.execute(sa.select(sa.func.max(STATE.c.tables_version))).scalar())


def _check_version(version: int | None) -> None:
    """Raise `ValueError` for tables of another version; None is that of a damaged file."""
    if version != _VERSION:
        raise ValueError(
            f"its tables have version {version}; this version of deepmf reads version {_VERSION}"
        )
