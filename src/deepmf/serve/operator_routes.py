"""Routes for operators: whether the service runs and is ready, its figures, and a new model."""

from __future__ import annotations

import asyncio
import logging
import time
from math import sqrt
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from deepmf.errors import UserError
from deepmf.matrix.areas import AREAS
from deepmf.serve.access import needs
from deepmf.serve.entry_database import Transaction
from deepmf.serve.keys import ApiKey
from deepmf.serve.model_bodies import ModelDescription
from deepmf.serve.operator_bodies import Health, LiveError, OperatorNumbers, RouteNumbers
from deepmf.serve.refusals import Refusal
from deepmf.serve.routing import REFUSALS, TheService
from deepmf.serve.service import Service
from deepmf.serve.snapshot import Snapshot

router = APIRouter(tags=["operate"], responses=REFUSALS)
logger = logging.getLogger("deepmf.serve")

Reader = Annotated[ApiKey, Depends(needs("read"))]
Admin = Annotated[ApiKey, Depends(needs("admin"))]


@router.get("/healthz")
async def healthz() -> Health:
    """Say that the process runs."""
    return Health(status="ok")


@router.get("/readyz")
async def readyz(service: TheService) -> Health:
    """Say that the model and the database answer, and that the database has all that the service knows."""
    known = service.current.data_version
    if (await service.ask_database(Transaction.state)).data_version < known:
        raise Refusal(503, "behind", "the database was restored to an earlier state and is read anew", retry_after=1)
    return Health(status="ready")


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: TheService, _: Reader) -> Response:
    """Return what is counted and timed, for Prometheus."""
    return Response(await asyncio.to_thread(service.metrics.text), media_type="text/plain; version=0.0.4")


@router.get("/v1/operator")
async def operator(service: TheService, _: Reader) -> OperatorNumbers:
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


@router.post("/v1/model")
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
