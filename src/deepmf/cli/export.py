"""`deepmf export`: a model as ONNX files, to run without deepmf."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepmf.cli.inputs import Reading, load_model
from deepmf.cli.options import Extend, Json, ModelFile
from deepmf.cli.output import check_distinct, show_json, show_table


def export(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write to.")],
    extend: Extend = None,
    as_json: Json = False,
) -> None:
    """Write a model as ONNX files: both branches and the head, and beside them latents, labels and scale.

    rows.onnx and columns.onnx make latents of values (NaN where nothing is observed), also of new rows and columns;
    head.onnx makes predictions of latents.

    Example: deepmf export model.safetensors -o exported
    """
    from deepmf.export.onnx_folder import FILES, export_onnx

    for name in FILES:
        check_distinct(output / name, [model, *(extend or ())])
    fitted = load_model(model, extensions=extend or (), reading=Reading())
    files = export_onnx(fitted, output)
    if as_json:
        show_json({"model": type(fitted).__name__, "files": [str(file) for file in files]})
        return
    show_table(["file", "bytes"], ([str(file), file.stat().st_size] for file in files))
