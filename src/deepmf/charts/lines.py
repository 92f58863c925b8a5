"""Charts of numbers that change: from group to group, from place to place, from epoch to epoch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from deepmf.charts.axes import SMALL, Axis, Frame, LogAxis, WholeAxis, Write, across, group_names, rising, scaffold
from deepmf.charts.chart import Chart
from deepmf.charts.markup import Markup, join, tag
from deepmf.charts.series import Curve, Series
from deepmf.charts.styles import ONE, OTHER
from deepmf.charts.wording import short

# A curve of more points than this has marks on some of them only.
_MOST_MARKED = 16
_MARKS = 10
_ROOM = 1.25  # as a ratio, above and below the numbers of an axis of ratios


def dots(
    groups: Sequence[str],
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    write: Write = short,
    frame: Frame = SMALL,
) -> Chart:
    """Return a point for each group in order, those of one series joined, with error bars where there are margins."""
    y = rising([end for each in series for end in each.ends()], frame)
    places = frame.places(len(groups))
    drawn: list[Markup | None] = []
    for each, aside in zip(series, _asides(series), strict=True):
        heights, own = [y.at(number) for number in each.numbers], [place + aside for place in places]
        drawn.append(each.style.line(own, heights))
        for at, (group, place) in enumerate(zip(groups, own, strict=True)):
            drawn.append(each.error_bar(place, at, y))
            drawn.append(each.style.point(place, heights[at], each.tip(group, at, write)))
    names = scaffold(y, frame, x_label=x_label, y_label=y_label, write=write)
    return Chart(join([names, *drawn, group_names(groups, places, frame)]), title, frame)


def lines(
    curves: Sequence[Curve],
    *,
    title: str,
    x_label: str,
    y_label: str,
    frame: Frame = SMALL,
    x_axis: type[Axis] = Axis,
    y_axis: type[Axis] = Axis,
    y_ends: tuple[float, float] | None = None,
) -> Chart:
    """Return curves over a common axis, with error bars where there are margins.

    What lies outside of `y_ends` is cut off; on an axis that is a `LogAxis`, equal ratios are equally long.
    """
    ends = [end for each in curves for end in each.ends()]
    if y_ends is None and y_axis is LogAxis:
        y_ends = min(ends) / _ROOM, max(ends) * _ROOM
    y = rising(ends, frame) if y_ends is None else y_axis(*y_ends, frame.foot, frame.top)
    x = _wide_enough([place for each in curves for place in each.places], frame, x_axis)
    drawn: list[Markup | None] = []
    for each, aside in zip(curves, _asides(curves), strict=True):
        for piece in _inside(each, y):
            xs, ys = [x.at(place) + aside for place, _ in piece], [y.at(number) for _, number in piece]
            drawn.append(each.style.line(xs, ys))
        for at in _marked(len(each.numbers)):
            place, number = each.places[at], each.numbers[at]
            if y.low <= number <= y.high:
                drawn.append(each.error_bar(x.at(place) + aside, at, y))
                drawn.append(each.style.point(x.at(place) + aside, y.at(number), each.tip(short(place), at, _precise)))
    names = scaffold(y, frame, x_label=x_label, y_label=y_label)
    ticks = across(x, frame, wanted=max(5, round((frame.end - frame.left) / 90)))
    return Chart(join([names, ticks, *drawn]), title, frame)


def curve(
    places: Sequence[float],
    numbers: Sequence[float],
    *,
    title: str,
    x_label: str,
    y_label: str,
    best: int | None = None,
    frame: Frame = SMALL,
) -> Chart:
    """Return a line through numbers at places from left to right, with a ring around the one at position `best`."""
    y = rising(numbers, frame)
    kind = WholeAxis if all(float(place).is_integer() for place in places) else Axis
    x = kind(min(places), max(places), frame.left, frame.end - 6)
    xs, ys = [x.at(place) for place in places], [y.at(number) for number in numbers]
    single = len(places) == 1
    drawn = (
        scaffold(y, frame, x_label=x_label, y_label=y_label),
        group_names([short(places[0])], xs, frame) if single else across(x, frame),
        ONE.point(xs[0], ys[0]) if single else ONE.line(xs, ys),
        None if best is None else _ring(xs[best], ys[best], frame, f"{short(places[best])}: {_precise(numbers[best])}"),
    )
    return Chart(join(drawn), title, frame)


def _asides(series: Sequence[Series]) -> list[float]:
    """Return how far each series is moved aside, so that the error bars of one place do not hide one another."""
    if not any(each.margins for each in series):
        return [0.0] * len(series)
    step = min(3.0, 28.0 / len(series))
    return [step * (number - (len(series) - 1) / 2) for number in range(len(series))]


def _wide_enough(places: Sequence[float], frame: Frame, kind: type[Axis]) -> Axis:
    """Return the axis that holds all places, with room for the marks at its ends."""
    low, high = min(places), max(places)
    if low == high:
        low, high = (low / 2, high * 2) if kind is LogAxis else (low - 1, high + 1)
    return kind(low, high, frame.left + 16, frame.end - 16)


def _marked(n_points: int) -> list[int]:
    """Return the positions of the points of a curve that have a mark."""
    if n_points <= _MOST_MARKED:
        return list(range(n_points))
    return [int(at) for at in np.linspace(0, n_points - 1, _MARKS).round()]


def _inside(curve: Curve, y: Axis) -> list[list[tuple[float, float]]]:
    """Return the pieces of a curve that lie between the ends of an axis, cut where it crosses them."""
    points = list(zip(curve.places, curve.numbers, strict=True))
    pieces: list[list[tuple[float, float]]] = [[]]
    for start, end in pairwise(points):
        ends = _cut(start, end, y)
        if ends is None:
            continue
        if not pieces[-1] or pieces[-1][-1] != ends[0]:
            pieces.append([ends[0]])
        pieces[-1].append(ends[1])
    return [piece for piece in pieces if piece]


def _cut(
    start: tuple[float, float], end: tuple[float, float], y: Axis
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the part of a straight line that lies between the ends of an axis."""
    if max(start[1], end[1]) < y.low or min(start[1], end[1]) > y.high:
        return None

    def kept(point: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
        number = min(max(point[1], y.low), y.high)
        if number == point[1]:
            return point
        share = (number - point[1]) / (other[1] - point[1])
        return point[0] + share * (other[0] - point[0]), number

    return kept(start, end), kept(end, start)


def _ring(x: float, y: float, frame: Frame, tip: str) -> Markup:
    """Return a ring around a point, and a line down from it to where its place can be read."""
    return join((tag("line", x1=x, x2=x, y1=y, y2=frame.foot, class_="mark"), OTHER.point(x, y, tip)))


def _precise(number: float) -> str:
    return f"{number:.4g}"
