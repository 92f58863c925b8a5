"""The observed matrix: labelled rows and columns, and the entries that are known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.errors import BadEntries, BadSetting, check_choice, show_value
from deepmf.matrix.arrays import (
    Array,
    BoolArray,
    FloatArray,
    IndexArray,
    IndexPair,
    ValueArray,
    to_numbers,
)
from deepmf.matrix.extras import PLAIN_EXTRAS, Extras, TimeArray, check_weights, parse_times
from deepmf.matrix.labels import Labelled, Labels, build_label_array
from deepmf.matrix.limits import Limits
from deepmf.matrix.scale import Scale, check_scale
from deepmf.matrix.sorting import (
    ByColumn,
    ByRow,
    Duplicates,
    SortedEntries,
    check_finite,
    check_on_scale,
    choose_index,
    choose_merging,
    compact,
    number_within,
    sort_entries,
    turn_to_columns,
)
from deepmf.matrix.table_form import COUNT, DETECT, PLAIN, TableForm

if TYPE_CHECKING:
    from deepmf.matrix.description import Description
    from deepmf.matrix.table_form import ValueColumn

AREAS = ("I", "II", "III", "IV")

Missing = Literal["error", "drop"]  # what to do with lines without a value


def compute_area_codes(row_is_new: BoolArray, column_is_new: BoolArray) -> npt.NDArray[np.int8]:
    """Return the position in `AREAS` of each pair: II for new rows, III for new columns, IV for
    both."""
    return row_is_new.astype(np.int8) + 2 * column_is_new.astype(np.int8)


class Entries(NamedTuple):
    """The observed entries as three arrays of the same length, in row order."""

    rows: Array
    columns: Array
    values: FloatArray


class ObservedMatrix:
    """An immutable matrix with missing entries.

    Whether an entry is observed does not depend on its value: a stored zero is an entry. Entries
    are held by row and by column, in 16 bytes per entry (20 where the values need double precision)
    and 4 bytes per row and column, beside the labels. Dates of entries take 8 bytes more, and
    weights 4 or 8. A matrix that was read from a store is memory-mapped.

    >>> ratings = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> ratings
    ObservedMatrix(2 rows x 2 columns, 3 entries (75 %), scale 1 to 5 in steps of 2)
    >>> ratings.entries().values
    array([5., 3., 1.])
    >>> ratings.to_array()
    array([[ 5.,  3.],
           [nan,  1.]])
    """

    rows: Labels
    columns: Labels
    scale: Scale
    by_row: ByRow
    by_column: ByColumn
    values: ValueArray  # (entries,) in row order; float32 where that is exact
    form: TableForm  # column names and layout for writing
    extras: Extras  # optional times and weights of the entries, in row order

    def __init__(self, *_: Any, **__: Any) -> None:
        raise BadSetting(
            "create an ObservedMatrix by from_entries, from_interactions, from_sequences, from_array, from_sparse, "
            "from_frame, from_table or read_matrix"
        )

    @classmethod
    def from_entries(
        cls,
        rows: Iterable[Any],
        columns: Iterable[Any],
        values: Iterable[float],
        scale: Scale | None = None,
        *,
        duplicates: Duplicates = "error",
        row_labels: Iterable[Any] | None = None,
        column_labels: Iterable[Any] | None = None,
        times: Iterable[Any] | None = None,
        weights: Iterable[float] | None = None,
    ) -> ObservedMatrix:
        """Build a matrix from three parallel sequences.

        Parameters
        ----------
        rows, columns, values : row label, column label and value of each entry.
        scale : legal levels or interval (default: inferred from the values).
        duplicates : how to merge entries with the same row and column; a mean is rounded to the
            nearest level, and "latest" keeps the entry with the latest time.
        row_labels, column_labels : all labels in the order wanted, also those without an entry
            (default: the labels of the entries, sorted where their type has an order).
        times : time of each entry: Unix seconds or milliseconds, dates, datetimes or ISO texts;
            None for no date.
        weights : importance of each entry, from 1e-6 to 1e6 (default: 1). An entry of weight 0 is
            left out.

        >>> dates = ["2024-05-01", "2024-05-02", None]
        >>> ObservedMatrix.from_entries([1, 1, 2], [1, 2, 1], [5, 3, 4], times=dates).times[:2].tolist()
        [1714521600, 1714608000]
        """
        floats = to_numbers(values)
        axes = [
            _find_positions(rows, row_labels, axis="row"),
            _find_positions(columns, column_labels, axis="column"),
        ]
        if not all(axis.positions.size == floats.size for axis in axes):
            raise BadEntries(
                "rows, columns and values must have the same length; got "
                f"{axes[0].positions.size}, {axes[1].positions.size} and {floats.size}"
            )
        parsed = None if times is None else parse_times(times, floats.size)
        numbers = None if weights is None else check_weights(weights, floats.size)
        extras = Extras(None if parsed is None else parsed.seconds, numbers)
        # an entry of weight 0 is as if it had not been given
        if numbers is not None and not numbers.all():
            weighted = np.flatnonzero(numbers)
            floats = floats[weighted]
            extras = extras.take(weighted)
            axes = [
                _find_positions(
                    axis.labels[axis.positions[weighted]], labels, axis=axis.labels.axis
                )
                for axis, labels in zip(axes, (row_labels, column_labels), strict=True)
            ]
        form = PLAIN._replace(time_type=None if parsed is None else parsed.type)
        return cls.from_positions(
            axes[0], axes[1], floats, scale=scale, duplicates=duplicates, form=form, extras=extras
        )

    @classmethod
    def from_interactions(
        cls,
        rows: Iterable[Any],
        columns: Iterable[Any],
        counts: Iterable[float] | None = None,
        *,
        row_labels: Iterable[Any] | None = None,
        column_labels: Iterable[Any] | None = None,
        times: Iterable[Any] | None = None,
        weights: Iterable[float] | None = None,
    ) -> ObservedMatrix:
        """Build a matrix of interactions, such as clicks, plays or purchases, which have no values.

        Parameters
        ----------
        rows, columns : row label and column label of each interaction.
        counts : how often each happened (default: once). The counts of a repeated pair are added
            up, and its time is the latest.
        row_labels, column_labels, times, weights : as for `from_entries`.

        >>> clicks = ObservedMatrix.from_interactions(["ann", "ann", "bob"], ["home", "home", "news"])
        >>> clicks
        ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), interactions)
        >>> clicks.values.tolist()
        [2.0, 1.0]
        """
        row_labels_of_entries = build_label_array(rows, axis="row")
        if counts is None:
            counts = np.ones(row_labels_of_entries.size)
        matrix = cls.from_entries(
            row_labels_of_entries,
            columns,
            to_numbers(counts, noun="count"),
            Scale.interactions(),
            row_labels=row_labels,
            column_labels=column_labels,
            times=times,
            weights=weights,
        )
        return matrix.with_form(matrix.form._replace(value=COUNT))

    @classmethod
    def from_sequences(
        cls,
        sequences: Mapping[Any, Iterable[Any]] | Iterable[Iterable[Any]],
        *,
        column_labels: Iterable[Any] | None = None,
    ) -> ObservedMatrix:
        """Build a matrix of interactions from the columns of each row, first to last, without
        dates.

        A column that comes again is counted, and has the last of its places in the order.

        Parameters
        ----------
        sequences : the columns of each row, by the label of the row; or a list of them, whose rows
            are 0, 1, 2, ...
        column_labels : all columns in the order wanted, also those without an entry (default: those
            of the sequences).

        >>> films = ObservedMatrix.from_sequences({"ann": ["Big", "Alien"], "bob": ["Alien"]})
        >>> films
        ObservedMatrix(2 rows x 2 columns, 3 entries (75 %), interactions, in order)
        """
        if not isinstance(sequences, Iterable) or isinstance(sequences, str):
            raise BadEntries(
                f"sequences must map rows to lists of columns; got {show_value(sequences)}"
            )
        named = sequences if isinstance(sequences, Mapping) else dict(enumerate(sequences))
        for row, sequence in named.items():
            if isinstance(sequence, str | bytes) or not isinstance(sequence, Iterable):
                raise BadEntries(
                    f"a sequence must be a list of columns; got {show_value(sequence)} "
                    f"for row {show_value(row)}"
                )
        lists = list(map(list, named.values()))
        lengths = np.array(list(map(len, lists)), dtype=np.int64)
        row_of = np.repeat(np.arange(lengths.size), lengths)
        columns = _find_positions(chain.from_iterable(lists), column_labels, axis="column")
        extras = Extras(places=number_within(row_of).astype(np.int32))
        rows = Labelled(Labels(named, axis="row"), row_of)
        values = np.ones(row_of.size)
        scale = Scale.interactions()
        form = PLAIN._replace(value=COUNT)
        return cls.from_positions(rows, columns, values, scale=scale, form=form, extras=extras)

    @classmethod
    def from_array(
        cls,
        array: npt.ArrayLike,
        scale: Scale | None = None,
        *,
        row_labels: Iterable[Any] | None = None,
        column_labels: Iterable[Any] | None = None,
    ) -> ObservedMatrix:
        """Build a matrix from a two-dimensional array, where missing entries are NaN or masked."""
        plain: Any = np.ma.getdata(array) if np.ma.isMaskedArray(array) else array
        dense = to_numbers(plain, dimensions=2)
        observed = ~np.isnan(dense)
        if np.ma.isMaskedArray(array):
            observed &= ~np.ma.getmaskarray(array)
        rows, columns = np.nonzero(observed)
        return cls.from_positions(
            Labelled(_build_axis(row_labels, dense.shape[0], axis="row"), rows),
            Labelled(_build_axis(column_labels, dense.shape[1], axis="column"), columns),
            dense[rows, columns],
            scale=scale,
        )

    @classmethod
    def from_sparse(
        cls,
        matrix: Any,
        scale: Scale | None = None,
        *,
        duplicates: Duplicates = "error",
        row_labels: Iterable[Any] | None = None,
        column_labels: Iterable[Any] | None = None,
    ) -> ObservedMatrix:
        """Build a matrix from a scipy sparse matrix; every stored element is an entry, also a
        stored zero.

        With `Scale.interactions()` as the scale, its numbers are counts of interactions.
        """
        if not scipy.sparse.issparse(matrix) or matrix.ndim != 2:
            raise BadEntries(
                "from_sparse takes a scipy sparse matrix of two dimensions, rows and columns; got "
                f"{type(matrix).__name__} of shape {getattr(matrix, 'shape', None)}"
            )
        coordinates = matrix.tocoo()
        return cls.from_positions(
            Labelled(_build_axis(row_labels, matrix.shape[0], axis="row"), coordinates.row),
            Labelled(_build_axis(column_labels, matrix.shape[1], axis="column"), coordinates.col),
            to_numbers(coordinates.data),
            scale=scale,
            duplicates=duplicates,
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        row: str | int | None = None,
        column: str | int | None = None,
        value: ValueColumn = DETECT,
        count: str | int | None = None,
        time: ValueColumn = DETECT,
        weight: str | int | None = None,
        scale: Scale | None = None,
        duplicates: Duplicates = "error",
        missing: Missing = "error",
    ) -> ObservedMatrix:
        """Build a matrix from a long frame (pandas, polars, arrow, ...) with one line per entry.

        Parameters
        ----------
        frame : the frame.
        row, column, value : names or positions of the columns (default: found by their usual names,
            such as user, item and rating, otherwise the first three columns, with a warning where
            the values are guessed). `value=None` reads interactions, which have no values; so does
            a frame of two columns.
        count : name or position of a column that counts interactions; the counts of a repeated pair
            are added up.
        time : name or position of the column of times (default: a column that has a usual name and
            holds dates, texts of dates or Unix times; None reads no times). A null is an entry
            without a date.
        weight : name or position of the column of weights (default: all weights are 1).
        scale, duplicates : as for `from_entries`.
        missing : what to do with a line whose row, column or value is null or NaN: "error", or
            "drop" the line.
        """
        from deepmf.matrix.frames import read_long_frame

        check_choice("missing", missing, get_args(Missing))
        asked = {"row": row, "column": column, "count": count, "weight": weight}
        entries = read_long_frame(frame, asked, value=value, time=time, missing=missing)
        return cls.from_positions(
            entries.rows,
            entries.columns,
            entries.numbers,
            scale=choose_scale(scale, are_interactions=entries.are_interactions),
            duplicates=duplicates,
            form=entries.form,
            extras=entries.extras,
        )

    @classmethod
    def from_table(
        cls,
        frame: Any,
        *,
        row: str | None = None,
        exclude: Collection[Any] = (),
        scale: Scale | None = None,
    ) -> ObservedMatrix:
        """Build a matrix from a wide frame with one line per row; missing entries are null or NaN.

        Parameters
        ----------
        frame : the frame.
        row : name of the column of row labels (default: the index of a pandas frame, otherwise 0,
            1, 2, ...).
        exclude : columns to leave out.
        scale : as for `from_entries`. Without it, a column far beyond the levels that most columns
            share, such as ages beside answers from 1 to 6, is refused.
        """
        from deepmf.matrix.frames import read_wide_frame, refuse_off_scale_columns, warn_of_codes

        array, rows, columns = read_wide_frame(frame, row=row, exclude=exclude)
        if scale is None:
            refuse_off_scale_columns(array, columns)
            warn_of_codes(array)
        matrix = cls.from_array(array, scale, row_labels=rows, column_labels=columns)
        return matrix.with_form(TableForm(row or PLAIN.row, wide=True))

    @classmethod
    def from_positions(
        cls,
        rows: Labelled,
        columns: Labelled,
        values: ValueArray,
        *,
        scale: Scale | None = None,
        duplicates: Duplicates = "error",
        form: TableForm = PLAIN,
        extras: Extras = PLAIN_EXTRAS,
    ) -> ObservedMatrix:
        """Build a matrix from the labels of both axes and the positions of each entry among
        them."""
        check_scale(scale)
        merging = choose_merging(duplicates, scale)
        check_finite(rows, columns, values)
        if scale is not None:
            check_on_scale(rows, columns, values, scale)
        entries = sort_entries(
            rows, columns, values, scale=scale, duplicates=merging, extras=extras
        )
        return cls._from_sorted(rows.labels, columns.labels, entries, form)

    @classmethod
    def _from_sorted(
        cls, rows: Labels, columns: Labels, entries: SortedEntries, form: TableForm
    ) -> ObservedMatrix:
        index = choose_index(entries.rows.size, len(rows), len(columns))
        starts = np.zeros(len(rows) + 1, dtype=index)
        filled, counts = np.unique(entries.rows, return_counts=True)
        starts[filled + 1] = counts
        np.cumsum(starts, dtype=index, out=starts)
        by_row = ByRow(starts, entries.columns.astype(index, copy=False))
        by_column = turn_to_columns(by_row, (len(rows), len(columns)))
        values = compact(entries.values)
        extras = entries.extras.simplify()
        if extras.weights is not None:
            extras = extras._replace(weights=compact(extras.weights.astype(np.float64)))
        parts = {"rows": rows, "columns": columns, "scale": entries.scale, "form": form}
        return cls.from_parts(
            **parts, by_row=by_row, by_column=by_column, values=values, extras=extras
        )

    @classmethod
    def from_parts(cls, **parts: Any) -> ObservedMatrix:
        """Build a matrix from all its attributes, which agree, without sorting, checking or
        copying."""
        matrix = cls.__new__(cls)
        vars(matrix).update(parts)
        for array in matrix._arrays:
            array.flags.writeable = False
        return matrix

    def _replace(self, **changed: Any) -> ObservedMatrix:
        # without what is cached
        parts = {name: getattr(self, name) for name in ObservedMatrix.__annotations__}
        return ObservedMatrix.from_parts(**parts | changed)

    @property
    def _arrays(self) -> list[Array]:
        arrays = (*self.by_row, *self.by_column, self.values, *self.extras)
        return [array for array in arrays if array is not None]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self.rows), len(self.columns)

    @property
    def has_values(self) -> bool:
        """Whether entries have values; otherwise they are interactions, and `values` counts
        them."""
        return not self.scale.is_interactions

    @property
    def n_entries(self) -> int:
        """Number of observed entries."""
        return int(self.values.size)

    @cached_property
    def mean(self) -> float:
        """The mean of all values by their weights; NaN without entries."""
        if not self.n_entries:
            return float("nan")
        if self.weights is None:
            return float(self.values.mean(dtype=np.float64))
        return float(
            np.average(self.values.astype(np.float64), weights=self.weights.astype(np.float64))
        )

    @cached_property
    def limits(self) -> Limits:
        """The limits within which models read later values and weights, and predict."""
        return Limits.of(self.scale, self.values, self.weights)

    @property
    def times(self) -> TimeArray | None:
        """Unix seconds of each entry, in row order; `NO_TIME` for an entry without a date, None if
        none has one."""
        return self.extras.times

    @property
    def weights(self) -> ValueArray | None:
        """The weight of each entry, in row order; None if all of them are 1."""
        return self.extras.weights

    @property
    def row_labels(self) -> Array:
        """The row labels as given, read-only."""
        return self.rows.array

    @property
    def column_labels(self) -> Array:
        """The column labels as given, read-only."""
        return self.columns.array

    @property
    def row_counts(self) -> IndexArray:
        """Number of entries of each row."""
        return np.diff(self.by_row.starts)

    @property
    def column_counts(self) -> IndexArray:
        """Number of entries of each column."""
        return np.diff(self.by_column.starts)

    @property
    def entry_rows(self) -> IndexArray:
        """The row position of each entry, in row order."""
        return np.repeat(
            np.arange(len(self.rows), dtype=self.by_row.columns.dtype), self.row_counts
        )

    def find_rows(self, entries: IndexArray) -> IndexArray:
        """Return the row position of the entries at some places in row order."""
        if entries.size > self.n_entries // 64:
            return self.entry_rows[entries]
        rows = np.searchsorted(self.by_row.starts, entries, side="right") - 1
        return rows.astype(self.by_row.columns.dtype, copy=False)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays except the labels."""
        return sum(int(array.nbytes) for array in self._arrays)

    def entries(self) -> Entries:
        """Return (rows, columns, values) in row order: arrays of labels and of floats."""
        return Entries(
            self.rows[self.entry_rows],
            self.columns[self.by_row.columns],
            self.values.astype(np.float64),
        )

    def take_entries(self, which: Array) -> ObservedMatrix:
        """Return a matrix with the same rows, columns and scale, and some of the entries.

        `which` is a mask over the entries in row order, or their places.
        """
        places = np.flatnonzero(which) if which.dtype == bool else np.sort(which)
        rows = self.find_rows(places)
        columns = self.by_row.columns[places]
        entries = SortedEntries(
            rows, columns, self.values[places], self.scale, self.extras.take(places)
        )
        return ObservedMatrix._from_sorted(self.rows, self.columns, entries, self.form)

    def take(self, rows: IndexArray, columns: IndexArray) -> ObservedMatrix:
        """Return the submatrix of the rows and columns at some positions, in that order."""
        new_row, new_column = (np.full(count, -1, dtype=np.int64) for count in self.shape)
        new_row[rows], new_column[columns] = np.arange(rows.size), np.arange(columns.size)
        row_of = new_row[self.entry_rows]
        column_of = new_column[self.by_row.columns]
        is_inside = (row_of >= 0) & (column_of >= 0)
        return ObservedMatrix.from_positions(
            Labelled(self.rows.take(rows), row_of[is_inside]),
            Labelled(self.columns.take(columns), column_of[is_inside]),
            self.values[is_inside].astype(np.float64),
            scale=self.scale,
            form=self.form,
            extras=self.extras.take(is_inside),
        )

    def take_known(self, rows: Labels, columns: Labels) -> ObservedMatrix:
        """Return a matrix with only the entries whose row and column are among some labels."""
        known_rows = rows.find(self.row_labels) >= 0
        known_columns = columns.find(self.column_labels) >= 0
        is_known = known_rows[self.entry_rows] & known_columns[self.by_row.columns]
        return self if np.all(is_known) else self.take_entries(is_known)

    def find_in(self, rows: Labels, columns: Labels) -> IndexPair:
        """Return the positions of the entries among the labels of another matrix; -1 is unknown."""
        row_of = rows.find(self.row_labels)[self.entry_rows]
        column_of = columns.find(self.column_labels)[self.by_row.columns]
        return row_of.astype(np.int64), column_of.astype(np.int64)

    def with_form(self, form: TableForm) -> ObservedMatrix:
        """Return the same matrix with other column names or another layout for writing."""
        return self._replace(form=form)

    def with_labels(self, rows: Iterable[Any], columns: Iterable[Any]) -> ObservedMatrix:
        """Return the same entries under other labels, in the order of these."""
        return self._replace(rows=Labels(rows, axis="row"), columns=Labels(columns, axis="column"))

    def with_scale(self, scale: Scale) -> ObservedMatrix:
        """Return the same entries on another scale, which must hold all of them."""
        if not isinstance(scale, Scale):
            raise BadSetting(f"with_scale takes a Scale; got {show_value(scale)}")
        return self._replace(scale=scale)

    def with_extras(self, extras: Extras) -> ObservedMatrix:
        """Return the same entries with other times and weights, which must be positive and in row
        order."""
        return self._replace(extras=extras.simplify())

    def to_frame(self) -> Any:
        """Return the entries as a long polars frame in row order, with the column names of their
        source.

        Times and weights, if there are any, come last; times have the type of their source.

        >>> ObservedMatrix.from_entries(["ann", "bob"], ["Big", "Big"], [3, 1]).to_frame().columns
        ['row', 'column', 'value']
        """
        from deepmf.matrix.frames import build_long_frame

        return build_long_frame(self)

    def to_table(self) -> Any:
        """Return the matrix as a wide polars frame with a line per row; missing entries are null
        and take memory."""
        from deepmf.matrix.frames import build_wide_frame

        return build_wide_frame(self)

    def write(self, path: str | Path) -> None:
        """Write the matrix to a .csv, .tsv, .jsonl or .parquet file, or to a new .store, for
        `read_matrix`.

        Writing is atomic. A matrix that came from a wide table is written as a wide table.
        """
        from deepmf.matrix.frame_file import check_ending, write_frame_file
        from deepmf.matrix.packed import write_store

        check_ending(path, ".store")
        if Path(path).suffix.lower() == ".store":
            write_store(self, path)
            return
        frame = self.to_table() if self.form.wide else self.to_frame()
        write_frame_file(frame.iter_slices(), frame.schema, path)

    def to_sparse(self) -> scipy.sparse.csr_array:
        """Return the entries as a scipy CSR array of float64, including zeros."""
        starts, columns = self.by_row
        return scipy.sparse.csr_array(
            (self.values.astype(np.float64), columns, starts), shape=self.shape
        )

    def to_array(self) -> FloatArray:
        """Return a dense array (rows, columns) with NaN for missing entries."""
        array = np.full(self.shape, np.nan)
        array[self.entry_rows, self.by_row.columns] = self.values
        return array

    def describe(self) -> Description:
        """Return counts, density, quantiles of entries per row and column, and the histogram of
        levels."""
        from deepmf.matrix.description import describe

        return describe(self)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an ObservedMatrix is immutable: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, ObservedMatrix)
            and (self.rows, self.columns, self.scale) == (other.rows, other.columns, other.scale)
            and all(map(np.array_equal, (*self.by_row, self.values), (*other.by_row, other.values)))
            and self.extras.equals(other.extras)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        density = 100 * self.n_entries / max(n_rows * n_columns, 1)
        kind = f"scale {self.scale}" if self.has_values else str(self.scale)
        more = " and ".join(
            name for name in ("times", "weights") if getattr(self.extras, name) is not None
        )
        more = (more and f", with {more}") + (
            ", in order" if self.times is None and self.extras.are_ordered else ""
        )
        return (
            f"ObservedMatrix({n_rows} rows x {n_columns} columns, {self.n_entries} entries ({density:.3g} %), "
            f"{kind}{more})"
        )


def check_matrix(given: Any, taker: str) -> None:
    """Refuse anything but an `ObservedMatrix`, and name the constructor to call."""
    if not isinstance(given, ObservedMatrix):
        raise BadEntries(
            f"{taker} takes an ObservedMatrix; got {type(given).__name__} ({_name_constructor(given)})"
        )


def _name_constructor(given: Any) -> str:
    if isinstance(given, str | Path):
        return "read_matrix reads one from a file"
    kinds = {
        "from_frame, or from_table for a wide one,": "columns",
        "from_sparse": "tocoo",
        "from_array": "__array__",
    }
    makers = [maker for maker, attribute in kinds.items() if hasattr(given, attribute)]
    return f"ObservedMatrix.{makers[0] if makers else 'from_entries'} makes one"


def choose_scale(scale: Scale | None, *, are_interactions: bool) -> Scale | None:
    """Return the scale that was asked for, or that of interactions; refuse values with one and not
    the other."""
    check_scale(scale)
    if scale is not None and scale.is_interactions != are_interactions:
        noun = "interactions, which have no values" if are_interactions else "values"
        raise BadSetting(f"the scale {scale} was given, and the entries are {noun}")
    return Scale.interactions() if are_interactions else scale


def _find_positions(items: Iterable[Any], labels: Iterable[Any] | None, *, axis: str) -> Labelled:
    if labels is None:
        return Labels.gather(items, axis=axis)
    axis_labels = Labels.of(labels, axis=axis)
    return Labelled(axis_labels, axis_labels.positions(items))


def _build_axis(labels: Iterable[Any] | None, count: int, *, axis: str) -> Labels:
    if labels is None:
        return Labels.from_distinct(np.arange(count), axis=axis)
    axis_labels = Labels.of(labels, axis=axis)
    if len(axis_labels) != count:
        raise BadEntries(f"{len(axis_labels)} {axis} labels were given for {count} {axis}s")
    return axis_labels
