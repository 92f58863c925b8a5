"""Routes that answer and store nothing: predict, recommend, explain, similar, columns, the model, the map."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from math import sqrt
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.convertors import Convertor, register_url_convertor

import deepmf.serve.queries as queries
from deepmf.errors import UserError
from deepmf.matrix.matrix import AREAS
from deepmf.serve.auth import ApiKey, check_role, needs
from deepmf.serve.changes import AxisName, entries_of, etag_of, features_of
from deepmf.serve.database import Transaction
from deepmf.serve.errors import KINDS, Refusal
from deepmf.serve.ids import Id, is_visitors, known_label
from deepmf.serve.schemas import (
    LONGEST_ID,
    BestColumns,
    ColumnChanges,
    ColumnEntries,
    ColumnEntriesAnswer,
    ColumnValue,
    ExplainedPrediction,
    ExplainRequest,
    FeatureContent,
    FeaturesAnswer,
    FeatureWriteAnswer,
    FoundColumns,
    Health,
    LatentMap,
    ListedValue,
    LiveError,
    ModelDescription,
    OperatorNumbers,
    Place,
    PlacedColumn,
    Predictions,
    PredictRequest,
    RecommendRequest,
    RefusalBody,
    RouteNumbers,
    RowChanges,
    RowEntries,
    RowEntriesAnswer,
    RowOrHistory,
    SimilarLabels,
    SimilarRequest,
    VersionBody,
    WriteAnswer,
)
from deepmf.serve.service import Service
from deepmf.serve.snapshot import Snapshot
from deepmf.serve.writer import EntryWrite, FeatureWrite

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": RefusalBody, "description": meaning} for status, meaning in KINDS.items()
}


def service_of(request: Request) -> Service:
    """Return the service that the application was given."""
    service: Service = request.app.state.service
    return service


class IdConvertor(Convertor[str]):
    """An id in a path: any characters, slashes and line breaks too."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """Return the id."""
        return value

    def to_string(self, value: str) -> str:
        """Return the id as it stands in a path."""
        return value


register_url_convertor("id", IdConvertor())


TheService = Annotated[Service, Depends(service_of)]

Offset = Annotated[int, Query(ge=0, le=100_000_000, description="How many to skip.")]

Limit = Annotated[int, Query(ge=1, le=1_000, description="How many at most.")]


entry_router = APIRouter(prefix="/v1", tags=["entries"], responses=REFUSALS)


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


@entry_router.get("/rows/{row:id}/entries")
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


@entry_router.put("/rows/{row:id}/entries")
async def put_row(
    row: PathId, body: RowEntries, service: TheService, response: Response, given: GivenConditions
) -> WriteAnswer:
    """Let these be all entries of a row, known or new."""
    write = _write("row", row, "put", ((one.column, one.value) for one in body.entries), given)
    return await _written(service, write, response)


@entry_router.patch("/rows/{row:id}/entries")
async def patch_row(
    row: PathId, body: RowChanges, service: TheService, response: Response, given: GivenConditions
) -> WriteAnswer:
    """Put some entries of a row, or forget them (null); the others stay."""
    write = _write("row", row, "patch", ((one.column, one.value) for one in body.entries), given)
    return await _written(service, write, response)


@entry_router.delete("/rows/{row:id}/entries")
async def forget_row(row: PathId, service: TheService, response: Response, given: GivenConditions) -> WriteAnswer:
    """Forget all entries of a row, and its features; one that came after training is no longer known."""
    return await _written(service, _write("row", row, "delete", (), given), response)


@entry_router.get("/columns/{column:id}/entries")
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


@entry_router.put("/columns/{column:id}/entries")
async def put_column(
    column: PathId, body: ColumnEntries, service: TheService, response: Response, given: GivenRowsConditions
) -> WriteAnswer:
    """Let these be all entries of a column, known or new."""
    write = _write("column", column, "put", ((one.row, one.value) for one in body.entries), given)
    return await _written(service, write, response)


@entry_router.patch("/columns/{column:id}/entries")
async def patch_column(
    column: PathId, body: ColumnChanges, service: TheService, response: Response, given: GivenConditions
) -> WriteAnswer:
    """Put some entries of a column, or forget them (null); the others stay."""
    write = _write("column", column, "patch", ((one.row, one.value) for one in body.entries), given)
    return await _written(service, write, response)


@entry_router.delete("/columns/{column:id}/entries")
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


feature_router = APIRouter(prefix="/v1", tags=["features"], responses=REFUSALS)


@feature_router.get("/rows/{row:id}/features")
async def row_features(row: PathId, service: TheService, response: Response, _: Reader) -> FeaturesAnswer:
    """Return the features of a row, as the model reads them."""
    return await _found_features(service, "row", row, response)


@feature_router.put("/rows/{row:id}/features")
async def put_row_features(
    row: PathId, body: FeatureContent, service: TheService, response: Response, given: GivenConditions
) -> FeatureWriteAnswer:
    """Let these be all features of a row, known or new."""
    return await _written_features(service, FeatureWrite("row", row, body.features, given.tags, given.key), response)


@feature_router.delete("/rows/{row:id}/features")
async def forget_row_features(
    row: PathId, service: TheService, response: Response, given: GivenConditions
) -> FeatureWriteAnswer:
    """Forget the features of a row; one that came after training and has no entries is no longer known."""
    return await _written_features(service, FeatureWrite("row", row, None, given.tags, given.key), response)


@feature_router.get("/columns/{column:id}/features")
async def column_features(column: PathId, service: TheService, response: Response, _: Reader) -> FeaturesAnswer:
    """Return the features of a column, as the model reads them."""
    return await _found_features(service, "column", column, response)


@feature_router.put("/columns/{column:id}/features")
async def put_column_features(
    column: PathId, body: FeatureContent, service: TheService, response: Response, given: GivenConditions
) -> FeatureWriteAnswer:
    """Let these be all features of a column, known or new."""
    return await _written_features(
        service, FeatureWrite("column", column, body.features, given.tags, given.key), response
    )


@feature_router.delete("/columns/{column:id}/features")
async def forget_column_features(
    column: PathId, service: TheService, response: Response, given: GivenConditions
) -> FeatureWriteAnswer:
    """Forget the features of a column; one that came after training and has no entries is no longer known."""
    return await _written_features(service, FeatureWrite("column", column, None, given.tags, given.key), response)


async def _found_features(service: Service, axis: AxisName, given: str, response: Response) -> FeaturesAnswer:
    def find(snapshot: Snapshot, _: object) -> FeaturesAnswer:
        store = snapshot.model.entries_
        label = known_label(given, store.rows if axis == "row" else store.columns)
        features = features_of(snapshot.model, axis, label)
        return FeaturesAnswer(axis=axis, id=label, features=features, version=snapshot.version)

    answer = await service.answer(find)
    response.headers["etag"] = etag_of(answer.features)
    return answer


async def _written_features(service: Service, write: FeatureWrite, response: Response) -> FeatureWriteAnswer:
    receipt = await service.write(write)
    response.headers["etag"] = receipt.etag
    if receipt.repeated:
        response.headers["idempotency-replayed"] = "true"
    return FeatureWriteAnswer(
        axis=write.axis,
        id=receipt.id,
        n_features=receipt.n_entries,
        version=VersionBody(model=receipt.model_version, data=receipt.data_version),
    )


operator_router = APIRouter(tags=["operate"], responses=REFUSALS)

logger = logging.getLogger("deepmf.serve")


OperatorReader = Annotated[ApiKey, Depends(needs("read"))]

Admin = Annotated[ApiKey, Depends(needs("admin"))]


@operator_router.get("/healthz")
async def healthz() -> Health:
    """Say that the process runs."""
    return Health(status="ok")


@operator_router.get("/readyz")
async def readyz(service: TheService) -> Health:
    """Say that the model and the database answer, and that the database has all that the service knows."""
    known = service.current.data_version
    if (await service.ask_database(Transaction.state)).data_version < known:
        raise Refusal(503, "behind", "the database was restored to an earlier state and is read anew", retry_after=1)
    return Health(status="ready")


@operator_router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: TheService, _: OperatorReader) -> Response:
    """Return what is counted and timed, for Prometheus."""
    return Response(await asyncio.to_thread(service.metrics.text), media_type="text/plain; version=0.0.4")


@operator_router.get("/v1/operator")
async def operator(service: TheService, _: OperatorReader) -> OperatorNumbers:
    """Return requests, latencies, entries learned, and errors of what was predicted before entries came."""
    errors = await service.live_errors()
    routes = await asyncio.to_thread(service.metrics.routes)
    return OperatorNumbers(
        seconds_up=time.monotonic() - service.started,
        n_requests=sum(route.n_requests for route in routes),
        n_failed=sum(route.n_failed for route in routes),
        n_learned=service.metrics.n_learned(),
        routes=[
            RouteNumbers(
                route=route.route,
                n_requests=route.n_requests,
                n_refused=route.n_refused,
                n_failed=route.n_failed,
                seconds=route.quantiles,
            )
            for route in routes
        ],
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
        version=service.current.version,
    )


@operator_router.post("/v1/model")
async def reload(service: TheService, _: Admin) -> ModelDescription:
    """Read the model's file anew; the old model answers until the new one does."""
    return (await asyncio.to_thread(reload_model, service)).describe()


def reload_model(service: Service) -> Snapshot:
    """Read the model's file anew, and log whether that was possible; the answer names no file."""
    try:
        snapshot = service.reload()
    except Refusal:
        raise
    except (UserError, OSError) as error:
        logger.error("the model file was not loaded", extra={"fields": {"error": type(error).__name__}})
        raise Refusal(409, "bad_model", "the model file cannot be served; the old model still answers") from error
    logger.info("the model file was read", extra={"fields": {"model_version": snapshot.model_version}})
    return snapshot


_READER = Depends(needs("read"))


read_router = APIRouter(prefix="/v1", tags=["read"], responses=REFUSALS, dependencies=[_READER])


@read_router.post("/predict")
async def predict(asked: PredictRequest, service: TheService) -> Predictions:
    """Predict pairs of rows and columns, or columns for a history that is not stored."""
    return await service.answer(
        lambda snapshot, guest: queries.predict(snapshot, asked, guest), asked.history, asked.features
    )


@read_router.post("/recommend")
async def recommend(asked: RecommendRequest, service: TheService) -> BestColumns:
    """Return the best columns of a row, or of a history that is not stored, without what is observed."""
    return await service.answer(
        lambda snapshot, guest: queries.recommend(snapshot, asked, guest, service.neighbours(snapshot)),
        asked.history,
        asked.features,
        slow=asked.reasons > 0,
    )


@read_router.post("/explain")
async def explain(asked: ExplainRequest, service: TheService) -> ExplainedPrediction:
    """Return a prediction and the entries and features of the row that pulled it up or down."""
    return await service.answer(
        lambda snapshot, guest: queries.explain(snapshot, asked, guest), asked.history, asked.features, slow=True
    )


@read_router.post("/similar")
async def similar(asked: SimilarRequest, service: TheService, key: Annotated[ApiKey, _READER]) -> SimilarLabels:
    """Return the columns most similar to a column, or the rows most similar to a row (role rows)."""
    if asked.row is not None:
        check_role(key, "rows")
    return await service.answer(lambda snapshot, _: queries.similar(snapshot, asked), slow=True)


@read_router.get("/columns")
async def columns(
    service: TheService,
    search: Annotated[str, Query(max_length=200, description="The beginning, or a part, of ids.")] = "",
    offset: Offset = 0,
    limit: Limit = 20,
) -> FoundColumns:
    """Search columns by their ids."""
    return await service.answer(
        lambda snapshot, _: queries.search_columns(
            snapshot, service.index(snapshot), search, offset=offset, limit=limit
        ),
        slow=True,
    )


@read_router.get("/model")
async def model(service: TheService) -> ModelDescription:
    """Describe the model that answers."""
    snapshot = service.current
    near = service.neighbours(snapshot)
    return snapshot.describe().model_copy(update={"recall": None if near is None else near.recall})


@read_router.get("/map")
async def get_map(service: TheService) -> LatentMap:
    """Return where rows and columns lie in the two dimensions in which they differ most."""

    def drawn(snapshot: Snapshot) -> LatentMap:
        shown = service.projection(snapshot)
        placed = zip(shown.columns, shown.column_places.tolist(), strict=True)
        return LatentMap(
            columns=[PlacedColumn(column=label, x=x, y=y) for label, (x, y) in placed],
            rows=[(x, y) for x, y in shown.rows.tolist()],
            version=snapshot.version,
        )

    return await service.answer(lambda snapshot, _: drawn(snapshot), slow=True)


@read_router.post("/map")
async def place(asked: RowOrHistory, service: TheService) -> Place:
    """Return where a row, or a history that is not stored, lies on the map."""
    return await service.answer(
        lambda snapshot, guest: queries.place(snapshot, service.projection(snapshot), asked, guest),
        asked.history,
        asked.features,
    )
