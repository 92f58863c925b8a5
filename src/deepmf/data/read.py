"""Reading a matrix from a file: delimited text (plain, gz, zst), Parquet, JSON lines, scipy `.npz`, or from a store."""

from __future__ import annotations

import math
import reprlib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.data.delimited import (
    DelimitedFile,
    check_expansion,
    checked_path,
    first_sentence,
    is_folder,
    reading,
    whole_or_text,
)
from deepmf.data.roles import (
    ENDINGS,
    ENTRIES,
    TABLE,
    Column,
    check_decimal,
    parsed,
    read_columns,
    read_typed,
    recognise,
    scan_typed,
    without_blank_end,
)
from deepmf.errors import BadEntries, BadSetting, Hint, OffScale, UnreadableFile
from deepmf.files import import_polars
from deepmf.matrix.arrays import iterate_pieces
from deepmf.matrix.frames import PLAIN, TableForm, choose_columns
from deepmf.matrix.matrix import NPZ_FORM, NPZ_LABELS, ObservedMatrix
from deepmf.matrix.packed import check_entries, open_store
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import Duplicates

if TYPE_CHECKING:
    import polars as pl


Missing = Literal["error", "drop"]

MISSING_HINT = Hint("missing='drop' leaves them out", "--missing drop leaves them out")


class KeptLines(NamedTuple):
    """The lines that hold an entry, where each of them stood (None: where it stands), and how many were left out."""

    frame: pl.DataFrame
    places: npt.NDArray[np.int64] | None
    n_dropped: int

    def place(self, at: int) -> int:
        """Return where a line stood before others were left out."""
        return at if self.places is None else int(self.places[at])


def check_missing(missing: str) -> None:
    """Refuse a value that `missing` cannot have."""
    if missing not in get_args(Missing):
        raise BadSetting(f"missing must be 'error' or 'drop'; got {missing!r}")


def whole_lines(frame: pl.DataFrame, missing: Missing, *, n_before: int | None = None) -> KeptLines:
    """Return the lines with a row, a column and a value, in this order; others are an error, or left out.

    n_before: of a file that is read some lines at a time, how many came before these; how many there are is not known.
    """
    polars = import_polars()
    value = frame.get_columns()[2]
    if value.dtype.is_float() and value.is_nan().any():
        frame = frame.with_columns(value.fill_nan(None))
    n_lines = frame.height
    if not any(series.null_count() for series in frame.get_columns()):
        return KeptLines(frame, None, 0)
    whole = frame.select(polars.all_horizontal(polars.all().is_not_null())).to_series()
    n_missing = n_lines - int(whole.sum())
    if missing == "error":
        first = int((~whole).arg_true()[0])
        line = dict(zip(("row id", "column id", "value"), frame.row(first), strict=True))
        what = next(name for name in ("value", "row id", "column id") if line[name] is None)
        counted = f", as in {n_missing:,} of {n_lines:,} lines" if n_before is None else ""
        raise BadEntries(f"the {what} is missing{counted}", position=first + (n_before or 0), hint=MISSING_HINT)
    return KeptLines(frame.filter(whole), whole.arg_true().to_numpy().astype(np.int64), n_missing)


class WideFile(NamedTuple):
    """The table, the name of the column with the row ids, and the number of its first line (None: it has no lines)."""

    frame: pl.DataFrame
    row: str
    first_line: int | None


def read_wide(path: Path, *, row: Column, separator: str | None, header: bool | None, decimal: str) -> WideFile:
    """Read a wide table; the row ids are in the column asked for, otherwise in the first."""
    if path.suffix.lower() in ENDINGS:
        frame = read_typed(path, lambda lazy: lazy.collect_schema().names())
        return _checked(path, WideFile(frame, _row(path, frame.columns, row), None))
    file = DelimitedFile(path)
    header = True if isinstance(row, str) and header is None else header
    layout = recognise(file, TABLE, separator=separator, header=header, is_known=lambda _: False, decimal=decimal)
    name = _row(path, layout.names, row)
    with reading(path, "text"):
        texts = without_blank_end(scan_typed(file, layout, {}).select(layout.names).collect())
    if texts[name].null_count():
        line = int(texts[name].is_null().arg_true()[0]) + layout.first_line
        raise BadEntries(f"{path}, line {line}: the row id is missing")
    columns = [texts[name] if name in layout.quoted else whole_or_text(texts[name])]
    for series in texts.drop(name).get_columns():
        try:
            columns.append(parsed(series, decimal=decimal))
        except BadEntries as error:
            assert error.position is not None
            place = f"line {error.position + layout.first_line}, column {series.name!r}"
            raise error.locate(f"{path}, {place}") from error
    return _checked(path, WideFile(import_polars().DataFrame(columns), name, layout.first_line))


def _row(path: Path, names: list[str], row: Column) -> str:
    try:
        return choose_columns(names, {"row": 0 if row is None else row})["row"]
    except BadEntries as error:
        raise error.locate(str(path)) from error


def _checked(path: Path, wide: WideFile) -> WideFile:
    values = wide.frame.drop(wide.row)
    if values.width == 0 or sum(series.len() - series.null_count() for series in values.get_columns()) == 0:
        raise UnreadableFile(f"{path} holds no entries")
    return wide


T = TypeVar("T")


_INDEX_BYTES = 4  # of a row or a column that has no entry


class FileReading(NamedTuple):
    """A matrix, and how its file was read.

    guessed: which fields were taken for what, as a sentence tells it; None where nothing was guessed.
    n_dropped: how many lines without a value were left out.
    """

    matrix: ObservedMatrix
    guessed: str | None = None
    n_dropped: int = 0


def read_matrix(
    path: str | Path,
    *,
    row: Column = None,
    column: Column = None,
    value: Column = None,
    separator: str | None = None,
    header: bool | None = None,
    scale: Scale | None = None,
    duplicates: Duplicates = "error",
    missing: Missing = "error",
    decimal: str = ".",
    wide: bool = False,
) -> ObservedMatrix:
    """Read entries from a file: a line per entry in text, Parquet and JSON lines (`.jsonl`), a sparse `.npz`, a store.

    Text may be CSV, TSV, MovieLens `.dat` (`::`) or `u.data`, with or without a header, also compressed (`.gz`,
    `.zst`); separator and header are recognised from the first lines unless given. `row`, `column` and `value` are
    names or positions of columns; left out, usual names (user, item, rating, ...) are recognised, otherwise the first
    three columns are taken. Where all ids of a column are whole numbers in canonical form (neither 007 nor
    +7), they become ints, otherwise they stay strings. A line whose value is missing (empty, NA, null, NaN, ...) is an
    error, or left out by `missing="drop"`; `decimal=","` reads decimal commas. A wide table, with a line per row, is
    read by `wide=True`: the column `row`, or the first, holds the row ids, and every other one values or gaps; what
    looks like one is otherwise refused. A store is opened, not read: its entries are in memory where they are touched.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ratings.csv")
    >>> _ = path.write_text("user,film,stars\\nann,Alien,5\\nbob,Big,3\\n")
    >>> read_matrix(path)
    ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), scale one of 3, 5)
    """
    return read_file_of_entries(
        path,
        asked={"row": row, "column": column, "value": value},
        separator=separator,
        header=header,
        scale=scale,
        duplicates=duplicates,
        missing=missing,
        decimal=decimal,
        wide=wide,
    ).matrix


def read_file_of_entries(
    path: str | Path,
    *,
    asked: Mapping[str, Column],
    separator: str | None = None,
    header: bool | None = None,
    scale: Scale | None = None,
    duplicates: Duplicates = "error",
    missing: Missing = "error",
    decimal: str = ".",
    wide: bool = False,
) -> FileReading:
    """Read a matrix as `read_matrix` does, and say what was guessed and left out."""
    check_missing(missing)
    check_decimal(decimal)
    if is_folder(path):
        return FileReading(_read_store(Path(path), scale))
    path = checked_path(path)
    if path.suffix.lower() == ".npz":
        return _placed(lambda: _read_npz(path, scale, duplicates, missing), path, lambda at: f"entry {at}")
    if wide:
        return _read_wide(path, asked, separator, header, decimal, scale)
    read = read_columns(path, ENTRIES, asked=asked, separator=separator, header=header, decimal=decimal)
    whole = _placed(lambda: whole_lines(read.frame, missing), path, _lines_from(read.first_line))
    if whole.frame.height == 0:
        raise UnreadableFile(f"{path} holds no entries; lines without a value: {whole.n_dropped:,}")
    lines = _lines_from(read.first_line)
    matrix = _placed(
        lambda: ObservedMatrix.from_frame(whole.frame, row=0, column=1, value=2, scale=scale, duplicates=duplicates),
        path,
        lambda at: lines(whole.place(at)),
    )
    return FileReading(matrix, read.told(ENTRIES) if read.guessed else None, whole.n_dropped)


def _read_store(folder: Path, scale: Scale | None) -> ObservedMatrix:
    """Open a store whose entries lie inside it; a scale that is asked for must hold its values."""
    parts = open_store(folder)
    check_entries(folder, parts)
    matrix = ObservedMatrix.from_parts(parts._replace(scale=scale or parts.scale))
    if matrix.n_entries == 0:
        raise UnreadableFile(f"{folder} holds no entries")
    if scale is None:
        return matrix
    start = 0
    for piece in iterate_pieces(matrix.values):
        off = np.flatnonzero(~scale.holds(piece))
        if off.size:
            at = np.array([start + off[0]])
            row, column = (
                matrix.rows[matrix.find_rows(at)].tolist()[0],
                matrix.columns[matrix.by_row.columns[at]].tolist()[0],
            )
            raise OffScale(
                f"{folder}: row {row!r}, column {column!r} has value {piece[off[0]]:g}; the scale is {scale}"
            )
        start += piece.size
    return matrix


def _read_wide(
    path: Path,
    asked: Mapping[str, Column],
    separator: str | None,
    header: bool | None,
    decimal: str,
    scale: Scale | None,
) -> FileReading:
    for role in ("column", "value"):
        if asked.get(role) is not None:
            raise BadSetting(f"a wide table has no {role} field to choose; got {role} {asked[role]!r}")
    row = asked.get("row")
    read = read_wide(path, row=row, separator=separator, header=header, decimal=decimal)
    matrix = _placed(
        lambda: ObservedMatrix.from_table(read.frame, row=read.row, scale=scale), path, lambda at: f"entry {at}"
    )
    told = f"{read.row!r} holds the row ids of a wide table of {matrix.shape[1]:,} columns"
    return FileReading(matrix, told if row is None else None)


def _lines_from(first_line: int | None) -> Callable[[int], str]:
    return lambda at: f"entry {at}" if first_line is None else f"line {at + first_line}"


def read_npz(path: str | Path) -> scipy.sparse.sparray:
    """Read a scipy sparse matrix from `.npz`; nothing is unpickled, and inconsistent indices are refused."""
    path = checked_path(path)
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
        check_expansion(path, _INDEX_BYTES * sum(matrix.shape))  # of arrays that every row and column has a place in
    except UnreadableFile:
        raise
    except Exception as error:  # of a broken archive, numpy, scipy and zipfile raise what they come across
        if "pickle" in str(error):
            raise UnreadableFile(f"{path} holds a pickle, which could run code; it is refused") from error
        raise UnreadableFile(f"{path} is not a whole scipy sparse .npz file ({first_sentence(error)})") from error
    return matrix


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array that is said to be larger than it is, before memory is taken for it."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
        if not kind.hasobject and math.prod(shape) * kind.itemsize != member.file_size - file.tell():
            raise ValueError(f"{member.filename} is not as large as it says")


def _check_pointers(matrix: Any) -> None:
    """Refuse pointers that do not rise from 0 to the number of indices, and indices outside the matrix."""
    starts, count = matrix.indptr, matrix.indices.size
    if starts.size == 0 or starts[0] != 0 or starts[-1] != count or np.any(starts[1:] < starts[:-1]):
        raise ValueError(f"its pointers do not rise from 0 to {count:,}")
    matrix.check_format(full_check=True)


def _placed(build: Callable[[], T], path: Path, place: Callable[[int], str]) -> T:
    """Build a matrix; where an entry is at fault, say in which file and at which place."""
    try:
        return build()
    except BadEntries as error:
        where = "" if error.position is None else f", {place(error.position)}"
        raise error.locate(f"{path}{where}") from error


def _read_npz(path: Path, scale: Scale | None, duplicates: Duplicates, missing: Missing) -> FileReading:
    matrix = read_npz(path)
    n_dropped = 0
    if missing == "drop" and matrix.dtype.kind == "f":
        entries = matrix.tocoo()
        kept = ~np.isnan(entries.data)
        n_dropped = int(kept.size - np.count_nonzero(kept))
        places = tuple(axis[kept] for axis in entries.coords)
        matrix = scipy.sparse.coo_array((entries.data[kept], places), shape=entries.shape)
    if matrix.nnz == 0:
        raise UnreadableFile(f"{path} holds no entries")
    arrays = _own_arrays(path)
    labels = {name: arrays[name].tolist() for name in NPZ_LABELS.values() if name in arrays}
    form = _form_of(path, arrays[NPZ_FORM].tolist()) if NPZ_FORM in arrays else PLAIN
    read = ObservedMatrix.from_sparse(matrix, scale=scale, duplicates=duplicates, **labels)
    return FileReading(read.with_form(form), n_dropped=n_dropped)


def _own_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return what `ObservedMatrix.write` put into an .npz file beside the arrays of scipy."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in (*NPZ_LABELS.values(), NPZ_FORM) if name in archive}
    except Exception as error:  # likewise
        raise UnreadableFile(f"{path} has labels that cannot be read ({first_sentence(error)})") from error


def _form_of(path: Path, names: Any) -> TableForm:
    if not (isinstance(names, list) and len(names) == 4 and all(isinstance(name, str) for name in names)):
        raise UnreadableFile(f"{path}: the names of its fields must be four texts; got {reprlib.repr(names)}")
    row, column, value, kind = names
    return TableForm(row, column, value, wide=kind == "wide")
