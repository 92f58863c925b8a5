"""Chosen columns of a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepmf.data.source import check_expansion, checked_path, polars_source, reading

if TYPE_CHECKING:
    import polars as pl

ENDINGS = (".parquet", ".pq")

_CELL_BYTES = 8


def read_parquet(path: Path, choose: Callable[[pl.LazyFrame], Sequence[str]]) -> pl.DataFrame:
    """Read the columns that `choose` names, given the file as a lazy frame."""
    path = checked_path(path)
    with reading(path, "Parquet") as polars:
        # Neither the name of a file nor that of its folder is a pattern or says what the file holds.
        lazy = polars.scan_parquet(polars_source(path), glob=False, hive_partitioning=False)
        chosen = list(choose(lazy))
        # Runs of one value take no room in the file: a few bytes may stand for 10^12 lines.
        n_lines = lazy.select(polars.len()).collect().item()
        check_expansion(path, n_lines * len(chosen) * _CELL_BYTES)
        frame: pl.DataFrame = lazy.select(chosen).collect()
    return frame
