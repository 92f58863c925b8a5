"""Chosen columns of a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.data.source import check_expansion, checked_path, polars_source, reading
from deepmf.files.frame_library import import_polars

if TYPE_CHECKING:
    import polars as pl

ENDINGS = (".parquet", ".pq")

_CELL_BYTES = 8


def read_parquet(path: Path, choose: Callable[[pl.LazyFrame], Sequence[str]]) -> pl.DataFrame:
    """Read the columns that `choose` names, given the file as a lazy frame."""
    path = checked_path(path)
    with reading(path, "Parquet"):
        lazy = scan_parquet(path)
        chosen = list(choose(lazy))
        check_lines(path, lazy, len(chosen))
        frame: pl.DataFrame = lazy.select(chosen).collect()
    return frame


def scan_parquet(path: Path) -> pl.LazyFrame:
    """Return the file as a lazy frame."""
    # Neither the name of a file nor that of its folder is a pattern or says what the file holds.
    lazy: pl.LazyFrame = import_polars().scan_parquet(polars_source(path), glob=False, hive_partitioning=False)
    return lazy


def check_lines(path: Path, lazy: pl.LazyFrame, n_columns: int) -> None:
    """Refuse a file of far more lines than its size lets expect."""
    # Runs of one value take no room in the file: a few bytes may stand for 10^12 lines.
    n_lines = lazy.select(import_polars().len()).collect().item()
    check_expansion(path, n_lines * n_columns * _CELL_BYTES)
