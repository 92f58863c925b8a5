"""`deepmf explain`: the entries that pulled a prediction up or down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from deepmf.cli.feature_files import FeatureFiles, by_name
from deepmf.cli.inputs import Reading, check_row, folded_in, hinting_at_extension, like_label, load_model
from deepmf.cli.options import (
    Extend,
    FeatureValues,
    History,
    Json,
    ModelFile,
    RowId,
    Without,
    takes_groups,
)
from deepmf.cli.output import check_writable, say, show_json, show_table
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    from deepmf.models.explanation import Explanation
    from deepmf.models.pairs import Axis


@takes_groups
def explain(
    model: ModelFile,
    column: Annotated[str, typer.Option("--column", metavar="ID", help="The column that is predicted.")],
    row: RowId = None,
    history: History = None,
    features: FeatureValues = None,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many entries.")] = 5,
    axis: Annotated[
        str, typer.Option("--axis", metavar="row|column", help="By the entries of the row, or by those of the column.")
    ] = "row",
    extend: Extend = None,
    *,
    files: Annotated[FeatureFiles, Without("kinds")],
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw a bar for each entry into an .svg file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the prediction for a row and a column, and the entries that pulled it up or down, largest effect first.

    Where the model was fitted with features, also those that did.

    Example: deepmf explain model.safetensors --row ann --column Alien --picture why.svg
    """
    check_row(row, history, features)
    _check_axis(axis, row)
    known = None if features is None else by_name("--features", features)
    if picture is not None:
        from deepmf.plots import check_picture

        check_picture(picture)
        check_writable(picture, inputs=[model, history, *(extend or ()), *files.paths])
    fitted = load_model(model, extensions=extend or (), reading=Reading(), features=files)
    with hinting_at_extension():
        at_column = like_label(column, fitted.entries_.columns, axis="column")
        if row is not None:
            at_row = like_label(row, fitted.entries_.rows, axis="row")
            found = fitted.explain(at_row, at_column, n, axis=cast("Axis", axis))
        else:
            at_row, found = None, folded_in(fitted, history, known).explain(at_column, n)
    if picture is not None:
        _draw(found, at_row, at_column, picture)
    other = "column" if axis == "row" else "row"
    lines = list(zip(found.labels.tolist(), found.values.tolist(), found.effects.tolist(), strict=True))
    if as_json:
        shown = [{other: label, "value": value, "effect": effect} for label, value, effect in lines]
        described = {"row": at_row, "column": at_column, "prediction": found.prediction, "entries": shown}
        described["features"] = [effect._asdict() for effect in found.features]
        show_json(described | ({} if picture is None else {"picture": str(picture)}))
        return
    say(f"prediction {found.prediction:.4f}; the entries of the {axis} that pulled it up (above 0) or down:")
    whole = ((str(label), int(value) if value.is_integer() else value, effect) for label, value, effect in lines)
    form = fitted.entries_.train.form
    value = "value" if form.value == "effect" else form.value
    names = form.name_ids_beside([value, "effect"])
    show_table([names[1] if axis == "row" else names[0], value, "effect"], whole)
    if found.features:
        say(f"because of: {', '.join(effect.value for effect in found.features)}; the features of the {axis}:")
        show_table(["feature", "value", "effect"], found.features)
    if picture is not None:
        say(f"picture in {picture}")


def _draw(found: Explanation, row: Any, column: Any, picture: Path) -> None:
    from deepmf.formatting import format_amount
    from deepmf.plots import add_title, describe_explanation, plot_explanation, save_svg

    ax = plot_explanation(found, width=640.0)
    heading = f"{column}{'' if row is None else f' for {row}'}: {format_amount(found.prediction)}"
    add_title(ax, heading if len(heading) <= 80 else f"{heading[:79]}…", above_all=True)
    save_svg(ax, picture, title=describe_explanation(found, row=row, column=column))


def _check_axis(axis: str, row: str | None) -> None:
    if axis not in ("row", "column"):
        raise BadSetting(f"--axis must be row or column; got {axis!r}")
    if axis == "column" and row is None:
        raise BadSetting("--axis column needs --row: a new row is explained by what describes it")
