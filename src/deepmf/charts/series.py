"""A series: the numbers of one kind that a chart shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepmf.charts.axes import Axis, Write
from deepmf.charts.markup import Markup
from deepmf.charts.styles import ONE, Style


@dataclass(frozen=True)
class Series:
    """Numbers of one kind, one for each group; `margins` say how far each may be off, None where nobody knows."""

    name: str
    numbers: Sequence[float]
    style: Style = ONE
    margins: Sequence[float | None] = ()

    def margin(self, at: int) -> float | None:
        """Return how far a number may be off."""
        return self.margins[at] if self.margins else None

    def ends(self) -> list[float]:
        """Return all numbers and the ends of their error bars: what an axis must hold."""
        known = [(number, self.margin(at) or 0.0) for at, number in enumerate(self.numbers)]
        return [end for number, margin in known for end in (number - margin, number + margin)]

    def tip(self, group: str, at: int, write: Write) -> str:
        """Return what the mouse is told of a number."""
        margin = self.margin(at)
        return f"{group}, {self.name}: {write(self.numbers[at])}" + ("" if margin is None else f" ± {write(margin)}")

    def error_bar(self, place: float, at: int, y: Axis) -> Markup | None:
        """Return the error bar of a number, where it has a margin."""
        margin, number = self.margin(at), self.numbers[at]
        return self.style.upright_bar(place, y.at(number - margin), y.at(number + margin)) if margin else None


@dataclass(frozen=True)
class Curve(Series):
    """Numbers of one kind at places of their own, from left to right."""

    places: Sequence[float] = ()
