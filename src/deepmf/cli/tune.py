"""`deepmf tune`: search for the settings of a model that predict or rank validation entries best."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli import options
from deepmf.cli.feature_files import TrainingFeatureFiles
from deepmf.cli.inputs import InputOptions
from deepmf.cli.options import option
from deepmf.cli.output import check_writable, say, show_json, show_table
from deepmf.cli.settings import check_effort, format_value, gather_settings, parse_scale
from deepmf.cli.validation import find_validation
from deepmf.errors import BadSetting, TrainingInterrupted, warn
from deepmf.models.registry import model_class
from deepmf.recommend.request import Order

if TYPE_CHECKING:
    from deepmf.tuning import Study


@options.with_option_groups()
def tune(
    ratings: options.Ratings,
    trials: Annotated[int, option("--trials N", "Number of trials in total, with those of earlier runs.")] = 30,
    file: Annotated[
        Path | None,
        option("--study -o FILE", "File that stores the trials; default: RATINGS-MODEL.study in this folder."),
    ] = None,
    validation: options.Validation = None,
    validation_share: options.ValidationShare = None,
    by: Annotated[
        str,
        option("--by entries|time|last", "Validation entries at random, the latest of all, or the latest of each row."),
    ] = "entries",
    model: options.ModelName = options.DEFAULT_MODEL,
    effort: options.Effort = None,
    assignments: options.Assignments = None,
    config: options.Config = None,
    scale: options.ScaleText = None,
    seed: options.Seed = None,
    device: options.Device = None,
    metric: Annotated[
        str, option("--metric NAME", "What to tune for: rmse; or ndcg, recall, precision, mrr, map, hit_rate.")
    ] = "rmse",
    n: options.ListLength = None,
    *,
    order: Order,
    files: TrainingFeatureFiles,
    reading: InputOptions,
    as_json: options.Json = False,
) -> None:
    """Search for the best settings of a model.

    The best settings have the lowest validation error, or the best ranking of validation entries (--metric). Settings
    given by --set or --config are fixed. Unpromising trials stop early. Ctrl-C keeps all finished trials (exit status
    130); run the command again to continue, or with more --trials.

    Example: deepmf tune ratings.csv --model als --trials 30
    """
    from deepmf.tuning import Study

    if metric == "rmse" and (order.given or n is not None):
        raise BadSetting("-n and the order of columns need a ranking metric, such as --metric ndcg; got rmse")
    if trials < 1:
        raise BadSetting(f"--trials must be at least 1; got {trials}")
    if effort is not None:
        check_effort(effort, model)
    settings = gather_settings(config, assignments, seed=seed, device=device, effort=effort)
    new_model = model_class(model)(**settings)
    files.check_model(new_model)
    kept = file or Path(f"{ratings.name.partition('.')[0].strip('-') or 'ratings'}-{model}.study")
    check_writable(kept, inputs=[ratings, validation, config, *files.paths])

    entries = reading.read_matrix(ratings, scale=parse_scale(scale))
    if not entries.has_values:
        raise BadSetting("interactions are learned by the presence part, which fit tunes itself; use deepmf fit")
    features = files.read(entries, reading.encoding)
    train, held_out = find_validation(
        entries, validation, validation_share, reading, seed=new_model.settings.seed, by=by
    )
    if held_out is None:
        raise BadSetting("tuning needs validation entries; set --validation-share above 0")
    study = Study(
        model,
        train,
        held_out,
        **features._asdict(),
        settings=settings,
        metric=metric,
        n=10 if n is None else n,
        **order.given,
        file=kept,
    )
    interrupted = _run_trials(study, trials, epochs=study.defaults.get("epochs"))

    if study.trials:
        # Always given: without a share or a file, fit lets some models hold out entries themselves.
        share = options.VALIDATION_SHARE if validation_share is None else validation_share
        held_out_by = {"validation-share": share} if validation is None else {"validation": validation}
        how = _list_given(reading) | held_out_by | {"scale": scale} | _list_given(files)
        command = _build_command(ratings, model, study.best.settings, how)
        summary = _summarise(study, model, file=kept, command=command) | {"features": features.kinds}
        _show_summary(summary, study, as_json=as_json)
    if interrupted:
        raise typer.Exit(130)


def _run_trials(study: Study, n_trials: int, *, epochs: int | None) -> bool:
    """Run trials with a line of progress each; return whether Ctrl-C ended them."""
    from deepmf.training.progress import show_epochs

    for number in range(len(study.trials), n_trials):
        errors = [trial.error for trial in study.trials if trial.error is not None]
        best = f", best {_convert_error(study.metric, min(errors)):.4f}" if errors else ""
        try:
            with show_epochs(f"trial {number + 1} of {n_trials}{best}", epochs) as callbacks:
                study.run(number + 1, callbacks=callbacks)
        except KeyboardInterrupt:
            message = f"interrupted in trial {number + 1} of {n_trials}; run the command again to continue"
            warn(message, TrainingInterrupted)
            return True
    return False


def _list_given(group: InputOptions | TrainingFeatureFiles) -> dict[str, Any]:
    values = ((field, getattr(group, field.name)) for field in fields(group))
    return {field.name.replace("_", "-"): value for field, value in values if value != field.default}


def _build_command(ratings: Path, model: str, settings: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    words = ["deepmf", "fit", str(ratings), "-o", "model.safetensors", "--model", model]
    for name, value in settings.items():
        words += [f"--{name}", str(value)] if name in ("seed", "device") else ["--set", f"{name}={format_value(value)}"]
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            words += [] if each is None else [f"--{name}"] if each is True else [f"--{name}", str(each)]
    return shlex.join(words)


def _summarise(study: Study, model: str, *, file: Path, command: str) -> dict[str, Any]:
    tried, best = study.trials, study.best
    return {
        "model": model,
        "trials": len(tried),
        "pruned": sum(trial.ended == "pruned" for trial in tried),
        "diverged": sum(trial.ended == "diverged" for trial in tried),
        "validation_entries": study.validation.n_entries,
        "metric": study.metric,
        f"validation_{study.metric}": _convert_error(study.metric, best.error),
        f"default_{study.metric}": _convert_error(study.metric, tried[0].error),  # the defaults are tried first
        "settings": best.settings,
        "importances": study.importances(),
        "study": str(file),
        "command": command,
        "tried": [asdict(trial) for trial in tried],
    }


def _convert_error(metric: str, error: float | None) -> float | None:
    """Return the metric of a trial: its error, or the ranking metric that the error is 1 minus of."""
    return error if error is None or metric == "rmse" else 1.0 - error


def _show_summary(summary: dict[str, Any], study: Study, *, as_json: bool) -> None:
    from deepmf.evaluation.ranking import TITLES

    if as_json:
        show_json(summary)
        return
    early = ", ".join(f"{summary[name]} {name}" for name in ("pruned", "diverged") if summary[name])
    words = [f"tried {summary['trials']} settings of {summary['model']}" + (f" ({early})" if early else "")]
    found, default = (summary[f"{which}_{study.metric}"] for which in ("validation", "default"))
    title = TITLES.get(study.metric, "RMSE")
    words.append(f"best validation {title} {found:.4f} on {summary['validation_entries']:,} entries")
    if default is not None:
        words.append(f"{default:.4f} by default")
    say("; ".join(words))
    importances = summary["importances"]
    lines = [
        [name, format_value(summary["settings"][name]), format_value(study.defaults[name])] for name in study.space
    ]
    if importances:
        lines = [[*line, f"{importances[line[0]]:.0%}"] for line in lines]
        lines.sort(key=lambda line: -importances[line[0]])
    show_table(["setting", "best", "default"] + ["importance"] * bool(importances), lines)
    if not importances:
        from deepmf.tuning import FEWEST_FOR_IMPORTANCE

        say(f"importances of settings need {FEWEST_FOR_IMPORTANCE} completed trials with different errors")
    say(f"the trials are stored in {summary['study']}; fit with the best settings:")
    say(summary["command"])
