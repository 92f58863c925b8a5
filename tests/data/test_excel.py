"""Excel files: the first sheet or its table is read, within a bound on its cells."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from deepmf.data import read_features, read_matrix
from deepmf.errors import DeepMFWarning, UnreadableFile, UserError

openpyxl = pytest.importorskip("openpyxl", reason="the extra xlsx is not installed")

LINES = (["user", "item", "rating"], ["ann", "Alien", 5], ["bob", "Big", 2])
SHEET = "xl/worksheets/sheet1.xml"


def make_book(*, line: int = 1, column: int = 1) -> Any:
    """A book whose lines begin at a cell."""
    book = openpyxl.Workbook()
    for below, fields in enumerate(LINES):
        for beside, field in enumerate(fields):
            book.active.cell(line + below, column + beside, field)
    return book


def test_the_first_sheet_is_read(tmp_path: Path) -> None:
    book = make_book()
    book.active.title = "Ann & Bob"
    book.create_sheet("Notes")
    book.save(tmp_path / "x.xlsx")
    with pytest.warns(DeepMFWarning, match="'Ann & Bob'"):
        assert read_matrix(tmp_path / "x.xlsx").entries().values.tolist() == [5, 2]


@pytest.mark.parametrize(
    ("old", "new", "is_read"),
    [
        (b"</sheetData>", b'</sheetData><mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells>', True),
        (b'ref="A1:C3"', b'ref="A1"', True),
        (b'r="C3"', b'r="XFD3"', False),  # the rating of bob is elsewhere
        (b'r="C3"', b'r="ZZZZ3"', False),
        (b't="inlineStr"', b't="d"', False),
        (b"</c>", b"</d>", False),
        (b"<sheetData>", b"<sheetData><sheetData>", False),
    ],
)  # fmt: skip
def test_a_changed_sheet_is_read_or_refused(
    tmp_path: Path, old: bytes, new: bytes, is_read: bool
) -> None:
    make_book().save(tmp_path / "whole.xlsx")
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    assert old in members[SHEET]
    members[SHEET] = members[SHEET].replace(old, new)
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w") as other:
        for name, content in members.items():
            other.writestr(name, content)
    if is_read:
        assert read_matrix(tmp_path / "x.xlsx").n_entries == 2
    else:
        with pytest.raises(UserError):
            read_matrix(tmp_path / "x.xlsx")


@pytest.mark.slow
@pytest.mark.parametrize("read", [read_matrix, read_features])
def test_a_cell_far_away_is_refused_before_memory_is_taken(tmp_path: Path, read: Any) -> None:
    book = make_book()
    book.active["XFD1048576"] = 1
    book.save(tmp_path / "x.xlsx")
    with pytest.raises(UnreadableFile, match="16,384"):
        read(tmp_path / "x.xlsx")


@pytest.mark.parametrize("content", [b"PK nothing", b"PK\x03\x04" + bytes(60)])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.xlsx").write_bytes(content)
    with pytest.raises(UnreadableFile, match="Excel"):
        read_matrix(tmp_path / "x.xlsx")
