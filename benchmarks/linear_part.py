"""OrdinalDMF with a linear part of posterior samples, beside the same with ALS: errors and seconds on MovieLens.

python benchmarks/linear_part.py authors random u1 --effort quick normal
python benchmarks/linear_part.py authors random u1 --effort normal best --seeds 5    on a GPU, where there is one

Prints a line of JSON for each fit. Nothing is chosen here: validation entries are in the fit, test entries are only
measured. "authors" is the split of the authors of DMF-D, "random" are 90/10 splits of MovieLens-1M, and "u1" is the
first fold of MovieLens-100K; these two hold out entries themselves.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from typing import Any

from workload import machine

from deepmf.data import Split, split_entries
from deepmf.datasets import load, load_split
from deepmf.errors import DeepMFWarning
from deepmf.metrics import log_loss_error, rmse_error
from deepmf.models.ordinal.model import OrdinalDMF


def list_splits(task: str, seeds: int) -> Iterator[Split]:
    """Yield the splits of a protocol."""
    if task == "random":
        for seed in range(seeds):
            yield split_entries(load("ml-1m"), train=0.9, validation=0.0, test=0.1, seed=seed)
    else:
        yield load_split("ml-1m" if task == "authors" else "ml-100k")


def measure(split: Split, effort: str, device: str, **settings: Any) -> dict[str, Any]:
    """Fit a model, and return its errors, choices and seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    validation = split.validation if split.validation.n_entries else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeepMFWarning)
        model = OrdinalDMF(effort=effort, device=device, **settings).fit(split.train, validation)
    seconds = {
        "seconds": round(time.perf_counter() - wall, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
    }
    rows, columns, values = split.test.entries()
    chances = model.predict_distribution(rows, columns)
    return seconds | {
        "rmse": round(rmse_error(model.predict(rows, columns), values), 4),
        "log_loss": round(log_loss_error(chances, values, scale_levels=model.support_), 4),
        "stages": {name: round(error, 4) for name, error in model.history_.stages.items()},
        "linear": {name: model.chosen_on_entries_[f"linear_{name}"] for name in ("size", "samples", "share")},
    }


def main() -> None:
    """Run the named protocols."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", choices=("authors", "random", "u1"))
    parser.add_argument("--effort", nargs="+", default=["normal"], choices=("quick", "normal", "best"))
    parser.add_argument("--linear", nargs="+", default=["als", "samples"], choices=("als", "samples"))
    parser.add_argument("--seeds", type=int, default=1, help="number of random splits")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    for task in arguments.tasks:
        for effort in arguments.effort:
            for number, split in enumerate(list_splits(task, arguments.seeds)):
                for linear in arguments.linear:
                    settings = {"linear_iterations": 0} if linear == "als" else {}
                    found = measure(split, effort, arguments.device, **settings)
                    about = {
                        "benchmark": "linear_part",
                        "task": task,
                        "effort": effort,
                        "split": number,
                        "device": arguments.device,
                    }
                    print(json.dumps(about | {"linear_part": linear} | found | machine()), flush=True)


if __name__ == "__main__":
    main()
