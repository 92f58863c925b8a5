"""`deepmf predict`: predictions for the pairs of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.inputs import Reading, hinting_at_extension, load_model
from deepmf.cli.options import Column, Extend, FrameFile, FrameJson, ModelFile, Row, Separator, Value
from deepmf.cli.output import STANDARD
from deepmf.cli.output_frames import check_frame_target, show_predicted, write_frames
from deepmf.cli.pairs import Pairs, read_pairs
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepmf.models.model import Model


def predict(
    model: ModelFile,
    pairs: Annotated[
        Path,
        typer.Argument(metavar="PAIRS", help="A row and a column per line: csv, tsv, parquet; - for standard input."),
    ],
    output: FrameFile = STANDARD,
    extend: Extend = None,
    levels: Annotated[bool, typer.Option("--levels", help="Answer in legal levels.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE",
            help="Also put out lower and upper, which hold the value with this probability, such as 0.9 (dmf-o).",
        ),
    ] = None,
    row: Row = None,
    column: Column = None,
    value: Value = None,
    separator: Separator = None,
    as_json: FrameJson = False,
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
    if interval is not None:
        columns |= _ends(fitted, wanted, interval)
    frame = polars.DataFrame({name: array.tolist() for name, array in columns.items()})
    write_frames([frame], frame.schema, output, standard_format=".jsonl" if as_json else ".csv")
    counts = dict(zip(*(found.tolist() for found in np.unique(areas, return_counts=True)), strict=True))
    show_predicted(counts, output, as_json=as_json)


def _ends(model: Model, pairs: Pairs, coverage: float) -> dict[str, npt.NDArray[Any]]:
    """Return the ends of the prediction intervals; only a model that answers with a distribution has any."""
    from deepmf.models.ordinal.ordinal_dmf import OrdinalDMF

    if not isinstance(model, OrdinalDMF):
        raise BadSetting(f"{type(model).__name__} gives no intervals; a model fitted with --model dmf-o does")
    return model.predict_interval(*pairs, coverage=coverage)._asdict()
