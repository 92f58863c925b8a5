"""The axes of a chart: where numbers and groups lie, and the ticks that say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepmf.report.markup import Markup, join, tag
from deepmf.report.wording import short

# All charts are of this width, in units of a pixel on a phone; wider screens put them side by side.
WIDTH = 360.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 8.0, 10.0, 38.0
_STEPS = 4  # of the axis that goes up, about

Write = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """A stretch of numbers from `low` to `high`, drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, number: float) -> float:
        """Return where a number is drawn."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (number - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, *, wanted: int = 5) -> list[float]:
        """Return round numbers from end to end.

        >>> Axis(0, 0.47, 0, 1).ticks()
        [0.0, 0.1, 0.2, 0.3, 0.4]
        """
        step = _round_step((self.high - self.low) / wanted)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def rising(numbers: Sequence[float], *, height: float, from_zero: bool = False) -> Axis:
    """Return the axis that goes up beside a chart and holds all the numbers, ending in round ones."""
    low, high = (0.0 if from_zero else min(numbers)), max(numbers)
    if high - low <= 1e-9 * abs(high):  # a single number, but for rounding, or nothing but zeros
        room = abs(high) / 10 or 1.0
        low, high = (low if from_zero else low - room), high + room
    while True:  # a wider stretch may have wider steps, until both ends are on one
        step = _round_step((high - low) / _STEPS)
        ends = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        if math.isclose(ends[1] - ends[0], high - low):
            return Axis(*ends, height - BOTTOM, TOP)
        low, high = ends


def scaffold(y: Axis, *, x_label: str, y_label: str, write: Write = short, height: float) -> Markup:
    """Return the lines and numbers of the axis that goes up, and the names of both."""
    parts = []
    for tick in y.ticks(wanted=_STEPS):
        at = y.at(tick)
        parts += [
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"),
            tag("text", write(tick), x=LEFT - 6, y=at + 4, class_="end"),
        ]
    return join([*parts, axis_names(x_label, y_label, height=height)])


def axis_names(x_label: str, y_label: str, *, height: float) -> Markup:
    """Return the names of both axes, below the chart and beside it."""
    upwards = f"translate(9 {(height - BOTTOM + TOP) / 2:.0f})rotate(-90)"
    return join(
        (
            tag("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=height - 4, class_="middle"),
            tag("text", y_label, transform=upwards, class_="middle"),
        )
    )


def across(x: Axis, *, write: Write = short, height: float) -> Markup:
    """Return the numbers of the axis that goes from left to right."""
    ticks = x.ticks()
    return join(tag("text", write(tick), x=x.at(tick), y=height - BOTTOM + 15, class_="middle") for tick in ticks)


def group_names(names: Sequence[str], places: Sequence[float], *, height: float) -> Markup:
    """Return the names of groups under their places, leaving out as many as do not fit."""
    if not names:
        return Markup()
    needed = 6.3 * max(len(name) for name in names) + 5
    every = max(1, math.ceil(needed * len(names) / (WIDTH - LEFT - RIGHT)))
    shown = list(zip(names, places, strict=True))[::every]
    return join(tag("text", name, x=place, y=height - BOTTOM + 15, class_="middle") for name, place in shown)


def svg(*parts: str | None, title: str, height: float) -> Markup:
    """Return a picture that a screen reader reads as one sentence."""
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=title)


def _round_step(step: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return float(next(factor * power for factor in np.array([1, 2, 2.5, 5, 10]) if factor * power >= step * (1 - 1e-9)))
