"""Pictures of a comparison: error against time and against what is known of new rows or columns,
memory by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deepmf.plots import add_legend, make_axes, plot_cold_start, plot_lines
from peers.figures import Clock, Line
from peers.tasks import COUNTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 0.09  # above the lowest error; what is worse is cut off

Drawn = tuple["Axes", str]  # a plot, and a sentence that describes it


def plot_by_time(task: str, found: Sequence[Line], clock: Clock) -> Drawn | None:
    """Draw the error of each family against the time it takes to fit and to predict all test
    entries."""
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for family in dict.fromkeys(line.family for line in found):
        points = sorted(
            (line.cost(clock.value), error)
            for line in found
            if line.family == family and (error := line.mean("I", "rmse")) is not None
        )
        if points:
            curves[family] = (
                [max(seconds, 0.01) for seconds, _ in points],
                [error for _, error in points],
            )
    if not curves:
        return None
    lowest = min(min(errors) for _, errors in curves.values())
    ax = plot_lines(
        curves,
        _make_wide(len(curves)),
        x_label=f"{clock.title} to fit and to predict all test entries",
        y_label="RMSE",
        log_x=True,
        y_limits=(round(lowest - 0.005, 3), round(lowest + _SHOWN, 3)),
    )
    add_legend(ax)
    return ax, f"RMSE of {len(curves)} methods against the time they take: {task}"


def plot_new_lines(task: str, found: Sequence[Line], axis: str) -> Drawn | None:
    """Draw the error for the same entries of new rows (columns, both) as more of their other
    entries are known."""
    errors: dict[str, list[float]] = {}
    for line in found:
        means = [line.mean(f"{axis}, {count}", "rmse") for count in COUNTS]
        if None not in means:
            errors[line.title] = [mean for mean in means if mean is not None]
    if not errors:
        return None
    what = {"new rows": "row", "new columns": "column", "both": "row and column"}[axis]
    x_label = f"known entries of each new {what}, at most"
    ax = plot_cold_start(
        [str(count) for count in COUNTS], errors, _make_wide(len(errors)), x_label=x_label
    )
    add_legend(ax)
    return ax, f"RMSE as more entries of a new {what} are known, {len(errors)} methods: {task}"


def plot_memory(found: Mapping[int, Sequence[Line]]) -> Drawn | None:
    """Draw the peak memory of each method against the number of entries that it is fitted to."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for size, of_size in sorted(found.items()):
        for line in of_size:
            sizes, memory = curves.setdefault(line.title, ([], []))
            sizes.append(size)
            memory.append(line.cost("peak_memory_mb"))
    if not curves:
        return None
    ax = plot_lines(
        curves, _make_wide(len(curves)), x_label="entries", y_label="MiB", log_x=True, log_y=True
    )
    add_legend(ax)
    return ax, f"Peak memory of {len(curves)} methods against the number of entries"


def _make_wide(n_series: int) -> Axes:
    return make_axes(width=784.0, height=440.0 + 7 * n_series)[0]
