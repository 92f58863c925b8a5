"""Which settings of each model are worth tuning, and between which values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepmf.errors import BadSetting
from deepmf.models.registry import settings_class
from deepmf.training.declarations import declared
from deepmf.training.setting_rules import LARGEST, MOST, Number, OneOf, Rule, Whole


@dataclass(frozen=True)
class Range:
    """All numbers between two ends, both included; whole ones where both ends are whole.

    An end that is not given is that of the values which the setting may have.
    """

    low: float = -math.inf
    high: float = math.inf

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Say whether a value lies in the range."""
        return isinstance(value, int if self.whole else int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Factors(Range):
    """A range in which what counts is by which factor two numbers differ: 1 to 10 is as far as 10 to 100."""


@dataclass(frozen=True)
class Choice:
    """One of some values; all words that the setting may have, where none are given."""

    options: tuple[Any, ...] = ()

    def holds(self, value: Any) -> bool:
        """Say whether a value is one of the options."""
        return value in self.options


Dimension = Range | Choice
Space = Mapping[str, Dimension]


def space_of(model: str) -> Space:
    """Return the space that a model's settings are searched in, by the model's name.

    >>> space_of("als")["count_power"]
    Range(low=0.0, high=1.0)
    """
    return completed(SEARCHED.get(model, {}), model)


def space_with_features(model: str) -> Space:
    """Return the space of a model that is fitted with features: what they weigh is searched, too, where it is set."""
    has_weight = any(setting.name in _OF_FEATURES for setting in declared(settings_class(model)))
    return {**space_of(model), **(completed(_OF_FEATURES, model) if has_weight else {})}


def completed(space: Space, model: str) -> Space:
    """Return a space with the ends and options that it leaves open; each must be a value which the setting may have.

    What the model does not have as a setting is left as it is.
    """
    rules = {setting.name: setting.rule for setting in declared(settings_class(model))}
    return {
        name: _completed(name, dimension, rules[name]) if name in rules else dimension
        for name, dimension in space.items()
    }


def with_values(space: Space, values: Mapping[str, Any]) -> Space:
    """Return a space that also holds some values: settings that were chosen for a matrix may lie outside.

    >>> with_values({"width": Choice((512,)), "rate": Range(0.1, 0.5)}, {"width": 128, "rate": 0.7})
    {'width': Choice(options=(512, 128)), 'rate': Range(low=0.1, high=0.7)}
    """
    return {name: _with_value(dimension, values[name]) for name, dimension in space.items()}


def _with_value(dimension: Dimension, value: Any) -> Dimension:
    if value is None or dimension.holds(value):
        return dimension
    if isinstance(dimension, Choice):
        return Choice((*dimension.options, value))
    return replace(dimension, low=min(dimension.low, value), high=max(dimension.high, value))


def _completed(name: str, dimension: Dimension, rule: Rule) -> Dimension:
    if isinstance(dimension, Choice):
        options = dimension.options or (rule.of if isinstance(rule, OneOf) else ())
        if not options:
            raise BadSetting(f"{name} has no words of its own to choose from; give values, as in Choice((1, 2))")
        for option in options:
            rule.checked(name, option)
        return Choice(options)
    low = _low(rule) if dimension.low == -math.inf else dimension.low
    high = _high(rule) if dimension.high == math.inf else dimension.high
    if math.isinf(low) or math.isinf(high) or (low <= 0 and isinstance(dimension, Factors)):
        example = "above 0, as in Factors(0.1, 10.0)" if isinstance(dimension, Factors) else "as in Range(0.0, 10.0)"
        raise BadSetting(f"{name} can only be searched between two ends, {example}; got {dimension}")
    for end in (low, high):
        rule.checked(name, end)
    return replace(dimension, low=low, high=high)


def _low(rule: Rule) -> float:
    """Return the smallest value that a setting may have; nothing finite where it has none."""
    return rule.low if isinstance(rule, Whole | Number) else -math.inf


def _high(rule: Rule) -> float:
    """Return the largest value that a setting may have; one against slips of the keyboard alone does not count."""
    if isinstance(rule, Whole):
        return rule.high if rule.high < MOST else math.inf
    return rule.high if isinstance(rule, Number) and rule.high < LARGEST else math.inf


# The settings of training length are no part of any space: validation entries choose the best epoch. Neither is
# `inputs`: validation entries are of known rows and columns, which "raw" predicts better, and new ones far worse.
_BRANCHES: Space = {
    "hidden_sizes": Choice(((128,), (512,), (2048,), (512, 256))),
    "latent_size": Factors(16, 1024),
    "dropout": Range(high=0.9),
}
_DMF: Space = {**_BRANCHES, "learning_rate": Factors(1e-3, 3e-2), "decay_every": Factors(10, 100)}
_AUTOREC: Space = {
    "hidden_size": Factors(50, 1000),
    "gamma": Factors(0.3, 1000.0),
    "learning_rate": Factors(5e-4, 3e-2),
    "initial": Factors(0.1, 2.0),
}
_CFNADE: Space = {
    "hidden_size": Factors(50, 1000),
    "gamma": Factors(1e-3, 0.3),
    "learning_rate": Factors(3e-4, 2e-2),
    "normalise": Choice(),
}

_OF_FEATURES: Space = {"feature_penalty": Factors(0.3, 300.0)}

# By the names of the registry; `space_of` completes the ends that a setting has of its own.
SEARCHED: Mapping[str, Space] = {
    "dmf": _DMF,
    "dmf-d": {
        **_DMF,
        "sharpness": Factors(0.03, 3.0),
        "sharpness_growth": Range(high=1.05),
        "gamma_boundaries": Factors(1e-2, 1.0),
    },
    # Penalties are chosen on held-out entries in every fit.
    "dmf-o": {
        **_BRANCHES,
        "hidden_sizes": Choice(((64,), (128,), (512,), (1024,), (2048,))),
        "learning_rate": Factors(3e-4, 1e-2),
        "mask_rate": Range(0.2, 0.9),
    },
    "i-autorec": _AUTOREC,
    "u-autorec": _AUTOREC,
    "deep-u-autorec": {
        "hidden_sizes": Choice(((64, 64, 128), (128, 128, 256), (256, 256, 512), (512, 512, 1024))),
        "dropout": Range(high=0.9),
        "learning_rate": Factors(2e-3, 0.1),
        "batch_size": Factors(32, 512),
        "refeeds": Range(high=2),
    },
    "i-cf-nade": _CFNADE,
    "u-cf-nade": _CFNADE,
    "optspace": {"latent_size": Factors(high=50), "trimming": Range(high=5.0)},
    "rankk": {
        "latent_size": Factors(high=50),
        "penalty": Factors(0.01, 10.0),
        "penalty_growth": Range(high=1.1),
    },
    "rdmc": {
        "latent_size": Factors(2, 50),
        "gamma": Factors(0.05, 3.0),
        "penalty": Factors(0.03, 3.0),
        "penalty_growth": Range(high=1.1),
        "level_penalty": Factors(1e-5, 1e-2),
        "level_penalty_growth": Range(high=1.2),
    },
    "odmc": {
        "latent_size": Factors(2, 100),
        "gamma": Factors(0.3, 30.0),
        "alpha": Factors(0.1, 10.0),
        "margin": Range(),
        "learning_rate": Factors(1e-3, 3e-2),
    },
    "als": {
        "latent_size": Factors(2, 200),
        "penalty": Factors(0.03, 3.0),
        "count_power": Range(),
        "effect_penalty": Factors(0.3, 30.0),
    },
    "means": {"shrinkage": Factors(0.1, 100.0)},
}
