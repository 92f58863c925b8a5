"""Delimited text, plain or compressed: its first lines, its separator, its fields as columns."""

from __future__ import annotations

import csv
import gzip
import mmap
import re
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from deepmf.errors import BadSetting, FileAbsent, UnreadableFile
from deepmf.files import ESCAPES, import_polars

if TYPE_CHECKING:
    import polars as pl


_WHOLE = re.compile(r"0|-?[1-9][0-9]*")

_BEYOND = 10**18


def is_whole(text: str) -> bool:
    """Say whether a text is a whole number that reads back as it stands: neither 007 nor +7 nor -0."""
    return _WHOLE.fullmatch(text) is not None


def whole_or_text(ids: pl.Series) -> pl.Series:
    """Return ids as ints if all of them are whole numbers, otherwise as they are."""
    numbers = ids.cast(import_polars().Int64, strict=False)
    if numbers.null_count() > ids.null_count() or not are_written_so(numbers, int(ids.str.len_bytes().sum())):
        return ids
    return numbers


def whole_or_null(ids: pl.Series) -> pl.Series:
    """Return ids as ints, null where one is no whole number."""
    polars = import_polars()
    numbers = ids.cast(polars.Int64, strict=False)
    return numbers.set(numbers.cast(polars.String) != ids, None)


def are_written_so(numbers: pl.Series, n_characters: int) -> bool:
    """Say whether texts that were read as ints, with this number of characters in all, are these ints as written.

    Whatever else reads as an int (007, +7, -0) is longer; to add up lengths takes a fraction of the time that writing
    the ints and comparing texts would.
    """
    low, high = numbers.min(), numbers.max()
    if low is None:
        return True
    assert isinstance(low, int) and isinstance(high, int)
    if low <= -_BEYOND or high >= _BEYOND:
        return False
    n_written, sizes = len(numbers) - numbers.null_count(), numbers
    if low < 0:
        n_written += int((numbers < 0).sum())
        sizes = numbers.abs()
    for power in range(1, len(str(max(-low, high)))):
        n_written += int((sizes >= 10**power).sum())
    return n_written == n_characters


# A file of a few kB can expand to more than any memory holds: beyond both of these it is refused.
MOST_EXPANSION = 250  # times the size of the file; ratings as text compress 3 to 30 times

ALWAYS_ALLOWED = 64 << 20  # bytes


_PIECE = 1 << 20

_GZIP = b"\x1f\x8b"

_ZLIB = (b"x\x01", b"x\x9c", b"x\xda")  # which polars would decompress without a bound

ZSTD = b"\x28\xb5\x2f\xfd"

_ZSTD_BLOCK = 128 << 10  # the most that one block expands to


def checked_path(path: str | Path) -> Path:
    """Return a path that is an ordinary file with content; otherwise say what it is."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableFile(f"{path} is a directory; a file is needed")
        if not stat.S_ISREG(mode):
            raise UnreadableFile(f"{path} is not an ordinary file; a file is needed (a command takes - for a pipe)")
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError as error:
        raise FileAbsent(f"there is no file {path}") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a null character
        raise UnreadableFile(f"{str(path)!r} cannot be the name of a file ({error})") from error
    if empty:
        raise UnreadableFile(f"{path} is empty")
    return path


def is_folder(path: str | Path) -> bool:
    """Say whether a path is a folder, as a store is."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):  # a null character: what it cannot be is said where it is opened
        return False


def text_source(path: Path) -> Path | bytes:
    """Return what polars can read as text: the file itself, or what it decompresses to."""
    with path.open("rb") as file:
        beginning = file.read(4)
        file.seek(0)
        if beginning.startswith(_GZIP):
            return _unzipped(path, file)
        if beginning.startswith(_ZLIB):
            raise UnreadableFile(f"{path} is compressed by zlib; text is read plain, or compressed by gzip or zstd")
        if beginning == ZSTD:
            check_expansion(path, _zstd_bound(path, file))
    return polars_source(path)


def polars_source(path: Path) -> Path | bytes:
    """Return a path as polars takes it, or the content where the name is not UTF-8, which it does not take."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.read_bytes()
    return path.absolute()  # a name that begins with ~ would be read as a home directory


def check_expansion(path: Path, n_bytes: int) -> None:
    """Refuse a file that would take far more memory than its size lets expect."""
    size = path.stat().st_size
    if n_bytes > max(ALWAYS_ALLOWED, MOST_EXPANSION * size):
        raise UnreadableFile(
            f"{path} has {size:,} bytes and would expand to {n_bytes:,} or more; beyond {ALWAYS_ALLOWED >> 20} MiB a "
            f"file may expand to at most {MOST_EXPANSION} times its size: if you trust it, decompress it first"
        )


@contextmanager
def reading(path: Path, kind: str) -> Iterator[ModuleType]:
    """Yield polars; what it raises over a damaged file, panics included, becomes one sentence."""
    polars = import_polars()
    try:
        yield polars
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        if kind == "text" and "utf" in str(error).lower():
            raise UnreadableFile(f"{path} is not UTF-8 text; convert it first, for instance with iconv") from error
        if "more fields" in str(error):
            raise UnreadableFile(
                f"{path} has lines with more columns than line 1 (a separator inside a field, unquoted?)"
            ) from error
        verdict = "cannot be read as text" if kind == "text" else f"is not a whole {kind} file"
        raise UnreadableFile(f"{path} {verdict} ({first_sentence(error)})") from error


def first_sentence(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__


def _unzipped(path: Path, file: BinaryIO) -> bytes:
    """Decompress gzip, of any number of members."""
    content = bytearray()
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while piece := stream.read(_PIECE):
                content += piece
                check_expansion(path, len(content))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableFile(f"{path} is damaged or cut off: it cannot be decompressed ({error})") from error
    return bytes(content)


def _zstd_bound(path: Path, file: BinaryIO) -> int:
    """Return the most that a zst file can expand to, from the headers of its blocks (RFC 8878, section 3.1.1)."""
    bound = 0
    while magic := file.read(4):
        if len(magic) == 4 and magic[1:] == b"\x2a\x4d\x18" and magic[0] >> 4 == 5:  # a frame to be skipped
            file.seek(int.from_bytes(_exactly(path, file, 4), "little"), 1)
            continue
        if magic != ZSTD:
            raise _damaged_zstd(path)
        descriptor = _exactly(path, file, 1)[0]
        single = descriptor >> 5 & 1
        size_bytes = (single, 2, 4, 8)[descriptor >> 6]
        _exactly(path, file, (1 - single) + (0, 1, 2, 4)[descriptor & 3] + size_bytes)
        is_last = False
        while not is_last:
            header = int.from_bytes(_exactly(path, file, 3), "little")
            is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            if kind == 3 or size > _ZSTD_BLOCK:
                raise _damaged_zstd(path)
            bound += size if kind < 2 else _ZSTD_BLOCK
            check_expansion(path, bound)
            _exactly(path, file, 1 if kind == 1 else size)
        _exactly(path, file, 4 * (descriptor >> 2 & 1))
    return bound


def _exactly(path: Path, file: BinaryIO, n_bytes: int) -> bytes:
    content = file.read(n_bytes)
    if len(content) < n_bytes:
        raise UnreadableFile(f"{path} is damaged or cut off: it cannot be decompressed (it has no end)")
    return content


def _damaged_zstd(path: Path) -> UnreadableFile:
    return UnreadableFile(f"{path} is damaged or cut off: it cannot be decompressed (no frame or block of zstd)")


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
