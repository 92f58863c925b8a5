"""The routes: each reads a request, asks the service, and returns a response body."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeVar, get_args

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.convertors import PathConvertor, register_url_convertor

from deepmf.errors import UserError
from deepmf.matrix.axis_entries import OTHER_AXIS
from deepmf.serve import bulk, queries, schemas as s
from deepmf.serve.auth import ApiKey, check_role, may_see_rows, require_role
from deepmf.serve.guard import read_body
from deepmf.serve.omissions import ColumnState
from deepmf.serve.schemas import STATUS_MEANINGS, ApiError
from deepmf.serve.service import Service
from deepmf.serve.writer import DismissalWrite, EntryWrite, FeatureWrite, StateWrite, WriteReceipt

Tagged = TypeVar("Tagged", bound=s.TaggedAnswer)

logger = logging.getLogger("deepmf.serve")

router = APIRouter(
    responses={
        status: {"model": s.ErrorResponse, "description": text}
        for status, text in STATUS_MEANINGS.items()
    }
)


class IdConvertor(PathConvertor):
    """An id in a path: any characters, including slashes and line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("id", IdConvertor())


# async: FastAPI would run it in another thread otherwise
async def get_service(request: Request) -> Service:
    """Return the service that the application was created with."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(get_service)]
Reader = Annotated[ApiKey, Depends(require_role("read"))]
Writer = Annotated[ApiKey, Depends(require_role("write"))]
Admin = Annotated[ApiKey, Depends(require_role("admin"))]

PathId = Annotated[str, Path(max_length=s.LONGEST_ID)]
Search = Annotated[
    str, Query(max_length=200, description="The start of the ids, or any part of them.")
]
Offset = Annotated[int, Query(ge=0, le=100_000_000, description="Number of results to skip.")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="Largest number of results.")]
IncludeHidden = Annotated[
    bool, Query(description="Also list columns that cannot be recommended now.")
]
IfMatch = Annotated[
    str,
    Header(
        max_length=1_000, pattern=r"[^\s,]", description="Write only if the entries have this ETag."
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        description="The same key with the same request writes once within a day.",
    ),
]


class Writing:
    """What a write needs beside its body: the API key, ETags of If-Match, and an Idempotency-Key of
    that API key."""

    def __init__(
        self,
        service: TheService,
        response: Response,
        api_key: Writer,
        if_match: IfMatch = "",
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        self.service, self.response, self.api_key = service, response, api_key
        self.if_match = frozenset(filter(None, map(str.strip, if_match.split(","))))
        self.key = f"{api_key.name}\n{idempotency_key}" if idempotency_key else ""

    async def run(
        self, write: EntryWrite | FeatureWrite | StateWrite | DismissalWrite
    ) -> s.WriteResponse:
        """Perform a write; return its receipt as a response."""
        receipt = await self.service.writer.run(
            replace(write, if_match=self.if_match, key=self.key)
        )
        self.response.headers["etag"] = receipt.etag
        shown = {
            name: getattr(receipt, name)
            for name in ("id", "n_entries", "n_changed", "n_forgotten", "etag")
        }
        return s.WriteResponse(axis=write.axis, **shown, version=self.acknowledge(receipt))

    def acknowledge(self, receipt: WriteReceipt) -> s.Version:
        """Say in a header that a write was performed before; return the versions after it."""
        if receipt.repeated:
            self.response.headers["idempotency-replayed"] = "true"
        return s.Version(model=receipt.model_version, data=receipt.data_version)


TheWriting = Annotated[Writing, Depends()]


def _tag(response: Response, result: Tagged) -> Tagged:
    response.headers["etag"] = result.etag
    return result


# Predictions


@router.post("/v1/predict", tags=["read"])
async def predict(request: s.PredictRequest, service: TheService, _: Reader) -> s.PredictResponse:
    """Predict pairs of rows and columns, or columns for a history that is not stored."""
    return await service.ask(partial(queries.predict, request), request)


@router.post("/v1/recommend", tags=["read"])
async def recommend(
    request: s.RecommendRequest, service: TheService, _: Reader
) -> s.RecommendResponse:
    """Recommend columns to a row, or to a history that is not stored; observed columns are left
    out."""
    return await service.ask(
        partial(queries.recommend, request), request, is_slow=request.reasons > 0
    )


@router.post("/v1/explain", tags=["read"])
async def explain(request: s.ExplainRequest, service: TheService, _: Reader) -> s.ExplainResponse:
    """Explain a prediction by the entries and features of the row that raise or lower it."""
    return await service.ask(partial(queries.explain, request), request, is_slow=True)


@router.post("/v1/similar", tags=["read"])
async def find_similar(
    request: s.SimilarRequest, service: TheService, api_key: Reader
) -> s.SimilarResponse:
    """Find the columns most similar to a column, or the rows most similar to a row (role rows)."""
    if request.row is not None:
        check_role(api_key, "rows")
    return await service.ask(partial(queries.find_similar, request), is_slow=True)


@router.get("/v1/columns", tags=["read"])
async def search_columns(
    service: TheService,
    _: Reader,
    search: Search = "",
    offset: Offset = 0,
    limit: Limit = 20,
    include_hidden: IncludeHidden = False,
) -> s.ColumnsResponse:
    """Search columns by their ids."""
    page: dict[str, Any] = {"offset": offset, "limit": limit, "include_hidden": include_hidden}
    return await service.ask(
        lambda snapshot, _: queries.search_columns(
            snapshot, service.get_index(snapshot), search, **page
        ),
        is_slow=True,
    )


# Entries and features


def _add_routes_of(axis: s.Axis) -> None:
    """Add the routes of the entries and features of a row, or of a column."""
    path = f"/v1/{axis}s/{{{axis}:id}}"
    examples = {"row": s.EXAMPLE_ROW, "column": s.EXAMPLE_COLUMNS[0]}
    path_id: Any = Path(alias=axis, max_length=s.LONGEST_ID)
    read_id: Any = Path(
        alias=axis, max_length=s.LONGEST_ID, openapi_examples={"known": {"value": examples[axis]}}
    )
    other = OTHER_AXIS[axis]
    body = Body(examples=[{"entries": [{other: examples[other], "value": s.EXAMPLE_VALUE}]}])
    # The other requests about a column show or affect rows that they do not name.
    sees_rows = [Depends(require_role("rows"))] if axis == "column" else []

    @router.get(
        f"{path}/entries",
        tags=["entries"],
        dependencies=sees_rows,
        response_model_exclude_unset=True,
    )
    async def get_entries(
        service: TheService,
        response: Response,
        _: Reader,
        label: str = read_id,
        offset: Offset = 0,
        limit: Limit = 1_000,
    ) -> s.EntriesResponse:
        """Return the entries of a row, or of a column (role rows), which names no visitors of the
        page."""
        query = partial(queries.list_entries, axis, label, offset=offset, limit=limit)
        is_slow = axis == "column"  # they may be very many
        return _tag(response, await service.ask(query, is_slow=is_slow))

    @router.put(f"{path}/entries", tags=["entries"], dependencies=sees_rows)
    async def put_entries(
        writing: TheWriting, label: str = path_id, request: s.EntriesRequest = body
    ) -> s.WriteResponse:
        """Replace all entries of a row, or of a column (role rows), known or new."""
        return await writing.run(EntryWrite(axis, label, "put", tuple(request.entries)))

    @router.patch(f"{path}/entries", tags=["entries"])
    async def patch_entries(
        writing: TheWriting, label: str = path_id, request: s.EntriesRequest = body
    ) -> s.WriteResponse:
        """Write or forget (null) some entries of a row or a column; the others stay."""
        return await writing.run(EntryWrite(axis, label, "patch", tuple(request.entries)))

    @router.delete(f"{path}/entries", tags=["entries"], dependencies=sees_rows)
    async def delete_entries(writing: TheWriting, label: str = path_id) -> s.WriteResponse:
        """Forget all entries and features of a row, or of a column (role rows).

        If it came after training, it is no longer known.
        """
        return await writing.run(EntryWrite(axis, label, "delete"))

    @router.get(f"{path}/features", tags=["features"])
    async def get_features(
        service: TheService, response: Response, _: Reader, label: str = read_id
    ) -> s.FeaturesResponse:
        """Return the features of a row or a column as the model encodes them."""
        return _tag(response, await service.ask(partial(queries.list_features, axis, label)))

    @router.put(f"{path}/features", tags=["features"])
    async def put_features(
        request: s.PutFeaturesRequest, writing: TheWriting, label: str = path_id
    ) -> s.WriteResponse:
        """Replace all features of a row or a column, known or new."""
        return await writing.run(FeatureWrite(axis, label, request.features))

    @router.delete(f"{path}/features", tags=["features"])
    async def delete_features(writing: TheWriting, label: str = path_id) -> s.WriteResponse:
        """Forget the features of a row or a column; if it came after training and has no entries,
        it is no longer known."""
        return await writing.run(FeatureWrite(axis, label, None))


for served_axis in get_args(s.Axis):
    _add_routes_of(served_axis)


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
    request: Request,
    service: TheService,
    response: Response,
    api_key: Writer,
    idempotency_key: IdempotencyKey = None,
) -> s.BulkResponse:
    """Write or forget (null) entries of any rows and columns, one per line; lines that fail do not
    stop the others."""
    if service.bulk_slots.locked():
        raise ApiError(503, "busy", "other bulk writes are in progress; try again in a second")
    writing = Writing(service, response, api_key, idempotency_key=idempotency_key)
    limits = service.limits
    async with service.bulk_slots:
        body = await read_body(request, limits.bulk_bytes, limits.bulk_seconds)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        write = await asyncio.to_thread(
            bulk.parse_bulk, body, encoding, max_bytes=limits.bulk_bytes, key=writing.key
        )
        receipt = await service.writer.run(write, timeout=limits.bulk_seconds)
    refused = [
        s.RefusedLine(line=line, code=code, message=message)
        for code, message, lines in receipt.refused
        for line in lines
    ]
    return s.BulkResponse(
        n_lines=receipt.n_entries,
        n_changed=receipt.n_changed,
        n_forgotten=receipt.n_forgotten,
        n_refused=len(refused),
        refused=sorted(refused, key=lambda one: one.line),
        version=writing.acknowledge(receipt),
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


# States of columns and columns that rows dismissed


@router.get("/v1/columns/{column:id}/state", tags=["states"])
async def get_column_state(
    column: PathId, service: TheService, response: Response, _: Reader
) -> s.StateResponse:
    """Return whether a column can be recommended, and from and until when."""
    return _tag(response, await service.ask(partial(queries.get_state, column)))


@router.put("/v1/columns/{column:id}/state", tags=["states"])
async def put_column_state(
    column: PathId, request: s.PutStateRequest, writing: TheWriting
) -> s.WriteResponse:
    """Hide a column from recommendations, or show it from and until a time; its entries and
    predictions stay."""
    state = ColumnState(request.visible, request.from_, request.until)
    return await writing.run(StateWrite(column, state))


@router.delete("/v1/columns/{column:id}/state", tags=["states"])
async def delete_column_state(column: PathId, writing: TheWriting) -> s.WriteResponse:
    """Show a column again, at all times."""
    return await writing.run(StateWrite(column, None))


@router.get("/v1/rows/{row:id}/dismissed", tags=["states"])
async def get_dismissed(
    row: PathId, service: TheService, response: Response, _: Reader
) -> s.DismissedResponse:
    """Return the columns that are never recommended to a row."""
    return _tag(response, await service.ask(partial(queries.list_dismissed, row)))


@router.patch("/v1/rows/{row:id}/dismissed", tags=["states"])
async def patch_dismissed(
    row: PathId, request: s.PatchDismissedRequest, writing: TheWriting
) -> s.WriteResponse:
    """Stop recommending some columns to a row, or recommend them again."""
    return await writing.run(DismissalWrite(row, tuple(request.add), tuple(request.remove)))


# The model


@router.get("/v1/model", tags=["read"])
async def get_model(service: TheService, _: Reader) -> s.ModelResponse:
    """Describe the model behind the service."""
    return await service.ask(lambda snapshot, _: snapshot.describe())


@router.post("/v1/model", tags=["operate"])
async def reload_model(service: TheService, _: Admin) -> s.ModelResponse:
    """Load the model's file again; the old model answers until the new one is ready, or if the file
    is refused."""
    try:
        snapshot = await asyncio.to_thread(service.reload)
    except ApiError:
        raise
    except (UserError, OSError) as error:
        reason = (
            str(error) if isinstance(error, UserError) else error.strerror or type(error).__name__
        )
        logger.error(
            "cannot load the model file",
            extra={"fields": {"error": type(error).__name__, "reason": reason}},
        )
        # the client must not see its path
        reason = reason.replace(str(service.source), "the model file")
        raise ApiError(409, "bad_model", f"the old model still answers: {reason}") from error
    logger.info(
        "loaded the model file", extra={"fields": {"model_version": snapshot.model_version}}
    )
    return snapshot.describe()


# Operation


@router.get("/healthz", tags=["operate"])
async def get_health() -> s.HealthResponse:
    """Report that the process runs."""
    return s.HealthResponse(status="ok")


@router.get("/readyz", tags=["operate"])
async def get_readiness(
    service: TheService, sees_rows: Annotated[bool, Depends(may_see_rows)]
) -> s.HealthResponse:
    """Report that the model and the database answer; name stored entries that the model cannot
    use."""
    snapshot = await asyncio.to_thread(service.follower.wait)
    if snapshot is None:
        raise ApiError(503, "no_database", "the database does not answer")
    unused = queries.list_unused(snapshot) if sees_rows else []
    return s.HealthResponse(status="ready", n_unused=len(snapshot.unused), unused=unused)


@router.get(
    "/metrics",
    tags=["operate"],
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
async def get_metrics(service: TheService, _: Reader) -> Response:
    """Return counters and timings for Prometheus."""
    return Response(
        await asyncio.to_thread(service.metrics.to_text), media_type="text/plain; version=0.0.4"
    )


@router.get("/v1/operator", tags=["operate"])
async def get_statistics(service: TheService, _: Reader) -> s.OperatorResponse:
    """Return numbers of requests and learned entries."""
    totals = await asyncio.to_thread(service.metrics.read_totals)
    seconds_up = time.monotonic() - service.start_time
    version = await service.ask(lambda snapshot, _: snapshot.version)
    return s.OperatorResponse(seconds_up=seconds_up, **totals, version=version)
