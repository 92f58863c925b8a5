"""`deepmf predict`: predictions for the pairs of a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from deepmf.cli.feature_files import FeatureFiles
from deepmf.cli.inputs import Pairs, Reading, load_model, read_pairs, refused_by_file, tell_unknown
from deepmf.cli.options import (
    Extend,
    FrameFile,
    FrameJson,
    ModelFile,
    SafeCsv,
    UnknownIds,
    Without,
    takes_groups,
)
from deepmf.cli.output import STANDARD, check_frame_target, show_predicted, write_frames
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepmf.models.base import Model
    from deepmf.models.pairs import Unknown


@takes_groups
def predict(
    model: ModelFile,
    pairs: Annotated[
        Path,
        typer.Argument(
            metavar="PAIRS", help="A row and a column per line: csv, tsv, parquet, jsonl; - for standard input."
        ),
    ],
    output: FrameFile = STANDARD,
    extend: Extend = None,
    levels: Annotated[bool, typer.Option("--levels", help="Predict legal levels.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE",
            help="Also write lower and upper, the ends of the interval with this probability, such as 0.9 (dmf-o).",
        ),
    ] = None,
    unknown: UnknownIds = "fallback",
    *,
    files: Annotated[FeatureFiles, Without("kinds")],
    reading: Annotated[Reading, Without("duplicates", "wide")],
    safe_csv: SafeCsv = False,
    as_json: FrameJson = False,
) -> None:
    """Predict pairs of a row and a column; put out both, under the names they have in PAIRS, prediction and area.

    A pair with a row or column that the model does not know lies in no area: it is counted, and predicted by the means
    of what is known; --unknown says otherwise.

    Example: deepmf predict model.safetensors pairs.csv -o predictions.csv --extend new_users.csv
    """
    inputs = [model, pairs, *(extend or ()), *files.paths]
    check_frame_target(output, inputs=inputs, safe_csv=safe_csv, as_json=as_json)
    standard_format = ".jsonl" if as_json else ".csv"
    import numpy as np
    import polars

    from deepmf.matrix.frames import TableForm
    from deepmf.models.pairs import check_unknown

    check_unknown(unknown)
    fitted = load_model(model, extensions=extend or (), reading=reading, features=files)
    with refused_by_file(pairs):
        read = read_pairs(pairs, fitted, reading, unknown=unknown)
        asked = partial(fitted.predict_levels if levels else fitted.predict, unknown=cast("Unknown", unknown))
        predictions = asked(*read.labels)
    areas = fitted.areas(*read.labels, unknown="nan")
    n_unknown = tell_unknown(fitted, pairs, *read.labels, unknown) if unknown != "error" else 0
    found = {"prediction": predictions, "area": areas}
    if interval is not None:
        found |= _ends(fitted, read, interval, unknown)
    form = fitted.entries_.train.form if read.names is None else TableForm(*read.names)
    names = form.name_ids_beside(found)
    ids = [series.alias(name) for name, series in zip(names, (read.rows.shown, read.columns.shown), strict=True)]
    frame = polars.DataFrame(ids + [polars.Series(name, array.tolist()) for name, array in found.items()])
    frame = frame.with_columns(area=polars.col("area").replace("", None))
    write_frames([frame], frame.schema, output, standard_format=standard_format, safe_csv=safe_csv)
    counts = dict(zip(*(found.tolist() for found in np.unique(areas[areas != ""], return_counts=True)), strict=True))
    show_predicted(counts, output, as_json=as_json, n_unknown=n_unknown)


def _ends(model: Model, pairs: Pairs, coverage: float, unknown: str) -> dict[str, npt.NDArray[Any]]:
    """Return the ends of the prediction intervals; only a model that predicts a distribution has any."""
    if not model.gives_distribution:
        raise BadSetting(f"{type(model).__name__} gives no intervals; a model fitted with --model dmf-o does")
    return model.predict_interval(*pairs.labels, coverage=coverage, unknown=cast("Unknown", unknown))._asdict()
