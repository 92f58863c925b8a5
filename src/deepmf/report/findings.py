"""The numbers of a report: how a model, and the means as a baseline, predict test entries."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, NothingObserved
from deepmf.evaluation.areas import (
    AreaErrors,
    ColdStart,
    ColumnErrors,
    confusion_matrix,
    count_seen,
    evaluate,
    evaluate_cold_start,
    evaluate_columns,
    select_known_entries,
)
from deepmf.evaluation.calibration import Calibration, IntervalCoverage, evaluate_calibration, evaluate_intervals
from deepmf.evaluation.ranking import RankingEvaluation, evaluate_ranking
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.base import Model
from deepmf.models.explanation import Explanation
from deepmf.models.fitting import Fitting
from deepmf.models.means import Means
from deepmf.models.pairs import Unknown
from deepmf.models.predictor import LevelReadout, Predictor

# Pairs that are scored for the ranking of a page, so that it is soon made however many rows there are.
_MOST_RANKED = 1 << 26

_EXPLAINED = 10  # entries of an explanation


@dataclass(frozen=True)
class Measured:
    """How one model errs on the test entries: by area, by how much is known of a row, by column."""

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
        """Whether the predictions are levels already, so that rounding changes nothing."""
        return self.overall.rmse == self.overall.level_rmse


class ExplainedPair(NamedTuple):
    """A row and a column, its value where it is in the test, and why the model predicts what it predicts."""

    row: Any
    column: Any
    value: float | None
    explanation: Explanation


@dataclass(frozen=True)
class Findings:
    """A fitted model, test entries, and how the one predicts the other.

    `baseline` is how the means err that have seen the same entries, rounded where the model predicts levels; None
    where the model is the means itself.
    `confusion` (true level, predicted level) and `calibration` are None where there is no such thing; `intervals` are
    there where a model gives intervals of real values.
    `test` holds the entries whose row and column the model knows; on the `n_unknown` others, the fallback's errors are
    among those by area where it was wanted.
    """

    model: Model
    seen: EntryStore
    test: ObservedMatrix
    n_unknown: int
    n_seen: int
    measured: Measured
    baseline: Measured | None
    confusion: npt.NDArray[np.int64] | None
    calibration: Calibration | None
    intervals: list[IntervalCoverage] | None
    ranking: RankingEvaluation | None
    no_ranking: str = ""  # why there is none
    explained: tuple[ExplainedPair, ...] = ()

    @property
    def compared(self) -> list[Measured]:
        """The model, and the baseline where there is one."""
        return [self.measured] if self.baseline is None else [self.measured, self.baseline]


def find(
    model: Model,
    test: ObservedMatrix,
    *,
    unknown: Unknown = "error",
    ranking: RankingEvaluation | None = None,
    explain: Iterable[tuple[Any, Any]] = (),
) -> Findings:
    """Measure a fitted model on test entries, and the means beside it; how it ranks too, unless that is given.

    The predictions of some pairs of a row and a column (`explain`) are explained.
    """
    # First, since it says what is wrong with the model or the entries.
    areas = evaluate(model, test, unknown=unknown)
    known = select_known_entries(model, test)
    if known.n_entries == 0:
        raise BadEntries("there is nothing to report on: no test entry has a row and a column that the model knows")
    measured = _measured(model, areas, known, name=type(model).__name__)
    has_levels = model.scale_.levels is not None
    no_ranking = ""
    if ranking is None:
        try:
            ranking = evaluate_ranking(model, known, most_rows=max(_MOST_RANKED // len(model.entries_.columns), 1))
        except (BadEntries, BadSetting) as error:  # a scale without levels, or nothing relevant
            no_ranking = str(error)
    return Findings(
        model=model,
        seen=model.entries_,
        test=known,
        n_unknown=test.n_entries - known.n_entries,
        n_seen=count_seen(model, test),
        measured=measured,
        baseline=None if isinstance(model, Means) else _baseline(model.entries_, test, known, unknown, like=measured),
        confusion=confusion_matrix(model, known) if has_levels else None,
        calibration=evaluate_calibration(model, known) if has_levels and model.gives_distribution else None,
        intervals=evaluate_intervals(model, known) if not has_levels and model.gives_distribution else None,
        ranking=ranking,
        no_ranking=no_ranking,
        explained=tuple(_explained(model, known, row, column) for row, column in explain),
    )


def _explained(model: Model, test: ObservedMatrix, row: Any, column: Any) -> ExplainedPair:
    row_of, column_of = test.rows.find([row])[0], test.columns.find([column])[0]
    here = np.flatnonzero((test.entry_rows == row_of) & (test.by_row.columns == column_of))
    value = float(test.values[here[0]]) if here.size else None
    return ExplainedPair(row, column, value, model.explain(row, column, _EXPLAINED))


class RoundedMeans(Means):
    """The means, rounded: what levels are to be compared with."""

    def _make_predictor(self, task: Any, entries: EntryStore, fitting: Fitting) -> Predictor:
        return replace(super()._make_predictor(task, entries, fitting), readout=LevelReadout(entries.scale))


def _baseline(
    seen: EntryStore, test: ObservedMatrix, known: ObservedMatrix, unknown: Unknown, *, like: Measured
) -> Measured:
    """Measure the means, fitted and extended by the same entries as a model, which predict levels where it does."""
    means, name = (RoundedMeans(), "rounded means") if like.answers_levels else (Means(), "means")
    means.fit(seen.train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingObserved)  # warned of when the model itself was extended
        if seen.dropped.size:
            means = means.forget(entries=seen.train.take_entries(seen.dropped))
        if seen.extension is not None:
            means = means.extend(seen.extension)
    return _measured(means, evaluate(means, test, unknown=unknown), known, name=name)


def _measured(model: Model, areas: list[AreaErrors], known: ObservedMatrix, *, name: str) -> Measured:
    return Measured(name, areas, evaluate_cold_start(model, known), evaluate_columns(model, known))
