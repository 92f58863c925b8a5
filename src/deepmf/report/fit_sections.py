"""The sections on the fit: its learning curve, the settings, and the environment."""

from __future__ import annotations

import platform
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from deepmf.plots import list_points
from deepmf.report.content import Figure, LeftOut, Section, Table
from deepmf.report.findings import Findings
from deepmf.training.history import History, describe_stages
from deepmf.training.history_view import learning_curves, training_in_words
from deepmf.training.runtime import Runtime

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def learning_section(found: Findings) -> Section | LeftOut:
    """Return the loss and the validation error, epoch by epoch."""
    title, history = "Learning curve", found.model.history_
    errors = dict(list_points(history, "validation_error"))
    if not list_points(history, "loss"):
        return LeftOut(title, f"{found.measured.name} is not learned in epochs")
    curves = [_figure(history, name, plot()) for name, plot in learning_curves(history).items()]
    how = (
        "The curve should fall and level off; without validation entries it does not show whether the model has begun "
        "to overfit the training entries."
    )
    if errors:
        how = (
            "Both curves should fall and level off; a validation error that rises while the loss still falls means "
            "that the model has begun to overfit the training entries."
        )
    return Section(title, how, "learning.html", {"sentence": _sentence(history, errors), "curves": curves})


def _figure(history: History, name: str, plot: Axes) -> Figure:
    """Return a learning curve, described by its first and its last number."""
    points = list_points(history, "loss" if "Loss" in name else "validation_error")
    ends = ", ".join(f"{number:.4g} in epoch {epoch}" for epoch, number in (points[0], points[-1]))
    return Figure(name, plot, f"{name}: {ends}")


def _sentence(history: History, errors: dict[int, float]) -> str:
    sentence = f"Training ran for {training_in_words(history)}."
    kept = len(history) if history.best_epoch is None else history.best_epoch + 1
    if history.best_error is None:
        return f"{sentence} There were no validation entries to choose an epoch by; the model is that of epoch {kept}."
    lowest = errors.get(kept, history.best_error)
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


def _setting(value: Any) -> str:
    """Return the value of a setting as text."""
    if isinstance(value, list | tuple):
        return ", ".join(_setting(item) for item in value)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _version() -> str:
    try:
        return metadata.version("deepmf")
    except metadata.PackageNotFoundError:
        return "unknown"
