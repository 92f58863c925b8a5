"""Routes that answer and store nothing: predict, recommend, explain, similar, columns, the model, the map."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

import deepmf.serve.queries as queries
from deepmf.serve.access import check_role, needs
from deepmf.serve.keys import ApiKey
from deepmf.serve.model_bodies import FoundColumns, LatentMap, ModelDescription, Place, PlacedColumn
from deepmf.serve.prediction_bodies import (
    BestColumns,
    ExplainedPrediction,
    ExplainRequest,
    Predictions,
    PredictRequest,
    RecommendRequest,
    RowOrHistory,
    SimilarLabels,
    SimilarRequest,
)
from deepmf.serve.routing import REFUSALS, Limit, Offset, TheService
from deepmf.serve.snapshot import Snapshot

_READER = Depends(needs("read"))

router = APIRouter(prefix="/v1", tags=["read"], responses=REFUSALS, dependencies=[_READER])


@router.post("/predict")
async def predict(asked: PredictRequest, service: TheService) -> Predictions:
    """Predict pairs of rows and columns, or columns for a history that is not stored."""
    return await service.answer(
        lambda snapshot, guest: queries.predict(snapshot, asked, guest), asked.history, asked.features
    )


@router.post("/recommend")
async def recommend(asked: RecommendRequest, service: TheService) -> BestColumns:
    """Return the best columns of a row, or of a history that is not stored, without what is observed."""
    return await service.answer(
        lambda snapshot, guest: queries.recommend(snapshot, asked, guest, service.neighbours(snapshot)),
        asked.history,
        asked.features,
        slow=asked.reasons > 0,
    )


@router.post("/explain")
async def explain(asked: ExplainRequest, service: TheService) -> ExplainedPrediction:
    """Return a prediction and the entries and features of the row that pulled it up or down."""
    return await service.answer(
        lambda snapshot, guest: queries.explain(snapshot, asked, guest), asked.history, asked.features, slow=True
    )


@router.post("/similar")
async def similar(asked: SimilarRequest, service: TheService, key: Annotated[ApiKey, _READER]) -> SimilarLabels:
    """Return the columns most similar to a column, or the rows most similar to a row (role rows)."""
    if asked.row is not None:
        check_role(key, "rows")
    return await service.answer(lambda snapshot, _: queries.similar(snapshot, asked), slow=True)


@router.get("/columns")
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


@router.get("/model")
async def model(service: TheService) -> ModelDescription:
    """Describe the model that answers."""
    snapshot = service.current
    near = service.neighbours(snapshot)
    return snapshot.describe().model_copy(update={"recall": None if near is None else near.recall})


@router.get("/map")
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


@router.post("/map")
async def place(asked: RowOrHistory, service: TheService) -> Place:
    """Return where a row, or a history that is not stored, lies on the map."""
    return await service.answer(
        lambda snapshot, guest: queries.place(snapshot, service.projection(snapshot), asked, guest),
        asked.history,
        asked.features,
    )
