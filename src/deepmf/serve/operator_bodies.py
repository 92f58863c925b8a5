"""The bodies for operators: whether the service runs, its requests, and its errors on entries that came."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from deepmf.serve.bodies import Area, VersionBody


class Health(BaseModel):
    """Whether the service runs, or is ready."""

    status: Literal["ok", "ready"]


class LiveError(BaseModel):
    """Errors of what was predicted before an entry came, in one area."""

    area: Area
    n_entries: int
    rmse: float
    mae: float


class RouteNumbers(BaseModel):
    """The requests of one route, and quantiles of their seconds."""

    route: str
    n_requests: int
    n_refused: int
    n_failed: int
    seconds: dict[str, float]


class OperatorNumbers(BaseModel):
    """What an operator looks at."""

    seconds_up: float
    n_requests: int
    n_failed: int
    n_learned: int
    routes: list[RouteNumbers]
    live_errors: list[LiveError]
    version: VersionBody
