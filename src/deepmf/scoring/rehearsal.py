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
        rows, columns = (
            Histories.of(entries, frequencies) for entries in (self.rows, self.columns)
        )
        return Confidence(Trust.make_full(), frequencies, seen.train.shape, rows, columns)

    @property
    def few_columns(self) -> slice:
        """The pairs of columns with few entries."""
        n_pairs = self.values.size
        return slice(_N_VERSIONS * n_pairs, (_N_VERSIONS + len(FEW_COUNTS)) * n_pairs)


def fit_trust(rehearsal: Rehearsal, scores: Scores, readout: Readout, plain: Confidence) -> Trust:
    """Return how far distributions can be trusted.

    scores: of the pairs of a rehearsal. plain: the histories of its rows and columns.
    """
    learned, trust = readout.distribution(scores.location, scores.fields), Trust.make_full()
    are_above = rehearsal.values[:, None] > learned.boundaries
    odds = find_odds(learned.exceedance).reshape(-1, *are_above.shape)
    rows, columns = (places.reshape(len(odds), -1) for places in rehearsal.pairs)
    row_counts, column_counts = plain.rows.counts[rows], plain.columns.counts[columns]
    # Distributions are calibrated for usual numbers of entries.
    usual_rows, usual_columns = np.median(row_counts[0]), np.median(column_counts[0])
    for place, count in enumerate(FEW_COUNTS):
        of_rows, of_columns, of_both = 1 + place + len(FEW_COUNTS) * np.arange(3)
        are_few = (row_counts[of_rows] == count) & (count < usual_rows)
        column_odds = plain.columns.odds[columns[0, are_few]]
        trust.row_excess[place], trust.row_pool[place] = _fit_odds(
            odds[of_rows, are_few], column_odds, are_above[are_few]
        )
        are_few = (column_counts[of_columns] == count) & (count < usual_columns)
        row_odds = plain.rows.odds[rows[0, are_few]]
        trust.column_excess[place], trust.column_pool[place] = _fit_odds(
            odds[of_columns, are_few], row_odds, are_above[are_few]
        )
        are_few = (row_counts[of_both] == count) & (column_counts[of_both] == count)
        if are_few.any():
            apart = replace(plain, trust=trust).change_pairs(
                rows[of_both, are_few], columns[of_both, are_few]
            )
            changed_odds = odds[of_both, are_few] / np.sqrt(apart.excess + 1.0)
            (factor,) = _regress(changed_odds.reshape(-1, 1), are_above[are_few], apart.pooled)
            trust.cell_excess[place] = _find_excess(factor) * float(1.0 + apart.excess[0, 0])
    return trust


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
