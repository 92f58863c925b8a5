"""Confidence: how far the distributions of rows and columns with few entries can be trusted.

Members say how uncertain they are; entries that they have not seen say how true that is. The
log-odds of exceeding each boundary, for a row and a column with some numbers of entries, become

    learned log-odds / sqrt(1 + excess)
        + pool of the row * log-odds of the column's own values
        + pool of the column * log-odds of the row's own values.

The excess is that of the row plus that of the column, as variances add up, plus that of cells whose
row and column both have few entries. Excesses and pools are 0 where histories are long. The
log-odds of own values are those of smoothed frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from deepmf.files import special
from deepmf.matrix.arrays import Array, FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.scoring.distribution import (
    COVERAGES,
    CalibratedDistribution,
    Frequencies,
    PredictiveDistribution,
    find_odds,
)
from deepmf.scoring.readouts import Readout
from deepmf.storage.model_file import Tensors
from deepmf.storage.parts import Form, Part, below, between, not_falling, not_negative, positive
from deepmf.training.holdout import HeldOut

# The numbers of entries that are rehearsed, and the one from which on a history is long.
FEW_COUNTS = (1, 3, 10, 30, 100)
LONG_COUNT = 300

# The largest excess and log-odds that a model file may hold.
_LARGEST = 1e6


def interpolate_counts(table: FloatArray, counts: Array) -> FloatArray:
    """Return the numbers for some numbers of entries, from those for `FEW_COUNTS`; 0 where
    histories are long.

    >>> interpolate_counts(np.array([1.0, 0.5, 0.2, 0.0, 0.0]), np.array([0, 1, 3, 300])).tolist()
    [1.0, 1.0, 0.5, 0.0]
    """
    knots = np.log([*FEW_COUNTS, LONG_COUNT])
    numbers: FloatArray = np.interp(np.log(np.maximum(counts, 1)), knots, np.append(table, 0.0))
    return numbers


class Histories(NamedTuple):
    """What the entries of rows in trained columns (or of columns in trained rows) say by
    themselves.

    counts: (rows,) their numbers. odds: (rows, boundaries) the log-odds that their values exceed
    each boundary; on a scale without levels, there are none.
    """

    counts: IndexArray
    odds: LatentArray

    @classmethod
    def of(cls, entries: AxisEntries, frequencies: Frequencies) -> Histories:
        """Return the histories of rows (or columns) with these entries."""
        counts = np.diff(entries.starts)
        if not frequencies.are_of_levels:
            return cls(counts, np.empty((counts.size, 0), dtype=np.float32))
        exceedance = 1.0 - np.cumsum(frequencies.smooth(entries), axis=1)[:, :-1]
        return cls(counts, find_odds(exceedance).astype(np.float32))

    def put(self, positions: IndexArray, changed: Histories) -> Histories:
        """Return the histories with others at some positions, the last of which may be new."""
        n_new = max(int(positions.max(initial=-1)) + 1 - self.counts.size, 0)
        counts = np.pad(self.counts, (0, n_new))
        odds = np.pad(self.odds, ((0, n_new), (0, 0)))
        counts[positions], odds[positions] = changed
        return Histories(counts, odds)

    def take(self, positions: IndexArray) -> Histories:
        """Return the histories of some rows (or columns)."""
        return Histories(self.counts[positions], self.odds[positions])

    def without(self, positions: IndexArray) -> Histories:
        """Return the histories without some rows (or columns)."""
        counts = np.delete(self.counts, positions)
        return Histories(counts, np.delete(self.odds, positions, axis=0))


class Trust(NamedTuple):
    """The excesses and pools for `FEW_COUNTS`, (counts,) each."""

    row_excess: FloatArray
    column_excess: FloatArray
    cell_excess: FloatArray  # of cells with at most as many entries in the row and the column
    row_pool: FloatArray
    column_pool: FloatArray

    @classmethod
    def make_full(cls) -> Trust:
        """Return the trust that leaves distributions as learned."""
        return cls(*np.zeros((len(cls._fields), len(FEW_COUNTS))))

    def find_excess(self, row_counts: Array, column_counts: Array) -> FloatArray:
        """Return the excesses of cells by the numbers of entries of their rows and columns, which
        broadcast."""
        of_row = interpolate_counts(self.row_excess, row_counts)
        of_column = interpolate_counts(self.column_excess, column_counts)
        of_cell = np.minimum(
            interpolate_counts(self.cell_excess, row_counts),
            interpolate_counts(self.cell_excess, column_counts),
        )
        return of_row + of_column + of_cell


class OddsChange(NamedTuple):
    """The change of learned log-odds; arrays or tensors that broadcast with them."""

    excess: Any
    pooled: Any

    def apply(self, odds: Any) -> Any:
        """Return the log-odds that can be trusted."""
        return odds / (1.0 + self.excess) ** 0.5 + self.pooled

    def apply_to_logarithms(self, log_chances: Array) -> Array:
        """Return the logarithms of probabilities from those of learned ones; what is certain
        stays so."""
        with np.errstate(divide="ignore"):
            odds = log_chances - np.log(-np.expm1(log_chances))
        changed: Array = special.log_expit(self.apply(odds))
        return changed


@dataclass(frozen=True)
class Confidence:
    """How far the distributions of a model can be trusted, by the histories of rows and columns.

    coverages: the calibration of intervals, as in `PredictiveDistribution.choose_coverages`. It
        reaches as far as histories have the usual counts of rows and columns.
    frequencies: those of all values, by which those of a row or a column are smoothed.
    n_trained: the numbers of trained rows and columns.
    """

    trust: Trust
    frequencies: Frequencies
    n_trained: tuple[int, int]
    rows: Histories
    columns: Histories
    coverages: FloatArray = field(default_factory=COVERAGES.copy)
    usual_counts: FloatArray = field(default_factory=lambda: np.ones(2))

    @classmethod
    def of(cls, trust: Trust, frequencies: Frequencies, entries: EntryStore) -> Confidence:
        """Return the confidence of a model that was trained on some entries; intervals are not
        calibrated."""
        rows, columns = (np.arange(len(labels)) for labels in (entries.rows, entries.columns))
        return cls(
            trust,
            frequencies,
            entries.train.shape,
            Histories.of(entries.row_entries(rows), frequencies),
            Histories.of(entries.column_entries(columns), frequencies),
        )

    def apply(
        self, learned: PredictiveDistribution, rows: IndexArray, columns: IndexArray
    ) -> PredictiveDistribution:
        """Return the distributions of pairs that can be trusted, with calibrated intervals."""
        change = self.change_pairs(rows, columns)
        is_changed = np.any((change.excess != 0) | (change.pooled != 0), axis=1)
        changes = OddsChange(change.excess[is_changed], change.pooled[is_changed])
        exceedance = learned.exceedance.copy()
        exceedance[is_changed] = special.expit(changes.apply(find_odds(exceedance[is_changed])))
        reach = self._find_reach(rows, columns)
        if self.frequencies.are_of_levels:
            values = learned.support, learned.boundaries
            return CalibratedDistribution(*values, exceedance, self.coverages, reach)
        return replace(learned, exceedance=exceedance).calibrate(self.coverages, reach[:, None])

    def calibrate(
        self, learned: PredictiveDistribution, held_out: HeldOut
    ) -> tuple[FloatArray, FloatArray]:
        """Return the calibration of intervals by held-out entries, and the usual counts of their
        rows and columns."""
        trusted = self.apply(learned, held_out.rows, held_out.columns)
        plain = replace(learned, exceedance=trusted.exceedance)
        coverages = plain.choose_coverages(
            held_out.values, of_levels=self.frequencies.are_of_levels
        )
        counts = self._count_entries(held_out.rows, held_out.columns)
        # the only entry of a row or a column may be held out
        return coverages, np.maximum(np.median(counts, axis=1), 1.0)

    def _find_reach(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return how far the calibration of intervals reaches for each pair: short histories have
        wider distributions than those on which it was learned."""
        counts = self._count_entries(rows, columns)
        shares = np.log1p(counts) / np.log1p(self.usual_counts)[:, None]
        reach: FloatArray = np.sqrt(shares.min(axis=0).clip(0.0, 1.0))
        return reach

    def _count_entries(self, rows: IndexArray, columns: IndexArray) -> IndexArray:
        """Return the numbers of entries of the rows, and of the columns, of pairs, (2, pairs)."""
        return np.stack([self.rows.counts[rows], self.columns.counts[columns]])

    def change_pairs(self, rows: IndexArray, columns: IndexArray) -> OddsChange:
        """Return the change of all log-odds of pairs."""
        trust, of_rows, of_columns = self.trust, self.rows.take(rows), self.columns.take(columns)
        excess = trust.find_excess(of_rows.counts, of_columns.counts)[:, None]
        row_pool = interpolate_counts(trust.row_pool, of_rows.counts)[:, None]
        column_pool = interpolate_counts(trust.column_pool, of_columns.counts)[:, None]
        if not self.frequencies.are_of_levels:
            return OddsChange(excess, np.zeros_like(excess))
        return OddsChange(excess, row_pool * of_columns.odds + column_pool * of_rows.odds)

    def change_block(
        self, rows: IndexArray, columns: IndexArray, thresholds: FloatArray
    ) -> OddsChange:
        """Return the change of the log-odds that values are at least a threshold (rows,), on a
        scale with levels.

        columns: all columns of the block (columns,), or n columns of each row, (rows, n).
        """
        trust, row_counts = self.trust, self.rows.counts[rows][:, None]
        column_counts = self.columns.counts[columns]
        excess = trust.find_excess(row_counts, column_counts)
        row_pool = interpolate_counts(trust.row_pool, row_counts)
        column_pool = interpolate_counts(trust.column_pool, column_counts)
        boundary = self.frequencies.find_boundaries(thresholds)
        pooled = column_pool * self.rows.odds[rows, boundary][:, None]
        if row_pool.any():
            pooled = pooled + row_pool * self.columns.odds[columns, boundary[:, None]]
        return OddsChange(excess, pooled)

    def extend(self, entries: EntryStore, rows: IndexArray, columns: IndexArray) -> Confidence:
        """Return the confidence after the entries of some rows and columns have changed."""
        of_rows = Histories.of(entries.row_entries(rows), self.frequencies)
        of_columns = Histories.of(entries.column_entries(columns), self.frequencies)
        return replace(
            self, rows=self.rows.put(rows, of_rows), columns=self.columns.put(columns, of_columns)
        )

    def without(self, axis: Axis, positions: IndexArray) -> Confidence:
        """Return the confidence without the new ones of some rows (or columns)."""
        new_positions = positions[positions >= self.n_trained[axis == "column"]]
        if axis == "row":
            return replace(self, rows=self.rows.without(new_positions))
        return replace(self, columns=self.columns.without(new_positions))

    def with_only(self, axis: Axis, entries: AxisEntries) -> Confidence:
        """Return the confidence where the only rows (or columns) have these entries."""
        trained = entries.below(self.n_trained[axis == "row"])
        histories = Histories.of(trained, self.frequencies)
        if axis == "row":
            return replace(self, rows=histories)
        return replace(self, columns=histories)

    def take_rows(self, rows: IndexArray) -> Confidence:
        """Return the confidence of some rows alone."""
        return replace(self, rows=self.rows.take(rows))

    def pack(self) -> dict[str, Array]:
        """Return the confidence as tensors."""
        histories = {
            f"{axis}_{name}": table
            for axis, tables in (("row", self.rows), ("column", self.columns))
            for name, table in tables._asdict().items()
        }
        frequencies = self.frequencies.shares
        return _CONFIDENCE.pack(
            self.trust,
            coverages=self.coverages,
            usual_counts=self.usual_counts,
            frequencies=frequencies,
            **histories,
        ).tensors


_KNOTS = ("float64", (len(FEW_COUNTS),), not_negative, below(_LARGEST))

_CONFIDENCE = Form(
    *(Part(name, *_KNOTS) for name in Trust._fields),
    Part("coverages", "float64", COVERAGES.shape, not_falling, between(0.0, 1.0)),
    Part("usual_counts", "float64", (2,), positive),
    Part("frequencies", "float64", ("values",), positive),
    Part("row_counts", "int64", ("rows",), not_negative),
    Part("row_odds", "float32", ("rows", "odds"), below(_LARGEST)),
    Part("column_counts", "int64", ("columns",), not_negative),
    Part("column_odds", "float32", ("columns", "odds"), below(_LARGEST)),
    prefix="confidence",
)


def load_confidence(entries: EntryStore, tensors: Tensors, readout: Readout) -> Confidence | None:
    """Return the confidence that `pack` described, if there is any; anything else raises
    `BadModelFile`."""
    if not any(f"confidence.{part.name}" in tensors for part in _CONFIDENCE.parts):
        return None
    n_values = readout.support.size
    has_levels = entries.scale.levels is not None
    fields = _CONFIDENCE.read(
        {},
        tensors,
        values=n_values,
        rows=len(entries.rows),
        columns=len(entries.columns),
        odds=has_levels * (n_values - 1),
    )
    frequencies = Frequencies(entries.scale, readout.unit_boundaries, fields["frequencies"])
    return Confidence(
        Trust(*(fields[name] for name in Trust._fields)),
        frequencies,
        entries.train.shape,
        Histories(fields["row_counts"], fields["row_odds"]),
        Histories(fields["column_counts"], fields["column_odds"]),
        fields["coverages"],
        fields["usual_counts"],
    )
