"""`deepmf compare`: several models on the same splits of a file, as a table and as a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.feature_files import FeatureFiles
from deepmf.cli.inputs import Reading, called
from deepmf.cli.options import (
    VALIDATION_SHARE,
    AreasFlag,
    Device,
    Json,
    NewColumns,
    NewRows,
    Ratings,
    ScaleText,
    Seed,
    takes_groups,
)
from deepmf.cli.output import check_writable, say, show_json, show_share, show_table
from deepmf.cli.settings import parse_assignment, parse_scale
from deepmf.errors import BadSetting, suggest_name
from deepmf.models.registry import model_class

if TYPE_CHECKING:
    from deepmf.models.base import Model


@takes_groups
def compare(
    ratings: Ratings,
    models: Annotated[
        str, typer.Option("--models", metavar="NAME,NAME", help="What to compare (deepmf settings lists the models).")
    ] = "means,als,dmf-o",
    folds: Annotated[
        int,
        typer.Option("--folds", metavar="N", help="How many folds, each the test once; with --areas, how many splits."),
    ] = 5,
    areas: AreasFlag = False,
    new_rows: NewRows = 0.2,
    new_columns: NewColumns = 0.2,
    validation_share: Annotated[
        float,
        typer.Option(
            "--validation-share",
            metavar="SHARE",
            help="The share of the entries that chooses the best epoch, taken from what is left for training.",
        ),
    ] = VALIDATION_SHARE,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also write a page (HTML, for any browser) with plots."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="The title of the page.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="MODEL.NAME=VALUE",
            help="A setting of one model, such as als.latent_size=5, or of all that have it (epochs=50); repeatable.",
        ),
    ] = None,
    scale: ScaleText = None,
    seed: Seed = None,
    device: Device = None,
    *,
    files: FeatureFiles,
    reading: Reading,
    as_json: Json = False,
) -> None:
    """Fit several models on the same splits of a file; show their errors on test entries and their time.

    Errors are means over all folds; the number after ± is their standard deviation. With --areas some rows and
    columns are new in each split, and errors are shown for each area.

    Example: deepmf compare ratings.csv --models means,als,dmf-o --folds 5 -o comparison.html
    """
    chosen = _models(models, assignments, seed=seed or 0, device=device)
    if output is not None:
        check_writable(output, inputs=[ratings, *files.paths])
    matrix = reading.matrix(ratings, scale=parse_scale(scale))
    described = files.read(matrix)
    without = [name for name, model in chosen.items() if files.paths and not model.takes_features]
    from deepmf.evaluation.comparison import compare as compare_models

    with show_share("comparing") as show:
        found = compare_models(
            chosen,
            matrix,
            row_features=described.row_features,
            column_features=described.column_features,
            folds=folds,
            areas=areas,
            new_rows=new_rows,
            new_columns=new_columns,
            validation=validation_share,
            seed=seed or 0,
            progress=show,
        )
    if output is not None:
        from deepmf.report.comparison_page import write_comparison

        write_comparison(found, output, title=title or f"Models on {Path(called(ratings)).name}")
    if as_json:
        told = {} if not files.paths else {"without_features": without}
        show_json(found.to_dict() | told | ({} if output is None else {"page": str(output)}))
    else:
        show_table(*found.cells())
        for model in found.models:
            if model.failure is not None:
                say(f"{model.label} failed: {model.failure}")
        if without:
            say(f"without features, which are not read by {', '.join(without)}")
        say(found.verdict)
        say(f"{found.plan}; ± is the standard deviation over {found.plan.part}s")
        if output is not None:
            say(f"page in {output}")
    if all(model.failure is not None for model in found.models):
        raise typer.Exit(2)


def _models(names: str, assignments: Iterable[str] | None, *, seed: int, device: str | None) -> dict[str, Model]:
    """Return an unfitted model for each name, with its settings."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted or len(set(wanted)) < len(wanted):
        raise BadSetting(f"--models takes different names, such as means,als,dmf-o; got {names!r}")
    settings: dict[str, dict[str, Any]] = {name: {"seed": seed} for name in wanted}
    known = {name: {field.name for field in fields(model_class(name).settings_class)} for name in wanted}
    given = dict(map(parse_assignment, assignments or ()))
    for assigned, value in given.items():
        model, dot, name = assigned.rpartition(".")
        if dot and model not in wanted:
            raise BadSetting(f"--set {assigned} is for {model!r}, which is not compared; {suggest_name(model, wanted)}")
        takers = [model] if dot else [each for each in wanted if name in known[each]]
        if not takers:
            raise BadSetting(f"--set {assigned}: none of {', '.join(wanted)} has a setting of that name")
        for taker in takers:
            settings[taker][name] = value
    if device is not None:
        for name in wanted:
            settings[name] |= {"device": device} if "device" in known[name] else {}
    return {name: model_class(name)(**settings[name]) for name in wanted}
