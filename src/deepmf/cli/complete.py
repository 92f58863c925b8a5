"""`deepmf complete`: predictions for every missing entry, written as they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from deepmf.cli.inputs import Reading, load_model
from deepmf.cli.options import (
    Column,
    Duplicates,
    Extend,
    FrameFile,
    FrameJson,
    ModelFile,
    Row,
    SafeCsv,
    Separator,
    Value,
)
from deepmf.cli.output_frames import check_frame_target, show_predicted, write_frames
from deepmf.cli.progress import show_share

if TYPE_CHECKING:
    import polars as pl

    from deepmf.models.model import Model


def complete(
    model: ModelFile,
    output: FrameFile,
    extend: Extend = None,
    row: Row = None,
    column: Column = None,
    value: Value = None,
    separator: Separator = None,
    duplicates: Duplicates = "error",
    safe_csv: SafeCsv = False,
    as_json: FrameJson = False,
) -> None:
    """Predict every missing entry; put out row, column, prediction and area.

    Some rows at a time, so that memory stays bounded however large the matrix is.

    Example: deepmf complete model.safetensors -o completed.parquet
    """
    check_frame_target(output, inputs=[model, *(extend or ())], safe_csv=safe_csv, as_json=as_json)
    standard_format = ".jsonl" if as_json else ".csv"
    reading = Reading(row, column, value, separator, duplicates)
    fitted = load_model(model, extensions=extend or (), reading=reading)
    counts: Counter[str] = Counter()
    with show_share("completing") as show:
        frames = _frames(fitted, counts, show)
        write_frames(frames, _schema(fitted), output, standard_format=standard_format, safe_csv=safe_csv)
    show_predicted({area: n for area, n in counts.items() if n}, output, as_json=as_json)


def _frames(model: Model, counts: Counter[str], show: Callable[[int, int | None], None]) -> Iterator[pl.DataFrame]:
    """Yield the missing entries of some rows at a time, count them by area, and show how many rows are done."""
    import numpy as np
    import polars

    from deepmf.matrix.areas import AREAS, area_codes
    from deepmf.models.completion import completed_rows

    seen = model.entries_
    n_rows, n_columns = seen.train.shape
    rows, columns = polars.Series(seen.rows.array.tolist()), polars.Series(seen.columns.array.tolist())
    areas = polars.Series(AREAS)
    for part in completed_rows(seen, model.predictor_):
        places, column_of = np.nonzero(~part.observed)
        row_of = part.rows[places]
        codes = area_codes(row_of >= n_rows, column_of >= n_columns)
        counts.update(dict(zip(AREAS, np.bincount(codes, minlength=len(AREAS)).tolist(), strict=True)))
        yield polars.DataFrame(
            {
                "row": rows.gather(row_of),
                "column": columns.gather(column_of),
                "prediction": part.values[places, column_of],
                "area": areas.gather(codes),
            }
        )
        show(int(part.rows[-1]) + 1, len(rows))


def _schema(model: Model) -> dict[str, Any]:
    """Return the types of the frames: those of the labels, whatever a batch happens to hold."""
    import polars

    from deepmf.storage.frame_file import label_type

    labels = {"row": model.row_labels_, "column": model.column_labels_}
    types = {name: label_type(array) for name, array in labels.items()}
    return types | {"prediction": polars.Float64, "area": polars.String}
