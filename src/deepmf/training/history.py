"""The history of a training: its epochs, its best epoch, why it stopped, and how it is shown and stored."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from deepmf.errors import BadModelFile
from deepmf.files import import_polars
from deepmf.formatting import format_amount, format_duration, format_quantity
from deepmf.plots import build_notebook_view, list_points, plot_history

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    """One epoch: its mean loss over steps, its validation error if it was computed, and notes of the model."""

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
    records
        One record per epoch.
    best_epoch, best_error
        Epoch with the lowest validation error, counted from 0, and that error.
    stopped
        "epochs" (all epochs were run), "patience", "interrupted" or "diverged"; empty while training runs.
    threads
        Number of CPU threads that torch used.
    means_error
        Validation error of the shrunk means (`Means`), which `best_error` should beat; rounded to levels if the model
        predicts levels.
    stages
        Validation error after each stage that follows the epochs, if there is any.
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
        known = [record.seconds for record in self.records if record.seconds is not None]
        return sum(known) if len(known) == len(self.records) else None

    def __repr__(self) -> str:
        return f"History({', '.join(filter(None, [describe_training(self), describe_errors(self)]))})"

    def _repr_html_(self) -> str:
        facts = {"training": describe_training(self)}
        if self.best_error is not None:
            facts["validation RMSE"] = describe_errors(self).removeprefix("validation RMSE ")
        if self.best_epoch is not None:
            facts["best epoch"] = str(self.best_epoch + 1)
        return build_notebook_view("History", facts, list_curves(self))

    def to_frame(self) -> Any:
        """Return a polars frame with one line per epoch, counted from 1.

        The columns are epoch, loss, validation error, learning rate and seconds, and one for each note of the model,
        such as boundaries.
        """
        polars = import_polars()
        plain = [vars(record) | {"epoch": record.epoch + 1} for record in self.records]
        notes = dict.fromkeys(name for record in self.records for name in record.notes)
        columns = ("epoch", "loss", "validation_error", "learning_rate", "seconds")
        schema = {name: polars.Int64 if name == "epoch" else polars.Float64 for name in columns}
        frame = polars.DataFrame([{name: line[name] for name in columns} for line in plain], schema=schema)
        return frame.with_columns(polars.Series(name, [line["notes"].get(name) for line in plain]) for name in notes)

    def drop_times(self) -> History:
        """Return the part that is the same in every run with the same entries, settings and seed."""
        return replace(self, records=[replace(record, seconds=None) for record in self.records], threads=None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Any) -> History:
        """Return the history that `to_dict` described; raise `BadModelFile` for impossible values."""
        _check_names(plain, cls, "history")
        if not isinstance(plain["records"], list):
            raise BadModelFile(f"the records of a stored history must be a list; got {_shorten(plain['records'])}")
        records = [_read_record(each, epoch) for epoch, each in enumerate(plain["records"])]
        best = plain["best_epoch"]
        if best is not None and (type(best) is not int or not 0 <= best <= len(records)):
            raise BadModelFile(f"the stored history has {len(records)} epochs; its best one cannot be {_shorten(best)}")
        if not isinstance(plain["stopped"], str) or plain["stopped"] not in ENDINGS:
            raise BadModelFile(f"the stored history has an unknown end: {_shorten(plain['stopped'])}")
        threads = plain["threads"]
        if threads is not None and (type(threads) is not int or threads < 1):
            raise BadModelFile(f"the stored number of threads must be at least 1; got {_shorten(threads)}")
        best_error, means_error = (_read_error(plain, name) for name in ("best_error", "means_error"))
        stages = plain["stages"]
        if not isinstance(stages, dict) or not all(isinstance(name, str) for name in stages):
            raise BadModelFile(f"the stored stages of a history must have names; got {_shorten(stages)}")
        errors = {name: _read_error(stages, name) for name in stages}
        if None in errors.values():
            raise BadModelFile("the stored stages of a history must have an error each")
        return cls(records, best, best_error, plain["stopped"], threads, means_error, errors)  # type: ignore[arg-type]


Callback = Callable[[EpochRecord, History], None]  # called after each epoch


def describe_stages(stages: Mapping[str, float]) -> str:
    """Describe the validation error of each stage and its gain.

    >>> describe_stages({"branches": 0.87, "refined": 0.862, "with the linear part": 0.862})
    '0.8700 by the branches, 0.8620 refined (-0.0080), 0.8620 with the linear part (no gain)'
    """
    (first, before), *later = stages.items()
    words = [f"{before:.4f} by the {first}"]
    for name, error in later:
        gain = f"{error - before:+.4f}"
        words.append(f"{error:.4f} {name} ({'no gain' if float(gain) == 0 else gain})")
        before = error
    return ", ".join(words)


def describe_training(history: History) -> str:
    """Describe the length of training and why it stopped: 20 epochs in 1.2 s; all epochs were run."""
    ending = ENDINGS[history.stopped]
    took = "" if history.seconds is None else f" in {format_duration(history.seconds)}"
    return f"{format_quantity(len(history), 'epoch')}{took}" + (f"; {ending}" if ending else "")


def describe_errors(history: History) -> str:
    """Describe the validation error and that of the means: validation RMSE 0.686; means 0.831."""
    if history.best_error is None:
        return ""
    means = "" if history.means_error is None else f"; means {format_amount(history.means_error)}"
    return f"validation RMSE {format_amount(history.best_error)}{means}"


def list_curves(history: History) -> dict[str, Callable[[], Axes]]:
    """Return a function by caption that draws each curve with points: the loss and the validation error by epoch."""
    captions = {"loss": "Loss on the training entries", "validation_error": "RMSE on the validation entries"}
    return {
        caption: partial(plot_history, history, metric=metric)
        for metric, caption in captions.items()
        if list_points(history, metric)
    }


def _read_record(plain: Any, epoch: int) -> EpochRecord:
    _check_names(plain, EpochRecord, f"record of epoch {epoch}")
    if type(plain["epoch"]) is not int or plain["epoch"] != epoch:
        raise BadModelFile(f"the stored record of epoch {epoch} is numbered {_shorten(plain['epoch'])}")
    notes = plain["notes"]
    if not isinstance(notes, dict) or not all(map(_is_note, notes.values())):
        raise BadModelFile(f"the stored notes of an epoch must be numbers or lists of them; got {_shorten(notes)}")
    loss = _read_number(plain, "loss")
    assert loss is not None
    error, rate, seconds = (
        _read_number(plain, name, optional=True) for name in ("validation_error", "learning_rate", "seconds")
    )
    return EpochRecord(epoch, loss, error, rate, seconds, notes)


def _check_names(plain: Any, kind: type[History | EpochRecord], what: str) -> None:
    wanted = [each.name for each in fields(kind)]
    if not isinstance(plain, dict) or sorted(plain) != sorted(wanted):
        raise BadModelFile(f"the stored {what} must have {', '.join(wanted)}; got {_shorten(plain)}")


def _read_number(plain: dict[str, Any], name: str, *, optional: bool = False) -> float | None:
    value = plain[name]
    if value is None and optional:
        return None
    if not _is_number(value):
        raise BadModelFile(f"the stored {name} of a history must be a number; got {_shorten(value)}")
    return float(value)


def _read_error(plain: dict[str, Any], name: str) -> float | None:
    error = _read_number(plain, name, optional=True)
    if error is not None and error < 0:
        raise BadModelFile(f"the stored {name} of a history must be at least 0; got {_shorten(error)}")
    return error


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_note(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(item is None or _is_number(item) for item in items)


_shorten = reprlib.repr  # a file may hold anything in place of a number
