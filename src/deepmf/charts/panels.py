"""Charts put together: panels under their headings, a legend and a note below."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepmf.charts.axes import CHARACTER, Frame
from deepmf.charts.chart import Chart
from deepmf.charts.markup import Markup, join, tag
from deepmf.charts.styles import Style

_GAP = 18.0  # between panels
_EDGE = 12.0  # around all of them
_HEADING = 22.0
_LINE = 20.0  # of the legend
_KEY = 30.0  # what stands for a series in the legend, and the room behind it


def panels(
    charts: Sequence[tuple[str, Chart]],
    *,
    title: str,
    columns: int,
    legend: Sequence[tuple[Style, str]] = (),
    note: str = "",
) -> Chart:
    """Return charts under their headings, row by row, with a legend of styles and their names below."""
    rows = [charts[start : start + columns] for start in range(0, len(charts), columns)]
    width = 2 * _EDGE + max(sum(chart.frame.width for _, chart in row) + _GAP * (len(row) - 1) for row in rows)
    drawn, top = [], _EDGE
    for row in rows:
        heading = _HEADING if any(name for name, _ in row) else 0.0
        left = _EDGE
        for name, chart in row:
            if name:
                half = 0.6 * CHARACTER * len(name)  # of a bold text; it may be wider than its chart
                middle = max(half, min(left + chart.frame.middle, width - half))
                drawn.append(tag("text", name, x=middle, y=top + 12, class_="middle heading"))
            drawn.append(tag("g", chart.drawn, transform=f"translate({left:g} {top + heading:g})"))
            left += chart.frame.width + _GAP
        top += heading + max(chart.frame.height for _, chart in row) + _GAP
    keys, height = _legend(legend, width=width, top=top)
    drawn.append(keys)
    top += height
    if note:
        drawn.append(tag("text", note, x=width / 2, y=top + 4, class_="middle"))
        top += _LINE
    return Chart(join(drawn), title, Frame(width=round(width), height=round(top + _EDGE - _GAP / 2)))


def _legend(legend: Sequence[tuple[Style, str]], *, width: float, top: float) -> tuple[Markup, float]:
    """Return the legend in columns of one width, and its height."""
    if not legend:
        return Markup(), 0.0
    column = _KEY + CHARACTER * 1.1 * max(len(name) for _, name in legend) + 14
    n_columns = min(max(1, int((width - 2 * _EDGE) // column)), len(legend))
    start = (width - n_columns * column) / 2
    drawn = []
    for at, (style, name) in enumerate(legend):
        x, y = start + at % n_columns * column, top + at // n_columns * _LINE
        drawn += [style.key(x, y), tag("text", name, x=x + _KEY, y=y + 4, class_="inside")]
    return join(drawn), math.ceil(len(legend) / n_columns) * _LINE + 4
