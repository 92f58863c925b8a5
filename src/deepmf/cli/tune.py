"""`deepmf tune`: search for the settings of a model that predict or rank validation entries
best."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli import options
from deepmf.cli.feature_files import FEATURES, LabelFiles, list_kinds
from deepmf.cli.inputs import InputOptions
from deepmf.cli.options import list_words, option
from deepmf.cli.output import check_writable, say, show_json, show_table
from deepmf.cli.settings import TrainingOptions, format_value, parse_scale
from deepmf.errors import BadSetting, TrainingInterrupted, warn
from deepmf.recommend.request import Order

if TYPE_CHECKING:
    from deepmf.tuning import Study


@options.with_option_groups(files=(*FEATURES, "feature_kinds"))
def tune(
    ratings: options.Ratings,
    trials: Annotated[
        int, option("--trials N", "Number of trials in total, with those of earlier runs.", min=1)
    ] = 30,
    file: Annotated[
        Path | None,
        option(
            "--study -o FILE",
            "File that stores the trials; default: RATINGS-MODEL.study in this folder.",
        ),
    ] = None,
    scale: options.ScaleText = None,
    metric: Annotated[
        str,
        option(
            "--metric NAME",
            "What to tune for: rmse; or ndcg, recall, precision, mrr, map, hit_rate.",
        ),
    ] = "rmse",
    n: options.ListLength = None,
    *,
    training: TrainingOptions,
    order: Order,
    files: LabelFiles,
    reading: InputOptions,
    as_json: options.Json = False,
) -> None:
    """Search for the best settings of a model.

    The best settings have the lowest validation error, or the best ranking of validation entries
    (--metric). Settings given by --set or --config are fixed. Unpromising trials stop early. Ctrl-C
    keeps all finished trials (exit status 130); run the command again to continue, or with more
    --trials.

    Example: deepmf tune ratings.csv --model als --trials 30
    """
    from deepmf.tuning import Study

    if metric == "rmse" and (order.given or n is not None):
        raise BadSetting(
            "-n and the order of columns need a ranking metric, such as --metric ndcg; got rmse"
        )
    name, model = training.model_name, training.make_model()
    kept = file or Path(f"{ratings.name.partition('.')[0].strip('-') or 'ratings'}-{name}.study")
    check_writable(kept, inputs=[ratings, training.validation, training.config, *files.paths])

    entries = reading.read_matrix(ratings, scale=parse_scale(scale))
    if not entries.has_values:
        raise BadSetting(
            "interactions are learned by the presence part, which fit tunes itself; use deepmf fit"
        )
    features = files.read(entries, reading.encoding)
    train, held_out = training.hold_out(entries, reading, seed=model.settings.seed)
    if held_out is None:
        raise BadSetting("tuning needs validation entries; set --validation-share above 0")
    study = Study(
        name,
        train,
        held_out,
        **features,
        settings=training.settings,
        metric=metric,
        n=10 if n is None else n,
        **order.given,
        file=kept,
    )
    interrupted = _run_trials(study, trials)

    if study.trials:
        others = [
            *list_words(reading),
            *list_words(files),
            *([] if scale is None else ["--scale", scale]),
        ]
        command = _build_command(ratings, training, study.best.settings, others)
        summary = _summarise(study, name)
        summary |= {"study": str(kept), "command": command, "features": list_kinds(features)}
        show_json(summary) if as_json else _show_summary(summary, study)
    if interrupted:
        raise typer.Exit(130)


def _run_trials(study: Study, n_trials: int) -> bool:
    """Run trials with a line of progress each; return whether Ctrl-C ended them."""
    from deepmf.training.progress import show_epochs

    for number in range(len(study.trials), n_trials):
        errors = [trial.error for trial in study.trials if trial.error is not None]
        best = f", best {_convert_error(study, min(errors)):.4f}" if errors else ""
        try:
            with show_epochs(
                f"trial {number + 1} of {n_trials}{best}", study.defaults.get("epochs")
            ) as callbacks:
                study.run(number + 1, callbacks=callbacks)
        except KeyboardInterrupt:
            message = f"interrupted in trial {number + 1} of {n_trials}; run the command again to continue"
            warn(message, TrainingInterrupted)
            return True
    return False


def _build_command(
    ratings: Path, training: TrainingOptions, settings: Mapping[str, Any], others: list[str]
) -> str:
    """Return the `deepmf fit` with some settings that holds out the same entries."""
    own = {name: settings[name] for name in ("seed", "device") if name in settings}
    # Without a share or a file, fit would let some models hold out entries themselves.
    share = None if training.validation else training.validation_share or options.VALIDATION_SHARE
    how = TrainingOptions(
        model=training.model_name,
        assignments=[
            f"{name}={format_value(value)}" for name, value in settings.items() if name not in own
        ],
        validation=training.validation,
        validation_share=share,
        **own,
    )
    return shlex.join(
        ["deepmf", "fit", str(ratings), "-o", "model.safetensors", *list_words(how), *others]
    )


def _summarise(study: Study, model: str) -> dict[str, Any]:
    tried, best = study.trials, study.best
    return {
        "model": model,
        "trials": len(tried),
        "pruned": sum(trial.ended == "pruned" for trial in tried),
        "diverged": sum(trial.ended == "diverged" for trial in tried),
        "validation_entries": study.validation.n_entries,
        "metric": study.metric,
        f"validation_{study.metric}": _convert_error(study, best.error),
        # the defaults are tried first
        f"default_{study.metric}": _convert_error(study, tried[0].error),
        "settings": best.settings,
        "tried": [asdict(trial) for trial in tried],
    }


def _convert_error(study: Study, error: float | None) -> float | None:
    """Return the metric of a trial: its error, or the ranking metric that the error is 1 minus
    of."""
    return error if error is None or study.metric == "rmse" else 1.0 - error


def _show_summary(summary: dict[str, Any], study: Study) -> None:
    from deepmf.evaluation.ranking import TITLES

    early = ", ".join(f"{summary[name]} {name}" for name in ("pruned", "diverged") if summary[name])
    words = [
        f"tried {summary['trials']} settings of {summary['model']}"
        + (f" ({early})" if early else "")
    ]
    found, default = (summary[f"{which}_{study.metric}"] for which in ("validation", "default"))
    title = TITLES.get(study.metric, "RMSE")
    words.append(
        f"best validation {title} {found:.4f} on {summary['validation_entries']:,} entries"
    )
    words += [] if default is None else [f"{default:.4f} by default"]
    say("; ".join(words))
    best, defaults = summary["settings"], study.defaults
    lines = [[name, format_value(best[name]), format_value(defaults[name])] for name in study.space]
    show_table(["setting", "best", "default"], lines)
    say(
        f"the trials are stored in {summary['study']}; fit with the best settings:\n{summary['command']}"
    )
