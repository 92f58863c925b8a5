"""`deepmf evaluate`: the errors of a model on test entries, area by area, and a report on them."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from deepmf.cli.inputs import Reading, called, load_model
from deepmf.cli.options import (
    Column,
    Decimal,
    Duplicates,
    Extend,
    Json,
    MissingValues,
    ModelFile,
    Row,
    Separator,
    UnknownIds,
    Value,
    Wide,
)
from deepmf.cli.output import check_writable, say, show_json, show_table
from deepmf.cli.unknown_ids import refused_by_file, tell_unknown, with_ids_like
from deepmf.errors import DeepMFWarning

if TYPE_CHECKING:
    from deepmf.evaluation.area_evaluation import AreaErrors
    from deepmf.models.label_pairs import Unknown


def evaluate(
    model: ModelFile,
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Entries to predict and compare with; read as by fit.")],
    extend: Extend = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page (HTML, for any browser) with charts and explanations."),
    ] = None,
    unknown: UnknownIds = "fallback",
    row: Row = None,
    column: Column = None,
    value: Value = None,
    separator: Separator = None,
    duplicates: Duplicates = "error",
    missing: MissingValues = "error",
    decimal: Decimal = ".",
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Show the errors of a model on test entries, area by area.

    Area I: known rows and columns. II: new rows. III: new columns. IV: both new. Entries whose row or column the
    model does not know lie in none: they are counted, predicted by the means of what is known, and have a line of
    their own.

    Example: deepmf evaluate model.safetensors test.csv --extend new_users.csv --report report.html
    """
    from deepmf.evaluation.area_evaluation import count_seen
    from deepmf.evaluation.area_evaluation import evaluate as errors_by_area
    from deepmf.models.label_pairs import check_unknown

    check_unknown(unknown)
    if report is not None:
        check_writable(report, inputs=[model, test, *(extend or ())])
    reading = Reading(row, column, value, separator, duplicates, missing, decimal, wide)
    fitted = load_model(model, extensions=extend or (), reading=reading)
    wanted = cast("Unknown", unknown)
    with refused_by_file(test):
        read = reading.like(fitted.entries_.train.form).held_out(test, fitted.scale_)
        entries = with_ids_like(read, fitted.row_labels_, fitted.column_labels_, test, unknown=unknown)
        errors = errors_by_area(fitted, entries, unknown=wanted)
    n_unknown = 0 if unknown == "error" else tell_unknown(fitted, test, *entries.entries()[:2], unknown)
    n_seen = count_seen(fitted, entries)
    if n_seen:
        warnings.warn(
            f"the model has seen {n_seen} of the {entries.n_entries} test entries, so the errors are too small",
            DeepMFWarning,
            stacklevel=1,
        )
    if report is not None:
        from deepmf.report.page import write_report

        title = f"{model.name} on {Path(called(test)).name}"
        write_report(fitted, entries, report, title=title, unknown=wanted)
    if as_json:
        shown = {"model": type(fitted).__name__, "seen": n_seen, "areas": [asdict(part) for part in errors]}
        shown |= {} if unknown == "error" else {"unknown": n_unknown}
        show_json(shown | ({} if report is None else {"report": str(report)}))
        return
    show_errors(errors)
    if report is not None:
        say(f"report in {report}")


def show_errors(errors: list[AreaErrors], *, title: str | None = None) -> None:
    """Print a line for each area; errors of levels, and of median levels, only where there are some."""
    names = ["area", "entries", "RMSE", "MAE"]
    has_levels, has_medians = errors[0].level_rmse is not None, errors[0].median_rmse is not None
    lines = [
        [part.area, part.n_entries, part.rmse, part.mae]
        + [part.level_rmse, part.level_mae] * has_levels
        + [part.median_rmse, part.median_mae] * has_medians
        for part in errors
    ]
    names += ["RMSE of levels", "MAE of levels"] * has_levels
    names += ["RMSE of median levels", "MAE of median levels"] * has_medians
    show_table(names, lines, title=title)
