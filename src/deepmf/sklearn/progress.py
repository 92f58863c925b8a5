"""Progress of an imputer that fits several candidates: which one, how many fits are left, and about how long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deepmf.training.progress import ProgressLine, describe_duration, is_notebook, is_terminal


@contextmanager
def show_fits(progress: bool | None) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows the candidate that is fitted now, the fits done, and their number.

    progress: True (always), False (never) or None (on a terminal and in a notebook).
    """
    wanted = (is_terminal() or is_notebook()) if progress is None else progress
    if not wanted or sys.stderr is None:
        yield lambda name, done, total: None
        return
    line = ProgressLine(sys.stderr, rewritten=is_terminal() or is_notebook())
    start = time.monotonic()

    def show(name: str, done: int, total: int) -> None:
        seconds = (time.monotonic() - start) * (total - done) / max(done, 1)
        left = f", {describe_duration(seconds)} left" if done else ""
        line.put(f"imputer: {name}, fit {done + 1} of about {total}{left}")

    try:
        yield show
    finally:
        line.close()
