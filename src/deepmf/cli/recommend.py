"""`deepmf recommend`, `deepmf similar` and `deepmf explain`: the best columns for rows, the nearest
rows or columns, and the reasons of a prediction."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from deepmf.cli.feature_files import FEATURES_AND_NAMES, ModelInput, parse_conditions
from deepmf.cli.inputs import (
    InputOptions,
    RowOptions,
    convert_label,
    hint_at_extension,
    parse_moment,
    read_list,
)
from deepmf.cli.options import (
    OUTPUT,
    At,
    Digits,
    FrameJson,
    Json,
    offer,
    option,
    with_option_groups,
)
from deepmf.cli.output import (
    check_frame_target,
    give_name,
    list_records,
    say,
    show_json,
    show_records,
    show_share,
    show_table,
    show_written,
    write_frames,
)
from deepmf.errors import BadSetting, check_choice
from deepmf.files import Progress, polars
from deepmf.formatting import describe_relevant
from deepmf.recommend.request import Request

if TYPE_CHECKING:
    from deepmf.matrix.axis_entries import Axis
    from deepmf.models.base import Model
    from deepmf.models.explanation import Explanation
    from deepmf.recommend.ranking import Ranking


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
        if sum(map(bool, [self.row is not None, self.is_new, self.rows, self.every])) != 1:
            raise BadSetting(
                "give one of --row ID for a known row, --history FILE or --features for a new one, --rows FILE for "
                "many, or --all"
            )
        if not output and (self.rows or self.every):
            raise BadSetting(
                "--rows and --all need -o FILE, such as -o top.csv (- for standard output)"
            )
        if output and self.is_new:
            raise BadSetting(
                "-o is for known rows; the recommendations for a new row are printed, with --json as JSON"
            )

    def list_labels(self, model: Model, reading: InputOptions) -> list[Any] | None:
        """Return the labels of known rows; None for all."""
        if self.row is not None:
            return [convert_label(self.row, model.entries_.rows)]
        if self.rows:
            return list(read_list(self.rows, model.entries_.rows, reading))
        return None


@with_option_groups(files=FEATURES_AND_NAMES, reading=("encoding",))
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
    at: At = None,
    device: Annotated[
        str | None, option("--device auto|cpu|cuda", "Rank with torch, on a GPU if set; needs -o.")
    ] = None,
    digits: Digits = None,
    as_json: FrameJson = False,
) -> None:
    """Recommend columns for a row or for many rows.

    These are the columns that the row is likely to take and to like, or with --rank-by value the
    columns with the highest predictions. Columns that the row has an entry for are left out. With
    --rows or --all, a file with a row, a rank, a column, a prediction and its probabilities per
    line is written in batches, so that memory stays bounded.

    Example: deepmf recommend model.safetensors --all -n 10 --min-entries 20 -o top.parquet
    """
    which.check(output)
    if output:
        check_frame_target(output, inputs=[*source.paths, which.rows, among, exclude])
    elif device or digits is not None:
        raise BadSetting(f"{'--device' if device else '--digits'} needs -o FILE")
    fitted, reading = source.load(), source.reading
    with hint_at_extension():
        options: dict[str, Any] = {
            name: read_list(path, fitted.entries_.columns, reading)
            for name, path in {"among": among, "exclude": exclude}.items()
            if path
        }
        if where:
            options["where"] = parse_conditions(where, fitted.entries_.column_features)
        request = replace(request, n=n, at=parse_moment(at), device=device, **options)
        labels = which.list_labels(fitted, reading)
        if output:
            _write_recommendations(fitted, labels, request, output, digits=digits, as_json=as_json)
        elif labels:
            _show_best(fitted.answer(labels[0], request), fitted, labels[0], as_json=as_json)
        else:
            guest = which.fold_in(fitted, reading)
            _show_best(guest.answer(request), fitted, None, as_json=as_json)


@with_option_groups(files=FEATURES_AND_NAMES, reading=("encoding",))
def similar(
    source: ModelInput,
    column: Annotated[str | None, option("--column ID", "Column that the model knows.")] = None,
    row: Annotated[str | None, option("--row ID", "Row that the model knows.")] = None,
    n: Annotated[int, option("-n N", "Number of columns or rows.")] = 10,
    min_entries: Annotated[
        int | None,
        option("--min-entries N", "Show only columns with N entries or more; default: 5 at most."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the most similar columns or rows.

    Similarity is the cosine of the latent factors. Columns with hardly any entries are left out.

    Example: deepmf similar model.safetensors --column Alien
    """
    if (row is None) == (column is None):
        raise BadSetting("give either --column ID or --row ID")
    fitted = source.load()
    with hint_at_extension():
        if row is not None:
            axis, label = "row", convert_label(row, fitted.entries_.rows)
            ranking = fitted.similar_rows(label, n)
        else:
            axis, label = "column", convert_label(column or "", fitted.entries_.columns)
            ranking = fitted.similar_columns(label, n, min_entries=min_entries)
    records = list_records(ranking, axis, "cosine")
    if as_json:
        names = {"column": fitted.column_names_, "row": fitted.row_names_}[axis]
        show_json({axis: label, **give_name(axis, names.get(label)), "similar": records})
        return
    ids = fitted.entries_.train.form.name_ids_beside(["name", "cosine"])
    heading = dict(zip(("row", "column"), ids, strict=True))[axis]
    show_records({axis: heading, f"{axis}_name": "name", "cosine": "cosine"}, records)


def _show_best(best: Ranking, model: Model, row: Any, *, as_json: bool) -> None:
    records = _list_best(best, model)
    if as_json:
        row_name = give_name("row", model.row_names_.get(row))
        show_json({"row": row, **row_name, "relevant": best.relevant, "best": records})
        return
    features = [record.get("features", {}) for record in records]
    facts = list(dict.fromkeys(itertools.chain(*features)))[:3]  # JSON has all
    # the prediction of interactions is the presence
    is_shown = {
        "prediction": model.entries_.train.has_values,
        "presence": best.presence is not None,
        "liked": best.liked is not None,
    }
    numbers = [name for name in is_shown if is_shown[name]]
    _, heading = model.entries_.train.form.name_ids_beside(["name", *numbers, *facts])
    heads = {"column": heading, "column_name": "name", **{name: name for name in numbers}}
    show_records(
        heads | {f"feature {name}": name for name in facts},
        [
            record | {f"feature {name}": _format_feature(value) for name, value in facts_of.items()}
            for record, facts_of in zip(records, features, strict=True)
        ],
    )
    if best.liked is not None:
        say(describe_relevant(best.relevant))


def _list_best(best: Ranking, model: Model) -> list[dict[str, Any]]:
    """Return the recommended columns with their numbers, levels and features, best first."""
    features, columns = model.entries_.column_features, model.entries_.columns
    records = list_records(best, "column", "prediction")
    for record in records:
        if best.distribution is not None:
            chances = zip(model.support_.tolist(), record["distribution"], strict=True)
            record["distribution"] = [
                {"level": level, "probability": chance} for level, chance in chances
            ]
        if features is not None:
            encoded = features.take(columns.positions([record["column"]]))
            record["features"] = features.encoding.decode(encoded)
    return records


def _format_feature(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


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

    def count_lines(show: Progress) -> Iterator[polars.DataFrame]:
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


@with_option_groups(files=FEATURES_AND_NAMES, reading=("encoding",))
def explain(
    source: ModelInput,
    column: Annotated[str, option("--column ID", "Column whose prediction is explained.")],
    *,
    which: RowOptions,
    n: Annotated[int, option("-n N", "Number of entries.")] = 5,
    axis: Annotated[
        str, option("--axis row|column", "Explain by the entries of the row or of the column.")
    ] = "row",
    as_json: Json = False,
) -> None:
    """Show the entries that raised or lowered a prediction.

    The largest effects come first. A model that was fitted with features shows their effects too. A
    model with a presence part also shows the entries that make it likely that the row takes the
    column at all.

    Example: deepmf explain model.safetensors --row ann --column Alien
    """
    if (which.row is not None) == which.is_new:
        raise BadSetting(
            "give either --row ID for a known row, or --history FILE or --features for a new one"
        )
    check_choice("--axis", axis, ["row", "column"])
    if axis == "column" and which.is_new:
        raise BadSetting(
            "--axis column needs --row; a new row is explained by its own entries and features"
        )
    fitted = source.load()
    with hint_at_extension():
        at_column = convert_label(column, fitted.entries_.columns)
        if which.row is not None:
            at_row = convert_label(which.row, fitted.entries_.rows)
            explanation = fitted.explain(at_row, at_column, n, axis=cast("Axis", axis))
        else:
            at_row, explanation = None, which.fold_in(fitted, source.reading).explain(at_column, n)
    column_name = fitted.column_names_.get(at_column)
    if not as_json:
        _show_effects(explanation, fitted, axis, column_name)
        return
    show_json(
        {
            "row": at_row,
            **give_name("row", fitted.row_names_.get(at_row)),
            "column": at_column,
            **give_name("column", column_name),
            "prediction": explanation.prediction,
            "entries": _list_entries(explanation, axis),
            "features": [effect._asdict() for effect in explanation.features],
            "presence": _list_effects("column", explanation.presence),
        }
    )


def _list_entries(explanation: Explanation, axis: str) -> list[dict[str, Any]]:
    """Return the effects of entries of the row, or of the column."""
    arrays = explanation.labels, explanation.values, explanation.effects
    names = [None] * len(explanation.labels)
    if explanation.names is not None:
        names = explanation.names.tolist()
    effects = zip(*(array.tolist() for array in arrays), names, strict=True)
    return _list_effects("column" if axis == "row" else "row", effects)


def _list_effects(
    axis: str, effects: Iterable[tuple[Any, float, float, str | None]]
) -> list[dict[str, Any]]:
    return [
        {axis: label, **give_name(axis, name), "value": value, "effect": effect}
        for label, value, effect, name in effects
    ]


def _show_effects(
    explanation: Explanation, model: Model, axis: str, column_name: str | None
) -> None:
    train = model.entries_.train
    value = "value" if train.form.value == "effect" else train.form.value
    ids = train.form.name_ids_beside(["name", value, "effect"])
    heads = dict(zip(("row", "column"), ids, strict=True))
    heads |= {"row_name": "name", "column_name": "name", "value": value, "effect": "effect"}
    what = "prediction" if train.has_values else "probability"
    of = "" if column_name is None else f" of {column_name}:"
    effect_of = "that raised it (above 0) or lowered it:"
    say(f"{what}{of} {explanation.prediction:.4f}; entries of the {axis} {effect_of}")
    _show_entries(heads, _list_entries(explanation, axis))
    if explanation.features:
        say(f"features of the {axis} {effect_of}")
        show_table(["feature", "value", "effect"], explanation.features)
    if explanation.presence and train.has_values:
        say("entries of the row that raised the probability that it takes the column:")
        _show_entries(heads, _list_effects("column", explanation.presence))


def _show_entries(heads: dict[str, str], records: list[dict[str, Any]]) -> None:
    """Print a table of entries, with whole values without decimals."""
    for record in records:
        if record["value"].is_integer():
            record["value"] = int(record["value"])
    show_records(heads, records)
