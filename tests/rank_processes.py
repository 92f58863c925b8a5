"""Several real processes in one process group, for tests: each runs the same function, and leaves
files behind."""

import importlib
from pathlib import Path

import torch
import torch.distributed as dist
from tests.forks import FORKS, write_to


def run_together(n_ranks: int, function: str, folder: Path, *, timeout: float = 600.0) -> None:
    """Run `module:function` with a folder in several processes; where one fails, show what it
    wrote."""
    start = folder / f"{function.rpartition(':')[2]}-{n_ranks}"
    logs = [start.with_name(f"{start.name}-{rank}.log") for rank in range(n_ranks)]
    given = function, n_ranks, folder, start.with_suffix(".meeting")
    processes = [
        FORKS.Process(target=join, args=(rank, log, *given)) for rank, log in enumerate(logs)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout)
    finally:
        for process in processes:
            process.kill()
            process.join()
    failed = [
        log.read_text() for log, process in zip(logs, processes, strict=True) if process.exitcode
    ]
    assert not failed, "\n".join(failed)


def join(rank: int, log: Path, function: str, n_ranks: int, folder: Path, meeting: Path) -> None:
    """Join the other processes and run a function."""
    write_to(log, log)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=n_ranks)
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(folder)
    dist.destroy_process_group()
