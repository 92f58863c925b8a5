"""The dot plot: a line for each name, a point where its number is."""

import re

import pytest
from tests.charts.test_lines import numbers

from deepmf.charts.chart import Chart
from deepmf.charts.dot_plot import NamedPoints, dot_plot
from deepmf.charts.styles import ONE, OTHER

OURS = NamedPoints("ours", {"a": 1.0, "c": 3.0}, ONE, {"a": 0.5})
THEIRS = NamedPoints("published", {"a": 2.0}, OTHER, {})


def drawn(n_named: int) -> Chart:
    return dot_plot(["a", "b", "c"], [OURS, THEIRS], title="t", x_label="RMSE", n_named=n_named)


def test_points_lie_on_the_line_of_their_name() -> None:
    text = str(drawn(3))
    names = [float(y) for y in re.findall(r'y="([\d.]+)" class="end inside">[abc]<', text)]
    x, y = numbers(text, "circle", "cx"), numbers(text, "circle", "cy")
    assert y == pytest.approx([names[0] - 4, names[0] - 4, names[2] - 4])
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.02)  # 1, 2 and 3
    ((low, high),) = re.findall(r'd="M([\d.]+) \S+v6m0 -3H([\d.]+)m0 -3v6" class="spread one"', text)
    assert float(high) - float(low) == pytest.approx(x[1] - x[0], abs=0.1)
    assert "<title>a, ours: 1.0000 ± 0.5000</title>" in text


def test_a_panel_without_names_is_narrower() -> None:
    assert "end inside" not in str(drawn(0))
    assert drawn(0).frame.width < drawn(3).frame.width
    assert drawn(0).frame.height == drawn(3).frame.height
