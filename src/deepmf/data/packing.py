"""Packing: files of entries become a store on disk, in memory that does not grow with the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.data.columns import name_format, scan_columns
from deepmf.data.delimited import drop_blank_end, parse_ids, parse_numbers, parse_time_texts
from deepmf.data.layout import EITHER
from deepmf.data.read import ReadOptions, keep_complete_lines, read_entry_file, read_matrix
from deepmf.data.source import check_path, is_folder, translate_polars_errors
from deepmf.errors import BadEntries, BadSetting, GuessedColumns, UnreadableFile, warn
from deepmf.files import Progress, check_absent, import_polars, temporary_folder, write_folder_atomically
from deepmf.matrix.arrays import FloatArray, IndexArray, find_codes
from deepmf.matrix.extras import NO_TIME, Extras, check_weights
from deepmf.matrix.frames import read_times
from deepmf.matrix.labels import AS_TEXT, Labelled, Labels, build_label_array, find_stored_kind
from deepmf.matrix.matrix import NAME_COLUMNS, ObservedMatrix, choose_scale
from deepmf.matrix.packed import choose_code_table, iterate_entries
from deepmf.matrix.packed_writer import Buckets, StoreWriter
from deepmf.matrix.scale import LARGEST, MOST_LEVELS, Scale, find_few_levels
from deepmf.matrix.sorting import (
    Merging,
    check_duplicates,
    check_finite,
    check_on_scale,
    sort_entries,
    to_numbers,
    warn_moved,
)
from deepmf.matrix.table_form import PLAIN, TableForm
from deepmf.matrix.text_labels import TextLabels

if TYPE_CHECKING:
    import polars as pl

BATCH_LINES = 1 << 22  # lines read at a time
_STEPS = 4  # every entry is read, distributed by row, sorted by row and sorted by column


def pack(sources: str | Path | Sequence[str | Path], path: str | Path, **options: Any) -> ObservedMatrix:
    """Pack the entries of one or several files into a new store, a folder at `path`, and open it.

    Memory grows with the rows and columns, not with the entries. The store appears at `path` whole or not at all.

    Parameters
    ----------
    sources : files of entries, wide tables, `.npz` files or stores.
    path : the new folder.
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
    for file in pack_files(files, path, ReadOptions.of(options)):
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

    Entries are spooled in the order of the files until all ids are known. They go from the spool into buckets of rows;
    each bucket is sorted in memory and appended to the store, which sorts by column in the same way.
    """

    def __init__(self, scratch: Path, options: ReadOptions, progress: Progress) -> None:
        self.files: list[PackedFile] = []
        self._scratch, self._options, self._progress = scratch, options, progress
        self._axes = AxisIds("row"), AxisIds("column")
        self._form = PLAIN
        self._spool = Spool(scratch / "spool")

    def build(self, files: Sequence[Path], folder: Path) -> None:
        """Read the files and fill a new folder."""
        for file in files:
            self._read_file(file)
        spool, are_interactions = self._spool, self._check_alike()
        rows, columns = (axis.sort() for axis in self._axes)
        duplicates: Merging = "sum" if are_interactions else self._options.duplicates
        scale = choose_scale(self._options.scale, are_interactions=are_interactions) or spool.infer_scale()
        table = choose_code_table(scale)
        value_kind: Any = np.uint8 if table is not None else np.float32 if spool.are_single else np.float64
        row_counts, column_counts = spool.number(rows, columns)
        record = spool.make_record(rows.labels, columns.labels, value_kind)
        with closing(Buckets(self._scratch / "rows", row_counts, record)) as buckets:
            self._distribute(buckets, table)
            writer = StoreWriter(
                folder,
                self._scratch / "columns",
                rows=rows.labels,
                columns=columns.labels,
                value_kind=np.float64 if table is None and duplicates == "mean" else value_kind,
                column_counts=column_counts,
                extra_kinds=(np.int64 if spool.has_times else None, np.float64 if spool.has_weights else None, None),
            )
            with closing(writer):
                self._append(buckets, writer, scale, table, duplicates)
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
        if self._options.form == "sequences":
            raise BadSetting(f"a store keeps no order without times; read {file} as it is, or give times")
        is_whole = self._options.wide or is_folder(file) or file.suffix.lower() in (".npy", ".npz")
        if is_whole or self._options.reads_lists(check_path(file)):
            self._read_matrix(file)
        else:
            self._read_lines(file)

    def _read_lines(self, file: Path) -> None:
        reader = EntryReader(file, self._options)
        for batch in reader.read_batches():
            if batch.values.size:
                _check(batch, Scale.interactions() if reader.are_interactions else self._options.scale)
                ids = zip(self._axes, (batch.rows, batch.columns), reader.are_ids_typed, strict=True)
                try:
                    rows, columns = (axis.add(each, is_typed=is_typed) for axis, each, is_typed in ids)
                except BadEntries as error:
                    raise error.locate(batch.locate(error.position)) from error
                self._add(rows, columns, batch.values, batch.extras)
        read = reader.guess, reader.n_dropped, reader.are_interactions, reader.is_uncertain, reader.time_note
        self._note(PackedFile(file, *read), reader.form)

    def _read_matrix(self, file: Path) -> None:
        """Read a wide table or an .npz file at once, a store some entries at a time."""
        matrix, guess, n_dropped, *_ = read_entry_file(file, self._options)
        rows, columns = (
            axis.add(labels.array) for axis, labels in zip(self._axes, (matrix.rows, matrix.columns), strict=True)
        )
        start = 0
        for piece in iterate_entries(matrix.parts):
            values = matrix.values[start : start + piece.rows.size].astype(np.float64)
            start += piece.rows.size
            self._add(rows.gather(piece.rows), columns.gather(piece.columns), values, piece.extras)
        self._note(PackedFile(file, guess, n_dropped, not matrix.has_values), matrix.form)

    def _note(self, file: PackedFile, form: TableForm) -> None:
        """Keep the notes on a file, and the form of the first."""
        self._form = self._form if self.files else form
        self.files.append(file)

    def _add(self, rows: pl.Series, columns: pl.Series, values: FloatArray, extras: Extras) -> None:
        self._spool.add(rows, columns, values, extras)
        self._progress(self._spool.n_entries, None)

    def _distribute(self, buckets: Buckets, table: npt.NDArray[np.float64] | None) -> None:
        """Distribute the spooled entries over buckets of rows."""
        n_done, n_entries = 0, self._spool.n_entries
        for entries in self._spool:
            values = entries.values if table is None else find_codes(entries.values, table)
            extras = (field for field in entries.extras if field is not None)
            buckets.add(entries.rows, entries.columns, values, *extras)
            n_done += values.size
            self._progress(n_entries + n_done, _STEPS * n_entries)
        buckets.close()  # buckets of columns are opened next, and the number of open files is limited

    def _append(
        self,
        buckets: Buckets,
        writer: StoreWriter,
        scale: Scale,
        table: npt.NDArray[np.float64] | None,
        duplicates: Merging,
    ) -> None:
        """Sort one bucket after another, merge repeats, and append the entries to the store."""
        n_moved = 0
        for bucket in buckets:
            entries = sort_entries(
                Labelled(writer.rows, bucket["row"]),
                Labelled(writer.columns, bucket["column"]),
                bucket["value"].astype(np.float64) if table is None else table[bucket["value"]],
                scale=scale,
                duplicates=duplicates,
                extras=Extras(
                    *(bucket[name] if name in (bucket.dtype.names or ()) else None for name in ("time", "weight"))
                ),
            )
            n_moved += entries.n_moved
            values = entries.values if table is None else find_codes(entries.values, table)
            writer.append(entries.rows, entries.columns, values, entries.extras._replace(places=None))
            self._progress(2 * self._spool.n_entries + writer.n_entries, _STEPS * self._spool.n_entries)
        warn_moved(n_moved, scale)

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


def _check(batch: EntryBatch, scale: Scale | None) -> None:
    """Refuse a value that is not finite or not on the scale, with its place in the file."""
    is_good = np.abs(batch.values) <= LARGEST
    if scale is not None:
        is_good &= scale.holds(batch.values)
    if is_good.all():
        return
    at = np.flatnonzero(~is_good)[:1]
    row, column = (
        Labels.gather(ids.gather(at).to_list(), axis=axis)
        for ids, axis in ((batch.rows, "row"), (batch.columns, "column"))
    )
    try:
        check_finite(row, column, batch.values[at])
        check_on_scale(row, column, batch.values[at], scale or Scale(levels=[0]))
    except BadEntries as error:
        raise error.locate(batch.locate(int(at[0]))) from error


class KnownIds(NamedTuple):
    """All labels of an axis in order, and a function from ids to positions among them."""

    labels: Labels
    find: Callable[[pl.Series], IndexArray]


class AxisIds:
    """Collects the ids of one axis from one file after another.

    Ids of delimited text become ints if all of them are whole numbers, as when a file is read at once. Ints become
    text where other ids are text.
    """

    def __init__(self, axis: str) -> None:
        self._axis, self._is_typed = axis, False
        self._known: dict[str, pl.Series] = {}  # distinct ids by kind of label, as ints or as text

    def add(self, ids: pl.Series | npt.NDArray[Any], *, is_typed: bool = True) -> pl.Series:
        """Return ids as ints or texts; texts may turn out to be ints unless the file makes them text (`is_typed`)."""
        polars = import_polars()
        if isinstance(ids, polars.Series) and ids.dtype in (polars.String, polars.Categorical, polars.Enum):
            kind = "str"
            plain: pl.Series = ids.cast(polars.String)
        else:
            given = ids if isinstance(ids, np.ndarray) else ids.to_numpy() if _is_integer(ids) else ids.to_list()
            array = build_label_array(given, axis=self._axis)
            kind = find_stored_kind(Labels.from_distinct(array, axis=self._axis))
            write = repr if kind == "float" else AS_TEXT[kind].write if kind in AS_TEXT else None
            plain = polars.Series(array if write is None else list(map(write, array.tolist())))
        self._is_typed |= is_typed and kind == "str"
        distinct = [plain.unique(), *([self._known[kind]] if kind in self._known else [])]
        self._known[kind] = polars.concat(distinct).unique() if len(distinct) > 1 else distinct[0]
        return plain

    def sort(self) -> KnownIds:
        """Sort all labels; labels of two kinds are refused."""
        polars, axis = import_polars(), self._axis
        *others, kind = sorted(self._known)  # "int" comes before "str"
        if others and [*others, kind] != ["int", "str"]:
            shown = " and ".join(f"{name} {self._known[name][0]!r}" for name in (*others, kind))
            raise BadEntries(f"{axis} labels must be of one kind; got {shown}")
        texts, ints = self._known[kind], self._known.get("int", polars.Series(dtype=polars.Int64))
        numbers = parse_ids(texts) if kind == "str" and not self._is_typed else texts
        if numbers.dtype.is_integer():
            labels = Labels.from_distinct(np.union1d(ints.to_numpy(), numbers.to_numpy()), axis=axis)
            positions = labels.find(numbers.to_numpy())
        elif kind == "str":
            texts = polars.concat([texts, ints.cast(polars.String)]).unique().sort()
            labels, positions = _build_text_labels(texts, axis=axis), np.arange(texts.len())
        else:
            labels, positions = Labels.gather(
                [float(text) if kind == "float" else AS_TEXT[kind].label(text) for text in texts.to_list()], axis=axis
            )
        enum = polars.Enum([] if kind == "int" else texts)

        def find(ids: pl.Series) -> IndexArray:
            if numbers.dtype.is_integer() and ids.dtype.is_integer():
                return labels.find(ids.to_numpy())
            found: IndexArray = positions[ids.cast(polars.String).cast(enum).to_physical().to_numpy()]
            return found

        return KnownIds(labels, find)


def _is_integer(ids: pl.Series) -> bool:
    return ids.dtype.is_integer() and str(ids.dtype) not in ("Int128", "UInt128")  # numpy has none of 128 bits


def _build_text_labels(texts: pl.Series, *, axis: str) -> TextLabels:
    """Return sorted texts as labels, without making Python strings."""
    starts = np.zeros(texts.len() + 1, dtype=np.int64)
    np.cumsum(texts.str.len_bytes().to_numpy(), out=starts[1:])
    text = np.frombuffer(texts.str.join("").item().encode(), dtype=np.uint8)
    return TextLabels(text, starts, kind="str", is_sorted=True, axis=axis)


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
    """Some entries: the positions of their rows and columns, values, times and weights."""

    rows: IndexArray
    columns: IndexArray
    values: FloatArray
    extras: Extras


class Spool:
    """Entries on disk: added some at a time, read back in the same order."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._n_files = folder, 0
        self._levels: FloatArray | None = np.empty(0)
        self._low, self._high = np.inf, -np.inf
        self.n_entries = 0
        self.are_single = True  # whether float32 holds all values exactly
        self.has_times = self.has_weights = False  # whether some entry has a date, or a weight other than 1

    def add(self, rows: pl.Series, columns: pl.Series, values: FloatArray, extras: Extras) -> None:
        """Add entries; their values are finite."""
        times, weights, _ = extras.simplify()
        fields = {"row": rows, "column": columns, "value": values, "time": times, "weight": weights}
        frame = import_polars().DataFrame({name: each for name, each in fields.items() if each is not None})
        self._write(self._n_files, frame)
        self._n_files += 1
        self.n_entries += values.size
        self.has_times |= times is not None
        self.has_weights |= weights is not None
        with np.errstate(over="ignore"):
            self.are_single = self.are_single and np.array_equal(values.astype(np.float32), values)
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        if self._levels is not None:
            levels = find_few_levels(values)
            together = None if levels is None else np.union1d(self._levels, levels)
            self._levels = None if together is None or together.size > MOST_LEVELS else together

    def number(self, rows: KnownIds, columns: KnownIds) -> tuple[IndexArray, IndexArray]:
        """Replace all ids by their positions; return the number of entries of each row and of each column."""
        axes = {"row": rows, "column": columns}
        counts = {name: np.zeros(len(axis.labels), dtype=np.int64) for name, axis in axes.items()}
        for at in range(self._n_files):
            frame = self._read(at)
            found = {name: axis.find(frame[name]) for name, axis in axes.items()}
            for name, positions in found.items():
                counts[name] += np.bincount(positions, minlength=counts[name].size)
            self._write(at, frame.with_columns(**{name: import_polars().Series(each) for name, each in found.items()}))
        return counts["row"], counts["column"]

    def _read(self, at: int) -> pl.DataFrame:
        frame: pl.DataFrame = import_polars().read_ipc(BytesIO((self._folder / str(at)).read_bytes()))
        return frame

    def _write(self, at: int, frame: pl.DataFrame) -> None:
        content = BytesIO()
        frame.write_ipc(content)
        (self._folder / str(at)).write_bytes(content.getbuffer())

    def __iter__(self) -> Iterator[SpooledEntries]:
        """Yield the numbered entries in the order of adding, with times and weights where some entry has them."""
        for at in range(self._n_files):
            frame = self._read(at)
            arrays: dict[str, Any] = {name: frame[name].to_numpy() for name in frame.columns}
            times = arrays.get("time", np.full(frame.height, NO_TIME)) if self.has_times else None
            weights = arrays.get("weight", np.ones(frame.height)) if self.has_weights else None
            yield SpooledEntries(arrays["row"], arrays["column"], arrays["value"], Extras(times, weights))

    def make_record(self, rows: Labels, columns: Labels, value_kind: npt.DTypeLike) -> np.dtype[Any]:
        """Return the type of an entry in a bucket."""
        index = [np.int32 if len(labels) < 2**31 - 1 else np.int64 for labels in (rows, columns)]
        fields: list[Any] = [("row", index[0]), ("column", index[1]), ("value", value_kind)]
        fields += [("time", np.int64)] * self.has_times + [("weight", np.float64)] * self.has_weights
        return np.dtype(fields)

    def infer_scale(self) -> Scale:
        """Infer the scale from the values as `Scale.infer` does; an interval includes all outliers."""
        if self._levels is None:
            return Scale(low=self._low, high=self._high, bounded=False)
        return Scale.infer(self._levels)
