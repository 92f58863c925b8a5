"""The errors of one model on one split of a comparison, and how long it took to fit."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from deepmf.errors import DeepMFWarning
from deepmf.evaluation.area_evaluation import AreaErrors, evaluate
from deepmf.evaluation.problem import Problem, extended_for
from deepmf.matrix.features import Features
from deepmf.models.model import Model

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
