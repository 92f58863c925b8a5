"""The JSON bodies of the service: what requests send (`...Request`), what it returns
(`...Response`), and errors."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    create_model,
    model_validator,
)

from deepmf.errors import BadSetting, UserError
from deepmf.matrix.extras import LARGEST_WEIGHT, NO_TIME, SMALLEST_WEIGHT, parse_time
from deepmf.recommend.request import RankBy, Request, list_options

LONGEST_ID = 1_000  # characters
SMALLEST_ID, LARGEST_ID = -(2**63), 2**63 - 1  # numeric ids have 64 bits

# Limits that keep one request within the seconds it may take.
MAX_ENTRIES = 10_000  # also pairs
MAX_LINES = 50_000  # of a bulk write
MAX_COLUMNS = 100_000  # in `among` and `exclude`
MAX_ITEMS = 1_000  # results; features of a row or a column, and items in a feature that is a list
MAX_SHOWN = 100  # reasons; categories of a feature, in the description of the model
MAX_CONDITIONS = 20  # on features; also entries that the model cannot use, in a response

Area = Literal["I", "II", "III", "IV"]
Axis = Literal["row", "column"]
Id = str | int
Value = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Name = Annotated[
    str | None,
    Field(
        description="The name shown beside the id, such as a title; absent without one.",
        exclude_if=lambda name: name is None,
    ),
]
RequestId = (
    Annotated[str, Field(strict=True, max_length=LONGEST_ID)]
    | Annotated[int, Field(strict=True, ge=SMALLEST_ID, le=LARGEST_ID)]
)


class RequestModel(BaseModel, extra="forbid"):
    """A part of a request; unknown fields are refused."""


# Columns and a row in examples; the service puts those of its model in their places.
EXAMPLE_COLUMNS, EXAMPLE_ROW, EXAMPLE_VALUE = ("Alien", "Big"), "ann", 5
_HISTORY = [{"column": "Alien", "value": EXAMPLE_VALUE}]


class Version(BaseModel):
    """The versions behind a response: the model, and the entries written since training."""

    model: int
    data: int


class Answer(BaseModel):
    """A response from one version of the model and its entries."""

    version: Version


class TaggedAnswer(Answer):
    """A response with the ETag of the content that it is about."""

    etag: str


# Errors


class ErrorDetail(BaseModel):
    """A code for programs and a sentence for people."""

    code: str
    message: str


class ErrorResponse(BaseModel):
    """Why a request failed."""

    error: ErrorDetail


MAX_MESSAGE = 200  # characters, which also limits how much of a request a message repeats

# The statuses of errors, as the OpenAPI description explains them.
STATUS_MEANINGS = {
    400: "The request is not valid HTTP, JSON or UTF-8.",
    401: "The API key is missing or unknown.",
    403: "The role of the API key does not allow this, or the host or origin is not allowed.",
    404: "The row, the column or the path does not exist.",
    405: "The path does not support this method.",
    409: "The model cannot do this.",
    412: "The entries have changed since the ETag in If-Match.",
    413: "The body is too large.",
    422: "The body or a parameter is invalid.",
    500: "The service failed; its log says more.",
    503: "The service is starting, stopping or too busy; try again.",
}


class ApiError(UserError):
    """A request that fails with an HTTP status; the message names only what the request itself
    contains."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(shorten(message))
        self.status = status
        self.code = code


def shorten(message: str) -> str:
    """Return a message of at most `MAX_MESSAGE` characters: the start and the end of a longer
    one."""
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE - 83]}...{message[-80:]}"


# Entries


def _read_time(given: object) -> int | None:
    if given is None:
        return None
    with suppress(BadSetting, OverflowError):
        if (seconds := parse_time(given)) != NO_TIME:  # as for NaN
            return seconds
    raise ValueError("a time is a text such as 2026-05-01T12:00:00Z or 2026-05-01, or Unix seconds")


GivenTime = Annotated[
    int | None,
    BeforeValidator(_read_time),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]}, mode="validation"
    ),
]
EntryTime = Annotated[
    GivenTime, AfterValidator(lambda seconds: NO_TIME if seconds is None else seconds)
]
GivenWeight = Annotated[
    float, Field(strict=True, ge=SMALLEST_WEIGHT, le=LARGEST_WEIGHT, allow_inf_nan=False)
]
AnswerTime = Annotated[
    GivenTime,
    Field(
        description="The time to answer for; default: now. Only a model that was fitted with times takes one."
    ),
]


class EntryRequest(RequestModel):
    """An entry to write. Time and weight are None where they are left out; a time of null is
    `NO_TIME`."""

    value: Value | None = Field(description="null forgets the entry.")
    time: EntryTime = Field(
        default=None,
        description="When the entry was made: a date, a date and time (UTC without a zone), or Unix seconds. Default: "
        "now if the entries of the model have dates; null: no date.",
    )
    weight: GivenWeight | None = Field(
        default=None, description="How much the entry counts; default: 1."
    )


class GivenEntry(EntryRequest):
    """An entry of a row, which names its column, or of a column, which names its row."""

    row: RequestId | None = None
    column: RequestId | None = None

    def find_other(self, axis: Axis) -> Id:
        """Return the id on the other axis; raise `ApiError` if the entry does not name this axis
        alone."""
        ids = {"row": self.row, "column": self.column}
        axis_id, ((other_axis, other_id),) = ids.pop(axis), ids.items()
        if other_id is None or axis_id is not None:
            message = f"each entry of a {axis} names its {other_axis}, and not its {axis}"
            raise ApiError(422, "invalid", message)
        return other_id


class EntryLine(EntryRequest):
    """A line of a bulk write; null forgets the entry."""

    row: RequestId
    column: RequestId


class HistoryEntry(RequestModel):
    """An entry of a row that is not stored."""

    column: RequestId
    time: GivenTime = Field(
        default=None,
        description="When it was made, for a model that weighs entries by their age; default: now.",
    )
    value: Value | None = Field(
        None, description="Needed unless the model was fitted to interactions."
    )


class EntriesRequest(RequestModel):
    """Entries of a row or a column: all, or with PATCH those that change."""

    entries: Annotated[list[GivenEntry], Field(max_length=MAX_ENTRIES)]


class ListedEntry(BaseModel):
    """An entry: of a row with its column, of a column with its row, and in an export with both."""

    row: Id | None = Field(default=None, description="Null if it belongs to a visitor of the page.")
    column: Id | None = None
    column_name: Name = None
    value: float
    time: datetime | None = Field(
        default=None, description="When the entry was made; absent without a date."
    )
    weight: float = Field(default=1.0, description="Absent if it is 1.")


class EntriesResponse(TaggedAnswer):
    """A page of the entries of a row or a column: how many there are, and where the next page
    starts."""

    axis: Axis
    id: Id
    trained: bool
    n_entries: int
    next_offset: int | None
    entries: list[ListedEntry]


class WriteResponse(TaggedAnswer):
    """The effect of a write to a row or a column.

    `n_entries` counts its entries now, or its features or dismissed columns if these were written;
    the others count those that were written and forgotten.
    """

    axis: Axis
    id: Id
    n_entries: int
    n_changed: int
    n_forgotten: int


class RefusedLine(BaseModel):
    """A line of a bulk write that was not written, counted from 1, and why."""

    line: int
    code: str
    message: str


class BulkResponse(Answer):
    """The effect of a bulk write: how many entries were written and forgotten, and the lines that
    were refused."""

    n_lines: int
    n_changed: int
    n_forgotten: int
    n_refused: int
    refused: list[RefusedLine]


# Features


_TAGS = {bool: "truth", int: "number", float: "number", str: "text", list: "list", dict: "dict"}

FeatureText = Annotated[str, Field(strict=True, max_length=LONGEST_ID)]
FeatureValue = Annotated[
    Annotated[bool, Field(strict=True), Tag("truth")]
    | Annotated[Value, Tag("number")]
    | Annotated[FeatureText, Tag("text")]
    | Annotated[list[FeatureText | Value], Field(max_length=MAX_ITEMS), Tag("list")]
    | Annotated[dict[FeatureText, Value], Field(max_length=MAX_ITEMS), Tag("dict")],
    Discriminator(
        # so that validation errors refer to its own type only
        lambda value: _TAGS.get(type(value)),
        custom_error_type="bad_feature",
        custom_error_message="Input should be a number, a text, a list of these, numbers by id, true, false or null",
    ),
]
RequestFeatures = Annotated[
    dict[Annotated[str, Field(max_length=LONGEST_ID)], FeatureValue | None],
    Field(
        min_length=1,
        max_length=MAX_ITEMS,
        description="Values by name: numbers, categories, lists of categories, dates, similarities by id; "
        "null if unknown.",
    ),
]
Categories = Annotated[list[FeatureText], Field(min_length=1, max_length=MAX_ITEMS)]
EncodedFeature = float | str | list[str]  # as the model encodes it


class PutFeaturesRequest(
    RequestModel,
    json_schema_extra={"examples": [{"features": {"year": 1999, "genres": ["Horror"]}}]},
):
    """All features of a row or a column; features that are left out are unknown."""

    features: RequestFeatures


class FeaturesResponse(TaggedAnswer):
    """The features of a row or a column as the model encodes them, without rare categories."""

    axis: Axis
    id: Id
    features: dict[str, EncodedFeature]


# States of columns and columns that rows dismissed


class PutStateRequest(
    RequestModel,
    json_schema_extra={
        "examples": [{"visible": True, "from": "2026-05-01T00:00:00Z", "until": None}]
    },
):
    """Whether a column may be recommended, and from and until when."""

    visible: Annotated[bool, Field(strict=True)] = True
    from_: GivenTime = Field(default=None, alias="from")
    until: GivenTime = None

    @model_validator(mode="after")
    def check_order(self) -> PutStateRequest:
        """Require that `from` is before `until`."""
        if self.from_ is not None and self.until is not None and self.from_ >= self.until:
            raise ValueError("from must be before until")
        return self


class StateResponse(TaggedAnswer):
    """The state of a column."""

    column: Id
    visible: bool
    from_: datetime | None = Field(alias="from")
    until: datetime | None
    shown: bool = Field(description="Whether the column can be recommended now.")


DismissedColumns = Annotated[list[RequestId], Field(max_length=MAX_ENTRIES)]


class PatchDismissedRequest(RequestModel, json_schema_extra={"examples": [{"add": ["Alien"]}]}):
    """Columns that are no longer recommended to a row, and columns that are recommended again."""

    add: DismissedColumns = []
    remove: DismissedColumns = []


class DismissedResponse(TaggedAnswer):
    """The columns that are never recommended to a row, in order."""

    row: Id
    columns: list[Id]


# Predictions


class NewRow(RequestModel):
    """The entries and features of a new row, which are not stored."""

    history: Annotated[list[HistoryEntry], Field(min_length=1, max_length=MAX_ENTRIES)] | None = (
        None
    )
    features: RequestFeatures | None = None


class RowOrHistory(NewRow):
    """A known row, or the entries and features of a new row."""

    row: RequestId | None = None

    @model_validator(mode="after")
    def check_row_or_history(self) -> RowOrHistory:
        """Require either a row, or a history or features."""
        if (self.row is None) == (self.history is None and self.features is None):
            raise ValueError("give either a known row, or the history or features of a new row")
        return self


class RowColumnPair(RequestModel):
    """A row and a column."""

    row: RequestId
    column: RequestId


class PredictRequest(
    NewRow, json_schema_extra={"examples": [{"history": _HISTORY, "columns": ["Big"]}]}
):
    """Pairs to predict; or the history and features of a new row, and the columns to predict for
    it."""

    pairs: Annotated[list[RowColumnPair], Field(min_length=1, max_length=MAX_ENTRIES)] | None = None
    columns: Annotated[list[RequestId], Field(min_length=1, max_length=MAX_ENTRIES)] | None = None
    unknown: Literal["error", "nan", "fallback"] = Field(
        default="error",
        description="How to treat unknown rows and columns: as an error, as null, or by falling back to means.",
    )
    at: AnswerTime = None

    @model_validator(mode="after")
    def check_pairs_or_history(self) -> PredictRequest:
        """Require either pairs, or columns with a history or features."""
        is_new_row = self.history is not None or self.features is not None
        if (self.pairs is None) != is_new_row:
            raise ValueError("give either pairs, or history (or features) and columns")
        if (self.columns is not None) != is_new_row:
            raise ValueError("history (or features) and columns go together")
        return self


class FeatureCondition(RequestModel):
    """A condition on a feature: limits of a number or date, or categories that a column has any,
    all or none of."""

    min: Value | FeatureText | None = None
    max: Value | FeatureText | None = None
    any: Categories | None = None
    all: Categories | None = None
    none: Categories | None = None


def _declare_options() -> dict[str, Any]:
    types, fields = get_type_hints(Request), dict[str, Any]()
    limits: dict[Any, Any] = {int: {"strict": True, "le": 10**9}, bool: {"strict": True}}
    limits |= {float: {"allow_inf_nan": False}, str: {"max_length": LONGEST_ID}}
    for option in list_options(Request):
        declared, metadata = types[option.name], dict(option.metadata)
        type_limits: Any = next(
            (limits[kind] for kind in (declared, *get_args(declared)) if kind in limits), {}
        )
        described: Any = {"description": metadata.pop("help"), **metadata, **type_limits}
        fields[option.name] = (declared, Field(default=option.default, **described))
    return fields


if TYPE_CHECKING:
    _RowAndOptions = RowOrHistory
else:
    _RowAndOptions = create_model("_RowAndOptions", __base__=RowOrHistory, **_declare_options())


class RecommendRequest(
    _RowAndOptions,
    json_schema_extra={
        "examples": [{"history": _HISTORY, "n": 10, "min_entries": 5, "reasons": 3}]
    },
):
    """The row to recommend columns to, how many, and from which."""

    history: Annotated[list[HistoryEntry], Field(max_length=MAX_ENTRIES)] | None = None
    n: Annotated[int, Field(strict=True, ge=1, le=MAX_ITEMS)] = 10
    among: Annotated[list[RequestId], Field(min_length=1, max_length=MAX_COLUMNS)] | None = None
    exclude: Annotated[list[RequestId], Field(max_length=MAX_COLUMNS)] | None = None
    where: (
        Annotated[
            dict[Annotated[str, Field(max_length=LONGEST_ID)], FeatureCondition],
            Field(min_length=1, max_length=MAX_CONDITIONS),
        ]
        | None
    ) = Field(
        default=None,
        description="Recommend only columns whose features meet all conditions, by name.",
    )
    reasons: Annotated[int, Field(strict=True, ge=0, le=10)] = Field(
        default=0, description="Number of entries that explain each of the best ten columns."
    )
    at: AnswerTime = None
    fallback: Literal["popular"] | None = Field(
        default=None,
        description="The answer for a row that is not known or an empty history: popular columns.",
    )

    @model_validator(mode="after")
    def check_not_empty(self) -> RecommendRequest:
        """Require entries or features of a new row, unless there is a fallback."""
        if self.history == [] and self.features is None and self.fallback is None:
            raise ValueError(
                'the history is empty; "fallback": "popular" recommends popular columns'
            )
        return self


class ExplainRequest(
    RowOrHistory, json_schema_extra={"examples": [{"history": _HISTORY, "column": "Big", "n": 5}]}
):
    """The prediction to explain, and by how many entries."""

    column: RequestId
    n: Annotated[int, Field(strict=True, ge=1, le=MAX_SHOWN)] = 5
    at: AnswerTime = None


class SimilarRequest(RequestModel, json_schema_extra={"examples": [{"column": "Alien", "n": 10}]}):
    """The column or the row to find similar ones of."""

    column: RequestId | None = None
    row: RequestId | None = None
    n: Annotated[int, Field(strict=True, ge=1, le=MAX_ITEMS)] = 10
    min_entries: Annotated[int, Field(strict=True, ge=0, le=10**9)] | None = Field(
        default=None,
        description="Leave out columns with fewer entries; by default those with hardly any.",
    )

    @model_validator(mode="after")
    def check_column_or_row(self) -> SimilarRequest:
        """Require either a column or a row."""
        if (self.row is None) == (self.column is None):
            raise ValueError("give either a column or a row")
        return self


class LevelProbability(BaseModel):
    """A level and its probability; for values without levels, the mean of a bin."""

    level: float
    probability: float


class PredictionInterval(BaseModel):
    """An interval that contains the true value with the given probability."""

    low: float
    high: float
    coverage: float


class Prediction(BaseModel):
    """The prediction for a pair; `level`, `distribution` and `interval` are null if the model has
    none."""

    expected: float | None = Field(description="For interactions, the probability that one exists.")
    level: float | None
    distribution: list[LevelProbability] | None
    interval: PredictionInterval | None
    area: Area | None = Field(description="Null if the row or the column is unknown.")


class EntryReason(BaseModel):
    """An entry of the row, and how much the prediction would drop without it."""

    column: Id
    column_name: Name = None
    value: float
    effect: float


class FeatureReason(BaseModel):
    """A feature of the row, and how much the prediction would drop without it."""

    name: str
    value: str
    effect: float


class PairPrediction(Prediction):
    """A pair and its prediction; the row is null for a history."""

    row: Id | None
    column: Id


class PredictResponse(Answer):
    """Predictions in the order of the request."""

    predictions: list[PairPrediction]


class RecommendedColumn(Prediction):
    """A column, its prediction and probabilities, and the entries and features that explain it, if
    requested."""

    column: Id
    column_name: Name = None
    features: dict[str, EncodedFeature] | None = Field(
        default=None,
        description="The known features of the column, if any.",
        exclude_if=lambda known: known is None,
    )
    presence: float | None = Field(
        default=None, description="Probability that the row has an entry in the column."
    )
    liked: float | None = Field(
        default=None, description="Probability that such an entry has a relevant value."
    )
    reasons: list[EntryReason] | None = None
    feature_reasons: list[FeatureReason] | None = None
    presence_reasons: list[EntryReason] | None = Field(
        default=None,
        description="Entries that raise the probability that the row takes the column, and by how much.",
    )


class RecommendResponse(Answer):
    """The recommended columns, best first."""

    row: Id | None
    rank_by: RankBy | Literal["popularity"]
    relevant: float | None = Field(
        default=None, description="Smallest value that counts as liked; none without liked."
    )
    best: list[RecommendedColumn]


class ExplainResponse(Prediction, Answer):
    """A prediction and the entries and features of the row that raise or lower it most."""

    row: Id | None
    column: Id
    column_name: Name = None
    entries: list[EntryReason]
    features: list[FeatureReason]
    presence: list[EntryReason] = Field(
        default=[],
        description="Entries that raise the probability that the row takes the column, and by how much.",
    )


class SimilarId(BaseModel):
    """A column or a row, and the cosine similarity of its latent."""

    id: Id
    name: Name = None
    cosine: float


class SimilarResponse(Answer):
    """The most similar columns or rows, most similar first."""

    axis: Axis
    id: Id
    name: Name = None
    similar: list[SimilarId]


# Columns and the model


class ColumnSummary(BaseModel):
    """A column: its number of entries, whether training had it, and its known features."""

    column: Id
    column_name: Name = None
    n_entries: int
    trained: bool
    shown: bool = Field(default=True, description="Whether it can be recommended now.")
    features: dict[str, EncodedFeature] | None = None


class ColumnsResponse(Answer):
    """A page of columns that match a search: prefix matches first, then by number of entries."""

    columns: list[ColumnSummary]
    total: int
    next_offset: int | None


class ScaleSummary(BaseModel):
    """The scale of the values: its levels, if it has any, and its limits."""

    levels: list[float] | None
    low: float
    high: float


class FeatureSummary(BaseModel):
    """A feature that the model reads, with the first of its categories."""

    name: str
    kind: Literal["number", "position", "category", "list", "date", "vector", "similarity"]
    categories: list[str] | None
    n_categories: int | None


class ModelResponse(Answer):
    """The model behind the service."""

    model: str = Field(description="The class of the model.")
    scale: ScaleSummary
    has_values: bool = Field(
        description="False for interactions: values that are sent and returned are counts."
    )
    n_rows: int
    n_columns: int
    n_entries: int
    n_trained_rows: int
    n_trained_columns: int
    areas: list[Area] = Field(description="The areas that it predicts.")
    gives_distribution: bool
    ids: dict[str, Literal["text", "number"]]
    nouns: dict[Axis, str] = Field(
        description="Words for a row and a column, such as user and film."
    )
    row_features: list[FeatureSummary]
    column_features: list[FeatureSummary]


# Operation


class UnusedEntry(BaseModel):
    """An entry in the database that the model cannot use, and why."""

    row: Id | None = Field(description="Null if it belongs to a visitor of the page.")
    column: Id
    reason: str


class HealthResponse(BaseModel):
    """Whether the service runs, or is ready, and the stored entries that the model cannot use."""

    status: Literal["ok", "ready"]
    n_unused: int = Field(
        default=0,
        description="Number of stored entries that the model cannot use; absent if it is 0.",
        exclude_if=lambda number: number == 0,
    )
    unused: list[UnusedEntry] = Field(
        default=[],
        description="The first of them, for API keys with the role rows.",
        exclude_if=lambda entries: not entries,
    )


class OperatorResponse(Answer):
    """Numbers of requests and learned entries since the start."""

    seconds_up: float
    n_requests: int
    n_failed: int
    n_learned: int
