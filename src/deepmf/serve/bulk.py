"""Entries in bulk: read JSON lines into one write, and stream all entries as JSON lines."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
from pydantic import ValidationError

from deepmf.models.base import Model
from deepmf.serve.changes import list_entries
from deepmf.serve.ids import is_visitor
from deepmf.serve.schemas import MAX_LINES, ApiError, EntryLine, shorten
from deepmf.serve.writer import BulkWrite, Refusals

LINES_TYPE = "application/x-ndjson"

_GZIP = 16 + zlib.MAX_WBITS
_LINE_BYTES = 32 << 10  # two of the longest ids need fewer, however they are escaped
_EXPORTED_ENTRIES = 2_000  # at a time: they stay in memory while a client reads slowly


def parse_bulk(body: bytes, encoding: str, *, max_bytes: int, key: str) -> BulkWrite:
    """Return the write of a body of JSON lines; raise `ApiError` if it is too large or cannot be
    decompressed.

    Parameters
    ----------
    encoding : the Content-Encoding of the body: `gzip`, `identity` or nothing.
    max_bytes : the largest size after decompression.
    """
    content = _decompress(body, encoding, max_bytes)
    n_lines = content.count(b"\n") + (not content.endswith(b"\n"))
    if n_lines > MAX_LINES:
        raise ApiError(
            413,
            "too_many_lines",
            f"{n_lines:,} lines are too many: send at most {MAX_LINES:,} at once",
        )
    entries: dict[int, EntryLine] = {}
    refusals: Refusals = {}
    for number, text in enumerate(content.split(b"\n"), 1):
        if not text or text.isspace():
            continue
        refusal = "too_long", f"a line may have at most {_LINE_BYTES:,} bytes"
        if len(text) <= _LINE_BYTES:
            try:
                entries[number] = EntryLine.model_validate_json(text)
                continue
            except ValidationError as error:
                refusal = "invalid", _describe(error)
        refusals.setdefault(refusal, []).append(number)
    if not entries and not refusals:
        raise ApiError(
            422, "invalid", 'the body has no lines; each is {"row":, "column":, "value":}'
        )
    return BulkWrite(entries, refusals, hashlib.sha256(content).hexdigest(), key)


def export_lines(model: Model) -> Iterator[bytes]:
    """Yield all entries of a model as JSON lines, some rows at a time; rows of the page's visitors
    are left out."""
    store = model.entries_
    n_rows = len(store.rows)
    n_at_once = max(1, _EXPORTED_ENTRIES * n_rows // max(1, store.n_entries))
    for start in range(0, n_rows, n_at_once):
        at = np.arange(start, min(start + n_at_once, n_rows))
        seen_entries = store.seen_columns(at)
        # those of the same time as written
        order = seen_entries.extras.sort_within(seen_entries.group_of)
        rows = np.repeat(store.rows[at], np.diff(seen_entries.starts)).tolist()
        entries = list_entries(seen_entries.values[order], seen_entries.extras.take(order))
        lines = [
            json.dumps({"row": row, "column": column, **entry.describe()})
            for row, column, entry in zip(
                rows, store.columns[seen_entries.others[order]].tolist(), entries, strict=True
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
        raise ApiError(
            400,
            "bad_encoding",
            f"the Content-Encoding {encoding!r} is not known; use gzip, or none",
        )
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(body)).read(max_bytes + 1)
    except EOFError as error:
        raise ApiError(400, "bad_encoding", "the body ends before its gzip stream does") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ApiError(
            400, "bad_encoding", "the body is not gzip, or has other bytes behind its gzip stream"
        ) from error
    if len(content) > max_bytes:
        raise ApiError(
            413, "too_large", f"the body is longer than {max_bytes:,} bytes after decompression"
        )
    return content


def _describe(error: ValidationError) -> str:
    """Return the first problem of a line, without its ids."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return "this line is not JSON"
    place = str(first["loc"][0]) if first["loc"] else "line"
    return shorten(f"{place}: {first['msg']}")
