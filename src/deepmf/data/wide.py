"""Reading a wide table: a line per row, and a column per column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepmf.data.columns import open_table
from deepmf.data.delimited import parse_ids, parse_numbers
from deepmf.data.layout import TABLE, ColumnOptions
from deepmf.data.table import FileTable
from deepmf.errors import BadEntries, Hint, UnreadableFile
from deepmf.files import polars
from deepmf.matrix.column_roles import find_column
from deepmf.matrix.frames import check_excluded
from deepmf.matrix.matrix import ObservedMatrix
from deepmf.matrix.scale import Scale


def read_wide(
    path: Path, options: ColumnOptions, *, exclude: Sequence[str], scale: Scale | None
) -> tuple[ObservedMatrix, str]:
    """Read a wide table without some columns; return the name of the column of row ids, too.

    The row ids are in the column that is asked for, otherwise in the first.
    """
    table = open_table(path, TABLE, options)
    check_excluded(table.names, exclude)
    asked_row = options.asked.get("row")
    row = find_column(table.names, 0 if asked_row is None else asked_row, "row")
    frame = table.collect(table.lines.drop(exclude))
    if table.is_text:
        frame = _parse_texts(table, frame, row, options)
    if asked_row is None:
        _refuse_no_ids(frame[row])
    columns = frame.drop(row).get_columns()
    if all(column.null_count() == column.len() for column in columns):
        raise UnreadableFile(f"{path} holds no entries")
    return ObservedMatrix.from_table(frame, row=row, scale=scale), row


def _parse_texts(
    table: FileTable, texts: polars.DataFrame, row: str, options: ColumnOptions
) -> polars.DataFrame:
    """Return the texts of all columns but that of the row ids as numbers."""
    if texts[row].null_count():
        place = table.locate(int(texts[row].is_null().arg_true()[0]))
        hint = _hint_at_ids(row) if options.asked.get("row") is None else None
        raise BadEntries(f"{place}: the row id is missing", hint=hint)
    columns = [texts[row] if row in table.quoted else parse_ids(texts[row])]
    for column in texts.drop(row).get_columns():
        try:
            columns.append(parse_numbers(column, decimal=options.decimal))
        except BadEntries as error:
            place = f"{table.locate(error.position)}, column {column.name!r}"
            hint = error.hint or _hint_at_text(column.name)
            raise BadEntries(f"{place}: {error.message}", hint=hint) from error
    return polars.DataFrame(columns)


def _refuse_no_ids(column: polars.Series) -> None:
    """Refuse a first column that cannot be the row ids: some are missing, repeat others, or have
    decimal places."""
    are_ids = not column.null_count()
    if are_ids and (column.dtype.is_numeric() or column.dtype == polars.String):
        numbers = column.cast(polars.Float64, strict=False)
        have_decimals = not numbers.null_count() and (numbers % 1 != 0).any()
        are_ids = column.n_unique() == column.len() and not have_decimals
    if not are_ids:
        raise BadEntries(
            "row ids must be texts or whole numbers that differ, in every line",
            hint=_hint_at_ids(column.name),
        )


def _hint_at_ids(row: str) -> Hint:
    explanation = f"the first column, {row!r}, is taken as the row ids"
    return Hint(
        f"{explanation}; row= names another, and DMFImputer needs none",
        f"{explanation}; --row names another, and deepmf impute needs none",
    )


def _hint_at_text(name: str) -> Hint:
    return Hint(
        f"exclude=[{name!r}] leaves the column out, and DMFImputer fills in tables with text",
        f"--exclude-columns {name} leaves the column out, and deepmf impute fills in tables with text",
    )
