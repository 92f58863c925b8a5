"""`deepmf fit`: learn a model from a file of entries, and write it to one file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.feature_files import AxisPair, FeatureFiles, told
from deepmf.cli.inputs import Reading, like_model, load_model, split_off, split_off_unseen, with_split_off
from deepmf.cli.options import (
    Assignments,
    Config,
    Device,
    Effort,
    Json,
    ModelName,
    Ratings,
    ScaleText,
    Seed,
    Validation,
    ValidationShare,
    takes_groups,
)
from deepmf.cli.output import STANDARD, check_model_target, check_writable, save_model, say, show_json
from deepmf.cli.process import is_first, is_restarted
from deepmf.cli.settings import check_effort, gather_settings, parse_scale, show_value
from deepmf.errors import BadSetting, TrainingDiverged
from deepmf.models.registry import model_class

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.base import Model
    from deepmf.training.history import Callback


# How many of the chosen settings the summary names; the first are those that matter most.
_SHOWN_CHOSEN = 6


@takes_groups
def fit(
    context: typer.Context,
    ratings: Ratings,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The model file to write; a folder where the name ends in .model; - for standard output.",
        ),
    ],
    validation: Validation = None,
    validation_share: ValidationShare = None,
    model: ModelName = "dmf-o",
    effort: Effort = None,
    assignments: Assignments = None,
    config: Config = None,
    scale: ScaleText = None,
    seed: Seed = None,
    device: Device = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A fitted model to start from, with its kind and settings (--set may change those of training): "
            "half the epochs, for a file with some entries more or less.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Keep the state of training in OUTPUT.checkpoint, and continue from there where that file exists.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the state of training in this file instead.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Log every epoch for TensorBoard, each run to its own folder.")
    ] = None,
    *,
    files: FeatureFiles,
    reading: Reading,
    as_json: Json = False,
) -> None:
    """Learn from a file of entries (a row, a column and a value per line) and write a model file.

    Ctrl-C ends training early and saves the best weights so far (exit status 130); so do SIGTERM and SIGHUP.

    Settings that are not given are chosen for the file and the machine (deepmf inspect shows them).

    With --row-features or --column-features, the model also reads what is known of rows and columns beside entries.

    Example: deepmf fit ratings.csv -o model.safetensors --effort quick
    """
    settings = gather_settings(config, assignments, seed=seed, device=device, effort=effort)
    start = None if start_from is None else load_model(start_from, extensions=(), reading=reading)
    if effort is not None and start is None:
        check_effort(effort, model)
    new_model = model_class(model)(**settings) if start is None else _like(start, model, settings, context)
    if tensorboard is not None and not hasattr(new_model.settings, "epochs"):
        raise BadSetting(f"{model!r} is not learned in epochs, so there is nothing to log to TensorBoard")
    files.check_taken_by(new_model)
    inputs = [ratings, validation, config, start_from, *files.paths]
    if is_first():
        check_model_target(output, inputs=inputs)
    kept = _checkpoint(output, checkpoint, resume=resume)
    if kept is not None and is_first() and not kept.is_dir():
        check_writable(kept, inputs=[*inputs, output])
    known_scale = None if start is None else start.scale_
    entries = reading.matrix(ratings, scale=known_scale if scale is None else parse_scale(scale))
    entries = entries if start is None else like_model(entries, start)
    described = files.read(entries)
    if validation is None and validation_share is None and new_model.holds_out:
        train, held_out = entries, None
    elif start is None or validation is not None:
        train, held_out = split_off(entries, validation, validation_share, reading, seed=new_model.settings.seed)
    else:
        train, held_out = split_off_unseen(entries, start, validation_share, seed=new_model.settings.seed)
    own = held_out if validation is None else None  # entries of the file that the model is fitted to
    begin = time.perf_counter()
    in_words = not as_json and str(output) != STANDARD
    with (
        _log_epochs(tensorboard if is_first() else None) as logged,
        _tell_plan(new_model, train, start, in_words=in_words) as plan,
    ):
        try:
            new_model.fit(
                train,
                held_out,
                row_features=described.row_features,
                column_features=described.column_features,
                start_from=start,
                callbacks=[*plan, *logged],
                checkpoint=kept,
                keep_checkpoint=True,
            )
        except TrainingDiverged as error:
            _save(with_split_off(new_model, own), output, checkpoint=kept)
            if not new_model.is_fitted:
                raise
            raise TrainingDiverged(f"{error}; it is saved in {output}") from error
    new_model = with_split_off(new_model, own)
    _save(new_model, output, checkpoint=kept)
    n_left_out = entries.n_entries - new_model.entries_.n_entries
    seconds = time.perf_counter() - begin
    summary = _summary(new_model, held_out, n_left_out, described, seconds=seconds, file=output)
    _show(summary, as_json=as_json)
    if new_model.history_.stopped == "interrupted":
        raise typer.Exit(130)


def _like(start: Model, name: str, settings: dict[str, Any], context: typer.Context) -> Model:
    """Return a model of the kind and settings of another; a kind that was asked for must be the same."""
    source = context.get_parameter_source("model")
    if source is not None and source.name == "COMMANDLINE" and model_class(name) is not type(start):
        raise BadSetting(f"--model {name} cannot start from a {type(start).__name__}; leave --model out, or fit afresh")
    return type(start)(**start.own_settings | settings)


def _save(model: Model, output: Path, *, checkpoint: Path | None) -> None:
    """Save what was learned, if anything was; only then the state of training that led there may go."""
    from deepmf.training.checkpoint import remove_checkpoint

    if model.is_fitted and is_first():
        save_model(model, output)
    if checkpoint is not None and model.history_.stopped != "interrupted":
        remove_checkpoint(checkpoint)


def _checkpoint(output: Path, checkpoint: Path | None, *, resume: bool) -> Path | None:
    """Return where the state of training is kept; an existing one is only used on request."""
    if checkpoint is None:
        if resume and str(output) == STANDARD:
            raise BadSetting(
                "--resume keeps the state of training beside the model file, and -o - has none; add --checkpoint FILE"
            )
        return output.with_name(f"{output.name}.checkpoint") if resume else None
    if checkpoint.exists() and not (resume or is_restarted()):
        raise BadSetting(f"{checkpoint} exists already; --resume continues from it; delete it to start from scratch")
    return checkpoint


@contextmanager
def _tell_plan(
    model: Model, train: ObservedMatrix, start: Model | None, *, in_words: bool
) -> Iterator[Sequence[Callback]]:
    """Yield the callbacks that say on standard output what is going to be done; none where `fit` shows it itself."""
    from deepmf.training.progress import is_terminal, show_plan

    plan = model.plan(train, start_from=start) if in_words and not is_terminal() else None
    if plan is None or sys.stdout is None:
        yield ()
        return
    with show_plan(plan, sys.stdout) as line:
        yield (line,)


@contextmanager
def _log_epochs(folder: Path | None) -> Iterator[Sequence[Callback]]:
    """Yield the callbacks that log each epoch for TensorBoard; none without a folder."""
    if folder is None:
        yield ()
        return
    from deepmf.training.progress import tensorboard_log

    with tensorboard_log(folder) as log:
        yield (log,)


def _summary(
    model: Model,
    validation: ObservedMatrix | None,
    n_left_out: int,
    described: AxisPair,
    *,
    seconds: float,
    file: Path,
) -> dict[str, Any]:
    history, known = model.history_, model.entries_
    return {
        "model": type(model).__name__,
        "rows": len(known.rows),
        "columns": len(known.columns),
        "entries": known.n_entries,
        "validation_entries": 0 if validation is None else validation.n_entries,
        "left_out": n_left_out,  # validation entries of the same file that are no part of the model
        "scale": str(known.scale),
        "features": told(described),
        "epochs": len(history),
        "best_epoch": None if history.best_epoch is None else history.best_epoch + 1,  # counted from 1
        "validation_rmse": history.best_error,
        "means_rmse": history.means_error,
        "stages": history.stages,
        "chosen": model.chosen_,
        "stopped": history.stopped,
        "threads": history.threads,
        "seconds": round(seconds, 3),
        "file": str(file),
    }


def _show(summary: dict[str, Any], *, as_json: bool) -> None:
    if summary["file"] == STANDARD:
        return
    if as_json:
        show_json(summary)
        return
    from torch import get_num_threads

    from deepmf.training.history import describe_stages

    shown = f"{summary['entries']:,} entries, {summary['rows']:,} rows, {summary['columns']:,} columns"
    words = [f"fitted {summary['model']} to {shown} in {summary['seconds']:.1f} s"]
    if summary["best_epoch"] is not None:
        words.append(f"best epoch {summary['best_epoch']} of {summary['epochs']}")
    if summary["validation_rmse"] is not None:
        n_validation = summary["validation_entries"]
        on = f"{n_validation:,} entries" if n_validation else "entries set aside"
        words.append(f"validation RMSE {summary['validation_rmse']:.4f} on {on}")
    if summary["means_rmse"] is not None and summary["epochs"]:  # the means themselves have none
        words.append(f"the means: {summary['means_rmse']:.4f}")
    say("; ".join(words))
    if summary["left_out"]:
        say(
            f"{summary['left_out']:,} validation entries are not part of the model: {summary['model']} cannot be "
            "extended (--validation-share 0 fits it to all entries)"
        )
    for axis, kinds in summary["features"].items():
        say(f"features of {axis}: {', '.join(f'{name} ({kind})' for name, kind in kinds.items())}")
    if summary["stages"]:
        say(f"stages: {describe_stages(summary['stages'])}")
    if summary["chosen"]:
        say(f"chosen: {_chosen(summary['chosen'])}")
    n_all = get_num_threads()
    if summary["threads"] is not None and summary["threads"] < n_all:
        say(f"torch used {summary['threads']} of {n_all} threads, because other programs keep the cores busy")
    say(f"saved in {summary['file']}")


def _chosen(chosen: dict[str, Any]) -> str:
    """Return the first of the settings that were chosen, and how many more there are."""
    shown = [f"{name}={show_value(value)}" for name, value in list(chosen.items())[:_SHOWN_CHOSEN]]
    n_more = len(chosen) - len(shown)
    return " ".join(shown) + (f" and {n_more} more (deepmf inspect shows all)" if n_more else "")
