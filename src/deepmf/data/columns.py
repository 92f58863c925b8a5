"""The columns of a file that lines of a kind need: which they are, and reading them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from deepmf.data.delimited import parse_numbers, parse_time_texts
from deepmf.data.layout import (
    EITHER,
    INTERACTIONS,
    ColumnOptions,
    LineKind,
    open_text_table,
    refuse_wide,
)
from deepmf.data.source import locate_errors
from deepmf.data.table import FileTable, is_typed_file, open_typed_table
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.files import check_path, narwhals, polars
from deepmf.matrix.column_roles import VALUE_HINT, ChosenColumns, choose_columns, describe_roles
from deepmf.matrix.frames import NEEDED, look_at
from deepmf.matrix.table_form import DETECT


@dataclass(frozen=True)
class ColumnRoles:
    """Which column of a file holds which role.

    Parameters
    ----------
    table : the columns of the file.
    chosen : the column of each role, such as row, column and value; its position without names.
    words : the name or position of each of these columns, in words.
    description : which column is taken for which role, in words.
    remark : the description where columns were guessed; None otherwise.
    """

    table: FileTable
    chosen: ChosenColumns
    words: dict[str, str]
    description: str
    remark: str | None

    @property
    def names(self) -> dict[str, str]:
        """The names of the columns as they are read: without names in the file, the roles."""
        columns = self.chosen.columns
        return columns if self.table.has_names else {role: role for role in columns}

    @property
    def texts(self) -> list[str]:
        """The axes whose ids are text that may turn out to be whole numbers."""
        axes = ("row", "column") if self.table.is_text else ()
        return [axis for axis in axes if self.chosen.columns[axis] not in self.table.quoted]


class ReadColumns(NamedTuple):
    """The columns of some roles, in this order, and how they were chosen.

    missing_words: texts other than empty ones that stand for missing values.
    """

    frame: polars.DataFrame
    roles: ColumnRoles
    missing_words: Sequence[str] = ()


def open_table(path: str | Path, kind: LineKind, options: ColumnOptions) -> FileTable:
    """Open the columns of a file: delimited text, Parquet, JSON lines or Excel."""
    path = check_path(path)
    return open_typed_table(path) if is_typed_file(path) else open_text_table(path, kind, options)


def read_columns(path: str | Path, kind: LineKind, options: ColumnOptions) -> ReadColumns:
    """Read the columns that lines of a kind need.

    Those that are not asked for are recognised by usual names, and where there are none the first
    columns are taken. Where a file decides the type of its ids, texts of rows and columns become
    categories, in 4 bytes a line.
    """
    table = open_table(path, kind, options)
    roles = choose_roles(table, kind, options)
    lines = table.lines.select(roles.chosen.columns.values())
    lines = lines.rename(
        dict(zip(roles.chosen.columns.values(), roles.names.values(), strict=True))
    )
    frame = table.collect(_encode_ids(lines) if kind.defines_ids else lines)
    missing_words: list[str] = []
    if table.is_text and kind.defines_ids:
        frame, missing_words = _convert_numbers(frame, roles, options.decimal)
    elif table.is_text:
        frame = frame.filter(~polars.all_horizontal(polars.all().is_null()))
    if frame.height == 0:
        raise UnreadableFile(f"{path} holds no {kind.content}")
    return ReadColumns(frame, roles, missing_words)


def choose_roles(table: FileTable, kind: LineKind, options: ColumnOptions) -> ColumnRoles:
    """Choose the column of each role that lines of a kind need; refuse a wide table."""
    names = [name for role, name in options.asked_roles.items() if role != "row"]
    if kind.defines_ids and all(name is None for name in names):
        refuse_wide(table)
    head = narwhals.from_native(table.head, eager_only=True)
    content = look_at(head, has_names=table.has_names)
    roles = None if kind in (EITHER, INTERACTIONS) else kind.roles
    # a header of RecBole says which fields are numbers
    has_values = table.types is None or any(
        type_name == "float" and name not in content.times
        for name, type_name in table.types.items()
    )
    value = DETECT if kind is EITHER and has_values else None
    with locate_errors(lambda _: str(table.path)):
        chosen = choose_columns(
            table.names,
            options.asked,
            roles=roles,
            value=value,
            time=options.time,
            content=content,
            usual_count=options.usual_count if kind is INTERACTIONS else None,
        )
    words = {
        role: repr(name) if table.has_names else f"field {name}"
        for role, name in chosen.columns.items()
    }
    description = describe_roles({role: words[role] for role in words if role in NEEDED})
    is_guess = chosen.is_guess
    if kind is EITHER and "value" not in words:
        is_guess = True
        description = f"interactions without values: {description}"
    return ColumnRoles(table, chosen, words, description, description if is_guess else None)


def _encode_ids(lazy: polars.LazyFrame) -> polars.LazyFrame:
    """Turn the texts of the first two columns, the rows and the columns, into categories."""
    texts = (polars.String, polars.Categorical, polars.Enum)
    names = [name for name, kind in list(lazy.collect_schema().items())[:2] if kind in texts]
    return lazy.with_columns(
        polars.col(name).cast(polars.String).cast(polars.Categorical(polars.Categories.random()))
        for name in names
    )


def _convert_numbers(
    frame: polars.DataFrame, roles: ColumnRoles, decimal: str
) -> tuple[polars.DataFrame, list[str]]:
    """Turn texts of values, counts, weights and times into numbers; the first that is none is an
    error. Return the words for missing values, too."""
    missing_words: list[str] = []
    for role, name in roles.names.items():
        texts = frame[name]
        if role == "time":
            frame = frame.with_columns(parse_time_texts(texts))
        if role not in ("value", "count", "weight"):
            continue
        try:
            numbers = parse_numbers(texts, decimal=decimal)
        except BadEntries as error:
            place = f"{roles.table.path}, {roles.table.locate(error.position)}, column {name!r}"
            if role != "value" or not roles.chosen.is_guess or error.hint is not None:
                raise error.locate(place) from error
            message = f"{place}: {error.message} ({roles.description})"
            raise BadEntries(message, hint=VALUE_HINT) from error
        frame = frame.with_columns(numbers)
        if role != "weight":
            words = texts.filter(texts.is_not_null() & numbers.is_null())
            missing_words = sorted(words.unique().to_list())
    return frame, missing_words
