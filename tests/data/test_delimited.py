"""Delimited text: lines, fields, and what the text of a field means."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from deepmf.data.delimited import (
    DelimitedFile,
    check_separator,
    is_missing,
    is_number,
    is_whole,
    parse_ids,
    parse_numbers,
    parse_whole_numbers,
)
from deepmf.data.read import ReadOptions
from deepmf.errors import BadEntries, BadSetting, UnreadableFile


def test_numbers_are_those_of_files() -> None:
    assert all(map(is_number, ["1", "-1.5", "+3", ".5", "5.", "1e5", " 2 ", "nan", "-inf"]))
    assert not any(map(is_number, ["", "1_0", "٣", "1٣", "0x10", "1,5", "one", "e5", "."]))
    assert all(map(is_missing, ["", " ", "NA", "n/a", "NaN", "null", "?"]))
    assert not any(map(is_missing, ["0", "Alien"]))


def test_carriage_returns_alone(tmp_path: Path) -> None:
    for content in (b"user,item,rating\r1,2,3\r2,3,4\r", b"user\titem\trating\r1\t2\t3"):
        (tmp_path / "mac.csv").write_bytes(content)
        with pytest.raises(UnreadableFile, match="carriage"):
            DelimitedFile(tmp_path / "mac.csv").read_head()


def test_a_field_without_end(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text(f"user,item,rating\n{'x' * 200_000},2,3\n")
    file = DelimitedFile(tmp_path / "long.csv")
    with pytest.raises(UnreadableFile, match="long.csv"):
        file.split_lines(file.read_head(), ",")


def test_separators() -> None:
    for separator in ("::", "\t", "#"):
        check_separator(separator)
    for other in ("", ",,", "§", "\n", '"'):
        with pytest.raises(BadSetting, match="separator"):
            check_separator(other)


WHOLE = ["0", "7", "-7", "9223372036854775807"]

OTHERS = ["-0", "007", "+7", " 7", "1_0", "1٣", "٣", "7.5", ""]


BEYOND = "9223372036854775808"  # an int of 64 bits


def test_whole_numbers_and_ids() -> None:
    assert all(map(is_whole, [*WHOLE, BEYOND])) and not any(map(is_whole, OTHERS))
    numbers = list(map(int, WHOLE))
    assert parse_ids(pl.Series(WHOLE)).to_list() == numbers
    for other in [*OTHERS, BEYOND]:  # a single text makes all ids texts
        assert parse_ids(pl.Series(["7", other])).to_list() == ["7", other]
    alone = parse_whole_numbers(pl.Series([*WHOLE, *OTHERS, BEYOND]))
    assert alone.to_list() == [*numbers, *[None] * (len(OTHERS) + 1)]


def test_gaps_are_null() -> None:
    found = parse_numbers(pl.Series(["1.5", None, "", " NA ", "null", "NaN", "n/a", "-", "-2"]))
    assert found.to_list() == [1.5, *[None] * 7, -2.0]


def test_decimal_commas() -> None:
    numbers = parse_numbers(pl.Series(["1,5", " 2 ", "-0,25", "NA"]), decimal=",")
    assert numbers.to_list() == [1.5, 2.0, -0.25, None]
    for text in ("1.5", "1.234,5", "1,2,3"):
        with pytest.raises(BadEntries, match="number$"):
            parse_numbers(pl.Series(["1", text]), decimal=",")


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(BadEntries, match="'good'") as caught:
        parse_numbers(pl.Series(["1", "good", "bad"]))
    assert caught.value.position == 1
    with pytest.raises(BadEntries, match="decimal"):
        parse_numbers(pl.Series(["3,5"]))
    with pytest.raises(BadSetting, match="';'"):
        ReadOptions(decimal=";")
