"""Rankings: the best columns of a row, the rows or columns most similar to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.entry_store import AxisEntries, EntryStore
from deepmf.matrix.labels import Labels
from deepmf.models.predictor import Predictor

# Cells scored at a time when whole rows are ranked: 8 MB of float64.
CELLS_AT_A_TIME = 1 << 20


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


def choice_of(
    entries: EntryStore, among: Iterable[Any] | None, exclude: Iterable[Any] | None, min_entries: int
) -> IndexArray:
    """Return the positions of the columns to choose from: all or some, without others and those of few entries.

    `among` and `exclude` are labels, or a mask over all columns.
    """
    if isinstance(min_entries, bool) or not isinstance(min_entries, int | np.integer) or min_entries < 0:
        raise BadSetting(f"min_entries must be a whole number of at least 0; got {min_entries!r}")
    labels = entries.columns
    chosen = np.arange(len(labels)) if among is None else _positions(labels, among, "among")
    if exclude is not None:
        chosen = chosen[~np.isin(chosen, _positions(labels, exclude, "exclude"))]
    return chosen[entries.column_counts[chosen] >= min_entries] if min_entries else chosen


def _positions(labels: Labels, given: Iterable[Any], name: str) -> IndexArray:
    is_mask = isinstance(given, np.ndarray) and given.dtype == bool
    if not is_mask or isinstance(labels.array[:1].tolist()[0], bool):  # labels may be booleans themselves
        return labels.distinct_positions(given)
    mask = np.asarray(given)
    if mask.shape != (len(labels),):
        raise BadSetting(f"{name} is a mask of shape {mask.shape}; one over all columns has the shape ({len(labels)},)")
    return np.flatnonzero(mask)


def ranked(
    predictor: Predictor,
    labels: Labels,
    rows: IndexArray,
    columns: IndexArray,
    n: int,
    *,
    observed: Callable[[IndexArray], AxisEntries] | None,
) -> Ranking:
    """Return the n best of some columns for each of some rows of a predictor, a line each.

    Columns that a row has entries for (`observed`) are left out; where too few are left, a line is filled up with NaN.
    """
    parts = list(ranked_batches(predictor, rows, columns, n, observed=observed))
    best, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("columns", "values"))
    return Ranking(labels[best], values)


class RankedRows(NamedTuple):
    """The best columns of some rows by position, a line for each row; NaN where nothing could fill a place."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray


def ranked_batches(
    predictor: Predictor,
    rows: IndexArray,
    columns: IndexArray,
    n: int,
    *,
    observed: Callable[[IndexArray], AxisEntries] | None,
) -> Iterator[RankedRows]:
    """Rank some columns for some rows at a time, in bounded memory however many rows there are."""
    for some in batches(rows, width=columns.size):
        scores = predictor.score_block(some, columns).astype(np.float64)
        if observed is not None:
            leave_out(scores, observed(some), columns, len(predictor.columns))
        best, best_scores = best_positions(scores, n)
        left_over = best_scores == -np.inf
        values = np.where(left_over, np.nan, predictor.readout.values(np.where(left_over, 0.0, best_scores)))
        yield RankedRows(some, columns[best], values)


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
    return Ranking(labels.array[best[0][others]], np.clip(values[0][others], -1.0, 1.0))


def check_n(n: int) -> None:
    """Refuse a number of answers that is none."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise BadSetting(f"n must be a whole number of at least 1; got {n!r}")
