"""Charts of groups and of epochs, as SVG without a size or a colour of its own: the page's style has both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepmf.report.axes import BOTTOM, LEFT, RIGHT, WIDTH, Axis, Write, across, group_names, rising, scaffold, svg
from deepmf.report.markup import Markup, join, tag
from deepmf.report.wording import short

HEIGHT = 220.0
# What is said of the model or the training entries, and what it is compared with: told apart by colour and by filling.
STYLES = ONE, OTHER = "one", "other"


@dataclass(frozen=True)
class Series:
    """Numbers of one kind, one for each group or place."""

    name: str
    numbers: Sequence[float]
    style: str = ONE


def bars(
    groups: Sequence[str], series: Sequence[Series], *, title: str, x_label: str, y_label: str, write: Write = short
) -> Markup:
    """Return upright bars from 0, those of one group side by side."""
    y = rising([number for each in series for number in each.numbers], height=HEIGHT, from_zero=True)
    places = _places(len(groups))
    width = min(0.8 * _step(len(groups)), 80.0) / len(series)
    drawn = []
    for order, each in enumerate(series):
        for group, place, number in zip(groups, places, each.numbers, strict=True):
            tip = tag("title", f"{group}, {each.name}: {write(number)}")
            left, top = place + (order - len(series) / 2) * width, y.at(number)
            drawn.append(
                tag("rect", tip, x=left, y=top, width=0.92 * width, height=y.start - top, class_=f"bar {each.style}")
            )
    return svg(
        scaffold(y, x_label=x_label, y_label=y_label, write=write, height=HEIGHT),
        *drawn,
        group_names(groups, places, height=HEIGHT),
        title=title,
        height=HEIGHT,
    )


def dots(
    groups: Sequence[str], series: Sequence[Series], *, title: str, x_label: str, y_label: str, write: Write = short
) -> Markup:
    """Return a point for each group in order, those of one series joined."""
    y = rising([number for each in series for number in each.numbers], height=HEIGHT)
    places = _places(len(groups))
    drawn = []
    for each in series:
        heights = [y.at(number) for number in each.numbers]
        drawn.append(joined(places, heights, each.style))
        for group, place, height, number in zip(groups, places, heights, each.numbers, strict=True):
            tip = tag("title", f"{group}, {each.name}: {write(number)}")
            drawn.append(tag("circle", tip, cx=place, cy=height, r=4, class_=f"dot {each.style}"))
    return svg(
        scaffold(y, x_label=x_label, y_label=y_label, write=write, height=HEIGHT),
        *drawn,
        group_names(groups, places, height=HEIGHT),
        title=title,
        height=HEIGHT,
    )


def curve(
    places: Sequence[float],
    numbers: Sequence[float],
    *,
    title: str,
    x_label: str,
    y_label: str,
    best: tuple[float, float] | None = None,
) -> Markup:
    """Return a line through numbers at places from left to right, with a ring around the best (place, number)."""
    y = rising([*numbers, *(best or ())[1:]], height=HEIGHT)
    x = Axis(min(places), max(places), LEFT, WIDTH - RIGHT - 6)
    xs, ys = [x.at(place) for place in places], [y.at(number) for number in numbers]
    single = len(places) == 1
    return svg(
        scaffold(y, x_label=x_label, y_label=y_label, height=HEIGHT),
        group_names([short(places[0])], xs, height=HEIGHT) if single else across(x, height=HEIGHT),
        tag("circle", cx=xs[0], cy=ys[0], r=4, class_=f"dot {ONE}") if single else joined(xs, ys, ONE),
        None if best is None else _ring(x.at(best[0]), y.at(best[1])),
        title=title,
        height=HEIGHT,
    )


def joined(xs: Sequence[float], ys: Sequence[float], style: str) -> Markup:
    """Return a line from point to point."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return tag("polyline", points=points, class_=f"line {style}")


def _step(n_groups: int) -> float:
    return (WIDTH - LEFT - RIGHT) / n_groups


def _places(n_groups: int) -> list[float]:
    """Return the middles of as many groups."""
    return [LEFT + (number + 0.5) * _step(n_groups) for number in range(n_groups)]


def _ring(x: float, y: float) -> Markup:
    """Return a ring around a point, and a line down from it to where its place can be read."""
    down = tag("line", x1=x, x2=x, y1=y, y2=HEIGHT - BOTTOM, class_="mark")
    return join((down, tag("circle", cx=x, cy=y, r=4.5, class_="dot other")))
