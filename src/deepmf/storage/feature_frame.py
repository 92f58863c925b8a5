"""Features as a frame: a line per label, in types that tell numbers, categories, lists and dates apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepmf.files.frame_library import import_polars
from deepmf.matrix.features import Features
from deepmf.matrix.frames import label_series

if TYPE_CHECKING:
    import polars as pl

_BETWEEN_ITEMS = "|"  # of a list in delimited text


def feature_frame(features: Features, label: str) -> pl.DataFrame:
    """Return features as a polars frame whose first column, of this name, has the labels; gaps are null."""
    polars = import_polars()
    types = {"number": polars.Float64, "category": polars.String, "list": polars.List(polars.String)}
    columns = [label_series(features.labels).alias(label)]
    for name, kind in features.kinds.items():
        values: list[Any] = features.values(name).tolist()  # dates as such, None where one is missing
        column = polars.Series(name, values, dtype=types.get(kind, polars.Date), strict=False)
        columns.append(column.fill_nan(None) if kind == "number" else column)
    frame: pl.DataFrame = polars.DataFrame(columns)
    return frame


def lists_as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame for delimited text, in which a list is its items with bars between them."""
    polars = import_polars()
    return frame.with_columns(polars.col(polars.List(polars.String)).list.join(_BETWEEN_ITEMS))
