"""The history of a training: its epochs, its best epoch, why it stopped, and how it is shown and
stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from deepmf.formatting import format_amount, format_duration, format_quantity
from deepmf.storage.parts import (
    Check,
    Form,
    Part,
    at_most,
    is_number,
    not_negative,
    one_of,
    positive,
)

# Why training stopped; empty while it runs.
ENDINGS = {
    "": "",
    "epochs": "all epochs were run",
    "patience": "the validation error had stopped improving",
    "interrupted": "training was interrupted",
    "diverged": "training diverged: the loss was no longer a number",
}


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: its mean loss over steps, its validation error if it was computed, and notes of
    the model."""

    epoch: int
    loss: float
    validation_error: float | None
    learning_rate: float | None  # None for methods without a learning rate
    seconds: float | None  # None if unknown, as in a loaded model
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(repr=False)
class History:
    """All epochs so far, the best one by validation error, and why training stopped.

    Attributes
    ----------
    records : one record per epoch.
    best_epoch, best_error : epoch with the lowest validation error, counted from 0, and that error.
    stopped : "epochs" (all epochs were run), "patience", "interrupted" or "diverged"; empty while
        training runs.
    threads : number of CPU threads that torch used.
    means_error : validation error of the shrunk means (`Means`), which `best_error` should beat;
        rounded to levels if the model predicts levels.
    stages : validation error after each stage that follows the epochs, if there is any.
    """

    records: list[EpochRecord] = field(default_factory=list)
    best_epoch: int | None = None
    best_error: float | None = None
    stopped: str = ""
    threads: int | None = None
    means_error: float | None = None
    stages: dict[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def seconds(self) -> float | None:
        """Seconds spent in all epochs; None if unknown, as in a loaded model."""
        seconds = [record.seconds for record in self.records if record.seconds is not None]
        return sum(seconds) if len(seconds) == len(self.records) else None

    def __repr__(self) -> str:
        return (
            f"History({', '.join(filter(None, [describe_training(self), describe_errors(self)]))})"
        )

    def drop_times(self) -> History:
        """Return the part that is the same in every run with the same entries, settings and
        seed."""
        return replace(
            self, records=[replace(record, seconds=None) for record in self.records], threads=None
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Any) -> History:
        """Return the history that `to_dict` described; raise `BadModelFile` for impossible
        values."""
        fields = _HISTORY.read(plain)
        return cls(**fields | {"records": [EpochRecord(**record) for record in fields["records"]]})


Callback = Callable[[EpochRecord, History], None]  # called after each epoch


def describe_stages(stages: Mapping[str, float]) -> str:
    """Describe the validation error of each stage and its gain.

    >>> describe_stages({"sampler": 0.87, "network": 0.862, "neighbours": 0.862})
    '0.8700 by the sampler, 0.8620 network (-0.0080), 0.8620 neighbours (no gain)'
    """
    (first, before), *later = stages.items()
    words = [f"{before:.4f} by the {first}"]
    for name, error in later:
        gain = f"{error - before:+.4f}"
        words.append(f"{error:.4f} {name} ({'no gain' if float(gain) == 0 else gain})")
        before = error
    return ", ".join(words)


def describe_training(history: History) -> str:
    """Describe the length of training and why it stopped: 20 epochs in 1.2 s; all epochs were
    run."""
    ending = ENDINGS[history.stopped]
    took = "" if history.seconds is None else f" in {format_duration(history.seconds)}"
    return f"{format_quantity(len(history), 'epoch')}{took}" + (f"; {ending}" if ending else "")


def describe_errors(history: History) -> str:
    """Describe the validation error and that of the means: validation RMSE 0.686; means 0.831."""
    if history.best_error is None:
        return ""
    means = "" if history.means_error is None else f"; means {format_amount(history.means_error)}"
    return f"validation RMSE {format_amount(history.best_error)}{means}"


def _are_notes(notes: dict[str, Any], _: Any) -> bool:
    items = (
        item for note in notes.values() for item in (note if isinstance(note, list) else [note])
    )
    return all(item is None or is_number(item) for item in items)


_HISTORY = Form(
    Part(
        "records",
        Form(
            Part("epoch", "whole"),
            Part("loss", "number"),
            Part("validation_error", "number", optional=True),
            Part("learning_rate", "number", optional=True),
            Part("seconds", "number", optional=True),
            Part("notes", "object", (), Check("be numbers or lists of them", _are_notes)),
        ),
        ("epochs",),
        Check(
            "be numbered from 0",
            lambda records, _: all(record["epoch"] == at for at, record in enumerate(records)),
        ),
    ),
    Part("best_epoch", "whole", (), at_most("epochs"), optional=True),
    Part("best_error", "number", (), not_negative, optional=True),
    Part("stopped", "text", (), one_of(*ENDINGS)),
    Part("threads", "whole", (), positive, optional=True),
    Part("means_error", "number", (), not_negative, optional=True),
    Part(
        "stages",
        "object",
        (),
        Check(
            "be errors",
            lambda stages, _: all(is_number(error) and error >= 0 for error in stages.values()),
        ),
    ),
    prefix="history",
)
