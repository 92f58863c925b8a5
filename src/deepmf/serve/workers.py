"""Several workers, and the process that watches them: what cannot start is said once, what dies is started again."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import NoReturn

import uvicorn
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from deepmf.errors import UserError

logger = logging.getLogger("deepmf.serve")

_FAILED = 3  # the exit status of a worker that cannot start, as uvicorn has it
_MOST_DEATHS = 10  # in a minute
_MOST_TRIES = 3  # to start a worker where no other one answers
_ENDED_BY = {
    "SIGBUS": "a file of the model was shortened while it was in use, or its disk failed; save models under another "
    "name and rename them",
    "SIGKILL": "it may have needed more memory than there is",
}


class Workers(Multiprocess):
    """Workers on the same sockets, until SIGTERM or SIGINT.

    A worker that dies is started again. Where that fails, as the model's file is no longer good, the others go on and
    it is tried again, later each time; where no other one is left, or workers die one after the other, all is over.

    folder: where workers tell (by `tell_ready` and `refuse_to_start`) how far they came.
    on_ready: called once all of them answer.
    """

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], *, folder: Path, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config, sockets)
        self._folder = folder
        self._on_ready: Callable[[], None] | None = on_ready
        self._deaths: list[float] = []
        self._n_failed = 0  # starts in a row
        self._due: dict[int, float] = {}  # when the worker of a place is started again
        self._ended = ""  # why all is over

    def run(self) -> None:
        """Serve until told to stop; raise where that was no longer possible."""
        super().run()
        if self._ended:
            raise UserError(self._ended)

    def keep_subprocess_alive(self) -> None:
        """Look after every worker."""
        for place, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if place in self._due:
                if time.monotonic() >= self._due[place]:
                    del self._due[place]
                    self.processes[place] = Process(self.config, self.sockets)
                    self.processes[place].start()
            elif not self._lives(worker):
                self._on_death(place, worker)
        if all(map(self._answers, self.processes)):
            self._n_failed = 0
            if self._on_ready is not None:
                self._on_ready()
                self._on_ready = None

    def _lives(self, worker: Process) -> bool:
        if self._answers(worker):
            worker.parent_conn.send(b"ping")
            # Its end is waited for too: nobody answers for a worker that dies just now.
            heard = wait([worker.parent_conn, worker.process.sentinel], self.config.timeout_worker_healthcheck)
            if worker.parent_conn in heard:
                worker.parent_conn.recv()
            elif not heard:
                worker.kill()  # it hangs
                worker.join()
        return worker.process.is_alive()

    def _answers(self, worker: Process) -> bool:
        return worker.process.is_alive() and _ready_file(self._folder, worker.pid).exists()

    def _on_death(self, place: int, worker: Process) -> None:
        now, ready = time.monotonic(), _ready_file(self._folder, worker.pid)
        refusal = _refusal_file(self._folder, worker.pid)
        reason = refusal.read_text(encoding="utf-8") if refusal.exists() else ""
        if ready.exists():
            ready.unlink()
            self._deaths = [*(time for time in self._deaths if now - time < 60), now]
            self._due[place] = now
            if len(self._deaths) > _MOST_DEATHS:
                self._end(f"{len(self._deaths)} workers died within a minute; the log says of what")
        else:
            self._n_failed += 1
            self._due[place] = now + min(2.0**self._n_failed, 60.0)
            is_last = self._n_failed >= _MOST_TRIES and not any(map(self._answers, self.processes))
            if self._on_ready is not None or is_last:
                self._end(reason or "a worker could not be started; the log says why")
        if not self._ended:
            _log_death(worker, reason)

    def _end(self, reason: str) -> None:
        self._ended = reason
        self.should_exit.set()


def tell_ready(folder: Path) -> None:
    """Say, of the worker that this process is, that it answers."""
    _ready_file(folder, os.getpid()).touch()


def refuse_to_start(folder: Path, reason: UserError) -> NoReturn:
    """Say why the worker that this process is cannot start, and end it."""
    _refusal_file(folder, os.getpid()).write_text(str(reason), encoding="utf-8")
    sys.exit(_FAILED)


def _ready_file(folder: Path, process: int | None) -> Path:
    return folder / f"{process}.ready"


def _refusal_file(folder: Path, process: int | None) -> Path:
    return folder / f"{process}.refusal"


def _log_death(worker: Process, reason: str) -> None:
    code = worker.exitcode or 0
    by = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    fields = {"process": worker.pid, "by": by, "why": reason or _ENDED_BY.get(by, "")}
    logger.error("a worker ended; it is started again", extra={"fields": fields})
