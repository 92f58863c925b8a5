"""How a history is shown: in a line, as a frame, and with its learning curves in a notebook."""

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


# Why training stopped; nothing while it runs.
ENDINGS = ("", "epochs", "patience", "interrupted", "diverged")


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: its loss (a mean over steps), validation error where it was computed, and the notes of the model."""

    epoch: int
    loss: float
    validation_error: float | None
    learning_rate: float | None  # None where there are no steps of a size
    seconds: float | None  # None where it is not known, as of a model that was loaded
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(repr=False)
class History:
    """All epochs so far, the best one by validation error, and why training stopped.

    `stopped` is "epochs" (all done), "patience", "interrupted" or "diverged"; empty while it runs. `threads` is how
    many CPU threads torch used. `means_error` is the validation error of the shrunk means, which `best_error` should be
    below; where the model predicts levels, that of the levels nearest to them. `stages` has the validation error by
    what is done after the epochs, from that of the best epoch to `best_error`, where anything is.
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
        """Time spent in all epochs; None where it is not known, as of a model that was loaded."""
        known = [record.seconds for record in self.records if record.seconds is not None]
        return sum(known) if len(known) == len(self.records) else None

    def __repr__(self) -> str:
        return history_line(self)

    def _repr_html_(self) -> str:
        return history_html(self)

    def to_frame(self) -> Any:
        """Return a polars frame with a line for each epoch, counted from 1: loss, validation error, step size, seconds.

        What a model noted beside, such as boundaries, is in columns of its own.
        """
        return history_frame(self)

    def without_times(self) -> History:
        """Return what is the same in every run with the same entries, settings and seed."""
        return replace(self, records=[replace(record, seconds=None) for record in self.records], threads=None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Any) -> History:
        """Return the history that `to_dict` gave; anything that could not have been one raises `BadModelFile`."""
        _check_names(plain, cls, "history")
        if not isinstance(plain["records"], list):
            raise BadModelFile(f"the records of a stored history must be a list; got {_shown(plain['records'])}")
        records = [_read_record(each, epoch) for epoch, each in enumerate(plain["records"])]
        best = plain["best_epoch"]
        if best is not None and (type(best) is not int or not 0 <= best <= len(records)):
            raise BadModelFile(f"the stored history has {len(records)} epochs; its best one cannot be {_shown(best)}")
        if plain["stopped"] not in ENDINGS:
            raise BadModelFile(f"the stored history cannot have ended by {_shown(plain['stopped'])}")
        threads = plain["threads"]
        if threads is not None and (type(threads) is not int or threads < 1):
            raise BadModelFile(f"the stored number of threads must be at least 1; got {_shown(threads)}")
        best_error, means_error = (_read_error(plain, name) for name in ("best_error", "means_error"))
        stages = plain["stages"]
        if not isinstance(stages, dict) or not all(isinstance(name, str) for name in stages):
            raise BadModelFile(f"the stored stages of a history must have names; got {_shown(stages)}")
        errors = {name: _read_error(stages, name) for name in stages}
        if None in errors.values():
            raise BadModelFile("the stored stages of a history must have an error each")
        return cls(records, best, best_error, plain["stopped"], threads, means_error, errors)  # type: ignore[arg-type]


Callback = Callable[[EpochRecord, History], None]  # called after each epoch


def describe_stages(stages: Mapping[str, float]) -> str:
    """Say which validation error each stage has, and how much it gains.

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


def _read_record(plain: Any, epoch: int) -> EpochRecord:
    """Return what was kept of an epoch."""
    _check_names(plain, EpochRecord, f"record of epoch {epoch}")
    if type(plain["epoch"]) is not int or plain["epoch"] != epoch:
        raise BadModelFile(f"the stored record of epoch {epoch} cannot be that of {_shown(plain['epoch'])}")
    notes = plain["notes"]
    if not isinstance(notes, dict) or not all(map(_is_note, notes.values())):
        raise BadModelFile(f"the stored notes of an epoch must be numbers or lists of them; got {_shown(notes)}")
    loss = _read_number(plain, "loss")
    assert loss is not None
    error, rate, seconds = (
        _read_number(plain, name, optional=True) for name in ("validation_error", "learning_rate", "seconds")
    )
    return EpochRecord(epoch, loss, error, rate, seconds, notes)


def _check_names(plain: Any, kind: type[History | EpochRecord], what: str) -> None:
    wanted = [each.name for each in fields(kind)]
    if not isinstance(plain, dict) or sorted(plain) != sorted(wanted):
        raise BadModelFile(f"the stored {what} must have {', '.join(wanted)}; got {_shown(plain)}")


def _read_number(plain: dict[str, Any], name: str, *, optional: bool = False) -> float | None:
    value = plain[name]
    if value is None and optional:
        return None
    if not _is_number(value):
        raise BadModelFile(f"the stored {name} of a history must be a number; got {_shown(value)}")
    return float(value)


def _read_error(plain: dict[str, Any], name: str) -> float | None:
    error = _read_number(plain, name, optional=True)
    if error is not None and error < 0:
        raise BadModelFile(f"the stored {name} of a history must be at least 0; got {_shown(error)}")
    return error


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_note(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(item is None or _is_number(item) for item in items)


_shown = reprlib.repr  # a file may hold much where a number should be


_ENDINGS = {
    "epochs": "all epochs were run",
    "patience": "the validation error had stopped improving",
    "interrupted": "training was interrupted",
    "diverged": "training diverged: the loss was no longer a number",
}


def describe_training(history: History) -> str:
    """Say how long training was, and why it ended: 20 epochs in 1.2 s; all epochs were run."""
    ending = _ENDINGS.get(history.stopped)
    took = "" if history.seconds is None else f" in {format_duration(history.seconds)}"
    return f"{format_quantity(len(history), 'epoch')}{took}" + (f"; {ending}" if ending else "")


def describe_errors(history: History) -> str:
    """Return the validation error and that of the means: validation RMSE 0.686; means 0.831."""
    if history.best_error is None:
        return ""
    means = "" if history.means_error is None else f"; means {format_amount(history.means_error)}"
    return f"validation RMSE {format_amount(history.best_error)}{means}"


def history_line(history: History) -> str:
    """Return a history in a line."""
    return f"History({', '.join(filter(None, [describe_training(history), describe_errors(history)]))})"


def history_frame(history: History) -> Any:
    """Return a line for each epoch as a polars frame; what a model noted beside has columns of its own."""
    polars = import_polars()
    plain = [vars(record) | {"epoch": record.epoch + 1} for record in history.records]
    notes = dict.fromkeys(name for record in history.records for name in record.notes)
    kept = ("epoch", "loss", "validation_error", "learning_rate", "seconds")
    schema = {name: polars.Int64 if name == "epoch" else polars.Float64 for name in kept}
    frame = polars.DataFrame([{name: line[name] for name in kept} for line in plain], schema=schema)
    return frame.with_columns(polars.Series(name, [line["notes"].get(name) for line in plain]) for name in notes)


def history_html(history: History) -> str:
    """Return a history with its learning curves, as a notebook shows it."""
    facts = {"training": describe_training(history)}
    if history.best_error is not None:
        facts["validation RMSE"] = describe_errors(history).removeprefix("validation RMSE ")
    if history.best_epoch is not None:
        facts["best epoch"] = str(history.best_epoch + 1)
    return build_notebook_view("History", facts, list_curves(history))


def list_curves(history: History) -> dict[str, Callable[[], Axes]]:
    """Return functions that draw the loss and the validation error by epoch, where there are any, by caption."""
    captions = {"loss": "Loss on the training entries", "validation_error": "RMSE on the validation entries"}
    return {
        caption: partial(plot_history, history, metric=metric)
        for metric, caption in captions.items()
        if list_points(history, metric)
    }
