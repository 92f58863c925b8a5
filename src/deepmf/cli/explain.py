"""`deepmf explain`: the entries and features that raised or lowered a prediction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, cast

from deepmf.cli import options
from deepmf.cli.feature_files import FEATURES_AND_NAMES, ModelInput
from deepmf.cli.inputs import RowOptions, convert_label, hint_at_extension
from deepmf.cli.options import option
from deepmf.cli.output import give_name, list_names, say, show_json, show_named_table, show_table
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    from deepmf.matrix.axis_entries import Axis
    from deepmf.models.base import Model
    from deepmf.models.explanation import Explanation


@options.with_option_groups(files=FEATURES_AND_NAMES, reading=("encoding",))
def explain(
    source: ModelInput,
    column: Annotated[str, option("--column ID", "Column whose prediction is explained.")],
    *,
    which: RowOptions,
    n: Annotated[int, option("-n N", "Number of entries.")] = 5,
    axis: Annotated[
        str, option("--axis row|column", "Explain by the entries of the row or of the column.")
    ] = "row",
    as_json: options.Json = False,
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
    if axis not in ("row", "column"):
        raise BadSetting(f"--axis must be row or column; got {axis!r}")
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
    row_name, column_name = fitted.row_names_.get(at_row), fitted.column_names_.get(at_column)
    if as_json:
        pair = {
            "row": at_row,
            **give_name("row", row_name),
            "column": at_column,
            **give_name("column", column_name),
        }
        show_json(pair | _to_json(explanation, "column" if axis == "row" else "row"))
        return
    _show_effects(explanation, fitted, axis, column_name)


def _to_json(found: Explanation, other: str) -> dict[str, Any]:
    """Return an explanation as JSON content; `other` is the axis of the labels of its entries."""
    return {
        "prediction": found.prediction,
        "entries": [
            {other: label, **give_name(other, name), "value": value, "effect": effect}
            for label, name, value, effect in _list_entries(found)
        ],
        "features": [effect._asdict() for effect in found.features],
        "presence": [
            {
                "column": entry.label,
                **give_name("column", entry.name),
                "value": entry.value,
                "effect": entry.effect,
            }
            for entry in found.presence
        ],
    }


def _show_effects(found: Explanation, model: Model, axis: str, column_name: str | None) -> None:
    train = model.entries_.train
    value = "value" if train.form.value == "effect" else train.form.value
    ids = train.form.name_ids_beside(["name", value, "effect"])
    headings = [ids[1] if axis == "row" else ids[0], "name", value, "effect"]
    what = "prediction" if train.has_values else "probability"
    of = "" if column_name is None else f" of {column_name}:"
    say(
        f"{what}{of} {found.prediction:.4f}; entries of the {axis} that raised it (above 0) or lowered it:"
    )
    show_named_table(headings, map(_format_entry, _list_entries(found)))
    if found.features:
        say(f"features of the {axis} that raised it (above 0) or lowered it:")
        show_table(["feature", "value", "effect"], found.features)
    if found.presence and train.has_values:
        say("entries of the row that raised the probability that it takes the column:")
        likely = ((entry.label, entry.name, entry.value, entry.effect) for entry in found.presence)
        show_named_table(headings, map(_format_entry, likely))


def _list_entries(found: Explanation) -> Iterable[tuple[Any, Any, float, float]]:
    return zip(
        found.labels.tolist(),
        list_names(found),
        found.values.tolist(),
        found.effects.tolist(),
        strict=True,
    )


def _format_entry(line: tuple[Any, Any, float, float]) -> tuple[Any, Any, float, float]:
    label, name, value, effect = line
    return label, name, int(value) if value.is_integer() else value, effect
