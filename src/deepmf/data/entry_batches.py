"""Files of entries read some lines at a time, each line checked as when a file is read whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deepmf.data.messy_numbers import check_decimal, parsed
from deepmf.data.missing_values import Missing, check_missing, whole_lines
from deepmf.data.role_columns import Column, ColumnScan, scan_columns, without_blank_end
from deepmf.data.roles import ENTRIES
from deepmf.data.source import checked_path, reading
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.files.frame_library import import_polars
from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.checks import numbers
from deepmf.matrix.table_form import TableForm

if TYPE_CHECKING:
    import polars as pl

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
            floats = numbers(values.cast(import_polars().Float64).to_numpy())
        except BadEntries as error:
            raise self.placed(error, n_before) from error
        self.n_dropped += whole.n_dropped
        return EntryBatch(rows, columns, floats, lambda at: self._place(n_before + whole.place(at)))

    def placed(self, error: BadEntries, n_before: int) -> BadEntries:
        """Return an error over a line as one that names the file, and the line."""
        where = "" if error.position is None else f", {self._place(n_before + error.position)}"
        return type(error)(f"{self.path}{where}: {error.message}")

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
