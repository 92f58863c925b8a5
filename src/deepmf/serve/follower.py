"""A thread that brings a snapshot to the state of the database whenever a query asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
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
        self._read = read
        self._report = report
        self._patience = patience
        self._longest = longest
        self._pause = pause
        self._state: State | None = None
        self._n_asked = 0
        self._n_answered = 0
        self._is_away = False
        self._is_learning = threading.Event()
        self._is_stopping = threading.Event()
        lock = threading.Lock()
        self._asked = threading.Condition(lock)
        self._answered = threading.Condition(lock)
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def wait(self) -> State | None:
        """Return a state that was read after this call began; None if the source does not
        answer."""
        with self._asked:
            self._n_asked += 1
            number = self._n_asked
            self._asked.notify()
            if self._is_away:
                return None
            is_answered = partial(self._has_answered, number)
            is_late = not self._answered.wait_for(is_answered, self._patience)
            if is_late and self._is_learning.is_set():
                self._answered.wait_for(is_answered, self._longest - self._patience)
            self._is_away = self._is_away or self._n_answered < number
            return None if self._is_away else self._state

    def close(self) -> None:
        """Stop the thread; one that hangs is not waited for longer than the patience."""
        self._is_stopping.set()
        with self._asked:
            self._asked.notify()
        self._thread.join(self._patience)

    def _run(self) -> None:
        while True:
            with self._asked:
                self._asked.wait_for(self._is_needed)
                number = self._n_asked
            if self._is_stopping.is_set():
                return
            try:
                self._is_learning.clear()
                self._answer(number, self._read(self._is_learning.set), is_away=False)
            except Exception as error:  # noqa: BLE001 (the thread must live on; it reads again)
                self._answer(number, None, is_away=True)
                self._report(error)
                self._is_stopping.wait(self._pause)

    def _is_needed(self) -> bool:
        return self._n_asked > self._n_answered or self._is_stopping.is_set()

    def _has_answered(self, number: int) -> bool:
        return self._n_answered >= number

    def _answer(self, number: int, state: State | None, *, is_away: bool) -> None:
        with self._answered:
            self._n_answered = number
            self._state = state
            self._is_away = is_away
            self._answered.notify_all()
