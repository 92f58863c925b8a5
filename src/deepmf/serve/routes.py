"""The routes: each reads a request, asks the service, and returns a response body."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from math import sqrt
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.convertors import Convertor, register_url_convertor

from deepmf.errors import UserError
from deepmf.matrix.matrix import AREAS
from deepmf.serve import bulk, queries
from deepmf.serve.auth import ApiKey, check_role, require_role
from deepmf.serve.database import Transaction
from deepmf.serve.errors import STATUS_MEANINGS, ApiError
from deepmf.serve.guard import read_body
from deepmf.serve.ids import is_visitor
from deepmf.serve.kinds import read_entry
from deepmf.serve.omissions import ColumnState
from deepmf.serve.schemas import (
    LONGEST_ID,
    BulkResponse,
    ColumnEntriesResponse,
    ColumnsResponse,
    DismissedResponse,
    ErrorResponse,
    ExplainRequest,
    ExplainResponse,
    FeaturesResponse,
    HealthResponse,
    ListedColumnValue,
    ListedRowValue,
    LiveError,
    MapResponse,
    ModelResponse,
    OperatorResponse,
    PatchColumnEntriesRequest,
    PatchDismissedRequest,
    PatchRowEntriesRequest,
    PlaceRequest,
    PlaceResponse,
    PredictRequest,
    PredictResponse,
    PutColumnEntriesRequest,
    PutDismissedRequest,
    PutFeaturesRequest,
    PutRowEntriesRequest,
    PutStateRequest,
    RecommendRequest,
    RecommendResponse,
    RefusedLine,
    RowEntriesResponse,
    SimilarRequest,
    SimilarResponse,
    StateResponse,
    Version,
    WriteDismissedResponse,
    WriteEntriesResponse,
    WriteFeaturesResponse,
    WriteStateResponse,
)
from deepmf.serve.service import Query as ServiceQuery, Service
from deepmf.serve.writer import DismissalWrite, EntryWrite, FeatureWrite, StateWrite, WriteReceipt

logger = logging.getLogger("deepmf.serve")

router = APIRouter(
    responses={status: {"model": ErrorResponse, "description": text} for status, text in STATUS_MEANINGS.items()}
)


class IdConvertor(Convertor[str]):
    """An id in a path: any characters, including slashes and line breaks."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """Return the id."""
        return value

    def to_string(self, value: str) -> str:
        """Return the id."""
        return value


register_url_convertor("id", IdConvertor())


async def get_service(request: Request) -> Service:  # async: FastAPI would run it in another thread otherwise
    """Return the service that the application was created with."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(get_service)]
Reader = Annotated[ApiKey, Depends(require_role("read"))]
Writer = Annotated[ApiKey, Depends(require_role("write"))]
RowsReader = Annotated[ApiKey, Depends(require_role("rows"))]
Admin = Annotated[ApiKey, Depends(require_role("admin"))]

PathId = Annotated[str, Path(max_length=LONGEST_ID)]
Search = Annotated[str, Query(max_length=200, description="The start of the ids, or any part of them.")]
Offset = Annotated[int, Query(ge=0, le=100_000_000, description="Number of results to skip.")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="Largest number of results.")]
Force = Annotated[bool, Query(description="Accept a model that knows hardly any row or column of the database.")]
IncludeHidden = Annotated[bool, Query(description="Also list columns that cannot be recommended now.")]
IfMatch = Annotated[str | None, Header(max_length=1_000, description="Write only if the entries have this ETag.")]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="The same key with the same request writes once within a day."),
]


class WriteConditions(NamedTuple):
    """The headers of a write: the ETags of If-Match, and Idempotency-Key, which belongs to an API key."""

    etags: frozenset[str] | None
    key: str | None


async def read_conditions(
    api_key: Writer, if_match: IfMatch = None, idempotency_key: IdempotencyKey = None
) -> WriteConditions:
    """Return the headers of a write."""
    return WriteConditions(
        None if if_match is None else frozenset(etag.strip() for etag in if_match.split(",")),
        None if idempotency_key is None else f"{api_key.name}\n{idempotency_key}",
    )


async def read_rows_conditions(
    api_key: RowsReader, if_match: IfMatch = None, idempotency_key: IdempotencyKey = None
) -> WriteConditions:
    """Return the headers of a write that affects rows which it does not name; it needs the role rows."""
    return await read_conditions(api_key, if_match, idempotency_key)


Conditions = Annotated[WriteConditions, Depends(read_conditions)]
RowsConditions = Annotated[WriteConditions, Depends(read_rows_conditions)]


# Predictions


@router.post("/v1/predict", tags=["read"])
async def predict(request: PredictRequest, service: TheService, _: Reader) -> PredictResponse:
    """Predict pairs of rows and columns, or columns for a history that is not stored."""
    query = ServiceQuery(partial(queries.predict, request), request.history, request.features)
    result: PredictResponse = await service.quick.run(query)
    return result


@router.post("/v1/recommend", tags=["read"])
async def recommend(request: RecommendRequest, service: TheService, _: Reader) -> RecommendResponse:
    """Recommend columns to a row, or to a history that is not stored; observed columns are left out."""
    batcher = service.slow if request.reasons else service.quick
    query = ServiceQuery(partial(queries.recommend, request), request.history or None, request.features)
    result: RecommendResponse = await batcher.run(query)
    return result


@router.post("/v1/explain", tags=["read"])
async def explain(request: ExplainRequest, service: TheService, _: Reader) -> ExplainResponse:
    """Explain a prediction by the entries and features of the row that raise or lower it."""
    query = ServiceQuery(partial(queries.explain, request), request.history, request.features)
    result: ExplainResponse = await service.slow.run(query)
    return result


@router.post("/v1/similar", tags=["read"])
async def find_similar(request: SimilarRequest, service: TheService, api_key: Reader) -> SimilarResponse:
    """Find the columns most similar to a column, or the rows most similar to a row (role rows)."""
    if request.row is not None:
        check_role(api_key, "rows")
    result: SimilarResponse = await service.slow.run(ServiceQuery(partial(queries.find_similar, request)))
    return result


@router.get("/v1/columns", tags=["read"])
async def search_columns(
    service: TheService,
    _: Reader,
    search: Search = "",
    offset: Offset = 0,
    limit: Limit = 20,
    include_hidden: IncludeHidden = False,
) -> ColumnsResponse:
    """Search columns by their ids."""
    query = ServiceQuery(
        lambda snapshot, _: queries.search_columns(
            snapshot,
            service.get_index(snapshot),
            search,
            offset=offset,
            limit=limit,
            include_hidden=include_hidden,
        )
    )
    result: ColumnsResponse = await service.slow.run(query)
    return result


@router.get("/v1/map", tags=["read"])
async def get_map(service: TheService, _: Reader) -> MapResponse:
    """Return rows and columns in the two dimensions in which their latents differ most."""
    query = ServiceQuery(lambda snapshot, _: queries.draw_map(snapshot, service.get_projection(snapshot)))
    result: MapResponse = await service.slow.run(query)
    return result


@router.post("/v1/map", tags=["read"])
async def place_row(request: PlaceRequest, service: TheService, _: Reader) -> PlaceResponse:
    """Return the position of a row, or of a history that is not stored, on the map."""
    query = ServiceQuery(
        lambda snapshot, row: queries.place_row(request, snapshot, row, service.get_projection(snapshot)),
        request.history,
        request.features,
    )
    result: PlaceResponse = await service.quick.run(query)
    return result


# Entries


@router.get("/v1/rows/{row:id}/entries", tags=["entries"])
async def get_row_entries(
    row: PathId, service: TheService, response: Response, _: Reader, offset: Offset = 0, limit: Limit = 1_000
) -> RowEntriesResponse:
    """Return the entries of a row, ordered by column."""
    found: queries.EntryList = await service.quick.run(ServiceQuery(partial(queries.list_entries, "row", row)))
    response.headers["etag"] = found.etag
    names = found.snapshot.model.column_names_
    page = [
        ListedColumnValue(column=label, column_name=names.get(label), **queries.describe_entry(entry))
        for label, entry in found.entries[offset : offset + limit]
    ]
    return RowEntriesResponse(row=found.label, entries=page, **_describe_page(found, offset + limit))


@router.put("/v1/rows/{row:id}/entries", tags=["entries"])
async def put_row_entries(
    row: PathId, request: PutRowEntriesRequest, service: TheService, response: Response, conditions: Conditions
) -> WriteEntriesResponse:
    """Replace all entries of a row, known or new."""
    entries = tuple((entry.column, *read_entry(entry, service.kinds)) for entry in request.entries)
    return await _write_entries(service, response, EntryWrite("row", row, "put", entries, *conditions))


@router.patch("/v1/rows/{row:id}/entries", tags=["entries"])
async def patch_row_entries(
    row: PathId, request: PatchRowEntriesRequest, service: TheService, response: Response, conditions: Conditions
) -> WriteEntriesResponse:
    """Write or forget (null) some entries of a row; the others stay."""
    entries = tuple((entry.column, *read_entry(entry, service.kinds)) for entry in request.entries)
    return await _write_entries(service, response, EntryWrite("row", row, "patch", entries, *conditions))


@router.delete("/v1/rows/{row:id}/entries", tags=["entries"])
async def delete_row_entries(
    row: PathId, service: TheService, response: Response, conditions: Conditions
) -> WriteEntriesResponse:
    """Forget all entries and features of a row; a row that came after training is no longer known."""
    return await _write_entries(service, response, EntryWrite("row", row, "delete", (), *conditions))


@router.get("/v1/columns/{column:id}/entries", tags=["entries"])
async def get_column_entries(
    column: PathId, service: TheService, response: Response, _: RowsReader, offset: Offset = 0, limit: Limit = 1_000
) -> ColumnEntriesResponse:
    """Return the entries of a column, ordered by row; rows of visitors of the page are not named."""
    # A column may have very many entries: it must not delay queries that take milliseconds.
    found: queries.EntryList = await service.slow.run(ServiceQuery(partial(queries.list_entries, "column", column)))
    response.headers["etag"] = found.etag
    page = [
        ListedRowValue(row=None if is_visitor(label) else label, **queries.describe_entry(entry))
        for label, entry in found.entries[offset : offset + limit]
    ]
    return ColumnEntriesResponse(column=found.label, entries=page, **_describe_page(found, offset + limit))


@router.put("/v1/columns/{column:id}/entries", tags=["entries"])
async def put_column_entries(
    column: PathId,
    request: PutColumnEntriesRequest,
    service: TheService,
    response: Response,
    conditions: RowsConditions,
) -> WriteEntriesResponse:
    """Replace all entries of a column, known or new."""
    entries = tuple((entry.row, *read_entry(entry, service.kinds)) for entry in request.entries)
    return await _write_entries(service, response, EntryWrite("column", column, "put", entries, *conditions))


@router.patch("/v1/columns/{column:id}/entries", tags=["entries"])
async def patch_column_entries(
    column: PathId, request: PatchColumnEntriesRequest, service: TheService, response: Response, conditions: Conditions
) -> WriteEntriesResponse:
    """Write or forget (null) some entries of a column; the others stay."""
    entries = tuple((entry.row, *read_entry(entry, service.kinds)) for entry in request.entries)
    return await _write_entries(service, response, EntryWrite("column", column, "patch", entries, *conditions))


@router.delete("/v1/columns/{column:id}/entries", tags=["entries"])
async def delete_column_entries(
    column: PathId, service: TheService, response: Response, conditions: RowsConditions
) -> WriteEntriesResponse:
    """Forget all entries and features of a column; a column that came after training is no longer known."""
    return await _write_entries(service, response, EntryWrite("column", column, "delete", (), *conditions))


@router.post(
    "/v1/entries/bulk",
    tags=["entries"],
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "A JSON object per line, also gzipped (Content-Encoding: gzip).",
            "content": {
                bulk.LINES_TYPE: {
                    "schema": {"type": "string"},
                    "example": '{"row": "ann", "column": "Alien", "value": 5}\n',
                }
            },
        }
    },
)
async def write_entries(
    request: Request, service: TheService, response: Response, api_key: Writer, idempotency_key: IdempotencyKey = None
) -> BulkResponse:
    """Write or forget (null) entries of any rows and columns, one per line; lines that fail do not stop the others."""
    if service.bulk_slots.locked():
        raise ApiError(503, "busy", "other bulk writes are in progress; try again in a second", retry_after=1)
    conditions = await read_conditions(api_key, None, idempotency_key)
    limits = service.limits
    async with service.bulk_slots:
        body = await read_body(request.receive, limits.bulk_bytes, limits.bulk_seconds)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        write = await asyncio.to_thread(
            bulk.parse_bulk, body, encoding, max_bytes=limits.bulk_bytes, key=conditions.key, kinds=service.kinds
        )
        receipt = await service.writer.run(write, timeout=limits.bulk_seconds)
    refused = [
        RefusedLine(line=line, code=code, message=message) for code, message, lines in receipt.refused for line in lines
    ]
    if receipt.repeated:
        response.headers["idempotency-replayed"] = "true"
    return BulkResponse(
        n_lines=receipt.n_entries,
        n_changed=receipt.n_changed,
        n_forgotten=receipt.n_forgotten,
        n_refused=len(refused),
        refused=sorted(refused, key=lambda one: one.line),
        version=Version(model=receipt.model_version, data=receipt.data_version),
    )


@router.get(
    "/v1/export",
    tags=["entries"],
    response_class=StreamingResponse,
    responses={200: {"content": {bulk.LINES_TYPE: {"schema": {"type": "string"}}}}},
)
async def export_entries(request: Request, service: TheService, _: Admin) -> StreamingResponse:
    """Stream all entries as JSON lines, ordered by row, without those of the page's visitors."""
    snapshot = await asyncio.to_thread(service.export)
    lines, headers = bulk.export_lines(snapshot.model), {"vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        lines, headers["content-encoding"] = bulk.compress(lines), "gzip"
    return StreamingResponse(lines, media_type=bulk.LINES_TYPE, headers=headers)


def _describe_page(found: queries.EntryList, end: int) -> dict[str, Any]:
    n_entries = len(found.entries)
    return {
        "trained": found.trained,
        "n_entries": n_entries,
        "next_offset": end if end < n_entries else None,
        "etag": found.etag,
        "version": found.snapshot.version,
    }


async def _write_entries(service: Service, response: Response, write: EntryWrite) -> WriteEntriesResponse:
    receipt: WriteReceipt = await service.writer.run(write)
    return WriteEntriesResponse(
        axis=write.axis,
        id=receipt.id,
        n_entries=receipt.n_entries,
        n_changed=receipt.n_changed,
        n_forgotten=receipt.n_forgotten,
        etag=receipt.etag,
        version=_acknowledge(receipt, response),
    )


def _acknowledge(receipt: WriteReceipt, response: Response) -> Version:
    """Set the headers that acknowledge a write; return the versions after it."""
    response.headers["etag"] = receipt.etag
    if receipt.repeated:
        response.headers["idempotency-replayed"] = "true"
    return Version(model=receipt.model_version, data=receipt.data_version)


# Features


@router.get("/v1/rows/{row:id}/features", tags=["features"])
async def get_row_features(row: PathId, service: TheService, response: Response, _: Reader) -> FeaturesResponse:
    """Return the features of a row as the model encodes them."""
    result: FeaturesResponse = await service.quick.run(ServiceQuery(partial(queries.list_features, "row", row)))
    response.headers["etag"] = result.etag
    return result


@router.put("/v1/rows/{row:id}/features", tags=["features"])
async def put_row_features(
    row: PathId, request: PutFeaturesRequest, service: TheService, response: Response, conditions: Conditions
) -> WriteFeaturesResponse:
    """Replace all features of a row, known or new."""
    return await _write_features(service, response, FeatureWrite("row", row, request.features, *conditions))


@router.delete("/v1/rows/{row:id}/features", tags=["features"])
async def delete_row_features(
    row: PathId, service: TheService, response: Response, conditions: Conditions
) -> WriteFeaturesResponse:
    """Forget the features of a row; a row that came after training and has no entries is no longer known."""
    return await _write_features(service, response, FeatureWrite("row", row, None, *conditions))


@router.get("/v1/columns/{column:id}/features", tags=["features"])
async def get_column_features(column: PathId, service: TheService, response: Response, _: Reader) -> FeaturesResponse:
    """Return the features of a column as the model encodes them."""
    result: FeaturesResponse = await service.quick.run(ServiceQuery(partial(queries.list_features, "column", column)))
    response.headers["etag"] = result.etag
    return result


@router.put("/v1/columns/{column:id}/features", tags=["features"])
async def put_column_features(
    column: PathId, request: PutFeaturesRequest, service: TheService, response: Response, conditions: Conditions
) -> WriteFeaturesResponse:
    """Replace all features of a column, known or new."""
    return await _write_features(service, response, FeatureWrite("column", column, request.features, *conditions))


@router.delete("/v1/columns/{column:id}/features", tags=["features"])
async def delete_column_features(
    column: PathId, service: TheService, response: Response, conditions: Conditions
) -> WriteFeaturesResponse:
    """Forget the features of a column; a column that came after training and has no entries is no longer known."""
    return await _write_features(service, response, FeatureWrite("column", column, None, *conditions))


async def _write_features(service: Service, response: Response, write: FeatureWrite) -> WriteFeaturesResponse:
    receipt: WriteReceipt = await service.writer.run(write)
    return WriteFeaturesResponse(
        axis=write.axis,
        id=receipt.id,
        n_features=receipt.n_entries,
        etag=receipt.etag,
        version=_acknowledge(receipt, response),
    )


# States of columns and columns that rows dismissed


@router.get("/v1/columns/{column:id}/state", tags=["states"])
async def get_column_state(column: PathId, service: TheService, response: Response, _: Reader) -> StateResponse:
    """Return whether a column can be recommended, and from and until when."""
    result: StateResponse = await service.quick.run(ServiceQuery(partial(queries.get_state, column)))
    response.headers["etag"] = result.etag
    return result


@router.put("/v1/columns/{column:id}/state", tags=["states"])
async def put_column_state(
    column: PathId, request: PutStateRequest, service: TheService, response: Response, conditions: Conditions
) -> WriteStateResponse:
    """Hide a column from recommendations, or show it from and until a time; its entries and predictions stay."""
    times = (None if given is None else given.timestamp() for given in (request.from_, request.until))
    write = StateWrite(column, ColumnState(request.visible, *times), conditions.etags, conditions.key)
    return _acknowledge_state(await service.writer.run(write), response)


@router.delete("/v1/columns/{column:id}/state", tags=["states"])
async def delete_column_state(
    column: PathId, service: TheService, response: Response, conditions: Conditions
) -> WriteStateResponse:
    """Show a column again, at all times."""
    write = StateWrite(column, None, conditions.etags, conditions.key)
    return _acknowledge_state(await service.writer.run(write), response)


def _acknowledge_state(receipt: WriteReceipt, response: Response) -> WriteStateResponse:
    version = _acknowledge(receipt, response)
    return WriteStateResponse(column=receipt.id, changed=receipt.n_changed > 0, etag=receipt.etag, version=version)


@router.get("/v1/rows/{row:id}/dismissed", tags=["states"])
async def get_dismissed(row: PathId, service: TheService, response: Response, _: Reader) -> DismissedResponse:
    """Return the columns that are never recommended to a row."""
    result: DismissedResponse = await service.quick.run(ServiceQuery(partial(queries.list_dismissed, row)))
    response.headers["etag"] = result.etag
    return result


@router.put("/v1/rows/{row:id}/dismissed", tags=["states"])
async def put_dismissed(
    row: PathId, request: PutDismissedRequest, service: TheService, response: Response, conditions: Conditions
) -> WriteDismissedResponse:
    """Replace the columns that are never recommended to a row."""
    write = DismissalWrite(row, tuple(request.columns), replaces=True, if_match=conditions.etags, key=conditions.key)
    return _acknowledge_dismissed(await service.writer.run(write), response)


@router.patch("/v1/rows/{row:id}/dismissed", tags=["states"])
async def patch_dismissed(
    row: PathId, request: PatchDismissedRequest, service: TheService, response: Response, conditions: Conditions
) -> WriteDismissedResponse:
    """Stop recommending some columns to a row, or recommend them again."""
    write = DismissalWrite(
        row, tuple(request.add), tuple(request.remove), if_match=conditions.etags, key=conditions.key
    )
    return _acknowledge_dismissed(await service.writer.run(write), response)


@router.delete("/v1/rows/{row:id}/dismissed", tags=["states"])
async def delete_dismissed(
    row: PathId, service: TheService, response: Response, conditions: Conditions
) -> WriteDismissedResponse:
    """Recommend all columns to a row again."""
    write = DismissalWrite(row, replaces=True, if_match=conditions.etags, key=conditions.key)
    return _acknowledge_dismissed(await service.writer.run(write), response)


def _acknowledge_dismissed(receipt: WriteReceipt, response: Response) -> WriteDismissedResponse:
    return WriteDismissedResponse(
        row=receipt.id,
        n_columns=receipt.n_entries,
        n_added=receipt.n_changed,
        n_removed=receipt.n_forgotten,
        etag=receipt.etag,
        version=_acknowledge(receipt, response),
    )


# The model


@router.get("/v1/model", tags=["read"])
async def get_model(service: TheService, _: Reader) -> ModelResponse:
    """Describe the model behind the service."""
    return service.current.describe(service.kinds)


@router.post("/v1/model", tags=["operate"])
async def reload_model(service: TheService, _: Admin, force: Force = False) -> ModelResponse:
    """Load the model's file again; the old model answers until the new one is ready, or if the file is refused."""
    try:
        snapshot = await asyncio.to_thread(service.reload, force=force)
    except ApiError:
        raise
    except (UserError, OSError) as error:
        reason = str(error) if isinstance(error, UserError) else error.strerror or type(error).__name__
        logger.error("cannot load the model file", extra={"fields": {"error": type(error).__name__, "reason": reason}})
        reason = reason.replace(str(service.source), "the model file")  # the client must not see its path
        raise ApiError(409, "bad_model", f"the old model still answers: {reason}") from error
    logger.info("loaded the model file", extra={"fields": {"model_version": snapshot.model_version}})
    return snapshot.describe(service.kinds)


# Operation


@router.get("/healthz", tags=["operate"])
async def get_health() -> HealthResponse:
    """Report that the process runs."""
    return HealthResponse(status="ok")


@router.get("/readyz", tags=["operate"])
async def get_readiness(service: TheService) -> HealthResponse:
    """Report that the model and the database answer, and that the database has all that the service knows."""
    known = service.current.data_version
    if (await service.read_database(Transaction.read_state)).data_version < known:
        raise ApiError(503, "behind", "the database was restored to an earlier state and is replayed", retry_after=1)
    return HealthResponse(status="ready")


@router.get("/metrics", tags=["operate"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def get_metrics(service: TheService, _: Reader) -> Response:
    """Return counters and timings for Prometheus."""
    return Response(await asyncio.to_thread(service.metrics.to_text), media_type="text/plain; version=0.0.4")


@router.get("/v1/operator", tags=["operate"])
async def get_statistics(service: TheService, _: Reader) -> OperatorResponse:
    """Return requests, latencies, learned entries, and errors of predictions made before entries arrived."""
    version = service.current.version
    errors = await service.read_database(lambda transaction: transaction.read_live_errors(version.model))
    routes = await asyncio.to_thread(service.metrics.list_routes)
    return OperatorResponse(
        seconds_up=time.monotonic() - service.start_time,
        n_requests=sum(route.n_requests for route in routes),
        n_failed=sum(route.n_failed for route in routes),
        n_learned=await asyncio.to_thread(service.metrics.read_n_learned),
        routes=routes,
        live_errors=[
            LiveError(
                area=area,  # type: ignore[arg-type]
                n_entries=error.n_entries,
                rmse=sqrt(error.squared / error.n_entries),
                mae=error.absolute / error.n_entries,
            )
            for area in AREAS
            if (error := errors.get(area)) is not None
        ],
        version=version,
    )
