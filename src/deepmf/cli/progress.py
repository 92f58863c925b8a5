"""Progress of long work other than training on standard error, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deepmf.training.epoch_progress import is_terminal


@contextmanager
def show_share(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield what shows how much is done of how much (None: unknown), and the time left; nothing where unseen."""
    if not is_terminal():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
