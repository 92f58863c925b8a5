"""`deepmf complete`: predictions for every missing entry, written as they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.feature_files import FeatureFiles
from deepmf.cli.inputs import Reading, load_model
from deepmf.cli.options import (
    Extend,
    FrameFile,
    FrameJson,
    ModelFile,
    SafeCsv,
    Without,
    takes_groups,
)
from deepmf.cli.output import check_frame_target, show_predicted, show_share, write_frames

if TYPE_CHECKING:
    import polars as pl

    from deepmf.models.base import Model

_FOUND = ("prediction", "area")


@takes_groups
def complete(
    model: ModelFile,
    output: FrameFile,
    wide: Annotated[
        bool | None,
        typer.Option(
            "--wide/--long",
            help="Write a wide table, observed values and predictions alike, or a long one of predictions; as the "
            "model's own table was, unless given.",
            show_default=False,
        ),
    ] = None,
    extend: Extend = None,
    *,
    files: Annotated[FeatureFiles, Without("kinds")],
    reading: Annotated[Reading, Without("wide")],
    safe_csv: SafeCsv = False,
    as_json: FrameJson = False,
) -> None:
    """Predict every missing entry; put out row, column (under the names they were read by), prediction and area.

    Where the model was fitted to a wide table, the whole table comes back instead, with its gaps filled in. Some rows
    at a time, so that memory stays bounded however large the matrix is.

    Example: deepmf complete model.safetensors -o completed.parquet
    """
    inputs = [model, *(extend or ()), *files.paths]
    check_frame_target(output, inputs=inputs, safe_csv=safe_csv, as_json=as_json)
    standard_format = ".jsonl" if as_json else ".csv"
    fitted = load_model(model, extensions=extend or (), reading=reading, features=files)
    counts: Counter[str] = Counter()
    with show_share("completing") as show:
        is_wide = fitted.entries_.train.form.wide if wide is None else wide
        schema = _wide_schema(fitted) if is_wide else _schema(fitted)
        frames = _frames(fitted, counts, show, table_of=schema if is_wide else None)
        write_frames(frames, schema, output, standard_format=standard_format, safe_csv=safe_csv)
    show_predicted({area: n for area, n in counts.items() if n}, output, as_json=as_json)


def _frames(
    model: Model,
    counts: Counter[str],
    show: Callable[[int, int | None], None],
    *,
    table_of: Mapping[str, Any] | None,
) -> Iterator[pl.DataFrame]:
    """Yield the missing entries of some rows at a time, or these rows of the table with a schema.

    Predictions are counted by area, and `show` is told how many rows are done.
    """
    import numpy as np
    import polars

    from deepmf.matrix.frames import build_label_series
    from deepmf.matrix.matrix import AREAS, compute_area_codes
    from deepmf.models.completion import complete_rows

    seen = model.entries_
    n_rows, n_columns = seen.train.shape
    form = seen.train.form
    rows = build_label_series(seen.rows.array, form.row_type)
    columns = build_label_series(seen.columns.array, form.column_type)
    row_name, column_name = form.name_ids_beside(_FOUND)
    areas = polars.Series(AREAS)
    for part in complete_rows(seen, model.predictor_):
        places, column_of = np.nonzero(~part.observed)
        row_of = part.rows[places]
        codes = compute_area_codes(row_of >= n_rows, column_of >= n_columns)
        counts.update(dict(zip(AREAS, np.bincount(codes, minlength=len(AREAS)).tolist(), strict=True)))
        if table_of is not None:
            cells = [rows.gather(part.rows), *map(polars.Series, part.values.T)]
            yield polars.DataFrame([series.alias(name) for name, series in zip(table_of, cells, strict=True)])
        else:
            yield polars.DataFrame(
                {
                    row_name: rows.gather(row_of),
                    column_name: columns.gather(column_of),
                    "prediction": part.values[places, column_of],
                    "area": areas.gather(codes),
                }
            )
        show(int(part.rows[-1]) + 1, len(rows))


def _schema(model: Model) -> dict[str, Any]:
    """Return the types of the frames: those of the labels, whatever a batch happens to hold."""
    import polars

    from deepmf.storage.frame_file import find_label_type

    form = model.entries_.train.form
    row, column = form.name_ids_beside(_FOUND)
    return {
        row: find_label_type(model.row_labels_, form.row_type),
        column: find_label_type(model.column_labels_, form.column_type),
        "prediction": polars.Float64,
        "area": polars.String,
    }


def _wide_schema(model: Model) -> dict[str, Any]:
    """Return the types of a wide table: that of the row ids, then a float for each column."""
    import polars

    from deepmf.matrix.frames import build_label_series, find_whole_type, name_wide_columns

    form, rows = model.entries_.train.form, model.row_labels_
    row, *columns = name_wide_columns(form.row, model.column_labels_)
    row_type = find_whole_type(rows, form.row_type) or build_label_series(rows[:1]).dtype
    return {row: row_type} | dict.fromkeys(columns, polars.Float64)
