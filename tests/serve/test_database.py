"""The database: versions, what is kept and what is gone, receipts, and two processes that share
it."""

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import inspect, text
from tests.serve.conftest import StartClient

from deepmf.errors import BadSetting, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.serve import snapshot as snapshot_module
from deepmf.serve.changes import Entry
from deepmf.serve.database import (
    METADATA,
    EntryDatabase,
    Receipt,
    ServedModel,
    Transaction,
    open_database,
)
from deepmf.serve.omissions import ContentChanges, Topic
from deepmf.serve.snapshot import Snapshot, catch_up


@pytest.fixture
def database(url: str) -> Iterator[EntryDatabase]:
    database = open_database(url)
    yield database
    database.close()


def change(database: EntryDatabase, values: dict[Any, float | None], *in_file: Any) -> int:
    changes = {pair: None if value is None else Entry(value) for pair, value in values.items()}
    with database.begin_write() as transaction:
        return transaction.write_changes(changes, set(in_file))


def put(database: EntryDatabase, features: ContentChanges, *in_file: tuple[Topic, str]) -> int:
    with database.begin_write() as transaction:
        return transaction.write_changes({}, contents=features, contents_in_file=set(in_file))


def prune(database: EntryDatabase) -> None:
    database.prune(database.read_state().data_version)


def stored(database: EntryDatabase) -> dict[tuple[str, str], float | None]:
    with database.begin_read() as transaction:
        return {pair: entry and entry.value for pair, entry in transaction.read_entries().items()}


def test_the_tables_are_made_once(url: str) -> None:
    engine = open_database(url).engine
    inspector = inspect(engine)
    for table in METADATA.sorted_tables:
        columns = {part["name"]: part["nullable"] for part in inspector.get_columns(table.name)}
        assert columns == {column.name: column.nullable for column in table.columns}
        indexes = {index["name"] for index in inspector.get_indexes(table.name)}
        assert indexes == {index.name for index in table.indexes}
    engine.dispose()
    open_database(url).close()  # a second time changes nothing


def test_values_come_back_to_the_bit_and_versions_rise(database: EntryDatabase) -> None:
    assert change(database, {("ann", "Alien"): 0.1 + 0.2, ("bob\x00", "é"): 5.0}) == 1
    assert change(database, {("ann", "Alien"): 1 / 3, (7, -(2**63)): 2.0}) == 2
    assert stored(database) == {("ann", "Alien"): 1 / 3, ("bob\x00", "é"): 5.0, (7, -(2**63)): 2.0}
    with database.begin_read() as transaction:
        later = {("ann", "Alien"): Entry(1 / 3), (7, -(2**63)): Entry(2.0)}
        assert transaction.read_entries(since=1) == later
        assert transaction.read_entries(since=2) == {}


def test_times_and_weights_come_back(database: EntryDatabase) -> None:
    written = {("ann", "Alien"): Entry(5.0, -62135596800, 0.1), ("ann", "Big"): Entry(1.0, 0)}
    for changes in (written, {("ann", "Alien"): Entry(5.0)}):
        with database.begin_write() as transaction:
            transaction.write_changes(changes)
            written |= changes
            assert transaction.read_entries() == written


def test_what_is_forgotten_is_gone_unless_a_model_may_have_it(database: EntryDatabase) -> None:
    change(database, {("ann", "Alien"): 1.0, ("ann", "Big"): 2.0})
    change(database, {("ann", "Alien"): None})
    assert stored(database) == {("ann", "Alien"): None, ("ann", "Big"): 2.0}  # for other workers
    database.prune(1)
    assert ("ann", "Alien") in stored(database)
    prune(database)
    assert stored(database) == {("ann", "Big"): 2.0}
    with database.begin_write() as transaction:
        transaction.mark_exported()
    change(database, {("ann", "Big"): 3.0})
    change(database, {("ann", "Big"): None, ("bob", "Cube"): None}, ("bob", "Cube"))
    prune(database)
    assert stored(database) == {("ann", "Big"): None, ("bob", "Cube"): None}
    # an entry that a later file has stays forgotten
    change(database, {("eve", "Alien"): 1.0})
    change(database, {("eve", "Alien"): None}, ("eve", "Alien"))
    change(database, {("eve", "Alien"): 2.0})
    change(database, {("eve", "Alien"): None})
    prune(database)
    assert ("eve", "Alien") in stored(database)
    # what is written again before it is pruned stays, and so does what is exported only then
    change(database, {("joe", "Alien"): 1.0})
    change(database, {("joe", "Alien"): None, ("joe", "Big"): 2.0})
    with database.begin_write() as transaction:
        transaction.mark_exported()
    change(database, {("joe", "Alien"): 3.0, ("joe", "Big"): None})
    prune(database)
    assert stored(database)["joe", "Alien"] == 3.0
    assert ("joe", "Big") in stored(database)


def test_features_that_were_exported_stay_forgotten(database: EntryDatabase) -> None:
    put(database, {("row", "ann"): {"age": 1}})
    with database.begin_write() as transaction:
        transaction.mark_exported()
    put(database, {("row", "ann"): {"age": 2}})
    put(database, {("row", "bob"): {"age": 3}})
    put(database, {("row", "ann"): None, ("row", "bob"): None})
    prune(database)
    with database.begin_read() as transaction:
        assert transaction.read_contents() == {("row", "ann"): None}


def test_features_come_back_and_are_gone_unless_a_file_has_them(database: EntryDatabase) -> None:
    given = {"likes": ["é\x00", 3], "age": 0.1 + 0.2, "member": True, "group": None}
    first: ContentChanges = {
        ("row", "ann\x00"): given,
        ("column", "ann\x00"): {"year": 1},
        ("row", 7): {"a": 1},
    }
    assert put(database, first) == 1
    forgotten: ContentChanges = dict.fromkeys([("row", 7), ("column", "ann\x00"), ("row", "bob")])
    assert put(database, forgotten, ("row", "bob")) == 2
    with database.begin_read() as transaction:
        assert transaction.read_contents(since=1) == forgotten
    prune(database)
    with database.begin_read() as transaction:
        contents = transaction.read_contents()
        assert contents == {("row", "ann\x00"): given, ("row", "bob"): None}
    assert put(database, {("row", "bob"): {"age": 1}}) == 3
    with database.begin_read() as transaction:
        assert transaction.read_contents(since=2) == {("row", "bob"): {"age": 1}}


def test_receipts_are_kept(database: EntryDatabase) -> None:
    with database.begin_write() as transaction:
        transaction.write_receipts({"a": Receipt("request", b"\x00answer")})
    with database.begin_read() as transaction:
        assert transaction.read_receipts(["a", "b"]) == {"a": Receipt("request", b"\x00answer")}


def test_the_same_file_is_the_same_version_of_the_model(database: EntryDatabase) -> None:
    scale = Scale(low=0, high=0.1 + 0.2)
    with database.begin_write() as transaction:
        versions = [transaction.register_model(digest, scale) for digest in "aaba"]
        assert versions == [1, 1, 2, 3]
        assert transaction.read_newest_model() == ServedModel(3, "a", scale)
    assert database.read_state().model_version == 3


def test_versions_that_were_pruned_only_rise(database: EntryDatabase) -> None:
    for value in (1.0, 2.0, 3.0):
        change(database, {("ann", "Alien"): value})
    for version, pruned_version in ((2, 2), (1, 2), (9, 3)):
        database.prune(version)
        assert database.read_state().pruned_version == pruned_version


def test_a_process_that_was_away_reads_everything_anew(database: EntryDatabase, als: ALS) -> None:
    film = als.column_labels_[0]
    change(database, {("Wilma", film): 5.0, ("Fred", film): 3.0})
    with database.begin_read() as transaction:
        before = catch_up(Snapshot.from_model(als), transaction)
    change(database, {("Wilma", film): None})
    prune(database)  # nothing says any more that Wilma was forgotten
    change(database, {("Betty", film): 4.0})
    with database.begin_read() as transaction:
        after = catch_up(before, transaction)
    assert after.data_version == 3
    pairs = [(row, film) for row in ("Wilma", "Fred", "Betty")]
    assert after.read_pairs(pairs) == [None, Entry(3.0), Entry(4.0)]


def test_a_failed_transaction_leaves_nothing(database: EntryDatabase) -> None:
    with pytest.raises(RuntimeError), database.begin_write() as transaction:
        transaction.write_changes({("ann", "Alien"): Entry(1.0)})
        raise RuntimeError
    assert stored(database) == {}
    assert database.read_state().data_version == 0


def test_two_processes_write_in_turn_and_read_alike(
    start_client: StartClient, ratings: ObservedMatrix, url: str
) -> None:
    one, two = start_client(url=url), start_client(url=url)
    films = ratings.column_labels[:4].tolist()
    versions = [
        client.write("Wilma", {film: 3}, method="PATCH").json()["version"]["data"]
        for film in films
        for client in (one, two)
    ]
    assert versions == [1, 1, 2, 2, 3, 3, 4, 4]  # the second of each pair changes nothing
    one.write("Wilma", {films[0]: 5}, method="PATCH")
    tag = two.write("Wilma", method="PATCH").headers["etag"]
    assert one.get("/v1/rows/Wilma/entries").headers["etag"] == tag
    one.forget("Wilma")
    assert two.forget("Wilma").status_code == 404


def test_entries_are_exported_while_others_write(
    database: EntryDatabase, url: str, als: ALS, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, replay = als.entries_.columns[:3].tolist(), snapshot_module.replay
    change(database, {("Wilma", columns[0]): 5.0, ("Wilma", columns[1]): 3.0})

    def write_meanwhile(base: Snapshot, transaction: Transaction) -> Snapshot:
        change(database, {("Wilma", columns[0]): None, ("Betty", columns[2]): 1.0})
        return replay(base, transaction)

    monkeypatch.setattr(snapshot_module, "replay", write_meanwhile)
    rows, _, values = snapshot_module.export_data(als, url).entries
    assert values[np.isin(rows, ["Wilma", "Betty"])].tolist() == [5.0, 3.0]
    # It was exported before it was forgotten: a model trained on it must not bring it back.
    expected = {("Wilma", columns[0]): None, ("Wilma", columns[1]): 3.0, ("Betty", columns[2]): 1.0}
    assert stored(database) == expected


@pytest.mark.parametrize(
    "given", ["mysql://x/y", "nonsense://x", "sqlite://", "postgresql://:::/x"]
)
def test_what_is_no_database_is_refused(given: str) -> None:
    with pytest.raises((BadSetting, UnreadableFile)) as refused:
        open_database(given).close()
    assert "\n" not in str(refused.value)


def test_a_file_that_is_none_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 50)
    before = path.read_bytes()
    with pytest.raises(UnreadableFile, match="cannot"):
        open_database(str(path))
    assert path.read_bytes() == before


def test_what_a_crash_left_half_written_is_undone(tmp_path: Path) -> None:
    path, copy = tmp_path / "entries.sqlite", tmp_path / "copy.sqlite"
    open_database(str(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA cache_size=1")  # pages reach the file before the commit
        connection.execute("BEGIN")
        connection.execute("UPDATE state SET data_version = 7")
        connection.execute("CREATE TABLE filler AS SELECT randomblob(100000) AS content")
        for ending in ("", "-journal"):
            Path(f"{copy}{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
    database = open_database(str(copy))
    assert database.read_state().data_version == 0
    database.close()


def test_a_commit_is_on_the_disk(tmp_path: Path) -> None:
    engine = open_database(str(tmp_path / "entries.sqlite")).engine
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2  # FULL
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA secure_delete")).scalar() == 1
    engine.dispose()


@pytest.mark.slow
def test_nothing_of_what_is_forgotten_stays_in_the_file(tmp_path: Path) -> None:
    path, dice = tmp_path / "entries.sqlite", random.Random(1)
    database = open_database(str(path))
    rows = [f"{dice.random():.3f} {'private' if at % 3 else 'public'}" for at in range(300)]
    for row in rows:  # lines move from page to page
        change(
            database,
            {(row, f"film {dice.randrange(1000)}"): 1.0 for _ in range(dice.randrange(1, 30))},
        )
    gone = [pair for pair in stored(database) if "private" in pair[0]]
    dice.shuffle(gone)
    for at in range(0, len(gone), 50):
        version = change(database, dict.fromkeys(gone[at : at + 50]))
    database.prune(version)
    assert database.erase(version)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert {name for name, content in files.items() if b"private" in content} == set()
    assert b"public" in files[path.name]
    database.close()


@pytest.mark.parametrize(
    "name", ["model?v=2.sqlite", "a%20b.sqlite", "a#b.sqlite", "file:a.sqlite", "é :x.sqlite"]
)
def test_a_database_has_the_name_that_was_given_and_is_the_owners_alone(
    tmp_path: Path, name: str
) -> None:
    database = open_database(str(tmp_path / name))
    change(database, {("ann", "Alien"): 1.0})
    files = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert name in files
    assert all(file.startswith(name) and mode == 0o600 for file, mode in files.items())
    database.close()


def test_tables_of_an_unknown_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "entries.sqlite"
    open_database(str(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE state SET tables_version = 99")
    connection.close()
    with pytest.raises(UnreadableFile, match="version 99"):
        open_database(str(path))


@pytest.mark.slow
def test_a_file_needs_no_postgresql(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["psycopg"] = None
from deepmf.errors import MissingDependency
from deepmf.serve import open_database
open_database("entries.sqlite").close()
try:
    open_database("postgresql://localhost/entries")
except MissingDependency as error:
    print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "deepmf[postgres]" in ended.stdout
