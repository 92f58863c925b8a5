"""Folded-in rows: rows that are not stored, which predict and rank by the latents of their entries."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepmf.errors import BadEntries, NothingObserved, OffScale
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.checks import numbers
from deepmf.matrix.entry_store import AxisEntries, EntryStore
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.models.predictive_distribution import Interval, check_coverage
from deepmf.models.predictor import Predictor
from deepmf.models.ranking import Ranking, ranked

History = tuple[Iterable[Any], Iterable[float]]  # columns, and the values that a row has there


@dataclass(frozen=True)
class FoldedRows:
    """Some rows that are not stored: their entries, and a predictor that has no other rows.

    Methods that take columns alone predict for each of them in each row: arrays are (rows, columns, ...), without the
    first axis where a single row was folded in.
    """

    entries: EntryStore
    predictor: Predictor
    observed: AxisEntries
    single: bool

    def predict(self, columns: Iterable[Any]) -> FloatArray:
        """Return the predictions for some columns."""
        return self._shaped(self.predictor.readout.values(self.predictor.score_pairs(*self._pairs(columns))))

    def predict_levels(self, columns: Iterable[Any], *, metric: str = "rmse") -> FloatArray:
        """Return legal levels for some columns, the best by a metric."""
        return self._shaped(self.predictor.levels(*self._pairs(columns), metric=metric))

    def predict_distribution(self, columns: Iterable[Any]) -> FloatArray:
        """Return the probability of each level for some columns."""
        return self._shaped(self.predictor.distribution(*self._pairs(columns)).probabilities)

    def predict_interval(self, columns: Iterable[Any], *, coverage: float = 0.9) -> Interval:
        """Return intervals that hold the true value with about this probability, for some columns."""
        check_coverage(coverage)
        ends = self.predictor.distribution(*self._pairs(columns)).ends(coverage, self.entries.scale)
        return Interval(*(self._shaped(end) for end in ends.T))

    def predict_at(self, rows: IndexArray, columns: Iterable[Any]) -> FloatArray:
        """Return the prediction for each pair of a row, by its number from 0, and a column."""
        scores = self.predictor.score_pairs(rows, self.entries.columns.positions(columns))
        return self.predictor.readout.values(scores)

    def predict_levels_at(self, rows: IndexArray, columns: Iterable[Any], *, metric: str = "rmse") -> FloatArray:
        """Return a legal level for each pair of a row, by its number from 0, and a column."""
        return self.predictor.levels(rows, self.entries.columns.positions(columns), metric=metric)

    def recommend(
        self, n: int = 10, *, columns: Iterable[Any] | None = None, include_observed: bool = False
    ) -> Ranking:
        """Return the n best columns, without those that the row has entries for; `columns` restricts the choice."""
        every = self.entries.columns
        among = np.arange(len(every)) if columns is None else every.distinct_positions(columns)
        observed = None if include_observed else self._observed_of
        best = ranked(self.predictor, every, np.arange(self._n_rows), among, n, observed=observed)
        return Ranking(best.labels[0], best.values[0]).without_missing() if self.single else best

    @property
    def _n_rows(self) -> int:
        return int(self.observed.starts.size) - 1

    def _pairs(self, columns: Iterable[Any]) -> tuple[IndexArray, IndexArray]:
        positions = self.entries.columns.positions(columns)
        return np.repeat(np.arange(self._n_rows), positions.size), np.tile(positions, self._n_rows)

    def _shaped(self, predictions: FloatArray) -> FloatArray:
        if self.single:
            return predictions
        return predictions.reshape(self._n_rows, -1, *predictions.shape[1:])

    def _observed_of(self, rows: IndexArray) -> AxisEntries:
        return self.observed.take(rows)


def folded_rows(entries: EntryStore, predictor: Predictor, histories: Sequence[History], *, single: bool) -> FoldedRows:
    """Return the rows that have these entries over known columns."""
    columns, values, counts = [], [], []
    for given_columns, given_values in histories:
        positions = entries.columns.positions(given_columns)
        floats = numbers(given_values)
        _check(entries, positions, floats)
        order = np.argsort(positions)  # as in a matrix: sums come out the same to the bit
        columns.append(positions[order])
        values.append(floats[order])
        counts.append(positions.size)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    observed = AxisEntries(starts, np.concatenate(columns).astype(np.int64), np.concatenate(values))
    return _folded(entries, predictor, observed, single=single)


def folded_matrix(entries: EntryStore, predictor: Predictor, matrix: ObservedMatrix) -> FoldedRows:
    """Return the rows of a matrix, whatever their labels, folded in; its columns must be known."""
    if not np.all(entries.scale.holds(matrix.values)):
        raise OffScale(f"the entries have the scale {matrix.scale}; the model's is {entries.scale}")
    columns = entries.columns.positions(matrix.column_labels)[matrix.by_row.columns]
    observed = AxisEntries(matrix.by_row.starts.astype(np.int64), columns, matrix.values.astype(np.float64))
    return _folded(entries, predictor, observed, single=False)


def _folded(entries: EntryStore, predictor: Predictor, observed: AxisEntries, *, single: bool) -> FoldedRows:
    described = observed.below(entries.train.shape[1])  # as in an extension, trained columns alone describe a row
    n_empty = np.count_nonzero(np.diff(described.starts) == 0)
    if n_empty:
        warnings.warn(
            f"{n_empty} row(s) have no entry over the trained columns: they are predicted from an empty description",
            NothingObserved,
            stacklevel=4,
        )
    return FoldedRows(entries, predictor.with_rows(described), observed, single=single)


def _check(entries: EntryStore, columns: IndexArray, values: FloatArray) -> None:
    if columns.size != values.size:
        raise BadEntries(f"columns and values are pairs, so of one length; got {columns.size} and {values.size}")
    if columns.size == 0:
        raise BadEntries("a row needs at least one entry to be folded in")
    distinct, counts = np.unique(columns, return_counts=True)
    if distinct.size < columns.size:
        twice = entries.columns[int(distinct[counts > 1][0])]
        raise BadEntries(f"the column {twice!r} was given twice")
    wrong = np.flatnonzero(~entries.scale.holds(values))
    if wrong.size:
        column = entries.columns[int(columns[wrong[0]])]
        raise OffScale(f"column {column!r} has value {values[wrong[0]]:g}; the scale is {entries.scale}")
