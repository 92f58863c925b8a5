"""Other fields on their own protocols: sensors, genotypes; a JSON line for each fit.

    python benchmarks/fields.py sensors
    python benchmarks/fields.py sensors --model BayesianMF --effort quick

Data are read from the folder of data sets (`deepmf datasets`), and a set that is not there is left
out. Sensors: `sensors/birmingham.npz`, cars in 30 car parks at 1,386 half hours, with the masks of
the authors of BTMF: 40 or 60 % of cells at random (RM), or 40 % of whole days (NM); RMSE of hidden
cells. Columns have their place in time as a position and the half hour as a category. Genotypes:
`genotypes/wheat.npz`, 599 lines with 1,279 markers, of which 10 % of cells are hidden; the share of
hidden cells that is right. Nothing is chosen on hidden cells.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from workload import machine

import deepmf
from deepmf import Features, ObservedMatrix
from deepmf.data.datasets import folder
from deepmf.metrics import rmse_error

SEED_OF_MASKS = 1000
HALF_HOURS = 18  # a day


class Task(NamedTuple):
    """A table, its hidden cells, and what is known of its columns."""

    name: str
    table: npt.NDArray[Any]
    observed: npt.NDArray[np.bool_]
    hidden: npt.NDArray[np.bool_]
    features: Features | None


def list_sensors() -> Iterator[Task]:
    """Yield the tasks of Birmingham's car parks."""
    occupancy = np.load(folder() / "sensors" / "birmingham.npz")["occupancy"].astype(float)
    n_parks, n_days, _ = occupancy.shape
    times = np.arange(n_days * HALF_HOURS)
    features = Features.from_columns(
        times,
        {"time": times.astype(float), "half hour": [f"{time % HALF_HOURS}" for time in times]},
        kinds={"time": "position", "half hour": "category"},
    )
    for kind, share in (("RM", 0.4), ("RM", 0.6), ("NM", 0.4)):
        dice = np.random.RandomState(SEED_OF_MASKS)
        if kind == "RM":
            draws = dice.rand(*occupancy.shape)
        else:
            draws = np.repeat(dice.rand(n_parks, n_days)[:, :, None], HALF_HOURS, axis=2)
        is_kept = np.round(draws + 0.5 - share) > 0
        is_measured = occupancy != 0
        table, observed, hidden = (
            part.reshape(n_parks, -1)
            for part in (occupancy, is_measured & is_kept, is_measured & ~is_kept)
        )
        yield Task(f"birmingham {kind} {share:.0%}", table, observed, hidden, features)


def list_genotypes() -> Iterator[Task]:
    """Yield the task of wheat."""
    markers = np.load(folder() / "genotypes" / "wheat.npz")["markers"].astype(float)
    hidden = np.random.default_rng(5).random(markers.shape) < 0.1
    yield Task("wheat", markers, ~hidden, hidden, None)


FIELDS = {"sensors": list_sensors, "genotypes": list_genotypes}


def measure(task: Task, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Fit a model to a task; return its errors and what it used."""
    rows, columns = np.nonzero(task.observed)
    matrix = ObservedMatrix.from_entries(rows, columns, task.table[rows, columns])
    begin, begin_cpu = time.perf_counter(), time.process_time()
    model = getattr(deepmf, name)(**settings).fit(matrix, column_features=task.features)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    rows, columns = np.nonzero(task.hidden)
    values = task.table[rows, columns]
    outcome: dict[str, Any] = {"rmse": rmse_error(model.predict(rows, columns), values)}
    if matrix.scale.levels is not None:
        outcome["right"] = float(np.mean(model.predict_levels(rows, columns) == values))
    members = model.chosen_.get("members", {})
    return outcome | {"members": members, "seconds": seconds, "cpu_seconds": cpu_seconds}


def main() -> None:
    """Measure a model on the fields that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fields", nargs="*", metavar="FIELD", help=", ".join(FIELDS))
    parser.add_argument("--model", default="OrdinalDMF")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    unknown = [field for field in asked.fields if field not in FIELDS]
    if unknown:
        parser.error(f"{unknown[0]!r} is not among {', '.join(FIELDS)}")
    settings = {"effort": asked.effort, "seed": asked.seed}
    for field in asked.fields or FIELDS:
        try:
            tasks = list(FIELDS[field]())
        except FileNotFoundError as error:
            print(f"{field}: left out, {error.filename} is not there")
            continue
        for task in tasks:
            record = {"task": task.name, "model": asked.model} | settings
            print(json.dumps(record | measure(task, asked.model, settings) | machine()))


if __name__ == "__main__":
    main()
