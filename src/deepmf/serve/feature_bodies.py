"""Bodies about features: what a request gives of a row or column, and what is told of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Discriminator, Field, Tag

from deepmf.serve.bodies import LONGEST_ID, RequestBody, Value, VersionBody

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
