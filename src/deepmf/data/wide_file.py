"""A wide table from a file: a line per row, a column per column, gaps where nothing is observed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deepmf.data.delimited import DelimitedFile
from deepmf.data.ids import whole_or_text
from deepmf.data.messy_numbers import parsed
from deepmf.data.role_columns import Column, scan_typed, without_blank_end
from deepmf.data.roles import TABLE
from deepmf.data.source import reading
from deepmf.data.text_layout import recognise
from deepmf.data.typed_file import ENDINGS, read_typed
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.files.frame_library import import_polars
from deepmf.matrix.frames import choose_columns

if TYPE_CHECKING:
    import polars as pl


class WideFile(NamedTuple):
    """The table, the name of the column with the row ids, and the number of its first line (None: it has no lines)."""

    frame: pl.DataFrame
    row: str
    first_line: int | None


def read_wide(path: Path, *, row: Column, separator: str | None, header: bool | None, decimal: str) -> WideFile:
    """Read a wide table; the row ids are in the column asked for, otherwise in the first."""
    if path.suffix.lower() in ENDINGS:
        frame = read_typed(path, lambda lazy: lazy.collect_schema().names())
        return _checked(path, WideFile(frame, _row(path, frame.columns, row), None))
    file = DelimitedFile(path)
    header = True if isinstance(row, str) and header is None else header
    layout = recognise(file, TABLE, separator=separator, header=header, is_known=lambda _: False, decimal=decimal)
    name = _row(path, layout.names, row)
    with reading(path, "text"):
        texts = without_blank_end(scan_typed(file, layout, {}).select(layout.names).collect())
    if texts[name].null_count():
        line = int(texts[name].is_null().arg_true()[0]) + layout.first_line
        raise BadEntries(f"{path}, line {line}: the row id is missing")
    columns = [texts[name] if name in layout.quoted else whole_or_text(texts[name])]
    for series in texts.drop(name).get_columns():
        try:
            columns.append(parsed(series, decimal=decimal))
        except BadEntries as error:
            assert error.position is not None
            place = f"line {error.position + layout.first_line}, column {series.name!r}"
            raise BadEntries(f"{path}, {place}: {error.message}") from error
    return _checked(path, WideFile(import_polars().DataFrame(columns), name, layout.first_line))


def _row(path: Path, names: list[str], row: Column) -> str:
    try:
        return choose_columns(names, {"row": 0 if row is None else row})["row"]
    except BadEntries as error:
        raise BadEntries(f"{path}: {error.message}") from error


def _checked(path: Path, wide: WideFile) -> WideFile:
    values = wide.frame.drop(wide.row)
    if values.width == 0 or sum(series.len() - series.null_count() for series in values.get_columns()) == 0:
        raise UnreadableFile(f"{path} holds no entries")
    return wide
