"""`deepmf recommend` and `deepmf similar`: the best columns for rows, and the nearest rows or
columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepmf.cli import options
from deepmf.cli.feature_files import FEATURES_AND_NAMES, ModelInput, parse_conditions
from deepmf.cli.inputs import (
    InputOptions,
    RowOptions,
    convert_label,
    hint_at_extension,
    parse_moment,
    read_list,
)
from deepmf.cli.options import OUTPUT, offer, option
from deepmf.cli.output import (
    check_frame_target,
    give_name,
    list_names,
    say,
    show_json,
    show_named_table,
    show_share,
    show_written,
    write_frames,
)
from deepmf.errors import BadSetting
from deepmf.formatting import describe_relevant
from deepmf.recommend.request import Request

if TYPE_CHECKING:
    import polars as pl

    from deepmf.files import Progress
    from deepmf.models.base import Model
    from deepmf.recommend.ranking import Ranking

_MOST_FEATURES = 3  # of columns, in a table; JSON has all


@dataclass(frozen=True)
class WhichRows(RowOptions):
    """The options that name the rows of a recommendation: a known row, a new row, or many rows."""

    rows: Path | None = offer(
        "--rows FILE", "Rows, one per line, instead of --row; needs -o; - for standard input."
    )
    every: bool = offer(
        "--all", "All rows that the model knows, instead of --row; needs -o.", False
    )

    def check(self, output: str | None) -> None:
        """Require exactly one of the ways to name rows, and a file for many rows alone."""
        if sum([self.row is not None, self.is_new, self.rows is not None, self.every]) != 1:
            raise BadSetting(
                "give one of --row ID for a known row, --history FILE or --features for a new one, --rows FILE for "
                "many, or --all"
            )
        if output is None and (self.rows is not None or self.every):
            raise BadSetting(
                "--rows and --all need -o FILE, such as -o top.csv (- for standard output)"
            )
        if output is not None and self.is_new:
            raise BadSetting(
                "-o is for known rows; the recommendations for a new row are printed, with --json as JSON"
            )

    def list_labels(self, model: Model, reading: InputOptions) -> list[Any] | None:
        """Return the labels of known rows; None for all."""
        if self.row is not None:
            return [convert_label(self.row, model.entries_.rows)]
        return (
            None if self.rows is None else list(read_list(self.rows, model.entries_.rows, reading))
        )


@options.with_option_groups(files=FEATURES_AND_NAMES, reading=("encoding",))
def recommend(
    source: ModelInput,
    *,
    which: WhichRows,
    output: Annotated[
        str | None,
        option(
            "--output -o FILE",
            "File to write: .csv, .tsv, .jsonl or .parquet; - for standard output.",
            OUTPUT,
        ),
    ] = None,
    n: Annotated[int, option("-n N", "Number of columns.")] = 10,
    among: Annotated[
        Path | None,
        option("--among FILE", "Recommend only these columns, one per line; - for standard input."),
    ] = None,
    exclude: Annotated[
        Path | None,
        option("--exclude FILE", "Leave out these columns, one per line; - for standard input."),
    ] = None,
    where: Annotated[
        list[str] | None,
        option(
            "--where CONDITION",
            "Recommend only columns with such features: year>=1990, genres=Drama|Comedy, genres!=War; repeatable.",
        ),
    ] = None,
    request: Request,
    at: options.At = None,
    device: Annotated[
        str | None, option("--device auto|cpu|cuda", "Rank with torch, on a GPU if set; needs -o.")
    ] = None,
    digits: options.Digits = None,
    as_json: options.FrameJson = False,
) -> None:
    """Recommend columns for a row or for many rows.

    These are the columns that the row is likely to take and to like, or with --rank-by value the
    columns with the highest predictions. Columns that the row has an entry for are left out. With
    --rows or --all, a file with a row, a rank, a column, a prediction and its probabilities per
    line is written in batches, so that memory stays bounded.

    Example: deepmf recommend model.safetensors --all -n 10 --min-entries 20 -o top.parquet
    """
    which.check(output)
    if output is not None:
        check_frame_target(output, inputs=[*source.paths, which.rows, among, exclude])
    elif device is not None or digits is not None:
        raise BadSetting(f"{'--digits' if device is None else '--device'} needs -o FILE")
    fitted, reading = source.load(), source.reading
    with hint_at_extension():
        request = replace(
            request,
            n=n,
            at=None if at is None else parse_moment(at),
            among=None if among is None else read_list(among, fitted.entries_.columns, reading),
            exclude=None
            if exclude is None
            else read_list(exclude, fitted.entries_.columns, reading),
            where=None
            if where is None
            else parse_conditions(where, fitted.entries_.column_features),
            device=device,
        )
        labels = which.list_labels(fitted, reading)
        if output is not None:
            _write_recommendations(fitted, labels, request, output, digits=digits, as_json=as_json)
        elif labels is None:
            _show_best(
                which.fold_in(fitted, reading).answer(request), fitted, None, as_json=as_json
            )
        else:
            _show_best(fitted.answer(labels[0], request), fitted, labels[0], as_json=as_json)


@options.with_option_groups(files=FEATURES_AND_NAMES, reading=("encoding",))
def similar(
    source: ModelInput,
    column: Annotated[str | None, option("--column ID", "Column that the model knows.")] = None,
    row: Annotated[str | None, option("--row ID", "Row that the model knows.")] = None,
    n: Annotated[int, option("-n N", "Number of columns or rows.")] = 10,
    min_entries: Annotated[
        int | None,
        option("--min-entries N", "Show only columns with N entries or more; default: 5 at most."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show the most similar columns or rows.

    Similarity is the cosine of the latent factors. Columns with hardly any entries are left out.

    Example: deepmf similar model.safetensors --column Alien
    """
    if (row is None) == (column is None):
        raise BadSetting("give either --column ID or --row ID")
    fitted = source.load()
    with hint_at_extension():
        if column is not None:
            axis, label = "column", convert_label(column, fitted.entries_.columns)
            ranking = fitted.similar_columns(label, n, min_entries=min_entries)
        else:
            assert row is not None
            axis, label = "row", convert_label(row, fitted.entries_.rows)
            ranking = fitted.similar_rows(label, n)
    lines = list(
        zip(ranking.labels.tolist(), list_names(ranking), ranking.values.tolist(), strict=True)
    )
    if as_json:
        known_names = fitted.column_names_ if axis == "column" else fitted.row_names_
        shown = [
            {axis: neighbour, **give_name(axis, name), "cosine": cosine}
            for neighbour, name, cosine in lines
        ]
        show_json({axis: label, **give_name(axis, known_names.get(label)), "similar": shown})
        return
    ids = fitted.entries_.train.form.name_ids_beside(["name", "cosine"])
    show_named_table([ids[0] if axis == "row" else ids[1], "name", "cosine"], lines)


def _show_best(best: Ranking, model: Model, row: Any, *, as_json: bool) -> None:
    numbers = {"prediction": best.values, "presence": best.presence, "liked": best.liked}
    facts_of_column: dict[str, list[Any]] = {
        name: numbers_of_column.tolist()
        for name, numbers_of_column in numbers.items()
        if numbers_of_column is not None
    }
    labels, names, features = best.labels.tolist(), list_names(best), _read_features(model, best)
    if as_json:
        if best.distribution is not None:
            levels = model.support_.tolist()
            facts_of_column["distribution"] = [
                [
                    {"level": level, "probability": chance}
                    for level, chance in zip(levels, line, strict=True)
                ]
                for line in best.distribution.tolist()
            ]
        facts_of_column |= {"features": features} if any(features) else {}
        shown = [
            {
                "column": column,
                **give_name("column", name),
                **dict(zip(facts_of_column, facts_of_line, strict=True)),
            }
            for column, name, *facts_of_line in zip(
                labels, names, *facts_of_column.values(), strict=True
            )
        ]
        row_name = give_name("row", model.row_names_.get(row))
        show_json({"row": row, **row_name, "relevant": best.relevant, "best": shown})
        return
    if not model.entries_.train.has_values:
        del facts_of_column["prediction"]  # of interactions it is the presence
    facts = list(dict.fromkeys(name for column_features in features for name in column_features))[
        :_MOST_FEATURES
    ]
    cells = [
        [_format_feature(column_features.get(name)) for column_features in features]
        for name in facts
    ]
    _, heading = model.entries_.train.form.name_ids_beside(["name", *facts_of_column, *facts])
    lines = zip(labels, names, *facts_of_column.values(), *cells, strict=True)
    show_named_table([heading, "name", *facts_of_column, *facts], lines)
    if best.liked is not None:
        say(describe_relevant(best.relevant))


def _read_features(model: Model, best: Ranking) -> list[dict[str, Any]]:
    known_features, columns = model.entries_.column_features, model.entries_.columns
    if known_features is None:
        return [{} for _ in best.labels]
    return [
        known_features.encoding.decode(known_features.take(columns.positions([label])))
        for label in best.labels.tolist()
    ]


def _format_feature(value: Any) -> str:
    if value is None:
        return ""
    return (
        ", ".join(value)
        if isinstance(value, list)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _write_recommendations(
    model: Model,
    rows: list[Any] | None,
    request: Request,
    output: str,
    *,
    digits: int | None,
    as_json: bool,
) -> None:
    """Write the recommendations for many rows in batches; print their number, except on standard
    output."""
    from deepmf.formatting import format_quantity
    from deepmf.recommend.ranking import Recommendations

    recommendations = Recommendations.of(model.entries_, model.make_ranker(request), rows, request)
    n_lines, n_rows = 0, int(recommendations.rows.size)

    def count_lines(show: Progress) -> Iterator[pl.DataFrame]:
        nonlocal n_lines
        for frame in recommendations.frames():
            n_lines += frame.height
            show(n_lines, recommendations.most_lines)
            yield frame

    with show_share("recommending") as show:
        write_frames(
            count_lines(show), recommendations.schema, output, as_json=as_json, digits=digits
        )
    text = f"{n_lines:,} recommendations for {format_quantity(n_rows, 'row')}"
    show_written({"rows": n_rows, "recommendations": n_lines}, text, output, as_json=as_json)
