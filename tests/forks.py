"""Processes that are forks of one that has imported everything: they start in no time."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *(
            "deepmf.cli.app",
            "deepmf.models.loading",
            "deepmf.models.ordinal.model",
            "deepmf.serve.server",
        ),
        "torch.distributed.checkpoint",
    ]
)


def give_children_default_signals() -> None:
    """Replace ignored signals by a handler that does nothing: `make test &` ignores SIGINT, and
    nohup SIGHUP.

    Programs inherit the ignored signals of the process that starts them, but not its handlers.
    """
    for number in (signal.SIGINT, signal.SIGHUP) if os.name != "nt" else ():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def write_to(output: Path, log: Path) -> None:
    """Send the standard output and errors of this process to files, behind what they hold; nothing
    is its input."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in ((1, output), (2, log)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdin = os.fdopen(0)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))


def run_here(arguments: list[str], output: Path, log: Path, environment: Mapping[str, str]) -> None:
    """Run `deepmf` in this process."""
    from deepmf.cli.app import main

    write_to(output, log)
    os.environ.update(environment)
    main(arguments)


def start_deepmf(
    *arguments: object, output: Path, log: Path, environment: Mapping[str, str] | None = None
) -> Any:
    """Start `deepmf` in a process of its own, whose output and errors go to files."""
    words = [str(argument) for argument in arguments]
    process = FORKS.Process(target=run_here, args=(words, output, log, environment or {}))
    process.start()
    return process
