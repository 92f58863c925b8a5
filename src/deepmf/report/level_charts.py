"""Charts of levels: which are confused, where one ends and the next begins, how likely each was said to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from deepmf.evaluation.calibration import ReliabilityBin
from deepmf.matrix.arrays import FloatArray
from deepmf.report.axes import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis, across, axis_names, group_names, scaffold, svg
from deepmf.report.charts import ONE, OTHER, joined
from deepmf.report.markup import Markup, join, tag
from deepmf.report.wording import count, percent, short

# A share is written into its cell where there are no more levels than this.
MOST_WRITTEN = 11
_SHADES = 20
_THICKNESS = 26.0  # of a strip
_SQUARE = 340.0  # the height at which the plot itself is about as high as wide


def confusion_map(shares: FloatArray, levels: Sequence[str], *, title: str) -> Markup:
    """Return shares (true level, predicted level) as a map, the darker the larger, the highest true level on top."""
    n_levels = len(levels)
    x, y = Axis(0, n_levels, LEFT, WIDTH - RIGHT), Axis(0, n_levels, _SQUARE - BOTTOM, TOP)
    every = math.ceil(n_levels / 12)
    return svg(
        tag("rect", x=LEFT, y=TOP, width=x.end - x.start, height=y.start - y.end, class_="frame"),
        _shaded(shares, x, y),
        _written(shares, x, y) if n_levels <= MOST_WRITTEN else None,
        *(tag("text", levels[at], x=LEFT - 6, y=y.at(at + 0.5) + 4, class_="end") for at in range(0, n_levels, every)),
        group_names(levels, [x.at(at + 0.5) for at in range(n_levels)], height=_SQUARE),
        axis_names("predicted level", "true level", height=_SQUARE),
        title=title,
        height=_SQUARE,
    )


def _shaded(shares: FloatArray, x: Axis, y: Axis) -> Markup:
    """Return the cells, one path for all of a shade: thousands of elements would make a heavy page."""
    cell = f"h{x.at(1) - x.at(0):.2f}v{y.at(0) - y.at(1):.2f}h{x.at(0) - x.at(1):.2f}z"
    shades = np.ceil(shares / shares.max() * _SHADES).astype(int)
    paths = []
    for shade in np.unique(shades[shades > 0]).tolist():
        corners = (f"M{x.at(j):.1f} {y.at(i + 1):.1f}{cell}" for i, j in np.argwhere(shades == shade).tolist())
        paths.append(tag("path", d="".join(corners), class_="cell", fill_opacity=shade / _SHADES))
    return join(paths)


def _written(shares: FloatArray, x: Axis, y: Axis) -> Markup:
    """Return every share above 0 in per cent, in the middle of its cell."""
    texts = []
    for i, j in np.argwhere(shares > 0).tolist():
        text = "<1" if shares[i, j] < 0.01 else f"{100 * shares[i, j]:.0f}"
        depth = shares[i, j] / shares.max()
        # On a middling shade dark letters are read best, on light paper and on dark.
        style = "deep" if depth > 0.8 else "dark" if depth > 0.55 else "inside"
        texts.append(tag("text", text, x=x.at(j + 0.5), y=y.at(i + 0.5) + 4, class_=f"middle {style}"))
    return join(texts)


def reliability_diagram(bins: Sequence[ReliabilityBin], *, title: str) -> Markup:
    """Return what came true against what was forecast; the larger a point, the more forecasts it stands for."""
    x, y = Axis(0, 1, LEFT, WIDTH - RIGHT - 8), Axis(0, 1, _SQUARE - BOTTOM, TOP)
    xs, ys = [x.at(each.forecast) for each in bins], [y.at(each.observed) for each in bins]
    most = max(each.n_forecasts for each in bins)
    points = []
    for each, place, height in zip(bins, xs, ys, strict=True):
        tip = f"{count(each.n_forecasts)} forecasts of {percent(each.forecast)}, {percent(each.observed)} came true"
        radius = 3 + 7 * math.sqrt(each.n_forecasts / most)
        points.append(tag("circle", tag("title", tip), cx=place, cy=height, r=radius, class_=f"dot {ONE} soft"))
    names = {"x_label": "probability that was forecast", "y_label": "share that came true"}
    return svg(
        scaffold(y, **names, write=_whole, height=_SQUARE),
        across(x, write=_whole, height=_SQUARE),
        tag("line", x1=x.start, y1=y.start, x2=x.end, y2=y.end, class_="mark"),
        joined(xs, ys, ONE),
        *points,
        title=title,
        height=_SQUARE,
    )


def boundary_strips(
    levels: FloatArray, uniform: Sequence[float], learned: Sequence[float], scores: FloatArray, *, title: str
) -> Markup:
    """Return the scale cut into levels twice, uniformly and as learned, under the histogram of scores (bins,)."""
    height, base = 240.0, 100.0
    x = Axis(float(levels[0]), float(levels[-1]), 14.0, WIDTH - 14.0)
    return svg(
        _heap(scores, x, base=base, top=TOP),
        tag("line", x1=x.start, x2=x.end, y1=base, y2=base, class_="grid"),
        tag("text", "scores of the test entries", x=x.start, y=TOP + 4),
        _strip("uniform", uniform, levels, x, top=124.0, style=OTHER),
        _strip("learned", learned, levels, x, top=174.0, style=ONE),
        # Where the uniform boundaries are, to see how far the learned ones have moved.
        _upright(uniform, x, top=174.0) if levels.size <= 20 else None,
        *(tag("text", short(level), x=x.at(level), y=height - 20, class_="middle") for level in _readable(levels, x)),
        tag("text", "score, in the units of the scale", x=WIDTH / 2, y=height - 3, class_="middle"),
        title=title,
        height=height,
    )


def _heap(scores: FloatArray, x: Axis, *, base: float, top: float) -> Markup:
    """Return a histogram as one outline."""
    width, most = (x.end - x.start) / scores.size, max(float(scores.max()), 1.0)
    steps = "".join(f"V{base - (base - top) * number / most:.1f}h{width:.2f}" for number in scores.tolist())
    return tag("path", d=f"M{x.start:g} {base:g}{steps}V{base:g}z", class_="heap")


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
