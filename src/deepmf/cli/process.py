"""The process of a command: signals that end it, and torchrun, which starts a command several
times.

Processes that torchrun started join; only the first of them prints results and writes; each reports
its errors.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from deepmf.errors import BadSetting

# Requests to end; Windows has no SIGHUP.
_ENDING_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")

# The variables that torchrun sets in every process that it starts.
_TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def interrupt_on_signals() -> Iterator[list[int]]:
    """Have signals raise `KeyboardInterrupt`, as Ctrl-C does; yield the list of signals that
    arrived.

    While torch is imported, they end the process at once: an exception there would end in a message
    of its compiled code, and nothing has been computed yet. A signal that is ignored (as by
    `nohup`) or handled by other code stays as it is.
    """
    arrived: list[int] = []
    terminals = [
        stream.fileno()
        for stream in (sys.stdout, sys.stderr)
        if stream is not None and stream.isatty()
    ]

    def interrupt(number: int, frame: FrameType | None) -> None:
        stack = [] if frame is None else [caller for caller, _ in traceback.walk_stack(frame)]
        if any(
            (caller.f_code.co_name, caller.f_globals.get("__name__")) == ("<module>", "torch")
            for caller in stack
        ):
            os._exit(128 + number)
        arrived.append(number)
        if signal.Signals(number).name == "SIGHUP":
            for handle in terminals:  # closed: writing there would fail before the model is saved
                with suppress(OSError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), handle)
        raise KeyboardInterrupt

    # no other thread may set handlers
    in_main = threading.current_thread() is threading.main_thread()
    numbers = [
        getattr(signal, name) for name in _ENDING_SIGNALS if in_main and hasattr(signal, name)
    ]
    handlers = {number: signal.getsignal(number) for number in numbers}
    replaced_handlers = {
        n: handler
        for n, handler in handlers.items()
        if handler in (signal.SIG_DFL, signal.default_int_handler)
    }
    for number in replaced_handlers:
        signal.signal(number, interrupt)
    try:
        yield arrived
    finally:
        for number, handler in replaced_handlers.items():
            signal.signal(number, handler)


def is_one_of_several() -> bool:
    """Whether this process was started together with others."""
    return (
        all(os.environ.get(name) for name in _TORCHRUN_VARIABLES)
        and int(os.environ["WORLD_SIZE"]) > 1
    )


def is_first() -> bool:
    """Whether this process prints and writes: it is alone, or the first of several."""
    return not is_one_of_several() or int(os.environ["RANK"]) == 0


def check_command(name: str | None) -> None:
    """Refuse a command that several processes would only repeat."""
    if is_one_of_several() and name not in (None, "fit"):
        raise BadSetting(
            f"{os.environ['WORLD_SIZE']} processes run deepmf {name}; only fit shares its work"
        )


@contextmanager
def join_processes() -> Iterator[None]:
    """Join the processes that were started together with this one, and be silent unless this is the
    first."""
    if not is_one_of_several():
        yield
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from deepmf.nn.ranks import report_lost_ranks

    if not is_first():
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open as long as the process runs)
    with report_lost_ranks():
        store, rank, size = next(rendezvous("env://"))
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # All attempts share torchrun's own store, and with it the addresses of processes that
            # are gone.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0
            store = dist.PrefixStore(f"deepmf/{attempt}", store)  # type: ignore[attr-defined]
        # Objects and checkpoints are exchanged by CPUs, also where GPUs train.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    yield
    dist.destroy_process_group()
