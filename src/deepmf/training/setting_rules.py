"""How a setting is declared: its default, the values it may have, and what it means, all on its field."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from deepmf.errors import BadSetting

MOST = 10**9  # of epochs and other counts: more is a typing error
WIDEST = 10**6  # of a layer or latent
LARGEST = 1e38  # what single precision, in which everything is learned, can hold
MOST_LAYERS = 100

RULE = "rule"  # where a field's metadata keeps it

_NO_END = float("inf")
_Default = TypeVar("_Default")
_Whole = TypeVar("_Whole", bound=int | None)
_Number = TypeVar("_Number", bound=float | None)
_Sizes = TypeVar("_Sizes", bound=tuple[int, ...] | None)


def whole(default: _Whole, *, low: int, high: int = MOST, optional: bool = False, meaning: str) -> _Whole:
    """Declare a whole number from `low` to `high`; an optional one may be None."""
    return _declared(default, Whole(meaning, optional, low, high))


def number(
    default: _Number,
    *,
    low: float = -_NO_END,
    above: float = -_NO_END,
    high: float = LARGEST,
    optional: bool = False,
    meaning: str,
) -> _Number:
    """Declare a number from `low`, or of more than `above`, to `high`; an optional one may be None."""
    return _declared(default, Number(meaning, optional, low, above, high))


def choice(default: str, *, of: tuple[str, ...], meaning: str) -> str:
    """Declare a word, one of some."""
    return _declared(default, OneOf(meaning, of=of))


def sizes(default: _Sizes, *, fewest: int = 0, optional: bool = False, meaning: str) -> _Sizes:
    """Declare the widths of layers, `fewest` or more; optional ones may be None."""
    return _declared(default, Sizes(meaning, optional, fewest))


def period(default: int | tuple[int, ...], *, meaning: str) -> int | tuple[int, ...]:
    """Declare a number of epochs after which something is done again, or the epochs at which it is done."""
    return _declared(default, Period(meaning))


@dataclass(frozen=True)
class Rule(ABC):
    """Which values a setting may have, and what it means, in one sentence."""

    meaning: str
    optional: bool = False

    def checked(self, name: str, value: Any) -> Any:
        """Return the value as it is stored; one that is not allowed is an error that names those that are."""
        return value if value is None and self.optional else self._checked(name, value)

    @property
    def allowed(self) -> str:
        """The values in a few words.

        >>> Whole("", True, 1, 99).allowed, Number("", above=0).allowed, OneOf("", of=("cpu", "cuda")).allowed
        ('whole, 1 to 99, or none', 'above 0', 'cpu, cuda')
        """
        return f"{self._allowed}, or none" if self.optional else self._allowed

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the values as plain ends or choices."""

    @abstractmethod
    def _checked(self, name: str, value: Any) -> Any: ...

    @property
    @abstractmethod
    def _allowed(self) -> str: ...


@dataclass(frozen=True)
class Whole(Rule):
    """A whole number between two ends, both included."""

    low: int = 0
    high: int = MOST

    def to_dict(self) -> dict[str, Any]:
        """Return both ends."""
        return {"low": self.low, "high": self.high}

    def _checked(self, name: str, value: Any) -> Any:
        if not _is_whole(value) or not self.low <= value <= self.high:
            most = f" and at most {self.high}" if _is_whole(value) and value > self.high else ""
            raise BadSetting(f"{name} must be a whole number of at least {self.low}{most}; got {value!r}")
        return value

    @property
    def _allowed(self) -> str:
        return f"whole, {self.low} or more" if self.high >= MOST else f"whole, {self.low} to {self.high}"


@dataclass(frozen=True)
class Number(Rule):
    """A number from `low`, or of more than `above`, to `high`."""

    low: float = -_NO_END
    above: float = -_NO_END
    high: float = LARGEST

    def to_dict(self) -> dict[str, Any]:
        """Return the ends that there are; one that is named `above` is not itself allowed."""
        ends = {"low": self.low, "above": self.above, "high": self.high}
        return {name: end for name, end in ends.items() if end > -_NO_END}

    def _checked(self, name: str, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (self.low <= value <= self.high and value > self.above):
            bounds = [f"above {self.above:g}"] if self.above > -_NO_END else []
            bounds += [f"at least {self.low:g}"] if self.low > -_NO_END else []
            too_large = is_number and self.high < value < _NO_END
            bounds += [f"at most {self.high:g}"] if self.high < LARGEST or too_large else []
            raise BadSetting(f"{name} must be a number {' and '.join(bounds)}; got {value!r}")
        return value

    @property
    def _allowed(self) -> str:
        if self.above > -_NO_END:
            return f"above {self.above:g}" + (f", at most {self.high:g}" if self.high < LARGEST else "")
        return f"{self.low:g} or more" if self.high >= LARGEST else f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class OneOf(Rule):
    """One of some words."""

    of: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the words."""
        return {"choices": list(self.of)}

    def _checked(self, name: str, value: Any) -> Any:
        if value not in self.of:
            raise BadSetting(f"{name} must be {' or '.join(map(repr, self.of))}; got {value!r}")
        return value

    @property
    def _allowed(self) -> str:
        return ", ".join(self.of)


@dataclass(frozen=True)
class Sizes(Rule):
    """Whole numbers from 1 to `WIDEST`, `fewest` or more; a single number will do for one."""

    fewest: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the ends of each number, and how many there may be."""
        return {"low": 1, "high": WIDEST, "fewest": self.fewest, "most": MOST_LAYERS}

    def _checked(self, name: str, value: Any) -> Any:
        given = tuple(value) if isinstance(value, list | tuple) else (value,)
        positive = all(_is_whole(size) and size >= 1 for size in given)
        if not positive or len(given) < self.fewest or any(size > WIDEST for size in given):
            most = f" and at most {WIDEST}" if positive and any(size > WIDEST for size in given) else ""
            raise BadSetting(f"{name} must be whole numbers of at least 1{most}, such as (2048,); got {value!r}")
        if len(given) > MOST_LAYERS:
            raise BadSetting(f"{name} must be at most {MOST_LAYERS} numbers; got {len(given)}")
        return given

    @property
    def _allowed(self) -> str:
        return f"whole numbers, 1 to {WIDEST}"


@dataclass(frozen=True)
class Period(Rule):
    """A number of epochs, or increasing epochs from 1 on."""

    def to_dict(self) -> dict[str, Any]:
        """Return the ends of a single number."""
        return {"low": 1, "high": MOST}

    def _checked(self, name: str, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return Whole("", low=1)._checked(name, value)
        epochs = tuple(value)
        positive = all(_is_whole(epoch) and epoch >= 1 for epoch in epochs)
        if not positive or any(late <= early for early, late in pairwise(epochs)):
            raise BadSetting(f"{name} must be increasing epochs from 1 on, such as (24, 36); got {epochs!r}")
        return epochs

    @property
    def _allowed(self) -> str:
        return "whole, 1 or more, or increasing epochs"


def _declared(default: _Default, rule: Rule) -> _Default:
    # As `field` itself does, it claims to return the default, which is what an instance will have.
    return field(default=default, metadata={RULE: rule})


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
