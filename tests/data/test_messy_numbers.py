"""Numbers as people write them: gaps, decimal commas, and the first text that is no number."""

import polars as pl
import pytest

from deepmf.data.messy_numbers import check_decimal, parsed
from deepmf.errors import BadEntries, BadSetting


def test_gaps_are_null() -> None:
    found = parsed(pl.Series(["1.5", None, "", " NA ", "null", "NaN", "n/a", "-", "-2"]))
    assert found.to_list() == [1.5, *[None] * 7, -2.0]


def test_decimal_commas() -> None:
    assert parsed(pl.Series(["1,5", " 2 ", "-0,25", "NA"]), decimal=",").to_list() == [1.5, 2.0, -0.25, None]
    for text in ("1.5", "1.234,5", "1,2,3"):
        with pytest.raises(BadEntries, match="is not a number$"):
            parsed(pl.Series(["1", text]), decimal=",")


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(BadEntries, match="entry 1: value 'good' is not a number$") as caught:
        parsed(pl.Series(["1", "good", "bad"]))
    assert caught.value.position == 1
    with pytest.raises(BadEntries, match="value '3,5' is not a number; decimal=',' reads decimal commas"):
        parsed(pl.Series(["3,5"]))
    with pytest.raises(BadSetting, match="decimal must be '.' or ','; got ';'"):
        check_decimal(";")
