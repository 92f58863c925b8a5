"""Reading a matrix from a file: delimited text (plain, gz, zst), Parquet, or a scipy `.npz`."""

from __future__ import annotations

import csv
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import scipy.sparse

from deepmf.errors import BadEntries, BadSetting, FileAbsent, MissingDependency, UnreadableFile
from deepmf.matrix.frames import choose_columns
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import Duplicates

if TYPE_CHECKING:
    import polars as pl

# Tried in this order on the first lines; the first that cuts them all into at least three fields is taken.
_SEPARATORS = ("::", "\t", ",", ";", "|", " ")
_UNQUOTED = ("::", "\t")  # where a quotation mark is a character like any other
_SAMPLE_LINES = 200
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})")
# What numpy, scipy and zipfile raise on a broken archive.
_NPZ_ERRORS = (
    *(OSError, ValueError, KeyError, IndexError, TypeError, EOFError, MemoryError, OverflowError, AttributeError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error, struct.error),
)
_UNPRINTABLE = "\x1f"  # a separator that no text contains: whole lines come back


@dataclass(frozen=True)
class _Layout:
    """How a text file is laid out: its separator, the names of its fields, and whether line 1 holds them."""

    separator: str
    names: list[str]
    has_header: bool
    n_blank: int  # lines before the first that is not blank
    sample: list[list[str]]

    @property
    def first_line(self) -> int:
        """The number of the first line with an entry, counted from 1."""
        return self.n_blank + (2 if self.has_header else 1)


def read_matrix(
    path: str | Path,
    *,
    row: str | int | None = None,
    column: str | int | None = None,
    value: str | int | None = None,
    separator: str | None = None,
    header: bool | None = None,
    scale: Scale | None = None,
    duplicates: Duplicates = "error",
) -> ObservedMatrix:
    """Read entries from a file: one line per entry in text and Parquet, a sparse matrix in `.npz`.

    Text may be CSV, TSV, MovieLens `.dat` (`::`) or `u.data`, with or without a header, also compressed (`.gz`,
    `.zst`); separator and header are recognised from the first lines unless given. `row`, `column` and `value` are
    names or positions of columns; left out, usual names (user, item, rating, ...) are recognised, otherwise the first
    three columns are taken. Ids written as whole numbers become ints, all others stay strings.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ratings.csv")
    >>> _ = path.write_text("user,film,stars\\nann,Alien,5\\nbob,Big,3\\n")
    >>> read_matrix(path)
    ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), scale one of 3, 5)
    """
    path = _checked_path(path)
    if path.suffix == ".npz":
        return _placed(lambda: _read_npz(path, scale, duplicates), path, first_line=None)
    if path.suffix in (".parquet", ".pq"):
        frame, first_line = _read_parquet(path, row, column, value), None
    else:
        layout = _sniff(path, separator=separator, header=header, named=_any_name(row, column, value))
        frame, first_line = _read_text(path, layout, row, column, value), layout.first_line
    if frame.height == 0:
        raise UnreadableFile(f"{path} holds no entries")
    return _placed(
        lambda: ObservedMatrix.from_frame(frame, row=0, column=1, value=2, scale=scale, duplicates=duplicates),
        path,
        first_line,
    )


def read_npz(path: str | Path) -> scipy.sparse.sparray:
    """Read a scipy sparse matrix from `.npz`; nothing is unpickled, and inconsistent indices are refused."""
    path = _checked_path(path)
    if not zipfile.is_zipfile(path):
        raise UnreadableFile(f"{path} is not a whole .npz file")
    try:
        with path.open("rb") as file:
            matrix = scipy.sparse.load_npz(file)
        if matrix.format in ("csr", "csc"):
            matrix.check_format(full_check=True)
    except _NPZ_ERRORS as error:
        if "pickle" in str(error):
            raise UnreadableFile(f"{path} holds a pickle, which could run code; it is refused") from error
        raise UnreadableFile(f"{path} is not a whole scipy sparse .npz file ({_first_sentence(error)})") from error
    return matrix


def _checked_path(path: str | Path) -> Path:
    path = Path(path)
    if path.is_dir():
        raise UnreadableFile(f"{path} is a directory; a file is needed")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError as error:
        raise FileAbsent(f"there is no file {path}") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
    if empty:
        raise UnreadableFile(f"{path} is empty")
    return path


def _placed(build: Callable[[], ObservedMatrix], path: Path, first_line: int | None) -> ObservedMatrix:
    """Build a matrix; where an entry is at fault, say in which file and on which line."""
    try:
        return build()
    except BadEntries as error:
        if error.position is None:
            raise type(error)(f"{path}: {error.message}") from error
        place = f"entry {error.position}" if first_line is None else f"line {error.position + first_line}"
        raise type(error)(f"{path}, {place}: {error.message}") from error


def _read_npz(path: Path, scale: Scale | None, duplicates: Duplicates) -> ObservedMatrix:
    matrix = read_npz(path)
    if matrix.nnz == 0:
        raise UnreadableFile(f"{path} holds no entries")
    return ObservedMatrix.from_sparse(matrix, scale=scale, duplicates=duplicates)


def _read_parquet(path: Path, row: str | int | None, column: str | int | None, value: str | int | None) -> pl.DataFrame:
    polars = _polars()
    try:
        lazy = polars.scan_parquet(path)
        names = lazy.collect_schema().names()
        chosen = choose_columns(names, row=row, column=column, value=value)
        frame: pl.DataFrame = lazy.select(list(chosen.values())).collect()
    except BadEntries as error:
        raise BadEntries(f"{path}: {error.message}") from error
    except (polars.exceptions.PolarsError, OSError) as error:
        raise UnreadableFile(f"{path} is not a whole Parquet file ({_first_sentence(error)})") from error
    return frame


def _sniff(path: Path, *, separator: str | None, header: bool | None, named: bool) -> _Layout:
    """Recognise the layout from the first lines."""
    head = _head(path)
    lines = [line for line in head if line]
    if not lines:
        raise UnreadableFile(f"{path} is empty")
    n_blank = head.index(lines[0])
    if separator is not None and not (len(separator) == 1 or separator == "::"):
        raise BadSetting(f"separator must be one character or '::'; got {separator!r}")
    found = separator or next((s for s in _SEPARATORS if min(map(len, _fields(lines, s))) >= 3), None)
    # None fits every line: take the one that suits the first, so that the message names the offending line.
    found = found or max(_SEPARATORS, key=lambda s: len(_fields(lines[:1], s)[0]))
    sample = _fields(lines, found)
    if len(sample[0]) < 3:
        raise UnreadableFile(
            f"{path}: line 1 {lines[0][:80]!r} has {len(sample[0])} column(s) when split at {found!r}; "
            "a row, a column and a value are needed (is the separator another?)"
        )
    has_header = header if header is not None else named or not any(map(_is_number, sample[0]))
    names = sample[0] if has_header else [str(number) for number in range(len(sample[0]))]
    if len(set(names)) < len(names):
        raise UnreadableFile(f"{path}: the header {lines[0][:80]!r} names a column twice")
    return _Layout(found, names, has_header, n_blank, sample[1:] if has_header else sample)


def _head(path: Path) -> list[str]:
    polars = _polars()
    try:
        head = polars.read_csv(
            path,
            has_header=False,
            separator=_UNPRINTABLE,
            quote_char=None,
            infer_schema=False,
            n_rows=_SAMPLE_LINES,
            truncate_ragged_lines=True,
        )
    except polars.exceptions.NoDataError:
        return []
    except (polars.exceptions.PolarsError, OSError) as error:
        raise _unreadable_text(path, error) from error
    return [(line or "").removesuffix("\r") for line in head.to_series().to_list()]


def _fields(lines: Sequence[str], separator: str) -> list[list[str]]:
    if separator in _UNQUOTED:
        return [line.split(separator) for line in lines]
    return list(csv.reader(lines, delimiter=separator))


def _read_text(
    path: Path, layout: _Layout, row: str | int | None, column: str | int | None, value: str | int | None
) -> pl.DataFrame:
    polars = _polars()
    try:
        chosen = choose_columns(layout.names, row=row, column=column, value=value)
    except BadEntries as error:
        raise BadEntries(f"{path}: {error.message}") from error
    roles = list(chosen.values())
    whole = [name for name in roles[:2] if _looks_whole(layout, name)]
    try:
        # Text is cast in the same pass that looks for ids such as 007, which a number would not keep as given.
        typed = _scan(path, layout, {roles[2]: polars.Float64}).select(
            *(polars.col(name).cast(polars.Int64) if name in whole else polars.col(name) for name in roles),
            polars.any_horizontal([polars.lit(False), *(_unlike_numbers(name) for name in whole)]).alias(_UNPRINTABLE),
        )
        frame = typed.collect()
        if frame.height == 0 or not frame[_UNPRINTABLE][0]:
            return _without_blank_end(frame.drop(_UNPRINTABLE))
    except polars.exceptions.PolarsError:
        pass  # some field is not what the first lines promised: read text, and find out which
    except OSError as error:
        raise _unreadable_text(path, error) from error
    try:
        texts = _scan(path, layout, {}).select(roles).collect()
    except (polars.exceptions.PolarsError, OSError) as error:
        raise _unreadable_text(path, error) from error
    return _cast(_without_blank_end(texts), path, layout.first_line)


def _looks_whole(layout: _Layout, name: str) -> bool:
    at = layout.names.index(name)
    return all(_WHOLE_NUMBER.fullmatch(fields[at]) for fields in layout.sample if at < len(fields))


def _unlike_numbers(name: str) -> Any:
    """Return the expression that says whether any id has leading zeros, which a number would lose."""
    text = _polars().col(name).str
    return (text.starts_with("0") & (text.len_bytes() > 1)).any()


def _scan(path: Path, layout: _Layout, types: dict[str, Any]) -> pl.LazyFrame:
    """Scan all fields lazily, as text unless `types` says otherwise."""
    polars = _polars()
    names = layout.names
    if layout.separator == "::":  # polars splits at one byte: every second field is the empty one between the colons
        names = [part for name in layout.names for part in (name, f"{_UNPRINTABLE}{name}")][:-1]
    schema = {name: types.get(name, polars.String) for name in names}
    lazy: pl.LazyFrame = polars.scan_csv(
        path,
        separator=layout.separator[0],
        has_header=False,
        skip_rows=layout.first_line - 1,
        schema=schema,
        quote_char=None if layout.separator in _UNQUOTED else '"',
    )
    return lazy


def _without_blank_end(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out blank lines at the end of the file."""
    if frame.height == 0 or any(field is not None for field in frame.row(-1)):
        return frame
    polars = _polars()
    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series().arg_true()
    return frame.head(filled[-1] + 1 if filled.len() else 0)


def _cast(texts: pl.DataFrame, path: Path, first_line: int) -> pl.DataFrame:
    """Turn three text columns into ids and numbers, naming the first value that is not a number."""
    polars = _polars()
    row, column, value = texts.get_columns()
    numbers = value.str.strip_chars().cast(polars.Float64, strict=False)
    bad = (numbers.is_null() & value.is_not_null()).arg_true()
    if bad.len():
        place = bad[0] + first_line
        raise BadEntries(f"{path}, line {place}: value {value[bad[0]]!r} is not a number")
    typed: pl.DataFrame = polars.DataFrame([_whole_or_text(row), _whole_or_text(column), numbers])
    return typed


def _whole_or_text(ids: pl.Series) -> pl.Series:
    whole = ids.str.contains(f"^{_WHOLE_NUMBER.pattern}$").all()
    return ids.cast(_polars().Int64) if whole else ids


def _unreadable_text(path: Path, error: Exception) -> UnreadableFile:
    if "utf" in str(error).lower():
        return UnreadableFile(f"{path} is not UTF-8 text; convert it first, for instance with iconv")
    if "more fields" in str(error):
        return UnreadableFile(f"{path} has lines with more columns than line 1 (a separator inside a field, unquoted?)")
    return UnreadableFile(f"{path} cannot be read as text ({_first_sentence(error)})")


def _first_sentence(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _any_name(*columns: str | int | None) -> bool:
    return any(isinstance(column, str) for column in columns)


def _polars() -> ModuleType:
    try:
        import polars
    except ImportError as error:
        raise MissingDependency("reading files needs polars: pip install polars") from error
    return polars
