"""A table as the imputer reads it: entries, columns of text as numbers, and the units of
columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.utils import check_array

from deepmf.errors import BadEntries
from deepmf.matrix.arrays import Array, FloatArray, IndexArray
from deepmf.matrix.extras import Extras
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import MOST_LEVELS, Scale

MaskArray = npt.NDArray[np.bool_]  # (rows, columns), or (entries,)

ObjectArray = npt.NDArray[np.object_]

# How scikit-learn checks a table: what is missing may be NaN; whole numbers become float64.
CHECKS: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}


def make_dense(table: Any) -> Any:
    """Return a sparse matrix as an array with NaN where nothing is stored, and any other table as
    it is.

    >>> make_dense(scipy.sparse.coo_array(([0.0, 7.0], ([0, 1], [1, 0])), shape=(2, 2)))
    array([[nan,  0.],
           [ 7., nan]])
    """
    if not scipy.sparse.issparse(table):
        return table
    stored = table.tocoo()
    array = np.full(table.shape, np.nan, dtype=np.result_type(stored.dtype, np.float32))
    array[stored.row, stored.col] = stored.data
    return array


def check_numbers(table: Any) -> npt.NDArray[Any]:
    """Return a table of numbers of any kind as an array with NaN; scikit-learn refuses other
    tables."""
    return np.asarray(check_array(make_dense(table), **CHECKS))


class TableEntries(NamedTuple):
    """The observed entries of a checked table, by position.

    row_weights: how much each row of the table counts, (rows of the table,). times: the positions
    of these rows along which neighbours are alike; None without.
    """

    shape: tuple[int, int]
    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    row_weights: FloatArray
    times: Array | None = None

    @classmethod
    def of(cls, table: npt.NDArray[Any], times: Array | None = None) -> TableEntries:
        """Take the entries out of an array; NaN is none.

        >>> TableEntries.of(np.array([[np.nan, 0.0], [7.0, np.nan]])).values
        array([0., 7.])
        """
        rows, columns = np.nonzero(~np.isnan(table))
        values = table[rows, columns].astype(np.float64)
        weights = np.ones(len(table))
        return cls((len(table), table.shape[1]), rows, columns, values, weights, times)

    def select(self, kept: MaskArray | IndexArray) -> TableEntries:
        """Return some of the entries, by a mask over them or by their places."""
        return self._replace(
            rows=self.rows[kept], columns=self.columns[kept], values=self.values[kept]
        )

    def take_columns(self, positions: IndexArray) -> TableEntries:
        """Return the entries of some columns, which are then counted from 0."""
        place = np.full(self.shape[1], -1)
        place[positions] = np.arange(positions.size)
        is_taken = place[self.columns] >= 0
        columns = place[self.columns[is_taken]]
        return self.select(is_taken)._replace(
            shape=(self.shape[0], positions.size), columns=columns
        )

    def take_rows(self, positions: IndexArray) -> TableEntries:
        """Return the entries of some rows in increasing order, which are then counted from 0, and
        each of which counts as 1."""
        entries = self.select(np.isin(self.rows, positions))
        shape, rows = (positions.size, self.shape[1]), np.searchsorted(positions, entries.rows)
        times = None if self.times is None else self.times[positions]
        weights = np.ones(positions.size)
        return entries._replace(shape=shape, rows=rows, row_weights=weights, times=times)

    def to_array(self) -> FloatArray:
        """Return the entries as an array (rows, columns) with NaN where there is none."""
        array = np.full(self.shape, np.nan)
        array[self.rows, self.columns] = self.values
        return array

    def matrix(self, scale: Scale, *, column_labels: Any) -> ObservedMatrix:
        """Return the entries as a matrix whose rows are numbered from 0."""
        extras = Extras()
        if np.any(self.row_weights != 1):
            extras = Extras(weights=self.row_weights[self.rows])
        return ObservedMatrix.from_positions(
            Labelled(Labels.from_distinct(np.arange(self.shape[0]), axis="row"), self.rows),
            Labelled(Labels(column_labels, axis="column"), self.columns),
            self.values,
            scale=scale,
            extras=extras,
        )


def measure_columns(table: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the standard deviation of each column's entries; 0 for a column without
    any."""
    observed = np.ma.masked_invalid(table.astype(np.float64))
    means, spreads = (
        moments.filled(0.0) for moments in (observed.mean(axis=0), observed.std(axis=0))
    )
    return means, spreads


def hide_entries(table: Any, mask: MaskArray) -> Any:
    """Return a frame with only the entries of a mask, or an array of other tables."""
    array = np.where(mask, check_numbers(table), np.nan)
    return label_like(table, array, np.arange(array.shape[1]))


@dataclass(frozen=True, eq=False)
class MixedTable:
    """The numbers of a table, and its columns of text, categories or dates by position.

    >>> table = MixedTable.of(np.array([["red", 1.5], [None, "?"]], dtype=object), missing="?")
    >>> table.numbers, table.texts[0]
    (array([[nan, 1.5],
           [nan, nan]]), array(['red', None], dtype=object))
    """

    numbers: npt.NDArray[Any]  # (rows, columns) NaN where missing, and in all of the other columns
    texts: Mapping[int, ObjectArray]  # (rows,) each, None where missing
    orders: Mapping[int, tuple[Any, ...]]  # categories in their order, of the columns that have one
    dates: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, table: Any, *, missing: Any, texts: Iterable[int] | None = None, truths: bool = True
    ) -> MixedTable | None:
        """Take a table apart; None where all of its columns are numbers, which scikit-learn knows
        to check.

        `texts` says which columns are not numbers; left out, those of which any cell is text or a
        category, and, unless `truths` is False, those of truth values.
        """
        kinds, columns = _list_columns(table)
        kind_of = dict(enumerate(kinds))
        dates = frozenset(at for at, kind in kind_of.items() if kind == "dates")
        may_be_text = [at for at, kind in kind_of.items() if kind in ("text", "ordered", "objects")]
        cells = {at: _mark_cells(columns[at], missing) for at in {*may_be_text, *(texts or ())}}
        if texts is None:
            texts = [
                at for at in may_be_text if _holds_text(cells[at], kind_of[at] != "objects", truths)
            ]
        if not columns or not (texts or dates or isinstance(missing, str)):
            return None
        texts = set(texts)
        numbers = np.full((len(columns[0]), len(columns)), np.nan)
        for at in kind_of.keys() - texts - dates:
            numbers[:, at] = _read_numbers(cells[at] if at in cells else columns[at], missing)
        orders = {
            at: tuple(columns[at].dtype.categories) for at in texts if kind_of[at] == "ordered"
        }
        return cls(numbers, {at: cells[at] for at in sorted(texts)}, orders, dates)

    @property
    def missing(self) -> MaskArray:
        """The missing cells, (rows, columns)."""
        mask: MaskArray = np.isnan(self.numbers)
        for column, cells in self.texts.items():
            mask[:, column] = [cell is None for cell in cells]
        mask[:, list(self.dates)] = False
        return mask


def mark_missing(table: npt.NDArray[Any], missing: Any) -> npt.NDArray[Any]:
    """Replace the number that marks missing values by NaN.

    >>> mark_missing(np.array([[1.0, -1.0]]), -1)
    array([[ 1., nan]])
    """
    is_number = isinstance(missing, int | float) and not np.isnan(missing)
    return np.where(table == missing, np.nan, table).astype(table.dtype) if is_number else table


def is_missing(value: Any, mark: Any) -> bool:
    """Return whether a cell is missing: None, NaN, or the mark of missing values."""
    if value is None or type(value).__name__ in _NOTHING:
        return True
    if isinstance(value, float | np.floating) and np.isnan(value):
        return True
    return type(mark).__name__ not in _NOTHING and bool(value == mark)


_NOTHING = ("NAType", "NaTType")  # what is missing in pandas, which need not be here


def _list_columns(table: Any) -> tuple[list[str], list[Any]]:
    """Return the kind of each column, "numbers", "text", "ordered", "objects" or "dates", and the
    columns."""
    import narwhals as nw

    _check_names(table)
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        columns = [frame[:, at] for at in range(frame.shape[1])]
        kinds = [_name_kind(column.dtype) for column in columns]
        return [
            _check_objects(column) if kind == "objects" else kind
            for kind, column in zip(kinds, columns, strict=True)
        ], columns
    array = (
        np.array(table, dtype=object) if isinstance(table, list | tuple) else np.asanyarray(table)
    )
    if array.ndim != 2:
        return [], []
    return ["objects" if array.dtype.kind in "OUS" else "numbers"] * array.shape[1], list(array.T)


def _check_names(table: Any) -> None:
    """Raise `BadEntries` for a frame in which two columns have the same name."""
    names = getattr(table, "column_names", None) or getattr(table, "columns", ())
    counts = Counter[Any](names)
    for name, count in counts.items():
        if count > 1:
            raise BadEntries(
                f"{count} columns are named {name!r}; give each column a name of its own"
            )


def _name_kind(dtype: Any) -> str:
    import narwhals as nw

    if dtype.is_temporal():
        return "dates"
    if dtype.is_numeric():
        return "numbers"
    if isinstance(dtype, nw.Enum):
        return "ordered"
    return "text" if isinstance(dtype, nw.String | nw.Categorical) else "objects"


def _check_objects(column: Any) -> str:
    """Return "dates" for a column of objects that are dates, times or periods, else "objects".

    A column of what is neither a number nor text raises `BadEntries`.
    """
    cells = [cell for cell in column.to_list() if not is_missing(cell, np.nan)]
    are_dates = [
        isinstance(cell, date | time | timedelta) or type(cell).__name__ == "Period"
        for cell in cells
    ]
    if cells and all(are_dates):
        return "dates"
    for cell in cells:
        if not isinstance(cell, Number | Decimal | np.bool_ | str):
            raise BadEntries(
                f"column {column.name!r} holds {type(cell).__name__}, such as {cell!r}; columns of "
                "numbers, text, categories and truth values are filled in: leave this one out"
            )
    return "objects"


def _mark_cells(column: Any, missing: Any) -> ObjectArray:
    """Return the cells of a column as objects, None where missing."""
    values = column.tolist() if isinstance(column, np.ndarray) else column.to_list()
    cells = np.empty(len(values), dtype=object)
    cells[:] = [None if is_missing(value, missing) else value for value in values]
    return cells


def _holds_text(cells: ObjectArray, is_text: bool, truths: bool) -> bool:
    observed = [cell for cell in cells if cell is not None]
    are_truths = truths and all(isinstance(cell, bool) for cell in observed)
    return bool(observed) and (
        is_text or are_truths or any(isinstance(cell, str) for cell in observed)
    )


def _read_numbers(column: Any, missing: Any) -> FloatArray:
    if isinstance(column, np.ndarray):
        column = np.array([np.nan if cell is None else cell for cell in column], dtype=object)[
            :, None
        ]
    else:
        column = column.to_frame().to_native()
    values = check_array(column, **CHECKS, ensure_min_samples=0)[:, 0].astype(np.float64)
    return mark_missing(values, missing)


def with_columns(table: Any, columns: Mapping[Any, Any], gaps: Mapping[Any, MaskArray]) -> Any:
    """Return a frame of the same kind that has these columns, in the types of the old columns.

    Values are arrays of numbers, lists, or None for the old column itself. Whole numbers are
    rounded. gaps: by column the cells (rows,) that take these values; all others stay as they are.
    """
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    backend = frame.implementation
    filled = dict[Any, Any]()
    for name, values in columns.items():
        if name not in table.columns:
            filled[name] = nw.new_series(str(name), values, backend=backend).to_native()
        elif values is None:
            filled[name] = table[name]
        else:
            filled[name] = _fill_column(table[name], values, gaps[name])
    if not backend.is_pandas_like():
        return nw.from_dict(filled, backend=backend).to_native()
    completed = type(table)(
        {name: series.set_axis(table.index) for name, series in filled.items()}, index=table.index
    )
    completed.columns.names = table.columns.names
    return completed


def _fill_column(column: Any, values: Any, gaps: MaskArray) -> Any:
    """Return a column of a frame with other values in its gaps, in its own type."""
    import narwhals as nw

    if not gaps.any():
        return column
    series = nw.from_native(column, series_only=True)
    backend = series.implementation
    kind = column.dtype if backend.is_pandas_like() else series.dtype
    if isinstance(values, list):
        kind = _widen_kind(kind, values)
    elif series.dtype.is_numeric() or series.dtype == nw.Boolean:
        values = _to_type(values, series.dtype)
    if not backend.is_pandas_like():
        answers = nw.new_series(series.name, values, backend=backend).cast(kind)
        is_observed = nw.new_series("", ~gaps, backend=backend)
        return series.cast(kind).zip_with(is_observed, answers).to_native()
    if kind == object:  # noqa: E721 (types of pandas are no classes)
        cells = column.to_numpy(dtype=object, copy=True)
        cells[gaps] = np.asarray(values, dtype=object)[gaps]
        return type(column)(cells, index=column.index, dtype=kind)
    return column.astype(kind).where(~gaps, type(column)(values, index=column.index, dtype=kind))


def _to_type(values: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
    """Return numbers as whole numbers that a type holds, or as truth values, where the type is one
    of these."""
    if kind.is_integer():
        limits = np.iinfo(str(kind).lower())
        values = np.clip(np.rint(values), limits.min, limits.max).astype(limits.dtype)
    return values if kind.is_numeric() else np.asarray(values > 0.5)


def _widen_kind(kind: Any, values: list[Any]) -> Any:
    """Return a type of categories that holds all values; those that it did not know come last."""
    categories = list(getattr(kind, "categories", values))
    new_categories = sorted(set(values) - set(categories))
    if not new_categories:
        return kind
    if hasattr(kind, "ordered"):
        return type(kind)([*categories, *new_categories], kind.ordered)
    return type(kind)([*categories, *new_categories])


@dataclass(frozen=True, eq=False)
class ColumnCodes:
    """How the columns of a table become columns of numbers, and completed numbers a table again.

    A category without an order has a column of its own, 1 where a row has it and 0 where not; what
    is predicted is the category whose number is largest. Categories in an order are numbered, and
    the nearest is predicted. Dates have no column of numbers.

    >>> table = MixedTable.of(np.array([["red", 1.5], ["blue", 2.5], [None, 3.5]], dtype=object), missing=np.nan)
    >>> codes = ColumnCodes.of(table, ["colour", "size"])
    >>> codes.labels.tolist(), codes.encode(table)[:2]
    (['colour=blue', 'colour=red', 'size'], array([[0. , 1. , 1.5],
           [1. , 0. , 2.5]]))
    """

    names: npt.NDArray[np.object_]
    categories: Mapping[int, tuple[Any, ...]]  # by the position of a column
    ordered: frozenset[int]
    dates: frozenset[int]

    @classmethod
    def of(cls, table: MixedTable, names: Any) -> ColumnCodes:
        """Learn the categories of a table."""
        categories = dict(table.orders)
        for at in table.texts.keys() - table.orders.keys():
            categories[at] = tuple(sorted(set(table.texts[at]) - {None}, key=str))
        for at, texts in categories.items():
            if len(texts) > MOST_LEVELS:
                raise BadEntries(
                    f"column {names[at]!r} holds {len(texts)} different texts; at most {MOST_LEVELS} are taken as "
                    "categories: leave the column out, or join rare ones"
                )
        ordered = frozenset(table.orders)
        return cls(np.asarray(names, dtype=object), categories, ordered, table.dates)

    @property
    def spread(self) -> dict[int, tuple[Any, ...]]:
        """The categories without an order, by the position of their column."""
        return {
            at: categories for at, categories in self.categories.items() if at not in self.ordered
        }

    @property
    def sources(self) -> IndexArray:
        """Of each column of numbers, the column that it comes from."""
        counts = np.ones(len(self.names), dtype=int)
        counts[list(self.dates)] = 0
        for at, categories in self.spread.items():
            counts[at] = len(categories)
        return np.repeat(np.arange(counts.size), counts)

    @property
    def are_shares(self) -> MaskArray:
        """Of each column of numbers, whether it says of a category how much there is of it."""
        return np.isin(self.sources, list(self.spread))

    @property
    def labels(self) -> npt.NDArray[np.object_]:
        """The names of the columns of numbers."""
        labels, shares = self.names[self.sources], self.are_shares
        labels[shares] = [
            f"{self.names[at]}={category}"
            for at, categories in sorted(self.spread.items())
            for category in categories
        ]
        return labels

    def encode(self, table: MixedTable) -> npt.NDArray[Any]:
        """Return a table as numbers; unknown categories become NaN."""
        parts = []
        for at in range(len(self.names)):
            if at in self.categories:
                places = {category: place for place, category in enumerate(self.categories[at])}
                codes = np.array(
                    [[places.get(cell, np.nan)] for cell in table.texts[at]], dtype=np.float64
                )
                is_known, shares = ~np.isnan(codes), codes == [*places.values()]
                parts.append(codes if at in self.ordered else np.where(is_known, shares, np.nan))
            elif at not in self.dates:
                parts.append(table.numbers[:, [at]])
        return np.hstack(parts) if parts else table.numbers[:, :0]

    def decode(self, numbers: npt.NDArray[Any], table: MixedTable) -> dict[int, Any]:
        """Return the columns of a completed table by position; observed cells as they were, and no
        dates.

        They are arrays of numbers, and lists of categories.
        """
        sources, columns = self.sources, dict[int, Any]()
        for at in np.unique(sources).tolist():
            columns[at] = shares = numbers[:, sources == at]
            if at not in self.categories:
                columns[at] = shares[:, 0]
                continue
            categories, numbered = self.categories[at], at in self.ordered
            places = (
                np.clip(np.rint(shares[:, 0]), 0, len(categories) - 1)
                if numbered
                else shares.argmax(axis=1)
            )
            cells = zip(table.texts[at], places.astype(int), strict=True)
            columns[at] = [categories[place] if cell is None else cell for cell, place in cells]
        return columns


def build_table(
    table: Any, columns: Mapping[int, Any], missing: MaskArray, indicators: Mapping[Any, MaskArray]
) -> Any:
    """Return these columns, by position, of a table with its missing cells filled in: a frame of
    the same types, or an array.

    Columns that are None stay as they are, and so do cells that are not `missing` (rows, columns).
    `indicators` are columns of truth values that come after them.
    """
    positions = sorted(columns)
    if hasattr(table, "columns"):
        names = list(table.columns)
        filled = {names[at]: columns[at] for at in positions}
        gaps = {names[at]: missing[:, at] for at in positions}
        return with_columns(table, filled | dict(indicators), gaps)
    parts = [*(columns[at] for at in positions), *indicators.values()]
    gaps_of_parts = missing[:, positions]
    n_filled = len(positions)
    if any(isinstance(part, list) for part in parts):
        cells = np.empty((len(table), len(parts)), dtype=object)
        cells[:, :n_filled] = np.array(table, dtype=object)[:, positions]
        for place, part in enumerate(parts):
            is_filled = np.ones(len(table), bool)
            if place < n_filled:
                is_filled = gaps_of_parts[:, place]
            cells[is_filled, place] = np.asarray(part, dtype=object)[is_filled]
        return cells
    array = np.column_stack(parts)
    if isinstance(table, np.ndarray) and table.dtype.kind in "iu":
        limits = np.iinfo(table.dtype)
        array = np.clip(np.rint(array), limits.min, limits.max).astype(table.dtype)
        array[:, :n_filled] = np.where(gaps_of_parts, array[:, :n_filled], table[:, positions])
        return array
    kind = columns[positions[0]].dtype if positions else np.float64
    return array.astype(kind)


def label_like(table: Any, cells: FloatArray, columns: IndexArray) -> Any:
    """Return cells (rows, columns) as a frame with the labels of these columns of a frame; as they
    are for other tables."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return cells
    if frame.implementation.is_pandas_like():
        return type(table)(cells, columns=table.columns[columns], index=table.index)
    names = [frame.columns[at] for at in columns]
    return nw.from_numpy(cells, names, backend=frame.implementation).to_native()


# A model sees a column's values up to this many standard deviations from its mean; what lies beyond
# is clipped; completers of whole rows are robust to outliers, so their columns are clipped further
# out.
REACH = 4.0
WIDE_REACH = 10.0


@dataclass(frozen=True, eq=False)
class ColumnUnits:
    """What a table's values are to a model: (value - centre) / spread, on one scale for all
    columns.

    >>> entries = TableEntries.of(np.array([[1.0, 100.0], [3.0, np.nan], [2.0, 300.0]]))
    >>> ColumnUnits.from_columns(entries).standardise(entries).values
    array([-1.22474487, -1.        ,  1.22474487,  0.        ,  1.        ])
    """

    means: FloatArray  # (columns,) of the entries
    centres: FloatArray  # (columns,)
    spreads: FloatArray  # (columns,) 1 where a column has only one value
    scale: Scale  # what the model's values lie on
    column_scales: tuple[Scale, ...]  # what each column's own values lie on
    are_whole: MaskArray  # (columns,) whether all values of a column are whole numbers

    @classmethod
    def from_columns(cls, entries: TableEntries, *, reach: float = REACH) -> ColumnUnits:
        """Standardise each column by its mean and standard deviation."""
        means = compute_means(entries)
        squares = entries._replace(values=np.square(entries.values - means[entries.columns]))
        scales = tuple(
            _find_scale(entries.values[places])
            for places in split_by_column(entries.columns, means.size)
        )
        constant = [scale.low == scale.high for scale in scales]
        spreads = np.where(constant, 1.0, np.sqrt(compute_means(squares)))
        fractions = entries.columns[entries.values != np.rint(entries.values)]
        are_whole = np.bincount(fractions, minlength=means.size) == 0
        return cls(means, means, spreads, Scale(low=-reach, high=reach), scales, are_whole)

    @classmethod
    def from_shared_scale(cls, entries: TableEntries, scale: Scale | None) -> ColumnUnits:
        """Keep all values as they are, on one scale for all columns; None infers the scale."""
        means = compute_means(entries)
        scale = scale or Scale.infer(entries.values)
        zeros, ones = np.zeros(means.size), np.ones(means.size)
        return cls(means, zeros, ones, scale, (scale,) * means.size, zeros > 0)

    def standardise(self, entries: TableEntries) -> TableEntries:
        """Return entries in the units of the model, clipped to its scale."""
        return entries._replace(
            values=self.scale.nearest_level(self.convert(entries.values, entries.columns))
        )

    def convert_values(self, units: npt.NDArray[np.floating], columns: IndexArray) -> FloatArray:
        """Return predictions in the units of their columns, clipped to the range of the column."""
        ends = [
            (scale.low, scale.high) if scale.is_bounded else (-np.inf, np.inf)
            for scale in self.column_scales
        ]
        lows, highs = np.array(ends).T
        return np.clip(self.undo(units, columns), lows[columns], highs[columns])

    def convert(self, values: FloatArray, columns: IndexArray | slice = slice(None)) -> FloatArray:
        """Return values (..., columns) in the units of the model, wherever they lie."""
        return np.asarray((values - self.centres[columns]) / self.spreads[columns])

    def undo(
        self, units: npt.NDArray[np.floating], columns: IndexArray | slice = slice(None)
    ) -> FloatArray:
        """Return values (..., columns) in the units of their columns, wherever they lie."""
        return np.asarray(self.centres[columns] + self.spreads[columns] * units)

    def clip(self, units: npt.NDArray[np.floating], columns: IndexArray) -> FloatArray:
        """Return predictions in the units of the model, clipped to the range of their column."""
        return self.convert(self.convert_values(units, columns), columns)

    def round_to_levels(self, values: FloatArray, columns: IndexArray) -> FloatArray:
        """Return the nearest level of each value in columns that have levels, the nearest whole
        number in other columns of whole numbers, and the value itself elsewhere."""
        nearest = np.where(self.are_whole[columns], np.rint(values), values)
        places_of_columns = split_by_column(columns, len(self.column_scales))
        for scale, places in zip(self.column_scales, places_of_columns, strict=True):
            if scale.levels is not None:
                nearest[places] = scale.nearest_level(values[places])
        return nearest


def compute_means(entries: TableEntries) -> FloatArray:
    """Return the mean of each column, by the weights of the rows."""
    weights = entries.row_weights[entries.rows]
    columns = split_by_column(entries.columns, entries.shape[1])
    return np.array(
        [np.average(entries.values[places], weights=weights[places]) for places in columns]
    )


def split_by_column(columns: IndexArray, n_columns: int) -> list[IndexArray]:
    """Return the places of the entries of each column."""
    ends = np.cumsum(np.bincount(columns, minlength=n_columns))
    return np.split(np.argsort(columns, kind="stable"), ends[:-1])


def _find_scale(values: FloatArray) -> Scale:
    """Return the levels of a column whose values repeat (few, and each seen twice on average),
    otherwise its range."""
    levels = np.unique(values)
    if levels.size == 1 or levels.size <= min(MOST_LEVELS, values.size // 2):
        return Scale(levels)
    return Scale(low=float(levels[0]), high=float(levels[-1]))
