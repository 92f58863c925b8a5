"""The service by itself: what fails is told to those it concerns, and leaves everything as it
was."""

import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from tests.serve.conftest import PATIENT, Caller, StartClient, refusal, serve_file
from tests.waiting import PATIENCE, wait_until

from deepmf.datasets import generate
from deepmf.errors import BadModelFile, BadSetting, FileAbsent, TrainingDiverged, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.loading import load
from deepmf.models.paper.low_rank import RankK
from deepmf.serve import service as service_module
from deepmf.serve.auth import KeyRing
from deepmf.serve.database import EntryDatabase, State, open_database
from deepmf.serve.schemas import GivenEntry
from deepmf.serve.service import Service, ServiceLimits, load_with_digest
from deepmf.serve.writer import EntryWrite
from deepmf.storage.model_file import compute_digest


@pytest.fixture
def film(ratings: ObservedMatrix) -> str:
    return str(ratings.column_labels[0])


def fit_another(ratings: ObservedMatrix, seed: int = 1) -> ALS:
    return ALS(latent_size=2, epochs=3, seed=seed).fit(ratings)


def test_a_database_that_is_away_refuses_writes_and_not_questions(
    client: Caller,
    ratings: ObservedMatrix,
    film: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorname = "SQLITE_FULL"

    @contextmanager
    def refuse(_: EntryDatabase) -> Any:
        raise OperationalError("INSERT", {"row": "Wilma"}, full)
        yield

    monkeypatch.setattr(EntryDatabase, "begin_write", refuse)
    answer = client.write("Wilma", {film: 5})
    assert refusal(answer) == (503, "no_database")
    assert answer.headers["retry-after"] == "1"
    failed = next(record for record in caplog.records if "write" in record.getMessage())
    assert vars(failed)["fields"] == {"error": "SQLITE_FULL"}
    assert client.get("/v1/rows/Wilma/entries").status_code == 404
    assert client.best(row=ratings.row_labels[0])
    monkeypatch.undo()
    assert client.write("Wilma", {film: 5}).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("transaction", ["begin_write", "read_state"])
def test_a_database_that_hangs_holds_up_no_question(
    start_client: StartClient,
    ratings: ObservedMatrix,
    film: str,
    monkeypatch: pytest.MonkeyPatch,
    transaction: str,
) -> None:
    is_writing = transaction == "begin_write"
    # What hangs is given up after a moment; all else has time, also on a busy machine.
    limits = PATIENT if is_writing else replace(PATIENT, database_seconds=0.2)
    client = start_client(service={"limits": limits})
    begin = getattr(EntryDatabase, transaction)
    hangs, may_go_on = threading.Event(), threading.Event()

    def hang(database: EntryDatabase) -> Any:
        hangs.set()
        may_go_on.wait()
        return begin(database)

    monkeypatch.setattr(EntryDatabase, transaction, hang)
    with ThreadPoolExecutor(41) as threads, ExitStack() as stack:
        stack.callback(may_go_on.set)
        written = threads.submit(client.write, "Betty", {film: 5})
        assert hangs.wait(PATIENCE)
        statuses = set(threads.map(lambda _: client.get("/readyz").status_code, range(40)))
        assert statuses == {200 if is_writing else 503}
        assert client.best(row=ratings.row_labels[0])
        if is_writing:
            assert not written.done()
        else:
            assert written.result(PATIENCE).status_code == 200
    assert written.result().status_code == 200
    wait_until(lambda: client.get("/readyz").status_code == 200)


@pytest.mark.slow
def test_a_write_that_hangs_is_given_up(
    start_client: StartClient, film: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start_client(service={"limits": ServiceLimits(seconds=0.2)})
    begin, may_go_on = EntryDatabase.begin_write, threading.Event()
    monkeypatch.setattr(
        EntryDatabase, "begin_write", lambda database: may_go_on.wait() and begin(database)
    )
    answer = client.write("Betty", {film: 5})
    may_go_on.set()
    assert answer.status_code == 503


@pytest.mark.slow
def test_a_server_that_hangs_is_no_database() -> None:
    # accepts connections, and says nothing
    with ThreadPoolExecutor(1) as threads, socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"postgresql://x@127.0.0.1:{listener.getsockname()[1]}/x"
        opened = threads.submit(open_database, url, patience=1.0)
        assert isinstance(opened.exception(PATIENCE), UnreadableFile)


def test_one_write_that_cannot_be_learned_does_not_stop_those_beside_it(
    tmp_path: Path, als: ALS, film: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = service_module.commit_writes

    def fail(database: EntryDatabase, current: Any, writes: Any) -> Any:
        if any(write.id == "Betty" for write in writes):
            raise TrainingDiverged("latents of new entries are not finite numbers")
        return commit(database, current, writes)

    monkeypatch.setattr(service_module, "commit_writes", fail)
    service = Service(als, open_database(str(tmp_path / "entries.sqlite")))
    entries = (GivenEntry(column=film, value=5.0),)
    writes = [EntryWrite("row", name, "put", entries) for name in ("Wilma", "Betty", "Fred")]
    first, second, third = service._perform_writes(writes)
    service.close()
    assert isinstance(second, Exception)
    assert [first.n_entries, third.n_entries] == [1, 1]  # type: ignore[union-attr]


def test_a_model_that_does_not_belong_to_the_database_is_refused_at_the_start(
    start_client: StartClient, ratings: ObservedMatrix, film: str
) -> None:
    start_client().write("Wilma", {film: 5})
    numbered = generate(20, 15, density=0.4, named=False, seed=0).matrix
    with pytest.raises(BadSetting, match="integers"):
        start_client(fit_another(numbered))
    rows, columns, values = ratings.entries()
    doubled = ObservedMatrix.from_entries(rows, columns, 10 * values)
    with pytest.raises(BadSetting, match="scale"):
        start_client(fit_another(doubled), service={"digest": "another"})
    days = [date(2020, 1, day) for day in range(1, 9)]
    dated = ObservedMatrix.from_entries(days * 2, ["a"] * 8 + ["b"] * 8, [1, 2, 3, 4] * 4)
    with pytest.raises(BadSetting, match="date"):
        start_client(fit_another(dated))


@pytest.mark.slow
def test_two_model_files_on_one_database_are_not_read_again_and_again(
    start_client: StartClient,
    tmp_path: Path,
    als: ALS,
    ratings: ObservedMatrix,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(
        service_module, "compute_digest", lambda path: read.append(path) or compute_digest(path)
    )
    paths = [tmp_path / name for name in ("one.safetensors", "two.safetensors")]
    als.save(paths[0])
    fit_another(ratings).save(paths[1])
    one, two = (start_client(load(path), service=serve_file(path)) for path in paths)
    states: list[State] = []
    read_state = EntryDatabase.read_state
    monkeypatch.setattr(
        EntryDatabase,
        "read_state",
        lambda database: states.append(read_state(database)) or states[-1],
    )
    wait_until(lambda: len(states) > 40)  # each follower has looked again and again
    assert read.count(paths[0]) <= 1

    def read_version(client: Caller) -> int:
        return int(client.get("/v1/model").json()["version"]["model"])

    assert [read_version(client) for client in (one, two)] == [1, 2]
    fit_another(ratings, seed=2).save(paths[0])  # a file that changes is looked at
    wait_until(lambda: read_version(one) != 1)
    assert read_version(one) == 3


def test_what_is_forgotten_leaves_a_mark_where_another_worker_serves_a_newer_file(
    tmp_path: Path, als: ALS, film: str
) -> None:
    database = open_database(str(tmp_path / "entries.sqlite"))
    behind = Service(als, database, digest="older")
    entries = (GivenEntry(column=film, value=5.0),)
    behind._perform_writes([EntryWrite("row", "Wilma", "put", entries)])
    with database.begin_write() as transaction:
        transaction.register_model("newer", als.scale_)
    behind._perform_writes([EntryWrite("row", "Wilma", "delete")])
    with database.begin_read() as transaction:
        assert transaction.read_entries() == {("Wilma", film): None}
    behind.close()


def test_a_database_that_is_restored_to_an_earlier_state_is_read_anew(
    start_client: StartClient, film: str, url: str
) -> None:
    client = start_client(url=url)
    for name in ("Wilma", "Betty", "Fred"):
        client.write(name, {film: 5})
    engine = open_database(url).engine
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM entries WHERE version > 1"))
        connection.execute(text("UPDATE state SET data_version = 1, model_version = 0"))
        connection.execute(text("DELETE FROM models"))
    engine.dispose()
    wait_until(lambda: client.get("/v1/rows/Fred/entries").status_code == 404)
    assert client.get("/v1/rows/Wilma/entries").json()["version"] == {"model": 1, "data": 1}
    assert client.get("/readyz").status_code == 200
    assert client.write("Barney", {film: 5}).json()["version"]["data"] == 2
    assert start_client(url=url).read("Barney") == {film: 5}


def test_a_write_sees_that_the_database_was_restored(
    start_client: StartClient, tmp_path: Path, film: str
) -> None:
    limits = replace(PATIENT, staleness=threading.TIMEOUT_MAX)
    client = start_client(service={"limits": limits})
    for name in ("Wilma", "Betty"):
        client.write(name, {film: 5})
    with closing(sqlite3.connect(tmp_path / "entries.sqlite")) as connection, connection:
        connection.execute("DELETE FROM entries WHERE version > 1")
        connection.execute("UPDATE state SET data_version = 1")
    assert client.write("Fred", {film: 5}).json()["version"]["data"] == 2
    names = ("Wilma", "Betty", "Fred")
    statuses = [client.get(f"/v1/rows/{name}/entries").status_code for name in names]
    assert statuses == [200, 404, 200]


def test_a_file_that_takes_the_place_of_the_database_is_the_one_that_is_written(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix, film: str
) -> None:
    path, model_path = tmp_path / "entries.sqlite", tmp_path / "model.safetensors"
    als.save(model_path)
    client = start_client(service=serve_file(model_path))
    client.write("Wilma", {film: 5})
    with (
        closing(sqlite3.connect(path)) as live,
        closing(sqlite3.connect(tmp_path / "backup")) as backup,
    ):
        live.backup(backup)
    client.write("Betty", {film: 5})
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink()
    (tmp_path / "backup").replace(path)
    wait_until(lambda: client.get("/v1/rows/Betty/entries").status_code == 404)
    assert client.write("Fred", {film: 5}).status_code == 200
    with closing(sqlite3.connect(path)) as live:
        assert live.execute("SELECT count(*) FROM entries").fetchone() == (2,)
    path.unlink()
    fit_another(ratings).save(model_path)
    refused = client.write("Fred", {film: 4}), client.post("/v1/model"), client.get("/readyz")
    assert [refusal(answer) for answer in refused] == [(503, "no_database")] * 3
    assert client.get("/v1/model").json()["version"]["model"] == 1
    assert client.get("/metrics").status_code == 200
    assert not path.exists()


def test_a_file_that_is_replaced_while_it_is_loaded_is_known_by_its_own_digest(
    tmp_path: Path, als: ALS, ratings: ObservedMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "model.safetensors", fit_another(ratings)
    als.save(path)

    def load_slowly(source: Path) -> Model:
        model = load(source)
        if not isinstance(model, ALS) or model.settings.latent_size == 4:
            other.save(path)
        return model

    monkeypatch.setattr(service_module, "load", load_slowly)
    model, digest = load_with_digest(path)
    assert digest == compute_digest(path)
    assert model.settings == other.settings


def test_stored_entries_that_a_model_cannot_use_are_one_error(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix, film: str
) -> None:
    path = tmp_path / "model.safetensors"
    als.save(path)
    client = start_client(service=serve_file(path))
    assert client.write("Wilma", {film: 5}).status_code == 200
    RankK(epochs=2, seed=0).fit(ratings).save(path)  # predicts for no new row
    assert refusal(client.post("/v1/model")) == (409, "bad_model")
    with pytest.raises(BadSetting, match="another --database"):
        start_client(load(path), service={"digest": "another"})
    assert client.read("Wilma") == {film: 5}


def test_entries_that_the_model_cannot_use_are_named_and_change_nothing_for_others(
    start_client: StartClient,
    tmp_path: Path,
    ratings: ObservedMatrix,
    caplog: pytest.LogCaptureFixture,
) -> None:
    films, rows = ratings.column_labels[:3].tolist(), ("Betty", "Wilma")
    client = start_client()
    for row in rows:
        client.write(row, {films[0]: 5})
    expected = client.predict(rows, [films[2]] * 2)
    for row in ("Wilma", "Fred"):
        client.write(row, {films[1]: 4}, method="PATCH")
    with closing(sqlite3.connect(tmp_path / "entries.sqlite")) as connection, connection:
        change = "UPDATE entries SET {} WHERE row_id = ? AND column_id = ?"
        of_film = f"s{films[1]}".encode()
        connection.execute(change.format("weight = 1e-320"), (b"sWilma", of_film))
        connection.execute(change.format("value = 77"), (b"sFred", of_film))
    started = start_client()
    assert started.predict(rows, [films[2]] * 2) == pytest.approx(expected)
    unused = started.get("/readyz").json()["unused"]
    pairs = {(entry["row"], entry["column"]) for entry in unused}
    assert pairs == {("Wilma", films[1]), ("Fred", films[1])}
    logged = {vars(record).get("fields", {}).get("row") for record in caplog.records}
    assert {"Wilma", "Fred"} <= logged
    with_keys = start_client(keys=KeyRing([]))
    assert with_keys.get("/readyz").json() == {"status": "ready", "n_unused": 2}
    # They can be read, replaced and forgotten.
    assert started.read("Fred") == {films[1]: 77}
    assert started.write("Wilma", {films[0]: 5}).json()["n_forgotten"] == 1
    assert started.forget("Fred").json()["n_forgotten"] == 1
    for caller in (started, client, start_client()):
        assert caller.predict(rows, [films[2]] * 2) == pytest.approx(expected)
        assert caller.get("/readyz").json() == {"status": "ready"}
        paths = [f"/v1/rows/{row}/entries" for row in (*rows, "Fred")]
        assert [caller.get(path).status_code for path in paths] == [200, 200, 404]


@pytest.mark.slow
def test_a_model_of_other_data_is_refused(
    start_client: StartClient,
    tmp_path: Path,
    als: ALS,
    ratings: ObservedMatrix,
    film: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, (rows, columns, values) = tmp_path / "model.safetensors", ratings.entries()
    als.save(path)
    client = start_client(service=serve_file(path))
    client.write("Wilma", {film: 5})
    other_rows, other_columns = [f"{row}'s" for row in rows], [f"{name} 2" for name in columns]
    six_levels = Scale(levels=[1, 2, 3, 4, 5, 6])
    for word, matrix in {
        "interactions": ObservedMatrix.from_interactions(rows, columns),
        "scale": ObservedMatrix.from_entries(rows, columns, values, six_levels),
        "0%": ObservedMatrix.from_entries(other_rows, other_columns, values),
    }.items():
        fit_another(matrix).save(path)
        refused = client.post("/v1/model")
        assert refusal(refused) == (409, "bad_model")
        fields = [getattr(record, "fields", {}) for record in caplog.records]
        reasons = [one["reason"] for one in fields if "reason" in one]
        assert word in refused.json()["error"]["message"] and word in reasons[-1]
        with pytest.raises(BadSetting, match=word):
            start_client(load(path), service={"digest": compute_digest(path)})
    assert client.get("/v1/model").json()["version"]["model"] == 1


@pytest.mark.slow
def test_a_model_of_the_same_data_is_accepted(
    start_client: StartClient, tmp_path: Path, ratings: ObservedMatrix, film: str
) -> None:
    start_client(service={"digest": "1"}).write("Wilma", {film: 5})
    assert start_client(service={"digest": "2"}).write("Fred", {"Cube": 5}).status_code == 200
    url = str(tmp_path / "intervals.sqlite")
    # an inferred interval is another after each fit
    for digest, stretch in (("3", 1.0), ("4", 1.2)):
        scale = Scale(low=1, high=stretch * 5, bounded=False)
        model = fit_another(ObservedMatrix.from_entries(*ratings.entries(), scale))
        start_client(model, url=url, service={"digest": digest}).write("Wilma", {film: 5})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "shards.model"])
def test_a_damaged_model_file_is_one_error_and_the_model_in_memory_answers(
    start_client: StartClient, tmp_path: Path, als: ALS, ratings: ObservedMatrix, name: str
) -> None:
    path = tmp_path / name
    als.save(path)
    with pytest.raises(FileAbsent):
        load_with_digest(tmp_path / "absent")
    client = start_client(load(path), service=serve_file(path))
    fit_another(ratings).save(path)
    assert client.ask("model")["version"]["model"] == 2
    for file in path.iterdir() if path.is_dir() else [path]:
        half = file.read_bytes()[: file.stat().st_size // 2]
        file.unlink()  # the file that is served stays as it is
        file.write_bytes(half)
    refused = client.post("/v1/model")
    assert refusal(refused) == (409, "bad_model")
    message = refused.json()["error"]["message"]
    assert "model file" in message and str(tmp_path) not in message
    assert client.get("/v1/model").json()["version"]["model"] == 2
    assert client.best(row=ratings.row_labels[0])
    with pytest.raises(BadModelFile, match=name):
        load_with_digest(path)
