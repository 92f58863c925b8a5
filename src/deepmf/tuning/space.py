"""Which settings of each model are worth tuning, and between which values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Range:
    """All numbers between two ends, both included; whole ones where both ends are whole."""

    low: float
    high: float

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
    """One of some values."""

    options: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Say whether a value is one of the options."""
        return value in self.options


Dimension = Range | Choice
Space = Mapping[str, Dimension]

# The settings of training length are no part of any space: validation entries choose the best epoch. Neither is
# `inputs`: validation entries are of known rows and columns, which "raw" predicts better, and new ones far worse.
_BRANCHES: Space = {
    "hidden_sizes": Choice(((128,), (512,), (2048,), (512, 256))),
    "latent_size": Factors(16, 1024),
    "dropout": Range(0.0, 0.9),
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
    "normalise": Choice(("none", "root", "count")),
}

# By the names of the registry.
SPACES: Mapping[str, Space] = {
    "dmf": _DMF,
    "dmf-d": {
        **_DMF,
        "sharpness": Factors(0.03, 3.0),
        "sharpness_growth": Range(1.0, 1.05),
        "gamma_boundaries": Factors(1e-2, 1.0),
    },
    "dmf-o": {
        **_BRANCHES,
        "learning_rate": Factors(3e-4, 1e-2),
        "mask_rate": Range(0.2, 0.9),
        "row_penalty": Factors(1.0, 30.0),
        "column_penalty": Factors(3.0, 100.0),
    },
    "i-autorec": _AUTOREC,
    "u-autorec": _AUTOREC,
    "deep-u-autorec": {
        "hidden_sizes": Choice(((64, 64, 128), (128, 128, 256), (256, 256, 512), (512, 512, 1024))),
        "dropout": Range(0.0, 0.9),
        "learning_rate": Factors(2e-3, 0.1),
        "batch_size": Factors(32, 512),
        "refeeds": Range(0, 2),
    },
    "i-cf-nade": _CFNADE,
    "u-cf-nade": _CFNADE,
    "optspace": {"latent_size": Factors(1, 50), "trimming": Range(1.0, 5.0)},
    "rankk": {
        "latent_size": Factors(1, 50),
        "penalty": Factors(0.01, 10.0),
        "penalty_growth": Range(1.0, 1.1),
    },
    "rdmc": {
        "latent_size": Factors(2, 50),
        "gamma": Factors(0.05, 3.0),
        "penalty": Factors(0.03, 3.0),
        "penalty_growth": Range(1.0, 1.1),
        "level_penalty": Factors(1e-5, 1e-2),
        "level_penalty_growth": Range(1.0, 1.2),
    },
    "odmc": {
        "latent_size": Factors(2, 100),
        "gamma": Factors(0.3, 30.0),
        "alpha": Factors(0.1, 10.0),
        "margin": Range(0.0, 0.5),
        "learning_rate": Factors(1e-3, 3e-2),
    },
    "als": {
        "latent_size": Factors(2, 200),
        "penalty": Factors(0.03, 3.0),
        "count_power": Range(0.0, 1.0),
        "effect_penalty": Factors(0.3, 30.0),
    },
    "means": {"shrinkage": Factors(0.1, 100.0)},
}
