"""Files to read: checks of the path, decompression within a bound, and one sentence where a file is
damaged."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from deepmf.errors import BadEntries, BadSetting, Hint, UnreadableFile, warn
from deepmf.files import polars

# A file of a few kB can expand to more than any memory holds. A file beyond both bounds is refused.
MOST_EXPANSION = 250  # times the size of the file; ratings as text compress 3 to 30 times
ALWAYS_ALLOWED = 64 << 20  # bytes

# The first bytes of compressed files, and the endings of their names.
_COMPRESSED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"]\x00\x00": lzma.open,
    b"PK\x03\x04": lambda path: _open_zip(path),
}
COMPRESSED_ENDINGS = (".gz", ".bz2", ".xz", ".lzma", ".zip")
_UNREADABLE = (b"\x28\xb5\x2f\xfd", b"x\x01", b"x\x9c", b"x\xda")  # zstd and zlib
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks, as Excel writes them

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
    """Return a text file as polars reads it: the path, or the content decompressed and in UTF-8.

    Without an encoding, UTF-8, UTF-16 with a byte order mark and Windows-1252 are recognised.
    """
    check_encoding(encoding)
    content = _decompress(path)
    if encoding is not None:
        return _decode(path, path.read_bytes() if content is None else content, encoding)
    with path.open("rb") if content is None else BytesIO(content) as file:
        if file.read(2) in _UTF_16:
            file.seek(0)
            return _decode(path, file.read(), "utf-16")
        file.seek(0)
        if not _is_utf_8(file):
            file.seek(0)
            return _decode_windows_1252(path, file.read())
    return prepare_path(path) if content is None else content


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


def _is_utf_8(file: IO[bytes]) -> bool:
    """Whether a whole file is UTF-8; a pass takes a small part of the time of parsing."""
    try:
        deque(codecs.iterdecode(iter(lambda: file.read(_PIECE), b""), "utf-8"), maxlen=0)
    except UnicodeDecodeError:
        return False
    return True


def _decode_windows_1252(path: Path, content: bytes) -> bytes:
    """Return a text in Windows-1252, as spreadsheets write it, as UTF-8; refuse other bytes and
    damaged UTF-8."""
    as_utf_8 = content.decode("utf-8", errors="replace")
    n_wrong = as_utf_8.count("\ufffd")
    n_right = sum(not character.isascii() for character in as_utf_8) - n_wrong
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        text = "\0"
    has_control_characters = any(
        ord(character) < ord(" ") and character not in "\t\r\n\f" for character in set(text)
    )
    if n_right > n_wrong or has_control_characters:
        raise UnreadableFile(f"{path} is not UTF-8 text", hint=ENCODING_HINT)
    warn(f"{path} is not UTF-8 text, and is read as Windows-1252 (set the encoding to change this)")
    return text.encode()


def _decode(path: Path, content: bytes, encoding: str) -> bytes:
    """Return a text as UTF-8 without a byte order mark."""
    try:
        return content.decode(encoding).removeprefix("\ufeff").encode()
    except UnicodeError as error:
        raise UnreadableFile(f"{path} is not whole text in {encoding} ({error})") from error


def _decompress(path: Path) -> bytes | None:
    """Return the content of a compressed file, within a bound; None for a plain one."""
    with path.open("rb") as file:
        beginning = file.read(len(max(_COMPRESSED, key=len)))
    if beginning.startswith(_UNREADABLE):
        raise UnreadableFile(
            f"{path} is compressed by zstd or zlib; text is read plain, or compressed by gzip, bzip2, "
            "xz or zip"
        )
    openers = [opener for mark, opener in _COMPRESSED.items() if beginning.startswith(mark)]
    if not openers:
        return None
    content = bytearray()
    try:
        with openers[0](path) as stream:
            while piece := stream.read(_PIECE):
                content += piece
                check_expansion(path, len(content))
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise UnreadableFile(
            f"{path} is damaged or cut off: it cannot be decompressed ({error})"
        ) from error
    return bytes(content)


def _open_zip(path: Path) -> IO[bytes]:
    """Open the only file in a zip archive."""
    archive = zipfile.ZipFile(path)
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) != 1:
        names = ", ".join(member.filename for member in members[:3])
        raise UnreadableFile(
            f"{path} is an archive of {len(members)} files ({names}, ...); unpack the one to read"
        )
    if members[0].flag_bits & 1:
        raise UnreadableFile(f"{path} is encrypted; unpack it first")
    return archive.open(members[0])
