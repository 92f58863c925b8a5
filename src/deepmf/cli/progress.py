"""Progress of training and of other long work on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepmf.training.history import EpochRecord, History
    from deepmf.training.loop import Callback


_WIDE = 110  # columns of a terminal that has room for a bar


def is_watched() -> bool:
    """Say whether standard error is a terminal; it may also be closed."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def show_epochs(title: str, n_epochs: int | None) -> Iterator[Sequence[Callback]]:
    """Yield the callbacks that show each epoch: loss, validation error, best so far, time left. None where unseen."""
    if not is_watched():
        yield ()
        return
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
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task(title, total=n_epochs, state="")
        error: float | None = None

        def show(record: EpochRecord, history: History) -> None:
            nonlocal error
            error = record.validation_error if record.validation_error is not None else error
            progress.update(task, completed=record.epoch + 1, state=describe_epoch(record, error, history))

        yield (show,)


@contextmanager
def show_share(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield what shows how much is done of how much (None: unknown), and the time left; nothing where unseen."""
    if not is_watched():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def describe_epoch(record: EpochRecord, error: float | None, history: History) -> str:
    """Say in a few words how training stands; `error` is the validation error looked at last."""
    words = [f"loss {record.loss:.4f}"]
    if error is not None:
        words.append(f"validation {error:.4f}")
    if history.best_error is not None and history.best_epoch is not None:
        words.append(f"best {history.best_error:.4f} in epoch {history.best_epoch + 1}")
    return ", ".join(words)
