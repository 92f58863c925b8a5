"""`deepmf predict`: predictions for the pairs of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepmf.cli.inputs import Reading, hinting_at_extension, load_model
from deepmf.cli.options import Column, Extend, Row, Separator, Value
from deepmf.cli.output import STANDARD, check_frame_target, show_json, write_frame
from deepmf.cli.pairs import read_pairs


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    pairs: Annotated[
        str,
        typer.Argument(metavar="PAIRS", help="A row and a column per line: csv, tsv, parquet; - for standard input."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="A .csv, .tsv, .parquet or .jsonl; - prints csv.")
    ] = STANDARD,
    extend: Extend = None,
    levels: Annotated[bool, typer.Option("--levels", help="Answer in legal levels.")] = False,
    row: Row = None,
    column: Column = None,
    value: Value = None,
    separator: Separator = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines, or a JSON summary of the file.")] = False,
) -> None:
    """Predict pairs of a row and a column; put out row, column, prediction and area.

    Example: deepmf predict model.safetensors pairs.csv -o predictions.csv --extend new_users.csv
    """
    check_frame_target(output)
    import numpy as np
    import polars

    reading = Reading(row, column, value, separator)
    fitted = load_model(model, extensions=extend or (), reading=reading)
    with hinting_at_extension():
        wanted = read_pairs(pairs, fitted, reading)
        predictions = fitted.predict_levels(*wanted) if levels else fitted.predict(*wanted)
    areas = fitted.areas(*wanted)
    columns = {"row": wanted.rows, "column": wanted.columns, "prediction": predictions, "area": areas}
    frame = polars.DataFrame({name: array.tolist() for name, array in columns.items()})
    write_frame(frame, output, standard_format=".jsonl" if as_json else ".csv")
    if output == STANDARD:
        return
    counts = dict(zip(*(found.tolist() for found in np.unique(areas, return_counts=True)), strict=True))
    if as_json:
        show_json({"predictions": frame.height, "areas": counts, "file": output})
    else:
        shown = ", ".join(f"{count:,} in area {area}" for area, count in counts.items())
        typer.echo(f"{frame.height:,} predictions ({shown}) in {output}")
