"""Files to read: paths that are refused, decompression, and files that expand too far."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from deepmf.data import pack, read_features, read_matrix, source
from deepmf.data.source import prepare_text
from deepmf.errors import BadSetting, DeepMFWarning, UnreadableFile

TEXT = b"user,item,rating\n" + b"".join(b"%d,%d,%d\n" % (k, k * 7 % 13, k % 5) for k in range(2000))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_gzip_of_several_members(tmp_path: Path) -> None:
    members = gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])
    assert prepare_text(write(tmp_path / "t.gz", members)) == TEXT
    for content in (zlib.compress(TEXT), b"\x28\xb5\x2f\xfd\x00\x58"):
        with pytest.raises(UnreadableFile, match="zstd or zlib"):
            prepare_text(write(tmp_path / "t", content))


def test_a_bomb_of_gzip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ALWAYS_ALLOWED", 1 << 20)
    bomb = write(tmp_path / "bomb.csv.gz", gzip.compress(b"1,2,3\n" * 500_000))
    with pytest.raises(UnreadableFile, match="250"):
        prepare_text(bomb)
    monkeypatch.undo()
    assert len(prepare_text(bomb)) == 3_000_000  # type: ignore[arg-type]


def test_windows_1252_is_read_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes("user,item,rating\na,“Köln”,5\nb,Big,2\n".encode("cp1252"))
    with pytest.warns(DeepMFWarning, match="1252"):
        matrix = read_matrix(path)
    assert matrix.column_labels.tolist() == ["Big", "“Köln”"]


@pytest.mark.parametrize(
    "content",
    ["user,item\na,Kölnö\nb,ä".encode()[:-1], bytes(range(256))],
    ids=["cut off", "binary"],
)
def test_damaged_utf_8_and_binary_files_are_not_taken_for_windows_1252(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(UnreadableFile, match="UTF-8"):
        read_matrix(tmp_path / "x.csv", value=None)


POLISH = "user,film,stars\nann,Łódź,5\nbob,Big,3\n"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1250", "UTF-16-LE", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_encoding_that_is_given_is_used(
    tmp_path: Path, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    path = write(tmp_path / "films.csv", compress(POLISH.encode(encoding)))
    films = read_matrix(path, encoding=encoding)
    assert films.column_labels.tolist() == ["Big", "Łódź"]
    assert films.form.row == "user"  # no byte order mark before the first name
    assert read_features(path, label="film", encoding=encoding).labels.tolist() == ["Łódź", "Big"]
    assert pack(path, tmp_path / "films.store", encoding=encoding) == films


@pytest.mark.parametrize("encoding", ["klingon", "hex", "a\0b"])
def test_an_unknown_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "films.csv", POLISH.encode("cp1250"))
    for read in (read_matrix, read_features):
        with pytest.raises(BadSetting, match="encoding"):
            read(path, encoding=encoding)  # type: ignore[operator]
    with pytest.raises(UnreadableFile, match="utf-8"):
        read_matrix(path, encoding="utf-8")
