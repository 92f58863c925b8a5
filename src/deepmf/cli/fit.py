"""`deepmf fit`: learn a model from a file of entries, and write it to one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.inputs import Reading, like_labels
from deepmf.cli.options import Column, Duplicates, Json, Row, Separator, Value
from deepmf.cli.output import check_writable, show_json
from deepmf.cli.progress import show_epochs
from deepmf.cli.settings import gather_settings, parse_scale
from deepmf.errors import BadSetting, TrainingDiverged
from deepmf.models.registry import HOMES, model_class

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.model import Model

VALIDATION_SHARE = 0.05


def fit(
    ratings: Annotated[
        Path,
        typer.Argument(metavar="RATINGS", help="Entries: csv, tsv, parquet, MovieLens .dat, .npz; also .gz, .zst."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The model file to write.")],
    validation: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Entries that choose the best epoch; they never teach.")
    ] = None,
    validation_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Without --validation: the share of the entries that is split off at random (by --seed) to choose "
            f"the best epoch, instead of {VALIDATION_SHARE:g}; 0 for none.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help=f"What to fit: {', '.join(HOMES)}.")] = "dmf",
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting, such as dropout=.5 or hidden_sizes=512,256; repeatable."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings by name in a TOML file; --set wins over it.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(metavar="SCALE", help="All levels (1,2,3,4,5) or an interval (0:100), where not all occur."),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of all that is random; 0 unless set.")] = None,
    device: Annotated[
        str | None, typer.Option(metavar="auto|cpu|cuda", help="Where to train; auto takes a GPU where there is one.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Keep the state of training in OUTPUT.checkpoint, and continue from there where that file exists.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Another place to keep the state of training.")
    ] = None,
    row: Row = None,
    column: Column = None,
    value: Value = None,
    separator: Separator = None,
    duplicates: Duplicates = "error",
    as_json: Json = False,
) -> None:
    """Learn from a file of entries (a row, a column and a value per line) and write a model file.

    Ctrl-C ends training early and saves the best weights so far (exit status 130).

    Example: deepmf fit ratings.csv -o model.safetensors --set epochs=100 --set hidden_sizes=512
    """
    settings = gather_settings(config, assignments or ())
    settings |= {name: given for name, given in (("seed", seed), ("device", device)) if given is not None}
    new_model = model_class(model)(**settings)
    reading = Reading(row, column, value, separator, duplicates)
    check_writable(output)
    kept = _checkpoint(output, checkpoint, resume=resume)
    entries = reading.matrix(ratings, scale=parse_scale(scale))
    train, held_out = _parts(entries, validation, validation_share, reading, seed=new_model.settings.seed)
    start = time.perf_counter()
    with show_epochs(f"fitting {type(new_model).__name__}", getattr(new_model.settings, "epochs", None)) as callbacks:
        try:
            new_model.fit(train, held_out, callbacks=callbacks, checkpoint=kept)
        except TrainingDiverged as error:
            if new_model.observations_ is None:
                raise
            new_model.save(output)
            raise TrainingDiverged(f"{error}; it is saved in {output}") from error
    new_model.save(output)
    _show(_summary(new_model, train, held_out, seconds=time.perf_counter() - start, file=output), as_json=as_json)
    if new_model.history_.stopped == "interrupted":
        raise typer.Exit(130)


def _checkpoint(output: Path, checkpoint: Path | None, *, resume: bool) -> Path | None:
    """Return where the state of training is kept; one that is there already is only used if asked for."""
    if checkpoint is None:
        return output.with_name(f"{output.name}.checkpoint") if resume else None
    if checkpoint.exists() and not resume:
        raise BadSetting(f"{checkpoint} exists already; --resume continues from it, deleting it starts afresh")
    check_writable(checkpoint)
    return checkpoint


def _parts(
    entries: ObservedMatrix, validation: Path | None, share: float | None, reading: Reading, *, seed: int
) -> tuple[ObservedMatrix, ObservedMatrix | None]:
    """Return the entries to learn from, and those that choose the best epoch."""
    if validation is not None:
        if share is not None:
            raise BadSetting("give --validation or --validation-share, not both")
        return entries, like_labels(
            reading.matrix(validation, scale=entries.scale), entries.row_labels, entries.column_labels
        )
    from deepmf.data.splits import split_entries

    share = VALIDATION_SHARE if share is None else share
    split = split_entries(entries, train=1.0 - share, validation=share, test=0.0, seed=seed)
    return split.train, split.validation if split.validation.n_entries else None


def _summary(
    model: Model, train: ObservedMatrix, validation: ObservedMatrix | None, *, seconds: float, file: Path
) -> dict[str, Any]:
    history = model.history_
    return {
        "model": type(model).__name__,
        "rows": train.shape[0],
        "columns": train.shape[1],
        "entries": train.n_entries,
        "validation_entries": 0 if validation is None else validation.n_entries,
        "scale": str(train.scale),
        "epochs": len(history),
        "best_epoch": None if history.best_epoch is None else history.best_epoch + 1,  # counted from 1
        "validation_rmse": history.best_error,
        "stopped": history.stopped,
        "seconds": round(seconds, 3),
        "file": str(file),
    }


def _show(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show_json(summary)
        return
    shown = f"{summary['entries']:,} entries, {summary['rows']:,} rows, {summary['columns']:,} columns"
    words = [f"fitted {summary['model']} to {shown} in {summary['seconds']:.1f} s"]
    if summary["best_epoch"] is not None:
        words.append(f"best epoch {summary['best_epoch']} of {summary['epochs']}")
    if summary["validation_rmse"] is not None:
        words.append(f"validation RMSE {summary['validation_rmse']:.4f} on {summary['validation_entries']:,} entries")
    typer.echo("; ".join(words))
    typer.echo(f"saved in {summary['file']}")
