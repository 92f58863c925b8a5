"""Routes of entries: those of a row, and those of a column, read, put, changed and forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Header, Path, Response

from deepmf.serve.access import needs
from deepmf.serve.bodies import LONGEST_ID, VersionBody
from deepmf.serve.entry_bodies import (
    ColumnChanges,
    ColumnEntries,
    ColumnEntriesAnswer,
    ColumnValue,
    ListedValue,
    RowChanges,
    RowEntries,
    RowEntriesAnswer,
    WriteAnswer,
)
from deepmf.serve.entry_changes import entries_of, etag_of
from deepmf.serve.keys import ApiKey
from deepmf.serve.routing import REFUSALS, Limit, Offset, TheService
from deepmf.serve.served_features import AxisName
from deepmf.serve.service import Service
from deepmf.serve.snapshot import Snapshot
from deepmf.serve.wire_ids import Id, is_visitors, known_label
from deepmf.serve.writer import EntryWrite

router = APIRouter(prefix="/v1", tags=["entries"], responses=REFUSALS)

PathId = Annotated[str, Path(max_length=LONGEST_ID)]
Reader = Annotated[ApiKey, Depends(needs("read"))]
Writer = Annotated[ApiKey, Depends(needs("write"))]
RowsReader = Annotated[ApiKey, Depends(needs("rows"))]
IfMatch = Annotated[
    str | None, Header(max_length=1_000, description="Write only where the entries have this tag (ETag).")
]
Idempotency = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="The same key with the same request within a day writes once."),
]


class Conditions:
    """What a write came with: who sent it, and under which conditions it is done."""

    def __init__(self, key: Writer, if_match: IfMatch = None, idempotency_key: Idempotency = None) -> None:
        self.tags = None if if_match is None else frozenset(tag.strip() for tag in if_match.split(","))
        self.key = None if idempotency_key is None else f"{key.name}\n{idempotency_key}"


class RowsConditions(Conditions):
    """The same of a write that concerns rows which it does not name."""

    def __init__(self, key: RowsReader, if_match: IfMatch = None, idempotency_key: Idempotency = None) -> None:
        super().__init__(key, if_match, idempotency_key)


GivenConditions = Annotated[Conditions, Depends(Conditions)]
GivenRowsConditions = Annotated[RowsConditions, Depends(RowsConditions)]


@router.get("/rows/{row:id}/entries")
async def row_entries(
    row: PathId,
    service: TheService,
    response: Response,
    _: Reader,
    offset: Offset = 0,
    limit: Limit = 1_000,
) -> RowEntriesAnswer:
    """Return the entries of a row, in the order of their columns."""
    snapshot, label, trained, entries = await _found(service, "row", row, response)
    page = [ColumnValue(column=at, value=value) for at, value in entries[offset : offset + limit]]
    after = offset + limit if offset + limit < len(entries) else None
    return RowEntriesAnswer(
        row=label, trained=trained, entries=page, n_entries=len(entries), next_offset=after, version=snapshot.version
    )


@router.put("/rows/{row:id}/entries")
async def put_row(
    row: PathId, body: RowEntries, service: TheService, response: Response, given: GivenConditions
) -> WriteAnswer:
    """Let these be all entries of a row, known or new."""
    write = _write("row", row, "put", ((one.column, one.value) for one in body.entries), given)
    return await _written(service, write, response)


@router.patch("/rows/{row:id}/entries")
async def patch_row(
    row: PathId, body: RowChanges, service: TheService, response: Response, given: GivenConditions
) -> WriteAnswer:
    """Put some entries of a row, or forget them (null); the others stay."""
    write = _write("row", row, "patch", ((one.column, one.value) for one in body.entries), given)
    return await _written(service, write, response)


@router.delete("/rows/{row:id}/entries")
async def forget_row(row: PathId, service: TheService, response: Response, given: GivenConditions) -> WriteAnswer:
    """Forget all entries of a row, and its features; one that came after training is no longer known."""
    return await _written(service, _write("row", row, "delete", (), given), response)


@router.get("/columns/{column:id}/entries")
async def column_entries(
    column: PathId,
    service: TheService,
    response: Response,
    _: RowsReader,
    offset: Offset = 0,
    limit: Limit = 1_000,
) -> ColumnEntriesAnswer:
    """Return the entries of a column, in the order of their rows; rows of visitors of the page are not named."""
    snapshot, label, trained, entries = await _found(service, "column", column, response)
    page = [
        ListedValue(row=None if is_visitors(at) else at, value=value) for at, value in entries[offset : offset + limit]
    ]
    after = offset + limit if offset + limit < len(entries) else None
    return ColumnEntriesAnswer(
        column=label, trained=trained, entries=page, n_entries=len(entries), next_offset=after, version=snapshot.version
    )


@router.put("/columns/{column:id}/entries")
async def put_column(
    column: PathId, body: ColumnEntries, service: TheService, response: Response, given: GivenRowsConditions
) -> WriteAnswer:
    """Let these be all entries of a column, known or new."""
    write = _write("column", column, "put", ((one.row, one.value) for one in body.entries), given)
    return await _written(service, write, response)


@router.patch("/columns/{column:id}/entries")
async def patch_column(
    column: PathId, body: ColumnChanges, service: TheService, response: Response, given: GivenConditions
) -> WriteAnswer:
    """Put some entries of a column, or forget them (null); the others stay."""
    write = _write("column", column, "patch", ((one.row, one.value) for one in body.entries), given)
    return await _written(service, write, response)


@router.delete("/columns/{column:id}/entries")
async def forget_column(
    column: PathId, service: TheService, response: Response, given: GivenRowsConditions
) -> WriteAnswer:
    """Forget all entries of a column, and its features; one that came after training is no longer known."""
    return await _written(service, _write("column", column, "delete", (), given), response)


class Found(NamedTuple):
    """The entries of a row, or of a column, in the order of their columns, or rows."""

    snapshot: Snapshot
    label: Id
    trained: bool
    entries: list[tuple[Id, float]]


async def _found(service: Service, axis: AxisName, given: str, response: Response) -> Found:
    def find(snapshot: Snapshot, _: object) -> tuple[Found, str]:
        store = snapshot.model.entries_
        labels, trained = (store.rows, store.train.rows) if axis == "row" else (store.columns, store.train.columns)
        label = known_label(given, labels)
        entries = entries_of(snapshot.model, axis, label)
        return Found(snapshot, label, label in trained, sorted(entries.items())), etag_of(entries)

    # Columns may have very many entries: they do not hold up what takes milliseconds.
    found, response.headers["etag"] = await service.answer(find, slow=axis == "column")
    return found


def _write(
    axis: AxisName,
    label: str,
    method: str,
    entries: Iterable[tuple[Id, float | None]],
    given: Conditions,
) -> EntryWrite:
    return EntryWrite(axis, label, method, tuple(entries), given.tags, given.key)  # type: ignore[arg-type]


async def _written(service: Service, write: EntryWrite, response: Response) -> WriteAnswer:
    receipt = await service.write(write)
    response.headers["etag"] = receipt.etag
    if receipt.repeated:
        response.headers["idempotency-replayed"] = "true"
    return WriteAnswer(
        axis=write.axis,
        id=receipt.id,
        n_entries=receipt.n_entries,
        n_changed=receipt.n_changed,
        n_forgotten=receipt.n_forgotten,
        version=VersionBody(model=receipt.model_version, data=receipt.data_version),
    )
