"""The server process: options, socket, signals, workers and log."""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_limits
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from deepmf.errors import BadSetting, UserError
from deepmf.serve.app import create_app
from deepmf.serve.auth import read_keys
from deepmf.serve.database import open_database
from deepmf.serve.metrics import SHARED_FOLDER
from deepmf.serve.pid_file import hold_pid_file
from deepmf.serve.service import Service, load_with_digest

logger = logging.getLogger("deepmf.serve")

LOG_LEVELS = ("info", "warning", "error")

_LOGGERS = ("deepmf.serve", "uvicorn")
_OPTIONS = "DEEPMF_SERVE_OPTIONS"  # the variable by which worker processes receive their options
_HEAD_BYTES = 32 << 10  # of the path and all headers of a request
_MAX_CONNECTIONS = 2_000  # of a worker; with more, requests are refused
_GRACE_SECONDS = 30  # for requests to finish after SIGTERM
_START_FAILED = 3  # the exit status of a worker that cannot start, as in uvicorn
_DEATH_REASONS = {
    "SIGBUS": "a file of the model was shortened while it was in use, or its disk failed; save models under another "
    "name and rename them",
    "SIGKILL": "it may have needed more memory than there is",
}


@dataclass(frozen=True)
class ServeOptions:
    """The options of `deepmf serve`.

    Parameters
    ----------
    model : the file of the model.
    database : a SQLite file, or a URL.
    keys : a file of API keys; None for a service that only this machine can reach.
    workers : number of processes.
    pid_file : a file for the id of this process, by which `deepmf serve --reload-of` finds it.
    """

    model: str
    database: str
    host: str = "127.0.0.1"
    port: int = 8000
    keys: str | None = None
    workers: int = 1
    log_level: str = "info"
    pid_file: str | None = None

    def check(self) -> None:
        """Raise `BadSetting` for options that are invalid or unsafe."""
        if self.workers < 1:
            raise BadSetting(f"--workers must be at least 1; got {self.workers}")
        if not 0 <= self.port <= 65535:
            raise BadSetting(f"--port must be between 0 and 65535; got {self.port}")
        if self.log_level not in LOG_LEVELS:
            raise BadSetting(f"--log-level must be {', '.join(LOG_LEVELS)}; got {self.log_level!r}")
        if self.workers > 1 and sys.platform == "win32":
            raise BadSetting(
                f"--workers {self.workers}: Windows serves with one worker; start several services instead"
            )
        if self.keys is None and self.host not in ("127.0.0.1", "::1", "localhost"):
            raise BadSetting(
                f"others can reach {self.host}: give --keys FILE (deepmf api-key FILE makes one), or --host 127.0.0.1"
            )


def serve(options: ServeOptions, announce: Callable[[str], None] = lambda _: None) -> None:
    """Serve a model until SIGTERM or SIGINT.

    Parameters
    ----------
    announce : called with the address once the service answers.
    """
    options.check()
    with ExitStack() as stack:
        configure_log(options.log_level)
        stack.callback(_release_log)
        write_pid = stack.enter_context(hold_pid_file(options.pid_file))
        listener = stack.enter_context(_listen(options))
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"http://{host}:{listener.getsockname()[1]}"

        def announce_ready() -> None:
            write_pid()
            announce(address)

        if options.workers == 1:
            app = build_app(options)
            reload = partial(_reload, app, options)
            _Server(_configure_uvicorn(app), reload, announce_ready).run([listener])
            return
        open_database(options.database).close()  # a single process creates the tables
        os.environ[_OPTIONS] = json.dumps(asdict(options))
        os.environ[SHARED_FOLDER] = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="deepmf-metrics-")
        )
        config = _configure_uvicorn(
            "deepmf.serve.server:build_worker_app", factory=True, workers=options.workers
        )
        folder = Path(os.environ[SHARED_FOLDER])
        _Workers(config, [listener], folder=folder, on_ready=announce_ready).run()


def build_app(options: ServeOptions) -> FastAPI:
    """Load the model, open the database, and return the application."""
    # Signals that end the process at once, such as SIGBUS, leave a trace in the log.
    faulthandler.enable(file=sys.__stderr__ or sys.stderr, all_threads=False)
    # requests are read while others are computed, and wait less for each other
    sys.setswitchinterval(0.001)
    if "OMP_NUM_THREADS" not in os.environ:
        # each computation is so small that threads would wait for each other
        threadpool_limits(1)
    keys = None if options.keys is None else read_keys(Path(options.keys))
    path = Path(options.model)
    model, digest = load_with_digest(path)
    service = Service(model, open_database(options.database), source=path, digest=digest)
    app = create_app(service, keys=keys)
    gc.collect()
    gc.freeze()  # the model stays: scanning it in every collection would delay requests
    return app


def build_worker_app() -> FastAPI:
    """Return the application of a worker process, with the options of its parent; exit if it cannot
    start."""
    options = ServeOptions(**json.loads(os.environ[_OPTIONS]))
    configure_log(options.log_level)
    folder = Path(os.environ[SHARED_FOLDER])
    try:
        app = build_app(options)
    except UserError as error:
        _name_report(folder, os.getpid(), "failure").write_text(str(error), encoding="utf-8")
        sys.exit(_START_FAILED)
    signal.signal(signal.SIGHUP, partial(_reload, app, options))
    _name_report(folder, os.getpid(), "ready").touch()
    return app


def _reload(app: FastAPI, options: ServeOptions, *_: object) -> None:
    """Read the keys and the model again, as the handler of SIGHUP: in a thread, so that requests
    are answered."""

    def reload() -> None:
        state, part = app.state, "keys"
        try:
            if options.keys is not None:
                state.keys.keys = read_keys(Path(options.keys)).keys
            part = "model"
            version = state.service.reload().model_version
        except Exception as error:  # noqa: BLE001 (any error is one line of JSON in the log, without a traceback)
            reason = str(error) if isinstance(error, UserError) else ""
            fields = {"failed": part, "error": type(error).__name__, "reason": reason}
            logger.error("cannot reload on SIGHUP", extra={"fields": fields})
        else:
            logger.info("reloaded on SIGHUP", extra={"fields": {"model_version": version}})

    threading.Thread(target=reload, daemon=True).start()


def _listen(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listener = socket.create_server((options.host, options.port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadSetting(
            f"cannot listen on {options.host}, port {options.port} ({reason}); choose another --host or --port"
        ) from error
    listener.set_inheritable(True)
    return listener


def _configure_uvicorn(app: Any, **settings: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",  # limits the size of what comes before a body, unlike httptools
        h11_max_incomplete_event_size=_HEAD_BYTES,
        limit_concurrency=_MAX_CONNECTIONS,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_worker_healthcheck=60,
        backlog=2048,
        **settings,
    )


class _Server(uvicorn.Server):
    """A server that finishes its requests on SIGTERM and SIGINT, and reloads model and keys on
    SIGHUP."""

    def __init__(
        self, config: uvicorn.Config, on_hangup: Callable[..., None], on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_hangup, self._on_ready = on_hangup, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving; unlike uvicorn, do not raise them again at the end."""
        handlers: dict[int, Any] = {
            signal.SIGINT: self.handle_exit,
            signal.SIGTERM: self.handle_exit,
        }
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._on_hangup
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Workers(Multiprocess):
    """Worker processes on the same sockets, until SIGTERM or SIGINT.

    A worker that is killed is started again; if a worker cannot start, the service ends.

    folder: where workers report that they are ready, or why they cannot start. on_ready: called
        once all answer.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: list[socket.socket],
        *,
        folder: Path,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config, sockets)
        self._folder, self._on_ready = folder, on_ready
        self._is_announced = False
        self._end_reason = ""

    def run(self) -> None:
        """Serve until a signal; raise `UserError` if the service had to end."""
        super().run()
        if self._end_reason:
            raise UserError(self._end_reason)

    def handle_hup(self) -> None:
        """Let all workers reload; one that is still starting ends by the signal and is started
        again."""
        for worker in self.processes:
            if worker.pid is not None and worker.process.is_alive():
                os.kill(worker.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        """Check every worker, and start those again that died."""
        for place, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if self._check_alive(worker):
                continue
            if (
                not _name_report(self._folder, worker.pid, "ready").exists()
                and (worker.exitcode or 0) >= 0
            ):
                self._end_reason = "a worker could not be started; the log says why"
                with suppress(FileNotFoundError):
                    failure = _name_report(self._folder, worker.pid, "failure")
                    self._end_reason = failure.read_text(encoding="utf-8")
                self.should_exit.set()
                return
            code = worker.exitcode or 0
            by = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            fields = {"process": worker.pid, "by": by, "why": _DEATH_REASONS.get(by, "")}
            logger.error("a worker died and is started again", extra={"fields": fields})
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()
        if not self._is_announced and all(map(self._is_ready, self.processes)):
            self._on_ready()
            self._is_announced = True

    def _check_alive(self, worker: Process) -> bool:
        """Ping a worker, kill it if it hangs, and return whether it lives."""
        if self._is_ready(worker):
            worker.parent_conn.send(b"ping")
            # Wait for its end too: a worker that dies just now does not answer.
            heard = wait(
                [worker.parent_conn, worker.process.sentinel],
                self.config.timeout_worker_healthcheck,
            )
            if worker.parent_conn in heard:
                worker.parent_conn.recv()
            elif not heard:
                worker.kill()
                worker.join()
        return worker.process.is_alive()

    def _is_ready(self, worker: Process) -> bool:
        return (
            worker.process.is_alive() and _name_report(self._folder, worker.pid, "ready").exists()
        )


def _name_report(folder: Path, process: int | None, event: Literal["ready", "failure"]) -> Path:
    """Return the file by which a worker reports an event to its parent."""
    return folder / f"{process}.{event}"


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, event, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; of an exception, only its type, since its message may
        contain ids."""
        content = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            content["error"] = record.exc_info[0].__name__
        return json.dumps(content)


def configure_log(level: str) -> None:
    """Log the service and uvicorn to standard error, from a level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in _LOGGERS:
        named_logger = logging.getLogger(name)
        named_logger.handlers[:] = [handler]
        named_logger.propagate = False
        named_logger.setLevel(level.upper())


def _release_log() -> None:
    """Undo `configure_log`: a later service in this process may have another standard error."""
    for name in _LOGGERS:
        named_logger = logging.getLogger(name)
        named_logger.handlers.clear()
        named_logger.propagate = True
        named_logger.setLevel(logging.NOTSET)
