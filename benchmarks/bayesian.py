"""BayesianMF with its defaults: errors, coverage and seconds on MovieLens-1M and generated
matrices.

    python benchmarks/bayesian.py authors areas random generated
    python benchmarks/bayesian.py authors --effort quick --device cpu

Prints a line of JSON for each fit. Nothing is chosen here; test entries are only measured.
"authors" is the split of the authors of DMF-D, "random" 90/10 splits, "areas" has 20 % new rows and
columns, "generated" has rank 12 and noise 1.
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from workload import machine

from deepmf.data import split_areas, split_entries
from deepmf.datasets import generate, load, load_split
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.training.settings import EFFORTS

COVERAGE = 0.9
GENERATED = {1_000_000: (6040, 3706), 10_000_000: (70_000, 10_700)}


def measure(model: Model, test: ObservedMatrix) -> dict[str, float]:
    """Return the error and the coverage of intervals on test entries."""
    rows, columns, values = test.entries()
    lower, upper = model.predict_interval(rows, columns, coverage=COVERAGE)
    return {
        "rmse": round(rmse_error(model.predict(rows, columns), values), 4),
        "coverage": round(float(np.mean((lower <= values) & (values <= upper))), 3),
    }


def fit(
    train: ObservedMatrix, validation: ObservedMatrix | None, settings: dict[str, Any]
) -> tuple[BayesianMF, dict[str, float]]:
    """Return a fitted model, and the seconds it took."""
    start, processor = time.perf_counter(), time.process_time()
    model = BayesianMF(**settings).fit(train, validation)
    seconds = {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - processor,
    }
    return model, {name: round(each, 1) for name, each in seconds.items()}


def run(task: str, seeds: int, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of one protocol."""
    if task == "authors":
        split = load_split("ml-1m")
        model, seconds = fit(split.train, split.validation, settings)
        yield {**seconds, **measure(model, split.test)}
    elif task == "random":
        for seed in range(seeds):
            parts = split_entries(load("ml-1m"), train=0.9, validation=0.0, test=0.1, seed=seed)
            model, seconds = fit(parts.train, None, settings)
            yield {"seed": seed, **seconds, **measure(model, parts.test)}
    elif task == "areas":
        for seed in range(seeds):
            areas = split_areas(load("ml-1m"), seed=seed)
            model, seconds = fit(areas.train, None, settings)
            extended = model.extend(areas.extension)
            yield {"seed": seed, **seconds} | {
                area: measure(extended, test) for area, test in areas.test.items()
            }
    else:
        for n_entries, shape in GENERATED.items():
            matrix = generate(
                *shape, n_entries=n_entries, rank=12, noise=1.0, named=False, seed=5
            ).matrix
            parts = split_entries(matrix, train=0.88, validation=0.02, test=0.1, seed=0)
            model, seconds = fit(parts.train, parts.validation, settings)
            yield {"entries": n_entries, **seconds, **measure(model, parts.test)}


def main() -> None:
    """Run the named protocols."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", choices=("authors", "random", "areas", "generated"))
    parser.add_argument("--seeds", type=int, default=3, help="number of splits")
    parser.add_argument("--effort", default="normal", choices=EFFORTS)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    # the libraries underneath start before the clock
    if torch.cuda.is_available() and arguments.device != "cpu":
        BayesianMF(epochs=2).fit(generate(named=False).matrix)
    settings = {"effort": arguments.effort, "device": arguments.device}
    for task in arguments.tasks:
        for result in run(task, arguments.seeds, settings):
            print(
                json.dumps({"benchmark": "bayesian", "task": task} | settings | result | machine()),
                flush=True,
            )


if __name__ == "__main__":
    main()
