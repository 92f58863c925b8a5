"""The bodies of questions to the model and of their answers: predict, recommend, explain, similar."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from deepmf.serve.ids import LARGEST, SMALLEST

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


class ColumnValue(RequestBody):
    """An entry of a row: its column and its value."""

    column: AnyId
    value: Value


class RowValue(RequestBody):
    """An entry of a column: its row and its value."""

    row: AnyId
    value: Value


class ListedValue(BaseModel):
    """An entry of a column; the row is null where it is that of a visitor of the page."""

    row: str | int | None
    value: float


class ColumnChange(RequestBody):
    """An entry of a row to put, or by null to forget."""

    column: AnyId
    value: Value | None


class RowChange(RequestBody):
    """An entry of a column to put, or by null to forget."""

    row: AnyId
    value: Value | None


class RowEntries(RequestBody):
    """All entries of a row."""

    entries: Annotated[list[ColumnValue], Field(max_length=MOST_ENTRIES)]


class ColumnEntries(RequestBody):
    """All entries of a column."""

    entries: Annotated[list[RowValue], Field(max_length=MOST_ENTRIES)]


class RowChanges(RequestBody):
    """Some entries of a row: the others stay."""

    entries: Annotated[list[ColumnChange], Field(max_length=MOST_ENTRIES)]


class ColumnChanges(RequestBody):
    """Some entries of a column: the others stay."""

    entries: Annotated[list[RowChange], Field(max_length=MOST_ENTRIES)]


class RowEntriesAnswer(BaseModel):
    """A page of the entries of a row."""

    row: str | int
    trained: bool
    entries: list[ColumnValue]
    n_entries: int
    next_offset: int | None
    version: VersionBody


class ColumnEntriesAnswer(BaseModel):
    """A page of the entries of a column."""

    column: str | int
    trained: bool
    entries: list[ListedValue]
    n_entries: int
    next_offset: int | None
    version: VersionBody


class WriteAnswer(BaseModel):
    """What a write did: how many entries there are now, and how many were put and forgotten."""

    axis: Literal["row", "column"]
    id: str | int
    n_entries: int
    n_changed: int
    n_forgotten: int
    version: VersionBody


MOST_FEATURES = 1_000  # of a row, or of a column

MOST_ITEMS = 1_000  # of a feature that is a list

MOST_CATEGORIES_SHOWN = 100  # of each feature, in the description of the model


ReadFeature = float | str | list[str]  # as the model reads it


def _kind_of_feature(value: object) -> str | None:
    """Return the tag of the kind that the value of a feature has, so that refusals are about this kind alone."""
    kinds = {bool: "truth", int: "number", float: "number", str: "text", list: "list"}
    return kinds.get(type(value))


FeatureText = Annotated[str, Field(strict=True, max_length=LONGEST_ID)]

FeatureValue = Annotated[
    Annotated[bool, Field(strict=True), Tag("truth")]
    | Annotated[Value, Tag("number")]
    | Annotated[FeatureText, Tag("text")]
    | Annotated[list[FeatureText | Value], Field(max_length=MOST_ITEMS), Tag("list")],
    Discriminator(
        _kind_of_feature,
        custom_error_type="bad_feature",
        custom_error_message="Input should be a number, a text, a list of these, true, false or null",
    ),
]

GivenFeatures = Annotated[
    dict[Annotated[str, Field(max_length=LONGEST_ID)], FeatureValue | None],
    Field(
        min_length=1,
        max_length=MOST_FEATURES,
        description="Values by name: numbers, categories, lists of categories, dates; null: not known.",
    ),
]


class FeatureContent(RequestBody):
    """All features of a row, or of a column; those that are not named are not known."""

    features: GivenFeatures


class FeatureDescription(BaseModel):
    """A feature that the model reads; its categories, the first of them where there are many."""

    name: str
    kind: Literal["number", "category", "list", "date"]
    categories: list[str] | None
    n_categories: int | None


class FeaturesAnswer(BaseModel):
    """The features of a row, or of a column, as the model reads them: what it does not tell apart is not there."""

    axis: Literal["row", "column"]
    id: str | int
    features: dict[str, ReadFeature]
    version: VersionBody


class FeatureWriteAnswer(BaseModel):
    """What a write of features did: how many the model knows now."""

    axis: Literal["row", "column"]
    id: str | int
    n_features: int
    version: VersionBody


class ScaleBody(BaseModel):
    """The scale of all values: its levels where it has any, and its ends."""

    levels: list[float] | None
    low: float
    high: float


class ModelDescription(BaseModel):
    """The model that answers."""

    model: str = Field(description="Its class.")
    scale: ScaleBody
    n_rows: int
    n_columns: int
    n_entries: int
    n_trained_rows: int
    n_trained_columns: int
    areas: list[Area] = Field(description="Where it predicts.")
    gives_distribution: bool
    ids: dict[str, Literal["text", "number"]]
    row_features: list[FeatureDescription] = Field(description="What it reads of rows beside their entries.")
    column_features: list[FeatureDescription]
    recall: float | None = Field(
        default=None, description="The share of the ten best columns that approximate rankings find; null: exact."
    )
    version: VersionBody


class FoundColumn(BaseModel):
    """A column: how many entries it has, whether it was there in training, and its features, if any are known."""

    column: str | int
    n_entries: int
    trained: bool
    features: dict[str, ReadFeature] | None = None


class FoundColumns(BaseModel):
    """A page of columns: those that begin with the text, then those that contain it; most entries first."""

    columns: list[FoundColumn]
    total: int
    next_offset: int | None
    version: VersionBody


class PlacedColumn(BaseModel):
    """A column on the map."""

    column: str | int
    x: float
    y: float


class LatentMap(BaseModel):
    """Where rows and columns lie: latents in two dimensions; rows have no names."""

    columns: list[PlacedColumn]
    rows: list[tuple[float, float]]
    version: VersionBody


class Place(BaseModel):
    """Where a row lies on the map."""

    x: float
    y: float
    version: VersionBody


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
