"""Two fields of each line of a text or Parquet file, found by name, by usual name or by place."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.cli.inputs import Reading, name_or_position
from deepmf.errors import BadEntries, BadSetting, FileAbsent, UnreadableFile

if TYPE_CHECKING:
    import polars as pl

# Tried in this order; the first that cuts all of the first lines into at least two fields is taken.
_SEPARATORS = ("::", "\t", ",", ";", "|", " ")
_SAMPLE_LINES = 200
_WHOLE_LINE = "\x1f"  # a separator that no text contains
_ABSENT = "\x1fabsent"  # stands in for the field that is not looked for

IsHeader = Callable[[list[str]], bool]


def read_fields(path: Path, roles: tuple[str, str], reading: Reading, *, is_header: IsHeader) -> pl.DataFrame:
    """Read two of "row", "column" and "value" from each line, in that order; what else a line holds is ignored.

    In text all fields are text, and the first line is the header where `is_header` says so of its fields.
    """
    _check_readable(path)
    if path.suffix.lower() in (".parquet", ".pq"):
        frame = _parquet(path, roles, reading)
    else:
        frame = _text(path, roles, reading, is_header)
    if frame.height == 0:
        raise UnreadableFile(f"{path} holds no lines with a {' and a '.join(roles)}")
    return frame


def has_usual_names(fields: Sequence[str], roles: Sequence[str]) -> bool:
    """Say whether all roles are among the fields under a usual name."""
    from deepmf.matrix.frames import USUAL_NAMES

    plain = {field.lower().replace("_", "").replace(" ", "") for field in fields}
    return all(plain & set(USUAL_NAMES[role]) for role in roles)


def _check_readable(path: Path) -> None:
    if path.is_dir():
        raise UnreadableFile(f"{path} is a directory; a file is needed")
    try:
        with path.open("rb") as opened:
            if not opened.read(1):
                raise UnreadableFile(f"{path} is empty")
    except FileNotFoundError as error:
        raise FileAbsent(f"there is no file {path}") from error
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise UnreadableFile(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _parquet(path: Path, roles: tuple[str, str], reading: Reading) -> pl.DataFrame:
    import polars

    try:
        lazy = polars.scan_parquet(path)
        chosen = _chosen(lazy.collect_schema().names(), path, roles, reading)
        return lazy.select(chosen).collect()
    except (polars.exceptions.PolarsError, OSError) as error:
        raise UnreadableFile(f"{path} is not a whole Parquet file ({_first_line(error)})") from error


def _text(path: Path, roles: tuple[str, str], reading: Reading, is_header: IsHeader) -> pl.DataFrame:
    import polars

    try:
        lines = _lines(path, n_rows=_SAMPLE_LINES)
        if not any(lines):
            raise UnreadableFile(f"{path} is empty")
        filled = [line for line in lines if line]
        separator = _separator(filled, path, roles, reading)
        first = _fields(filled[:1], separator)[0]
        names = first if is_header(first) else [str(at) for at in range(len(first))]
        if len(set(names)) < len(names):
            raise UnreadableFile(f"{path}: the header {filled[0][:80]!r} names a column twice")
        chosen = _chosen(names, path, roles, reading)
        frame = _split(path, separator, names, n_skipped=lines.index(filled[0]) + (1 if names is first else 0))
    except polars.exceptions.PolarsError as error:
        if "utf" in str(error).lower():
            raise UnreadableFile(f"{path} is not UTF-8 text; convert it first, for instance with iconv") from error
        raise UnreadableFile(f"{path} cannot be read as text ({_first_line(error)})") from error
    return frame.select(chosen).filter(~polars.all_horizontal(polars.all().is_null()))  # blank lines


def _lines(path: Path, *, n_rows: int | None = None) -> list[str]:
    import polars

    frame = polars.read_csv(
        path,
        has_header=False,
        separator=_WHOLE_LINE,
        quote_char=None,
        infer_schema=False,
        n_rows=n_rows,
        truncate_ragged_lines=True,
    )
    return [(line or "").strip("\r\n") for line in frame.to_series().to_list()]


def _split(path: Path, separator: str, names: list[str], *, n_skipped: int) -> pl.DataFrame:
    import polars

    if separator == "::":  # polars separates at one byte
        fields = _fields([line for line in _lines(path)[n_skipped:] if line], separator)
        columns = {name: [line[at] if at < len(line) else None for line in fields] for at, name in enumerate(names)}
        return polars.DataFrame(columns, schema=dict.fromkeys(names, polars.String))
    return polars.read_csv(
        path,
        separator=separator,
        has_header=False,
        skip_rows=n_skipped,
        schema=dict.fromkeys(names, polars.String),
        quote_char=None if separator == "\t" else '"',
        truncate_ragged_lines=True,
    )


def _separator(lines: list[str], path: Path, roles: tuple[str, str], reading: Reading) -> str:
    if reading.separator is not None:
        given = "\t" if reading.separator == "\\t" else reading.separator
        if len(given) != 1 and given != "::":
            raise BadSetting(f"separator must be one character or '::'; got {given!r}")
        return given
    found = next((s for s in _SEPARATORS if min(map(len, _fields(lines, s))) >= 2), None)
    likely = next((s for s in _SEPARATORS if len(_fields(lines[:1], s)[0]) >= 2), _SEPARATORS[0])
    if found is None or (found == " " and likely != " "):  # titles have spaces too: the first line says better
        short = next(line for line in lines if len(_fields([line], likely)[0]) < 2)
        raise UnreadableFile(f"{path}: the line {short[:80]!r} has one column; a {' and a '.join(roles)} are needed")
    return found


def _fields(lines: list[str], separator: str) -> list[list[str]]:
    if separator == "::":
        return [line.split(separator) for line in lines]
    if separator == "\t":
        return list(csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE))
    return list(csv.reader(lines, delimiter=separator))


def _chosen(names: list[str], path: Path, roles: tuple[str, str], reading: Reading) -> list[str]:
    """Return the names of both fields, chosen as for entries; the third of the roles need not be there."""
    from deepmf.matrix.frames import USUAL_NAMES, choose_columns

    if len(names) < 2:
        raise BadEntries(f"{path}: a {' and a '.join(roles)} are needed; got {len(names)} column(s): {names[0]!r}")
    asked: dict[str, str | int | None] = {role: name_or_position(getattr(reading, role)) for role in roles}
    third = next(role for role in USUAL_NAMES if role not in roles)
    # A third under its usual name must not be taken for one of the two; where there is none, a stand-in is third.
    if len(names) == 2 or not has_usual_names(names, (third,)):
        names, asked = [*names, _ABSENT], asked | {third: _ABSENT}
    try:
        chosen = choose_columns(names, **{"row": None, "column": None, "value": None} | asked)
    except BadEntries as error:
        raise BadEntries(f"{path}: {error.message}".replace(f", {_ABSENT!r}", "")) from error
    return [chosen[role] for role in roles]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
