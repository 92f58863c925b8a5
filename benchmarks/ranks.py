"""Training on several processes: seconds of an epoch on 1 and 2 ranks, and the memory of tables on 1, 2 and 4.

OrdinalDMF on a matrix the size of MovieLens-1M, one thread for each rank; every number of ranks is timed in turns, so
that a busy moment hits all.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from workload import machine, ml_1m

from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF
from deepmf.training.trainer import Trainer

TIMED, MEASURED = (1, 2), (1, 2, 4)


def trainer(width: int) -> tuple[str, Trainer]:
    """Return the trainer of a network for this rank, or for one process."""
    name, matrix = ml_1m()
    model = OrdinalDMF(
        hidden_sizes=(width,), latent_size=64, block_rows=600, block_columns=400, averaging=0.995, device="cpu"
    )
    return name, model._trainer(matrix, matrix, None)


def table_megabytes(made: Trainer) -> float:
    """Return the memory of tables on this rank: weights, gradients, Adam's averages, and the running average."""
    tables = [weight for name, weight in made.network.named_parameters() if name.endswith("first.weight")]
    slots = [slot for slot in made.state().values() if any(slot.shape == table.shape for table in tables)]
    held = [*tables, *(table.grad for table in tables if table.grad is not None), *slots]
    return sum(each.numel() * each.element_size() for each in held) / 2**20


def run_rank(rank: int, size: int, meeting: str, width: int, n_steps: int) -> None:
    """Take steps as one rank, and print as the first."""
    if size > 1:
        dist.init_process_group("gloo", init_method=f"tcp://{meeting}", rank=rank, world_size=size)
    name, made = trainer(width)
    made.source.begin_epoch()
    for _ in range(3):
        made._train_step()
    start = time.perf_counter()
    for _ in range(n_steps):
        made._train_step()
    seconds = time.perf_counter() - start
    if rank == 0:
        epoch = seconds / n_steps * made.source.n_steps
        print(json.dumps({"seconds_an_epoch": epoch, "table_mb": table_megabytes(made), "data": name}))
    if size > 1:
        dist.destroy_process_group()


def measured(size: int, width: int, n_steps: int) -> dict[str, Any]:
    """Return what the first of some ranks found."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, __file__, "--width", str(width), "--steps", str(n_steps), "--meeting", meeting]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [*command, "--rank", str(rank), "--size", str(size)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for rank in range(size)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    found: dict[str, Any] = json.loads(said[0].splitlines()[-1])
    return found


def main() -> None:
    """Measure every number of ranks, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--size", type=int)
    parser.add_argument("--meeting")
    given = parser.parse_args()
    if given.rank is not None:
        torch.set_num_threads(1)
        run_rank(given.rank, given.size, given.meeting, given.width, given.steps)
        return
    turns = [{size: measured(size, given.width, given.steps) for size in TIMED} for _ in range(given.turns)]
    seconds = {size: min(turn[size]["seconds_an_epoch"] for turn in turns) for size in TIMED}
    memory = {size: (turns[0].get(size) or measured(size, given.width, 1))["table_mb"] for size in MEASURED}
    print(f"{'ranks':<8}{'s an epoch':>12}{'MB of tables':>14}")
    for size in MEASURED:
        shown = f"{seconds[size]:.2f}" if size in seconds else ""
        print(f"{size:<8}{shown:>12}{memory[size]:>14.1f}")
    result = {
        "benchmark": "ranks",
        "width": given.width,
        "seconds_an_epoch": {size: round(each, 3) for size, each in seconds.items()},
        "table_mb": {size: round(each, 1) for size, each in memory.items()},
        "data": turns[0][1]["data"],
    }
    print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
