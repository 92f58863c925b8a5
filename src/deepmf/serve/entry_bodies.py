"""The bodies of routes of entries: what may be put and changed, and what a row or column has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from deepmf.serve.bodies import MOST_ENTRIES, AnyId, RequestBody, Value, VersionBody


class ColumnValue(RequestBody):
    """An entry of a row: its column and its value."""

    column: AnyId
    value: Value


class RowValue(RequestBody):
    """An entry of a column: its row and its value."""

    row: AnyId
    value: Value


class ListedValue(BaseModel):
    """An entry of a column; the row is null where it is that of a visitor of the page."""

    row: str | int | None
    value: float


class ColumnChange(RequestBody):
    """An entry of a row to put, or by null to forget."""

    column: AnyId
    value: Value | None


class RowChange(RequestBody):
    """An entry of a column to put, or by null to forget."""

    row: AnyId
    value: Value | None


class RowEntries(RequestBody):
    """All entries of a row."""

    entries: Annotated[list[ColumnValue], Field(max_length=MOST_ENTRIES)]


class ColumnEntries(RequestBody):
    """All entries of a column."""

    entries: Annotated[list[RowValue], Field(max_length=MOST_ENTRIES)]


class RowChanges(RequestBody):
    """Some entries of a row: the others stay."""

    entries: Annotated[list[ColumnChange], Field(max_length=MOST_ENTRIES)]


class ColumnChanges(RequestBody):
    """Some entries of a column: the others stay."""

    entries: Annotated[list[RowChange], Field(max_length=MOST_ENTRIES)]


class RowEntriesAnswer(BaseModel):
    """A page of the entries of a row."""

    row: str | int
    trained: bool
    entries: list[ColumnValue]
    n_entries: int
    next_offset: int | None
    version: VersionBody


class ColumnEntriesAnswer(BaseModel):
    """A page of the entries of a column."""

    column: str | int
    trained: bool
    entries: list[ListedValue]
    n_entries: int
    next_offset: int | None
    version: VersionBody


class WriteAnswer(BaseModel):
    """What a write did: how many entries there are now, and how many were put and forgotten."""

    axis: Literal["row", "column"]
    id: str | int
    n_entries: int
    n_changed: int
    n_forgotten: int
    version: VersionBody
