"""Packing: files of entries as a store on disk, built in bounded memory whatever their size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.data.entry_batches import EntryBatch, EntryLines, LineReading
from deepmf.data.label_codes import Coded, LabelCodes, SortedLabels
from deepmf.data.missing_values import Missing
from deepmf.data.read import read_file_of_entries, read_matrix
from deepmf.data.repeats import RepeatMerger, SortedEntries
from deepmf.data.role_columns import Column
from deepmf.data.source import is_folder
from deepmf.data.spool import Spool
from deepmf.errors import BadEntries, BadSetting
from deepmf.files.atomic import check_absent, write_folder_atomically
from deepmf.files.leftovers import temporary_folder
from deepmf.matrix.arrays import FloatArray, IndexArray
from deepmf.matrix.buckets import Buckets
from deepmf.matrix.checks import check_finite, check_on_scale
from deepmf.matrix.coded_values import codes_of
from deepmf.matrix.label_kinds import stored_kind
from deepmf.matrix.labels import Labels
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import LARGEST, Scale
from deepmf.matrix.sorting import Duplicates, check_duplicates, in_row_order, tell_moved
from deepmf.matrix.store_part import entry_pieces
from deepmf.matrix.store_writer import StoreWriter, coded_table
from deepmf.matrix.table_form import PLAIN, TableForm

if TYPE_CHECKING:
    import polars as pl

_SAMPLE = 64  # one entry in 64 tells how entries are spread over the rows


_STEPS = 4  # every entry is read, distributed by row, sorted by row and sorted by column

Progress = Callable[[int, int | None], None]


class PackedFile(NamedTuple):
    """How one file was read: what was guessed (None: nothing), and how many lines without a value were left out."""

    path: Path
    guessed: str | None
    n_dropped: int


def pack(
    sources: str | Path | Sequence[str | Path],
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
    """Pack the entries of one or several files into a new store, a folder at `path`, and open it.

    The arguments are those of `read_matrix`, which reads the same entries from the store. It is built in memory that
    does not grow with the entries, only with the rows and columns, and stands at `path` whole or not at all.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "ratings.csv").write_text("user,film,stars\\nann,Alien,5\\nbob,Big,3\\n")
    >>> pack(folder / "ratings.csv", folder / "ratings.store")
    ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), scale one of 3, 5)
    """
    files = [Path(sources)] if isinstance(sources, str | Path) else list(map(Path, sources))
    how = LineReading({"row": row, "column": column, "value": value}, separator, header, missing, decimal)
    pack_files(files, path, how=how, scale=scale, duplicates=duplicates, wide=wide)
    return read_matrix(path)


def pack_files(
    files: Sequence[Path],
    path: str | Path,
    *,
    how: LineReading,
    scale: Scale | None = None,
    duplicates: Duplicates = "error",
    wide: bool = False,
    progress: Progress = lambda done, total: None,
) -> list[PackedFile]:
    """Pack files as `pack` does, and say how each was read; `progress` is told how much is done of how much."""
    check_duplicates(duplicates)
    if not files:
        raise BadSetting("pack needs at least one file of entries")
    check_absent(path)
    with temporary_folder(Path(path).absolute().parent) as scratch:
        packing = _Packing(scratch, how, scale, duplicates, wide, progress)
        write_folder_atomically(path, lambda folder: packing.build(files, folder))
    return packing.read


class _Packing:
    """The steps from files to a store.

    Entries are spooled as they come, until all labels are known and have their places. From the spool they go into
    buckets of rows, each of which is sorted in memory and appended to the store, which does likewise by column.
    """

    def __init__(
        self,
        scratch: Path,
        how: LineReading,
        scale: Scale | None,
        duplicates: Duplicates,
        wide: bool,
        progress: Progress,
    ) -> None:
        self.read: list[PackedFile] = []
        self._progress = progress
        self._scratch, self._how, self._wide = scratch, how, wide
        self._scale, self._duplicates = scale, duplicates
        self._axes = LabelCodes("row"), LabelCodes("column")
        self._form = PLAIN
        self._samples: list[Coded] = []
        self._n_spooled = 0

    def build(self, files: Sequence[Path], folder: Path) -> None:
        """Read the files and fill a new folder."""
        spool = Spool(self._scratch / "spool")
        for file in files:
            self._spool(file, spool)
        rows, columns = (axis.finish() for axis in self._axes)
        for axis in (rows, columns):
            stored_kind(axis.labels)
        scale = self._scale or spool.scale()
        table = coded_table(scale)
        kind: Any = np.uint8 if table is not None else np.float32 if spool.are_single else np.float64
        with closing(self._buckets(rows, columns, kind)) as buckets:
            column_counts = self._distribute(spool, buckets, rows, columns, table)
            writer = StoreWriter(
                folder,
                self._scratch / "columns",
                rows=rows.labels,
                columns=columns.labels,
                value_kind=np.float64 if table is None and self._duplicates == "mean" else kind,
                column_weights=column_counts,
                most_entries=spool.n_entries,
            )
            merger = RepeatMerger(self._duplicates, rows=rows.labels, columns=columns.labels, scale=scale, table=table)
            with closing(writer):
                self._append_sorted(buckets, writer, merger, len(columns.labels))
                tell_moved(merger.n_moved, scale)
                writer.finish(scale=self._final_scale(scale, table, writer), form=self._form, table=table)

    def _spool(self, file: Path, spool: Spool) -> None:
        if self._wide or is_folder(file) or file.suffix.lower() == ".npz":
            self._spool_matrix(file, spool)
            return
        lines = EntryLines(file, self._how)
        self._take_form(lines.form)
        for batch in lines.batches():
            if batch.values.size:
                self._check(batch, file)
                rows, columns = (
                    _coded(axis, ids, batch, file, is_firm=is_firm)
                    for axis, ids, is_firm in zip(self._axes, (batch.rows, batch.columns), lines.firm_ids, strict=True)
                )
                self._add(spool, rows, columns, batch.values)
        self.read.append(PackedFile(file, lines.guessed, lines.n_dropped))

    def _spool_matrix(self, file: Path, spool: Spool) -> None:
        """Spool a file that is read as a matrix, at once or, where it is a store, some entries at a time."""
        found = read_file_of_entries(
            file,
            asked=self._how.asked,
            separator=self._how.separator,
            header=self._how.header,
            scale=self._scale,
            duplicates=self._duplicates,
            missing=self._how.missing,
            decimal=self._how.decimal,
            wide=self._wide,
        )
        matrix = found.matrix
        self._take_form(matrix.form)
        rows, columns = (
            axis.add_labels(labels) for axis, labels in zip(self._axes, (matrix.rows, matrix.columns), strict=True)
        )
        start = 0
        for piece in entry_pieces(matrix):
            values = matrix.values[start : start + piece.rows.size].astype(np.float64)
            start += piece.rows.size
            row_codes, column_codes = rows.codes[piece.rows], columns.codes[piece.columns]
            self._add(spool, Coded(rows.kind, row_codes), Coded(columns.kind, column_codes), values)
        self.read.append(PackedFile(file, found.guessed, found.n_dropped))

    def _add(self, spool: Spool, rows: Coded, columns: Coded, values: FloatArray) -> None:
        self._samples.append(Coded(rows.kind, rows.codes[::_SAMPLE].copy()))
        spool.add(rows, columns, values)
        self._n_spooled = spool.n_entries
        self._progress(spool.n_entries, None)

    def _take_form(self, form: TableForm) -> None:
        if not self.read:
            self._form = form

    def _check(self, batch: EntryBatch, path: Path) -> None:
        """Refuse a value that is not finite, or not on the scale."""
        low, high = batch.values.min(), batch.values.max()
        bad = ~(np.abs(batch.values) <= LARGEST) if not (low >= -LARGEST and high <= LARGEST) else None
        if bad is None and self._scale is not None:
            bad = ~self._scale.holds(batch.values)
        if bad is None or not bad.any():
            return
        at = int(np.flatnonzero(bad)[0])
        row, column = (
            Labels.gather([ids[at]], axis=axis) for ids, axis in ((batch.rows, "row"), (batch.columns, "column"))
        )
        try:
            check_finite(row, column, batch.values[[at]])
            check_on_scale(row, column, batch.values[[at]], self._scale or Scale(levels=[0]))
        except BadEntries as error:
            raise type(error)(f"{path}, {batch.place(at)}: {error.message}") from error

    def _buckets(self, rows: SortedLabels, columns: SortedLabels, value_kind: npt.DTypeLike) -> Buckets:
        """Return buckets of rows that will have about as many entries each."""
        weights = np.zeros(len(rows.labels), dtype=np.int64)
        for sample in self._samples:
            weights += _SAMPLE * np.bincount(rows.of(sample), minlength=weights.size)
        index = [np.int32 if len(axis.labels) < 2**31 - 1 else np.int64 for axis in (rows, columns)]
        return Buckets(self._scratch / "rows", weights, [*index, value_kind])

    def _distribute(
        self,
        spool: Spool,
        buckets: Buckets,
        rows: SortedLabels,
        columns: SortedLabels,
        table: npt.NDArray[np.float64] | None,
    ) -> IndexArray:
        """Distribute the entries over buckets of rows; return how many each column has."""
        column_counts = np.zeros(len(columns.labels), dtype=np.int64)
        for entries in spool:
            column_of = columns.of(entries.columns)
            column_counts += np.bincount(column_of, minlength=column_counts.size)
            values = entries.values if table is None else codes_of(entries.values.astype(np.float64), table)
            buckets.add(rows.of(entries.rows), column_of, values)
            self._progress(spool.n_entries + int(column_counts.sum()), _STEPS * spool.n_entries)
        buckets.close()  # those of columns are about to be opened, and there may not be many open files
        return column_counts

    def _append_sorted(self, buckets: Buckets, writer: StoreWriter, merger: RepeatMerger, n_columns: int) -> None:
        """Sort the buckets one after another, merge what occurs twice, and append it all to a store."""
        n_spooled = self._n_spooled
        for bucket in buckets:
            row_of, column_of, values = bucket.fields
            order, row_of, column_of = in_row_order(
                row_of - bucket.first, column_of, n_rows=bucket.last - bucket.first, n_columns=n_columns
            )
            row_of += bucket.first
            writer.append(*merger.merged(SortedEntries(row_of, column_of, values[order])))
            self._progress(2 * n_spooled + writer.n_entries, _STEPS * n_spooled)

    def _final_scale(self, scale: Scale, table: npt.NDArray[np.float64] | None, writer: StoreWriter) -> Scale:
        """Return the scale that the entries left after merging show, where none was given."""
        if self._scale is None and table is None:
            return scale.infer_again(writer.values)
        if self._scale is not None or table is None or self._duplicates not in ("first", "last"):
            return scale
        left = table[writer.code_counts[: table.size] > 0]
        return scale if left.size == table.size else Scale.infer(left)


def _coded(axis: LabelCodes, ids: pl.Series, batch: EntryBatch, path: Path, *, is_firm: bool) -> Coded:
    """Return the codes of ids; one that cannot be a label is named with its place."""
    try:
        return axis.add(ids, is_firm=is_firm)
    except BadEntries as error:
        where = "" if error.position is None else f", {batch.place(error.position)}"
        raise type(error)(f"{path}{where}: {error.message}") from error
