"""A table as the imputer reads it: entries, text columns as numbers, feature columns, and units of columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.utils import check_array

from deepmf.errors import BadEntries, BadSetting, suggest_name
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.extras import Extras
from deepmf.matrix.features import Features
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import MOST_LEVELS, Scale

MaskArray = npt.NDArray[np.bool_]  # (rows, columns), or (entries,)


# How scikit-learn checks a table: what is missing may be NaN; whole numbers become float64.
CHECKS: dict[str, Any] = {
    "accept_sparse": ["csr", "csc", "coo"],
    "dtype": [np.float64, np.float32],
    "ensure_all_finite": "allow-nan",
}


class TableEntries(NamedTuple):
    """The observed entries of a checked table, by position.

    row_weights: how much each row of the table counts, (rows of the table,); None where all count the same.
    """

    shape: tuple[int, int]
    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    row_weights: FloatArray | None = None

    @property
    def weights(self) -> FloatArray | None:
        """The weight of each entry; None where all are 1."""
        return None if self.row_weights is None else self.row_weights[self.rows]

    @classmethod
    def of(cls, table: Any) -> TableEntries:
        """Take the entries out of an array or a sparse matrix; a stored zero is an entry, NaN never is.

        >>> TableEntries.of(scipy.sparse.coo_array(([0.0, 7.0], ([0, 1], [1, 0])), shape=(2, 2))).values
        array([0., 7.])
        """
        if scipy.sparse.issparse(table):
            stored = table.tocoo()
            known = ~np.isnan(stored.data)
            rows, columns, values = (part[known] for part in (stored.row, stored.col, stored.data))
        else:
            rows, columns = np.nonzero(~np.isnan(table))
            values = table[rows, columns]
        return cls(table.shape, rows, columns, values.astype(np.float64))

    def where(self, kept: MaskArray | IndexArray) -> TableEntries:
        """Return some of the entries, by a mask over them or by their places."""
        return self._replace(rows=self.rows[kept], columns=self.columns[kept], values=self.values[kept])

    def take_columns(self, positions: IndexArray) -> TableEntries:
        """Return the entries of some columns, which are then counted from 0."""
        place = np.full(self.shape[1], -1)
        place[positions] = np.arange(positions.size)
        kept = place[self.columns] >= 0
        columns = place[self.columns[kept]]
        return self.where(kept)._replace(shape=(self.shape[0], positions.size), columns=columns)

    def to_array(self) -> FloatArray:
        """Return the entries as an array (rows, columns) with NaN where there is none."""
        array = np.full(self.shape, np.nan)
        array[self.rows, self.columns] = self.values
        return array

    def matrix(self, scale: Scale, *, column_labels: Any = None) -> ObservedMatrix:
        """Return the entries as a matrix whose rows are numbered from 0."""
        rows = Labels.from_range(self.shape[0], axis="row")
        columns = Labels(np.arange(self.shape[1]) if column_labels is None else column_labels, axis="column")
        return ObservedMatrix.from_positions(
            Labelled(rows, self.rows),
            Labelled(columns, self.columns),
            self.values,
            scale=scale,
            extras=Extras(weights=self.weights),
        )


def mark_missing(table: Any, missing: Any) -> Any:
    """Replace the number that marks missing values by NaN in a checked table.

    >>> mark_missing(np.array([[1.0, -1.0]]), -1)
    array([[ 1., nan]])
    """
    if not isinstance(missing, int | float) or np.isnan(missing):
        return table
    if scipy.sparse.issparse(table):
        table = table.copy()
        table.data[table.data == missing] = np.nan
        return table
    return np.where(table == missing, np.nan, table).astype(table.dtype)


def dense_copy(table: Any) -> npt.NDArray[Any]:
    """Return a checked table as a new array with NaN where nothing is observed."""
    if not scipy.sparse.issparse(table):
        return np.array(table)
    array = np.full(table.shape, np.nan, dtype=table.dtype)
    entries = TableEntries.of(table)
    array[entries.rows, entries.columns] = entries.values
    return array


def measure_columns(table: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the standard deviation of each column's entries; 0 for a column without any."""
    observed = ~np.isnan(table)
    counts = np.maximum(observed.sum(axis=0), 1)
    filled = np.where(observed, table, 0.0).astype(np.float64)
    means = filled.sum(axis=0) / counts
    deviations = np.where(observed, filled - means, 0.0)
    return means, np.sqrt(np.square(deviations).sum(axis=0) / counts)


def hide_entries(table: Any, checked: Any, mask: MaskArray, *, rows: IndexArray | None = None) -> Any:
    """Return a table of the same kind with only the entries of a mask, and optionally only some rows.

    `table` is as the user gave it, `checked` the array or sparse matrix that scikit-learn made of it.
    """
    if scipy.sparse.issparse(checked):
        _, row_of, column_of, values, _ = TableEntries.of(checked)
        shown = mask[row_of, column_of]
        sparse = scipy.sparse.csr_array((values[shown], (row_of[shown], column_of[shown])), shape=checked.shape)
        return sparse if rows is None else sparse[rows]
    array = np.where(mask, checked, np.nan)
    return to_frame_like(table, array if rows is None else array[rows])


def to_frame_like(table: Any, array: Any) -> Any:
    """Return an array as a frame of the kind and with the columns of `table`, if that is a frame."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or not isinstance(array, np.ndarray):
        return array
    if frame.implementation.is_pandas_like():
        return type(table)(array, columns=table.columns)  # names that are no strings stay what they are
    return nw.from_numpy(array, frame.columns, backend=frame.implementation).to_native()


_NOTHING = ("NAType", "NaTType")  # what is missing in pandas, which need not be here


ObjectArray = npt.NDArray[np.object_]

Orders = dict[int, tuple[Any, ...]]  # categories in their order, by the position of the column


@dataclass(frozen=True, eq=False)
class MixedTable:
    """The numbers of a table, and its columns of text or categories by position.

    >>> table = MixedTable.of(np.array([["red", 1.5], [None, "?"]], dtype=object), missing="?")
    >>> table.numbers, table.texts[0]
    (array([[nan, 1.5],
           [nan, nan]]), array(['red', None], dtype=object))
    """

    numbers: FloatArray  # (rows, columns) NaN where missing, and in all of the other columns
    texts: dict[int, ObjectArray]  # (rows,) each, None where missing
    orders: Orders  # of the columns whose categories have one

    @classmethod
    def of(
        cls, table: Any, *, missing: Any, texts: Iterable[int] | None = None, truths: bool = True
    ) -> MixedTable | None:
        """Take a table apart; None where all of its columns are numbers.

        `texts` says which columns are not numbers; left out, those of which any cell is text or a category, and, unless
        `truths` is False, those of truth values.
        """
        if scipy.sparse.issparse(table):
            return None
        take_apart = _of_frame if hasattr(table, "columns") else _of_array
        return take_apart(table, missing, texts, truths)

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """The missing cells, (rows, columns)."""
        mask = np.isnan(self.numbers)
        for column, cells in self.texts.items():
            mask[:, column] = [cell is None for cell in cells]
        return mask


def with_columns(table: Any, columns: dict[Any, Any]) -> Any:
    """Return a frame of the same kind that has these columns, in the types of the old columns.

    Values are arrays of numbers, lists, or None for the old column itself. Whole numbers are rounded.
    """
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    backend, made = frame.implementation, dict[Any, Any]()
    for name, values in columns.items():
        if name not in table.columns:
            made[name] = nw.new_series(str(name), values, backend=backend).to_native()
            continue
        old = nw.from_native(table[name], series_only=True)
        native = table[name].dtype if backend.is_pandas_like() else old.dtype
        kind = None
        if isinstance(values, list):
            kind = _holding(native, values)
        elif values is not None and (old.dtype.is_float() or old.dtype.is_integer() or old.dtype == nw.Boolean):
            values, kind = _to_type(values, old.dtype), native
        if values is None:
            made[name] = table[name]
        elif backend.is_pandas_like():
            made[name] = type(table[name])(values, dtype=kind)
        else:
            made[name] = nw.new_series(name, values, kind, backend=backend).to_native()
    if not backend.is_pandas_like():
        return nw.from_dict(made, backend=backend).to_native()
    return type(table)({name: series.set_axis(table.index) for name, series in made.items()})


def _to_type(values: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
    """Return numbers as whole numbers that a type holds, or as truth values, where the type is one of these."""
    if kind.is_integer():
        limits = np.iinfo(str(kind).lower())
        values = np.clip(np.rint(values), limits.min, limits.max).astype(limits.dtype)
    return values if kind.is_numeric() else np.asarray(values > 0.5)


def _holding(kind: Any, values: list[Any]) -> Any:
    """Return a type of categories that holds all values; those that it did not know come last."""
    known = getattr(kind, "categories", None)
    more = [] if known is None else sorted(set(values) - set(known))
    if known is None or not more:
        return kind
    return type(kind)([*known, *more], kind.ordered) if hasattr(kind, "ordered") else type(kind)([*known, *more])


def _of_frame(table: Any, missing: Any, texts: Iterable[int] | None, truths: bool) -> MixedTable | None:
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    columns = [frame[:, at] for at in range(len(frame.columns))]
    cells = {
        at: _cells(column.to_list(), missing)
        for at, column in enumerate(columns)
        if isinstance(column.dtype, nw.String | nw.Categorical | nw.Enum | nw.Object | nw.Boolean)
    }
    if texts is None:
        of_any = (nw.Object, nw.Boolean)
        named = [at for at in cells if not isinstance(columns[at].dtype, of_any) or _is_category(cells[at], truths)]
        texts = [at for at in named if any(cell is not None for cell in cells[at])]
    orders = {at: tuple(kind.categories) for at in texts if isinstance(kind := columns[at].dtype, nw.Enum)}
    if not texts and not isinstance(missing, str):
        return None  # numbers that are objects: scikit-learn's own checks know them
    numbers = np.full(frame.shape, np.nan)
    for at, column in enumerate(columns):
        if at not in texts:
            numbers[:, at] = _numbers(cells[at] if at in cells else column.to_frame().to_native(), missing)
    return MixedTable(numbers, {at: cells.get(at, _cells(columns[at].to_list(), missing)) for at in texts}, orders)


def _of_array(table: Any, missing: Any, texts: Iterable[int] | None, truths: bool) -> MixedTable | None:
    array = np.array(table, dtype=object) if isinstance(table, list | tuple) else np.asanyarray(table)
    if array.ndim != 2 or (texts is None and array.dtype.kind not in "OUS"):
        return None
    columns = [_cells(array[:, at].tolist(), missing) for at in range(array.shape[1])]
    if texts is None:
        texts = [at for at, cells in enumerate(columns) if _is_category(cells, truths)]
        if not texts and not isinstance(missing, str):
            return None
    numbers = np.full(array.shape, np.nan)
    for at, cells in enumerate(columns):
        if at not in texts:
            numbers[:, at] = _numbers(cells, missing)
    return MixedTable(numbers, {at: columns[at] for at in texts}, {})


def _numbers(column: Any, missing: Any) -> FloatArray:
    if isinstance(column, np.ndarray):
        column = np.array([np.nan if cell is None else cell for cell in column], dtype=object)[:, None]
    values: FloatArray = check_array(column, **CHECKS, ensure_min_samples=0)[:, 0].astype(np.float64)
    if isinstance(missing, int | float):
        values[values == missing] = np.nan
    return values


def _cells(values: list[Any], missing: Any) -> ObjectArray:
    """Return the cells of a column as objects, None where missing."""
    cells = np.empty(len(values), dtype=object)
    cells[:] = [None if is_missing(value, missing) else value for value in values]
    return cells


def is_missing(value: Any, mark: Any) -> bool:
    """Return whether a cell is missing: None, NaN, or the mark of missing values."""
    if value is None or type(value).__name__ in _NOTHING:
        return True
    if isinstance(value, float | np.floating) and np.isnan(value):
        return True
    return type(mark).__name__ not in _NOTHING and bool(value == mark)


def _is_category(cells: ObjectArray, truths: bool) -> bool:
    """Return whether a column holds text or, where these count, truth values alone."""
    known = [cell for cell in cells if cell is not None]
    are_truths = truths and bool(known) and all(isinstance(cell, bool) for cell in known)
    return are_truths or any(isinstance(cell, str) for cell in known)


@dataclass(frozen=True, eq=False)
class ColumnCodes:
    """How the columns of a table become columns of numbers.

    A category without an order has a column of its own, 1 where a row has it and 0 where not; what is predicted is the
    category whose number is largest. Categories in an order are numbered, and the nearest is predicted.

    >>> table = MixedTable.of(np.array([["red", 1.5], ["blue", 2.5], [None, 3.5]], dtype=object), missing=np.nan)
    >>> codes = ColumnCodes.of(table, ["colour", "size"])
    >>> codes.names(["colour", "size"]), codes.encode(table)[:2]
    (['colour=blue', 'colour=red', 'size'], array([[0. , 1. , 1.5],
           [1. , 0. , 2.5]]))
    """

    n_columns: int
    categories: dict[int, tuple[Any, ...]]  # by the position of a column
    ordered: frozenset[int]

    @classmethod
    def of(cls, table: MixedTable, names: Any) -> ColumnCodes:
        """Learn the categories of a table."""
        found = {}
        for at, cells in table.texts.items():
            seen = {cell for cell in cells if cell is not None}
            found[at] = table.orders[at] if at in table.orders else tuple(sorted(seen, key=lambda each: str(each)))
            if len(found[at]) > MOST_LEVELS:
                raise BadEntries(
                    f"column {names[at]!r} holds {len(found[at])} different texts; at most {MOST_LEVELS} are taken as "
                    "categories: leave the column out, or join rare ones"
                )
        return cls(table.numbers.shape[1], found, frozenset(table.orders))

    @property
    def sources(self) -> IndexArray:
        """Of each column of numbers, the column that it comes from."""
        widths = [len(self.categories[at]) if self._is_spread(at) else 1 for at in range(self.n_columns)]
        return np.repeat(np.arange(self.n_columns), widths)

    @property
    def are_shares(self) -> npt.NDArray[np.bool_]:
        """Of each column of numbers, whether it says of a category how much there is of it."""
        return np.array([self._is_spread(int(at)) for at in self.sources], dtype=bool)

    def names(self, names: Any) -> list[Any]:
        """Return the names of the columns of numbers."""
        return [
            name
            for at in range(self.n_columns)
            for name in (
                [f"{names[at]}={category}" for category in self.categories[at]] if self._is_spread(at) else [names[at]]
            )
        ]

    def encode(self, table: MixedTable) -> FloatArray:
        """Return a table as numbers; unknown categories become NaN."""
        parts = []
        for at in range(self.n_columns):
            if at not in self.categories:
                parts.append(table.numbers[:, [at]])
                continue
            places = {category: place for place, category in enumerate(self.categories[at])}
            codes = np.array([places.get(cell, np.nan) for cell in table.texts[at]], dtype=np.float64)
            if self._is_spread(at):
                spread = (codes[:, None] == np.arange(len(places))).astype(np.float64)
                spread[np.isnan(codes)] = np.nan
                parts.append(spread)
            else:
                parts.append(codes[:, None])
        return np.hstack(parts)

    def decode(self, numbers: FloatArray, table: MixedTable, random: np.random.Generator | None) -> list[Any]:
        """Return the columns of a completed table: arrays of numbers, lists of categories; observed cells as they were.

        With `random`, categories are drawn by their numbers as probabilities.
        """
        sources, columns = self.sources, list[Any]()
        for at in range(self.n_columns):
            own = numbers[:, sources == at]
            if at not in self.categories:
                columns.append(own[:, 0])
            else:
                columns.append(self._fill(at, own, table.texts[at], random))
        return columns

    def _fill(self, at: int, own: FloatArray, cells: ObjectArray, random: np.random.Generator | None) -> list[Any]:
        known = self.categories[at]
        if not self._is_spread(at):
            places = np.clip(np.rint(own[:, 0]), 0, len(known) - 1)
        elif random is None:
            places = own.argmax(axis=1)
        else:
            chances = np.clip(own, 1e-9, None)
            cumulative = np.cumsum(chances, axis=1) / chances.sum(axis=1, keepdims=True)
            places = (cumulative[:, :-1] < random.random((len(own), 1))).sum(axis=1)
        return [known[int(place)] if cell is None else cell for cell, place in zip(cells, places, strict=True)]

    def _is_spread(self, at: int) -> bool:
        return at in self.categories and at not in self.ordered


@dataclass(frozen=True, eq=False)
class FeatureColumns:
    """Where the features of rows stand in a table, and where the columns that are completed do.

    names: of all columns. features, rest: positions of both, in increasing order. dates: positions of the columns that
    are neither read nor completed.
    """

    names: npt.NDArray[np.object_]
    features: IndexArray
    rest: IndexArray
    dates: IndexArray

    @classmethod
    def of(cls, names: npt.NDArray[np.object_], given: Any, dates: Sequence[int] = ()) -> FeatureColumns:
        """Find columns by name or position; raise `BadSetting` for an unknown or repeated column."""
        if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray):
            raise BadSetting(f"feature_columns must be a list of names or positions of columns; got {given!r}")
        positions = [_position(names.tolist(), one) for one in given]
        twice = [one for at, one in enumerate(given) if positions[at] in positions[:at]]
        if twice:
            raise BadSetting(f"feature_columns has the column {twice[0]!r} twice")
        if len(positions) == names.size:
            raise BadSetting(f"feature_columns has all {names.size} feature(s) of the table; none is left to complete")
        features = np.array(sorted(positions), dtype=np.int64)
        left = np.setdiff1d(np.array(dates, dtype=np.int64), features)
        rest = np.setdiff1d(np.arange(names.size), [*features, *left])
        if rest.size == 0:
            raise BadEntries(f"all columns that could be completed hold dates ({names[left[0]]!r})")
        return cls(names, features, rest, left)

    @property
    def others(self) -> IndexArray:
        """The positions of all columns that are not completed, in increasing order."""
        return np.union1d(self.features, self.dates)

    def drop_features(self, table: Any) -> Any:
        """Return a table of the same kind without the feature columns."""
        if hasattr(table, "columns"):
            import narwhals as nw

            return nw.from_native(table, eager_only=True)[:, self.rest.tolist()].to_native()
        return _sliceable(table)[:, self.rest]

    def read_features(self, table: Any, *, missing: Any) -> Features:
        """Return the features of the rows of a table, which are numbered from 0."""
        columns = {
            str(self.names[at]): [None if is_missing(cell, missing) else cell for cell in cells]
            for at, cells in self.cells(table).items()
            if at in self.features
        }
        return Features.from_columns(np.arange(len(next(iter(columns.values())))), columns)

    def cells(self, table: Any) -> dict[int, list[Any]]:
        """Return the cells of each column of a table that is not completed, by its position."""
        if hasattr(table, "columns"):
            import narwhals as nw

            frame = nw.from_native(table, eager_only=True)
            return {at: frame[:, at].to_list() for at in self.others.tolist()}
        array = _sliceable(table)[:, self.others]
        columns = dense_copy(array).T.tolist() if scipy.sparse.issparse(array) else array.T.tolist()
        return dict(zip(self.others.tolist(), columns, strict=True))


def list_dates(table: Any) -> list[int]:
    """Return the positions of the columns of a frame that hold dates or times."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return []
    return [at for at, kind in enumerate(frame.schema.values()) if kind.is_temporal()]


def are_numbers(cells: list[Any]) -> bool:
    """Return whether all cells of a column are numbers or missing."""
    return all(
        (isinstance(cell, int | float | np.number) and not isinstance(cell, bool)) or is_missing(cell, np.nan)
        for cell in cells
    )


def as_numbers(cells: list[Any]) -> list[float]:
    """Return the cells of a column of numbers, with NaN for missing ones."""
    return [np.nan if is_missing(cell, np.nan) else cell for cell in cells]


def _position(names: list[Any], given: Any) -> int:
    if given in names:
        return names.index(given)
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        if 0 <= given < len(names):
            return int(given)
        raise BadSetting(f"feature_columns has the position {given}; the table has {len(names)} columns, from 0 on")
    hint = suggest_name(str(given), [str(name) for name in names])
    raise BadSetting(f"feature_columns has {given!r}, which is no column of the table; {hint}")


def _sliceable(table: Any) -> Any:
    if scipy.sparse.issparse(table):
        return table.tocsr()
    return np.array(table, dtype=object) if isinstance(table, list | tuple) else np.asanyarray(table)


# A model sees a column's values up to this many standard deviations from its mean; what lies beyond is clipped.
REACH = 4.0


@dataclass(frozen=True, eq=False)
class ColumnUnits:
    """What a table's values are to a model: (value - centre) / spread, on one scale for all columns.

    >>> entries = TableEntries.of(np.array([[1.0, 100.0], [3.0, np.nan], [2.0, 300.0]]))
    >>> ColumnUnits.from_columns(entries).standardise(entries).values
    array([-1.22474487, -1.        ,  1.22474487,  0.        ,  1.        ])
    """

    means: FloatArray  # (columns,) of the entries
    centres: FloatArray  # (columns,)
    spreads: FloatArray  # (columns,) 1 where a column has only one value
    scale: Scale  # what the model's values lie on
    column_scales: tuple[Scale, ...]  # what each column's own values lie on

    @classmethod
    def from_columns(cls, entries: TableEntries, *, reach: float = REACH) -> ColumnUnits:
        """Standardise each column by its mean and standard deviation."""
        columns = _by_column(entries.columns, entries.values, entries.shape[1])
        means = compute_means(entries)
        scales = tuple(map(_scale_of, columns))
        constant = np.array([scale.low == scale.high for scale in scales])
        spreads = np.where(constant, 1.0, [values.std() for values in columns])
        if entries.weights is not None:
            squares = entries._replace(values=np.square(entries.values - means[entries.columns]))
            spreads = np.where(constant, 1.0, np.sqrt(compute_means(squares)))
        return cls(means, means, spreads, Scale(low=-reach, high=reach), scales)

    @classmethod
    def from_shared_scale(cls, entries: TableEntries, scale: Scale | None) -> ColumnUnits:
        """Keep all values as they are, on one scale for all columns; None infers the scale."""
        means = compute_means(entries)
        scale = scale or Scale.infer(entries.values)
        return cls(means, np.zeros(means.size), np.ones(means.size), scale, (scale,) * means.size)

    def standardise(self, entries: TableEntries) -> TableEntries:
        """Return entries in the units of the model, clipped to its scale."""
        units = (entries.values - self.centres[entries.columns]) / self.spreads[entries.columns]
        return entries._replace(values=self.scale.nearest_level(units))

    def values(self, units: npt.NDArray[np.floating], columns: IndexArray) -> FloatArray:
        """Return predictions in the units of their columns, clipped to the range of the column."""
        ends = [(scale.low, scale.high) if scale.is_bounded else (-np.inf, np.inf) for scale in self.column_scales]
        lows, highs = np.array(ends).T
        values: FloatArray = self.centres[columns] + self.spreads[columns] * units
        return np.clip(values, lows[columns], highs[columns])

    def clip(self, units: npt.NDArray[np.floating], columns: IndexArray) -> FloatArray:
        """Return predictions in the units of the model, clipped to the range of their column."""
        return (self.values(units, columns) - self.centres[columns]) / self.spreads[columns]

    def levels(self, values: FloatArray, columns: IndexArray) -> FloatArray:
        """Return the nearest level of each value in columns that have levels, the value itself in others."""
        nearest = np.empty_like(values)
        for scale, places in zip(self.column_scales, _places(columns, len(self.column_scales)), strict=True):
            nearest[places] = scale.nearest_level(values[places])
        return nearest


def compute_means(entries: TableEntries) -> FloatArray:
    """Return the mean of each column, by the weights of the rows."""
    columns = _by_column(entries.columns, entries.values, entries.shape[1])
    if entries.weights is None:
        return np.array([values.mean() for values in columns])
    weights = _by_column(entries.columns, entries.weights, entries.shape[1])
    return np.array([np.average(own, weights=heavy) for own, heavy in zip(columns, weights, strict=True)])


def _by_column(columns: IndexArray, values: FloatArray, n_columns: int) -> list[FloatArray]:
    return [values[places] for places in _places(columns, n_columns)]


def _places(columns: IndexArray, n_columns: int) -> list[IndexArray]:
    ends = np.cumsum(np.bincount(columns, minlength=n_columns))
    return np.split(np.argsort(columns, kind="stable"), ends[:-1])


def _scale_of(values: FloatArray) -> Scale:
    """Return the levels of a column whose values repeat (few, and each seen twice on average), otherwise its range."""
    levels = np.unique(values)
    if levels.size == 1 or levels.size <= min(MOST_LEVELS, values.size // 2):
        return Scale(levels)
    return Scale(low=float(levels[0]), high=float(levels[-1]))


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """The numbers of a table; where it has columns of text or categories, also these, and how they are encoded.

    features: where it has feature columns, which are no part of the above: the places of these and of all others.
    """

    numbers: Any  # (rows, columns of numbers): an array with NaN, or a sparse matrix
    mixed: MixedTable | None = None
    codes: ColumnCodes | None = None
    features: FeatureColumns | None = None

    @property
    def sources(self) -> IndexArray:
        """Of each column of numbers, the column of the table that it comes from."""
        return np.arange(self.numbers.shape[1]) if self.codes is None else self.codes.sources

    def missing(self) -> MaskArray:
        """Return the missing cells, (rows, columns of the table)."""
        return np.isnan(dense_copy(self.numbers)) if self.mixed is None else self.mixed.missing

    def complete(
        self,
        given: Any,
        numbers: npt.NDArray[Any],
        *,
        names: npt.NDArray[np.object_],
        kept: IndexArray,
        indicators: IndexArray | None,
        random: np.random.Generator | None,
    ) -> Any:
        """Return the kept columns of a completed table as it was given: an array, or a frame of the same types.

        Columns that are not completed are as in `given`, in their places.

        indicators: the columns of which one more says where nothing was observed; None where none are wanted.
        """
        missing = self.missing()
        shown = {f"missingindicator_{names[at]}": missing[:, at] for at in ([] if indicators is None else indicators)}
        filled = np.nan_to_num(numbers, nan=0.0)
        columns: Sequence[Any] = list(filled.T)
        if self.codes is not None and self.mixed is not None:
            columns = self.codes.decode(filled, self.mixed, random)
        parts = dict(zip(self._places(kept), (columns[at] for at in kept), strict=True))
        if hasattr(given, "columns"):
            named, others = list(given.columns), [] if self.features is None else self.features.others.tolist()
            return with_columns(given, {named[at]: parts.get(at) for at in sorted([*parts, *others])} | shown)
        described = {} if self.features is None else self.features.cells(given)
        if self.codes is None and all(map(are_numbers, described.values())):
            whole: npt.NDArray[Any] = self._beside(filled[:, kept], described, kept)
            return np.hstack([whole, *(mask[:, None].astype(whole.dtype) for mask in shown.values())])
        parts |= described
        array = np.empty((len(numbers), len(parts) + len(shown)), dtype=object)
        for place, column in enumerate([*(parts[at] for at in sorted(parts)), *shown.values()]):
            array[:, place] = column
        return array

    def ends(self, given: Any, numbers: FloatArray, kept: IndexArray) -> FloatArray:
        """Return an end of intervals for the kept columns of the table; NaN in those of text and categories."""
        described = {
            at: cells if are_numbers(cells) else [np.nan] * len(cells)
            for at, cells in ({} if self.features is None else self.features.cells(given)).items()
        }
        if self.codes is None:
            return self._beside(numbers[:, kept], described, kept)
        found = np.full((len(numbers), self.codes.n_columns), np.nan)
        for at in set(range(self.codes.n_columns)) - self.codes.categories.keys():
            found[:, at] = numbers[:, int(np.flatnonzero(self.sources == at)[0])]
        return self._beside(found[:, kept], described, kept)

    def _beside(self, whole: npt.NDArray[Any], described: dict[int, list[float]], kept: IndexArray) -> npt.NDArray[Any]:
        """Return the kept columns of the table and feature columns that are numbers, each in its place."""
        if not described:
            return whole
        parts = dict(zip(self._places(kept), whole.T, strict=True))
        parts |= {at: np.array(as_numbers(cells), dtype=whole.dtype) for at, cells in described.items()}
        return np.column_stack([parts[at] for at in sorted(parts)])

    def _places(self, kept: IndexArray) -> list[int]:
        places: list[int] = (kept if self.features is None else self.features.rest[kept]).tolist()
        return places
