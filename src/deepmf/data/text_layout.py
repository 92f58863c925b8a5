"""The layout of a file of entries: its separator, whether line 1 is a header, a line per entry or per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepmf.data.delimited import SEPARATORS, DelimitedFile, checked_separator, is_missing, is_number, is_whole
from deepmf.errors import UnreadableFile
from deepmf.matrix.frames import choose_columns, has_usual_names

# What people call columns beside the usual names; never an id in the first line of a file.
_HEADINGS = {"u", "i", "r", "c", "x", "y", "id", "ids", "name", "title", "key", "date", "year", "time", "timestamp"}

_MANY_COLUMNS = 5  # as many columns of numbers beside the row ids make a wide table
_ALIKE = 4  # columns of one wide table reach about as far: one at most this many times as far as another


@dataclass(frozen=True)
class TextLayout:
    """How a text file is laid out: its separator, the names of its fields, and whether line 1 holds them."""

    separator: str
    names: list[str]
    has_header: bool
    n_blank: int  # lines before the first that is not blank
    sample: list[list[str]]  # the fields of the first lines, without the header

    @property
    def first_line(self) -> int:
        """The number of the first line with an entry, counted from 1."""
        return self.n_blank + (2 if self.has_header else 1)


def recognise(file: DelimitedFile, *, separator: str | None, header: bool | None) -> TextLayout:
    """Recognise the layout from the first lines, as far as it is not given."""
    lines, n_blank = file.head()
    if separator is not None:
        checked_separator(separator)
    found = separator or next((s for s in SEPARATORS if min(map(len, file.fields(lines, s))) >= 3), None)
    # None fits every line: take the one that suits the first, so that the message names the offending line.
    found = found or max(SEPARATORS, key=lambda s: len(file.fields(lines[:1], s)[0]))
    first, *rest = file.fields(lines, found)
    if len(first) < 3:
        raise UnreadableFile(
            f"{file.path}: line 1 {lines[0][:80]!r} has {len(first)} column(s) when split at {found!r}; "
            "a row, a column and a value are needed (is the separator another?)"
        )
    has_header = header if header is not None else is_header(first, rest)
    names = first if has_header else [str(number) for number in range(len(first))]
    if len(set(names)) < len(names):
        raise UnreadableFile(f"{file.path}: the header {lines[0][:80]!r} names a column twice")
    return TextLayout(found, names, has_header, n_blank, rest if has_header else [first, *rest])


def is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Say whether a first line names columns rather than being an entry.

    It does where two of its names are usual, or where it has no number and something else for the value. Otherwise
    its ids decide: both are headings, or neither is a whole number where all that follow are.
    """
    if sum(has_usual_names(first, [role]) for role in ("row", "column", "value")) >= 2:
        return True
    roles = _places(first)
    row, column, value = (first[at] for at in roles)
    if not any(map(is_number, first)) and not is_missing(value):
        return True
    if all(
        _plain(text) in _HEADINGS or has_usual_names([text], [role])
        for text, role in ((row, "row"), (column, "column"))
    ):
        return True
    ids = [fields[at] for fields in rest for at in roles[:2] if at < len(fields)]
    return (
        bool(ids) and all(map(is_whole, ids)) and not any(is_whole(text) or is_missing(text) for text in (row, column))
    )


def refuse_wide(path: Path, names: Sequence[str], sample: Sequence[Sequence[str]], *, how_to_read: str) -> None:
    """Refuse a table with a line per row, of which the first three columns would pass for entries."""
    if not _looks_wide(names, sample):
        return
    shown = ", ".join(map(repr, names[:3]))
    raise UnreadableFile(
        f"{path} looks like a wide table, with a line per row and a column per column ({len(names)} columns: {shown}, "
        f"...); in Python, ObservedMatrix.from_table(polars.{how_to_read}, row={names[0]!r}) reads it; if each line is "
        "one entry, say which columns hold the column ids and the values (column= and value=, --column and --value)"
    )


def _places(names: Sequence[str]) -> list[int]:
    """Return where row, column and value stand among names, of which those of an entry may be equal."""
    if len(set(names)) < len(names):
        return [0, 1, 2]
    return [list(names).index(name) for name in choose_columns(names, row=None, column=None, value=None).values()]


def _looks_wide(names: Sequence[str], sample: Sequence[Sequence[str]]) -> bool:
    if len(names) < 4 or any(has_usual_names(names, ["column", other]) for other in ("row", "value")):
        return False
    row_ids = [fields[0] for fields in sample]
    if len(set(row_ids)) < len(row_ids):
        return False
    columns = [[fields[at] if at < len(fields) else "" for fields in sample] for at in range(1, len(names))]
    reach = [_reach(column) for column in columns]
    if sum(far is not None for far in reach) >= _MANY_COLUMNS:
        return True
    if None in reach:
        return False
    if any(is_missing(text) for column in columns[:2] for text in column):
        return True
    if not all(map(is_whole, columns[0])):  # numbers, but no ids
        return True
    far = [reached for reached in reach if reached is not None]
    return len(sample) > 1 and max(far) <= _ALIKE * min(far)


def _reach(column: Sequence[str]) -> float | None:
    """Return the largest size among numbers; None where the column holds anything else, or nothing."""
    filled = [text for text in column if not is_missing(text)]
    if not filled or not all(map(is_number, filled)):
        return None
    return max(abs(float(text)) for text in filled)


def _plain(name: str) -> str:
    return name.strip().lower()
