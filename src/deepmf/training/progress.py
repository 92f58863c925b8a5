"""The progress of a fit: its plan, and a line of text on standard error."""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

from deepmf.errors import BadSetting

# this module stays light: commands that train nothing show progress without waiting for torch
if TYPE_CHECKING:
    from deepmf.training.history import Callback, EpochRecord, History


def _put(stream: TextIO, text: str) -> None:
    with suppress(OSError):  # a full standard error must not stop training
        stream.write(text)
        stream.flush()


_REWRITE_SECONDS = 0.1  # between two updates of a line in place

_WRITE_SECONDS = 1.0  # between two lines where lines stay, as in a file

_SILENT_SECONDS = 2.0  # from which on the seconds of a text are shown


def is_terminal() -> bool:
    """Whether standard error is a terminal; it may also be closed."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    interactive = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if interactive is None else interactive.get_ipython()
    return getattr(shell, "kernel", None) is not None


def describe_duration(seconds: float) -> str:
    """Describe an estimated duration, rounded as far as the estimate is good.

    >>> [describe_duration(seconds) for seconds in (0.3, 7.2, 83, 400)]
    ['about a second', 'about 7 seconds', 'about 85 seconds', 'about 7 minutes']
    """
    if seconds < 1.5:
        return "about a second"
    number, unit = (seconds, "seconds") if seconds < 99.5 else (seconds / 60, "minutes")
    steps = {9.5: 1, 99.5: 5, math.inf: 30}  # of numbers below
    step = next(step for limit, step in steps.items() if number < limit)
    return f"about {round(number / step) * step:,} {unit}"


class ProgressLine:
    """A line of text that changes: in place on a terminal, as a new line now and then elsewhere.

    On a terminal, a text that stays is followed by its seconds.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._rewritten = stream, is_terminal() or is_notebook()
        self._every = _REWRITE_SECONDS if self._rewritten else _WRITE_SECONDS
        self._last, self._written = "", ""
        self._put_at = -math.inf
        self._lock, self._has_ended = threading.RLock(), threading.Event()
        if self._rewritten:
            threading.Thread(target=self._count_seconds, daemon=True).start()

    def write(self, text: str) -> None:
        """Show a text; if another was shown just now, keep it for the end."""
        self._last = text
        if time.monotonic() >= self._put_at + self._every:
            self.put(text)

    def put(self, text: str) -> None:
        """Show a text at once."""
        with self._lock:
            self._last, self._put_at = text, time.monotonic()
            self._show(text)

    def close(self) -> None:
        """Show the last text and end the line."""
        self._has_ended.set()
        with self._lock:
            if self._last != self._written:
                self._show(self._last)
            if self._written and self._rewritten:
                _put(self._stream, "\n")

    def _show(self, text: str) -> None:
        if self._rewritten:
            width = shutil.get_terminal_size().columns - 1
            _put(self._stream, "\r" + text[:width].ljust(min(len(self._written), width)))
        else:
            _put(self._stream, f"{text}\n")
        self._written = text

    def _count_seconds(self) -> None:
        while not self._has_ended.wait(1.0):
            with self._lock:
                seconds = time.monotonic() - self._put_at
                if _SILENT_SECONDS <= seconds < math.inf and not self._has_ended.is_set():
                    self._show(f"{self._last}, {seconds:.0f} s")


class EpochDisplay(ProgressLine):
    """Shows the progress of training in a line: a callback for epochs, with a method for the stages
    after them."""

    def __init__(self, title: str, n_epochs: int, stream: TextIO) -> None:
        super().__init__(stream)
        self._title, self._n_epochs = title, n_epochs
        self._error, self._best = "", ""

    def __call__(self, record: EpochRecord, history: History) -> None:
        """Show an epoch: loss, last validation error, best error so far and time left."""
        if record.validation_error is not None:
            self._error = f"validation {record.validation_error:.4f}"
        if history.best_error is not None and history.best_epoch is not None:
            self._best = f"best {history.best_error:.4f} in epoch {history.best_epoch + 1}"
        n_left = self._n_epochs - record.epoch - 1
        seconds = timedelta(seconds=round((history.seconds or 0.0) / len(history) * n_left))
        place = f"epoch {record.epoch + 1} of {self._n_epochs}, {seconds} left"
        epoch = f"{place}, loss {record.loss:.4f}"
        self.write(f"{self._title}: {', '.join(filter(None, [epoch, self._error, self._best]))}")

    def show_start(self) -> None:
        """Say on a terminal that the fit has begun: the first epoch may take long."""
        if self._rewritten:
            self.show_stage("preparing")

    def show_stage(self, name: str) -> None:
        """Show a stage at once: it may take long."""
        self.put(f"{self._title}: {', '.join(filter(None, [name, self._best]))}")


@contextmanager
def show_epochs(
    title: str,
    n_epochs: int | None,
    progress: bool | None = None,
    plan: Callable[[], str | None] = lambda: None,
) -> Iterator[Sequence[Callback]]:
    """Yield the callbacks that show each epoch: loss, validation error, best error so far and time
    left.

    Parameters
    ----------
    title : name of the model.
    n_epochs : number of epochs; None for methods without epochs, which show nothing.
    progress : true (always), False (never) or None (on a terminal and in a notebook). Of several
        processes that train together, only the first shows progress.
    plan : describes what the fit will do; shown first, in a line of its own.
    """
    from deepmf.nn.group import is_first  # here, so that this module stays light

    if progress is not None and not isinstance(progress, bool):
        raise BadSetting(f"progress must be True, False or None; got {progress!r}")
    stream = _find_stream(progress)
    if stream is None or n_epochs is None or not is_first():
        yield ()
        return
    if (text := plan()) is not None:
        _put(stream, f"{text}\n")
    with closing(EpochDisplay(title, n_epochs, stream)) as display:
        display.show_start()
        yield (display,)


@contextmanager
def show_fits(progress: bool | None) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows the candidate of an imputer that is fitted now, the fits done,
    and their number.

    progress: True (always), False (never) or None (on a terminal and in a notebook).
    """
    stream = _find_stream(progress)
    if stream is None:
        yield lambda name, done, total: None
        return
    start = time.monotonic()
    with closing(ProgressLine(stream)) as line:

        def show(name: str, done: int, total: int) -> None:
            text = f"imputer: {name}, fit {done + 1} of about {total}"
            if done:
                seconds = (time.monotonic() - start) * (total - done) / done
                text += f", {timedelta(seconds=round(seconds))} left"
            line.put(text)

        yield show


def _find_stream(progress: bool | None) -> TextIO | None:
    """Return the stream for progress; None where nobody wants to see it, or standard error is
    closed."""
    is_wanted = (is_terminal() or is_notebook()) if progress is None else progress
    return sys.stderr if is_wanted else None
