"""A fit of ALS, 15 sweeps at 40 latents on a CPU, against cmfrec's (k=40, niter=15) in the same
run, where it is there.

cmfrec (`pip install cmfrec`, no dependency of this project) solves with a few conjugate-gradient
steps by default, and exactly with `use_cg=False`. All fits are timed in turns, so that a busy
moment hits all. Target: at most half the time of cmfrec's default.
"""

import json
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import torch
from workload import machine, ml_1m

from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.als import ALS

SWEEPS, LATENTS, TURNS = 15, 40, 3


def fits(matrix: ObservedMatrix) -> dict[str, Callable[[], object]]:
    """Return every fit to be timed by its name, cmfrec's where it can be imported."""
    found: dict[str, Callable[[], object]] = {
        "deepmf": lambda: ALS(latent_size=LATENTS, epochs=SWEEPS).fit(matrix)
    }
    if find_spec("cmfrec") is None:
        print("cmfrec cannot be imported (pip install cmfrec): deepmf is timed alone")
        return found
    cmfrec = import_module("cmfrec")
    entries = matrix.to_sparse().tocoo().astype(np.float32)
    settings = {
        "k": LATENTS,
        "niter": SWEEPS,
        "nthreads": torch.get_num_threads(),
        "verbose": False,
    }
    found["cmfrec, default"] = lambda: cmfrec.CMF(**settings).fit(entries)
    found["cmfrec, Cholesky"] = lambda: cmfrec.CMF(**settings, use_cg=False).fit(entries)
    return found


def time_fit(fit: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a fit, and those its threads were at work."""
    start, work = time.perf_counter(), time.process_time()
    fit()
    return time.perf_counter() - start, time.process_time() - work


def main() -> None:
    """Time all fits and print a table of the best turns."""
    name, matrix = ml_1m()
    named = fits(matrix)
    turns = [{fit: time_fit(named[fit]) for fit in named} for _ in range(TURNS)]
    seconds, work = (
        {fit: min(turn[fit][part] for turn in turns) for fit in named} for part in (0, 1)
    )
    print(
        f"{SWEEPS} sweeps, {LATENTS} latents, {name}\n{'':<18}{'s':>8}{'CPU s':>8}{'of deepmf':>12}"
    )
    for fit in named:
        print(
            f"{fit:<18}{seconds[fit]:>8.2f}{work[fit]:>8.2f}{seconds[fit] / seconds['deepmf']:>11.1f}x"
        )
    result = {
        "benchmark": "als",
        "sweeps": SWEEPS,
        "latents": LATENTS,
        "seconds": {fit: round(seconds[fit], 2) for fit in named},
        "cpu_seconds": {fit: round(work[fit], 2) for fit in named},
        "data": name,
    }
    print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
