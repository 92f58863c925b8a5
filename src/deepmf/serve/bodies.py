"""What bodies of requests and answers share: ids, values, bounds, the version of an answer, and a refusal."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from deepmf.serve.wire_ids import LARGEST, SMALLEST

MOST_ENTRIES = 10_000
LONGEST_ID = 1_000

TextId = Annotated[str, Field(strict=True, max_length=LONGEST_ID)]
WholeId = Annotated[int, Field(strict=True, ge=SMALLEST, le=LARGEST)]
AnyId = WholeId | TextId
Value = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Area = Literal["I", "II", "III", "IV"]


class RequestBody(BaseModel):
    """A body that is sent: names that it does not have are refused."""

    model_config = ConfigDict(extra="forbid")


class VersionBody(BaseModel):
    """What an answer was made with: the version of the model, and of the entries that came since training."""

    model: int
    data: int


class RefusalText(BaseModel):
    """A code for programs and a sentence for people."""

    code: str
    message: str


class RefusalBody(BaseModel):
    """Why a request was refused."""

    error: RefusalText
