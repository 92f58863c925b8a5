"""Rankings: the best columns of a row, exact or by an index, of one row or streamed to a file for many."""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, Self, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
import torch

from deepmf.errors import BadSetting, MissingDependency
from deepmf.files import import_polars
from deepmf.matrix.arrays import FloatArray, IndexArray, LatentArray
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.labels import Labels
from deepmf.matrix.names import Names
from deepmf.models.column_choice import ColumnChoice, ColumnFilter, Omitted, choose_columns
from deepmf.models.device_ranking import MOST_GPU_THREADS, BestColumns, DeviceColumns
from deepmf.models.predictor import Predictor
from deepmf.models.ranker import RankBy, Ranker
from deepmf.models.relevance import Observed
from deepmf.models.reranking import Rerank, Reranker, make_reranker
from deepmf.training.runtime import limit_blas_threads

T = TypeVar("T")

# Cells scored at a time when whole rows are ranked: 8 MB of float64.
CELLS_AT_A_TIME = 1 << 20

# Rows ranked together even if there are very many columns: each block of column latents is then read once for all.
_ROWS_AT_A_TIME = 64

# Columns scored at a time: after the first block, a comparison skips nearly all others.
_COLUMNS_AT_A_TIME = 1 << 17

# The first block is the only one that is searched in full: it is small, and the next ones are larger by this factor.
_FIRST_COLUMNS, _GROWTH = 1 << 10, 4

# The largest number of barred columns that are added to the candidates of a row; with more, rankings may become exact.
_MOST_LEFT_OUT = 1000

# If more than this share of a block is above the n-th best so far, the block is partitioned, which costs less than
# merging that many keys.
_MANY = 1 / 16


WANTED_RECALL = 0.98  # of the ten best columns, measured on rows of the model when the index is built

_LEAST_COLUMNS = 1000  # to learn 16 centroids from
_LEARNED_FROM = 20_000  # columns that the centroids are learned from, at most
_NUMBERS_A_CODE = 2  # numbers of a latent that become one code of 4 bits
_MOST_CODES = 256
_MOST_ROWS = 200  # on which recall is measured
_LEAST_SPARE, _MOST_SPARE = 90, 6000  # candidates beyond the n best
_INDEXED_AT_A_TIME = 1 << 16  # columns

# Fields of frames beside the ids.
FRAME_FIELDS = ("rank", "prediction", "cosine", "presence", "liked", "distribution")

_MOST_THREADS = 16  # that rank rows for a file; with more, they would wait for Python's lock

# Lines of a frame: a few megabytes, so that writing costs little beside ranking.
_LINES_AT_A_TIME = 1 << 16


class _LabelsAndValues(NamedTuple):
    labels: npt.NDArray[Any]
    values: FloatArray


class Ranking(_LabelsAndValues):
    """Labels and values, best first: (n,) of one row, or (rows, n) of several; a pair of two arrays.

    labels : the labels of the columns (or rows).
    values : the predictions, the similarities, or for interactions the probabilities that they exist.
    presence : the probabilities that an entry exists; None if the model has no presence part.
    liked : the probabilities that an entry that exists has at least the relevant value; None as before, and for
        interactions.
    distribution : the probability of each level, (n, levels) or (rows, n, levels), as of `predict_distribution`; None
        if the model predicts only values.
    names : the names of the labels, None for labels without one; None if the model has no names.
    rows : the labels of the rows, (rows,), if there are several.
    fields : the names of rows, labels and values in frames.
    """

    presence: FloatArray | None
    liked: FloatArray | None
    distribution: FloatArray | None
    names: npt.NDArray[np.object_] | None = None
    rows: npt.NDArray[Any] | None = None
    fields: tuple[str, str, str] = ("row", "column", "prediction")

    def __new__(
        cls,
        labels: npt.NDArray[Any],
        values: FloatArray,
        presence: FloatArray | None = None,
        liked: FloatArray | None = None,
        distribution: FloatArray | None = None,
    ) -> Self:
        """Return a pair with attributes beside it, so that `labels, values = ranking` unpacks it."""
        ranking = super().__new__(cls, labels, values)
        ranking.presence, ranking.liked, ranking.distribution = presence, liked, distribution
        return ranking

    def describe(
        self, names: Names | None, fields: tuple[str, str, str], rows: npt.NDArray[Any] | None = None
    ) -> Ranking:
        """Return the ranking with the names of its labels, and with the fields and rows of its frame."""
        described = copy.copy(self)
        described.names = None if names is None else names.find_array(self.labels)
        described.fields, described.rows = fields, rows
        return described

    def to_frame(self) -> Any:
        """Return a polars frame with a line for each label: its rank from 1, the label, the value and probabilities.

        >>> Ranking(np.array(["Alien", "Big"]), np.array([4.5, 3.0])).to_frame().rows()
        [(1, 'Alien', 4.5), (2, 'Big', 3.0)]
        """
        polars, (row, column, value) = import_polars(), self.fields
        at = np.nonzero(~np.isnan(self.values))
        shown: dict[str, Any] = {} if self.rows is None else {row: self.rows[at[0]].tolist()}
        shown |= {"rank": at[-1] + 1, column: self.labels[at].tolist()}
        shown |= {} if self.names is None else {f"{column}_name": self.names[at].tolist()}
        numbers = {value: self.values, "presence": self.presence, "liked": self.liked}
        shown |= {name: each[at] for name, each in numbers.items() if each is not None}
        shown |= {} if self.distribution is None else {"distribution": self.distribution[at].tolist()}
        return polars.DataFrame(shown, strict=False)

    def first(self) -> Ranking:
        """Return the ranking of the first row, without the places that no column fills."""
        is_filled = ~np.isnan(self.values[0])
        beside = (self.presence, self.liked, self.distribution)
        return Ranking(
            self.labels[0][is_filled],
            self.values[0][is_filled],
            *(None if each is None else each[0][is_filled] for each in beside),
        )


class Order(TypedDict, total=False):
    """The keyword arguments that choose the order of a ranking; all of them may be left out."""

    rank_by: RankBy | None
    relevant: float | None
    rerank: Rerank | None


class RankOptions(ColumnFilter, Order, total=False):
    """The keyword arguments of rankings: the columns to rank, and their order."""


def rank_columns(
    ranker: Ranker,
    labels: Labels,
    rows: IndexArray,
    choice: ColumnChoice,
    n: int,
    *,
    observed: Observed,
    neighbours: ColumnNeighbours | None = None,
    reranker: Reranker | None = None,
) -> Ranking:
    """Return the n best columns of a choice for each of some rows of a ranker, (rows, n).

    observed: maps positions of rows to their entries, whose columns are left out unless the choice includes them.
    A line with fewer columns than n is filled up with NaN.
    neighbours: search only the columns near a row.
    reranker: picks different columns among the best.
    """
    if neighbours is None or choice.among is not None or rows.size == 0:
        parts = list(rank_batches(ranker, rows, choice, n, observed=observed, reranker=reranker))
    else:
        parts = [_rank_near(ranker, row, choice, n, observed, neighbours, reranker) for row in rows[:, None]]
    best = join_ranked(parts)
    found = labels[best.columns.ravel()].reshape(best.columns.shape)  # one by one: not all may be in memory
    return Ranking(found, best.values, best.presence, best.liked, best.distribution)


class RankedRows(NamedTuple):
    """The best columns of some rows by position, (rows, n); NaN values where a row has fewer columns.

    presence, liked, distribution: as in `Ranking`.
    """

    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    presence: FloatArray | None
    liked: FloatArray | None
    distribution: FloatArray | None


def join_ranked(parts: Iterable[RankedRows]) -> RankedRows:
    """Return all rows of some parts."""
    joined: list[Any] = [None if each[0] is None else np.concatenate(each) for each in zip(*parts, strict=True)]
    return RankedRows(*joined)


def rank_batches(
    ranker: Ranker,
    rows: IndexArray,
    choice: ColumnChoice,
    n: int,
    *,
    observed: Observed,
    reranker: Reranker | None = None,
    device: str | None = None,
    threads: int = 1,
) -> Iterator[RankedRows]:
    """Rank columns for some rows at a time, in a few megabytes of memory for any number of rows and columns.

    device: where keys are computed and compared by torch, in more memory; None for numpy.
    threads: the number of batches that are ranked at the same time; on a device, a few at most.
    """
    check_n(n)
    n_rows = max(CELLS_AT_A_TIME // max(choice.n_places, 1), _ROWS_AT_A_TIME)
    on_device = None
    if device is not None:
        on_device = DeviceColumns(ranker, choice.columns(np.arange(choice.n_places)), device)
        n_rows, threads = on_device.n_rows_at_a_time or n_rows, min(threads, MOST_GPU_THREADS)
    rankers: SimpleQueue[Ranker] = SimpleQueue()  # one for each thread: a ranker remembers its last rows
    for _ in range(threads):
        rankers.put(ranker.copy())

    def rank(start: int) -> RankedRows:
        own = rankers.get()
        try:
            return _rank_rows(own, rows[start : start + n_rows], choice, int(n), observed, reranker, on_device)
        finally:
            rankers.put(own)

    starts = range(0, max(rows.size, 1), n_rows)
    if threads == 1 or len(starts) == 1:
        yield from map(rank, starts)
    else:
        yield from _map_in_threads(rank, starts, threads)


def _map_in_threads(work: Callable[[int], T], items: Iterable[int], threads: int) -> Iterator[T]:
    """Yield the results for some items in their order; only a few of them wait at a time."""
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads) as pool, limit_blas_threads(1):
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _rank_rows(
    ranker: Ranker,
    rows: IndexArray,
    choice: ColumnChoice,
    n: int,
    observed: Observed,
    reranker: Reranker | None,
    on_device: DeviceColumns | None = None,
) -> RankedRows:
    """Rank columns for some rows."""
    n_best = min(n if reranker is None else reranker.count_candidates(n), choice.size)
    omitted = choice.omit(rows, observed)
    if on_device is None or n_best == 0:
        best = _find_best(ranker, rows, choice, n_best, omitted.sort())
    else:
        best = on_device.find_best(ranker, rows, n_best, *omitted)
    columns = choice.columns(best.places)
    if reranker is not None:
        picked = reranker.pick(best.keys, columns, n)
        columns, best = np.take_along_axis(columns, picked, axis=1), best.pick(picked)
    missing = best.keys == -np.inf
    best = best.fill(missing)
    keys, reader = best.keys, _make_reader(ranker, rows, columns, best)
    found = RankedRows(
        rows, columns, reader.read_values(rows, columns, keys), *reader.read_chances(rows, columns, keys)
    )
    if missing.any():
        for each in found[2:]:
            if each is not None:
                each[missing] = np.nan
    return found


def _make_reader(ranker: Ranker, rows: IndexArray, columns: IndexArray, best: BestColumns) -> Ranker:
    """Return what reads the predictions and probabilities of columns (rows, n) from products that are known by then."""
    if type(ranker.predictor) is not Predictor:  # others read pairs in their own way
        return ranker
    products = best.keys if ranker.ranks_by_products else best.products
    if products is None:
        products = ranker.predictor.multiply_lines(rows, columns)
    return ranker.with_known(products, best.scores)


def _find_best(ranker: Ranker, rows: IndexArray, choice: ColumnChoice, n: int, omitted: Omitted) -> BestColumns:
    """Return the n largest keys of each row and their places, a block of columns at a time."""
    best = BestSoFar(rows.size, n)
    widest = max(min(CELLS_AT_A_TIME // max(rows.size, 1), _COLUMNS_AT_A_TIME), 1)
    width = widest if choice.n_places <= _GROWTH * _FIRST_COLUMNS else min(_FIRST_COLUMNS, widest)
    start = 0
    while start < choice.n_places and best.keys.size:
        floor = best.keys[:, -1] if start else None
        stop = min(start + width, choice.n_places)
        omit = functools.partial(omitted.mark, start=start)
        best.add(ranker.rank_best(rows, choice.block(start, stop), n, omit, floor), start)
        start, width = stop, min(_GROWTH * width, widest)
    return BestColumns(best.keys, best.places)


def _rank_near(
    ranker: Ranker,
    row: IndexArray,
    choice: ColumnChoice,
    n: int,
    observed: Observed,
    neighbours: ColumnNeighbours,
    reranker: Reranker | None,
) -> RankedRows:
    """Rank the columns near a row, or all columns if too few of these are left."""
    check_n(n)
    n = min(int(n), choice.size)
    n_left_out = min(choice.barred.size, _MOST_LEFT_OUT) + (0 if choice.include_observed else observed(row).others.size)
    n_near = n if reranker is None else reranker.count_candidates(n)
    near = neighbours.candidates(ranker.predictor, int(row[0]), n_near + n_left_out)
    near = near[~np.isin(near, choice.barred, assume_unique=True)] if choice.barred.size else near
    nearby = replace(choice, among=near, barred=NOTHING)
    found = _rank_rows(ranker, row, nearby, n, observed, reranker)
    if found.values.shape[1] == n and not np.isnan(found.values).any():
        return found
    return _rank_rows(ranker, row, choice, n, observed, reranker)


class BestSoFar:
    """The n largest keys of each row so far, largest first, and their places; ties go to the earlier place.

    keys: (rows, n), -inf where there is no key yet. Blocks are added in the order of their places; once there are n
    keys, a block costs little more than a comparison with the smallest of them.
    """

    def __init__(self, n_rows: int, n: int) -> None:
        self.keys: npt.NDArray[Any] = np.full((n_rows, n), -np.inf, dtype=np.float32)
        self.places: IndexArray = np.zeros((n_rows, n), dtype=np.int64)

    def add(self, keys: npt.NDArray[Any], start: int) -> None:
        """Add a block of keys (rows, places), whose first place is `start`; keys of -inf are skipped."""
        if self.keys.dtype != keys.dtype:
            self.keys = self.keys.astype(keys.dtype)
        lines = np.flatnonzero(keys.max(axis=1) > self.keys[:, -1])
        if lines.size:
            some = keys if lines.size == len(keys) else keys[lines]
            which, places = np.divmod(np.flatnonzero(self._are_candidates(some, lines)), keys.shape[1])
            self.merge(lines[which], places + start, some[which, places])

    def _are_candidates(self, keys: npt.NDArray[Any], lines: IndexArray) -> npt.NDArray[np.bool_]:
        """Return which keys (lines, places) of some rows may be among their n best."""
        n, width = self.keys.shape[1], keys.shape[1]
        above: npt.NDArray[np.bool_] = keys > self.keys[lines, -1:]
        if width > n and np.count_nonzero(above) > _MANY * keys.size:
            above &= keys >= np.partition(keys, width - n, axis=1)[:, width - n, None]
        return above

    def merge(self, lines: IndexArray, places: IndexArray, keys: npt.NDArray[Any]) -> None:
        """Keep the n best of each row among the old and the new keys."""
        n_rows, n = self.keys.shape
        every_line = np.concatenate([np.repeat(np.arange(n_rows), n), lines])
        every_place = np.concatenate([self.places.ravel(), places])
        every_key = np.concatenate([self.keys.ravel(), keys])
        order = np.lexsort((every_place, -every_key, every_line))
        counts = n + np.bincount(lines, minlength=n_rows)
        firsts = np.cumsum(counts) - counts
        kept = order[firsts[:, None] + np.arange(n)]
        self.keys, self.places = every_key[kept], every_place[kept]


class ColumnNeighbours:
    """An index of the trained columns that finds the candidates worth scoring exactly.

    It quantises column latents to 4 bits for every two numbers and scans all of them; with 45 numbers each, that reads
    a fifteenth of the memory. Columns that changed since training, or are new, are always scored, so rankings differ
    from exact ones only if a trained column is missed. An index serves the model it was built for, and the models that
    `extend` and `forget` make from it.

    recall: the share of the ten best columns that it finds, measured on rows of the model.
    """

    def __init__(self, predictor: Predictor) -> None:
        faiss = _import_faiss()
        self._latents = predictor.columns.base
        n_columns, width = self._latents.shape
        if type(predictor) is not Predictor:  # others score in a way of their own
            raise BadSetting("this model does not rank by products of latents, so it has only exact rankings")
        if n_columns < _LEAST_COLUMNS:
            raise BadSetting(
                f"an index needs at least {_LEAST_COLUMNS:,} columns; got {n_columns}, where exact rankings are fast"
            )
        n_codes = min(-(-width // _NUMBERS_A_CODE), _MOST_CODES)
        self._width = -(-width // n_codes) * n_codes
        self._index: Any = faiss.IndexPQFastScan(self._width, n_codes, 4, faiss.METRIC_INNER_PRODUCT)
        some = np.linspace(0, n_columns - 1, min(n_columns, _LEARNED_FROM)).astype(np.int64)
        self._index.train(self._pad(self._latents[some]))
        for start in range(0, n_columns, _INDEXED_AT_A_TIME):
            self._index.add(self._pad(self._latents[start : start + _INDEXED_AT_A_TIME]))
        self._spare = _LEAST_SPARE
        self.recall = self._tune(predictor)

    def candidates(self, predictor: Predictor, row: int, n: int) -> IndexArray:
        """Return the increasing positions of the candidate columns for the n best of the row at a position."""
        if predictor.columns.base is not self._latents:
            raise BadSetting("this index belongs to another model; build one by column_neighbours")
        found = np.sort(self._search(predictor.rows.take(np.array([row])), n + self._spare)[0])
        return np.union1d(found, predictor.columns.positions) if predictor.columns.positions.size else found

    def _search(self, queries: LatentArray, n: int) -> IndexArray:
        found: IndexArray = self._index.search(self._pad(queries), min(n, len(self._latents)))[1]
        return found

    def _pad(self, latents: LatentArray) -> LatentArray:
        """Return latents in single precision, padded with zeros to a whole number of codes."""
        padded = np.zeros((len(latents), self._width), dtype=np.float32)
        padded[:, : latents.shape[1]] = latents
        return padded

    def _tune(self, predictor: Predictor) -> float:
        """Increase the number of spare candidates until the wanted recall is reached; return the measured recall."""
        n_rows = len(predictor.rows)
        some = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _MOST_ROWS)).astype(np.int64))
        queries = predictor.rows.take(some)
        best = BestSoFar(some.size, 10)
        for start in range(0, len(self._latents), _INDEXED_AT_A_TIME):
            best.add(queries @ self._latents[start : start + _INDEXED_AT_A_TIME].T, start)
        while True:
            found = self._search(queries, 10 + self._spare)
            hits = [np.isin(wanted, line).mean() for wanted, line in zip(best.places, found, strict=True)]
            recall = float(np.mean(hits))
            if recall >= WANTED_RECALL or self._spare >= _MOST_SPARE:
                return recall
            self._spare += self._spare // 2


def _import_faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingDependency("approximate rankings need faiss: pip install 'deepmf[ann]'") from error
    return faiss


@dataclass(frozen=True)
class Recommendations:
    """The n best columns of each of some rows, by position; `frames` ranks them some rows at a time."""

    entries: EntryStore
    ranker: Ranker
    rows: IndexArray
    choice: ColumnChoice
    n: int
    reranker: Reranker | None = None
    device: str | None = None

    @classmethod
    def of(
        cls,
        entries: EntryStore,
        ranker: Ranker,
        rows: Iterable[Any] | None,
        n: int,
        *,
        rerank: Rerank | None = None,
        device: str | None = None,
        **columns: Unpack[ColumnFilter],
    ) -> Self:
        """Return the recommendations for some row labels, each once, or for all rows (None)."""
        check_n(n)
        positions = np.arange(len(entries.rows)) if rows is None else entries.rows.find_distinct(rows)
        reranker = make_reranker(rerank, entries, ranker.predictor)
        return cls(entries, ranker, positions, choose_columns(entries, **columns), n, reranker, device)

    @property
    def most_lines(self) -> int:
        """The largest number of lines of all frames together; rows with few columns left have fewer."""
        return int(self.rows.size) * min(self.n, self.choice.size)

    @property
    def schema(self) -> dict[str, Any]:
        """The column types of the frames, from the types of all labels."""
        from deepmf.storage.frame_file import find_label_type

        polars = import_polars()
        form, ranker = self.entries.train.form, self.ranker
        chances = [name for name, is_known in ranker.known_chances.items() if is_known]
        types = {"distribution": polars.List(polars.Float64)}
        named = [field for field, names in self._names.items() if names is not None]
        row, column = form.name_ids_beside(("rank", "prediction", *chances, *named))
        return (
            {
                row: find_label_type(self.entries.rows[:1], form.row_type),
                "rank": polars.Int64,
                column: find_label_type(self.entries.columns[:1], form.column_type),
                "prediction": polars.Float64,
            }
            | {name: types.get(name, polars.Float64) for name in chances}
            | dict.fromkeys(named, polars.String)
        )

    @property
    def _names(self) -> dict[str, Names | None]:
        """The names of rows and of columns, by the field of the frames that shows them."""
        return {"row_name": self.entries.row_names, "column_name": self.entries.column_names}

    def frames(self) -> Iterator[Any]:
        """Yield polars frames with a line for each row and rank (from 1), the column, and what is known of it.

        That is the prediction, and where the model has them, the probabilities of `Ranking`.
        """
        waiting: list[RankedRows] = []
        n_lines = 0
        for part in rank_batches(
            self.ranker,
            self.rows,
            self.choice,
            self.n,
            observed=self.entries.seen_columns,
            reranker=self.reranker,
            device=self.device,
            threads=min(torch.get_num_threads(), _MOST_THREADS),
        ):
            waiting.append(part)
            n_lines += part.columns.size
            if n_lines >= _LINES_AT_A_TIME:
                yield self._build_frame(waiting)
                waiting, n_lines = [], 0
        if waiting:
            yield self._build_frame(waiting)

    def _build_frame(self, parts: list[RankedRows]) -> Any:
        """Return the frame of some ranked rows."""
        polars, schema, entries = import_polars(), self.schema, self.entries
        best = join_ranked(parts)
        line_of, place = np.nonzero(~np.isnan(best.values))
        rows = polars.Series(entries.rows[best.rows].tolist(), dtype=next(iter(schema.values()))).gather(line_of)
        columns = entries.columns[best.columns[line_of, place]].tolist()
        found = (
            rows,
            place + 1,
            columns,
            *(each[line_of, place] for each in best[2:] if each is not None),
            *(
                names.find(labels)
                for names, labels in zip(self._names.values(), (rows.to_list(), columns), strict=True)
                if names is not None
            ),
        )
        return polars.DataFrame(dict(zip(schema, found, strict=True)), schema=schema)

    def write(self, path: str | Path) -> int:
        """Write the frames to a file, completely or not at all; return the number of lines."""
        from deepmf.storage.frame_file import write_frame_file

        count = 0

        def count_lines() -> Iterator[Any]:
            nonlocal count
            for frame in self.frames():
                count += frame.height
                yield frame

        write_frame_file(count_lines(), self.schema, path)
        return count


def check_neighbours(neighbours: ColumnNeighbours | None, rank_by: RankBy | None) -> RankBy | None:
    """Return the order of a ranking; an index finds columns near a row by value, and has no other order."""
    if neighbours is None:
        return rank_by
    if rank_by == "relevance":
        raise BadSetting("an index of neighbours finds columns by value; leave out neighbours, or set rank_by='value'")
    return "value"


def most_similar(directions: npt.NDArray[np.float32], labels: Labels, label: Any, n: int) -> Ranking:
    """Return the n labels whose directions have the largest cosines with the direction of a label, without itself."""
    check_n(n)
    position = labels.positions([label])[0]
    cosines = (directions @ directions[position]).astype(np.float64)[None]
    cosines[0, position] = -np.inf
    best, values = best_positions(cosines, n)
    others = values[0] > -np.inf
    return Ranking(labels[best[0][others]], np.clip(values[0][others], -1.0, 1.0))


def is_label(rows: Any, labels: Labels) -> bool:
    """Whether `rows` is a single row; a tuple is a single row if labels are tuples, otherwise several rows."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        return True
    return isinstance(rows, tuple) and rows in labels


def check_n(n: int) -> None:
    """Refuse an `n` that is not a whole number of at least 1."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise BadSetting(f"n must be a whole number of at least 1; got {n!r}")


def batches(positions: IndexArray, *, width: int) -> Iterator[IndexArray]:
    """Yield batches of positions whose scores over `width` columns take bounded memory."""
    step = max(CELLS_AT_A_TIME // max(width, 1), 1)
    for start in range(0, max(positions.size, 1), step):
        yield positions[start : start + step]


def best_positions(scores: FloatArray, n: int) -> tuple[IndexArray, FloatArray]:
    """Return the places and the values of the n largest scores of each line, largest first; ties go by place."""
    check_n(n)
    n = min(int(n), scores.shape[1])
    if n < scores.shape[1]:
        # All scores above the n-th largest of the line are chosen, then ties with it by place.
        threshold = -np.partition(-scores, n - 1, axis=1)[:, n - 1 : n]
        rank = np.where(scores > threshold, 0, np.where(scores == threshold, 1, 2))
        chosen = np.sort(np.argsort(rank, axis=1, kind="stable")[:, :n], axis=1)
    else:
        chosen = np.broadcast_to(np.arange(n), scores.shape)
    taken = np.take_along_axis(scores, chosen, axis=1)
    order = np.argsort(-taken, axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1), np.take_along_axis(taken, order, axis=1)
