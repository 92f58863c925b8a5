"""Conversion between entries and frames of any library (pandas, polars, arrow, ...), through
narwhals."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from deepmf.errors import BadEntries, BadFeatures, GuessedColumns, Hint, show_value, warn
from deepmf.files import narwhals as nw, polars
from deepmf.formatting import format_quantity
from deepmf.matrix.arrays import Array, BoolArray, FloatArray, IndexArray, ValueArray, to_numbers
from deepmf.matrix.column_roles import (
    MANY_COLUMNS,
    VALUE_HINT,
    Asked,
    Content,
    are_times,
    choose_columns,
    choose_label,
    describe_roles,
    find_column,
    has_usual_names,
    looks_like_ids,
)
from deepmf.matrix.extras import (
    NO_TIME,
    Extras,
    ParsedTimes,
    TimeArray,
    check_time_range,
    check_weights,
    parse_times,
)
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import compact
from deepmf.matrix.table_form import COUNT, DETECT, TableForm, ValueColumn

MISSING_HINT = Hint("missing='drop' leaves them out", "--missing drop leaves them out")

NAME_COLUMNS = "set row=, column= and value= (or count=) to choose"

N_LOOKED_AT = 200  # lines of a table
NEEDED = ("row", "column", "value", "count")  # the roles that no line may lack
_DATE = re.compile(r"\s*\d{4}-\d{2}-\d{2}([T ]|\s*$)|\s*\d{1,2}[./]\d{1,2}[./]\d{2,4}\b")

_FEWEST_ALIKE = 3  # columns with values alike, which show the levels of all


class LongEntries(NamedTuple):
    """The entries of a long table in the order of its lines, before repeated ones are merged.

    numbers: values, or counts of interactions.
    """

    rows: Labelled
    columns: Labelled
    numbers: ValueArray
    extras: Extras
    form: TableForm
    are_interactions: bool


class KeptLines(NamedTuple):
    """The lines of a long table that are entries, their places among all lines, and the number of
    lines that were dropped because of a gap."""

    table: nw.DataFrame[Any]
    places: range | IndexArray
    n_dropped: int = 0


def read_long_frame(
    frame: Any, asked: Asked, *, value: ValueColumn, time: ValueColumn, missing: str
) -> LongEntries:
    """Read the columns of a long frame that hold rows, columns, and values or counts of
    interactions; warn of a guess that may be wrong.

    asked: names or positions of columns by role: row, column, count and weight.
    """
    table = _collect(frame)
    head = table.head(N_LOOKED_AT)
    if asked["column"] is None and value is DETECT and asked["count"] is None:
        refuse_wide_frame(head, has_index=_has_row_labels(frame))
    choice = choose_columns(table.columns, asked, value=value, time=time, content=look_at(head))
    names = choice.columns
    if choice.is_uncertain:
        words = {role: repr(name) for role, name in names.items() if role in NEEDED}
        warn(f"{describe_roles(words)}; {NAME_COLUMNS}", GuessedColumns)
    return gather_entries(keep_lines(table, names, missing).table, names)


def keep_lines(
    table: nw.DataFrame[Any], names: Mapping[str, str], missing: str, *, doubt: str = ""
) -> KeptLines:
    """Drop the lines with a gap, or refuse them, and those of weight 0.

    names: the columns by role. doubt: which column was taken for which role, if that was guessed.
    """
    gaps = {role: _find_gaps(table.get_column(names[role])) for role in names if role in NEEDED}
    is_gap = reduce(np.logical_or, gaps.values(), np.zeros(len(table), dtype=bool))
    n_dropped = int(np.count_nonzero(is_gap))
    if n_dropped and missing == "error":
        position = int(np.argmax(is_gap))
        role = [role for role, gap in gaps.items() if gap.size > 1 and gap[position]][-1]
        noun = {"row": "row id", "column": "column id"}.get(role, "value")
        message = f"the {noun} is missing, as in {n_dropped:,} of {len(table):,} lines"
        if noun == "value" and doubt:
            raise BadEntries(f"{message} ({doubt})", position=position, hint=VALUE_HINT)
        raise BadEntries(message, position=position, hint=MISSING_HINT)
    is_kept = ~is_gap
    if "weight" in names and are_numbers(weights := table.get_column(names["weight"])):
        is_kept &= _to_numpy(weights) != 0
    if is_kept.all():
        return KeptLines(table, range(len(table)))
    return KeptLines(table.filter(is_kept.tolist()), np.flatnonzero(is_kept), n_dropped)


def _find_gaps(series: nw.Series[Any]) -> BoolArray:
    """Return whether each item of a column is null or NaN."""
    gaps = series.is_null()
    if series.dtype.is_float():
        gaps = gaps | series.is_nan()
    return gaps.to_numpy() if gaps.any() else np.zeros(1, dtype=bool)


def gather_entries(
    table: nw.DataFrame[Any],
    names: Mapping[str, str],
    convert: Mapping[str, Callable[[polars.Series], polars.Series]] = MappingProxyType({}),
) -> LongEntries:
    """Gather the entries of a long table without gaps.

    names: the columns by role. convert: what makes labels of the distinct texts of an axis.
    """
    columns = {role: table.get_column(name) for role, name in names.items()}
    seconds = time_type = weights = None
    if "weight" in columns:
        weights = check_weights(_read_numbers(columns["weight"], "weight"), len(table))
    if "time" in columns:
        seconds, time_type = _read_times(columns["time"])
    numbers = [_read_numbers(columns[role]) for role in ("value", "count") if role in columns]
    with ThreadPoolExecutor(2) as pool:  # numpy and polars release the interpreter lock
        row_ids, column_ids = pool.map(
            lambda axis: gather_ids(columns[axis], axis=axis, convert=convert.get(axis)),
            ("row", "column"),
        )
        return LongEntries(
            row_ids,
            column_ids,
            numbers=compact(to_numbers(*numbers) if numbers else np.ones(len(table))),
            extras=Extras(seconds, weights),
            form=TableForm.of_roles({role: str(name) for role, name in names.items()}, time_type),
            are_interactions="value" not in names,
        )


def _read_times(series: nw.Series[Any]) -> ParsedTimes:
    """Return the times of a column as Unix seconds; nulls are entries without a date."""
    if not isinstance(series.dtype, nw.Datetime | nw.Date):
        try:
            return parse_times(series.to_numpy() if series.dtype.is_numeric() else series.to_list())
        except BadEntries as error:
            message = f"column {series.name!r}: {error.message}"
            raise BadEntries(message, position=error.position) from error
    # unlike a cast, this reads moments that Python cannot hold
    milliseconds = series.dt.timestamp("ms").fill_null(NO_TIME).to_numpy()
    is_gap = milliseconds == NO_TIME
    seconds = np.where(is_gap, NO_TIME, milliseconds // 1000)
    check_time_range(seconds, lambda at: f"{milliseconds[at]} (milliseconds)")
    if isinstance(series.dtype, nw.Date):
        return ParsedTimes(seconds, "date")
    has_zone = series.dtype.time_zone is not None
    return ParsedTimes(seconds, "datetime_utc" if has_zone else "datetime")


def _read_numbers(series: nw.Series[Any], noun: str = "value") -> Array:
    """Return the numbers of a column, of which none may be missing."""
    if not are_numbers(series):
        raise BadEntries(
            f"column {series.name!r} holds {noun}s of type {name_type(series)}; numbers are needed"
        )
    _check_no_null(series, f"the {noun}")
    return _to_numpy(series)


def name_type(series: nw.Series[Any]) -> str:
    """Return the type of a column for a message, in the words of its library."""
    return str(getattr(series.to_native(), "dtype", series.dtype))


def look_at(head: nw.DataFrame[Any], *, has_names: bool = True) -> Content:
    """Return what the types and the first lines of a table show about its columns."""
    times: set[str] = set()
    texts: set[str] = set()
    unread: dict[str, str] = {}
    for name in head.columns:
        series = head.get_column(name).drop_nulls()
        if series.dtype.is_temporal() or (are_numbers(series) and are_times(_to_numpy(series))):
            times.add(name)
        elif len(series) and not are_numbers(series):
            items = series.to_list()
            (times if all(map(_is_date, items)) else texts).add(name)
            if name in times:
                try:
                    parse_times(items)
                except BadEntries:
                    unread[name] = items[0]
    return Content(has_names, frozenset(times), frozenset(texts), unread)


def _is_date(item: object) -> bool:
    return isinstance(item, str) and _DATE.match(item) is not None


def refuse_wide_frame(head: nw.DataFrame[Any], *, has_index: bool) -> None:
    """Refuse a frame with a line per row, whose first columns would pass for entries."""
    names = head.columns
    columns = names if has_index else names[1:]
    numbers = [name for name in columns if are_numbers(head.get_column(name))]
    if len(columns) < 3 or not may_be_wide(head, names[: len(names) - len(columns)]):
        return
    if len(numbers) >= MANY_COLUMNS or (has_index and len(numbers) == len(columns)):
        shown = ", ".join(map(repr, names[:3]))
        raise BadEntries(
            f"the frame looks like a wide one, with a line per row and a column per column ({len(names)} columns: "
            f"{shown}, ...); from_table reads it, and row=, column= and value= name the columns of a long one"
        )


def may_be_wide(head: nw.DataFrame[Any], ids: Sequence[str]) -> bool:
    """Whether a table may have a line per row: its ids differ, and no columns are named like those
    of entries."""
    if any(has_usual_names(head.columns, ["column", role]) for role in ("row", "value")):
        return False
    return all(head.get_column(name).n_unique() == len(head) for name in ids)


def refuse_long_frame(names: Sequence[Any]) -> None:
    """Refuse a frame with a line per entry, or with ids among its values, whose columns would pass
    for a wide one."""
    if any(has_usual_names(names, ["column", role]) for role in ("row", "value")):
        shown = ", ".join(map(repr, names[:3]))
        raise BadEntries(
            f"the frame looks like a long one, with a line per entry (columns {shown}); from_frame reads it"
        )
    first = names[0] if len(names) else ""
    if looks_like_ids(first):
        raise BadEntries(
            f"the first column, {first!r}, looks like row ids; row={first!r} takes them, and another name makes it a "
            "column of values"
        )


def _has_row_labels(frame: Any) -> bool:
    """Whether a pandas frame has an index of labels, and not of positions that a filter left."""
    index = getattr(frame, "index", None)
    kind = str(getattr(index, "dtype", ""))
    return index is not None and (index.name is not None or kind in ("object", "str", "string"))


def are_numbers(series: nw.Series[Any]) -> bool:
    return series.dtype.is_numeric() or str(series.dtype) == "Boolean"


def refuse_off_scale_columns(array: FloatArray, labels: Sequence[Any]) -> None:
    """Refuse columns far beyond the few levels that most columns share, such as ages beside answers
    from 1 to 6."""
    filled = np.flatnonzero(~np.isnan(array).all(axis=0))
    if filled.size <= _FEWEST_ALIKE:
        return
    lows = np.nanmin(array[:, filled], axis=0)
    highs = np.nanmax(array[:, filled], axis=0)
    low = np.median(lows)
    high = np.median(highs)
    reach = max(high - low, 1.0)
    off = (lows < low - reach) | (highs > high + reach)
    alike = filled[(lows >= low - reach / 2) & (highs <= high + reach / 2)]
    halves = 2 * array[:N_LOOKED_AT, alike]
    are_levels = reach <= 20 and bool(np.all((halves % 1 == 0) | np.isnan(halves)))
    if not off.any() or not are_levels or alike.size < max(_FEWEST_ALIKE, 0.6 * filled.size):
        return
    named = [labels[at] for at in filled[off]]
    shown = ", ".join(map(repr, named[:5])) + (", ..." if len(named) > 5 else "")
    worst = int(np.flatnonzero(off)[0])
    raise BadEntries(
        f"most columns have values from {low:g} to {high:g}, and {format_quantity(len(named), 'column')} "
        f"other ones: {shown} ({named[0]!r} from {lows[worst]:g} to {highs[worst]:g})",
        hint=Hint(
            f"exclude={named[:5]!r} leaves them out, scale=Scale(low=..., high=...) keeps them",
            f"--exclude-columns {','.join(map(str, named[:5]))} leaves them out, --scale LOW:HIGH keeps them",
        ),
    )


def warn_of_codes(array: FloatArray) -> None:
    """Warn of a value that may stand for a missing one, such as 99 beside ratings from -10 to 10.

    It is the lowest or the highest, lies further from the others than three times their range, and
    is in most columns.
    """
    numbers = array[np.isfinite(array)]
    for code in (numbers.min(), numbers.max()) if numbers.size else ():
        are_coded = array == code
        remaining = numbers[numbers != code]
        if remaining.size and np.mean(are_coded.any(axis=0)) > 0.5 and is_far(code, remaining):
            share = np.count_nonzero(are_coded) / numbers.size
            warn(
                f"{share:.1%} of the values are {code:g}, and all others lie between {remaining.min():g} and "
                f"{remaining.max():g}; if {code:g} stands for a missing value, leave these cells empty"
            )


def is_far(code: float, others: FloatArray) -> bool:
    """Return whether a value lies so far from others that it may be a code: -99 does from all that
    are positive."""
    low = others.min()
    high = others.max()
    if code < -9 and low >= 0 and set(f"{-code:g}") == {"9"}:
        return True
    return bool(max(low - code, code - high) > 3 * (high - low) > 0)


def check_excluded(names: Sequence[Any], exclude: Collection[Any]) -> None:
    """Refuse to leave out a column that a table does not have."""
    absent = [name for name in exclude if name not in names]
    if absent:
        raise BadEntries(
            f"there is no column {show_value(absent[0])} to leave out; there are {', '.join(map(repr, names))}"
        )


def read_wide_frame(
    frame: Any, *, row: str | None, exclude: Collection[Any] = ()
) -> tuple[FloatArray, list[Any] | None, list[Any]]:
    """Read a wide frame without some columns: its values, NaN where one is missing, its row labels
    (None: 0, 1, 2, ...) and its column labels."""
    table = _collect(frame)
    check_excluded(table.columns, exclude)
    table = table.drop(*exclude)
    if row is None:
        refuse_long_frame(table.columns)
    labels = None
    if row is not None:
        labels = table.get_column(find_column(table.columns, row, "row")).to_list()
        table = table.drop(row)
    elif (index := getattr(frame, "index", None)) is not None:
        labels = index.tolist()
    for name in table.columns:
        if not are_numbers(series := table.get_column(name)):
            raise BadEntries(
                f"column {name!r} holds values of type {name_type(series)}; numbers are needed (or row={name!r})"
            )
    columns = [_to_numpy(table.get_column(name)).astype(np.float64) for name in table.columns]
    array = np.column_stack([np.empty((len(table), 0)), *columns])
    return array, labels, list(table.columns)


def read_feature_columns(frame: Any, label: str | None) -> tuple[list[Any], dict[str, Any]]:
    """Return the labels of a frame of features, and the values of all other columns by name.

    Without `label`, the labels are in a column with a usual name, or in the first.
    """
    try:
        index = getattr(frame, "index", None)
        if (
            label is not None
            and getattr(index, "name", None) == label
            and label not in frame.columns
        ):
            frame = frame.reset_index()
        table = _collect(frame)
        labels = table.get_column(choose_label(table.columns, label))
        _check_no_null(labels, "the label")
    except BadEntries as error:
        raise BadFeatures(f"the frame of features is wrong: {error}") from error
    columns: dict[str, Any] = {}
    for name in table.columns:
        if name == labels.name:
            continue
        series = table.get_column(name)
        plain = series.dtype.is_integer() or series.dtype.is_float()
        plain = plain and not _is_beyond_numpy(series) and not series.null_count()
        columns[name] = series.to_numpy() if plain else series.to_list()
    return labels.to_list(), columns


def build_long_frame(matrix: Any) -> polars.DataFrame:
    """Return the entries of a matrix as a long polars frame, those of a row in their order.

    Counts of interactions that came without a column of counts are left out if all of them are 1.
    """
    form = matrix.form
    columns = [
        build_label_series(matrix.row_labels).gather(matrix.entry_rows),
        build_label_series(matrix.column_labels).gather(matrix.by_row.columns),
        build_value_series(matrix.values, matrix.scale),
    ]
    if not matrix.has_values and form.value == COUNT and np.all(matrix.values == 1):
        del columns[2]
    frame = polars.DataFrame(dict(zip(form.names, columns, strict=False)))
    frame = frame.with_columns(build_extra_series(matrix.extras, form))
    if matrix.extras.places is not None:
        # only the order of the lines tells which of the same time is the last
        frame = frame[matrix.extras.sort_within(matrix.entry_rows)]
    return frame


def build_extra_series(extras: Extras, form: TableForm) -> list[polars.Series]:
    """Return the times and the weights as polars series, those of them that there are."""
    time, weight = form.name_extras()
    series = (
        []
        if extras.times is None
        else [build_time_series(extras.times, form.time_type).alias(time)]
    )
    if extras.weights is not None:
        series.append(polars.Series(weight, extras.weights.astype(np.float64)))
    return series


def build_time_series(times: TimeArray, kind: str | None) -> polars.Series:
    """Return Unix seconds as a polars series of one of `TIME_TYPES`, null for an entry without a
    date."""
    seconds = polars.Series(times).set(polars.Series(times == NO_TIME), None)
    if kind in (None, "seconds"):
        return seconds
    milliseconds = seconds * 1000
    if kind == "milliseconds":
        return milliseconds
    moments = milliseconds.cast(polars.Datetime("ms", "UTC" if kind == "datetime_utc" else None))
    return moments.cast(polars.Date) if kind == "date" else moments


def build_wide_frame(matrix: Any) -> polars.DataFrame:
    """Return a matrix as a wide polars frame, with row labels in its first column."""
    columns = [build_label_series(matrix.row_labels)]
    columns += [build_value_series(column, matrix.scale) for column in matrix.to_array().T]
    names = name_wide_columns(matrix.form.row, matrix.column_labels)
    return polars.DataFrame(dict(zip(names, columns, strict=True)))


def name_wide_columns(row: str, columns: Array) -> list[str]:
    """Return the column names of a wide table: the name of row ids, then all column labels as
    text."""
    names = [row, *map(str, columns.tolist())]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadEntries(
            f"a wide table would have two columns called {twice!r}; write a long table instead"
        )
    return names


def build_label_series(labels: Array) -> polars.Series:
    """Return labels as a polars series; labels of a type that polars lacks become text."""
    items = labels.tolist()
    series = polars.Series(items, dtype=None if items else polars.String)
    return polars.Series(list(map(str, items))) if series.dtype == polars.Object else series


def build_value_series(values: Array, scale: Scale) -> polars.Series:
    """Return values as a polars series with null for NaN; integers if all levels, or all counts,
    are integers."""
    series = polars.Series(values.astype(np.float64)).fill_nan(None)
    is_whole = scale.is_whole or (
        scale.is_interactions and bool(np.all((values % 1 == 0) | np.isnan(values)))
    )
    fits = is_whole and (
        values.size == 0 or float(np.nanmax(np.abs(values), initial=0.0)) < 2.0**63
    )
    return series.cast(polars.Int64) if fits else series


def _collect(frame: Any) -> nw.DataFrame[Any]:
    try:
        table = nw.from_native(frame)
        names = table.collect_schema().names()
    except TypeError as error:
        raise BadEntries(
            f"a frame (pandas, polars, arrow, ...) is needed; got {type(frame).__name__}"
        ) from error
    except nw.exceptions.DuplicateError as error:
        raise BadEntries("the frame has columns of the same name; rename or drop them") from error
    if len(set(names)) < len(names):
        raise BadEntries("the frame has columns of the same name; rename or drop them")
    return table.collect() if isinstance(table, nw.LazyFrame) else table


def _check_no_null(series: nw.Series[Any], what: str, hint: Hint | None = None) -> None:
    if series.null_count():
        position = int(series.is_null().arg_true()[0])
        raise BadEntries(f"{what} is missing", position=position, hint=hint)


def gather_ids(
    series: nw.Series[Any],
    *,
    axis: str,
    convert: Callable[[polars.Series], polars.Series] | None = None,
) -> Labelled:
    """Return the distinct ids of a column, sorted, and the position of each id among them.

    convert: what makes labels of the distinct texts.
    """
    if series.implementation.is_polars() and str(series.dtype) in ("String", "Categorical"):
        # no Python string for each entry
        ids = series.to_native()
        if ids.dtype == polars.String:
            ids = ids.cast(polars.Categorical(polars.Categories.random()))
        distinct = ids.unique()
        labels = distinct.cast(polars.String)
        labels = labels if convert is None else convert(labels)
        order = labels.arg_sort()
        codes = distinct.to_physical().gather(order).to_numpy()
        position_of = np.empty(int(codes.max(initial=0)) + 1, dtype=np.int32)
        position_of[codes] = np.arange(codes.size)
        positions = position_of[ids.to_physical().to_numpy()]
        return Labelled(Labels(labels.gather(order).to_list(), axis=axis), positions)
    plain = series.dtype.is_integer() and not _is_beyond_numpy(series)
    return Labels.gather(series.to_numpy() if plain else series.to_list(), axis=axis)


def _to_numpy(series: nw.Series[Any]) -> Array:

    return (series.cast(nw.Float64) if _is_beyond_numpy(series) else series).to_numpy()


def _is_beyond_numpy(series: nw.Series[Any]) -> bool:
    """Whether a column holds 128-bit integers, which numpy lacks."""
    return str(series.dtype) in ("Int128", "UInt128")
