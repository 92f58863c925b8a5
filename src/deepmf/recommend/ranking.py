"""Rankings: the best columns of each row, exact or by an index."""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, NamedTuple, Self, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from deepmf.errors import check_count
from deepmf.files import import_polars
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.axis_entries import NOTHING
from deepmf.matrix.labels import Labels
from deepmf.matrix.names import Names
from deepmf.recommend.column_choice import ColumnChoice, ColumnFilter, Omitted
from deepmf.recommend.device_ranking import MOST_GPU_THREADS, BestColumns, DeviceColumns
from deepmf.recommend.neighbours import ColumnNeighbours
from deepmf.recommend.ranker import RankBy, Ranker
from deepmf.recommend.relevance import Observed
from deepmf.recommend.reranking import Rerank, Reranker
from deepmf.recommend.top_n import BestSoFar, best_positions
from deepmf.scoring.predictor import Predictor
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


# Fields of frames beside the ids.
FRAME_FIELDS = ("rank", "prediction", "cosine", "presence", "liked", "distribution")


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
        named = copy.copy(self)
        named.names = None if names is None else names.find_array(self.labels)
        named.fields, named.rows = fields, rows
        return named

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
    check_count("n", n)
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
    """Return a ranker that reads predictions and probabilities of columns (rows, n) from the products of the search."""
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
    check_count("n", n)
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


def most_similar(
    directions: npt.NDArray[np.float32], labels: Labels, label: Any, n: int, *, barred: IndexArray = NOTHING
) -> Ranking:
    """Return the n labels whose directions have the largest cosines with the direction of a label, without itself."""
    position = labels.positions([label])[0]
    return rank_cosines((directions @ directions[position]).astype(np.float64), labels, position, n, barred=barred)


def rank_cosines(cosines: FloatArray, labels: Labels, position: int, n: int, *, barred: IndexArray) -> Ranking:
    """Return the n labels with the largest cosines, without the one at a position and the barred ones."""
    check_count("n", n)
    cosines[position] = cosines[barred] = -np.inf
    best, values = best_positions(cosines[None], n)
    others = values[0] > -np.inf
    return Ranking(labels[best[0][others]], np.clip(values[0][others], -1.0, 1.0))


def is_label(rows: Any, labels: Labels) -> bool:
    """Whether `rows` is a single row; a tuple is a single row if labels are tuples, otherwise several rows."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        return True
    return isinstance(rows, tuple) and rows in labels


def batches(positions: IndexArray, *, width: int) -> Iterator[IndexArray]:
    """Yield batches of positions whose scores over `width` columns take bounded memory."""
    step = max(CELLS_AT_A_TIME // max(width, 1), 1)
    for start in range(0, max(positions.size, 1), step):
        yield positions[start : start + step]
