"""The database: how it is opened, made durable, and brought to the newest tables."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError, SQLAlchemyError

from deepmf.errors import BadSetting, MissingDependency, UnreadableFile

_MIGRATIONS = Path(__file__).parent / "migrations"
_EXPECTED = "give a file, or postgresql://user@host/name"
_SECONDS = 5.0  # how long a database may be silent, or a transaction wait for another one; less than a request may take


def open_database(url: str, *, patience: float = _SECONDS) -> Engine:
    """Open a database by URL (a plain path is a SQLite file) and bring its tables up to date.

    patience: seconds after which one that does not answer, or a transaction that waits for another, is given up.
    """
    engine = _engine(url, patience)
    try:
        with engine.begin() as connection:
            if connection.dialect.name == "sqlite":
                _check_whole(connection)
            _migrate(connection)
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except (SQLAlchemyError, CommandError, sqlite3.Error) as error:  # CommandError: tables of another version
        engine.dispose()
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise UnreadableFile(f"the database {named(url)} cannot be used ({reason})") from error
    return engine


def named(url: str) -> str:
    """Return a URL as messages show it, without a password."""
    try:
        return make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except (ArgumentError, ValueError):
        return "given"


def _engine(url: str, patience: float) -> Engine:
    if "://" not in url:  # a path is no URL: "?" and "%" are letters of its name
        return _sqlite(URL.create("sqlite", database=str(Path(url).absolute())), patience)
    if url.startswith(("postgresql://", "postgres://")):
        url = f"postgresql+psycopg://{url.split('://', 1)[1]}"
    try:
        parsed = make_url(url)
        dialect = parsed.drivername.split("+")[0]
        if dialect == "sqlite":
            return _sqlite(parsed, patience)
        if dialect == "postgresql":
            return _postgresql(parsed, patience)
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise BadSetting(f"the URL {named(url)} is that of no database; {_EXPECTED}") from error
    raise BadSetting(f"the database {named(url)} is neither SQLite nor PostgreSQL; {_EXPECTED}")


def _postgresql(url: URL, patience: float) -> Engine:
    engine = create_engine(url, pool_pre_ping=True, pool_timeout=patience, isolation_level="READ COMMITTED")
    from deepmf.serve.postgres_connection import PatientConnection

    @event.listens_for(engine, "do_connect")
    def connect(_: Any, __: Any, given: Any, named: Any) -> Any:
        return PatientConnection.open(*given, patience=patience, **named)

    return engine


def _sqlite(url: URL, patience: float) -> Engine:
    if not url.database or url.database == ":memory:":
        raise BadSetting("the database of a service must be a file: one in memory would lose what it learned")
    with suppress(OSError):  # SQLite says what is wrong; its log beside the file gets the same permissions
        Path(url.database).touch(mode=0o600)
    file = Path(url.database).absolute()
    # "rw": a file that is removed while it is served is not made anew, empty.
    named = f"file:{quote(str(file))}?mode=rw"
    engine = create_engine(
        url,
        creator=partial(sqlite3.connect, named, uri=True, timeout=patience, check_same_thread=False),
        pool_timeout=patience,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        record.info["file"] = _inode(file)
        connection.isolation_level = None  # sqlite3 would begin transactions too late
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")  # what is committed survives a loss of power too
        cursor.execute("PRAGMA secure_delete=ON")  # what is forgotten is overwritten
        cursor.close()

    @event.listens_for(engine, "checkout")
    def check(_: Any, record: Any, __: Any) -> None:
        if record.info["file"] != _inode(file):  # another file took its place: what is written here would be lost
            raise InvalidatePoolError

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("reading")
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _check_whole(connection: Connection) -> None:
    """Refuse a file with damaged pages, in one pass over it."""
    found = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    if found != "ok":
        raise sqlite3.DatabaseError(f"the file is damaged: {found}")


def _inode(file: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = file.stat()
        return found.st_dev, found.st_ino
    return None


def _migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    script = ScriptDirectory.from_config(config)
    head = script.get_current_head()
    if connection.dialect.name == "postgresql":  # several workers may start at once
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(4271906)")
    if MigrationContext.configure(connection).get_current_revision() == head:
        return

    def steps(revision: Any, _: Any) -> Any:
        return script._upgrade_revs("head", revision)

    with EnvironmentContext(config, script, fn=steps) as environment:
        environment.configure(connection=connection)
        environment.run_migrations()


def _missing(error: ModuleNotFoundError) -> MissingDependency:
    extra = "postgres" if "psycopg" in str(error) else "serve"
    return MissingDependency(f"{error.name} is not installed; pip install 'deepmf[{extra}]' brings it")
