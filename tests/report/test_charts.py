"""Charts: what is drawn is as large, and where, as the numbers say."""

import re

import numpy as np
import pytest

from deepmf.report.axes import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from deepmf.report.charts import HEIGHT, OTHER, Series, bars, curve, dots

NAMES = {"title": "title", "x_label": "x", "y_label": "y"}


def numbers(written: str, element: str, attribute: str) -> list[float]:
    """Return an attribute of every such element, in order."""
    return [float(found) for found in re.findall(rf'<{element} [^>]*?\b{attribute}="(-?[\d.]+)"', written)]


def test_bars_are_as_high_as_their_numbers() -> None:
    drawn = bars(["a", "b"], [Series("one", [4, 2]), Series("two", [1, 0], OTHER)], **NAMES)
    assert numbers(drawn, "rect", "height") == pytest.approx(np.array([4, 2, 1, 0]) / 4 * (HEIGHT - BOTTOM - TOP))
    feet = np.add(numbers(drawn, "rect", "y"), numbers(drawn, "rect", "height"))
    assert feet == pytest.approx(np.full(4, HEIGHT - BOTTOM))
    left = numbers(drawn, "rect", "x")
    assert left[0] < left[2] < left[1] < left[3]  # those of one group side by side
    assert re.findall('class="bar (one|other)"', drawn) == ["one", "one", "other", "other"]
    assert "<title>b, one: 2</title>" in drawn


def test_bars_of_many_groups_stay_inside() -> None:
    drawn = bars([str(at) for at in range(64)], [Series("one", range(64)), Series("two", range(64))], **NAMES)
    left, width = np.array(numbers(drawn, "rect", "x")), np.array(numbers(drawn, "rect", "width"))
    assert left.min() >= LEFT
    assert (left + width).max() <= WIDTH - RIGHT


def test_dots_go_from_left_to_right_and_up() -> None:
    drawn = dots(["a", "b", "c"], [Series("one", [1, 3, 2])], **NAMES)
    x, y = numbers(drawn, "circle", "cx"), numbers(drawn, "circle", "cy")
    assert x == sorted(x)
    assert y == pytest.approx([HEIGHT - BOTTOM, TOP, (HEIGHT - BOTTOM + TOP) / 2])
    points = re.findall(r'points="([^"]+)"', drawn)[0].split()
    assert [point.split(",")[1] for point in points] == [f"{at:.1f}" for at in y]


def test_a_curve_and_its_best() -> None:
    drawn = curve([1, 2, 3], [8, 3, 4], best=(2, 3), **NAMES)
    points = [tuple(map(float, point.split(","))) for point in re.findall(r'points="([^"]+)"', drawn)[0].split()]
    assert points[1] == pytest.approx((numbers(drawn, "circle", "cx")[0], numbers(drawn, "circle", "cy")[0]), abs=0.1)
    assert points[0][0] == LEFT
    assert "circle" not in curve([1, 2], [8, 2], **NAMES)
    low = curve([1, 3], [8, 4], best=(2, 0.5), **NAMES)  # left out of the points, as the best may be
    assert TOP < numbers(low, "circle", "cy")[0] < HEIGHT - BOTTOM


def test_one_epoch_is_a_point() -> None:
    drawn = curve([7], [0.5], **NAMES)
    assert len(numbers(drawn, "circle", "cx")) == 1
    assert ">7</text>" in drawn
