"""The numbers of a report: how a model, and the means as a baseline, predict test entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting
from deepmf.evaluation.areas import (
    AreaErrors,
    ColdStart,
    ColumnErrors,
    confusion_matrix,
    count_seen,
    evaluate,
    evaluate_cold_start,
    evaluate_columns,
    ignore_empty_lines,
    select_known_entries,
)
from deepmf.evaluation.calibration import (
    Calibration,
    CertaintyByCount,
    IntervalCoverage,
    evaluate_calibration,
    evaluate_certainty_by_count,
    evaluate_intervals,
)
from deepmf.evaluation.ranking import RankingEvaluation, evaluate_ranking
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.fitting import Fitting
from deepmf.models.means import Means
from deepmf.scoring.pairs import Unknown
from deepmf.scoring.predictor import Predictor
from deepmf.scoring.readouts import LevelReadout

# Pairs scored for the ranking of a page, which bounds its time on tables with many rows.
MOST_RANKED = 1 << 26


@dataclass(frozen=True)
class Measurement:
    """The errors of one model on the test entries: by area, by the known entries of a row, and by
    column."""

    name: str
    areas: list[AreaErrors]
    cold_start: list[ColdStart]
    columns: ColumnErrors

    @property
    def overall(self) -> AreaErrors:
        """The errors in all areas together."""
        return self.areas[-1]

    @property
    def answers_levels(self) -> bool:
        """Whether the predictions are levels, so that rounding changes nothing."""
        return self.overall.rmse == self.overall.level_rmse


@dataclass(frozen=True)
class Findings:
    """The measurements of a fitted model on test entries.

    Attributes
    ----------
    model, seen : the model and all entries it knows.
    test : test entries whose row and column the model knows.
    n_unknown, n_seen : number of other test entries, and of test entries that the model has seen.
    measured, baseline : errors of the model and of the means on the same entries; None if the model
        is the means.
    confusion : counts (true level, predicted level); None on a scale without levels.
    calibration, intervals : calibration of level probabilities, or of intervals of real values;
        None without a distribution.
    certainty : intervals and probabilities by the number of known entries; empty without a
        distribution.
    ranking, no_ranking : the ranking, or the reason why there is none.
    """

    model: Model
    seen: EntryStore
    test: ObservedMatrix
    n_unknown: int
    n_seen: int
    measured: Measurement
    baseline: Measurement | None
    confusion: npt.NDArray[np.int64] | None
    calibration: Calibration | None
    intervals: list[IntervalCoverage] | None
    ranking: RankingEvaluation | None
    no_ranking: str = ""
    certainty: Sequence[CertaintyByCount] = ()

    @property
    def measurements(self) -> list[Measurement]:
        """The model, and the baseline where there is one."""
        return [self.measured] if self.baseline is None else [self.measured, self.baseline]


def find(
    model: Model,
    test: ObservedMatrix,
    *,
    unknown: Unknown = "error",
    ranking: RankingEvaluation | None = None,
    most_ranked: int = MOST_RANKED,
) -> Findings:
    """Measure a fitted model and the means on test entries.

    The ranking is evaluated unless it is given, with at most `most_ranked` predictions.
    """
    # First, since it raises the errors of an unfitted model or wrong entries.
    areas = evaluate(model, test, unknown=unknown)
    known_test = select_known_entries(model, test)
    if known_test.n_entries == 0:
        raise BadEntries(
            "no test entry has a row and a column that the model knows, so there is nothing to report"
        )
    measured = _measure(model, areas, known_test, name=type(model).__name__)
    has_levels = model.scale_.levels is not None
    no_ranking = ""
    if ranking is None:
        try:
            ranking = evaluate_ranking(
                model, known_test, most_rows=max(most_ranked // len(model.entries_.columns), 1)
            )
        except (BadEntries, BadSetting) as error:  # a scale without levels, or nothing relevant
            no_ranking = str(error)
    return Findings(
        model=model,
        seen=model.entries_,
        test=known_test,
        n_unknown=test.n_entries - known_test.n_entries,
        n_seen=count_seen(model, test),
        measured=measured,
        baseline=None
        if isinstance(model, Means)
        else _measure_baseline(model.entries_, test, known_test, unknown, like=measured),
        confusion=confusion_matrix(model, known_test) if has_levels else None,
        calibration=evaluate_calibration(model, known_test)
        if has_levels and model.gives_distribution
        else None,
        intervals=evaluate_intervals(model, known_test)
        if not has_levels and model.gives_distribution
        else None,
        ranking=ranking,
        no_ranking=no_ranking,
        certainty=evaluate_certainty_by_count(model, known_test)
        if model.gives_distribution
        else (),
    )


class RoundedMeans(Means):
    """The means rounded to levels, as a baseline for models that predict levels."""

    def _make_predictor(self, task: Any, entries: EntryStore, fitting: Fitting) -> Predictor:
        return replace(
            super()._make_predictor(task, entries, fitting), readout=LevelReadout(entries.scale)
        )


def _measure_baseline(
    seen: EntryStore,
    test: ObservedMatrix,
    known: ObservedMatrix,
    unknown: Unknown,
    *,
    like: Measurement,
) -> Measurement:
    """Measure the means on the same entries as the model, rounded if the model predicts levels."""
    means, name = (RoundedMeans(), "rounded means") if like.answers_levels else (Means(), "means")
    means.fit(seen.train)
    with ignore_empty_lines():  # warned of when the model itself was extended
        if seen.dropped.size:
            means = means.forget(entries=seen.train.take_entries(seen.dropped))
        if seen.extension is not None:
            means = means.extend(seen.extension)
    return _measure(means, evaluate(means, test, unknown=unknown), known, name=name)


def _measure(
    model: Model, areas: list[AreaErrors], known: ObservedMatrix, *, name: str
) -> Measurement:
    return Measurement(
        name, areas, evaluate_cold_start(model, known), evaluate_columns(model, known)
    )
