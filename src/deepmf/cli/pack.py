"""`deepmf pack`: pack files of entries into a store on disk."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from deepmf.cli import options
from deepmf.cli.inputs import InputOptions, open_input, report_reading, report_time, with_reading_options
from deepmf.cli.output import STANDARD, say, show_json, show_share
from deepmf.cli.settings import parse_scale
from deepmf.errors import BadSetting


@with_reading_options
def pack(
    ratings: Annotated[
        list[Path],
        typer.Argument(
            metavar="RATINGS...",
            help="Files of entries that form one matrix: csv, tsv, parquet, jsonl, MovieLens .dat, .npz or stores, "
            "also .gz and .zst; - for csv on standard input.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="STORE", help="Store to write: a new folder."),
    ],
    scale: options.ScaleText = None,
    *,
    reading: InputOptions,
    as_json: options.Json = False,
) -> None:
    """Pack files of entries into a store on disk.

    A store is a folder that every command reads memory-mapped. Packing needs memory for the ids, not for the entries.

    Example: deepmf pack ratings.csv -o ratings.store
    """
    from deepmf.data.packing import pack_files
    from deepmf.data.read import read_matrix

    if str(output) == STANDARD:
        raise BadSetting("a store is a folder and cannot go to standard output; give -o STORE")
    with ExitStack() as stack:
        files = [stack.enter_context(open_input(file)) for file in ratings]
        progress = stack.enter_context(show_share("packing"))
        packed = pack_files(files, output, reading.for_reader(parse_scale(scale)), progress=progress)
    for file, read in zip(ratings, packed, strict=True):
        report_reading(file, read.guess, read.n_dropped, wide=reading.wide)
        report_time(file, read.time_note)
    matrix = read_matrix(output)
    n_bytes = sum(part.stat().st_size for part in output.iterdir())
    if as_json:
        shown = {"store": str(output), "entries": matrix.n_entries, "rows": matrix.shape[0]}
        n_dropped = sum(read.n_dropped for read in packed)
        show_json(shown | {"columns": matrix.shape[1], "bytes": n_bytes, "dropped": n_dropped})
        return
    say(
        f"{output}: {matrix.n_entries:,} entries in {matrix.shape[0]:,} rows x {matrix.shape[1]:,} columns, "
        f"{n_bytes / 1e6:,.1f} MB"
    )
    say(f"next: deepmf fit {shlex.quote(str(output))} -o model.safetensors")
