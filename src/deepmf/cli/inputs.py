"""Files that commands read: entries, pairs, lists of ids and histories, with ids of the same type as the model's.

`-` is standard input everywhere. What a reader guessed or left out goes to standard error, one line per file.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, cast

from deepmf.cli.options import READING, option
from deepmf.cli.output import STANDARD, say
from deepmf.errors import (
    BadEntries,
    BadSetting,
    ConstantValues,
    DuplicateEntries,
    Hint,
    OffScale,
    UnknownLabel,
    UnreadableFile,
    UserError,
    warn,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from deepmf.data.columns import ReadColumns
    from deepmf.data.layout import IsKnown, LineKind
    from deepmf.data.read import ReadNotes, ReadOptions, TextForm
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import Missing, ObservedMatrix
    from deepmf.matrix.scale import Scale
    from deepmf.matrix.sorting import Duplicates
    from deepmf.matrix.table_form import TableForm
    from deepmf.models.base import Model
    from deepmf.models.fold_in import FoldedRows


_SCALE_HINT = Hint("fit with a scale of all levels", "fit with --scale and all levels")
_EXTEND_HINT = Hint("extend adds new rows and columns", "--extend adds new rows and columns")


@dataclass(frozen=True)
class InputOptions:
    """The options of a command about its files of entries; a field given as digits is a position."""

    panel: ClassVar[str] = READING

    row: Annotated[
        str | None, option("--row NAME", "Field of the row ids: name or position from 0; default: detected.")
    ] = None
    column: Annotated[
        str | None, option("--column NAME", "Field of the column ids: name or position; default: detected.")
    ] = None
    value: Annotated[
        str | None, option("--value NAME", "Field of the values: name or position; default: detected.")
    ] = None
    no_values: Annotated[
        bool,
        option("--no-values", "Read interactions without values, such as clicks; default for a file of two fields."),
    ] = False
    count: Annotated[
        str | None, option("--count NAME", "Field that counts interactions, such as plays; implies --no-values.")
    ] = None
    time: Annotated[
        str | None, option("--time NAME", "Field of the times: Unix times or ISO dates; default: detected.")
    ] = None
    weight: Annotated[
        str | None, option("--weight NAME", "Field of the weights of entries, from 1e-6 to 1e6; default: all are 1.")
    ] = None
    separator: Annotated[str | None, option("--separator TEXT", "Field separator; default: detected.")] = None
    duplicates: Annotated[
        str, option("--duplicates error|first|last|latest|mean", "What to do with repeated (row, column) pairs.")
    ] = "error"
    missing: Annotated[str, option("--missing error|drop", "What to do with lines without a value.")] = "error"
    decimal: Annotated[str, option("--decimal .|,", "Decimal mark of the values, read or written.")] = "."
    encoding: Annotated[
        str | None, option("--encoding NAME", "Encoding of text files, such as cp1250; default: detected.")
    ] = None
    form: Annotated[
        str | None,
        option(
            "--form NAME", "What a line of text holds: entries, lists, sequences (in order), inter; default: detected."
        ),
    ] = None
    wide: Annotated[
        bool, option("--wide", "Read a wide table: a line per row, a field per column, gaps where unobserved.")
    ] = False
    exclude_columns: Annotated[
        str | None, option("--exclude-columns NAME,NAME", "Columns of a wide table to leave out, such as age.")
    ] = None
    beside: Any = None  # the `TableForm` that this file belongs to: the same field names need no remark

    @property
    def fields(self) -> dict[str, str | int | None]:
        """The name or position of each field; None where it is to be detected."""
        return {
            role: _parse_field(getattr(self, role)) for role in ("row", "column", "value", "count", "time", "weight")
        }

    @property
    def field_separator(self) -> str | None:
        """The separator, with `\\t` for a tab, which is hard to type in a shell; None where it is to be detected."""
        return "\t" if self.separator == "\\t" else self.separator

    def adapt_to(self, form: TableForm) -> InputOptions:
        """Return the options for a file beside a table; it is read as a wide table if that one is wide, unless set."""
        fields = (self.column, self.value, self.count, self.time, self.weight)
        wide = self.wide or (form.wide and set(fields) == {None} and not self.no_values)
        return replace(self, wide=wide, beside=form)

    def read_matrix(self, path: Path, *, scale: Scale | None = None) -> ObservedMatrix:
        """Read a file of entries, and report what was guessed or left out."""
        from deepmf.data.read import read_entry_file

        with open_input(path) as file:
            matrix, notes = read_entry_file(file, self.for_reader(scale))
        form, beside = matrix.form, self.beside
        guess = None if form.has_names_of(beside) else notes.guess
        time_note = notes.time_note if beside is None or beside.time != form.time else None
        report_reading(path, notes._replace(guess=guess, time_note=time_note), wide=form.wide)
        return matrix

    def for_reader(self, scale: Scale | None) -> ReadOptions:
        """Return the options as `read_entry_file` and `pack_files` take them."""
        from deepmf.data.read import ReadOptions
        from deepmf.matrix.table_form import DETECT

        if self.no_values and self.value is not None:
            raise BadSetting(f"give --value or --no-values, not both; got --value {self.value}")
        if self.count is not None and self.value is not None:
            raise BadSetting(f"give --value or --count, not both; got --value {self.value} and --count {self.count}")
        return ReadOptions(
            row=self.fields["row"],
            column=self.fields["column"],
            value=self.fields["value"] if self.value is not None else None if self.no_values else DETECT,
            count=self.fields["count"],
            time=DETECT if self.time is None else self.fields["time"],
            weight=self.fields["weight"],
            usual_count=None if self.beside is None else self.beside.value,
            separator=self.field_separator,
            scale=scale,
            duplicates=cast("Duplicates", self.duplicates),
            missing=cast("Missing", self.missing),
            decimal=self.decimal,
            encoding=self.encoding,
            form=cast("TextForm | None", self.form),
            wide=self.wide,
            exclude=() if self.exclude_columns is None else tuple(self.exclude_columns.split(",")),
        )

    def read_held_out(self, path: Path, scale: Scale) -> ObservedMatrix:
        """Read entries to predict; values may lie outside an interval, which is only the range seen in training."""
        if scale.levels is not None or scale.is_interactions:
            try:
                return self.read_matrix(path, scale=scale)
            except OffScale as error:
                raise OffScale(error.message, hint=_SCALE_HINT) from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstantValues)  # no model learns from them
            return self.read_matrix(path)

    def read_columns(self, path: Path, kind: LineKind, *, is_known: IsKnown = lambda _: False) -> ReadColumns:
        """Read the fields that lines of a kind need, such as pairs; fields of a text file stay text."""
        from deepmf.data.columns import read_columns
        from deepmf.data.layout import ColumnOptions

        asked, encoding = {name: self.fields[name] for name in kind.roles}, self.encoding
        options = ColumnOptions(asked=asked, separator=self.field_separator, is_known=is_known, encoding=encoding)
        with open_input(path) as file:
            return read_columns(file, kind, options)


def _parse_field(text: str | None) -> str | int | None:
    """Return a position for digits, otherwise the name."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def report_reading(path: Path, notes: ReadNotes, *, wide: bool) -> None:
    """Report on standard error what was guessed about a file, and how many of its lines were dropped."""
    from deepmf.data.lists import LISTS

    guess, n_dropped, _, time_note = notes
    of_fields = "--row, --column and --value, --count or --no-values"
    options = "--row" if wide else "--form" if guess == LISTS else of_fields
    lines = "1 line" if n_dropped == 1 else f"{n_dropped:,} lines"
    remarks = (
        guess and f"{guess} (set {options} to change this)",
        n_dropped and f"dropped {lines} without a value",
        time_note and f"{time_note} (set --time to change this)",
    )
    for remark in filter(None, remarks):
        say(f"deepmf: {name_file(path)}: {remark}", err=True)


def parse_moment(text: str | None) -> int | None:
    """Return the Unix seconds of a time on the command line: ISO text, or Unix seconds as digits."""
    from deepmf.matrix.extras import parse_time

    if text is None:
        return None
    return parse_time(int(text) if text.removeprefix("-").isdecimal() else text)


def name_file(path: Path) -> str:
    """Return the name of a file in messages."""
    return "standard input" if str(path) == STANDARD else str(path)


@contextmanager
def open_input(path: Path) -> Iterator[Path]:
    """Yield the file to read; for `-` or a pipe, such as <(command), a temporary copy of its content."""
    is_pipe = str(path) != STANDARD and path.is_fifo()
    if str(path) != STANDARD and not is_pipe:
        yield path
        return
    from deepmf.files import temporary_folder

    with temporary_folder(Path(gettempdir())) as folder:
        file = folder / (path.name if is_pipe else name_file(path))
        if is_pipe:
            with path.open("rb") as pipe, file.open("wb") as opened:
                shutil.copyfileobj(pipe, opened)
        else:
            _copy_standard_input(file)
        try:
            yield file
        except UserError as error:  # readers name the copy by its path
            raise type(error)(error.message.replace(f"{folder}{os.sep}", ""), hint=error.hint) from error


def _copy_standard_input(file: Path) -> None:
    if sys.stdin is None:
        raise UnreadableFile("standard input is closed")
    try:
        with file.open("wb") as opened:
            shutil.copyfileobj(sys.stdin.buffer, opened)
    except OSError as error:
        raise UnreadableFile(f"standard input cannot be copied to {file.parent} ({error.strerror})") from error
    if file.stat().st_size == 0:
        raise UnreadableFile("standard input is empty (a command reads it only once)")


@contextmanager
def locate_errors(path: Path) -> Iterator[None]:
    """Put the name of a file in front of the errors about its content."""
    try:
        yield
    except UserError as error:
        raise error.locate(name_file(path)) from error


@contextmanager
def hint_at_extension(path: Path | None = None) -> Iterator[None]:
    """Add to an unknown id the hint that `--extend` would make it known; with a file, also where it is."""
    try:
        yield
    except UnknownLabel as error:
        from deepmf.evaluation.areas import UNKNOWN_HINT

        where = "" if path is None else f"{name_file(path)}: "
        hint = _EXTEND_HINT if path is None else UNKNOWN_HINT
        raise UnknownLabel(f"{where}{error.message}", hint=hint) from error


# Ids: a file of digits alone reads as ints, although the model's labels may be texts, and the other way round.


def convert_label(text: str, known: Labels) -> Any:
    """Return an id from the command line as a label of the model's type."""
    from deepmf.data.delimited import is_number, is_whole

    kind = type(known[:1].tolist()[0]) if len(known) else str
    if kind is str or (kind is int and is_whole(text)) or (kind is float and is_number(text)):
        return kind(text)
    raise UnknownLabel(f"{known.axis} {text!r} is not known; the model's {known.axis}s are {kind.__name__}s")


def convert_labels(matrix: ObservedMatrix, rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> ObservedMatrix:
    """Return the matrix with int labels as texts, where the known labels are texts."""
    return _relabel(matrix, _int_to_text(matrix.row_labels, rows), _int_to_text(matrix.column_labels, columns))


def convert_held_out(
    matrix: ObservedMatrix, rows: npt.NDArray[Any], columns: npt.NDArray[Any], path: Path, *, unknown: str
) -> ObservedMatrix:
    """Return the matrix with labels of the known type: numbers too, where a single text made all of them texts."""
    import polars

    matrix = convert_labels(matrix, rows, columns)
    converted = []
    for axis, labels, known in (("row", matrix.row_labels, rows), ("column", matrix.column_labels, columns)):
        are_texts = labels.dtype.kind == "O" and labels.size > 0 and isinstance(labels[0], str)
        if are_texts and not (known.size and isinstance(known[0], str)):
            ids = convert_ids(polars.Series(labels.tolist()), known, name_file(path), axis=axis, unknown=unknown)
            converted.append(ids.labels)
        else:
            converted.append(labels)
    return _relabel(matrix, *converted)


class Ids(NamedTuple):
    """The ids of one field of a file.

    labels: ids of the model's type.
    shown: ids as they are written, typed as in the file.
    """

    labels: npt.NDArray[Any]
    shown: pl.Series


def convert_ids(ids: pl.Series, known: npt.NDArray[Any], source: str, *, axis: str, unknown: str) -> Ids:
    """Return ids as labels of the model's type.

    An id that cannot be converted is unknown: an error, or a label that no row or column of the model has.
    """
    import numpy as np
    import polars

    from deepmf.data.delimited import parse_whole_numbers

    if ids.null_count():
        raise BadEntries(f"{source}: pair {ids.is_null().arg_max()} has no {axis} id")
    try:
        texts = ids.cast(polars.String)
    except polars.exceptions.PolarsError as error:
        raise BadEntries(f"{source}: the {axis} ids are of type {ids.dtype}; ints or texts are needed") from error
    plain = np.array(texts.to_list(), dtype=object)
    typed = texts if ids.dtype == polars.String else ids
    if known.size == 0 or isinstance(known[0], str):
        return Ids(plain, typed)
    is_whole = known.dtype.kind == "i"
    numbers = parse_whole_numbers(texts) if is_whole else texts.cast(polars.Float64, strict=False)
    wrong = numbers.is_null()
    if not wrong.any():
        return Ids(numbers.to_numpy(), numbers if typed is texts else ids)
    if unknown == "error":
        n_more = texts.filter(wrong).n_unique() - 1
        more = f" (and {n_more} more)" if n_more else ""
        kind = "whole numbers" if is_whole else "numbers"
        raise UnknownLabel(f"{axis} {texts.filter(wrong)[0]!r} is not known{more}; the model's {axis}s are {kind}")
    lowest = min([*numbers.filter(~wrong).to_list(), *known.tolist()])
    unused = lowest - texts.rank("dense").cast(numbers.dtype)  # lower than every known label
    return Ids(polars.select(polars.when(wrong).then(unused).otherwise(numbers)).to_series().to_numpy(), typed)


def _int_to_text(labels: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import numpy as np

    if labels.dtype.kind != "i" or known.size == 0 or not isinstance(known[0], str):
        return labels
    return np.array([str(label) for label in labels.tolist()], dtype=object)


def _relabel(matrix: ObservedMatrix, rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> ObservedMatrix:
    from deepmf.matrix.labels import Labelled, Labels
    from deepmf.matrix.matrix import ObservedMatrix

    if rows is matrix.row_labels and columns is matrix.column_labels:
        return matrix
    return ObservedMatrix.from_positions(
        Labelled(Labels(rows, axis="row"), matrix.entry_rows),
        Labelled(Labels(columns, axis="column"), matrix.by_row.columns),
        matrix.entries().values,
        scale=matrix.scale,
        form=matrix.form,
        extras=matrix.extras,
    )


# Pairs to predict, and lists of rows or columns


class Pairs(NamedTuple):
    """Rows and columns of one length, and the names of their fields (None: the file has no header)."""

    rows: Ids
    columns: Ids
    names: tuple[str, str] | None

    @property
    def labels(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Row labels and column labels, as `predict` takes them."""
        return self.rows.labels, self.columns.labels


def read_pairs(path: Path, model: Model, reading: InputOptions, *, unknown: str = "error") -> Pairs:
    """Read pairs of a row and a column; a first line with an id that the model knows is not a header."""
    from deepmf.data.layout import PAIRS

    seen = model.entries_
    read = reading.read_columns(path, PAIRS, is_known=lambda field: field in seen.rows or field in seen.columns)
    rows, columns = read.frame.get_columns()
    if read.choice.remark is not None and (rows.name, columns.name) != seen.train.form[:2]:
        say(f"deepmf: {name_file(path)}: {read.choice.remark} (set --row and --column to change this)", err=True)
    return Pairs(
        convert_ids(rows, model.row_labels_, name_file(path), axis="row", unknown=unknown),
        convert_ids(columns, model.column_labels_, name_file(path), axis="column", unknown=unknown),
        (rows.name, columns.name) if read.choice.has_names else None,
    )


def read_list(path: Path, labels: Labels, reading: InputOptions) -> npt.NDArray[Any]:
    """Read rows, or columns, that the model knows, one per line; further fields are ignored."""
    from deepmf.data.layout import COLUMNS, ROWS

    kind = ROWS if labels.axis == "row" else COLUMNS
    known = {str(label) for label in labels.array.tolist()}
    frame = reading.read_columns(path, kind, is_known=lambda field: field in known).frame
    with locate_errors(path):
        ids = convert_ids(frame.to_series(), labels.array, name_file(path), axis=labels.axis, unknown="error")
        labels.positions(ids.labels)
    return ids.labels


# Pairs whose row or column is unknown

_UNKNOWN_OUTCOMES = {"nan": "have no prediction", "fallback": "are predicted by the means"}


def warn_unknown(model: Model, path: Path, rows: npt.NDArray[Any], columns: npt.NDArray[Any], unknown: str) -> int:
    """Warn of the pairs of a file whose row or column the model does not know, and return their number."""
    import numpy as np

    from deepmf.formatting import format_quantity
    from deepmf.matrix.labels import count_distinct

    new_rows, new_columns = model.entries_.rows.find(rows) < 0, model.entries_.columns.find(columns) < 0
    n_pairs = int(np.count_nonzero(new_rows | new_columns))
    if n_pairs:
        counts = {"row": count_distinct(rows[new_rows]), "column": count_distinct(columns[new_columns])}
        named = " and ".join(format_quantity(count, axis) for axis, count in counts.items() if count)
        outcome = _UNKNOWN_OUTCOMES[unknown] if model.entries_.train.has_values else "are not ranked"
        warn(f"{name_file(path)}: the model does not know {named}; {n_pairs:,} of {rows.size:,} pairs {outcome}")
    return n_pairs


_NAMED_AT_MOST = 5


def check_one_row(row: str | None, history: Path | None, features: str | None) -> None:
    """Refuse a known row together with a new one, and a call without either."""
    if (row is None) == (history is None and features is None):
        raise BadSetting("give either --row ID for a known row, or --history FILE or --features for a new one")


def fold_in_row(
    model: Model, history: Path | None, features: dict[str, str] | None, reading: InputOptions | None = None
) -> FoldedRows:
    """Return the new row that a history, features or both describe; unknown columns are left out with a warning."""
    read = _read_interactions if model.scale_.is_interactions else _read_values
    entries = {} if history is None else read(history, model, reading or InputOptions())
    return model.fold_in(list(entries), list(entries.values()), ordered=True, features=features)


def _read_interactions(path: Path, model: Model, reading: InputOptions) -> dict[Any, float]:
    """Read the columns of a new row, one per line, and how often each occurs; further fields are ignored."""
    from collections import Counter

    from deepmf.data.layout import COLUMNS

    known = {str(label): label for label in model.column_labels_.tolist()}
    columns = reading.read_columns(path, COLUMNS, is_known=lambda field: field in known).frame.to_series()
    counts = Counter(map(str, columns.to_list()))
    _report_unknown([column for column in counts if column not in known], len(counts), name_file(path))
    latest = reversed(dict.fromkeys(map(str, reversed(columns.to_list()))))  # a repeated column has its last place
    return {known[column]: float(counts[column]) for column in latest if column in known}


def _read_values(path: Path, model: Model, reading: InputOptions) -> dict[Any, float]:
    from deepmf.data.layout import HISTORY

    frame, source = reading.read_columns(path, HISTORY).frame, name_file(path)
    known = {str(label): label for label in model.column_labels_.tolist()}
    values: dict[Any, float] = {}
    unknown = []
    for column, text in frame.iter_rows():
        if column is None or text is None:
            raise BadEntries(f"{source}: each line needs a column and a value; one has {column!r} and {text!r}")
        value = _parse_value(text, column, source, model)
        if str(column) not in known:
            unknown.append(column)
        elif known[str(column)] in values:
            raise DuplicateEntries(f"{source}: column {column!r} occurs twice")
        else:
            values[known[str(column)]] = value
    _report_unknown(unknown, len(unknown) + len(values), source)
    return values


def _report_unknown(unknown: list[Any], n_all: int, source: str) -> None:
    """Warn of the columns of a history that the model does not know; refuse a history of these alone."""
    shown = ", ".join(map(repr, unknown[:_NAMED_AT_MOST])) + (", ..." if len(unknown) > _NAMED_AT_MOST else "")
    if len(unknown) == n_all:
        raise UnknownLabel(f"{source}: the model knows none of the {len(unknown)} columns: {shown}")
    if unknown:
        warn(f"{source}: the model does not know {len(unknown)} of the columns, which are left out: {shown}")


def _parse_value(text: Any, column: Any, source: str, model: Model) -> float:
    from deepmf.data.delimited import is_number

    if not (is_number(text) if isinstance(text, str) else isinstance(text, int | float | Decimal)):
        raise BadEntries(f"{source}: column {column!r} has the value {text!r}, which is not a number")
    value = float(text)
    if not model.scale_.holds(value):
        raise OffScale(f"{source}: column {column!r} has the value {value:g}; the scale is {model.scale_}")
    return value
