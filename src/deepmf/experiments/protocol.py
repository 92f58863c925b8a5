"""The protocols of published results: how a data set is split into training and test entries."""

from __future__ import annotations

from collections.abc import Callable

from deepmf.data.datasets.local import load, load_split
from deepmf.data.splits import Split, split_areas, split_entries
from deepmf.data.synthetic.generator import generate
from deepmf.evaluation.problem import Problem
from deepmf.matrix.matrix import ObservedMatrix

# The name of a small matrix that is generated, for quick runs where no data set is at hand.
GENERATED = "generated"


def areas(data: str, *, seed: int, new_share: float) -> Problem:
    """Declare a share of the rows and of the columns new, and cut each of the four areas 75 / 5 / 20.

    With nothing new there is area I alone, and the split is that of `entries`.
    """
    return Problem.of_areas(split_areas(_matrix(data), new_rows=new_share, new_columns=new_share, seed=seed))


def areas_79_1_20(data: str, *, seed: int, new_share: float) -> Problem:
    """Declare rows and columns new as `areas` does, but leave only 1 % of the entries for validation."""
    shares = {"train": 0.79, "validation": 0.01, "test": 0.2}
    return Problem.of_areas(split_areas(_matrix(data), new_rows=new_share, new_columns=new_share, seed=seed, **shares))


def entries(data: str, *, seed: int, new_share: float) -> Problem:
    """Cut the entries 75 / 5 / 20 at random; all rows and columns are known."""
    return Problem.of_split(split_entries(_matrix(data), train=0.75, validation=0.05, test=0.2, seed=seed))


def random(data: str, *, seed: int, new_share: float) -> Problem:
    """Cut the entries 90 / 10 at random, as most papers on rating prediction do; of the 90, 2 are for validation."""
    return Problem.of_split(split_entries(_matrix(data), train=0.88, validation=0.02, test=0.1, seed=seed))


def published(data: str, *, seed: int, new_share: float) -> Problem:
    """Take the parts that were published with the data set; the seed draws validation entries where none were."""
    if data == GENERATED:
        return entries(data, seed=seed, new_share=new_share)
    split = load_split(data)
    if split.validation.n_entries == 0:
        parts = split_entries(split.train, train=0.95, validation=0.05, test=0.0, seed=seed)
        split = Split(parts.train, parts.validation, split.test)
    return Problem.of_split(split)


def _matrix(data: str) -> ObservedMatrix:
    return generate(400, 300, density=0.1, seed=0).matrix if data == GENERATED else load(data)


PROTOCOLS: dict[str, Callable[..., Problem]] = {
    "areas": areas,
    "areas-79-1-20": areas_79_1_20,
    "entries": entries,
    "random": random,
    "published": published,
}
