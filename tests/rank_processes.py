"""Several real processes in one process group, for tests: each runs the same function, and leaves files behind."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import deepmf

ROOT = Path(__file__).parents[1]


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that finds this deepmf and these tests, with one thread."""
    paths = os.pathsep.join([str(Path(deepmf.__file__).parents[1]), str(ROOT)])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | more


def run_together(n_ranks: int, function: str, folder: Path, *, timeout: float = 600.0) -> None:
    """Run `module:function` with a folder in several processes; where one fails, show what it wrote."""
    start = folder / f"{function.rpartition(':')[2]}-{n_ranks}"
    logs = [start.with_name(f"{start.name}-{rank}.log") for rank in range(n_ranks)]
    processes = [
        _started(function, rank, n_ranks, folder, start.with_suffix(".meeting"), log) for rank, log in enumerate(logs)
    ]
    try:
        codes = [process.wait(timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(codes), "\n".join(log.read_text() for log, code in zip(logs, codes, strict=True) if code)


def _started(function: str, rank: int, n_ranks: int, folder: Path, meeting: Path, log: Path) -> subprocess.Popen[bytes]:
    words = ["-m", "tests.rank_processes", function, str(rank), str(n_ranks), str(folder), str(meeting)]
    with log.open("wb") as written:
        return subprocess.Popen([sys.executable, *words], cwd=ROOT, env=environment(), stdout=written, stderr=written)


def main(function: str, rank: str, n_ranks: str, folder: str, meeting: str) -> None:
    """Join the others and run a function."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(n_ranks))
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(Path(folder))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
