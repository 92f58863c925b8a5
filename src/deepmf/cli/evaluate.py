"""`deepmf evaluate`: the errors of a model on test entries, how it ranks them, and a report on both."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from deepmf.cli.feature_files import FeatureFiles
from deepmf.cli.inputs import (
    Reading,
    called,
    hinting_at_extension,
    like_label,
    load_model,
    refused_by_file,
    tell_unknown,
    with_ids_like,
)
from deepmf.cli.options import (
    Extend,
    Json,
    ModelFile,
    UnknownIds,
    Without,
    takes_groups,
)
from deepmf.cli.output import check_writable, say, show_json, show_table
from deepmf.errors import BadSetting, DeepMFWarning

if TYPE_CHECKING:
    from deepmf.evaluation.areas import AreaErrors
    from deepmf.evaluation.ranking import RankingEvaluation
    from deepmf.models.base import Model
    from deepmf.models.pairs import Unknown


@takes_groups
def evaluate(
    model: ModelFile,
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Entries to predict and compare with; read as by fit.")],
    extend: Extend = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page (HTML, for any browser) with plots and explanations."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="The title of the report.")] = None,
    ranking: Annotated[
        bool,
        typer.Option(
            "--ranking", help="Also rank columns for each row of the test: precision, recall, NDCG and hit rate."
        ),
    ] = False,
    relevant_from: Annotated[
        float | None,
        typer.Option(
            "--relevant-from",
            metavar="LEVEL",
            help="For ranking: test entries from this value on are relevant; the lowest level above the mean of "
            "training unless set.",
        ),
    ] = None,
    n: Annotated[
        int | None, typer.Option("-n", metavar="N", help="For ranking: how many columns count; 10 unless set.")
    ] = None,
    min_entries: Annotated[
        int | None,
        typer.Option(
            "--min-entries",
            metavar="N",
            help="For ranking: leave out columns with fewer entries than this; 0 unless set.",
        ),
    ] = None,
    explain: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--explain",
            metavar="ROW COLUMN",
            help="Also explain in the report what is predicted for this pair, by the entries of the row.",
        ),
    ] = None,
    unknown: UnknownIds = "fallback",
    *,
    files: Annotated[FeatureFiles, Without("kinds")],
    reading: Reading,
    as_json: Json = False,
) -> None:
    """Show the errors of a model on test entries, area by area.

    Area I: known rows and columns. II: new rows. III: new columns. IV: both new. Entries whose row or column the
    model does not know lie in none: they are counted, predicted by the means of what is known, and have a line of
    their own.

    With --ranking (or --relevant-from, -n or --min-entries), also how good the columns are that the model ranks first
    for each row, of all that the row has no entry for, beside a ranking by popularity.

    Example: deepmf evaluate model.safetensors test.csv --ranking --relevant-from 4 -n 10 --report report.html
    """
    from deepmf.evaluation.areas import count_seen
    from deepmf.evaluation.areas import evaluate as errors_by_area
    from deepmf.models.pairs import check_unknown

    check_unknown(unknown)
    if report is not None:
        check_writable(report, inputs=[model, test, *(extend or ()), *files.paths])
    elif title is not None or explain is not None:
        raise BadSetting(f"{'--explain' if title is None else '--title'} is for a report: give --report FILE too")
    fitted = load_model(model, extensions=extend or (), reading=reading, features=files)
    wanted = cast("Unknown", unknown)
    with refused_by_file(test):
        read = reading.like(fitted.entries_.train.form).held_out(test, fitted.scale_)
        entries = with_ids_like(read, fitted.row_labels_, fitted.column_labels_, test, unknown=unknown)
        errors = errors_by_area(fitted, entries, unknown=wanted)
    ranked = None
    if ranking or any(option is not None for option in (relevant_from, n, min_entries)):
        from deepmf.evaluation.ranking import evaluate_ranking

        ranked = evaluate_ranking(
            fitted,
            entries,
            n=10 if n is None else n,
            relevant_from=relevant_from,
            min_entries=min_entries or 0,
            unknown=wanted,
        )
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

        title = f"{model.name} on {Path(called(test)).name}" if title is None else title
        with hinting_at_extension():
            pairs = [] if explain is None else [_pair(fitted, *explain)]
        write_report(fitted, entries, report, title=title, unknown=wanted, ranking=ranked, explain=pairs)
    if as_json:
        shown = {"model": type(fitted).__name__, "seen": n_seen, "areas": [asdict(part) for part in errors]}
        shown |= {} if unknown == "error" else {"unknown": n_unknown}
        shown |= {} if ranked is None else {"ranking": ranked.to_dict()}
        show_json(shown | ({} if report is None else {"report": str(report)}))
        return
    show_errors(errors)
    if ranked is not None:
        show_ranking(ranked)
    if report is not None:
        say(f"report in {report}")


def _pair(model: Model, row: str, column: str) -> tuple[Any, Any]:
    """Return a row and a column from the command line as labels that the model knows."""
    at = like_label(row, model.entries_.rows, axis="row"), like_label(column, model.entries_.columns, axis="column")
    model.areas(*([label] for label in at))  # refuses what is not known
    return at


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


def show_ranking(found: RankingEvaluation) -> None:
    """Print how a model and popularity rank, and say which rows count."""
    lines = [
        [each.name, each.precision, each.recall, each.ndcg, each.hit_rate] for each in (found.model, found.popularity)
    ]
    title = f"The first {found.n} columns of each row; test entries from {found.relevant_from:g} on are relevant"
    show_table(["ranked by", "precision", "recall", "NDCG", "hit rate"], lines, title=title)
    counted = f"{found.n_rows:,} row{'s' * (found.n_rows != 1)} with {found.n_relevant:,} relevant test entries"
    say(f"{counted}; rows left out because they have none: {found.n_without:,}")
    if found.min_entries:
        say(f"columns with fewer than {found.min_entries:,} entries are not ranked")
