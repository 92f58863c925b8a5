"""DMF and DMF-D on MovieLens-1M: errors under the authors' split and under the areas protocol, one JSON line each.

Runs where torch, numpy, scipy and safetensors are; the data is looked for in DEEPMF_DATA. For example, on one GPU:

    PYTHONPATH=src DEEPMF_DATA=data python benchmarks/accuracy.py --jobs 8 --out results/dmf-ml-1m.jsonl \\
        dmf:authors:inputs=raw dmf-d:authors:inputs=raw dmf:areas:seeds=0-4

A job is model:protocol followed by settings; `seeds=0-4` runs one for each seed, which is also the seed of the split.
`errors` are those with the training entries as inputs; for `joined_errors` the validation entries are inputs too, as in
the authors' code at test time. The protocol `choice` is `areas` measured on the validation shares instead of the test
entries, to choose settings by.
"""

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workload import machine

from deepmf.data.datasets import load, load_split
from deepmf.data.splits import split_areas
from deepmf.evaluation.areas import evaluate
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.dmf import DMF
from deepmf.models.dmfd import DMFD
from deepmf.models.model import Model
from deepmf.training.machine import Machine

MODELS: dict[str, type[DMF]] = {"dmf": DMF, "dmf-d": DMFD}


def main() -> None:
    """Run all jobs, some at once, and append a line for each to the output file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs_given", nargs="+", metavar="JOB", help="model:protocol[:setting=value]...")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at once")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    jobs = [job for text in options.jobs_given for job in parse(text)]
    if options.jobs == 1:
        results: Iterator[dict[str, Any]] = map(run, jobs)
        write(results, options.out)
        return
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        write(pool.imap_unordered(run, jobs), options.out)


def parse(text: str) -> Iterator[dict[str, Any]]:
    """Yield the jobs that one argument stands for."""
    model, protocol, *settings = text.split(":")
    given = dict(setting.split("=", 1) for setting in settings)
    first, _, last = given.pop("seeds", "0").partition("-")
    for seed in range(int(first), int(last or first) + 1):
        yield {"model": model, "protocol": protocol, "seed": seed, "settings": {k: _value(v) for k, v in given.items()}}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Fit one model and measure it on the test entries, once."""
    settings = {"seed": job["seed"], "validate_every": 10} | job["settings"]
    model = MODELS[job["model"]](**settings)
    start = time.perf_counter()
    if job["protocol"] == "authors":
        split = load_split("ml-1m")
        fitted, seconds = timed_fit(model, split.train, split.validation)
        joined, tests = fitted.extend(split.validation), {"all": split.test}
        plain: Model = fitted
    else:
        areas = split_areas(load("ml-1m"), new_rows=0.2, new_columns=0.2, seed=job["seed"])
        fitted, seconds = timed_fit(model, areas.train, areas.validation)
        plain = fitted.extend(areas.extension)
        joined, tests = plain.extend(areas.validation), areas.test
        if job["protocol"] == "choice":
            tests = areas.new_validation
    errors = {area: measure(plain, test) for area, test in tests.items()}
    joined_errors = {area: measure(joined, test) for area, test in tests.items()}
    history = fitted.history_
    return (
        job
        | {
            "errors": errors,
            "joined_errors": joined_errors,
            "best_epoch": history.best_epoch,
            "validation_rmse": history.best_error,
            "epochs": len(history),
            "fit_seconds": round(seconds, 2),
            "epoch_seconds": round(history.seconds, 2),
            "all_seconds": round(time.perf_counter() - start, 2),
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "notes": history.records[-1].notes,
            "hardware": Machine(model.settings.device).describe(),
        }
        | machine()
    )


def timed_fit(model: DMF, train: ObservedMatrix, validation: ObservedMatrix) -> tuple[DMF, float]:
    """Fit, and time it."""
    start = time.perf_counter()
    return model.fit(train, validation), time.perf_counter() - start


def measure(model: Model, test: ObservedMatrix) -> dict[str, float | None]:
    """Return the errors of the predictions, and of the levels they are rounded to."""
    overall = evaluate(model, test)[-1]
    return {name: error for name, error in asdict(overall).items() if name != "area"}


def write(results: Iterator[dict[str, Any]], path: Path) -> None:
    """Append each result as it comes, and show its errors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for result in results:
        with path.open("a") as file:
            file.write(json.dumps(result) + "\n")
        names = ("rmse", "level_rmse", "level_mae")
        shown = {
            part: {area: [round(errors[name], 4) for name in names] for area, errors in result[part].items()}
            for part in ("errors", "joined_errors")
        }
        job = [result[name] for name in ("model", "protocol", "seed", "settings")]
        print(*job, shown, f"{result['fit_seconds']} s", flush=True)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    main()
