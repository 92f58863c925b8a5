"""A map of shares: the larger a share, the deeper its cell, with the number inside where there is room."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepmf.charts.axes import Axis, Frame, axis_names, group_names
from deepmf.charts.chart import Chart
from deepmf.charts.markup import Markup, join, tag

# A share is written into its cell where there are no more groups than this.
MOST_WRITTEN = 11
_SHADES = 20
# On light paper a number is dark in cells up to a shade, on dark paper it is light up to another; in between it is
# dark on both. Either way it differs from its cell by a contrast of 4.5 at least, which reads well.
_LIGHT_ON_DARK_UP_TO, _DARK_ON_LIGHT_UP_TO = 12, 17
_SQUARE = Frame(height=340.0)  # a height at which the plot itself is about as high as wide


def heat_map(
    shares: npt.NDArray[np.floating],
    groups: Sequence[str],
    *,
    title: str,
    x_label: str,
    y_label: str,
    deepest: float | None = None,
    frame: Frame = _SQUARE,
) -> Chart:
    """Return shares (upwards, across) of the same groups; `deepest` is the share of full colour, else the largest."""
    n_groups = len(groups)
    x, y = Axis(0, n_groups, frame.left, frame.end), Axis(0, n_groups, frame.foot, frame.top)
    full = float(deepest or shares.max())
    shades = np.minimum(np.ceil(shares / full * _SHADES), _SHADES).astype(int)
    every = math.ceil(n_groups / 12)
    names = [tag("text", groups[at], x=x.start - 6, y=y.at(at + 0.5) + 4, class_="end") for at in range(n_groups)]
    drawn = (
        tag("rect", x=x.start, y=y.end, width=x.end - x.start, height=y.start - y.end, class_="frame"),
        _cells(shades, x, y),
        _written(shares, shades, x, y) if n_groups <= MOST_WRITTEN else None,
        *names[::every],
        group_names(groups, [x.at(at + 0.5) for at in range(n_groups)], frame),
        axis_names(x_label, y_label, frame),
    )
    return Chart(join(drawn), title, frame)


def _cells(shades: npt.NDArray[np.integer], x: Axis, y: Axis) -> Markup:
    """Return the cells, one path for all of a shade: thousands of elements would make a heavy page."""
    cell = f"h{x.at(1) - x.at(0):.2f}v{y.at(0) - y.at(1):.2f}h{x.at(0) - x.at(1):.2f}z"
    paths = []
    for shade in np.unique(shades[shades > 0]).tolist():
        corners = (f"M{x.at(j):.1f} {y.at(i + 1):.1f}{cell}" for i, j in np.argwhere(shades == shade).tolist())
        paths.append(tag("path", d="".join(corners), class_="cell", fill_opacity=shade / _SHADES))
    return join(paths)


def _written(shares: npt.NDArray[np.floating], shades: npt.NDArray[np.integer], x: Axis, y: Axis) -> Markup:
    """Return every share above 0 in per cent, in the middle of its cell."""
    texts = []
    for i, j in np.argwhere(shares > 0).tolist():
        text = "<1" if shares[i, j] < 0.01 else f"{100 * shares[i, j]:.0f}"
        style = f"middle {_ink(int(shades[i, j]))}"
        texts.append(tag("text", text, x=x.at(j + 0.5), y=y.at(i + 0.5) + 4, class_=style))
    return join(texts)


def _ink(shade: int) -> str:
    """Return the class of a number that is read best on a shade, on light paper and on dark."""
    if shade <= _LIGHT_ON_DARK_UP_TO:
        return "on-pale"
    return "on-middling" if shade <= _DARK_ON_LIGHT_UP_TO else "on-deep"
