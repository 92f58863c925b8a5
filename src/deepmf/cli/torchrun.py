"""Commands that torchrun started several times: the processes join, and the first alone speaks and writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from deepmf.errors import BadSetting

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

    from deepmf.layers.ranks import together

    if not is_first():
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open as long as the process runs)
    with together():
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
