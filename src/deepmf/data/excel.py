"""Reading the first sheet of an Excel file, or the table on it, within a bound on its cells."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from posixpath import basename, normpath
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from deepmf.data.source import ALWAYS_ALLOWED, MOST_EXPANSION, check_expansion, summarise
from deepmf.errors import MissingDependency, UnreadableFile, warn
from deepmf.files import import_polars

if TYPE_CHECKING:
    import polars as pl

_CELL_BYTES = 8
_MOST_LINES = 1 << 20  # of a sheet, as in Excel
_SHEET_NAME = re.compile(r'<(?:\w+:)?sheet\s[^>]*?\bname="([^"]*)"')  # in xl/workbook.xml
_TABLE_PATH = re.compile(r'\bTarget="([^"]*tables/[^"]*)"')  # in the relations of a sheet
_TABLE_PLACE = re.compile(r'<(?:\w+:)?table\s[^>]*?\bref="([A-Z]{1,3}[0-9]{1,7}:[A-Z]{1,3}[0-9]{1,7})"[^>]*>')
_TOTALS = re.compile(r'\btotalsRowCount="([0-9]{1,3})"')


def read_excel(path: Path) -> pl.DataFrame:
    """Read the first sheet of an Excel file, with names in its first line; warn if there are other sheets."""
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise MissingDependency("Excel files need openpyxl: pip install 'deepmf[xlsx]'") from error
    try:
        with ZipFile(path) as archive:
            check_expansion(path, sum(part.file_size for part in archive.infolist()))
            sheets = _SHEET_NAME.findall(archive.read("xl/workbook.xml").decode())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of styles and the like
                # Read-only: other readings make a cell for each cell of a merged or linked range.
                book = load_workbook(path, read_only=True, data_only=True)
                frame = _build_frame(path, list(_iterate_lines(path, archive, book.worksheets[0])))
    except UnreadableFile:
        raise
    except Exception as error:  # openpyxl, zipfile and polars raise anything over a broken file
        raise UnreadableFile(f"{path} is not a whole Excel file ({summarise(error)})") from error
    if len(sheets) > 1:
        message = f"{path}: of its {len(sheets)} sheets, the first is read ({unescape(sheets[0])!r})"
        warn(message)
    return frame


def _iterate_lines(path: Path, archive: ZipFile, sheet: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the lines that are not empty; refuse a sheet with more cells than its size suggests."""
    sheet.reset_dimensions()  # they may be wrong
    width, most = 0, max(ALWAYS_ALLOWED, MOST_EXPANSION * path.stat().st_size) // _CELL_BYTES
    for number, line in enumerate(sheet.iter_rows(values_only=True, **_find_table(archive, sheet)), 1):
        width = max(width, len(line))
        if number > _MOST_LINES or number * width > most:
            raise UnreadableFile(
                f"{path} has {number:,} lines and {width:,} columns or more, too many for its size; delete the cells "
                "far from the others"
            )
        if line and any(cell is not None for cell in line):
            yield line


def _find_table(archive: ZipFile, sheet: Any) -> dict[str, int]:
    """Return the first and last line and column of the first table on a sheet; nothing where there is none."""
    from openpyxl.utils import range_boundaries

    relations = f"xl/worksheets/_rels/{basename(sheet._worksheet_path)}.rels"
    found = _TABLE_PATH.search(archive.read(relations).decode()) if relations in archive.namelist() else None
    if found is None:
        return {}
    table = archive.read(normpath(f"xl/worksheets/{found[1]}" if found[1][0] != "/" else found[1][1:])).decode()
    place = _TABLE_PLACE.search(table)
    if place is None:
        raise ValueError("a table has no place")
    totals = _TOTALS.search(place[0])
    first_column, first_line, last_column, last_line = range_boundaries(place[1])
    last_line -= int(totals[1]) if totals else 0
    return {"min_col": first_column, "min_row": first_line, "max_col": last_column, "max_row": last_line}


def _build_frame(path: Path, lines: list[tuple[Any, ...]]) -> pl.DataFrame:
    """Return the columns that have a name; the first line names them."""
    polars = import_polars()
    names = lines[0] if lines else ()
    places = [at for at, name in enumerate(names) if name not in (None, "")]
    series = [
        polars.Series(str(names[at]), [line[at] if at < len(line) else None for line in lines[1:]], strict=False)
        for at in places
    ]
    if len({each.name for each in series}) < len(series):
        raise UnreadableFile(f"{path}: the first line names a column twice")
    if not series:
        raise UnreadableFile(f"{path} is empty")
    frame: pl.DataFrame = polars.DataFrame(series)
    return frame.filter(~polars.all_horizontal(polars.all().is_null()))
