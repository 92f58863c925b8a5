"""`deepmf pack`: files of entries as a store on disk, which every command reads in memory of what it touches."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from deepmf.cli.inputs import Reading, in_options, local_file, tell_reading
from deepmf.cli.option_groups import takes_groups
from deepmf.cli.options import Json, ScaleText
from deepmf.cli.output import STANDARD, say, show_json
from deepmf.cli.progress import show_share
from deepmf.cli.setting_options import parse_scale
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    from deepmf.data.missing_values import Missing
    from deepmf.matrix.sorting import Duplicates


@takes_groups
def pack(
    ratings: Annotated[
        list[Path],
        typer.Argument(
            metavar="RATINGS...",
            help="Entries: csv, tsv, parquet, jsonl, MovieLens .dat, .npz, stores; also .gz, .zst; - for csv from "
            "standard input. All files together are one matrix.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="STORE", help="The store to write: a folder that is not there yet."),
    ],
    scale: ScaleText = None,
    *,
    reading: Reading,
    as_json: Json = False,
) -> None:
    """Pack entries of any number into a store: a folder that every command takes in the place of a file of entries.

    It is built in memory that does not grow with the entries, and read in memory of what is touched.

    Example: deepmf pack ratings/*.parquet -o ratings.store && deepmf fit ratings.store -o model.safetensors
    """
    from deepmf.data.entry_batches import LineReading
    from deepmf.data.packing import pack_files
    from deepmf.data.read import read_matrix

    if str(output) == STANDARD:
        raise BadSetting("a store is a folder and cannot be written to standard output; -o takes its name")
    with ExitStack() as stack:
        files = [stack.enter_context(local_file(file)) for file in ratings]
        stack.enter_context(in_options())
        progress = stack.enter_context(show_share("packing"))
        how = LineReading(
            reading.asked, reading.field_separator, None, cast("Missing", reading.missing), reading.decimal
        )
        packed = pack_files(
            files,
            output,
            how=how,
            scale=parse_scale(scale),
            duplicates=cast("Duplicates", reading.duplicates),
            wide=reading.wide,
            progress=progress,
        )
    for file, read in zip(ratings, packed, strict=True):
        tell_reading(file, read.guessed, read.n_dropped, wide=reading.wide)
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
