"""`deepmf fit`: fit a model to a file of entries, and write a model file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli import options
from deepmf.cli.feature_files import MatrixFeatures, NameFiles, TrainingFeatureFiles
from deepmf.cli.inputs import InputOptions
from deepmf.cli.model_file import check_model_target, save_model
from deepmf.cli.options import option
from deepmf.cli.output import STANDARD, check_writable, say, show_json
from deepmf.cli.process import is_first, is_restarted
from deepmf.cli.settings import check_effort, format_value, gather_settings, parse_scale
from deepmf.cli.validation import add_held_out, find_validation, read_like
from deepmf.errors import BadSetting, TrainingDiverged
from deepmf.models.registry import model_class

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.base import Model
    from deepmf.training.history import Callback


_N_CHOSEN_SHOWN = 6  # of the settings chosen at fit, in the summary; the first matter most


@options.with_option_groups()
def fit(
    ratings: options.Ratings,
    output: Annotated[
        Path,
        option("--output -o FILE", "Model file to write; a folder if the name ends in .model; - for standard output."),
    ],
    validation: options.Validation = None,
    validation_share: options.ValidationShare = None,
    model: options.ModelName = options.DEFAULT_MODEL,
    effort: options.Effort = None,
    assignments: options.Assignments = None,
    config: options.Config = None,
    scale: options.ScaleText = None,
    seed: options.Seed = None,
    device: options.Device = None,
    asked: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Entries of random cells, which nobody chose: predictions are calibrated for any cell.",
        ),
    ] = None,
    resume: Annotated[
        bool, option("--resume", "Keep a checkpoint in OUTPUT.checkpoint, and continue from it if it exists.")
    ] = False,
    checkpoint: Annotated[
        Path | None, option("--checkpoint FILE", "Checkpoint file, instead of OUTPUT.checkpoint.")
    ] = None,
    *,
    files: TrainingFeatureFiles,
    names: NameFiles,
    reading: InputOptions,
    as_json: options.Json = False,
) -> None:
    """Fit a model to entries and write a model file.

    A line of RATINGS has a row, a column and a value. Settings that you do not give are chosen for the file and the
    machine; deepmf inspect shows them.

    Ctrl-C ends training early and saves the best weights so far (exit status 130); so do SIGTERM and SIGHUP.

    Example: deepmf fit ratings.csv -o model.safetensors --effort quick
    """
    settings = gather_settings(config, assignments, seed=seed, device=device, effort=effort)
    if effort is not None:
        check_effort(effort, model)
    new_model = model_class(model)(**settings)
    files.check_model(new_model)
    inputs = [ratings, validation, asked, config, *files.paths, *names.paths]
    kept = _check_targets(output, checkpoint, resume=resume, inputs=inputs)

    entries = reading.read_matrix(ratings, scale=parse_scale(scale))
    features = files.read(entries, reading.encoding, named=names.paths)
    known_names = names.read(entries, reading.encoding)
    train, held_out = _hold_out(entries, validation, validation_share, reading, model=new_model)
    own = held_out if validation is None else None  # validation entries from RATINGS itself
    begin = time.perf_counter()
    in_words = not as_json and str(output) != STANDARD
    with _show_plan(new_model, train, in_words=in_words) as plan:
        try:
            new_model.fit(
                train,
                held_out,
                **features._asdict(),
                **known_names,
                asked=None if asked is None else read_like(asked, entries, reading),
                callbacks=plan,
                checkpoint=kept,
                keep_checkpoint=True,
            )
        except TrainingDiverged as error:
            _save_fitted(add_held_out(new_model, own), output, checkpoint=kept)
            if not new_model.is_fitted:
                raise
            raise TrainingDiverged(f"{error}; it is saved in {output}") from error
    new_model = add_held_out(new_model, own)
    _save_fitted(new_model, output, checkpoint=kept)

    n_left_out = entries.n_entries - new_model.entries_.n_entries
    seconds = time.perf_counter() - begin
    summary = _summarise(new_model, held_out, n_left_out, features, seconds=seconds, file=output)
    _show_summary(summary, as_json=as_json)
    if new_model.history_.stopped == "interrupted":
        raise typer.Exit(130)


def _check_targets(
    output: Path, checkpoint: Path | None, *, resume: bool, inputs: Sequence[Path | None]
) -> Path | None:
    """Refuse files that could not be written after training; return the checkpoint file, if any."""
    if is_first():
        check_model_target(output, inputs=inputs)
    kept = _choose_checkpoint(output, checkpoint, resume=resume)
    if kept is not None and is_first() and not kept.is_dir():
        check_writable(kept, inputs=[*inputs, output])
    return kept


def _choose_checkpoint(output: Path, checkpoint: Path | None, *, resume: bool) -> Path | None:
    """Return the checkpoint file, if any; an existing one is used only on request."""
    if checkpoint is None:
        if resume and str(output) == STANDARD:
            raise BadSetting(
                "--resume keeps a checkpoint beside the model file, and -o - has none; add --checkpoint FILE"
            )
        return output.with_name(f"{output.name}.checkpoint") if resume else None
    if checkpoint.exists() and not (resume or is_restarted()):
        raise BadSetting(f"{checkpoint} exists; continue from it with --resume, or delete it to start from scratch")
    return checkpoint


def _hold_out(
    entries: ObservedMatrix,
    validation: Path | None,
    share: float | None,
    reading: InputOptions,
    *,
    model: Model,
) -> tuple[ObservedMatrix, ObservedMatrix | None]:
    """Return the entries to train on and the validation entries; none where `fit` of the model holds out its own."""
    seed = model.settings.seed
    if validation is None and share is None and (model.holds_out or not entries.has_values):
        return entries, None
    return find_validation(entries, validation, share, reading, seed=seed)


def _save_fitted(model: Model, output: Path, *, checkpoint: Path | None) -> None:
    """Save the model if it is fitted; only then remove its checkpoint."""
    from deepmf.training.checkpoint import remove_checkpoint

    if model.is_fitted and is_first():
        save_model(model, output)
    if checkpoint is not None and model.history_.stopped != "interrupted":
        remove_checkpoint(checkpoint)


@contextmanager
def _show_plan(model: Model, train: ObservedMatrix, *, in_words: bool) -> Iterator[Sequence[Callback]]:
    """Yield callbacks that print the plan and its estimated time; none on a terminal, where `fit` shows both."""
    from deepmf.training.progress import PlanLine, is_terminal

    plan = model.plan(train) if in_words and not is_terminal() else None
    if plan is None or sys.stdout is None:
        yield ()
        return
    with closing(PlanLine(plan, sys.stdout)) as line:
        yield (line,)


def _summarise(
    model: Model,
    validation: ObservedMatrix | None,
    n_left_out: int,
    features: MatrixFeatures,
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
        "left_out": n_left_out,  # validation entries of RATINGS that the model does not contain
        "scale": str(known.scale),
        "features": features.kinds,
        "epochs": len(history),
        "best_epoch": None if history.best_epoch is None else history.best_epoch + 1,  # counted from 1
        "validation_rmse": history.best_error,
        "means_rmse": history.means_error,
        "stages": history.stages,
        "asked": model.asked_,
        "chosen": model.chosen_,
        "stopped": history.stopped,
        "threads": history.threads,
        "seconds": round(seconds, 3),
        "file": str(file),
    }


def _show_summary(summary: dict[str, Any], *, as_json: bool) -> None:
    if summary["file"] == STANDARD:
        return
    if as_json:
        show_json(summary)
        return
    from deepmf.training.history import describe_stages

    shown = f"{summary['entries']:,} entries, {summary['rows']:,} rows, {summary['columns']:,} columns"
    words = [f"fitted {summary['model']} to {shown} in {summary['seconds']:.1f} s"]
    if summary["best_epoch"] is not None:
        words.append(f"best epoch {summary['best_epoch']} of {summary['epochs']}")
    if summary["validation_rmse"] is not None:
        n_validation = summary["validation_entries"]
        on = f"{n_validation:,} entries" if n_validation else "held-out entries"
        words.append(f"validation RMSE {summary['validation_rmse']:.4f} on {on}")
    if summary["means_rmse"] is not None and summary["epochs"]:  # the means themselves have none
        words.append(f"the means: {summary['means_rmse']:.4f}")
    say("; ".join(words))
    if summary["asked"] is not None:
        found = summary["asked"]
        say(
            f"calibrated on {found['cells']:,} asked cells: level {found['level']:+.2f}, slope {found['slope']:.2f}; "
            f"their RMSE fell from {found['rmse_as_learned']:.4f} to {found['rmse']:.4f}"
        )
    if summary["left_out"]:
        say(
            f"{summary['left_out']:,} validation entries are not in the model, because {summary['model']} cannot be "
            "extended (--validation-share 0 trains on all entries)"
        )
    for axis, kinds in summary["features"].items():
        say(f"features of {axis}: {', '.join(f'{name} ({kind})' for name, kind in kinds.items())}")
    if summary["stages"]:
        say(f"stages: {describe_stages(summary['stages'])}")
    if summary["chosen"]:
        say(f"chosen: {_format_chosen(summary['chosen'])}")
    say(f"saved in {summary['file']}")


def _format_chosen(chosen: dict[str, Any]) -> str:
    shown = [f"{name}={format_value(value)}" for name, value in list(chosen.items())[:_N_CHOSEN_SHOWN]]
    n_more = len(chosen) - len(shown)
    return " ".join(shown) + (f" and {n_more} more (deepmf inspect shows all)" if n_more else "")
