"""The signals that end a command: SIGTERM and SIGHUP do what Ctrl-C does, so that what was learned is saved."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# What ends a process politely; Windows has only the first.
_NAMES = ("SIGTERM", "SIGHUP")


@contextmanager
def ending_signals() -> Iterator[list[int]]:
    """Have these signals raise `KeyboardInterrupt` inside; yield the list of those that came.

    One that is ignored (as `nohup` does) or handled by other code stays as it is.
    """
    came: list[int] = []
    terminals = [stream.fileno() for stream in (sys.stdout, sys.stderr) if stream is not None and stream.isatty()]

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        if signal.Signals(number).name == "SIGHUP":
            _let_go_of(terminals)
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    numbers = [getattr(signal, name) for name in _NAMES if in_main and hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _let_go_of(terminals: list[int]) -> None:
    """Write to nowhere from now on: the terminal was closed, and writing to it would fail before the model is saved."""
    for handle in terminals:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), handle)
