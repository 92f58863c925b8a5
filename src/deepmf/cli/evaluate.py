"""`deepmf evaluate` and `deepmf compare`: errors and rankings of a model on test entries, and of
several models on the same splits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from deepmf.cli.feature_files import FEATURES, LabelFiles, ModelInput
from deepmf.cli.inputs import (
    InputOptions,
    convert_label,
    hint_at_extension,
    locate_errors,
    name_file,
    warn_unknown,
)
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
    UnknownIds,
    argument,
    offer,
    option,
    with_option_groups,
)
from deepmf.cli.output import check_writable, say, show_json, show_share, show_table
from deepmf.cli.settings import parse_assignment, parse_scale
from deepmf.errors import BadSetting, UnknownLabel, suggest_name, warn
from deepmf.formatting import describe_relevant, format_quantity
from deepmf.models.registry import model_class
from deepmf.recommend.request import Order

if TYPE_CHECKING:
    from deepmf.evaluation.areas import AreaErrors
    from deepmf.evaluation.comparison import Comparison
    from deepmf.evaluation.list_change import ListChange
    from deepmf.evaluation.ranking import RankingEvaluation
    from deepmf.matrix.matrix import ObservedMatrix
    from deepmf.models.base import Model
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
    from deepmf.evaluation.areas import UNKNOWN_HINT, count_seen, evaluate as evaluate_areas
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
    errors: list[AreaErrors] = []
    with hint_at_extension(UNKNOWN_HINT):
        form = fitted.entries_.train.form
        entries = source.reading.read_held_out(test, form, fitted.entries_, unknown=unknown)
        with locate_errors(test, UnknownLabel):
            if has_values:
                errors = evaluate_areas(fitted, entries, unknown=unknown_pairs)
    choices = {"n": n, "min_entries": min_entries, "feature": feature, **order.changed_options}
    options: dict[str, Any] = {name: value for name, value in choices.items() if value is not None}
    ranked = None
    if ranking or not has_values or options:
        options |= {"seed": seed or 0, "unknown": unknown_pairs}
        ranked = evaluate_ranking(fitted, entries, **options)
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
    else:
        _show_evaluation(errors, ranked, report)


def _show_evaluation(
    errors: list[AreaErrors], ranked: RankingEvaluation | None, report: Path | None
) -> None:
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


@dataclass(frozen=True)
class ComparisonOptions:
    """The options that say on which splits models are compared, and by what."""

    by: str = offer(
        "--by entries|time|last",
        "Test entries at random, the latest 20 %, or the latest of each row.",
        "entries",
    )
    folds: int = offer("--folds N", "Number of folds; with --areas, number of random splits.", 5)
    areas: Areas = False
    new_rows: NewRows = 0.2
    new_columns: NewColumns = 0.2
    validation_share: float = offer(
        "--validation-share SHARE",
        "Share of the training entries held out for early stopping.",
        VALIDATION_SHARE,
    )
    metric: str = offer(
        "--metric NAME",
        "Metric that orders the models: rmse, mae; or ndcg, recall, precision, mrr, map, hit_rate.",
        "rmse",
    )
    n: ListLength = None

    def check(self, order: Order, *, shows_lists: bool) -> None:
        """Refuse an order of columns where none are ranked."""
        is_ordered = order.changed_options or self.n
        if self.metric in ("rmse", "mae") and not shows_lists and is_ordered:
            raise BadSetting(
                "-n and the order of columns need a ranking metric, such as --metric ndcg; "
                f"got {self.metric}"
            )

    def list_arguments(self) -> dict[str, Any]:
        """Return the arguments of the comparison."""
        arguments = dict(vars(self))
        arguments["validation"] = arguments.pop("validation_share")
        arguments["n"] = self.n or _LIST_LENGTH
        return arguments


_LIST_LENGTH = 10  # columns of each row, unless -n is given


@with_option_groups(files=(*FEATURES, "feature_kinds"))
def compare(
    ratings: Ratings,
    models: Annotated[
        str, option("--models NAME,NAME", "Models to compare; deepmf settings lists all.")
    ] = "means,als,dmf-o",
    *,
    options: ComparisonOptions,
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

    options.check(order, shows_lists=bool(person))
    candidates = _build_models(models, assignments, seed=seed or 0, device=device)
    if person and len(candidates) < 2:
        raise BadSetting(f"--person compares the lists of two models; got --models {models}")
    if output:
        check_writable(output, inputs=[ratings, *files.paths])
    matrix = reading.read_matrix(ratings, scale=parse_scale(scale))
    if not matrix.has_values:
        raise BadSetting(
            "every model learns interactions by the same presence part, so there is nothing to compare"
        )
    label = convert_label(person, matrix.rows) if person else None
    # an unknown row is refused before any model is fitted
    matrix.rows.positions([label] if person else [])
    features = files.read(matrix, reading.encoding)
    arguments: dict[str, Any] = {**options.list_arguments(), **order.changed_options}
    with show_share("comparing") as show:
        comparison = compare_models(
            candidates, matrix, **features, **arguments, seed=seed or 0, progress=show
        )
    change, facts = None, dict[str, Any]()
    if person:
        pair = list(candidates.values())[:2]
        change = _compare_lists(pair, matrix, features, label, arguments["n"], order)
        facts |= {"person": label, "lists": change.to_frame().to_dicts()}
    if output:
        from deepmf.report.comparison_page import write_comparison

        facts["page"] = str(output)
        title = title or f"Models on {Path(name_file(ratings)).name}"
        write_comparison(comparison, output, title=title, change=change)
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


def _compare_lists(
    pair: list[Model],
    matrix: ObservedMatrix,
    features: dict[str, Any],
    label: Any,
    n: int,
    order: Order,
) -> ListChange:
    """Return how the list of a row changes from one model to another, fitted to all entries."""
    from deepmf.evaluation.list_change import compare_lists

    before, after = (
        model.fit(matrix, progress=False, **(features if model.takes_features else {}))
        for model in pair
    )
    return compare_lists(before, after, label, n, **order.changed_options)


def _show_comparison(comparison: Comparison, facts: dict[str, Any]) -> None:
    show_table(*comparison.list_cells())
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
