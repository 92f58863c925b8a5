"""The page of a comparison: the errors of several models with their spreads, and the time of a
fit."""

from __future__ import annotations

import platform
from functools import partial
from pathlib import Path

from deepmf.evaluation.comparison import ALL, Comparison
from deepmf.evaluation.list_change import ListChange
from deepmf.evaluation.ranking import TITLES
from deepmf.formatting import describe_relevant, format_amount, format_percent, format_quantity
from deepmf.matrix.arrays import FloatArray
from deepmf.plots import plot_comparison
from deepmf.report.content import Figure, LeftOut, Section, Table, render_page, shorten, write_page
from deepmf.report.sections import MEANINGS

_METRICS = {
    "rmse": "RMSE",
    "mae": "MAE",
    "level_rmse": "RMSE of levels",
    "level_mae": "MAE of levels",
}

_TILES = ("rmse", "mae")  # of the best model

_shorten = partial(shorten, longest=40)


def write_comparison(
    comparison: Comparison,
    path: str | Path,
    *,
    title: str | None = None,
    change: ListChange | None = None,
) -> None:
    """Write an HTML page on a comparison. The file is replaced only when complete.

    change: what the second model would change in the list of a row if it replaced the first
        (`compare_lists`).

    >>> import tempfile
    >>> from deepmf.datasets import generate
    >>> from deepmf.evaluation.comparison import compare
    >>> found = compare(["means"], generate(30, 20, density=0.4, seed=0).matrix, folds=2)
    >>> path = Path(tempfile.mkdtemp(), "comparison.html")
    >>> write_comparison(found, path)
    >>> path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    write_page(render_comparison(comparison, title=title, change=change), path)


def render_comparison(
    comparison: Comparison, *, title: str | None = None, change: ListChange | None = None
) -> str:
    """Return the HTML of the page."""
    data = comparison.data
    n_entries = format_quantity(data.n_entries, "entry")
    shape = f"{format_quantity(data.n_rows, 'row')} x {format_quantity(data.n_columns, 'column')}"
    sections = [
        _build_error_section(comparison),
        _build_time_section(comparison),
        _build_measurement_section(comparison),
    ]
    if comparison.plan.ranking is not None:
        sections.insert(0, _build_ranking_section(comparison))
    if change is not None:
        sections.insert(
            0, _build_list_section(change, [model.label for model in comparison.models[:2]])
        )
    return render_page(
        title or f"{format_quantity(len(comparison.models), 'model')} on {n_entries}",
        f"{_to_sentence(comparison.verdict)} Measured on {n_entries} of {shape}.",
        sections,
        cautions=[
            f"{model.label} could not be fitted: {model.failure}."
            for model in comparison.models
            if model.failure
        ],
        tiles=_list_tiles(comparison),
    )


def _list_tiles(comparison: Comparison) -> list[tuple[str, str]]:
    ranked, plan = comparison.rank(), comparison.plan
    if not ranked:
        return []
    metrics = {} if plan.metric in _METRICS else {plan.metric: plan.get_title()}
    metrics |= {metric: metric.upper() for metric in _TILES if ranked[0].mean(metric) is not None}
    numbers = [
        (f"its {title}", _format_values(ranked[0].errors(metric, ALL)))
        for metric, title in metrics.items()
    ]
    return [("best", _shorten(ranked[0].label)), *numbers]


def _build_error_section(comparison: Comparison) -> Section | LeftOut:
    areas, part = comparison.areas, comparison.plan.part
    if not areas:
        return LeftOut("Errors", "no model could be fitted")
    if all(model.mean("rmse", area) is None for model in comparison.models for area in areas):
        return LeftOut("Errors", "interactions have no values to predict")
    fitted = comparison.rank(areas[0])
    shown = [
        metric
        for metric in _METRICS
        if any(model.mean(metric, areas[0]) is not None for model in fitted)
    ]
    metrics_and_areas = [("rmse", area) for area in areas] + [
        ("mae", area) for area in areas if len(areas) == 1
    ]
    return Section(
        title="Errors",
        how="Further left is better, and the best model is on top. A point is the mean over all "
        f"{part}s and its bar the standard deviation over them: what another choice of test entries would change. All "
        f"models saw the same {part}s, so a small difference that each of them shows may be real where the bars "
        "overlap.",
        figures=[_plot_errors(comparison, metric, area) for metric, area in metrics_and_areas],
        tables=_tabulate(
            comparison, "Errors", areas, {metric: _METRICS[metric] for metric in shown}
        ),
        sentences=_describe_areas(comparison),
    )


def _tabulate(
    comparison: Comparison, caption: str, areas: list[str], metrics: dict[str, str]
) -> list[Table]:
    """Return a table of metrics for each area, all areas first; popularity has a line where it was
    ranked by."""
    tables = []
    for area in sorted(areas, key=lambda area: area != ALL):
        lines = [
            [
                shorten(model.label),
                *(_format_values(model.errors(metric, area)) for metric in metrics),
            ]
            for model in comparison.models
        ]
        popular = [comparison.popularity(metric, area) for metric in metrics]
        if all(values.size for values in popular):
            lines.append(["popularity", *map(_format_values, popular)])
        name = caption if len(areas) == 1 else f"{caption}, {_name_area(area)}"
        tables.append(Table(name, ["model", *metrics.values()], lines))
    return tables


def _build_list_section(change: ListChange, models: list[str]) -> Section:
    lines = [[_shorten(cell) for cell in line] for line in change.list_cells()]
    return Section(
        title=f"What would change for {change.row}",
        how="Both models know all entries. A column that would leave the list is gone, and one that would join it is "
        "new; a number says how many places others would rise (+) or fall (-). "
        f"{_to_sentence(change.describe(*models))}",
        tables=[Table("Side by side", ["place", *map(shorten, models)], lines, in_words=True)],
    )


def _build_ranking_section(comparison: Comparison) -> Section | LeftOut:
    """Return the ranking metrics of all models and of popularity, by area."""
    plan, areas = (
        comparison.plan,
        [area for area in comparison.areas if comparison.popularity("ndcg", area).size],
    )
    if plan.ranking is None or not areas:
        return LeftOut("Ranking", "no test entry is relevant, or no model could be fitted")
    shown = {
        metric: plan.get_title(metric)
        for metric in TITLES
        if comparison.popularity(metric, areas[0]).size
    }
    level = plan.ranking.relevant
    return Section(
        title="Ranking",
        how=f"Further right is better. For each row, all columns without an entry are ranked, and the "
        f"first {plan.ranking.n} count ({describe_relevant(level)}). Popularity ranks columns by their number of "
        "entries.",
        figures=[_plot_errors(comparison, plan.metric, area) for area in areas],
        tables=_tabulate(comparison, "Rankings", areas, shown),
    )


def _plot_errors(comparison: Comparison, metric: str, area: str) -> Figure:
    """Plot the error or ranking metric of each model that predicts an area."""
    able = comparison.rank(area)
    means = {_shorten(model.label): model.mean(metric, area) or 0.0 for model in able}
    spreads = {
        _shorten(model.label): spread
        for model in able
        if (spread := model.spread(metric, area)) is not None
    }
    popular = comparison.popularity(metric, area)
    if popular.size:
        means["popularity"] = float(popular.mean())
    errors = "; ".join(f"{name} {format_amount(error)}" for name, error in means.items())
    title = _METRICS.get(metric) or comparison.plan.get_title(metric)
    shown = title if len(comparison.areas) == 1 else f"{title}, {_name_area(area)}"
    plot = plot_comparison(
        list(means), {_name_area(area): means}, spreads={_name_area(area): spreads}, x_label=title
    )
    return Figure(shown, plot, f"{shown}: {errors}")


def _describe_areas(comparison: Comparison) -> list[str]:
    if len(comparison.areas) == 1:
        return []
    meanings = "; ".join(
        f"area {area}: {MEANINGS[area]}" for area in comparison.areas if area != ALL
    )
    best = ", ".join(
        f"{_shorten(label)} in area {area}" for area, label in comparison.best_by_area.items()
    )
    return [
        f"Best by {comparison.plan.get_title()}: {best}.",
        _to_sentence(meanings),
        "A dash: the method cannot predict there without training.",
    ]


def _build_time_section(comparison: Comparison) -> Section | LeftOut:
    seconds = {
        _shorten(model.label): model.seconds
        for model in comparison.models
        if model.seconds is not None
    }
    if not seconds:
        return LeftOut("Time", "no model could be fitted")
    lines = [[name, format_amount(value)] for name, value in seconds.items()]
    how = "The mean seconds of one fit, early stopping included."
    return Section("Time", how, tables=[Table("Time", ["model", "seconds"], lines)])


def _build_measurement_section(comparison: Comparison) -> Section:
    plan, data = comparison.plan, comparison.data
    lines = [
        [
            shorten(model.label),
            model.model,
            ", ".join(f"{name}={value}" for name, value in model.settings.items()),
        ]
        for model in comparison.models
    ]
    return Section(
        title="How it was measured",
        how=f"{_to_sentence(str(plan))} {format_percent(plan.validation)} of the entries, taken from what is left for "
        "training, choose the best epoch; test entries are looked at once, at the end. The matrix has "
        f"{format_quantity(data.n_entries, 'entry')} in {format_quantity(data.n_rows, 'row')} and "
        f"{format_quantity(data.n_columns, 'column')} ({format_percent(data.density)} observed), on the scale "
        f"{data.scale}. Run on {platform.machine()} with Python {platform.python_version()}.",
        tables=[Table("Settings", ["model", "class", "settings"], lines, in_words=True)],
    )


def _name_area(area: str) -> str:
    return "all test entries" if area == ALL else f"area {area}"


def _format_values(values: FloatArray) -> str:
    if values.size < 2:
        return format_amount(float(values.mean()) if values.size else None)
    return f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"


def _to_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
