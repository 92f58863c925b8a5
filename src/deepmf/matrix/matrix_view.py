"""How a matrix is shown in a notebook: its size and scale, and which values it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepmf.formatting import format_amount, format_count, format_percent, format_short
from deepmf.plots import build_notebook_view, plot_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deepmf.matrix.description import Description


def matrix_html(name: str, shown: Description) -> str:
    """Return a description with a plot of the values, as a notebook shows it."""
    facts = {
        "size": f"{format_count(shown.n_rows)} rows x {format_count(shown.n_columns)} columns",
        "entries": f"{format_count(shown.n_entries)} ({format_percent(shown.density, digits=2)} observed)",
        "scale": str(shown.scale),
        "values": f"mean {format_amount(shown.mean)}, standard deviation {format_amount(shown.standard_deviation)}",
        "entries per row": _spread(shown.entries_per_row, shown.n_empty_rows),
        "entries per column": _spread(shown.entries_per_column, shown.n_empty_columns),
    }
    if shown.n_entries == 0:
        return build_notebook_view(name, facts, {})
    return build_notebook_view(name, facts, {"Number of entries by value": lambda: plot_values(shown)})


def plot_values(shown: Description, ax: Axes | None = None) -> Axes:
    """Draw how many entries have each value."""
    return plot_bars(
        [format_short(float(f"{value:.3g}")) for value in shown.histogram],
        {"entries": list(shown.histogram.values())},
        ax,
        x_label="value" if shown.scale.levels is None else "level",
        y_label="entries",
    )


def _spread(counts: dict[str, float], n_empty: int) -> str:
    said = f"{counts['min']:g} to {counts['max']:g}, median {counts['median']:g}"
    return said + (f"; {format_count(n_empty)} without any" if n_empty else "")
