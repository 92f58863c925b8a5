"""Charts of levels: where one ends and the next begins, and how likely each was said to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from deepmf.charts.axes import Axis, Frame, across, scaffold
from deepmf.charts.chart import Chart
from deepmf.charts.markup import Markup, join, tag
from deepmf.charts.styles import ONE, OTHER
from deepmf.charts.wording import count, percent, short

_THICKNESS = 26.0  # of a strip
_FOOT = 100.0  # of the histogram
_UNIFORM, _LEARNED = 124.0, 174.0  # where the strips begin
_STRIPS = Frame(height=240.0, left=14.0, right=14.0)

FloatArray = npt.NDArray[np.float64]


def reliability_diagram(
    forecast: Sequence[float],
    observed: Sequence[float],
    counts: Sequence[int],
    *,
    title: str,
    margins: Sequence[float] = (),
    x_label: str = "probability that was forecast",
    y_label: str = "share that came true",
    noun: str = "forecasts",
) -> Chart:
    """Return what came true against what was forecast; the larger a point, the more forecasts it stands for.

    `margins` say how far each share may be off: error bars, which are long where there are few forecasts.
    """
    frame = Frame(height=340.0, right=16.0)
    x, y = Axis(0, 1, frame.left, frame.end), Axis(0, 1, frame.foot, frame.top)
    points = []
    for said, came_true, number in zip(forecast, observed, counts, strict=True):
        tip = f"{count(number)} {noun} of {percent(said)}, {percent(came_true)} came true"
        radius = 4 if min(counts) == max(counts) else 3 + 7 * math.sqrt(number / max(counts))
        style = f"dot {ONE.name} soft"
        points.append(tag("circle", tag("title", tip), cx=x.at(said), cy=y.at(came_true), r=radius, class_=style))
    spreads = [
        ONE.upright_bar(x.at(said), y.at(max(came_true - margin, 0.0)), y.at(min(came_true + margin, 1.0)))
        for said, came_true, margin in zip(forecast, observed, margins, strict=bool(margins))
    ]
    drawn = (
        scaffold(y, frame, x_label=x_label, y_label=y_label, write=_whole),
        across(x, frame, write=_whole),
        tag("line", x1=x.start, y1=y.start, x2=x.end, y2=y.end, class_="mark"),
        ONE.line([x.at(share) for share in forecast], [y.at(share) for share in observed]),
        *spreads,
        *points,
    )
    return Chart(join(drawn), title, frame)


def boundary_strips(
    levels: FloatArray, uniform: Sequence[float], learned: Sequence[float], scores: FloatArray, *, title: str
) -> Chart:
    """Return the scale cut into levels twice, uniformly and as learned, under the histogram of scores (bins,)."""
    frame = _STRIPS
    x = Axis(float(levels[0]), float(levels[-1]), frame.left, frame.end)
    few = levels.size <= 20
    drawn = (
        _heap(scores, x, top=frame.top),
        tag("line", x1=x.start, x2=x.end, y1=_FOOT, y2=_FOOT, class_="grid"),
        tag("text", "scores of the test entries", x=x.start, y=frame.top + 4),
        _strip("uniform", uniform, levels, x, top=_UNIFORM, style=OTHER.name),
        _strip("learned", learned, levels, x, top=_LEARNED, style=ONE.name),
        # Where the uniform boundaries are, to see how far the learned ones have moved.
        _upright(uniform, x, top=_LEARNED) if few else None,
        *(tag("text", short(at), x=x.at(at), y=frame.height - 20, class_="middle") for at in _readable(levels, x)),
        tag("text", "score, in the units of the scale", x=frame.width / 2, y=frame.height - 3, class_="middle"),
    )
    return Chart(join(drawn), title, frame)


def _heap(scores: FloatArray, x: Axis, *, top: float) -> Markup:
    """Return a histogram as one outline."""
    width, most = (x.end - x.start) / scores.size, max(float(scores.max()), 1.0)
    steps = "".join(f"V{_FOOT - (_FOOT - top) * number / most:.1f}h{width:.2f}" for number in scores.tolist())
    return tag("path", d=f"M{x.start:g} {_FOOT:g}{steps}V{_FOOT:g}z", class_="heap")


def _strip(name: str, boundaries: Sequence[float], levels: FloatArray, x: Axis, *, top: float, style: str) -> Markup:
    """Return the stretch of scores that becomes each level, side by side."""
    edges = [x.start, *(x.at(boundary) for boundary in boundaries), x.end]
    parts = [tag("text", name, x=x.start, y=top - 5)]
    for number, (left, right) in enumerate(pairwise(edges)):
        level = short(levels[number])
        shade = f"strip {style}" + " odd" * (number % 2)
        tip = tag("title", f"{name}: level {level}")
        parts.append(tag("rect", tip, x=left, y=top, width=right - left, height=_THICKNESS, class_=shade))
        if right - left > 7 * len(level) + 4:
            parts.append(tag("text", level, x=(left + right) / 2, y=top + _THICKNESS / 2 + 4, class_="middle inside"))
    return join(parts)


def _upright(boundaries: Sequence[float], x: Axis, *, top: float) -> Markup:
    ends = (top - 4, top + _THICKNESS + 4)
    return join(tag("line", x1=x.at(at), x2=x.at(at), y1=ends[0], y2=ends[1], class_="mark") for at in boundaries)


def _readable(levels: FloatArray, x: Axis) -> list[float]:
    """Return the levels whose names do not run into one another, from the lowest on."""
    shown: list[float] = []
    for level in levels.tolist():
        if not shown or x.at(level) - x.at(shown[-1]) > 4 * (len(short(level)) + len(short(shown[-1]))) + 6:
            shown.append(level)
    return shown


def _whole(share: float) -> str:
    return percent(share, digits=0)
