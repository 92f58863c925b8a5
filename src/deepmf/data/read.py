"""Reading a matrix from a file: delimited text (plain, gz, zst), Parquet, or a scipy `.npz`."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scipy.sparse

from deepmf.data.delimited import SAMPLE_LINES, DelimitedFile, is_whole
from deepmf.data.parquet import ENDINGS, read_parquet
from deepmf.data.source import check_expansion, checked_path, first_sentence, import_polars, reading
from deepmf.data.text_layout import TextLayout, recognise, refuse_wide
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.matrix.frames import choose_columns
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import Duplicates

if TYPE_CHECKING:
    import polars as pl

Column = str | int | None

_WHOLE_NUMBER = "^(0|-?[1-9][0-9]{0,17})$"  # what reads back as it stands, and fits in 64 bits
_BEYOND = 10**18
_ODD = "\x1f"  # the name of a column that no file has
# What numpy, scipy and zipfile raise on a broken archive.
_NPZ_ERRORS = (
    *(OSError, ValueError, KeyError, IndexError, TypeError, EOFError, MemoryError, OverflowError, AttributeError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error, struct.error),
)


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
) -> ObservedMatrix:
    """Read entries from a file: one line per entry in text and Parquet, a sparse matrix in `.npz`.

    Text may be CSV, TSV, MovieLens `.dat` (`::`) or `u.data`, with or without a header, also compressed (`.gz`,
    `.zst`); separator and header are recognised from the first lines unless given. `row`, `column` and `value` are
    names or positions of columns; left out, usual names (user, item, rating, ...) are recognised, otherwise the first
    three columns are taken. Where all ids of a column are whole numbers in canonical form (neither 007 nor
    +7), they become ints, otherwise they stay strings. A wide table, with a line per row, is refused.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ratings.csv")
    >>> _ = path.write_text("user,film,stars\\nann,Alien,5\\nbob,Big,3\\n")
    >>> read_matrix(path)
    ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), scale one of 3, 5)
    """
    path = checked_path(path)
    asked = {"row": row, "column": column, "value": value}
    if path.suffix.lower() == ".npz":
        return _placed(lambda: _read_npz(path, scale, duplicates), path, first_line=None)
    if path.suffix.lower() in ENDINGS:
        frame, first_line = read_parquet(path, lambda lazy: _chosen_parquet(path, lazy, asked)), None
    else:
        named = any(isinstance(name, str) for name in asked.values())
        file = DelimitedFile(path)
        layout = recognise(file, separator=separator, header=True if named and header is None else header)
        frame, first_line = _read_text(file, layout, asked), layout.first_line
    if frame.height == 0:
        raise UnreadableFile(f"{path} holds no entries")
    return _placed(
        lambda: ObservedMatrix.from_frame(frame, row=0, column=1, value=2, scale=scale, duplicates=duplicates),
        path,
        first_line,
    )


def read_npz(path: str | Path) -> scipy.sparse.sparray:
    """Read a scipy sparse matrix from `.npz`; nothing is unpickled, and inconsistent indices are refused."""
    path = checked_path(path)
    if not zipfile.is_zipfile(path):
        raise UnreadableFile(f"{path} is not a whole .npz file")
    try:
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                check_expansion(path, sum(member.file_size for member in archive.infolist()))
            file.seek(0)
            matrix = scipy.sparse.load_npz(file)
        if matrix.format in ("csr", "csc"):
            matrix.check_format(full_check=True)
    except UnreadableFile:
        raise
    except _NPZ_ERRORS as error:
        if "pickle" in str(error):
            raise UnreadableFile(f"{path} holds a pickle, which could run code; it is refused") from error
        raise UnreadableFile(f"{path} is not a whole scipy sparse .npz file ({first_sentence(error)})") from error
    return matrix


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


def _chosen_parquet(path: Path, lazy: pl.LazyFrame, asked: dict[str, Column]) -> list[str]:
    names = lazy.collect_schema().names()
    if asked["column"] is None and asked["value"] is None:
        head = lazy.head(SAMPLE_LINES).collect().rows()
        sample = [["" if cell is None else str(cell) for cell in line] for line in head]
        refuse_wide(path, names, sample, how_to_read=f"read_parquet({str(path)!r})")
    return _chosen(path, names, asked)


def _chosen(path: Path, names: list[str], asked: dict[str, Column]) -> list[str]:
    try:
        return list(choose_columns(names, **asked).values())
    except BadEntries as error:
        raise BadEntries(f"{path}: {error.message}") from error


def _read_text(file: DelimitedFile, layout: TextLayout, asked: dict[str, Column]) -> pl.DataFrame:
    """Read the three columns, their types decided by all of their lines."""
    if asked["column"] is None and asked["value"] is None:
        separated = "" if layout.separator == "," else f", separator={layout.separator!r}"
        names = layout.names if layout.has_header else layout.sample[0]
        refuse_wide(file.path, names, layout.sample, how_to_read=f"read_csv({str(file.path)!r}{separated})")
    roles = _chosen(file.path, layout.names, asked)
    whole = [name for name in roles[:2] if _looks_whole(layout, name)]
    polars = import_polars()
    with reading(file.path, "text"):
        try:
            # Text is cast in the same pass that looks for ids such as 007, which a number would not keep as given.
            typed = _scan(file, layout, {roles[2]: polars.Float64}).select(
                *(polars.col(name).cast(polars.Int64) if name in whole else polars.col(name) for name in roles),
                polars.any_horizontal([polars.lit(False), *map(_unlike_numbers, whole)]).alias(_ODD),
            )
            frame = typed.collect()
            if frame.height == 0 or not frame[_ODD][0]:
                return _without_blank_end(frame.drop(_ODD))
        except polars.exceptions.PolarsError:
            pass  # some field is not what the first lines promised: read text, and find out which
        texts = _scan(file, layout, {}).select(roles).collect()
    return _cast(_without_blank_end(texts), file.path, layout.first_line)


def _looks_whole(layout: TextLayout, name: str) -> bool:
    at = layout.names.index(name)
    return all(is_whole(fields[at]) for fields in layout.sample if at < len(fields))


def _unlike_numbers(name: str) -> Any:
    """Return the expression that says whether a number would not keep some id as given, such as 007, +7 or -0."""
    polars = import_polars()
    number = polars.col(name).cast(polars.Int64)
    beyond = ~number.is_between(-_BEYOND, _BEYOND, closed="none")
    return ((number.cast(polars.String) != polars.col(name)) | beyond).any()


def _scan(file: DelimitedFile, layout: TextLayout, types: dict[str, Any]) -> pl.LazyFrame:
    names = layout.names
    if layout.separator == "::":  # polars splits at one byte: every second field is the empty one between the colons
        names = [part for name in layout.names for part in (name, f"{_ODD}{name}")][:-1]
    return file.scan(names, layout.separator, n_skipped=layout.first_line - 1, types=types)


def _without_blank_end(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out blank lines at the end of the file."""
    if frame.height == 0 or any(field is not None for field in frame.row(-1)):
        return frame
    polars = import_polars()
    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series().arg_true()
    return frame.head(filled[-1] + 1 if filled.len() else 0)


def _cast(texts: pl.DataFrame, path: Path, first_line: int) -> pl.DataFrame:
    """Turn three text columns into ids and numbers, naming the first value that is not a number."""
    polars = import_polars()
    row, column, value = texts.get_columns()
    numbers = value.str.strip_chars().cast(polars.Float64, strict=False)
    bad = (numbers.is_null() & value.is_not_null()).arg_true()
    if bad.len():
        place = bad[0] + first_line
        raise BadEntries(f"{path}, line {place}: value {value[bad[0]]!r} is not a number")
    typed: pl.DataFrame = polars.DataFrame([_whole_or_text(row), _whole_or_text(column), numbers])
    return typed


def _whole_or_text(ids: pl.Series) -> pl.Series:
    return ids.cast(import_polars().Int64) if ids.str.contains(_WHOLE_NUMBER).all() else ids
