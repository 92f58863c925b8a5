"""`deepmf export-entries`: the entries of a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepmf.cli import options
from deepmf.cli.feature_files import ModelInput
from deepmf.cli.options import option
from deepmf.cli.output import (
    STANDARD,
    check_frame_target,
    check_writable,
    say,
    show_json,
    write_frames,
)
from deepmf.cli.serve import Database, choose_database, require_serve
from deepmf.errors import BadSetting

if TYPE_CHECKING:
    from deepmf.matrix.features import Features


_FEATURE_ENDINGS = (".csv", ".tsv", ".parquet")


@options.with_option_groups(source=("model",), files=(), reading=())
def export_entries(
    source: ModelInput,
    output: options.FrameFile,
    database: Database = None,
    row_features: Annotated[
        Path | None,
        option(
            "--new-row-features FILE",
            "Also write the row features added since training: .csv, .tsv or .parquet.",
        ),
    ] = None,
    column_features: Annotated[
        Path | None,
        option(
            "--new-column-features FILE", "Also write the column features added since training."
        ),
    ] = None,
    as_json: options.FrameJson = False,
) -> None:
    """Export all entries of a service for the next training.

    These are the training entries and those that the service has received since.

    Example: deepmf export-entries model.safetensors -o ratings.parquet
    """
    with require_serve():
        from deepmf.serve.snapshot import export_data
    import polars as pl

    from deepmf.matrix.frames import build_extra_series, build_label_series

    check_frame_target(output, inputs=source.paths)
    used_files = [*source.paths, Path(output)]
    targets = {"row": row_features, "column": column_features}
    for axis, target in targets.items():
        if target is not None:
            if target.suffix.lower() not in _FEATURE_ENDINGS:
                endings = ", ".join(_FEATURE_ENDINGS)
                raise BadSetting(
                    f"--new-{axis}-features needs a file that ends in {endings}; got '{target}'"
                )
            check_writable(target, inputs=used_files)
            used_files.append(target)
    fitted = source.load()
    snapshot = export_data(fitted, database or choose_database(source.model))
    rows, columns, values = snapshot.entries
    form = fitted.entries_.train.form
    ids = build_label_series(rows), build_label_series(columns)
    frame = pl.DataFrame(dict(zip(form.names, (*ids, values), strict=True)))
    frame = frame.with_columns(build_extra_series(snapshot.extras, form))
    write_frames([frame], frame.schema, output, as_json=as_json)
    summary: dict[str, Any] = {"entries": len(frame), "file": output}
    words = [f"{len(frame):,} entries in {output}"]
    for axis, target in targets.items():
        if target is not None:
            n_described = _write_features(
                getattr(snapshot, f"{axis}_features"), target, getattr(form, axis)
            )
            summary[f"{axis}_features"] = n_described
            shown = f"features of {n_described:,} {axis}s in {target}"
            none = f"no {axis} features were added since training; {target} is not written"
            words.append(shown if n_described else none)
    if output != STANDARD:
        show_json(summary) if as_json else say("\n".join(words))


def _write_features(features: Features | None, target: Path, label: str) -> int:
    """Write features, and return the number of rows or columns that have some."""
    from deepmf.data.frame_file import join_lists, make_feature_frame

    if features is None:
        return 0
    frame = make_feature_frame(features, f"{label} id" if label in features.names else label)
    frame = frame if target.suffix.lower() == ".parquet" else join_lists(frame)
    write_frames([frame], frame.schema, str(target))
    return len(features)
