"""The settings of models, checked when they are made: of any, of one learned in epochs, of one that is a network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Self

import numpy as np

from deepmf.errors import BadSetting, nearest_name

MOST = 10**9  # epochs, or whatever else is counted: more is a slip of the keyboard
WIDEST = 10**6  # of a layer or latent
LARGEST = 1e38  # what single precision, in which everything is learned, can hold
MOST_LAYERS = 100


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every model is given: the seed of all that is random."""

    seed: int = 0

    def __post_init__(self) -> None:
        self.check_whole("seed", low=0, high=2**128 - 1)  # as much as numpy draws where no seed is given

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

    def check_whole(self, name: str, *, low: int, high: int = MOST) -> None:
        """Refuse a setting that is not a whole number from `low` to `high`."""
        value = getattr(self, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not low <= value <= high:
            most = f" and at most {high}" if whole and value > high else ""
            raise BadSetting(f"{name} must be a whole number of at least {low}{most}; got {value!r}")

    def check_number(
        self, name: str, *, low: float = float("-inf"), above: float = float("-inf"), high: float = LARGEST
    ) -> None:
        """Refuse a setting that is not a number in the given range."""
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (low <= value <= high and value > above):
            bounds = [f"above {above:g}"] if above > float("-inf") else []
            bounds += [f"at least {low:g}"] if low > float("-inf") else []
            bounds += [f"at most {high:g}"] if high < LARGEST or (number and high < value < float("inf")) else []
            raise BadSetting(f"{name} must be a number {' and '.join(bounds)}; got {value!r}")

    def check_sizes(self, name: str, *, fewest: int = 0) -> None:
        """Refuse a setting that is not whole numbers from 1 to `WIDEST`, `fewest` or more; keep it as a tuple."""
        sizes = getattr(self, name)
        given = tuple(sizes) if isinstance(sizes, list | tuple) else (sizes,)
        whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in given)
        if not whole or len(given) < fewest or any(size > WIDEST for size in given):
            most = f" and at most {WIDEST}" if whole and any(size > WIDEST for size in given) else ""
            raise BadSetting(f"{name} must be whole numbers of at least 1{most}, such as (2048,); got {sizes!r}")
        if len(given) > MOST_LAYERS:
            raise BadSetting(f"{name} must be at most {MOST_LAYERS} numbers; got {len(given)}")
        object.__setattr__(self, name, given)

    def check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        """Refuse a setting that is none of the choices."""
        value = getattr(self, name)
        if value not in choices:
            raise BadSetting(f"{name} must be {' or '.join(map(repr, choices))}; got {value!r}")


@dataclass(frozen=True, kw_only=True)
class LoopSettings(Settings):
    """How long a model is learned.

    epochs: passes over the entries, or sweeps of a method of linear algebra.
    validate_every: epochs between looks at the validation error.
    patience: stop when the validation error has not improved for so many epochs (None: never).
    """

    epochs: int = 100
    validate_every: int = 1
    patience: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epochs", "validate_every"):
            self.check_whole(name, low=1)
        if self.patience is not None:
            self.check_whole("patience", low=1)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(LoopSettings):
    """In which steps a network is trained, and on what.

    learning_rate: the optimiser's step size at the start.
    schedule: "steps" (times `decay` every `decay_every` epochs, or at the epochs given, such as (24, 36, 48)) or
        "cosine" (down to 0 along half a wave).
    averaging: how much of the running average of the weights a step keeps, such as 0.995; validation and the trained
        model then use the average (0: the weights themselves).
    device: "auto" (a GPU where there is one), "cpu" or "cuda".
    precision: "auto" (half on a GPU, single elsewhere), "single" or "half" (bfloat16 products).
    """

    validate_every: int = 5
    learning_rate: float = 1e-2
    schedule: str = "steps"
    decay: float = 0.65
    decay_every: int | tuple[int, ...] = 50
    averaging: float = 0.0
    device: str = "auto"
    precision: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_decay_every()
        self.check_number("learning_rate", above=0.0)
        self.check_choice("schedule", ("steps", "cosine"))
        self.check_number("decay", above=0.0, high=1.0)
        self.check_number("averaging", low=0.0, high=1.0)
        self.check_choice("device", ("auto", "cpu", "cuda"))
        self.check_choice("precision", ("auto", "single", "half"))

    def learning_rate_at(self, epoch: int) -> float:
        """Return the step size of an epoch, counted from 0."""
        if self.schedule == "cosine":
            return float(self.learning_rate * (1.0 + math.cos(math.pi * epoch / self.epochs)) / 2.0)
        every = self.decay_every
        n_decays = sum(mark <= epoch for mark in every) if isinstance(every, tuple) else epoch // every
        return float(self.learning_rate * self.decay**n_decays)

    def _check_decay_every(self) -> None:
        if not isinstance(self.decay_every, list | tuple):
            self.check_whole("decay_every", low=1)
            return
        epochs = tuple(self.decay_every)
        whole = all(isinstance(epoch, int) and not isinstance(epoch, bool) and epoch >= 1 for epoch in epochs)
        if not whole or any(late <= early for early, late in pairwise(epochs)):
            raise BadSetting(f"decay_every must be increasing epochs from 1 on, such as (24, 36); got {epochs!r}")
        object.__setattr__(self, "decay_every", epochs)


def _plain(value: Any) -> Any:
    """Return Python's own numbers and tuples for numpy's."""
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value
