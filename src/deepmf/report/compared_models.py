"""The models of a comparison: their errors, rankings, time and memory on the same splits, and their order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from deepmf.errors import BadEntries
from deepmf.evaluation.area_evaluation import UNKNOWN, AreaErrors, evaluate
from deepmf.evaluation.ranking_evaluation import RankingEvaluation, RankingScores, evaluate_ranking
from deepmf.matrix.areas import AREAS
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.label_pairs import Unknown
from deepmf.models.model import Model

ALL = "all"  # the errors in all areas together


class Estimate(NamedTuple):
    """A mean over splits; `margin` is the standard deviation over them, of a single one its standard error."""

    mean: float
    margin: float | None


@dataclass(frozen=True)
class ComparedModel:
    """How one model did, an item for each split; all models of a comparison have the same splits in the same order.

    areas: the errors by area, as `evaluate` returns them: those in all areas together come last.
    seconds: how long each fit took; megabytes: its peak memory. rankings: what `evaluate_ranking` found.
    settings: those that were set or chosen, by name.
    """

    name: str
    areas: Sequence[Sequence[AreaErrors]]
    seconds: Sequence[float] = ()
    megabytes: Sequence[float] = ()
    rankings: Sequence[RankingEvaluation] = ()
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.areas or not all(self.areas):
            raise BadEntries(f"{self.name!r} has no errors to compare: give those of at least one split, by area")

    @property
    def area_names(self) -> list[str]:
        """The areas that it has errors in, on every split."""
        first, *rest = ([part.area for part in split] for split in self.areas)
        return [area for area in first if all(area in names for names in rest)]

    def errors(self, area: str, measure: str = "rmse") -> list[float]:
        """Return the errors in an area, split by split; none where it cannot predict there."""
        if area not in self.area_names:
            return []
        return [float(getattr(part, measure)) for split in self.areas for part in split if part.area == area]

    def error(self, area: str, measure: str = "rmse") -> Estimate | None:
        """Return the error in an area over all splits; None where it cannot predict there."""
        numbers = self.errors(area, measure)
        if not numbers:
            return None
        alone = next(part.margin for part in self.areas[0] if part.area == area) if measure == "rmse" else None
        return estimate(numbers, alone=alone)

    def score(self, measure: str) -> Estimate | None:
        """Return a score of its rankings over all splits; None where there are none."""
        return estimated_score([ranked.model for ranked in self.rankings], measure)

    def above(self, other: ComparedModel, area: str) -> Estimate | None:
        """Return by how much its RMSE lies above another's on the same splits: the mean, and its standard error."""
        own, others = self.errors(area), other.errors(area)
        if not own or len(own) != len(others):
            return None
        differences = np.subtract(own, others)
        margin = float(differences.std(ddof=1) / math.sqrt(differences.size)) if differences.size > 1 else None
        return Estimate(float(differences.mean()), margin)


class Comparison:
    """Models in order: that with the lowest RMSE in the main area first.

    areas: all areas that any of them has errors in, and last all together; a single area alone.
    main_area: all together where all models predict everywhere, otherwise the first area in which all do.
    """

    def __init__(self, models: Sequence[ComparedModel]) -> None:
        _check_comparable(models)
        known = {area for model in models for area in model.area_names}
        parts = [area for area in (*AREAS, UNKNOWN) if area in known]
        self.areas = parts if len(parts) == 1 else [*parts, ALL]
        shared = [area for area in self.areas if all(self._predicts(model, area) for model in models)]
        if not shared:
            raise BadEntries("the models of the comparison have no area in common")
        self.main_area = shared[-1] if shared[-1] == ALL else shared[0]
        self.models = sorted(models, key=lambda model: np.mean(model.errors(self.main_area)))

    @property
    def best(self) -> ComparedModel:
        """The model with the lowest RMSE."""
        return self.models[0]

    @property
    def n_splits(self) -> int:
        """On how many splits they are compared."""
        return len(self.best.areas)

    def error(self, model: ComparedModel, area: str, measure: str = "rmse") -> Estimate | None:
        """Return the error of a model in an area; None of all together, where it does not predict in all of them."""
        return model.error(area, measure) if self._predicts(model, area) else None

    def _predicts(self, model: ComparedModel, area: str) -> bool:
        return set(self.areas if area == ALL else [area]) <= set(model.area_names)


def estimate(numbers: Sequence[float], *, alone: float | None = None) -> Estimate:
    """Return the mean of numbers and their standard deviation; of a single one, a margin that is known otherwise."""
    spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else alone
    return Estimate(float(np.mean(numbers)), spread)


def estimated_score(scores: Sequence[RankingScores], measure: str) -> Estimate | None:
    """Return one of the scores of rankings over all splits; None where there are none."""
    if not scores:
        return None
    return estimate([float(getattr(each, measure)) for each in scores], alone=scores[0].margins[measure])


def evaluated_models(
    models: Mapping[str, Model],
    test: ObservedMatrix,
    *,
    unknown: Unknown = "error",
    n: int = 10,
    relevant_from: float | None = None,
) -> list[ComparedModel]:
    """Evaluate fitted models by name on the same test entries, for a comparison on one split.

    On a scale without levels, how they rank is left out unless `relevant_from` is given.
    """
    found = []
    for name, model in models.items():
        ranks = relevant_from is not None or model.scale_.levels is not None
        ranked = [evaluate_ranking(model, test, n=n, relevant_from=relevant_from, unknown=unknown)] if ranks else []
        errors, settings = evaluate(model, test, unknown=unknown), model.settings.to_dict()
        found.append(ComparedModel(name, [errors], [model.history_.seconds], (), ranked, settings))
    return found


def _check_comparable(models: Sequence[ComparedModel]) -> None:
    if not models:
        raise BadEntries("there is nothing to compare: give at least one model")
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadEntries(f"two models of the comparison have the name {twice!r}; each needs one of its own")
    n_splits = {model.name: len(model.areas) for model in models}
    if len(set(n_splits.values())) > 1:
        raise BadEntries(f"models are compared on the same splits; the numbers of splits are {n_splits}")
