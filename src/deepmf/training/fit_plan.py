"""What a fit is going to do, said in one line before it starts, and about how long that takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TextIO

from deepmf.formatting import format_duration

if TYPE_CHECKING:
    from deepmf.training.history import EpochRecord, History


class FitPlan(NamedTuple):
    """What a fit is going to do, in words, and what its time is estimated by.

    share_after: the time of what follows the epochs, as a share of theirs.
    n_slow: how many of the first epochs take longer than others, as where a GPU gets ready.
    """

    text: str
    epochs: int
    share_after: float = 0.0
    n_slow: int = 0


class PlanLine:
    """The line of a plan: its text is written at once, the time once an epoch or two have been measured.

    It is rough: the time of one epoch stands for all, none is stopped early, other programs stay as busy as they are.
    """

    def __init__(self, plan: FitPlan, stream: TextIO) -> None:
        self._plan, self._stream = plan, stream
        self._n_measured = 0
        self._start = time.monotonic()
        self.told = False  # whether the line is complete
        self._put(plan.text)

    def __call__(self, record: EpochRecord, history: History) -> None:
        """Complete the line by the time of an epoch."""
        self._n_measured += 1
        if self.told or (self._n_measured <= self._plan.n_slow and record.epoch + 1 < self._plan.epochs):
            return
        n_left = self._plan.epochs - record.epoch - 1
        after = self._plan.share_after * self._plan.epochs
        seconds = time.monotonic() - self._start + (record.seconds or 0.0) * (n_left + after)
        self._put(f"; {about(seconds)}")
        self.close()

    def close(self) -> None:
        """End the line, with or without the time."""
        if not self.told:
            self.told = True
            self._put("\n")

    def _put(self, text: str) -> None:
        with suppress(OSError):  # as for all progress: no reason to stop training
            self._stream.write(text)
            self._stream.flush()


@contextmanager
def plan_line(plan: FitPlan, stream: TextIO) -> Iterator[PlanLine]:
    """Yield the line of a plan, which is ended however the fit ends."""
    line = PlanLine(plan, stream)
    try:
        yield line
    finally:
        line.close()


def about(seconds: float) -> str:
    """Say about how long something takes, no more exactly than can be known.

    >>> [about(seconds) for seconds in (0.3, 7.2, 83, 400, 9000)]
    ['about a second', 'about 7 s', 'about 85 s', 'about 7 min', 'about 2 h 30 min']
    """
    if seconds < 1.5:
        return "about a second"
    step = 1 if seconds < 9.5 else 5 if seconds < 99.5 else 60 if seconds < 3570 else 600
    return f"about {format_duration(round(seconds / step) * step)}"
