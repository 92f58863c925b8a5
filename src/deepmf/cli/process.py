"""Commands that torchrun started several times: the processes join, and the first alone speaks and writes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType

from deepmf.errors import BadSetting

# What ends a process politely; Windows has only the first.
_NAMES = ("SIGTERM", "SIGHUP")


_CUT_OFF = (
    b"deepmf: a file that was open was made shorter, or cannot be read from its disk any more; "
    b"what was under way is not saved: restore the file, then run the command again\n"
)


@contextmanager
def telling_of_cut_files() -> Iterator[None]:
    """Have a command whose mapped file is cut off say so and end with 2; without this it would die without a word.

    The signal comes in the middle of compiled code, which cannot go on, nor return to Python: so a handler of the C
    library is set, which never returns. Nothing is cleaned up; the next command removes what was begun.
    """
    if not hasattr(signal, "SIGBUS") or threading.current_thread() is not threading.main_thread():
        yield
        return
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    handler = kind(_end_cut_off)
    before = set_handler(signal.SIGBUS, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        set_handler(signal.SIGBUS, before)


def _end_cut_off(_: int) -> None:
    os.write(2, _CUT_OFF)
    os._exit(2)


@contextmanager
def ending_signals() -> Iterator[list[int]]:
    """Have these signals raise `KeyboardInterrupt` inside; yield the list of those that came.

    One that is ignored (as `nohup` does) or handled by other code stays as it is.
    """
    came: list[int] = []
    terminals = [stream.fileno() for stream in (sys.stdout, sys.stderr) if stream is not None and stream.isatty()]

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        if signal.Signals(number).name == "SIGHUP":
            _let_go_of(terminals)
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    numbers = [getattr(signal, name) for name in _NAMES if in_main and hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _let_go_of(terminals: list[int]) -> None:
    """Write to nowhere from now on: the terminal was closed, and writing to it would fail before the model is saved."""
    for handle in terminals:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), handle)


# What torchrun tells every process that it starts.
_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

_SECONDS_TO_CONNECT = 10


def is_one_of_several() -> bool:
    """Say whether this process was started together with others."""
    return all(os.environ.get(name) for name in _TOLD) and int(os.environ["WORLD_SIZE"]) > 1


def is_first() -> bool:
    """Say whether this process speaks and writes: it is alone, or the first of several."""
    return not is_one_of_several() or int(os.environ["RANK"]) == 0


def is_restarted() -> bool:
    """Say whether torchrun started this process again, after one was lost."""
    return is_one_of_several() and _attempt() > 0


def check_command(name: str | None) -> None:
    """Refuse a command that several processes would only repeat."""
    if is_one_of_several() and name not in (None, "fit"):
        raise BadSetting(
            f"{os.environ['WORLD_SIZE']} processes were started for deepmf {name}; only fit shares its work"
        )


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that were started together with this one, and be silent unless this is the first."""
    if not is_one_of_several():
        yield
        return
    _check_restarts()
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from deepmf.nn.ranks import report_lost_ranks

    if not is_first():
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open as long as the process runs)
    with report_lost_ranks():
        store, rank, size = next(rendezvous("env://"))
        if _shares_store():  # it outlives restarts, and with it the addresses of processes that are gone
            store = dist.PrefixStore(f"deepmf/{_attempt()}", store)  # type: ignore[attr-defined]
        # Objects and checkpoints are exchanged by CPUs, also where GPUs train.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    yield
    dist.destroy_process_group()


def is_to_complain() -> bool:
    """Say whether it is for this process to say what went wrong: of several, for the first that asks."""
    if not is_one_of_several():
        return True
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=_SECONDS_TO_CONNECT))
        return int(store.add(f"deepmf/complaints/{_attempt()}", 1)) == 1
    except RuntimeError:  # nobody listens: the first has gone, or none has come yet
        return is_first()


def _attempt() -> int:
    """Return how often torchrun has started the processes of this machine again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)


def _shares_store() -> bool:
    """Say whether torchrun's own store is the one that processes meet by, in every attempt."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _check_restarts() -> None:
    """Refuse restarts that would fail: each machine counts its own, so that counts do not tell attempts apart."""
    n_machines, n_restarts = (
        int(os.environ.get(name) or 0) for name in ("GROUP_WORLD_SIZE", "TORCHELASTIC_MAX_RESTARTS")
    )
    if _shares_store() and n_machines > 1 and n_restarts > 0:
        raise BadSetting(
            f"torchrun --max-restarts on {n_machines} machines needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "
            "in the environment of torchrun on each of them"
        )
