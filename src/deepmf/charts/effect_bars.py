"""A chart of effects: a bar to the right or to the left of 0 for each name."""

from __future__ import annotations

from collections.abc import Sequence

from deepmf.charts.axes import CHARACTER, Axis, Frame, across
from deepmf.charts.chart import Chart
from deepmf.charts.markup import Markup, join, tag
from deepmf.charts.styles import ONE, OTHER

_LINE = 28.0  # the height of a bar and the room around it
_NUMBER = 52.0  # the room for a number at the end of its bar


def effect_bars(
    names: Sequence[str], effects: Sequence[float], *, title: str, x_label: str, width: float = 640.0
) -> Chart:
    """Return a bar for each name, the first on top: to the right of 0 where it pulled up, to the left where down."""
    beside = CHARACTER * 1.1 * max((len(name) for name in names), default=0) + 18
    frame = Frame(width=width, height=len(names) * _LINE + 58, left=beside, right=8.0)
    x = _around_zero(effects, frame)
    drawn = [
        tag("line", x1=x.at(tick), x2=x.at(tick), y1=frame.top, y2=frame.foot, class_="grid")
        for tick in x.ticks(wanted=4)
    ]
    for line, (name, effect) in enumerate(zip(names, effects, strict=True)):
        middle = frame.top + (line + 0.5) * _LINE
        drawn.append(tag("text", name, x=frame.left - 8, y=middle + 4, class_="end inside"))
        drawn.append(_bar(name, effect, x, middle))
    drawn.append(across(x, frame, wanted=4))
    drawn.append(tag("text", x_label, x=(x.start + x.end) / 2, y=frame.height - 6, class_="middle"))
    return Chart(join(drawn), title, frame)


def signed(effect: float) -> str:
    """Return an effect with its sign, in three digits.

    >>> print(signed(0.1416), signed(-0.03), signed(-0.0001))
    +0.142 −0.030 0.000
    """
    written = f"{abs(effect):.3f}"
    return written if float(written) == 0 else f"{'+' if effect > 0 else '−'}{written}"


def _around_zero(effects: Sequence[float], frame: Frame) -> Axis:
    """Return an axis that holds 0 and all effects, with room for their numbers behind the bars."""
    low, high = min([0.0, *effects]), max([0.0, *effects])
    if low == high:
        low, high = -1.0, 1.0
    return Axis(low, high, frame.left + _NUMBER * (low < 0), frame.end - _NUMBER * (high > 0))


def _bar(name: str, effect: float, x: Axis, middle: float) -> Markup:
    """Return a bar from 0, with its number behind it."""
    start, end = sorted((x.at(0.0), x.at(effect)))
    up = effect >= 0
    bar = tag(
        "rect",
        tag("title", f"{name}: {signed(effect)}"),
        x=start,
        y=middle - 0.36 * _LINE,
        width=end - start,
        height=0.72 * _LINE,
        class_=f"bar {(ONE if up else OTHER).name}",
    )
    place = end + 5 if up else start - 5
    number = tag("text", signed(effect), x=place, y=middle + 4, class_="inside" if up else "end inside")
    return join((bar, number))
