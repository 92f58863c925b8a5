"""The settings of models, checked when they are made: of any, of one learned in epochs, of one that is a network."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from deepmf.errors import BadSetting


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every model is given: the seed of all that is random."""

    seed: int = 0

    def __post_init__(self) -> None:
        self.check_whole("seed", low=0)

    @classmethod
    def from_names(cls, given: Mapping[str, Any]) -> Self:
        """Make settings from names and values; a name that does not exist is an error that says the nearest."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
                raise BadSetting(f"there is no setting {name!r}{hint}")
        return cls(**{name: _plain(value) for name, value in given.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    def check_whole(self, name: str, *, low: int) -> None:
        """Refuse a setting that is not a whole number from `low` up."""
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise BadSetting(f"{name} must be a whole number of at least {low}; got {value!r}")

    def check_number(
        self, name: str, *, low: float = float("-inf"), above: float = float("-inf"), high: float = float("inf")
    ) -> None:
        """Refuse a setting that is not a number in the given range."""
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (low <= value <= high and value > above and value != float("inf")):
            bounds = [f"above {above:g}"] if above > float("-inf") else []
            bounds += [f"at least {low:g}"] if low > float("-inf") else []
            bounds += [f"at most {high:g}"] if high < float("inf") else []
            raise BadSetting(f"{name} must be a number {' and '.join(bounds)}; got {value!r}")

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

    learning_rate, decay, decay_every: the optimiser's step size, multiplied by `decay` every so many epochs.
    device: "auto" (a GPU where there is one), "cpu" or "cuda".
    precision: "auto" (half on a GPU, single elsewhere), "single" or "half" (bfloat16 products).
    """

    validate_every: int = 5
    learning_rate: float = 1e-2
    decay: float = 0.65
    decay_every: int = 50
    device: str = "auto"
    precision: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_whole("decay_every", low=1)
        self.check_number("learning_rate", above=0.0)
        self.check_number("decay", above=0.0, high=1.0)
        self.check_choice("device", ("auto", "cpu", "cuda"))
        self.check_choice("precision", ("auto", "single", "half"))


def _plain(value: Any) -> Any:
    """Return Python's own numbers and tuples for numpy's."""
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value
