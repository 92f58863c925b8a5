"""Ids in text: which are whole numbers, that is, read back as they stand; 007, +7 and -0 are texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from deepmf.files.frame_library import import_polars

if TYPE_CHECKING:
    import polars as pl

_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_WHOLE_IN_64_BITS = "^(0|-?[1-9][0-9]{0,17})$"
_BEYOND = 10**18


def is_whole(text: str) -> bool:
    """Say whether a text is a whole number that reads back as it stands: neither 007 nor +7 nor -0."""
    return _WHOLE.fullmatch(text) is not None


def whole_or_text(ids: pl.Series) -> pl.Series:
    """Return ids as ints if all of them are whole numbers, otherwise as they are."""
    return ids.cast(import_polars().Int64) if ids.str.contains(_WHOLE_IN_64_BITS).all() else ids


def whole_or_null(ids: pl.Series) -> pl.Series:
    """Return ids as ints, null where one is no whole number."""
    polars = import_polars()
    numbers = ids.cast(polars.Int64, strict=False)
    return numbers.set(numbers.cast(polars.String) != ids, None)


def any_unlike_whole(name: str) -> Any:
    """Return the expression that says whether an int would not keep some id of a column as given."""
    polars = import_polars()
    number = polars.col(name).cast(polars.Int64)
    beyond = ~number.is_between(-_BEYOND, _BEYOND, closed="none")
    return ((number.cast(polars.String) != polars.col(name)) | beyond).any()
