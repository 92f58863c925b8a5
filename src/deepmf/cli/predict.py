"""`deepmf predict` and `deepmf complete`: predictions for the pairs of a file, and for every missing entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from deepmf.cli import options
from deepmf.cli.feature_files import FeatureFiles
from deepmf.cli.inputs import (
    InputOptions,
    Pairs,
    hint_at_extension,
    parse_moment,
    read_pairs,
    warn_unknown,
)
from deepmf.cli.model_file import load_model
from deepmf.cli.options import argument, option
from deepmf.cli.output import STANDARD, check_frame_target, say, show_json, show_share, write_frames
from deepmf.errors import BadSetting, warn

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from deepmf.files import Progress
    from deepmf.models.base import Model
    from deepmf.scoring.drift import DriftAt
    from deepmf.scoring.pairs import Unknown

_RESULTS = ("prediction", "area")  # the columns of a long file beside the ids


@options.with_option_groups(reading=("row", "column", "value", "separator", "missing", "decimal", "encoding"))
def predict(
    model: options.ModelFile,
    pairs: Annotated[
        Path,
        argument("PAIRS", "Pairs, a row and a column per line: csv, tsv, parquet, jsonl; - for standard input."),
    ],
    output: options.FrameFile = STANDARD,
    extend: options.Extend = None,
    levels: options.Levels = False,
    interval: Annotated[
        float | None,
        option(
            "--interval COVERAGE", "Add lower and upper, the ends of the interval with this probability, such as 0.9."
        ),
    ] = None,
    distribution: Annotated[
        bool,
        option("--distribution", "Add the probability of each level, p_LEVEL; for models with a distribution."),
    ] = False,
    unknown: options.UnknownIds = "fallback",
    at: options.At = None,
    *,
    files: FeatureFiles,
    reading: InputOptions,
    digits: options.Digits = None,
    safe_csv: options.SafeCsv = False,
    as_json: options.FrameJson = False,
) -> None:
    """Predict the values of pairs of a row and a column.

    A line of output has the ids of the pair, under their names in PAIRS, its prediction and its area. A pair with an
    unknown row or column has no area.

    Example: deepmf predict model.safetensors pairs.csv -o predictions.csv
    """
    inputs = [model, pairs, *(extend or ()), *files.paths]
    check_frame_target(output, inputs=inputs, safe_csv=safe_csv, as_json=as_json)
    import numpy as np
    import polars

    from deepmf.matrix.table_form import TableForm
    from deepmf.scoring.pairs import check_unknown

    check_unknown(unknown)
    fitted = load_model(model, extensions=extend, reading=reading, features=files)
    with hint_at_extension(pairs):
        read = read_pairs(pairs, fitted, reading, unknown=unknown)
        predict_pairs = fitted.predict_levels if levels else fitted.predict
        moment = parse_moment(at)
        predictions = predict_pairs(*read.labels, at=moment, unknown=cast("Unknown", unknown))
    areas = fitted.areas(*read.labels, unknown="nan")
    n_unknown = warn_unknown(fitted, pairs, *read.labels, unknown) if unknown != "error" else 0
    found = {"prediction": predictions, "area": areas}
    if interval is not None:
        found |= _predict_interval(fitted, read, moment, interval, unknown)
    if distribution:
        found |= _predict_distribution(fitted, read, moment, unknown)
    form = fitted.entries_.train.form if read.names is None else TableForm(*read.names)
    names = form.name_ids_beside(found)
    ids = [series.alias(name) for name, series in zip(names, (read.rows.shown, read.columns.shown), strict=True)]
    frame = polars.DataFrame(ids + [polars.Series(name, array.tolist()) for name, array in found.items()])
    frame = frame.with_columns(area=polars.col("area").replace("", None))
    write_frames(
        [frame], frame.schema, output, as_json=as_json, safe_csv=safe_csv, digits=digits, decimal=reading.decimal
    )
    counts = dict(zip(*(found.tolist() for found in np.unique(areas[areas != ""], return_counts=True)), strict=True))
    _show_summary(counts, output, as_json=as_json, n_unknown=n_unknown)


@options.with_option_groups(
    reading=("row", "column", "value", "separator", "duplicates", "missing", "decimal", "encoding")
)
def complete(
    model: options.ModelFile,
    output: options.FrameFile,
    wide: Annotated[
        bool | None,
        option(
            "--wide/--long",
            "Write the whole table, or a line per prediction; default: as the table that was fitted.",
            show_default=False,
        ),
    ] = None,
    levels: options.Levels = False,
    at: options.At = None,
    extend: options.Extend = None,
    *,
    files: FeatureFiles,
    reading: InputOptions,
    digits: options.Digits = None,
    safe_csv: options.SafeCsv = False,
    as_json: options.FrameJson = False,
) -> None:
    """Predict every missing entry.

    A line of output has a row, a column, a prediction and an area. A model that was fitted to a wide table gives the
    whole table back, with its gaps filled. Rows are written in batches, so that memory stays bounded.

    Example: deepmf complete model.safetensors -o completed.parquet
    """
    inputs = [model, *(extend or ()), *files.paths]
    check_frame_target(output, inputs=inputs, safe_csv=safe_csv, as_json=as_json)
    from deepmf.scoring.pairs import check_has_values
    from deepmf.scoring.predictor import check_levels

    fitted = load_model(model, extensions=extend, reading=reading, features=files)
    check_has_values(fitted.scale_)  # before anything is written
    if levels:
        check_levels(fitted.scale_, "rmse")
    drift = fitted.drift_at(parse_moment(at))
    counts: Counter[str] = Counter()
    with show_share("completing") as show:
        is_wide = fitted.entries_.train.form.wide if wide is None else wide
        value_type = _choose_value_type(fitted, levels=levels)
        schema = (_build_wide_schema if is_wide else _build_schema)(fitted, value_type)
        readout = fitted.predictor_.readout
        frames = _iterate_frames(
            fitted,
            counts,
            show,
            predict=readout.levels if levels and drift is None else readout.values,
            drift=drift if drift is None else drift._replace(rounds=levels or drift.rounds),
            value_type=value_type,
            schema_of_table=schema if is_wide else None,
        )
        write_frames(frames, schema, output, as_json=as_json, safe_csv=safe_csv, digits=digits, decimal=reading.decimal)
    _show_summary({area: n for area, n in counts.items() if n}, output, as_json=as_json)
    if choice := fitted.describe_choice():
        warn(choice)


def _predict_interval(
    model: Model, pairs: Pairs, at: Any, coverage: float, unknown: str
) -> dict[str, npt.NDArray[Any]]:
    if not model.gives_distribution:
        raise BadSetting(f"{type(model).__name__} cannot predict intervals; fit with --model dmf-o")
    return model.predict_interval(*pairs.labels, at=at, coverage=coverage, unknown=cast("Unknown", unknown))._asdict()


def _predict_distribution(model: Model, pairs: Pairs, at: Any, unknown: str) -> dict[str, npt.NDArray[Any]]:
    if not model.gives_distribution:
        raise BadSetting(f"{type(model).__name__} cannot predict distributions; fit with --model dmf-o")
    found = model.predict_distribution(*pairs.labels, at=at, unknown=cast("Unknown", unknown))
    return {f"p_{level:g}": found[:, at] for at, level in enumerate(model.support_.tolist())}


def _iterate_frames(
    model: Model,
    counts: Counter[str],
    show: Progress,
    *,
    predict: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
    value_type: Any,
    drift: DriftAt | None,
    schema_of_table: Mapping[str, Any] | None,
) -> Iterator[pl.DataFrame]:
    """Yield the predictions of some rows at a time: a line each, or with `schema_of_table` as rows of a table.

    `predict` turns the scores of the model into values or levels, and `drift` moves these to a time.

    Predictions are counted by area in `counts`, and `show` receives the number of finished rows.
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
    row_name, column_name = form.name_ids_beside(_RESULTS)
    areas = polars.Series(AREAS)
    for part in complete_rows(seen, model.predictor_, predict=predict, drift=drift):
        places, column_of = np.nonzero(~part.observed)
        row_of = part.rows[places]
        codes = compute_area_codes(row_of >= n_rows, column_of >= n_columns)
        counts.update(dict(zip(AREAS, np.bincount(codes, minlength=len(AREAS)).tolist(), strict=True)))
        if schema_of_table is not None:
            cells = [rows.gather(part.rows), *(polars.Series(column).cast(value_type) for column in part.values.T)]
            yield polars.DataFrame([series.alias(name) for name, series in zip(schema_of_table, cells, strict=True)])
        else:
            yield polars.DataFrame(
                {
                    row_name: rows.gather(row_of),
                    column_name: columns.gather(column_of),
                    "prediction": polars.Series(part.values[places, column_of]).cast(value_type),
                    "area": areas.gather(codes),
                }
            )
        show(int(part.rows[-1]) + 1, len(rows))


def _choose_value_type(model: Model, *, levels: bool) -> Any:
    """Return the type of predictions: integers for levels that are whole numbers, otherwise floats."""
    import polars

    known = model.scale_.levels if levels else None
    return polars.Float64 if known is None or (known % 1).any() else polars.Int64


def _build_schema(model: Model, value_type: Any) -> dict[str, Any]:
    """Return the types of a long file, which follow from the labels and not from the first batch."""
    import polars

    from deepmf.data.frame_file import find_label_type

    form = model.entries_.train.form
    row, column = form.name_ids_beside(_RESULTS)
    return {
        row: find_label_type(model.row_labels_, form.row_type),
        column: find_label_type(model.column_labels_, form.column_type),
        "prediction": value_type,
        "area": polars.String,
    }


def _build_wide_schema(model: Model, value_type: Any) -> dict[str, Any]:
    """Return the types of a wide table: the row ids, then the values of each column."""
    from deepmf.matrix.frames import build_label_series, find_whole_type, name_wide_columns

    form, rows = model.entries_.train.form, model.row_labels_
    row, *columns = name_wide_columns(form.row, model.column_labels_)
    row_type = find_whole_type(rows, form.row_type) or build_label_series(rows[:1]).dtype
    return {row: row_type} | dict.fromkeys(columns, value_type)


def _show_summary(counts: Mapping[str, int], target: str, *, as_json: bool, n_unknown: int = 0) -> None:
    """Print the number of predictions in a file by area; nothing for standard output."""
    if target == STANDARD:
        return
    n_predictions = sum(counts.values()) + n_unknown
    if as_json:
        found = {"predictions": n_predictions, "areas": dict(counts)} | ({"unknown": n_unknown} if n_unknown else {})
        show_json(found | {"file": target})
    else:
        shown = [f"{count:,} in area {area}" for area, count in counts.items()]
        shown += [f"{n_unknown:,} unknown"] if n_unknown else []
        text = f"{n_predictions:,} predictions ({', '.join(shown)})" if shown else "no predictions"
        say(f"{text} in {target}")
