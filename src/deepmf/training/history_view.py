"""How a history is shown: in a line, as a frame, and with its learning curves in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from deepmf.files.frame_library import import_polars
from deepmf.formatting import format_amount, format_duration, format_quantity
from deepmf.plots import build_notebook_view, list_points, plot_history

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deepmf.training.history import History

_ENDINGS = {
    "epochs": "all epochs were run",
    "patience": "the validation error had stopped improving",
    "interrupted": "training was interrupted",
    "diverged": "training diverged: the loss was no longer a number",
}


def training_in_words(history: History) -> str:
    """Say how long training was, and why it ended: 20 epochs in 1.2 s; all epochs were run."""
    ending = _ENDINGS.get(history.stopped)
    took = "" if history.seconds is None else f" in {format_duration(history.seconds)}"
    return f"{format_quantity(len(history), 'epoch')}{took}" + (f"; {ending}" if ending else "")


def errors_in_words(history: History) -> str:
    """Return the validation error and that of the means: validation RMSE 0.686; means 0.831."""
    if history.best_error is None:
        return ""
    means = "" if history.means_error is None else f"; means {format_amount(history.means_error)}"
    return f"validation RMSE {format_amount(history.best_error)}{means}"


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
    return build_notebook_view("History", facts, learning_curves(history))


def learning_curves(history: History) -> dict[str, Callable[[], Axes]]:
    """Return functions that draw the loss and the validation error by epoch, where there are any, by caption."""
    captions = {"loss": "Loss on the training entries", "validation_error": "RMSE on the validation entries"}
    return {
        caption: partial(plot_history, history, metric=metric)
        for metric, caption in captions.items()
        if list_points(history, metric)
    }
