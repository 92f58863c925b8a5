"""How series are told apart: by colour, by the shape of their points, and by dashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepmf.charts.markup import Markup, join, tag

# From the middle of a point, in pixels.
_SHAPES = {
    "square": "m-3.4 -3.4h6.8v6.8h-6.8z",
    "up": "m0 -4.3l4.3 7.4h-8.6z",
    "diamond": "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",
    "down": "m0 4.3l4.3 -7.4h-8.6z",
    "plus": "m-1.4 -4.3h2.8v2.9h2.9v2.8h-2.9v2.9h-2.8v-2.9h-2.9v-2.8h2.9z",
    "cross": "m0 -2l2.3 -2.3l2 2l-2.3 2.3l2.3 2.3l-2 2l-2.3 -2.3l-2.3 2.3l-2 -2l2.3 -2.3l-2.3 -2.3l2 -2z",
}
_N_COLOURS = 7  # c1 to c7 of the style sheet
_DASHES = ("", " dashed", " dotted")


@dataclass(frozen=True)
class Style:
    """Classes of the style sheet that give the colour and the dashes, and the shape of points."""

    name: str
    shape: str = "circle"

    def point(self, x: float, y: float, tip: str | None = None) -> Markup:
        """Return a point, with a tip for the mouse."""
        inside = None if tip is None else tag("title", tip)
        if self.shape == "circle":
            return tag("circle", inside, cx=x, cy=y, r=4, class_=f"dot {self.name}")
        return tag("path", inside, d=f"M{x:.1f} {y:.1f}{_SHAPES[self.shape]}", class_=f"dot {self.name}")

    def line(self, xs: Sequence[float], ys: Sequence[float]) -> Markup:
        """Return a line from point to point."""
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
        return tag("polyline", points=points, class_=f"line {self.name}")

    def upright_bar(self, x: float, low: float, high: float) -> Markup:
        """Return an error bar that goes up and down."""
        return tag("path", d=f"M{x - 3:.1f} {low:.1f}h6m-3 0V{high:.1f}m-3 0h6", class_=f"spread {self.name}")

    def level_bar(self, y: float, low: float, high: float) -> Markup:
        """Return an error bar that goes left and right."""
        return tag("path", d=f"M{low:.1f} {y - 3:.1f}v6m0 -3H{high:.1f}m0 -3v6", class_=f"spread {self.name}")

    def key(self, x: float, y: float) -> Markup:
        """Return what stands for the series in a legend: a piece of its line and a point."""
        return join((self.line([x, x + 22], [y, y]), self.point(x + 11, y)))


# What is said of the model or the training entries, and what it is compared with: told apart by colour and by filling.
ONE, OTHER = Style("one"), Style("other")
PAIR = (ONE, OTHER)


def numbered(number: int) -> Style:
    """Return the style of one of many series; 42 are different.

    >>> numbered(0), numbered(8)
    (Style(name='c1', shape='circle'), Style(name='c2 dashed', shape='up'))
    """
    shapes = ("circle", *_SHAPES)
    turn = number // _N_COLOURS
    return Style(f"c{number % _N_COLOURS + 1}{_DASHES[turn % len(_DASHES)]}", shapes[(number + turn) % len(shapes)])
