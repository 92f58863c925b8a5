"""Delimited text, plain or compressed: its first lines, its separator, its fields as columns."""

from __future__ import annotations

import csv
import mmap
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deepmf.data.source import ZSTD, checked_path, reading, text_source
from deepmf.errors import BadSetting, UnreadableFile
from deepmf.files.frame_library import ESCAPES, import_polars

if TYPE_CHECKING:
    import polars as pl

# Tried in this order on the first lines; the first that cuts them all into enough fields is taken.
SEPARATORS = ("::", "\t", ",", ";", "|", " ")
SAMPLE_LINES = 200
WHOLE_LINE = "\x1f"  # a separator that no text contains: whole lines come back

_UNQUOTED = ("::", "\t")  # where a quotation mark is a character like any other
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*|\s*[+-]?(inf|infinity|nan)\s*", re.I)
_PLAIN = {escaped: plain for plain, escaped in ESCAPES.items()}
_ESCAPED = re.compile("|".join(map(re.escape, _PLAIN)))
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none", "nil", "?", "-", ".")


class Head(NamedTuple):
    """The first lines that are not blank, and how many blank ones come before them."""

    lines: list[str]
    n_blank: int


class DelimitedFile:
    """A text file of lines with fields; compressed content is decompressed once, within a bound."""

    def __init__(self, path: str | Path) -> None:
        self.path = checked_path(path)
        self._source = text_source(self.path)

    def head(self) -> Head:
        """Return the first lines; a file without any is refused."""
        lines = self.lines(n_lines=SAMPLE_LINES)
        filled = [line for line in lines if line]
        if not filled:
            raise UnreadableFile(f"{self.path} is empty")
        if len(filled) == 1 and "\r" in filled[0]:
            raise UnreadableFile(
                f"{self.path}: lines end in a carriage return alone; end them in a line feed, for instance with "
                r"tr '\r' '\n'"
            )
        return Head(filled, lines.index(filled[0]))

    def lines(self, *, n_lines: int | None = None) -> list[str]:
        """Return the lines unchanged, blank ones too."""
        with reading(self.path, "text") as polars:
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

    def fields(self, lines: Sequence[str], separator: str) -> list[list[str]]:
        """Split lines, quoted fields at their quotation marks."""
        if separator in _UNQUOTED:
            return [[_unescaped(field, separator) for field in line.split(separator)] for line in lines]
        try:
            return list(csv.reader(lines, delimiter=separator))
        except csv.Error as error:  # such as a field of more than 131,072 characters
            raise UnreadableFile(f"{self.path} cannot be read as text split at {separator!r} ({error})") from error

    def scan(
        self,
        names: Sequence[str],
        separator: str,
        *,
        n_skipped: int,
        types: Mapping[str, Any] | None = None,
        ignore_more: bool = False,
    ) -> pl.LazyFrame:
        """Scan all fields lazily, as text unless `types` says otherwise."""
        polars = import_polars()
        lazy: pl.LazyFrame = polars.scan_csv(
            self._source,
            glob=False,
            separator=separator[0],
            has_header=False,
            skip_rows=n_skipped,
            schema={name: (types or {}).get(name, polars.String) for name in names},
            quote_char=None if separator in _UNQUOTED else '"',
            truncate_ragged_lines=ignore_more,
        )
        if separator == "\t" and self._may_have_escapes:
            texts = polars.col(polars.String)
            lazy = lazy.with_columns(texts.str.replace_many(list(ESCAPES.values()), list(ESCAPES)))
        return lazy

    @cached_property
    def _may_have_escapes(self) -> bool:
        """Whether there is a backslash in the file; not looked for where polars decompresses it."""
        if isinstance(self._source, bytes):
            return b"\\" in self._source
        with self._source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content[:4] == ZSTD or content.find(b"\\") >= 0


def quoted_fields(line: str, separator: str) -> list[bool]:
    """Say of each field of a line whether it has quotation marks around it.

    >>> quoted_fields('"7",Alien,"say ""hi"", ann"', ",")
    [True, False, True]
    """
    if separator in _UNQUOTED:
        return [False] * len(line.split(separator))
    found, at = [], 0
    for field in next(csv.reader([line], delimiter=separator), []):
        found.append(line[at : at + 1] == '"')
        at += len(field) + 1 + (2 + field.count('"') if found[-1] else 0)
    return found


def _unescaped(field: str, separator: str) -> str:
    if separator != "\t" or "\\" not in field:
        return field
    return _ESCAPED.sub(lambda found: _PLAIN[found[0]], field)


def checked_separator(separator: str) -> str:
    """Return a separator that can be one."""
    if separator != "::" and not (len(separator) == 1 and separator.isascii() and separator not in '\r\n"'):
        raise BadSetting(f"separator must be one character or '::'; got {separator!r}")
    return separator


def is_number(text: str) -> bool:
    """Say whether a text is a number as files write it: Python's 1_0 and digits of other scripts are none."""
    return _NUMBER.fullmatch(text) is not None


def is_missing(text: str) -> bool:
    """Say whether a text stands for a value that is missing."""
    return text.strip().lower() in MISSING_WORDS
