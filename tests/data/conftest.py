"""Helpers that tests of several files share."""

import pyarrow as pa


def compress_zstd(content: bytes) -> bytes:
    """Return content as a zst file."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()
