"""A thread that brings a snapshot to the state of the database whenever a query asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

State = TypeVar("State")


class Follower(Generic[State]):
    """A thread that reads the newest state for all who wait for it.

    Reading happens in this thread, so that a source that hangs keeps nobody for longer than their
    patience. While the source does not answer, nobody waits.

    Parameters
    ----------
    read : returns the newest state. It calls its argument when the source has answered, if learning
        the answer may take longer than the patience.
    report : called with the error if `read` fails.
    patience : seconds to wait for an answer of the source.
    longest : seconds to wait for a state once the source has answered.
    pause : seconds after which a source that failed is asked again.
    """

    def __init__(
        self,
        read: Callable[[Callable[[], None]], State],
        *,
        report: Callable[[Exception], None],
        patience: float,
        longest: float,
        pause: float = 1.0,
    ) -> None:
        self._read, self._report = read, report
        self._patience, self._longest, self._pause = patience, longest, pause
        self._lock = threading.Lock()
        self._next: Future[State | None] = Future()  # of the reading that has not begun
        self._is_away = False
        self._is_needed, self._is_learning = threading.Event(), threading.Event()
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def wait(self) -> State | None:
        """Return a state that was read after this call began; None if the source does not
        answer."""
        with self._lock:
            state = self._next
            self._is_needed.set()
        if self._is_away:
            return None
        is_late = bool(wait([state], self._patience).not_done)
        if is_late and self._is_learning.is_set():
            is_late = bool(wait([state], self._longest - self._patience).not_done)
        if is_late:
            self._is_away = True
            return None
        return state.result()

    def close(self) -> None:
        """Stop the thread; one that hangs is not waited for longer than the patience."""
        self._is_stopping.set()
        self._is_needed.set()
        self._thread.join(self._patience)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self._is_needed.wait()
            if self._is_stopping.is_set():
                return
            with self._lock:
                state, self._next = self._next, Future()
                self._is_needed.clear()
            self._is_learning.clear()
            try:
                newest = self._read(self._is_learning.set)
            except Exception as error:  # noqa: BLE001 (the thread must live on; it reads again)
                self._is_away = True
                state.set_result(None)
                self._report(error)
                self._is_stopping.wait(self._pause)
            else:
                self._is_away = False
                state.set_result(newest)
