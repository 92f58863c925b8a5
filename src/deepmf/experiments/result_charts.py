"""Charts of a table's results: areas, learning curves, the quantizer, confused levels, the cold start."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deepmf.charts.axes import Frame, LogAxis, rising
from deepmf.charts.chart import Chart, write_chart
from deepmf.charts.dot_plot import NamedPoints, dot_plot
from deepmf.charts.heat_map import heat_map
from deepmf.charts.level_charts import boundary_strips
from deepmf.charts.lines import dots, lines
from deepmf.charts.panels import panels
from deepmf.charts.series import Curve, Series
from deepmf.charts.styles import ONE, Style, numbered
from deepmf.evaluation.cold_start import ColdStart
from deepmf.experiments.recipe import Recipe, layout_of, read_table
from deepmf.experiments.result_table import NAMES, Cell, cells
from deepmf.experiments.trial import Record
from deepmf.matrix.areas import AREAS

_WIDE = Frame(width=720.0, height=400.0, left=60.0, bottom=42.0)
_OURS, _PUBLISHED = Style(f"{ONE.name} bare"), Style("other hollow bare")
_SPREADS = "bars: standard deviation over splits"
_LEAST = 30  # test entries of a group of rows: of fewer an error says little


def draw(table: str, records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw every chart that the records allow as an SVG file; return the files."""
    paths = []
    for name, picture in PICTURES.items():
        chart = picture(table, records)
        if chart is not None:
            folder.mkdir(parents=True, exist_ok=True)
            paths.append(folder / f"{name}.svg")
            write_chart(chart, paths[-1])
    return paths


def areas(table: str, records: Sequence[Record]) -> Chart | None:
    """Return the error of each method in the four areas side by side, with the published figures as open marks."""
    metric = layout_of(table).metrics[0]
    shown = [cell for cell in cells(table, records) if cell.metric == metric and cell.mean is not None]
    shown = [cell for cell in shown if cell.new_share in (None, _first_share(shown))]
    if not shown:
        return None
    titles = list(dict.fromkeys(cell.recipe.title for cell in shown))
    names = [area for area in AREAS if any(cell.area == area for cell in shown)]
    own = [(area, [cell for cell in shown if cell.area == area]) for area in names]
    width = 380.0 if len(names) == 1 else 190.0
    charts = []
    for area, cells_of in own:
        n_named = len(titles) if area == names[0] else 0  # of those side by side, the first has the names
        chart = _area(titles, cells_of, area, NAMES[metric], n_named=n_named, width=width)
        charts.append((f"area {area}", chart))
    legend = [(_OURS, "ours, mean and spread over splits" if any(cell.spread for cell in shown) else "ours")]
    legend += [(_PUBLISHED, "published")] * any(cell.published is not None for cell in shown)
    title = f"{NAMES[metric]} of {len(titles)} methods in area {', '.join(names)}: {layout_of(table).title}"
    return panels(charts, title=title, columns=len(charts), legend=legend)


def _area(titles: Sequence[str], shown: Sequence[Cell], area: str, metric: str, *, n_named: int, width: float) -> Chart:
    ours = {cell.recipe.title: cell.mean for cell in shown if cell.mean is not None}
    spreads = {cell.recipe.title: cell.spread for cell in shown if cell.spread is not None}
    published = {cell.recipe.title: cell.published for cell in shown if cell.published is not None}
    series = [NamedPoints("ours", ours, _OURS, spreads), NamedPoints("published", published, _PUBLISHED, {})]
    title = f"{metric} in area {area}"
    return dot_plot(titles, series, title=title, x_label=metric, n_named=n_named, width=width)


def learning_curves(table: str, records: Sequence[Record]) -> Chart | None:
    """Return the validation error of each method against the share of its epochs, on its first split."""
    found = _first_of_each(table, [record for record in records if len(record.get("curve", ())) > 1])
    if not found:
        return None
    curves = []
    for number, (recipe, record) in enumerate(found):
        epochs, _, errors = (np.array(column, dtype=float) for column in zip(*record["curve"], strict=True))
        shares = (epochs + 1) / (epochs[-1] + 1)
        curves.append(Curve(recipe.title, errors.tolist(), numbered(number), places=shares.tolist()))
    lowest = min(min(curve.numbers) for curve in curves)
    chart = lines(
        curves,
        title=f"Validation error of {len(curves)} methods as they learn: {layout_of(table).title}",
        x_label="share of the epochs that were run",
        y_label="RMSE on validation entries",
        frame=_WIDE,
        y_ends=(lowest - 0.01, lowest + 0.2),
    )
    return _with_legend(chart, curves)


def quantizer(table: str, records: Sequence[Record]) -> Chart | None:
    """Return where the learned quantizer cuts the scale against the uniform one, under the histogram of scores."""
    learned = _first_of_each(table, [record for record in records if "boundaries" in record])
    charts = []
    for recipe, record in learned:
        levels, counts = np.array(record["levels"]), np.array(record["scores"]["counts"], dtype=float)
        uniform = ((levels[:-1] + levels[1:]) / 2).tolist()
        said = ", ".join(f"{boundary:.2f}" for boundary in record["boundaries"])
        title = f"Boundaries that {recipe.title} learned: {said}"
        charts.append((recipe.title, boundary_strips(levels, uniform, record["boundaries"], counts, title=title)))
    if not charts:
        return None
    title = "; ".join(chart.title for _, chart in charts)
    return panels(charts, title=title, columns=2, note="the level that a score becomes, uniformly and as learned")


def confusion(table: str, records: Sequence[Record]) -> Chart | None:
    """Return how often each level is predicted where another is right, in area I, for each method."""
    counted = [record for record in records if record["area"] == "I" and "confusion" in record]
    charts = []
    for recipe, record in _first_of_each(table, counted):
        counts = np.array(record["confusion"], dtype=float)
        chart = heat_map(
            counts / np.maximum(counts.sum(axis=1, keepdims=True), 1),
            [str(level) for level in range(1, len(counts) + 1)],
            title=f"Predicted and true levels of {recipe.title}",
            x_label="predicted level",
            y_label="true level",
            deepest=1.0,
            frame=Frame(width=212.0, height=212.0, left=36.0, right=4.0, top=4.0),
        )
        charts.append((recipe.title, chart))
    if not charts:
        return None
    note = "per cent of the test entries of each true level in area I; levels are counted from the lowest"
    title = f"Predicted levels for each true level, {len(charts)} methods: {layout_of(table).title}"
    return panels(charts, title=title, columns=4, note=note)


def cold_start(table: str, records: Sequence[Record]) -> Chart | None:
    """Return the error against the number of observed entries of the row, all splits together.

    New rows where there are any, otherwise known ones.
    """
    area = "II" if any(record["area"] == "II" for record in records) else "I"
    shown = _of_each(table, [record for record in records if record["area"] == area and record["cold_start"]])
    curves = []
    for number, (recipe, own) in enumerate(shown):
        curve = _pooled(recipe.title, [group for record in own for group in record["cold_start"]], numbered(number))
        if curve.numbers:
            curves.append(curve)
    if not curves:
        return None
    chart = lines(
        curves,
        title=f"Error by what is known of a row, {len(curves)} methods: {layout_of(table).title}",
        x_label=f"observed entries of the {'new ' if area == 'II' else ''}row",
        y_label=f"RMSE in area {area}",
        frame=_WIDE,
        x_axis=LogAxis,
    )
    return _with_legend(chart, curves, note="bars: standard error by the number of test entries")


def cold_start_curve(table: str, records: Sequence[Record]) -> Chart | None:
    """Return the error for the same test entries of new rows as more and more of their other entries are known."""
    shown = _of_each(table, [record for record in records if "cold_start_curve" in record])
    if not shown:
        return None
    known = [str(n_known) for n_known, _ in shown[0][1][0]["cold_start_curve"]]
    series = []
    for number, (recipe, own) in enumerate(shown):
        each = [[error for _, error in record["cold_start_curve"]] + [record["rmse"]] for record in own]
        means, spreads = zip(*(_mean_and_spread(column) for column in zip(*each, strict=True)), strict=True)
        series.append(Series(recipe.title, means, numbered(number), spreads))
    chart = dots(
        [*known, "all"],
        series,
        title=f"Error for new rows as more of their entries are known, {len(series)} methods: {layout_of(table).title}",
        x_label="known entries of each new row, at most",
        y_label="RMSE in area II",
        frame=_WIDE,
    )
    return _with_legend(chart, series, note=_SPREADS if any(each.margin(0) for each in series) else "")


def new_shares(table: str, records: Sequence[Record]) -> Chart | None:
    """Return the error in each area against the share of new rows and columns, where several shares were run."""
    of_areas = (cell for cell in cells(table, records) if cell.metric == "rmse" and cell.mean is not None)
    shown = [cell for cell in of_areas if cell.new_share is not None]
    if len({cell.new_share for cell in shown}) < 3:
        return None
    titles = list(dict.fromkeys(cell.recipe.title for cell in shown))
    styles = {title: numbered(at) for at, title in enumerate(titles)}
    curves = {area: _over_shares([cell for cell in shown if cell.area == area], styles) for area in AREAS}
    frame = Frame(height=250.0)
    y = rising([end for own in curves.values() for curve in own for end in curve.ends()], frame)
    charts = {
        f"area {area}": lines(
            own,
            title=f"RMSE in area {area}",
            x_label="new rows and columns, %",
            y_label="RMSE",
            frame=frame,
            y_ends=(y.low, y.high),
        )
        for area, own in curves.items()
        if own
    }
    return panels(
        list(charts.items()),
        title=f"RMSE by the share of new rows and columns, {len(titles)} methods: {layout_of(table).title}",
        columns=2,
        legend=[(style, title) for title, style in styles.items()],
        note=_SPREADS if any(cell.spread for cell in shown) else "",
    )


PICTURES: dict[str, Callable[[str, Sequence[Record]], Chart | None]] = {
    "areas": areas,
    "learning-curves": learning_curves,
    "quantizer": quantizer,
    "confusion": confusion,
    "cold-start": cold_start,
    "cold-start-curve": cold_start_curve,
    "new-shares": new_shares,
}


def _with_legend(chart: Chart, series: Sequence[Series], *, note: str = "") -> Chart:
    legend = [(each.style, each.name) for each in series]
    return panels([("", chart)], title=chart.title, columns=1, legend=legend, note=note)


def _over_shares(shown: Sequence[Cell], styles: Mapping[str, Style]) -> list[Curve]:
    """Return the error of each method that has any, by the share of new rows and columns, from the smallest."""
    curves = []
    for title, style in styles.items():
        points = sorted(
            (100 * cell.new_share, cell.mean, cell.spread)
            for cell in shown
            if cell.recipe.title == title and cell.new_share is not None and cell.mean is not None
        )
        if points:
            shares, means, spreads = zip(*points, strict=True)
            curves.append(Curve(title, means, style, spreads, places=shares))
    return curves


def _pooled(name: str, groups: Sequence[Sequence[Any]], style: Style) -> Curve:
    """Return the middle and the error of each group of rows over all splits, where there are enough test entries."""
    middles, errors, margins = [], [], []
    for first, last in sorted({(group[0], group[1]) for group in groups}, key=lambda ends: int(ends[0])):
        counts, each = np.array([group[2:] for group in groups if group[0] == first], dtype=float).T
        if first > 0 and counts.sum() >= _LEAST:
            pooled = ColdStart(first, last, int(counts.sum()), float(np.sqrt(np.average(each**2, weights=counts))))
            middles.append(first if last is None else (first + last) / 2)
            errors.append(pooled.rmse)
            margins.append(pooled.margin)
    return Curve(name, errors, style, margins, places=middles)


def _mean_and_spread(numbers: Sequence[float]) -> tuple[float, float | None]:
    return statistics.mean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def _first_share(shown: Sequence[Cell]) -> float | None:
    return next((cell.new_share for cell in shown if cell.new_share is not None), None)


def _of_each(table: str, records: Sequence[Record]) -> list[tuple[Recipe, list[Record]]]:
    """Return the records of each recipe at its first share, in the table's order, the first split first."""
    found = []
    for recipe in read_table(table):
        own = [record for record in records if record["recipe"] == recipe.name]
        own = [record for record in own if record["new_share"] in (None, recipe.new_shares[0])]
        if own:
            found.append((recipe, sorted(own, key=lambda record: int(record["seed"]))))
    return found


def _first_of_each(table: str, records: Sequence[Record]) -> list[tuple[Recipe, Record]]:
    """Return the first split's record of each recipe, in the table's order."""
    return [(recipe, own[0]) for recipe, own in _of_each(table, records)]
