"""The observed matrix: labelled rows and columns, and the entries that are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.errors import BadEntries, BadSetting
from deepmf.formatting import format_amount, format_count, format_percent, format_short
from deepmf.matrix.arrays import FloatArray, IndexArray, iterate_pieces
from deepmf.matrix.axis_entries import ByColumn, ByRow, ValueArray, build_orders, compact
from deepmf.matrix.frames import PLAIN, TableForm
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.packed import StoreOrigin, StoreParts
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import (
    Duplicates,
    OrderedEntries,
    check_duplicates,
    check_finite,
    check_on_scale,
    sort_entries,
    to_numbers,
    warn_moved,
)
from deepmf.plots import build_notebook_view, plot_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes


AREAS = ("I", "II", "III", "IV")


def compute_area_codes(row_is_new: npt.NDArray[np.bool_], column_is_new: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """Return the position in `AREAS` of each pair: new rows are II, new columns III, both IV."""
    return row_is_new.astype(np.int8) + 2 * column_is_new.astype(np.int8)


_QUANTILES = {"min": 0.0, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "max": 1.0}


@dataclass(frozen=True)
class Description:
    """Counts, density, quantiles of entries per row and column, and the histogram of the values.

    `histogram` maps each level to its number of entries; for an interval, the middle of each of ten bins.
    """

    n_rows: int
    n_columns: int
    n_entries: int
    density: float
    n_empty_rows: int
    n_empty_columns: int
    mean: float
    standard_deviation: float
    scale: Scale
    entries_per_row: dict[str, float]
    entries_per_column: dict[str, float]
    histogram: dict[float, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python values, ready for JSON."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        levels = self.scale.levels
        plain["scale"] = {
            "low": self.scale.low,
            "high": self.scale.high,
            "levels": None if levels is None else levels.tolist(),
        }
        plain["histogram"] = {f"{value:g}": count for value, count in self.histogram.items()}
        return plain

    def _repr_html_(self) -> str:
        return matrix_html("Description", self)

    def __str__(self) -> str:
        lines = [
            f"{self.n_entries:,} entries in {self.n_rows:,} rows x {self.n_columns:,} columns "
            f"({100 * self.density:.3g} % observed)",
            f"scale {self.scale}; mean {self.mean:.4g}, standard deviation {self.standard_deviation:.4g}",
            _quantile_line("entries per row", self.entries_per_row, self.n_empty_rows),
            _quantile_line("entries per column", self.entries_per_column, self.n_empty_columns),
        ]
        most = max(self.histogram.values(), default=1) or 1
        for value, count in self.histogram.items():
            share = count / max(self.n_entries, 1)
            lines.append(f"{value:>10.4g} {100 * share:5.1f} % {'█' * round(30 * count / most)}")
        return "\n".join(lines)


def describe(
    *,
    shape: tuple[int, int],
    scale: Scale,
    values: npt.NDArray[np.floating[Any]],
    row_counts: npt.NDArray[np.integer[Any]],
    column_counts: npt.NDArray[np.integer[Any]],
) -> Description:
    """Count what a matrix of this shape holds; both arrays of counts are reordered."""
    n_rows, n_columns = shape
    mean, deviation = _moments(values)
    return Description(
        n_rows=n_rows,
        n_columns=n_columns,
        n_entries=int(values.size),
        density=values.size / max(n_rows * n_columns, 1),
        n_empty_rows=int(np.count_nonzero(row_counts == 0)),
        n_empty_columns=int(np.count_nonzero(column_counts == 0)),
        mean=mean,
        standard_deviation=deviation,
        scale=scale,
        entries_per_row=_quantiles(row_counts),
        entries_per_column=_quantiles(column_counts),
        histogram=_histogram(scale, values),
    )


def _moments(values: npt.NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Return the mean and the standard deviation, computed some values at a time."""
    if not values.size:
        return float("nan"), float("nan")
    mean = sum(float(piece.sum(dtype=np.float64)) for piece in iterate_pieces(values)) / values.size
    with np.errstate(over="ignore"):  # the squares of huge values: infinite is what they deviate
        squares = sum(float(np.square(piece.astype(np.float64) - mean).sum()) for piece in iterate_pieces(values))
    return mean, float(np.sqrt(squares / values.size))


def _quantiles(counts: npt.NDArray[np.integer[Any]]) -> dict[str, float]:
    if counts.size == 0:
        return dict.fromkeys(_QUANTILES, 0.0)
    quantiles = np.quantile(counts, list(_QUANTILES.values()), overwrite_input=True)  # a copy of 10^8 counts is dear
    return dict(zip(_QUANTILES, quantiles.tolist(), strict=True))


def _histogram(scale: Scale, values: npt.NDArray[np.floating[Any]]) -> dict[float, int]:
    if scale.levels is not None:
        counts = np.zeros(scale.levels.size, dtype=np.int64)
        for piece in iterate_pieces(values):
            counts += np.bincount(scale.level_positions(piece), minlength=counts.size)
        return dict(zip(scale.levels.tolist(), counts.tolist(), strict=True))
    counts, edges = np.zeros(10, dtype=np.int64), np.histogram_bin_edges([], bins=10, range=(scale.low, scale.high))
    for piece in iterate_pieces(values):
        inside = np.clip(piece, scale.low, scale.high)  # outliers count in the first and last bins
        counts += np.histogram(inside, bins=10, range=(scale.low, scale.high))[0]
    return dict(zip(((edges[:-1] + edges[1:]) / 2).tolist(), counts.tolist(), strict=True))


def _quantile_line(name: str, quantiles: dict[str, float], n_empty: int) -> str:
    shown = ", ".join(f"{label} {count:g}" for label, count in quantiles.items())
    return f"{name}: {shown}" + (f"; {n_empty:,} without any" if n_empty else "")


def matrix_html(name: str, shown: Description) -> str:
    """Return a description with a plot of the values, as a notebook shows it."""
    facts = {
        "size": f"{format_count(shown.n_rows)} rows x {format_count(shown.n_columns)} columns",
        "entries": f"{format_count(shown.n_entries)} ({format_percent(shown.density, digits=2)} observed)",
        "scale": str(shown.scale),
        "values": f"mean {format_amount(shown.mean)}, standard deviation {format_amount(shown.standard_deviation)}",
        "entries per row": _spread(shown.entries_per_row, shown.n_empty_rows),
        "entries per column": _spread(shown.entries_per_column, shown.n_empty_columns),
    }
    if shown.n_entries == 0:
        return build_notebook_view(name, facts, {})
    return build_notebook_view(name, facts, {"Number of entries by value": lambda: plot_values(shown)})


def plot_values(shown: Description, ax: Axes | None = None) -> Axes:
    """Draw how many entries have each value."""
    return plot_bars(
        [format_short(float(f"{value:.3g}")) for value in shown.histogram],
        {"entries": list(shown.histogram.values())},
        ax,
        x_label="value" if shown.scale.levels is None else "level",
        y_label="entries",
    )


def _spread(counts: dict[str, float], n_empty: int) -> str:
    said = f"{counts['min']:g} to {counts['max']:g}, median {counts['median']:g}"
    return said + (f"; {format_count(n_empty)} without any" if n_empty else "")


# A part of a matrix that is mapped from a store is a store too, but for one of so few entries.
IN_MEMORY = 1 << 20


class Entries(NamedTuple):
    """The observed entries as three arrays of the same length, in row order."""

    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    values: FloatArray


class ObservedMatrix:
    """A matrix of which some entries are observed; immutable.

    Whether an entry is observed is carried by the structure, never by its value: a stored zero is an entry.
    Held by row and by column, in 16 bytes per entry (20 where the values need double precision) and
    4 bytes per row and column beside the labels; mapped from a store, in memory of what is touched.

    >>> ratings = ObservedMatrix.from_entries(["ann", "ann", "bob"], ["Alien", "Big", "Big"], [5, 3, 1])
    >>> ratings
    ObservedMatrix(2 rows x 2 columns, 3 entries (75 %), scale 1 to 5 in steps of 2)
    >>> ratings.entries().values
    array([5., 3., 1.])
    >>> ratings.to_array()
    array([[ 5.,  3.],
           [nan,  1.]])
    """

    __slots__ = ("by_column", "by_row", "columns", "form", "mean", "origin", "rows", "scale", "values")

    rows: Labels
    columns: Labels
    scale: Scale
    by_row: ByRow
    by_column: ByColumn
    values: ValueArray  # (entries,) in row order; float32 where that is exact
    mean: float  # of all entries; NaN where there are none
    form: TableForm  # of the table it came from
    origin: StoreOrigin | None  # the store whose files its arrays are mapped from; None where they are in memory

    def __init__(self, *_: Any, **__: Any) -> None:
        raise BadSetting(
            "an ObservedMatrix is made by from_entries, from_array, from_sparse, from_frame, from_table or read_matrix"
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
    ) -> ObservedMatrix:
        """Build a matrix from three parallel sequences: row label, column label, value.

        Labels are sorted where their kind can be. `row_labels` and `column_labels` give all labels in the order
        wanted instead, including those without an entry. `duplicates` says what to do with a (row, column)
        pair that occurs more than once; a mean goes to the nearest level.
        """
        floats = to_numbers(values)
        row_axis = _axis(rows, row_labels, axis="row")
        column_axis = _axis(columns, column_labels, axis="column")
        if not row_axis.positions.size == column_axis.positions.size == floats.size:
            raise BadEntries(
                "rows, columns and values must be of one length; got "
                f"{row_axis.positions.size}, {column_axis.positions.size} and {floats.size}"
            )
        return cls.from_positions(row_axis, column_axis, floats, scale=scale, duplicates=duplicates)

    @classmethod
    def from_array(
        cls,
        array: npt.ArrayLike,
        scale: Scale | None = None,
        *,
        row_labels: Iterable[Any] | None = None,
        column_labels: Iterable[Any] | None = None,
    ) -> ObservedMatrix:
        """Build a matrix from a two-dimensional array in which NaN (or a mask) marks what is missing."""
        missing = np.ma.getmaskarray(array) if np.ma.isMaskedArray(array) else None
        dense = to_numbers(np.ma.getdata(array), dimensions=2)
        observed = ~np.isnan(dense) if missing is None else ~(missing | np.isnan(dense))
        rows, columns = np.nonzero(observed)
        return cls.from_positions(
            Labelled(_whole_axis(row_labels, dense.shape[0], axis="row"), rows),
            Labelled(_whole_axis(column_labels, dense.shape[1], axis="column"), columns),
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
        """Build a matrix from a scipy sparse one; every stored element is an entry, a stored zero too."""
        if not scipy.sparse.issparse(matrix):
            raise BadEntries(f"from_sparse takes a scipy sparse matrix; got {type(matrix).__name__}")
        if matrix.ndim != 2:
            raise BadEntries(f"a matrix has two dimensions, rows and columns; got shape {matrix.shape}")
        coordinates = matrix.tocoo()
        return cls.from_positions(
            Labelled(_whole_axis(row_labels, matrix.shape[0], axis="row"), coordinates.row),
            Labelled(_whole_axis(column_labels, matrix.shape[1], axis="column"), coordinates.col),
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
        value: str | int | None = None,
        scale: Scale | None = None,
        duplicates: Duplicates = "error",
    ) -> ObservedMatrix:
        """Build a matrix from a long frame (pandas, polars, arrow, ...): one line per entry.

        `row`, `column` and `value` name the columns or give their positions; left out, they are recognised by their
        usual names (user, item, rating, ...), otherwise the first three columns are taken.
        """
        from deepmf.matrix.frames import read_long_frame

        entries = read_long_frame(frame, row=row, column=column, value=value)
        values = to_numbers(entries.values)
        return cls.from_positions(
            entries.rows, entries.columns, values, scale=scale, duplicates=duplicates, form=entries.form
        )

    @classmethod
    def from_table(cls, frame: Any, *, row: str | None = None, scale: Scale | None = None) -> ObservedMatrix:
        """Build a matrix from a wide frame: a line per row, a column per column, null or NaN where missing.

        Row labels are those of the column named by `row`, otherwise the index where the frame has one, otherwise
        0, 1, 2, ...
        """
        from deepmf.matrix.frames import read_wide_frame

        table = read_wide_frame(frame, row=row)
        matrix = cls.from_array(
            table.array, scale=scale, row_labels=table.row_labels, column_labels=table.column_labels
        )
        return matrix.with_form(table.form)

    @classmethod
    def from_positions(
        cls,
        rows: Labelled,
        columns: Labelled,
        values: FloatArray,
        *,
        scale: Scale | None = None,
        duplicates: Duplicates = "error",
        form: TableForm = PLAIN,
    ) -> ObservedMatrix:
        """Build a matrix from labels and, for each entry, its positions among them: what all others end in."""
        check_duplicates(duplicates)
        check_finite(rows, columns, values)
        if scale is not None:
            check_on_scale(rows, columns, values, scale)
        entries = sort_entries(rows, columns, values, scale=scale, duplicates=duplicates)
        warn_moved(entries.n_moved, entries.scale)
        return cls._from_ordered(rows.labels, columns.labels, entries, form)

    @classmethod
    def from_store(cls, parts: StoreParts, *, scale: Scale | None = None) -> ObservedMatrix:
        """Build a matrix from an open store: its arrays are those of the files, and nothing is copied."""
        matrix = cls.__new__(cls)
        matrix.rows, matrix.columns, matrix.form, matrix.origin = parts.rows, parts.columns, parts.form, parts.origin
        matrix.scale = scale or parts.scale
        matrix.by_row = ByRow(parts.row_starts, parts.columns_by_row)
        matrix.by_column = ByColumn(parts.column_starts, parts.rows_by_column, parts.entries_by_column)
        matrix.values, matrix.mean = parts.values, parts.mean
        return matrix

    @classmethod
    def _from_ordered(cls, rows: Labels, columns: Labels, entries: OrderedEntries, form: TableForm) -> ObservedMatrix:
        """Build a matrix from entries in row order without repeats."""
        by_row, by_column = build_orders(entries.rows, entries.columns, shape=(len(rows), len(columns)))
        values = compact(entries.values)
        mean = float(values.mean(dtype=np.float64)) if values.size else float("nan")
        return cls.from_order(rows, columns, entries.scale, by_row, by_column, values, mean=mean, form=form)

    @classmethod
    def from_order(
        cls,
        rows: Labels,
        columns: Labels,
        scale: Scale,
        by_row: ByRow,
        by_column: ByColumn,
        values: ValueArray,
        *,
        mean: float,
        form: TableForm = PLAIN,
    ) -> ObservedMatrix:
        """Build a matrix from entries that are known to be in both orders; nothing is sorted, checked or copied."""
        given = {"rows": rows, "columns": columns, "scale": scale, "by_row": by_row, "by_column": by_column}
        given |= {"values": values, "mean": mean, "form": form}
        matrix = cls.__new__(cls)
        for name in cls.__slots__:
            object.__setattr__(matrix, name, given.get(name))
        for array in (*by_row, *by_column, values):
            array.flags.writeable = False
        return matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self.rows), len(self.columns)

    @property
    def n_entries(self) -> int:
        """Number of observed entries."""
        return int(self.values.size)

    @property
    def row_labels(self) -> npt.NDArray[Any]:
        """The row labels as given, read-only."""
        return self.rows.array

    @property
    def column_labels(self) -> npt.NDArray[Any]:
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
        filled = np.flatnonzero(self.by_row.starts[1:] != self.by_row.starts[:-1])
        counts = np.diff(self.by_row.starts[filled], append=self.by_row.starts[-1:])
        return np.repeat(filled.astype(self.by_row.columns.dtype, copy=False), counts)

    def find_rows(self, entries: IndexArray) -> IndexArray:
        """Return the row position of some entries, given by their places in row order."""
        if entries.size > self.n_entries // 64:
            return self.entry_rows[entries]
        rows = np.searchsorted(self.by_row.starts, entries, side="right") - 1
        return rows.astype(self.by_row.columns.dtype, copy=False)

    @property
    def nbytes(self) -> int:
        """Bytes held beside the labels, or mapped from a store."""
        return sum(int(array.nbytes) for array in (*self.by_row, *self.by_column, self.values))

    def entries(self) -> Entries:
        """Return (rows, columns, values): labels and floats of every entry, in row order."""
        return Entries(
            self.rows[self.entry_rows],
            self.columns[self.by_row.columns],
            self.values.astype(np.float64),
        )

    def take_entries(self, which: npt.NDArray[Any]) -> ObservedMatrix:
        """Return the matrix with the same rows, columns and scale that keeps only some entries.

        `which` is a mask over the entries in row order, or their positions.
        """
        is_mask = which.dtype == bool
        if self.origin is not None and (np.count_nonzero(which) if is_mask else which.size) > IN_MEMORY:
            from deepmf.matrix.packed import take_entries_on_disk

            part = take_entries_on_disk(self, which if is_mask else np.sort(which))
            return ObservedMatrix.from_store(part, scale=self.scale)
        kept = np.flatnonzero(which) if is_mask else np.sort(which)
        values = self.values[kept].astype(np.float64)
        entries = OrderedEntries(self.find_rows(kept), self.by_row.columns[kept], values, self.scale)
        return ObservedMatrix._from_ordered(self.rows, self.columns, entries, self.form)

    def take(self, rows: IndexArray, columns: IndexArray) -> ObservedMatrix:
        """Return the part with the rows and columns at the given positions, in that order."""
        if self.origin is not None and self.n_entries > IN_MEMORY and _rise(rows) and _rise(columns):
            from deepmf.matrix.packed import take_axes_on_disk

            return ObservedMatrix.from_store(take_axes_on_disk(self, rows, columns), scale=self.scale)
        new_row = np.full(len(self.rows), -1, dtype=np.int64)
        new_row[rows] = np.arange(rows.size)
        new_column = np.full(len(self.columns), -1, dtype=np.int64)
        new_column[columns] = np.arange(columns.size)
        row_of, column_of = new_row[self.entry_rows], new_column[self.by_row.columns]
        kept = (row_of >= 0) & (column_of >= 0)
        return ObservedMatrix.from_positions(
            Labelled(self.rows.take(rows), row_of[kept]),
            Labelled(self.columns.take(columns), column_of[kept]),
            self.values[kept].astype(np.float64),
            scale=self.scale,
            form=self.form,
        )

    def take_known(self, rows: Labels, columns: Labels) -> ObservedMatrix:
        """Return the matrix that keeps only the entries whose row and column are among other labels."""
        known_rows, known_columns = rows.find(self.row_labels) >= 0, columns.find(self.column_labels) >= 0
        known = known_rows[self.entry_rows] & known_columns[self.by_row.columns]
        return self if np.all(known) else self.take_entries(known)

    def with_form(self, form: TableForm) -> ObservedMatrix:
        """Return the same matrix, to be written as a table of another form."""
        matrix = ObservedMatrix.__new__(ObservedMatrix)
        for name in self.__slots__:
            object.__setattr__(matrix, name, form if name == "form" else getattr(self, name))
        return matrix

    def with_scale(self, scale: Scale) -> ObservedMatrix:
        """Return the same entries on another scale, which holds them all."""
        matrix = ObservedMatrix.__new__(ObservedMatrix)
        for name in self.__slots__:
            object.__setattr__(matrix, name, scale if name == "scale" else getattr(self, name))
        return matrix

    def to_frame(self) -> Any:
        """Return the entries as a long polars frame, in row order, under the names of the table they came from.

        >>> ObservedMatrix.from_entries(["ann", "bob"], ["Big", "Big"], [3, 1]).to_frame().columns
        ['row', 'column', 'value']
        """
        from deepmf.matrix.frames import build_long_frame

        return build_long_frame(self)

    def to_table(self) -> Any:
        """Return the matrix as a wide polars frame: a line per row, null where nothing is observed; mind its size."""
        from deepmf.matrix.frames import build_wide_frame

        return build_wide_frame(self)

    def write(self, path: str | Path) -> None:
        """Write the matrix to a .csv, .tsv, .parquet or .npz file, or as a .store, that `read_matrix` reads.

        It is written whole or not at all; a store is a new folder. What came from a wide table is written as one.
        """
        from deepmf.matrix.write import write_matrix

        write_matrix(self, path)

    def to_sparse(self) -> scipy.sparse.csr_array:
        """Return the entries as a scipy CSR array of float64, stored zeros included."""
        return scipy.sparse.csr_array(
            (self.values.astype(np.float64), self.by_row.columns, self.by_row.starts), shape=self.shape
        )

    def to_array(self) -> FloatArray:
        """Return a dense array (rows, columns) with NaN where nothing is observed; mind its size."""
        array = np.full(self.shape, np.nan)
        array[self.entry_rows, self.by_row.columns] = self.values
        return array

    def describe(self) -> Description:
        """Return counts, density, quantiles of entries per row and column, and the histogram of levels."""
        if self.origin is not None:
            self.origin.check_unchanged()
        return describe(
            shape=self.shape,
            scale=self.scale,
            values=self.values,
            row_counts=self.row_counts,
            column_counts=self.column_counts,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise AttributeError(f"an ObservedMatrix is immutable: {name} cannot be set")
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObservedMatrix):
            return NotImplemented
        return self is other or (
            self.rows == other.rows
            and self.columns == other.columns
            and self.scale == other.scale
            and np.array_equal(self.by_row.starts, other.by_row.starts)
            and np.array_equal(self.by_row.columns, other.by_row.columns)
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        density = 100 * self.n_entries / max(n_rows * n_columns, 1)
        return (
            f"ObservedMatrix({n_rows} rows x {n_columns} columns, "
            f"{self.n_entries} entries ({density:.3g} %), scale {self.scale})"
        )

    def _repr_html_(self) -> str:
        return matrix_html("ObservedMatrix", self.describe())


def _axis(items: Iterable[Any], labels: Iterable[Any] | None, *, axis: str) -> Labelled:
    if labels is None:
        return Labels.gather(items, axis=axis)
    known = labels if isinstance(labels, Labels) else Labels(labels, axis=axis)
    return Labelled(known, known.positions(items))


def _whole_axis(labels: Iterable[Any] | None, count: int, *, axis: str) -> Labels:
    if labels is None:
        return Labels.from_range(count, axis=axis)
    given = labels if isinstance(labels, Labels) else Labels(labels, axis=axis)
    if len(given) != count:
        raise BadEntries(f"{len(given)} {axis} labels were given for {count} {axis}s")
    return given


def _rise(positions: IndexArray) -> bool:
    return bool(np.all(positions[1:] > positions[:-1]))
