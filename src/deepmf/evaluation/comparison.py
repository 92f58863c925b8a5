"""Compare several models: fit each on the same splits of a matrix and measure its errors on the
test entries."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Unpack, get_args

import numpy as np

from deepmf.data.splits import AreaSplit, Split, iterate_folds, split_areas, split_last, split_time
from deepmf.errors import (
    BadEntries,
    BadSetting,
    DeepMFWarning,
    Hint,
    UserError,
    check_choice,
    check_count,
    show_value,
)
from deepmf.evaluation.areas import AreaErrors, evaluate, ignore_empty_lines
from deepmf.evaluation.ranking import ROW_METRICS, TITLES, AreaRanking, evaluate_ranking, fix_order
from deepmf.files import Progress, polars
from deepmf.matrix.arrays import Array, FloatArray
from deepmf.matrix.description import Description
from deepmf.matrix.extras import Extras
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.matrix import AREAS, ObservedMatrix, check_matrix
from deepmf.models.base import Model
from deepmf.models.fitting import check_features
from deepmf.models.registry import find_name, model_class
from deepmf.recommend.request import OrderOptions, Request

ALL = "all"  # the area name of errors on all test entries
TEST_SHARE = 0.2  # of the entries of each area
ERROR_METRICS = ("rmse", "mae")  # by which models can be ordered; smaller is better
WORSE = "(worse than means)"  # behind a model in the table

Candidate = str | Model | type[Model]
SplitBy = Literal["entries", "time", "last"]


def compare(
    models: Iterable[Candidate] | Mapping[str, Candidate],
    matrix: ObservedMatrix,
    *,
    row_features: Features | None = None,
    column_features: Features | None = None,
    by: SplitBy = "entries",
    folds: int = 5,
    areas: bool = False,
    new_rows: float = 0.2,
    new_columns: float = 0.2,
    validation: float = 0.05,
    metric: str = "rmse",
    n: int = 10,
    seed: int = 0,
    progress: Progress | Literal[False] | None = None,
    **order: Unpack[OrderOptions],
) -> Comparison:
    """Fit several models on the same splits of a matrix and compare their errors on the test
    entries.

    A model that cannot be fitted does not stop the comparison: its `failure` says why.

    With a ranking metric, such as "ndcg", the models and popularity also rank the columns of each
    row. To compare rankings for rows held out whole (strong generalisation), set `areas=True` and
    `new_columns=0`, and read area II.

    Parameters
    ----------
    models : names ("als"), classes or unfitted models with their settings; a mapping gives each a
        label of your own.
    matrix : the entries to split.
    row_features, column_features : side information for the models that use it
        (`Model.takes_features`).
    by : "entries" splits at random, "time" holds out the latest 20 % of the entries, and "last" the
        latest entry of each row. By time there is a single split, and `folds` is not used.
    folds : number of folds, each of which is the test set once; with `areas`, the number of random
        splits.
    areas : whether some rows and columns are new in each split, so that errors are measured in
        areas I to IV.
    new_rows, new_columns : shares of rows and columns that are new in a split by areas.
    validation : share of all entries held out for early stopping, taken from the training entries.
    metric : metric that orders the models: "rmse" or "mae", or "ndcg", "recall", "precision",
        "mrr", "map" or "hit_rate".
    n, order : for a ranking metric: the length of the lists, and the order of the columns
        (`relevant`, `rank_by`), as in `evaluate_ranking`.
    seed : seed of the splits, and of the models given by name or class.
    progress : called after each fit with the number of fits done and their total; False or None: no
        progress.

    >>> from deepmf.datasets import generate
    >>> ratings = generate(60, 40, density=0.3, seed=0).matrix
    >>> comparison = compare(["means", "als"], ratings, folds=3)
    >>> [model.label for model in comparison.rank()]
    ['als', 'means']
    """
    if isinstance(models, ObservedMatrix):
        raise BadSetting("compare takes the models first, then the matrix: compare(models, matrix)")
    check_matrix(matrix, "compare")
    unfitted = _build_candidates(models, seed=seed)
    check_choice("metric", metric, [*ERROR_METRICS, *ROW_METRICS])
    if metric in ERROR_METRICS and not matrix.has_values:
        raise BadSetting(
            f"interactions have no values, so there is no {metric.upper()}; set a ranking metric, such as ndcg",
            hint=Hint("metric='ndcg'", "--metric ndcg"),
        )
    ranking = (
        None
        if metric in ERROR_METRICS
        else Request(n=n, **fix_order(matrix, order).changed_options)
    )
    check_choice("by", by, get_args(SplitBy))
    if by != "entries":
        if areas:
            raise BadSetting(f"by={by!r} and areas=True are two ways to split; give one of them")
        folds = 1
    plan = SplitPlan(folds, areas, new_rows, new_columns, validation, seed, metric, ranking, by)
    next(plan.split(matrix))  # a matrix that cannot be split is refused before any model is fitted
    features = {"row_features": row_features, "column_features": column_features}
    check_features(**features)
    for labels, axis_features in zip((matrix.rows, matrix.columns), features.values(), strict=True):
        if axis_features is not None:
            AxisFeatures.of(labels, axis_features)
    splits: dict[str, list[SplitErrors]] = {label: [] for label in unfitted}
    failures: dict[str, str] = {}
    n_done = 0
    # all models on a split before the next: the time of one tells that of all
    for problem in plan.split(matrix):
        for label, model in unfitted.items():
            if label not in failures:
                try:
                    splits[label].append(measure(model, problem, ranking=plan.ranking, **features))
                except UserError as error:
                    splits[label], failures[label] = [], str(error)
            n_done += 1
            if progress:
                progress(n_done, folds * len(unfitted))
    compared = [
        ComparedModel(
            label,
            type(model).__name__,
            model.own_settings,
            tuple(splits[label]),
            failures.get(label),
        )
        for label, model in unfitted.items()
    ]
    return Comparison(tuple(compared), plan, matrix.describe())


def _build_candidates(
    models: Iterable[Candidate] | Mapping[str, Candidate], *, seed: int
) -> dict[str, Model]:
    """Return an unfitted model for each label."""
    if isinstance(models, str | Model | type):
        raise BadSetting(
            f"compare takes a list of models, such as ['means', 'als']; got {show_value(models)}"
        )
    named = models.items() if isinstance(models, Mapping) else (("", model) for model in models)
    candidates: dict[str, Model] = {}
    for name, choice in named:
        model: Any = model_class(choice) if isinstance(choice, str) else choice
        if isinstance(model, type) and issubclass(model, Model):
            model = model(seed=seed)
        if not isinstance(model, Model):
            raise BadSetting(
                f"a model to compare must be a name, a class or an unfitted model; got {show_value(choice)}"
            )
        label = name or find_name(type(model))
        if label in candidates:
            raise BadSetting(
                f"two models have the label {label!r}; pass a mapping with a label for each: "
                "{'one': ..., 'other': ...}"
            )
        candidates[label] = model
    if not candidates:
        raise BadSetting("there is no model to compare; give some, such as ['means', 'als']")
    return candidates


@dataclass(frozen=True)
class SplitPlan:
    """The splits that every model of a comparison is measured on, and the metric that orders them,
    as in `compare`."""

    folds: int = 5
    areas: bool = False
    new_rows: float = 0.2
    new_columns: float = 0.2
    validation: float = 0.05
    seed: int = 0
    metric: str = "rmse"
    ranking: Request | None = None  # of which the length of the lists and the order count
    by: SplitBy = "entries"

    @property
    def sign(self) -> int:
        """1 if smaller is better, and -1 if larger is."""
        return 1 if self.metric in ERROR_METRICS else -1

    def get_title(self, metric: str | None = None) -> str:
        """Return a metric (default: that of the order of models) as tables write it, with the
        length of the lists."""
        metric = metric or self.metric
        if metric in ERROR_METRICS:
            return metric.upper()
        return f"{TITLES[metric]}@{self.ranking.n}" if self.ranking is not None else TITLES[metric]

    def split(self, matrix: ObservedMatrix) -> Iterator[Problem]:
        """Yield the problem of each split; the same matrix always gives the same splits."""
        if self.areas:
            check_count("folds, the number of random splits,", self.folds)
            for number in range(self.folds):
                areas = split_areas(
                    matrix,
                    new_rows=self.new_rows,
                    new_columns=self.new_columns,
                    train=1.0 - self.validation - TEST_SHARE,
                    validation=self.validation,
                    test=TEST_SHARE,
                    seed=self.seed + number,
                )
                yield Problem.from_areas(areas)
            return
        splits: Iterable[Split]
        if self.by == "time":
            splits = [split_time(matrix, validation=self.validation, test=TEST_SHARE)]
        elif self.by == "last":
            splits = [split_last(matrix, n=1, validation=int(self.validation > 0))]
        else:
            splits = iterate_folds(matrix, self.folds, validation=self.validation, seed=self.seed)
        yield from map(Problem.from_split, splits)

    @property
    def part(self) -> str:
        """The word for one of the splits: "split" or "fold"."""
        return "split" if self.areas or self.by != "entries" else "fold"

    def __str__(self) -> str:
        if self.by == "time":
            return f"the latest {TEST_SHARE:.0%} of the entries are the test"
        if self.by == "last":
            return "the latest entry of each row is the test"
        if not self.areas:
            return f"{self.folds} folds, each the test set once; seed {self.seed}"
        new_shares = f"{self.new_rows:g} of the rows and {self.new_columns:g} of the columns new"
        how_many = f"{self.folds} random split{'s' * (self.folds > 1)}"
        return f"{how_many} with {new_shares}, {TEST_SHARE:.0%} of each area the test; seeds from {self.seed}"


@dataclass(frozen=True)
class Problem:
    """One split of a matrix: the entries a model is given, and the entries it has to predict in
    each area.

    Attributes
    ----------
    train, validation : entries to fit on, and entries held out for early stopping.
    extension : entries of new rows and columns; None where there are none.
    test : test entries by area.
    """

    train: ObservedMatrix
    validation: ObservedMatrix
    extension: ObservedMatrix | None
    test: dict[str, ObservedMatrix]

    @classmethod
    def from_split(cls, split: Split) -> Problem:
        """Return the problem of a split without new rows or columns: area I only."""
        return cls(split.train, split.validation, None, {"I": split.test})

    @classmethod
    def from_areas(cls, split: AreaSplit) -> Problem:
        """Return the problem of a split by areas; areas without entries are left out."""
        extension = split.extension if split.train.shape != split.extension.shape else None
        test = {area: matrix for area, matrix in split.test.items() if matrix.n_entries}
        return cls(split.train, split.validation, extension, test)


def measure(
    model: Model,
    problem: Problem,
    row_features: Features | None = None,
    column_features: Features | None = None,
    *,
    ranking: Request | None = None,
) -> SplitErrors:
    """Fit a new model with the same settings, and measure its errors on the test entries of each
    area.

    Features are passed on only to a model that uses them. Rankings are evaluated if there is a plan
    for them.
    """
    fresh = type(model)(**model.own_settings)
    start = time.perf_counter()
    # The table shows which model is no better than the means.
    with warnings.catch_warnings(action="ignore", category=DeepMFWarning):
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
    able = [test for area, test in problem.test.items() if area in fresh.predicts]
    errors = SplitErrors({}, seconds)
    if able:
        _measure_test(errors, extend_model(fresh, problem), join_tests(able), ranking)
    if len(able) == len(problem.test):
        return errors
    errors.areas.pop(ALL, None)
    errors.rankings.pop(ALL, None)
    return replace(errors, by_row={})


def _measure_test(
    test_losses: SplitErrors, model: Model, test: ObservedMatrix, ranking: Request | None
) -> None:
    """Fill in the errors and rankings of a model on a test."""
    if test.has_values:
        errors = evaluate(model, test)
        test_losses.areas.update({area_errors.area: area_errors for area_errors in errors})
        counts = np.bincount(test.entry_rows)
        rows = counts > 0
        losses = {"rmse": np.square(errors.residuals), "mae": np.abs(errors.residuals)}
        for metric, values in losses.items():
            sums: FloatArray = np.bincount(test.entry_rows, values).astype(np.float64)
            test_losses.by_row[metric] = RowLosses(sums[rows], counts[rows])
    if ranking is not None:
        with suppress(BadEntries):  # no test entry is relevant
            ranked = evaluate_ranking(model, test, n=int(ranking.n), **ranking.changed_options)
            test_losses.rankings.update(ranked.areas | {ALL: ranked.overall})
            scores = () if ranked.by_row is None else ranked.by_row._asdict().items()
            test_losses.by_row.update(
                {name: RowLosses(row, np.ones(row.size)) for name, row in scores}
            )


def join_tests(tests: list[ObservedMatrix]) -> ObservedMatrix:
    """Return the test entries of several areas as one matrix."""
    if len(tests) == 1:
        return tests[0]
    parts = zip(*(test.entries() for test in tests), strict=True)
    rows, columns, values = (
        np.concatenate([np.asarray(part) for part in arrays]) for arrays in parts
    )
    times, weights, _ = Extras.join([(test.n_entries, test.extras) for test in tests])
    return ObservedMatrix.from_entries(
        rows, columns, values, tests[0].scale, times=times, weights=weights
    )


def extend_model(model: Model, problem: Problem) -> Model:
    """Return the model extended by the new rows and columns of a problem, as far as it can predict
    them."""
    extension, train = problem.extension, problem.train
    if extension is None or model.predicts == ("I",):
        return model
    rows, columns = (
        np.arange(len(new_labels))
        if area in model.predicts
        else np.flatnonzero(known_labels.find(new_labels.array) >= 0)
        for area, new_labels, known_labels in (
            ("II", extension.rows, train.rows),
            ("III", extension.columns, train.columns),
        )
    )
    with ignore_empty_lines():
        return model.extend(extension.take(rows, columns))


class RowLosses(NamedTuple):
    """The sums of a loss, or a ranking metric, in each row of a test, and the numbers of entries or
    lists they have."""

    sums: FloatArray
    counts: Array

    @classmethod
    def join(cls, splits: Sequence[SplitErrors], metric: str) -> RowLosses:
        """Return the losses of several splits; none if a split has none."""
        nothing = cls(np.empty(0), np.empty(0))
        losses = [split.by_row.get(metric, nothing) for split in splits]
        if not all(loss.counts.size for loss in losses):
            return nothing
        return cls(*map(np.concatenate, zip(*losses, strict=True)))

    def average(self, metric: str, weights: FloatArray) -> FloatArray:
        """Return the metric of all rows by weights (draws, rows)."""
        means = weights @ self.sums / (weights @ self.counts)
        return np.sqrt(means) if metric == "rmse" else means


class Difference(NamedTuple):
    """How much worse a model is than the best, with a 95 % interval by a paired bootstrap over
    rows."""

    label: str
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class SplitErrors:
    """The errors of a model on one split, and the seconds its fit took.

    `areas` maps each area the model predicts to its errors; the last key, "all", holds the errors
    on all test entries and is missing where the model cannot predict every area. `rankings` maps
    areas to ranking metrics in the same way, if these were asked for.
    """

    areas: dict[str, AreaErrors]
    seconds: float
    rankings: dict[str, AreaRanking] = field(default_factory=dict)
    # by metric, on all entries
    by_row: dict[str, RowLosses] = field(default_factory=dict, repr=False, compare=False)

    def value(self, metric: str, area: str, *, of: str = "model") -> float | None:
        """Return an error or a ranking metric in an area, of the model or of popularity; None if
        there is none."""
        if metric in TITLES or metric == "n_distinct":
            if area not in self.rankings:
                return None
            score: float | None = getattr(getattr(self.rankings[area], of), metric)
            return score
        return getattr(self.areas[area], metric) if area in self.areas and of == "model" else None


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

    def errors(self, metric: str = "rmse", area: str = ALL, *, of: str = "model") -> FloatArray:
        """Return the error, or ranking metric, on each split, (splits,); empty if the model cannot
        predict the area."""
        values = (split.value(metric, area, of=of) for split in self.splits)
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
        present = {
            area
            for model in self.models
            for split in model.splits
            for area in split.areas | split.rankings
        }
        inside = [area for area in AREAS if area in present]
        return [*inside, ALL] if len(inside) > 1 and ALL in present else inside

    def rank(self, area: str = ALL) -> list[ComparedModel]:
        """Return the models that predict an area, the best first by the metric of the comparison
        (default: RMSE)."""
        metric = self.plan.metric
        means = {model.label: model.mean(metric, area) for model in self.models}
        able = [model for model in self.models if means[model.label] is not None]
        return sorted(able, key=lambda model: self.plan.sign * (means[model.label] or 0.0))

    def popularity(self, metric: str = "ndcg", area: str = ALL) -> FloatArray:
        """Return a ranking metric of popularity on each split, (splits,); empty unless the metric
        is one of ranking."""
        fitted = (model for model in self.models if any(split.rankings for split in model.splits))
        return next((model.errors(metric, area, of="popularity") for model in fitted), np.empty(0))

    def differences(self) -> list[Difference]:
        """Return the difference of each other model to the best on all test entries, the nearest
        first.

        Positive is worse. Rows are drawn with replacement, the same for both models, so that what
        makes a row easy or hard cancels out; an interval without 0 is a difference that more test
        entries of this kind would confirm.
        """
        metric, ranked = self.plan.metric, self.rank()
        losses = [RowLosses.join(model.splits, metric) for model in ranked]
        if not ranked or not losses[0].sums.size:
            return []
        best, numbers = losses[0], np.random.default_rng(self.plan.seed)
        draws = numbers.poisson(1.0, (1000, best.sums.size)).astype(np.float64)
        draws[0] = 1.0  # the sample itself
        differences = []
        for model, model_losses in zip(ranked[1:], losses[1:], strict=True):
            if model_losses.sums.size != best.sums.size:
                continue
            gaps = model_losses.average(metric, draws) - best.average(metric, draws)
            gaps *= self.plan.sign
            low, high = np.quantile(gaps[1:], [0.025, 0.975]).tolist()
            differences.append(Difference(model.label, float(gaps[0]), low, high))
        return differences

    @property
    def best(self) -> str | None:
        """The best model on all test entries by the metric; None if no model predicts all of
        them."""
        ranked = self.rank()
        return ranked[0].label if ranked else None

    @property
    def best_by_area(self) -> dict[str, str]:
        """The best model by the metric in each area that some model predicts."""
        return {
            area: ranked[0].label
            for area in self.areas
            if area != ALL and (ranked := self.rank(area))
        }

    @property
    def verdict(self) -> str:
        """A sentence that names the best model and the number of splits on which it beats the
        next."""
        ranked = self.rank()
        if not ranked:
            by_area = ", ".join(
                f"{label} in area {area}" for area, label in self.best_by_area.items()
            )
            return f"no model predicts all test entries{by_area and f'; best: {by_area}'}"
        best, metric = ranked[0], self.plan.metric
        sentence = f"best: {best.label}, {self.plan.get_title()} {best.mean(metric):.4f}"
        popular = self.popularity(metric)
        sentence += f" (popularity: {popular.mean():.4f})" if popular.size else ""
        if len(ranked) == 1:
            return sentence
        following = ranked[1]
        ours, theirs = best.errors(metric), following.errors(metric)
        n_better = np.count_nonzero(self.plan.sign * ours < self.plan.sign * theirs)
        parts = f"{self.plan.part}{'s' * (ours.size > 1)}"
        sentence += (
            f"; the next is {following.label}, {following.mean(metric):.4f}: "
            f"{best.label} is better on {n_better} of {ours.size} {parts}"
        )
        for gap in self.differences():
            if gap.label == following.label:
                sentence += (
                    f", by {gap.difference:.4f} (95 % interval: {gap.low:.4f} to {gap.high:.4f})"
                )
        return sentence

    @property
    def worse_than_means(self) -> list[str]:
        """The models with a larger error than the means (`Means`), if these are compared and the
        metric is an error."""
        if self.plan.metric not in ERROR_METRICS:
            return []
        errors = [(model, model.mean(self.plan.metric) or 0.0) for model in self.rank()]
        of_means = [error for model, error in errors if model.model == "Means"]
        return [model.label for model, error in errors if of_means and error > of_means[0]]

    def to_frame(self) -> polars.DataFrame:
        """Return a polars frame with a line per model and area: mean errors, their spreads, and
        seconds."""
        lines: list[dict[str, Any]] = []
        for model, area in itertools.product(self.models, self.areas):
            lines.append({"model": model.label, "area": area})
            for metric in ("rmse", "mae", "level_rmse", "level_mae", *self._ranking_metrics):
                lines[-1] |= {
                    metric: model.mean(metric, area),
                    f"{metric}_spread": model.spread(metric, area),
                }
            lines[-1]["seconds"] = model.seconds
        return polars.DataFrame(lines, infer_schema_length=None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: every error of every model on every split, and their
        means."""
        metrics = (*ERROR_METRICS, *self._ranking_metrics)
        content: dict[str, Any] = {
            "best": self.best,
            "best_by_area": self.best_by_area,
            "worse_than_means": self.worse_than_means,
            "differences": [difference._asdict() for difference in self.differences()],
            "verdict": self.verdict,
            "plan": asdict(replace(self.plan, ranking=None)),
        }
        if self.plan.ranking is not None:
            ranking = {"n": self.plan.ranking.n, **self.plan.ranking.changed_options}
            content["plan"]["ranking"] = ranking
            content["popularity"] = {
                metric: {
                    area: float(values.mean())
                    for area in self.areas
                    if (values := self.popularity(metric, area)).size
                }
                for metric in self._ranking_metrics
            }
        content["models"] = [
            {
                "label": model.label,
                "model": model.model,
                "settings": model.settings,
                **{name: {area: model.mean(name, area) for area in self.areas} for name in metrics},
                **{
                    f"{name}_spread": {area: model.spread(name, area) for area in self.areas}
                    for name in ERROR_METRICS
                },
                "seconds": model.seconds,
                "failure": model.failure,
                "splits": [asdict(replace(split, by_row={})) for split in model.splits],
            }
            for model in self.models
        ]
        return content

    def list_cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names of the table, and its cells for each model."""
        only, title = len(self.areas) == 1, self.plan.get_title
        metric, ordered = self.plan.metric, title(self.plan.metric)
        shown = [(ordered if only else f"{ordered}, {area}", metric, area) for area in self.areas]
        has_errors = any(split.areas for model in self.models for split in model.splits)
        other_metrics = ["mae" if metric == "rmse" else "rmse"] if has_errors else []
        other_metrics += ["recall", "coverage"] if self.plan.ranking is not None else []
        if only:
            shown += [
                (title(metric_beside), metric_beside, self.areas[0])
                for metric_beside in other_metrics
                if metric_beside != metric
            ]
        names, worse = ["model", *(name for name, _, _ in shown), "seconds"], self.worse_than_means
        lines = [
            [
                f"{model.label} {WORSE}" if model.label in worse else model.label,
                *(_format_values(model.errors(metric, area)) for _, metric, area in shown),
                "" if model.seconds is None else f"{model.seconds:.2f}",
            ]
            for model in self.models
        ]
        if self.plan.ranking is not None:
            popular = [self.popularity(metric, area) for _, metric, area in shown]
            lines.append(["popularity", *(_format_values(values) for values in popular), ""])
        return names, lines

    @property
    def _ranking_metrics(self) -> tuple[str, ...]:
        return () if self.plan.ranking is None else (*TITLES, "n_distinct")

    def __str__(self) -> str:
        names, lines = self.list_cells()
        width, *widths = (max(map(len, column)) for column in zip(names, *lines, strict=True))
        shown = [
            "  ".join([first.ljust(width), *map(str.rjust, cells, widths)])
            for first, *cells in [names, *lines]
        ]
        failed = [
            f"{model.label} failed: {model.failure}" for model in self.models if model.failure
        ]
        return "\n".join([*shown, *failed, self.verdict])


def _format_values(values: FloatArray) -> str:
    if values.size == 0:
        return "-"
    return f"{values.mean():.4f}" + (f" ± {values.std(ddof=1):.4f}" if values.size > 1 else "")
