"""The bodies that describe the model: what it is, the columns it has, and the map of its latents."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from deepmf.serve.bodies import Area, VersionBody
from deepmf.serve.feature_bodies import FeatureDescription, ReadFeature


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
