"""Numbers as people write them in tables: gaps under several names, decimal commas; what is none is named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deepmf.data.delimited import MISSING_WORDS
from deepmf.errors import BadEntries, BadSetting
from deepmf.files.frame_library import import_polars

if TYPE_CHECKING:
    import polars as pl

DECIMALS = (".", ",")
DECIMAL_HINT = "decimal=',' reads decimal commas"

_WITH_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+\s*")


def check_decimal(decimal: str) -> None:
    """Refuse a decimal mark that is none."""
    if decimal not in DECIMALS:
        raise BadSetting(f"decimal must be '.' or ','; got {decimal!r}")


def parsed(texts: pl.Series, *, decimal: str = ".") -> pl.Series:
    """Return texts as floats, null where one stands for a missing value; one that is no number is an error."""
    polars = import_polars()
    plain = texts.str.strip_chars()
    is_gap = plain.str.to_lowercase().is_in(MISSING_WORDS).fill_null(True)
    if decimal == ",":
        # A point would separate thousands, or nothing: neither is guessed.
        plain = plain.set(plain.str.contains(".", literal=True), None).str.replace(",", ".", literal=True)
    numbers: pl.Series = plain.cast(polars.Float64, strict=False).set(is_gap, None).fill_nan(None)
    wrong = (numbers.is_null() & ~is_gap).arg_true()
    if wrong.len():
        text = texts[wrong[0]]
        hint = f"; {DECIMAL_HINT}" if decimal == "." and _WITH_COMMA.fullmatch(text) else ""
        raise BadEntries(f"value {text!r} is not a number{hint}", position=wrong[0])
    return numbers
