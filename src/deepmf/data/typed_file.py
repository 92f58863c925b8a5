"""Chosen columns of a file whose values have types: Parquet or JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.data.source import check_expansion, checked_path, polars_source, reading, text_source
from deepmf.files.frame_library import import_polars

if TYPE_CHECKING:
    import polars as pl

_PARQUET = (".parquet", ".pq")
_JSON_LINES = (".jsonl", ".ndjson")
ENDINGS = (*_PARQUET, *_JSON_LINES)

_CELL_BYTES = 8


def read_typed(path: Path, choose: Callable[[pl.LazyFrame], Sequence[str]]) -> pl.DataFrame:
    """Read the columns that `choose` names, given the file as a lazy frame."""
    path = checked_path(path)
    with reading(path, format_of(path)):
        lazy = scan_typed_file(path)
        chosen = list(choose(lazy))
        check_lines(path, lazy, len(chosen))
        frame: pl.DataFrame = lazy.select(chosen).collect()
    return frame


def format_of(path: Path) -> str:
    """Return what the format of a file is called."""
    return "JSON lines" if path.suffix.lower() in _JSON_LINES else "Parquet"


def scan_typed_file(path: Path) -> pl.LazyFrame:
    """Return the file as a lazy frame."""
    polars = import_polars()
    lazy: pl.LazyFrame
    if path.suffix.lower() in _JSON_LINES:
        source = text_source(path)
        if isinstance(source, Path) and any(sign in str(source) for sign in "*?["):
            source = path.read_bytes()  # the name would be taken for a pattern
        # Types come from all lines: a first null, or a first whole number, says nothing of those that follow.
        lazy = polars.scan_ndjson(source, infer_schema_length=None)
    else:
        # Neither the name of a file nor that of its folder is a pattern or says what the file holds.
        lazy = polars.scan_parquet(polars_source(path), glob=False, hive_partitioning=False)
    return lazy


def check_lines(path: Path, lazy: pl.LazyFrame, n_columns: int) -> None:
    """Refuse a Parquet file of far more lines than its size lets expect."""
    if path.suffix.lower() in _JSON_LINES:
        return
    # Runs of one value take no room in the file: a few bytes may stand for 10^12 lines.
    n_lines = lazy.select(import_polars().len()).collect().item()
    check_expansion(path, n_lines * n_columns * _CELL_BYTES)
