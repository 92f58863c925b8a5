"""A part of a matrix that is mapped from a store, as a store without a name: it lives as long as the part does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.errors import CannotSave, UserError
from deepmf.files.leftovers import temporary_folder
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.coded_values import CodedValues
from deepmf.matrix.labels import Labels
from deepmf.matrix.store_reader import StoreOrigin, StoreParts, check_unchanged, open_store
from deepmf.matrix.store_writer import StoreWriter

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix

_PIECE = 1 << 22  # entries that are looked at at a time


class EntryPiece(NamedTuple):
    """Some entries that follow one another in row order; values are codes where the matrix has codes."""

    rows: IndexArray
    columns: IndexArray
    values: npt.NDArray[Any]

    def kept(self, which: npt.NDArray[Any]) -> EntryPiece:
        """Return some of them."""
        return EntryPiece(*(field[which] for field in self))


def entry_pieces(matrix: ObservedMatrix) -> Iterator[EntryPiece]:
    """Yield all entries of a matrix in row order, some at a time."""
    check_unchanged(matrix)
    starts, values = matrix.by_row.starts, stored_values(matrix)
    for start in range(0, matrix.n_entries, _PIECE):
        end = min(start + _PIECE, matrix.n_entries)
        first, last = np.searchsorted(starts, [start, end - 1], side="right") - 1
        bounds = np.clip(starts[first : last + 2].astype(np.int64), start, end)
        rows = np.repeat(np.arange(first, last + 1), np.diff(bounds))
        yield EntryPiece(rows, matrix.by_row.columns[start:end], values[start:end])


def stored_values(matrix: ObservedMatrix) -> npt.NDArray[Any]:
    """Return the values of a matrix as a store holds them: codes, or numbers."""
    values: Any = matrix.values
    return values.codes if isinstance(values, CodedValues) else values


def part_on_disk(matrix: ObservedMatrix, which: npt.NDArray[Any]) -> StoreParts:
    """Return some of the entries: by a mask over them in row order, or by their rising places."""
    is_mask = which.dtype == bool

    def chosen() -> Iterator[EntryPiece]:
        done = 0
        for piece in entry_pieces(matrix):
            end = done + piece.rows.size
            first, last = (done, end) if is_mask else np.searchsorted(which, [done, end])
            yield piece.kept(which[first:last] if is_mask else which[first:last] - done)
            done = end

    n_kept = int(np.count_nonzero(which)) if is_mask else which.size
    return _unnamed(matrix, matrix.rows, matrix.columns, chosen(), matrix.column_counts, n_kept)


def axes_on_disk(matrix: ObservedMatrix, rows: IndexArray, columns: IndexArray) -> StoreParts:
    """Return the part with some rows and columns, given by their rising positions."""
    new_row, new_column = (
        _new_positions(len(axis), kept) for axis, kept in ((matrix.rows, rows), (matrix.columns, columns))
    )

    def chosen() -> Iterator[EntryPiece]:
        for piece in entry_pieces(matrix):
            moved = EntryPiece(new_row[piece.rows], new_column[piece.columns], piece.values)
            yield moved.kept((moved.rows >= 0) & (moved.columns >= 0))

    weights = matrix.column_counts[columns]
    return _unnamed(matrix, matrix.rows.take(rows), matrix.columns.take(columns), chosen(), weights, int(weights.sum()))


def _new_positions(count: int, kept: IndexArray) -> IndexArray:
    positions = np.full(count, -1, dtype=np.int64)
    positions[kept] = np.arange(kept.size)
    return positions


def _unnamed(
    matrix: ObservedMatrix,
    rows: Labels,
    columns: Labels,
    entries: Iterator[EntryPiece],
    column_weights: IndexArray,
    most_entries: int,
) -> StoreParts:
    """Write entries to a store whose files are removed once they are mapped: they stay for as long as they are held."""
    values: Any = matrix.values
    assert matrix.origin is not None
    place = _place(matrix.origin.folder.parent)
    with temporary_folder(place) as folder, _said_of(place):
        whole = folder / "whole"
        whole.mkdir()
        writer = StoreWriter(
            whole,
            folder / "scratch",
            rows=rows,
            columns=columns,
            value_kind=stored_values(matrix).dtype,
            column_weights=column_weights,
            most_entries=most_entries,
        )
        try:
            for piece in entries:
                writer.append(*piece)
            table = values.table.astype(np.float64) if isinstance(values, CodedValues) else None
            writer.finish(scale=matrix.scale, form=matrix.form, table=table)
        finally:
            writer.close()
        parts = open_store(whole)
        origin = StoreOrigin(matrix.origin.folder, {})
        return parts._replace(rows=rows, columns=columns, origin=origin)


@contextmanager
def _said_of(place: Path) -> Iterator[None]:
    """Say of what cannot be written where that is."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise CannotSave(f"a part of a store could not be written to {place} ({error.strerror})") from error


def _place(beside: Path) -> Path:
    """Return where a part is written: beside the store, or where temporary files are kept if nothing may be there."""
    return beside if beside.is_dir() and os.access(beside, os.W_OK) else Path(gettempdir())
