"""`deepmf evaluate`: the errors of a model on test entries, its ranking, and a report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from deepmf.cli.feature_files import FEATURES, ModelInput
from deepmf.cli.inputs import hint_at_extension, locate_errors, name_file, warn_unknown
from deepmf.cli.options import (
    Json,
    ListLength,
    Seed,
    UnknownIds,
    argument,
    option,
    with_option_groups,
)
from deepmf.cli.output import check_writable, say, show_json, show_table
from deepmf.errors import BadSetting, UnknownLabel, warn
from deepmf.formatting import describe_relevant, format_quantity
from deepmf.recommend.request import Order

if TYPE_CHECKING:
    from deepmf.evaluation.areas import AreaErrors
    from deepmf.evaluation.ranking import RankingEvaluation
    from deepmf.scoring.pairs import Unknown


@with_option_groups(files=FEATURES)
def evaluate(
    source: ModelInput,
    test: Annotated[Path, argument("TEST", "Test entries, read as by fit.")],
    report: Annotated[
        Path | None, option("--report FILE", "Write an HTML report with plots and explanations.")
    ] = None,
    title: Annotated[str | None, option("--title TEXT", "Title of the report.")] = None,
    ranking: Annotated[
        bool,
        option(
            "--ranking",
            "Also evaluate the ranking of columns: NDCG, recall, precision, MRR, MAP and more.",
        ),
    ] = False,
    n: ListLength = None,
    min_entries: Annotated[
        int | None,
        option("--min-entries N", "Rank only columns with at least N entries; default: 0."),
    ] = None,
    feature: Annotated[
        str | None,
        option(
            "--feature NAME",
            "Compare shares of this feature of columns in the lists and liked entries.",
        ),
    ] = None,
    unknown: UnknownIds = "fallback",
    seed: Seed = None,
    *,
    order: Order,
    as_json: Json = False,
) -> None:
    """Show the errors of a model on test entries, by area.

    Area I: known rows and columns. II: new rows. III: new columns. IV: both new. Entries with an
    unknown row or column are in no area: they are predicted by the means, and have a line of their
    own.

    With --ranking (or --relevant, --rank-by, -n, --min-entries), the columns without an entry are
    ranked for each row of the test, and compared with a ranking by popularity. Rows that the model
    has never seen are ranked by the entries that --extend adds (deepmf split --by rows).

    Example: deepmf evaluate model.safetensors test.csv --ranking --report report.html
    """
    from deepmf.evaluation.areas import UNKNOWN_HINT, count_seen, evaluate as errors_by_area
    from deepmf.evaluation.ranking import evaluate_ranking

    if report:
        check_writable(report, inputs=[*source.paths, test])
    fitted = source.load()
    unknown_pairs = cast("Unknown", unknown)
    has_values = fitted.entries_.train.has_values
    if report and not has_values:
        raise BadSetting(
            "a report is about predicted values, and interactions have none; leave out --report"
        )

    trained = fitted.entries_
    with hint_at_extension(UNKNOWN_HINT):
        entries = source.reading.read_held_out(test, trained.train.form, trained, unknown=unknown)
        with locate_errors(test, UnknownLabel):
            errors = errors_by_area(fitted, entries, unknown=unknown_pairs) if has_values else []
    ranking_options = {"n": n, "min_entries": min_entries, "feature": feature, **order.given}
    set_options: dict[str, Any] = {
        name: option for name, option in ranking_options.items() if option is not None
    }
    ranked = None
    if ranking or not has_values or set_options:
        ranked = evaluate_ranking(
            fitted, entries, **set_options, seed=seed or 0, unknown=unknown_pairs
        )
    facts: dict[str, Any] = {
        "model": type(fitted).__name__,
        "seen": count_seen(fitted, entries),
        "areas": [asdict(part) for part in errors],
    }
    if unknown != "error":
        facts["unknown"] = warn_unknown(fitted, test, *entries.entries()[:2], unknown)
    if facts["seen"]:
        warn(
            f"the model has seen {facts['seen']} of the {entries.n_entries} test entries, so the errors are too small"
        )
    if ranked:
        facts["ranking"] = ranked.to_dict()
    if report:
        from deepmf.report.page import write_report

        title = title or f"{source.model.name} on {Path(name_file(test)).name}"
        write_report(fitted, entries, report, title=title, unknown=unknown_pairs, ranking=ranked)
        facts["report"] = str(report)

    if as_json:
        show_json(facts)
        return
    if errors:
        show_errors(errors)
    if ranked:
        show_ranking(ranked)
    if report:
        say(f"report in {report}")


def show_errors(errors: list[AreaErrors]) -> None:
    """Print the errors of each area; errors of levels and of median levels only if there are
    any."""
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
    show_table(names, lines)


def show_ranking(evaluation: RankingEvaluation) -> None:
    """Print the ranking scores of a model and of popularity, and the number of rows."""
    from deepmf.evaluation.ranking import TITLES

    rankers = evaluation.model, evaluation.popularity
    lines = [
        [title, *(getattr(ranker, metric) for ranker in rankers)]
        for metric, title in (TITLES | {"n_distinct": "distinct columns"}).items()
        if getattr(evaluation.model, metric) is not None
    ]
    title = (
        f"The first {evaluation.n} columns of each row, ranked by {evaluation.rank_by}; "
        f"{describe_relevant(evaluation.relevant)}"
    )
    show_table(["metric", *(f"by {ranker.name}" for ranker in rankers)], lines, title=title)
    if len(evaluation.areas) > 1:
        by_area = [
            [
                area.area,
                area.n_rows,
                area.model.ndcg,
                area.popularity.ndcg,
                area.model.recall,
                area.popularity.recall,
            ]
            for area in evaluation.areas.values()
        ]
        heads = ["area", "rows", "NDCG", "of popularity", "recall", "of popularity"]
        show_table(heads, by_area, title="By area, among its own columns")
    n_relevant = format_quantity(evaluation.n_relevant, "relevant test entry")
    say(
        f"{format_quantity(evaluation.n_rows, 'row')} with {n_relevant}; "
        f"{evaluation.n_without:,} rows without one are left out"
    )
    if evaluation.min_entries:
        say(f"columns with fewer than {evaluation.min_entries:,} entries are not ranked")
