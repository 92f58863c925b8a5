"""Routes of features: those of a row, and those of a column, read, put and forgotten."""

from __future__ import annotations

from fastapi import APIRouter, Response

from deepmf.serve.bodies import FeatureContent, FeaturesAnswer, FeatureWriteAnswer, VersionBody
from deepmf.serve.entry_changes import etag_of
from deepmf.serve.entry_routes import GivenConditions, PathId, Reader
from deepmf.serve.routing import REFUSALS, TheService
from deepmf.serve.served_features import AxisName, features_of
from deepmf.serve.service import Service
from deepmf.serve.snapshot import Snapshot
from deepmf.serve.wire_ids import known_label
from deepmf.serve.writer import FeatureWrite

router = APIRouter(prefix="/v1", tags=["features"], responses=REFUSALS)


@router.get("/rows/{row:id}/features")
async def row_features(row: PathId, service: TheService, response: Response, _: Reader) -> FeaturesAnswer:
    """Return the features of a row, as the model reads them."""
    return await _found(service, "row", row, response)


@router.put("/rows/{row:id}/features")
async def put_row_features(
    row: PathId, body: FeatureContent, service: TheService, response: Response, given: GivenConditions
) -> FeatureWriteAnswer:
    """Let these be all features of a row, known or new."""
    return await _written(service, FeatureWrite("row", row, body.features, given.tags, given.key), response)


@router.delete("/rows/{row:id}/features")
async def forget_row_features(
    row: PathId, service: TheService, response: Response, given: GivenConditions
) -> FeatureWriteAnswer:
    """Forget the features of a row; one that came after training and has no entries is no longer known."""
    return await _written(service, FeatureWrite("row", row, None, given.tags, given.key), response)


@router.get("/columns/{column:id}/features")
async def column_features(column: PathId, service: TheService, response: Response, _: Reader) -> FeaturesAnswer:
    """Return the features of a column, as the model reads them."""
    return await _found(service, "column", column, response)


@router.put("/columns/{column:id}/features")
async def put_column_features(
    column: PathId, body: FeatureContent, service: TheService, response: Response, given: GivenConditions
) -> FeatureWriteAnswer:
    """Let these be all features of a column, known or new."""
    return await _written(service, FeatureWrite("column", column, body.features, given.tags, given.key), response)


@router.delete("/columns/{column:id}/features")
async def forget_column_features(
    column: PathId, service: TheService, response: Response, given: GivenConditions
) -> FeatureWriteAnswer:
    """Forget the features of a column; one that came after training and has no entries is no longer known."""
    return await _written(service, FeatureWrite("column", column, None, given.tags, given.key), response)


async def _found(service: Service, axis: AxisName, given: str, response: Response) -> FeaturesAnswer:
    def find(snapshot: Snapshot, _: object) -> FeaturesAnswer:
        store = snapshot.model.entries_
        label = known_label(given, store.rows if axis == "row" else store.columns)
        features = features_of(snapshot.model, axis, label)
        return FeaturesAnswer(axis=axis, id=label, features=features, version=snapshot.version)

    answer = await service.answer(find)
    response.headers["etag"] = etag_of(answer.features)
    return answer


async def _written(service: Service, write: FeatureWrite, response: Response) -> FeatureWriteAnswer:
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
