"""Predictions for pairs of labels: of the known ones by a predictor, of the unknown ones by the fallback."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, CannotExtend
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels, build_label_array, count_distinct
from deepmf.metrics import rmse_error
from deepmf.models.distribution import PredictiveDistribution
from deepmf.models.explanation import Axis
from deepmf.models.predictor import Predictor, check_levels
from deepmf.training.loop import ValidationEntries

# How many entries of the overall mean (or frequencies) a row's and a column's own entries are mixed with.
SHRINKAGE = 5.0


# Where a new row meets trained columns, and a new column trained rows.
_AREA_OF_NEW: dict[Axis, str] = {"row": "II", "column": "III"}


@dataclass(frozen=True)
class PredictedAreas:
    """The areas that a method predicts in, and why not in the others.

    >>> PredictedAreas("ALS", ("I", "II"), "it has no factors of new columns").covers_new("column")
    False
    """

    method: str
    areas: tuple[str, ...]
    cannot: str

    def covers_new(self, axis: Axis) -> bool:
        """Say whether it predicts for new rows, or for new columns."""
        return _AREA_OF_NEW[axis] in self.areas

    def check_extends(self) -> None:
        """Refuse where the method predicts in area I alone."""
        if self.areas == ("I",):
            raise CannotExtend(f"{self.method} cannot be extended: {self.cannot}")

    def check_folds_in(self, axis: Axis) -> None:
        """Refuse to fold in a row, or a column, where the method cannot predict for new ones."""
        if not self.covers_new(axis):
            raise CannotExtend(f"{self.method} cannot predict for new {axis}s: {self.cannot}")

    def check_explains(self, axis: Axis) -> None:
        """Refuse to explain by the entries of a row, or of a column, where the method does not predict from them."""
        if not self.covers_new(axis):
            raise CannotExtend(f"{self.method} cannot explain by the entries of a {axis}: {self.cannot}")

    def check_new(self, axis: Axis, known: Labels, labels: Labels) -> None:
        """Refuse labels beyond the known ones, which they begin with, where the method cannot predict for them."""
        if self.covers_new(axis) or len(labels) == len(known):
            return
        first = labels[len(known) : len(known) + 1].tolist()[0]
        raise CannotExtend(f"{self.method} cannot predict for new {axis}s, such as {first!r}: {self.cannot}")


# A pair with an unknown row or column: an error for all pairs, NaN, or the prediction of the fallback.
Unknown = Literal["error", "nan", "fallback"]


PairFunction = Callable[[IndexArray, IndexArray], npt.NDArray[Any]]


@dataclass(frozen=True)
class LabelPairs:
    """Positions of rows and columns, of one length; -1 for an unknown label."""

    rows: IndexArray
    columns: IndexArray
    unknown: Unknown

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which pairs have a known row and a known column."""
        known: npt.NDArray[np.bool_] = (self.rows >= 0) & (self.columns >= 0)
        return known

    def evaluate(self, predict: PairFunction, fallback: PairFunction) -> FloatArray:
        """Return `predict` of the known pairs; for the others NaN or, with `unknown="fallback"`, `fallback` of them.

        Both map positions to arrays whose first axis is that of the pairs.
        """
        known = self.known
        if np.all(known):
            return predict(self.rows, self.columns)
        some = predict(self.rows[known], self.columns[known])
        values = np.full((known.size, *some.shape[1:]), np.nan)
        values[known] = some
        if self.unknown == "fallback":
            values[~known] = fallback(self.rows[~known], self.columns[~known])
        return values


def find_pairs(
    row_labels: Labels, column_labels: Labels, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown
) -> LabelPairs:
    """Return the positions of pairs of labels; with `unknown="error"` all of them must be known."""
    check_unknown(unknown)
    row_array, column_array = build_label_array(rows, axis="row"), build_label_array(columns, axis="column")
    if row_array.size != column_array.size:
        raise BadEntries(f"rows and columns are pairs, so of one length; got {row_array.size} and {column_array.size}")
    pairs = LabelPairs(row_labels.find(row_array), column_labels.find(column_array), unknown)
    if unknown == "error" and not np.all(pairs.known):
        check_known((row_labels, row_array), (column_labels, column_array))
    for labels, array, positions in (
        (row_labels, row_array, pairs.rows),
        (column_labels, column_array, pairs.columns),
    ):
        if np.all(positions < 0):
            labels.check_kind(array)  # labels of another type cannot be known: a mistake, not new labels
    return pairs


def check_unknown(unknown: str) -> None:
    """Refuse a value that `unknown` cannot have."""
    choices = get_args(Unknown)
    if unknown not in choices:
        raise BadSetting(f"unknown must be {' or '.join(map(repr, choices))}; got {unknown!r}")


def check_known(*axes: tuple[Labels, npt.NDArray[Any]]) -> None:
    """Name the first label that is not among those of its axis, and say how many others there are on all axes."""
    asked = ((labels, np.extract(labels.find(array) < 0, array)) for labels, array in axes)
    unknown = [(labels, array) for labels, array in asked if array.size]
    if unknown:
        (labels, first), *others = unknown
        raise labels.build_unknown_error(
            first, *(f"{count_distinct(array)} {labels.axis}(s)" for labels, array in others)
        )


# Added to the count of every level, so that one that never occurs still has a probability above 0.
_PRIOR_COUNT = 0.5


@dataclass(frozen=True)
class Fallback:
    """Predictions from the stored entries alone; a position of -1 is an unknown row or column."""

    seen: EntryStore

    def means(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return overall mean + column effect + row effect, as `Means` has them; an unknown one has no effect."""
        column_effects, row_effects = self._effects
        return add_effects(self.seen.train.mean, row_effects, column_effects, rows, columns)

    def distribution(self, rows: IndexArray, columns: IndexArray, boundaries: npt.NDArray[np.float32]) -> FloatArray:
        """Return how frequent the values between boundaries (in units of [-1, 1]) are (pairs, boundaries + 1).

        Where neither is known: among all training entries, half an entry added to each. Where the row or the column
        is: among its own entries, mixed with five entries of those frequencies.
        """
        counts = self._counts(np.array([0, self.seen.train.n_entries]), self.seen.train.values, boundaries)[0]
        overall = (counts + _PRIOR_COUNT) / np.sum(counts + _PRIOR_COUNT)
        frequencies = np.tile(overall, (rows.size, 1))
        for positions, entries_of in ((rows, self.seen.row_entries), (columns, self.seen.column_entries)):
            known = positions >= 0
            distinct, which = np.unique(positions[known], return_inverse=True)
            entries = entries_of(distinct)
            own = self._counts(entries.starts, entries.values, boundaries)
            mixed = (own + SHRINKAGE * overall) / (own.sum(axis=1, keepdims=True) + SHRINKAGE)
            frequencies[known] = mixed[which]
        return frequencies

    def _counts(
        self, starts: IndexArray, values: npt.NDArray[Any], boundaries: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.int64]:
        """Return how many values of each group lie between the boundaries (groups, boundaries + 1)."""
        n_groups, n_bins = starts.size - 1, boundaries.size + 1
        # In the precision of the boundaries: a value that is one itself lies below it.
        bins = np.searchsorted(boundaries, self.seen.scale.to_unit(values).astype(np.float32))
        group = np.repeat(np.arange(n_groups), np.diff(starts))
        return np.bincount(group * n_bins + bins, minlength=n_groups * n_bins).reshape(n_groups, n_bins)

    @cached_property
    def _effects(self) -> tuple[FloatArray, FloatArray]:
        """The effects of all columns, and of all rows."""
        mean = self.seen.train.mean
        entries = self.seen.column_entries(np.arange(len(self.seen.columns)))
        of_columns = compute_effects(entries, entries.values - mean, SHRINKAGE)
        entries = self.seen.row_entries(np.arange(len(self.seen.rows)))
        return of_columns, compute_effects(entries, entries.values - mean - of_columns[entries.others], SHRINKAGE)


def compute_effects(entries: AxisEntries, deviations: FloatArray, shrinkage: float) -> FloatArray:
    """Return the mean deviation of each group of entries, shrunk as by `shrinkage` further entries of deviation 0."""
    counts = np.diff(entries.starts)
    which = np.repeat(np.arange(counts.size), counts)
    sums = np.bincount(which, weights=deviations, minlength=counts.size)
    effects: FloatArray = sums / np.maximum(counts + shrinkage, 1e-9)
    return effects


def add_effects(
    mean: float, row_effects: FloatArray, column_effects: FloatArray, rows: IndexArray, columns: IndexArray
) -> FloatArray:
    """Return mean + row effect + column effect of each pair of positions; -1 has no effect."""
    # The last one is what a position of -1 takes.
    by_row, by_column = np.append(row_effects, 0.0)[rows], np.append(column_effects, 0.0)[columns]
    means: FloatArray = mean + by_row + by_column
    return means


ReadScores = Callable[[npt.NDArray[Any]], FloatArray]


@dataclass(frozen=True)
class PairPredictions:
    """Predictions for pairs of rows and columns, by label.

    fallback: gives the fallback, which is made only where a pair is unknown.
    means: what is predicted for positions of rows and columns, -1 where one is unknown.
    """

    method: str
    entries: EntryStore
    predictor: Predictor
    fallback: Callable[[], Fallback]
    means: PairFunction

    def values(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> FloatArray:
        """Return predictions in the scale's units."""
        return self._read(rows, columns, unknown, self.predictor.readout.values, self._values_of_means)

    def scores(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> FloatArray:
        """Return real-valued scores in the scale's units."""
        return self._read(rows, columns, unknown, self.predictor.readout.units, self.entries.scale.clip)

    def levels(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown, *, metric: str) -> FloatArray:
        """Return the levels that are best by a metric."""
        scale = self.entries.scale
        check_levels(scale, metric)
        if metric != "rmse" and self.predictor.gives_distribution:
            return self.distributions(rows, columns, unknown, lambda found: found.best(metric))
        return self._read(rows, columns, unknown, self.predictor.readout.levels, scale.nearest_level)

    def distributions(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        read: Callable[[PredictiveDistribution], FloatArray],
    ) -> FloatArray:
        """Return `read` of the predictive distributions."""
        predictor = self.predictor
        if not predictor.gives_distribution:
            raise BadSetting(
                f"{self.method} predicts a value, not a distribution; OrdinalDMF, ICFNADE and UCFNADE do both"
            )
        return self.pairs(rows, columns, unknown).evaluate(
            lambda *pairs: read(predictor.distribution(*pairs)), lambda *pairs: read(self._frequencies(*pairs))
        )

    def areas(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> npt.NDArray[np.str_]:
        """Return the area of each pair; "" where its row or its column is unknown."""
        pairs = self.pairs(rows, columns, unknown)
        return np.where(pairs.known, self.entries.areas(pairs.rows, pairs.columns), "")

    def means_error(self, validation: ValidationEntries) -> float:
        """Return the root mean squared error of the means on validation entries."""
        return rmse_error(self._values_of_means(self.means(validation.rows, validation.columns)), validation.values)

    def pairs(self, rows: Iterable[Any], columns: Iterable[Any], unknown: Unknown) -> LabelPairs:
        """Return the positions of pairs of labels."""
        return find_pairs(self.entries.rows, self.entries.columns, rows, columns, unknown)

    def _read(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        unknown: Unknown,
        of_scores: ReadScores,
        of_means: ReadScores,
    ) -> FloatArray:
        """Return `of_scores` of the score of each pair of labels, or `of_means` of the mean where one is unknown."""
        score_pairs = self.predictor.score_pairs
        return self.pairs(rows, columns, unknown).evaluate(
            lambda *pairs: of_scores(score_pairs(*pairs)), lambda *pairs: of_means(self.means(*pairs))
        )

    def _values_of_means(self, means: npt.NDArray[Any]) -> FloatArray:
        """Return means as predictions, as legal as those of the predictor."""
        scale = self.entries.scale
        return scale.nearest_level(means) if self.predictor.readout.predicts_levels else scale.clip(means)

    def _frequencies(self, rows: IndexArray, columns: IndexArray) -> PredictiveDistribution:
        """Return the fallback's distributions for pairs of positions."""
        predictor = self.predictor
        frequencies = self.fallback().distribution(rows, columns, predictor.unit_boundaries)
        boundaries = self.entries.scale.from_unit(predictor.unit_boundaries)
        return PredictiveDistribution.of_probabilities(predictor.support, boundaries, frequencies)
