"""`deepmf recommend`: the best columns for a row that the model knows, or for a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.column_list import read_column_list
from deepmf.cli.inputs import Reading, hinting_at_extension, like_label, load_model
from deepmf.cli.options import Extend, History, Json, ModelFile, RowId
from deepmf.cli.output import show_json, show_table
from deepmf.cli.row_history import check_row, read_history

if TYPE_CHECKING:
    from deepmf.models.model import Model
    from deepmf.models.ranking import Ranking


def recommend(
    model: ModelFile,
    row: RowId = None,
    history: History = None,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many columns.")] = 10,
    extend: Extend = None,
    among: Annotated[
        Path | None,
        typer.Option(
            "--among", metavar="FILE", help="Choose from these columns alone, one per line; - for standard input."
        ),
    ] = None,
    exclude: Annotated[
        Path | None,
        typer.Option("--exclude", metavar="FILE", help="Leave these columns out, one per line; - for standard input."),
    ] = None,
    include_observed: Annotated[
        bool, typer.Option("--include-observed", help="Also columns that the row has an entry for.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the best columns of a row, with their predictions, without those it has entries for.

    Example: deepmf recommend model.safetensors --history me.csv -n 10
    """
    check_row(row, history)
    fitted = load_model(model, extensions=extend or (), reading=Reading())
    with hinting_at_extension():
        choice = {
            "among": None if among is None else read_column_list(among, fitted),
            "exclude": None if exclude is None else read_column_list(exclude, fitted),
            "include_observed": include_observed,
        }
        best = _best(fitted, row, history, n=n, choice=choice)
    columns, predictions = best.labels.tolist(), best.values.tolist()
    if as_json:
        pairs = zip(columns, predictions, strict=True)
        shown = None if row is None else _label(fitted, row)
        show_json({"row": shown, "best": [{"column": c, "prediction": p} for c, p in pairs]})
        return
    show_table(["column", "prediction"], ([str(c), p] for c, p in zip(columns, predictions, strict=True)))


def _best(model: Model, row: str | None, history: Path | None, *, n: int, choice: dict[str, Any]) -> Ranking:
    """Return the best columns of a known row, or of a new row with a history."""
    if history is None:
        return model.recommend(_label(model, row), n=n, **choice)
    entries = read_history(history, model)
    return model.fold_in(list(entries), list(entries.values())).recommend(n, **choice)


def _label(model: Model, row: str | None) -> Any:
    assert row is not None
    return like_label(row, model.row_labels_, axis="row")
