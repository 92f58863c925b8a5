"""The table of a first layer divided over two ranks, in each of the ways that torch offers, and ours.

Every way computes the same weighted sums of lines for a batch of sparse vectors, and the gradient of the table: seconds
of a step, bytes that a rank sends in it, and the most memory that a rank takes beyond what it has without the table.
Outputs and gradients are compared with those of one process. TorchRec (1.8 with fbgemm-gpu-cpu 1.8) has to be installed
for its line; without it, name the others by --ways.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from launched_ranks import found_by_ranks
from torch import Tensor, nn
from workload import machine

from deepmf.nn.inputs import SparseBatch
from deepmf.nn.parallel import Division, TableShard, _BatchSize
from deepmf.nn.ranks import Ranks
from deepmf.nn.sparse_linear import SparseLinear

N_RANKS = 2
N_INPUTS, N_VECTORS, N_ENTRIES = 8000, 600, 160  # a block of MovieLens-1M: vectors, and visible entries of each


class Step(NamedTuple):
    """A way: the outputs of this rank's share of the vectors, and then the gradient of its lines of the table."""

    weight: Tensor
    outputs: Callable[[], Tensor]
    gradient: Callable[[], Tensor]


def table(width: int) -> SparseLinear:
    """Return the whole table, the same on every rank."""
    return SparseLinear(N_INPUTS, width, generator=torch.Generator().manual_seed(0))


def batch() -> SparseBatch:
    """Return sparse vectors of equally many entries, the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    indices = torch.randint(N_INPUTS, (N_VECTORS * N_ENTRIES,), generator=generator)
    starts = torch.arange(0, indices.numel() + 1, N_ENTRIES)
    return SparseBatch(indices, starts, torch.rand(indices.numel(), generator=generator))


def ours(ranks: Ranks, width: int) -> Step:
    """Each rank sums up its own lines, with the entries that are for them; sums are reduced."""
    shard = TableShard(table(width).weight, Division(N_INPUTS, 1), ranks, _BatchSize())
    whole, own = batch(), ranks.find_lines(N_INPUTS)
    here = (whole.indices >= own.start) & (whole.indices < own.stop)
    starts = nn.functional.pad(here.cumsum(0), (1, 0))[whole.starts]
    part = SparseBatch(whole.indices[here], starts, whole.weights[here])
    return Step(shard.weight, lambda: shard(part), lambda: _gradient(shard.weight))


def dtensor(ranks: Ranks, width: int) -> Step:
    """`RowwiseParallel` of an embedding: the lines of entries are exchanged, and summed up afterwards."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

    embedding = nn.Embedding(N_INPUTS, width, _weight=table(width).weight.detach())
    style = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0))
    parallelize_module(embedding, init_device_mesh("cpu", (ranks.size,)), style)
    whole = batch()
    weights = ranks.take_share(whole.weights)

    def outputs() -> Tensor:
        lines: Tensor = embedding(whole.indices)
        return (lines * weights[:, None]).view(-1, N_ENTRIES, width).sum(1)

    def gradient() -> Tensor:
        whole: Tensor = _gradient(embedding.weight).full_tensor()  # type: ignore[attr-defined]
        return ranks.take_share(whole)

    return Step(embedding.weight, outputs, gradient)


def fsdp(ranks: Ranks, width: int) -> Step:
    """`fully_shard`: the whole table is gathered for every step, and each rank computes its share of the vectors."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    layer = table(width)
    fully_shard(layer, mesh=init_device_mesh("cpu", (ranks.size,)))
    whole, own = batch(), ranks.find_lines(N_VECTORS)
    some = slice(int(whole.starts[own.start]), int(whole.starts[own.stop]))
    starts = whole.starts[own.start : own.stop + 1] - some.start
    part = SparseBatch(whole.indices[some], starts, whole.weights[some])
    # It takes the mean over ranks, where the others sum up.
    return Step(
        layer.weight,
        lambda: layer(part),
        lambda: ranks.size * _gradient(layer.weight).to_local(),  # type: ignore[attr-defined]
    )


def torchrec(ranks: Ranks, width: int) -> Step:
    """TorchRec's bags, of a table for each rank: a rank sends its vectors' entries to where their lines are."""
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise
    from torchrec.distributed.types import ShardingEnv, ShardingPlan

    each, own = N_INPUTS // ranks.size, ranks.find_lines(N_VECTORS)
    names = [f"range{rank}" for rank in range(ranks.size)]
    bags = EmbeddingBagCollection(
        tables=[EmbeddingBagConfig(name=n, num_embeddings=each, embedding_dim=width, feature_names=[n]) for n in names],
        is_weighted=True,
    )
    places = {name: table_wise(rank=rank, compute_kernel="dense") for rank, name in enumerate(names)}
    sharders: list[Any] = [EmbeddingBagCollectionSharder()]
    plan = construct_module_sharding_plan(
        bags, places, sharder=sharders[0], local_size=ranks.size, world_size=ranks.size, device_type="cpu"
    )
    assert dist.group.WORLD is not None
    model = DistributedModelParallel(
        nn.ModuleDict({"bags": bags}),
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=ShardingPlan({"bags": plan}),
        sharders=sharders,
    )
    whole = batch()
    some = slice(int(whole.starts[own.start]), int(whole.starts[own.stop]))
    indices, weights = whole.indices[some], whole.weights[some]
    vectors = torch.arange(indices.numel()) // N_ENTRIES
    ranges = [indices // each == rank for rank in range(ranks.size)]
    inputs = KeyedJaggedTensor(
        keys=names,
        values=torch.cat([indices[here] % each for here in ranges]),
        weights=torch.cat([weights[here] for here in ranges]),
        lengths=torch.cat([torch.bincount(vectors[here], minlength=own.stop - own.start) for here in ranges]),
    )
    (weight,) = (parameter for parameter in model.parameters() if parameter.numel())
    weight.data.copy_(ranks.take_share(table(width).weight.detach()).view_as(weight))

    def outputs() -> Tensor:
        pooled: Tensor = model.module["bags"](inputs).values()
        return pooled.view(-1, ranks.size, width).sum(1)

    # It takes the mean over ranks, where the others sum up.
    return Step(weight, outputs, lambda: ranks.size * _gradient(weight).view(each, width))


WAYS: dict[str, Callable[[Ranks, int], Step]] = {"ours": ours, "DTensor": dtensor, "FSDP2": fsdp, "TorchRec": torchrec}


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


def _bytes_sent() -> int:
    """Return how many bytes this process has written, to sockets above all."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def _memory(name: str) -> float:
    """Return a line of the system's account of this process's memory, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def _taken(step: Step, wanted: Tensor) -> Tensor:
    """Take a step, and return its outputs."""
    step.weight.grad = None
    outputs = step.outputs()
    (outputs * wanted).sum().backward()  # type: ignore[no-untyped-call]
    return outputs.detach()


def run_rank(rank: int, meeting: str, way: str, width: int, n_steps: int) -> None:
    """Take steps as one rank, and print as the first."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{meeting}", rank=rank, world_size=N_RANKS)
    ranks = Ranks(rank, N_RANKS)
    wanted = torch.randn(N_VECTORS, width, generator=torch.Generator().manual_seed(2))
    _taken(WAYS[way](ranks, 8), ranks.take_share(wanted[:, :8]))  # whatever is imported or set up once
    before = _memory("VmRSS")
    step = WAYS[way](ranks, width)
    taken = _taken(step, ranks.take_share(wanted))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew: whole tables at the start are no part of it
    sent, processor, seconds = _bytes_sent(), time.process_time(), []
    for _ in range(n_steps):
        start = time.perf_counter()
        taken = _taken(step, ranks.take_share(wanted))
        seconds.append(time.perf_counter() - start)
    processor, sent, peak = time.process_time() - processor, _bytes_sent() - sent, _memory("VmHWM")
    alone = table(width)
    expected = alone(batch())
    (expected * wanted).sum().backward()
    torch.testing.assert_close(taken, ranks.take_share(expected.detach()), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(step.gradient(), ranks.take_share(_gradient(alone.weight)), rtol=1e-4, atol=1e-4)
    if rank == 0:
        found = {
            "seconds": min(seconds),
            "processor_seconds": processor / n_steps,
            "sent_mb": sent / n_steps / 2**20,
            "peak_mb": peak - before,
        }
        print(json.dumps(found))
    dist.destroy_process_group()


def measured(way: str, width: int, n_steps: int) -> dict[str, Any]:
    """Return what the first of two ranks found."""
    return found_by_ranks(__file__, N_RANKS, ["--way", way, "--width", str(width), "--steps", str(n_steps)])


def main() -> None:
    """Measure every way, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--way")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--meeting")
    parser.add_argument("--size", type=int, default=N_RANKS)
    given = parser.parse_args()
    if given.rank is not None:
        run_rank(given.rank, given.meeting, given.way, given.width, given.steps)
        return
    found = {way: measured(way, given.width, given.steps) for way in given.ways}
    print(f"{'':<10}{'s a step':>10}{'processor s':>14}{'MB sent':>10}{'MB at most':>12}")
    for way, each in found.items():
        print(
            f"{way:<10}{each['seconds']:>10.3f}{each['processor_seconds']:>14.3f}"
            f"{each['sent_mb']:>10.1f}{each['peak_mb']:>12.0f}"
        )
    rounded = {way: {name: round(number, 4) for name, number in each.items()} for way, each in found.items()}
    print(json.dumps({"benchmark": "rank_tables", "width": given.width, "ways": rounded} | machine()))


if __name__ == "__main__":
    main()
