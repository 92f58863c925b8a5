"""`deepmf recommend`: the best columns of a row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepmf.cli.inputs import Reading, hinting_at_extension, like_label, load_model
from deepmf.cli.options import Extend, Json
from deepmf.cli.output import show_json, show_table


def recommend(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    row: Annotated[str, typer.Option("--row", metavar="ID", help="The row to recommend columns for.")],
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many columns.")] = 10,
    extend: Extend = None,
    include_observed: Annotated[
        bool, typer.Option("--include-observed", help="Also columns that the row has an entry for.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the best columns of a row, with their predictions, without those it has entries for.

    Example: deepmf recommend model.safetensors --row alice -n 10 --extend new_users.csv
    """
    fitted = load_model(model, extensions=extend or (), reading=Reading())
    with hinting_at_extension():
        label = like_label(row, fitted.row_labels_, axis="row")
        best = fitted.recommend(label, n=n, include_observed=include_observed)
    columns, predictions = best.labels.tolist(), best.values.tolist()
    if as_json:
        pairs = zip(columns, predictions, strict=True)
        show_json({"row": label, "best": [{"column": c, "prediction": p} for c, p in pairs]})
        return
    show_table(["column", "prediction"], ([str(c), p] for c, p in zip(columns, predictions, strict=True)))
