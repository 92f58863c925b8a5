"""Entries in row order: sorted by row and column, repeats found and merged."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting, DuplicateEntries, Hint, MeansOffLevels, OffScale
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.labels import Labelled
from deepmf.matrix.scale import LARGEST, Scale


def to_numbers(values: Any, *, dimensions: int = 1) -> FloatArray:
    """Return values as float64; what is not a number is named."""
    if not isinstance(values, Iterable):
        raise BadEntries(f"values must be a list of numbers; got {values!r}")
    if not isinstance(values, np.ndarray):
        values = np.asarray(values if isinstance(values, list | tuple) else list(values))
    if values.dtype.kind in "cmM":  # numpy would drop the imaginary part, or count the days
        raise BadEntries(f"values of type {values.dtype} are not real numbers")
    if values.dtype.kind not in "fiub":
        values = _parse(values)
    array: FloatArray = values.astype(np.float64, copy=False)
    if array.ndim != dimensions:
        raise BadEntries(f"values must have {dimensions} dimension(s); got shape {array.shape}")
    return array


def _parse(values: npt.NDArray[Any]) -> FloatArray:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        for position, value in enumerate(values.ravel().tolist()):
            try:
                float(value)
            except (TypeError, ValueError):
                raise BadEntries(f"value {value!r} is not a number", position=position) from error
        raise BadEntries(f"values of type {values.dtype} are not numbers") from error


def check_finite(rows: Labelled, columns: Labelled, values: FloatArray) -> None:
    """Refuse a value that is NaN or infinite, or so large that a spread of such values is."""
    if values.size == 0 or (values.min() >= -LARGEST and values.max() <= LARGEST):  # NaN passes neither comparison
        return
    bad = int(np.flatnonzero(~(np.abs(values) <= LARGEST))[0])
    needed = (
        "values must be finite numbers" if not np.isfinite(values[bad]) else f"magnitudes up to {LARGEST:g} are taken"
    )
    raise BadEntries(f"{name_spot(rows, columns, bad)} has value {values[bad]}; {needed}", position=bad)


def check_on_scale(rows: Labelled, columns: Labelled, values: FloatArray, scale: Scale) -> None:
    """Refuse a value that the scale does not hold."""
    bad = np.flatnonzero(~scale.holds(values))
    if bad.size:
        raise OffScale(
            f"{name_spot(rows, columns, bad[0])} has value {values[bad[0]]:g}; the scale is {scale}",
            position=int(bad[0]),
        )


def name_spot(rows: Labelled, columns: Labelled, position: int) -> str:
    """Name the row and the column of an entry, for messages."""
    row, column = (axis.labels[axis.positions[[position]]].tolist()[0] for axis in (rows, columns))
    return f"row {row!r}, column {column!r}"


Duplicates = Literal["error", "first", "last", "mean"]

DUPLICATES_HINT = Hint(
    "duplicates='first', 'last' or 'mean' merges them", "--duplicates first, last or mean merges them"
)


class RowOrder(NamedTuple):
    """Entries in row order: which entry comes when, and the row and the column of each."""

    order: IndexArray
    rows: IndexArray
    columns: IndexArray


class OrderedEntries(NamedTuple):
    """Entries in row order, without repeats, and their scale.

    n_moved: how many are means of repeated entries that lay between two levels.
    """

    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    scale: Scale
    n_moved: int = 0


def check_duplicates(duplicates: str) -> None:
    """Refuse a value that `duplicates` cannot have."""
    if duplicates not in get_args(Duplicates):
        raise BadSetting(f"duplicates must be 'error', 'first', 'last' or 'mean'; got {duplicates!r}")


def sort_entries(
    rows: Labelled, columns: Labelled, values: FloatArray, *, scale: Scale | None, duplicates: Duplicates
) -> OrderedEntries:
    """Sort entries and merge those that repeat a (row, column) pair; a scale that is not given is inferred."""
    order, row_of, column_of = sort_by_row(
        rows.positions, columns.positions, n_rows=len(rows.labels), n_columns=len(columns.labels)
    )
    again, ordered, n_moved = find_repeats(row_of, column_of), values[order], 0
    if np.any(again):
        if duplicates == "error":
            raise build_duplicate_error(rows, columns, order, again)
        given = scale
        if duplicates == "mean":
            scale = scale or Scale.infer(ordered)  # before means bring values that nobody gave
        ordered = merge_repeats(ordered, again, duplicates)
        scale = scale.infer_again(ordered) if given is None and scale is not None else scale
        row_of, column_of = row_of[~again], column_of[~again]
        if duplicates == "mean" and scale is not None and scale.levels is not None:
            ordered, n_moved = round_to_levels(ordered, scale)
    return OrderedEntries(row_of, column_of, ordered, scale or Scale.infer(ordered), n_moved)


def sort_by_row(row_of: IndexArray, column_of: IndexArray, *, n_rows: int, n_columns: int) -> RowOrder:
    """Sort entries by row, then by column, then as given.

    Row, column and place of an entry are packed into the bits of one 64-bit number where they fit: sorting numbers in
    place is several times faster than sorting places and then collecting, all over memory, what lies there.
    """
    if _is_in_row_order(row_of, column_of):
        return RowOrder(np.arange(row_of.size), row_of.copy(), column_of.copy())  # the caller's arrays stay his
    place_bits, column_bits = row_of.size.bit_length(), n_columns.bit_length()
    if n_rows.bit_length() + column_bits + place_bits > 63:
        order = np.lexsort((column_of, row_of))
        return RowOrder(order, row_of[order], column_of[order])
    packed = row_of.astype(np.int64)
    packed <<= column_bits
    packed |= column_of
    packed <<= place_bits
    packed |= np.arange(row_of.size)
    packed.sort()
    order = packed & ((1 << place_bits) - 1)
    packed >>= place_bits
    sorted_columns = packed & ((1 << column_bits) - 1)
    packed >>= column_bits
    return RowOrder(order, packed, sorted_columns)


def _is_in_row_order(row_of: IndexArray, column_of: IndexArray) -> bool:
    if np.any(row_of[1:] < row_of[:-1]):
        return False
    same_row = row_of[1:] == row_of[:-1]
    return bool(np.all(column_of[1:][same_row] > column_of[:-1][same_row]))


def find_starts(sorted_rows: IndexArray, n_rows: int, index: npt.DTypeLike) -> IndexArray:
    """Return where each row starts among sorted entries, (rows + 1,); nothing else of that length is held."""
    starts = np.zeros(n_rows + 1, dtype=index)
    if sorted_rows.size:
        ends = np.flatnonzero(np.append(sorted_rows[1:] != sorted_rows[:-1], True))
        starts[sorted_rows[ends] + 1] = np.diff(ends, prepend=-1)  # the number of entries of each row that has any
        np.cumsum(starts, out=starts)
    return starts


def find_repeats(row_of: IndexArray, column_of: IndexArray) -> npt.NDArray[np.bool_]:
    """Say which of some entries in row order have the row and the column of the one before."""
    again = np.zeros(row_of.size, dtype=bool)
    again[1:] = (row_of[1:] == row_of[:-1]) & (column_of[1:] == column_of[:-1])
    return again


def build_duplicate_error(
    rows: Labelled, columns: Labelled, order: IndexArray, again: npt.NDArray[np.bool_]
) -> DuplicateEntries:
    """Return the error that counts the repeats and names the first."""
    position = int(order[again].min())
    return DuplicateEntries(
        f"{name_spot(rows, columns, position)} was given before; {int(again.sum())} of {order.size} entries repeat "
        "a (row, column) pair",
        position=position,
        hint=DUPLICATES_HINT,
    )


def merge_repeats(values: FloatArray, again: npt.NDArray[np.bool_], duplicates: Duplicates) -> FloatArray:
    """Return one value for each run of repeats, in row order: the first or the last one given, or their mean."""
    firsts = np.flatnonzero(~again)
    if duplicates == "first":
        first: FloatArray = values[firsts]
        return first
    ends = np.append(firsts[1:], values.size)
    if duplicates == "last":
        lasts: FloatArray = values[ends - 1]
        return lasts
    means: FloatArray = np.add.reduceat(values, firsts) / (ends - firsts)
    return means


def round_to_levels(means: FloatArray, scale: Scale) -> tuple[FloatArray, int]:
    """Return means of repeated entries as levels, and how many were none."""
    levels = scale.nearest_level(means)
    return levels, int(np.count_nonzero(levels != means))


def warn_moved(n_moved: int, scale: Scale) -> None:
    """Tell how many means of repeated entries were no levels."""
    if n_moved:
        warnings.warn(
            f"of the means of repeated entries, {n_moved:,} lie between the levels of the scale {scale}: each becomes "
            "the nearest level",
            MeansOffLevels,
            stacklevel=3,
        )
