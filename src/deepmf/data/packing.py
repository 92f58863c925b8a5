"""Packing: files of entries become a store on disk, in memory that does not grow with the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.data.columns import name_format, scan_columns
from deepmf.data.delimited import drop_blank_end, parse_numbers, parse_time_texts
from deepmf.data.label_codes import CodedLabels, LabelCodes, SortedLabels
from deepmf.data.layout import EITHER, NameOrPosition
from deepmf.data.read import ReadOptions, TextForm, keep_complete_lines, read_entry_file, read_matrix
from deepmf.data.source import check_path, is_folder, translate_polars_errors
from deepmf.errors import BadEntries, BadSetting, DuplicateEntries, GuessedColumns, UnreadableFile, warn
from deepmf.files import Progress, check_absent, import_polars, temporary_folder, write_folder_atomically
from deepmf.matrix.arrays import FloatArray, IndexArray, find_codes
from deepmf.matrix.column_roles import DETECT, ValueColumn
from deepmf.matrix.extras import NO_TIME, PLAIN_EXTRAS, Extras, check_weights
from deepmf.matrix.frames import read_times
from deepmf.matrix.labels import Labels, find_stored_kind
from deepmf.matrix.matrix import NAME_COLUMNS, Missing, ObservedMatrix, choose_scale
from deepmf.matrix.packed import choose_code_table, iterate_entries
from deepmf.matrix.packed_writer import Buckets, StoreWriter
from deepmf.matrix.scale import LARGEST, MOST_LEVELS, Scale, find_few_levels
from deepmf.matrix.sorting import (
    DUPLICATES_HINT,
    Duplicates,
    Merging,
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
from deepmf.matrix.table_form import PLAIN, TableForm

if TYPE_CHECKING:
    import polars as pl

BATCH_LINES = 1 << 22  # lines read at a time

SAMPLE_EVERY = 64  # one entry in 64 shows how entries are spread over the rows
_STEPS = 4  # every entry is read, distributed by row, sorted by row and sorted by column


def pack(
    sources: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    row: NameOrPosition = None,
    column: NameOrPosition = None,
    value: ValueColumn = DETECT,
    count: NameOrPosition = None,
    time: ValueColumn = DETECT,
    weight: NameOrPosition = None,
    separator: str | None = None,
    header: bool | None = None,
    scale: Scale | None = None,
    duplicates: Duplicates = "error",
    missing: Missing = "error",
    decimal: str = ".",
    encoding: str | None = None,
    form: TextForm | None = None,
    wide: bool = False,
) -> ObservedMatrix:
    """Pack the entries of one or several files into a new store, a folder at `path`, and open it.

    Memory grows with the rows and columns, not with the entries. The store appears at `path` whole or not at all.

    Parameters
    ----------
    sources : files of entries, wide tables, `.npz` files or stores.
    path : the new folder.
    row, column, value, count, time, weight, separator, header, scale, duplicates, missing, decimal, encoding
    form, wide
        As in `read_matrix`, which reads the same entries from the store.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "ratings.csv").write_text("user,film,stars\\nann,Alien,5\\nbob,Big,3\\n")
    >>> pack(folder / "ratings.csv", folder / "ratings.store")
    ObservedMatrix(2 rows x 2 columns, 2 entries (50 %), scale one of 3, 5)
    """
    files = [Path(sources)] if isinstance(sources, str | Path) else list(map(Path, sources))
    options = ReadOptions(
        row=row,
        column=column,
        value=value,
        count=count,
        time=time,
        weight=weight,
        separator=separator,
        header=header,
        scale=scale,
        duplicates=duplicates,
        missing=missing,
        decimal=decimal,
        encoding=encoding,
        form=form,
        wide=wide,
    )
    for file in pack_files(files, path, options):
        if file.is_uncertain:
            warn(f"{file.path}: {file.guess}; {NAME_COLUMNS}", GuessedColumns)
    return read_matrix(path)


class PackedFile(NamedTuple):
    """Notes on how a file was read: what was guessed, in words or None, and how many lines were dropped."""

    path: Path
    guess: str | None
    n_dropped: int
    are_interactions: bool
    is_uncertain: bool = False
    time_note: str | None = None


def pack_files(
    files: Sequence[Path],
    path: str | Path,
    options: ReadOptions,
    *,
    progress: Progress = lambda done, total: None,
) -> list[PackedFile]:
    """Pack files as `pack` does, and note how each was read."""
    if options.kind is EITHER:
        check_duplicates(options.duplicates)
    if not files:
        raise BadSetting("pack needs at least one file of entries")
    check_absent(path)
    with temporary_folder(Path(path).absolute().parent) as scratch:
        builder = _StoreBuilder(scratch, options, progress)
        write_folder_atomically(path, lambda folder: builder.build(files, folder))
    return builder.files


class _StoreBuilder:
    """Builds a store from files.

    Entries are spooled in the order of the files until all labels are known and sorted. They go from the spool into
    buckets of rows; each bucket is sorted in memory and appended to the store, which sorts by column in the same way.
    """

    def __init__(self, scratch: Path, options: ReadOptions, progress: Progress) -> None:
        self.files: list[PackedFile] = []
        self._scratch, self._options, self._progress = scratch, options, progress
        self._axes = LabelCodes("row"), LabelCodes("column")
        self._form = PLAIN
        self._spool = Spool(scratch / "spool")
        self._row_samples: list[CodedLabels] = []

    def build(self, files: Sequence[Path], folder: Path) -> None:
        """Read the files and fill a new folder."""
        for file in files:
            self._read_file(file)
        rows, columns = (axis.sort() for axis in self._axes)
        for axis in (rows, columns):
            find_stored_kind(axis.labels)  # refuses labels that a store cannot hold
        spool, are_interactions = self._spool, self._check_alike()
        duplicates: Merging = "sum" if are_interactions else self._options.duplicates
        times_kind, weights_kind = (np.int64 if spool.has_times else None), (np.float64 if spool.has_weights else None)
        extra_kinds = times_kind, weights_kind, None
        scale = choose_scale(self._options.scale, are_interactions=are_interactions) or spool.infer_scale()
        table = choose_code_table(scale)
        value_kind: Any = np.uint8 if table is not None else np.float32 if spool.are_single else np.float64
        stored_kinds = [value_kind, *(kind for kind in extra_kinds if kind is not None)]
        with closing(self._make_buckets(rows, columns, stored_kinds)) as buckets:
            column_counts = self._distribute(buckets, rows, columns, table)
            writer = StoreWriter(
                folder,
                self._scratch / "columns",
                rows=rows.labels,
                columns=columns.labels,
                value_kind=np.float64 if table is None and duplicates == "mean" else value_kind,
                column_weights=column_counts,
                most_entries=spool.n_entries,
                extra_kinds=extra_kinds,
            )
            merger = RepeatMerger(duplicates, rows=rows.labels, columns=columns.labels, scale=scale, table=table)
            with closing(writer):
                self._append(buckets, writer, merger, len(columns.labels))
                warn_moved(merger.n_moved, scale)
                writer.finish(scale=self._infer_final_scale(scale, table, writer), form=self._form, table=table)

    def _check_alike(self) -> bool:
        """Return whether the files hold interactions; refuse them together with files of values."""
        first, *others = self.files
        for other in others:
            if other.are_interactions != first.are_interactions:
                held, beside = ("interactions", "values") if first.are_interactions else ("values", "interactions")
                raise UnreadableFile(f"{first.path} holds {held}, and {other.path} {beside}; a store holds one kind")
        return first.are_interactions

    def _read_file(self, file: Path) -> None:
        is_whole = self._options.wide or is_folder(file) or file.suffix.lower() in (".npy", ".npz")
        if is_whole or self._options.reads_lists(check_path(file)):
            self._read_matrix(file)
        else:
            self._read_lines(file)

    def _read_lines(self, file: Path) -> None:
        reader = EntryReader(file, self._options)
        self._take_form(reader.form)
        for batch in reader.read_batches():
            if batch.values.size:
                self._check(batch, Scale.interactions() if reader.are_interactions else self._options.scale)
                rows, columns = (
                    _encode(axis, ids, batch, is_typed=is_typed)
                    for axis, ids, is_typed in zip(
                        self._axes, (batch.rows, batch.columns), reader.are_ids_typed, strict=True
                    )
                )
                self._add(rows, columns, batch.values, batch.extras)
        self._take_form(reader.form)  # the type of the times is known once they are read
        self.files.append(
            PackedFile(
                file,
                reader.guess,
                reader.n_dropped,
                reader.are_interactions,
                reader.is_uncertain,
                reader.time_note,
            )
        )

    def _read_matrix(self, file: Path) -> None:
        """Read a wide table or an .npz file at once, a store some entries at a time."""
        matrix, guess, n_dropped, *_ = read_entry_file(file, self._options)
        self._take_form(matrix.form)
        rows, columns = (
            axis.add_labels(labels) for axis, labels in zip(self._axes, (matrix.rows, matrix.columns), strict=True)
        )
        start = 0
        for piece in iterate_entries(matrix.parts):
            values = matrix.values[start : start + piece.rows.size].astype(np.float64)
            start += piece.rows.size
            self._add(rows.take(piece.rows), columns.take(piece.columns), values, piece.extras)
        self.files.append(PackedFile(file, guess, n_dropped, not matrix.has_values))

    def _take_form(self, form: TableForm) -> None:
        """Keep the form of the first file."""
        if not self.files:
            self._form = form

    def _check(self, batch: EntryBatch, scale: Scale | None) -> None:
        low, high = batch.values.min(), batch.values.max()
        is_bad = ~(np.abs(batch.values) <= LARGEST) if not (low >= -LARGEST and high <= LARGEST) else None
        if is_bad is None and scale is not None:
            is_bad = ~scale.holds(batch.values)
        if is_bad is None or not is_bad.any():
            return
        at = int(np.flatnonzero(is_bad)[0])
        row, column = (
            Labels.gather([ids[at]], axis=axis) for ids, axis in ((batch.rows, "row"), (batch.columns, "column"))
        )
        try:
            check_finite(row, column, batch.values[[at]])
            check_on_scale(row, column, batch.values[[at]], scale or Scale(levels=[0]))
        except BadEntries as error:
            raise error.locate(batch.locate(at)) from error

    def _add(self, rows: CodedLabels, columns: CodedLabels, values: FloatArray, extras: Extras) -> None:
        self._row_samples.append(CodedLabels(rows.kind, rows.codes[::SAMPLE_EVERY].copy()))
        self._spool.add(rows, columns, values, extras)
        self._progress(self._spool.n_entries, None)

    def _make_buckets(self, rows: SortedLabels, columns: SortedLabels, stored_kinds: list[Any]) -> Buckets:
        """Return buckets of rows that will hold about equally many entries."""
        weights = np.zeros(len(rows.labels), dtype=np.int64)
        for sample in self._row_samples:
            weights += SAMPLE_EVERY * np.bincount(rows.find_positions(sample), minlength=weights.size)
        index = [np.int32 if len(axis.labels) < 2**31 - 1 else np.int64 for axis in (rows, columns)]
        return Buckets(self._scratch / "rows", weights, [*index, *stored_kinds])

    def _distribute(
        self,
        buckets: Buckets,
        rows: SortedLabels,
        columns: SortedLabels,
        table: npt.NDArray[np.float64] | None,
    ) -> IndexArray:
        """Distribute the spooled entries over buckets of rows; return the number of entries of each column."""
        column_counts = np.zeros(len(columns.labels), dtype=np.int64)
        n_entries = self._spool.n_entries
        for entries in self._spool:
            column_of = columns.find_positions(entries.columns)
            column_counts += np.bincount(column_of, minlength=column_counts.size)
            values = entries.values if table is None else find_codes(entries.values.astype(np.float64), table)
            extras = self._spool.fill_extras(entries.extras, values.size)
            stored = (field for field in extras if field is not None)
            buckets.add(rows.find_positions(entries.rows), column_of, values, *stored)
            self._progress(n_entries + int(column_counts.sum()), _STEPS * n_entries)
        buckets.close()  # buckets of columns are opened next, and the number of open files is limited
        return column_counts

    def _append(self, buckets: Buckets, writer: StoreWriter, merger: RepeatMerger, n_columns: int) -> None:
        """Sort one bucket after another, merge repeats, and append the entries to the store."""
        n_entries = self._spool.n_entries
        for bucket in buckets:
            row_of, column_of, values, *stored = bucket.fields
            order, row_of, column_of = sort_by_row(
                row_of - bucket.first, column_of, n_rows=bucket.last - bucket.first, n_columns=n_columns
            )
            row_of += bucket.first
            extras = self._spool.split_extras(stored).take(order)
            writer.append(*merger.merge(CodedEntries(row_of, column_of, values[order], extras)))
            self._progress(2 * n_entries + writer.n_entries, _STEPS * n_entries)

    def _infer_final_scale(self, scale: Scale, table: npt.NDArray[np.float64] | None, writer: StoreWriter) -> Scale:
        """Return the scale of the entries that merging leaves, unless a scale was given."""
        if self._options.scale is not None:
            return scale
        if table is None:
            return scale.infer_again(writer.values)
        if self._options.duplicates not in ("first", "last", "latest"):
            return scale
        left = table[writer.code_counts[: table.size] > 0]
        return scale if left.size == table.size else Scale.infer(left)


def _encode(axis: LabelCodes, ids: pl.Series, batch: EntryBatch, *, is_typed: bool) -> CodedLabels:
    """Return the codes of ids; an id that cannot be a label is refused with its place."""
    try:
        return axis.add(ids, is_typed=is_typed)
    except BadEntries as error:
        raise error.locate(batch.locate(error.position)) from error


class EntryBatch(NamedTuple):
    """Some entries of a file; `locate` returns in words the file, and the line of one of these entries."""

    rows: pl.Series
    columns: pl.Series
    values: FloatArray
    extras: Extras
    locate: Callable[[int | None], str]


class EntryReader:
    """Reads a file with an entry per line, delimited text, Parquet or JSON lines, in batches of lines.

    guess: in words, which columns were taken for which role; None where nothing was guessed.
    n_dropped: the number of lines dropped so far because their value is missing.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._path = check_path(path)
        self._options = options
        self._scan = scan_columns(self._path, options.kind, options.for_columns())
        choice = self._scan.choice
        row, column = choice.names[:2]
        time, weight = (None if (at := choice.find(role)) is None else choice.names[at] for role in ("time", "weight"))
        self.form = TableForm(row, column, choice.value_name, time=time, weight=weight)
        self.guess = choice.remark
        self.time_note = choice.time_remark
        self.are_interactions = choice.are_interactions
        self.is_uncertain = choice.is_uncertain
        self.are_ids_typed = self._scan.are_typed[:2]  # of rows, of columns
        self.n_dropped = 0

    def read_batches(self) -> Iterator[EntryBatch]:
        """Yield the entries in order; an incomplete line is refused with its number, or dropped."""
        n_before = 0
        for frame in self._read_frames():
            yield self._convert(frame, n_before)
            n_before += frame.height
        if n_before == self.n_dropped:
            raise UnreadableFile(f"{self._path} holds no entries; lines without a value: {self.n_dropped:,}")

    def _read_frames(self) -> Iterator[pl.DataFrame]:
        """Yield the lines of the file, without blank lines at its end."""
        polars = import_polars()
        blank: pl.DataFrame | None = None  # blank lines: the end of the file, unless others follow
        with translate_polars_errors(self._path, "text" if self._scan.is_text else name_format(self._path)):
            for read in self._scan.lazy.collect_batches(chunk_size=BATCH_LINES, maintain_order=True):
                frame = read if blank is None else polars.concat([blank, read])
                filled = drop_blank_end(frame) if self._scan.is_text else frame
                blank = frame.tail(frame.height - filled.height) if filled.height < frame.height else None
                if filled.height:
                    yield filled

    def _convert(self, frame: pl.DataFrame, n_before: int) -> EntryBatch:
        n_needed = self._scan.choice.n_needed
        try:
            if self._scan.is_text:
                frame = frame.with_columns(
                    _parse_values(texts, self._options.decimal) for texts in frame.get_columns()[2:n_needed]
                )
            lines = keep_complete_lines(frame, n_needed, self._options.missing, is_part=True)
            rows, columns, *values = lines.frame.get_columns()[:n_needed]
            numbers = _to_floats(values[0]) if values else np.ones(rows.len())
            extras = self._read_extras(lines.frame)
        except BadEntries as error:
            at = None if error.position is None else n_before + error.position
            raise error.locate(self._locate(at)) from error
        self.n_dropped += lines.n_dropped
        kept = np.flatnonzero(np.ones(numbers.size) if extras.weights is None else extras.weights)
        if kept.size < numbers.size:  # an entry of weight 0 is left out
            rows, columns, numbers, extras = rows.gather(kept), columns.gather(kept), numbers[kept], extras.take(kept)
        return EntryBatch(
            rows,
            columns,
            numbers,
            extras,
            lambda at: self._locate(None if at is None else n_before + lines.find_place(int(kept[at]))),
        )

    def _read_extras(self, frame: pl.DataFrame) -> Extras:
        """Return the times and weights of some lines."""
        choice, is_text, columns = self._scan.choice, self._scan.is_text, frame.get_columns()
        times = weights = None
        if (at := choice.find("time")) is not None:
            texts = parse_time_texts(columns[at]) if is_text else columns[at]
            parsed = read_times(texts)
            times = parsed.seconds
            self.form = self.form._replace(time_type=parsed.type)
        if (at := choice.find("weight")) is not None:
            numbers = _parse_values(columns[at], self._options.decimal) if is_text else columns[at]
            if numbers.null_count():
                raise BadEntries("the weight is missing", position=int(numbers.is_null().arg_true()[0]))
            weights = check_weights(_to_floats(numbers), numbers.len())
        return Extras(times, weights)

    def _locate(self, at: int | None) -> str:
        return f"{self._path}" if at is None else f"{self._path}, {self._scan.choice.locate(at)}"


def _to_floats(values: pl.Series) -> FloatArray:
    if not (values.dtype.is_numeric() or str(values.dtype) == "Boolean"):
        raise BadEntries(f"column {values.name!r} holds values of type {values.dtype}; numbers are needed")
    return to_numbers(values.cast(import_polars().Float64).to_numpy())


def _parse_values(texts: pl.Series, decimal: str) -> pl.Series:
    """Return texts as numbers, null where a value is missing; a plain cast where it suffices."""
    if decimal == ".":
        numbers = texts.cast(import_polars().Float64, strict=False)
        if numbers.null_count() == texts.null_count() and not numbers.is_nan().any():
            return numbers
    return parse_numbers(texts, decimal=decimal)


class SpooledEntries(NamedTuple):
    """Some entries: codes of their labels, their values, times and weights."""

    rows: CodedLabels
    columns: CodedLabels
    values: npt.NDArray[np.floating[Any]]
    extras: Extras


class Spool:
    """A queue of entries on disk: added some at a time, read back once in the same order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._kinds: list[tuple[Any, Any]] = []
        self._levels: FloatArray | None = np.empty(0)
        self._low, self._high = np.inf, -np.inf
        self.n_entries = 0
        self.are_single = True  # whether float32 holds all values exactly
        self.has_times = self.has_weights = False  # whether some entry has a date, or a weight other than 1

    def add(self, rows: CodedLabels, columns: CodedLabels, values: FloatArray, extras: Extras = PLAIN_EXTRAS) -> None:
        """Add entries; their values are finite."""
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        self.are_single = self.are_single and np.array_equal(single, values)
        with self._name_file(len(self._kinds)).open("wb", buffering=0) as file:
            for array in (_narrow(rows.codes), _narrow(columns.codes), single if self.are_single else values):
                np.save(file, array, allow_pickle=False)
            extras = extras.simplify()
            for field in extras:
                np.save(file, np.empty(0) if field is None else field, allow_pickle=False)
        self.has_times |= extras.times is not None
        self.has_weights |= extras.weights is not None
        self._kinds.append((rows.kind, columns.kind))
        self.n_entries += values.size
        self._update_range(values)

    def __iter__(self) -> Iterator[SpooledEntries]:
        """Yield the entries in the order of adding; each file is removed once it is read."""
        for at, (row_kind, column_kind) in enumerate(self._kinds):
            path = self._name_file(at)
            with path.open("rb") as file:
                rows, columns, values, *fields = (np.load(file, allow_pickle=False) for _ in range(6))
            path.unlink()
            extras = Extras(*(field if field.size else None for field in fields))
            yield SpooledEntries(CodedLabels(row_kind, rows), CodedLabels(column_kind, columns), values, extras)

    def fill_extras(self, extras: Extras, n_entries: int) -> Extras:
        """Return times and weights of all entries where some entry of the spool has them."""
        times, weights, _ = extras
        if self.has_times and times is None:
            times = np.full(n_entries, NO_TIME)
        if self.has_weights and weights is None:
            weights = np.ones(n_entries)
        return Extras(times, weights)

    def split_extras(self, stored: list[npt.NDArray[Any]]) -> Extras:
        """Return stored fields as times and weights."""
        fields = iter(stored)
        return Extras(next(fields) if self.has_times else None, next(fields) if self.has_weights else None)

    def infer_scale(self) -> Scale:
        """Infer the scale from the values as `Scale.infer` does; an interval includes all outliers."""
        if self._levels is None:
            return Scale(low=self._low, high=self._high, bounded=False)
        return Scale.infer(self._levels)

    def _update_range(self, values: FloatArray) -> None:
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        if self._levels is not None:
            levels = find_few_levels(values)
            together = None if levels is None else np.union1d(self._levels, levels)
            self._levels = None if together is None or together.size > MOST_LEVELS else together

    def _name_file(self, at: int) -> Path:
        return self._folder / f"{at}.npy"


def _narrow(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return codes in 32 bits where they fit."""
    bounds = np.iinfo(np.int32)
    fits = codes.size == 0 or (codes.min() >= bounds.min and codes.max() <= bounds.max)
    return codes.astype(np.int32, copy=False) if fits else codes


class CodedEntries(NamedTuple):
    """Entries in row order; values are codes where the store has a table of values."""

    rows: IndexArray
    columns: IndexArray
    values: npt.NDArray[Any]
    extras: Extras = PLAIN_EXTRAS


class RepeatMerger:
    """Merges entries of the same row and column; `n_moved` counts means that were moved to a level."""

    def __init__(
        self,
        duplicates: Merging,
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

    def merge(self, entries: CodedEntries) -> CodedEntries:
        """Return entries without repeats, given all repeats of each pair."""
        is_repeat = find_repeats(entries.rows, entries.columns)
        if not np.any(is_repeat):
            return entries
        if self._duplicates == "error":
            raise self._error(entries, np.flatnonzero(is_repeat)[:1])
        merged = self._merge_values(entries.values, is_repeat, entries.extras)
        return CodedEntries(entries.rows[~is_repeat], entries.columns[~is_repeat], *merged)

    def _merge_values(
        self, values: npt.NDArray[Any], is_repeat: npt.NDArray[np.bool_], extras: Extras
    ) -> tuple[npt.NDArray[Any], Extras]:
        if self._duplicates != "mean":
            return merge_repeats(values, is_repeat, self._duplicates, extras)
        means, extras = merge_repeats(
            (values if self._table is None else self._table[values]).astype(np.float64), is_repeat, "mean", extras
        )
        if self._scale.levels is None:
            return means, extras
        levels, n_moved = round_to_levels(means, self._scale)
        self.n_moved += n_moved
        return levels if self._table is None else find_codes(levels, self._table), extras

    def _error(self, entries: CodedEntries, at: IndexArray) -> DuplicateEntries:
        row, column = self._rows[entries.rows[at]].tolist()[0], self._columns[entries.columns[at]].tolist()[0]
        return DuplicateEntries(f"row {row!r}, column {column!r} was given before", hint=DUPLICATES_HINT)
