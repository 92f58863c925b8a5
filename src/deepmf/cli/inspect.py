"""`deepmf inspect`: what a model file, or a store of entries, holds."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.inputs import local_file
from deepmf.cli.options import Json
from deepmf.cli.output import say, scale_content, scale_words, show_json
from deepmf.cli.settings import show_value
from deepmf.errors import UnreadableFile

if TYPE_CHECKING:
    from deepmf.matrix.features import AxisFeatures
    from deepmf.models.base import Model


def is_store(path: Path) -> bool:
    """Say whether a folder with the manifest of a store is there."""
    from deepmf.matrix.packed import MANIFEST

    return (path / MANIFEST).is_file()


def store_facts(folder: Path, *, verified: bool) -> dict[str, Any]:
    """Return what is known of a store as plain values; one that is not whole, or damaged, is refused."""
    from deepmf.matrix.packed import FORMAT, MANIFEST, TYPES, open_store, read_manifest, verify_store

    open_store(folder)
    if verified:
        verify_store(folder)
    manifest = read_manifest(folder)
    files = {name: part["length"] * TYPES[part["type"]].itemsize for name, part in manifest.parts.items()}
    files[MANIFEST] = (folder / MANIFEST).stat().st_size
    return {
        "file": str(folder),
        "bytes": sum(files.values()),
        "format": FORMAT,
        "verified": verified,
        "rows": manifest.n_rows,
        "columns": manifest.n_columns,
        "entries": manifest.n_entries,
        "scale": scale_content(manifest.scale),
        "mean": manifest.mean,
        "values": manifest.parts["values"]["type"],
        "labels": {f"{axis}s": manifest.labels[axis]["kind"] for axis in ("row", "column")},
        "files": files,
    }


def store_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known in words, line by line."""
    rows, columns = facts["labels"]["rows"], facts["labels"]["columns"]
    mean = "" if facts["mean"] is None else f", mean {facts['mean']:.4f}"
    checked = (
        "all of it matches its checksums"
        if facts["verified"]
        else "lengths are checked; --verify compares all with checksums"
    )
    coded = "codes of one byte" if facts["values"] == "uint8" else facts["values"]
    return [
        ("store", "{file}, {bytes:,} bytes, format {format}".format(**facts)),
        ("", checked),
        ("matrix", "{rows:,} rows x {columns:,} columns, {entries:,} entries".format(**facts)),
        ("scale", scale_words(facts["scale"])),
        ("values", f"{coded}{mean}"),
        ("labels", f"of rows {rows}, of columns {columns}"),
        ("files", ", ".join(f"{name} ({n_bytes:,} bytes)" for name, n_bytes in sorted(facts["files"].items()))),
    ]


# The lines of what was chosen: for the matrix and the machine, and on held-out entries.
_CHOSEN = {"chosen": "chosen", "on entries": "chosen_on_entries"}


def inspect(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A model file or folder, or a store of entries; - for a model from standard input."
        ),
    ],
    verified: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare all of a model folder or a store with its checksums; a file always is compared."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a model file holds: the model and its settings, the matrix, how training went, what was added since.

    Of a store that deepmf pack wrote: its matrix and its files.

    Example: deepmf inspect model.safetensors

    Or: deepmf inspect ratings.store --verify
    """

    of_store = is_store(file)
    facts = store_facts(file, verified=verified) if of_store else _model_facts(file, verified=verified)
    if as_json:
        show_json(facts)
        return
    for name, shown in store_lines(facts) if of_store else _lines(facts):
        say(textwrap.fill(f"{name:<12}{shown}", 110, subsequent_indent=" " * 12, break_on_hyphens=False))


def _model_facts(path: Path, *, verified: bool) -> dict[str, Any]:
    from deepmf.models.loading import load, verify
    from deepmf.storage.model_folder import is_model_folder

    if path.is_dir() and not is_model_folder(path):
        raise UnreadableFile(
            f"{path} is a folder without model.json; a model file or a model folder is needed, or a store with its "
            "manifest.json"
        )
    with local_file(path) as file:
        found = verify(file) if verified else load(file)
        return _file(file, name=str(path)) | {"verified": verified or file.is_file()} | _described(found)


def _file(file: Path, *, name: str) -> dict[str, Any]:
    from deepmf.storage.model_folder import count_model_bytes, read_model_origin

    origin = read_model_origin(file)
    return {"file": name, "bytes": count_model_bytes(file), "format": origin.format, "version": origin.version}


def _described(model: Model) -> dict[str, Any]:
    """Return what is known of a model as plain values."""
    seen, history = model.entries_, model.history_
    boundaries = getattr(model, "boundaries_", None)
    n_rows, n_columns = seen.train.shape
    added = seen.extension
    return {
        "model": type(model).__name__,
        "predicts": list(model.predicts),
        "settings": model.settings.to_dict(),
        "chosen": model.chosen_,
        "chosen_on_entries": model.chosen_on_entries_ if model.history_.stages else {},  # few entries: none held out
        "scale": scale_content(model.scale_),
        "rows": n_rows,
        "columns": n_columns,
        "entries": seen.train.n_entries,
        "dropped": int(seen.dropped.size),  # replaced or forgotten since training
        "features": {
            axis: _features(features, len(labels))
            for axis, features, labels in (
                ("rows", seen.row_features, seen.rows),
                ("columns", seen.column_features, seen.columns),
            )
            if features is not None
        },
        "training": {
            "epochs": len(history),
            "best_epoch": None if history.best_epoch is None else history.best_epoch + 1,  # counted from 1
            "validation_rmse": history.best_error,
            "means_rmse": history.means_error,
            "stages": history.stages,
            "last_loss": history.records[-1].loss if history.records else None,
            "stopped": history.stopped or None,
        },
        "boundaries": None if boundaries is None else boundaries.tolist(),
        "extension": None
        if added is None
        else {
            "new_rows": len(seen.rows) - n_rows,
            "new_columns": len(seen.columns) - n_columns,
            "entries": added.n_entries,
        },
    }


def _features(features: AxisFeatures, count: int) -> dict[str, Any]:
    import numpy as np

    return {
        "kinds": features.encoding.kinds,
        "inputs": features.n_inputs,
        "known": int(np.count_nonzero(features.take(np.arange(count)).are_known)),  # rows or columns that have any
    }


def _lines(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known in words, line by line."""
    from deepmf.training.history import describe_stages

    given = {name: value for name, value in described["settings"].items() if name not in described["chosen"]}
    lines = [
        ("file", "{file}, {bytes:,} bytes, format {format}, written by deepmf {version}".format(**described)),
        *([] if described["verified"] else [("", "a folder: lengths and shapes are checked; --verify checks all")]),
        ("model", f"{described['model']}, predicts in area {', '.join(described['predicts'])}"),
        ("settings", _named(given)),
        *((title, _named(described[name])) for title, name in _CHOSEN.items() if described[name]),
        ("matrix", "{rows:,} rows x {columns:,} columns, {entries:,} entries".format(**described)),
        *((axis, _feature_words(told)) for axis, told in described["features"].items()),
        ("scale", scale_words(described["scale"])),
        ("training", _training(described["training"])),
    ]
    if described["training"]["stages"]:
        lines.append(("stages", f"validation RMSE {describe_stages(described['training']['stages'])}"))
    if described["boundaries"] is not None:
        lines.append(("boundaries", " ".join(f"{boundary:.4f}" for boundary in described["boundaries"])))
    if described["dropped"]:
        shown = "{dropped:,} of the {entries:,} training entries, replaced or forgotten; the file still holds them"
        lines.append(("dropped", shown.format(**described)))
    added = described["extension"]
    if added is not None:
        is_new = added["new_rows"] or added["new_columns"]
        shown = "{new_rows:,} new rows, {new_columns:,} new columns, {entries:,} entries"
        # Such as those that chose the best epoch.
        known = "{entries:,} entries of known rows and columns, which were not trained on"
        lines.append(("extended by", (shown if is_new else known).format(**added)))
    return lines


def _feature_words(features: dict[str, Any]) -> str:
    named = ", ".join(f"{name} ({kind})" for name, kind in features["kinds"].items())
    return f"{features['known']:,} with features, {features['inputs']:,} inputs: {named}"


def _named(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={show_value(value)}" for name, value in settings.items())


def _training(training: dict[str, Any]) -> str:
    from deepmf.formatting import format_quantity

    in_epochs = bool(training["epochs"])  # the means are not
    words = [format_quantity(training["epochs"], "epoch") if in_epochs else "not in epochs"]
    if training["best_epoch"] is not None:
        words.append(f"best epoch {training['best_epoch']}")
    if training["validation_rmse"] is not None:
        beside = in_epochs and training["means_rmse"] is not None
        of_means = f" (the means: {training['means_rmse']:.4f})" if beside else ""
        words.append(f"validation RMSE {training['validation_rmse']:.4f}{of_means}")
    if training["stopped"] in ("patience", "interrupted", "diverged"):
        words.append({"patience": "stopped early, without progress"}.get(training["stopped"], training["stopped"]))
    return ", ".join(words)
