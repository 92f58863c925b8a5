"""Check entries, sort them by row and by column, and merge repeated (row, column) pairs."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse

from deepmf.errors import (
    BadEntries,
    BadSetting,
    DuplicateEntries,
    Hint,
    MeansOffLevels,
    OffScale,
    check_choice,
    warn,
)
from deepmf.formatting import format_quantity
from deepmf.matrix.arrays import BoolArray, FloatArray, IndexArray, ValueArray
from deepmf.matrix.extras import NO_TIME, PLAIN_EXTRAS, Extras, PlaceArray, TimeArray
from deepmf.matrix.labels import Labelled
from deepmf.matrix.scale import LARGEST, Scale

Duplicates = Literal["error", "first", "last", "latest", "mean"]
Merging = Duplicates | Literal["sum"]  # interactions are counted

DUPLICATES_HINT = Hint(
    "duplicates='first', 'last', 'latest' or 'mean' merges them, count= adds up interactions",
    "--duplicates first, last, latest or mean merges them, --count adds up interactions",
)


class ByRow(NamedTuple):
    """Entries in row order (CSR): those of row i are `starts[i]:starts[i + 1]`, with increasing
    columns."""

    starts: IndexArray  # (rows + 1,)
    columns: IndexArray  # (entries,)


class ByColumn(NamedTuple):
    """Entries in column order (CSC): those of column j are `starts[j]:starts[j + 1]`, with
    increasing rows."""

    starts: IndexArray  # (columns + 1,)
    rows: IndexArray  # (entries,)
    entries: IndexArray  # (entries,) place of each entry in row order


class SortedEntries(NamedTuple):
    """Entries in row order without repeats, and their scale."""

    rows: IndexArray
    columns: IndexArray
    values: ValueArray
    scale: Scale
    extras: Extras = PLAIN_EXTRAS


# Checks


def choose_merging(duplicates: Duplicates, scale: Scale | None) -> Merging:
    """Return what becomes of repeated entries: interactions are counted."""
    check_choice("duplicates", duplicates, get_args(Duplicates))
    if scale is None or not scale.is_interactions:
        return duplicates
    if duplicates != "error":
        raise BadSetting(
            f"repeated interactions are counted; duplicates={duplicates!r} is for values"
        )
    return "sum"


def check_finite(rows: Labelled, columns: Labelled, values: ValueArray) -> None:
    """Raise an error if a value is NaN, infinite, or so large that differences of values
    overflow."""
    # NaN fails
    if not values.size or -LARGEST <= float(values.min()) <= float(values.max()) <= LARGEST:
        return
    bad = int(np.flatnonzero(~(np.abs(values.astype(np.float64)) <= LARGEST))[0])
    raise BadEntries(
        f"{name_entry(rows, columns, bad)} has value {values[bad]}; values must be finite, and at "
        f"most {LARGEST:g} in magnitude",
        position=bad,
    )


def check_on_scale(rows: Labelled, columns: Labelled, values: ValueArray, scale: Scale) -> None:
    """Raise an error if a value is not on the scale."""
    bad = np.flatnonzero(~scale.holds(values))
    if bad.size:
        raise OffScale(
            f"{name_entry(rows, columns, bad[0])} has value {values[bad[0]]:g}; the scale is {scale}",
            position=int(bad[0]),
        )


def name_entry(rows: Labelled, columns: Labelled, position: int) -> str:
    """Return the row and the column of an entry as words for a message."""
    row, column = (axis.labels[axis.positions[[position]]].tolist()[0] for axis in (rows, columns))
    return f"row {row!r}, column {column!r}"


# Row order


def sort_entries(
    rows: Labelled,
    columns: Labelled,
    values: ValueArray,
    *,
    scale: Scale | None,
    duplicates: Merging,
    extras: Extras = PLAIN_EXTRAS,
) -> SortedEntries:
    """Sort entries by row and merge repeated (row, column) pairs; infer the scale unless it is
    given."""
    order, row_of, column_of = sort_by_row(
        rows.positions, columns.positions, n_rows=len(rows.labels), n_columns=len(columns.labels)
    )
    is_repeat = np.zeros(order.size, dtype=bool)
    is_repeat[1:] = (row_of[1:] == row_of[:-1]) & (column_of[1:] == column_of[:-1])
    ordered = values[order]
    extras = keep_order(extras.take(order), row_of, order)
    if np.any(is_repeat):
        if duplicates == "error":
            position = int(order[is_repeat].min())
            raise DuplicateEntries(
                f"{name_entry(rows, columns, position)} was given before; {int(is_repeat.sum())} of "
                f"{order.size} entries repeat a (row, column) pair",
                position=position,
                hint=DUPLICATES_HINT,
            )
        given_scale = scale
        if duplicates == "mean":
            # before averaging, which creates values that nobody gave
            scale = scale or Scale.infer(ordered)
        ordered, extras = merge_repeats(ordered.astype(np.float64), is_repeat, duplicates, extras)
        scale = scale.infer_again(ordered) if given_scale is None and scale is not None else scale
        row_of = row_of[~is_repeat]
        column_of = column_of[~is_repeat]
        if duplicates == "mean" and scale is not None and scale.levels is not None:
            means = ordered
            ordered = scale.nearest_level(means)
            n_moved = int(np.count_nonzero(ordered != means))
            if n_moved:
                warn(
                    f"{format_quantity(n_moved, 'mean')} of repeated entries between the levels of "
                    f"the scale {scale}; the nearest level is used",
                    MeansOffLevels,
                )
    return SortedEntries(row_of, column_of, ordered, scale or Scale.infer(ordered), extras)


def sort_by_row(
    row_of: IndexArray, column_of: IndexArray, *, n_rows: int, n_columns: int
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return the order that sorts entries by row, then by column, then as given; and the sorted
    rows and columns.

    Where they fit, the row, the column and the place of an entry are packed into one 64-bit
    integer: sorting integers in place is several times faster than `lexsort` followed by random
    access to rows and columns.
    """
    index = choose_index(row_of.size, n_rows, n_columns)
    if _is_in_row_order(row_of, column_of):
        return np.arange(row_of.size, dtype=index), row_of.astype(index), column_of.astype(index)
    place_bits = row_of.size.bit_length()
    column_bits = n_columns.bit_length()
    if n_rows.bit_length() + column_bits + place_bits > 63:
        order = np.lexsort((column_of, row_of))
        return order, row_of[order], column_of[order]
    packed = row_of.astype(np.int64)
    packed <<= column_bits
    packed |= column_of
    packed <<= place_bits
    np.bitwise_or(packed, np.arange(row_of.size, dtype=index), out=packed)
    packed.sort()
    order = np.empty(row_of.size, dtype=index)
    sorted_columns = np.empty(row_of.size, dtype=index)
    np.bitwise_and(packed, (1 << place_bits) - 1, out=order, casting="unsafe")
    packed >>= place_bits
    np.bitwise_and(packed, (1 << column_bits) - 1, out=sorted_columns, casting="unsafe")
    packed >>= column_bits
    return order, packed.astype(index), sorted_columns


def choose_index(*counts: int) -> type[np.signedinteger[Any]]:
    """Return the type of positions below some counts."""
    return np.int32 if max(counts) < 2**31 - 1 else np.int64


def keep_order(extras: Extras, row_of: IndexArray, given: IndexArray) -> Extras:
    """Return extras with places where entries of a row have the same time: these keep the order
    they were given in.

    row_of: the row of each entry, increasing. given: its number among the given ones.
    """
    if extras.times is None or extras.places is not None:
        return extras
    order = extras.sort_within(row_of)
    times = extras.times[order]
    if not np.any((times[1:] == times[:-1]) & (times[1:] != NO_TIME) & (row_of[1:] == row_of[:-1])):
        return extras
    places = np.empty(row_of.size, dtype=np.int32)
    places[np.lexsort((given, row_of))] = number_within(row_of)
    return extras._replace(places=places)


def number_within(groups: IndexArray) -> IndexArray:
    """Return the number from 0 of each entry within its group; groups are together.

    >>> number_within(np.array([3, 3, 7, 7, 7]))
    array([0, 1, 0, 1, 2])
    """
    firsts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    return np.arange(groups.size) - np.repeat(firsts, np.diff(firsts, append=groups.size))


def number_in_rows(row_of: IndexArray) -> PlaceArray:
    """Return the number from 0 of each entry within its row, in the order that they are in.

    >>> number_in_rows(np.array([7, 3, 7]))
    array([0, 0, 1], dtype=int32)
    """
    order = np.argsort(row_of, kind="stable")
    places = np.empty(row_of.size, dtype=np.int32)
    places[order] = number_within(row_of[order])
    return places


def _is_in_row_order(row_of: IndexArray, column_of: IndexArray) -> bool:
    if np.any(row_of[1:] < row_of[:-1]):
        return False
    same_row = row_of[1:] == row_of[:-1]
    return bool(np.all(column_of[1:][same_row] > column_of[:-1][same_row]))


# Repeated pairs


def merge_repeats(
    values: FloatArray, again: BoolArray, duplicates: Merging, extras: Extras = PLAIN_EXTRAS
) -> tuple[FloatArray, Extras]:
    """Merge each run of repeats: keep the first, the last or the latest, or take the weighted mean
    or the sum."""
    firsts = np.flatnonzero(~again)
    picks = _pick_repeats(firsts, values.size, duplicates, extras.times)
    merged = extras.merge(values, firsts, picks, counts=duplicates == "sum")
    if picks is not None:
        return values[picks], merged
    if duplicates == "sum":
        return np.add.reduceat(values, firsts), merged
    weights = extras.fill_weights(values.size).astype(np.float64)
    return np.add.reduceat(values * weights, firsts) / np.add.reduceat(weights, firsts), merged


def _pick_repeats(
    firsts: IndexArray, count: int, duplicates: Merging, times: TimeArray | None
) -> IndexArray | None:
    """Return the place of the entry of each run that is kept; None if runs are averaged or
    summed."""
    if duplicates == "first":
        return firsts
    ends: IndexArray = np.append(firsts[1:], count)
    if duplicates == "last":
        return ends - 1
    if duplicates != "latest":
        return None
    if times is None:
        raise BadSetting(
            "duplicates='latest' needs entries with dates; 'last' keeps the last in their order"
        )
    run_of = np.repeat(np.arange(firsts.size), ends - firsts)
    return np.lexsort((times, run_of))[ends - 1]  # stable: the last of equal times is kept


# Column order


def turn_to_columns(by_row: ByRow, shape: tuple[int, int]) -> ByColumn:
    """Return entries in column order.

    Converting CSR to CSC is a counting sort in compiled code; with places as data, it yields the
    permutation.
    """
    index = by_row.columns.dtype
    places = np.arange(by_row.columns.size, dtype=index)
    turned = scipy.sparse.csr_array((places, by_row.columns, by_row.starts), shape=shape).tocsc()
    return ByColumn(
        *(part.astype(index, copy=False) for part in (turned.indptr, turned.indices, turned.data))
    )


def compact(values: ValueArray) -> ValueArray:
    """Return a copy of the values, in single precision where that is exact."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values) else values.copy()
