"""How a history is shown: in a line, as a frame, and with its learning curves in a notebook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from deepmf.charts.chart import Chart
from deepmf.charts.learning_curve import learning_curve
from deepmf.charts.notebook_view import notebook_view
from deepmf.charts.wording import amount, counted, duration
from deepmf.files.frame_library import import_polars

if TYPE_CHECKING:
    from deepmf.training.history import History

_ENDINGS = {
    "epochs": "all epochs were run",
    "patience": "the validation error had stopped improving",
    "interrupted": "training was interrupted",
    "diverged": "training diverged: the loss was no longer a number",
}


def noted(history: History, name: str) -> list[tuple[int, float]]:
    """Return epochs from 1 on and what was noted under a name, where that is a number."""
    found = ((record.epoch + 1, getattr(record, name)) for record in history.records)
    return [(epoch, number) for epoch, number in found if number is not None and math.isfinite(number)]


def training_in_words(history: History) -> str:
    """Say how long training was, and why it ended: 20 epochs in 1.2 s; all epochs were run."""
    ending = _ENDINGS.get(history.stopped)
    took = "" if history.seconds is None else f" in {duration(history.seconds)}"
    return f"{counted(len(history), 'epoch')}{took}" + (f"; {ending}" if ending else "")


def errors_in_words(history: History) -> str:
    """Return the validation error and that of the means: validation RMSE 0.686; means 0.831."""
    if history.best_error is None:
        return ""
    means = "" if history.means_error is None else f"; means {amount(history.means_error)}"
    return f"validation RMSE {amount(history.best_error)}{means}"


def history_line(history: History) -> str:
    """Return a history in a line."""
    return f"History({', '.join(filter(None, [training_in_words(history), errors_in_words(history)]))})"


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
    facts = {"training": training_in_words(history)}
    if history.best_error is not None:
        facts["validation RMSE"] = errors_in_words(history).removeprefix("validation RMSE ")
    if history.best_epoch is not None:
        facts["best epoch"] = str(history.best_epoch + 1)
    return notebook_view("History", facts, learning_curves(history))


def learning_curves(history: History) -> dict[str, Chart]:
    """Return the loss and the validation error by epoch, under the names of their charts, where there are any."""
    kept = None if history.best_epoch is None else history.best_epoch + 1
    curves = {}
    if losses := noted(history, "loss"):
        name = "Loss on the training entries"
        curves[name] = learning_curve(name, losses, what="loss")
    if errors := noted(history, "validation_error"):
        name = "RMSE on the validation entries"
        curves[name] = learning_curve(name, errors, what="RMSE", kept=kept)
    return curves
