"""Compare several models: fit each on the same splits of a matrix and measure its errors on the test entries."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from deepmf.data.splits import AreaSplit, Split, iterate_folds, split_areas
from deepmf.errors import BadSetting, BadSplit, DeepMFWarning, NothingObserved, UserError
from deepmf.evaluation.areas import AreaErrors, evaluate
from deepmf.files import import_polars
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.description import Description
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import AREAS, ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.fitting import check_features
from deepmf.models.registry import MODELS, model_class

if TYPE_CHECKING:
    import polars as pl

ALL = "all"  # the area name of errors on all test entries

TEST_SHARE = 0.2  # of the entries of each area

_METRICS = tuple(field.name for field in fields(AreaErrors) if field.name not in ("area", "n_entries"))

Candidate = str | Model | type[Model]

# Called after each fit with the number of fits done and their total.
Progress = Callable[[int, int | None], None]


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
    progress: Progress | None = None,
) -> Comparison:
    """Fit several models on the same splits of a matrix and compare their errors on the test entries.

    A model that cannot be fitted does not stop the comparison: its `failure` says why.

    Parameters
    ----------
    models
        Names ("als"), classes or unfitted models with their settings; a mapping gives each a label of your own.
    matrix
        The entries to split.
    row_features, column_features
        Side information for the models that use it (`Model.takes_features`).
    folds
        Number of folds, each of which is the test set once; with `areas`, the number of random splits.
    areas
        Whether some rows and columns are new in each split, so that errors are measured in areas I to IV.
    new_rows, new_columns
        Shares of rows and columns that are new in a split by areas.
    validation
        Share of all entries held out for early stopping, taken from the training entries.
    seed
        Seed of the splits, and of the models given by name or class.
    progress
        Called after each fit with the number of fits done and their total.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(60, 40, density=0.3, seed=0).matrix
    >>> comparison = compare(["means", "als"], ratings, folds=3)
    >>> [model.label for model in comparison.rank()]
    ['als', 'means']
    """
    candidates = _build_candidates(models, seed=seed)
    plan = SplitPlan(folds, areas, new_rows, new_columns, validation, seed)
    next(plan.split(matrix))  # a matrix that cannot be split is refused before any model is fitted
    given = {"row_features": row_features, "column_features": column_features}
    features = {name: each for name, each in given.items() if each is not None}
    for name, labels in (("row_features", matrix.rows), ("column_features", matrix.columns)):
        if name in features:
            check_features(features[name], name)
            AxisFeatures.of(labels, features[name])
    n_done, compared = 0, []
    for label, model in candidates.items():
        splits: list[SplitErrors] = []
        failure = None
        try:
            for problem in plan.split(matrix):
                splits.append(measure(model, problem, **features))
                if progress is not None:
                    progress(n_done + len(splits), folds * len(candidates))
        except UserError as error:
            splits, failure = [], str(error)
        n_done += folds
        compared.append(ComparedModel(label, type(model).__name__, model.own_settings, tuple(splits), failure))
    return Comparison(tuple(compared), plan, matrix.describe())


def _build_candidates(models: Iterable[Candidate] | Mapping[str, Candidate], *, seed: int) -> dict[str, Model]:
    """Return an unfitted model for each label."""
    if isinstance(models, str | Model | type):
        raise BadSetting(f"compare takes a list of models, such as ['means', 'als']; got {models!r}")
    named = models.items() if isinstance(models, Mapping) else ((None, model) for model in models)
    candidates: dict[str, Model] = {}
    for name, choice in named:
        model = _build_model(choice, seed=seed)
        label = name or _find_name(model)
        if label in candidates:
            raise BadSetting(
                f"two models have the label {label!r}; pass a mapping with a label for each: "
                "{'one': ..., 'other': ...}"
            )
        candidates[label] = model
    if not candidates:
        raise BadSetting("there is no model to compare; give some, such as ['means', 'als']")
    return candidates


def _build_model(choice: Candidate, *, seed: int) -> Model:
    if isinstance(choice, str):
        return model_class(choice)(seed=seed)
    if isinstance(choice, type) and issubclass(choice, Model):
        return choice(seed=seed)
    if isinstance(choice, Model):
        return choice
    raise BadSetting(f"a model to compare must be a name, a class or an unfitted model; got {choice!r}")


def _find_name(model: Model) -> str:
    """Return the registered name of a model, or the name of its class."""
    home = (type(model).__module__, type(model).__name__)
    return next((name for name, place in MODELS.items() if place[:2] == home), type(model).__name__)


@dataclass(frozen=True)
class SplitPlan:
    """The splits that every model of a comparison is measured on, as in `compare`."""

    folds: int = 5
    areas: bool = False
    new_rows: float = 0.2
    new_columns: float = 0.2
    validation: float = 0.05
    seed: int = 0

    def split(self, matrix: ObservedMatrix) -> Iterator[Problem]:
        """Yield the problem of each split; the same matrix always gives the same splits."""
        if not self.areas:
            splits = iterate_folds(matrix, self.folds, validation=self.validation, seed=self.seed)
            yield from map(Problem.from_split, splits)
            return
        if isinstance(self.folds, bool) or not isinstance(self.folds, int) or self.folds < 1:
            raise BadSplit(
                f"folds, the number of random splits, must be a whole number of at least 1; got {self.folds!r}"
            )
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
            yield Problem.from_areas(split)

    @property
    def part(self) -> str:
        """The word for one of the splits: "split" or "fold"."""
        return "split" if self.areas else "fold"

    def __str__(self) -> str:
        if not self.areas:
            return f"{self.folds} folds, each the test set once; seed {self.seed}"
        new = f"{self.new_rows:g} of the rows and {self.new_columns:g} of the columns new"
        how_many = f"{self.folds} random split{'s' * (self.folds > 1)}"
        return f"{how_many} with {new}, {TEST_SHARE:.0%} of each area the test; seeds from {self.seed}"


@dataclass(frozen=True)
class Problem:
    """One split of a matrix: the entries a model is given, and the entries it has to predict in each area.

    Attributes
    ----------
    train, validation
        Entries to fit on, and entries held out for early stopping.
    extension
        Entries of new rows and columns; None where there are none.
    choice
        Validation entries by area, for choosing settings.
    test
        Test entries by area.
    """

    train: ObservedMatrix
    validation: ObservedMatrix
    extension: ObservedMatrix | None
    choice: dict[str, ObservedMatrix]
    test: dict[str, ObservedMatrix]

    @classmethod
    def from_split(cls, split: Split) -> Problem:
        """Return the problem of a split without new rows or columns: area I only."""
        return cls(split.train, split.validation, None, {"I": split.validation}, {"I": split.test})

    @classmethod
    def from_areas(cls, split: AreaSplit) -> Problem:
        """Return the problem of a split by areas; areas without entries are left out."""
        choice = {"I": split.validation} | split.new_validation
        extension = split.extension if split.train.shape != split.extension.shape else None
        return cls(split.train, split.validation, extension, _drop_empty(choice), _drop_empty(split.test))


def _drop_empty(by_area: dict[str, ObservedMatrix]) -> dict[str, ObservedMatrix]:
    return {area: matrix for area, matrix in by_area.items() if matrix.n_entries}


def measure(
    model: Model, problem: Problem, row_features: Features | None = None, column_features: Features | None = None
) -> SplitErrors:
    """Fit a new model with the same settings, and measure its errors on the test entries of each area.

    Features are passed on only to a model that uses them.
    """
    fresh = type(model)(**model.own_settings)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeepMFWarning)  # the table shows which model is no better than the means
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
    extended = extend_model(fresh, problem)
    areas = {
        area: replace(evaluate(extended, test)[-1], area=area)
        for area, test in problem.test.items()
        if area in fresh.predicts
    }
    if areas.keys() == problem.test.keys():
        areas[ALL] = _combine_areas(list(areas.values()))
    return SplitErrors(areas, seconds)


def extend_model(model: Model, problem: Problem) -> Model:
    """Return the model extended by the new rows and columns of a problem, as far as it can predict them."""
    if problem.extension is None or model.predicts == ("I",):
        return model
    with ignore_empty_lines():
        return model.extend(select_extension(model, problem))


@contextmanager
def ignore_empty_lines() -> Iterator[None]:
    """Silence the warning about rows and columns without entries, which random splits nearly always have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingObserved)
        yield


def select_extension(model: Model, problem: Problem) -> ObservedMatrix:
    """Return the entries that a model can be extended by, without new rows or new columns where it takes none."""
    assert problem.extension is not None
    rows, columns = (
        np.arange(len(new)) if area in model.predicts else np.flatnonzero(known.find(new.array) >= 0)
        for area, new, known in (
            ("II", problem.extension.rows, problem.train.rows),
            ("III", problem.extension.columns, problem.train.columns),
        )
    )
    return problem.extension.take(rows, columns)


def _combine_areas(parts: list[AreaErrors]) -> AreaErrors:
    """Return the errors on all entries from the errors of each area."""
    counts = np.array([part.n_entries for part in parts])
    combined: dict[str, float | None] = {}
    for metric in _METRICS:
        errors = [getattr(part, metric) for part in parts]
        if None in errors:
            combined[metric] = None
        elif metric.endswith("rmse"):
            combined[metric] = float(np.sqrt(np.average(np.square(errors), weights=counts)))
        else:
            combined[metric] = float(np.average(errors, weights=counts))
    return AreaErrors(area=ALL, n_entries=int(counts.sum()), **combined)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SplitErrors:
    """The errors of a model on one split, and the seconds its fit took.

    `areas` maps each area the model predicts to its errors; the last key, "all", holds the errors on all test entries
    and is missing where the model cannot predict every area.
    """

    areas: dict[str, AreaErrors]
    seconds: float


@dataclass(frozen=True)
class ComparedModel:
    """A model of a comparison: its label, class, settings and errors on each split.

    `failure` says why the model could not be fitted; `splits` is empty then.
    """

    label: str
    model: str
    settings: dict[str, Any]
    splits: tuple[SplitErrors, ...]
    failure: str | None = None

    def errors(self, metric: str = "rmse", area: str = ALL) -> FloatArray:
        """Return the error on each split, (splits,); empty where the model cannot predict the area."""
        values = [getattr(split.areas[area], metric) for split in self.splits if area in split.areas]
        return np.array([error for error in values if error is not None], dtype=np.float64)

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
        """The mean seconds of a fit; None if no fit succeeded."""
        return float(np.mean([split.seconds for split in self.splits])) if self.splits else None


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`; `print` shows it as a table."""

    models: tuple[ComparedModel, ...]
    plan: SplitPlan
    data: Description

    @property
    def areas(self) -> list[str]:
        """The areas that some model predicts; "all" comes last where there are several."""
        found = {area for model in self.models for split in model.splits for area in split.areas}
        inside = [area for area in AREAS if area in found]
        return [*inside, ALL] if len(inside) > 1 and ALL in found else inside

    def rank(self, area: str = ALL) -> list[ComparedModel]:
        """Return the models that predict an area, in increasing order of their mean RMSE."""
        errors = {model.label: model.mean("rmse", area) for model in self.models}
        able = [model for model in self.models if errors[model.label] is not None]
        return sorted(able, key=lambda model: errors[model.label] or 0.0)

    @property
    def best(self) -> str | None:
        """The model with the smallest mean RMSE on all test entries; None if no model predicts all of them."""
        ranked = self.rank()
        return ranked[0].label if ranked else None

    @property
    def best_by_area(self) -> dict[str, str]:
        """The model with the smallest mean RMSE in each area that some model predicts."""
        return {area: self.rank(area)[0].label for area in self.areas if area != ALL}

    @property
    def verdict(self) -> str:
        """A sentence that names the best model and the number of splits on which it beats the next."""
        ranked = self.rank()
        if not ranked:
            by_area = ", ".join(f"{label} in area {area}" for area, label in self.best_by_area.items())
            return f"no model predicts all test entries{by_area and f'; best: {by_area}'}"
        best = ranked[0]
        sentence = f"best: {best.label}, RMSE {best.mean():.4f}"
        if len(ranked) == 1:
            return sentence
        following = ranked[1]
        ours, theirs = best.errors(), following.errors()
        n_better = int(np.count_nonzero(ours < theirs))
        return (
            f"{sentence}; the next is {following.label}, {following.mean():.4f}: "
            f"{best.label} is better on {n_better} of {ours.size} {self.plan.part}{'s' * (ours.size > 1)}"
        )

    def to_frame(self) -> pl.DataFrame:
        """Return a polars frame with a line per model and area: mean errors, their spreads, and seconds."""
        lines = [
            {
                "model": model.label,
                "area": area,
                **{
                    name: value
                    for metric in ("rmse", "mae", "level_rmse", "level_mae")
                    for name, value in (
                        (metric, model.mean(metric, area)),
                        (f"{metric}_spread", model.spread(metric, area)),
                    )
                },
                "seconds": model.seconds,
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
                "failure": model.failure,
                "splits": [asdict(split) for split in model.splits],
            }
            for model in self.models
        ]
        best = {"best": self.best, "best_by_area": self.best_by_area}
        return best | {"verdict": self.verdict, "plan": asdict(self.plan), "models": models}

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names of the table, and its cells for each model."""
        only = len(self.areas) == 1
        metrics = [("RMSE" if only else f"RMSE, {area}", "rmse", area) for area in self.areas]
        metrics += [("MAE", "mae", area) for area in self.areas if only]
        names = ["model", *(title for title, _, _ in metrics)]
        names.append("seconds")
        lines = []
        for model in self.models:
            line = [
                model.label,
                *(_format_mean(model.mean(metric, area), model.spread(metric, area)) for _, metric, area in metrics),
            ]
            line.append("" if model.seconds is None else f"{model.seconds:.2f}")
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


def _format_mean(mean: float | None, spread: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.4f}" if spread is None else f"{mean:.4f} ± {spread:.4f}"
