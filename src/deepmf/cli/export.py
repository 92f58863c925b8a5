"""`deepmf export-entries`: all entries that a service knows, and the features that came, for the next training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepmf.cli.inputs import Reading, load_model
from deepmf.cli.options import Extend, FrameFile, FrameJson, Json, ModelFile, SafeCsv
from deepmf.cli.output import (
    STANDARD,
    check_distinct,
    check_frame_target,
    check_writable,
    say,
    show_json,
    show_table,
    write_frames,
)
from deepmf.cli.serve import Database, default_database, needs_serve
from deepmf.errors import BadSetting, CannotSave

if TYPE_CHECKING:
    from deepmf.matrix.features import Features


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
    from deepmf.export.onnx import FILES, export_onnx

    for name in FILES:
        check_distinct(output / name, [model, *(extend or ())])
    fitted = load_model(model, extensions=extend or (), reading=Reading())
    files = export_onnx(fitted, output)
    if as_json:
        show_json({"model": type(fitted).__name__, "files": [str(file) for file in files]})
        return
    show_table(["file", "bytes"], ([str(file), file.stat().st_size] for file in files))


_FEATURE_ENDINGS = (".csv", ".tsv", ".parquet")


def export_entries(
    model: ModelFile,
    output: FrameFile,
    database: Database = None,
    row_features: Annotated[
        str | None,
        typer.Option(
            "--new-row-features",
            metavar="FILE",
            help="Also write the features that rows were given since training: a .csv, .tsv or .parquet. Those of "
            "training are in your own file.",
        ),
    ] = None,
    column_features: Annotated[
        str | None, typer.Option("--new-column-features", metavar="FILE", help="The same for columns.")
    ] = None,
    safe_csv: SafeCsv = False,
    as_json: FrameJson = False,
) -> None:
    """Write every entry that a service knows, those of training and those learned since, for the next training.

    Example: deepmf export-entries model.safetensors -o ratings.parquet
    """
    with needs_serve():
        from deepmf.serve.snapshot import export_data
    import polars as pl

    from deepmf.matrix.frames import build_label_series

    check_frame_target(output, inputs=[model], safe_csv=safe_csv, as_json=as_json)
    targets = {"row": row_features, "column": column_features}
    _check_feature_targets(targets, inputs=[model, Path(output)])
    fitted = load_model(model, extensions=(), reading=Reading())
    found = export_data(fitted, database or default_database(model))
    rows, columns, values = found.entries
    form = fitted.entries_.train.form
    ids = build_label_series(rows, form.row_type), build_label_series(columns, form.column_type)
    frame = pl.DataFrame(dict(zip(form.names, (*ids, values), strict=True)))
    write_frames([frame], frame.schema, output, standard_format=".jsonl" if as_json else ".csv", safe_csv=safe_csv)
    told: dict[str, int] = {}
    for axis, name, features in (("row", form.row, found.row_features), ("column", form.column, found.column_features)):
        target = targets[axis]
        if target is not None:
            try:
                told[f"{axis}_features"] = _write_features(features, target, name, safe_csv=safe_csv)
            except CannotSave as error:
                raise CannotSave(f"{error} there; the entries are in {output} already") from error
    if output == STANDARD:
        return
    if as_json:
        show_json({"entries": len(frame), "file": output} | told)
        return
    say(f"{len(frame):,} entries in {output}")
    for axis in ("row", "column"):
        n_described = told.get(f"{axis}_features")
        if n_described is not None:
            where = f"in {targets[axis]}" if n_described else f"came since training; {targets[axis]} is not written"
            say(f"features of {n_described:,} {axis}s {where}")


def _check_feature_targets(targets: Mapping[str, str | None], *, inputs: list[Path]) -> None:
    """Refuse files of features that `fit` could not read, or that cannot be written, or that are one and the same."""
    taken = list(inputs)
    for axis, target in targets.items():
        if target is None:
            continue
        if Path(target).suffix.lower() not in _FEATURE_ENDINGS:
            endings = ", ".join(_FEATURE_ENDINGS)
            raise BadSetting(f"--new-{axis}-features takes a file that ends in {endings}; got {target!r}")
        check_writable(Path(target), inputs=taken)
        taken.append(Path(target))


def _write_features(features: Features | None, target: str, label: str, *, safe_csv: bool) -> int:
    """Write features to a file that `fit --row-features` reads; return of how many labels, 0 where none came."""
    from deepmf.storage.frame_file import join_lists, make_feature_frame

    if features is None:
        return 0
    frame = make_feature_frame(features, f"{label} id" if label in features.names else label)
    is_text = Path(target).suffix.lower() != ".parquet"
    frame = join_lists(frame) if is_text else frame
    write_frames([frame], frame.schema, target, safe_csv=safe_csv and is_text)
    return len(features)
