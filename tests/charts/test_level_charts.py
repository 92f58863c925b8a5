"""Charts of levels: points and boundaries lie where the numbers say."""

import re

import numpy as np
import pytest
from tests.charts.test_lines import numbers

from deepmf.charts.level_charts import boundary_strips, reliability_diagram

WIDTH = 360


def test_points_of_the_reliability_diagram() -> None:
    drawn = str(reliability_diagram([0.0, 0.5, 1.0], [0.0, 0.25, 1.0], [100, 25, 1], title="reliability"))
    x, y, size = (numbers(drawn, "circle", name) for name in ("cx", "cy", "r"))
    assert x[1] == pytest.approx((x[0] + x[2]) / 2, abs=0.1)
    assert y[1] == pytest.approx(y[0] + (y[2] - y[0]) / 4, abs=0.1)
    assert size == sorted(size, reverse=True)
    assert "<title>25 forecasts of 50.0\N{NO-BREAK SPACE}%, 25.0\N{NO-BREAK SPACE}% came true</title>" in drawn


def test_strips_are_cut_at_the_boundaries() -> None:
    levels = np.array([1.0, 2.0, 3.0])
    drawn = str(boundary_strips(levels, [1.5, 2.5], [1.25, 2.0], np.array([0.0, 4.0]), title="strips"))
    left, width = np.array(numbers(drawn, "rect", "x")), np.array(numbers(drawn, "rect", "width"))
    units = (left - left[0]) / (WIDTH - 28) * 2 + 1
    assert units == pytest.approx([1, 1.5, 2.5, 1, 1.25, 2.0], abs=0.01)
    assert (left + width)[[2, 5]] == pytest.approx([WIDTH - 14] * 2, abs=0.1)
    assert drawn.count('class="mark"') == 2
    many = boundary_strips(np.arange(40.0), range(39), range(39), np.ones(2), title="strips")
    assert str(many).count("mark") == 0


def test_shares_of_few_forecasts_have_long_error_bars() -> None:
    drawn = str(reliability_diagram([0.5, 0.9], [0.5, 0.95], [9, 100], title="t", margins=[0.2, 0.1]))
    bars = [tuple(map(float, found)) for found in re.findall(r'd="M\S+ ([\d.]+)h6m-3 0V([\d.]+)m-3 0h6"', drawn)]
    (low, high), (_, top) = bars
    whole = 340 - 10 - 38
    assert low - high == pytest.approx(0.4 * whole, abs=0.2)
    assert top == pytest.approx(10, abs=0.1)  # no share is above 100 %
    assert "spread" not in str(reliability_diagram([0.5], [0.5], [9], title="t"))


def test_points_of_one_size_are_small() -> None:
    drawn = str(reliability_diagram([0.5, 0.9], [0.5, 0.95], [9, 9], title="t", noun="intervals", y_label="inside"))
    assert numbers(drawn, "circle", "r") == [4, 4]
    assert "<title>9 intervals of 50.0" in drawn
    assert ">inside</text>" in drawn
