"""`deepmf explain`: the entries that pulled a prediction up or down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from deepmf.cli.inputs import Reading, hinting_at_extension, like_label, load_model
from deepmf.cli.options import Extend, History, Json, ModelFile, RowId
from deepmf.cli.output import say, show_json, show_table
from deepmf.cli.row_history import check_row, read_history
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    from deepmf.models.explanation import Axis


def explain(
    model: ModelFile,
    column: Annotated[str, typer.Option("--column", metavar="ID", help="The column that is predicted.")],
    row: RowId = None,
    history: History = None,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many entries.")] = 5,
    axis: Annotated[
        str, typer.Option("--axis", metavar="row|column", help="By the entries of the row, or by those of the column.")
    ] = "row",
    extend: Extend = None,
    as_json: Json = False,
) -> None:
    """Show the prediction for a row and a column, and the entries that pulled it up or down, largest effect first.

    Example: deepmf explain model.safetensors --row ann --column Alien
    """
    check_row(row, history)
    _check_axis(axis, history)
    fitted = load_model(model, extensions=extend or (), reading=Reading())
    with hinting_at_extension():
        at_column = like_label(column, fitted.column_labels_, axis="column")
        if row is not None:
            at_row = like_label(row, fitted.row_labels_, axis="row")
            found = fitted.explain(at_row, at_column, n, axis=cast("Axis", axis))
        else:
            assert history is not None
            at_row, entries = None, read_history(history, fitted)
            found = fitted.fold_in(list(entries), list(entries.values())).explain(at_column, n)
    other = "column" if axis == "row" else "row"
    lines = list(zip(found.labels.tolist(), found.values.tolist(), found.effects.tolist(), strict=True))
    if as_json:
        shown = [{other: label, "value": value, "effect": effect} for label, value, effect in lines]
        show_json({"row": at_row, "column": at_column, "prediction": found.prediction, "entries": shown})
        return
    say(f"prediction {found.prediction:.4f}; the entries of the {axis} that pulled it up (above 0) or down:")
    whole = ((str(label), int(value) if value.is_integer() else value, effect) for label, value, effect in lines)
    show_table([other, "value", "effect"], whole)


def _check_axis(axis: str, history: Path | None) -> None:
    if axis not in ("row", "column"):
        raise BadSetting(f"--axis must be row or column; got {axis!r}")
    if axis == "column" and history is not None:
        raise BadSetting("--axis column needs --row: a new row is explained by the entries of its --history")
