"""Settings of models: how to declare them, and those that all models, loops and networks share."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from deepmf.errors import BadSetting, suggest_name

# Settings are dataclasses and not pydantic models: the numeric core also runs where only torch,
# numpy, scipy and safetensors are installed.

LARGEST_COUNT = 10**9  # a larger count, of epochs for example, is a typing error
LARGEST = 1e38  # a larger number overflows float32
WIDEST = 10**6  # of a layer or a latent
MOST_LAYERS = 100

EFFORTS = "quick", "normal", "best"  # how much time a model spends whose settings are chosen at fit

Kind = Literal["whole", "number", "choice", "sizes", "epochs"]

_KINDS: dict[frozenset[Any], Kind] = {
    frozenset({int}): "whole",
    frozenset({float}): "number",
    frozenset({str}): "choice",
    frozenset({tuple[int, ...]}): "sizes",
    frozenset({int, tuple[int, ...]}): "epochs",
}
_HIGHEST: dict[Kind, float] = {
    **dict.fromkeys(get_args(Kind), LARGEST_COUNT),
    "number": LARGEST,
    "sizes": WIDEST,
}

_Default = TypeVar("_Default")
_SettingsClass = TypeVar("_SettingsClass")


def setting(
    default: _Default,
    description: str,
    *,
    low: float = -math.inf,
    above: float = -math.inf,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    fewest: int = 0,
) -> _Default:
    """Declare a setting of a `settings_dataclass`; its annotation decides what kind of values it
    takes.

    `int` is a whole number, `float` a number, `str` one of `choices`, `tuple[int, ...]` the sizes
    of layers, `int | tuple[int, ...]` a period in epochs or a list of epochs; each may also be `|
    None`.

    Parameters
    ----------
    default : value where none is given.
    description : one line for `help`, the command line and the documentation.
    low, high : smallest and largest allowed number.
    above : number that the value must exceed.
    choices : allowed words.
    fewest : smallest allowed number of sizes.
    """
    declaration = {
        "description": description,
        "low": low,
        "above": above,
        "choices": choices,
        "fewest": fewest,
    }
    # As `field` itself, this returns a field and claims to return the default, which is what
    # instances have.
    return field(
        default=default, metadata=declaration if high is None else declaration | {"high": high}
    )


@dataclass(frozen=True)
class Setting:
    """One setting of a class: its type, its default, its description and the values it takes.

    >>> {each.name: each.values for each in list_settings(TrainingSettings)}["patience"]
    'whole, 1 or more, or none'
    """

    name: str
    annotation: Any
    default: Any
    is_chosen_at_fit: bool  # for the matrix and the machine, unless the user gives it
    description: str
    low: float
    above: float
    high: float
    choices: tuple[str, ...]
    fewest: int

    @property
    def kind(self) -> Kind:
        """The kind of values it takes."""
        return _find_kind(self.annotation)

    @property
    def is_optional(self) -> bool:
        """Whether it may be None."""
        return types.NoneType in get_args(self.annotation)

    @property
    def type(self) -> str:
        """The type as it is written in a signature."""
        return inspect.formatannotation(self.annotation)

    @property
    def values(self) -> str:
        """The allowed values in a few words."""
        match self.kind:
            case "choice":
                words = ", ".join(self.choices)
            case "sizes":
                words = f"whole numbers, 1 to {self.high}"
            case "number" if self.above > -math.inf:
                words = f"above {self.above:g}" + (
                    f", at most {self.high:g}" if self._is_bounded else ""
                )
            case kind:
                words = (
                    f"{self.low:.15g} to {self.high:.15g}"
                    if self._is_bounded
                    else f"{self.low:g} or more"
                )
                words = words if kind == "number" else f"whole, {words}"
                words += ", or increasing epochs" if kind == "epochs" else ""
        return f"{words}, or none" if self.is_optional else words

    def to_dict(self) -> dict[str, Any]:
        """Return the allowed values as bounds or choices."""
        match self.kind:
            case "choice":
                return {"choices": list(self.choices)}
            case "number":
                bounds = {"low": self.low, "above": self.above, "high": self.high}
                return {name: bound for name, bound in bounds.items() if bound > -math.inf}
            case "sizes":
                return {"low": 1, "high": self.high, "fewest": self.fewest, "most": MOST_LAYERS}
            case _:
                return {"low": self.low, "high": self.high}

    def check(self, value: Any) -> Any:
        """Return a value as it is stored; raise `BadSetting` unless it is allowed."""
        if value is None and self.is_optional:
            return None
        if type(value).__module__ == "numpy":
            value = value.tolist()  # Python's own number or list
        stored = tuple(value) if isinstance(value, list) else value
        if self.kind == "sizes" and not isinstance(stored, tuple):
            stored = (stored,)
        if not self._allows(stored):
            is_too_large = (
                isinstance(value, int | float) and value > self.high and not self._is_bounded
            )
            most = f", at most {self.high:g}" if is_too_large else ""
            words = f"one of {self.values}" if self.choices else f"{self.values}{most}"
            if self.kind == "sizes" and len(stored) > MOST_LAYERS:
                words, value = f"at most {MOST_LAYERS} numbers", len(stored)
            raise BadSetting(f"{self.name} must be {words}; got {value!r}")
        return stored

    @property
    def _is_bounded(self) -> bool:
        """Whether `values` states the largest number."""
        return self.kind == "sizes" or self.high < _HIGHEST[self.kind]

    def _allows(self, value: Any) -> bool:
        match self.kind:
            case "choice":
                return value in self.choices
            case "number":
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                return is_number and self.low <= value <= self.high and value > self.above
            case "sizes":
                are_sizes = all(_is_whole(size) and 1 <= size <= self.high for size in value)
                return are_sizes and self.fewest <= len(value) <= MOST_LAYERS
            case "epochs" if isinstance(value, tuple):
                return all(map(_is_whole, value)) and all(
                    early < late for early, late in pairwise((0, *value))
                )
            case _:
                return _is_whole(value) and self.low <= value <= self.high


def list_settings(settings_class: type[Any]) -> tuple[Setting, ...]:
    """Return all settings of a class, those of its base classes first.

    >>> [(each.name, each.default) for each in list_settings(LoopSettings)][:2]
    [('seed', 0), ('epochs', 100)]
    """
    # collected once: evaluating annotations takes milliseconds
    return cast("tuple[Setting, ...]", settings_class._all)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_dataclass(settings_class: type[_SettingsClass]) -> type[_SettingsClass]:
    """Make a frozen dataclass of settings, whose docstring lists all of them as parameters.

    A subclass may give an inherited setting another default alone: its bounds and its description
    stay.
    """
    summary = inspect.cleandoc(settings_class.__doc__ or "")
    declared: Any = dataclass(frozen=True, kw_only=True)(settings_class)
    declared._all = _collect_settings(declared)
    parameters = ["Parameters", "----------", *map(_document, declared._all)]
    declared.__doc__ = "\n".join([summary, "", *parameters])
    return cast("type[_SettingsClass]", declared)


def _collect_settings(settings_class: type[Any]) -> tuple[Setting, ...]:
    hints = get_type_hints(settings_class)
    return tuple(
        Setting(
            name=declared.name,
            annotation=hints[declared.name],
            default=declared.default,
            is_chosen_at_fit=declared.name in settings_class.chosen_at_fit,
            **{
                "high": _HIGHEST[_find_kind(hints[declared.name])],
                **_find_declaration(settings_class, declared.name),
            },
        )
        for declared in fields(settings_class)
    )


def _document(item: Setting) -> str:
    default = "chosen at fit" if item.is_chosen_at_fit else repr(item.default)
    return f"{item.name} : {item.type}, default {default} ({item.values})\n    {item.description}"


def _find_kind(annotation: Any) -> Kind:
    parts = get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    return _KINDS[frozenset(parts) - {types.NoneType}]


def _find_declaration(settings_class: type, name: str) -> Mapping[str, Any]:
    """Return the metadata of a setting from the nearest class that declares it by `setting`."""
    for part in settings_class.__mro__:
        declared = vars(part).get("__dataclass_fields__", {}).get(name)
        if declared is not None and "description" in declared.metadata:
            return cast("Mapping[str, Any]", declared.metadata)
    raise TypeError(
        f"{settings_class.__name__}.{name} has no description; declare it by setting(default, description)"
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@settings_dataclass
class Settings:
    """Settings of every model, checked when they are made."""

    # names of settings that `fit` chooses unless the user gives them
    chosen_at_fit: ClassVar[Collection[str]] = ()

    # The bound admits the seeds that numpy draws from the operating system.
    seed: int = setting(0, "Seed of all random numbers.", low=0, high=2**128 - 1)

    def __post_init__(self) -> None:
        for item in list_settings(type(self)):
            object.__setattr__(self, item.name, item.check(getattr(self, item.name)))

    @classmethod
    def from_names(cls, values: Mapping[str, Any]) -> Self:
        """Make settings from values by name; an unknown name raises an error that suggests the
        nearest name."""
        names = [item.name for item in fields(cls)]
        for name in values:
            if name not in names:
                raise BadSetting(f"there is no setting {name!r}; {suggest_name(name, names)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by name."""
        return asdict(self)


# Settings of recommendations, which do not change what is trained.
RECOMMENDATION = ("presence", "rank_by")

# Settings of times, which change nothing unless they are given.
OF_TIMES = ("times",)


@settings_dataclass
class RecommendationSettings(Settings):
    """Settings of models that recommend columns a row is likely to take and like, and use the times
    of entries."""

    chosen_at_fit: ClassVar[Collection[str]] = RECOMMENDATION

    times: str | None = setting(
        None,
        "Drift of rows and columns with the times of entries, and recent popularity in rankings.",
        choices=("auto",),
    )
    presence: str | None = setting(
        "auto",
        "Regress each column on all others or on the nearest, for rankings by relevance (none: rank by value only).",
        choices=("auto", "full", "nearest"),
    )
    rank_by: str = setting(
        "auto",
        "Default order of recommendations: value where most cells have an entry, otherwise relevance, or next.",
        choices=("auto", "relevance", "value", "next"),
    )


@settings_dataclass
class LoopSettings(Settings):
    """Settings of the training loop."""

    epochs: int = setting(100, "Number of passes over the entries.", low=1)
    validate_every: int = setting(1, "Number of epochs between validations.", low=1)
    patience: int | None = setting(
        None,
        "Number of epochs without a lower validation error before training stops (none: no early stopping).",
        low=1,
    )


@settings_dataclass
class TrainingSettings(LoopSettings):
    """Settings of the training of a network."""

    validate_every: int = 5
    learning_rate: float = setting(1e-2, "Learning rate in the first epoch.", above=0.0)
    averaging: float = setting(
        0.0,
        "Decay of the exponential moving average of the weights, such as 0.995 (0: no average).",
        low=0.0,
        high=1.0,
    )
    device: str = setting(
        "auto",
        'Device to train on; "auto" is a GPU if there is one.',
        choices=("auto", "cpu", "cuda"),
    )
    precision: str = setting(
        "auto",
        'Precision of matrix products: "half" is bfloat16; "auto" is half on a GPU and single on a CPU.',
        choices=("auto", "single", "half"),
    )

    def find_learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0: half a cosine wave down to 0."""
        return float(self.learning_rate * (1.0 + math.cos(math.pi * epoch / self.epochs)) / 2.0)


@settings_dataclass
class StepDecaySettings(TrainingSettings):
    """Settings of a training whose learning rate falls in steps."""

    decay: float = setting(0.65, "Factor on the learning rate at each decay.", above=0.0, high=1.0)
    decay_every: int | tuple[int, ...] = setting(
        50,
        "Number of epochs between two decays, or the epochs of all decays, such as (24, 36, 48).",
        low=1,
    )

    def find_learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        if isinstance(self.decay_every, tuple):
            n_decays = sum(start <= epoch for start in self.decay_every)
        else:
            n_decays = epoch // self.decay_every
        return float(self.learning_rate * self.decay**n_decays)


@settings_dataclass
class TwoBranchSettings(TrainingSettings):
    """Settings of a row branch and a column branch: h_X and h_Y in section 2 of the paper."""

    # Batch norm needs two vectors for its statistics.
    block_rows: int = setting(300, "Number of rows in a block.", low=2)
    block_columns: int = setting(200, "Number of columns in a block.", low=2)
    hidden_sizes: tuple[int, ...] = setting((2048,), "Hidden sizes of each branch.")
    latent_size: int = setting(
        1024, "Latent size: the width of the last layer of each branch.", low=1, high=WIDEST
    )
    dropout: float = setting(0.8, "Fraction dropped after every hidden layer.", low=0.0, high=0.99)

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """The widths of all layers of a branch."""
        return (*self.hidden_sizes, self.latent_size)
