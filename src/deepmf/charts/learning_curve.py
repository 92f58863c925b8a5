"""The learning curve: a number that was noted epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepmf.charts.chart import Chart
from deepmf.charts.lines import curve

_MOST_POINTS = 300  # of a curve: more would not be seen, only loaded

Points = Sequence[tuple[int, float]]  # epochs, counted from 1, and numbers


def learning_curve(name: str, points: Points, *, what: str, kept: int | None = None) -> Chart:
    """Return a curve through (epoch, number) points, with a ring around that of the epoch that was kept."""
    epochs, numbers = zip(*_thinned(points, keep=kept), strict=True)
    title = f"{name}: {numbers[0]:.4g} in epoch {epochs[0]}, {numbers[-1]:.4g} in epoch {epochs[-1]}"
    best = epochs.index(kept) if kept in epochs else None
    return curve(epochs, numbers, title=title, x_label="epoch", y_label=what, best=best)


def _thinned(points: Points, *, keep: int | None) -> Points:
    """Return points at even distances, the first, the last and that of an epoch to keep among them."""
    if len(points) <= _MOST_POINTS:
        return points
    even = {int(at) for at in np.linspace(0, len(points) - 1, _MOST_POINTS).round()}
    return [point for at, point in enumerate(points) if at in even or point[0] == keep]
