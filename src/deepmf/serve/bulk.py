"""Entries in bulk: read JSON lines into one write, and stream all entries as JSON lines."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
from pydantic import TypeAdapter, ValidationError

from deepmf.models.base import Model
from deepmf.serve.errors import ApiError, shorten
from deepmf.serve.ids import is_visitor
from deepmf.serve.schemas import MAX_LINES, EntryLine
from deepmf.serve.writer import BulkWrite, Refusals

LINES_TYPE = "application/x-ndjson"

_GZIP = 16 + zlib.MAX_WBITS
_EXPORTED_ROWS = 1_000  # at a time
_LINE = TypeAdapter(EntryLine)


def parse_bulk(body: bytes, encoding: str, *, max_bytes: int, key: str | None) -> BulkWrite:
    """Return the write of a body of JSON lines; raise `ApiError` if it is too large or cannot be decompressed.

    Parameters
    ----------
    encoding
        The Content-Encoding of the body: `gzip`, `identity` or nothing.
    max_bytes
        The largest size after decompression.
    """
    content = _decompress(body, encoding, max_bytes)
    numbered = [(number, text) for number, text in enumerate(content.split(b"\n"), 1) if text and not text.isspace()]
    if len(numbered) > MAX_LINES:
        raise ApiError(
            413, "too_many_lines", f"{len(numbered):,} lines are too many: send at most {MAX_LINES:,} at once"
        )
    if not numbered:
        raise ApiError(422, "invalid", 'the body has no lines; each is {"row":, "column":, "value":}')
    entries: list[tuple[int, EntryLine]] = []
    refusals = Refusals()
    for number, text in numbered:
        try:
            entries.append((number, _LINE.validate_json(text)))
        except ValidationError as error:
            refusals.add("invalid", _describe(error), [number])
    return BulkWrite(
        lines=[number for number, _ in entries],
        rows=[entry.row for _, entry in entries],
        columns=[entry.column for _, entry in entries],
        values=[entry.value for _, entry in entries],
        refused=refusals.to_list(),
        body_digest=hashlib.sha256(content).hexdigest(),
        key=key,
    )


def export_lines(model: Model) -> Iterator[bytes]:
    """Yield all entries of a model as JSON lines, some rows at a time; rows of the page's visitors are left out."""
    store = model.entries_
    for start in range(0, len(store.rows), _EXPORTED_ROWS):
        at = np.arange(start, min(start + _EXPORTED_ROWS, len(store.rows)))
        found = store.seen_columns(at)
        rows = np.repeat(store.rows[at], np.diff(found.starts)).tolist()
        lines = [
            json.dumps({"row": row, "column": column, "value": value})
            for row, column, value in zip(
                rows, store.columns[found.others].tolist(), found.values.tolist(), strict=True
            )
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
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        found = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise ApiError(400, "bad_encoding", "the body is not gzip, though its Content-Encoding is") from error
    if len(found) > max_bytes:
        raise ApiError(413, "too_large", f"the body is longer than {max_bytes:,} bytes after decompression")
    if not stream.eof:
        raise ApiError(400, "bad_encoding", "the body ends before its gzip stream does")
    return found


def _describe(error: ValidationError) -> str:
    """Return the first problem of a line, without its ids."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return "this line is not JSON"
    place = str(first["loc"][0]) if first["loc"] else "line"
    return shorten(f"{place}: {first['msg']}")
