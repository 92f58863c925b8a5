"""The columns of a file that its role needs, from delimited text, Parquet or JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.data.delimited import SAMPLE_LINES, DelimitedFile
from deepmf.data.ids import are_written_so, is_whole, whole_or_text
from deepmf.data.messy_numbers import parsed
from deepmf.data.roles import IsKnown, Role
from deepmf.data.source import checked_path, reading
from deepmf.data.text_layout import TextLayout, recognise, refuse_wide
from deepmf.data.typed_file import ENDINGS, check_lines, format_of, read_typed, scan_typed_file
from deepmf.errors import BadEntries, UnreadableFile
from deepmf.files.frame_library import import_polars
from deepmf.matrix.frames import choose_columns, is_guess

if TYPE_CHECKING:
    import polars as pl

Column = str | int | None

_ODD = "\x1f"  # the name of a column that no file has


class RoleColumns(NamedTuple):
    """The columns of a role, in its order under the names of the file; where it has none, under those of the role.

    first_line: the number of their first line, counted from 1; None where a file has no lines.
    has_names: whether the names are those of the file.
    guessed: whether some column was neither asked for nor the only one under a usual name.
    places: where the columns stand in the file.
    """

    frame: pl.DataFrame
    first_line: int | None
    has_names: bool
    guessed: bool
    places: tuple[int, ...]

    def told(self, role: Role) -> str:
        """Say which fields were taken for what."""
        names = map(repr, self.frame.columns) if self.has_names else (f"field {place}" for place in self.places)
        verbs = ("is taken as", *["as"] * len(role.columns))
        *before, last = (
            f"{name} {verb} the {part}" for name, verb, part in zip(names, verbs, role.columns, strict=False)
        )
        return f"{', '.join(before)} and {last}" if before else last


class ColumnScan(NamedTuple):
    """The columns of a role as a lazy frame, all text in text, and what is known of them before they are read.

    is_text: whether they come from delimited text.
    firm: for each column, whether its ids have the type that they have in the file; in text, digits may be numbers.
    """

    lazy: pl.LazyFrame
    found: RoleColumns
    is_text: bool
    firm: tuple[bool, ...]


def scan_columns(
    path: Path,
    role: Role,
    *,
    asked: Mapping[str, Column],
    separator: str | None = None,
    header: bool | None = None,
    decimal: str = ".",
) -> ColumnScan:
    """Find the columns of a role that defines ids as `read_columns` does, for them to be read some lines at a time."""
    wanted = {name: asked.get(name) for name in role.columns}
    polars = import_polars()
    if path.suffix.lower() in ENDINGS:
        with reading(path, format_of(path)):
            lazy = scan_typed_file(path)
            names = lazy.collect_schema().names()
            chosen = _chosen_typed(path, role, lazy, wanted)
            check_lines(path, lazy, len(chosen))
            scanned, renamed, first_line, has_names = lazy.select(chosen), chosen, None, True
            firm = tuple(True for _ in chosen)
    else:
        file, layout = _laid_out(path, role, wanted, separator, header, lambda _: False, decimal)
        names, chosen = layout.names, _chosen_text(file, role, layout, wanted)
        renamed = chosen if layout.has_header else list(role.columns)
        scanned = scan_typed(file, layout, {}).select(chosen).rename(dict(zip(chosen, renamed, strict=True)))
        first_line, has_names = layout.first_line, layout.has_header
        firm = tuple(name in layout.quoted for name in chosen)
    empty = polars.DataFrame(schema=dict.fromkeys(renamed, polars.String))
    places = tuple(map(names.index, chosen))
    found = RoleColumns(empty, first_line, has_names, is_guess(names, wanted), places)
    return ColumnScan(scanned, found, first_line is not None, firm)


def read_columns(
    path: str | Path,
    role: Role,
    *,
    asked: Mapping[str, Column] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    is_known: IsKnown = lambda _: False,
    decimal: str = ".",
) -> RoleColumns:
    """Read the columns that a role needs; `asked` gives names or positions for some of them.

    Otherwise usual names are recognised, and where there are none the first columns are taken. In text, a name that is
    asked for makes the first line a header, and an id that `is_known` makes it none.
    """
    path = checked_path(path)
    wanted = {name: (asked or {}).get(name) for name in role.columns}
    if path.suffix.lower() in ENDINGS:
        found = _from_typed(path, role, wanted)
    else:
        file, layout = _laid_out(path, role, wanted, separator, header, is_known, decimal)
        found = _from_text(file, role, layout, wanted, decimal)
    if found.frame.height == 0:
        raise UnreadableFile(f"{path} holds no {role.content}")
    return found


def _laid_out(
    path: Path,
    role: Role,
    wanted: Mapping[str, Column],
    separator: str | None,
    header: bool | None,
    is_known: IsKnown,
    decimal: str,
) -> tuple[DelimitedFile, TextLayout]:
    named = any(isinstance(name, str) for name in wanted.values())
    header = True if named and header is None else header
    file = DelimitedFile(path)
    return file, recognise(file, role, separator=separator, header=header, is_known=is_known, decimal=decimal)


def _from_typed(path: Path, role: Role, wanted: Mapping[str, Column]) -> RoleColumns:
    names: list[str] = []

    def choose(lazy: pl.LazyFrame) -> list[str]:
        names.extend(lazy.collect_schema().names())
        return _chosen_typed(path, role, lazy, wanted)

    frame = read_typed(path, choose)
    places = tuple(map(names.index, frame.columns))
    return RoleColumns(frame, None, True, is_guess(names, wanted), places)


def _from_text(
    file: DelimitedFile, role: Role, layout: TextLayout, wanted: Mapping[str, Column], decimal: str
) -> RoleColumns:
    chosen = _chosen_text(file, role, layout, wanted)
    frame = _typed(file, layout, chosen, decimal) if role.defines_ids else _texts(file, layout, chosen)
    if not layout.has_header:
        frame = frame.rename(dict(zip(chosen, role.columns, strict=True)))
    guessed = is_guess(layout.names, wanted)
    return RoleColumns(frame, layout.first_line, layout.has_header, guessed, tuple(map(layout.names.index, chosen)))


def _chosen_typed(path: Path, role: Role, lazy: pl.LazyFrame, wanted: Mapping[str, Column]) -> list[str]:
    names = lazy.collect_schema().names()
    if _may_be_wide(role, wanted):
        head = lazy.head(SAMPLE_LINES).collect().rows()
        sample = [["" if cell is None else str(cell) for cell in line] for line in head]
        refuse_wide(path, names, sample)
    return _chosen(path, names, wanted)


def _chosen_text(file: DelimitedFile, role: Role, layout: TextLayout, wanted: Mapping[str, Column]) -> list[str]:
    if _may_be_wide(role, wanted):
        names = layout.names if layout.has_header else layout.sample[0]
        refuse_wide(file.path, names, layout.sample)
    return _chosen(file.path, layout.names, wanted)


def _may_be_wide(role: Role, wanted: Mapping[str, Column]) -> bool:
    return role.defines_ids and wanted["column"] is None and wanted["value"] is None


def _chosen(path: Path, names: list[str], wanted: Mapping[str, Column]) -> list[str]:
    try:
        return list(choose_columns(names, wanted).values())
    except BadEntries as error:
        raise BadEntries(f"{path}: {error.message}") from error


def _texts(file: DelimitedFile, layout: TextLayout, chosen: list[str]) -> pl.DataFrame:
    """Read columns as text, without blank lines."""
    polars = import_polars()
    n_skipped = layout.first_line - 1
    if layout.separator == "::":  # polars separates at one byte, and an id may hold a colon
        lines = file.fields([line for line in file.lines()[n_skipped:] if line], layout.separator)
        places = {name: layout.names.index(name) for name in chosen}
        columns = {name: [line[at] if at < len(line) else None for line in lines] for name, at in places.items()}
        frame: pl.DataFrame = polars.DataFrame(columns, schema=dict.fromkeys(chosen, polars.String))
    else:
        with reading(file.path, "text"):
            lazy = file.scan(layout.names, layout.separator, n_skipped=n_skipped, ignore_more=True)
            frame = lazy.select(chosen).collect()
    return frame.filter(~polars.all_horizontal(polars.all().is_null()))


def _typed(file: DelimitedFile, layout: TextLayout, chosen: list[str], decimal: str) -> pl.DataFrame:
    """Read a row, a column and a value, their types decided by all of their lines; null is what is missing."""
    whole = [name for name in chosen[:2] if _looks_whole(layout, name)]
    polars = import_polars()
    with reading(file.path, "text"):
        if decimal == ".":
            # Where some field is not what the first lines promised, text is read, to find out which.
            with suppress(polars.exceptions.PolarsError):
                # Their lengths tell of ids such as 007, which a number would not keep as given.
                lengths = {name: f"{_ODD}{name}" for name in whole}
                typed = scan_typed(file, layout, {chosen[2]: polars.Float64}).select(
                    *(polars.col(name).cast(polars.Int64) if name in whole else polars.col(name) for name in chosen),
                    *(polars.col(name).str.len_bytes().sum().alias(length) for name, length in lengths.items()),
                )
                frame = typed.collect()
                if frame.height == 0 or all(are_written_so(frame[name], frame[lengths[name]][0]) for name in whole):
                    return without_blank_end(frame.select(chosen))
        texts = scan_typed(file, layout, {}).select(chosen).collect()
    return _cast(without_blank_end(texts), file.path, layout, decimal)


def _looks_whole(layout: TextLayout, name: str) -> bool:
    at = layout.names.index(name)
    if name in layout.quoted:
        return False
    return all(is_whole(fields[at]) for fields in layout.sample if at < len(fields))


def scan_typed(file: DelimitedFile, layout: TextLayout, types: dict[str, Any]) -> pl.LazyFrame:
    """Scan a file as it is laid out, as text but for columns of other types."""
    names = layout.names
    if layout.separator == "::":  # polars splits at one byte: every second field is the empty one between the colons
        names = [part for name in layout.names for part in (name, f"{_ODD}{name}")][:-1]
    return file.scan(names, layout.separator, n_skipped=layout.first_line - 1, types=types)


def without_blank_end(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out blank lines at the end of the file."""
    if frame.height == 0 or any(field is not None for field in frame.row(-1)):
        return frame
    polars = import_polars()
    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series().arg_true()
    return frame.head(filled[-1] + 1 if filled.len() else 0)


def _cast(texts: pl.DataFrame, path: Path, layout: TextLayout, decimal: str) -> pl.DataFrame:
    """Turn three text columns into ids and numbers, naming the first value that is not a number."""
    row, column, value = texts.get_columns()
    try:
        numbers = parsed(value, decimal=decimal)
    except BadEntries as error:
        assert error.position is not None
        raise BadEntries(f"{path}, line {error.position + layout.first_line}: {error.message}") from error
    ids = (series if series.name in layout.quoted else whole_or_text(series) for series in (row, column))
    typed: pl.DataFrame = import_polars().DataFrame([*ids, numbers])
    return typed
