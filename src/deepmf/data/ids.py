"""Ids in text: which are whole numbers, that is, read back as they stand; 007, +7 and -0 are texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deepmf.files.frame_library import import_polars

if TYPE_CHECKING:
    import polars as pl

_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_BEYOND = 10**18


def is_whole(text: str) -> bool:
    """Say whether a text is a whole number that reads back as it stands: neither 007 nor +7 nor -0."""
    return _WHOLE.fullmatch(text) is not None


def whole_or_text(ids: pl.Series) -> pl.Series:
    """Return ids as ints if all of them are whole numbers, otherwise as they are."""
    numbers = ids.cast(import_polars().Int64, strict=False)
    if numbers.null_count() > ids.null_count() or not are_written_so(numbers, int(ids.str.len_bytes().sum())):
        return ids
    return numbers


def whole_or_null(ids: pl.Series) -> pl.Series:
    """Return ids as ints, null where one is no whole number."""
    polars = import_polars()
    numbers = ids.cast(polars.Int64, strict=False)
    return numbers.set(numbers.cast(polars.String) != ids, None)


def are_written_so(numbers: pl.Series, n_characters: int) -> bool:
    """Say whether texts that were read as ints, with this number of characters in all, are these ints as written.

    Whatever else reads as an int (007, +7, -0) is longer; to add up lengths takes a fraction of the time that writing
    the ints and comparing texts would.
    """
    low, high = numbers.min(), numbers.max()
    if low is None:
        return True
    assert isinstance(low, int) and isinstance(high, int)
    if low <= -_BEYOND or high >= _BEYOND:
        return False
    n_written, sizes = len(numbers) - numbers.null_count(), numbers
    if low < 0:
        n_written += int((numbers < 0).sum())
        sizes = numbers.abs()
    for power in range(1, len(str(max(-low, high)))):
        n_written += int((sizes >= 10**power).sum())
    return n_written == n_characters
