"""The bodies of questions to the model and of their answers: predict, recommend, explain, similar."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from deepmf.serve.bodies import MOST_ENTRIES, AnyId, Area, RequestBody, VersionBody
from deepmf.serve.entry_bodies import ColumnValue
from deepmf.serve.feature_bodies import GivenFeatures

MOST_PAIRS = 10_000
MOST_COLUMNS = 100_000  # of `among` and `exclude`
MOST_BEST = 1_000
MOST_REASONS = 100

HistoryBody = Annotated[list[ColumnValue], Field(min_length=1, max_length=MOST_ENTRIES)]


class RowOrHistory(RequestBody):
    """A row that is known, or the entries and features of one that is not, which are not stored."""

    row: AnyId | None = None
    history: HistoryBody | None = None
    features: GivenFeatures | None = None

    @model_validator(mode="after")
    def check_one(self) -> RowOrHistory:
        """Refuse both and neither."""
        if (self.row is None) == (self.history is None and self.features is None):
            raise ValueError(
                "give either row, which is known, or history, the entries of a new row, with or without its features"
            )
        return self


class PairBody(RequestBody):
    """A row and a column."""

    row: AnyId
    column: AnyId


class PredictRequest(RequestBody):
    """Pairs; or the history and features of a row that is not stored, and the columns to predict for it."""

    pairs: Annotated[list[PairBody], Field(min_length=1, max_length=MOST_PAIRS)] | None = None
    history: HistoryBody | None = None
    features: GivenFeatures | None = None
    columns: Annotated[list[AnyId], Field(min_length=1, max_length=MOST_PAIRS)] | None = None
    unknown: Literal["error", "nan", "fallback"] = Field(
        default="error",
        description="Unknown rows and columns: refused, predicted as null, or by the means of what is known.",
    )

    @model_validator(mode="after")
    def check_one(self) -> PredictRequest:
        """Refuse pairs beside a history, and a history without columns."""
        is_guest = self.history is not None or self.features is not None
        if (self.pairs is None) != is_guest:
            raise ValueError("give either pairs, or history (or features) and columns")
        if (self.columns is not None) != is_guest:
            raise ValueError("history (or features) and columns go together")
        return self


class RecommendRequest(RowOrHistory):
    """Whose best columns, how many, and from which."""

    n: Annotated[int, Field(strict=True, ge=1, le=MOST_BEST)] = 10
    among: Annotated[list[AnyId], Field(min_length=1, max_length=MOST_COLUMNS)] | None = None
    exclude: Annotated[list[AnyId], Field(max_length=MOST_COLUMNS)] | None = None
    min_entries: Annotated[int, Field(strict=True, ge=0, le=10**9)] = Field(
        default=0, description="Leave out columns with fewer entries than this, whose predictions are uncertain."
    )
    include_observed: Annotated[bool, Field(strict=True)] = False
    reasons: Annotated[int, Field(strict=True, ge=0, le=10)] = Field(
        default=0, description="How many entries to name with each of the best ten columns, by their effect."
    )


class ExplainRequest(RowOrHistory):
    """The prediction to explain, and by how many entries."""

    column: AnyId
    n: Annotated[int, Field(strict=True, ge=1, le=MOST_REASONS)] = 5


class SimilarRequest(RequestBody):
    """A column, or a row."""

    column: AnyId | None = None
    row: AnyId | None = None
    n: Annotated[int, Field(strict=True, ge=1, le=MOST_BEST)] = 10

    @model_validator(mode="after")
    def check_one(self) -> SimilarRequest:
        """Refuse both and neither."""
        if (self.row is None) == (self.column is None):
            raise ValueError("give either a column or a row")
        return self


class RangeBody(BaseModel):
    """An interval that holds the true value with about this probability."""

    low: float
    high: float
    coverage: float


class Likelihood(BaseModel):
    """A level (without levels, the mean of a bin) and its probability."""

    level: float
    probability: float


class PredictionBody(BaseModel):
    """What is predicted for a pair; `level`, `distribution` and `interval` where the model has them."""

    expected: float | None
    level: float | None
    distribution: list[Likelihood] | None
    interval: RangeBody | None
    area: Area | None = Field(description="Null where the row or the column is unknown.")


class Reason(BaseModel):
    """An entry of the row, and what the prediction would lose without it."""

    column: str | int
    value: float
    effect: float


class FeatureReason(BaseModel):
    """What a feature says of the row, and what the prediction would lose without it."""

    name: str
    value: str
    effect: float


class PairPrediction(PredictionBody):
    """A pair and its prediction."""

    row: str | int | None
    column: str | int


class BestColumn(PredictionBody):
    """A column, its prediction, and the entries and features that pulled it up or down, if they were asked for."""

    column: str | int
    reasons: list[Reason] | None = None
    feature_reasons: list[FeatureReason] | None = None


class Predictions(BaseModel):
    """Predictions in the order of the pairs."""

    predictions: list[PairPrediction]
    version: VersionBody


class BestColumns(BaseModel):
    """The best columns, best first."""

    row: str | int | None
    best: list[BestColumn]
    version: VersionBody


class ExplainedPrediction(PredictionBody):
    """A prediction and the entries and features of the row that pulled it up or down the most."""

    row: str | int | None
    column: str | int
    entries: list[Reason]
    features: list[FeatureReason]
    version: VersionBody


class SimilarLabel(BaseModel):
    """A column or row, and the cosine of its latent."""

    id: str | int
    cosine: float


class SimilarLabels(BaseModel):
    """The most similar columns or rows, most similar first."""

    axis: Literal["row", "column"]
    id: str | int
    similar: list[SimilarLabel]
    version: VersionBody
