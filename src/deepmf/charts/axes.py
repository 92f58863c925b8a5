"""The axes of a chart: where numbers and groups lie, and the ticks that say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepmf.charts.markup import Markup, join, tag
from deepmf.charts.wording import short

CHARACTER = 6.3  # how wide a character is, about

Write = Callable[[float], str]


@dataclass(frozen=True)
class Frame:
    """The size of a chart and the room around its plot, in pixels; a page stretches it to the width that it has."""

    width: float = 360.0
    height: float = 220.0
    left: float = 52.0
    right: float = 8.0
    top: float = 10.0
    bottom: float = 38.0

    @property
    def end(self) -> float:
        """Where the plot ends on the right."""
        return self.width - self.right

    @property
    def foot(self) -> float:
        """Where the plot ends below."""
        return self.height - self.bottom

    @property
    def middle(self) -> float:
        """Where the middle of the plot is, from the left."""
        return (self.left + self.end) / 2

    @property
    def steps(self) -> int:
        """How many steps an axis that goes up has, about."""
        return max(4, round((self.foot - self.top) / 50))

    def places(self, n_groups: int) -> list[float]:
        """Return the middles of as many groups from left to right."""
        return [self.left + (number + 0.5) * (self.end - self.left) / n_groups for number in range(n_groups)]


SMALL = Frame()  # as wide as a phone; wider screens put charts side by side


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


@dataclass(frozen=True)
class WholeAxis(Axis):
    """A stretch of whole numbers, such as epochs: between them there is nothing to write a number under."""

    def ticks(self, *, wanted: int = 5) -> list[float]:
        """Return round whole numbers from end to end.

        >>> WholeAxis(1, 12, 0, 1).ticks()
        [5.0, 10.0]
        >>> WholeAxis(1, 3, 0, 1).ticks()
        [1.0, 2.0, 3.0]
        """
        ticks = super().ticks(wanted=wanted)
        if all(tick.is_integer() for tick in ticks):
            return ticks
        step = 1 if self.high - self.low <= wanted else 5 if self.high - self.low > 2 * wanted else 2
        return [float(tick) for tick in range(math.ceil(self.low), math.floor(self.high) + 1) if tick % step == 0]


@dataclass(frozen=True)
class LogAxis(Axis):
    """A stretch of numbers above 0, on which equal ratios are equally long."""

    def at(self, number: float) -> float:
        """Return where a number is drawn."""
        return Axis(math.log(self.low), math.log(self.high), self.start, self.end).at(math.log(number))

    def ticks(self, *, wanted: int = 5) -> list[float]:
        """Return 1, 2 and 5 times powers of ten; powers of ten alone where they are as many as wanted.

        >>> LogAxis(3, 600, 0, 1).ticks()
        [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]
        >>> LogAxis(0.01, 1e6, 0, 1).ticks(wanted=5)[:3]
        [0.01, 0.1, 1.0]
        """
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1,) if len(powers) > wanted + 1 else (1, 2, 5)
        ticks = [float(f"{factor * 10.0**power:.12g}") for power in powers for factor in factors]
        return [tick for tick in ticks if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]


def rising(numbers: Sequence[float], frame: Frame, *, from_zero: bool = False) -> Axis:
    """Return the axis that goes up beside a chart and holds all the numbers, ending in round ones."""
    low, high = (0.0 if from_zero else min(numbers)), max(numbers)
    if high - low <= 1e-9 * abs(high):  # a single number, but for rounding, or nothing but zeros
        room = abs(high) / 10 or 1.0
        low, high = (low if from_zero else low - room), high + room
    while True:  # a wider stretch may have wider steps, until both ends are on one
        step = _round_step((high - low) / frame.steps)
        ends = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        if math.isclose(ends[1] - ends[0], high - low):
            return Axis(*ends, frame.foot, frame.top)
        low, high = ends


def scaffold(y: Axis, frame: Frame, *, x_label: str, y_label: str, write: Write = short) -> Markup:
    """Return the lines and numbers of the axis that goes up, and the names of both."""
    parts = []
    for tick in y.ticks(wanted=frame.steps):
        at = y.at(tick)
        parts += [
            tag("line", x1=frame.left, x2=frame.end, y1=at, y2=at, class_="grid"),
            tag("text", write(tick), x=frame.left - 6, y=at + 4, class_="end"),
        ]
    return join([*parts, axis_names(x_label, y_label, frame)])


def axis_names(x_label: str, y_label: str, frame: Frame) -> Markup:
    """Return the names of both axes, below the chart and beside it; an empty one is left out."""
    upwards = f"translate(9 {(frame.foot + frame.top) / 2:.0f})rotate(-90)"
    below = tag("text", x_label, x=frame.middle, y=frame.height - 4, class_="middle")
    beside = tag("text", y_label, transform=upwards, class_="middle")
    return join((below if x_label else None, beside if y_label else None))


def across(x: Axis, frame: Frame, *, write: Write = short, wanted: int = 5) -> Markup:
    """Return the numbers of the axis that goes from left to right."""
    ticks = x.ticks(wanted=wanted)
    return group_names([write(tick) for tick in ticks], [x.at(tick) for tick in ticks], frame)


def group_names(names: Sequence[str], places: Sequence[float], frame: Frame) -> Markup:
    """Return the names of groups under their places, leaving out as many as do not fit."""
    if not names:
        return Markup()
    needed = CHARACTER * max(len(name) for name in names) + 5
    every = max(1, math.ceil(needed * len(names) / (frame.end - frame.left)))
    shown = list(zip(names, places, strict=True))[::every]
    return join(tag("text", name, x=place, y=frame.foot + 15, class_="middle") for name, place in shown)


def _round_step(step: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return float(next(factor * power for factor in np.array([1, 2, 2.5, 5, 10]) if factor * power >= step * (1 - 1e-9)))
