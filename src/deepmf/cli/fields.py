"""Two fields of each line of a text or Parquet file, found by name, by a common name or by position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.cli.inputs import Reading, name_or_position, unescaped
from deepmf.errors import BadEntries, UnreadableFile

if TYPE_CHECKING:
    import polars as pl

    from deepmf.data.delimited import DelimitedFile

_ABSENT = "\x1fabsent"  # stands in for the field that is not looked for

IsHeader = Callable[[list[str]], bool]


def read_fields(path: Path, roles: tuple[str, str], reading: Reading, *, is_header: IsHeader) -> pl.DataFrame:
    """Read two of "row", "column" and "value" from each line, in that order; what else a line holds is ignored.

    In text all fields are text, and the first line is the header where `is_header` says so of its fields.
    """
    from deepmf.data.delimited import DelimitedFile
    from deepmf.data.parquet import ENDINGS, read_parquet

    if path.suffix.lower() in ENDINGS:
        frame = read_parquet(path, lambda lazy: _chosen(lazy.collect_schema().names(), path, roles, reading))
    else:
        frame = _text(DelimitedFile(path), roles, reading, is_header)
    if frame.height == 0:
        raise UnreadableFile(f"{path} holds no lines with a {' and a '.join(roles)}")
    return frame


def _text(file: DelimitedFile, roles: tuple[str, str], reading: Reading, is_header: IsHeader) -> pl.DataFrame:
    import polars

    lines, n_blank = file.head()
    separator = _separator(lines, file, roles, reading)
    first = file.fields(lines[:1], separator)[0]
    names = first if is_header(first) else [str(at) for at in range(len(first))]
    if len(set(names)) < len(names):
        raise UnreadableFile(f"{file.path}: the header {lines[0][:80]!r} names a column twice")
    chosen = _chosen(names, file.path, roles, reading)
    frame = _split(file, separator, names, n_skipped=n_blank + (1 if names is first else 0))
    return frame.select(chosen).filter(~polars.all_horizontal(polars.all().is_null()))  # blank lines


def _split(file: DelimitedFile, separator: str, names: list[str], *, n_skipped: int) -> pl.DataFrame:
    import polars

    from deepmf.data.source import reading

    if separator == "::":  # polars separates at one byte
        fields = file.fields([line for line in file.lines()[n_skipped:] if line], separator)
        columns = {name: [line[at] if at < len(line) else None for line in fields] for at, name in enumerate(names)}
        return polars.DataFrame(columns, schema=dict.fromkeys(names, polars.String))
    with reading(file.path, "text"):
        return file.scan(names, separator, n_skipped=n_skipped, ignore_more=True).collect()


def _separator(lines: list[str], file: DelimitedFile, roles: tuple[str, str], reading: Reading) -> str:
    from deepmf.data.delimited import SEPARATORS, checked_separator

    given = unescaped(reading.separator)
    if given is not None:
        return checked_separator(given)
    found = next((s for s in SEPARATORS if min(map(len, file.fields(lines, s))) >= 2), None)
    likely = next((s for s in SEPARATORS if len(file.fields(lines[:1], s)[0]) >= 2), SEPARATORS[0])
    if found is None or (found == " " and likely != " "):  # titles have spaces too: the first line says better
        short = next(line for line in lines if len(file.fields([line], likely)[0]) < 2)
        needed = " and a ".join(roles)
        raise UnreadableFile(f"{file.path}: the line {short[:80]!r} has one column; a {needed} are needed")
    return found


def _chosen(names: list[str], path: Path, roles: tuple[str, str], reading: Reading) -> list[str]:
    """Return the names of both fields, chosen as for entries; the third of the roles need not be there."""
    from deepmf.matrix.frames import USUAL_NAMES, choose_columns, has_usual_names

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
