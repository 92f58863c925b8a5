"""Rehearsed arrivals: rows and columns of training arrive again with few of their entries.

Held-out entries of theirs say how far predictions for them can be trusted, see `confidence`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from deepmf.files import special
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, IndexPair, SingleArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.scoring.confidence import FEW_COUNTS, Confidence, Histories, Trust
from deepmf.scoring.distribution import Frequencies, PredictiveDistribution, find_odds
from deepmf.scoring.effects import SHRINKAGE
from deepmf.scoring.encoders import Scores
from deepmf.scoring.readouts import Readout
from deepmf.training.holdout import HeldOut

# The largest numbers of rows, of columns, and of held-out entries that are rehearsed.
_MOST_LINES, _MOST_PAIRS = 500, 5_000

# Steps of Newton's method for an excess and a pool; a few are enough. Log-odds are divided by at
# most ten. Log-odds that are all 0 say nothing.
_STEPS, _LEAST_FACTOR, _LEAST_PRECISION = 20, 0.1, 1e-9

# Each row, and each column, is there with all its entries, and then with few of them.
_N_VERSIONS = 1 + len(FEW_COUNTS)


class Rehearsal(NamedTuple):
    """Rows and columns with all entries, and then with each of `FEW_COUNTS`, as if they were new.

    rows, columns: the entries of each version of them; version v of row i is v * n + i.
    row_at, column_at: (pairs,) of held-out entries. values: (pairs,).
    """

    rows: AxisEntries
    columns: AxisEntries
    row_at: IndexArray
    column_at: IndexArray
    values: FloatArray

    @classmethod
    def of(cls, seen: EntryStore, held_out: HeldOut, *, seed: int) -> Rehearsal:
        """Return the rehearsal of some rows and columns that have held-out entries."""
        numbers = np.random.default_rng(seed)
        pairs = numbers.permutation(held_out.values.size)
        for positions in (held_out.rows, held_out.columns):
            _, first_at = np.unique(positions[pairs], return_index=True)
            arrived = positions[pairs][np.sort(first_at)[:_MOST_LINES]]
            pairs = pairs[np.isin(positions[pairs], arrived)]
        pairs = np.sort(pairs[:_MOST_PAIRS])
        rows, row_at = np.unique(held_out.rows[pairs], return_inverse=True)
        columns, column_at = np.unique(held_out.columns[pairs], return_inverse=True)
        most = np.array([np.inf, *FEW_COUNTS])
        return cls(
            seen.row_entries(np.tile(rows, _N_VERSIONS)).draw(most.repeat(rows.size), numbers),
            seen.column_entries(np.tile(columns, _N_VERSIONS)).draw(
                most.repeat(columns.size), numbers
            ),
            row_at,
            column_at,
            held_out.values[pairs],
        )

    @property
    def pairs(self) -> IndexPair:
        """The places of all pairs that are predicted: rows and columns as they are, few entries of
        rows, of columns, and of both."""
        few, none = np.arange(1, _N_VERSIONS), np.zeros(len(FEW_COUNTS), dtype=np.int64)
        row_versions = np.concatenate([[0], few, none, few])
        column_versions = np.concatenate([[0], none, few, few])
        n_rows, n_columns = (
            (entries.starts.size - 1) // _N_VERSIONS for entries in (self.rows, self.columns)
        )
        rows = row_versions[:, None] * n_rows + self.row_at
        columns = column_versions[:, None] * n_columns + self.column_at
        return rows.ravel(), columns.ravel()

    def read_histories(self, seen: EntryStore, unit_boundaries: SingleArray) -> Confidence:
        """Return the histories of all versions, with full trust."""
        frequencies = Frequencies.of(seen.train, unit_boundaries)
        rows = Histories.of(self.rows, frequencies)
        columns = Histories.of(self.columns, frequencies)
        full = Trust.make_full()
        return Confidence(full, frequencies, seen.train.shape, rows, columns)

    @property
    def few_columns(self) -> slice:
        """The pairs of columns with few entries."""
        n_pairs = self.values.size
        return slice(_N_VERSIONS * n_pairs, (_N_VERSIONS + len(FEW_COUNTS)) * n_pairs)


def fit_trust(rehearsal: Rehearsal, scores: Scores, readout: Readout, plain: Confidence) -> Trust:
    """Return how far distributions can be trusted.

    scores: of the pairs of a rehearsal. plain: the histories of its rows and columns.
    """
    learned = readout.distribution(scores.location, scores.fields)
    above = rehearsal.values[:, None] > learned.boundaries
    cells = _Cells(rehearsal, plain, find_odds(learned.exceedance), above)
    numbers = np.zeros((len(Trust._fields), len(FEW_COUNTS)))
    row_excess, column_excess, cell_excess, row_pool, column_pool = numbers
    for place in range(len(FEW_COUNTS)):
        row_excess[place], row_pool[place] = cells.fit_rows(place)
        column_excess[place], column_pool[place] = cells.fit_columns(place)
    trust = Trust(*numbers)
    for place in range(len(FEW_COUNTS)):
        cell_excess[place] = cells.fit_both(place, trust)
    return trust


class _Cells(NamedTuple):
    """The cells of a rehearsal: log-odds of exceeding each boundary, and whether values do."""

    rehearsal: Rehearsal
    plain: Confidence
    odds: FloatArray  # (versions * pairs, boundaries)
    are_above: BoolArray  # (pairs, boundaries)

    def fit_rows(self, place: int) -> tuple[float, float]:
        """Return the excess and the pool of rows with a number of entries."""
        at, rows, columns = self._find_cells(place, 1)
        is_few = self._are_few(self.plain.rows, rows, place)
        column_odds = self.plain.columns.odds[columns[is_few]]
        return _fit_odds(self.odds[at][is_few], column_odds, self.are_above[is_few])

    def fit_columns(self, place: int) -> tuple[float, float]:
        """Return the excess and the pool of columns with a number of entries."""
        at, rows, columns = self._find_cells(place, 1 + len(FEW_COUNTS))
        is_few = self._are_few(self.plain.columns, columns, place)
        row_odds = self.plain.rows.odds[rows[is_few]]
        return _fit_odds(self.odds[at][is_few], row_odds, self.are_above[is_few])

    def fit_both(self, place: int, trust: Trust) -> float:
        """Return the excess of cells with a number of entries in the row and in the column."""
        at, rows, columns = self._find_cells(place, 1 + 2 * len(FEW_COUNTS))
        count, plain = FEW_COUNTS[place], self.plain
        is_few = (plain.rows.counts[rows] == count) & (plain.columns.counts[columns] == count)
        if not is_few.any():
            return 0.0
        change = replace(plain, trust=trust).change_pairs(rows[is_few], columns[is_few])
        alone = (change.excess + 1.0) ** -0.5 * self.odds[at][is_few]
        (factor,) = _regress(alone.reshape(-1, 1), self.are_above[is_few], change.pooled)
        return _find_excess(factor) * float(1.0 + change.excess[0, 0])

    def _are_few(self, histories: Histories, versions: IndexArray, place: int) -> BoolArray:
        """Return which of some versions have a number of entries, if that is below the usual one,
        for which distributions are calibrated."""
        counts, few = histories.counts, FEW_COUNTS[place]
        usual = np.median(counts[versions % (counts.size // _N_VERSIONS)])
        are_few: BoolArray = (counts[versions] == few) & (few < usual)
        return are_few

    def _find_cells(self, place: int, first: int) -> tuple[slice, IndexArray, IndexArray]:
        """Return the cells of a version: their span, rows and columns."""
        n_pairs = self.rehearsal.values.size
        at = slice((first + place) * n_pairs, (first + place + 1) * n_pairs)
        rows, columns = self.rehearsal.pairs
        return at, rows[at], columns[at]


def _fit_odds(learned: FloatArray, own: Array, are_above: BoolArray) -> tuple[float, float]:
    """Return the excess and the pool with which held-out values are most probable, boundary by
    boundary.

    The prior holds the learned log-odds as strongly as five entries. Neither is below 0: arrivals
    of training are predicted a little too well, as the other side was trained on their entries.
    """
    if learned.size == 0:
        return 0.0, 0.0
    features = learned.reshape(-1, 1)
    if own.size:
        factor, pool = _regress(np.column_stack([features, own.ravel()]), are_above)
        if pool > 0:
            return _find_excess(factor), pool
    (factor,) = _regress(features, are_above)
    return _find_excess(factor), 0.0


def _find_excess(factor: float) -> float:
    """Return the excess by which log-odds are multiplied by a factor, which is at most 1."""
    return 1.0 / float(np.clip(factor, _LEAST_FACTOR, 1.0)) ** 2 - 1.0


def _regress(
    features: FloatArray, are_above: BoolArray, offsets: FloatArray | None = None
) -> list[float]:
    """Return the weights of features in log-odds beside offsets; the prior of the first is 1, of
    others 0."""
    n_features = features.shape[1]
    usual = np.eye(n_features)[0]
    # An entry tells at most a quarter about the log-odds of a boundary.
    n_boundaries = are_above.shape[1]
    precision = SHRINKAGE / 4.0 * n_boundaries * np.square(features[:, 0]).mean()
    prior, weights = (precision + _LEAST_PRECISION) * np.eye(n_features), usual
    known_odds = np.broadcast_to(0.0 if offsets is None else offsets, are_above.shape)
    for _ in range(_STEPS):
        chances = special.expit(features @ weights + known_odds.ravel())
        slopes = features.T @ (are_above.ravel() - chances) - prior @ (weights - usual)
        information = (features.T * (chances * (1.0 - chances))) @ features + prior
        weights = weights + np.linalg.solve(information, slopes)
    return [float(weight) for weight in weights]


def make_confidence(
    trust: Trust,
    learned: PredictiveDistribution,
    held_out: HeldOut,
    stores: tuple[EntryStore, EntryStore],
    unit_boundaries: SingleArray,
) -> Confidence:
    """Return the confidence of a model, whose intervals hold their share of held-out values.

    learned: the distributions of held-out entries. stores: the entries without them, and all.
    """
    training, entries = stores
    frequencies = Frequencies.of(entries.train, unit_boundaries)
    coverages, usual_counts = Confidence.of(trust, frequencies, training).calibrate(
        learned, held_out
    )
    confidence = Confidence.of(trust, frequencies, entries)
    return replace(confidence, coverages=coverages, usual_counts=usual_counts)
