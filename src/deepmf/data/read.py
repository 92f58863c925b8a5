"""Reading a matrix from a file: delimited text (plain, gz, zst), Parquet, or a scipy `.npz`."""

from __future__ import annotations

import reprlib
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from deepmf.data.role_columns import Column, read_columns
from deepmf.data.roles import ENTRIES
from deepmf.data.source import check_expansion, checked_path, first_sentence
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.matrix_file import FORM, LABELS
from deepmf.matrix.scale import Scale
from deepmf.matrix.sorting import Duplicates
from deepmf.matrix.table_form import PLAIN, TableForm

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
    frame, first_line, _ = read_columns(path, ENTRIES, asked=asked, separator=separator, header=header)
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
    arrays = _own_arrays(path)
    labels = {LABELS[axis]: arrays[LABELS[axis]].tolist() for axis in LABELS if LABELS[axis] in arrays}
    form = _form_of(path, arrays[FORM].tolist()) if FORM in arrays else PLAIN
    return ObservedMatrix.from_sparse(matrix, scale=scale, duplicates=duplicates, **labels).in_form(form)


def _own_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return what `ObservedMatrix.write` put into an .npz file beside the arrays of scipy."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in (*LABELS.values(), FORM) if name in archive}
    except _NPZ_ERRORS as error:
        raise UnreadableFile(f"{path} has labels that cannot be read ({first_sentence(error)})") from error


def _form_of(path: Path, names: Any) -> TableForm:
    if not (isinstance(names, list) and len(names) == 4 and all(isinstance(name, str) for name in names)):
        raise UnreadableFile(f"{path}: the names of its fields must be four texts; got {reprlib.repr(names)}")
    row, column, value, kind = names
    return TableForm(row, column, value, wide=kind == "wide")
