"""Training on several processes: seconds of an epoch on 1 and 2 ranks, memory of tables and entries
on 1, 2 and 4.

OrdinalDMF on a matrix the size of MovieLens-1M, one thread for each rank. Numbers of ranks are
timed in turns, of which the shortest counts; the processor time of a rank is what is left of the
work of one process, also on a busy machine.
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
from workload import QUICK, machine, ml_1m

from deepmf.matrix.entries import EntryStore
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.nn.inputs import SparseVectors
from deepmf.training.blocks import MatrixBlocks
from deepmf.training.trainer import Trainer

TIMED, MEASURED = (1, 2), (1, 2, 4)
TIMES, MEMORIES = ("seconds", "processor_seconds"), ("table_mb", "entry_mb")


def trainer(width: int) -> tuple[str, Trainer]:
    """Return the trainer of a network for this rank, or for one process."""
    name, matrix = ml_1m()
    model = OrdinalDMF(
        hidden_sizes=(width,),
        latent_size=64,
        block_rows=600,
        block_columns=400,
        averaging=0.995,
        device="cpu",
    )
    return name, model._make_trainer(EntryStore.of(matrix), matrix, None)


def table_megabytes(made: Trainer) -> float:
    """Return the memory of tables on this rank: weights, gradients, Adam's averages, and the
    running average."""
    tables = [
        weight for name, weight in made.network.named_parameters() if name.endswith("first.weight")
    ]
    slots = [
        slot for slot in made.state().values() if any(slot.shape == table.shape for table in tables)
    ]
    held = [*tables, *(table.grad for table in tables if table.grad is not None), *slots]
    return sum(each.numel() * each.element_size() for each in held) / 2**20


def entry_megabytes(made: Trainer) -> float:
    """Return the memory of the entries that steps read on this rank: by row and by column, and as
    targets."""
    source = made.source
    assert isinstance(source, MatrixBlocks)
    held = [source._targets]
    for vectors in (source.rows, source.columns):
        assert isinstance(vectors, SparseVectors)
        held += [vectors.indices, vectors.weights]
    return sum(each.numel() * each.element_size() for each in held) / 2**20


def run_rank(rank: int, size: int, meeting: str, width: int, n_steps: int) -> None:
    """Take steps as one rank, and print as the first."""
    if size > 1:
        dist.init_process_group("gloo", init_method=f"tcp://{meeting}", rank=rank, world_size=size)
    name, made = trainer(width)
    made.source.begin_epoch()
    for _ in range(3):
        made._train_step()
    start, processor_start = time.perf_counter(), time.process_time()
    for _ in range(n_steps):
        made._train_step()
    epochs = n_steps / made.source.n_steps
    ranks, entries = made.runtime.ranks, entry_megabytes(made)
    entries = entries if ranks is None else max(ranks.collect(entries))
    if rank == 0:
        found = {
            "seconds": (time.perf_counter() - start) / epochs,
            "processor_seconds": (time.process_time() - processor_start) / epochs,
            "table_mb": table_megabytes(made),
            "entry_mb": entries,
            "data": name,
        }
        print(json.dumps(found))
    if size > 1:
        dist.destroy_process_group()


def measure(size: int, width: int, n_steps: int) -> dict[str, Any]:
    """Run this script once for each of some ranks; return what the first found."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        sys.executable,
        __file__,
        f"--width={width}",
        f"--steps={n_steps}",
        "--meeting",
        meeting,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [*command, f"--size={size}", f"--rank={rank}"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
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
    parser.add_argument("--steps", type=int, default=2 if QUICK else 20)
    parser.add_argument("--turns", type=int, default=1 if QUICK else 3)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--size", type=int)
    parser.add_argument("--meeting")
    given = parser.parse_args()
    if given.rank is not None:
        torch.set_num_threads(1)
        run_rank(given.rank, given.size, given.meeting, given.width, given.steps)
        return
    turns = [
        {size: measure(size, given.width, given.steps) for size in TIMED}
        for _ in range(given.turns)
    ]
    turns[0] |= {size: measure(size, given.width, 1) for size in MEASURED if size not in TIMED}
    best = {
        name: {size: min(turn[size][name] for turn in turns if size in turn) for size in sizes}
        for name, sizes in (
            *((name, TIMED) for name in TIMES),
            *((name, MEASURED) for name in MEMORIES),
        )
    }
    print(
        f"{'ranks':<8}{'s an epoch':>12}{'processor s of a rank':>24}{'MB of tables':>14}{'of entries, at most':>22}"
    )
    for size in MEASURED:
        times = [f"{best[name][size]:.2f}" if size in TIMED else "" for name in TIMES]
        memories = [f"{best[name][size]:.1f}" for name in MEMORIES]
        print(f"{size:<8}{times[0]:>12}{times[1]:>24}{memories[0]:>14}{memories[1]:>22}")
    rounded = {
        name: {size: round(each, 3) for size, each in found.items()} for name, found in best.items()
    }
    result = {"benchmark": "ranks", "width": given.width, "data": turns[0][1]["data"]}
    print(json.dumps(result | rounded | machine()))


if __name__ == "__main__":
    main()
