"""Reading a matrix from a file: delimited text (plain, gz, zst), Parquet, or a scipy `.npz`."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import scipy.sparse

from deepmf.data.role_columns import Column, read_columns
from deepmf.data.roles import ENTRIES
from deepmf.data.source import check_expansion, checked_path, first_sentence
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import Duplicates

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
    if path.suffix.lower() == ".npz":
        return _placed(lambda: _read_npz(path, scale, duplicates), path, first_line=None)
    asked = {"row": row, "column": column, "value": value}
    frame, first_line = read_columns(path, ENTRIES, asked=asked, separator=separator, header=header)
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
