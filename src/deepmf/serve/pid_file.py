"""The pid file of a service, which is locked while the service runs, so that no other process is
signalled."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from deepmf.errors import BadSetting, CannotSave, FileAbsent, UnreadableFile

if sys.platform != "win32":
    import fcntl


@contextmanager
def hold_pid_file(path: str | Path | None) -> Iterator[Callable[[], None]]:
    """Lock a pid file, if there is one; the function that is yielded writes the id of this process
    into it.

    The service calls it when it handles signals. The file stays, empty: if it were removed, a
    service that starts meanwhile could lock a file that nobody finds.
    """
    if path is None:
        yield lambda: None
        return
    _require_signals("--pid-file")
    try:
        file = Path(path).open("a+", encoding="ascii")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise CannotSave(f"{path} could not be written ({error.strerror})") from error
    with file:
        if not _lock(file):
            raise BadSetting(f"{path} is the pid file of a running service; choose another")
        file.truncate(0)
        try:
            yield lambda: print(os.getpid(), file=file, flush=True)
        finally:
            file.truncate(0)


def reload_service(path: Path) -> int:
    """Tell the service that holds a pid file to load its model and its keys again; return its
    process."""
    _require_signals("--reload-of")
    try:
        file = path.open(encoding="ascii")
    except FileNotFoundError as error:
        raise FileAbsent(f"{path} does not exist; deepmf serve --pid-file writes it") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read ({error.strerror})") from error
    with file:
        if _lock(file):
            raise BadSetting(f"no running service has the pid file {path}")
        text = file.read(100).strip()
    if not text:
        raise BadSetting(f"the service of {path} is starting; try again when it answers")
    if not text.isdigit():
        raise UnreadableFile(f"{path} is not a pid file; deepmf serve --pid-file writes one")
    os.kill(int(text), signal.SIGHUP)
    return int(text)


def _lock(file: IO[str]) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _require_signals(option: str) -> None:
    if sys.platform == "win32":
        raise BadSetting(f"{option}: Windows has no signals; POST /v1/model reloads the model")
