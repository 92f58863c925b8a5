"""A dot plot: a line for each name, with a point and its spread for each series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepmf.charts.axes import CHARACTER, Axis, Frame, across
from deepmf.charts.chart import Chart
from deepmf.charts.markup import join, tag
from deepmf.charts.styles import Style

_LINE = 26.0


@dataclass(frozen=True)
class NamedPoints:
    """Numbers of one kind by name; `margins` hold how far some may be off."""

    name: str
    numbers: Mapping[str, float]
    style: Style
    margins: Mapping[str, float]


def dot_plot(
    names: Sequence[str], series: Sequence[NamedPoints], *, title: str, x_label: str, n_named: int, width: float = 190.0
) -> Chart:
    """Return the points of each name on a line of its own, the first on top; `n_named` lines have their name beside."""
    beside = CHARACTER * 1.08 * max((len(name) for name in names[:n_named]), default=0)
    frame = Frame(
        width=width + beside, height=len(names) * _LINE + 52, left=beside + 14, right=6.0, top=6.0, bottom=46.0
    )
    ends = [
        end
        for each in series
        for name, number in each.numbers.items()
        for end in (number - each.margins.get(name, 0), number + each.margins.get(name, 0))
    ]
    wanted = max(4, round(width / 60))
    room = (max(ends) - min(ends)) / 16 or abs(max(ends)) / 16 or 1.0
    x = Axis(min(ends) - room, max(ends) + room, frame.left, frame.end)
    drawn = [
        tag("line", x1=x.at(tick), x2=x.at(tick), y1=frame.top, y2=frame.foot, class_="grid")
        for tick in x.ticks(wanted=wanted)
    ]
    for line, name in enumerate(names):
        y = frame.top + (line + 0.5) * _LINE
        drawn.append(tag("line", x1=x.start, x2=x.end, y1=y, y2=y, class_="grid"))
        if line < n_named:
            drawn.append(tag("text", name, x=frame.left - 8, y=y + 4, class_="end inside"))
        for each in series:
            if name in each.numbers:
                number, margin = each.numbers[name], each.margins.get(name)
                tip = f"{name}, {each.name}: {number:.4f}" + ("" if margin is None else f" ± {margin:.4f}")
                if margin:
                    drawn.append(each.style.level_bar(y, x.at(number - margin), x.at(number + margin)))
                drawn.append(each.style.point(x.at(number), y, tip))
    drawn.append(across(x, frame, wanted=wanted))
    drawn.append(tag("text", x_label, x=frame.middle, y=frame.foot + 34, class_="middle"))
    return Chart(join(drawn), title, frame)
