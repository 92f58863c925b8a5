"""How a matrix is shown in a notebook: its size and scale, and which values it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepmf.charts.bars import bars
from deepmf.charts.notebook_view import notebook_view
from deepmf.charts.series import Series
from deepmf.charts.wording import amount, count, percent, short

if TYPE_CHECKING:
    from deepmf.matrix.description import Description


def matrix_html(name: str, shown: Description) -> str:
    """Return a description with a chart of the values, as a notebook shows it."""
    facts = {
        "size": f"{count(shown.n_rows)} rows x {count(shown.n_columns)} columns",
        "entries": f"{count(shown.n_entries)} ({percent(shown.density, digits=2)} observed)",
        "scale": str(shown.scale),
        "values": f"mean {amount(shown.mean)}, standard deviation {amount(shown.standard_deviation)}",
        "entries per row": _spread(shown.entries_per_row, shown.n_empty_rows),
        "entries per column": _spread(shown.entries_per_column, shown.n_empty_columns),
    }
    if shown.n_entries == 0:
        return notebook_view(name, facts)
    chart = bars(
        [short(float(f"{value:.3g}")) for value in shown.histogram],
        [Series("entries", list(shown.histogram.values()))],
        title="Number of entries by value",
        x_label="value" if shown.scale.levels is None else "level",
        y_label="entries",
    )
    return notebook_view(name, facts, {"Which values there are": chart})


def _spread(counts: dict[str, float], n_empty: int) -> str:
    said = f"{counts['min']:g} to {counts['max']:g}, median {counts['median']:g}"
    return said + (f"; {count(n_empty)} without any" if n_empty else "")
