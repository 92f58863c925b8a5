"""Rankings: the best columns of each row."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from deepmf.errors import check_count
from deepmf.files import polars
from deepmf.linalg.largest import find_largest
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, ObjectArray, SingleArray
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.names import Names
from deepmf.recommend.column_choice import BestColumns, ColumnChoice, Omitted, choose_columns
from deepmf.recommend.ranker import Observed, RankedRows, Ranker, find_relevant
from deepmf.recommend.request import DEFAULT_REQUEST, Request
from deepmf.recommend.reranking import Reranker
from deepmf.scoring.predictor import Predictor
from deepmf.training.threads import count_threads, limit_blas_threads

if TYPE_CHECKING:
    from deepmf.recommend.device_ranking import DeviceColumns

# Cells scored at a time when whole rows are ranked: 8 MB of float64.
CELLS_AT_A_TIME = 1 << 20

# Rows ranked together even if there are very many columns: each block of column latents is then
# read once for all.
_ROWS_AT_A_TIME = 16

# Columns scored at a time: after the first block, a comparison skips nearly all others.
_COLUMNS_AT_A_TIME = 1 << 17

# If more than this share of a block is above the n-th best so far, the block is partitioned, which
# costs less than merging that many keys.
_MANY = 1 / 16

_MOST_THREADS = 16  # that rank rows for a file; with more, they would wait for Python's lock

# Lines of a frame: a few megabytes, so that writing costs little beside ranking.
_LINES_AT_A_TIME = 1 << 16

# Fields of frames beside the ids.
FRAME_FIELDS = ("rank", "prediction", "cosine", "presence", "liked", "distribution")


@dataclass(frozen=True, eq=False)
class Ranking:
    """Labels and values, best first: (n,) of one row, or (rows, n) of several; `labels, values =
    ranking` unpacks both.

    labels : the labels of the columns (or rows).
    values : the predictions, the similarities, or for interactions the probabilities that they
        exist.
    presence : the probabilities that an entry exists; None if the model has no presence part.
    liked : the probabilities that an entry that exists has at least the relevant value; None as
        before, and for interactions.
    distribution : the probability of each level, (n, levels) or (rows, n, levels), as of
        `predict_distribution`; None if the model predicts only values.
    names : the names of the labels, None for labels without one; None if the model has no names.
    rows, row_names : the labels of the rows, (rows,), if there are several, and their names.
    relevant : the smallest value that counts as liked; None where `liked` is None.
    fields : the names of rows, labels and values in frames.
    """

    labels: Array
    values: FloatArray
    presence: FloatArray | None = None
    liked: FloatArray | None = None
    distribution: FloatArray | None = None
    names: ObjectArray | None = None
    rows: Array | None = None
    row_names: ObjectArray | None = None
    relevant: float | None = None
    fields: tuple[str, str, str] = ("row", "column", "prediction")

    def __iter__(self) -> Iterator[Array]:
        """Yield the labels, then the values."""
        yield from (self.labels, self.values)

    def __getitem__(self, place: int) -> Array:
        """Return the labels (0) or the values (1), as of a pair."""
        return (self.labels, self.values)[place]

    def describe(self, names: Names | None, fields: tuple[str, str, str]) -> Ranking:
        """Return the ranking with the names of its labels, and with the fields of its frame."""
        return replace(
            self, names=None if names is None else names.find_array(self.labels), fields=fields
        )

    def to_frame(self) -> Any:
        """Return a polars frame with a line for each label: its rank from 1, the label, the value
        and probabilities.

        >>> Ranking(np.array(["Alien", "Big"]), np.array([4.5, 3.0])).to_frame().rows()
        [(1, 'Alien', 4.5), (2, 'Big', 3.0)]
        """
        row, column, value = self.fields
        at = np.nonzero(~np.isnan(self.values))
        shown: dict[str, Any] = {} if self.rows is None else {row: self.rows[at[0]].tolist()}
        shown |= {"rank": at[-1] + 1, column: self.labels[at].tolist()}
        shown |= {} if self.row_names is None else {f"{row}_name": self.row_names[at[0]].tolist()}
        shown |= {} if self.names is None else {f"{column}_name": self.names[at].tolist()}
        numbers = {value: self.values, "presence": self.presence, "liked": self.liked}
        shown |= {
            name: numbers_of_label[at]
            for name, numbers_of_label in numbers.items()
            if numbers_of_label is not None
        }
        shown |= (
            {} if self.distribution is None else {"distribution": self.distribution[at].tolist()}
        )
        return polars.DataFrame(shown, strict=False)


@dataclass(frozen=True)
class Search:
    """A search for the best columns of rows, by a ranker, among the columns that a request allows.

    observed: maps positions of rows to their entries, whose columns are left out unless the request
        includes them.
    reranker: picks lists among the best columns; None if it is not requested.
    """

    entries: EntryStore
    ranker: Ranker
    observed: Observed
    request: Request
    choice: ColumnChoice
    reranker: Reranker | None

    @classmethod
    def of(
        cls,
        entries: EntryStore,
        ranker: Ranker,
        observed: Observed,
        request: Request = DEFAULT_REQUEST,
    ) -> Self:
        """Return the search that a request asks for."""
        if request.include_observed is None:
            request = replace(request, include_observed=ranker.allows_repeats)
        assert isinstance(ranker.predictor, Predictor)
        reranker = Reranker.of(entries, ranker.predictor, observed, request)
        return cls(entries, ranker, observed, request, choose_columns(entries, request), reranker)


def rank_columns(search: Search, rows: IndexArray, labels: Array | None) -> Ranking:
    """Return the best columns of some rows, (rows, n), with the labels of the rows; of one row,
    (n,), without (None).

    A line with fewer columns than n is filled up with NaN.
    """
    ranking = label_ranked(search.entries, join_ranked(rank_batches(search, rows)), labels)
    if ranking.liked is None:
        return ranking
    train = search.entries.train
    return replace(ranking, relevant=find_relevant(train, search.request.relevant))


def label_ranked(entries: EntryStore, best: RankedRows, labels: Array | None) -> Ranking:
    """Return the labels and names of the best columns of some rows, which have these labels, or of
    one row (None)."""
    # one by one: not all may be in memory
    labels_of_columns = entries.columns[best.columns.ravel()].reshape(best.columns.shape)
    parts: list[Any] = [labels_of_columns, *best[2:]]
    row_names = None
    if labels is None:
        is_filled = ~np.isnan(best.values[0])
        parts = [None if part is None else part[0][is_filled] for part in parts]
    elif entries.row_names is not None:
        row_names = entries.row_names.find_array(labels)
    fields = (*entries.train.form.name_ids_beside(FRAME_FIELDS), "prediction")
    ranking = replace(Ranking(*parts), rows=labels, row_names=row_names)
    return ranking.describe(entries.column_names, fields)


def join_ranked(parts: Iterable[RankedRows]) -> RankedRows:
    """Return all rows of some parts."""
    joined: list[Any] = [
        None if arrays[0] is None else np.concatenate(arrays) for arrays in zip(*parts, strict=True)
    ]
    return RankedRows(*joined)


def rank_batches(search: Search, rows: IndexArray, *, threads: int = 1) -> Iterator[RankedRows]:
    """Rank columns for some rows at a time, in a few megabytes of memory for any number of rows and
    columns.

    On a device, keys are computed and compared by torch, in more memory.
    threads: the number of batches that are ranked at the same time; on a device, a few at most.
    """
    choice, device = search.choice, search.request.device
    n_rows = max(CELLS_AT_A_TIME // max(choice.n_places, 1), _ROWS_AT_A_TIME)
    on_device = None
    if device is not None:
        from deepmf.recommend.device_ranking import MOST_GPU_THREADS, DeviceColumns  # loads torch

        on_device = DeviceColumns(search.ranker, choice.columns(np.arange(choice.n_places)), device)
        n_rows, threads = on_device.n_rows_at_a_time or n_rows, min(threads, MOST_GPU_THREADS)

    def rank(start: int) -> RankedRows:
        return _rank_rows(search, rows[start : start + n_rows], on_device)

    starts = range(0, max(rows.size, 1), n_rows)
    if threads == 1 or len(starts) == 1:
        yield from map(rank, starts)
        return
    waiting: deque[Future[RankedRows]] = deque()  # in the order of rows, only a few at a time
    with ThreadPoolExecutor(threads) as pool, limit_blas_threads(1):
        for start in starts:
            waiting.append(pool.submit(rank, start))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _rank_rows(
    search: Search, rows: IndexArray, on_device: DeviceColumns | None = None
) -> RankedRows:
    ranker, choice, reranker, n = (
        search.ranker,
        search.choice,
        search.reranker,
        int(search.request.n),
    )
    n_best = min(n if reranker is None else reranker.count_candidates(n), choice.size)
    omitted = choice.omit(rows, search.observed)
    if on_device is None or n_best == 0:
        best = find_best(ranker, rows, choice, n_best, omitted)
    else:
        best = on_device.find_best(ranker, rows, n_best, omitted)
    columns = choice.columns(best.places)
    if reranker is not None:
        picked = reranker.pick(rows, best.keys, columns, n)
        columns, best = np.take_along_axis(columns, picked, axis=1), best.pick(picked)
    missing = best.keys == -np.inf
    best = best.fill(missing)
    reader = ranker
    # others read pairs in their own way
    if best.products is not None and type(ranker.predictor) is Predictor:
        reader = ranker.with_known(best.products, best.scores)
    ranked = reader.read(rows, columns, best.keys)
    if missing.any():
        for field in ranked[2:]:
            if field is not None:
                field[missing] = np.nan
    return ranked


def find_best(
    ranker: Ranker, rows: IndexArray, choice: ColumnChoice, n: int, omitted: Omitted
) -> BestColumns:
    """Return the n largest keys of each row and their places, a block of columns at a time."""
    best = BestSoFar(rows.size, n)
    width = max(min(CELLS_AT_A_TIME // max(rows.size, 1), _COLUMNS_AT_A_TIME), 1)
    for start in range(0, choice.n_places if n else 0, width):
        block = choice.block(start, min(start + width, choice.n_places))
        best.add(
            ranker.rank_best(rows, block, n, functools.partial(omitted.mark, start=start)), start
        )
    return BestColumns(best.keys, best.places)


class BestSoFar:
    """The n largest keys of each row so far, largest first, and their places; ties go to the
    earlier place.

    keys: (rows, n), -inf where there is no key yet. Blocks are added in the order of their places;
        once there are n keys, a block costs little more than a comparison with the smallest of
        them.
    """

    def __init__(self, n_rows: int, n: int) -> None:
        self.keys: Array = np.full((n_rows, n), -np.inf, dtype=np.float32)
        self.places: IndexArray = np.zeros((n_rows, n), dtype=np.int64)

    def add(self, keys: Array, start: int) -> None:
        """Add a block of keys (rows, places), whose first place is `start`; keys of -inf are
        skipped."""
        if self.keys.dtype != keys.dtype:
            self.keys = self.keys.astype(keys.dtype)
        lines = np.flatnonzero(keys.max(axis=1) > self.keys[:, -1])
        if lines.size:
            row_keys = keys if lines.size == len(keys) else keys[lines]
            which, places = np.divmod(
                np.flatnonzero(self._are_candidates(row_keys, lines)), keys.shape[1]
            )
            self.merge(lines[which], places + start, row_keys[which, places])

    def _are_candidates(self, keys: Array, lines: IndexArray) -> BoolArray:
        """Return which keys (lines, places) of some rows may be among their n best."""
        n, width = self.keys.shape[1], keys.shape[1]
        above: BoolArray = keys > self.keys[lines, -1:]
        if width > n and np.count_nonzero(above) > _MANY * keys.size:
            smallest = np.partition(keys, width - n, axis=1)[:, width - n, None]
            above &= keys >= smallest
            # many ties, of which the earliest are enough
            if np.count_nonzero(above) > 2 * n * len(keys):
                ties = keys == smallest
                above &= ~ties | (np.cumsum(ties, axis=1, dtype=np.int32) <= n)
        return above

    def merge(self, lines: IndexArray, places: IndexArray, keys: Array) -> None:
        """Keep the n best of each row among the old and the new keys."""
        n_rows, n = self.keys.shape
        every_line = np.concatenate([np.repeat(np.arange(n_rows), n), lines])
        every_place = np.concatenate([self.places.ravel(), places])
        every_key = np.concatenate([self.keys.ravel(), keys])
        order = np.lexsort((every_place, -every_key, every_line))
        counts = n + np.bincount(lines, minlength=n_rows)
        firsts = np.cumsum(counts) - counts
        best = order[firsts[:, None] + np.arange(n)]
        self.keys, self.places = every_key[best], every_place[best]


@dataclass(frozen=True)
class Recommendations:
    """The n best columns of each of some rows, by position; `frames` ranks them some rows at a
    time."""

    search: Search
    rows: IndexArray

    @classmethod
    def of(
        cls, entries: EntryStore, ranker: Ranker, rows: Iterable[Any] | None, request: Request
    ) -> Self:
        """Return the recommendations for some row labels, each once, or for all rows (None)."""
        positions = (
            np.arange(len(entries.rows)) if rows is None else entries.rows.find_distinct(rows)
        )
        return cls(Search.of(entries, ranker, entries.seen_columns, request), positions)

    @property
    def most_lines(self) -> int:
        """The largest number of lines of all frames together; rows with few columns left have
        fewer."""
        return int(self.rows.size) * min(int(self.search.request.n), self.search.choice.size)

    @property
    def schema(self) -> dict[str, Any]:
        """The column types of the frames, from the types of all labels."""
        from deepmf.matrix.frame_file import find_label_type

        entries = self.search.entries
        form = entries.train.form
        row, column = form.name_ids_beside(FRAME_FIELDS)
        types = {row: find_label_type(entries.rows[:1]), "rank": polars.Int64}
        types |= {column: find_label_type(entries.columns[:1]), "prediction": polars.Float64}
        chances = self.search.ranker.known_chances
        types |= {name: polars.Float64 for name in ("presence", "liked") if chances[name]}
        types |= {"distribution": polars.List(polars.Float64)} if chances["distribution"] else {}
        named = {row: entries.row_names, column: entries.column_names}
        return types | {
            f"{field}_name": polars.String for field, names in named.items() if names is not None
        }

    def frames(self) -> Iterator[Any]:
        """Yield polars frames with a line for each row and rank (from 1), the column, and what is
        known of it.

        That is the prediction, and where the model has them, the probabilities of `Ranking`.
        """
        waiting: list[RankedRows] = []
        n_lines = 0
        for part in rank_batches(
            self.search, self.rows, threads=min(count_threads(), _MOST_THREADS)
        ):
            waiting.append(part)
            n_lines += part.columns.size
            if n_lines >= _LINES_AT_A_TIME:
                yield self._build_frame(waiting)
                waiting, n_lines = [], 0
        if waiting:
            yield self._build_frame(waiting)

    def _build_frame(self, parts: list[RankedRows]) -> Any:
        best, schema, entries = join_ranked(parts), self.schema, self.search.entries
        frame = label_ranked(entries, best, entries.rows[best.rows]).to_frame()
        return frame.select(list(schema)).cast(schema)

    def write(self, path: str | Path) -> int:
        """Write the frames to a file, completely or not at all; return the number of lines."""
        from deepmf.matrix.frame_file import write_frame_file

        return write_frame_file(self.frames(), self.schema, path)


def most_similar(
    directions: SingleArray, labels: Labels, label: Any, n: int, *, barred: IndexArray = NOTHING
) -> Ranking:
    """Return the n labels whose directions have the largest cosines with the direction of a label,
    without itself."""
    position = labels.positions([label])[0]
    return rank_cosines(
        (directions @ directions[position]).astype(np.float64), labels, position, n, barred=barred
    )


def rank_cosines(
    cosines: FloatArray, labels: Labels, position: int, n: int, *, barred: IndexArray
) -> Ranking:
    """Return the n labels with the largest cosines, without the one at a position and the barred
    ones."""
    check_count("n", n)
    cosines[position] = cosines[barred] = -np.inf
    best = find_largest(cosines[None], int(n))[0]
    best = best[cosines[best] > -np.inf]
    return Ranking(labels[best], np.clip(cosines[best], -1.0, 1.0))


def is_label(rows: Any, labels: Labels) -> bool:
    """Whether `rows` is a single row; a tuple is a single row if labels are tuples, otherwise
    several rows."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        return True
    return isinstance(rows, tuple) and rows in labels


def batches(positions: IndexArray, *, width: int) -> Iterator[IndexArray]:
    """Yield batches of positions whose scores over `width` columns take bounded memory."""
    step = max(CELLS_AT_A_TIME // max(width, 1), 1)
    for start in range(0, max(positions.size, 1), step):
        yield positions[start : start + step]
