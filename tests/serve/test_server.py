"""Whole processes: what was acknowledged survives kill -9, models are replaced under load, workers
agree."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest
from tests.forks import start_deepmf
from tests.waiting import PATIENCE, wait_until

from deepmf.errors import BadSetting
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS
from deepmf.serve import ServeOptions, add_key

pytestmark = pytest.mark.slow


class Running(NamedTuple):
    """A service in a process of its own."""

    process: Any
    client: httpx.Client


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path, als: ALS) -> Iterator[Start]:
    """Start services on free ports, in forks of a process that has imported everything: that takes
    no time."""
    als.save(tmp_path / "model.safetensors")
    running: list[Running] = []

    def started(*options: str) -> Running:
        shown = tmp_path / f"shown {len(running)}"
        arguments = ["serve", tmp_path / "model.safetensors", "--port", "0", "--json", *options]
        process = start_deepmf(*arguments, output=shown, log=tmp_path / "log.jsonl")
        wait_until(
            lambda: not process.is_alive() or (shown.exists() and shown.read_text().endswith("\n"))
        )
        assert process.is_alive()
        client = httpx.Client(base_url=json.loads(shown.read_text())["address"], timeout=PATIENCE)
        running.append(Running(process, client))
        return running[-1]

    yield started
    for process, client in running:
        client.close()
        if process.is_alive():
            process.terminate()  # workers end with it
            process.join(PATIENCE)
        process.kill()
        process.join()


def write_until_it_ends(
    client: httpx.Client, writer: int, film: Any, acknowledged: dict[str, float]
) -> None:
    """Write one row after the other, or some in bulk (writer 0), and remember those that were
    acknowledged."""
    for number in range(10_000):
        value = float(1 + number % 5)
        rows = [f"{writer}-{number}-{random.random()}" for _ in range(1 if writer else 5)]
        try:
            if writer:
                entries = {"entries": [{"column": film, "value": value}]}
                answer = client.put(f"/v1/rows/{rows[0]}/entries", json=entries)
            else:
                lines = [json.dumps({"row": row, "column": film, "value": value}) for row in rows]
                answer = client.post("/v1/entries/bulk", content="\n".join(lines))
        except httpx.TransportError:
            return
        if answer.status_code == 200:
            acknowledged |= dict.fromkeys(rows, value)


def lost(client: httpx.Client, acknowledged: dict[str, float]) -> list[str]:
    """Return the rows whose acknowledged entry is not there."""
    missing = []
    for row, value in acknowledged.items():
        answer = client.get(f"/v1/rows/{row}/entries")
        if answer.status_code != 200 or answer.json()["entries"][0]["value"] != value:
            missing.append(row)
    return missing


def test_what_was_acknowledged_survives(start: Start, ratings: ObservedMatrix) -> None:
    film, chance = ratings.column_labels[0], random.Random(0)
    acknowledged: dict[str, float] = {}
    codes = []
    for ending in [signal.SIGKILL] * 4 + [signal.SIGTERM]:
        process, client = start("--log-level", "warning")
        newest = dict(list(acknowledged.items())[-40:])  # all of them at the end
        assert lost(client, newest) == []
        before = len(acknowledged)
        with ThreadPoolExecutor(4) as threads:
            for writer in range(4):
                threads.submit(write_until_it_ends, client, writer, film, acknowledged)
            wanted = before + chance.randint(1, 60)
            wait_until(lambda wanted=wanted: len(acknowledged) >= wanted, between=0.001)
            os.kill(process.pid, ending)
            process.join()
        codes.append(process.exitcode)
    assert codes == [-signal.SIGKILL] * 4 + [0]
    assert lost(start("--log-level", "warning").client, acknowledged) == []


def test_a_model_is_replaced_without_a_dropped_request(
    start: Start, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    process, client = start("--log-level", "warning")
    film = ratings.column_labels[0]
    client.put("/v1/rows/Wilma/entries", json={"entries": [{"column": film, "value": 5}]})
    statuses: list[int] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            statuses.append(client.post("/v1/recommend", json={"row": "Wilma"}).status_code)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(ask)
        ALS(latent_size=3, seed=1).fit(ratings).save(tmp_path / "model.safetensors")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: client.get("/v1/model").json()["version"]["model"] == 2)
        (tmp_path / "model.safetensors").write_bytes(b"not a model")
        refused = client.post("/v1/model")
        done.set()
    assert client.get("/v1/model").json()["version"] == {"model": 2, "data": 1}
    assert set(statuses) == {200}
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "bad_model")
    assert client.get("/v1/rows/Wilma/entries").json()["entries"] == [{"column": film, "value": 5}]


def test_a_hangup_that_fails_is_one_line_of_the_log(
    start: Start, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    process, client = start("--log-level", "warning")
    log = tmp_path / "log.jsonl"
    (tmp_path / "model.safetensors").write_bytes(b"not a model")
    for number in (1, 2):
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda number=number: log.read_text().count("\n") >= number)
        if number == 1:  # then a fault that is no error of ours
            (tmp_path / "model.safetensors").unlink()
    ALS(latent_size=3, seed=1).fit(ratings).save(tmp_path / "model.safetensors")
    os.kill(process.pid, signal.SIGHUP)
    wait_until(lambda: client.get("/v1/model").json()["version"]["model"] == 2)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["level"], line["failed"]) for line in lines] == [("error", "model")] * 2
    assert client.get("/v1/model").status_code == 200


TWO_WORKERS = "--workers", "2", "--log-level", "error"


@contextmanager
def connect(client: httpx.Client) -> Iterator[list[httpx.Client]]:
    """Open more connections: each stays with one worker, so that with some all workers are
    asked."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(httpx.Client(base_url=client.base_url, timeout=PATIENCE))
            for _ in range(6)
        ]


def stop(process: Any) -> None:
    process.terminate()
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_all_workers_reload_keys_and_model_on_a_hangup(
    start: Start, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    keys, path = tmp_path / "keys.txt", tmp_path / "model.safetensors"
    pid_file, shown = tmp_path / "service.pid", tmp_path / "reloaded"
    old = add_key(keys, name="old", role="read")
    process, client = start("--keys", str(keys), "--pid-file", str(pid_file), *TWO_WORKERS)
    with connect(client) as clients:

        def ask(key: str) -> list[httpx.Response]:
            headers = {"Authorization": f"Bearer {key}"}
            return [one.get("/v1/model", headers=headers) for one in clients]

        assert {answer.status_code for answer in ask(old)} == {200}
        keys.unlink()
        new = add_key(keys, name="new", role="read")
        path.write_bytes(b"not a model")
        log = tmp_path / "log of reload"
        teller = start_deepmf("serve", "--reload-of", pid_file, output=shown, log=log)
        teller.join(PATIENCE)
        assert (teller.exitcode, str(process.pid) in shown.read_text()) == (0, True)
        wait_until(lambda: {answer.status_code for answer in ask(new)} == {200})
        assert {answer.status_code for answer in ask(old)} == {401}
        # the reason, of each worker
        wait_until(lambda: (tmp_path / "log.jsonl").read_text().count("not a model") == 2)
        ALS(latent_size=3, seed=1).fit(ratings).save(path)
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: {answer.json()["version"]["model"] for answer in ask(new)} == {2})
    stop(process)


def workers_of(process: int) -> set[int]:
    """Return the living workers of a service."""
    workers = set()
    for child in map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()):
        with suppress(OSError):  # it may end between the two readings
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                workers.add(child)
    return workers


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are looked for in /proc")
def test_workers_see_each_others_writes_and_one_that_dies_is_started_again(
    start: Start, tmp_path: Path, ratings: ObservedMatrix
) -> None:
    process, client = start("--workers", "2", "--log-level", "info")
    film, log = ratings.column_labels[0], tmp_path / "log.jsonl"
    with connect(client) as clients:
        for value in (5.0, 2.0, 4.0):
            entries = {"entries": [{"column": film, "value": value}]}
            version = clients[0].put("/v1/rows/Wilma/entries", json=entries).json()["version"]
            answers = [one.get("/v1/rows/Wilma/entries").json() for one in clients]
            assert [answer["version"] for answer in answers] == [version] * 6
            assert {answer["entries"][0]["value"] for answer in answers} == {value}
        for number in range(20):
            row = f"/v1/rows/{number}/entries"
            clients[0].put(row, json={"entries": [{"column": film, "value": 5}]})
            assert {one.get(row).status_code for one in clients} == {200}
            clients[number % 6].delete(row)
            assert {one.get(row).status_code for one in clients} == {404}
    assert "deepmf_entries_learned_total 23.0" in client.get("/metrics").text
    first, second = workers_of(process.pid)
    os.kill(first, signal.SIGBUS)
    wait_until(lambda: log.read_text().count("startup complete") == 3)  # the new one answers too
    (tmp_path / "model.safetensors").write_bytes(b"not a model")
    assert client.get("/v1/model").status_code == 200
    for worker in workers_of(process.pid):
        os.kill(worker, signal.SIGBUS)
    process.join(PATIENCE)  # workers that cannot start end the service with one sentence
    assert process.exitcode == 2
    lines = log.read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    assert {event["process"] for event in events if event.get("by") == "SIGBUS"} >= {first, second}
    assert "model.safetensors" in lines[-1]


def resident_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_heads_without_end_are_cut_off_and_take_no_memory(start: Start) -> None:
    process, client = start("--log-level", "error")
    place = client.base_url.host, client.base_url.port
    assert client.get("/healthz").status_code == 200
    before = resident_bytes(process.pid)
    lines = b"".join(b"h%d: v\r\n" % number for number in range(10_000))
    first_line = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
    for head, piece in (
        (first_line, lines),
        (first_line + b"a: ", b"v" * 10_000),
        (b"GET /", b"v"),
    ):
        n_sent = 0
        with socket.create_connection(place, timeout=PATIENCE) as flood:
            flood.sendall(head)
            with pytest.raises(ConnectionError):
                while n_sent < 20_000_000:  # more than the buffers on the way
                    flood.sendall(piece * (100_000 // len(piece)))
                    n_sent += 100_000
    with ExitStack() as stack:
        for _ in range(300):
            one = stack.enter_context(socket.create_connection(place, timeout=PATIENCE))
            with suppress(ConnectionError):
                one.sendall(first_line + lines[:30_000])
        assert client.get("/healthz").status_code == 200
    assert resident_bytes(process.pid) - before < 100_000_000


@pytest.mark.parametrize(
    ("given", "platform", "said"),
    [
        ({"host": "0.0.0.0"}, "linux", "--keys"),
        ({"host": "192.168.0.7"}, "linux", "--keys"),
        ({"workers": 0}, "linux", "--workers"),
        ({"workers": 2}, "win32", "Windows"),
    ],
)
def test_what_cannot_be_served_safely_is_refused(
    given: dict[str, Any], platform: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepmf.serve.server.sys.platform", platform)
    with pytest.raises(BadSetting, match=said):
        ServeOptions(model="m", database="d", **given).check()
