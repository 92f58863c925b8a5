"""Writing a store: entries in row order go in piece by piece, those by column are sorted out of memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from deepmf.files.atomic import write_folder_atomically
from deepmf.matrix.array_file import ArrayFile, mapped
from deepmf.matrix.arrays import IndexArray
from deepmf.matrix.buckets import Bucket, Buckets
from deepmf.matrix.coded_values import MOST_CODES, CodedValues, code_counts, codes_of, pieces
from deepmf.matrix.label_kinds import stored_kind
from deepmf.matrix.labels import Labels
from deepmf.matrix.scale import Scale
from deepmf.matrix.store_manifest import StoreManifest
from deepmf.matrix.store_reader import NUMBERED
from deepmf.matrix.table_form import TableForm
from deepmf.matrix.text_labels import TextLabels

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix


def write_store(matrix: ObservedMatrix, path: str | Path) -> None:
    """Write a matrix as a new store, whole or not at all."""
    for labels in (matrix.rows, matrix.columns):
        stored_kind(labels)
    write_folder_atomically(path, lambda folder: _write_parts(matrix, folder))


def coded_table(scale: Scale) -> npt.NDArray[np.float64] | None:
    """Return the levels whose places are the codes of values; None where values are stored as numbers."""
    return scale.levels if scale.levels is not None and scale.levels.size <= MOST_CODES else None


class StoreWriter:
    """A store that is filled with entries in row order, none of them twice; values are codes where it has a table.

    column_weights: about how many entries each column will have, (columns,). most_entries: at least as many as come.
    """

    def __init__(
        self,
        folder: Path,
        scratch: Path,
        *,
        rows: Labels,
        columns: Labels,
        value_kind: npt.DTypeLike,
        column_weights: npt.NDArray[Any],
        most_entries: int,
    ) -> None:
        self._parts = _Parts(folder)
        self._rows, self._columns = rows, columns
        self.index = np.int32 if max(most_entries, len(rows), len(columns)) < 2**31 - 1 else np.int64
        self._column_files = self._parts.file("columns", self.index)
        self._value_file = self._parts.file("values", value_kind)
        self._row_counts = np.zeros(len(rows), dtype=np.int64)
        self._buckets = Buckets(scratch, column_weights, [self.index, self.index, self.index])
        self.n_entries = 0
        self.code_counts = np.zeros(MOST_CODES + 1, dtype=np.int64)
        self._sum = 0.0

    def append(self, row_of: IndexArray, column_of: IndexArray, values: npt.NDArray[Any]) -> None:
        """Add entries that follow those before them in row order."""
        if row_of.size == 0:
            return
        first, last = int(row_of[0]), int(row_of[-1])
        self._row_counts[first : last + 1] += np.bincount(row_of - first, minlength=last + 1 - first)
        self._column_files.append(column_of)
        self._value_file.append(values)
        places = np.arange(self.n_entries, self.n_entries + row_of.size, dtype=self.index)
        self._buckets.add(column_of, row_of, places)
        self.n_entries += row_of.size
        if values.dtype == np.uint8:
            self.code_counts += code_counts(values, self.code_counts.size)
        else:
            self._sum += float(values.sum(dtype=np.float64))

    @property
    def values(self) -> npt.NDArray[Any]:
        """The values that were added, or their codes, mapped from their file."""
        return mapped(self._value_file.path, self._value_file.kind, self._value_file.length)

    def finish(self, *, scale: Scale, form: TableForm, table: npt.NDArray[np.float64] | None) -> None:
        """Sort the entries by column, and write all that is left; the manifest comes last."""
        self._parts.put("row_starts", _starts(self._row_counts, self.index))
        rows, entries = self._parts.file("rows", self.index), self._parts.file("entries", self.index)
        column_counts = np.zeros(len(self._columns), dtype=np.int64)
        for bucket in self._buckets:
            column_of, row_of, places = bucket.fields
            column_counts[bucket.first : bucket.last] = np.bincount(
                column_of - bucket.first, minlength=bucket.last - bucket.first
            )
            order = _by_key(bucket)
            rows.append(row_of if order is None else row_of[order])
            entries.append(places if order is None else places[order])
        self._parts.put("column_starts", _starts(column_counts, self.index))
        total = self._sum if table is None else float(self.code_counts[: table.size] @ table)
        mean = total / max(self.n_entries, 1)
        self._parts.finish(
            self._rows, self._columns, n_entries=self.n_entries, scale=scale, form=form, mean=mean, table=table
        )

    def close(self) -> None:
        """Close all files."""
        self._parts.close()
        self._buckets.close()


class _Parts:
    """The files of a store, and what its manifest says of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, ArrayFile] = {}

    def file(self, name: str, kind: npt.DTypeLike) -> ArrayFile:
        """Return a new part, to be written piece by piece."""
        self._files[name] = ArrayFile(self._folder / name, kind)
        return self._files[name]

    def put(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write a part at once."""
        self.file(name, array.dtype).append(array)

    def finish(
        self,
        rows: Labels,
        columns: Labels,
        *,
        n_entries: int,
        scale: Scale,
        form: TableForm,
        mean: float,
        table: npt.NDArray[np.float64] | None,
    ) -> None:
        """Write the labels, and the manifest last."""
        labels = {each.axis: self._put_labels(each) for each in (rows, columns)}
        StoreManifest(
            n_rows=len(rows),
            n_columns=len(columns),
            n_entries=n_entries,
            mean=mean if n_entries else None,
            scale=scale,
            form=form,
            labels=labels,
            table=None if table is None else table.tolist(),
            parts={name: file.close() for name, file in self._files.items()},
        ).write(self._folder)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

    def _put_labels(self, labels: Labels) -> dict[str, Any]:
        if labels.is_numbered:
            return {"kind": NUMBERED, "sorted": True}
        kind = stored_kind(labels)
        if kind in ("int", "float"):
            self.put(f"{labels.axis}_labels", labels.array.astype(f"{kind}64", copy=False))
            return {"kind": kind, "sorted": False}
        text = TextLabels.of(labels, kind)
        self.put(f"{labels.axis}_text", text.text)
        self.put(f"{labels.axis}_text_starts", text.starts)
        return {"kind": kind, "sorted": text.is_sorted}


def _write_parts(matrix: ObservedMatrix, folder: Path) -> None:
    """Write what a matrix holds already by row and by column."""
    parts = _Parts(folder)
    try:
        parts.put("row_starts", matrix.by_row.starts)
        parts.put("columns", matrix.by_row.columns)
        table = _put_values(matrix, parts)
        parts.put("column_starts", matrix.by_column.starts)
        parts.put("rows", matrix.by_column.rows)
        parts.put("entries", matrix.by_column.entries)
        parts.finish(
            matrix.rows,
            matrix.columns,
            n_entries=matrix.n_entries,
            scale=matrix.scale,
            form=matrix.form,
            mean=matrix.mean,
            table=table,
        )
    finally:
        parts.close()


def _put_values(matrix: ObservedMatrix, parts: _Parts) -> npt.NDArray[np.float64] | None:
    """Write the values; return the table of their codes, where they are codes."""
    values: Any = matrix.values
    if isinstance(values, CodedValues):
        parts.put("values", values.codes)
        return values.table.astype(np.float64)
    table = coded_table(matrix.scale)
    if table is None:
        parts.put("values", values)
        return None
    file = parts.file("values", np.uint8)
    for piece in pieces(values):
        file.append(codes_of(piece.astype(np.float64), table))
    return table


def _by_key(bucket: Bucket) -> IndexArray | None:
    """Return the order that sorts a bucket by its key and keeps records of one key as they are; None: it is so."""
    keys = bucket.fields[0]
    n_keys = bucket.last - bucket.first
    if n_keys <= 1:
        return None
    if n_keys <= 1 << 16:  # numpy sorts two bytes by counting
        return np.argsort((keys - bucket.first).astype(np.uint16), kind="stable")
    place_bits = keys.size.bit_length()
    packed = keys.astype(np.int64)
    packed -= bucket.first
    packed <<= place_bits
    packed |= np.arange(keys.size)
    packed.sort()
    packed &= (1 << place_bits) - 1
    return packed


def _starts(counts: npt.NDArray[np.int64], index: npt.DTypeLike) -> IndexArray:
    starts = np.zeros(counts.size + 1, dtype=index)
    np.cumsum(counts, dtype=index, out=starts[1:])
    return starts
