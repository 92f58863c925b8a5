"""Other fields on their own protocols: sensors, genotypes, drug targets; a JSON line for each task.

    python benchmarks/fields.py sensors
    python benchmarks/fields.py sensors --model BayesianMF --effort quick

Data are read from the folder of data sets (`deepmf datasets`), and a set that is not there is left
out. Sensors: `sensors/birmingham.npz`, cars in 30 car parks at 1,386 half hours, with the masks of
the authors of BTMF: 40 or 60 % of cells at random (RM), or 40 % of whole days (NM); RMSE of hidden
cells. Columns have their place in time as a position and the half hour as a category. Genotypes:
`genotypes/wheat.npz`, 599 lines with 1,279 markers, of which 10 % of cells are hidden; the share of
hidden cells that is right. Drug targets: `drug_targets/nuclear_receptors.npz`, which of 54 drugs bind
to which of 26 receptors, with similarities of both; the area under precision and recall, in ten folds
of hidden pairs, of new drugs, and of new targets. Nothing is chosen on hidden cells.

Seconds and memory at size, of generated tables, are measured if they are asked for: `panel`,
genotypes of 1,814 x 10,346, a tenth hidden; `catalogue`, 10^6 entries in 10^5 columns.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from workload import machine

import deepmf
from deepmf import Features, ObservedMatrix
from deepmf.data.datasets import folder
from deepmf.data.synthetic import generate
from deepmf.metrics import rmse_error

SEED_OF_MASKS = 1000
HALF_HOURS = 18  # a day
N_FOLDS = 10


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


def list_panel() -> Iterator[Task]:
    """Yield the task of generated genotypes: mosaics of two of some ancestral chromosomes."""
    n_samples, n_markers, n_ancestors, region = 1814, 10_346, 12, 60
    dice = np.random.default_rng(0)
    ancestors = dice.random((n_ancestors, n_markers)) < dice.uniform(0.1, 0.6, n_markers)
    counts = np.zeros((n_samples, n_markers))
    for _ in range(2):
        for start in range(0, n_markers, region):
            columns = slice(start, start + region)
            counts[:, columns] += ancestors[dice.integers(n_ancestors, size=n_samples), columns]
    hidden = dice.random(counts.shape) < 0.1
    yield Task("panel", counts, ~hidden, hidden, None)


def measure_catalogue(name: str, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the error of a model of many columns with few entries each."""
    data = generate(20_000, 100_000, n_entries=1_100_000, named=False).matrix
    is_hidden = np.random.default_rng(0).random(data.n_entries) < 1 / 11
    train = data.take_entries(np.flatnonzero(~is_hidden))
    test = data.take_entries(np.flatnonzero(is_hidden))
    clock = Clock()
    model = getattr(deepmf, name)(**settings).fit(train)
    seconds = clock.read()
    predicted = model.predict(test.entry_rows, test.by_row.columns)
    outcome = {"task": "catalogue", "rmse": rmse_error(predicted, test.values)}
    yield outcome | {"members": model.chosen_.get("members", {})} | seconds


def measure(task: Task, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Fit a model to a task; return its errors and what it used."""
    if name == "DMFImputer":
        return measure_imputer(task, settings)
    rows, columns = np.nonzero(task.observed)
    matrix = ObservedMatrix.from_entries(rows, columns, task.table[rows, columns])
    clock = Clock()
    model = getattr(deepmf, name)(**settings).fit(matrix, column_features=task.features)
    seconds = clock.read()
    rows, columns = np.nonzero(task.hidden)
    values = task.table[rows, columns]
    outcome: dict[str, Any] = {"task": task.name}
    outcome["rmse"] = rmse_error(model.predict(rows, columns), values)
    if matrix.scale.levels is not None:
        outcome["right"] = float(np.mean(model.predict_levels(rows, columns) == values))
    return outcome | {"members": model.chosen_.get("members", {})} | seconds


def measure_imputer(task: Task, settings: dict[str, Any]) -> dict[str, Any]:
    """Complete a table, whose rows are in time where its columns have positions; return its
    errors."""
    from deepmf.sklearn import DMFImputer

    is_ordered = task.features is not None
    holes, table, hidden = np.where(task.observed, task.table, np.nan), task.table, task.hidden
    if is_ordered:
        holes, table, hidden = holes.T, table.T, hidden.T
    clock = Clock()
    imputer = DMFImputer(
        order=np.arange(len(holes)) if is_ordered else None, random_state=settings["seed"]
    )
    completed = imputer.fit_transform(holes)[hidden]
    seconds, values = clock.read(), table[hidden]
    outcome: dict[str, Any] = {"task": task.name, "rmse": rmse_error(completed, values)}
    levels = np.unique(table[task.observed.T if is_ordered else task.observed])
    if levels.size <= 10:
        outcome["right"] = float(np.mean(np.rint(completed) == values))
    return outcome | {"members": imputer.weights_} | seconds


class Clock:
    """The seconds since it was made: those that passed, and those of all cores; peak memory."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Return them."""
        return {
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
            "seconds": time.perf_counter() - self._begin[0],
            "cpu_seconds": time.process_time() - self._begin[1],
        }


def measure_tables(
    list_tasks: Callable[[], Iterator[Task]], name: str, settings: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the errors of a model in each of some tasks."""
    for task in list_tasks():
        yield measure(task, name, settings)


class Interactions(NamedTuple):
    """Which drugs bind to which targets, and how similar drugs and targets are."""

    table: npt.NDArray[Any]
    drugs: npt.NDArray[Any]
    targets: npt.NDArray[Any]

    def predict(
        self, hidden: npt.NDArray[np.bool_], name: str, settings: dict[str, Any]
    ) -> tuple[npt.NDArray[np.float64], dict[str, float]]:
        """Return the predictions of hidden pairs by a model that has the others, and its members.

        Drugs and targets whose pairs are all hidden come after training, by their similarity.
        """
        rows, columns = np.nonzero(~hidden)
        matrix = ObservedMatrix.from_entries(rows, columns, self.table[rows, columns])
        known, new = {}, {}
        similarities = {"row": self.drugs, "column": self.targets}
        for (axis, similar), is_new in zip(
            similarities.items(), (hidden.all(axis=1), hidden.all(axis=0)), strict=True
        ):
            old, later = np.flatnonzero(~is_new), np.flatnonzero(is_new)
            known[f"{axis}_features"] = Features.from_similarity(old, similar[np.ix_(old, old)])
            if later.size:
                to_known = similar[np.ix_(later, old)]
                new[f"{axis}_features"] = Features.from_similarity(later, to_known, to=old)
        model = getattr(deepmf, name)(**settings).fit(matrix, **known)
        extended = model.extend(None, **new) if new else model
        return extended.predict(*np.nonzero(hidden)), model.chosen_["members"]


def measure_drug_targets(name: str, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the mean area under precision and recall over ten folds of pairs, drugs and targets."""
    from sklearn.metrics import auc, precision_recall_curve

    stored = np.load(folder() / "drug_targets" / "nuclear_receptors.npz")
    similar = stored["drug_similarity"], stored["target_similarity"]
    # both sides of the published table differ; their mean counts
    interactions = Interactions(stored["interactions"], *((side + side.T) / 2 for side in similar))
    table = interactions.table
    places = {
        "pairs": np.arange(table.size).reshape(table.shape),
        "new drugs": np.arange(table.shape[0])[:, None],
        "new targets": np.arange(table.shape[1])[None],
    }
    for task, place in places.items():
        areas, shares, clock = [], [], Clock()
        for fold in np.array_split(np.random.default_rng(11).permutation(place.size), N_FOLDS):
            hidden = np.broadcast_to(np.isin(place, fold), table.shape)
            predicted, members = interactions.predict(hidden, name, settings)
            precision, recall, _ = precision_recall_curve(table[hidden], predicted)
            areas.append(float(auc(recall, precision)))
            shares.append(members.get("similarity", 0.0))
        outcome = {"task": f"nuclear receptors, {task}", "area": float(np.mean(areas))}
        yield outcome | {"similarity": float(np.mean(shares)), "fits": N_FOLDS} | clock.read()


Measure = Callable[[str, dict[str, Any]], Iterator[dict[str, Any]]]

FIELDS: dict[str, Measure] = {
    "sensors": partial(measure_tables, list_sensors),
    "genotypes": partial(measure_tables, list_genotypes),
    "drug-targets": measure_drug_targets,
}
GENERATED: dict[str, Measure] = {
    "panel": partial(measure_tables, list_panel),
    "catalogue": measure_catalogue,
}


def main() -> None:
    """Measure a model on the fields that are asked for."""
    measures = FIELDS | GENERATED
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fields", nargs="*", metavar="FIELD", help=", ".join(measures))
    parser.add_argument("--model", default="OrdinalDMF", help="or DMFImputer")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    unknown = [field for field in asked.fields if field not in measures]
    if unknown:
        parser.error(f"{unknown[0]!r} is not among {', '.join(measures)}")
    settings = {"effort": asked.effort, "seed": asked.seed}
    for field in asked.fields or FIELDS:
        try:
            for outcome in measures[field](asked.model, settings):
                record = {"model": asked.model} | settings | outcome | machine()
                print(json.dumps(record), flush=True)
        except FileNotFoundError as error:
            print(f"{field}: left out, {error.filename} is not there", file=sys.stderr)


if __name__ == "__main__":
    main()
