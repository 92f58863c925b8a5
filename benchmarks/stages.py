"""Seconds of each stage of a fit, and its error: BayesianMF and OrdinalDMF at MovieLens-1M,
BayesianMF at 10^7 entries.

    python benchmarks/stages.py
    python benchmarks/stages.py --tasks generated --device cuda
    python benchmarks/stages.py --tasks ordinal --effort quick

"bayesian" and "ordinal" fit the authors' split of MovieLens-1M, or generated entries of its size;
"generated" has 10^7 entries of rank 12 with noise 1. Every model is fitted twice with the defaults
of its effort: `seconds` are those of the first fit, stages are those of the second, under a
profiler, which adds little. Work on a GPU counts for the stage that waits for it. Prints a JSON
line for each task; it needs torch, numpy and scipy alone.
"""

import argparse
import cProfile
import json
import pstats
import time
from typing import Any

import torch
from workload import machine

from deepmf.data import split_entries
from deepmf.datasets import find, generate, load_split
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.metrics import rmse_error
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.ordinal.model import OrdinalDMF
from deepmf.training.settings import EFFORTS

TASKS = ("bayesian", "ordinal", "generated")

# Functions by name, and the end of the files each is in; stages inside others come after these.
STAGES: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "chosen settings": ("_with_choice", "models/estimator.py"),
    "laid out for training": ("_make_task", "py"),
    "epochs": ("run", "training/loop.py"),
    "predictor": ("_make_predictor", "py"),
    "predictor, encoded": ("encode_all", "gibbs/encoder.py"),
    "predictor, calibrated": ("calibrate", "gibbs/readout.py"),
    "sampler": ("run_chain", "gibbs/chain.py"),
    "presence": ("fit_presence", "recommend/presence_fit.py"),
    "presence, Gram matrices": ("of", "recommend/column_gram.py"),
    "presence, fits": ("fit", "recommend/column_gram.py"),
    "presence, scores of candidates": ("_score", "recommend/presence_fit.py"),
    "presence, liking of candidates": ("log_exceed_block", "scoring/predictor.py"),
    "presence, weights": ("combine", "recommend/presence_fit.py"),
    "groups of rows": ("lay_out", "gibbs/posterior.py"),
}


def read_stages(profile: cProfile.Profile) -> dict[str, float]:
    """Return the seconds of each stage that a profile has seen."""
    found: dict[str, float] = {}
    for (file, _, function), (_, _, _, seconds, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        for stage, (name, ending) in STAGES.items():
            if function == name and "deepmf" in file and file.endswith(ending):
                found[stage] = round(found.get(stage, 0.0) + seconds, 2)
    return {stage: found[stage] for stage in STAGES if stage in found}


def run(task: str, settings: dict[str, str]) -> dict[str, Any]:
    """Fit twice; return the seconds, the stages and the error."""
    if task == "generated":
        matrix = generate(
            70_000, 10_700, n_entries=10_000_000, rank=12, noise=1.0, named=False, seed=5
        ).matrix
        split: Any = split_entries(matrix, train=0.88, validation=0.02, test=0.1, seed=0)
    elif find("ml-1m") is not None:
        split = load_split("ml-1m")
    else:
        matrix = generate(
            6040, 3706, n_entries=1_000_209, rank=12, noise=1.0, named=False, seed=5
        ).matrix
        split = split_entries(matrix, seed=0)
    kind: type[Model] = OrdinalDMF if task == "ordinal" else BayesianMF
    start, work = time.perf_counter(), time.process_time()
    model = kind(**settings).fit(split.train, split.validation)
    seconds, work = time.perf_counter() - start, time.process_time() - work
    profile = cProfile.Profile()
    profile.runcall(kind(**settings).fit, split.train, split.validation)
    return {
        "entries": split.train.n_entries,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(work, 1),
        "epoch_seconds": round(model.history_.seconds or 0.0, 2),
        "stages": read_stages(profile),
        "rmse": round(measure(model, split.test), 4),
        "chosen": model.chosen_on_entries_,
    }


def measure(model: Model, test: ObservedMatrix) -> float:
    """Return the error on test entries."""
    rows, columns, values = test.entries()
    return rmse_error(model.predict(rows, columns), values)


def main() -> None:
    """Run the named tasks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--effort", default="normal", choices=EFFORTS)
    arguments = parser.parse_args()
    # the libraries underneath start before the clock
    if torch.cuda.is_available() and arguments.device != "cpu":
        for presence in ("full", "nearest"):
            BayesianMF(epochs=2, presence=presence).fit(generate(named=False).matrix)
    settings = {"effort": arguments.effort, "device": arguments.device}
    for task in arguments.tasks:
        about = {"benchmark": "stages", "task": task, "effort": arguments.effort}
        print(json.dumps(about | run(task, settings) | machine()), flush=True)


if __name__ == "__main__":
    main()
