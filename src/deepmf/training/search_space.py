"""Search spaces: the values of a setting that tuning tries, declared with the settings of each
model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self


@dataclass(frozen=True)
class Range:
    """All numbers between two ends, both included; only whole numbers where both ends are
    integers."""

    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        """Whether the range holds whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def include(self, value: Any) -> Self:
        """Return the range, widened to include a value."""
        return replace(self, low=min(self.low, value), high=max(self.high, value))

    def encode(self, value: Any) -> Any:
        """Return a value as optuna stores it."""
        return value

    def decode(self, stored: Any) -> Any:
        """Return a value of the setting; real numbers have four digits, so that they can be
        typed."""
        return stored if self.is_whole else float(f"{stored:.4g}")


@dataclass(frozen=True)
class LogRange(Range):
    """A range searched on a logarithmic scale: 1 to 10 is as wide as 10 to 100."""


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    options: tuple[Any, ...]

    def include(self, value: Any) -> Self:
        """Return the choice, with one more option if it lacks the value."""
        return self if value in self.options else replace(self, options=(*self.options, value))

    def encode(self, value: Any) -> str:
        """Return a value as optuna stores it, which stores no tuples."""
        return repr(value)

    def decode(self, stored: Any) -> Any:
        """Return a value of the setting."""
        return next(option for option in self.options if repr(option) == stored)


Dimension = Range | Choice

Space = Mapping[str, Dimension]
