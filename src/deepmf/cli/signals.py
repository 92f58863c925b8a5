"""The signals that end a command: SIGTERM and SIGHUP do what Ctrl-C does, so that what was learned is saved.

SIGBUS, which comes where a file that is mapped into memory was made shorter meanwhile, ends it with a sentence.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# What ends a process politely; Windows has only the first.
_NAMES = ("SIGTERM", "SIGHUP")


_CUT_OFF = (
    b"deepmf: a file that was open was made shorter, or cannot be read from its disk any more; "
    b"what was under way is not saved: restore the file, then run the command again\n"
)


@contextmanager
def telling_of_cut_files() -> Iterator[None]:
    """Have a command whose mapped file is cut off say so and end with 2; without this it would die without a word.

    The signal comes in the middle of compiled code, which cannot go on, nor return to Python: so a handler of the C
    library is set, which never returns. Nothing is cleaned up; the next command removes what was begun.
    """
    if not hasattr(signal, "SIGBUS") or threading.current_thread() is not threading.main_thread():
        yield
        return
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    handler = kind(_end_cut_off)
    before = set_handler(signal.SIGBUS, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        set_handler(signal.SIGBUS, before)


def _end_cut_off(_: int) -> None:
    os.write(2, _CUT_OFF)
    os._exit(2)


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
