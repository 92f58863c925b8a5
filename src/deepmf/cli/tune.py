"""`deepmf tune`: find the settings of a model that predict validation entries best."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.feature_files import FeatureFiles, told
from deepmf.cli.inputs import Reading, split_off
from deepmf.cli.options import (
    VALIDATION_SHARE,
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
from deepmf.cli.output import check_writable, say, show_json, show_table
from deepmf.cli.settings import check_effort, gather_settings, parse_scale, show_value
from deepmf.errors import BadSetting, DeepMFWarning, TrainingInterrupted
from deepmf.models.registry import model_class

if TYPE_CHECKING:
    from deepmf.tuning import Study


@takes_groups
def tune(
    ratings: Ratings,
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", help="How many settings to try in all, earlier runs included.")
    ] = 30,
    file: Annotated[
        Path | None,
        typer.Option(
            "--study", "-o", metavar="FILE", help="Where every trial is kept; RATINGS-MODEL.study here unless given."
        ),
    ] = None,
    validation: Validation = None,
    validation_share: ValidationShare = None,
    model: ModelName = "dmf-o",
    effort: Effort = None,
    assignments: Assignments = None,
    config: Config = None,
    scale: ScaleText = None,
    seed: Seed = None,
    device: Device = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw how much each setting matters: an .svg file.")
    ] = None,
    *,
    files: FeatureFiles,
    reading: Reading,
    as_json: Json = False,
) -> None:
    """Try settings of a model, and show those with the smallest error on validation entries and how to fit with them.

    Settings given by --set or --config are fixed. Unpromising trials are stopped early. Ctrl-C keeps all trials but the
    one under way (exit status 130); run again, or with more --trials, it goes on.

    With --row-features or --column-features, the model also reads what is known of rows and columns beside entries.

    Example: deepmf tune ratings.csv --model als --trials 30 --picture importance.svg
    """
    from deepmf.plots import check_picture
    from deepmf.tuning import Study

    if trials < 1:
        raise BadSetting(f"--trials must be at least 1; got {trials}")
    if effort is not None:
        check_effort(effort, model)
    settings = gather_settings(config, assignments, seed=seed, device=device, effort=effort)
    new_model = model_class(model)(**settings)
    files.check_taken_by(new_model)
    kept = file or Path(f"{ratings.name.partition('.')[0].strip('-') or 'ratings'}-{model}.study")
    inputs = [ratings, validation, config, *files.paths]
    check_writable(kept, inputs=inputs)
    if picture is not None:
        check_picture(picture)
        check_writable(picture, inputs=[*inputs, kept])
    entries = reading.matrix(ratings, scale=parse_scale(scale))
    described = files.read(entries)
    train, held_out = split_off(entries, validation, validation_share, reading, seed=new_model.settings.seed)
    if held_out is None:
        raise BadSetting("settings are compared on validation entries; --validation-share must be above 0")
    study = Study(model, train, held_out, **described._asdict(), settings=settings, file=kept)
    interrupted = _run(study, trials, epochs=study.defaults.get("epochs"))
    if study.trials:
        how = {name: given for name, given in vars(reading).items() if given != getattr(Reading(), name)}
        # Always said: without either, fit leaves it to some models which entries to hold out.
        share = None if validation is not None else VALIDATION_SHARE if validation_share is None else validation_share
        how |= {"validation": validation, "validation-share": share, "scale": scale}
        how |= {"row-features": files.rows, "column-features": files.columns}
        how |= {"feature-label": files.labels, "feature-kinds": files.kinds}
        command = _fit_command(ratings, model, study.best.settings, how)
        summary = _summary(study, model, file=kept, command=command) | {"features": told(described)}
        _show(summary, study, as_json=as_json)
        if picture is not None:
            _draw(summary, picture, title=f"importance of the settings of {model} on {ratings.name}")
    if interrupted:
        raise typer.Exit(130)


def _run(study: Study, n_trials: int, *, epochs: int | None) -> bool:
    """Run trials, each with its progress; say whether Ctrl-C ended it."""
    from deepmf.training.progress import show_epochs

    with study.lock():
        for number in range(len(study.trials), n_trials):
            errors = [trial.error for trial in study.trials if trial.error is not None]
            best = f", best {min(errors):.4f}" if errors else ""
            try:
                with show_epochs(f"trial {number + 1} of {n_trials}{best}", epochs) as callbacks:
                    study.run(number + 1, callbacks=callbacks)
            except KeyboardInterrupt:
                warnings.warn(
                    f"interrupted in trial {number + 1} of {n_trials}; run the command again to continue",
                    TrainingInterrupted,
                    stacklevel=1,
                )
                return True
    return False


def _fit_command(ratings: Path, model: str, settings: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the command that fits a model with these settings to the same entries."""
    words = ["deepmf", "fit", str(ratings), "-o", "model.safetensors", "--model", model]
    for name, value in settings.items():
        words += [f"--{name}", str(value)] if name in ("seed", "device") else ["--set", f"{name}={show_value(value)}"]
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            words += [] if each is None else [f"--{name}"] if each is True else [f"--{name}", str(each)]
    return shlex.join(words)


def _summary(study: Study, model: str, *, file: Path, command: str) -> dict[str, Any]:
    tried, best = study.trials, study.best
    return {
        "model": model,
        "trials": len(tried),
        "pruned": sum(trial.ended == "pruned" for trial in tried),
        "diverged": sum(trial.ended == "diverged" for trial in tried),
        "validation_entries": study.validation.n_entries,
        "validation_rmse": best.error,
        "default_rmse": tried[0].error,  # the defaults are tried first
        "settings": best.settings,
        "importances": study.importances(),
        "study": str(file),
        "command": command,
        "tried": [asdict(trial) for trial in tried],
    }


def _show(summary: dict[str, Any], study: Study, *, as_json: bool) -> None:
    if as_json:
        show_json(summary)
        return
    early = ", ".join(f"{summary[name]} {name}" for name in ("pruned", "diverged") if summary[name])
    words = [f"tried {summary['trials']} settings of {summary['model']}" + (f" ({early})" if early else "")]
    words.append(f"best validation RMSE {summary['validation_rmse']:.4f} on {summary['validation_entries']:,} entries")
    if summary["default_rmse"] is not None:
        words.append(f"{summary['default_rmse']:.4f} by default")
    say("; ".join(words))
    importances = summary["importances"]
    lines = [[name, show_value(summary["settings"][name]), show_value(study.defaults[name])] for name in study.space]
    if importances:
        lines = [[*line, f"{importances[line[0]]:.0%}"] for line in lines]
        lines.sort(key=lambda line: -importances[line[0]])
    show_table(["setting", "best", "default"] + ["importance"] * bool(importances), lines)
    say(f"every trial is kept in {summary['study']}; this fits with the best settings:")
    say(summary["command"])


def _draw(summary: dict[str, Any], path: Path, *, title: str) -> None:
    from deepmf.plots import add_title, plot_importances, save_svg
    from deepmf.tuning import FEWEST_FOR_IMPORTANCE

    if summary["importances"]:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in summary["importances"].items())
        ax = plot_importances(summary["importances"])
        add_title(ax, title, above_all=True)
        save_svg(ax, path, title=f"{title}: {shares}")
        return
    completed = summary["trials"] - summary["pruned"] - summary["diverged"]
    warnings.warn(
        f"{path} is not drawn: importances need at least {FEWEST_FOR_IMPORTANCE} completed trials with "
        f"different errors; there are {completed} completed trials",
        DeepMFWarning,
        stacklevel=1,
    )
