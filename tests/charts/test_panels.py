"""Panels: every chart, heading and key of the legend has a place of its own, inside."""

import re

import numpy as np

from deepmf.charts.axes import Frame
from deepmf.charts.chart import Chart
from deepmf.charts.markup import tag
from deepmf.charts.panels import panels
from deepmf.charts.styles import numbered


def chart() -> Chart:
    return Chart(tag("text", "plot"), "a chart", Frame(width=100, height=50))


def test_charts_stand_row_by_row() -> None:
    drawn = panels([(name, chart()) for name in "abc"], title="all", columns=2)
    places = [tuple(map(float, found)) for found in re.findall(r"translate\((\S+) (\S+)\)", drawn.drawn)]
    assert places[0][0] == places[2][0] < places[1][0]
    assert places[0][1] == places[1][1] < places[2][1]
    assert places[1][0] + 100 <= drawn.frame.width
    assert places[2][1] + 50 <= drawn.frame.height
    assert re.findall('class="middle heading">(.)<', drawn.drawn) == ["a", "b", "c"]


def test_the_legend_names_every_series_and_stays_inside() -> None:
    names = [f"method number {number}" for number in range(9)]
    drawn = panels(
        [("", Chart(tag("text", "plot"), "a chart", Frame(width=400)))],
        title="all",
        columns=1,
        legend=[(numbered(at), name) for at, name in enumerate(names)],
        note="a note",
    )
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="inside">([^<]+)<', drawn.drawn)
    assert [name for _, _, name in found] == names
    assert len({(x, y) for x, y, _ in found}) == 9
    assert max(float(x) + 6 * len(name) for x, _, name in found) < drawn.frame.width
    note = re.search(r'y="([\d.]+)" class="middle">a note', drawn.drawn)
    assert note is not None
    assert max(float(y) for _, y, _ in found) < float(note[1]) < drawn.frame.height
    assert "heading" not in drawn.drawn


def test_a_long_heading_stays_inside() -> None:
    drawn = panels([("a heading that is long", chart())] * 2, title="all", columns=2)
    middles = np.array(re.findall(r'x="([\d.]+)" y="\S+" class="middle heading"', drawn.drawn), dtype=float)
    half = 3.6 * len("a heading that is long")
    assert middles.min() >= half
    assert middles.max() <= drawn.frame.width - half
