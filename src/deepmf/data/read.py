"""Reading a matrix: text with a line per entry or per row (plain, gz), Parquet, JSON lines, `.npz`,
stores."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse

from deepmf.data.columns import is_typed_file, read_columns, read_typed_file
from deepmf.data.delimited import check_decimal, drop_blank_end, parse_ids, parse_numbers
from deepmf.data.layout import (
    EITHER,
    ENTRIES,
    INTERACTIONS,
    TABLE,
    ColumnOptions,
    LineKind,
    NameOrPosition,
    recognise_layout,
)
from deepmf.data.lists import LISTS, are_lists, read_lists
from deepmf.data.source import (
    check_encoding,
    check_expansion,
    locate_errors,
    summarise,
    translate_polars_errors,
)
from deepmf.errors import (
    BadEntries,
    BadSetting,
    GuessedColumns,
    Hint,
    OffScale,
    UnreadableFile,
    warn,
)
from deepmf.files import check_path, import_polars
from deepmf.matrix.arrays import Array, IndexArray, ValueArray, to_numbers
from deepmf.matrix.column_roles import assign_roles, check_roles
from deepmf.matrix.extras import Extras
from deepmf.matrix.frames import MISSING_HINT, check_excluded, gather_ids, read_extras, read_numbers
from deepmf.matrix.labels import Labelled, Labels
from deepmf.matrix.matrix import NAME_COLUMNS, Missing, ObservedMatrix, choose_scale
from deepmf.matrix.scale import Scale, check_scale
from deepmf.matrix.sorting import Duplicates, check_duplicates, check_on_scale, compact
from deepmf.matrix.stored import open_store
from deepmf.matrix.table_form import DETECT, TableForm, ValueColumn
from deepmf.storage.model_file import is_own_file

if TYPE_CHECKING:
    import polars as pl

TextForm = Literal["entries", "lists", "sequences", "inter"]

_MANY, _MANY_TIMES = 100, 20  # a large count, and in units of the median
_INDEX_BYTES = 4  # of a row or a column without entries


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
    `.gz`. Parquet, JSON lines (`.jsonl`) and the first sheet of an Excel file (`.xlsx`) are read
    too. Ids of a text column become ints if all of them are whole numbers in canonical form
    (neither 007 nor +7) or such numbers with .0, otherwise they stay strings. A store is opened,
    not read: its entries are memory-mapped.

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
        column column ...`, as in the data sets of LightGCN; "sequences" the same, first to last;
        "inter" an entry below the header of RecBole, such as `user_id:token`. By default lists of
        whole numbers and that header are recognised where nothing else can be meant.
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
    options = ReadOptions(**{name: given for name, given in locals().items() if name != "path"})
    matrix, notes = read_entry_file(path, options)
    if notes.is_uncertain:
        warn(f"{path}: {notes.guess}; {NAME_COLUMNS}", GuessedColumns)
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
        if self.missing not in get_args(Missing):
            raise BadSetting(f"missing must be 'error' or 'drop'; got {self.missing!r}")
        if self.form not in (None, *get_args(TextForm)):
            raise BadSetting(
                f"form must be {', '.join(map(repr, get_args(TextForm)))}; got {self.form!r}"
            )
        if self.form is not None and self.wide:
            raise BadSetting(f"a table is wide or has the form {self.form!r}, not both")
        if self.form in _LISTED and not self._may_be_lists:
            raise BadSetting(
                "lists hold a row and its columns alone; no fields can be named in them"
            )
        check_decimal(self.decimal)
        check_encoding(self.encoding)
        check_roles(self.value, self.count)
        if self.kind is not EITHER:
            scale = choose_scale(self.scale, are_interactions=self.kind is INTERACTIONS)
            check_duplicates(self.duplicates, scale)
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
        is_named = any(each is not None for each in self.wanted.values())
        return not (is_named or self.header or self.kind is ENTRIES)

    def reads_lists(self, path: Path) -> bool:
        """Whether a file is read as lists: they are asked for, or nothing else can be meant."""
        if (
            self.form is not None
            or self.separator not in (None, " ", "\t")
            or not self._may_be_lists
        ):
            return self.form in _LISTED
        return not is_typed_file(path) and are_lists(path)

    def refuse_extras(self, path: Path) -> None:
        """Refuse columns of times and weights in a file that has no such columns."""
        for name in ("time", "weight"):
            if self.wanted[name] is not None:
                raise BadSetting(
                    f"{path} has no field for each entry's {name}; got {name} {self.wanted[name]!r}"
                )


class ReadNotes(NamedTuple):
    """Notes on how a file was read.

    guess: in words, which columns were taken for which role; None where nothing was guessed.
    n_dropped: the number of lines that were dropped because their value is missing.
    is_uncertain: whether the guess may well be wrong.
    time_note: in words, which column was recognised as the times; None where none was.
    """

    guess: str | None = None
    n_dropped: int = 0
    is_uncertain: bool = False
    time_note: str | None = None


class EntryFile(NamedTuple):
    """The matrix of a file, and notes on how the file was read."""

    matrix: ObservedMatrix
    notes: ReadNotes = ReadNotes()


class FileEntries(NamedTuple):
    """The entries of a file in the order of its lines, before repeated ones are merged.

    numbers: values, or counts of interactions.
    locate: returns in words the file, and the line of an entry; of None the file.
    """

    rows: Labelled
    columns: Labelled
    numbers: ValueArray
    extras: Extras
    form: TableForm
    are_interactions: bool
    locate: Callable[[int | None], str]
    notes: ReadNotes


def read_entry_file(path: str | Path, options: ReadOptions) -> EntryFile:
    """Read a matrix as `read_matrix` does, and note what was guessed and dropped."""
    path = Path(path)
    whole = read_whole_file(path, options)
    if whole is not None:
        return whole
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
        with locate_errors(lambda at: f"{path}" if at is None else f"{path}, entry {at}"):
            return _read_npz(path, options) if is_npz else _read_wide(path, options)
    return _read_lists(path, options) if options.reads_lists(path) else None


def read_lines(path: Path, options: ReadOptions) -> FileEntries:
    """Read the entries of a file with a line for each: delimited text, Parquet, JSON lines or
    Excel."""
    frame, choice = read_columns(path, options.kind, options)
    n_lines = frame.height
    lines: range | IndexArray = range(n_lines)

    def locate(at: int | None) -> str:
        return f"{path}" if at is None else f"{path}, {choice.locate(int(lines[at]))}"

    with locate_errors(locate):
        frame, lines = keep_complete_lines(frame, choice.n_needed, options.missing)
        n_dropped = n_lines - frame.height
        if frame.height == 0:
            raise UnreadableFile(f"{path} holds no entries; lines without a value: {n_dropped:,}")
        by_role = dict(zip(choice.columns, frame.get_columns(), strict=True))
        extras, time_type = read_extras(by_role.get("time"), by_role.get("weight"))
        # an entry of weight 0 is left out
        if extras.weights is not None and not extras.weights.all():
            kept = np.flatnonzero(extras.weights)
            frame, lines, extras = frame[kept], np.asarray(lines)[kept], extras.take(kept)
        rows, columns, *numbers = frame.get_columns()[: choice.n_needed]
        return FileEntries(
            _gather_ids(rows, "row", is_text="row" not in choice.typed),
            _gather_ids(columns, "column", is_text="column" not in choice.typed),
            compact(to_numbers(read_numbers(numbers[0])))
            if numbers
            else np.ones(frame.height, dtype=np.float32),
            extras,
            TableForm.of_roles(choice.names, time_type),
            "value" not in choice.columns,
            locate,
            ReadNotes(choice.remark, n_dropped, choice.is_uncertain, choice.time_remark),
        )


def join_entries(parts: Sequence[FileEntries], options: ReadOptions) -> ObservedMatrix:
    """Return the entries of files as one matrix; an error over an entry names its file and its
    line."""
    first, ends = parts[0], np.cumsum([part.numbers.size for part in parts])

    def locate(at: int | None) -> str:
        which = 0 if at is None else int(np.searchsorted(ends, at, side="right"))
        return parts[which].locate(
            None if at is None else at - int(ends[which]) + parts[which].numbers.size
        )

    with locate_errors(locate):
        return ObservedMatrix.from_positions(
            _join_ids([part.rows for part in parts], "row"),
            _join_ids([part.columns for part in parts], "column"),
            np.concatenate([part.numbers for part in parts]),
            scale=choose_scale(options.scale, are_interactions=first.are_interactions),
            duplicates="sum"
            if first.are_interactions and options.duplicates == "error"
            else options.duplicates,
            form=first.form,
            extras=Extras.join([(part.numbers.size, part.extras.simplify()) for part in parts]),
        )


def _gather_ids(ids: pl.Series, axis: str, *, is_text: bool) -> Labelled:
    """Return the distinct ids, sorted, and the position of each id; ids of text may turn out to be
    whole numbers."""
    polars = import_polars()
    if not isinstance(ids.dtype, polars.Categorical):
        return gather_ids(ids, axis=axis)
    distinct = ids.unique()
    texts = distinct.cast(polars.String)
    labels = parse_ids(texts) if is_text else texts
    order = labels.arg_sort().to_numpy()
    codes = distinct.to_physical().to_numpy()
    position_of = np.empty(int(codes.max()) + 1, dtype=np.int32)
    position_of[codes[order]] = np.arange(order.size)
    return Labelled(
        Labels(labels.sort().to_list(), axis=axis), position_of[ids.to_physical().to_numpy()]
    )


def _join_ids(parts: Sequence[Labelled], axis: str) -> Labelled:
    """Return all labels, sorted, and the positions of entries among them; beside texts, numbers
    become texts."""
    if len(parts) == 1:
        return parts[0]
    arrays = [part.labels.array for part in parts]
    kinds = {type(each) for array in arrays for each in array[:1].tolist()}
    if kinds == {int, str}:
        arrays = [np.array(list(map(str, array.tolist())), dtype=object) for array in arrays]
    gathered = Labels.gather(np.concatenate(arrays), axis=axis)
    places = np.split(gathered.positions, np.cumsum([array.size for array in arrays])[:-1])
    positions = [place[part.positions] for place, part in zip(places, parts, strict=True)]
    return Labelled(gathered.labels, np.concatenate(positions))


def _warn_of_counts(path: Path, values: Array) -> None:
    """Warn of values that look like counts: whole numbers from 1, most of them small and some of
    them large."""
    low, high = float(values.min()), float(values.max())
    if not (0 <= low <= 1 and high >= _MANY) or np.any(values % 1 != 0):
        return
    middle = float(np.median(values))
    if high >= _MANY_TIMES * middle:
        warn(
            f"{path}: the values look like counts: the largest is {high:,.0f}, half of them are at most {middle:,.0f}; "
            "count= (--count on the command line) reads them as interactions"
        )


def keep_complete_lines(
    frame: pl.DataFrame, n_needed: int, missing: Missing
) -> tuple[pl.DataFrame, range | IndexArray]:
    """Drop the lines in which a row, a column or a value (in this order) is missing, or refuse
    them.

    Returns the other lines and their positions. n_needed: the number of columns, from the first,
    that no line may lack.
    """
    polars = import_polars()
    for value in frame.get_columns()[2:n_needed]:
        if value.dtype.is_float() and value.is_nan().any():
            frame = frame.with_columns(value.fill_nan(None))
    if not any(series.null_count() for series in frame.get_columns()[:n_needed]):
        return frame, range(frame.height)
    needed = polars.col(frame.columns[:n_needed])
    is_complete = frame.select(polars.all_horizontal(needed.is_not_null())).to_series()
    if missing == "error":
        first = int((~is_complete).arg_true()[0])
        line = dict(
            zip(("row id", "column id", "value"), frame.row(first)[:n_needed], strict=False)
        )
        name = next(
            name for name in ("value", "row id", "column id") if name in line and line[name] is None
        )
        n_missing = frame.height - int(is_complete.sum())
        raise BadEntries(
            f"the {name} is missing, as in {n_missing:,} of {frame.height:,} lines",
            position=first,
            hint=MISSING_HINT,
        )
    return frame.filter(is_complete), is_complete.arg_true().to_numpy().astype(np.int64)


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
        found, wanted = (
            ("values", "interactions") if matrix.has_values else ("interactions", "values")
        )
        raise UnreadableFile(
            f"{path} is a store of {found}, and {wanted} are needed; pack the files again"
        )
    if matrix.n_entries == 0:
        raise UnreadableFile(f"{path} holds no entries")
    if options.scale is not None:
        matrix = matrix.with_scale(options.scale)
        rows, columns = (
            Labelled(matrix.rows, matrix.entry_rows),
            Labelled(matrix.columns, matrix.by_row.columns),
        )
        try:
            check_on_scale(rows, columns, matrix.values, matrix.scale)
        except OffScale as error:
            raise error.locate(str(path)) from error
    return matrix


def _read_wide(path: Path, options: ReadOptions) -> EntryFile:
    """Read a wide table; the row ids are in the column asked for, otherwise in the first."""
    for role in ("column", "value"):
        if options.asked[role] is not None:
            raise BadSetting(
                f"a wide table has no {role} field to choose; got {role} {options.asked[role]!r}"
            )
    if is_typed_file(path):
        frame = read_typed_file(path)
        row = _choose_row(frame.columns, options)
        frame = frame.drop(options.exclude)
    else:
        frame, row = _read_wide_text(path, options)
    if options.row is None:
        _refuse_no_ids(frame[row])
    values = frame.drop(row).get_columns()
    if sum(series.len() - series.null_count() for series in values) == 0:
        raise UnreadableFile(f"{path} holds no entries")
    matrix = ObservedMatrix.from_table(frame, row=row, scale=options.scale)
    guess = f"{row!r} holds the row ids of a wide table of {matrix.shape[1]:,} columns"
    return EntryFile(matrix, ReadNotes(guess if options.row is None else None))


def _read_wide_text(path: Path, options: ReadOptions) -> tuple[pl.DataFrame, str]:
    """Read a wide table from text; return the name of the column with the row ids, too."""
    layout = recognise_layout(path, TABLE, options)
    row = _choose_row(layout.names, options)
    with translate_polars_errors(path, "text"):
        texts = drop_blank_end(layout.scan().drop(options.exclude).collect())
    if texts[row].null_count():
        line = int(texts[row].is_null().arg_true()[0]) + layout.first_line
        hint = None if options.row is not None else _hint_at_ids(row)
        raise BadEntries(f"line {line}: the row id is missing", hint=hint)
    columns = [texts[row] if row in layout.quoted else parse_ids(texts[row])]
    for series in texts.drop(row).get_columns():
        try:
            columns.append(parse_numbers(series, decimal=options.decimal))
        except BadEntries as error:
            assert error.position is not None
            hint = Hint(
                f"exclude=[{series.name!r}] leaves the column out, and DMFImputer fills in tables with text",
                f"--exclude-columns {series.name} leaves the column out, and deepmf impute fills in tables with text",
            )
            place = f"line {error.position + layout.first_line}, column {series.name!r}"
            raise BadEntries(f"{place}: {error.message}", hint=error.hint or hint) from error
    return import_polars().DataFrame(columns), row


def _refuse_no_ids(column: pl.Series) -> None:
    """Refuse a first column that cannot be the row ids: some are missing, repeat others, or have
    decimal places."""
    hint = _hint_at_ids(column.name)
    if column.null_count():
        raise BadEntries(
            f"{column.null_count():,} of {column.len():,} row ids are missing", hint=hint
        )
    if not (column.dtype.is_numeric() or column.dtype == import_polars().String):
        return
    if (n_repeats := column.len() - column.n_unique()) > 0:
        raise BadEntries(
            f"row ids must differ; {n_repeats:,} of {column.len():,} are repeats", hint=hint
        )
    numbers = column.cast(import_polars().Float64, strict=False)
    if column.len() and not numbers.null_count() and (numbers % 1 != 0).any():
        raise BadEntries(
            f"row ids cannot be numbers with decimal places such as {column[0]}", hint=hint
        )


def _hint_at_ids(row: str) -> Hint:
    return Hint(
        f"the first column, {row!r}, is taken as the row ids; row= names another, and DMFImputer needs none",
        f"the first column, {row!r}, is taken as the row ids; --row names another, and deepmf impute needs none",
    )


def _choose_row(names: list[str], options: ReadOptions) -> str:
    """Return the name of the column with the row ids; refuse to leave out a column that the table
    does not have."""
    check_excluded(names, options.exclude)
    return assign_roles(names, {"row": 0 if options.row is None else options.row})["row"]


def _read_npz(path: Path, options: ReadOptions) -> EntryFile:
    matrix = read_npz(path)
    if matrix.nnz == 0:
        raise UnreadableFile(f"{path} holds no entries")
    if options.kind is INTERACTIONS:
        scale = choose_scale(options.scale, are_interactions=True)
        return EntryFile(ObservedMatrix.from_sparse(matrix, scale=scale, duplicates="sum"))
    return EntryFile(
        ObservedMatrix.from_sparse(matrix, scale=options.scale, duplicates=options.duplicates)
    )


def read_npz(path: str | Path) -> scipy.sparse.coo_array:
    """Read a scipy sparse matrix from `.npz`; nothing is unpickled, and inconsistent indices are
    refused."""
    path = check_path(path)
    if not zipfile.is_zipfile(path):
        raise UnreadableFile(f"{path} is not a whole .npz file")
    try:
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                check_expansion(path, sum(member.file_size for member in archive.infolist()))
                for member in archive.infolist():
                    _check_member(archive, member)
            file.seek(0)
            matrix = scipy.sparse.load_npz(file)
        if matrix.format in ("csr", "csc", "bsr"):
            _check_pointers(matrix)
        # of arrays with a place for every row and column
        check_expansion(path, _INDEX_BYTES * sum(matrix.shape))
        return matrix.tocoo()
    except UnreadableFile:
        raise
    except Exception as error:  # numpy, scipy and zipfile raise anything over a broken archive
        if "pickle" in str(error):
            raise UnreadableFile(
                f"{path} holds a pickle, which could run code; it is refused"
            ) from error
        raise UnreadableFile(
            f"{path} is not a whole scipy sparse .npz file ({summarise(error)})"
        ) from error


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header claims another size than its bytes, before memory is taken for
    it."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, kind = read(file)
        if (
            not kind.hasobject
            and math.prod(shape) * kind.itemsize != member.file_size - file.tell()
        ):
            raise ValueError(f"{member.filename} is not as large as it says")


def _check_pointers(matrix: Any) -> None:
    """Refuse pointers that do not rise from 0 to the number of indices, and indices outside the
    matrix."""
    starts, count = matrix.indptr, matrix.indices.size
    if (
        starts.size == 0
        or starts[0] != 0
        or starts[-1] != count
        or np.any(starts[1:] < starts[:-1])
    ):
        raise ValueError(f"its pointers do not rise from 0 to {count:,}")
    matrix.check_format(full_check=True)
