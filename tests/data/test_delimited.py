"""Delimited text: what a number is, and files whose lines are none."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import polars
import pyarrow as pa
import pytest

from deepmf.data import delimited as source
from deepmf.data.delimited import (
    DelimitedFile,
    are_written_so,
    checked_path,
    checked_separator,
    is_missing,
    is_number,
    is_whole,
    text_source,
    whole_or_null,
    whole_or_text,
)
from deepmf.errors import BadSetting, FileAbsent, UnreadableFile


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


WHOLE = ["0", "7", "-7", "123456789012345678"]

OTHERS = ["-0", "007", "+7", " 7", "1_0", "1٣", "٣", "7.0", ""]


def test_whole_numbers() -> None:
    assert all(map(is_whole, [*WHOLE, "9223372036854775808"]))
    assert not any(map(is_whole, OTHERS))


def test_a_single_text_makes_all_ids_texts() -> None:
    assert whole_or_text(polars.Series(WHOLE)).to_list() == [int(text) for text in WHOLE]
    for other in [*OTHERS, "9223372036854775808"]:
        assert whole_or_text(polars.Series(["7", other])).to_list() == ["7", other]


def test_each_id_by_itself() -> None:
    largest = "9223372036854775807"
    ids = polars.Series([*WHOLE, largest, *OTHERS, "9223372036854775808"])
    assert whole_or_null(ids).to_list() == [*map(int, WHOLE), int(largest), *[None] * (len(OTHERS) + 1)]


def test_texts_that_ints_would_not_keep() -> None:
    edges = [str(sign * (10**power + more)) for power in range(18) for more in (-1, 0, 1) for sign in (1, -1)]
    kept = [*WHOLE, *dict.fromkeys(edges), None]
    assert are_written_so(polars.Series(kept).cast(int), sum(len(text) for text in kept if text))
    assert are_written_so(polars.Series([None], dtype=polars.Int64), 0)
    for other in ("-0", "007", "+7", "00", "-07"):  # what else polars reads as an int
        assert not are_written_so(polars.Series(["12345", other, "-6"]).cast(int), 7 + len(other))
    assert not are_written_so(polars.Series([10**18]), 19)


TEXT = b"user,item,rating\n" + b"".join(b"%d,%d,%d\n" % (k, k * 7 % 13, k % 5) for k in range(2000))


def zst(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"'a\\x00b' cannot be the name of a file"):
        checked_path("a\0b")
    with pytest.raises(UnreadableFile, match="File name too long"):
        checked_path(tmp_path / ("x" * 300))
    with pytest.raises(FileAbsent):
        checked_path(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFile, match="is not an ordinary file"):
        checked_path(tmp_path / "pipe")


def test_gzip_of_several_members(tmp_path: Path) -> None:
    assert text_source(write(tmp_path / "t.gz", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]))) == TEXT
    with pytest.raises(UnreadableFile, match="is compressed by zlib"):
        text_source(write(tmp_path / "t", zlib.compress(TEXT)))


@pytest.mark.parametrize("compress", [gzip.compress, zst])
def test_damage_is_one_sentence(tmp_path: Path, compress: object) -> None:
    content = compress(TEXT)  # type: ignore[operator]
    for cut in (12, len(content) // 2, len(content) - 1):
        with pytest.raises(UnreadableFile, match="damaged or cut off: it cannot be decompressed"):
            text_source(write(tmp_path / "cut", content[:cut]))


def test_a_bomb_of_gzip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ALWAYS_ALLOWED", 1 << 20)
    bomb = write(tmp_path / "bomb.csv.gz", gzip.compress(b"1,2,3\n" * 500_000))
    with pytest.raises(UnreadableFile, match=r"would expand to .* or more; .* at most 250 times its size"):
        text_source(bomb)
    monkeypatch.undo()
    assert len(text_source(bomb)) == 3_000_000  # type: ignore[arg-type]


def test_a_bomb_of_zstd_is_refused_before_it_expands(tmp_path: Path) -> None:
    """A frame of blocks that each repeat one byte 128 Ki times, four bytes a block: 2 GiB in 64 kB."""
    block = (1 << 1 | (128 << 10) << 3).to_bytes(3, "little") + b"1"
    bomb = write(tmp_path / "bomb.csv.zst", b"\x28\xb5\x2f\xfd\x00\x58" + block * (1 << 14))
    with pytest.raises(UnreadableFile, match=r"would expand to .* at most 250 times its size"):
        text_source(bomb)
    for content in (zst(TEXT * 50), b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zst(TEXT), zst(TEXT) + zst(TEXT)):
        whole = write(tmp_path / "whole.csv.zst", content)
        assert text_source(whole) == whole
