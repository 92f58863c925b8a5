"""The settings of models, checked on creation: those of every model, of the training loop, of networks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from typing import Any, ClassVar, Self

from deepmf.errors import BadSetting, nearest_name
from deepmf.training.declarations import rule_of, settings_dataclass
from deepmf.training.setting_rules import choice, number, period, whole


@settings_dataclass
class Settings:
    """The settings of every model."""

    chosen_at_fit: ClassVar[Collection[str]] = ()  # the names of those that are chosen where they are not given

    # As large as what numpy draws where no seed is given.
    seed: int = whole(0, low=0, high=2**128 - 1, meaning="The seed of all that is random.")

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
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
