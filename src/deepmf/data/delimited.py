"""Delimited text: the lines and fields of a file, and the texts of ids, numbers and missing
values."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from deepmf.data.source import prepare_text, translate_polars_errors
from deepmf.errors import BadEntries, BadSetting, Hint, UnreadableFile, warn
from deepmf.files import check_path, polars

SAMPLE_LINES = 200  # lines from which separator and header are recognised

# Tried in this order on the first lines; the first that splits each of them into enough fields is
# taken.
SEPARATORS = ("::", "\t", ",", ";", "|", " ")
# Where a comma may stand inside a number, every other character is tried before it.
SEPARATORS_WITH_DECIMAL_COMMA = ("::", "\t", ";", "|", ",", " ")
WHOLE_LINE = "\x1f"  # a separator that no text contains: each line is one field
# Around a field, white space of Unicode is no part of it, as polars strips it.
SPACES = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_UNQUOTED = ("::", "\t")  # separators beside which a quotation mark is an ordinary character

MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none", "nil", "?", "-", ".")
DECIMAL_MARKS = (".", ",")
DECIMAL_HINT = Hint("decimal=',' reads decimal commas", "--decimal , reads decimal commas")

_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.I
)
_NUMBER_WITH_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+")
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")

# A number as files write it, but not 007: leading zeros make a code.
_PLAIN_NUMBER = (
    r"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"
)
_COMMA_NUMBER = r"^[+-]?[0-9]+(,[0-9]+)?$"
_INTEGER = r"^[+-]?[0-9]{1,18}$"
_WORDS = {"none", "nil"}  # which mark a missing number, and are answers among texts
_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"


class DelimitedFile:
    """A text file of lines with fields; compressed content is decompressed once, within a bound."""

    def __init__(self, path: str | Path, encoding: str | None = None) -> None:
        self.path = check_path(path)
        self._source = prepare_text(self.path, encoding)

    def read_head(self) -> list[str]:
        """Return the first lines, also blank ones; refuse blank lines alone."""
        lines = self.read_lines(n_lines=SAMPLE_LINES)
        n_filled = sum(map(bool, lines))
        if not n_filled:
            raise UnreadableFile(f"{self.path} is empty")
        if n_filled == 1 and any("\r" in line for line in lines):
            raise UnreadableFile(
                f"{self.path}: lines end in a carriage return alone; end them in a line feed, for "
                r"instance with tr '\r' '\n'"
            )
        return lines

    def read_lines(self, *, n_lines: int | None = None) -> list[str]:
        """Return the lines unchanged, including blank lines."""
        with translate_polars_errors(self.path, "text"):
            try:
                frame = polars.read_csv(
                    self._source,
                    glob=False,
                    has_header=False,
                    separator=WHOLE_LINE,
                    quote_char=None,
                    infer_schema=False,
                    n_rows=n_lines,
                    truncate_ragged_lines=True,
                )
            except polars.exceptions.NoDataError:
                return []
        return [(line or "").removesuffix("\r") for line in frame.to_series().to_list()]

    def split_lines(self, lines: Sequence[str], separator: str) -> list[list[str]]:
        """Split lines into fields without their quotation marks and the spaces around them."""
        try:
            if separator in _UNQUOTED:
                fields = [line.split(separator) for line in lines]
            else:
                fields = list(csv.reader(lines, delimiter=separator))
        except csv.Error as error:  # such as a field of more than 131,072 characters
            raise UnreadableFile(
                f"{self.path} cannot be read as text split at {separator!r} ({error})"
            ) from error
        return [[field.strip(SPACES) for field in line] for line in fields]

    def scan(
        self, names: Sequence[str], separator: str, *, n_skipped: int, ignore_more: bool = False
    ) -> polars.LazyFrame:
        """Scan all fields lazily, as text without the spaces around it.

        A field that is missing or blank is null; `ignore_more` drops surplus fields.
        """
        is_plain = separator != "::"
        lazy = polars.scan_csv(
            self._source,
            glob=False,
            separator=separator if is_plain else WHOLE_LINE,
            has_header=False,
            skip_lines=n_skipped,
            schema=dict.fromkeys(names if is_plain else names[:1], polars.String),
            quote_char=None if separator in _UNQUOTED else '"',
            truncate_ragged_lines=ignore_more,
        )
        if not is_plain:  # polars splits at one byte, and a title may contain one
            line = polars.col(names[0]).str.strip_suffix("\r")
            parts = (
                line.str.split_exact("::", len(names))
                if ignore_more
                else line.str.splitn("::", len(names))
            )
            lazy = lazy.select(
                parts.struct.field(f"field_{at}").alias(name) for at, name in enumerate(names)
            )
        return lazy.with_columns(polars.all().str.strip_chars().replace("", None))


def check_separator(separator: str) -> None:
    """Refuse a separator other than one ASCII character or `::`."""
    if separator != "::" and not (
        len(separator) == 1 and separator.isascii() and separator not in '\r\n"'
    ):
        raise BadSetting(f"separator must be one character or '::'; got {separator!r}")


def find_quoted_fields(line: str, separator: str, names: Sequence[str]) -> frozenset[str]:
    """Return the names of fields in quotation marks; none where all fields are quoted.

    >>> sorted(find_quoted_fields('"7",Alien,"say ""hi"", ann"', ",", ["user", "film", "note"]))
    ['note', 'user']
    """
    if separator in _UNQUOTED:
        return frozenset()
    is_quoted = []
    at = 0
    for field in next(csv.reader([line], delimiter=separator), []):
        is_quoted.append(line[at : at + 1] == '"')
        at += len(field) + 1 + is_quoted[-1] * (2 + field.count('"'))
    quoted = frozenset(itertools.compress(names, is_quoted))
    return frozenset() if all(is_quoted) else quoted


def drop_blank_end(frame: polars.DataFrame) -> polars.DataFrame:
    """Drop blank lines at the end of a file."""
    if frame.height == 0 or any(field is not None for field in frame.row(-1)):
        return frame
    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series().arg_true()
    return frame.head(filled[-1] + 1 if filled.len() else 0)


def is_missing(text: str) -> bool:
    """Whether a text stands for a missing value."""
    return text.strip(SPACES).lower() in MISSING_WORDS


def is_number(text: str) -> bool:
    """Whether a text is a number as files write it; Python's 1_0 and digits of other scripts are
    not."""
    return _NUMBER.fullmatch(text.strip(SPACES)) is not None


def is_whole(text: str) -> bool:
    """Whether a text is a whole number in canonical form: 007, +7 and -0 are not."""
    return _WHOLE_NUMBER.fullmatch(text) is not None


def parse_numbers(texts: polars.Series, *, decimal: str = ".") -> polars.Series:
    """Return texts as floats, null where a value is missing; any other text is an error."""
    if decimal == ".":  # a plain cast where it suffices
        numbers = texts.cast(polars.Float64, strict=False)
        if numbers.null_count() == texts.null_count() and not numbers.is_nan().any():
            return numbers
    plain = texts.str.strip_chars()
    is_gap = plain.str.to_lowercase().is_in(MISSING_WORDS).fill_null(True)
    if decimal == ",":
        # A point might separate thousands; it is refused rather than guessed.
        plain = plain.set(plain.str.contains(".", literal=True), None).str.replace(
            ",", ".", literal=True
        )
    numbers = plain.cast(polars.Float64, strict=False).set(is_gap, None).fill_nan(None)
    wrong = (numbers.is_null() & ~is_gap).arg_true()
    if wrong.len():
        text = texts[wrong[0]]
        hint = DECIMAL_HINT if decimal == "." and _NUMBER_WITH_COMMA.fullmatch(text) else None
        raise BadEntries(f"value {text!r} is not a number", position=wrong[0], hint=hint)
    return numbers


def parse_time_texts(texts: polars.Series) -> polars.Series:
    """Return texts of Unix times as numbers, and other texts as they are; null where a time is
    missing."""
    plain = texts.str.strip_chars()
    plain = plain.set(plain.str.to_lowercase().is_in(MISSING_WORDS).fill_null(True), None)
    for kind in (polars.Int64, polars.Float64):
        numbers = plain.cast(kind, strict=False)
        if numbers.null_count() == plain.null_count():
            return numbers
    return plain


def parse_ids(ids: polars.Series) -> polars.Series:
    """Return ids as ints if all of them are whole numbers in canonical form, otherwise unchanged.

    Ids that end in .0 are whole numbers that were floats once, because of a gap; a warning says so.
    """
    numbers = parse_whole_numbers(ids)
    if numbers.null_count() > ids.null_count():
        return ids
    floats = ids.filter(ids.str.ends_with(".0"))
    if floats.len():
        warn(f"ids such as {floats[0]!r} in {ids.name or 'a file'!r} are read as whole numbers")
    return numbers


def parse_whole_numbers(ids: polars.Series) -> polars.Series:
    """Return ids as ints, null where an id is not a whole number in canonical form, or such a
    number with .0."""
    ids = ids.str.strip_suffix(".0")
    numbers = ids.cast(polars.Int64, strict=False)
    return numbers.set(numbers.cast(polars.String) != ids, None)


def infer_type(
    texts: polars.Series, decimal: str = ".", missing_values: Sequence[str] = ()
) -> polars.Series:
    """Return texts as numbers or dates with gaps if all other texts are such; otherwise as text."""
    plain = texts.str.strip_chars()
    marks = (*MISSING_WORDS, *(mark.strip().lower() for mark in missing_values))
    is_gap = plain.str.to_lowercase().is_in(marks).fill_null(True)
    if decimal == "," and plain.filter(~is_gap).str.contains(_COMMA_NUMBER).all():
        plain = plain.str.replace(",", ".", literal=True)
    filled = plain.filter(~is_gap)
    if filled.is_empty():
        return plain.set(is_gap, None)
    if filled.str.contains(_PLAIN_NUMBER).all():
        is_whole = filled.str.contains(_INTEGER).all()
        return plain.set(is_gap, None).cast(polars.Int64 if is_whole else polars.Float64)
    if filled.str.contains(_ISO_DATE).all():
        return plain.set(is_gap, None)
    return remove_marks(plain, missing_values)


def remove_marks(column: polars.Series, missing_values: Sequence[str]) -> polars.Series:
    """Return a column with null in place of the marks of missing values: texts in any case, or
    numbers."""
    if column.dtype == polars.String:
        marks = {*MISSING_WORDS} - _WORDS | {mark.strip().lower() for mark in missing_values}
        return column.set(
            column.str.strip_chars().str.to_lowercase().is_in(list(marks)).fill_null(False), None
        )
    if not column.dtype.is_numeric() or not missing_values:
        return column
    numbers = polars.Series(list(missing_values)).cast(polars.Float64, strict=False).drop_nulls()
    return column.set(column.cast(polars.Float64).is_in(numbers.implode()).fill_null(False), None)
