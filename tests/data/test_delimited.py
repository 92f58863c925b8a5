"""Delimited text: what a number is, and files whose lines are none."""

from pathlib import Path

import pytest

from deepmf.data.delimited import DelimitedFile, checked_separator, is_missing, is_number
from deepmf.errors import BadSetting, UnreadableFile


def test_numbers_are_those_of_files() -> None:
    assert all(map(is_number, ["1", "-1.5", "+3", ".5", "5.", "1e5", " 2 ", "nan", "-inf"]))
    assert not any(map(is_number, ["", "1_0", "٣", "1٣", "0x10", "1,5", "one", "e5", "."]))
    assert all(map(is_missing, ["", " ", "NA", "n/a", "NaN", "null", "?"]))
    assert not any(map(is_missing, ["0", "Alien"]))


def test_carriage_returns_alone(tmp_path: Path) -> None:
    for content in (b"user,item,rating\r1,2,3\r2,3,4\r", b"user\titem\trating\r1\t2\t3"):
        (tmp_path / "mac.csv").write_bytes(content)
        with pytest.raises(UnreadableFile, match="lines end in a carriage return alone"):
            DelimitedFile(tmp_path / "mac.csv").head()


def test_a_field_without_end(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text(f"user,item,rating\n{'x' * 200_000},2,3\n")
    file = DelimitedFile(tmp_path / "long.csv")
    with pytest.raises(UnreadableFile, match=r"long.csv cannot be read as text split at ',' \(field larger than"):
        file.fields(file.head().lines, ",")


def test_separators() -> None:
    assert [checked_separator(one) for one in ("::", "\t", "#")] == ["::", "\t", "#"]
    for none in ("", ",,", "§", "\n", '"'):
        with pytest.raises(BadSetting, match="separator must be one character or '::'"):
            checked_separator(none)
