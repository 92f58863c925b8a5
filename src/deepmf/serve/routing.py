"""What routes share: the service of a request, and the answers that every route may give."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from deepmf.serve.bodies import RefusalBody
from deepmf.serve.refusals import KINDS
from deepmf.serve.service import Service

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
