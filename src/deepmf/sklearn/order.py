"""Tables in order, such as rows in time: what completes them also reads the rows (or columns)
around.

Factors that are smooth along positions (`models/positions/`) take a share of each cell that lowers
the error of hidden cells beyond doubt, and complete rows without entries where they predict hidden
runs of rows better than the means do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadEntries
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray
from deepmf.matrix.axis_entries import Axis, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import FeatureEncoding, FeatureVectors
from deepmf.matrix.features import AxisFeatures, Features
from deepmf.matrix.scale import Scale
from deepmf.models.members import MemberInputs
from deepmf.models.positions.member import PositionsMember, draw_tables
from deepmf.scoring.encoders import Scores
from deepmf.scoring.factors import Factors
from deepmf.sklearn.blend import Choice, Residuals
from deepmf.sklearn.completers import Completer
from deepmf.sklearn.table import ColumnUnits, TableEntries
from deepmf.training.holdout import HeldOut, choose

POSITIONS = "positions"  # the name of the candidate

# The parameters with the positions of rows and of columns.
ORDER, COLUMN_ORDER = "order", "column_order"

# One cell in this many is hidden, within limits, and one row in this many, in runs of rows.
_CELLS_OF_ONE, _ROWS_OF_ONE, _RUN = 10, 10, 10
_LEAST_HIDDEN, _MOST_HIDDEN = 20, 10_000

# The share of all columns counts in that of a column as this many cells.
_CELLS_OF_ALL = 50

# Cells of columns with a larger share of smooth factors are drawn by these.
_LEAST_SHARE = 0.5

# By how many standard errors the squared error must fall.
_LEAST_FALL = 1.0


@dataclass(frozen=True, eq=False)
class SmoothRows(Completer):
    """Completes by factors that are smooth along the positions of rows (or of columns)."""

    factors: Factors
    encoding: FeatureEncoding | None  # of the positions of rows; None where columns have them

    def predict(self, entries: TableEntries, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return what the factors of rows with these entries and positions predict."""
        return self.score(entries, rows, columns).location.astype(np.float64)

    def score(self, entries: TableEntries, rows: IndexArray, columns: IndexArray) -> Scores:
        """Return the predictions of cells, and the deviations of what is not known of times."""
        starts = np.searchsorted(entries.rows, np.arange(entries.shape[0] + 1))
        read = AxisEntries(starts, entries.columns, entries.values)
        if self.encoding is not None:
            vectors = FeatureVectors.empty(entries.shape[0], self.encoding.n_inputs)
            if entries.times is not None:
                vectors = make_features(entries.times, ORDER).encode(self.encoding)
            read = read._replace(features=vectors)
        return self.factors.fold_in("row", read).score_pairs(rows, columns)


@dataclass(frozen=True, eq=False)
class Ordered(Completer):
    """Completes by smooth factors and by another completer.

    shares: of the smooth factors, (columns,). fills_rows: whether they complete rows without
    entries. error: the usual one of a cell. widening: the errors in rows without entries, in those
    that the smooth factors expect there: factors of series that turn slowly are too certain.
    """

    completer: Completer
    smooth: SmoothRows
    shares: FloatArray
    fills_rows: bool
    error: float
    widening: float
    units: ColumnUnits

    def list_rows(self, entries: TableEntries) -> IndexArray:
        """Return all rows where smooth factors complete those without entries."""
        if self.fills_rows and entries.times is not None:
            return np.arange(entries.shape[0])
        return self.completer.list_rows(entries)

    def predict(self, entries: TableEntries, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the mean of both by their shares; in rows without entries, the smooth factors."""
        predictions = self.units.clip(self.smooth.predict(entries, rows, columns), columns)
        read_rows = self.completer.list_rows(entries)
        is_read = np.isin(rows, read_rows)
        columns = columns[is_read]
        cells = np.searchsorted(read_rows, rows[is_read]), columns
        completed = self.completer.predict(entries.take_rows(read_rows), *cells)
        shares = self.shares[columns]
        predictions[is_read] = shares * predictions[is_read] + (1.0 - shares) * completed
        return predictions

    def draw(
        self, seen: TableEntries, entries: TableEntries, units: ColumnUnits, *, seed: int
    ) -> Iterator[FloatArray]:
        """Yield tables (rows, columns) of entries in which the cells that smooth factors complete
        are drawn; they are drawn anew for each table.

        seen: entries of the fit, of which the rows at other positions are read beside these.
        """
        assert seen.times is not None and entries.times is not None
        assert self.smooth.encoding is not None
        # refuses positions of another kind
        make_features(entries.times, ORDER).encode(self.smooth.encoding)
        is_beside = ~np.isin(seen.times, entries.times)
        table = entries.to_array()
        together = np.concatenate([table, seen.to_array()[is_beside]])
        times = np.concatenate([entries.times, seen.times[is_beside]])
        matrix = units.standardise(TableEntries.of(together)).matrix(
            units.scale, column_labels=range(table.shape[1])
        )
        features = AxisFeatures.of(matrix.rows, make_features(times, ORDER))
        store = EntryStore.of(matrix, features, None)
        is_missing: BoolArray = np.isnan(table)
        is_empty = ~np.isin(np.arange(len(table)), entries.rows)
        is_drawn = is_missing & (self.shares > _LEAST_SHARE)
        is_drawn[is_empty] |= self.fills_rows
        rows, columns = np.nonzero(np.broadcast_to(is_empty[:, None], table.shape))
        expected = self.smooth.predict(self.units.standardise(entries), rows, columns)
        expected = self.units.undo(expected.reshape(-1, table.shape[1]))
        for values in draw_tables(self.smooth.factors, store, seed=seed):
            drawn = units.undo(values[: len(table)])
            drawn[is_empty] = expected + self.widening * (drawn[is_empty] - expected)
            yield np.where(is_drawn, drawn, table)

    def find_spreads(
        self, entries: TableEntries, rows: IndexArray, columns: IndexArray
    ) -> FloatArray:
        """Return the usual errors of cells, in those of rows with entries; they grow with the
        distance from these."""
        is_empty = ~np.isin(rows, self.completer.list_rows(entries))
        spreads = np.ones(rows.size)
        if is_empty.any():
            scores = self.smooth.score(entries, rows[is_empty], columns[is_empty])
            spreads[is_empty] = self.widening * _expect_errors(scores, self.error) / self.error
        return spreads


def make_features(positions: Array, name: str) -> Features:
    """Return the positions of rows (or columns), which are numbered from 0, as a feature."""
    labels = np.arange(len(positions))
    return Features.from_columns(labels, {name: positions}, kinds={name: "position"})


def check_positions(positions: Any, count: int, *, name: str) -> Array:
    """Return the positions of rows (or columns); refuse any but one for each."""
    positions = np.asarray(positions)
    if positions.shape != (count,):
        axis = "columns" if name == COLUMN_ORDER else "rows"
        raise BadEntries(
            f"{name} must have a position for each of the {count} {axis}; got the shape "
            f"{positions.shape}"
        )
    return make_features(positions, name).values(name)


class _Hidden(NamedTuple):
    """Cells that smooth factors do not see: single ones, and those of runs of rows.

    is_hidden: (entries,). is_in_run: (hidden entries,).
    """

    is_hidden: BoolArray
    is_in_run: BoolArray

    @classmethod
    def of(
        cls,
        entries: TableEntries,
        residuals: Residuals,
        order: IndexArray,
        axis: Axis,
        *,
        seed: int,
    ) -> _Hidden:
        """Hide some cells with residuals, and runs of rows in their order."""
        random = np.random.default_rng(seed)
        n_rows, n_columns = entries.shape
        n_hidden = min(entries.values.size // _CELLS_OF_ONE, residuals.rows.size, _MOST_HIDDEN)
        places = random.choice(residuals.rows.size, n_hidden, replace=False)
        keys = (residuals.rows * n_columns + residuals.columns)[places]
        is_hidden = np.isin(entries.rows * n_columns + entries.columns, keys)
        in_run = np.zeros(n_rows, dtype=bool)
        if axis == "row":
            n_runs = max(1, n_rows // (_ROWS_OF_ONE * _RUN))
            length = max(1, min(_RUN, n_rows // _ROWS_OF_ONE))
            starts = random.integers(n_rows - length, size=n_runs)
            in_run[order[(starts[:, None] + np.arange(length)).ravel()]] = True
        is_in_run = in_run[entries.rows]
        is_hidden |= is_in_run
        return cls(is_hidden, is_in_run[is_hidden])


def add_positions(
    choice: Choice,
    entries: TableEntries,
    axis: Axis,
    positions: Array | None,
    units: ColumnUnits,
    *,
    seed: int,
) -> Choice:
    """Return a choice that also reads the positions of rows (or columns); the same one where that
    lowers no error.

    entries: standardised.
    """
    residuals = choice.residuals
    if residuals is None or positions is None or len(positions) < _ROWS_OF_ONE:
        return choice
    hidden = _Hidden.of(entries, residuals, np.argsort(positions), axis, seed=seed)
    if np.count_nonzero(~hidden.is_in_run) < _LEAST_HIDDEN:
        return choice
    fit = _fit_smooth(entries, units.scale, hidden, positions, axis, seed=seed)
    if fit is None:
        return choice
    smooth, scores = fit
    asked = entries.select(hidden.is_hidden)
    errors = asked.values - units.clip(scores.location.astype(np.float64), asked.columns)
    in_run = hidden.is_in_run
    left_out = _match(residuals, asked.select(~in_run))
    n_columns = entries.shape[1]
    shares = _find_shares(left_out, errors[~in_run], n_columns)

    def blend(share: FloatArray) -> FloatArray:
        of_cells = share[left_out.columns]
        return of_cells * errors[~in_run] + (1.0 - of_cells) * left_out.values

    options = np.zeros(n_columns), shares
    best = choose(options, lambda share: np.square(blend(share)), at_least=_LEAST_FALL).candidate
    fills_rows = (
        bool(in_run.any())
        and choose(
            (False, True),
            lambda fills: np.square(errors[in_run] if fills else asked.values[in_run]),
            at_least=_LEAST_FALL,
        ).candidate
    )
    if not fills_rows and not best.any():
        return choice
    blended = blend(best)
    error, widening = float(np.sqrt(np.mean(np.square(blended)))) or 1.0, 1.0
    if fills_rows:
        expected = _expect_errors(scores, error)[in_run]
        widening = float(np.sqrt(np.mean(np.square(errors[in_run] / expected))))
    completer = Ordered(choice.completer, smooth, best, fills_rows, error, widening, units)
    mean = float(best.mean())
    weights = {name: weight * (1.0 - mean) for name, weight in choice.weights.items()}
    weights = dict(sorted((weights | {POSITIONS: mean}).items(), key=lambda item: -item[1]))
    if best.any():
        residuals = left_out._replace(values=blended)
    return Choice(completer, weights, residuals, choice.errors)


def _fit_smooth(
    entries: TableEntries, scale: Scale, hidden: _Hidden, positions: Array, axis: Axis, *, seed: int
) -> tuple[SmoothRows, Scores] | None:
    """Return smooth factors of all entries, and what they predict for hidden ones without them."""
    matrix = entries.matrix(scale, column_labels=range(entries.shape[1]))
    labels = matrix.rows if axis == "row" else matrix.columns
    name = ORDER if axis == "row" else COLUMN_ORDER
    features = AxisFeatures.of(labels, make_features(positions, name))
    of_axes = (features, None) if axis == "row" else (None, features)
    asked = entries.select(hidden.is_hidden)
    held_out = HeldOut(asked.rows, asked.columns, asked.values)
    training = matrix.take_entries(np.flatnonzero(~hidden.is_hidden))
    stores = EntryStore.of(training, *of_axes), EntryStore.of(matrix, *of_axes)
    fit = PositionsMember(seed).fit(MemberInputs(*stores, held_out, "cpu"))
    if fit is None or fit.scores is None:
        return None
    assert isinstance(fit.fitted, Factors)
    encoding = features.encoding if axis == "row" else None
    return SmoothRows(fit.fitted, encoding), fit.scores


def _expect_errors(scores: Scores, error: float) -> FloatArray:
    """Return the errors (cells,) that smooth factors expect, given the usual one of a cell."""
    assert scores.deviation is not None
    return np.sqrt(np.square(scores.deviation.astype(np.float64)) + error**2)


def _match(residuals: Residuals, cells: TableEntries) -> Residuals:
    """Return the residuals of some cells, in their order."""
    n_columns = cells.shape[1]
    keys = residuals.rows * n_columns + residuals.columns
    order = np.argsort(keys)
    at = order[np.searchsorted(keys[order], cells.rows * n_columns + cells.columns)]
    return Residuals(
        residuals.rows[at], residuals.columns[at], residuals.values[at], residuals.truths[at]
    )


def _find_shares(left_out: Residuals, errors: FloatArray, n_columns: int) -> FloatArray:
    """Return the shares (columns,) of predictions with these errors, beside others with these
    residuals, that leave the least squared errors."""
    gaps = left_out.values - errors
    products, squares = gaps * left_out.values, np.square(gaps)
    sums = [
        np.bincount(left_out.columns, terms, minlength=n_columns) + _CELLS_OF_ALL * terms.mean()
        for terms in (products, squares)
    ]
    shares: FloatArray = np.clip(sums[0] / np.maximum(sums[1], 1e-12), 0.0, 1.0)
    return shares
