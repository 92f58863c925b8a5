"""Predictions for cells that nobody chose: models learn from chosen entries and are tested on
random cells.

    python benchmarks/asked.py --folder data/coat
    python benchmarks/asked.py --kind love --models means,als

The folder has `chosen.csv` and `random.csv`. Without it, a set of a kind is generated: rows rate
what they "like", nearly only what they "love", or some rows and columns are chosen by liking more
than others ("uneven"). A share of the random cells is given to `fit` as `asked`, drawn five times;
the others are the test. Prints a JSON line for each model: the mean RMSE of the model as learned
and with asked cells, that of the asked cells' mean, and the share of values that 90 % intervals
hold.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from workload import QUICK, machine

from deepmf import ObservedMatrix, Scale, read_matrix
from deepmf.metrics import rmse_error
from deepmf.models.registry import model_class

SHAPE, CHOSEN_A_ROW, N_RANDOM = ((60, 40), 8, 1000) if QUICK else ((600, 300), 20, 40_000)
KINDS = {"like": (1.8, 1.0, 1.2, 0.0), "love": (0.8, 2.0, 1.6, 0.0), "uneven": (1.8, 1.0, 1.2, 0.6)}


def generate(kind: str, seed: int = 0) -> tuple[ObservedMatrix, ObservedMatrix]:
    """Return entries that rows chose, and random cells beside them."""
    level, spread, strength, unevenness = KINDS[kind]
    numbers = np.random.default_rng(seed)
    rows, columns = (numbers.normal(size=(count, 4)) * [0.7, 0.7, 0.7, 0.4] for count in SHAPE)
    taste = (
        rows[:, :3] @ columns[:, :3].T + rows[:, 3:] + columns[:, 3] + numbers.normal(size=SHAPE)
    )
    values = np.clip(np.round(level + spread * taste), 1, 5)
    uneven = numbers.normal(size=(SHAPE[0], 1)) + numbers.normal(size=(1, SHAPE[1]))
    order = np.argsort(
        -strength * np.exp(unevenness * uneven) * values - numbers.gumbel(size=SHAPE), axis=1
    )
    is_chosen = np.zeros(SHAPE, dtype=bool)
    np.put_along_axis(is_chosen, order[:, :CHOSEN_A_ROW], True, axis=1)
    cells = np.flatnonzero(is_chosen), numbers.permutation(np.flatnonzero(~is_chosen))[:N_RANDOM]
    places = [np.unravel_index(each, SHAPE) for each in cells]
    scale = Scale([1, 2, 3, 4, 5])
    chosen, random = (ObservedMatrix.from_entries(at[0], at[1], values[at], scale) for at in places)
    return chosen, random


def measure(
    name: str, effort: str, chosen: ObservedMatrix, random: ObservedMatrix, draws: list[Any]
) -> dict[str, Any]:
    """Return the mean errors of a model over some draws of asked cells."""
    settings = {"seed": 0} | ({"effort": effort} if name == "dmf-o" else {})
    learned, found = model_class(name)(**settings).fit(chosen, progress=False), []
    for is_asked in draws:
        asked, test = random.take_entries(is_asked), random.take_entries(~is_asked)
        model = model_class(name)(**settings).fit(chosen, asked=asked, progress=False)
        (*pairs, values), held = test.entries(), np.nan
        if model.gives_distribution:
            lower, upper = model.predict_interval(*pairs, unknown="fallback")
            held = float(np.mean((lower <= values) & (values <= upper)))
        predicted = [each.predict(*pairs, unknown="fallback") for each in (learned, model)]
        predicted.append(np.full(values.size, asked.values.mean()))
        told = model.asked_ or {}
        effects = told["row_effects"], told["column_effects"]
        found.append([*(rmse_error(each, values) for each in predicted), held, *effects])
    names = (
        "rmse_as_learned",
        "rmse",
        "rmse_of_mean",
        "intervals_hold",
        "row_effects",
        "column_effects",
    )
    means = [None if np.isnan(each) else round(float(each), 5) for each in np.mean(found, axis=0)]
    return dict(zip(names, means, strict=True)) | {
        "rmse_sd": round(float(np.std(found, axis=0)[1]), 5)
    }


def main() -> None:
    """Measure some models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--kind", choices=KINDS, default="like")
    parser.add_argument("--models", default="means,als,bayesian,dmf-o")
    parser.add_argument("--effort", default="normal", help="of dmf-o")
    parser.add_argument(
        "--share", type=float, default=0.05, help="share of random cells that are asked"
    )
    parser.add_argument("--draws", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.folder is None:
        chosen, random = generate(arguments.kind)
    else:
        chosen, random = (
            read_matrix(arguments.folder / f"{each}.csv") for each in ("chosen", "random")
        )
    numbers, n_asked = np.random.default_rng(0), round(arguments.share * random.n_entries)
    draws = [numbers.permutation(random.n_entries) < n_asked for _ in range(arguments.draws)]
    what = {
        "data": arguments.folder.name if arguments.folder else f"generated, {arguments.kind}",
        "n_asked": n_asked,
    }
    for name in arguments.models.split(","):
        found = measure(name, arguments.effort, chosen, random, draws)
        line = {
            "benchmark": "asked",
            **what,
            "model": name,
            "draws": arguments.draws,
            "effort": arguments.effort,
        }
        print(json.dumps(line | found | machine()), flush=True)


if __name__ == "__main__":
    main()
