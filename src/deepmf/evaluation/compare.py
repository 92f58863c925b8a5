"""Comparing models: each is fitted on the same splits of a matrix, and measured on the test entries."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import gettempdir
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from deepmf.data.splits import AreaSplit, Split, each_fold, split_areas
from deepmf.errors import BadSetting, BadSplit, DeepMFWarning, NothingObserved, UserError
from deepmf.evaluation.areas import AreaErrors, evaluate
from deepmf.files import import_polars, temporary_folder
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import AREAS, Description, ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.fitting import check_features
from deepmf.models.registry import MODELS, model_class
from deepmf.storage.features import pack_raw_features, unpack_raw_features
from deepmf.storage.matrices import pack_matrix, unpack_matrix
from deepmf.storage.model_file import read_file, write_file

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Problem:
    """What a model is given, and by area what it is to predict.

    `extension` describes new rows and columns, where there are any. `choice` holds the validation entries of each
    area, for choosing settings; `test` the entries that are looked at once, at the end.
    """

    train: ObservedMatrix
    validation: ObservedMatrix
    extension: ObservedMatrix | None
    choice: dict[str, ObservedMatrix]
    test: dict[str, ObservedMatrix]

    @classmethod
    def of_split(cls, split: Split) -> Problem:
        """Return the problem of a split whose rows and columns are all known: area I alone."""
        return cls(split.train, split.validation, None, {"I": split.validation}, {"I": split.test})

    @classmethod
    def of_areas(cls, split: AreaSplit) -> Problem:
        """Return the problem of a split by areas; with nothing new there is area I alone."""
        choice = {"I": split.validation} | split.new_validation
        extension = split.extension if split.train.shape != split.extension.shape else None
        return cls(split.train, split.validation, extension, _with_entries(choice), _with_entries(split.test))


def extended_for(model: Model, problem: Problem) -> Model:
    """Return the model with everything that describes new rows and columns, as far as it can take it."""
    if problem.extension is None or model.predicts == ("I",):
        return model
    with some_empty():
        return model.extend(within_reach(model, problem))


@contextmanager
def some_empty() -> Iterator[None]:
    """Take it that some rows and columns of a random split are always empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingObserved)
        yield


def within_reach(model: Model, problem: Problem) -> ObservedMatrix:
    """Return the entries that a model can be extended by: those of known rows, or columns, where it needs them."""
    assert problem.extension is not None
    rows, columns = (
        np.arange(len(new)) if area in model.predicts else np.flatnonzero(known.find(new.array) >= 0)
        for area, new, known in (
            ("II", problem.extension.rows, problem.train.rows),
            ("III", problem.extension.columns, problem.train.columns),
        )
    )
    return problem.extension.take(rows, columns)


def _with_entries(by_area: dict[str, ObservedMatrix]) -> dict[str, ObservedMatrix]:
    return {area: matrix for area, matrix in by_area.items() if matrix.n_entries}


ALL = "all"


_METRICS = tuple(field.name for field in fields(AreaErrors) if field.name not in ("area", "n_entries"))


@dataclass(frozen=True)
class SplitErrors:
    """The errors by area, last those on all test entries ("all") where the model predicts in every area."""

    areas: dict[str, AreaErrors]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> SplitErrors:
        """Return what `to_dict` gave."""
        return cls({area: AreaErrors(**errors) for area, errors in plain["areas"].items()}, plain["seconds"])


def measure(
    model: Model, problem: Problem, row_features: Features | None = None, column_features: Features | None = None
) -> SplitErrors:
    """Fit a new model like this one, and measure it on the test entries, which are looked at here and never else.

    Features are for a model that reads them.
    """
    fresh = type(model)(**model.own_settings)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeepMFWarning)  # the table says which model is no better than the means
        fresh.fit(
            problem.train,
            problem.validation if problem.validation.n_entries else None,
            row_features=row_features if fresh.takes_features else None,
            column_features=column_features if fresh.takes_features else None,
            progress=False,
        )
    seconds = time.perf_counter() - start
    if fresh.history_.stopped == "interrupted":
        raise KeyboardInterrupt
    extended = extended_for(fresh, problem)
    areas = {
        area: replace(evaluate(extended, test)[-1], area=area)
        for area, test in problem.test.items()
        if area in fresh.predicts
    }
    if areas.keys() == problem.test.keys():
        areas[ALL] = _together(list(areas.values()))
    return SplitErrors(areas, seconds)


def _together(parts: list[AreaErrors]) -> AreaErrors:
    """Return the errors on the entries of all areas."""
    counts = np.array([part.n_entries for part in parts])
    found: dict[str, float | None] = {}
    for metric in _METRICS:
        errors = [getattr(part, metric) for part in parts]
        if None in errors:
            found[metric] = None
        elif metric.endswith("rmse"):
            found[metric] = float(np.sqrt(np.average(np.square(errors), weights=counts)))
        else:
            found[metric] = float(np.average(errors, weights=counts))
    return AreaErrors(area=ALL, n_entries=int(counts.sum()), **found)  # type: ignore[arg-type]


TEST_SHARE = 0.2  # of each area


@dataclass(frozen=True)
class SplitPlan:
    """The splits that every model of a comparison is measured on.

    Without `areas`, the entries fall into `folds`, each the test once. With `areas`, there are as many random splits in
    which some rows and columns are new. Validation entries come from what is left for training.
    """

    folds: int = 5
    areas: bool = False
    new_rows: float = 0.2
    new_columns: float = 0.2
    validation: float = 0.05
    seed: int = 0

    def problems(self, matrix: ObservedMatrix) -> Iterator[Problem]:
        """Yield the problem of each split; the same for the same matrix, in any process."""
        if not self.areas:
            splits = each_fold(matrix, self.folds, validation=self.validation, seed=self.seed)
            yield from map(Problem.of_split, splits)
            return
        if isinstance(self.folds, bool) or not isinstance(self.folds, int) or self.folds < 1:
            raise BadSplit(f"folds must be a whole number of at least 1, of random splits here; got {self.folds!r}")
        for number in range(self.folds):
            split = split_areas(
                matrix,
                new_rows=self.new_rows,
                new_columns=self.new_columns,
                train=1.0 - self.validation - TEST_SHARE,
                validation=self.validation,
                test=TEST_SHARE,
                seed=self.seed + number,
            )
            yield Problem.of_areas(split)

    @property
    def part(self) -> str:
        """What one of the splits is called."""
        return "split" if self.areas else "fold"

    def __str__(self) -> str:
        if not self.areas:
            return f"{self.folds} folds, each the test once; seed {self.seed}"
        new = f"{self.new_rows:g} of the rows and {self.new_columns:g} of the columns new"
        how_many = f"{self.folds} random split{'s' * (self.folds > 1)}"
        return f"{how_many} with {new}, {TEST_SHARE:.0%} of each area the test; seeds from {self.seed}"


def peak_memory_mb() -> int:
    """Return the most memory that this process has held so far, in MiB: Python and all libraries included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak // (1 << 20 if sys.platform == "darwin" else 1 << 10))  # in bytes there, in KiB elsewhere


@dataclass(frozen=True)
class ComparedModel:
    """One model: its errors on each split, and its peak memory, None where it had no process of its own.

    `failure` says why it could not be fitted; then it has no splits.
    """

    label: str
    model: str
    settings: dict[str, Any]
    splits: tuple[SplitErrors, ...]
    peak_memory_mb: int | None = None
    failure: str | None = None

    def errors(self, metric: str = "rmse", area: str = ALL) -> FloatArray:
        """Return the error on each split; nothing where the model does not predict in the area."""
        found = [getattr(split.areas[area], metric) for split in self.splits if area in split.areas]
        return np.array([error for error in found if error is not None], dtype=np.float64)

    def mean(self, metric: str = "rmse", area: str = ALL) -> float | None:
        """Return the mean error over the splits."""
        errors = self.errors(metric, area)
        return float(errors.mean()) if errors.size else None

    def spread(self, metric: str = "rmse", area: str = ALL) -> float | None:
        """Return the standard deviation of the error over the splits; None with fewer than two."""
        errors = self.errors(metric, area)
        return float(errors.std(ddof=1)) if errors.size > 1 else None

    @property
    def seconds(self) -> float | None:
        """How long a fit took, on average."""
        return float(np.mean([split.seconds for split in self.splits])) if self.splits else None


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison; `print` shows it as a table."""

    models: tuple[ComparedModel, ...]
    plan: SplitPlan
    data: Description

    @property
    def areas(self) -> list[str]:
        """The areas that some model predicts in, and last all of them where there are several."""
        found = {area for model in self.models for split in model.splits for area in split.areas}
        inside = [area for area in AREAS if area in found]
        return [*inside, ALL] if len(inside) > 1 and ALL in found else inside

    def ranked(self, area: str = ALL) -> list[ComparedModel]:
        """Return the models that predict in an area, the one with the smallest mean RMSE first."""
        errors = {model.label: model.mean("rmse", area) for model in self.models}
        able = [model for model in self.models if errors[model.label] is not None]
        return sorted(able, key=lambda model: errors[model.label] or 0.0)

    @property
    def best(self) -> str | None:
        """The model with the smallest mean RMSE on all test entries; None if no model predicts all of them."""
        ranked = self.ranked()
        return ranked[0].label if ranked else None

    @property
    def best_by_area(self) -> dict[str, str]:
        """The model with the smallest mean RMSE in each area that some model predicts in."""
        return {area: self.ranked(area)[0].label for area in self.areas if area != ALL}

    @property
    def verdict(self) -> str:
        """Which model is best, and on how many splits it is better than the next, as a sentence."""
        ranked = self.ranked()
        if not ranked:
            by_area = ", ".join(f"{label} in area {area}" for area, label in self.best_by_area.items())
            return f"no model predicts all test entries{by_area and f'; best: {by_area}'}"
        best = ranked[0]
        told = f"best: {best.label}, RMSE {best.mean():.4f}"
        if len(ranked) == 1:
            return told
        following = ranked[1]
        ours, theirs = best.errors(), following.errors()
        n_better = int(np.count_nonzero(ours < theirs))
        return (
            f"{told}; the next is {following.label}, {following.mean():.4f}: "
            f"{best.label} is better on {n_better} of {ours.size} {self.plan.part}{'s' * (ours.size > 1)}"
        )

    def to_frame(self) -> pl.DataFrame:
        """Return a polars frame with a line per model and area: mean errors, spreads, seconds and peak memory."""
        lines = [
            {
                "model": model.label,
                "area": area,
                **{
                    name: found
                    for metric in ("rmse", "mae", "level_rmse", "level_mae")
                    for name, found in (
                        (metric, model.mean(metric, area)),
                        (f"{metric}_spread", model.spread(metric, area)),
                    )
                },
                "seconds": model.seconds,
                "peak_memory_mb": model.peak_memory_mb,
            }
            for model in self.models
            for area in self.areas
        ]
        frame: pl.DataFrame = import_polars().DataFrame(lines, infer_schema_length=None)
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: every error of every model on every split, and their means."""
        models = [
            {
                "label": model.label,
                "model": model.model,
                "settings": model.settings,
                "rmse": {area: model.mean("rmse", area) for area in self.areas},
                "rmse_spread": {area: model.spread("rmse", area) for area in self.areas},
                "mae": {area: model.mean("mae", area) for area in self.areas},
                "mae_spread": {area: model.spread("mae", area) for area in self.areas},
                "seconds": model.seconds,
                "peak_memory_mb": model.peak_memory_mb,
                "failure": model.failure,
                "splits": [split.to_dict() for split in model.splits],
            }
            for model in self.models
        ]
        best = {"best": self.best, "best_by_area": self.best_by_area}
        return best | {"verdict": self.verdict, "plan": asdict(self.plan), "models": models}

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the names of the columns of a table, and a line for each model."""
        only = len(self.areas) == 1
        metrics = [("RMSE" if only else f"RMSE, {area}", "rmse", area) for area in self.areas]
        metrics += [("MAE", "mae", area) for area in self.areas if only]
        names = ["model", *(title for title, _, _ in metrics)]
        names += ["seconds"] + ["peak MB"] * any(model.peak_memory_mb is not None for model in self.models)
        lines = []
        for model in self.models:
            line = [
                model.label,
                *(_told(model.mean(metric, area), model.spread(metric, area)) for _, metric, area in metrics),
            ]
            line.append("" if model.seconds is None else f"{model.seconds:.2f}")
            line += ["" if model.peak_memory_mb is None else f"{model.peak_memory_mb:,}"] * ("peak MB" in names)
            lines.append(line)
        return names, lines

    def __str__(self) -> str:
        names, lines = self.cells()
        widths = [max(len(line[at]) for line in [names, *lines]) for at in range(len(names))]
        shown = [
            "  ".join(
                [
                    line[0].ljust(widths[0]),
                    *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
                ]
            )
            for line in [names, *lines]
        ]
        failed = [f"{model.label} failed: {model.failure}" for model in self.models if model.failure]
        return "\n".join([*shown, *failed, self.verdict])


def _told(mean: float | None, spread: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.4f}" if spread is None else f"{mean:.4f} ± {spread:.4f}"


_KIND = "comparison"

_MATRIX = "matrix"

_FEATURES = "features"


class ProcessOutcome(NamedTuple):
    """The errors on each split, the peak memory of the process, and why there are none, if it failed."""

    splits: tuple[SplitErrors, ...]
    peak_memory_mb: int | None
    failure: str | None


def registered_name(model: Model) -> str | None:
    """Return the name of a model in commands; None where another process could not find its class."""
    home = (type(model).__module__, type(model).__name__)
    return next((name for name, found in MODELS.items() if found[:2] == home), None)


def in_own_process(
    model: Model,
    matrix: ObservedMatrix,
    plan: SplitPlan,
    show: Callable[[int], None],
    features: Mapping[str, Features] | None = None,
) -> ProcessOutcome:
    """Measure a model on every split in another process; `show` is told how many are done."""
    with temporary_folder(Path(gettempdir())) as folder:
        job = folder / "job"
        packed = pack_matrix(matrix, _MATRIX)
        described = {name: pack_raw_features(each, name) for name, each in (features or {}).items()}
        content = {
            "model": registered_name(model),
            "settings": model.own_settings,
            "plan": asdict(plan),
            "threads": torch.get_num_threads(),
            _MATRIX: packed.content,
            _FEATURES: {name: part.content for name, part in described.items()},
        }
        tensors = {name: each for part in (packed, *described.values()) for name, each in part.tensors.items()}
        write_file(job, kind=_KIND, content=content, tensors=tensors)
        command = [sys.executable, "-m", __name__, str(job)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
            assert process.stdout is not None
            try:
                found = _followed(process.stdout, show)
            except BaseException:
                process.terminate()
                raise
    return _judged(found, process.returncode)


def _environment() -> dict[str, str]:
    """Return the environment of the process, in which deepmf is found where this one found it."""
    home = str(Path(__file__).parents[2])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))}


def _followed(lines: IO[str], show: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return what each line says; `show` is told of those that hold the errors of a split."""
    waiting: SimpleQueue[str | None] = SimpleQueue()
    Thread(target=_pass_on, args=(lines, waiting), daemon=True).start()
    found: list[dict[str, Any]] = []
    while True:
        try:
            line = waiting.get(timeout=0.1)  # once polars has run, Ctrl-C does not end a long wait
        except Empty:
            continue
        if line is None:
            return found
        found.append(json.loads(line))
        if "areas" in found[-1]:
            show(len(found))


def _pass_on(lines: IO[str], waiting: SimpleQueue[str | None]) -> None:
    for line in lines:
        waiting.put(line)
    waiting.put(None)


def _judged(found: list[dict[str, Any]], code: int) -> ProcessOutcome:
    if code < 0 or (code == 137 and not found):
        return ProcessOutcome((), None, f"its process was ended by signal {abs(code)}, perhaps for want of memory")
    if code > 0 or not found or "peak_memory_mb" not in found[-1]:
        raise RuntimeError(f"the process that compares a model ended with status {code}")
    *splits, end = found
    if end["failure"] is not None:
        return ProcessOutcome((), end["peak_memory_mb"], end["failure"])
    return ProcessOutcome(tuple(map(SplitErrors.from_dict, splits)), end["peak_memory_mb"], None)


def run_job(path: Path, out: IO[str]) -> None:
    """Measure the model of a file on every split of its matrix, and write what comes of it."""
    stored = read_file(path, kind=_KIND)
    content = stored.content
    torch.set_num_threads(content["threads"])
    model = model_class(content["model"])(**content["settings"])
    matrix = unpack_matrix(_MATRIX, content[_MATRIX], stored.tensors)
    features = {
        name: unpack_raw_features(name, part, stored.tensors) for name, part in content.get(_FEATURES, {}).items()
    }
    failure = None
    try:
        for problem in SplitPlan(**content["plan"]).problems(matrix):
            print(json.dumps(measure(model, problem, **features).to_dict()), file=out, flush=True)
    except UserError as error:
        failure = str(error)
    print(json.dumps({"peak_memory_mb": peak_memory_mb(), "failure": failure}), file=out, flush=True)


if __name__ == "__main__":
    # What a library prints goes to standard error, so that standard output holds the results alone.
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        run_job(Path(sys.argv[1]), results)
    except KeyboardInterrupt:
        sys.exit(130)


# How many fits are done, of how many.
Progress = Callable[[int, int | None], None]

Candidate = str | Model | type[Model]


def compare(
    models: Iterable[Candidate] | Mapping[str, Candidate],
    matrix: ObservedMatrix,
    *,
    row_features: Features | None = None,
    column_features: Features | None = None,
    folds: int = 5,
    areas: bool = False,
    new_rows: float = 0.2,
    new_columns: float = 0.2,
    validation: float = 0.05,
    seed: int = 0,
    own_processes: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """Fit several models on the same splits of a matrix and compare their errors on the test entries.

    `models` are names ("als"), classes or unfitted models with the settings wanted; a mapping gives them names of your
    own. The entries fall into `folds`, each of which is the test once; with `areas` there are as many random splits
    in which `new_rows` and `new_columns` are new. Validation entries, which choose the best epoch, are a share of all
    that is taken from what is left for training; test entries are looked at once. Features are for the models that
    read them (`Model.takes_features`); the others go without.

    Each model is fitted in a process of its own, whose peak memory is told: Python, torch and the matrix included, but
    not the memory of a GPU. With `own_processes=False`, and for models that deepmf does not know by name, it is this
    process, and no memory is told.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(60, 40, density=0.3, seed=0).matrix
    >>> found = compare(["means", "als"], ratings, folds=3, own_processes=False)
    >>> [model.label for model in found.ranked()]
    ['als', 'means']
    """
    candidates = _candidates(models, seed=seed)
    plan = SplitPlan(folds, areas, new_rows, new_columns, validation, seed)
    next(plan.problems(matrix))  # what cannot be split, or learned from, is refused before anything is fitted
    given = {"row_features": row_features, "column_features": column_features}
    features = {name: each for name, each in given.items() if each is not None}
    for name, labels in (("row_features", matrix.rows), ("column_features", matrix.columns)):
        if name in features:
            check_features(features[name], name)
            AxisFeatures.of(labels, features[name])
    show = progress or (lambda done, total: None)
    total, compared = folds * len(candidates), []
    for number, (label, model) in enumerate(candidates.items()):

        def show_fit(n_done: int, before: int = number * folds) -> None:
            show(before + n_done, total)

        apart = own_processes and registered_name(model) is not None
        compared.append((_compared_apart if apart else _compared_here)(label, model, matrix, plan, show_fit, features))
    return Comparison(tuple(compared), plan, matrix.describe())


def _candidates(models: Iterable[Candidate] | Mapping[str, Candidate], *, seed: int) -> dict[str, Model]:
    """Return an unfitted model for each label."""
    if isinstance(models, str | Model | type):
        raise BadSetting(f"compare takes a list of models, such as ['means', 'als']; got {models!r}")
    named = models.items() if isinstance(models, Mapping) else ((None, model) for model in models)
    found: dict[str, Model] = {}
    for name, choice in named:
        model = _model(choice, seed=seed)
        label = name or registered_name(model) or type(model).__name__
        if label in found:
            raise BadSetting(
                f"two models are called {label!r}; a mapping gives them names: {{'one': ..., 'other': ...}}"
            )
        found[label] = model
    if not found:
        raise BadSetting("there is no model to compare; give some, such as ['means', 'als']")
    return found


def _model(choice: Candidate, *, seed: int) -> Model:
    if isinstance(choice, str):
        return model_class(choice)(seed=seed)
    if isinstance(choice, type) and issubclass(choice, Model):
        return choice(seed=seed)
    if isinstance(choice, Model):
        return choice
    raise BadSetting(f"a model to compare is a name, a class or an unfitted model; got {choice!r}")


def _compared_apart(
    label: str,
    model: Model,
    matrix: ObservedMatrix,
    plan: SplitPlan,
    show: Callable[[int], None],
    features: Mapping[str, Features],
) -> ComparedModel:
    outcome = in_own_process(model, matrix, plan, show, features)
    return ComparedModel(
        label, type(model).__name__, model.own_settings, outcome.splits, outcome.peak_memory_mb, outcome.failure
    )


def _compared_here(
    label: str,
    model: Model,
    matrix: ObservedMatrix,
    plan: SplitPlan,
    show: Callable[[int], None],
    features: Mapping[str, Features],
) -> ComparedModel:
    splits: list[SplitErrors] = []
    failure = None
    try:
        for problem in plan.problems(matrix):
            splits.append(measure(model, problem, **features))
            show(len(splits))
    except UserError as error:
        splits, failure = [], str(error)
    return ComparedModel(label, type(model).__name__, model.own_settings, tuple(splits), failure=failure)
