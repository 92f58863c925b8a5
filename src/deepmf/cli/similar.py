"""`deepmf similar`: the columns most similar to a column, or the rows most similar to a row."""

from __future__ import annotations

from typing import Annotated

import typer

from deepmf.cli.feature_files import FeatureFiles
from deepmf.cli.inputs import Reading, hinting_at_extension, like_label, load_model
from deepmf.cli.option_groups import Without, takes_groups
from deepmf.cli.options import Extend, Json, ModelFile, RowId
from deepmf.cli.output import show_json, show_table
from deepmf.errors import BadSetting


@takes_groups
def similar(
    model: ModelFile,
    column: Annotated[str | None, typer.Option("--column", metavar="ID", help="A column that the model knows.")] = None,
    row: RowId = None,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many columns, or rows.")] = 10,
    extend: Extend = None,
    *,
    files: Annotated[FeatureFiles, Without("kinds")],
    as_json: Json = False,
) -> None:
    """Show the columns most similar to a column, or the rows most similar to a row, with the cosines of their latents.

    Example: deepmf similar model.safetensors --column Alien
    """
    if (row is None) == (column is None):
        raise BadSetting("give either --column ID or --row ID")
    fitted = load_model(model, extensions=extend or (), reading=Reading(), features=files)
    with hinting_at_extension():
        if column is not None:
            axis, label = "column", like_label(column, fitted.entries_.columns, axis="column")
            found = fitted.similar_columns(label, n)
        else:
            assert row is not None
            axis, label = "row", like_label(row, fitted.entries_.rows, axis="row")
            found = fitted.similar_rows(label, n)
    lines = list(zip(found.labels.tolist(), found.values.tolist(), strict=True))
    if as_json:
        show_json({axis: label, "similar": [{axis: other, "cosine": cosine} for other, cosine in lines]})
        return
    names = fitted.entries_.train.form.ids_beside(["cosine"])
    heading = names[0] if axis == "row" else names[1]
    show_table([heading, "cosine"], ((str(other), cosine) for other, cosine in lines))
