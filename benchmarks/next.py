"""What comes next: leave-one-out on generated shops and on MovieLens; a JSON line for each fit.

    python benchmarks/next.py --shop --columns 12000 --rows 22000
    python benchmarks/next.py --shop --presence nearest,full --columns 3000
    python benchmarks/next.py --data ml-1m --presence full,nearest --validation

The last entry of each row is for the test, the one before for validation: models learn from the
others, and see it as an input (strict), or are fitted again on it (`--refit`). NDCG@10 and hit
rate@10 rank all columns. `--validation` tests on the second last entry, and validates on the one
before. With `--random`, a tenth of the entries, drawn at random, is the test, and nothing is for
validation: the default order should not be worse than relevance there.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from typing import Any

import numpy as np
from workload import machine

from deepmf import Means, ObservedMatrix, split_entries, split_last
from deepmf.data import Split
from deepmf.data.datasets import load_sequences
from deepmf.datasets import fetch, info
from deepmf.evaluation import evaluate_ranking
from deepmf.recommend.next_ridge import NextRidge


def generate_shop(
    n_rows: int, n_columns: int, *, order: float = 0.35, repeats: float = 0.0, seed: int = 0
) -> ObservedMatrix:
    """Return purchases in order: rows of about eight entries, most columns of which have few.

    A row has two of the shop's departments. Its next column follows the latest one, or one of the
    two before, with the probability `order`: each column has five columns of its department that
    follow it. Otherwise it is a popular column of the row's departments, or of the shop. A column
    that the row has is taken again with the probability `repeats`.
    """
    rng, n_groups = np.random.default_rng(seed), max(n_columns // 60, 1)
    popularity = rng.permutation(1.0 / np.arange(5, n_columns + 5) ** 0.7)
    groups = rng.integers(0, n_groups, n_columns)
    members = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[members], np.arange(n_groups + 1))
    sums = np.concatenate([[0.0], np.cumsum(popularity[members])])

    def draw(of_group: Any) -> Any:
        low, high = sums[starts[of_group]], sums[starts[of_group + 1]]
        at = (
            np.searchsorted(sums, low + (high - low) * rng.random(np.shape(of_group)), side="right")
            - 1
        )
        return members[np.clip(at, starts[of_group], starts[of_group + 1] - 1)]

    successors = np.stack([draw(groups) for _ in range(5)], axis=1)
    counts = 5 + rng.geometric(0.25, n_rows) - 1
    own, taken = rng.integers(0, n_groups, (n_rows, 2)), np.full((n_rows, counts.max()), -1)
    for at in range(counts.max()):
        lines = np.flatnonzero(counts > at)
        found = np.full(lines.size, -1)
        for _ in range(20):  # again, where the row has the column already
            todo = np.flatnonzero(found < 0)
            if todo.size == 0:
                break
            rows, kind = lines[todo], rng.random(todo.size)
            drawn = draw(own[rows, rng.integers(0, 2, todo.size)])
            popular = members[
                np.searchsorted(sums, sums[-1] * rng.random(todo.size), side="right") - 1
            ]
            drawn = np.where(kind > 0.9, popular, drawn)
            if at:
                back = np.minimum(rng.choice(3, todo.size, p=(0.6, 0.25, 0.15)), at - 1)
                before = taken[rows, at - 1 - back]
                followed = successors[
                    before, rng.choice(5, todo.size, p=(0.4, 0.25, 0.15, 0.1, 0.1))
                ]
                drawn = np.where(kind < order, followed, drawn)
            known = (taken[rows] == drawn[:, None]).any(axis=1) & (rng.random(todo.size) >= repeats)
            found[todo] = np.where(known, -1, drawn)
        taken[lines, at] = found
    return ObservedMatrix.from_sequences(
        {row: own[own >= 0].tolist() for row, own in enumerate(taken)}
    )


def load_films(name: str) -> ObservedMatrix:
    """Return MovieLens-100K with its times, or MovieLens-1M in order."""
    if name == "ml-1m":
        return load_sequences(name)
    rows, columns, values, times = np.loadtxt(fetch("ml-100k"), dtype=np.int64).T
    return ObservedMatrix.from_entries(
        rows, columns, values.astype(float), info("ml-100k").scale, times=times
    )


def measure(settings: dict[str, Any], split: Split, again: ObservedMatrix | None) -> dict[str, Any]:
    """Fit a model; return the rankings by its default order, by relevance and by popularity, and
    its cost.

    again: the entries that it is then fitted to again; None: it is extended by the validation
        entries.
    """
    began, processor = time.perf_counter(), time.process_time()
    validation = split.validation if split.validation.n_entries else None
    model = Means(**settings).fit(split.train, validation, progress=False)
    if again is not None:
        model = Means(**settings | {"rank_by": model.rankers_.rank_by}).fit(again, progress=False)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    extended = model if again is not None or validation is None else model.extend(split.validation)
    following = extended.rankers_.following
    found: dict[str, Any] = {
        "rank_by": extended.rankers_.rank_by,
        "presence": model.settings.presence,
    }
    for name, order in (("default", {}), ("relevance", {"rank_by": "relevance"})):
        ranked = evaluate_ranking(extended, split.test, unknown="nan", **order)  # type: ignore[arg-type]
        scores = {"ndcg": ranked.model.ndcg, "hit_rate": ranked.model.hit_rate}
        found[name] = {key: round(value, 5) for key, value in scores.items()}
        found["popularity"] = {"ndcg": round(ranked.popularity.ndcg, 5)}
    found |= {"seconds": round(seconds, 1), "processor_seconds": round(processor, 1)}
    found["seconds_with_rankings"] = round(time.perf_counter() - began, 1)
    found["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return found | {
        "chosen": following.describe_choice() if isinstance(following, NextRidge) else {}
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shop", action="store_true")
    parser.add_argument("--data", default="ml-100k", choices=("ml-100k", "ml-1m"))
    parser.add_argument("--rows", type=int, default=22_000)
    parser.add_argument("--columns", type=int, default=12_000)
    parser.add_argument("--order", type=float, default=0.35)
    parser.add_argument("--repeats", type=float, default=0.0)
    parser.add_argument("--presence", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--random", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = {"order": asked.order, "repeats": asked.repeats, "seed": asked.seed}
    matrix = (
        generate_shop(asked.rows, asked.columns, **sizes) if asked.shop else load_films(asked.data)
    )
    if asked.validation:
        matrix = split_last(matrix, n=1, validation=0).train
    split, again = (
        split_last(matrix, n=1, validation=1),
        split_last(matrix, n=1, validation=0).train,
    )
    if asked.random:
        split = split_entries(matrix, train=0.9, validation=0.0, test=0.1, seed=asked.seed)
    for presence in asked.presence.split(","):
        found = measure(
            {"presence": presence, "seed": asked.seed}, split, again if asked.refit else None
        )
        about = {
            "benchmark": "next",
            "asked": vars(asked) | {"presence": presence},
            "shape": matrix.shape,
        }
        print(json.dumps(about | {"n_entries": matrix.n_entries} | found | machine()), flush=True)


if __name__ == "__main__":
    main()
