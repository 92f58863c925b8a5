"""Packing: files of entries become a store on disk, in about as much memory as the entries themselves take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepmf.data.columns import name_format, scan_columns
from deepmf.data.delimited import drop_blank_end, parse_ids
from deepmf.data.layout import EITHER
from deepmf.data.read import ReadOptions, keep_complete_lines, read_entry_file, read_matrix
from deepmf.data.source import check_path, is_folder, translate_polars_errors
from deepmf.errors import BadEntries, BadSetting, GuessedColumns, UnreadableFile, warn
from deepmf.files import Progress, check_absent, import_polars
from deepmf.matrix.arrays import FloatArray, IndexArray, ValueArray
from deepmf.matrix.extras import Extras, check_weights
from deepmf.matrix.frames import encode_texts, read_times
from deepmf.matrix.labels import AS_TEXT, Labelled, Labels, build_label_array, find_stored_kind
from deepmf.matrix.matrix import NAME_COLUMNS, ObservedMatrix, choose_scale
from deepmf.matrix.packed import write_store
from deepmf.matrix.scale import LARGEST, Scale
from deepmf.matrix.sorting import check_duplicates, check_finite, check_on_scale, compact, to_numbers
from deepmf.matrix.table_form import PLAIN, TableForm
from deepmf.matrix.text_labels import TextLabels

if TYPE_CHECKING:
    import polars as pl

BATCH_LINES = 1 << 22  # lines read at a time


def pack(sources: str | Path | Sequence[str | Path], path: str | Path, **options: Any) -> ObservedMatrix:
    """Pack the entries of one or several files into a new store, a folder at `path`, and open it.

    Files are read some lines at a time. The store appears at `path` whole or not at all.

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
    gatherer = _Gatherer(options, progress)
    write_store(gatherer.gather(files), path)
    return gatherer.files


class _Gatherer:
    """Gathers the entries of files.

    Ids are numbered as they are read, so that an entry takes 12 bytes until all are sorted.
    """

    def __init__(self, options: ReadOptions, progress: Progress) -> None:
        self.files: list[PackedFile] = []
        self._options, self._progress = options, progress
        self._axes = AxisIds("row"), AxisIds("column")
        self._form = PLAIN
        self._rows, self._columns = list[IndexArray](), list[IndexArray]()
        self._values = list[ValueArray]()
        self._extras = list[tuple[int, Extras]]()
        self._n_entries = 0

    def gather(self, files: Sequence[Path]) -> ObservedMatrix:
        """Read the files and return their entries as one matrix."""
        for file in files:
            self._read_file(file)
        are_interactions = self._check_alike()
        rows, columns = (
            axis.number(parts) for axis, parts in zip(self._axes, (self._rows, self._columns), strict=True)
        )
        values = np.concatenate(self._values)
        self._values.clear()
        return ObservedMatrix.from_positions(
            rows,
            columns,
            values,
            scale=choose_scale(self._options.scale, are_interactions=are_interactions),
            duplicates="sum" if are_interactions else self._options.duplicates,
            form=self._form,
            extras=Extras.join(self._extras),
        )

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
                _check(batch, Scale.interactions() if reader.choice.are_interactions else self._options.scale)
                ids = zip(self._axes, (batch.rows, batch.columns), reader.are_ids_typed, strict=True)
                try:
                    rows, columns = (axis.add(each, is_typed=is_typed) for axis, each, is_typed in ids)
                except BadEntries as error:
                    raise error.locate(batch.locate(error.position)) from error
                self._add(rows, columns, batch.values, batch.extras)
        choice = reader.choice
        notes = choice.remark, reader.n_dropped, choice.are_interactions, choice.is_uncertain, choice.time_remark
        self._note(PackedFile(file, *notes), reader.form)

    def _read_matrix(self, file: Path) -> None:
        """Read a wide table, an .npz file or a store."""
        matrix, guess, n_dropped, *_ = read_entry_file(file, self._options)
        rows, columns = (axis.add(labels.array) for axis, labels in zip(self._axes, matrix.parts[:2], strict=True))
        self._add(rows[matrix.entry_rows], columns[matrix.by_row.columns], matrix.values, matrix.extras)
        self._note(PackedFile(file, guess, n_dropped, not matrix.has_values), matrix.form)

    def _note(self, file: PackedFile, form: TableForm) -> None:
        """Keep the notes on a file, and the form of the first."""
        self._form = self._form if self.files else form
        self.files.append(file)

    def _add(self, rows: IndexArray, columns: IndexArray, values: ValueArray, extras: Extras) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._values.append(compact(values))
        self._extras.append((values.size, extras.simplify()._replace(places=None)))
        self._n_entries += values.size
        self._progress(self._n_entries, None)


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


class AxisIds:
    """Numbers the ids of one axis from one batch of entries after another.

    Ids of delimited text become ints if all of them are whole numbers, as when a file is read at once. Ints become
    text where other ids are text.
    """

    def __init__(self, axis: str) -> None:
        self._axis, self._is_typed, self._n_known = axis, False, 0
        self._known: dict[str, pl.DataFrame] = {}  # distinct ids and their numbers by kind of label, as ints or text

    def add(self, ids: pl.Series | npt.NDArray[Any], *, is_typed: bool = True) -> IndexArray:
        """Return the number of each id; texts may turn out to be ints unless the file makes them text (`is_typed`)."""
        polars = import_polars()
        if isinstance(ids, polars.Series) and ids.dtype in (polars.String, polars.Categorical, polars.Enum):
            kind = "str"
            plain: pl.Series = ids.cast(polars.String)
        else:
            given = ids if isinstance(ids, np.ndarray) else ids.to_numpy() if _is_integer(ids) else ids.to_list()
            array = build_label_array(given, axis=self._axis)
            kind = find_stored_kind(Labels.from_distinct(array, axis=self._axis))
            items = array.tolist() if kind == "float" else array
            plain = polars.Series(list(map(AS_TEXT[kind].write, array.tolist())) if kind in AS_TEXT else items)
        self._is_typed |= is_typed and kind == "str"
        frame = plain.alias("id").to_frame()
        known = self._known.get(kind, frame.clear().with_columns(number=polars.lit(0, polars.Int32)))
        fresh = frame.unique().join(known, on="id", how="anti").with_row_index("number", self._n_known)
        self._known[kind] = polars.concat([known, fresh.select("id", polars.col("number").cast(polars.Int32))])
        self._n_known += fresh.height
        numbers: IndexArray = frame.join(self._known[kind], on="id", how="left", maintain_order="left")[
            "number"
        ].to_numpy()
        return numbers

    def number(self, parts: list[IndexArray]) -> Labelled:
        """Return all labels, sorted, and the positions of the given numbers; labels of two kinds are refused."""
        labels, position_of = self._sort()
        positions = position_of[np.concatenate(parts)]
        parts.clear()
        return Labelled(labels, positions)

    def _sort(self) -> Labelled:
        """Return the sorted labels, and the position of each number."""
        polars, axis = import_polars(), self._axis
        *others, kind = sorted(self._known)  # "int" comes before "str"
        if others and [*others, kind] != ["int", "str"]:
            shown = " and ".join(f"{name} {self._known[name]['id'][0]!r}" for name in (*others, kind))
            raise BadEntries(f"{axis} labels must be of one kind; got {shown}")
        ids = self._known[kind]["id"].alias("")
        found = parse_ids(ids) if kind == "str" and not self._is_typed else ids
        if kind == "str" and not found.dtype.is_integer():
            texts = polars.concat([self._known[name]["id"].cast(polars.String) for name in (*others, kind)])
            distinct, positions = encode_texts(texts)
            gathered = Labelled(_build_text_labels(distinct, axis=axis), positions)
        else:
            items: Any = found.to_numpy()
            if found.dtype == polars.String:
                items = [AS_TEXT[kind].label(text) for text in found.to_list()]
            elif others:
                items = np.concatenate([self._known["int"]["id"].to_numpy(), items])
            gathered = Labels.gather(items, axis=axis)
        numbers = np.concatenate([self._known[name]["number"].to_numpy() for name in (*others, kind)])
        position_of = np.empty(self._n_known, dtype=np.int32)
        position_of[numbers] = gathered.positions
        return gathered._replace(positions=position_of)


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

    choice: which columns hold which role.
    n_dropped: the number of lines dropped so far because their value is missing.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._path = check_path(path)
        self._options = options
        self._scan = scan_columns(self._path, options.kind, options.for_columns())
        self.choice = choice = self._scan.choice
        row, column = choice.names[:2]
        time, weight = (None if (at := choice.find(role)) is None else choice.names[at] for role in ("time", "weight"))
        self.form = TableForm(row, column, choice.value_name, time=time, weight=weight)
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
        with translate_polars_errors(self._path, name_format(self._path)):
            for read in self._scan.lazy.collect_batches(chunk_size=BATCH_LINES, maintain_order=True):
                frame = read if blank is None else polars.concat([blank, read])
                filled = drop_blank_end(frame) if self._scan.is_text else frame
                blank = frame.tail(frame.height - filled.height) if filled.height < frame.height else None
                if filled.height:
                    yield filled

    def _convert(self, frame: pl.DataFrame, n_before: int) -> EntryBatch:
        n_needed = self.choice.n_needed
        frame = self._scan.convert_numbers(frame, self._options.decimal, n_before=n_before)
        try:
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
        choice, columns = self.choice, frame.get_columns()
        times = weights = None
        if (at := choice.find("time")) is not None:
            parsed = read_times(columns[at])
            times = parsed.seconds
            self.form = self.form._replace(time_type=parsed.type)
        if (at := choice.find("weight")) is not None:
            numbers = columns[at]
            if numbers.null_count():
                raise BadEntries("the weight is missing", position=int(numbers.is_null().arg_true()[0]))
            weights = check_weights(_to_floats(numbers), numbers.len())
        return Extras(times, weights)

    def _locate(self, at: int | None) -> str:
        return f"{self._path}" if at is None else f"{self._path}, {self.choice.locate(at)}"


def _to_floats(values: pl.Series) -> FloatArray:
    if not (values.dtype.is_numeric() or str(values.dtype) == "Boolean"):
        raise BadEntries(f"column {values.name!r} holds values of type {values.dtype}; numbers are needed")
    return to_numbers(values.cast(import_polars().Float64).to_numpy())
