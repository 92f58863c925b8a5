"""Reading a matrix: text with a line per entry or per row (plain, gz), Parquet, JSON lines, `.npz`,
stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from deepmf.data.columns import read_columns
from deepmf.data.delimited import DECIMAL_MARKS, parse_ids
from deepmf.data.layout import (
    EITHER,
    ENTRIES,
    INTERACTIONS,
    ColumnOptions,
    LineKind,
    NameOrPosition,
)
from deepmf.data.lists import LISTS, are_lists, read_lists
from deepmf.data.npz import read_npz
from deepmf.data.source import locate_errors
from deepmf.data.table import is_typed_file
from deepmf.data.wide import read_wide
from deepmf.errors import (
    BadSetting,
    DuplicateEntries,
    GuessedColumns,
    Hint,
    OffScale,
    UnreadableFile,
    check_choice,
    warn,
)
from deepmf.files import check_path, narwhals, polars
from deepmf.formatting import format_quantity
from deepmf.matrix.arrays import IndexArray, ValueArray
from deepmf.matrix.column_roles import VALUE_HINT, check_roles
from deepmf.matrix.extras import Extras
from deepmf.matrix.frames import NAME_COLUMNS, LongEntries, gather_entries, keep_lines
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import Missing, ObservedMatrix, choose_scale
from deepmf.matrix.scale import Scale, check_scale
from deepmf.matrix.sorting import Duplicates, check_on_scale, number_in_rows
from deepmf.matrix.stored import open_store
from deepmf.matrix.table_form import DETECT, ValueColumn
from deepmf.storage.model_file import is_own_file

TextForm = Literal["entries", "lists", "sequences", "inter"]


def read_matrix(
    path: str | Path,
    *,
    row: NameOrPosition = None,
    column: NameOrPosition = None,
    value: ValueColumn = DETECT,
    count: NameOrPosition = None,
    time: ValueColumn = DETECT,
    weight: NameOrPosition = None,
    separator: str | None = None,
    header: bool | None = None,
    scale: Scale | None = None,
    duplicates: Duplicates = "error",
    missing: Missing = "error",
    decimal: str = ".",
    encoding: str | None = None,
    form: TextForm | None = None,
    wide: bool = False,
    exclude: Sequence[str] = (),
) -> ObservedMatrix:
    """Read a matrix from a file with a line per entry, from lists, a wide table, a sparse `.npz` or
    a store.

    Text may be CSV, TSV, MovieLens `.dat` (`::`) or `u.data`, with or without a header, plain or
    compressed (`.gz`, `.bz2`, `.xz`, a `.zip` of one file). Parquet, JSON lines (`.jsonl`) and the
    first sheet of an Excel file (`.xlsx`) are read too. In text, spaces around a field are no part
    of it: ids that differ by them alone are one id. Ids of a text column become ints if all of
    them are whole numbers in canonical form (neither 007 nor +7) or such numbers with .0,
    otherwise they stay strings. A store is opened, not read: its entries are memory-mapped.

    Parameters
    ----------
    row, column, value : names or positions of columns. By default usual names (user, item, rating,
        ...) are recognised, otherwise the first three columns are taken, with a warning where the
        values are guessed. Columns that look like times or ids are never taken for values.
        `value=None` reads interactions, such as clicks or purchases, which have no values; so does
        a file of two columns.
    count : name or position of a column that counts interactions. The counts of a repeated pair are
        added up.
    time : name or position of the column of times: Unix seconds or milliseconds, dates or ISO
        texts. An empty field is an entry without a date. By default a column that is named like a
        time and holds times is taken; None reads none.
    weight : name or position of the column of weights. An entry of weight 0 is left out.
    separator, header : recognised from the first lines by default.
    scale : inferred from the values by default.
    duplicates : what to do where a row and a column occur twice: "error", "first", "last", "latest"
        (by its time) or "mean".
    missing : what to do with a line whose value is missing (empty, NA, null, NaN, ...): "error", or
        "drop" the line.
    decimal : the decimal mark of text, "." or ",".
    encoding : the encoding of text, such as "cp1250". By default UTF-8, UTF-16 with a byte order
        mark and Windows-1252 are recognised, the last with a warning.
    form : what a line of text holds: "entries" an entry; "lists" a row and all its columns, `row
        column column ...`, as in the data sets of LightGCN; "sequences" the same, first to last,
        or in `.csv` and Parquet an entry, in the order of the lines; "inter" an entry below the
        header of RecBole, such as `user_id:token`. By default lists of whole numbers and that
        header are recognised where nothing else can be meant.
    wide : read a table with a line per row: the column `row`, or the first, holds row ids, every
        other column values. Without it, a file that looks like a wide table is refused.
    exclude : columns of a wide table to leave out, such as texts, or ages beside answers from 1 to
        6.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ratings.csv")
    >>> _ = path.write_text("user,film,stars\\nann,Alien,5\\nbob,Big,3\\n")
    >>> read_matrix(path)
    ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), scale one of 3, 5)
    >>> read_matrix(path, value=None)
    ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), interactions)
    """
    options = ReadOptions(**{name: setting for name, setting in locals().items() if name != "path"})
    matrix, notes = read_entry_file(path, options)
    warn_of_notes(path, notes)
    return matrix


_LISTED = ("lists", "sequences")


@dataclass(frozen=True, kw_only=True)
class ReadOptions(ColumnOptions):
    """How files of entries are read: the parameters of `read_matrix`."""

    asked: Mapping[str, NameOrPosition] = field(init=False)
    row: NameOrPosition = None
    column: NameOrPosition = None
    value: ValueColumn = DETECT
    count: NameOrPosition = None
    time: ValueColumn = DETECT
    weight: NameOrPosition = None
    scale: Scale | None = None
    duplicates: Duplicates = "error"
    missing: Missing = "error"
    wide: bool = False
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_scale(self.scale)
        asked = {"row": self.row, "column": self.column, "count": self.count, "weight": self.weight}
        object.__setattr__(
            self, "asked", asked | {"value": None if self.value is DETECT else self.value}
        )
        if self.exclude and not self.wide:
            raise BadSetting(
                f"only columns of a wide table can be left out; got {', '.join(map(repr, self.exclude))}",
                hint=Hint("set wide=True", "add --wide"),
            )
        check_choice("missing", self.missing, get_args(Missing))
        check_choice("form", self.form, (None, *get_args(TextForm)))
        check_choice("decimal", self.decimal, DECIMAL_MARKS)
        if self.form in _LISTED and not self._may_be_lists:
            raise BadSetting(
                "lists hold a row and its columns alone; no fields can be named in them"
            )
        check_roles(self.value, self.count)
        if self.kind is not EITHER:
            choose_scale(self.scale, are_interactions=self.kind is INTERACTIONS)
        if self.wide and self.kind is INTERACTIONS:
            raise BadSetting(
                "a wide table holds values; interactions are read from a file with a line for each"
            )

    @property
    def kind(self) -> LineKind:
        """What lines hold: entries with values, interactions without, or what is found in the
        file."""
        if self.value is None or self.count is not None:
            return INTERACTIONS
        if self.scale is None:
            return EITHER if self.value is DETECT else ENTRIES
        return INTERACTIONS if self.scale.is_interactions and self.value is DETECT else ENTRIES

    @property
    def _may_be_lists(self) -> bool:
        """Whether no option asks for a field of an entry."""
        is_named = any(name is not None for name in self.asked_roles.values())
        return not (is_named or self.header or self.kind is ENTRIES)

    def reads_lists(self, path: Path) -> bool:
        """Whether a file is read as lists: they are asked for, or nothing else can be meant."""
        is_typed = is_typed_file(path)
        if self.form == "sequences":
            return not is_typed and path.suffix.lower() != ".csv"
        if self.form is not None:
            return self.form == "lists"
        is_separated = self.separator not in (None, " ", "\t")
        return self._may_be_lists and not is_typed and not is_separated and are_lists(path)

    def refuse_extras(self, path: Path) -> None:
        """Refuse columns of times and weights in a file that has no such columns."""
        for name in ("time", "weight"):
            if self.asked_roles[name] is not None:
                raise BadSetting(
                    f"{path} has no field for each entry's {name}; got {name} {self.asked_roles[name]!r}"
                )


class ReadNotes(NamedTuple):
    """Notes on how a file was read.

    guess: in words, which columns were taken for which role; None where nothing was guessed.
    n_dropped: the number of lines that were dropped because their value is missing.
    is_uncertain: whether the guess may well be wrong.
    time_note: in words, which column was recognised as the times; None where none was.
    missing_words: texts of dropped values, such as NA.
    """

    guess: str | None = None
    n_dropped: int = 0
    is_uncertain: bool = False
    time_note: str | None = None
    missing_words: Sequence[str] = ()

    def describe_dropped(self) -> str:
        """Return in words how many lines were dropped, and the texts of their values."""
        shown = ", ".join(map(repr, self.missing_words[:5]))
        reason = f" ({shown})" if shown else ""
        return f"dropped {format_quantity(self.n_dropped, 'line')} without a value{reason}"


def warn_of_notes(path: str | Path, notes: ReadNotes) -> None:
    """Warn of a guess that may be wrong, and of words such as NA that were dropped as values."""
    if notes.is_uncertain:
        warn(f"{path}: {notes.guess}; {NAME_COLUMNS}", GuessedColumns)
    if notes.missing_words:
        warn(f"{path}: {notes.describe_dropped()}")


class EntryFile(NamedTuple):
    """The matrix of a file, and notes on how the file was read."""

    matrix: ObservedMatrix
    notes: ReadNotes = ReadNotes()


class FileEntries(NamedTuple):
    """The entries of a file in the order of its lines, before repeated ones are merged.

    locate: returns in words the file, and the line of an entry; of None the file.
    are_ordered: whether the entries of a row are in order also where they have no times.
    """

    entries: LongEntries
    locate: Callable[[int | None], str]
    notes: ReadNotes
    are_ordered: bool = False

    @property
    def n_entries(self) -> int:
        """The number of entries."""
        return int(self.entries.numbers.size)


def read_entry_file(path: str | Path, options: ReadOptions) -> EntryFile:
    """Read a matrix as `read_matrix` does, and note what was guessed and dropped."""
    path = Path(path)
    file = read_whole_file(path, options)
    if file is not None:
        return file
    entries = read_lines(path, options)
    matrix = join_entries([entries], options)
    if options.scale is None and entries.notes.guess is not None and matrix.has_values:
        _warn_of_counts(path, matrix.values)
    return EntryFile(matrix, entries.notes)


def read_whole_file(path: Path, options: ReadOptions) -> EntryFile | None:
    """Read a store, a sparse `.npz`, a wide table or lists; return None for a file with a line for
    each entry."""
    if is_own_file(path):
        options.refuse_extras(path)
        return EntryFile(_read_store(path, options))
    path = check_path(path)
    if path.suffix.lower() == ".npy":
        raise UnreadableFile(
            f"{path} holds an array; ObservedMatrix.from_array(np.load(path)) makes a matrix of it"
        )
    is_npz = path.suffix.lower() == ".npz"
    if is_npz or options.wide:
        options.refuse_extras(path)
        reader = _read_npz if is_npz else _read_wide
        with locate_errors(lambda at: f"{path}" if at is None else f"{path}, entry {at}"):
            return reader(path, options)
    return _read_lists(path, options) if options.reads_lists(path) else None


def read_lines(path: Path, options: ReadOptions) -> FileEntries:
    """Read the entries of a file with a line for each: delimited text, Parquet, JSON lines or
    Excel."""
    frame, roles, missing_words = read_columns(path, options.kind, options)
    lines: range | IndexArray = range(frame.height)

    def locate(position: int | None) -> str:
        if position is None:
            return f"{path}"
        return f"{path}, {roles.table.locate(int(lines[position]))}"

    with locate_errors(locate):
        table = narwhals.from_native(frame, eager_only=True)
        table, lines, n_dropped = keep_lines(
            table, roles.names, options.missing, doubt=roles.remark or ""
        )
        if len(table) == 0:
            raise UnreadableFile(f"{path} holds no entries; lines without a value: {n_dropped:,}")
        convert: dict[str, Callable[[polars.Series], polars.Series]] = {
            axis: partial(_keep_texts, axis=axis) for axis in ("row", "column")
        }
        convert |= dict.fromkeys(roles.texts, parse_ids)
        entries = gather_entries(table, roles.names, convert)
    notes = ReadNotes(
        guess=roles.remark,
        n_dropped=n_dropped,
        is_uncertain=roles.chosen.is_uncertain,
        time_note=f"{roles.words['time']} is taken as the time"
        if roles.chosen.is_time_detected
        else None,
        missing_words=missing_words,
    )
    return FileEntries(entries, locate, notes, are_ordered=options.form == "sequences")


def join_entries(parts: Sequence[FileEntries], options: ReadOptions) -> ObservedMatrix:
    """Return the entries of files as one matrix; an error over an entry names its file and its
    line."""
    parts_of_entries = [part.entries for part in parts]
    first = parts_of_entries[0]
    ends = np.cumsum([part.n_entries for part in parts])

    def locate(position: int | None) -> str:
        if position is None:
            return parts[0].locate(None)
        number = int(np.searchsorted(ends, position, side="right"))
        return parts[number].locate(position - int(ends[number]) + parts[number].n_entries)

    with locate_errors(locate):
        rows = _join_ids([part.rows for part in parts_of_entries], "row")
        extras = Extras.join(
            [(part.numbers.size, part.extras.simplify()) for part in parts_of_entries]
        )
        if any(part.are_ordered for part in parts):
            extras = extras._replace(places=number_in_rows(rows.positions))
        try:
            return ObservedMatrix.from_positions(
                rows,
                _join_ids([part.columns for part in parts_of_entries], "column"),
                np.concatenate([part.numbers for part in parts_of_entries]),
                scale=choose_scale(options.scale, are_interactions=first.are_interactions),
                duplicates=options.duplicates,
                form=first.form,
                extras=extras,
            )
        except DuplicateEntries as error:
            guess = parts[0].notes.guess
            if guess is None:
                raise
            message, hint = f"{error.message} ({guess})", error.hint
            if hint is not None and "value" in guess:
                hint = Hint(*map("; ".join, zip(hint, VALUE_HINT, strict=True)))
            raise DuplicateEntries(message, position=error.position, hint=hint) from error


def _keep_texts(ids: polars.Series, axis: str) -> polars.Series:
    """Return ids as they are; warn of ids that differ by the spaces around them alone, which a file
    with types keeps."""
    n_alike = ids.len() - ids.str.strip_chars().n_unique()
    if n_alike:
        warn(f"{n_alike:,} {axis} ids differ from others by the spaces around them alone")
    return ids


def _join_ids(parts: Sequence[Labelled], axis: str) -> Labelled:
    """Return all labels, sorted, and the positions of entries among them; beside texts, numbers
    become texts."""
    if len(parts) == 1:
        return parts[0]
    arrays = [part.labels.array for part in parts]
    kinds = {type(label) for array in arrays for label in array[:1].tolist()}
    if kinds == {int, str}:
        arrays = [np.array(list(map(str, array.tolist())), dtype=object) for array in arrays]
    gathered = Labels.gather(np.concatenate(arrays), axis=axis)
    places = np.split(gathered.positions, np.cumsum([array.size for array in arrays])[:-1])
    positions = [place[part.positions] for place, part in zip(places, parts, strict=True)]
    return Labelled(gathered.labels, np.concatenate(positions))


def _warn_of_counts(path: Path, values: ValueArray) -> None:
    """Warn of values that look like counts: whole numbers from 1, most of them small and some of
    them large."""
    low = float(values.min())
    high = float(values.max())
    # no scale of answers reaches to 100
    if not (0 <= low <= 1 and high >= 100) or np.any(values % 1 != 0):
        return
    middle = float(np.median(values))
    if high >= 20 * middle:
        warn(
            f"{path}: the values look like counts: the largest is {high:,.0f}, half of them are at "
            f"most {middle:,.0f}; count= (--count on the command line) reads them as interactions"
        )


def _read_lists(path: Path, options: ReadOptions) -> EntryFile:
    frame = read_lists(path, separator=options.separator, encoding=options.encoding)
    if options.form == "sequences":
        rows = frame.group_by("row", maintain_order=True).agg("column")
        return EntryFile(
            ObservedMatrix.from_sequences(
                dict(zip(*rows.to_dict(as_series=False).values(), strict=True))
            )
        )
    matrix = ObservedMatrix.from_frame(frame, row=0, column=1, value=None)
    return EntryFile(matrix, ReadNotes(None if options.form else LISTS))


def _read_store(path: Path, options: ReadOptions) -> ObservedMatrix:
    """Open a store whose entries lie inside it; a scale that is asked for must hold its values."""
    matrix = open_store(path)
    if options.kind is not EITHER and (options.kind is INTERACTIONS) == matrix.has_values:
        nouns = ["interactions", "values"]
        raise UnreadableFile(
            f"{path} is a store of {nouns[matrix.has_values]}, and {nouns[not matrix.has_values]} are "
            "needed; pack the files again"
        )
    if matrix.n_entries == 0:
        raise UnreadableFile(f"{path} holds no entries")
    if options.scale is not None:
        matrix = matrix.with_scale(options.scale)
        rows = Labelled(matrix.rows, matrix.entry_rows)
        columns = Labelled(matrix.columns, matrix.by_row.columns)
        try:
            check_on_scale(rows, columns, matrix.values, matrix.scale)
        except OffScale as error:
            raise error.locate(str(path)) from error
    return matrix


def _read_wide(path: Path, options: ReadOptions) -> EntryFile:
    for role in ("column", "value"):
        if options.asked[role] is not None:
            raise BadSetting(
                f"a wide table has no {role} field to choose; got {role} {options.asked[role]!r}"
            )
    matrix, row = read_wide(path, options, exclude=options.exclude, scale=options.scale)
    guess = f"{row!r} holds the row ids of a wide table of {matrix.shape[1]:,} columns"
    return EntryFile(matrix, ReadNotes(guess if options.row is None else None))


def _read_npz(path: Path, options: ReadOptions) -> EntryFile:
    matrix = read_npz(path)
    if matrix.nnz == 0:
        raise UnreadableFile(f"{path} holds no entries")
    scale = choose_scale(options.scale, are_interactions=options.kind is INTERACTIONS)
    return EntryFile(ObservedMatrix.from_sparse(matrix, scale=scale, duplicates=options.duplicates))
