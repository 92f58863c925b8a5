"""Pairs of labels: their positions, the areas in which a model predicts, and the fallback for
unknown labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from deepmf.errors import BadEntries, BadSetting, CannotExtend, check_choice
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray
from deepmf.matrix.axis_entries import Axis
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.extras import TimeArray
from deepmf.matrix.labels import Labels, build_label_array, count_distinct
from deepmf.matrix.scale import Scale
from deepmf.scoring.effects import SHRINKAGE, Effects, compute_effects
from deepmf.scoring.predictor import PairPredictor
from deepmf.scoring.readouts import Readout

if TYPE_CHECKING:
    from deepmf.scoring.distribution import PredictiveDistribution
    from deepmf.scoring.drift import Drift

# A pair with an unknown row or column: an error for all pairs, NaN, or the prediction of the
# fallback.
Unknown = Literal["error", "nan", "fallback"]

PairFunction = Callable[[IndexArray, IndexArray], Array]

# From a predictor and the positions of pairs to answers (pairs, ...).
Question = Callable[[PairPredictor, IndexArray, IndexArray], FloatArray]

# The area in which a new row meets trained columns, and a new column trained rows.
_AREA_OF_NEW: dict[Axis, str] = {"row": "II", "column": "III"}

NO_VALUES = (
    "the model was fitted to interactions, which have no values to predict; recommend ranks columns"
)


def check_has_values(scale: Scale) -> None:
    """Refuse to predict values of interactions."""
    if scale.is_interactions:
        raise BadSetting(NO_VALUES)


@dataclass(frozen=True)
class PredictedAreas:
    """The areas in which a model predicts, and the reason why not in the others.

    method: the name of the model class.
    cannot: the reason.

    >>> PredictedAreas("ALS", ("I", "II"), "it has no factors of new columns").covers_new("column")
    False
    """

    method: str
    areas: tuple[str, ...]
    cannot: str

    def covers_new(self, axis: Axis) -> bool:
        """Whether the model predicts for new rows, or for new columns."""
        return _AREA_OF_NEW[axis] in self.areas

    def check_extends(self) -> None:
        """Refuse to extend a model that predicts only in area I."""
        if self.areas == ("I",):
            raise CannotExtend(f"{self.method} cannot be extended: {self.cannot}")

    def require(self, axis: Axis, ability: str) -> None:
        """Refuse what a model cannot do that does not predict for new rows, or for new columns."""
        if not self.covers_new(axis):
            raise CannotExtend(f"{self.method} cannot {ability}: {self.cannot}")

    def check_new(self, axis: Axis, known: Labels, labels: Labels) -> None:
        """Refuse labels that follow the known ones if the model cannot predict for them."""
        if len(labels) > len(known):
            first = labels[len(known) : len(known) + 1].tolist()[0]
            self.require(axis, f"predict for new {axis}s, such as {first!r}")


@dataclass(frozen=True)
class LabelPairs:
    """The positions of rows and of columns, (pairs,) each; -1 is an unknown label."""

    rows: IndexArray
    columns: IndexArray
    unknown: Unknown

    @property
    def are_known(self) -> BoolArray:
        """Which pairs have a known row and a known column."""
        return (self.rows >= 0) & (self.columns >= 0)

    def ask(
        self,
        known: PairPredictor,
        unknown: PairPredictor,
        question: Question,
        times: int | TimeArray | None = None,
    ) -> FloatArray:
        """Return the answer of one predictor for the known pairs, and NaN or (for "fallback")
        another's for the others.

        There is one time, or one for each pair.
        """

        def ask_some(predictor: PairPredictor, some: BoolArray) -> FloatArray:
            pair_times = times[some] if isinstance(times, np.ndarray) else times
            return question(predictor.at(pair_times), self.rows[some], self.columns[some])

        are_known = self.are_known
        answers = ask_some(known, are_known)
        if np.all(are_known):
            return answers
        values = np.full((are_known.size, *answers.shape[1:]), np.nan)
        values[are_known] = answers
        if self.unknown == "fallback":
            values[~are_known] = ask_some(unknown, ~are_known)
        return values


def find_pairs(
    entries: EntryStore, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown
) -> LabelPairs:
    """Return the positions of pairs of labels; with `unknown="error"` all of them must be known."""
    check_unknown(unknown)
    row_array, column_array = (
        build_label_array(rows, axis="row"),
        build_label_array(columns, axis="column"),
    )
    if row_array.size != column_array.size:
        raise BadEntries(
            f"rows and columns must have the same length; got {row_array.size} and {column_array.size}"
        )
    pairs = LabelPairs(entries.rows.find(row_array), entries.columns.find(column_array), unknown)
    if unknown == "error" and not np.all(pairs.are_known):
        check_known((entries.rows, row_array), (entries.columns, column_array))
    for labels, array, positions in (
        (entries.rows, row_array, pairs.rows),
        (entries.columns, column_array, pairs.columns),
    ):
        if np.all(positions < 0):
            # labels of another type cannot be known: a mistake, not new labels
            labels.check_kind(array)
    return pairs


def check_unknown(unknown: str) -> None:
    """Refuse an unknown value of `unknown`."""
    check_choice("unknown", unknown, get_args(Unknown))


def check_known(*axes: tuple[Labels, Array]) -> None:
    """Raise `UnknownLabel` with the first unknown label, and the number of others on all axes."""
    asked = ((labels, np.extract(labels.find(array) < 0, array)) for labels, array in axes)
    unknown = [(labels, array) for labels, array in asked if array.size]
    if unknown:
        (labels, first), *other_axes = unknown
        more = (f"{count_distinct(array)} {labels.axis}(s)" for labels, array in other_axes)
        raise labels.build_unknown_error(first, *more)


@dataclass(frozen=True)
class Fallback:
    """Predictions from the entries alone, without a model; a position of -1 is an unknown row or
    column."""

    seen: EntryStore

    def means(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return overall mean + column effect + row effect, as in `Means`; unknown rows and columns
        have no effect."""
        return self._effects.evaluate(rows, columns, self.seen.train.mean)

    def distribution(
        self, rows: IndexArray, columns: IndexArray, readout: Readout
    ) -> PredictiveDistribution:
        """Return distributions over the support of a readout, from the frequencies of its values
        among entries.

        If neither the row nor the column is known: among all training entries, with half an entry
        added to each value. If one is known: among its own entries, with five entries at those
        frequencies added.
        """
        from deepmf.scoring.distribution import Frequencies, PredictiveDistribution

        support, boundaries = readout.support, readout.unit_boundaries
        overall = Frequencies.of(self.seen.train, boundaries)
        frequencies = np.tile(overall.shares, (rows.size, 1))
        for positions, entries_of in (
            (rows, self.seen.row_entries),
            (columns, self.seen.column_entries),
        ):
            is_known = positions >= 0
            distinct, which = np.unique(positions[is_known], return_inverse=True)
            frequencies[is_known] = overall.smooth(entries_of(distinct))[which]
        return PredictiveDistribution.of_probabilities(
            support, self.seen.scale.from_unit(boundaries), frequencies
        )

    @cached_property
    def _effects(self) -> Effects:
        mean = self.seen.train.mean
        entries = self.seen.column_entries(np.arange(len(self.seen.columns)))
        of_columns = compute_effects(entries, entries.values - mean, SHRINKAGE)
        entries = self.seen.row_entries(np.arange(len(self.seen.rows)))
        of_rows = compute_effects(
            entries, entries.values - mean - of_columns[entries.others], SHRINKAGE
        )
        return Effects(of_rows, of_columns)


@dataclass(frozen=True)
class FallbackPredictor(PairPredictor):
    """Predicts pairs of which the row or the column is unknown, which has the position -1.

    read_means: returns the means of pairs; counts: the entries whose levels are counted.
    calibrate: maps means to those of any cell, where the model is calibrated on asked cells.
    """

    readout: Readout
    read_means: PairFunction
    counts: Fallback
    calibrate: Callable[[FloatArray], FloatArray]
    drift: Drift | None = None
    effects: Effects | None = None
    time: int | TimeArray | None = None

    def read_units(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the means of pairs, within the scale."""
        return self.readout.scale.clip(self.calibrate(self.read_means(rows, columns)))

    def read_values(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the means, or the levels nearest to them where the model predicts levels."""
        units = self.read_units(rows, columns)
        return self.readout.scale.nearest_level(units) if self.readout.predicts_levels else units

    def read_distribution(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the frequencies of the levels among the entries of the row or the column that is
        known."""
        frequencies = self.counts.distribution(rows, columns, self.readout)
        means = frequencies.probabilities @ frequencies.support
        return frequencies.shift(self.calibrate(means) - means)
