"""The columns of a file that its role needs, from delimited text, Parquet or JSON lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.data.delimited import (
    MISSING_WORDS,
    SAMPLE_LINES,
    SEPARATORS,
    WHOLE_LINE,
    DelimitedFile,
    are_written_so,
    check_expansion,
    checked_path,
    checked_separator,
    is_missing,
    is_number,
    is_whole,
    polars_source,
    quoted_fields,
    reading,
    text_source,
    whole_or_text,
)
from deepmf.errors import BadEntries, BadSetting, Hint, UnreadableFile
from deepmf.files import import_polars
from deepmf.matrix.frames import choose_columns, has_usual_names, is_guess, join_roles

if TYPE_CHECKING:
    import polars as pl


DECIMALS = (".", ",")

DECIMAL_HINT = Hint("decimal=',' reads decimal commas", "--decimal , reads decimal commas")


_WITH_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+\s*")


def check_decimal(decimal: str) -> None:
    """Refuse a decimal mark that is none."""
    if decimal not in DECIMALS:
        raise BadSetting(f"decimal must be '.' or ','; got {decimal!r}")


def parsed(texts: pl.Series, *, decimal: str = ".") -> pl.Series:
    """Return texts as floats, null where one stands for a missing value; one that is no number is an error."""
    polars = import_polars()
    plain = texts.str.strip_chars()
    is_gap = plain.str.to_lowercase().is_in(MISSING_WORDS).fill_null(True)
    if decimal == ",":
        # A point would separate thousands, or nothing: neither is guessed.
        plain = plain.set(plain.str.contains(".", literal=True), None).str.replace(",", ".", literal=True)
    numbers: pl.Series = plain.cast(polars.Float64, strict=False).set(is_gap, None).fill_nan(None)
    wrong = (numbers.is_null() & ~is_gap).arg_true()
    if wrong.len():
        text = texts[wrong[0]]
        hint = DECIMAL_HINT if decimal == "." and _WITH_COMMA.fullmatch(text) else None
        raise BadEntries(f"value {text!r} is not a number", position=wrong[0], hint=hint)
    return numbers


# What people call columns beside the usual names; never an id in the first line of a file.
_HEADINGS = {"u", "i", "r", "c", "x", "y", "id", "ids", "name", "title", "key", "date", "year", "time", "timestamp"}


Fields = Sequence[str]

IsKnown = Callable[[str], bool]


@dataclass(frozen=True)
class Role:
    """What each line of a file holds.

    columns: which of a row, a column and a value.
    content: what a file without any such line does not hold.
    is_header: whether the first line names columns, given the lines after it and which ids are known.
    defines_ids: whether the file decides of which type its ids are; otherwise all text stays text, for the labels that
    are known already decide, and what else a line holds is ignored.
    """

    columns: tuple[str, ...]
    content: str
    is_header: Callable[[Fields, Sequence[Fields], IsKnown], bool]
    defines_ids: bool = False

    @property
    def needed(self) -> str:
        """What a line must hold, in words."""
        return join_roles(self.columns)


def _is_header_of_entries(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether two of the names are usual, or there is no number and something else for the value.

    Otherwise its ids decide: both are headings, or neither is a whole number where all that follow are.
    """
    if sum(has_usual_names(first, [role]) for role in ("row", "column", "value")) >= 2:
        return True
    roles = _places(first)
    row, column, value = (first[at] for at in roles)
    if not any(map(is_number, first)) and not is_missing(value):
        return True
    if all(
        text.strip().lower() in _HEADINGS or has_usual_names([text], [role])
        for text, role in ((row, "row"), (column, "column"))
    ):
        return True
    ids = [fields[at] for fields in rest for at in roles[:2] if at < len(fields)]
    return (
        bool(ids) and all(map(is_whole, ids)) and not any(is_whole(text) or is_missing(text) for text in (row, column))
    )


def _is_header_of_pairs(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether the names are usual, or neither numbers nor gaps nor ids that are known."""
    if has_usual_names(first, ["row", "column"]):
        return True
    return not any(map(is_missing, first[:2])) and not any(is_whole(field) or is_known(field) for field in first)


def _is_header_of_history(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether the column has a usual name, or there is neither a number nor a gap."""
    return has_usual_names(first, ["column"]) or not any(is_number(field) or is_missing(field) for field in first)


def _is_header_of_labels(first: Fields, is_known: IsKnown, *, role: str) -> bool:
    """Say whether a name is usual or a heading, and none an id that is known; any other text is an unknown id."""
    if any(map(is_known, first)):
        return False
    return has_usual_names(first, [role]) or any(field.strip().lower() in _HEADINGS for field in first)


def _places(names: Fields) -> list[int]:
    """Return where row, column and value stand among names, of which those of an entry may be equal."""
    if len(set(names)) < len(names):
        return [0, 1, 2]
    return [list(names).index(name) for name in choose_columns(names, dict.fromkeys(ENTRIES.columns)).values()]


def _is_header_of_table(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether something beside the row id is neither a number nor a gap, or the numbers count up, as years do."""
    others = first[1:]
    if not all(is_number(field) or is_missing(field) for field in others):
        return True
    counts_up = all(map(is_whole, others)) and all(int(a) < int(b) for a, b in pairwise(others))
    return (
        first[0].strip().lower() in _HEADINGS
        or has_usual_names(first[:1], ["row"])
        or (counts_up and not is_number(first[0]))
    )


def _is_header_of_features(first: Fields, rest: Sequence[Fields], is_known: IsKnown) -> bool:
    """Say whether the first name is usual or a heading, or there is neither a number nor a gap."""
    if has_usual_names(first[:1], ["row"]) or has_usual_names(first[:1], ["column"]):
        return True
    return first[0].strip().lower() in _HEADINGS or not any(is_number(field) or is_missing(field) for field in first)


ENTRIES = Role(("row", "column", "value"), "entries", _is_header_of_entries, defines_ids=True)

PAIRS = Role(("row", "column"), "lines with a row and a column", _is_header_of_pairs)

HISTORY = Role(("column", "value"), "lines with a column and a value", _is_header_of_history)

TABLE = Role(("row", "column"), "entries", _is_header_of_table, defines_ids=True)

COLUMNS = Role(
    ("column",), "lines with a column", lambda first, _, is_known: _is_header_of_labels(first, is_known, role="column")
)

ROWS = Role(("row",), "lines with a row", lambda first, _, is_known: _is_header_of_labels(first, is_known, role="row"))

FEATURES = Role(("label", "feature"), "lines with a label and features", _is_header_of_features, defines_ids=True)


_PARQUET = (".parquet", ".pq")

_JSON_LINES = (".jsonl", ".ndjson")

ENDINGS = (*_PARQUET, *_JSON_LINES)


_CELL_BYTES = 8


def read_typed(path: Path, choose: Callable[[pl.LazyFrame], Sequence[str]]) -> pl.DataFrame:
    """Read the columns that `choose` names, given the file as a lazy frame."""
    path = checked_path(path)
    with reading(path, format_of(path)):
        lazy = scan_typed_file(path)
        chosen = list(choose(lazy))
        check_lines(path, lazy, len(chosen))
        frame: pl.DataFrame = lazy.select(chosen).collect()
    return frame


def format_of(path: Path) -> str:
    """Return what the format of a file is called."""
    return "JSON lines" if path.suffix.lower() in _JSON_LINES else "Parquet"


def scan_typed_file(path: Path) -> pl.LazyFrame:
    """Return the file as a lazy frame."""
    polars = import_polars()
    lazy: pl.LazyFrame
    if path.suffix.lower() in _JSON_LINES:
        source = text_source(path)
        if isinstance(source, Path) and any(sign in str(source) for sign in "*?["):
            source = path.read_bytes()  # the name would be taken for a pattern
        # Types come from all lines: a first null, or a first whole number, says nothing of those that follow.
        lazy = polars.scan_ndjson(source, infer_schema_length=None)
    else:
        # Neither the name of a file nor that of its folder is a pattern or says what the file holds.
        lazy = polars.scan_parquet(polars_source(path), glob=False, hive_partitioning=False)
    return lazy


def check_lines(path: Path, lazy: pl.LazyFrame, n_columns: int) -> None:
    """Refuse a Parquet file of far more lines than its size lets expect."""
    if path.suffix.lower() in _JSON_LINES:
        return
    # Runs of one value take no room in the file: a few bytes may stand for 10^12 lines.
    n_lines = lazy.select(import_polars().len()).collect().item()
    check_expansion(path, n_lines * n_columns * _CELL_BYTES)


WIDE_HINT = Hint(
    "wide=True reads it; if each line is one entry, name its fields with column= and value=",
    "--wide reads it; if each line is one entry, name its fields with --column and --value",
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
        "...)",
        hint=WIDE_HINT,
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
        raise error.locate(str(path)) from error


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
        raise error.locate(f"{path}, line {error.position + layout.first_line}") from error
    ids = (series if series.name in layout.quoted else whole_or_text(series) for series in (row, column))
    typed: pl.DataFrame = import_polars().DataFrame([*ids, numbers])
    return typed
