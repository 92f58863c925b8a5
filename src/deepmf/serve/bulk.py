"""Entries in bulk: read JSON lines into one write, and stream all entries as JSON lines."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from deepmf.models.base import Model
from deepmf.serve.changes import list_entries
from deepmf.serve.errors import ApiError, shorten
from deepmf.serve.ids import is_visitor
from deepmf.serve.kinds import Kinds, read_entry
from deepmf.serve.schemas import LONGEST_ID, MAX_LINES, EntryLine, Id
from deepmf.serve.writer import BulkWrite, GivenEntry, Refusals

LINES_TYPE = "application/x-ndjson"

_GZIP = 16 + zlib.MAX_WBITS
_LINE_BYTES = 32 << 10  # two of the longest ids need fewer, however they are escaped
_PARSED_BYTES = 256 << 10  # at a time: no other thread runs while JSON is parsed
_EXPORTED_ROWS = 1_000  # at a time
_LINE = TypeAdapter(EntryLine)
_ARRAYS = TypeAdapter(list[list[Any]])
_FIELDS = {"row", "column", "value"}
_LARGE = 2**53  # whole numbers below are floats, too

_Line = tuple[int, bytes]  # its number and its text
_PlacedEntry = tuple[Id, Id, GivenEntry]  # of a row and a column


def parse_bulk(body: bytes, encoding: str, *, max_bytes: int, key: str | None, kinds: Kinds | None = None) -> BulkWrite:
    """Return the write of a body of JSON lines; raise `ApiError` if it is too large or cannot be decompressed.

    Parameters
    ----------
    encoding : the Content-Encoding of the body: `gzip`, `identity` or nothing.
    max_bytes : the largest size after decompression.
    kinds : the kinds of feedback.
    """
    content = _decompress(body, encoding, max_bytes)
    n_lines = content.count(b"\n") + (not content.endswith(b"\n"))
    if n_lines > MAX_LINES:
        raise ApiError(413, "too_many_lines", f"{n_lines:,} lines are too many: send at most {MAX_LINES:,} at once")
    numbered = [(number, text) for number, text in enumerate(content.split(b"\n"), 1) if text and not text.isspace()]
    if not numbered:
        raise ApiError(422, "invalid", 'the body has no lines; each is {"row":, "column":, "value":}')
    found: list[tuple[int, Id, Id, GivenEntry]] = []
    refusals = Refusals()
    for group in _group_lines(numbered, refusals):
        for (number, text), plain in zip(group, _read_plain(group), strict=True):
            try:
                found.append((number, *(plain or _read_line(text, kinds or {}))))
            except ApiError as error:
                refusals.add(error.code, str(error), [number])
    lines, rows, columns, entries = zip(*found, strict=True) if found else ((), (), (), ())
    return BulkWrite(
        lines=lines,
        rows=rows,
        columns=columns,
        entries=entries,
        refused=refusals.to_list(),
        body_digest=hashlib.sha256(content).hexdigest(),
        key=key,
    )


def _group_lines(numbered: Sequence[_Line], refusals: Refusals) -> Iterator[list[_Line]]:
    """Yield lines that are parsed together; refuse those that are too long."""
    message = f"a line may have at most {_LINE_BYTES:,} bytes"
    refusals.add("too_long", message, [number for number, text in numbered if len(text) > _LINE_BYTES])
    lines = [line for line in numbered if len(line[1]) <= _LINE_BYTES]
    ends = accumulate(len(text) for _, text in lines)
    for _, group in groupby(zip(lines, ends, strict=True), key=lambda placed: placed[1] // _PARSED_BYTES):
        yield [line for line, _ in group]


def _read_plain(numbered: Sequence[_Line]) -> list[_PlacedEntry | None]:
    """Return the plain entries among lines, which are most of them; None for lines that need a closer look.

    All lines are parsed together, each in an array of its own. A line break cannot be part of a string, and a plain
    entry has no arrays: so each plain entry is one line.
    """
    together = b"[[" + b"]\n,[".join(text for _, text in numbered) + b"]]"
    try:
        arrays = _ARRAYS.validate_json(together)
    except ValidationError:
        return [None] * len(numbered)
    if len(arrays) != len(numbered):
        return [None] * len(numbered)
    return [_check_plain(array[0]) if len(array) == 1 else None for array in arrays]


def _check_plain(entry: Any) -> _PlacedEntry | None:
    """Return a row, a column and an entry with a value of the usual type alone, or None."""
    if type(entry) is not dict or entry.keys() != _FIELDS:
        return None
    row, column, value = entry["row"], entry["column"], entry["value"]
    for given in (row, column):
        if not ((type(given) is str and len(given) <= LONGEST_ID) or (type(given) is int and -_LARGE < given < _LARGE)):
            return None
    if value is None:
        return row, column, GivenEntry(None)
    # NaN and numbers that float would round are compared as false.
    if type(value) in (int, float) and -_LARGE < value < _LARGE:
        return row, column, GivenEntry(float(value))
    return None


def _read_line(text: bytes, kinds: Kinds) -> _PlacedEntry:
    try:
        entry = _LINE.validate_json(text)
    except ValidationError as error:
        raise ApiError(422, "invalid", _describe(error)) from error
    return entry.row, entry.column, GivenEntry(*read_entry(entry, kinds))


def export_lines(model: Model) -> Iterator[bytes]:
    """Yield all entries of a model as JSON lines, some rows at a time; rows of the page's visitors are left out."""
    store = model.entries_
    for start in range(0, len(store.rows), _EXPORTED_ROWS):
        at = np.arange(start, min(start + _EXPORTED_ROWS, len(store.rows)))
        found = store.seen_columns(at)
        rows = np.repeat(store.rows[at], np.diff(found.starts)).tolist()
        entries = list_entries(found.values, found.extras)
        lines = [
            json.dumps({"row": row, "column": column, **entry.describe()})
            for row, column, entry in zip(rows, store.columns[found.others].tolist(), entries, strict=True)
            if not is_visitor(row)
        ]
        if lines:
            yield "\n".join([*lines, ""]).encode()


def compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces of bytes as gzip."""
    stream = zlib.compressobj(level=1, wbits=_GZIP)
    for piece in pieces:
        yield stream.compress(piece)
    yield stream.flush()


def _decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise ApiError(400, "bad_encoding", f"the Content-Encoding {encoding!r} is not known; use gzip, or none")
    try:
        found = gzip.GzipFile(fileobj=io.BytesIO(body)).read(max_bytes + 1)
    except EOFError as error:
        raise ApiError(400, "bad_encoding", "the body ends before its gzip stream does") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ApiError(
            400, "bad_encoding", "the body is not gzip, or has other bytes behind its gzip stream"
        ) from error
    if len(found) > max_bytes:
        raise ApiError(413, "too_large", f"the body is longer than {max_bytes:,} bytes after decompression")
    return found


def _describe(error: ValidationError) -> str:
    """Return the first problem of a line, without its ids."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return "this line is not JSON"
    place = str(first["loc"][0]) if first["loc"] else "line"
    return shorten(f"{place}: {first['msg']}")
