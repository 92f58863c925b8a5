"""Packing: files of entries become a store on disk, in about as much memory as the entries
themselves take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepmf.data.read import (
    FileEntries,
    ReadNotes,
    ReadOptions,
    join_entries,
    read_lines,
    read_matrix,
    read_whole_file,
    warn_of_notes,
)
from deepmf.errors import BadSetting, UnreadableFile
from deepmf.files import Progress, check_absent
from deepmf.matrix.frames import LongEntries
from deepmf.matrix.labels import Labelled
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.packed import write_store


def pack(
    sources: str | Path | Sequence[str | Path], path: str | Path, **options: Any
) -> ObservedMatrix:
    """Pack the entries of one or several files into a new store at `path`, and open it.

    Files are read one after another. The store appears at `path` whole or not at all.

    Parameters
    ----------
    sources : files of entries, wide tables, `.npz` files or stores.
    path : the new store.
    options : those of `read_matrix`, but `exclude`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "ratings.csv").write_text("user,film,stars\\nann,Alien,5\\nbob,Big,3\\n")
    >>> pack(folder / "ratings.csv", folder / "ratings.store")
    ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), scale one of 3, 5)
    """
    files = [Path(sources)] if isinstance(sources, str | Path) else list(map(Path, sources))
    for file, notes in zip(files, pack_files(files, path, ReadOptions(**options)), strict=True):
        warn_of_notes(file, notes)
    return read_matrix(path)


def pack_files(
    files: Sequence[Path],
    path: str | Path,
    options: ReadOptions,
    *,
    progress: Progress = lambda done, total: None,
) -> list[ReadNotes]:
    """Pack files as `pack` does, and note how each was read; progress is counted in entries."""
    if not files:
        raise BadSetting("pack needs at least one file of entries")
    check_absent(path)
    parts: list[FileEntries] = []
    for file in files:
        parts.append(_read_entries(file, options))
        progress(sum(part.n_entries for part in parts), None)
        kinds = [
            "interactions" if part.entries.are_interactions else "values"
            for part in (parts[0], parts[-1])
        ]
        if kinds[0] != kinds[1]:
            raise UnreadableFile(
                f"{files[0]} holds {kinds[0]}, and {file} {kinds[1]}; a store holds one kind"
            )
    notes = [part.notes for part in parts]
    write_store(join_entries(parts, options), path)
    return notes


def _read_entries(file: Path, options: ReadOptions) -> FileEntries:
    file_matrix = read_whole_file(file, options)
    if file_matrix is None:
        return read_lines(file, options)
    matrix = file_matrix.matrix
    extras = file_matrix.matrix.extras
    # lines of a file are in the order of their entries
    order = slice(None) if extras.places is None else extras.sort_within(matrix.entry_rows)
    entries = LongEntries(
        rows=Labelled(matrix.rows, matrix.entry_rows[order]),
        columns=Labelled(matrix.columns, matrix.by_row.columns[order]),
        numbers=matrix.values[order],
        extras=extras.take(order)._replace(places=None),
        form=matrix.form,
        are_interactions=not matrix.has_values,
    )
    return FileEntries(
        entries,
        locate=lambda position: f"{file}" if position is None else f"{file}, entry {position}",
        notes=file_matrix.notes,
        are_ordered=extras.times is None and extras.places is not None,
    )
