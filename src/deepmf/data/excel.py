"""Reading the first sheet of an Excel file, within a bound on its cells."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from deepmf.data.source import ALWAYS_ALLOWED, MOST_EXPANSION, check_expansion, summarise
from deepmf.errors import UnreadableFile, import_optional, warn
from deepmf.files import polars

CELL_BYTES = 8


def read_excel(path: Path) -> polars.DataFrame:
    """Read the first sheet of an Excel file, with names in its first line; warn if there are other
    sheets."""
    openpyxl = import_optional(
        "openpyxl", what="Excel files need openpyxl", install="'deepmf[xlsx]'"
    )
    try:
        with ZipFile(path) as archive:
            check_expansion(path, sum(part.file_size for part in archive.infolist()))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of styles and the like
                # Read-only: other readings make a cell for each cell of a merged or linked range.
                book = openpyxl.load_workbook(path, read_only=True, data_only=True)
                frame = _build_frame(path, list(_iterate_lines(path, book.worksheets[0])))
    except UnreadableFile:
        raise
    except Exception as error:  # openpyxl, zipfile and polars raise anything over a broken file
        raise UnreadableFile(f"{path} is not a whole Excel file ({summarise(error)})") from error
    if len(book.sheetnames) > 1:
        warn(
            f"{path}: of its {len(book.sheetnames)} sheets, the first is read ({book.sheetnames[0]!r})"
        )
    return frame


def _iterate_lines(path: Path, sheet: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the lines that are not empty; refuse a sheet with more cells than its
    size suggests."""
    sheet.reset_dimensions()  # they may be wrong
    width = 0
    most = max(ALWAYS_ALLOWED, MOST_EXPANSION * path.stat().st_size) // CELL_BYTES
    for number, line in enumerate(sheet.iter_rows(values_only=True), 1):
        width = max(width, len(line))
        if number > 1 << 20 or number * width > most:
            raise UnreadableFile(
                f"{path} has {number:,} lines and {width:,} columns or more, too many for its size; delete the cells "
                "far from the others"
            )
        if line and any(cell is not None for cell in line):
            yield line


def _build_frame(path: Path, lines: list[tuple[Any, ...]]) -> polars.DataFrame:
    """Return the columns that have a name; the first line names them."""
    names = next(iter(lines), ())
    places = [at for at, name in enumerate(names) if name not in (None, "")]
    series = [
        polars.Series(
            str(names[at]),
            [line[at] if at < len(line) else None for line in lines[1:]],
            strict=False,
        )
        for at in places
    ]
    if not series:
        raise UnreadableFile(f"{path} is empty")
    frame = polars.DataFrame(series)
    return frame.filter(~polars.all_horizontal(polars.all().is_null()))
