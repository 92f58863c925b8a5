"""Charts of levels: cells, points and boundaries lie where the numbers say."""

import re

import numpy as np
import pytest
from tests.report.test_charts import numbers

from deepmf.evaluation.calibration import ReliabilityBin
from deepmf.report.axes import LEFT, RIGHT, TOP, WIDTH
from deepmf.report.level_charts import boundary_strips, confusion_map, reliability_diagram


def cells(drawn: str) -> dict[tuple[float, float], float]:
    """Return the opacity of each cell by its upper left corner."""
    paths = re.findall(r'<path d="([^"]+)" class="cell" fill-opacity="([\d.]+)"', drawn)
    return {(float(x), float(y)): float(shade) for d, shade in paths for x, y in re.findall(r"M([\d.]+) ([\d.]+)h", d)}


def test_the_highest_true_level_is_on_top_and_larger_shares_are_darker() -> None:
    shares = np.array([[0.5, 0.5, 0], [0, 0, 0], [0.25, 0, 0.75]])
    drawn = confusion_map(shares, ["1", "2", "3"], title="map")
    found = cells(drawn)
    width, height = (WIDTH - LEFT - RIGHT) / 3, (340 - 38 - TOP) / 3
    where = {
        (round((x - LEFT) / width), round((y - TOP) / height)): shade for (x, y), shade in found.items()
    }  # predicted level, lines from the top
    assert where.keys() == {(0, 2), (1, 2), (0, 0), (2, 0)}
    assert where[(2, 0)] == 1
    assert where[(0, 2)] == where[(1, 2)] == pytest.approx(0.7)  # 2 / 3, in twentieths
    assert re.findall(r'class="middle (?:inside|dark|deep)">(\S+?)<', drawn) == ["50", "50", "25", "75"]


def test_a_small_share_is_not_nothing() -> None:
    drawn = confusion_map(np.array([[0.999, 0.001], [0, 1]]), ["0", "1"], title="map")
    assert re.findall(r'class="middle (?:inside|dark|deep)">(\S+?)<', drawn) == ["100", "&lt;1", "100"]


def test_many_levels_are_not_written_but_all_drawn() -> None:
    shares = np.full((64, 64), 1 / 64)
    drawn = confusion_map(shares, [str(at) for at in range(64)], title="map")
    assert len(cells(drawn)) == 64 * 64
    assert "inside" not in drawn
    assert len(drawn) < 200_000


def test_points_of_the_reliability_diagram() -> None:
    bins = [ReliabilityBin(100, 0.0, 0.0), ReliabilityBin(25, 0.5, 0.25), ReliabilityBin(1, 1.0, 1.0)]
    drawn = reliability_diagram(bins, title="reliability")
    x, y, size = (numbers(drawn, "circle", name) for name in ("cx", "cy", "r"))
    assert x[1] == pytest.approx((x[0] + x[2]) / 2, abs=0.1)
    assert y[1] == pytest.approx(y[0] + (y[2] - y[0]) / 4, abs=0.1)
    assert size == sorted(size, reverse=True)
    assert "<title>25 forecasts of 50.0\N{NO-BREAK SPACE}%, 25.0\N{NO-BREAK SPACE}% came true</title>" in drawn


def test_strips_are_cut_at_the_boundaries() -> None:
    levels = np.array([1.0, 2.0, 3.0])
    drawn = boundary_strips(levels, [1.5, 2.5], [1.25, 2.0], np.array([0.0, 4.0]), title="strips")
    left, width = np.array(numbers(drawn, "rect", "x")), np.array(numbers(drawn, "rect", "width"))
    units = (left - left[0]) / (WIDTH - 28) * 2 + 1
    assert units == pytest.approx([1, 1.5, 2.5, 1, 1.25, 2.0], abs=0.01)
    assert (left + width)[[2, 5]] == pytest.approx([WIDTH - 14] * 2, abs=0.1)
    assert drawn.count('class="mark"') == 2
    assert boundary_strips(np.arange(40.0), range(39), range(39), np.ones(2), title="strips").count("mark") == 0
