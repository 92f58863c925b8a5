"""Run the recipes of a table: fit each trial, measure it by area, and keep its records."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deepmf.errors import BadSetting, CannotSave, UnreadableFile, UserError, check_count
from deepmf.evaluation.areas import confusion_matrix, evaluate, evaluate_cold_start
from deepmf.evaluation.calibration import evaluate_calibration
from deepmf.evaluation.comparison import Problem, extend_model
from deepmf.evaluation.ranking import evaluate_ranking
from deepmf.experiments.recipe import NEXT_METRICS, PROTOCOLS, RANKING_METRICS, Recipe
from deepmf.experiments.source import describe_source
from deepmf.matrix.extras import Extras
from deepmf.matrix.labels import Labelled
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.registry import model_class
from deepmf.training.runtime import Runtime

Record = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A recipe, and the split to run it on."""

    recipe: Recipe
    seed: int
    new_share: float

    @property
    def key(self) -> dict[str, Any]:
        """The values that identify this trial in a table."""
        new_share = self.new_share if self.recipe.has_areas else None
        return {"recipe": self.recipe.name, "seed": self.seed, "new_share": new_share}

    @property
    def design(self) -> dict[str, Any]:
        """The parts of the recipe beside its settings that results depend on."""
        return {
            name: getattr(self.recipe, name) for name in ("data", "protocol", "joined", "refit")
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the model."""
        return {"seed": self.seed} | dict(self.recipe.settings)


def list_trials(recipe: Recipe, *, n_splits: int | None = None) -> list[Trial]:
    """Return the trials of a recipe: each share of new rows and columns on its first splits, or on
    all."""
    check_count("splits", 1 if n_splits is None else n_splits)
    shares = recipe.new_shares if recipe.has_areas else recipe.new_shares[:1]
    return [Trial(recipe, seed, share) for share in shares for seed in recipe.seeds[:n_splits]]


def run_trial(trial: Trial) -> list[Record]:
    """Fit once, and return one record for each area of the test entries."""
    # before the fit, since files may be edited while it runs
    recipe, source = trial.recipe, describe_source()
    problem = PROTOCOLS[recipe.protocol](recipe.data, seed=trial.seed, new_share=trial.new_share)
    fitted_model = model_class(recipe.model)(**trial.settings)
    start = time.perf_counter()
    fitted_model.fit(problem.train, problem.validation, progress=False)
    model = _refit(fitted_model, problem, trial.settings) if recipe.refit else fitted_model
    seconds = time.perf_counter() - start
    extended = extend_model(model, problem)
    if recipe.joined:
        extended = extended.extend(problem.validation)
    common = trial.key | source | _describe_run(trial, fitted_model, seconds)
    tests = {area: test for area, test in problem.test.items() if area in model.predicts}
    records = [
        common | {"area": area} | _measure_errors(extended, test) for area, test in tests.items()
    ]
    epochs = (
        epoch_record
        for epoch_record in fitted_model.history_.records
        if epoch_record.validation_error is not None
    )
    curve = [
        [epoch_record.epoch, epoch_record.loss, epoch_record.validation_error]
        for epoch_record in epochs
    ]
    # once for each trial
    records[0] |= {"curve": curve} | _describe_quantizer(extended, problem.test["I"])
    return records


def _refit(chosen: Model, problem: Problem, settings: dict[str, Any]) -> Model:
    """Fit again on training and validation entries, for the number of epochs that was best."""
    best = chosen.history_.best_epoch
    if best is not None:
        settings = settings | {"epochs": best + 1}
    train, parts = problem.train, (problem.train, problem.validation)
    training_and_validation = ObservedMatrix.from_positions(
        Labelled(train.rows, np.concatenate([part.entry_rows for part in parts])),
        Labelled(train.columns, np.concatenate([part.by_row.columns for part in parts])),
        np.concatenate([part.values.astype(np.float64) for part in parts]),
        scale=train.scale,
        extras=Extras.join([(part.n_entries, part.extras) for part in parts]),
    )
    return type(chosen)(**settings).fit(training_and_validation, progress=False)


def _measure_errors(model: Model, test: ObservedMatrix) -> Record:
    if not test.has_values:
        is_next = bool(np.all(test.row_counts <= 1))
        ranked = evaluate_ranking(model, test, n=10 if is_next else 20).model
        metrics = NEXT_METRICS if is_next else RANKING_METRICS
        return {metric: getattr(ranked, metric.removeprefix("next_")) for metric in metrics}
    overall = asdict(evaluate(model, test)[-1])
    errors: Record = {
        name: value for name, value in overall.items() if name != "area" and value is not None
    }
    errors["cold_start"] = [list(astuple(group)) for group in evaluate_cold_start(model, test)]
    if model.scale_.levels is not None:
        errors["confusion"] = confusion_matrix(model, test).tolist()
        if model.gives_distribution:
            calibration = evaluate_calibration(model, test, coverage=0.9)
            errors |= {"calibration_error": calibration.error, "coverage": calibration.coverage}
    return errors


def _describe_quantizer(model: Model, test: ObservedMatrix) -> Record:
    """Return the learned boundaries between levels and a histogram of the scores; empty without
    boundaries."""
    boundaries = getattr(model, "boundaries_", None)
    if boundaries is None or model.scale_.levels is None:
        return {}
    limits = model.scale_.low, model.scale_.high
    counts, edges = np.histogram(model.scores(*test.entries()[:2]), bins=80, range=limits)
    learned = {"levels": model.scale_.levels.tolist(), "boundaries": boundaries.tolist()}
    return learned | {"scores": {"edges": edges.tolist(), "counts": counts.tolist()}}


def _describe_run(trial: Trial, model: Model, seconds: float) -> Record:
    history = model.history_
    return {
        "model": trial.recipe.model,
        **trial.design,
        "settings": model.settings.to_dict(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hardware": Runtime(getattr(model.settings, "device", "cpu")).describe(),
        "runtime": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
        "seconds": round(seconds, 2),
        "peak_memory_mb": measure_peak_memory_mb(),
        "epochs": len(history),
        "best_epoch": history.best_epoch,
        "validation_rmse": history.best_error,
    }


def measure_peak_memory_mb() -> int:
    """Return the peak memory of this process so far in MiB, Python and all libraries included; 0 on
    Windows."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # bytes on macOS, KiB elsewhere
    return int(peak // (1 << 20 if sys.platform == "darwin" else 1 << 10))


_NEEDED = {"recipe", "seed", "new_share", "area", "commit", "data", "settings"}

START_OVER = "delete the folder to start from scratch, or give another with --out"


class Results:
    """The finished trials of all tables under one folder, a file for each, from which a killed run
    continues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def records(self, recipes: Iterable[Recipe]) -> list[Record]:
        """Return the records of some recipes, which may be rows of several tables."""
        names = {recipe.name for recipe in recipes}
        tables = sorted({name.partition("/")[0] for name in names})
        return [
            record for table in tables for record in self._read(table) if record["recipe"] in names
        ]

    def find_missing(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials still to run; raise `BadSetting` if results have another source or
        other settings."""
        now, trials_by_key, done = (
            describe_source(),
            {_identify(trial.key): trial for trial in trials},
            set[Any](),
        )
        for table in {trial.recipe.table for trial in trials}:
            for record in self._read(table):
                _check_alike(record, trials_by_key.get(_identify(record)), now, self.folder / table)
                done.add(_identify(record))
        return [trial for trial in trials if _identify(trial.key) not in done]

    def check_writable(self, trials: Iterable[Trial]) -> None:
        """Raise `CannotSave` before the first fit if records of these trials cannot be written."""
        for table in {trial.recipe.table for trial in trials}:
            self._append(table, "")

    def add(self, records: Sequence[Record]) -> None:
        """Append the records of one trial, all of them or none."""
        text = "".join(json.dumps(record) + "\n" for record in records)
        self._append(records[0]["recipe"].partition("/")[0], text)

    def _find(self, table: str) -> Path:
        return self.folder / table / "results.jsonl"

    def _read(self, table: str) -> list[Record]:
        """Return all records of a table; an incomplete last line is ignored."""
        path = self._find(table)
        if not path.exists():
            return []
        try:
            # without a line that was not finished
            *lines, _ = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableFile(f"{path} cannot be read ({error})") from error
        try:
            records: list[Record] = list(map(json.loads, lines))
        except json.JSONDecodeError as error:
            raise UnreadableFile(f"{path} has a line that is not JSON ({error})") from error
        if not all(isinstance(record, dict) and record.keys() >= _NEEDED for record in records):
            raise UnreadableFile(f"{path} has a line that is not a result; {START_OVER}")
        return records

    def _append(self, table: str, text: str) -> None:
        path = self._find(table)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+b") as file:
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)  # without a line that was not finished
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CannotSave(f"{path} could not be written ({error.strerror})") from error


def _check_alike(record: Record, trial: Trial | None, now: Mapping[str, str], folder: Path) -> None:
    """Refuse a record of another source than `now`, or of other settings than its trial has."""
    for part, present_value in now.items():
        if record.get(part, present_value) != present_value:
            raise BadSetting(
                f"{folder} holds results of {part} {record[part]}; this is {present_value}, and the two are not mixed: "
                f"{START_OVER}"
            )
    if trial is not None and (differing := _name_differences(record, trial)):
        raise BadSetting(
            f"{folder} holds {record['recipe']} with other settings ({differing}): {START_OVER}"
        )


def _identify(holder: dict[str, Any]) -> tuple[str, int, float | None]:
    return holder["recipe"], holder["seed"], holder["new_share"]


def _name_differences(record: Record, trial: Trial) -> str:
    """Name the settings in which a record and a trial differ, except settings that the fit
    chose."""
    model = model_class(trial.recipe.model)(**trial.settings)
    settings = model.own_settings
    present_settings = json.loads(json.dumps(settings | trial.design))
    fitted = {name: value for name, value in record["settings"].items() if name in settings}
    recorded_settings = fitted | {name: record.get(name) for name in trial.design}
    return ", ".join(
        name
        for name in present_settings | recorded_settings
        if present_settings.get(name) != recorded_settings.get(name)
    )


Work = Callable[[Trial], list[Record]]


@dataclass(frozen=True)
class Progress:
    """Progress of a run: the records of the last trial, the trials done and in all, and the seconds
    left."""

    records: list[Record]
    n_done: int
    n_trials: int
    seconds_left: float


def run(
    work: Work, trials: Sequence[Trial], results: Results, *, jobs: int = 1
) -> Iterator[Progress]:
    """Run the trials that are not in the results yet, keep each as it ends, and yield the progress.

    A trial that fails does not stop the others; the first failure is raised at the end.
    """
    check_count("jobs", jobs)
    missing = results.find_missing(trials)
    results.check_writable(missing)
    start = time.perf_counter()
    failed: list[tuple[str, UserError]] = []
    for number, outcome in enumerate(
        _run_each(partial(_run_trial, work), missing, min(jobs, len(missing))), start=1
    ):
        if isinstance(outcome, tuple):
            failed.append(outcome)
            continue
        results.add(outcome)
        seconds_left = (time.perf_counter() - start) / number * (len(missing) - number)
        yield Progress(outcome, len(trials) - len(missing) + number, len(trials), seconds_left)
    if failed:
        first, error = failed[0]
        raise type(error)(f"{len(failed)} of {len(missing)} fits failed, first {first}: {error}")


# the records of a trial, or its name and why it failed
Outcome = list[Record] | tuple[str, UserError]


def _run_trial(work: Work, trial: Trial) -> Outcome:
    try:
        return work(trial)
    except UserError as error:
        return f"{trial.recipe.name}, split {trial.seed}", error


def _run_each(
    work: Callable[[Trial], Outcome], trials: Sequence[Trial], jobs: int
) -> Iterator[Outcome]:
    if jobs <= 1:
        yield from map(work, trials)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    # A fresh process for each trial: its peak memory is its own, and a GPU's memory is given back.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        jobs, spawn, torch.set_num_threads, (threads,), max_tasks_per_child=1
    ) as pool:
        try:
            yield from (
                done.result()
                for done in as_completed([pool.submit(work, trial) for trial in trials])
            )
        except BrokenProcessPool as error:
            raise BadSetting(
                f"a fit was killed, perhaps out of memory; fewer --jobs than {jobs} need less"
            ) from error
        except KeyboardInterrupt:
            # Ctrl-C reaches them too, but other signals do not
            for child in multiprocessing.active_children():
                child.terminate()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
