"""The chart of a study: how much each setting matters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepmf.charts.bars import level_bars
from deepmf.charts.chart import check_picture, write_chart
from deepmf.charts.panels import panels


def draw_importances(importances: Mapping[str, float], path: Path, *, title: str) -> None:
    """Draw a bar for each setting, the most important on top; the same importances give the same file."""
    check_picture(path)
    names, shares = list(importances), list(importances.values())
    said = ", ".join(f"{name} {share:.0%}" for name, share in importances.items())
    chart = level_bars(names, shares, title=f"{title}: {said}", x_label="importance, %")
    write_chart(panels([(title, chart)], title=chart.title, columns=1), path)
