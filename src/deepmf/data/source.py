"""Files to read: checks of the path, decompression within a bound, and one sentence where a file is
damaged."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from deepmf.errors import BadEntries, BadSetting, Hint, UnreadableFile, warn
from deepmf.files import import_polars

# A file of a few kB can expand to more than any memory holds. A file beyond both bounds is refused.
MOST_EXPANSION = 250  # times the size of the file; ratings as text compress 3 to 30 times
ALWAYS_ALLOWED = 64 << 20  # bytes

_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks, as Excel writes them
_ZLIB = (b"x\x01", b"x\x9c", b"x\xda")

_PIECE = 1 << 20  # bytes decompressed at a time

ENCODING_HINT = Hint(
    "set encoding=, such as encoding='cp1250'", "set --encoding, such as --encoding cp1250"
)


def check_encoding(encoding: str | None) -> None:
    """Refuse the name of an encoding that Python does not know."""
    try:
        "a".encode(encoding or "utf-8")  # an empty text is never looked up
    except (LookupError, ValueError) as error:
        raise BadSetting(
            f"{encoding!r} is not an encoding; name one such as utf-8, cp1252 or latin-1"
        ) from error


def prepare_text(path: Path, encoding: str | None = None) -> Path | bytes:
    """Return a text file as polars reads it: the path, or the content in UTF-8.

    Without an encoding, UTF-8, UTF-16 with a byte order mark and Windows-1252 are recognised.
    """
    if encoding is not None:
        return _decode(path, encoding)
    with path.open("rb") as file:
        beginning = file.read(4)
        file.seek(0)
        if beginning.startswith(_GZIP):
            return _decompress_gzip(path, file)
        if beginning == _ZSTD or beginning.startswith(_ZLIB):
            raise UnreadableFile(
                f"{path} is compressed by zstd or zlib; text is read plain, or compressed by gzip"
            )
        if beginning.startswith(_UTF_16):
            return _decode(path, "utf-16")
        if not _is_utf_8(file):
            return _decode_windows_1252(path)
    return prepare_path(path)


def prepare_path(path: Path) -> Path | bytes:
    """Return a path as polars takes it, or the file's content where the name is not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.read_bytes()
    return path.absolute()  # polars would read a leading ~ as a home directory


def check_expansion(path: Path, n_bytes: int) -> None:
    """Refuse a file that would take far more memory than its size suggests."""
    size = path.stat().st_size
    if n_bytes > max(ALWAYS_ALLOWED, MOST_EXPANSION * size):
        raise UnreadableFile(
            f"{path} has {size:,} bytes and would expand to {n_bytes:,} or more; beyond {ALWAYS_ALLOWED >> 20} MiB a "
            f"file may expand to at most {MOST_EXPANSION} times its size: if you trust it, decompress it first"
        )


@contextmanager
def translate_polars_errors(path: Path, file_format: str) -> Iterator[None]:
    """Turn errors and panics of polars over a damaged file into an `UnreadableFile` of one
    sentence."""
    polars = import_polars()
    try:
        yield
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        if file_format == "text" and "utf" in str(error).lower():
            raise UnreadableFile(f"{path} is not UTF-8 text", hint=ENCODING_HINT) from error
        if "more fields" in str(error):
            raise UnreadableFile(
                f"{path} has lines with more columns than line 1 (a separator inside a field, unquoted?)"
            ) from error
        verdict = (
            "cannot be read as text"
            if file_format == "text"
            else f"is not a whole {file_format} file"
        )
        raise UnreadableFile(f"{path} {verdict} ({summarise(error)})") from error


@contextmanager
def locate_errors(locate: Callable[[int | None], str]) -> Iterator[None]:
    """Put the place of the problem in front of an error over entries, given the position of an
    entry or None."""
    try:
        yield
    except BadEntries as error:
        raise error.locate(locate(error.position)) from error


def summarise(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__


def _is_utf_8(file: BinaryIO) -> bool:
    """Whether a whole file is UTF-8; a pass takes a small part of the time of parsing."""
    try:
        deque(codecs.iterdecode(iter(lambda: file.read(_PIECE), b""), "utf-8"), maxlen=0)
    except UnicodeDecodeError:
        return False
    return True


def _decode_windows_1252(path: Path) -> bytes:
    """Return a text in Windows-1252, as spreadsheets write it, as UTF-8; refuse other bytes and
    damaged UTF-8."""
    content = path.read_bytes()
    as_utf_8 = content.decode("utf-8", errors="replace")
    n_wrong = as_utf_8.count("\ufffd")
    n_right = sum(not character.isascii() for character in as_utf_8) - n_wrong
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        text = "\0"
    if n_right > n_wrong or any(
        ord(character) < 32 and character not in "\t\r\n\f" for character in set(text)
    ):
        raise UnreadableFile(f"{path} is not UTF-8 text", hint=ENCODING_HINT)
    warn(f"{path} is not UTF-8 text, and is read as Windows-1252 (set the encoding to change this)")
    return text.encode()


def _decode(path: Path, encoding: str) -> bytes:
    """Return a text, plain or compressed by gzip, as UTF-8 without a byte order mark."""
    check_encoding(encoding)
    with path.open("rb") as file:
        is_gzip = file.read(2) == _GZIP
        file.seek(0)
        content = _decompress_gzip(path, file) if is_gzip else file.read()
    try:
        return content.decode(encoding).removeprefix("\ufeff").encode()
    except UnicodeError as error:
        raise UnreadableFile(f"{path} is not whole text in {encoding} ({error})") from error


def _decompress_gzip(path: Path, file: BinaryIO) -> bytes:
    """Decompress gzip with any number of members."""
    content = bytearray()
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while piece := stream.read(_PIECE):
                content += piece
                check_expansion(path, len(content))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableFile(
            f"{path} is damaged or cut off: it cannot be decompressed ({error})"
        ) from error
    return bytes(content)
