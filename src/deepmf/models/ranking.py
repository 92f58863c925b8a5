"""Rankings: the best columns of a row, the rows or columns most similar to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.labels import Labels
from deepmf.models.best_so_far import BestSoFar
from deepmf.models.column_choice import ColumnChoice, Observed
from deepmf.models.column_neighbours import ColumnNeighbours
from deepmf.models.predictor import Predictor

# Cells scored at a time when whole rows are ranked: 8 MB of float64.
CELLS_AT_A_TIME = 1 << 20
# Rows ranked together, also where there are very many columns: each block of their latents is then read once for all.
_ROWS_AT_A_TIME = 64
# Columns scored at a time: after the first of them, a comparison leaves out nearly all others.
_COLUMNS_AT_A_TIME = 1 << 17
# How many of the barred columns may be among the nearest ones of a row; with more, rankings may become exact.
_MOST_LEFT_OUT = 1000


class Ranking(NamedTuple):
    """Labels and values, best first; a line for each row where several were given."""

    labels: npt.NDArray[Any]
    values: FloatArray

    def without_missing(self) -> Ranking:
        """Return the ranking of one row without the places that nothing could fill."""
        kept = ~np.isnan(self.values)
        return Ranking(self.labels[kept], self.values[kept])


def batches(positions: IndexArray, *, width: int) -> Iterator[IndexArray]:
    """Cut positions into batches whose scores over `width` columns take bounded memory."""
    step = max(CELLS_AT_A_TIME // max(width, 1), 1)
    for start in range(0, max(positions.size, 1), step):
        yield positions[start : start + step]


def best_positions(scores: FloatArray, n: int) -> tuple[IndexArray, FloatArray]:
    """Return the n largest scores of each line and where they stand, largest first; ties go to the earlier place."""
    check_n(n)
    n = min(int(n), scores.shape[1])
    if n < scores.shape[1]:
        # The n-th largest score of each line; everything above it is in, ties at it come in by place.
        threshold = -np.partition(-scores, n - 1, axis=1)[:, n - 1 : n]
        rank = np.where(scores > threshold, 0, np.where(scores == threshold, 1, 2))
        chosen = np.sort(np.argsort(rank, axis=1, kind="stable")[:, :n], axis=1)
    else:
        chosen = np.broadcast_to(np.arange(n), scores.shape)
    taken = np.take_along_axis(scores, chosen, axis=1)
    order = np.argsort(-taken, axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1), np.take_along_axis(taken, order, axis=1)


def ranked(
    predictor: Predictor,
    labels: Labels,
    rows: IndexArray,
    choice: ColumnChoice,
    n: int,
    *,
    observed: Observed | None,
    neighbours: ColumnNeighbours | None = None,
) -> Ranking:
    """Return the n best of some columns for each of some rows of a predictor, a line each.

    Columns that a row has entries for (`observed`) are left out; where too few are left, a line is filled up with NaN.
    By `neighbours`, the best are looked for among columns near the row.
    """
    if neighbours is None or choice.among is not None or rows.size == 0:
        parts = list(ranked_batches(predictor, rows, choice, n, observed=observed))
    else:
        parts = [_ranked_near(predictor, row, choice, n, observed, neighbours) for row in rows[:, None]]
    best, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("columns", "values"))
    return Ranking(labels[best.ravel()].reshape(best.shape), values)  # one by one: not all may be in memory


class RankedRows(NamedTuple):
    """The best columns of some rows by position, a line for each row; NaN where nothing could fill a place."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray


def ranked_batches(
    predictor: Predictor, rows: IndexArray, choice: ColumnChoice, n: int, *, observed: Observed | None
) -> Iterator[RankedRows]:
    """Rank columns for some rows at a time, in memory of a few megabytes however many rows and columns there are."""
    check_n(n)
    n_rows = max(CELLS_AT_A_TIME // max(choice.n_places, 1), _ROWS_AT_A_TIME)
    for start in range(0, max(rows.size, 1), n_rows):
        yield _ranked_rows(predictor, rows[start : start + n_rows], choice, min(int(n), choice.size), observed)


def _ranked_rows(
    predictor: Predictor, rows: IndexArray, choice: ColumnChoice, n: int, observed: Observed | None
) -> RankedRows:
    """Rank columns for some rows, a block of columns at a time."""
    best = BestSoFar(rows.size, n)
    left_out = choice.left_out(rows, observed)
    width = max(min(CELLS_AT_A_TIME // max(rows.size, 1), _COLUMNS_AT_A_TIME), 1)
    for start in range(0, choice.n_places if best.keys.size else 0, width):
        keys = predictor.rank_block(rows, choice.block(start, min(start + width, choice.n_places)))
        left_out.mark(keys, start)
        best.add(keys, start)
    missing = best.keys == -np.inf
    scores = predictor.scores_of_keys(rows, np.where(missing, 0.0, best.keys))
    values = np.where(missing, np.nan, predictor.readout.values(scores))
    return RankedRows(rows, choice.columns(best.places), values)


def _ranked_near(
    predictor: Predictor,
    row: IndexArray,
    choice: ColumnChoice,
    n: int,
    observed: Observed | None,
    neighbours: ColumnNeighbours,
) -> RankedRows:
    """Rank the columns near a row, all of them where too few are left of these."""
    check_n(n)
    n = min(int(n), choice.size)
    n_left_out = min(choice.barred.size, _MOST_LEFT_OUT) + (0 if observed is None else observed(row).others.size)
    near = neighbours.candidates(predictor, int(row[0]), n + n_left_out)
    near = near[~np.isin(near, choice.barred, assume_unique=True)] if choice.barred.size else near
    found = _ranked_rows(predictor, row, ColumnChoice(choice.n_columns, near), min(n, near.size), observed)
    if found.values.shape[1] == n and not np.isnan(found.values).any():
        return found
    return _ranked_rows(predictor, row, choice, n, observed)


def leave_out(scores: FloatArray, observed: AxisEntries, columns: IndexArray, n_columns: int) -> None:
    """Put the columns that are already observed at the end of every line of scores (rows, columns)."""
    place = np.full(n_columns, -1)
    place[columns] = np.arange(columns.size)
    row_of = np.repeat(np.arange(len(scores)), np.diff(observed.starts))
    column_of = place[observed.others]
    inside = column_of >= 0
    scores[row_of[inside], column_of[inside]] = -np.inf


def most_similar(directions: npt.NDArray[np.float32], labels: Labels, label: Any, n: int) -> Ranking:
    """Return the n labels whose directions have the largest cosine with that of one label, itself left out."""
    check_n(n)
    position = labels.positions([label])[0]
    cosines = (directions @ directions[position]).astype(np.float64)[None]
    cosines[0, position] = -np.inf
    best, values = best_positions(cosines, n)
    others = values[0] > -np.inf
    return Ranking(labels[best[0][others]], np.clip(values[0][others], -1.0, 1.0))


def is_label(rows: Any, labels: Labels) -> bool:
    """Return whether a single row is meant: a tuple is one row where labels are tuples, otherwise several."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        return True
    return isinstance(rows, tuple) and rows in labels


def check_n(n: int) -> None:
    """Refuse a number of answers that is none."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise BadSetting(f"n must be a whole number of at least 1; got {n!r}")
