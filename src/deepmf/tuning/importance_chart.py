"""The chart of a study: how much each setting matters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepmf.charts.bars import level_bars
from deepmf.charts.chart import write_chart
from deepmf.charts.panels import panels
from deepmf.errors import BadSetting


def check_picture(path: Path) -> None:
    """Refuse a name that does not say what is written."""
    if path.suffix != ".svg":
        raise BadSetting(f"the name of a picture must end in .svg; got {str(path)!r}")


def draw_importances(importances: Mapping[str, float], path: Path, *, title: str) -> None:
    """Draw a bar for each setting, the most important on top; the same importances give the same file."""
    check_picture(path)
    names, shares = list(importances), list(importances.values())
    said = ", ".join(f"{name} {share:.0%}" for name, share in importances.items())
    chart = level_bars(names, shares, title=f"{title}: {said}", x_label="importance, %")
    write_chart(panels([(title, chart)], title=chart.title, columns=1), path)
