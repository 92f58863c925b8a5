"""The sections on the fit: its learning curve, the settings, and the environment."""

from __future__ import annotations

import math
import platform
import time
from importlib import metadata
from typing import Any

import numpy as np
import torch

from deepmf.charts.lines import curve
from deepmf.charts.styles import OTHER
from deepmf.charts.wording import counted
from deepmf.report.content import Figure, LeftOut, Section, Table
from deepmf.report.findings import Findings
from deepmf.training.history import History, describe_stages
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
    curves = [_curve("Loss on the training entries", losses, "loss")]
    how = (
        "The curve should fall and level off; without validation entries it does not show whether the model has begun "
        "to overfit the training entries."
    )
    if errors:
        kept = None if history.best_epoch is None else history.best_epoch + 1
        curves.append(_curve("RMSE on the validation entries", errors, "RMSE", kept=kept))
        how = (
            "Both curves should fall and level off; a validation error that rises while the loss still falls means "
            "that the model has begun to overfit the training entries."
        )
    return Section(title, how, "learning.html", {"sentence": _sentence(history, errors), "curves": curves})


def _points(history: History, name: str) -> list[tuple[int, float]]:
    """Return epochs from 1 on and what was noted under a name, where that is a number."""
    noted = ((record.epoch + 1, getattr(record, name)) for record in history.records)
    return [(epoch, number) for epoch, number in noted if number is not None and math.isfinite(number)]


def _curve(name: str, points: list[tuple[int, float]], what: str, kept: int | None = None) -> Figure:
    """Return a curve through (epoch, number) points, with a ring around that of the epoch that was kept."""
    shown = _thinned(points, keep=kept)
    epochs, numbers = zip(*shown, strict=True)
    title = f"{name}: {numbers[0]:.4g} in epoch {epochs[0]}, {numbers[-1]:.4g} in epoch {epochs[-1]}"
    best = epochs.index(kept) if kept in epochs else None
    chart = curve(epochs, numbers, title=title, x_label="epoch", y_label=what, best=best)
    legend = [] if best is None else [(OTHER, f"best: {numbers[best]:.4g} in epoch {kept}")]
    return Figure(name, chart, legend)


def _sentence(history: History, errors: list[tuple[int, float]]) -> str:
    sentence = f"Training ran for {counted(len(history), 'epoch')} in {_duration(history.seconds)}"
    sentence += f"; {_ENDINGS[history.stopped]}." if history.stopped in _ENDINGS else "."
    kept = len(history) if history.best_epoch is None else history.best_epoch + 1
    if history.best_error is None:
        return f"{sentence} There were no validation entries to choose an epoch by; the model is that of epoch {kept}."
    lowest = dict(errors).get(kept, history.best_error)
    sentence += f" The model is that of epoch {kept}, whose validation RMSE of {lowest:.4f} is the lowest."
    if history.stages:
        sentence += f" What follows the epochs is not on the curve: {describe_stages(history.stages)}."
    means = history.means_error
    return sentence if means is None else f"{sentence} That of the shrunk means is {means:.4f}."


def settings_section(found: Findings) -> Section:
    """Return the settings of the model and what made this page."""
    model = found.model
    settings = [
        [name, _setting(value) + (" (chosen)" if name in model.chosen_ else "")]
        for name, value in model.settings.to_dict().items()
    ]
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
        title="Settings and environment",
        how="With these settings and the same entries the same model can be fitted again (those marked as chosen were "
        "chosen for the matrix and the machine); the second table says where "
        "this page was made, which need not be where the model was fitted.",
        template="settings.html",
        content={
            "settings": Table(f"Settings of {type(model).__name__}", ["setting", "value"], settings),
            "runtime": Table("What made this page", ["what", "which"], runtime),
        },
    )


def _thinned(points: list[tuple[int, float]], *, keep: int | None) -> list[tuple[int, float]]:
    """Return points at even distances, the first, the last and that of an epoch to keep among them."""
    if len(points) <= _MOST_POINTS:
        return points
    even = {int(at) for at in np.linspace(0, len(points) - 1, _MOST_POINTS).round()}
    return [point for at, point in enumerate(points) if at in even or point[0] == keep]


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
