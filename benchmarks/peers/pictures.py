"""Pictures of a comparison: error against time and against what is known of new rows or columns, memory by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepmf.charts.axes import Frame, LogAxis
from deepmf.charts.chart import Chart
from deepmf.charts.lines import dots, lines
from deepmf.charts.panels import panels
from deepmf.charts.series import Curve, Series
from deepmf.charts.styles import numbered
from peers.figures import Clock, Line
from peers.tasks import COUNTS

_WIDE = Frame(width=760.0, height=420.0, left=60.0, bottom=42.0)
_SHOWN = 0.09  # above the lowest error; what is worse is cut off


def by_time(task: str, found: Sequence[Line], clock: Clock) -> Chart | None:
    """Return the error of each family against the time it takes to fit and to predict all test entries."""
    families = list(dict.fromkeys(line.family for line in found))
    curves = []
    for number, family in enumerate(families):
        points = sorted(
            (line.cost(clock.value), error)
            for line in found
            if line.family == family and (error := line.mean("I", "rmse")) is not None
        )
        if points:
            seconds, errors = zip(*points, strict=True)
            places = [max(each, 0.01) for each in seconds]
            curves.append(Curve(family, errors, numbered(number), places=places))
    if not curves:
        return None
    lowest = min(min(curve.numbers) for curve in curves)
    chart = lines(
        curves,
        title=f"RMSE of {len(curves)} methods against the time they take: {task}",
        x_label=f"{clock.title} to fit and to predict all test entries",
        y_label="RMSE",
        frame=_WIDE,
        x_axis=LogAxis,
        y_ends=(round(lowest - 0.005, 3), round(lowest + _SHOWN, 3)),
    )
    return _with_legend(chart, curves)


def new_lines(task: str, found: Sequence[Line], axis: str) -> Chart | None:
    """Return the error for the same entries of new rows (columns, both) as more of their other entries are known."""
    series: list[Series] = []
    for line in found:
        means = [line.mean(f"{axis}, {count}", "rmse") for count in COUNTS]
        if None not in means:
            series.append(Series(line.title, [mean for mean in means if mean is not None], numbered(len(series))))
    if not series:
        return None
    what = {"new rows": "row", "new columns": "column", "both": "row and column"}[axis]
    chart = dots(
        [str(count) for count in COUNTS],
        series,
        title=f"RMSE as more entries of a new {what} are known, {len(series)} methods: {task}",
        x_label=f"known entries of each new {what}, at most",
        y_label="RMSE",
        frame=_WIDE,
    )
    return _with_legend(chart, series)


def memory_by_size(found: Mapping[int, Sequence[Line]]) -> Chart | None:
    """Return the peak memory of each method against the number of entries that it is fitted to."""
    points: dict[str, list[tuple[int, float]]] = {}
    for size, of_size in sorted(found.items()):
        for line in of_size:
            points.setdefault(line.title, []).append((size, line.cost("peak_memory_mb")))
    curves = []
    for number, (title, own) in enumerate(points.items()):
        sizes, memory = zip(*own, strict=True)
        curves.append(Curve(title, memory, numbered(number), places=sizes))
    if not curves:
        return None
    chart = lines(
        curves,
        title=f"Peak memory of {len(curves)} methods against the number of entries",
        x_label="entries",
        y_label="MiB",
        frame=_WIDE,
        x_axis=LogAxis,
        y_axis=LogAxis,
    )
    return _with_legend(chart, curves)


def _with_legend(chart: Chart, series: Sequence[Series]) -> Chart:
    legend = [(each.style, each.name) for each in series]
    return panels([("", chart)], title=chart.title, columns=1, legend=legend)
