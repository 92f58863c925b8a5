"""Recommendations for many rows: frames with the best columns of some rows at a time, streamed to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadSetting, MissingDependency
from deepmf.files import import_polars
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING, AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.models.predictor import Predictor
from deepmf.storage.frame_file import find_label_type, write_frame_file

# Where more keys of a block than this many times those wanted are above the n-th best, that of the block is looked for.
_MANY = 4


class BestSoFar:
    """The n largest keys of each of some rows, largest first, and their places; ties go to the earlier place.

    keys: (rows, n), -inf where nothing has come yet. Blocks come in the order of their places; once there are n keys,
    a block costs hardly more than one comparison with the smallest of them.
    """

    def __init__(self, n_rows: int, n: int) -> None:
        self.keys: npt.NDArray[Any] = np.full((n_rows, n), -np.inf, dtype=np.float32)
        self.places: IndexArray = np.zeros((n_rows, n), dtype=np.int64)

    def add(self, keys: npt.NDArray[Any], start: int) -> None:
        """Take in a block of keys (rows, places), whose first place is `start`; keys of -inf are left out."""
        if self.keys.dtype != keys.dtype:
            self.keys = self.keys.astype(keys.dtype)
        lines = np.flatnonzero(keys.max(axis=1) > self.keys[:, -1])
        if lines.size:
            some = keys if lines.size == len(keys) else keys[lines]
            which, places = np.divmod(np.flatnonzero(self._may_come_in(some, lines)), keys.shape[1])
            self._merge(lines[which], places + start, some[which, places])

    def _may_come_in(self, keys: npt.NDArray[Any], lines: IndexArray) -> npt.NDArray[np.bool_]:
        """Say which keys (lines, places) of some rows may be among their n best."""
        n, width = self.keys.shape[1], keys.shape[1]
        above: npt.NDArray[np.bool_] = keys > self.keys[lines, -1:]
        if width > n and np.count_nonzero(above) > _MANY * n * lines.size:
            above &= keys >= np.partition(keys, width - n, axis=1)[:, width - n, None]
        return above

    def _merge(self, lines: IndexArray, places: IndexArray, keys: npt.NDArray[Any]) -> None:
        """Keep the n best of each row among those known and those found."""
        n_rows, n = self.keys.shape
        every_line = np.concatenate([np.repeat(np.arange(n_rows), n), lines])
        every_place = np.concatenate([self.places.ravel(), places])
        every_key = np.concatenate([self.keys.ravel(), keys])
        order = np.lexsort((every_place, -every_key, every_line))
        counts = n + np.bincount(lines, minlength=n_rows)
        firsts = np.cumsum(counts) - counts
        kept = order[firsts[:, None] + np.arange(n)]
        self.keys, self.places = every_key[kept], every_place[kept]


Observed = Callable[[IndexArray], AxisEntries]  # from positions of rows to the entries of these


# Where more than this share of all columns is chosen, all are scored, and the others left out: scoring a column in its
# place costs much less than gathering its latents.
_LARGE_SHARE = 0.25


@dataclass(frozen=True)
class ColumnChoice:
    """The columns to choose from: all, or those at some positions in their order, without those barred.

    A column's place is its position, or where it stands in `among`.
    """

    n_columns: int
    among: IndexArray | None = None  # distinct positions; None: all
    barred: IndexArray = field(default_factory=lambda: NOTHING)  # rising places

    @property
    def n_places(self) -> int:
        """How many columns are scored."""
        return self.n_columns if self.among is None else int(self.among.size)

    @property
    def size(self) -> int:
        """How many columns there are to choose from."""
        return self.n_places - int(self.barred.size)

    @property
    def positions(self) -> IndexArray:
        """The positions of the columns to choose from."""
        every = np.arange(self.n_columns) if self.among is None else self.among
        return np.delete(every, self.barred)

    def columns(self, places: IndexArray) -> IndexArray:
        """Return the positions of the columns at some places."""
        return places if self.among is None else self.among[places]

    def block(self, start: int, stop: int) -> slice | IndexArray:
        """Return the positions of the columns from one place to another."""
        return slice(start, stop) if self.among is None else self.among[start:stop]

    def left_out(self, rows: IndexArray, observed: Observed | None) -> Omitted:
        """Return what is to be left out of the rankings of some rows: what is barred, and what each has observed."""
        if observed is None:
            return Omitted(NOTHING, NOTHING, self.barred)
        entries = observed(rows)
        lines, places = np.repeat(np.arange(rows.size), np.diff(entries.starts)), self._places_of(entries.others)
        inside = np.flatnonzero(places >= 0)
        order = inside[np.argsort(places[inside], kind="stable")]
        return Omitted(lines[order], places[order], self.barred)

    def _places_of(self, columns: IndexArray) -> IndexArray:
        """Return the places of some columns, -1 for those that have none."""
        if self.among is None:
            return columns
        if self.among.size == 0:
            return np.full(columns.size, -1)
        order, rising = self._order
        near = np.minimum(np.searchsorted(rising, columns), rising.size - 1)
        return np.where(rising[near] == columns, order[near], -1)

    @cached_property
    def _order(self) -> tuple[IndexArray, IndexArray]:
        """The places in the order of their columns, and these columns."""
        assert self.among is not None
        order = np.argsort(self.among)
        return order, self.among[order]


class Omitted(NamedTuple):
    """What is left out of the rankings of some rows: lines and places one by one, and places in all lines."""

    lines: IndexArray
    places: IndexArray  # rising
    everywhere: IndexArray  # rising

    def mark(self, keys: npt.NDArray[Any], start: int) -> None:
        """Put what is left out at the end of a block of keys (rows, places), whose first place is `start`."""
        ends = [start, start + keys.shape[1]]
        one_by_one, in_all = (slice(*np.searchsorted(places, ends)) for places in (self.places, self.everywhere))
        keys[self.lines[one_by_one], self.places[one_by_one] - start] = -np.inf
        keys[:, self.everywhere[in_all] - start] = -np.inf


def check_min_entries(min_entries: Any) -> None:
    """Refuse what is no number of entries."""
    if isinstance(min_entries, bool) or not isinstance(min_entries, int | np.integer) or min_entries < 0:
        raise BadSetting(f"min_entries must be a whole number of at least 0; got {min_entries!r}")


def choose_columns(
    entries: EntryStore, among: Iterable[Any] | None, exclude: Iterable[Any] | None, min_entries: int
) -> ColumnChoice:
    """Return the columns to choose from: all or some, without others and those of few entries.

    `among` and `exclude` are labels, or a mask over all columns.
    """
    check_min_entries(min_entries)
    labels = entries.columns
    excluded = NOTHING if exclude is None else np.sort(_positions(labels, exclude, "exclude"))
    if among is None:
        if min_entries:
            barred = entries.column_counts < min_entries
            barred[excluded] = True
            excluded = np.flatnonzero(barred)
        return _without(len(labels), excluded)
    chosen = _positions(labels, among, "among")
    chosen = chosen[~np.isin(chosen, excluded)] if excluded.size else chosen
    chosen = chosen[entries.column_counts[chosen] >= min_entries] if min_entries else chosen
    if chosen.size > _LARGE_SHARE * len(labels) and np.all(chosen[1:] > chosen[:-1]):
        return _without(len(labels), np.delete(np.arange(len(labels)), chosen))
    return ColumnChoice(len(labels), chosen)


def _without(n_columns: int, barred: IndexArray) -> ColumnChoice:
    """Return all columns but some, as few as they may be."""
    if n_columns - barred.size > _LARGE_SHARE * n_columns:
        return ColumnChoice(n_columns, barred=barred)
    return ColumnChoice(n_columns, np.delete(np.arange(n_columns), barred))


def _positions(labels: Labels, given: Iterable[Any], name: str) -> IndexArray:
    is_mask = isinstance(given, np.ndarray) and given.dtype == bool
    if not is_mask or isinstance(labels[:1].tolist()[0], bool):  # labels may be booleans themselves
        return labels.find_distinct(given)
    mask = np.asarray(given)
    if mask.shape != (len(labels),):
        raise BadSetting(f"{name} is a mask of shape {mask.shape}; one over all columns has the shape ({len(labels)},)")
    return np.flatnonzero(mask)


WANTED_RECALL = 0.98  # of the ten best, measured on rows of the model when the index is built


_LEAST_COLUMNS = 1000  # what 16 centroids are learned from

_LEARNED_FROM = 20_000

_NUMBERS_A_CODE = 2  # of a latent, which together become 4 bits

_MOST_CODES = 256

_MOST_ROWS = 200  # that recall is measured on

_LEAST_SPARE, _MOST_SPARE = 90, 6000  # columns scored beyond those asked for

_NEIGHBOUR_COLUMNS_AT_A_TIME = 1 << 16


class ColumnNeighbours:
    """The column latents of training in 4 bits for every two numbers, by which those worth scoring exactly are found.

    All columns are looked through, whatever their latents are like: with 45 numbers each, in a fifteenth of the memory.
    Columns that changed since, or are new, are always scored, so that rankings differ from exact ones only where a
    column of training is missed. An index serves the model it was built for and all that come of it by `extend` and
    `forget`.

    recall: how many of the ten best columns it finds, measured on rows of the model.
    """

    def __init__(self, predictor: Predictor) -> None:
        faiss = _faiss()
        self._latents = predictor.columns.base
        n_columns, width = self._latents.shape
        if type(predictor) is not Predictor:  # others score in a way of their own
            raise BadSetting("this model does not rank by products of latents: its rankings are exact alone")
        if n_columns < _LEAST_COLUMNS:
            raise BadSetting(
                f"an index of columns needs at least {_LEAST_COLUMNS:,} of them; got {n_columns}, whose exact rankings "
                "take no time"
            )
        n_codes = min(-(-width // _NUMBERS_A_CODE), _MOST_CODES)
        self._width = -(-width // n_codes) * n_codes
        self._index: Any = faiss.IndexPQFastScan(self._width, n_codes, 4, faiss.METRIC_INNER_PRODUCT)
        some = np.linspace(0, n_columns - 1, min(n_columns, _LEARNED_FROM)).astype(np.int64)
        self._index.train(self._padded(self._latents[some]))
        for start in range(0, n_columns, _NEIGHBOUR_COLUMNS_AT_A_TIME):
            self._index.add(self._padded(self._latents[start : start + _NEIGHBOUR_COLUMNS_AT_A_TIME]))
        self._spare = _LEAST_SPARE
        self.recall = self._tuned(predictor)

    def candidates(self, predictor: Predictor, row: int, n: int) -> IndexArray:
        """Return the rising positions of columns among which the n best of a row, by its position, are looked for."""
        if predictor.columns.base is not self._latents:
            raise BadSetting("this index of columns is that of another model; build one for this")
        found = np.sort(self._found(predictor.rows.take(np.array([row])), n + self._spare)[0])
        return np.union1d(found, predictor.columns.positions) if predictor.columns.positions.size else found

    def _found(self, queries: LatentArray, n: int) -> IndexArray:
        found: IndexArray = self._index.search(self._padded(queries), min(n, len(self._latents)))[1]
        return found

    def _padded(self, latents: LatentArray) -> LatentArray:
        """Return latents in single precision, with zeros behind them so that all codes are of one width."""
        padded = np.zeros((len(latents), self._width), dtype=np.float32)
        padded[:, : latents.shape[1]] = latents
        return padded

    def _tuned(self, predictor: Predictor) -> float:
        """Score as many columns exactly as the wanted recall needs, and return the recall that was measured."""
        n_rows = len(predictor.rows)
        some = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _MOST_ROWS)).astype(np.int64))
        queries = predictor.rows.take(some)
        best = BestSoFar(some.size, 10)
        for start in range(0, len(self._latents), _NEIGHBOUR_COLUMNS_AT_A_TIME):
            best.add(queries @ self._latents[start : start + _NEIGHBOUR_COLUMNS_AT_A_TIME].T, start)
        while True:
            found = self._found(queries, 10 + self._spare)
            hits = [np.isin(wanted, line).mean() for wanted, line in zip(best.places, found, strict=True)]
            recall = float(np.mean(hits))
            if recall >= WANTED_RECALL or self._spare >= _MOST_SPARE:
                return recall
            self._spare += self._spare // 2


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingDependency("approximate rankings need faiss: pip install 'deepmf[ann]'") from error
    return faiss


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


def rank_columns(
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
        parts = list(rank_batches(predictor, rows, choice, n, observed=observed))
    else:
        parts = [_rank_near(predictor, row, choice, n, observed, neighbours) for row in rows[:, None]]
    best, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("columns", "values"))
    return Ranking(labels[best.ravel()].reshape(best.shape), values)  # one by one: not all may be in memory


class RankedRows(NamedTuple):
    """The best columns of some rows by position, a line for each row; NaN where nothing could fill a place."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray


def rank_batches(
    predictor: Predictor, rows: IndexArray, choice: ColumnChoice, n: int, *, observed: Observed | None
) -> Iterator[RankedRows]:
    """Rank columns for some rows at a time, in memory of a few megabytes however many rows and columns there are."""
    check_n(n)
    n_rows = max(CELLS_AT_A_TIME // max(choice.n_places, 1), _ROWS_AT_A_TIME)
    for start in range(0, max(rows.size, 1), n_rows):
        yield _rank_rows(predictor, rows[start : start + n_rows], choice, min(int(n), choice.size), observed)


def _rank_rows(
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


def _rank_near(
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
    found = _rank_rows(predictor, row, ColumnChoice(choice.n_columns, near), min(n, near.size), observed)
    if found.values.shape[1] == n and not np.isnan(found.values).any():
        return found
    return _rank_rows(predictor, row, choice, n, observed)


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


# Lines of a frame: some megabytes, whose writing costs little beside their ranking.
_LINES_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class Recommendations:
    """The n best of some columns for each of some rows, by position; they are ranked while the frames are read."""

    entries: EntryStore
    predictor: Predictor
    rows: IndexArray
    choice: ColumnChoice
    n: int
    include_observed: bool

    @classmethod
    def of(
        cls,
        entries: EntryStore,
        predictor: Predictor,
        rows: Iterable[Any] | None,
        n: int,
        *,
        among: Iterable[Any] | None,
        exclude: Iterable[Any] | None,
        min_entries: int,
        include_observed: bool,
    ) -> Self:
        """Return the recommendations for rows with some labels, each once, or for all (None)."""
        check_n(n)
        positions = np.arange(len(entries.rows)) if rows is None else entries.rows.find_distinct(rows)
        return cls(
            entries, predictor, positions, choose_columns(entries, among, exclude, min_entries), n, include_observed
        )

    @property
    def most_lines(self) -> int:
        """How many lines the frames have together at most: rows with few columns left have fewer."""
        return int(self.rows.size) * min(self.n, self.choice.size)

    @property
    def schema(self) -> dict[str, Any]:
        """The types of the frames: those of the labels, whatever a batch happens to hold."""
        polars = import_polars()
        form = self.entries.train.form
        row, column = form.name_ids_beside(("rank", "prediction"))
        return {
            row: find_label_type(self.entries.rows[:1], form.row_type),
            "rank": polars.Int64,
            column: find_label_type(self.entries.columns[:1], form.column_type),
            "prediction": polars.Float64,
        }

    def frames(self) -> Iterator[Any]:
        """Yield polars frames with a line for each row and rank (from 1), the column and the prediction."""
        waiting: list[RankedRows] = []
        n_lines = 0
        observed = None if self.include_observed else self.entries.seen_columns
        for part in rank_batches(self.predictor, self.rows, self.choice, self.n, observed=observed):
            waiting.append(part)
            n_lines += part.columns.size
            if n_lines >= _LINES_AT_A_TIME:
                yield self._frame(waiting)
                waiting, n_lines = [], 0
        if waiting:
            yield self._frame(waiting)

    def _frame(self, parts: list[RankedRows]) -> Any:
        """Return the lines of some rows."""
        polars, schema, entries = import_polars(), self.schema, self.entries
        rows, columns, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        line_of, place = np.nonzero(~np.isnan(values))
        found = (
            polars.Series(entries.rows[rows].tolist(), dtype=next(iter(schema.values()))).gather(line_of),
            place + 1,
            entries.columns[columns[line_of, place]].tolist(),
            values[line_of, place],
        )
        return polars.DataFrame(dict(zip(schema, found, strict=True)), schema=schema)

    def write(self, path: str | Path) -> int:
        """Write the frames to a file, whole or not at all; return how many lines it has."""
        count = 0

        def counted() -> Iterator[Any]:
            nonlocal count
            for frame in self.frames():
                count += frame.height
                yield frame

        write_frame_file(counted(), self.schema, path)
        return count
