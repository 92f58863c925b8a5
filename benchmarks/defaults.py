"""OrdinalDMF by default, with nothing set, on matrices of many shapes, beside other models by
default.

python benchmarks/defaults.py                             all that this machine can do, one after
another python benchmarks/defaults.py counts u1 --device cpu      some of them python
benchmarks/defaults.py --small --first-seed 100    several draws of every small kind (`kinds.py`)
python benchmarks/defaults.py --jobs 8 --effort quick

Prints a JSON line for each matrix: the test RMSE of all models, seconds of each fit, peak memory
(of the process with Python and torch), calibration error and coverage of 90 % intervals on the test
entries, also on those of short rows and columns alone, and what was chosen. Of small kinds,
`above_best` is how far OrdinalDMF is above the best of the others, in percent, in each draw.
Generated matrices have noise 1 unless said otherwise; MovieLens is left out where it is not there.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from kinds import KINDS, make_kind
from workload import QUICK, machine

from deepmf.data import Split, split_entries
from deepmf.datasets import find, generate, load, load_split
from deepmf.errors import DeepMFWarning
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.metrics import calibration_error, interval_coverage_score, rmse_error
from deepmf.models.als import ALS
from deepmf.models.base import Model
from deepmf.models.bayesian import BayesianMF
from deepmf.models.means import Means
from deepmf.models.ordinal.model import OrdinalDMF

SEED = 5

# Rows and columns with fewer training entries than this are short.
SHORT_ROW, SHORT_COLUMN = 15, 3


def generate_split(
    n_rows: int, n_columns: int, n_entries: int, *, rank: int = 12, noise: float = 1.0, **more: Any
) -> Split:
    """Return a generated matrix in parts."""
    settings = {"rank": rank, "noise": noise, "named": False, "seed": SEED} | more
    matrix = generate(n_rows, n_columns, n_entries=n_entries, **settings).matrix
    return split_matrix(matrix, few=n_entries >= 3_000_000)


def split_matrix(matrix: ObservedMatrix, *, few: bool = False) -> Split:
    """Return the entries as 80 / 5 / 15 %, or with few to validate and test on."""
    shares = (0.88, 0.02, 0.10) if few else (0.80, 0.05, 0.15)
    return split_entries(matrix, train=shares[0], validation=shares[1], test=shares[2], seed=0)


def real_values(n_rows: int, n_columns: int, n_entries: int, noise: float) -> Split:
    """Return real values in [-10, 10]."""
    drawn = generate(
        n_rows,
        n_columns,
        n_entries=n_entries,
        levels=None,
        rank=5,
        noise=noise,
        named=False,
        seed=SEED,
    )
    rows, columns, values = drawn.matrix.entries()
    scale = Scale(low=-10, high=10)
    return split_matrix(
        ObservedMatrix.from_entries(rows, columns, np.clip(4 * values, -10, 10), scale)
    )


def some_entries(name: str, n_entries: int) -> Split:
    """Return random entries of a data set."""
    matrix = load(name)
    chosen = np.random.default_rng(0).permutation(matrix.n_entries)[:n_entries]
    return split_matrix(matrix.take_entries(np.sort(chosen)))


def load_published(name: str) -> Split:
    """Return the published split, 5 % of its training entries for validation where it has none."""
    split = load_split(name)
    if split.validation.n_entries:
        return split
    parts = split_entries(split.train, train=0.95, validation=0.05, test=0.0, seed=0)
    return Split(parts.train, parts.validation, split.test)


HALF_STARS, HUNDRED = np.arange(1, 11) / 2, np.arange(101.0)
CASES: dict[str, tuple[str, Callable[[], Split]]] = {
    "ml-100k, 10,000": (
        "10,000 entries of MovieLens-100K",
        lambda: some_entries("ml-100k", 10_000),
    ),
    "ml-100k": ("100,000 entries of MovieLens-100K", lambda: some_entries("ml-100k", 100_000)),
    "u1": ("MovieLens-100K, u1", lambda: load_published("ml-100k")),
    "authors": ("MovieLens-1M, the authors' split", lambda: load_published("ml-1m")),
    "tall": ("50,000 x 40, 60 % observed", lambda: generate_split(50_000, 40, 1_200_000, rank=6)),
    "wide": ("500 x 50,000, 1 % observed", lambda: generate_split(500, 50_000, 250_000, rank=6)),
    "half stars": (
        "1,500 x 2,000, 28,000 half stars",
        lambda: generate_split(1500, 2000, 28_000, rank=6, levels=HALF_STARS),
    ),
    "hundred": (
        "2,000 x 1,000, 101 levels",
        lambda: generate_split(2000, 1000, 100_000, rank=6, levels=HUNDRED),
    ),
    "binary": (
        "2,000 x 1,000, 0 / 1",
        lambda: generate_split(2000, 1000, 100_000, rank=6, levels=(0.0, 1.0)),
    ),
    "genotypes": (
        "1,000 x 800, 0 / 1 / 2, 80 % observed, rank 5, noise .3",
        lambda: generate_split(
            1000,
            800,
            640_000,
            rank=5,
            noise=0.3,
            levels=(0.0, 1.0, 2.0),
            popularity=0.0,
            selection=0.0,
        ),
    ),
    "real values": (
        "5,000 x 100, real values in [-10, 10], 70 % observed",
        lambda: real_values(5000, 100, 350_000, 1.0),
    ),
    "noisy": (
        "2,000 x 300, real values, 10 % observed, noise 2",
        lambda: real_values(2000, 300, 60_000, 2.0),
    ),
    "long": (
        "20,000 x 250,000, 800,000 entries",
        lambda: generate_split(20_000, 250_000, 800_000, rank=6),
    ),
    "3 million": (
        "20,000 x 8,000, 3 million entries",
        lambda: generate_split(20_000, 8000, 3_000_000),
    ),
    "10 million": (
        "70,000 x 10,700, 10 million entries",
        lambda: generate_split(70_000, 10_700, 10_000_000),
    ),
}


def measure(case: str, effort: str, device: str, seeds: range) -> dict[str, Any]:
    """Return the errors and costs of all models on one matrix, or their means over several draws of
    a small kind."""
    is_small = case in KINDS
    words, make = (case, None) if is_small else CASES[case]
    splits = [make_kind(case, seed) for seed in seeds] if make is None else [make()]
    runs = [measure_split(split, effort, device, with_samples=is_small) for split in splits]
    first, peak = splits[0].train, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = {"rows": first.shape[0], "columns": first.shape[1], "entries": first.n_entries}
    named: dict[str, Any] = {
        "benchmark": "defaults",
        "case": case,
        "matrix": words,
        "effort": effort,
    }
    if first.scale.levels is not None:
        # Of all test entries together: a few hundred have a calibration error by chance alone.
        forecasts, values = (
            np.concatenate(each)
            for each in zip(*(run.pop("forecasts") for run in runs), strict=True)
        )
        named["calibration_error"] = round(
            calibration_error(forecasts, values, scale_levels=first.scale.levels), 4
        )
    if is_small:
        others = [
            min(error for name, error in run["rmse"].items() if name != "dmf-o") for run in runs
        ]
        above = [
            100 * (run["rmse"]["dmf-o"] / best - 1) for run, best in zip(runs, others, strict=True)
        ]
        named["above_best"] = [round(each, 1) for each in above]
        named["coverages"] = [round(run["coverage"], 3) for run in runs]
    return named | size | mean_of(runs) | {"peak_mb": round(peak)} | machine()


def measure_split(split: Split, effort: str, device: str, *, with_samples: bool) -> dict[str, Any]:
    """Return the errors and costs of all models on one split."""
    models: dict[str, Model] = {
        "means": Means(),
        "als": ALS(),
        "dmf-o": OrdinalDMF(effort=effort, device=device),
    }
    if with_samples:
        models["bayesian"] = BayesianMF(device=device)
    found: dict[str, Any] = {"rmse": {}, "seconds": {}}
    for name, model in models.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeepMFWarning)
            model.fit(
                split.train,
                split.validation if split.validation.n_entries else None,
                progress=False,
            )
        found["seconds"][name] = time.perf_counter() - start
        found["rmse"][name] = rmse_of(model, split.test)
    ours = models["dmf-o"]
    rows, columns, values = split.test.entries()
    lower, upper = ours.predict_interval(rows, columns, coverage=0.9)
    found["coverage"] = interval_coverage_score(lower, upper, values)
    train = split.train
    row_counts, column_counts = (
        train.row_counts[train.rows.find(rows)],
        train.column_counts[train.columns.find(columns)],
    )
    for name, is_short in (
        ("rows", row_counts < SHORT_ROW),
        ("columns", column_counts < SHORT_COLUMN),
    ):
        if is_short.any():
            held = interval_coverage_score(lower[is_short], upper[is_short], values[is_short])
            found[f"coverage_short_{name}"] = {"held": held, "entries": int(is_short.sum())}
    if split.test.scale.levels is not None:
        found["forecasts"] = ours.predict_distribution(rows, columns), values
    return found | {"validation": dict(ours.history_.stages), "chosen": ours.chosen_}


def mean_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of numbers by name, rounded; what was chosen is that of the first."""

    def mean(values: list[Any]) -> Any:
        return mean_of(values) if isinstance(values[0], dict) else round(float(np.mean(values)), 4)

    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {
        name: runs[0][name] if name == "chosen" else mean([run[name] for run in runs])
        for name in names
    }


def rmse_of(model: Model, test: ObservedMatrix) -> float:
    """Return the error on test entries."""
    rows, columns, values = test.entries()
    return rmse_error(model.predict(rows, columns), values)


def list_runnable(cases: Iterable[str]) -> list[str]:
    """Return the cases whose data is here."""
    needs = {
        "ml-100k, 10,000": "ml-100k",
        "ml-100k": "ml-100k",
        "u1": "ml-100k",
        "authors": "ml-1m",
    }
    return [case for case in cases if case not in needs or find(needs[case]) is not None]


def main() -> None:
    """Run every case in a process of its own, and print what each found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join([*CASES, *KINDS]))
    parser.add_argument("--small", action="store_true", help="all small kinds")
    parser.add_argument(
        "--seeds", type=int, default=1 if QUICK else 4, help="draws of each small kind"
    )
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--here", action="store_true", help="in this process, which must have one case"
    )
    options = parser.parse_args()
    known, seeds = [*KINDS, *CASES], range(options.first_seed, options.first_seed + options.seeds)
    if unknown := [case for case in options.cases if case not in known]:
        parser.error(f"there is no case {unknown[0]!r}; there are: {', '.join(known)}")
    if options.here:
        print(json.dumps(measure(options.cases[0], options.effort, options.device, seeds)))
        return
    by_size = sorted(known, key=lambda case: math.inf if "million" in case else 0)
    cases = list_runnable(
        options.cases or (["80 x 60"] if QUICK else list(KINDS) if options.small else by_size)
    )

    def in_child(case: str) -> None:
        command = [
            sys.executable,
            __file__,
            case,
            "--here",
            "--effort",
            options.effort,
            "--device",
            options.device,
        ]
        command += ["--seeds", str(options.seeds), "--first-seed", str(options.first_seed)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(
            run.stdout if run.returncode == 0 else f"{case} failed",
            end="" if run.stdout else "\n",
            flush=True,
        )

    with ThreadPoolExecutor(options.jobs) as threads:
        list(threads.map(in_child, cases))


if __name__ == "__main__":
    main()
