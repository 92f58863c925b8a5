"""`deepmf predict` and `deepmf complete`: predictions for the pairs of a file, and for every
missing entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepmf.cli.feature_files import FEATURES, ModelInput
from deepmf.cli.inputs import (
    hint_at_extension,
    locate_errors,
    parse_moment,
    read_pairs,
    warn_unknown,
)
from deepmf.cli.options import (
    At,
    Digits,
    FrameFile,
    FrameJson,
    Levels,
    UnknownIds,
    argument,
    option,
    with_option_groups,
)
from deepmf.cli.output import STANDARD, check_frame_target, show_share, show_written, write_frames
from deepmf.errors import BadSetting, UnknownLabel, warn
from deepmf.files import Progress, polars
from deepmf.matrix.table_form import TableForm

if TYPE_CHECKING:
    from deepmf.models.base import Model
    from deepmf.scoring.predictor import Predictor


def _predict_chances(
    model: Model,
    labels: tuple[Any, Any],
    asked: dict[str, Any],
    interval: float | None,
    *,
    distribution: bool,
) -> dict[str, Any]:
    """Return the ends of intervals, and the probabilities of levels, by the names of their
    fields."""
    if not model.gives_distribution:
        what = "distributions" if distribution else "intervals"
        raise BadSetting(f"{type(model).__name__} cannot predict {what}; fit with --model dmf-o")
    fields: dict[str, Any] = {}
    if interval is not None:
        fields |= model.predict_interval(*labels, coverage=interval, **asked)._asdict()
    if distribution:
        chances = model.predict_distribution(*labels, **asked)
        names = [f"p_{level:g}" for level in model.support_.tolist()]
        fields |= dict(zip(names, chances.T, strict=True))
    return fields


@with_option_groups(
    files=FEATURES,
    reading=("row", "column", "value", "separator", "missing", "decimal", "encoding"),
)
def predict(
    source: ModelInput,
    pairs: Annotated[
        Path,
        argument(
            "PAIRS",
            "Pairs, a row and a column per line: csv, tsv, parquet, jsonl; - for standard input.",
        ),
    ],
    output: FrameFile = STANDARD,
    levels: Levels = False,
    interval: Annotated[
        float | None,
        option(
            "--interval COVERAGE",
            "Add lower and upper, the ends of the interval with this probability, such as 0.9.",
        ),
    ] = None,
    distribution: Annotated[
        bool,
        option(
            "--distribution",
            "Add the probability of each level, p_LEVEL; for models with a distribution.",
        ),
    ] = False,
    unknown: UnknownIds = "fallback",
    at: At = None,
    digits: Digits = None,
    as_json: FrameJson = False,
) -> None:
    """Predict the values of pairs of a row and a column.

    A line of output has the ids of the pair, under their names in PAIRS, its prediction and its
    area. A pair with an unknown row or column has no area.

    Example: deepmf predict model.safetensors pairs.csv -o predictions.csv
    """
    check_frame_target(output, inputs=[*source.paths, pairs])

    from deepmf.evaluation.areas import UNKNOWN_HINT

    fitted = source.load()
    asked: dict[str, Any] = {"at": parse_moment(at), "unknown": unknown}
    with hint_at_extension(UNKNOWN_HINT):
        read = read_pairs(pairs, fitted, source.reading, unknown=unknown)
        with locate_errors(pairs, UnknownLabel):
            predictions = (fitted.predict_levels if levels else fitted.predict)(
                *read.labels, **asked
            )
    areas = fitted.areas(*read.labels, unknown="nan")
    n_unknown = warn_unknown(fitted, pairs, *read.labels, unknown)
    results = {"prediction": predictions, "area": areas}
    if distribution or interval is not None:
        results |= _predict_chances(fitted, read.labels, asked, interval, distribution=distribution)
    form = fitted.entries_.train.form
    if read.has_names:
        form = TableForm(read.shown.columns[0], read.shown.columns[1])
    ids = dict(zip(read.shown.columns, form.name_ids_beside(results), strict=True))
    frame = read.shown.rename(ids).with_columns(
        polars.Series(name, array.tolist()) for name, array in results.items()
    )
    frame = frame.with_columns(area=polars.col("area").replace("", None))
    write_frames(
        [frame],
        frame.schema,
        output,
        as_json=as_json,
        digits=digits,
        decimal=source.reading.decimal,
    )
    counts = dict(sorted(Counter(areas[areas != ""].tolist()).items()))
    _show_summary(counts, output, as_json=as_json, n_unknown=n_unknown)


@with_option_groups(
    files=FEATURES,
    reading=("row", "column", "value", "separator", "duplicates", "missing", "decimal", "encoding"),
)
def complete(
    source: ModelInput,
    output: FrameFile,
    wide: Annotated[
        bool | None,
        option(
            "--wide/--long",
            "Write the whole table, or a line per prediction; default: as the table that was fitted.",
            show_default=False,
        ),
    ] = None,
    levels: Levels = False,
    at: At = None,
    digits: Digits = None,
    as_json: FrameJson = False,
) -> None:
    """Predict every missing entry.

    A line of output has a row, a column, a prediction and an area. A model that was fitted to a
    wide table gives the whole table back, with its gaps filled. Rows are written in batches, so
    that memory stays bounded.

    Example: deepmf complete model.safetensors -o completed.parquet
    """
    check_frame_target(output, inputs=source.paths)
    from deepmf.scoring.pairs import check_has_values
    from deepmf.scoring.readouts import check_levels

    fitted = source.load()
    check_has_values(fitted.scale_)  # before anything is written
    if levels:
        check_levels(fitted.scale_, "rmse")
    if wide is None:
        wide = fitted.entries_.train.form.wide
    schema = _build_schema(fitted, levels=levels, is_wide=wide)
    counts: Counter[str] = Counter()
    with show_share("completing") as show:
        predictor = fitted.predictor_at(parse_moment(at))
        frames = _iterate_frames(
            fitted, schema, counts, show, predictor=predictor, levels=levels, is_wide=wide
        )
        write_frames(
            frames, schema, output, as_json=as_json, digits=digits, decimal=source.reading.decimal
        )
    _show_summary({area: n for area, n in counts.items() if n}, output, as_json=as_json)
    if choice := fitted.describe_choice():
        warn(choice)


def _iterate_frames(
    model: Model,
    schema: Mapping[str, Any],
    counts: Counter[str],
    show: Progress,
    *,
    predictor: Predictor,
    levels: bool,
    is_wide: bool,
) -> Iterator[polars.DataFrame]:
    """Yield the predictions of some rows at a time: a line each, or rows of a table.

    Predictions are counted by area in `counts`, and `show` receives the number of finished rows.
    """
    import numpy as np

    from deepmf.matrix.frames import build_label_series
    from deepmf.matrix.matrix import AREAS, compute_area_codes
    from deepmf.models.completion import complete_rows

    entries = model.entries_
    n_rows, n_columns = entries.train.shape
    rows = build_label_series(entries.rows.array)
    columns = build_label_series(entries.columns.array)
    areas = polars.Series(AREAS)
    for part in complete_rows(entries, predictor, to_levels=levels):
        places, column_of = np.nonzero(~part.observed)
        row_of = part.rows[places]
        codes = compute_area_codes(row_of >= n_rows, column_of >= n_columns)
        counts.update(
            dict(zip(AREAS, np.bincount(codes, minlength=len(AREAS)).tolist(), strict=True))
        )
        if is_wide:
            cells = [rows.gather(part.rows), *map(polars.Series, part.values.T)]
        else:
            values = polars.Series(part.values[places, column_of])
            cells = [rows.gather(row_of), columns.gather(column_of), values, areas.gather(codes)]
        yield polars.DataFrame(
            [
                series.cast(kind).alias(name)
                for (name, kind), series in zip(schema.items(), cells, strict=True)
            ]
        )
        show(int(part.rows[-1]) + 1, len(rows))


def _build_schema(model: Model, *, levels: bool, is_wide: bool) -> dict[str, Any]:
    """Return the types of a completed table or of a file with a line per prediction; whole levels
    are integers."""
    import numpy as np

    from deepmf.matrix.frame_file import find_label_type
    from deepmf.matrix.frames import build_label_series, name_wide_columns

    form, rows, columns = model.entries_.train.form, model.row_labels_, model.column_labels_
    value_type: Any = polars.Float64
    scale_levels = model.scale_.levels
    if levels and scale_levels is not None and not np.any(scale_levels % 1):
        value_type = polars.Int64
    if is_wide:
        row, *names = name_wide_columns(form.row, columns)
        row_type = build_label_series(rows[:1]).dtype
        return {row: row_type} | dict.fromkeys(names, value_type)
    row, column = form.name_ids_beside(("prediction", "area"))
    row_type, column_type = find_label_type(rows), find_label_type(columns)
    return {row: row_type, column: column_type, "prediction": value_type, "area": polars.String}


def _show_summary(
    counts: Mapping[str, int], target: str, *, as_json: bool, n_unknown: int = 0
) -> None:
    """Print the number of predictions in a file by area; nothing for standard output."""
    facts: dict[str, Any] = {"predictions": sum(counts.values()) + n_unknown, "areas": dict(counts)}
    shown = [f"{count:,} in area {area}" for area, count in counts.items()]
    if n_unknown:
        facts["unknown"] = n_unknown
        shown.append(f"{n_unknown:,} unknown")
    text = "no predictions"
    if shown:
        text = f"{facts['predictions']:,} predictions ({', '.join(shown)})"
    show_written(facts, text, target, as_json=as_json)
