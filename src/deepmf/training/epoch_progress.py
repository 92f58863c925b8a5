"""Progress of training on standard error: one line with the epoch, loss, validation error and time left."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

from deepmf.errors import BadSetting
from deepmf.training.fit_plan import FitPlan, plan_line

if TYPE_CHECKING:
    from deepmf.training.history import EpochRecord, History
    from deepmf.training.loop import Callback


_WIDE = 110  # columns of a terminal that has room for a bar
_REWRITTEN_EVERY = 0.1  # seconds between two states of a line that is rewritten
_WRITTEN_EVERY = 1.0  # seconds between two lines where each stays, as in a file


def is_terminal() -> bool:
    """Say whether standard error is a terminal; it may also be closed."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_notebook() -> bool:
    """Say whether this runs in the kernel of a notebook."""
    interactive = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if interactive is None else interactive.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def show_epochs(
    title: str, n_epochs: int | None, progress: bool | None = None, plan: FitPlan | None = None
) -> Iterator[Sequence[Callback]]:
    """Yield the callbacks that show each epoch: loss, validation error, best so far, time left. None where unseen.

    A plan is told first, in a line of its own. `progress` is True (always), False (never) or None: on a terminal and in
    a notebook. Without epochs there is none; of several processes that train together the first alone shows it.
    """
    from deepmf.layers.ranks import ranks_here  # not above: commands that train nothing need not wait for torch

    if progress is not None and not isinstance(progress, bool):
        raise BadSetting(f"progress must be True, False or None (where it is seen); got {progress!r}")
    wanted = (is_terminal() or is_notebook()) if progress is None else progress
    ranks = ranks_here() if wanted else None
    if not wanted or n_epochs is None or sys.stderr is None or (ranks is not None and ranks.index):
        yield ()
        return
    # In notebooks, the bar of rich would need further packages.
    shown = _bar if is_terminal() and not is_notebook() and find_spec("rich") is not None else _line
    with shown(title, n_epochs) as callback:
        if plan is None:
            yield (callback,)
            return
        with plan_line(plan, sys.stderr) as line:
            yield (line, lambda record, history: callback(record, history) if line.told else None)


def describe_epoch(record: EpochRecord, error: float | None, history: History) -> str:
    """Say in a few words how training stands; `error` is the validation error looked at last."""
    words = [f"loss {record.loss:.4f}"]
    if error is not None:
        words.append(f"validation {error:.4f}")
    if history.best_error is not None and history.best_epoch is not None:
        words.append(f"best {history.best_error:.4f} in epoch {history.best_epoch + 1}")
    return ", ".join(words)


@contextmanager
def _bar(title: str, n_epochs: int) -> Iterator[Callback]:
    """Yield what moves a bar of rich, which is gone at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        *([BarColumn(bar_width=20)] if console.width >= _WIDE else []),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        # The only one that is cut where a terminal is narrow.
        TextColumn("{task.fields[state]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    # Left on the screen, the bar would stand above the summary that says the same.
    progress = Progress(*columns, console=console, transient=True, expand=True)
    task = progress.add_task(title, total=n_epochs, state="")
    error: float | None = None

    def show(record: EpochRecord, history: History) -> None:
        nonlocal error
        error = record.validation_error if record.validation_error is not None else error
        progress.start()  # not before: the line of a plan may have to be ended first
        progress.update(task, completed=record.epoch + 1, state=describe_epoch(record, error, history))

    try:
        yield show
    finally:
        progress.stop()


@contextmanager
def _line(title: str, n_epochs: int) -> Iterator[Callback]:
    """Yield what writes plain text, without any package."""
    line = ProgressLine(sys.stderr, rewritten=is_terminal() or is_notebook())
    error: float | None = None

    def show(record: EpochRecord, history: History) -> None:
        nonlocal error
        error = record.validation_error if record.validation_error is not None else error
        left = timedelta(seconds=round(history.seconds / len(history) * (n_epochs - record.epoch - 1)))
        state = describe_epoch(record, error, history)
        line.write(f"{title}: epoch {record.epoch + 1} of {n_epochs}, {left} left, {state}")

    try:
        yield show
    finally:
        line.close()


class ProgressLine:
    """A line of text that changes: in place where it can be rewritten, elsewhere as a new line now and then."""

    def __init__(self, stream: TextIO, *, rewritten: bool) -> None:
        self._stream, self._rewritten = stream, rewritten
        self._every = _REWRITTEN_EVERY if rewritten else _WRITTEN_EVERY
        self._last, self._written = "", ""
        self._next = 0.0

    def write(self, text: str) -> None:
        """Show a text, or keep it for the end where another was written just now."""
        self._last = text
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every
            self._show()

    def close(self) -> None:
        """Show the last text, and leave it there."""
        if self._last != self._written:
            self._show()
        if self._written and self._rewritten:
            self._put("\n")

    def _show(self) -> None:
        if self._rewritten:
            width = shutil.get_terminal_size().columns - 1
            self._put("\r" + self._last[:width].ljust(min(len(self._written), width)))
        else:
            self._put(f"{self._last}\n")
        self._written = self._last

    def _put(self, text: str) -> None:
        with suppress(OSError):  # standard error may be full: no reason to stop training
            self._stream.write(text)
            self._stream.flush()
