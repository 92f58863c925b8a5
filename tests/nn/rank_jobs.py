"""What ranks compute for the tests of layers, and the same in one process."""

from pathlib import Path

import torch
from torch import Tensor, nn

from deepmf.nn.branch import Branch, use_generator
from deepmf.nn.group import find_ranks
from deepmf.nn.inputs import Batch, SparseBatch, make_channels
from deepmf.nn.parallel import SpreadNetwork
from deepmf.nn.ranks import Ranks
from deepmf.nn.summaries import N_SUMMARY_FEATURES
from deepmf.training.runtime import make_generator

Found = dict[str, Tensor]

LINES = (1, 2, 5, 12)  # of batches: fewer than ranks, and no multiple of them
N_INPUTS = 7


def collectives(ranks: Ranks) -> Found:
    """Every collective, on numbers that say where they come from."""
    found = {}
    for n_lines in LINES:
        share = torch.arange(2.0 * n_lines).view(n_lines, 2)[ranks.find_lines(n_lines)]
        found[f"lines.{n_lines}"] = ranks.gather(share, n_lines)
    # A loss of sums over all ranks, of which each has a part, and of products that each looks at in
    # another way.
    line = torch.tensor(1.0 + ranks.index, requires_grad=True)
    weight = torch.tensor(2.0, requires_grad=True)
    total = ranks.sum_parts(10.0**ranks.index * weight * ranks.sum_products(line))
    (total.square() + weight).backward()  # type: ignore[no-untyped-call]
    assert line.grad is not None and weight.grad is not None
    found |= {
        "total": total,
        "total.line": line.grad,
        "total.weight": ranks.sum_(weight.grad) / ranks.size,
    }
    found["sum"] = ranks.sum_(torch.tensor([1.0 + ranks.index]))
    found["of_first"] = torch.tensor(ranks.broadcast(float(ranks.index), torch.device("cpu")))
    found["collected"] = torch.tensor(ranks.collect(ranks.index))
    return {name: tensor.detach() for name, tensor in found.items()}


def branch(ranks: Ranks | None, *, dense: bool) -> Found:
    """Two steps of a branch in training, then its outputs: dense batches, or sparse ones, of which
    ranks have parts."""
    network = nn.ModuleDict(
        {"rows": _branch(n_summary_features=0 if dense else N_SUMMARY_FEATURES)}
    )
    spread = None if ranks is None else SpreadNetwork(network, ranks)
    use_generator(network, make_generator(0, "dropout"))
    found = {}
    for n_lines in (5, 9):
        outputs = network["rows"](_batch(n_lines, network["rows"], ranks, dense=dense))
        network.zero_grad()
        outputs.square().sum().backward() if n_lines == 5 else (
            outputs.sum(1) ** 3
        ).mean().backward()
        if spread is not None:
            spread.average_gradients()
        gradients = {
            name: each.grad for name, each in network.named_parameters() if each.grad is not None
        }
        if spread is not None and ranks is not None:
            gradients |= {
                name: each.gather_whole(gradients[name], ranks)
                for name, each in spread.divided.items()
            }
        found |= {f"{n_lines}.{name}": tensor for name, tensor in gradients.items()}
        found[f"{n_lines}.outputs"] = outputs.detach()
    network.eval()
    with torch.no_grad():
        # of fewer lines than ranks
        found["eval"] = network["rows"](_batch(1, network["rows"], ranks, dense=dense))
        if spread is not None:
            spread.join()
        found["joined"] = network["rows"](_batch(4, network["rows"], None, dense=dense))
    return found | {f"state.{name}": tensor for name, tensor in network.state_dict().items()}


def _branch(*, n_summary_features: int) -> Branch:
    n_inputs = 2 * N_INPUTS if n_summary_features else N_INPUTS
    generator = make_generator(0, "weights")
    return Branch(
        n_inputs, (6, 5, 3), dropout=0.3, generator=generator, n_summary_features=n_summary_features
    )


def _batch(n_lines: int, branch: nn.Module, ranks: Ranks | None, *, dense: bool) -> Batch:
    generator = torch.Generator().manual_seed(n_lines)
    table = torch.randn(n_lines, N_INPUTS, generator=generator)
    seen = torch.rand(n_lines, N_INPUTS, generator=generator) < 0.4
    seen[:, -2:] = False  # the last rank sees no entries of some tables
    if dense:
        return torch.where(seen, table, 0.0)
    if ranks is not None:
        own = ranks.find_lines(N_INPUTS)
        seen[:, : own.start] = seen[:, own.stop :] = False
    starts = torch.nn.functional.pad(seen.sum(1).cumsum(0), (1, 0))
    batch, total = (
        SparseBatch(seen.nonzero()[:, 1], starts, table[seen]),
        branch.get_submodule("first").sum_over_ranks,
    )
    return make_channels(batch, N_INPUTS, sum_over_ranks=total)  # type: ignore[return-value, arg-type]


def everything(folder: Path) -> None:
    """All of it on this rank, kept in a file."""
    ranks = find_ranks()
    assert ranks is not None
    found = {
        "collectives": collectives(ranks),
        "sparse": branch(ranks, dense=False),
        "dense": branch(ranks, dense=True),
    }
    torch.save(found, folder / f"{ranks.size}-{ranks.index}.pt")
