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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI

from deepmf.errors import BadSetting, UserError
from deepmf.serve.application import create_app
from deepmf.serve.database import open_database
from deepmf.serve.entry_database import EntryDatabase
from deepmf.serve.keys import read_keys
from deepmf.serve.limited_http import LimitedHttp
from deepmf.serve.request_log import configure_log
from deepmf.serve.service import Service, load_served
from deepmf.serve.service_metrics import SHARED_FOLDER
from deepmf.serve.workers import Workers, refuse_to_start, tell_ready

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
