"""The sections of a comparison: errors by area, rankings, time and memory, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deepmf.charts.axes import CHARACTER
from deepmf.charts.chart import Chart
from deepmf.charts.dot_plot import NamedPoints, dot_plot
from deepmf.charts.styles import ONE, Style, numbered
from deepmf.charts.wording import amount, count
from deepmf.evaluation.area_evaluation import UNKNOWN
from deepmf.evaluation.ranking_evaluation import MEASURES, RankingEvaluation
from deepmf.report.compared_models import ALL, Comparison, Estimate, estimate, estimated_score
from deepmf.report.content import Figure, LeftOut, Section, Table, shortened
from deepmf.report.error_sections import MEANINGS
from deepmf.report.fit_sections import duration, shown_setting
from deepmf.report.ranking_section import SCORE_NAMES

_WIDTH = 440.0  # of a chart, with the names beside it
_LONGEST = 28  # characters of a name beside a chart

Estimates = Mapping[str, Estimate | None]


def error_comparison(compared: Comparison) -> Section:
    """Return the errors of all models, a chart for each area and a table."""
    many = compared.n_splits > 1
    spread = "standard deviation over splits" if many else "standard error, by the number of test entries"
    tables = [_error_table(compared)] + ([_split_table(compared)] if many else [])
    return Section(
        title="Errors",
        how=f"Further left is better; the bars, and the numbers behind ± of a model, are the {spread}.",
        template="comparison.html",
        content={"figures": [_error_figure(compared, area) for area in compared.areas], "note": "", "tables": tables},
    )


def _error_figure(compared: Comparison, area: str) -> Figure:
    found = {model.name: compared.error(model, area) for model in compared.models}
    named = area.capitalize() if area in (ALL, UNKNOWN) else f"Area {area}"
    chart = _dots({"RMSE": (found, ONE)}, title=f"RMSE of each model in {MEANINGS[area]}", x_label="RMSE")
    return Figure(f"{named}: {MEANINGS[area]}", chart)


def _error_table(compared: Comparison) -> Table:
    areas, main = compared.areas, compared.main_area
    one = len(areas) == 1
    names = ["model", *("RMSE" if one else f"RMSE, {area}" for area in areas), "MAE" if one else f"MAE, {main}"]
    lines = []
    for model in compared.models:
        errors = [with_margin(compared.error(model, area)) for area in areas]
        above = "" if model is compared.best else _signed(model.above(compared.best, main))
        lines.append([shortened(model.name), *errors, with_margin(compared.error(model, main, "mae")), above])
    return Table(
        "Errors, best first", [*names, "RMSE above the first" if one else f"RMSE, {main}, above the first"], lines
    )


def _split_table(compared: Comparison) -> Table:
    names = ["model", *(f"split {number + 1}" for number in range(compared.n_splits))]
    lines = [[shortened(model.name), *map(amount, model.errors(compared.main_area))] for model in compared.models]
    return Table("RMSE on each split" + ("" if len(compared.areas) == 1 else f", {compared.main_area}"), names, lines)


def ranking_comparison(compared: Comparison) -> Section | LeftOut:
    """Return how the models rank, and popularity below them."""
    ranked = {model.name: model.rankings for model in compared.models if model.rankings}
    if not ranked:
        return LeftOut("Ranking", "it was not evaluated")
    scored = {name: [each.model for each in rankings] for name, rankings in ranked.items()}
    popularity = "popularity" if "popularity" not in scored else "popularity, the baseline"
    scored[popularity] = [each.popularity for each in next(iter(ranked.values()))]
    found: dict[str, Estimates] = {
        measure: {name: estimated_score(scores, measure) for name, scores in scored.items()} for measure in MEASURES
    }
    first = next(iter(ranked.values()))[0]
    styles = {measure: numbered(at) for at, measure in enumerate(MEASURES)}
    chart = _dots(
        {SCORE_NAMES[measure]: (found[measure], styles[measure]) for measure in MEASURES},
        title=f"Scores of the first {first.n} columns of each row, by model",
        x_label="score",
    )
    lines = [[shortened(name), *(with_margin(found[measure][name]) for measure in MEASURES)] for name in scored]
    legend = [(styles[measure], SCORE_NAMES[measure]) for measure in MEASURES]
    return Section(
        title="Ranking",
        how="Further right is better: the scores say how many of a row\N{RIGHT SINGLE QUOTATION MARK}s relevant test "
        f"entries are among the {first.n} columns ranked first, of all that the row has no entry for.",
        template="comparison.html",
        content={
            "figures": [Figure(f"The first {first.n} columns, relevant from {first.relevant_from:g}", chart, legend)],
            "note": _different_rows(list(ranked.values())),
            "tables": [Table(f"Scores at {first.n}", ["ranked by", *SCORE_NAMES.values()], lines)],
        },
    )


def _different_rows(ranked: list[Sequence[RankingEvaluation]]) -> str:
    """Say where models were ranked on different test entries, such as those of fewer areas."""
    numbers = {tuple(each.n_relevant for each in rankings) for rankings in ranked}
    if len(numbers) == 1:
        return ""
    return "Not all models were ranked on the same test entries, so their scores are not quite comparable."


def cost_comparison(compared: Comparison) -> Section | LeftOut:
    """Return how long fitting took and how much memory it needed, where that was measured."""
    title = "Time and memory"
    has_memory = any(model.megabytes for model in compared.models)
    if not has_memory and not any(model.seconds for model in compared.models):
        return LeftOut(title, "neither was measured")
    lines = []
    for model in compared.models:
        seconds = duration(estimate(model.seconds).mean) if model.seconds else "–"
        memory = f"{count(max(model.megabytes))} MB" if model.megabytes else "–"
        lines.append([shortened(model.name), seconds, *[memory] * has_memory])
    names = ["model", "time of a fit", *["peak memory"] * has_memory]
    memory_too = ", and the most memory that any took" if has_memory else ""
    return Section(
        title=title,
        how=f"How long a fit took on average{memory_too}, on the machine that made this comparison.",
        template="comparison.html",
        content={"figures": [], "note": "", "tables": [Table("What a fit takes", names, lines)]},
    )


def setting_comparison(compared: Comparison) -> Section | LeftOut:
    """Return the settings of each model in one line."""
    known = [model for model in compared.models if model.settings]
    if not known:
        return LeftOut("Settings", "they were not given")
    lines = [
        [shortened(model.name), "; ".join(f"{name}={shown_setting(value)}" for name, value in model.settings.items())]
        for model in known
    ]
    return Section(
        title="Settings",
        how="With these settings and the same entries the same models can be fitted again.",
        template="setting_lines.html",
        content={"settings": Table("Settings of each model", ["model", "settings"], lines)},
    )


SECTIONS = (error_comparison, ranking_comparison, cost_comparison, setting_comparison)


def _dots(series: Mapping[str, tuple[Estimates, Style]], *, title: str, x_label: str) -> Chart:
    """Return a line for each model with a point for each series, where there is a number."""
    beside = _distinct(next(iter(series.values()))[0])
    points = [_points(name, found, style, beside) for name, (found, style) in series.items()]
    names = list(beside.values())
    told = "; ".join(f"{name} {amount(points[0].numbers.get(name))}" for name in names)
    width = _WIDTH - CHARACTER * 1.08 * max(map(len, names))
    return dot_plot(names, points, title=f"{title}: {told}", x_label=x_label, n_named=len(names), width=width)


def _distinct(names: Iterable[str]) -> dict[str, str]:
    """Return names as they stand beside a chart: cut to a bearable length, numbered where that makes them equal."""
    beside: dict[str, str] = {}
    for name in names:
        short = shortened(name, _LONGEST)
        if short in beside.values():
            short = f"{shortened(name, _LONGEST - 5)} ({len(beside) + 1})"
        beside[name] = short
    return beside


def _points(name: str, found: Estimates, style: Style, beside: Mapping[str, str]) -> NamedPoints:
    known = {beside[model]: each for model, each in found.items() if each is not None}
    margins = {model: each.margin for model, each in known.items() if each.margin is not None}
    return NamedPoints(name, {model: each.mean for model, each in known.items()}, style, margins)


def with_margin(found: Estimate | None) -> str:
    """Return a mean and how far it may be off: 0.861 ± 0.004; a dash for none."""
    if found is None:
        return "–"
    if found.margin is None:
        return amount(found.mean)
    return (
        f"{amount(found.mean)} ± {found.margin:.3f}"
        if found.margin < 1000
        else f"{found.mean:.4g} ± {found.margin:.4g}"
    )


def _signed(found: Estimate | None) -> str:
    """Return a difference with its sign, in four digits, and its standard error."""
    if found is None:
        return "–"
    written = f"{found.mean:+.4f}" if abs(found.mean) < 1000 else f"{found.mean:+.4g}"
    return written if found.margin is None else f"{written} ± {found.margin:.4f}"
