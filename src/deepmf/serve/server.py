"""The server: options to a running process, with its socket, its signals and its workers."""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import math
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from deepmf.data.synthetic import generate
from deepmf.errors import BadSetting, DeepMFWarning, UserError
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.serve.app import create_app
from deepmf.serve.auth import read_keys
from deepmf.serve.database import EntryDatabase, open_database
from deepmf.serve.http import LimitedHttp
from deepmf.serve.metrics import SHARED_FOLDER, configure_log
from deepmf.serve.service import Service, load_served

_RATINGS: dict[str, Any] = {"n_rows": 600, "n_columns": 300, "density": 0.12, "noise": 0.7}

_SETTINGS: dict[str, Any] = {
    "hidden_sizes": (64,),
    "latent_size": 16,
    "dropout": 0.2,
    "mask_rate": 0.5,
    "views": 8,
    "epochs": 40,
    "learning_rate": 1e-2,
    "block_rows": 150,
    "block_columns": 150,
    "validate_every": 10,
}


def write_demo_model(path: Path, *, seed: int) -> None:
    """Fit a model to generated films, and write its file."""
    ratings = generate(**_RATINGS, seed=seed).matrix
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a network gains nothing from more
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeepMFWarning)
            model = OrdinalDMF(**_SETTINGS, seed=seed, device="cpu").fit(ratings, progress=False)
    finally:
        torch.set_num_threads(n_threads)
    model.save(path)


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


logger = logging.getLogger("deepmf.serve")


_OPTIONS = "DEEPMF_SERVE_OPTIONS"  # how workers, which are processes of their own, get their options

_GRACE_SECONDS = 30  # for requests to finish after SIGTERM


@dataclass(frozen=True)
class ServeOptions:
    """What `deepmf serve` was told.

    database: a SQLite file, or a URL.
    keys: a file of API keys; None: none are needed, which is for this machine alone.
    rate: requests a second for each key.
    """

    model: str
    database: str
    host: str = "127.0.0.1"
    port: int = 8000
    keys: str | None = None
    rate: float = 1_000.0
    workers: int = 1
    log_level: str = "info"

    def check(self) -> None:
        """Refuse what cannot be served safely, or at all."""
        if self.workers < 1:
            raise BadSetting(f"--workers must be at least 1; got {self.workers}")
        if not 0 <= self.port <= 65535:
            raise BadSetting(f"--port must be between 0 and 65535; got {self.port}")
        if not 0 < self.rate < math.inf:
            raise BadSetting(f"--rate-limit must be a number of requests above 0; got {self.rate:g}")
        if self.keys is None and self.host not in ("127.0.0.1", "::1", "localhost"):
            raise BadSetting(
                f"others can reach {self.host}: give --keys FILE (deepmf api-key FILE makes one), or --host 127.0.0.1"
            )


def run(options: ServeOptions, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `announce` is told the address once it answers."""
    options.check()
    configure_log(options.log_level)
    with ExitStack() as stack:
        listener = stack.enter_context(_listener(options))
        address = f"http://{options.host if ':' not in options.host else f'[{options.host}]'}"
        address = f"{address}:{listener.getsockname()[1]}"
        if options.workers == 1:
            app = build(options)
            server = _Server(_config(app, options), app, options, lambda: announce(address))
            server.run([listener])
            return
        open_database(options.database).dispose()  # one process makes the tables
        os.environ[_OPTIONS] = json.dumps(asdict(options))
        os.environ[SHARED_FOLDER] = stack.enter_context(tempfile.TemporaryDirectory(prefix="deepmf-metrics-"))
        config = _config("deepmf.serve.server:worker_app", options, factory=True, workers=options.workers)
        folder = Path(os.environ[SHARED_FOLDER])
        Workers(config, [listener], folder=folder, on_ready=lambda: announce(address)).run()


def build(options: ServeOptions) -> FastAPI:
    """Load the model, open the database, and return the application."""
    # A signal such as SIGBUS, which ends the process at once, is named.
    faulthandler.enable(file=sys.__stderr__ or sys.stderr, all_threads=False)
    sys.setswitchinterval(0.001)  # requests are read while others are computed: they wait less for each other
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # so little is computed at a time that threads would wait for each other
    keys = None if options.keys is None else read_keys(Path(options.keys))
    path = Path(options.model)
    model, digest = load_served(path)
    database = EntryDatabase(open_database(options.database))
    service = Service(model, database, source=path, digest=digest)
    app = create_app(service, keys=keys, rate=options.rate)
    gc.collect()
    gc.freeze()  # what is there now stays: looking through it again and again would hold up requests
    return app


def worker_app() -> FastAPI:
    """Return the application of one of several workers."""
    options = ServeOptions(**json.loads(os.environ[_OPTIONS]))
    configure_log(options.log_level)
    folder = Path(os.environ[SHARED_FOLDER])
    try:
        app = build(options)
    except UserError as error:
        refuse_to_start(folder, error)
    tell_ready(folder)
    return app


def _config(app: Any, options: ServeOptions, **named: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=LimitedHttp,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_worker_healthcheck=60,
        backlog=2048,
        **named,
    )


class _Server(uvicorn.Server):
    """A server that ends in peace by SIGTERM and SIGINT, and reads model and keys anew by SIGHUP."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, options: ServeOptions, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._application, self._options, self._ready = app, options, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving; ending by one is no failure."""
        handlers: dict[int, Any] = {signal.SIGINT: self.handle_exit, signal.SIGTERM: self.handle_exit}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._on_hangup
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_hangup(self, _: int, __: FrameType | None) -> None:
        threading.Thread(target=self._read_anew, daemon=True).start()

    def _read_anew(self) -> None:
        state, part = self._application.state, "keys"
        try:
            if self._options.keys is not None:
                state.access.keys = read_keys(Path(self._options.keys))
            part = "model"
            version = state.service.reload().model_version
        except Exception as error:  # noqa: BLE001 (whatever it is, the log has one line of JSON, and no traceback)
            fields = {"failed": part, "error": type(error).__name__}
            logger.error("SIGHUP: not everything was read anew", extra={"fields": fields})
        else:
            logger.info("SIGHUP: all was read anew", extra={"fields": {"model_version": version}})


@contextmanager
def _listener(options: ServeOptions) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listener = socket.create_server((options.host, options.port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadSetting(f"{options.host}, port {options.port}, cannot be served ({reason}); give others") from error
    listener.set_inheritable(True)
    with listener:
        yield listener
