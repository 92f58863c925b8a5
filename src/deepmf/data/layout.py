"""The layout of text files: separator, header, and the difference between entries, pairs, wide
tables and features."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from deepmf.data.delimited import (
    SEPARATORS,
    SEPARATORS_WITH_DECIMAL_COMMA,
    WHOLE_LINE,
    DelimitedFile,
    check_separator,
    find_quoted_fields,
    infer_type,
    is_missing,
    is_number,
    is_whole,
)
from deepmf.data.table import FileTable
from deepmf.errors import BadEntries, Hint, UnreadableFile
from deepmf.files import narwhals, polars
from deepmf.matrix.column_roles import MANY_COLUMNS, assign_roles, has_usual_names, join_roles
from deepmf.matrix.frames import are_numbers, may_be_wide
from deepmf.matrix.table_form import DETECT, ValueColumn

NameOrPosition = str | int | None  # of a column that the user asks for; None: it is recognised
Fields = Sequence[str]
IsKnown = Callable[[str], bool]

WIDE_HINT = Hint(
    "wide=True reads it; if each line is one entry, name its fields with column= and value=",
    "--wide reads it; if each line is one entry, name its fields with --column and --value",
)
# RecBole's names of fields and their types, such as user_id:token
_TYPED = re.compile(r"(.+):((?:token|float)(?:_seq)?)")
_COMMENT_SIGNS = ("#", "%")  # as numpy, KONECT and Matrix Market write them
_DATE = re.compile(r"\s*\d{4}-\d{2}-\d{2}([T ]|\s*$)|\s*\d{1,2}[./]\d{1,2}[./]\d{2,4}\b")

# Names of columns beside the usual ones; in the first line of a file they are never ids.
_HEADINGS = {
    "u",
    "i",
    "r",
    "c",
    "x",
    "y",
    "id",
    "ids",
    "name",
    "title",
    "key",
    "date",
    "year",
    "time",
    "timestamp",
}


@dataclass(frozen=True)
class LineKind:
    """What each line of a file holds.

    Parameters
    ----------
    roles : the fields that a line needs: row, column, value.
    content : the lines in words, for "the file holds no ...".
    is_header : whether the first line names columns, given the lines after it and the ids that are
        known.
    defines_ids : whether the file decides the type of its ids. Otherwise ids stay text, since a
        model decides, and surplus fields are ignored.
    n_optional : how many of the last roles a file may lack.
    """

    roles: tuple[str, ...]
    content: str
    is_header: Callable[[Fields, Sequence[Fields], IsKnown], bool]
    defines_ids: bool = False
    n_optional: int = 0

    @property
    def n_needed(self) -> int:
        """The fewest fields of a line."""
        return len(self.roles) - self.n_optional

    @property
    def requirement(self) -> str:
        """The roles in words, such as "a row and a column"."""
        return join_roles(self.roles)


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """How the columns of a file are chosen and its text is read; by default both are recognised.

    asked, time: names or positions of columns by role, and of the times.
    usual_count: name of the counts in the table that the file belongs to.
    is_known: whether a text is a known id, which no header has.
    """

    asked: Mapping[str, NameOrPosition] = field(default_factory=dict)
    time: ValueColumn = None
    usual_count: str | None = None
    separator: str | None = None
    header: bool | None = None
    is_known: IsKnown = lambda _: False
    decimal: str = "."
    encoding: str | None = None
    form: str | None = None

    @property
    def asked_roles(self) -> dict[str, NameOrPosition]:
        """The columns asked for by role, with that of the times."""
        return {**self.asked, "time": None if self.time is DETECT else self.time}


def open_text_table(path: Path, kind: LineKind, options: ColumnOptions) -> FileTable:
    """Recognise separator and header of delimited text from its first lines, unless they are given.

    If a column is asked for by name, the first line is a header; if it has an id that is known, it
    is not. Blank lines and comments (`# my data`) before it are skipped.
    """
    file = DelimitedFile(path, options.encoding)
    head = file.read_head()
    separator = _choose_separator(file, kind, head, options)
    n_skipped = _count_skipped(file, head, separator)
    lines = [line for line in head[n_skipped:] if line]
    first, *sample = file.split_lines(lines, separator)
    if len(first) < kind.n_needed:
        raise UnreadableFile(
            f"{path}: line {n_skipped + 1} {lines[0][:80]!r} has {len(first)} column(s) when split at "
            f"{separator!r}; {kind.requirement} are needed (is the separator another?)"
        )
    types = _read_typed_header(path, kind, options, first)
    names: list[str] | None = list(types or ())
    if types is None:
        names = _read_header(path, kind, options, lines[0], [first, *sample])
    has_names = names is not None
    if names is None:
        names = [str(position) for position in range(len(first))]
        sample = [first, *sample]
    first_line = n_skipped + has_names + 1
    if not sample:
        raise UnreadableFile(f"{path} holds no {kind.content}")
    if len(sample[0]) < len(names):
        raise UnreadableFile(
            f"{path}: line {first_line} has {len(sample[0])} column(s), and the header "
            f"{len(names)}: {', '.join(map(repr, names[:5]))}"
        )
    texts = {
        name: polars.Series([fields[at] if at < len(fields) else None for fields in sample])
        for at, name in enumerate(names)
    }
    return FileTable(
        path=path,
        names=names,
        has_names=has_names,
        head=polars.DataFrame(
            {name: infer_type(column, options.decimal) for name, column in texts.items()}
        ),
        lines=file.scan(
            names, separator, n_skipped=first_line - 1, ignore_more=not kind.defines_ids
        ),
        first_line=first_line,
        quoted=find_quoted_fields(lines[int(has_names)], separator, names),
        separator=separator,
        types=types,
    )


def _choose_separator(
    file: DelimitedFile, kind: LineKind, head: Sequence[str], options: ColumnOptions
) -> str:
    """Return the separator that was asked for, or that of the lines without comments."""
    if options.separator is not None:
        check_separator(options.separator)
        return options.separator
    filled = [line for line in head if line]
    comments = itertools.takewhile(_may_be_comment, filled)
    lines = filled[len(list(comments)) :] or filled
    separators = SEPARATORS_WITH_DECIMAL_COMMA if options.decimal == "," else SEPARATORS
    return _recognise_separator(file, kind, lines, options.is_known, separators)


def _count_skipped(file: DelimitedFile, head: Sequence[str], separator: str) -> int:
    """Return the number of first lines that are blank or comments.

    A line that begins with # is no comment if it has as many fields as the first line without.
    """
    fields = file.split_lines(head, separator)
    n_fields = next(
        (
            len(line_fields)
            for line, line_fields in zip(head, fields, strict=True)
            if line and not _may_be_comment(line)
        ),
        None,
    )
    for position, line in enumerate(head):
        is_comment = n_fields is not None and _may_be_comment(line)
        if line and not (is_comment and len(fields[position]) != n_fields):
            return position
    return 0


def _may_be_comment(line: str) -> bool:
    return line.startswith(_COMMENT_SIGNS)


def _read_header(
    path: Path, kind: LineKind, options: ColumnOptions, line: str, lines: list[list[str]]
) -> list[str] | None:
    """Return the names in the first line; None if it holds data."""
    names = lines[0]
    is_header = options.header
    if is_header is None:
        is_named = any(isinstance(name, str) for name in options.asked_roles.values())
        is_of_pandas = len(names) > 2 and names == ["", *map(str, range(len(names) - 1))]
        # the rules recognise numbers with decimal points
        plain = [[field.replace(options.decimal, ".") for field in fields] for fields in lines]
        is_header = (
            is_named or is_of_pandas or kind.is_header(plain[0], plain[1:], options.is_known)
        )
    if not is_header:
        return None
    if len(set(names)) < len(names):
        raise UnreadableFile(f"{path}: the header {line[:80]!r} names a column twice")
    return names


def _read_typed_header(
    path: Path, kind: LineKind, options: ColumnOptions, names: list[str]
) -> dict[str, str] | None:
    """Return the type of each name in a header of RecBole; None if the first line is no such one."""
    matches = list(filter(None, map(_TYPED.fullmatch, names)))
    if len(matches) < len(names):
        if options.form == "inter":
            raise UnreadableFile(
                f"{path}: line 1 names no types, but {names[:3]}; user_id:token is a name with its type"
            )
        return None
    if options.header is False:
        return None
    types = {match[1]: match[2] for match in matches}
    is_chosen = all(options.asked.get(role) is not None for role in ("row", "column"))
    are_entries = {"row", "column"} <= set(kind.roles)
    for name, field_type in types.items():
        if are_entries and not is_chosen and field_type.endswith("_seq"):
            raise UnreadableFile(
                f"{path}: the field '{name}:{field_type}' holds a list; a line must be one entry "
                "(user_id:token, item_id:token), or a row and its columns for form='sequences'"
            )
    return types


def _recognise_separator(
    file: DelimitedFile,
    kind: LineKind,
    lines: list[str],
    is_known: IsKnown,
    separators: Sequence[str],
) -> str:
    """Return the separator that splits all lines into enough fields."""
    if len(kind.roles) == 1:
        # A single field needs no separator, and titles contain commas and spaces: the separator
        # with which most lines hold a known id is taken, and whole lines win a tie.
        return max(
            (WHOLE_LINE, *SEPARATORS),
            key=lambda s: sum(any(map(is_known, fields)) for fields in file.split_lines(lines, s)),
        )
    separator = next(
        (s for s in separators if min(map(len, file.split_lines(lines, s))) >= len(kind.roles)),
        None,
    )
    # titles contain spaces: they separate only where nothing else does
    if kind.n_optional and separator in (None, " "):
        separator = next(
            (s for s in separators if min(map(len, file.split_lines(lines, s))) >= kind.n_needed),
            separator,
        )
    if kind.defines_ids:
        # No separator fits every line: with the best for the first line, the message names the
        # offending line.
        return separator or max(separators, key=lambda s: len(file.split_lines(lines[:1], s)[0]))
    likely = next(
        (s for s in SEPARATORS if len(file.split_lines(lines[:1], s)[0]) >= 2), SEPARATORS[0]
    )
    # titles contain spaces: the first line is a better guide
    if separator is None or (separator == " " and likely != " "):
        short = next(line for line in lines if len(file.split_lines([line], likely)[0]) < 2)
        raise UnreadableFile(
            f"{file.path}: the line {short[:80]!r} has one column; {kind.requirement} are needed"
        )
    return separator


def _is_header_of_entries(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Whether two of the names are usual, or there is no number and something else for the value.

    Otherwise the ids decide: both are headings, or neither is a whole number although all ids below
    are.
    """
    if sum(has_usual_names(first, [role]) for role in ("row", "column", "value")) >= 2:
        return True
    if any(map(_DATE.match, first)):
        return False
    places = _find_entry(first)
    row, column, value = (first[at] for at in places)
    if not any(map(is_number, first)) and not is_missing(value):
        return True
    if all(
        _is_heading(text) or has_usual_names([text], [role])
        for text, role in ((row, "row"), (column, "column"))
    ):
        return True
    ids = [fields[at] for fields in rest for at in places[:2] if at < len(fields)]
    are_whole = bool(ids) and all(map(is_whole, ids))
    return are_whole and not any(is_whole(text) or is_missing(text) for text in (row, column))


def _find_entry(names: Fields) -> list[int]:
    """Return the positions of row, column and value among names, which may repeat where they are
    fields of an entry."""
    try:
        roles = (
            assign_roles(names, dict.fromkeys(ENTRIES.roles))
            if len(set(names)) == len(names)
            else None
        )
    except BadEntries:  # the reader says so once it knows which columns hold numbers
        roles = None
    return [0, 1, 2] if roles is None else [list(names).index(name) for name in roles.values()]


def _is_header_of_interactions(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Whether a name is usual or a heading, or the first line holds no number and no id of a later
    line."""
    if any(has_usual_names(first, [role]) for role in ("row", "column")) or any(
        map(_is_heading, first)
    ):
        return True
    ids = [fields[:2] for fields in rest]
    are_whole = all(is_whole(text) for line in ids for text in line)
    if ids and are_whole and not any(map(is_whole, first[:2])):
        return True
    if any(is_number(text) or is_missing(text) or _DATE.match(text) for text in first):
        return False
    return not any(
        id_text == text for line in ids for id_text, text in zip(line, first, strict=False)
    )


def _is_header_of_either(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    rule = (
        _is_header_of_interactions if len(first) == INTERACTIONS.n_needed else _is_header_of_entries
    )
    return rule(first, rest, is_known)


def _is_header_of_lines(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Whether the first name is usual, or a heading or other text in a line without numbers, gaps
    and known ids."""
    if any(has_usual_names(first[:1], [role]) for role in ("row", "column")):
        return True
    if any(map(is_known, first)):
        return False
    return _is_heading(first[0]) or not any(
        is_number(field) or is_missing(field) for field in first
    )


def _is_header_of_ids(
    first: Fields, rest: Sequence[Fields], is_known: IsKnown, *, role: str
) -> bool:
    """Whether a name is usual or a heading, and no field is a known id; any other text is an
    unknown id."""
    if any(map(is_known, first)):
        return False
    return has_usual_names(first, [role]) or any(map(_is_heading, first))


def _is_header_of_table(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Whether a field beside the row id is neither a number nor missing, or the numbers count up,
    as years do."""
    texts = first[1:]
    if not all(is_number(field) or is_missing(field) for field in texts):
        return True
    counts_up = all(map(is_whole, texts)) and all(
        int(a) < int(b) for a, b in itertools.pairwise(texts)
    )
    return (
        _is_heading(first[0])
        or has_usual_names(first[:1], ["row"])
        or (counts_up and not is_number(first[0]))
    )


def _is_heading(text: str) -> bool:
    return text.strip().lower() in _HEADINGS


def refuse_wide(table: FileTable) -> None:
    """Refuse a table with a line per row, whose first three columns would pass for entries."""
    head = narwhals.from_native(table.head, eager_only=True)
    ids, *columns = table.names
    if len(columns) < 3 or not may_be_wide(head, [ids]) or not _looks_wide(head, columns):
        return
    shown = ", ".join(map(repr, table.names[:3]))
    raise UnreadableFile(
        f"{table.path} looks like a wide table, with a line per row and a column per column "
        f"({len(table.names)} columns: {shown}, ...)",
        hint=WIDE_HINT,
    )


def _looks_wide(head: narwhals.DataFrame[Any], columns: Sequence[str]) -> bool:
    """Whether columns beside the ids are many numbers, or cannot be the fields of entries."""
    series = [head.get_column(name) for name in columns]
    numbers = [column for column in series if are_numbers(column) and column.count()]
    if len(numbers) >= MANY_COLUMNS or len(numbers) < len(series):
        return len(numbers) >= MANY_COLUMNS
    if any(column.null_count() for column in series[:2]):
        return True
    if not series[0].dtype.is_integer():  # numbers, but no ids
        return True
    sizes = [column.abs().max() for column in numbers]
    # columns of one table reach about equally far
    return len(head) > 1 and max(sizes) <= 4 * min(sizes)


ENTRIES = LineKind(("row", "column", "value"), "entries", _is_header_of_entries, defines_ids=True)
INTERACTIONS = LineKind(
    ("row", "column"), "interactions", _is_header_of_interactions, defines_ids=True
)
# Entries with values, or interactions in a file without a column of values.
EITHER = LineKind(
    ("row", "column", "value"), "entries", _is_header_of_either, defines_ids=True, n_optional=1
)
# wide: a line per row
TABLE = LineKind(("row", "column"), "entries", _is_header_of_table, defines_ids=True)
FEATURES = LineKind(
    ("label", "feature"), "lines with a label and features", _is_header_of_lines, defines_ids=True
)
PAIRS = LineKind(("row", "column"), "lines with a row and a column", _is_header_of_lines)
HISTORY = LineKind(("column", "value"), "lines with a column and a value", _is_header_of_lines)
ROWS = LineKind(("row",), "lines with a row", partial(_is_header_of_ids, role="row"))
COLUMNS = LineKind(("column",), "lines with a column", partial(_is_header_of_ids, role="column"))
