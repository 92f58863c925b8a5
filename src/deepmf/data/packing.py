"""Packing: files of entries as a store on disk, built in bounded memory whatever their size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.data.delimited import checked_path, is_folder, reading
from deepmf.data.label_codes import Coded, LabelCodes, SortedLabels
from deepmf.data.read import Missing, check_missing, read_file_of_entries, read_matrix, whole_lines
from deepmf.data.roles import ENTRIES, Column, ColumnScan, check_decimal, parsed, scan_columns, without_blank_end
from deepmf.errors import BadEntries, BadSetting, DuplicateEntries, UnreadableFile
from deepmf.files import check_absent, import_polars, temporary_folder, write_folder_atomically
from deepmf.matrix.arrays import FloatArray, IndexArray, find_codes
from deepmf.matrix.frames import PLAIN, TableForm
from deepmf.matrix.labels import Labels, find_stored_kind
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.packed import Buckets, StoreWriter, choose_code_table, iterate_entries
from deepmf.matrix.scale import LARGEST, MOST_LEVELS, Scale, find_few_levels
from deepmf.matrix.sorting import (
    DUPLICATES_HINT,
    Duplicates,
    check_duplicates,
    check_finite,
    check_on_scale,
    find_repeats,
    merge_repeats,
    round_to_levels,
    sort_by_row,
    to_numbers,
    warn_moved,
)

if TYPE_CHECKING:
    import polars as pl


class SpooledEntries(NamedTuple):
    """Some entries: codes of their labels, and their values."""

    rows: Coded
    columns: Coded
    values: npt.NDArray[np.floating[Any]]


class Spool:
    """Entries that are added some at a time, and read back once in the same order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._kinds: list[tuple[Any, Any]] = []
        self._levels: FloatArray | None = np.empty(0)
        self._low, self._high = np.inf, -np.inf
        self.n_entries = 0
        self.are_single = True  # whether all values are numbers of single precision

    def add(self, rows: Coded, columns: Coded, values: FloatArray) -> None:
        """Add entries; their values are finite."""
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        self.are_single = self.are_single and np.array_equal(single, values)
        with self._path(len(self._kinds)).open("wb", buffering=0) as file:
            for array in (_narrow(rows.codes), _narrow(columns.codes), single if self.are_single else values):
                np.save(file, array, allow_pickle=False)
        self._kinds.append((rows.kind, columns.kind))
        self.n_entries += values.size
        self._note(values)

    def __iter__(self) -> Iterator[SpooledEntries]:
        """Yield the entries as they came; each file is removed as soon as it is read."""
        for at, (row_kind, column_kind) in enumerate(self._kinds):
            path = self._path(at)
            with path.open("rb") as file:
                rows, columns, values = (np.load(file, allow_pickle=False) for _ in range(3))
            path.unlink()
            yield SpooledEntries(Coded(row_kind, rows), Coded(column_kind, columns), values)

    def scale(self) -> Scale:
        """Return the scale that the values show, as `Scale.infer` does; of an interval, with all outliers."""
        if self._levels is None:
            return Scale(low=self._low, high=self._high, bounded=False)
        return Scale.infer(self._levels)

    def _note(self, values: FloatArray) -> None:
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        if self._levels is not None:
            levels = find_few_levels(values)
            together = None if levels is None else np.union1d(self._levels, levels)
            self._levels = None if together is None or together.size > MOST_LEVELS else together

    def _path(self, at: int) -> Path:
        return self._folder / f"{at}.npy"


def _narrow(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return codes in 32 bits where they fit."""
    bounds = np.iinfo(np.int32)
    fits = codes.size == 0 or (codes.min() >= bounds.min and codes.max() <= bounds.max)
    return codes.astype(np.int32, copy=False) if fits else codes


class SortedEntries(NamedTuple):
    """Entries in row order; values are codes where there is a table of them."""

    rows: IndexArray
    columns: IndexArray
    values: npt.NDArray[Any]


class RepeatMerger:
    """What becomes of repeats; `n_moved` counts the means that were no levels."""

    def __init__(
        self,
        duplicates: Duplicates,
        *,
        rows: Labels,
        columns: Labels,
        scale: Scale,
        table: npt.NDArray[np.float64] | None,
    ) -> None:
        self._duplicates = duplicates
        self._rows, self._columns = rows, columns
        self._scale, self._table = scale, table
        self.n_moved = 0

    def merged(self, entries: SortedEntries) -> SortedEntries:
        """Return entries without repeats; all repeats of a pair are among them."""
        again = find_repeats(entries.rows, entries.columns)
        if not np.any(again):
            return entries
        if self._duplicates == "error":
            raise self._error(entries, np.flatnonzero(again)[:1])
        values = self._merged_values(entries.values, again)
        return SortedEntries(entries.rows[~again], entries.columns[~again], values)

    def _merged_values(self, values: npt.NDArray[Any], again: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        if self._duplicates != "mean":
            return merge_repeats(values, again, self._duplicates)
        means = merge_repeats(
            (values if self._table is None else self._table[values]).astype(np.float64), again, "mean"
        )
        if self._scale.levels is None:
            return means
        levels, n_moved = round_to_levels(means, self._scale)
        self.n_moved += n_moved
        return levels if self._table is None else find_codes(levels, self._table)

    def _error(self, entries: SortedEntries, at: IndexArray) -> DuplicateEntries:
        row, column = self._rows[entries.rows[at]].tolist()[0], self._columns[entries.columns[at]].tolist()[0]
        return DuplicateEntries(f"row {row!r}, column {column!r} was given before", hint=DUPLICATES_HINT)


LINES = 1 << 22  # read at a time


@dataclass(frozen=True)
class LineReading:
    """How the lines of files of entries are read; the names mean what they mean in `read_matrix`."""

    asked: Mapping[str, Column]
    separator: str | None = None
    header: bool | None = None
    missing: Missing = "error"
    decimal: str = "."

    def __post_init__(self) -> None:
        check_missing(self.missing)
        check_decimal(self.decimal)


class EntryBatch(NamedTuple):
    """Some entries of a file; `place` says where one of them stands there, counted from the first of these."""

    rows: pl.Series
    columns: pl.Series
    values: FloatArray
    place: Callable[[int], str]


class EntryLines:
    """A file with an entry per line, delimited text or Parquet, read once from its first line to its last.

    guessed: which fields were taken for what, None where nothing was guessed. n_dropped: lines left out so far.
    """

    def __init__(self, path: Path, how: LineReading) -> None:
        self.path = checked_path(path)
        self._how = how
        self._scan: ColumnScan = scan_columns(
            self.path,
            ENTRIES,
            asked=how.asked,
            separator=how.separator,
            header=how.header,
            decimal=how.decimal,
        )
        found = self._scan.found
        row, column, value = found.frame.columns
        self.form = TableForm(row, column, value)
        self.guessed = found.told(ENTRIES) if found.guessed else None
        self.n_dropped = 0

    @property
    def firm_ids(self) -> tuple[bool, bool]:
        """Whether ids of rows, and of columns, have the type that they have in the file; in text, digits may be
        numbers."""
        row, column, *_ = self._scan.firm
        return row, column

    def batches(self) -> Iterator[EntryBatch]:
        """Yield the entries in order; a line that is none is refused with its number, or left out."""
        n_before = 0
        for frame in self._frames():
            yield self._batch(frame, n_before)
            n_before += frame.height
        if n_before == self.n_dropped:
            raise UnreadableFile(f"{self.path} holds no entries; lines without a value: {self.n_dropped:,}")

    def _frames(self) -> Iterator[pl.DataFrame]:
        """Yield lines as they stand in the file, without the blank ones at its end."""
        polars = import_polars()
        blank: pl.DataFrame | None = None  # lines that are the end of the file, unless others follow
        with reading(self.path, "text" if self._scan.is_text else "Parquet"):
            for read in self._scan.lazy.collect_batches(chunk_size=LINES, maintain_order=True):
                frame = read if blank is None else polars.concat([blank, read])
                filled = without_blank_end(frame) if self._scan.is_text else frame
                blank = frame.tail(frame.height - filled.height) if filled.height < frame.height else None
                if filled.height:
                    yield filled

    def _batch(self, frame: pl.DataFrame, n_before: int) -> EntryBatch:
        try:
            if self._scan.is_text:
                frame = frame.with_columns(_floats(frame.get_columns()[2], self._how.decimal))
            whole = whole_lines(frame, self._how.missing, n_before=0)
            rows, columns, values = whole.frame.get_columns()
            if not (values.dtype.is_numeric() or str(values.dtype) == "Boolean"):
                raise BadEntries(f"column {values.name!r} holds values of type {values.dtype}; numbers are needed")
            floats = to_numbers(values.cast(import_polars().Float64).to_numpy())
        except BadEntries as error:
            raise self.placed(error, n_before) from error
        self.n_dropped += whole.n_dropped
        return EntryBatch(rows, columns, floats, lambda at: self._place(n_before + whole.place(at)))

    def placed(self, error: BadEntries, n_before: int) -> BadEntries:
        """Return an error over a line as one that names the file, and the line."""
        where = "" if error.position is None else f", {self._place(n_before + error.position)}"
        return error.locate(f"{self.path}{where}")

    def _place(self, at: int) -> str:
        first_line = self._scan.found.first_line
        return f"entry {at}" if first_line is None else f"line {at + first_line}"


def _floats(texts: pl.Series, decimal: str) -> pl.Series:
    """Return texts as numbers, null where one is missing; where they are plain numbers, at once."""
    if decimal == ".":
        quick = texts.cast(import_polars().Float64, strict=False)
        if quick.null_count() == texts.null_count() and not quick.is_nan().any():
            return quick
    return parsed(texts, decimal=decimal)


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
            find_stored_kind(axis.labels)
        scale = self._scale or spool.scale()
        table = choose_code_table(scale)
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
                warn_moved(merger.n_moved, scale)
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
        for piece in iterate_entries(matrix.parts):
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
            raise error.locate(f"{path}, {batch.place(at)}") from error

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
            values = entries.values if table is None else find_codes(entries.values.astype(np.float64), table)
            buckets.add(rows.of(entries.rows), column_of, values)
            self._progress(spool.n_entries + int(column_counts.sum()), _STEPS * spool.n_entries)
        buckets.close()  # those of columns are about to be opened, and there may not be many open files
        return column_counts

    def _append_sorted(self, buckets: Buckets, writer: StoreWriter, merger: RepeatMerger, n_columns: int) -> None:
        """Sort the buckets one after another, merge what occurs twice, and append it all to a store."""
        n_spooled = self._n_spooled
        for bucket in buckets:
            row_of, column_of, values = bucket.fields
            order, row_of, column_of = sort_by_row(
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
        raise error.locate(f"{path}{where}") from error
