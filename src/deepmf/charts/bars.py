"""Charts of groups as bars: upright ones side by side, and level ones under one another."""

from __future__ import annotations

from collections.abc import Sequence

from deepmf.charts.axes import CHARACTER, SMALL, Axis, Frame, Write, group_names, rising, scaffold
from deepmf.charts.chart import Chart
from deepmf.charts.markup import Markup, join, tag
from deepmf.charts.series import Series
from deepmf.charts.styles import ONE
from deepmf.charts.wording import short

_LINE = 28.0  # the height of a level bar and the room around it


def bars(
    groups: Sequence[str],
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    write: Write = short,
    frame: Frame = SMALL,
) -> Chart:
    """Return upright bars from 0, those of one group side by side, with error bars where there are margins."""
    y = rising([end for each in series for end in each.ends()], frame, from_zero=True)
    places = frame.places(len(groups))
    width = min(0.8 * (frame.end - frame.left) / len(groups), 80.0) / len(series)
    drawn: list[Markup | None] = []
    for order, each in enumerate(series):
        for at, (group, place) in enumerate(zip(groups, places, strict=True)):
            left, top = place + (order - len(series) / 2) * width, y.at(each.numbers[at])
            tip = tag("title", each.tip(group, at, write))
            style = f"bar {each.style.name}"
            drawn.append(tag("rect", tip, x=left, y=top, width=0.92 * width, height=y.start - top, class_=style))
            drawn.append(each.error_bar(left + 0.46 * width, at, y))
    names = scaffold(y, frame, x_label=x_label, y_label=y_label, write=write)
    return Chart(join([names, *drawn, group_names(groups, places, frame)]), title, frame)


def level_bars(
    names: Sequence[str], shares: Sequence[float], *, title: str, x_label: str, width: float = 640.0
) -> Chart:
    """Return a bar from the left for each name, the first on top, with its share in per cent behind it."""
    frame = Frame(
        width=width,
        height=len(names) * _LINE + 48,
        left=CHARACTER * 1.1 * max(len(name) for name in names) + 18,
        right=48,
    )
    x = Axis(0.0, max(*shares, 1e-9), frame.left, frame.end)
    drawn = []
    for line, (name, share) in enumerate(zip(names, shares, strict=True)):
        middle, written = frame.top + (line + 0.5) * _LINE, f"{100 * share:.0f} %"
        drawn += [
            tag("text", name, x=frame.left - 8, y=middle + 4, class_="end inside"),
            tag(
                "rect",
                tag("title", f"{name}: {written}"),
                x=x.start,
                y=middle - 0.36 * _LINE,
                width=x.at(share) - x.start,
                height=0.72 * _LINE,
                class_=f"bar {ONE.name}",
            ),
            tag("text", written, x=x.at(share) + 6, y=middle + 4, class_="inside"),
        ]
    foot = frame.top + len(names) * _LINE
    drawn.append(tag("line", x1=x.start, x2=x.start, y1=frame.top, y2=foot, class_="grid"))
    drawn.append(tag("text", x_label, x=frame.middle, y=frame.height - 12, class_="middle"))
    return Chart(join(drawn), title, frame)
