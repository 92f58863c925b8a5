"""A log of training for TensorBoard: every epoch's loss, validation error, step size and what the model notes."""

from __future__ import annotations

import os
import shutil
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from deepmf.errors import BadSetting, CannotSave, DeepMFWarning, MissingDependency
from deepmf.formatting import format_duration

if TYPE_CHECKING:  # this module stays light: commands that train nothing show progress without waiting for torch
    from deepmf.training.history import Callback, EpochRecord, History


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
        self._put(f"; {describe_duration(seconds)}")
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
def show_plan(plan: FitPlan, stream: TextIO) -> Iterator[PlanLine]:
    """Yield the line of a plan, which is ended however the fit ends."""
    line = PlanLine(plan, stream)
    try:
        yield line
    finally:
        line.close()


def describe_duration(seconds: float) -> str:
    """Say about how long something takes, no more exactly than can be known.

    >>> [describe_duration(seconds) for seconds in (0.3, 7.2, 83, 400, 9000)]
    ['about a second', 'about 7 s', 'about 85 s', 'about 7 min', 'about 2 h 30 min']
    """
    if seconds < 1.5:
        return "about a second"
    step = 1 if seconds < 9.5 else 5 if seconds < 99.5 else 60 if seconds < 3570 else 600
    return f"about {format_duration(round(seconds / step) * step)}"


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


class EpochDisplay(ABC):
    """Shows how training stands: a callback that sees each epoch, and is told the stages that follow them."""

    @abstractmethod
    def __call__(self, record: EpochRecord, history: History) -> None:
        """Show an epoch."""

    @abstractmethod
    def show_stage(self, name: str) -> None:
        """Show what is being done after the epochs."""

    def close(self) -> None:
        """End what is shown."""
        return


@contextmanager
def show_epochs(
    title: str, n_epochs: int | None, progress: bool | None = None, plan: FitPlan | None = None
) -> Iterator[Sequence[Callback]]:
    """Yield what shows each epoch: loss, validation error, best so far, time left; and what follows them, by its name.

    Nothing where it is not seen. A plan is told first, in a line of its own. `progress` is True (always), False (never)
    or None: on a terminal and in a notebook. Without epochs there is none; of several processes that train together the
    first alone shows it.
    """
    from deepmf.nn.ranks import find_ranks  # not above: commands that train nothing need not wait for torch

    if progress is not None and not isinstance(progress, bool):
        raise BadSetting(f"progress must be True, False or None (where it is seen); got {progress!r}")
    wanted = (is_terminal() or is_notebook()) if progress is None else progress
    ranks = find_ranks() if wanted else None
    if not wanted or n_epochs is None or sys.stderr is None or (ranks is not None and ranks.index):
        yield ()
        return
    # In notebooks, the bar of rich would need further packages.
    kind = _Bar if is_terminal() and not is_notebook() and find_spec("rich") is not None else _Line
    display: EpochDisplay = kind(title, n_epochs)
    if plan is not None:
        display = _AfterPlan(PlanLine(plan, sys.stderr), display)
    try:
        yield (display,)
    finally:
        display.close()


class _Bar(EpochDisplay):
    """A bar of rich, which is gone at the end."""

    def __init__(self, title: str, n_epochs: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            *([BarColumn(bar_width=20)] if console.width >= _WIDE else []),
            TextColumn("{task.fields[epochs]}", style="progress.download"),
            TimeRemainingColumn(),
            # The only one that is cut where a terminal is narrow.
            TextColumn("{task.fields[state]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        )
        # Left on the screen, the bar would stand above the summary that says the same.
        self._progress = Progress(*columns, console=console, transient=True, expand=True)
        self._title, self._n_epochs, self._standing = title, n_epochs, _Standing()
        self._task = self._progress.add_task(title, total=n_epochs, epochs="", state="")

    def __call__(self, record: EpochRecord, history: History) -> None:
        self._standing.see(record, history)
        self._progress.start()  # not before: the line of a plan may have to be ended first
        done, state = record.epoch + 1, self._standing.describe_epoch(record)
        self._progress.update(self._task, completed=done, epochs=self._epochs(done), state=state)

    def show_stage(self, name: str) -> None:
        """Show a stage: the bar only says that something is being done, as nobody knows for how long."""
        self._progress.start()
        self._progress.remove_task(self._task)
        epochs, state = self._epochs(self._standing.n_epochs), self._standing.describe_stage(name)
        self._task = self._progress.add_task(self._title, total=None, epochs=epochs, state=state)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()

    def _epochs(self, done: int) -> str:
        return f"{done:{len(str(self._n_epochs))}}/{self._n_epochs}"


class _Line(EpochDisplay):
    """Plain text, without any package."""

    def __init__(self, title: str, n_epochs: int) -> None:
        self._line = ProgressLine(sys.stderr, rewritten=is_terminal() or is_notebook())
        self._title, self._n_epochs, self._standing = title, n_epochs, _Standing()

    def __call__(self, record: EpochRecord, history: History) -> None:
        self._standing.see(record, history)
        left = timedelta(seconds=round((history.seconds or 0.0) / len(history) * (self._n_epochs - record.epoch - 1)))
        epoch = f"epoch {record.epoch + 1} of {self._n_epochs}"
        self._line.write(f"{self._title}: {epoch}, {left} left, {self._standing.describe_epoch(record)}")

    def show_stage(self, name: str) -> None:
        """Show a stage at once: it may take long until the next."""
        self._line.put(f"{self._title}: {self._standing.describe_stage(name)}")

    def close(self) -> None:
        """Leave the last text."""
        self._line.close()


class _AfterPlan(EpochDisplay):
    """A display below the line of a plan, which is completed first."""

    def __init__(self, line: PlanLine, display: EpochDisplay) -> None:
        self._line, self._display = line, display

    def __call__(self, record: EpochRecord, history: History) -> None:
        self._line(record, history)
        if self._line.told:
            self._display(record, history)

    def show_stage(self, name: str) -> None:
        """Show a stage; where no epoch was run, such as after a kill at the end, the plan never learns its time."""
        self._line.close()
        self._display.show_stage(name)

    def close(self) -> None:
        """End the line and the display."""
        self._line.close()
        self._display.close()


class _Standing:
    """How training stands: the validation error looked at last, and the best so far."""

    def __init__(self) -> None:
        self.n_epochs = 0
        self._error: float | None = None
        self._best = ""

    def see(self, record: EpochRecord, history: History) -> None:
        """Take note of an epoch."""
        self.n_epochs = record.epoch + 1
        self._error = record.validation_error if record.validation_error is not None else self._error
        if history.best_error is not None and history.best_epoch is not None:
            self._best = f"best {history.best_error:.4f} in epoch {history.best_epoch + 1}"

    def describe_epoch(self, record: EpochRecord) -> str:
        """Say in a few words how training stands."""
        error = "" if self._error is None else f"validation {self._error:.4f}"
        return ", ".join(filter(None, [f"loss {record.loss:.4f}", error, self._best]))

    def describe_stage(self, name: str) -> str:
        """Say what is being done after the epochs."""
        return ", ".join(filter(None, [name, self._best]))


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
        if time.monotonic() >= self._next:
            self.put(text)

    def put(self, text: str) -> None:
        """Show a text at once."""
        self._last = text
        self._next = time.monotonic() + self._every
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


@contextmanager
def tensorboard_log(folder: str | os.PathLike[str]) -> Iterator[Callback]:
    """Yield a callback of `fit` that logs each epoch, counted from 1, to a folder that TensorBoard watches.

    Give each run a folder of its own: `with tensorboard_log("runs/first") as log: model.fit(train, callbacks=[log])`.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingDependency("a log for TensorBoard needs tensorboard: pip install 'deepmf[tensorboard]'") from error
    try:
        writer = SummaryWriter(os.fspath(folder))
    except OSError as error:
        raise CannotSave(f"{os.fspath(folder)} cannot hold a log ({error.strerror})") from error

    broken = False

    def log(record: EpochRecord, _: History) -> None:
        nonlocal broken
        try:
            for name, number in ({} if broken else list_numbers(record)).items():
                writer.add_scalar(name, number, record.epoch + 1)
        except OSError as error:  # such as that of a full disk: no reason to stop training
            broken = True
            message = f"{os.fspath(folder)} could not be written ({error.strerror}); training goes on without a log"
            warnings.warn(message, DeepMFWarning, stacklevel=2)

    try:
        yield log
    finally:
        with suppress(OSError):
            writer.close()


def list_numbers(record: EpochRecord) -> dict[str, float]:
    """Return every number that an epoch has, by name; those of a list by their position, from 1.

    >>> from deepmf.training.history import EpochRecord
    >>> list_numbers(EpochRecord(0, 0.5, None, 0.01, 1.0, {"boundaries": [1.4, 2.6], "phase": "first"}))
    {'loss': 0.5, 'learning_rate': 0.01, 'boundaries/1': 1.4, 'boundaries/2': 2.6}
    """
    known = {
        "loss": record.loss,
        "validation_error": record.validation_error,
        "learning_rate": record.learning_rate,
    }
    numbers: dict[str, float] = {}
    for name, value in (known | record.notes).items():
        parts = {f"{name}/{n}": part for n, part in enumerate(value, 1)} if isinstance(value, list) else {name: value}
        numbers |= {part: number for part, number in parts.items() if _is_number(number)}
    return numbers


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
