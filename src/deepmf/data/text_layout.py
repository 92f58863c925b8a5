"""The layout of a text file: its separator, whether line 1 is a header, a line per entry or per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepmf.data.delimited import (
    SEPARATORS,
    WHOLE_LINE,
    DelimitedFile,
    checked_separator,
    is_missing,
    is_number,
    quoted_fields,
)
from deepmf.data.ids import is_whole
from deepmf.data.roles import IsKnown, Role
from deepmf.errors import UnreadableFile
from deepmf.matrix.frames import has_usual_names

WIDE_HINT = (
    "wide=True reads it so (and ObservedMatrix.from_table a frame of it); if each line is one entry, column= and "
    "value= say which fields hold the column ids and the values"
)

# Where a comma may stand inside a number, every other separator is tried before it.
_WITH_DECIMAL_COMMAS = ("::", "\t", ";", "|", ",", " ")

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
    quoted: frozenset[str] = frozenset()  # fields with quotation marks beside others without: texts, even of digits

    @property
    def first_line(self) -> int:
        """The number of the first line that is no header, counted from 1."""
        return self.n_blank + (2 if self.has_header else 1)


def recognise(
    file: DelimitedFile,
    role: Role,
    *,
    separator: str | None,
    header: bool | None,
    is_known: IsKnown,
    decimal: str = ".",
) -> TextLayout:
    """Recognise the layout from the first lines, as far as it is not given."""
    lines, n_blank = file.head()
    if separator is None:
        separators = _WITH_DECIMAL_COMMAS if decimal == "," else SEPARATORS
        separator = _separator(file, role, lines, is_known, separators)
    else:
        separator = checked_separator(separator)
    first, *rest = file.fields(lines, separator)
    if len(first) < len(role.columns):
        raise UnreadableFile(
            f"{file.path}: line 1 {lines[0][:80]!r} has {len(first)} column(s) when split at {separator!r}; "
            f"{role.needed} are needed (is the separator another?)"
        )
    if header is None:
        pointed = _pointed([first, *rest]) if decimal == "," else [first, *rest]
        header = role.is_header(pointed[0], pointed[1:], is_known)
    names = first if header else [str(number) for number in range(len(first))]
    if len(set(names)) < len(names):
        raise UnreadableFile(f"{file.path}: the header {lines[0][:80]!r} names a column twice")
    sample = rest if header else [first, *rest]
    quoted = _quoted(lines[1 if header else 0], separator, names) if sample else frozenset()
    return TextLayout(separator, names, header, n_blank, sample, quoted)


def _quoted(line: str, separator: str, names: Sequence[str]) -> frozenset[str]:
    """Return the names of fields with quotation marks, unless all have them."""
    marks = quoted_fields(line, separator)
    return frozenset() if all(marks) else frozenset(name for name, mark in zip(names, marks, strict=False) if mark)


def _pointed(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the fields of lines with decimal points instead of commas, as rules about numbers expect them."""
    return [[field.replace(",", ".") for field in line] for line in lines]


def refuse_wide(path: Path, names: Sequence[str], sample: Sequence[Sequence[str]]) -> None:
    """Refuse a table with a line per row, of which the first three columns would pass for entries."""
    if not _looks_wide(names, sample):
        return
    shown = ", ".join(map(repr, names[:3]))
    raise UnreadableFile(
        f"{path} looks like a wide table, with a line per row and a column per column ({len(names)} columns: {shown}, "
        f"...): {WIDE_HINT}"
    )


def _separator(file: DelimitedFile, role: Role, lines: list[str], is_known: IsKnown, separators: Sequence[str]) -> str:
    """Return the separator that splits all lines into enough fields."""
    if len(role.columns) == 1:
        return _separator_of_ids(file, lines, is_known)
    found = next((s for s in separators if min(map(len, file.fields(lines, s))) >= len(role.columns)), None)
    if role.defines_ids:
        # None fits every line: take the one that suits the first, so that the message names the offending line.
        return found or max(separators, key=lambda s: len(file.fields(lines[:1], s)[0]))
    likely = next((s for s in SEPARATORS if len(file.fields(lines[:1], s)[0]) >= 2), SEPARATORS[0])
    if found is None or (found == " " and likely != " "):  # titles have spaces too: the first line says better
        short = next(line for line in lines if len(file.fields([line], likely)[0]) < 2)
        raise UnreadableFile(f"{file.path}: the line {short[:80]!r} has one column; {role.needed} are needed")
    return found


def _separator_of_ids(file: DelimitedFile, lines: list[str], is_known: IsKnown) -> str:
    """Return the separator by which the most lines hold an id that is known; none where whole lines do as well.

    A single field needs no separator, and titles have commas and spaces.
    """
    return max(
        (WHOLE_LINE, *SEPARATORS), key=lambda s: sum(any(map(is_known, fields)) for fields in file.fields(lines, s))
    )


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
