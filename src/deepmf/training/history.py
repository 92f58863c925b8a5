"""What happened in training, epoch by epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: its loss (a mean over steps), validation error where it was looked at, and what the model notes."""

    epoch: int
    loss: float
    validation_error: float | None
    learning_rate: float | None  # None where there are no steps of a size
    seconds: float
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class History:
    """All epochs so far, the best one by validation error, and why training stopped.

    `stopped` is "epochs" (all done), "patience", "interrupted" or "diverged"; empty while it runs. `threads` is how
    many CPU threads torch used.
    """

    records: list[EpochRecord] = field(default_factory=list)
    best_epoch: int | None = None
    best_error: float | None = None
    stopped: str = ""
    threads: int | None = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def seconds(self) -> float:
        """Time spent in all epochs."""
        return sum(record.seconds for record in self.records)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> History:
        """Return the history that `to_dict` gave."""
        records = [EpochRecord(**record) for record in plain["records"]]
        return cls(records, plain["best_epoch"], plain["best_error"], plain["stopped"], plain.get("threads"))
