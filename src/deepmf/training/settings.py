"""The settings of models, checked on creation: those of every model, of the training loop, of networks."""

from __future__ import annotations

import inspect
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import (
    Any,
    ClassVar,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_type_hints,
)

from deepmf.errors import BadSetting, nearest_name

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


_Made = TypeVar("_Made")

_Model = TypeVar("_Model")

_ByName = ParamSpec("_ByName")


class DeclaredSetting(NamedTuple):
    """One setting as a class declares it."""

    name: str
    annotation: Any
    default: Any
    rule: Rule
    chosen: bool  # at fit, for the matrix and the machine, where it is not given

    @property
    def type(self) -> str:
        """The type as it is written."""
        return inspect.formatannotation(self.annotation)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_dataclass(settings: type[_Made]) -> type[_Made]:
    """Make a dataclass of settings, whose docstring and signature explain all of them.

    A field that an ancestor declares may be given another default alone: its rule and its meaning stay.
    """
    summary = inspect.cleandoc(settings.__doc__ or "")
    made: Any = dataclass(frozen=True, kw_only=True)(settings)
    made.__doc__ = "\n\n".join([summary, *map(_explained, declared(made))])
    made.__signature__ = signature_of(made)
    return cast("type[_Made]", made)


def declared(settings: type[Any]) -> list[DeclaredSetting]:
    """Return all settings of a class, those of its ancestors first.

    >>> from deepmf.training.settings import LoopSettings
    >>> [(setting.name, setting.default) for setting in declared(LoopSettings)][:2]
    [('seed', 0), ('epochs', 100)]
    """
    types, chosen = get_type_hints(settings), getattr(settings, "chosen_at_fit", ())
    return [
        DeclaredSetting(
            field.name, types[field.name], field.default, rule_of(settings, field.name), field.name in chosen
        )
        for field in fields(settings)
    ]


def signature_of(settings: type[Any]) -> inspect.Signature:
    """Return the signature of a call that takes all settings of a class by name."""
    by_name = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(setting.name, by_name, default=setting.default, annotation=setting.annotation)
            for setting in declared(settings)
        ]
    )


def takes_settings(
    settings: Callable[_ByName, object],
) -> Callable[[Callable[Concatenate[_Model, ...], None]], Callable[Concatenate[_Model, _ByName], None]]:
    """Declare that a constructor takes all settings of a class by name: to editors, type checkers and `help`."""

    def with_signature(constructor: Any) -> Any:
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        by_name = signature_of(cast("type[Any]", settings)).parameters.values()
        constructor.__signature__ = inspect.Signature([itself, *by_name])
        return constructor

    return with_signature


def rule_of(settings: type, name: str) -> Rule:
    """Return the rule of a setting from the nearest class that declares one."""
    for part in settings.__mro__:
        field = vars(part).get("__dataclass_fields__", {}).get(name)
        if field is not None and RULE in field.metadata:
            rule: Rule = field.metadata[RULE]
            return rule
    raise TypeError(f"the setting {name!r} of {settings.__name__} has no rule; declare it as by whole() or number()")


def _explained(setting: DeclaredSetting) -> str:
    meaning = textwrap.fill(setting.rule.meaning, 100, initial_indent="    ", subsequent_indent="    ")
    default = "chosen at fit" if setting.chosen else repr(setting.default)
    return f"{setting.name}: {setting.type} = {default} ({setting.rule.allowed})\n{meaning}"


@settings_dataclass
class Settings:
    """The settings of every model."""

    chosen_at_fit: ClassVar[Collection[str]] = ()  # the names of those that are chosen where they are not given

    # As large as what numpy draws where no seed is given.
    seed: int = whole(0, low=0, high=2**128 - 1, meaning="The seed of all that is random.")

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            kept = rule_of(type(self), name).checked(name, getattr(self, name))
            object.__setattr__(self, name, kept)

    @classmethod
    def from_names(cls, given: Mapping[str, Any]) -> Self:
        """Make settings from names and values; a name that does not exist is an error that says the nearest."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise BadSetting(f"there is no setting {name!r}; {nearest_name(name, known)}")
        return cls(**{name: _plain(value) for name, value in given.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)


@settings_dataclass
class LoopSettings(Settings):
    """The settings of the training loop."""

    epochs: int = whole(100, low=1, meaning="Passes over the entries, or sweeps of a method of linear algebra.")
    validate_every: int = whole(1, low=1, meaning="Epochs between computations of the validation error.")
    patience: int | None = whole(
        None,
        low=1,
        optional=True,
        meaning="Training stops when the validation error has not improved for this many epochs (none: never).",
    )


@settings_dataclass
class TrainingSettings(LoopSettings):
    """The settings of the training of a network."""

    validate_every: int = 5
    learning_rate: float = number(1e-2, above=0.0, meaning="The step size of the optimiser at the start.")
    schedule: str = choice(
        "steps",
        of=("steps", "cosine"),
        meaning='How the step size falls: by `decay` after every `decay_every` epochs ("steps"), '
        'or down to 0 along half a wave ("cosine").',
    )
    decay: float = number(
        0.65, above=0.0, high=1.0, meaning='What the step size is multiplied by, with the schedule "steps".'
    )
    decay_every: int | tuple[int, ...] = period(
        50, meaning="Epochs between two decays of the step size, or the epochs of decay themselves, as in (24, 36, 48)."
    )
    averaging: float = number(
        0.0,
        low=0.0,
        high=1.0,
        meaning="How much of the running average of the weights a step keeps, such as 0.995; validation and the "
        "trained model then use the average (0: the weights themselves).",
    )
    device: str = choice(
        "auto", of=("auto", "cpu", "cuda"), meaning='Where to train; "auto" takes a GPU where there is one.'
    )
    precision: str = choice(
        "auto",
        of=("auto", "single", "half"),
        meaning='The precision of products: "half" (bfloat16) or "single"; "auto" is half on a GPU, single elsewhere.',
    )

    def learning_rate_at(self, epoch: int) -> float:
        """Return the step size of an epoch, counted from 0."""
        if self.schedule == "cosine":
            return float(self.learning_rate * (1.0 + math.cos(math.pi * epoch / self.epochs)) / 2.0)
        every = self.decay_every
        n_decays = sum(start <= epoch for start in every) if isinstance(every, tuple) else epoch // every
        return float(self.learning_rate * self.decay**n_decays)


def _plain(value: Any) -> Any:
    """Return Python's own numbers and tuples for numpy's."""
    import numpy as np  # not above: shells that complete names of settings need not wait for it

    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value
