"""Lines without a value, or without an id: refused with their number, or left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from deepmf.errors import BadEntries, BadSetting
from deepmf.files.frame_library import import_polars

if TYPE_CHECKING:
    import polars as pl

Missing = Literal["error", "drop"]
MISSING_HINT = "missing='drop' leaves them out"


class KeptLines(NamedTuple):
    """The lines that hold an entry, where each of them stood (None: where it stands), and how many were left out."""

    frame: pl.DataFrame
    places: npt.NDArray[np.int64] | None
    n_dropped: int

    def place(self, at: int) -> int:
        """Return where a line stood before others were left out."""
        return at if self.places is None else int(self.places[at])


def check_missing(missing: str) -> None:
    """Refuse a value that `missing` cannot have."""
    if missing not in get_args(Missing):
        raise BadSetting(f"missing must be 'error' or 'drop'; got {missing!r}")


def whole_lines(frame: pl.DataFrame, missing: Missing, *, n_before: int | None = None) -> KeptLines:
    """Return the lines with a row, a column and a value, in this order; others are an error, or left out.

    n_before: of a file that is read some lines at a time, how many came before these; how many there are is not known.
    """
    polars = import_polars()
    value = frame.get_columns()[2]
    if value.dtype.is_float() and value.is_nan().any():
        frame = frame.with_columns(value.fill_nan(None))
    n_lines = frame.height
    if not any(series.null_count() for series in frame.get_columns()):
        return KeptLines(frame, None, 0)
    whole = frame.select(polars.all_horizontal(polars.all().is_not_null())).to_series()
    n_missing = n_lines - int(whole.sum())
    if missing == "error":
        first = int((~whole).arg_true()[0])
        line = dict(zip(("row id", "column id", "value"), frame.row(first), strict=True))
        what = next(name for name in ("value", "row id", "column id") if line[name] is None)
        counted = f"so it is in {n_missing:,} of {n_lines:,} lines: " if n_before is None else ""
        raise BadEntries(f"the {what} is missing; {counted}{MISSING_HINT}", position=first + (n_before or 0))
    return KeptLines(frame.filter(whole), whole.arg_true().to_numpy().astype(np.int64), n_missing)
