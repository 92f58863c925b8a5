"""The sections on the fit: its learning curve, the settings, and what ran it."""

from __future__ import annotations

import math
import platform
import time
from importlib import metadata
from typing import Any

import numpy as np
import torch

from deepmf.report.charts import OTHER, curve
from deepmf.report.findings import Findings
from deepmf.report.markup import Markup, figure, paragraph, table, tag
from deepmf.report.section import LeftOut, Section
from deepmf.report.wording import counted
from deepmf.training.history import History
from deepmf.training.runtime import Runtime

_MOST_POINTS = 300  # of a curve: more would not be seen, only loaded
_ENDINGS = {
    "epochs": "all epochs were run",
    "patience": "the validation error had stopped improving",
    "interrupted": "training was interrupted",
    "diverged": "training diverged: the loss was no longer a number",
}


def learning_section(found: Findings) -> Section | LeftOut:
    """Return the loss and the validation error, epoch by epoch."""
    title, history = "Learning curve", found.model.history_
    losses, errors = _points(history, "loss"), _points(history, "validation_error")
    if not losses:
        return LeftOut(title, f"{found.measured.name} is not learned in epochs")
    charts = [_curve("Loss on the training entries", losses, "loss")]
    how = (
        "The curve should fall and level off; without validation entries it does not tell whether the model has begun "
        "to learn its training entries by heart."
    )
    if errors:
        charts.append(_curve("RMSE on the validation entries", errors, "RMSE", best=_best(history)))
        how = (
            "Both curves should fall and level off; a validation error that rises while the loss still falls means "
            "that the model has begun to learn its training entries by heart."
        )
    return Section(title, how, tag("div", paragraph(_told(history)), tag("div", *charts, class_="charts")))


def _points(history: History, name: str) -> list[tuple[int, float]]:
    """Return epochs from 1 on and what was noted under a name, where that is a number."""
    noted = ((record.epoch + 1, getattr(record, name)) for record in history.records)
    return [(epoch, number) for epoch, number in noted if number is not None and math.isfinite(number)]


def _best(history: History) -> tuple[int, float] | None:
    """Return the epoch that validation chose, from 1 on, and its error."""
    if history.best_epoch is None or history.best_error is None:
        return None
    return history.best_epoch + 1, history.best_error


def _curve(name: str, points: list[tuple[int, float]], what: str, best: tuple[int, float] | None = None) -> Markup:
    epochs, numbers = zip(*_thinned(points), strict=True)
    said = f"{name}: {numbers[0]:.4g} in epoch {epochs[0]}, {numbers[-1]:.4g} in epoch {epochs[-1]}"
    picture = curve(epochs, numbers, title=said, x_label="epoch", y_label=what, best=best)
    return figure(name, picture, legend=[(OTHER, f"best: {best[1]:.4g} in epoch {best[0]}")] if best else ())


def _told(history: History) -> str:
    said = f"Training ran for {counted(len(history), 'epoch')} in {_duration(history.seconds)}"
    said += f"; {_ENDINGS[history.stopped]}." if history.stopped in _ENDINGS else "."
    best = _best(history)
    if best is not None:
        return f"{said} The model is that of epoch {best[0]}, whose validation RMSE of {best[1]:.4f} is the lowest."
    kept = len(history) if history.best_epoch is None else history.best_epoch + 1
    return f"{said} There were no validation entries to choose an epoch by; the model is that of epoch {kept}."


def settings_section(found: Findings) -> Section:
    """Return the settings of the model and what made this page."""
    model = found.model
    settings = [[name, _setting(value)] for name, value in model.settings.to_dict().items()]
    runtime = [
        ["page written", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())],
        ["deepmf", _version()],
        ["Python", platform.python_version()],
        ["torch", str(torch.__version__)],
        ["numpy", np.__version__],
        ["system", f"{platform.system()}, {platform.machine()}"],
        ["device", Runtime().describe()],
    ]
    return Section(
        title="Settings and runtime",
        how="With these settings and the same entries the same model can be fitted again; the second table says where "
        "this page was made, which need not be where the model was fitted.",
        body=tag(
            "div",
            table(f"Settings of {type(model).__name__}", ["setting", "value"], settings),
            table("What made this page", ["what", "which"], runtime),
            class_="charts words",
        ),
    )


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return points at even distances, the first and the last among them."""
    if len(points) <= _MOST_POINTS:
        return points
    return [points[at] for at in np.linspace(0, len(points) - 1, _MOST_POINTS).round().astype(int).tolist()]


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _setting(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_setting(item) for item in value)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _version() -> str:
    try:
        return metadata.version("deepmf")
    except metadata.PackageNotFoundError:
        return "unknown"
