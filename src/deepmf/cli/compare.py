"""`deepmf compare`: compare models on the same splits of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from deepmf.cli.feature_files import FEATURES, LabelFiles
from deepmf.cli.inputs import InputOptions, convert_label, name_file
from deepmf.cli.options import (
    VALIDATION_SHARE,
    Areas,
    Device,
    Json,
    ListLength,
    NewColumns,
    NewRows,
    Ratings,
    ScaleText,
    Seed,
    option,
    with_option_groups,
)
from deepmf.cli.output import check_writable, say, show_json, show_share, show_table
from deepmf.cli.settings import parse_assignment, parse_scale
from deepmf.errors import BadSetting, suggest_name
from deepmf.formatting import describe_relevant
from deepmf.models.registry import model_class
from deepmf.recommend.request import Order

if TYPE_CHECKING:
    from deepmf.evaluation.comparison import Comparison, SplitBy
    from deepmf.models.base import Model


@with_option_groups(files=(*FEATURES, "feature_kinds"))
def compare(
    ratings: Ratings,
    models: Annotated[
        str, option("--models NAME,NAME", "Models to compare; deepmf settings lists all.")
    ] = "means,als,dmf-o",
    by: Annotated[
        str,
        option(
            "--by entries|time|last",
            "Test entries at random, the latest 20 %, or the latest of each row.",
        ),
    ] = "entries",
    folds: Annotated[
        int, option("--folds N", "Number of folds; with --areas, number of random splits.")
    ] = 5,
    areas: Areas = False,
    new_rows: NewRows = 0.2,
    new_columns: NewColumns = 0.2,
    validation_share: Annotated[
        float,
        option(
            "--validation-share SHARE", "Share of the training entries held out for early stopping."
        ),
    ] = VALIDATION_SHARE,
    metric: Annotated[
        str,
        option(
            "--metric NAME",
            "Metric that orders the models: rmse, mae; or ndcg, recall, precision, mrr, map, hit_rate.",
        ),
    ] = "rmse",
    n: ListLength = None,
    person: Annotated[
        str | None, option("--person ID", "Also show a row's lists by the first two models.")
    ] = None,
    output: Annotated[
        Path | None, option("--output -o FILE", "Write an HTML page with plots.")
    ] = None,
    title: Annotated[str | None, option("--title TEXT", "Title of the page.")] = None,
    assignments: Annotated[
        list[str] | None,
        option(
            "--set MODEL.NAME=VALUE",
            "Setting of one model (als.latent_size=5) or of all that have it (epochs=50); repeatable.",
        ),
    ] = None,
    scale: ScaleText = None,
    seed: Seed = None,
    device: Device = None,
    *,
    order: Order,
    files: LabelFiles,
    reading: InputOptions,
    as_json: Json = False,
) -> None:
    """Compare the errors and times of models on the same splits.

    Errors are means over all folds; the number after ± is their standard deviation. With --areas,
    some rows and columns are new in each split, and errors are shown for each area. With a ranking
    metric, models and popularity rank the columns of each row. With --person, the lists of the
    first two models for one row stand side by side.

    Example: deepmf compare ratings.csv --models means,als --folds 3 -o comparison.html
    """
    from deepmf.evaluation.comparison import compare as compare_models
    from deepmf.evaluation.list_change import compare_lists

    if metric in ("rmse", "mae") and not person and (order.given or n):
        raise BadSetting(
            f"-n and the order of columns need a ranking metric, such as --metric ndcg; got {metric}"
        )
    candidates = _build_models(models, assignments, seed=seed or 0, device=device)
    n = n or 10
    if person and len(candidates) < 2:
        raise BadSetting(f"--person compares the lists of two models; got --models {models}")
    if output:
        check_writable(output, inputs=[ratings, *files.paths])

    matrix = reading.read_matrix(ratings, scale=parse_scale(scale))
    if not matrix.has_values:
        raise BadSetting(
            "every model learns interactions by the same presence part, so there is nothing to compare"
        )
    labels = [convert_label(text, matrix.rows) for text in (person,) if text]
    matrix.rows.positions(labels)  # an unknown row is refused before any model is fitted
    features = files.read(matrix, reading.encoding)
    with show_share("comparing") as show:
        comparison = compare_models(
            candidates,
            matrix,
            **features,
            by=cast("SplitBy", by),
            folds=folds,
            areas=areas,
            new_rows=new_rows,
            new_columns=new_columns,
            validation=validation_share,
            metric=metric,
            n=n,
            **order.given,
            seed=seed or 0,
            progress=show,
        )
    change, facts = None, dict[str, Any]()
    for label in labels:
        before, after = (
            model.fit(matrix, progress=False, **(features if model.takes_features else {}))
            for model in list(candidates.values())[:2]
        )
        change = compare_lists(before, after, label, n, **order.given)
        facts |= {"person": label, "lists": change.to_frame().to_dicts()}
    if output:
        facts["page"] = str(output)
        from deepmf.report.comparison_page import write_comparison

        write_comparison(
            comparison,
            output,
            title=title or f"Models on {Path(name_file(ratings)).name}",
            change=change,
        )

    if files.paths:
        facts["without_features"] = [
            name for name, model in candidates.items() if not model.takes_features
        ]
    if as_json:
        show_json(comparison.to_dict() | facts)
    else:
        _show_comparison(comparison, facts)
        if change:
            names = list(candidates)[:2]
            title = f"What would change for {change.row}: {change.describe(*names)}"
            show_table(["place", *names], change.list_cells(), title=title)
    if all(model.failure for model in comparison.models):
        raise typer.Exit(2)


def _show_comparison(comparison: Comparison, facts: dict[str, Any]) -> None:
    show_table(*comparison.cells())
    for model in comparison.models:
        if model.failure:
            say(f"{model.label} failed: {model.failure}")
    if facts.get("without_features"):
        say(f"these models do not use features: {', '.join(facts['without_features'])}")
    say(comparison.verdict)
    say(f"{comparison.plan}; ± is the standard deviation over {comparison.plan.part}s")
    if comparison.plan.ranking:
        say(describe_relevant(comparison.plan.ranking.relevant))
    if "page" in facts:
        say(f"page in {facts['page']}")


def _build_models(
    names: str, assignments: Iterable[str] | None, *, seed: int, device: str | None
) -> dict[str, Model]:
    names_of_models = [name.strip() for name in names.split(",") if name.strip()]
    if not names_of_models or len(set(names_of_models)) < len(names_of_models):
        raise BadSetting(f"--models takes different names, such as means,als,dmf-o; got {names!r}")
    settings: dict[str, dict[str, Any]] = {name: {"seed": seed} for name in names_of_models}
    known = {
        name: {field.name for field in fields(model_class(name).settings_class)}
        for name in names_of_models
    }
    for assigned, value in map(parse_assignment, assignments or ()):
        model, dot, name = assigned.rpartition(".")
        if dot and model not in names_of_models:
            raise BadSetting(
                f"--set {assigned}: the model {model!r} is not compared; {suggest_name(model, names_of_models)}"
            )
        takers = (
            [model] if dot else [name_of for name_of in names_of_models if name in known[name_of]]
        )
        if not takers:
            raise BadSetting(
                f"--set {assigned}: none of {', '.join(names_of_models)} has this setting"
            )
        for taker in takers:
            settings[taker][name] = value
    for name in names_of_models:
        if device and "device" in known[name]:
            settings[name]["device"] = device
    return {name: model_class(name)(**settings[name]) for name in names_of_models}
