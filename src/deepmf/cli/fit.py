"""`deepmf fit`: fit a model to a file of entries, and write a model file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.feature_files import LabelFiles, list_kinds
from deepmf.cli.inputs import InputOptions
from deepmf.cli.inspect import describe_history, format_kinds
from deepmf.cli.options import Json, Ratings, ScaleText, option, with_option_groups
from deepmf.cli.output import check_writable, say, show_json
from deepmf.cli.process import is_first
from deepmf.cli.settings import TrainingOptions, format_value, parse_scale
from deepmf.errors import BadFeatures, TrainingDiverged

if TYPE_CHECKING:
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.base import Model


@with_option_groups()
def fit(
    ratings: Ratings,
    output: Annotated[
        Path,
        option(
            "--output -o FILE", "Model file to write; a name ending in .model is memory-mapped."
        ),
    ],
    scale: ScaleText = None,
    asked: Annotated[
        Path | None,
        option(
            "--asked FILE",
            "Entries of random cells, which nobody chose: predictions are calibrated for any cell.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        option(
            "--resume", "Keep a checkpoint in OUTPUT.checkpoint, and continue from it if it exists."
        ),
    ] = False,
    *,
    training: TrainingOptions,
    files: LabelFiles,
    reading: InputOptions,
    as_json: Json = False,
) -> None:
    """Fit a model to entries and write a model file.

    A line of RATINGS has a row, a column and a value. Settings that you do not give are chosen for
    the file and the machine; deepmf inspect shows them.

    Ctrl-C ends training early and saves the best weights so far (exit status 130); so do SIGTERM
    and SIGHUP.

    Example: deepmf fit ratings.csv -o model.safetensors --effort quick
    """

    from deepmf.training.progress import is_terminal

    model = training.make_model()
    if not model.takes_features and files.describes:
        raise BadFeatures(
            f"{type(model).__name__} reads entries alone, no features; models such as als and dmf-o do"
        )
    checkpoint = None
    if resume:
        checkpoint = output.with_name(f"{output.name}.checkpoint")
    if is_first():
        inputs = [ratings, training.validation, asked, training.config, *files.paths]
        check_writable(output, inputs=inputs)
        if checkpoint and not checkpoint.is_dir():
            check_writable(checkpoint, inputs=[*inputs, output])

    entries = reading.read_matrix(ratings, scale=parse_scale(scale))
    fitted_with = files.read(entries, reading.encoding)
    kinds = list_kinds(fitted_with)
    if asked:
        fitted_with["asked"] = reading.read_held_out(asked, entries.form, entries)
    train, held_out = training.hold_out(model, entries, reading)
    begin = time.perf_counter()
    # on a terminal, `fit` shows it
    if not (as_json or is_terminal()) and (plan := model.plan(train)):
        say(plan)
    try:
        model.fit(train, held_out, **fitted_with, checkpoint=checkpoint, keep_checkpoint=True)
    except TrainingDiverged as error:
        if not model.is_fitted:
            _remove_checkpoint(model, checkpoint)
            raise
        _save_all(model, held_out, training, output, checkpoint)
        raise TrainingDiverged(f"{error}; it is saved in {output}") from error
    model = _save_all(model, held_out, training, output, checkpoint)

    summary = _summarise(model, held_out, kinds, seconds=time.perf_counter() - begin)
    # Validation entries of RATINGS that the model does not contain.
    summary |= {"left_out": entries.n_entries - model.entries_.n_entries, "file": str(output)}
    if as_json:
        show_json(summary)
    else:
        _show_summary(summary)
    if model.history_.stopped == "interrupted":
        raise typer.Exit(130)


def _save_all(
    model: Model,
    held_out: ObservedMatrix | None,
    training: TrainingOptions,
    output: Path,
    checkpoint: Path | None,
) -> Model:
    """Save a fitted model that also knows the validation entries of RATINGS, if it can be extended;
    only then remove its checkpoint."""
    if held_out and not training.validation and model.predicts != ("I",):
        model = model.extend(held_out)
    if is_first():
        model.save(output)
    _remove_checkpoint(model, checkpoint)
    return model


def _remove_checkpoint(model: Model, checkpoint: Path | None) -> None:
    from deepmf.training.checkpoint import remove_checkpoint

    if checkpoint and model.history_.stopped != "interrupted":
        remove_checkpoint(checkpoint)


def _summarise(
    model: Model, validation: ObservedMatrix | None, kinds: dict[str, Any], *, seconds: float
) -> dict[str, Any]:
    history, entries = model.history_, model.entries_
    return {
        "model": type(model).__name__,
        "rows": len(entries.rows),
        "columns": len(entries.columns),
        "entries": entries.n_entries,
        "validation_entries": 0 if validation is None else validation.n_entries,
        "scale": str(entries.scale),
        "features": kinds,
        **describe_history(history),
        "asked": model.asked_,
        "chosen": model.chosen_,
        "threads": history.threads,
        "seconds": round(seconds, 3),
    }


def _show_summary(summary: dict[str, Any]) -> None:
    from deepmf.training.history import describe_stages

    words = [
        "fitted {model} to {entries:,} entries, {rows:,} rows, {columns:,} columns in {seconds:.1f} s"
    ]
    if summary["best_epoch"] is not None:
        words.append("best epoch {best_epoch} of {epochs}")
    if summary["validation_rmse"] is not None:
        n_held_out = "{validation_entries:,}" if summary["validation_entries"] else "held-out"
        words.append(f"validation RMSE {{validation_rmse:.4f}} on {n_held_out} entries")
    if summary["means_rmse"] is not None and summary["epochs"]:  # the means themselves have none
        words.append("the means: {means_rmse:.4f}")
    say("; ".join(words).format(**summary))
    if summary["asked"] is not None:
        say(
            "calibrated on {cells:,} asked cells: level {level:+.2f}, slope {slope:.2f}; their RMSE, "
            "each fifth by the others, is {rmse:.4f}, and as learned {rmse_as_learned:.4f}".format(
                **summary["asked"]
            )
        )
    if summary["left_out"]:
        say(
            "{left_out:,} validation entries are not in the model, because {model} cannot be extended "
            "(--validation-share 0 trains on all entries)".format(**summary)
        )
    for axis, kinds in summary["features"].items():
        say(f"features of {axis}: {format_kinds(kinds)}")
    if summary["stages"]:
        say(f"stages: {describe_stages(summary['stages'])}")
    if summary["chosen"]:
        settings = [f"{name}={format_value(value)}" for name, value in summary["chosen"].items()]
        more = f" and {len(settings) - 6} more (deepmf inspect shows all)" * (len(settings) > 6)
        say(f"chosen: {' '.join(settings[:6])}{more}")  # the first matter most
    say(f"saved in {summary['file']}")
