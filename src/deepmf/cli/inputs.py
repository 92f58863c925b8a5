"""Files that commands read: entries, pairs, lists of ids and histories, with ids of the same type
as the model's.

`-` is standard input everywhere. What a reader guessed or left out goes to standard error, one line
per file.
"""

from __future__ import annotations

import os
import re
import reprlib
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from deepmf.cli.options import READING, offer
from deepmf.cli.output import STANDARD, say
from deepmf.data.delimited import parse_ids, parse_numbers, parse_whole_numbers
from deepmf.errors import (
    BadEntries,
    BadSetting,
    ConstantValues,
    Hint,
    OffScale,
    UnknownLabel,
    UnreadableFile,
    UserError,
    warn,
)
from deepmf.files import polars
from deepmf.matrix.table_form import DETECT, TableForm

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepmf.data.columns import ReadColumns
    from deepmf.data.layout import IsKnown, LineKind
    from deepmf.data.read import ReadNotes, ReadOptions
    from deepmf.matrix.entries import EntryStore
    from deepmf.matrix.labels import Labels
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.matrix.scale import Scale
    from deepmf.models.base import Model
    from deepmf.models.fold_in import FoldedRows

_SCALE_HINT = Hint("fit with a scale of all levels", "fit with --scale and all levels")
_EXTEND_HINT = Hint("extend adds new rows and columns", "--extend adds new rows and columns")


@dataclass(frozen=True)
class InputOptions:
    """The options of a command about its files of entries; a field given as digits is a
    position."""

    panel: ClassVar[str] = READING

    row: str | None = offer(
        "--row NAME", "Field of the row ids: name or position from 0; default: detected."
    )
    column: str | None = offer(
        "--column NAME", "Field of the column ids: name or position; default: detected."
    )
    value: str | None = offer(
        "--value NAME", "Field of the values: name or position; default: detected."
    )
    no_values: bool = offer(
        "--no-values",
        "Read interactions without values, such as clicks; default for a file of two fields.",
        False,
    )
    count: str | None = offer(
        "--count NAME", "Field that counts interactions, such as plays; implies --no-values."
    )
    time: str | None = offer(
        "--time NAME", "Field of the times: Unix times or ISO dates; default: detected."
    )
    weight: str | None = offer(
        "--weight NAME", "Field of the weights of entries, from 1e-6 to 1e6; default: all are 1."
    )
    separator: str | None = offer("--separator TEXT", "Field separator; default: detected.")
    duplicates: str = offer(
        "--duplicates error|first|last|latest|mean",
        "What to do with repeated (row, column) pairs.",
        "error",
    )
    missing: str = offer("--missing error|drop", "What to do with lines without a value.", "error")
    decimal: str = offer("--decimal .|,", "Decimal mark of the values, read or written.", ".")
    encoding: str | None = offer(
        "--encoding NAME", "Encoding of text files, such as cp1250; default: detected."
    )
    form: str | None = offer(
        "--form NAME",
        "What a line of text holds: entries, lists, sequences (in order), inter; default: detected.",
    )
    wide: bool = offer(
        "--wide",
        "Read a wide table: a line per row, a field per column, gaps where unobserved.",
        False,
    )
    exclude_columns: str | None = offer(
        "--exclude-columns NAME,NAME", "Columns of a wide table to leave out, such as age."
    )
    # the `TableForm` that this file belongs to: the same field names need no remark
    beside: Any = None

    @property
    def fields(self) -> dict[str, str | int | None]:
        """The name or position, which is given as digits, of each field; None where it is to be
        detected."""
        fields: dict[str, str | int | None] = {
            role: getattr(self, role)
            for role in ("row", "column", "value", "count", "time", "weight")
        }
        positions = {
            role: int(name)
            for role, name in fields.items()
            if isinstance(name, str) and name.isascii() and name.isdigit()
        }
        return fields | positions

    @property
    def field_separator(self) -> str | None:
        """The separator, with `\\t` for a tab, which is hard to type in a shell; None where it is
        to be detected."""
        return "\t" if self.separator == "\\t" else self.separator

    def adapt_to(self, form: TableForm) -> InputOptions:
        """Return the options for a file beside a table; it is read as a wide table if that one is
        wide, unless set."""
        fields = (self.column, self.value, self.count, self.time, self.weight)
        wide = self.wide or (form.wide and set(fields) == {None} and not self.no_values)
        return replace(self, wide=wide, beside=form)

    def read_matrix(self, path: Path, *, scale: Scale | None = None) -> ObservedMatrix:
        """Read a file of entries, and report what was guessed or left out."""
        with open_input(path) as file:
            return self.read_opened(file, path, scale=scale)

    def read_opened(self, file: Path, path: Path, *, scale: Scale | None = None) -> ObservedMatrix:
        """Read a file as `read_matrix` does; `file` is the one to read, `path` its name."""
        from deepmf.data.read import read_entry_file

        matrix, notes = read_entry_file(file, self.for_reader(scale))
        if matrix.form.has_names_of(self.beside):
            notes = notes._replace(guess=None)
        if self.beside and self.beside.time == matrix.form.time:
            notes = notes._replace(time_note=None)
        report_reading(path, notes, wide=matrix.form.wide)
        return matrix

    def for_reader(self, scale: Scale | None) -> ReadOptions:
        """Return the options as `read_entry_file` and `pack_files` take them."""
        from deepmf.data.read import ReadOptions

        if self.no_values and self.value:
            raise BadSetting(f"give --value or --no-values, not both; got --value {self.value}")
        options: dict[str, Any] = {"value": DETECT, "time": DETECT}
        options |= {role: field for role, field in self.fields.items() if field is not None}
        if self.no_values:
            options["value"] = None
        if self.beside:
            options["usual_count"] = self.beside.value
        if self.exclude_columns:
            options["exclude"] = tuple(self.exclude_columns.split(","))
        shared = ("duplicates", "missing", "decimal", "encoding", "form", "wide")
        options |= {name: getattr(self, name) for name in shared}
        return ReadOptions(**options, separator=self.field_separator, scale=scale)

    def read_held_out(
        self,
        path: Path,
        form: TableForm,
        known: ObservedMatrix | EntryStore,
        *,
        unknown: str = "fallback",
    ) -> ObservedMatrix:
        """Read entries beside those of training, whose names of fields, scale and types of labels
        they have.

        Values may lie outside an interval, which is only the range seen in training.
        """
        is_open = known.scale.levels is None and not known.scale.is_interactions
        # no model learns from them
        with warnings.catch_warnings(action="ignore", category=ConstantValues):
            try:
                scale = None if is_open else known.scale
                matrix = self.adapt_to(form).read_matrix(path, scale=scale)
            except OffScale as error:
                raise OffScale(error.message, hint=_SCALE_HINT) from error
        with locate_errors(path):
            return convert_matrix(matrix, known.rows, known.columns, unknown=unknown)

    def read_columns(
        self, path: Path, kind: LineKind, *, is_known: IsKnown = lambda _: False
    ) -> ReadColumns:
        """Read the fields that lines of a kind need, such as pairs; fields of a text file stay
        text."""
        from deepmf.data.columns import read_columns
        from deepmf.data.layout import ColumnOptions

        asked, encoding = {name: self.fields[name] for name in kind.roles}, self.encoding
        options = ColumnOptions(
            asked=asked, separator=self.field_separator, is_known=is_known, encoding=encoding
        )
        with open_input(path) as file:
            return read_columns(file, kind, options)


def report_reading(path: Path, notes: ReadNotes, *, wide: bool) -> None:
    """Report on standard error what was guessed about a file, and how many of its lines were
    dropped."""
    from deepmf.data.lists import LISTS

    options = "--row, --column and --value, --count or --no-values"
    if notes.guess == LISTS:
        options = "--form"
    if wide:
        options = "--row"
    remarks = (
        notes.guess and f"{notes.guess} (set {options} to change this)",
        notes.n_dropped and notes.describe_dropped(),
        notes.time_note and f"{notes.time_note} (set --time to change this)",
    )
    for remark in filter(None, remarks):
        say(f"deepmf: {name_file(path)}: {remark}", err=True)


def parse_moment(text: str | None) -> int | None:
    """Return the Unix seconds of a time on the command line: ISO text, or Unix seconds as
    digits."""
    from deepmf.matrix.extras import parse_time

    if text is None:
        return None
    return parse_time(int(text) if text.removeprefix("-").isdecimal() else text)


def name_file(path: Path) -> str:
    """Return the name of a file in messages."""
    return "standard input" if str(path) == STANDARD else str(path)


@contextmanager
def open_input(path: Path) -> Iterator[Path]:
    """Yield the file to read; for `-` or a pipe, such as <(command), a temporary copy of its
    content."""
    is_standard = str(path) == STANDARD
    if not is_standard and not path.is_fifo():
        yield path
        return
    with TemporaryDirectory() as folder:
        file = Path(folder, name_file(path) if is_standard else path.name)
        if is_standard and sys.stdin is None:
            raise UnreadableFile("standard input is closed")
        try:
            with (
                nullcontext(sys.stdin.buffer) if is_standard else path.open("rb") as pipe,
                file.open("wb") as opened,
            ):
                shutil.copyfileobj(pipe, opened)
        except OSError as error:
            raise UnreadableFile(
                f"{name_file(path)} cannot be copied to {folder} ({error.strerror})"
            ) from error
        if is_standard and file.stat().st_size == 0:
            raise UnreadableFile("standard input is empty (a command reads it only once)")
        try:
            yield file
        except UserError as error:  # readers name the copy by its path
            raise type(error)(
                error.message.replace(f"{folder}{os.sep}", ""), hint=error.hint
            ) from error


@contextmanager
def locate_errors(path: Path, of: type[UserError] = UserError) -> Iterator[None]:
    """Put the name of a file in front of the errors about its content."""
    try:
        yield
    except of as error:
        raise error.locate(name_file(path)) from error


@contextmanager
def hint_at_extension(hint: Hint = _EXTEND_HINT) -> Iterator[None]:
    """Add to an unknown id the hint that `--extend` would make it known."""
    try:
        yield
    except UnknownLabel as error:
        raise UnknownLabel(error.message, hint=hint) from error


# Ids: a file of digits alone reads as ints, although the model's labels may be texts, and the other
# way round.


def convert_label(text: str, known: Labels) -> Any:
    """Return an id from the command line as a label of the model's type."""

    return convert_ids(polars.Series([text]), known).tolist()[0]


def convert_ids(ids: polars.Series, known: Labels, *, unknown: str = "error") -> npt.NDArray[Any]:
    """Return ids as labels of the model's type.

    An id that cannot be converted is unknown: an error, or a label that no row or column of the
    model has.
    """
    import numpy as np

    axis, kind = known.axis, _find_kind(known)
    if ids.null_count():
        raise BadEntries(f"pair {ids.is_null().arg_max()} has no {axis} id")
    try:
        texts = ids.cast(polars.String)
    except polars.exceptions.PolarsError as error:
        raise BadEntries(
            f"the {axis} ids are of type {ids.dtype}; ints or texts are needed"
        ) from error
    if kind is str:
        return np.array(texts.to_list(), dtype=object)
    numbers, kinds = texts.cast(polars.Float64, strict=False), "numbers"
    if kind is int:
        numbers, kinds = parse_whole_numbers(texts), "whole numbers"
    wrong = texts.filter(numbers.is_null())
    if len(wrong) and unknown == "error":
        n_more = wrong.n_unique() - 1
        more = f" (and {n_more} more)" if n_more else ""
        raise UnknownLabel(
            f"{axis} {wrong[0]!r} is not known{more}; the model's {axis}s are {kinds}"
        )
    if len(wrong):
        lowest = min([*numbers.drop_nulls().to_list(), *known.array.tolist()])
        unused = lowest - texts.rank("dense").cast(numbers.dtype)  # lower than every known label
        numbers = numbers.zip_with(numbers.is_not_null(), unused)
    return numbers.to_numpy()


def convert_labels(
    labels: npt.NDArray[Any], known: Labels, *, unknown: str = "error"
) -> npt.NDArray[Any]:
    """Return the labels of a file that was read, unchanged if they are of the model's type."""

    if not labels.size or not len(known) or type(labels[:1].tolist()[0]) is _find_kind(known):
        return labels
    return convert_ids(polars.Series(list(map(str, labels.tolist()))), known, unknown=unknown)


def convert_matrix(
    matrix: ObservedMatrix, rows: Labels, columns: Labels, *, unknown: str = "error"
) -> ObservedMatrix:
    """Return the matrix with labels of the model's type."""
    return matrix.with_labels(
        convert_labels(matrix.row_labels, rows, unknown=unknown),
        convert_labels(matrix.column_labels, columns, unknown=unknown),
    )


def _find_kind(known: Labels) -> type:
    return type(known[:1].tolist()[0]) if len(known) else str


# Pairs to predict, and lists of rows or columns


class Pairs(NamedTuple):
    """Rows and columns of one length.

    labels: row labels and column labels of the model's type, as `predict` takes them.
    shown: both as they are written, under their names in the file.
    has_names: whether the file names its fields.
    """

    labels: tuple[npt.NDArray[Any], npt.NDArray[Any]]
    shown: polars.DataFrame
    has_names: bool


def read_pairs(path: Path, model: Model, reading: InputOptions, *, unknown: str = "error") -> Pairs:
    """Read pairs of a row and a column; a first line with an id that the model knows is not a
    header."""

    from deepmf.data.layout import PAIRS

    entries = model.entries_
    frame, roles, _ = reading.read_columns(
        path, PAIRS, is_known=lambda field: field in entries.rows or field in entries.columns
    )
    if roles.remark and tuple(frame.columns) != entries.train.form[:2]:
        say(
            f"deepmf: {name_file(path)}: {roles.remark} (set --row and --column to change this)",
            err=True,
        )
    labels, shown = [], frame
    for ids, axis in zip(frame.get_columns(), (entries.rows, entries.columns), strict=True):
        with locate_errors(path):
            labels.append(convert_ids(ids, axis, unknown=unknown))
        if ids.dtype == polars.String and _find_kind(axis) is int:
            shown = shown.with_columns(parse_ids(ids))
    return Pairs((labels[0], labels[1]), shown, roles.table.has_names)


def read_list(path: Path, labels: Labels, reading: InputOptions) -> npt.NDArray[Any]:
    """Read rows, or columns, that the model knows, one per line; further fields are ignored."""
    from deepmf.data.layout import COLUMNS, ROWS

    kind = ROWS if labels.axis == "row" else COLUMNS
    texts = set(map(str, labels.array.tolist()))
    frame = reading.read_columns(path, kind, is_known=texts.__contains__).frame
    with locate_errors(path):
        ids = convert_ids(frame.to_series(), labels)
        labels.positions(ids)
    return ids


def warn_unknown(
    model: Model, path: Path, rows: npt.NDArray[Any], columns: npt.NDArray[Any], unknown: str
) -> int:
    """Warn of the pairs of a file whose row or column the model does not know, and return their
    number."""
    import numpy as np

    from deepmf.formatting import format_quantity
    from deepmf.matrix.labels import count_distinct

    new_rows, new_columns = (
        model.entries_.rows.find(rows) < 0,
        model.entries_.columns.find(columns) < 0,
    )
    n_pairs = int(np.count_nonzero(new_rows | new_columns))
    if n_pairs:
        counts = {
            "row": count_distinct(rows[new_rows]),
            "column": count_distinct(columns[new_columns]),
        }
        named = " and ".join(
            format_quantity(count, axis) for axis, count in counts.items() if count
        )
        outcome = "have no prediction" if unknown == "nan" else "are predicted by the means"
        if not model.entries_.train.has_values:
            outcome = "are not ranked"
        warn(
            f"{name_file(path)}: the model does not know {named}; {n_pairs:,} of {rows.size:,} pairs {outcome}"
        )
    return n_pairs


# One row, known or new


@dataclass(frozen=True)
class RowOptions:
    """The options that name a known row, or describe a new one."""

    row: str | None = offer("--row ID", "Row that the model knows.")
    history: Path | None = offer(
        "--history FILE",
        "New row instead of --row: a column and a value per line, not stored; - for a pipe.",
    )
    features: str | None = offer(
        "--features NAME=VALUE,NAME=VALUE",
        "Features of a new row, if the model knows row features.",
    )

    @property
    def is_new(self) -> bool:
        """Whether a new row is described."""
        return bool(self.history or self.features)

    def fold_in(self, model: Model, reading: InputOptions) -> FoldedRows:
        """Return the new row that a history, features or both describe."""
        features: dict[str, str] | None = None
        if self.features:
            features = parse_named_values("--features", self.features)
        if not self.history:
            return model.fold_in(features=features)
        columns, values = _read_history(self.history, model, reading)
        with locate_errors(self.history, BadEntries):
            return model.fold_in(columns, values, ordered=True, features=features)


def _read_history(path: Path, model: Model, reading: InputOptions) -> tuple[list[Any], list[float]]:
    """Read a column and its value per line, or of interactions a column, which may occur several
    times.

    Columns that the model does not know are left out with a warning.
    """
    from deepmf.data.layout import COLUMNS, HISTORY

    kind = COLUMNS if model.scale_.is_interactions else HISTORY
    columns = {str(label): label for label in model.column_labels_.tolist()}
    frame = reading.read_columns(path, kind, is_known=columns.__contains__).frame
    ids, *cells = frame.select(polars.all().cast(polars.String))
    with locate_errors(path):
        values = [parse_numbers(texts) for texts in cells]
        if any(series.null_count() for series in (ids, *values)):
            raise BadEntries(f"each line needs {kind.requirement}; one has a gap")
        is_known = ids.is_in(list(columns))
        unknown = ids.filter(~is_known).unique(maintain_order=True).to_list()
        shown = reprlib.repr(unknown).strip("[]")
        if not is_known.any():
            raise UnknownLabel(f"the model knows none of the {len(unknown)} columns: {shown}")
    if unknown:
        warn(
            f"{name_file(path)}: the model does not know {len(unknown)} of the columns, which are left out: {shown}"
        )
    history = [columns[column] for column in ids.filter(is_known)]
    return history, [value for numbers in values for value in numbers.filter(is_known)]


# Words of options


def parse_named_values(option: str, text: str) -> dict[str, str]:
    """Parse `name=value,name=value`; a comma that no `name=` follows is part of the value.

    >>> parse_named_values("--features", "age=25,city=Paris, Texas,genres=Horror|Comedy")
    {'age': '25', 'city': 'Paris, Texas', 'genres': 'Horror|Comedy'}
    """
    values: dict[str, str] = {}
    for part in re.split(r",(?=[^,=]+=)", text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise BadSetting(f"{option} takes name=value,name=value, such as age=25; got {text!r}")
        values[name.strip()] = value.strip()
    return values
