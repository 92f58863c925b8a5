"""The library of frames, polars: imported where frames are made, or files read as such, and no earlier.

And frames as delimited text that is read back as it was.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from deepmf.errors import MissingDependency

# What a field split at tabs cannot hold, and what is written instead, as databases write it.
ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_WHOLE = "^(0|-?[1-9][0-9]*)$"


def import_polars() -> ModuleType:
    """Return polars; where it is missing, name what to install."""
    try:
        import polars
    except ImportError as error:
        raise MissingDependency("frames and files of entries need polars: pip install polars") from error
    return polars


def write_csv(frame: Any, file: Any, *, header: bool = True, quoted: bool | None = None) -> None:
    """Write a frame separated by commas.

    quoted: whether all texts have quotation marks; None: where some texts would be read as numbers without them.
    """
    marks = has_number_texts(frame) if quoted is None else quoted
    frame.write_csv(file, include_header=header, quote_style="non_numeric" if marks else "necessary")


def write_tsv(frame: Any, file: Any, *, header: bool = True) -> None:
    """Write a frame separated by tabs, in which quotation marks are characters like any other."""
    polars = import_polars()
    old, new = list(ESCAPES), list(ESCAPES.values())
    names = polars.Series(frame.columns, dtype=polars.String).str.replace_many(old, new)
    escaped = frame.with_columns(polars.col(polars.String).str.replace_many(old, new))
    escaped.rename(dict(zip(frame.columns, names, strict=True))).write_csv(
        file, include_header=header, separator="\t", quote_style="never"
    )


def has_number_texts(frame: Any) -> bool:
    """Say whether some column of texts has whole numbers alone."""
    polars = import_polars()
    texts = [series.drop_nulls() for series in frame.get_columns() if series.dtype == polars.String]
    return any(series.len() > 0 and series.str.contains(_WHOLE).all() for series in texts)
